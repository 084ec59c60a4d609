"""HOST, SC-5 and SC-6: every branch."""

import pytest

from escherlib.judge.criteria import artefacts_criterion, host_row, numerics_criterion, unbuilt
from tests.judge.factory import SCORING, correct, ended, make


def sc6(rows, **more):
    return numerics_criterion(make(rows, **more), SCORING)


def sc5(artefacts, kind="gpu"):
    return artefacts_criterion(make(kind=kind), SCORING, artefacts)


def test_host_row_names_host_and_rules():
    assert host_row(make()).reason == "GPU host, a device, rated as NVIDIA H200 SXM"
    assert (host_row(make()).id, host_row(make()).role, host_row(make()).status) == ("HOST", "info", "PASS")
    assert (host_row(make(profile=None)).status, host_row(make(profile=None)).details["profile"]) == (
        "WARN",
        None,
    )
    assert "no profile, so no rated value" in host_row(make(profile=None)).reason
    cpu = host_row(make(kind="cpu", profile=None))
    assert cpu.status == "WARN_CPU" and cpu.reason.startswith(
        "CPU host, a device: misses of SC-1 to SC-3 warn"
    )


def artefact(name, ok=True, **more):
    return {"id": name, "files": [f"{name}.svg"], "ok": ok, "reason": None, "left_out": False} | more


def test_sc5_assumed_reads_like_checked():
    assumed, expected, checked = sc5(None), sc5([artefact("A1", ok=None)]), sc5([artefact("A1")])
    assert assumed == expected == checked and checked.status == "PASS"
    assert [row.details["assumed"] for row in (assumed, expected, checked)] == [True, True, False]


def test_sc5_names_what_is_lost():
    row = sc5([artefact("A1"), artefact("A2", False, reason="A2.svg does not open"), artefact("A3", False)])
    assert (row.status, row.reason) == ("FAIL", "A2: A2.svg does not open; A3: missing")
    assert sc5([artefact("A2", False)], "cpu").status == "FAIL"


def test_sc5_lists_what_is_left_out_and_passes_on_the_rest():
    row = sc5(
        [
            artefact("A1"),
            artefact("A9", False, left_out=True, reason="one device"),
            artefact("report.pdf", False, left_out="FORMAT=md"),
        ]
    )
    assert row.status == "PASS"
    assert row.reason.endswith("; left out: A9 (one device), report.pdf (FORMAT=md)")


def test_sc5_without_a_pdf_engine():
    lost = artefact(
        "report.pdf", False, reason="no PDF engine: apt-get install libpango-1.0-0", engine_missing=True
    )
    row = sc5([artefact("A1"), lost])
    assert (row.status, row.reason) == ("FAIL", "report.pdf: no PDF engine: apt-get install libpango-1.0-0")
    assert sc5([artefact("A1"), lost], "cpu").status == "WARN_CPU"
    assert sc5([artefact("A1", False), lost], "cpu").status == "FAIL"


def test_sc6_passes_within_bound_and_names_the_nearest():
    row = sc6([correct(k=1024, error=0.1), correct(k=4096, error=0.3, emulation_max=0.1)])
    assert (row.id, row.role, row.status) == ("SC-6", "gating", "PASS")
    assert (
        row.reason
        == "2 rows within bound, the nearest correct/bf16/4096 with 0.3 of 1; reduced-precision switches off"
    )
    assert (
        "scaled error ≤ 1 (≤ 2 where output rounding dominates)" in row.rule and "≤ 4 × the error" in row.rule
    )


@pytest.mark.parametrize(
    "more, told",
    [
        ({"error": 1.01, "emulation_max": None}, "scaled error 1.01 above its bound 1"),
        ({"error": 2.1, "bound": 2.0, "emulation_max": 1.0}, "scaled error 2.1 above its bound 2"),
        ({"error": 2.1, "bound": 50.0, "emulation_max": 1.0}, "scaled error 2.1 above its bound 2"),
        ({"error": 0.45, "emulation_max": 0.11}, "scaled error 0.45 above 4 × the emulation's 0.11"),
        ({"error": 0.1, "max": 0.9, "emulation_max": 0.2}, "scaled error 0.9 above 4 × the emulation's 0.2"),
        ({"error": None, "max": None}, "the result is not finite"),
        ({"ok": False}, "the record says wrong (scaled error 0.2, bound 1)"),
    ],
)
def test_sc6_fails(more, told):
    for kind in ("gpu", "cpu"):
        row = sc6([correct(k=1024), correct(**more)], kind=kind)
        assert (row.status, row.reason) == ("FAIL", f"correct/bf16/4096: {told}")


@pytest.mark.parametrize(
    "more",
    [
        {"error": 1.0},
        {"error": 1.9, "bound": 2.0, "emulation_max": 1.0},
        {"error": 0.4, "emulation_max": 0.1},
    ],
)
def test_sc6_limits_themselves_pass(more):
    assert sc6([correct(**{"emulation_max": 0.5} | more)]).status == "PASS"


def test_sc6_a_tenfold_error_is_red():
    assert sc6([correct(error=0.2)]).status == "PASS"
    assert sc6([correct(error=2.0)]).status == "FAIL"


def test_sc6_a_gemm_refused_for_a_wrong_result_fails():
    row = sc6(
        [
            correct(),
            ended(
                "square/8192", "refused", "cublas gave a wrong result after timing: scaled error 7, bound 1"
            ),
        ]
    )
    assert row.status == "FAIL" and row.reason.startswith("square/8192: cublas gave a wrong result")
    assert sc6([correct(), ended("square/8192", "refused", "does not fit")]).status == "PASS"


def test_sc6_skips_without_a_row_in_the_peak_s_format():
    assert sc6([]).reason == "no row in bf16: not measured: run TESTCASE=compute RUN=run-1"
    row = sc6([correct("fp32", emulation_max=None), ended("correct/bf16/4096", "failed", "boom")])
    assert (row.status, row.reason) == (
        "SKIP",
        "no row in bf16: correct/bf16/4096 failed: boom; run TESTCASE=compute RUN=run-1",
    )
    assert sc6([], peak_dtype=None).reason == "not measured: run TESTCASE=compute RUN=run-1"
    assert sc6([correct("fp16")], peak_dtype="fp16").status == "PASS"


def test_sc6_tells_of_rows_it_could_not_judge():
    row = sc6([correct(), ended("correct/fp8/4096", "refused", "fp8 is not supported here")])
    assert row.status == "PASS" and row.reason.endswith(
        "not judged: correct/fp8/4096 refused: fp8 is not supported here"
    )
    assert sc6([correct(), ended("correct/bf16/8192", "failed", "boom")]).status == "PARTIAL_PASS"


def test_sc6_tells_the_reduction_switches():
    on = {
        "reduction_switches": {
            "allow_bf16_reduced_precision_reduction": True,
            "allow_fp16_accumulation": False,
        }
    }
    assert "switches on: allow_bf16_reduced_precision_reduction" in sc6([correct(**on)]).reason
    assert "switches not recorded" in sc6([correct(reduction_switches=None)]).reason
    assert "switches" not in sc6([correct(reduction_switches={})], kind="cpu").reason


def test_the_others_are_skipped_with_role_and_rule():
    rows = {row.id: row for row in unbuilt(SCORING)}
    assert list(rows) == ["SC-8", "SC-9", "SC-12"]
    assert {row.status for row in rows.values()} == {"SKIP"} and {row.reason for row in rows.values()} == {
        "not measured"
    }
    assert [row.role for row in rows.values()] == ["opt-in"] * 3
    assert all(row.rule for row in rows.values())


def test_forced_presentation_is_told():
    results = make()
    object.__setattr__(results, "target", "mi355x")
    assert "presented as mi355x" in host_row(results).reason


def test_sc5_knows_beforehand_what_will_be_left_out():
    away = {"id": "A9", "left_out": "one device"}
    expected = sc5([away])
    checked = sc5([artefact("A1"), artefact("A9", None, left_out="one device")])
    assert expected == checked and (expected.details["assumed"], checked.details["assumed"]) == (True, False)
