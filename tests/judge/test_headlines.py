"""Headlines and findings of the families, on an invented run whose values are known."""

import pytest

from escherlib.files import read_json, write_json
from escherlib.judge.headlines import best_row, summarise, takeaway, worst_numerics
from escherlib.run import load_results
from tests.report.factory import GIB, FakeRun, fake_run

COMPUTE, BANDWIDTH, CAPACITY = "01_bf16_compute", "02_memory_bandwidth", "03_memory_capacity"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return load_results(fake_run(tmp_path_factory.mktemp("gpu")))


def empty(tmp_path):
    """A run in which nothing was measured."""
    return load_results(FakeRun(tmp_path).write())


def test_compute_headline_names_the_dtype_and_both_states(results):
    headline = summarise(results, COMPUTE)["headline"]
    assert headline["peak_dtype"] == ("bf16", "")
    assert headline["bf16_peak_burst_tflops"] == (pytest.approx(800), "TFLOP/s")
    assert headline["bf16_peak_sustained_tflops"] == (pytest.approx(670), "TFLOP/s")
    assert headline["sustained_of_burst_pct"][0] == pytest.approx(83.75)  # 670 / 800
    # the factory gives the square of 16384 a share of 1 − 0.35·(1024/16384)^0.9 of the peak
    share = 1 - 0.35 * (1 / 16) ** 0.9
    assert headline["best_square_burst_tflops"][0] == pytest.approx(800 * share)
    assert headline["correctness"] == ("within bounds", "")


def test_findings_tell_peaks_power_and_the_lowest_workload_gemm(results):
    told = " ".join(takeaway(results, COMPUTE))
    assert "800 TFLOP/s burst (12288×12288×12288, cublaslt:nt)" in told
    assert "83.8 % of the burst peak (burst 1975 MHz at 690 W; sustained 1450 MHz at 698 W)" in told
    assert "95.5 % (o) to 99.5 % (ffn2) of the sustained peak" in told


def test_rows_without_a_number_are_a_finding(tmp_path):
    told = takeaway(load_results(fake_run(tmp_path, kind="cpu")), COMPUTE)
    assert "dtype/fp8 refused: float8 products are not available on this CPU" in told[-1]
    assert any("Emulated on this device: fp16" in line for line in told)


def test_best_row_and_worst_numerics(results):
    assert best_row(results, "square/", "burst").name == "square/16384"
    assert best_row(results, "square/", "burst", dtype="fp16") is None
    assert worst_numerics(results)["row"] == "correct/bf16/4096"  # 0.1 + 4096/20000 is the largest error


def test_bandwidth_headline_is_the_median_of_the_last_sizes(results):
    headline = summarise(results, BANDWIDTH)["headline"]
    # shares of the copy rate at 2, 4 and 8 GiB: 1 − 0.25·64 MiB/size; the middle one counts
    assert headline["copy_gb_s"] == (pytest.approx(4280 * (1 - 0.25 / 64)), "GB/s")
    assert (
        headline["memory_roof_gb_s"][0] == headline["axpy_gb_s"][0]
    )  # the highest of copy, add and axpy, not fill
    assert headline["fill_gb_s"][0] > headline["memory_roof_gb_s"][0]


def test_capacity_headline_takes_the_largest_tensor(results):
    headline = summarise(results, CAPACITY)["headline"]
    free = round(141 * 10**9 * 0.985)
    assert headline["allocatable_gib"] == (pytest.approx(free * 0.993 / GIB), "GiB")
    assert headline["fragmentation"] == (0.9955, "")


@pytest.mark.parametrize("family", ["00_environment", COMPUTE, BANDWIDTH, CAPACITY])
def test_a_run_without_records_still_summarises(tmp_path, family):
    summary = summarise(empty(tmp_path), family)
    numbers = [value for value, _ in summary["headline"].values() if isinstance(value, (int, float))]
    assert numbers == [] and summary["findings"]


def test_a_peak_that_was_refused_says_why(tmp_path):
    path = fake_run(tmp_path)
    folder = path / "records" / COMPUTE
    file = folder / read_json(folder / "current.json")["peak"]
    write_json(
        file, {**read_json(file), "status": "refused", "reason": "no candidate gave a number", "result": {}}
    )
    summary = summarise(load_results(path), COMPUTE)
    assert summary["headline"]["bf16_peak_sustained_tflops"][0] is None
    assert "no candidate gave a number" in summary["findings"][0]


def test_warnings_are_counted(results):
    summary = summarise(results, "00_environment")
    assert summary["headline"] == {"ready": ("ready with warnings", ""), "warnings": (1, "")}
    assert "1 other process on the device" in summary["findings"][1]
