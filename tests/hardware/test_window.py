"""Windows cut out of telemetry, with values worked out by hand."""

import json

import pytest

from escherlib.hardware.telemetry import read_samples, trace, window, windows

S = 1_000_000_000
T0 = 5 * S  # start_ns of the made-up files
BITS = {"1": "gpu_idle", "4": "sw_power_cap", "32": "sw_thermal_slowdown"}


def trace_file(path, fields, rows, events=(), tail="", **header):
    """A telemetry file: rows are [seconds, values…]."""
    first = {
        "schema": 1,
        "source": "fake",
        "fields": fields,
        "start_ns": T0,
        "absent": {},
        "limit_bits": BITS,
        **header,
    }
    lines = [first, *([round(row[0] * 1e6), *row[1:]] for row in rows), *events]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return path


def at(seconds):
    return T0 + round(seconds * S)


def test_mean_min_max_weigh_samples_by_time(tmp_path):
    rows = [[0.0, 345], [0.9, 345], [1.1, 1980], [1.2, 1980], [1.5, 1900], [1.9, 1400], [2.05, 345]]
    found = window(trace_file(tmp_path / "t", ["clock_mhz"], rows), at(1), at(2))
    # edges between samples: 1, 1.15, 1.35, 1.7, 2
    mean = (1980 * 0.15 + 1980 * 0.20 + 1900 * 0.35 + 1400 * 0.30) / 1.0
    assert found["clock_mhz"] == {"mean": pytest.approx(mean), "min": 1400, "max": 1980, "n": 4}
    assert found["n"] == 4 and "clock_mhz" not in found["reasons_null"]
    assert found["power_w"] is None and found["reasons_null"]["power_w"] == "fake has no such sensor"


def test_a_sensor_slower_than_a_third_of_the_window_says_nothing(tmp_path):
    rows = [[i * 0.05, 1980] for i in range(40)]
    path = trace_file(tmp_path / "t", ["clock_mhz"], rows)
    found = window(path, at(0.51), at(0.53))
    assert found["clock_mhz"] is None
    assert found["reasons_null"]["clock_mhz"] == "sampled every 50 ms, window 20 ms"
    assert window(path, at(0.51), at(0.651))["clock_mhz"] is None
    assert window(path, at(0.51), at(0.665))["clock_mhz"]["n"] == 3


def test_an_averaging_sensor_needs_three_times_its_average(tmp_path):
    rows = [[i * 0.05, 700.0 + i % 2] for i in range(200)]
    path = trace_file(tmp_path / "t", ["power_w"], rows, span_s={"power_w": 1.0})
    assert window(path, at(1), at(2.5))["reasons_null"]["power_w"] == "averaged over 1 s, window 1.5 s"
    assert window(path, at(1), at(4.1))["power_w"]["mean"] == pytest.approx(700.5, abs=0.01)


def test_a_repeated_reading_shows_the_sensor_s_own_pace(tmp_path):
    """Sampled every 10 ms, but the value moves every 100 ms only."""
    rows = [[i * 0.01, 600.0 + i // 10] for i in range(300)]
    path = trace_file(tmp_path / "t", ["power_w"], rows)
    assert window(path, at(1), at(1.2))["reasons_null"]["power_w"] == "refreshed every 100 ms, window 200 ms"
    assert window(path, at(1), at(1.35))["power_w"]["n"] == 36


def test_several_windows_of_one_state(tmp_path):
    rows = [[i * 0.1, 100 if i < 20 else 400] for i in range(60)]
    found = windows(trace_file(tmp_path / "t", ["clock_mhz"], rows), [[at(0.5), at(1.5)], [at(3), at(5)]])
    assert found["clock_mhz"]["mean"] == pytest.approx((1 * 100 + 2 * 400) / 3, abs=0.001)
    assert (found["clock_mhz"]["min"], found["clock_mhz"]["max"], found["clock_mhz"]["n"]) == (
        100,
        400,
        11 + 21,
    )
    one_too_short = windows(tmp_path / "t", [[at(0.5), at(1.5)], [at(3), at(3.02)]])
    assert one_too_short["clock_mhz"]["mean"] == 100
    assert windows(tmp_path / "t", [])["reasons_null"]["clock_mhz"] == "no timed window"


def test_energy_as_the_integral_of_power(tmp_path):
    """Power 100 → 300 W over 4 s, then level: between 1 and 5 s that is 3 s of the ramp and 1 s at 300 W."""
    rows = [[0, 100.0], [1.2, 160.0], [2.4, 220.0], [4, 300.0], [4.5, 300.0], [5.5, 300.0]]
    path = trace_file(tmp_path / "t", ["power_w"], rows)
    found = window(path, at(1), at(5))
    assert found["energy_j"] == {"value": pytest.approx((150 + 300) / 2 * 3 + 300), "how": "power over time"}


def test_energy_from_power_needs_samples_on_both_sides_and_no_gap(tmp_path):
    rows = [[0.5 * i, 100.0] for i in range(10)]
    path = trace_file(tmp_path / "t", ["power_w"], rows)
    assert window(path, at(2), at(4))["energy_j"]["value"] == pytest.approx(200)
    assert window(path, at(3), at(5))["reasons_null"]["energy_j"] == "no sample on both sides of the window"
    gap = [*rows, [8.1, 100.0], [8.6, 100.0], [30, 100.0]]
    path = trace_file(tmp_path / "g", ["power_w"], gap)
    found = window(path, at(0), at(9))
    assert found["energy_j"] is None and "both sides" in found["reasons_null"]["energy_j"]
    assert "gap of more than 3 s" in window(path, at(0), at(8.5))["reasons_null"]["energy_j"]


def test_energy_from_a_counter_between_the_moments_it_moves(tmp_path):
    """The counter moves every 0.2 s by 140 J (700 W) and is read every 0.1 s; ends lie between two moves."""
    rows = [[i * 0.1, 140.0 * (i // 2), 999.0 + i] for i in range(60)]
    found = window(trace_file(tmp_path / "t", ["energy_j", "power_w"], rows), at(1.05), at(3.15))
    assert found["energy_j"] == {"value": pytest.approx(700 * 2.1), "how": "counter"}


def test_a_counter_that_began_anew_is_not_a_difference(tmp_path):
    first = [[i * 0.1, 10.0 * i] for i in range(30)]
    path = trace_file(tmp_path / "t", ["energy_j"], first)
    again = {
        "schema": 1,
        "source": "fake",
        "fields": ["energy_j"],
        "start_ns": at(3.2),
        "absent": {},
        "limit_bits": {},
    }
    more = "".join(json.dumps([i * 100_000, 10.0 * i]) + "\n" for i in range(30))
    path.write_text(path.read_text() + json.dumps(again) + "\n" + more)
    assert window(path, at(1), at(5))["reasons_null"]["energy_j"] == "sampling was interrupted in this window"
    assert window(path, at(4), at(5))["energy_j"]["value"] == pytest.approx(100)
    assert window(path, at(1), at(2))["energy_j"]["value"] == pytest.approx(100)
    back = [[i * 0.1, 10.0 * (i % 20)] for i in range(40)]
    found = window(trace_file(tmp_path / "b", ["energy_j"], back), at(1), at(3))
    assert found["energy_j"] is None and "began anew" in found["reasons_null"]["energy_j"]


def test_the_counter_is_compared_with_the_integral(tmp_path):
    """The counter rises by 70 J every 0.1 s (700 W); power says 714 W, 2 % more: 1400 J and 1428 J over 2 s."""
    rows = [[i * 0.1, 70.0 * i, 714.0] for i in range(60)]
    path = trace_file(tmp_path / "t", ["energy_j", "power_w"], rows)
    wanted = {"counter_j": pytest.approx(1400), "integral_j": pytest.approx(1428), "difference_pct": pytest.approx(2.0)}
    assert window(path, at(1), at(3))["energy_compare"] == wanted
    both = windows(path, [[at(1), at(2)], [at(3), at(4)]])["energy_compare"]
    assert both == wanted  # two windows of 1 s each


def test_energies_that_can_t_be_compared_say_why(tmp_path):
    power = [[i * 0.1, 500.0] for i in range(60)]
    found = window(trace_file(tmp_path / "p", ["power_w"], power, absent={"energy_j": "no counter here"}), at(1), at(3))
    assert found["energy_compare"] is None and found["reasons_null"]["energy_compare"] == "no counter here"
    counter = window(trace_file(tmp_path / "c", ["energy_j"], [[i * 0.1, 50.0 * i] for i in range(60)]), at(1), at(3))
    assert counter["energy_compare"] is None and counter["energy_j"]["how"] == "counter"
    assert counter["reasons_null"]["energy_compare"] == "fake has no such sensor"
    still = trace_file(tmp_path / "s", ["energy_j", "power_w"], [[i * 0.1, 7.0, 500.0] for i in range(60)])
    assert window(still, at(1), at(3))["reasons_null"]["energy_compare"] == "the energy counter did not move"
    end = window(trace_file(tmp_path / "e", ["energy_j", "power_w"], [[i * 0.1, 50.0 * i, 500.0] for i in range(31)]), at(1), at(3.5))
    assert end["energy_compare"] is None and end["reasons_null"]["energy_compare"] == "no sample on both sides of the window"


def test_limits_seen_without_those_set_at_rest(tmp_path):
    fields = ["limit_mask", "utilisation_pct"]
    idle = [[i * 0.1, 33, 0] for i in range(5)]  # gpu_idle and a thermal bit that is always set
    onset = [[0.5, 36, 0]]  # the cap bites before the utilisation has moved
    busy = [[0.6 + i * 0.1, 36 if i % 4 else 32, 100] for i in range(20)]
    path = trace_file(tmp_path / "t", fields, idle + onset + busy)
    assert read_samples(path).idle_mask == 32
    found = window(path, at(0.6), at(2.5))
    assert found["limit_reasons"] == ["sw_power_cap"] and found["limit_shares"] == {"sw_power_cap": 0.75}
    assert found["utilisation_pct"]["mean"] == 100


def test_limits_at_rest_without_a_utilisation_are_the_first_rows(tmp_path):
    rows = [[i * 0.1, 8 if i < 10 else 12] for i in range(30)]
    path = trace_file(tmp_path / "t", ["limit_mask"], rows)
    assert read_samples(path).idle_mask == 8
    assert window(path, at(1), at(2.5))["limit_reasons"] == ["sw_power_cap"]
    found = window(path, at(1), at(1.05))
    assert found["limit_reasons"] == [] and "sampled every 100 ms" in found["reasons_null"]["limit_reasons"]


def test_an_unnamed_bit_keeps_its_number(tmp_path):
    rows = [[i * 0.1, 0 if i < 9 else 512] for i in range(30)]
    assert window(trace_file(tmp_path / "t", ["limit_mask"], rows), at(1), at(2))["limit_reasons"] == [
        "bit 9"
    ]


def test_a_hole_in_the_samples(tmp_path):
    rows = [[i * 0.1, 1980] for i in range(100) if not 20 < i < 75]
    path = trace_file(tmp_path / "t", ["clock_mhz"], rows, events=[{"t": 2_050_000, "gap": "GPU is lost"}])
    assert (
        window(path, at(3), at(4))["reasons_null"]["clock_mhz"]
        == "no sample in this window of 1 s: GPU is lost"
    )
    assert "no sample for 5.5 s" in window(path, at(0), at(9))["reasons_null"]["clock_mhz"]


def test_reasons_of_absent_fields_come_from_the_sampler(tmp_path):
    path = trace_file(tmp_path / "t", ["load_1m"], [[0, 1.0]], absent={"clock_mhz": "hidden"})
    path.write_text(path.read_text() + json.dumps({"t": 5, "absent": {"power_w": "Not Supported"}}) + "\n")
    found = window(path, at(0), at(1))
    assert (found["reasons_null"]["clock_mhz"], found["reasons_null"]["power_w"]) == (
        "hidden",
        "Not Supported",
    )


def test_a_file_cut_short_and_lines_that_are_none(tmp_path):
    rows = [[i * 0.1, 7] for i in range(10)]
    path = trace_file(tmp_path / "t", ["clock_mhz"], rows, tail="[950000,8")
    samples = read_samples(path)
    assert len(samples.series["clock_mhz"].values) == 10 and samples.broken == 1
    path.write_text(path.read_text() + '\n\n[1,2,3]\n{"lost_lines":3}\n"word"\n')
    assert len(read_samples(path).series["clock_mhz"].values) == 10
    assert read_samples(tmp_path / "none").why("power_w").startswith("no telemetry file")
    empty = tmp_path / "empty"
    empty.write_text("")
    assert window(empty, 0, 10)["reasons_null"]["power_w"] == "telemetry has no such sensor"
    empty.write_text('{"schema":1,"source":null,"fields":[],"reason":"no driver","start_ns":0}\n')
    assert window(empty, 0, 10)["reasons_null"]["limit_reasons"] == "no driver"


def test_the_trace_is_relative_to_its_start(tmp_path):
    rows = [[0.1, 1980, None, 7], [0.2, 1455, 700.5, 7], [0.3, 1400, None, 7]]
    path = trace_file(tmp_path / "t", ["clock_mhz", "power_w", "load_1m"], rows)
    assert trace(path, at(0.15), at(0.4)) == [
        {"t_ns": 50_000_000, "clock_mhz": 1455, "power_w": 700.5},
        {"t_ns": 150_000_000, "clock_mhz": 1400},
    ]
    assert trace(tmp_path / "none", 0, 1) == []


def test_everything_is_strict_json(tmp_path):
    path = trace_file(tmp_path / "t", ["clock_mhz"], [[i * 0.1, i] for i in range(20)])
    json.dumps([window(path, at(0), at(1)), trace(path, at(0), at(1))], allow_nan=False)
