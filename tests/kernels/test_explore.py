"""The search on made-up machines: does it find the best, in time, and say why it stopped?"""

import itertools
import math

from escherlib.errors import Refused
from escherlib.kernels import explore

SIZES = (1024, 2048, 4096, 8192, 16384)
COARSE = list(itertools.product(SIZES, SIZES, SIZES))


class Machine:
    """A surface with one hill, two backends, and a clock that each look at it moves."""

    def __init__(self, best=(6144, 9216, 5120), cost_s=0.3):
        self.best, self.cost_s, self.time_s, self.asked = best, cost_s, 0.0, []

    def evaluate(self, candidate):
        self.time_s += self.cost_s
        self.asked.append(candidate)
        *shape, backend = candidate
        away = sum(math.log2(size / top) ** 2 for size, top in zip(shape, self.best, strict=True))
        return 700 * math.exp(-0.05 * away) * (1.02 if backend == "fast" else 1.0)

    def trail(self, budget_s):
        return explore.Trail(self.evaluate, budget_s, now_s=lambda: self.time_s)


def test_it_climbs_to_the_top_of_a_smooth_hill():
    machine = Machine()
    trail = machine.trail(600)
    stop = explore.explore(trail, COARSE, [], ["slow", "fast"])
    best = trail.ranked()[0]
    assert best[3] == "fast" and trail.scores[best] > 0.99 * 700 * 1.02
    assert "no neighbour" in stop
    assert len(machine.asked) == len(set(machine.asked)) < len(COARSE) + 80


def test_it_keeps_its_budget_and_says_so():
    machine = Machine(cost_s=0.25)
    trail = machine.trail(25)
    assert explore.explore(trail, COARSE, [], ["slow", "fast"]) == "out of time"
    assert machine.time_s == 25 and len(trail.entries) == 100


def test_other_backends_are_tried_before_a_long_coarse_list_is_done():
    machine = Machine(cost_s=0.25)
    trail = machine.trail(25)
    explore.explore(trail, COARSE, [], ["slow", "fast"])
    phases = [entry["phase"] for entry in trail.entries]
    assert phases[:54] == ["coarse"] * 50 + ["backend"] * 4 and phases[54] == "coarse"


def test_one_candidate_is_measured_however_short_the_budget():
    trail = Machine().trail(0.0)
    assert explore.explore(trail, COARSE, [], ["slow", "fast"]) == "out of time"
    assert len(trail.entries) == 1


def test_what_must_be_tried_comes_first():
    machine = Machine()
    trail = machine.trail(0.7)
    explore.explore(trail, COARSE, [(4680, 5120, 13824), (4680, 13824, 5120)], ["slow", "fast"])
    assert [c[:3] for c in machine.asked] == [(4680, 5120, 13824), (4680, 13824, 5120)]


def test_the_best_workload_shape_is_tried_with_every_backend():
    machine = Machine()
    trail = machine.trail(600)
    explore.explore(trail, COARSE, [(256, 256, 256), (512, 256, 256)], ["slow", "fast"])
    assert (512, 256, 256, "fast") in machine.asked


def test_refused_candidates_are_kept_with_their_reason_and_never_win():
    def evaluate(candidate):
        if candidate[0] > 4096:
            raise Refused("does not fit")
        return float(candidate[0])

    trail = explore.Trail(evaluate, 100, now_s=lambda: 0.0)
    explore.explore(trail, [(2048, 2048, 2048), (8192, 8192, 8192)], [], ["only"])
    assert trail.ranked()[0][0] <= 4096
    assert [e["refused"] for e in trail.entries if e["m"] == 8192] == ["does not fit"]


def test_nothing_measurable_ends_without_a_best():
    def evaluate(candidate):
        raise Refused("no")

    trail = explore.Trail(evaluate, 100, now_s=lambda: 0.0)
    assert explore.explore(trail, [(256, 256, 256)], [], ["only"]) == "no candidate could be measured"
    assert trail.ranked() == []


def test_neighbours_stay_on_whole_tiles_and_above_zero():
    # 25 % of 256 and of 512 are less than half a tile: those sizes stay
    assert set(explore.neighbours((256, 4096, 512, "b"), 0.25)) == {
        (256, 5120, 512, "b"),
        (256, 3328, 512, "b"),
    }


def test_inadmissible_shapes_are_not_tried():
    machine = Machine(best=(65536, 65536, 65536))
    trail = machine.trail(600)
    explore.explore(trail, [(8192, 8192, 8192)], [], ["only"], admit=lambda s: max(s) <= 12288)
    assert max(max(c[:3]) for c in machine.asked) == 12288
