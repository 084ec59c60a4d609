"""Family 7 judged on invented records: phases, drift, limits, SC-7 in every branch."""

import statistics

import pytest

from escherlib.judge import sustained
from escherlib.judge.sustained import Window
from escherlib.judge.sustained_criteria import sustained_run
from escherlib.parameters import load_scoring
from escherlib.run.results import load_results
from tests.report.factory import FakeRun, fill_compute
from tests.report.factory_sustained import SUSTAINED, fill_sustained, hold_record

SCORING = load_scoring()


def results(tmp_path, kind="gpu", change=None, **options):
    run = FakeRun(tmp_path, kind, "h200_sxm" if kind == "gpu" else None)
    fill_compute(run)
    fill_sustained(run, **options)
    if change:
        change(run.records[SUSTAINED])
    return load_results(run.write())


def test_phases_by_hand(tmp_path):
    run = FakeRun(tmp_path, "gpu", "h200_sxm")
    record, _ = hold_record(run, windows=40, noise=0.0, slower=0.0, warming=5)
    hold = sustained.read_hold(results(tmp_path, windows=40, noise=0.0, slower=0.0, warming=5), SCORING)
    per_call = record["states"]["sustained"]["median_s"]
    assert {name: (p.start_s, p.end_s) for name, p in hold.phases.items() if name in ("head", "tail", "held")} == {
        "head": (0.0, 4.0), "tail": (36.0, 40.0), "held": (0.0, 40.0),
    }  # fmt: skip
    assert hold.phases["first"].start_s == -5.0
    assert hold.phases["first"].call_s == pytest.approx(0.85 * per_call, rel=1e-6)  # 15 % faster from rest
    assert hold.phases["held"].call_s == pytest.approx(per_call) and hold.drift_share == pytest.approx(0, abs=1e-9)
    assert hold.clock_drop == pytest.approx(0, abs=1e-6)
    assert hold.phases["worst"].end_s - hold.phases["worst"].start_s == 10.0  # too short for a worst minute


def test_drift_and_energy_by_hand(tmp_path):
    found = results(tmp_path, windows=200, noise=0.0, slower=0.10)
    hold = sustained.read_hold(found, SCORING)
    # the time rises from 1 to 1.1 × base: head centres on 1.005, tail on 1.095
    assert hold.drift_share == pytest.approx(1.095 / 1.005 - 1, abs=2e-3)
    assert hold.drift["low"] > 0 and hold.drift["change"] == pytest.approx(0.10 / 1.05, rel=0.05)
    assert hold.phases["worst"].start_s == 140.0  # the last whole minute
    calls = len(found.row(SUSTAINED, "hold/stack").get("states", "sustained", "samples_ns"))
    assert hold.joules_per_call == pytest.approx(698.0 * 200 / calls) and hold.energy_how == "counter"


def test_sigma_growth_is_that_of_single_calls(tmp_path):
    def spread(records):
        state = records["hold/stack"]["result"]["states"]["sustained"]
        count = len(state["samples_ns"])
        base = statistics.median(state["samples_ns"])
        state["samples_ns"] = [round(base * (1 + (0.001 if i < count / 2 else 0.004) * (-1) ** i)) for i in range(count)]

    hold = sustained.read_hold(results(tmp_path, windows=300, change=spread), SCORING)
    assert hold.sigma_growth == pytest.approx(4.0, rel=0.05)
    row = sustained_run(results(tmp_path / "b", windows=300, change=spread), SCORING)
    assert row.status == "FAIL" and "σ growth 4.0" in row.reason


def windows_with(**sensors):
    return [Window(float(i), 1.0, 0.3, False, **sensors) for i in range(10)]


@pytest.mark.parametrize(
    ("sensors", "fastest", "wanted"),
    [
        ({"limits": {"hw_thermal_slowdown": 0.3, "sw_power_cap": 0.9}, "clock_mhz": 1200.0}, 1980.0, "thermal"),
        ({"limits": {"sw_power_cap": 0.9}, "clock_mhz": 1450.0}, 1980.0, "power cap"),
        ({"limits": {}, "power_w": 690.0, "power_limit_w": 700.0, "clock_mhz": 1450.0}, 1980.0, "power cap"),
        ({"limits": {"applications_clocks_setting": 1.0}, "clock_mhz": 1450.0}, 1980.0, "clock limit"),
        ({"limits": {}, "clock_mhz": 1975.0}, 1980.0, "not limited"),
        ({"limits": {}, "clock_mhz": 1450.0}, 1980.0, "cannot tell"),
        ({"limits": {"sw_power_cap": 0.01}, "power_w": 400.0, "power_limit_w": 700.0}, None, "cannot tell"),
        ({}, None, "cannot tell"),
    ],
)
def test_what_limits_is_read_from_several_signals(sensors, fastest, wanted):
    limit, why = sustained.limit_of(windows_with(**sensors), fastest)
    assert limit == wanted and why


def test_a_steady_cap_is_told_from_one_that_moves():
    steady, falling = windows_with(limits={"power": 1.0}, clock_mhz=1450.0), [
        Window(float(i), 1.0, 0.3, False, limits={"power": 1.0}, clock_mhz=1500.0 - 20 * i) for i in range(10)
    ]  # fmt: skip
    assert "the clock stays" in sustained.limit_of(steady, 1980.0)[1]
    assert "the clock moves (1460 to 1360 MHz)" in sustained.limit_of(falling, 1980.0)[1]


def clock_falls(records):
    timeline = records["hold/stack"]["telemetry"]["timeline"]
    for index, part in enumerate(timeline):
        part["clock_mhz"] = 1500.0 - 300.0 * index / len(timeline)


def test_sc7_in_every_branch(tmp_path):
    good = sustained_run(results(tmp_path / "1"), SCORING)
    assert (good.status, good.role) == ("PASS", "opt-in") and good.reason.startswith("PASS (60 s): drift 0.4 %")
    long = sustained_run(results(tmp_path / "2", windows=700), SCORING)
    assert long.status == "PASS" and long.reason.startswith("held 700 s")
    slow = sustained_run(results(tmp_path / "3", slower=0.08), SCORING)
    assert slow.status == "FAIL" and slow.reason.startswith("drift 7.")
    hot = sustained_run(results(tmp_path / "4", change=clock_falls), SCORING)
    assert hot.status == "FAIL" and "clock drop 1" in hot.reason
    blind = sustained_run(results(tmp_path / "5", kind="cpu", blind=True), SCORING)
    assert blind.status == "PASS" and "clock drop not judged: no clock was read" in blind.reason
    none = sustained_run(load_results(FakeRun(tmp_path / "6", "gpu", "h200_sxm").write()), SCORING)
    assert (none.status, none.reason) == ("SKIP", "not measured")

    def refuse(records):
        records["hold/stack"] |= {"status": "refused", "reason": "out of memory", "result": {}}

    lost = sustained_run(results(tmp_path / "7", change=refuse), SCORING)
    assert (lost.status, lost.reason) == ("SKIP", "hold/stack refused: out of memory")


def test_a_run_cut_short_counts_as_far_as_it_goes(tmp_path):
    def cut(records):
        records["hold/stack"]["status"] = "unfinished"
        records["hold/stack"]["result"] |= {"ended": "the process ended", "seconds_asked": 1800.0}

    row = sustained_run(results(tmp_path, change=cut), SCORING)
    assert row.status == "PASS" and row.reason.endswith("; the process ended")


def test_recovery_points_take_the_fastest_run_or_the_first_calls(tmp_path):
    def long_calls(records):
        for point in records["recovery"]["result"]["points"]:
            point["tflops"] = None

    fast = sustained.recovery_points(results(tmp_path / "a"))
    assert [p["idle_s"] for p in fast] == [0.03, 0.1, 0.3, 1.0] and all(p["fastest_run"] for p in fast)
    assert fast[0]["tflops"] < fast[-1]["tflops"] < 800.0 and fast[1]["clock_mhz"] == 1550.0
    slow = sustained.recovery_points(results(tmp_path / "b", change=long_calls))
    assert not any(p["fastest_run"] for p in slow) and {p["tflops"] for p in slow} == {670.0}
