"""The validation table by hand values: differences, tolerances, conventions, and what never passes."""

import pytest
import yaml

from escherlib import parameters
from escherlib.errors import UserError
from escherlib.files import ROOT
from escherlib.judge.validation import FAMILY, compare, external_verdict, own_figures, table
from escherlib.run.records import Record
from escherlib.tools.figures import METRICS
from tests.judge.factory import gemm, good_rows, make, stream

LIMITS = parameters.load_validation()
MIB = 2**20


def figure(metric, value, size=None, **convention):
    unit = "TFLOP/s" if metric.startswith("gemm") else "GB/s"
    blank = {"bytes": None, "direction": None, "dtype": None}
    return {"metric": metric, "size_bytes": size, "value": value, "unit": unit, "convention": blank | convention}


def outcome(*metrics, status="ok", reading="ok", source="external", reason=None, tool="rvs", **parsed):
    return {
        "tool": tool, "status": status, "reason": reason, "source": source, "reading": reading, "stdout": "rvs-01.stdout",
        "metrics": list(metrics), "parsed": parsed,
    }  # fmt: skip


def one(ours, theirs, **more):
    rows = compare([ours] if ours else [], outcome(theirs, **more), LIMITS)
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize(
    "ours, theirs, difference, status",
    [
        (650.0, 600.0, 100 / 12, "PASS"),
        (540.0, 600.0, -10.0, "PASS"),
        (539.0, 600.0, -10.166667, "FAIL"),
        (840.0, 600.0, 40.0, "PASS"),
        (846.0, 600.0, 41.0, "FAIL"),
    ],
)
def test_compute_may_lie_10_below_and_40_above(ours, theirs, difference, status):
    row = one(figure("gemm_bf16_tflops", ours), figure("gemm_bf16_tflops", theirs))
    assert row["status"] == status and row["difference_pct"] == pytest.approx(difference, rel=1e-6)
    assert row["tolerance_pct"] == [-10.0, 40.0] and (row["ours"], row["theirs"], row["tool"]) == (ours, theirs, "rvs")


@pytest.mark.parametrize("ours, status", [(1150.0, "PASS"), (1151.0, "FAIL"), (850.0, "PASS"), (849.0, "FAIL")])
def test_memory_may_lie_15_to_both_sides(ours, status):
    assert one(figure("memory_copy_gb_s", ours), figure("memory_copy_gb_s", 1000.0))["status"] == status


def test_a_miss_names_the_known_reasons():
    row = one(figure("gemm_bf16_tflops", 300.0), figure("gemm_bf16_tflops", 600.0))
    assert row["why"].startswith("ours 50 % below theirs, outside -10 to +40 %; known reasons: rvs gst times one fixed shape")


def test_collectives_are_compared_at_the_same_size_only():
    ours = [figure("all_reduce_busbw_gb_s", 100.0, 64 * MIB), figure("all_reduce_busbw_gb_s", 5.0, MIB)]
    theirs = [figure("all_reduce_busbw_gb_s", value, size) for value, size in ((111.0, 64 * MIB), (50.0, MIB), (120.0, 128 * MIB))]
    large, small, missing = compare(ours, outcome(*theirs), LIMITS)
    assert (large["status"], large["difference_pct"]) == ("PASS", pytest.approx(-9.909910))
    assert small["status"] == "SKIP" and small["why"].startswith("informational") and small["difference_pct"] == -90.0
    assert missing["status"] == "SKIP" and missing["ours"] is None and missing["why"] == "not measured here at 134217728 bytes"


def test_other_conventions_are_not_compared():
    row = one(figure("d2d_gb_s", 50.0, direction="one way"), figure("d2d_gb_s", 100.0, direction="both ways, sum"))
    assert row["status"] == "SKIP" and row["why"] == "counted differently: direction one way here, both ways, sum there"


def test_the_figure_that_agrees_in_convention_is_taken():
    ours = [figure("d2d_gb_s", 50.0, direction="both ways, sum"), figure("d2d_gb_s", 48.0, direction="one way")]
    row = compare(ours, outcome(figure("d2d_gb_s", 48.0, direction="one way")), LIMITS)[0]
    assert (row["status"], row["ours"]) == ("PASS", 48.0)


def test_another_number_format_is_told():
    ours = figure("all_reduce_busbw_gb_s", 100.0, 64 * MIB, dtype="bf16")
    row = one(ours, figure("all_reduce_busbw_gb_s", 100.0, 64 * MIB, dtype="fp32"))
    assert row["status"] == "PASS" and row["why"].endswith("; bf16 here, fp32 there")


def test_short_copies_are_informational():
    assert one(figure("d2d_gb_s", 48.0), figure("d2d_gb_s", 20.0, 4 * MIB))["status"] == "SKIP"


@pytest.mark.parametrize(
    "status, reason, word",
    [
        ("absent", "rvs not found", "SKIP"), ("unavailable", "no device", "SKIP"), ("timed out", "ended after 5 s", "WARN"),
        ("crashed", "signal 11", "WARN"), ("unparsed", "no evidence", "WARN"), ("failed", "HIP error", "WARN"),
    ],
)  # fmt: skip
def test_a_tool_that_gave_nothing_never_passes(status, reason, word):
    rows = compare([figure("gemm_bf16_tflops", 600.0)], outcome(status=status, reason=reason, reading="failed"), LIMITS)
    assert [(row["status"], row["why"]) for row in rows] == [(word, f"{status}: {reason}")]


@pytest.mark.parametrize("status, reading", [("ok", "partial"), ("timed out", "partial"), ("crashed", "ok")])
def test_an_incomplete_output_warns_within_the_tolerance_and_fails_outside(status, reading):
    theirs = figure("gemm_bf16_tflops", 600.0)
    assert one(figure("gemm_bf16_tflops", 600.0), theirs, status=status, reading=reading)["status"] == "WARN"
    assert one(figure("gemm_bf16_tflops", 60.0), theirs, status=status, reading=reading)["status"] == "FAIL"


def test_the_tools_own_check_fails_the_row():
    rows = compare([], outcome(status="failed", reading="failed", reason="3 wrong values", validation="failed"), LIMITS)
    assert [row["status"] for row in rows] == ["FAIL"] and "3 wrong values" in rows[0]["why"]


def test_a_log_of_another_device_is_not_compared():
    ours, theirs = [figure("memory_copy_gb_s", 4000.0)], figure("memory_copy_gb_s", 4000.0)
    log = outcome(theirs, source="import", devices=["AMD Instinct MI300X"])
    assert compare(ours, log, LIMITS, "NVIDIA H200")[0]["why"] == "the log names another device: AMD Instinct MI300X"
    assert compare(ours, log, LIMITS, "AMD Instinct MI300X OAM")[0]["status"] == "PASS"
    hosts = outcome(theirs, source="import", devices=[{"name": "AMD EPYC", "kind": "cpu"}, {"name": "MI300X", "kind": "gpu"}])
    assert compare(ours, hosts, LIMITS, "AMD Instinct MI300X")[0]["status"] == "PASS"


def rows_of(*pairs):
    return [{"tool": "rvs", "metric": "m", "why": "w", "status": status, "source": source} for status, source in pairs]


@pytest.mark.parametrize(
    "rows, status",
    [
        ([], "SKIP"),
        (rows_of(("SKIP", "external")), "SKIP"),
        (rows_of(("WARN", "external")), "SKIP"),
        (rows_of(("PASS", "replay")), "SKIP"),
        (rows_of(("PASS", "internal")), "SKIP"),
        (rows_of(("PASS", "external"), ("FAIL", "replay"), ("FAIL", "internal")), "PASS"),
        (rows_of(("PASS", "import"), ("SKIP", "external")), "PASS"),
        (rows_of(("PASS", "external"), ("FAIL", "import")), "FAIL"),
    ],
)
def test_only_external_rows_decide(rows, status):
    assert external_verdict(rows)[0] == status


def test_own_figures_come_from_the_runs_roofs():
    found = {entry["metric"]: entry for entry in own_figures(make([*good_rows(), gemm("dtype/fp32", 50.0, 45.0, dtype="fp32")]))}
    assert found["gemm_bf16_tflops"]["value"] == 670.0  # sustained, as rvs runs for many seconds
    assert found["gemm_fp32_tflops"]["value"] == 45.0
    assert found["memory_copy_gb_s"]["value"] == 4280.0 and found["memory_add_gb_s"]["value"] == 4410.0
    assert found["memory_copy_gb_s"]["convention"]["bytes"] == "read + write"
    assert "memory_sum_gb_s" not in found
    read = make([*good_rows(), *(stream("sum", 1024 * 2**i, 4600.0) for i in range(3))])
    assert next(e for e in own_figures(read) if e["metric"] == "memory_sum_gb_s")["convention"]["bytes"] == "read"


def test_the_table_reads_the_records_of_the_family():
    results = make(good_rows())
    theirs = outcome(figure("memory_copy_gb_s", 4000.0, bytes="read + write"), tool="BabelStream")
    results.records[FAMILY] = {
        "BabelStream": Record(FAMILY, "BabelStream", "finished", result={"outcomes": [theirs]}),
        "rvs": Record(FAMILY, "rvs", "failed", "the cell broke"),
    }
    more = figure("h2d_gb_s", 50.0)
    rows = table(results, LIMITS, more=[more])
    assert [(row["tool"], row["status"], row["ours"], row["row"]) for row in rows] == [("BabelStream", "PASS", 4280.0, "copy plateau")]
    assert rows[0]["difference_pct"] == pytest.approx(7.0)


def test_every_metric_has_one_tolerance():
    named = [metric for group in LIMITS.tolerances.values() for metric in group.metrics]
    assert sorted(named) == sorted(METRICS)
    assert LIMITS.of("gemm_bf16_tflops").above_pct == 40.0 and LIMITS.of("other") is None


def test_a_metric_in_two_groups_is_an_error(tmp_path):
    text = yaml.safe_load((ROOT / "parameters/validation.yaml").read_text())
    text["tolerances"]["memory"]["metrics"].append("h2d_gb_s")
    (tmp_path / "validation.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(UserError, match="validation.yaml.*h2d_gb_s stands in more than one group"):
        parameters.load_validation(tmp_path)
