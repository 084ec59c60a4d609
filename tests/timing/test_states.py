"""The states on simulated devices: a power cap, ramps, drift, noise, faulty readings, a slow host."""

import random

import pytest

from escherlib.timing import states
from tests.timing.simclock import SimClock, capped


def test_burst_sees_the_speed_before_the_cap_and_sustained_the_one_after():
    clock = SimClock(capped())
    burst = states.burst(clock.call, clock)
    assert burst["median_s"] == pytest.approx(1.0e-3, rel=1e-3)
    assert (burst["label"], len(burst["tries"])) == (None, 3)
    sustained = states.sustained(clock.call, clock)
    assert sustained["median_s"] == pytest.approx(1.25e-3, rel=1e-3)


def test_a_burst_that_idling_does_not_restore_says_so_after_trying_longer():
    clock = SimClock(lambda busy_s, idle_s, i: 1_000_000 + 60 * i)
    burst = states.burst(clock.call, clock)
    assert burst["label"] == "burst not recovered"
    assert burst["idle_s"] >= 4.0  # doubled until the row's time was up
    assert burst["tries"][0]["samples_ns"]


def test_long_calls_have_no_burst_value():
    clock = SimClock(lambda *_: 25_000_000)
    burst = states.burst(clock.call, clock)
    assert burst["median_s"] is None and burst["n"] == 0
    assert burst["label"].startswith("no burst value: a call takes 25 ms")


def test_short_calls_are_replayed_as_a_graph():
    clock = SimClock(lambda *_: 20_000, can_graph=True)
    burst = states.burst(clock.call, clock)
    assert burst["timed_as"] == "graph" and clock.graphs == 1
    assert burst["median_s"] == pytest.approx(20e-6, rel=0.02)


def test_a_slow_host_is_met_with_a_graph_or_told():
    slow = {"host_ns": 50_000}
    clock = SimClock(lambda *_: 60_000, can_graph=True, **slow)
    assert states.sustained(clock.call, clock)["timed_as"] == "graph"
    clock = SimClock(lambda *_: 60_000, can_graph=True, **slow)
    clock.graph = lambda *_: (_ for _ in ()).throw(RuntimeError("no capture\nhere"))
    told = states.sustained(clock.call, clock)
    assert (told["timed_as"], told["label"]) == ("events", "launch-bound; no graph: no capture")


def test_timed_batches_follow_each_other_without_a_gap():
    clock = SimClock(lambda *_: 300_000)
    states.sustained(clock.call, clock)
    gaps = clock.gaps
    more = states.sustained(clock.call, clock)
    # the estimate before each state may drain the queue a few times; its hundreds of batches never do
    assert clock.gaps - gaps <= 16 and more["n"] > 200


def test_a_sample_is_at_least_a_millisecond_and_there_are_at_most_three_thousand():
    clock = SimClock(lambda *_: 10_000)
    found = states.sustained(clock.call, clock, window_s=6.0)
    assert min(found["samples_ns"]) >= 1_000_000
    assert found["n"] <= 3100  # batches in flight at the end are kept as well


def test_samples_span_the_window():
    clock = SimClock(lambda *_: 2_000_000)
    found = states.sustained(clock.call, clock)
    assert sum(found["samples_ns"]) >= 1_000_000_000
    start, end = found["windows_ns"][0]
    assert end - start == pytest.approx(sum(found["samples_ns"]), rel=0.1)


def test_conditioning_goes_on_until_the_kernel_is_steady():
    clock = SimClock(lambda busy_s, idle_s, i: 1_250_000 - 250_000 * 0.5 ** (busy_s / 0.4))
    found = states.sustained(clock.call, clock)
    assert found["condition_s"] > 1.5
    assert found["median_s"] == pytest.approx(1.25e-3, rel=0.01) and found["label"] is None


def test_a_window_that_slows_down_is_drifting_and_noise_is_not():
    clock = SimClock(lambda busy_s, idle_s, i: 1_000_000 * (1 + 0.1 * busy_s))
    found = states.sustained(clock.call, clock)
    assert found["label"] == "drifting" and found["drift"]["change"] > 0.01
    source = random.Random(1)
    clock = SimClock(lambda *_: source.gauss(1_000_000, 30_000))
    found = states.sustained(clock.call, clock)
    assert found["label"] is None and abs(found["drift"]["change"]) < 0.01


def test_settled_once_groups_agree_and_never_before_the_least_time():
    clock = SimClock(capped())
    found = states.settle(clock.call, clock)
    assert found["settled"] and found["stop"].startswith("settled after 6.")


def test_a_ramp_ends_at_the_cap_and_says_drifting():
    clock = SimClock(lambda busy_s, idle_s, i: 1_000_000 * (1 + 0.01 * busy_s))
    found = states.settle(clock.call, clock)
    assert (found["settled"], found["label"]) == (False, "drifting")
    assert found["stop"].startswith("not settled after 4")


def test_thermal_needs_a_sensor_that_says_so():
    assert states.unsettled_label([1, 2, 3, 4, 5, 6], lambda: {"limit_reasons": ["hardware thermal"]}) == "thermal"
    assert states.unsettled_label([1, 2, 3, 4, 5, 6], lambda: None) == "drifting"
    assert states.unsettled_label([1, 3, 1, 3, 1, 3]) == "noisy"


def test_is_settled_by_hand():
    assert states.is_settled([1, 1, 1, 1.004, 1.004, 1.004], 0.005)
    assert not states.is_settled([1, 1, 1, 1.006, 1.006, 1.006], 0.005)
    # standard errors: variance 0.01/3 each → √(0.02/3) = 0.0816; a step of 0.15 is within twice that
    assert states.is_settled([0.9, 1.0, 1.1, 1.05, 1.15, 1.25], 0.005)
    assert not states.is_settled([1, 1, 1], 0.005)


def test_fastest_run_by_hand():
    # whole calls of at least 20 ms: 12 + 9 = 21 ms over two calls beats 9 + 11 (20 ms) not: 10 ms against 10.5
    assert states.fastest_run_s([12_000_000, 9_000_000, 11_000_000], 0.02, 1) == pytest.approx(10e-3)
    assert states.fastest_run_s([12_000_000, 9_000_000, 11_000_000], 0.02, 2) == pytest.approx(5e-3)
    assert states.fastest_run_s([5_000_000], 0.02, 1) is None
    assert states.fastest_run_s([25_000_000, 0, 15_000_000], 0.02, 1) == pytest.approx(25e-3)


def test_zero_and_negative_readings_are_marked_and_do_not_stop_the_engine():
    distort = lambda elapsed, n: -3 if n % 10 == 0 else 0 if n % 11 == 0 else elapsed  # noqa: E731
    clock = SimClock(lambda *_: 1_000_000, distort=distort)
    found = states.sustained(clock.call, clock)
    assert set(found["marks"].values()) == {"zero", "negative"}
    assert found["median_s"] == pytest.approx(1e-3) and found["n"] < len(found["samples_ns"])


def test_a_clock_that_always_reads_zero_ends_with_null():
    clock = SimClock(lambda *_: 1_000_000, distort=lambda elapsed, n: 0)
    found = states.burst(clock.call, clock, protocol={"burst_idle_cap_s": 0.5})
    assert found["median_s"] is None


def test_adaptive_stops_by_interval_or_by_cap_and_says_which():
    clock = SimClock(lambda *_: 1_000_000)
    assert states.adaptive(clock.call, clock)["stop"].startswith("interval ± 0.00 %")
    source = random.Random(2)
    clock = SimClock(lambda *_: max(1, source.gauss(1_000_000, 300_000)))
    assert states.adaptive(clock.call, clock, max_s=0.5)["stop"].startswith("time cap of 0.5 s")


def test_a_bimodal_row_shows_its_spread():
    source = random.Random(3)
    clock = SimClock(lambda *_: 1_000_000 if source.random() < 0.5 else 2_000_000)
    found = states.adaptive(clock.call, clock, max_s=0.5)
    assert found["p10_s"] == pytest.approx(1e-3, rel=0.05) and found["p90_s"] == pytest.approx(2e-3, rel=0.05)


def test_cold_flushes_before_every_call_and_outside_the_timed_part():
    clock = SimClock(lambda *_: 1_000_000)
    flushed = []

    def flush():
        flushed.append(1)
        clock._run(5)

    found = states.adaptive(clock.call, clock, flush=flush)
    assert found["state"] == "cold" and found["median_s"] == pytest.approx(1e-3, rel=0.01)
    assert len(flushed) == len(found["samples_ns"])


def test_interleaved_windows_see_the_same_device():
    clock = SimClock(capped())
    found = states.interleaved({"a": clock.call, "b": clock.call}, clock, window_s=0.5, rounds=2)
    assert {name: len(state["windows_ns"]) for name, state in found.items()} == {"a": 2, "b": 2}
    assert found["a"]["median_s"] == pytest.approx(found["b"]["median_s"])


def test_transient_shows_the_cap_bite():
    clock = SimClock(capped(after_s=0.05))
    found = states.transient(clock.call, clock, total_s=0.3)
    assert found["windows"][0]["call_s"] == pytest.approx(1e-3, rel=0.01)
    assert found["windows"][-1]["call_s"] == pytest.approx(1.25e-3, rel=0.01)
    assert found["windows"][1]["at_s"] == pytest.approx(0.02, rel=0.1)
