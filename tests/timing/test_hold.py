"""A hold on a simulated device: what warms, what is held, and that every line makes a result by itself."""

import json

import pytest

from escherlib.timing import hold, journal
from tests.timing.simclock import SimClock, capped

SHORT = {"settle_min_s": 0.6, "settle_cap_s": 3.0, "batch_s": 1e-3}


def lines_of(clock, **changes):
    how = {"seconds": 2.0, "window_s": 0.1, "idle_s": 1.0, "protocol": SHORT} | changes
    return list(hold.windows(clock.call, clock, **how))


def test_a_capped_device_warms_first_and_is_held_at_its_settled_speed():
    clock = SimClock(capped())
    header, *windows = lines_of(clock)
    assert header["seconds"] == 2.0 and header["work"]["calls"] >= 1 and "run" not in header["work"]
    kinds = [w["warming"] for w in windows]
    assert kinds == sorted(kinds, reverse=True) and kinds[0] and not kinds[-1]
    found = hold.assemble([{"about": {"flop": 10**9}}, header, *windows])
    state = found["states"]["sustained"]
    assert state["median_s"] == pytest.approx(1.25e-3, rel=1e-3)  # the speed after the cap, not the burst's 1 ms
    assert state["tflops"] == pytest.approx(1e9 / 1.25e-3 / 1e12, rel=1e-3)
    assert found["held_s"] == pytest.approx(2.0, rel=0.06) and found["ended"] == hold.ENOUGH
    assert sum(t["samples"] for t in found["timeline"] if not t["warming"]) == len(state["samples_ns"])
    assert sum(t["samples"] for t in found["timeline"] if t["warming"]) == len(found["warming"]["samples_ns"])
    assert min(found["warming"]["samples_ns"]) < state["median_s"] * 1e9 * state["calls_per_sample"] * 0.85  # the burst is kept


def test_what_was_told_so_far_is_a_result_and_nothing_is_none():
    header, *windows = lines_of(SimClock(lambda busy, idle, i: 1_000_000))
    first_held = next(i for i, w in enumerate(windows) if not w["warming"])
    cut = json.loads(json.dumps([header, *windows[: first_held + 3]]))  # as it reads back from disk
    found = hold.assemble(cut, hold.ENDED_BY_USER)
    spans = [line["window_ns"] for line in cut[1:] if not line["warming"]]
    assert len(spans) == 3 and found["held_s"] == pytest.approx((spans[-1][1] - spans[0][0]) / 1e9)
    assert found["ended"] == hold.ENDED_BY_USER
    assert found["states"]["sustained"]["stop"] == f"ended by the user after {found['held_s']:.1f} of 2 s"
    assert hold.assemble([header, *windows[:first_held]]) is None and hold.assemble([]) is None


def test_a_device_that_never_settles_is_held_all_the_same_and_says_so():
    clock = SimClock(lambda busy, idle, i: 1_000_000 + 400 * i)
    found = hold.assemble(lines_of(clock))
    assert found["states"]["sustained"]["label"] == "not settled when the clock started"
    assert found["warming"]["seconds"] >= 3.0


def test_lines_go_to_the_innermost_listener_or_nowhere():
    journal.note({"lost": 1})
    outer, inner = [], []
    with journal.heard_by(outer.append):
        with journal.heard_by(inner.append):
            journal.note({"a": 1})
        journal.note({"b": 2})
    journal.note({"lost": 2})
    assert (outer, inner) == ([{"b": 2}], [{"a": 1}])
