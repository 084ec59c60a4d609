"""SC-1 and SC-2: every branch, from runs made by hand."""

import pytest

from escherlib.judge.roof_criteria import compute_roof, memory_roof
from escherlib.judge.roofs import read_roofs
from tests.judge.factory import (
    H200,
    SCORING,
    ended,
    gemm,
    good_rows,
    make,
    peak,
    squares,
    stream,
    streams,
    without,
)


def judge(function, rows, **more):
    results = make(rows, **more)
    return function(results, read_roofs(results, SCORING), SCORING)


def sc1(rows, **more):
    return judge(compute_roof, rows, **more)


def sc2(rows, **more):
    return judge(memory_roof, rows, **more)


def test_sc1_passes_on_a_healthy_run():
    row = sc1(good_rows())
    assert (row.id, row.role, row.status) == ("SC-1", "gating", "PASS")
    assert "burst: square/8192 reaches 760 of 800 TFLOP/s, 95.0 %" in row.reason
    assert "sustained: square/8192 reaches 643.2 of 670 TFLOP/s, 96.0 %" in row.reason
    # 0.85 × 790.3 / 989.4 = 0.6790
    assert "burst peak is 80.9 % of the rated 989.4 TFLOP/s (floor 67.9 %)" in row.reason
    assert "sustained throughput is 83.8 % of the burst peak" in row.reason
    assert (
        "best square ≥ 0.90 × measured peak of the same state" in row.rule
        and "0.68 × rated (0.85 × the published share of 0.80)" in row.rule
    )
    assert [share["share"] for share in row.details["squares"]] == [0.95, pytest.approx(0.96)]


@pytest.mark.parametrize(
    "burst, sustained, status", [(719.9, 643.0, "FAIL"), (760.0, 602.9, "FAIL"), (720.0, 603.0, "PASS")]
)
def test_sc1_holds_like_against_like(burst, sustained, status):
    assert sc1([peak(), gemm("square/8192", burst, sustained)]).status == status


def test_sc1_halved_burst_rows_fail():
    assert (
        sc1(
            [peak(400.0), *[gemm(r.name, r.get("states", "burst", "tflops") / 2, 640.0) for r in squares()]]
        ).status
        == "FAIL"
    )
    assert (
        sc1(
            [peak(), *[gemm(r.name, r.get("states", "burst", "tflops") / 2, 640.0) for r in squares()]]
        ).status
        == "FAIL"
    )


def test_sc1_needs_the_rated_floor():
    # floor 0.85 × 790.3 = 671.755 TFLOP/s
    assert sc1([peak(671.8, 600.0), gemm("square/8192", 671.0, 600.0)]).status == "PASS"
    row = sc1([peak(671.7, 600.0), gemm("square/8192", 671.0, 600.0)])
    assert row.status == "FAIL" and "(floor 67.9 %)" in row.reason


def test_sc1_takes_half_of_rated_where_nothing_is_published():
    plain = H200.model_copy(update={"published": {}})
    row = sc1([peak(494.8, 480.0), gemm("square/8192", 490.0, 480.0)], profile=plain)
    assert row.status == "PASS" and "0.50 × rated (nothing published)" in row.rule
    assert sc1([peak(494.6, 480.0), gemm("square/8192", 490.0, 480.0)], profile=plain).status == "FAIL"


def test_sc1_without_a_rated_value_skips_that_part_and_says_so():
    row = sc1(good_rows(), profile=None)
    assert row.status == "PARTIAL_PASS"
    assert "rated part SKIP: no rated value: the device has no profile" in row.reason
    assert sc1([peak(), gemm("square/8192", 500.0, 640.0)], profile=None).status == "FAIL"


def test_sc1_with_one_state_is_judged_on_it_and_says_so():
    row = sc1([peak(burst=None, sustained=700.0), gemm("square/8192", None, 690.0)])
    assert row.status == "PASS"
    assert "burst not judged: the peak record holds no burst value" in row.reason
    assert "sustained peak is 70.7 % of the rated" in row.reason
    row = sc1([peak(), gemm("square/8192", 760.0)])
    assert row.status == "PASS" and "sustained not judged: no square has a sustained value" in row.reason
    assert sc1([peak(burst=None, sustained=660.0), gemm("square/8192", None, 655.0)]).status == "FAIL"


def test_sc1_skips_without_peak_or_squares():
    row = sc1([])
    assert (row.status, row.reason) == ("SKIP", "not measured: run TESTCASE=compute RUN=run-1")
    assert sc1([peak()]).reason == "not measured: run TESTCASE=compute RUN=run-1"
    row = sc1([ended("peak", "failed", "boom"), *squares()])
    assert (row.status, row.reason) == ("SKIP", "peak failed: boom; run TESTCASE=compute RUN=run-1")


@pytest.mark.parametrize("label", ["drifting", "noisy", "thermal", "noisy at the cap"])
def test_sc1_warns_of_an_unsettled_peak(label):
    row = sc1([peak(label=label), *squares()])
    assert row.status == "WARN" and f"the sustained peak is {label}" in row.reason


def test_sc1_does_not_warn_of_other_labels():
    assert sc1([peak(label="launch-bound"), *squares()]).status == "PASS"


@pytest.mark.parametrize(
    "cap, default, status", [(500, 700, "WARN"), (700, 700, "PASS"), (None, 700, "PASS"), (500, None, "PASS")]
)
def test_sc1_warns_of_a_lowered_power_cap(cap, default, status):
    row = sc1(good_rows(), env={"power": {"cap_w": cap, "cap_default_w": default}})
    assert row.status == status
    assert ("power cap 500 W is below the default 700 W" in row.reason) == (status == "WARN")


def test_sc1_warns_below_the_profile_s_sustained_floor():
    strict = H200.model_copy(update={"sc1_sustained_floor": 0.84})
    row = sc1(good_rows(), profile=strict)  # 670 / 800 = 0.8375
    assert row.status == "WARN" and "sustained is 83.8 % of burst, below this profile's 84.0 %" in row.reason
    assert sc1(good_rows(), profile=strict.model_copy(update={"sc1_sustained_floor": 0.83})).status == "PASS"


def test_sc1_a_miss_outweighs_a_warning():
    assert sc1([peak(label="drifting"), gemm("square/8192", 500.0)]).status == "FAIL"


def cpu_rows(square=0.95, label=None, spread=0.3):
    return [
        peak(None, 1.0, "fp32", label, spread=spread),
        gemm("square/2048", None, square, "fp32", spread=spread),
    ]


def test_sc1_on_a_cpu_judges_only_the_first_part():
    row = sc1(cpu_rows(), kind="cpu", profile=None, peak_dtype="fp32")
    assert row.status == "PASS" and "rated" not in row.reason and "rated" not in row.rule
    assert "burst not judged" in row.reason


def test_sc1_on_a_cpu_warns_with_the_spread():
    row = sc1(cpu_rows(square=0.5), kind="cpu", profile=None, peak_dtype="fp32")
    assert row.status == "WARN_CPU"
    assert "square/2048 sustained p10–p90 0.3846–0.7143 TFLOP/s" in row.reason  # 0.5 / 1.3 and 0.5 / 0.7
    assert "peak sustained p10–p90 0.7692–1.429 TFLOP/s" in row.reason
    assert "p10–p90" not in sc1(cpu_rows(square=0.5, spread=0.3)).reason
    assert sc1(cpu_rows(label="noisy"), kind="cpu", profile=None, peak_dtype="fp32").status == "WARN_CPU"


def test_sc2_passes_on_a_healthy_run():
    row = sc2(good_rows())
    assert (row.id, row.role, row.status) == ("SC-2", "gating", "PASS")
    # 0.85 × 4010 = 3408.5; copy spreads by 85 / 4280
    assert row.reason == "copy 4280 GB/s, last 3 sizes within 2.0 %; add 4410 GB/s, last 3 sizes within 1.5 %"
    assert (
        "last 3 sizes within 5.0 %" in row.rule
        and "plateau ≥ 3408 GB/s (0.85 × the published copy of 4010 GB/s)" in row.rule
    )
    assert row.details["plateaus"]["copy"]["values_gb_s"] == [4200.0, 4280.0, 4285.0]


@pytest.mark.parametrize("low, status", [(4060.0, "PASS"), (4050.0, "FAIL")])
def test_sc2_needs_flatness_of_both(low, status):
    for op in ("copy", "add"):
        assert sc2(streams(**{op: (low, 4270.0, 4270.0)})).status == status  # 5 % of 4270 is 213.5
    assert sc2(streams(add=(4050.0, 4270.0, 4270.0))).reason.endswith("last 3 sizes within 5.2 % (not flat)")


def test_sc2_needs_the_floor_of_both():
    for op in ("copy", "add"):
        row = sc2(streams(**{op: (3408.0,) * 3}))
        assert row.status == "FAIL" and "(below 3408 GB/s, 0.85 × the published copy" in row.reason
        assert sc2(streams(**{op: (3409.0,) * 3})).status == "PASS"


def test_sc2_takes_the_rated_share_where_nothing_is_published():
    plain = H200.model_copy(update={"published": {}})
    row = sc2(streams((2881.0,) * 3, (2881.0,) * 3), profile=plain)  # 0.60 × 4800 = 2880
    assert row.status == "PASS" and "plateau ≥ 2880 GB/s (0.60 × the rated 4800 GB/s)" in row.rule
    assert sc2(streams((2879.0,) * 3), profile=plain).status == "FAIL"


def test_sc2_without_a_rated_value_is_flatness_only():
    for profile in (None, H200.model_copy(update={"published": {}, "memory_bandwidth_gb_s": None})):
        row = sc2(streams(), profile=profile)
        assert row.status == "SKIP" and row.reason.startswith("flatness only: copy 4280 GB/s")
        assert "no rated value" in row.reason
        assert sc2(streams(copy=(100.0, 200.0, 200.0)), profile=profile).status == "FAIL"


def test_sc2_skips_below_three_sizes():
    rows = [row for row in streams() if row.name != f"add/{2**32}"]
    assert (sc2(rows).status, sc2(rows).reason) == ("SKIP", "add: 2 of 3 sizes")
    assert sc2(without(streams(), "add")).reason == "add: not measured: run TESTCASE=bandwidth RUN=run-1"
    assert sc2([]).status == "SKIP"


def test_sc2_tells_of_sizes_that_gave_nothing():
    rows = [*streams(), ended(f"copy/{2**34}", "refused", "does not fit", "02_memory_bandwidth")]
    assert f"copy/{2**34} refused: does not fit" in sc2(rows).reason


def test_sc2_on_a_cpu():
    flat, rough = (10.0, 11.0, 11.5), (8.0, 11.0, 11.5)  # 1.5 and 3.5 of 11
    row = sc2(streams(flat, flat), kind="cpu", profile=None)
    assert row.status == "SKIP" and row.reason.startswith("flatness only") and "within 15.0 %" in row.rule
    row = sc2(streams(rough, flat), kind="cpu", profile=None)
    assert row.status == "WARN_CPU" and "copy p10–p90 10.45–12.78 GB/s at the largest size" in row.reason
    rated = H200.model_copy(update={"published": {}, "memory_bandwidth_gb_s": 15.0})
    assert sc2(streams(flat, flat), kind="cpu", profile=rated).status == "PASS"
    rated = rated.model_copy(update={"memory_bandwidth_gb_s": 20.0})
    assert sc2(streams(flat, flat), kind="cpu", profile=rated).status == "WARN_CPU"


def test_sc2_never_reads_hot_buffers():
    assert (
        sc2([stream(op, 2**i, 4000.0, where="hot") for op in ("copy", "add") for i in range(3)]).status
        == "SKIP"
    )
