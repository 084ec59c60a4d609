"""Whole calls in turns: every sample kept, one window a round, no idling of the device between two calls of a round."""

import pytest

from escherlib import timing
from tests.timing.simclock import SimClock


def test_each_call_is_one_sample_and_each_round_one_window():
    clock = SimClock(lambda busy, idle, i: 2_000_000)
    seen = {"chunk": [], "floor": []}

    def work(name):
        def call(i):
            seen[name].append(i)
            clock.call(i)

        return call

    states = timing.turns({"chunk": (work("chunk"), 4), "floor": (work("floor"), 2)}, clock, rounds=3)
    assert seen == {"chunk": list(range(12)), "floor": list(range(6))}
    assert states["chunk"]["n"] == 12 and states["floor"]["n"] == 6
    assert states["chunk"]["calls_per_sample"] == 1 and len(states["chunk"]["windows_ns"]) == 3
    assert states["chunk"]["median_s"] == pytest.approx(0.002, abs=2e-6)  # and what the host needs to enqueue the first
    ends = [window[1] for window in states["chunk"]["windows_ns"]]
    starts = [window[0] for window in states["floor"]["windows_ns"]]
    assert all(start >= end for start, end in zip(starts, ends, strict=True))


def test_a_run_enqueues_all_its_calls_before_it_waits():
    clock = SimClock(lambda busy, idle, i: 1_000_000)
    samples, window = timing.run_calls(clock.call, clock, 5)
    assert samples[1:] == [1_000_000] * 4 and clock.gaps == 0
    assert window[1] - window[0] >= 5_000_000


def test_a_device_that_slows_down_is_called_drifting():
    clock = SimClock(lambda busy, idle, i: 1_000_000 + 20_000 * i)
    assert timing.turns({"chunk": (clock.call, 8)}, clock, rounds=3)["chunk"]["label"] == "drifting"
