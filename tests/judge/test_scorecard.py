"""The whole score: order, verdict, exit codes, files."""

import json
from dataclasses import replace

import pytest

from escherlib.judge import scorecard
from escherlib.judge.criteria import Criterion
from tests.judge.factory import (
    BANDWIDTH,
    COMPUTE,
    SCORING,
    correct,
    good_rows,
    make,
    peak,
    squares,
    stream,
    streams,
    without,
)

IDS = ["HOST", *(f"SC-{n}" for n in range(1, 13))]
FILES = [{"id": "A1", "files": [], "ok": True, "reason": None, "left_out": False}]


def score(rows, artefacts=FILES, **more):
    return scorecard.score(make(rows, **more), SCORING, artefacts)


def words(found):
    """Criteria that are neither PASS nor SKIP."""
    return {c.id: c.status for c in found.criteria if c.role != "info" and c.status not in ("PASS", "SKIP")}


def halved(row):
    """A square whose burst rate is half of what was measured."""
    states = row.result["states"]
    burst = states["burst"] | {"tflops": states["burst"]["tflops"] / 2}
    return replace(row, result=row.result | {"states": states | {"burst": burst}})


def criterion(role, status):
    return Criterion("SC-0", role, status, "why", "rule")


@pytest.mark.parametrize(
    "rows, kind, broken, verdict",
    [
        ([("gating", "PASS"), ("opt-in", "PASS")], "gpu", (), "GO"),
        ([("gating", "PASS"), ("opt-in", "SKIP")], "gpu", (), "GO"),
        ([("gating", "PASS"), ("opt-in", "WARN")], "gpu", (), "GO"),
        ([("gating", "FAIL")], "gpu", (), "NO-GO"),
        ([("gating", "FAIL")], "cpu", (), "NO-GO"),
        ([("gating", "PASS")], "gpu", ("02 failed",), "NO-GO"),
        ([("gating", "PASS")], "cpu", ("02 failed",), "NO-GO"),
        ([("gating", "SKIP")], "gpu", (), "CONDITIONAL GO"),
        ([("gating", "WARN")], "gpu", (), "CONDITIONAL GO"),
        ([("gating", "PARTIAL_PASS")], "gpu", (), "CONDITIONAL GO"),
        ([("gating", "SKIP")], "cpu", (), "GO"),
        ([("gating", "WARN")], "cpu", (), "GO"),
        ([("gating", "WARN_CPU")], "cpu", (), "GO"),
        ([("gating", "PARTIAL_PASS")], "cpu", (), "GO"),
        ([("gating", "PASS"), ("opt-in", "FAIL")], "gpu", (), "CONDITIONAL GO"),
        ([("gating", "PASS"), ("opt-in", "FAIL")], "cpu", (), "CONDITIONAL GO"),
        ([("gating", "FAIL"), ("opt-in", "FAIL")], "gpu", (), "NO-GO"),
        ([("info", "WARN"), ("gating", "PASS")], "gpu", (), "GO"),
    ],
)
def test_verdict(rows, kind, broken, verdict):
    found, reasons = scorecard.judge([criterion(*row) for row in rows], kind, broken)
    assert found == verdict
    assert bool(reasons) == (verdict != "GO")


def test_a_healthy_run():
    found = score(good_rows())
    assert [c.id for c in found.criteria] == IDS
    assert [c.status for c in found.criteria if c.id in ("SC-1", "SC-2", "SC-5", "SC-6")] == ["PASS"] * 4
    assert (found.verdict, found.reasons) == ("CONDITIONAL GO", ("SC-3 SKIP", "SC-4 SKIP"))
    assert scorecard.exit_code(make(good_rows()), found) == 0
    assert scorecard.headline(found) == (
        "verdict: CONDITIONAL GO · SC-1 PASS · SC-2 PASS · SC-3 SKIP · SC-4 SKIP · SC-5 PASS · SC-6 PASS · SC-10 SKIP · 5 more not measured"
    )


@pytest.mark.parametrize(
    "rows, red",
    [
        ([*without(good_rows(), "square/"), *(halved(row) for row in squares())], {"SC-1": "FAIL"}),
        ([*without(good_rows(), "copy/", "add/"), *streams(copy=(2000.0,) * 3)], {"SC-2": "FAIL"}),
        ([*without(good_rows(), "correct/"), correct(error=2.0)], {"SC-6": "FAIL"}),
    ],
    ids=["squares halved", "slow copy", "tenfold error"],
)
def test_a_falsified_run_turns_one_criterion_red(rows, red):
    found = score(rows)
    assert words(found) == red and found.verdict == "NO-GO"
    assert scorecard.exit_code(make(rows), found) == 1


def test_a_lost_artefact_is_no_go():
    lost = [{**FILES[0], "ok": False, "reason": "gone"}]
    found = score(good_rows(), lost)
    assert (found.verdict, found.reasons) == ("NO-GO", ("SC-5 FAIL",))
    assert scorecard.exit_code(make(good_rows()), found) == 1


def test_a_cpu_host_is_judged_and_never_ends_with_one_for_it():
    rows = [
        peak(None, 1.0, "fp32"),
        correct("fp32", error=3.0),
        *[stream(op, 2**i, 10.0 + i) for op in ("copy", "add") for i in range(3)],
    ]
    found = score(rows, kind="cpu", profile=None, peak_dtype="fp32")
    assert words(found) == {"SC-2": "WARN_CPU", "SC-6": "FAIL"} and found.verdict == "NO-GO"
    assert scorecard.exit_code(make(rows, kind="cpu"), found) == 0
    healthy = score([correct("fp32")], kind="cpu", profile=None, peak_dtype="fp32")
    assert (healthy.verdict, words(healthy)) == ("GO", {})


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
@pytest.mark.parametrize("status", ["failed", "timed_out"])
def test_a_family_that_failed_counts_on_every_host(kind, status):
    families = {BANDWIDTH: {"status": status, "reason": "killed by signal 9"}}
    found = score(good_rows(), kind=kind, families=families)
    assert found.verdict == "NO-GO"
    assert found.reasons == (f"02_memory_bandwidth {status.replace('_', ' ')}: killed by signal 9",)
    assert scorecard.exit_code(make(kind=kind, families=families), found) == 1


@pytest.mark.parametrize("status", ["finished", "not_run"])
def test_a_family_that_was_not_asked_for_does_not(status):
    families = {COMPUTE: {"status": status, "reason": None}}
    found = score(good_rows(), families=families)
    assert found.verdict == "CONDITIONAL GO" and scorecard.exit_code(make(families=families), found) == 0


def test_a_failure_in_a_later_pass_counts():
    results = make(good_rows())
    results.manifest["pass_2"] = {COMPUTE: {"status": "failed", "reason": None}}
    found = scorecard.score(results, SCORING, FILES)
    assert found.reasons == ("01_bf16_compute in pass 2 failed",)
    assert scorecard.exit_code(results, found) == 1


def test_an_opt_in_fail_leaves_the_code():
    found = scorecard.Score((criterion("opt-in", "FAIL"),), "CONDITIONAL GO", ())
    assert scorecard.exit_code(make(), found) == 0


def test_the_assumed_score_equals_the_final_one():
    assert score(good_rows(), None) == score(good_rows())
    assert score(good_rows(), None) != score(good_rows(), [{**FILES[0], "ok": False}])


def test_files(tmp_path):
    rows = [*good_rows(), stream("mul", 1024, 5100.0)]
    results = make(rows, path=tmp_path, name="a | <b>\ndevice")
    found = scorecard.score(results, SCORING, FILES)
    assert [path.name for path in scorecard.write(results, found)] == ["scorecard.json", "scorecard.md"]
    stored = json.loads(
        (tmp_path / "scorecard.json").read_text(),
        parse_constant=lambda word: pytest.fail(f"{word} is not JSON"),
    )
    assert [c["id"] for c in stored["criteria"]] == IDS
    assert set(stored["criteria"][1]) == {"id", "role", "status", "reason", "rule", "details"}
    assert (stored["run"], stored["verdict"], stored["device"]["profile"]) == (
        "run-1",
        "CONDITIONAL GO",
        "h200_sxm",
    )
    text = (tmp_path / "scorecard.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table[0] == "| id | status | reason | rule |" and len(table) == 2 + len(IDS)
    assert all(line.replace("\\|", "").count("|") == 5 for line in table)
    assert [line.split(" | ")[0].strip("| ") for line in table[2:]] == IDS
    assert "a \\| &lt;b> device" in table[2]
    assert "**CONDITIONAL GO** (SC-3 SKIP; SC-4 SKIP)" in text
    assert "Findings:\n\n- the mul plateau of 5100 GB/s is 106.2 % of the rated 4800 GB/s" in text


def test_an_empty_run_scores(tmp_path):
    for kind in ("gpu", "cpu"):
        found = score([], kind=kind, profile=None, peak_dtype=None, families={COMPUTE: {}, BANDWIDTH: {}})
        assert words(found) == {} and [c.id for c in found.criteria] == IDS
        scorecard.write(make(path=tmp_path), found)
