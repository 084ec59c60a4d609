"""Coarse to fine: find the fastest candidate while measuring few of them. Knows no device and no clock.

A candidate is a tuple (m, n, k, backend). `evaluate(candidate)` returns a score (higher is better) or raises
Refused.
"""

import itertools
import time

from escherlib.errors import Refused

COARSE_SHARE = 0.5  # of the budget, before the best so far are tried through every backend
STEPS = (0.5, 0.25, 0.125)  # share of a dimension by which refinement moves, coarse to fine
MULTIPLE = 256  # refined sizes stay multiples of this: whole tiles of every known GEMM kernel
MIN_GAIN = 0.003  # a neighbour must be this much faster to count as progress


class Trail:
    """What has been tried, in order, with what was found; and whether there is time for one more."""

    def __init__(self, evaluate, budget_s, now_s=time.monotonic):
        self.evaluate, self.budget_s, self.now_s = evaluate, budget_s, now_s
        self.started_s = now_s()
        self.entries = []
        self.scores = {}
        self.out_of_time = False

    def elapsed_s(self):
        """Seconds since the search began."""
        return self.now_s() - self.started_s

    def _expected_s(self):
        return max((entry["took_s"] for entry in self.entries[-3:]), default=0.0)

    def visit(self, candidate, phase):
        """Measure a candidate once; False where no time is left for it. One is measured in any case."""
        if candidate in self.scores:
            return True
        late = self.elapsed_s() + self._expected_s() > self.budget_s
        if self.out_of_time or (late and self.ranked()):
            self.out_of_time = True
            return False
        begun, refused = self.now_s(), None
        try:
            score = self.evaluate(candidate)
        except Refused as error:
            score, refused = None, str(error)
        self.scores[candidate] = score
        m, n, k, backend = candidate
        entry = {"m": m, "n": n, "k": k, "backend": backend, "score": score, "phase": phase}
        entry["took_s"] = self.now_s() - begun
        self.entries.append({**entry, "refused": refused} if refused else entry)
        return True

    def ranked(self):
        """Candidates with a score, fastest first."""
        found = [candidate for candidate, score in self.scores.items() if score is not None]
        return sorted(found, key=lambda c: -self.scores[c])

    def best_shapes(self, count, among=None):
        """The fastest candidate of each of the `count` fastest shapes, optionally only among given shapes."""
        chosen = {}
        for candidate in self.ranked():
            if among is None or candidate[:3] in among:
                chosen.setdefault(candidate[:3], candidate)
        return list(chosen.values())[:count]


def neighbours(candidate, step):
    """The candidate with one dimension moved up or down by `step` of itself, kept to whole multiples of
    MULTIPLE.
    """
    *shape, backend = candidate
    for axis, factor in itertools.product(range(3), (1 + step, 1 / (1 + step))):
        moved = list(shape)
        moved[axis] = max(MULTIPLE, round(shape[axis] * factor / MULTIPLE) * MULTIPLE)
        if moved[axis] != shape[axis]:
            yield (*moved, backend)


def explore(
    trail, shapes, musts, backends, *, admit=lambda shape: True, keep=2, steps=STEPS, min_gain=MIN_GAIN
):
    """Run a search on a Trail; returns why it stopped.

    `musts` (shapes) come first, then the coarse `shapes`, all through the first backend, for at most
    COARSE_SHARE of the budget; then the other backends on the fastest shapes and the best must; then the rest
    of the coarse shapes; then, step by step finer, the neighbours of the `keep` fastest, again as long as one
    gains. Apart from the musts, shapes have to pass `admit`.
    """
    for shape in musts:
        trail.visit((*shape, backends[0]), "must")
    _coarse(trail, shapes, backends[0], admit, COARSE_SHARE * trail.budget_s)
    leaders = trail.best_shapes(2 * keep) + trail.best_shapes(1, among={tuple(s) for s in musts})
    for candidate in dict.fromkeys(leaders):
        for backend in backends[1:]:
            trail.visit((*candidate[:3], backend), "backend")
    _coarse(trail, shapes, backends[0], admit, trail.budget_s)
    for step in steps:
        while _refine(trail, step, admit, keep, min_gain):
            pass
    if not trail.ranked():
        return "no candidate could be measured"
    return "out of time" if trail.out_of_time else f"no neighbour gained more than {100 * min_gain:g} %"


def _coarse(trail, shapes, backend, admit, until_s):
    """Visit coarse shapes in their order until `until_s` of the search has passed."""
    for shape in shapes:
        if trail.ranked() and trail.elapsed_s() >= until_s:
            return
        if admit(shape):
            trail.visit((*shape, backend), "coarse")


def _refine(trail, step, admit, keep, min_gain):
    """One round of neighbours of the leaders. True where it gained and another round is worth it."""
    leaders = trail.best_shapes(keep)
    if not leaders or trail.out_of_time:
        return False
    before = trail.scores[leaders[0]]
    for leader in leaders:
        for candidate in neighbours(leader, step):
            if admit(candidate[:3]):
                trail.visit(candidate, f"refine {step:g}")
    return not trail.out_of_time and trail.scores[trail.ranked()[0]] > before * (1 + min_gain)
