"""Roofs of hand-made runs; every expected number is worked out from the inputs on paper."""

import pytest

from escherlib.judge.roofs import read_roofs
from tests.judge.factory import (
    COMPUTE,
    DEVICES,
    H200,
    SCORING,
    correct,
    ended,
    gemm,
    good_rows,
    make,
    peak,
    squares,
    stream,
    streams,
)

FINDING = "a finding about the denominator, not an achievement"


def roofs_of(rows, **more):
    return read_roofs(make(rows, **more), SCORING)


def test_peaks_roof_and_ridge_of_a_healthy_run():
    roofs = roofs_of(good_rows())
    assert (roofs.peak_dtype, roofs.peak_burst_tflops, roofs.peak_sustained_tflops) == ("bf16", 800.0, 670.0)
    assert (roofs.burst.row, roofs.burst.backend, roofs.burst.shape) == (
        "peak",
        "cublas",
        {"m": 12288, "n": 12288, "k": 12288},
    )
    assert roofs.sustained.shape["m"] == 4096
    assert (roofs.memory_gb_s, roofs.memory.row) == (
        4410.0,
        "add",
    )  # the middle of add's last three, above copy's 4280
    assert roofs.ridge_flop_per_byte == pytest.approx(670e12 / 4410e9)
    assert roofs.ridge_burst_flop_per_byte == pytest.approx(800e12 / 4410e9)
    assert roofs.ridge.rated == pytest.approx(989.4e12 / 4800e9)
    assert (roofs.rated_tflops, roofs.rated_memory_gb_s) == (989.4, 4800.0)
    assert roofs.burst.rated_pct == pytest.approx(80.857, abs=1e-3)
    assert roofs.relation.kind == "cap binding" and roofs.relation.share == 0.8375
    assert "83.8 % of the burst peak" in roofs.relation.text
    assert roofs.findings == ()
    assert set(roofs.reasons) == {"read_gb_s"}


def test_default_scoring_is_that_of_the_parameters():
    assert read_roofs(make(good_rows())) == roofs_of(good_rows())


def test_an_empty_run_says_what_to_run():
    roofs = roofs_of([])
    compute, bandwidth = (
        "not measured: run TESTCASE=compute RUN=run-1",
        "not measured: run TESTCASE=bandwidth RUN=run-1",
    )
    assert roofs.reasons == {
        "peak_burst_tflops": compute, "peak_sustained_tflops": compute,
        "memory_gb_s": bandwidth, "read_gb_s": bandwidth,
        "ridge_flop_per_byte": f"{compute}; {bandwidth}",
        "ridge_burst_flop_per_byte": f"{compute}; {bandwidth}",
    }  # fmt: skip
    assert roofs.relation.kind is None and compute in roofs.relation.text
    assert roofs.ridge_flop_per_byte is None and roofs.findings == ()


def test_a_failed_family_is_the_reason():
    families = {COMPUTE: {"status": "timed_out", "reason": "deadline of 60 s"}}
    reason = roofs_of([], families=families).sustained.reason
    assert (
        reason
        == "not measured: family 01_bf16_compute timed out (deadline of 60 s); run TESTCASE=compute RUN=run-1"
    )


def test_a_refused_or_failed_peak_says_so():
    reason = roofs_of([ended("peak", "refused", "does not fit")]).burst.reason
    assert reason == "peak refused: does not fit; run TESTCASE=compute RUN=run-1 FORCE=1"
    assert (
        roofs_of([ended("peak", "failed", "boom")]).burst.reason
        == "peak failed: boom; run TESTCASE=compute RUN=run-1"
    )


def test_a_state_the_peak_lacks_is_missing_with_its_reason():
    assert roofs_of([peak(burst=None)]).burst.reason == "the peak record holds no burst value"
    states = {"burst": {"median_s": None, "label": "no burst value: calls above 20 ms"}, "sustained": None}
    roofs = roofs_of([peak(states=states)])
    assert roofs.burst.reason == "no burst value: calls above 20 ms"
    assert roofs.peak_sustained_tflops is None


@pytest.mark.parametrize(
    "sustained, kind, burst",
    [
        (670.0, "cap binding", 800.0),
        (784.0, "cap not binding", 800.0),
        (816.0, "cap not binding", 800.0),
        (817.0, "slow ramp", 817.0),
    ],
)
def test_burst_and_sustained(sustained, kind, burst):
    roofs = roofs_of([peak(800.0, sustained)])
    assert (roofs.relation.kind, roofs.peak_burst_tflops, roofs.peak_sustained_tflops) == (
        kind,
        burst,
        sustained,
    )
    assert kind in roofs.relation.text or kind == "cap binding"


def test_a_slow_ramp_keeps_the_measured_share_and_says_where_the_burst_peak_is_from():
    roofs = roofs_of([peak(500.0, 600.0)])
    assert roofs.relation.share == pytest.approx(1.2)
    assert roofs.burst.label == "slow ramp: the sustained peak"
    assert roofs.relation.text.startswith("slow ramp: sustained throughput is 120.0 % of the burst peak")


def test_a_row_within_one_percent_is_the_denominator():
    roofs = roofs_of([peak(), gemm("workload/ffn2", sustained=676.0, m=4680, n=5120, k=13824)])
    assert (roofs.peak_sustained_tflops, roofs.sustained.row) == (676.0, "workload/ffn2")
    assert (
        roofs.sustained.shape == {"m": 4680, "n": 5120, "k": 13824} and roofs.sustained.backend == "cublaslt"
    )
    assert roofs.findings == ()
    assert roofs.relation.share == 670.0 / 800.0  # the two peaks of the peak record, like with like


def test_a_row_further_above_is_a_finding_and_no_denominator():
    roofs = roofs_of([peak(), gemm("square/8192", 760.0, 690.1), gemm("skew/1x2x3", sustained=680.0)])
    assert roofs.peak_sustained_tflops == 670.0
    assert len(roofs.findings) == 1
    assert roofs.findings[0].startswith(
        "unconfirmed row above peak: square/8192 with 690.1 TFLOP/s sustained is 3.0 % above "
        "the confirmed sustained peak of 670 (and 1 more);"
    )


def test_burst_rows_are_held_against_the_burst_peak():
    roofs = roofs_of([peak(), gemm("square/4096", 810.0)])
    assert roofs.peak_burst_tflops == 800.0
    assert (
        "square/4096 with 810 TFLOP/s burst is 1.2 % above the confirmed burst peak of 800"
        in roofs.findings[0]
    )
    assert roofs_of([peak(), gemm("square/4096", 807.0)]).findings == ()


@pytest.mark.parametrize(
    "more",
    [{"fill": "zeros"}, {"emulated": True}, {"dtype": "fp8"}, {"label": "drifting"}],
)
def test_other_fills_dtypes_and_unsettled_rows_never_become_the_denominator(more):
    assert roofs_of([peak(), gemm("square/8192", sustained=675.0, **more)]).peak_sustained_tflops == 670.0


def test_a_row_alone_is_no_peak():
    roofs = roofs_of(squares())
    assert roofs.peak_sustained_tflops is None and roofs.findings == ()


def test_the_peak_keeps_its_label():
    assert roofs_of([peak(label="thermal")]).sustained.label == "thermal"


def test_plateaus_use_the_last_three_sizes_and_never_hot_buffers():
    rows = [
        stream("copy", 64, 9000.0),
        stream("copy", 4096, 4285.0),
        stream("copy", 1024, 4200.0),
        stream("copy", 2048, 4280.0),
    ]
    rows += [
        stream("sum", 1024, 4700.0),
        stream("fill", 1024, 4900.0),
        stream("axpy", 1024, 9999.0, where="hot"),
    ]
    roofs = roofs_of(rows)
    copy = roofs.plateaus["copy"]
    assert copy.sizes_bytes == (2**30, 2**31, 2**32) and copy.values_gb_s == (4200.0, 4280.0, 4285.0)
    assert copy.gb_s == 4280.0 and copy.spread == 85.0 / 4280.0
    assert copy.ranges_gb_s[0] == pytest.approx((4200.0 / 1.1, 4200.0 / 0.9))
    assert (roofs.memory_gb_s, roofs.memory.row, roofs.read_gb_s) == (4280.0, "copy", 4700.0)
    assert roofs.plateaus["axpy"].reason.startswith("not measured")
    assert roofs.plateaus["fill"].gb_s == 4900.0 and roofs.plateaus["fill"].spread is None


def test_axpy_can_be_the_roof_and_a_refused_size_is_told():
    rows = [
        *streams(),
        stream("axpy", 1024, 4420.0),
        ended(f"axpy/{2**33}", "refused", "does not fit", "02_memory_bandwidth"),
    ]
    roofs = roofs_of(rows)
    assert (roofs.memory_gb_s, roofs.memory.row) == (4420.0, "axpy")
    assert roofs.plateaus["axpy"].notes == (f"axpy/{2**33} refused: does not fit",)


def test_only_refused_sizes_give_their_reason():
    roofs = roofs_of([ended(f"copy/{2**33}", "refused", "does not fit", "02_memory_bandwidth")])
    assert (
        roofs.memory.reason == f"copy/{2**33} refused: does not fit; run TESTCASE=bandwidth RUN=run-1 FORCE=1"
    )


def test_buffers_that_a_cache_may_hold_are_a_finding():
    roofs = roofs_of(
        [
            stream("copy", 16, 900.0, rotation={"spans_cache": False}),
            stream("add", 16, 800.0, rotation={"spans_cache": True}),
        ]
    )
    assert roofs.findings == (
        "the plateau of copy rests on buffers that the last-level cache may partly hold",
    )


def test_values_above_the_rated_ones_are_findings_about_the_denominator():
    roofs = roofs_of([peak(1039.0, 1038.0), *streams(copy=(5041.0,) * 3, add=(5040.0,) * 3)])
    assert roofs.findings == (
        f"the burst peak of 1039 TFLOP/s is 105.0 % of the rated 989.4 TFLOP/s: {FINDING}",
        f"the copy plateau of 5041 GB/s is 105.0 % of the rated 4800 GB/s: {FINDING}",
    )


def test_mul_moves_what_copy_moves_and_is_held_against_the_roof():
    roofs = roofs_of(
        [*streams((100.0,) * 3, (100.0,) * 3), stream("mul", 1024, 106.0), stream("sum", 1024, 150.0)]
    )
    assert roofs.findings == (
        f"the mul plateau of 106 GB/s is 106.0 % of the measured roof of 100 GB/s: {FINDING}",
    )


def test_without_a_profile_nothing_is_rated():
    roofs = roofs_of(good_rows(), profile=None)
    assert roofs.rated_tflops is None and roofs.rated_memory_gb_s is None and roofs.burst.rated_pct is None
    assert roofs.reasons["rated_tflops"] == "no rated value: the device has no profile"
    assert (
        roofs.ridge.rated is None and roofs.ridge.rated_reason == "no rated value: the device has no profile"
    )
    blank = H200.model_copy(update={"memory_bandwidth_gb_s": None})
    assert (
        roofs_of(good_rows(), profile=blank).memory.rated_reason
        == "no rated value: the profile h200_sxm states no memory bandwidth"
    )


def test_a_device_without_native_bf16_is_read_in_its_own_format():
    volta = next(profile for profile in DEVICES.values() if profile.arch == "sm_70")
    rows = [peak(100.0, 90.0, dtype="fp16"), gemm("square/8192", 95.0, 88.0, dtype="fp16")]
    rows += [gemm("dtype/bf16", 20.0, 101.0, dtype="bf16", emulated=True), correct("fp16")]
    roofs = roofs_of(rows, profile=volta, peak_dtype="fp16")
    assert (roofs.peak_dtype, roofs.rated_tflops) == ("fp16", volta.rated["fp16_tflops"])
    assert roofs.findings == ()


def test_without_records_the_device_names_the_format():
    assert roofs_of([], peak_dtype="fp32").peak_dtype == "fp32"
