"""Parsers of external validators: values of every captured output, damage, and cases made by hand."""

import json

import pytest

from escherlib import tools
from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, UNPARSED, USABLE, read
from tests.logs import corpus

CASES = corpus.cases(*tools.MODULES)


def parsed(tool, text):
    return read(tools.parser_of(tool), text)


@pytest.mark.parametrize("tool, name, wanted", CASES)
def test_values_of_a_captured_output(tool, name, wanted):
    corpus.check_values(parsed(tool, corpus.text_of(tool, name)), wanted)


@pytest.mark.parametrize("tool, name, wanted", CASES)
def test_damage_never_raises(tool, name, wanted):
    corpus.check_damage(tools.parser_of(tool), corpus.text_of(tool, name))


@pytest.mark.parametrize("tool", tools.MODULES)
@pytest.mark.parametrize("text", ["", "\n\n", "all is well\nexit 0\n", "{}", "[1, 2]", "0 0 0\n" * 40, "# " * 500, "| 1 | 2 |\n" * 9])
def test_nothing_of_the_tool_is_unparsed(tool, text):
    found = parsed(tool, text)
    assert (found["status"], found["reason"]) == (FAILED, UNPARSED)


@pytest.mark.parametrize("tool, name, wanted", CASES)
def test_output_of_one_tool_is_nothing_to_the_others(tool, name, wanted):
    text = corpus.text_of(tool, name)
    for other in tools.MODULES:
        if other == tool or (tool, other) in (("rocm-bandwidth-test", "TransferBench"),) or _undistinguished(tool, other, name):
            continue
        found = parsed(other, text)
        assert (found["status"], found["reason"]) == (FAILED, UNPARSED), other


def _undistinguished(tool, other, name):
    """A bare table or error of nccl-tests and rccl-tests names neither."""
    bare = ("rows", "tail-avg", "stepbytes", "interleaved", "old-error", "badarg", "fail-test")
    return {tool, other} == {"nccl-tests", "rccl-tests"} and any(word in name for word in bare)


@pytest.mark.parametrize("tool, name, wanted", CASES)
def test_a_cut_output_is_never_whole(tool, name, wanted):
    text = corpus.text_of(tool, name)
    for share in (0.2, 0.35, 0.5, 0.65, 0.8):
        cut = text[: int(share * len(text.rstrip()))]
        if tool == "rvs" and cut.rstrip().endswith(" sec"):
            continue  # a whole line: rvs prints no closing line, so nothing tells
        assert parsed(tool, cut)["status"] != OK, share


def test_the_environment_of_a_json_is_never_kept():
    text = corpus.text_of("nccl-tests", "allreduce-gh200x2-J.json")
    assert "SLURM_GPUS_PER_NODE" in text
    assert "SLURM" not in json.dumps(parsed("nccl-tests", text))


@pytest.mark.parametrize("tool, name", [(case.values[0], case.values[1]) for case in CASES])
def test_no_host_name_or_uuid_is_kept(tool, name):
    told = json.dumps(parsed(tool, corpus.text_of(tool, name)))
    assert "node0" not in told and "GPU-0000" not in told and "localhost" not in told


# BabelStream

TABLE = (
    "BabelStream\nVersion: 6.0\nImplementation: HIP\nRunning kernels 100 times\nPrecision: float\nUsing HIP device X\n"
    "Function    {unit}  Min (sec)   Max         Average\n"
    "Copy        1000.000    0.00010     0.00011     0.00010\n"
    "Mul         1000.000    0.00010     0.00011     0.00010\n"
    "Add         1000.000    0.00010     0.00011     0.00010\n"
    "Triad       2000.000    0.00010     0.00011     0.00010\n"
    "Dot         1000.000    0.00010     0.00011     0.00010\n"
)


@pytest.mark.parametrize(
    "unit, gb_s", [("MBytes/sec", 2.0), ("MB/s", 2.0), ("MiBytes/sec", 2.097152), ("GB/s", 2000.0), ("GiB/s", 2147.483648)]
)
def test_babelstream_reads_the_unit_from_the_header(unit, gb_s):
    found = parsed("BabelStream", TABLE.format(unit=unit))
    assert found["status"] == OK
    assert found["tables"][0]["rows"]["Triad"]["gb_s"] == pytest.approx(gb_s)


def test_babelstream_that_failed_its_check_shows_numbers_but_failed():
    found = parsed("BabelStream", TABLE.format(unit="MB/s") + "FAILED validation of a[]. Average error 1.0\n")
    assert found["status"] == FAILED and found["validation"] == "failed" and "validation" in found["reason"]
    assert found["tables"][0]["rows"]["Triad"]["gb_s"] == 2.0


def test_babelstream_cut_in_a_number_drops_the_row():
    text = TABLE.format(unit="MB/s")
    found = parsed("BabelStream", text[: text.index("Dot") - 3])  # the average of Triad reads 0.000
    assert found["status"] == PARTIAL and "Triad" not in found["tables"][0]["rows"]


def test_babelstream_csv():
    text = (
        "phase,n_elements,sizeof,max_mbytes_per_sec,runtime\nInit,1024,8,10.0,0.1\n"
        "function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,avg_runtime\n"
        + "".join(f"{name},100,268435456,8,4.17729e+06,0.001,0.002,0.0015\n" for name in ("Copy", "Mul", "Add", "Triad", "Dot"))
    )
    found = parsed("BabelStream", text)
    assert found["status"] == OK and found["tables"][0]["rows"]["Copy"]["gb_s"] == pytest.approx(4177.29)


def test_babelstream_without_a_device():
    found = parsed("BabelStream", "BabelStream\nVersion: 4.0\nImplementation: CUDA\nError: no CUDA-capable device is detected\n")
    assert found["status"] == UNAVAILABLE and "no CUDA-capable device" in found["reason"]


# nccl-tests and rccl-tests

HEAD = (
    "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
    "#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid 1 on host0 device  0 [0x01] NVIDIA X\n#  Rank  1 Group  0 Pid 1 on host0 device  1 [0x02] NVIDIA X\n"
)
COLUMNS = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
ROW = "     1048576        262144     float     sum      -1    100.0   10.49   10.49      {a}     50.0   20.97   20.97      {b}\n"
END = "# Out of bounds values : {n} {word}\n# Avg bus bandwidth    : 15.73\n#\n"


def nccl(a="0", b="0", n=0, word="OK", columns=COLUMNS, row=ROW):
    return parsed("nccl-tests", HEAD + columns + row.format(a=a, b=b) + END.format(n=n, word=word))


def test_a_whole_table():
    found = nccl()
    assert found["status"] == OK and found["rows_complete"] is True and found["validation"] == "passed"
    assert found["rows"][0]["in_place"] == {
        "time_us": 50.0, "time_kind": "wall", "algbw_gb_s": 20.97, "busbw_gb_s": 20.97, "wrong": 0, "error": None,
    }  # fmt: skip


@pytest.mark.parametrize("a, n, word", [("3", 0, "OK"), ("0", 2, "FAILED")])
def test_wrong_values_fail_and_show_the_numbers(a, n, word):
    found = nccl(a=a, n=n, word=word)
    assert found["status"] == FAILED and found["reason"].startswith("validation failed")
    assert found["validation"] == "failed" and found["rows"][0]["in_place"]["busbw_gb_s"] == 20.97


def test_not_checked_is_not_right():
    found = nccl(a="N/A", b="N/A")
    assert found["status"] == OK and found["wrong_total"] is None and found["validation"] == "unchecked"


def test_more_columns_are_read_by_name():
    columns = COLUMNS.replace("#wrong", "#wrong i_min i_max i_p99 i_cv%").replace("\n", " timestamp\n")
    row = ROW.replace("{a}", "{a} 90.0 110.0 109.0 2.5").replace("{b}", "{b} 40.0 60.0 59.0 2.5").replace("\n", " 2026-01-01 00:00:00\n")
    assert nccl(columns=columns, row=row)["rows"][0]["in_place"]["busbw_gb_s"] == 20.97


def test_a_row_whose_figures_disagree_is_marked():
    found = nccl(row=ROW.replace("20.97   20.97", "90.97   20.97"))
    assert found["status"] == PARTIAL and found["rows"][0]["consistent"] is False


def test_a_row_cut_short_is_no_row():
    cut = HEAD + COLUMNS + ROW.format(a=0, b=0)[:-8]
    assert parsed("nccl-tests", cut)["rows"] == [] and parsed("nccl-tests", cut)["status"] == PARTIAL


def test_an_average_that_is_not_that_of_the_rows_means_a_cut():
    text = HEAD + COLUMNS + ROW.format(a=0, b=0) + "# Avg bus bandwidth    : 15"
    assert parsed("nccl-tests", text + ".73")["status"] == OK
    assert parsed("nccl-tests", text)["status"] == PARTIAL and parsed("nccl-tests", text)["rows_complete"] is False


def test_two_tests_in_one_file_stay_apart():
    text = HEAD + COLUMNS + ROW.format(a=0, b=0) + END.format(n=0, word="OK")
    second = "# Collective test starting: all_gather_perf\n" + text.replace("15.73", "99.0").replace("20.97   20.97", "20.97   10.48")
    found = parsed("nccl-tests", text + second)
    assert found["collective"] != "all_gather" and found["average_busbw_gb_s"] == 15.73
    assert [run["collective"] for run in found["further_runs"]] == ["all_gather"]


# nvbandwidth


def test_nvbandwidth_matrix_without_its_sum_is_cut():
    text = (
        "nvbandwidth Version: v0.8\nRunning device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n"
        "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "           0         1\n 0       N/A    267.10\n 1    26"
    )
    found = parsed("nvbandwidth", text)
    test = found["tests"]["device_to_device_memcpy_read_ce"]
    assert found["status"] == PARTIAL and test["status"] == "cut" and test["max_gb_s"] is None


def test_nvbandwidth_test_that_did_not_pass_gives_no_figure():
    case = {
        "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", "bandwidth_matrix": [["10.0"]],
        "name": "host_to_device_memcpy_ce", "status": "Error", "sum": 10.0,
    }  # fmt: skip
    found = parsed("nvbandwidth", json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": [case]}}))
    assert found["status"] == FAILED and found["reason"] == "host_to_device_memcpy_ce: error"
    assert found["tests"]["host_to_device_memcpy_ce"]["max_gb_s"] is None


def test_nvbandwidth_json_cut_keeps_whole_tests():
    text = corpus.text_of("nvbandwidth", "v0.5-J-a100x2-abridged.json")
    found = parsed("nvbandwidth", text[: len(text) // 2])
    assert found["status"] == PARTIAL and found["tests"]["host_to_device_memcpy_ce"]["max_gb_s"] == 12.3492


def test_nvbandwidth_without_a_device():
    text = json.dumps({"nvbandwidth": {"error": "[CUDA_ERROR_NO_DEVICE] no CUDA-capable device", "version": "v0.8"}})
    assert parsed("nvbandwidth", text)["status"] == UNAVAILABLE


# rvs


def rvs(*lines):
    return parsed("rvs", "".join(f"[RESULT] [1.{n}] [a-bf16] {line}\n" for n, line in enumerate(lines)))


def test_rvs_target_not_met_fails_with_its_number():
    found = rvs("[GPU:: 7] GFLOPS 500000 Target GFLOPS: 600000 met: FALSE")
    assert found["status"] == FAILED and found["validation"] == "failed" and found["gst"][0]["gflops"] == 500000.0


def test_rvs_without_a_verdict_is_partial():
    found = rvs("[GPU:: 7] GFLOPS 500000")
    assert found["status"] == PARTIAL and found["gst"][0]["gflops"] is None and found["gst"][0]["samples_gflops"] == [500000.0]


def test_rvs_cut_in_a_number_gives_no_sample():
    assert parsed("rvs", "[RESULT] [1.0] [a] [GPU:: 7] GFLOPS 5000")["status"] == FAILED


def test_rvs_pairs_are_counted():
    pair = "[GPU:: 2 - 11 - 0000:05:00.0] [GPU:: 3 - 12 - 0000:26:00.0]"
    line = f"p2p-bandwidth[ {{n}}/2] {pair} bidirectional: false {{v}} GBps duration: 1.0 secs"
    assert rvs(line.format(n=1, v="48.9"), line.format(n=2, v="47.9"))["status"] == OK
    assert rvs(line.format(n=1, v="48.9"))["status"] == PARTIAL
    assert rvs(line.format(n=1, v="-nan"), line.format(n=2, v="47.9"))["p2p"][0]["gb_s"] is None


def test_rvs_old_closing_line_and_memory_failure():
    found = rvs("gst 7 GFLOPS 9500.5 Target stress : 9000 met :TRUE")
    assert found["status"] == OK and found["gst"][0]["met"] is True and found["gst"][0]["gflops"] == 9500.5
    assert rvs("mem Test 3: x", "mem Test 3 : FAIL")["reason"] == "validation failed: mem test 3: FAIL"


def test_rvs_babel_in_mebibytes():
    text = (
        "[RESULT] [1.0] Action name :babel\n[RESULT] [1.1] Module name :babel\n"
        "GPU Id      Function    MiBytes/sec Min (sec)   Max         Average\n46764       Copy        4000000.000 0.00010 0.00011 0.00010\n"
    )
    assert parsed("rvs", text)["babel"] == [{"gpu_id": 46764, "function": "Copy", "gb_s": 4194.304, "unit": "MiBytes/sec"}]


# TransferBench and rocm-bandwidth-test


def test_transferbench_mismatch_is_no_bandwidth():
    text = "TransferBench v1.64.00\nTest 1:\n[ERROR] Unexpected mismatch at index 4 of destination 0: Expected 10.0 Actual: 11.0\n"
    found = parsed("TransferBench", text)
    assert found["status"] == FAILED and "mismatch" in found["reason"] and found["tests"] is None


def test_rocm_bandwidth_test_cut_in_a_cell_drops_the_row():
    text = corpus.text_of("rocm-bandwidth-test", "2.6.0-mi50x2-xeon-p2p-off.txt").rstrip()
    found = parsed("rocm-bandwidth-test", text.replace("586.201", "586.2"))
    assert found["status"] == PARTIAL and found["unidirectional"]["rows"] == [0, 1]


def test_every_result_is_usable_or_says_why():
    for case in CASES:
        tool, name, _ = case.values
        found = parsed(tool, corpus.text_of(tool, name))
        assert (found["status"] == OK) == (found["reason"] is None)
        assert found["status"] in (*USABLE, FAILED, UNAVAILABLE)
