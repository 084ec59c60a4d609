"""SC-10 and the last words of family 9: every branch."""

from dataclasses import replace

import pytest

from escherlib.judge.criteria import numerics_criterion
from escherlib.judge.headlines import summarise
from escherlib.judge.numerics import is_caught, stability
from escherlib.run.records import Record
from tests.judge.factory import SCORING, correct, ended, make

FAMILY = "09_numerical_stability"


def error(dtype="bf16", k=4096, **more):
    """A row `error/…`, by default well within its bound, with a wrong product well outside."""
    found = correct(dtype, k, **{"error": 0.2, "emulation_max": 0.19} | more)
    wrong = {"dropped_block": {"error": 30.0, "bound": 1.0, "times_emulation": 150.0}}
    repeat = {"bitwise_equal": True, "few_rows": {"bitwise_equal": True}}
    result = {"wrong_kernels": wrong, "repeat": repeat, **found.result}  # what is given in `more` wins
    return Record(FAMILY, f"error/{dtype}/{k}", "finished", result=result)


def special(dtype="bf16", found="240 finite, 16 NaN"):
    case = {"case": "NaN in A", "expected": "240 finite, 16 NaN", "found": found, "ok": found == "240 finite, 16 NaN"}
    return Record(FAMILY, f"special/{dtype}", "finished", result={"dtype": dtype, "cases": [case], "ok": case["ok"]})


def sc10(rows, **more):
    return stability(make(rows, **more), SCORING)


def test_passes_and_says_what_was_judged():
    row = sc10([error(k=1024), error(error=0.4), special()])
    assert (row.id, row.role, row.status) == ("SC-10", "opt-in", "PASS")
    assert row.reason == (
        "2 rows within bound, the nearest error/bf16/4096 with 0.4 of 1; 2 of 2 wrong products outside it; "
        "bitwise the same from run to run"
    )


@pytest.mark.parametrize("more, told", [
    ({"error": 1.01, "emulation_max": None}, "error/bf16/4096: scaled error 1.01 above its bound 1"),
    ({"error": 0.9, "emulation_max": 0.2}, "error/bf16/4096: scaled error 0.9 above 4 × the emulation's 0.2"),
    ({"error": None, "max": None}, "error/bf16/4096: the result is not finite"),
    ({"wrong_kernels": {"dropped_block": {"error": 0.9, "bound": 1.0, "times_emulation": None}}},
     "error/bf16/4096: the bound lets dropped_block pass"),
])  # fmt: skip
def test_fails_on_every_kind_of_host(more, told):
    for kind in ("gpu", "cpu"):
        row = sc10([error(k=1024), error(**more)], kind=kind)
        assert (row.status, row.reason) == ("FAIL", told)


def test_a_lost_nan_fails():
    row = sc10([error(), special(found="256 finite")])
    assert (row.status, row.reason) == ("FAIL", "special/bf16: NaN in A: 256 finite, expected 240 finite, 16 NaN")


@pytest.mark.parametrize("entry, caught", [
    ({"error": 1.01, "bound": 1.0}, True),
    ({"error": 1.0, "bound": 1.0}, False),
    ({"error": None, "bound": 1.0}, True),  # not finite
    ({"error": 1.9, "bound": 2.0}, False),
    ({"error": 2.1, "bound": 50.0}, True),  # a record can't loosen its own bound
    ({"error": 0.5, "bound": 1.0, "times_emulation": 4.1}, True),
    ({"error": 0.5, "bound": 1.0, "times_emulation": 4.0}, False),
])  # fmt: skip
def test_what_turns_a_wrong_product_away(entry, caught):
    assert is_caught(entry, SCORING.sc6) is caught


def test_skips_with_the_reason():
    assert sc10([]).status == "SKIP" and sc10([]).reason == "not measured: run TESTCASE=stability RUN=run-1"
    row = sc10([ended("error/fp8/256", "refused", "fp8 needs a matrix unit", FAMILY)])
    assert (row.status, row.reason) == ("SKIP", "error/fp8/256 refused: fp8 needs a matrix unit")


def test_a_refused_format_is_no_gap_and_a_broken_row_is():
    refused, failed = (ended(f"error/fp8/{k}", status, "why", FAMILY) for k, status in ((256, "refused"), (512, "failed")))
    assert sc10([error(), refused]).status == "PASS" and "not judged: error/fp8/256 refused: why" in sc10([error(), refused]).reason
    assert sc10([error(), failed]).status == "PARTIAL_PASS"


def test_other_bits_from_run_to_run_are_told_and_pass():
    row = sc10([error(), error(k=1024, repeat={"bitwise_equal": False})])
    assert row.status == "PASS" and "bits change from run to run in error/bf16/1024" in row.reason


def test_sc6_reads_both_families():
    within = numerics_criterion(make([correct(), error(k=1024)]), SCORING)
    assert within.status == "PASS" and within.reason.startswith("2 rows within bound")
    assert numerics_criterion(make([correct(), error(k=1024, error=3.0)]), SCORING).status == "FAIL"
    assert numerics_criterion(make([error()]), SCORING).status == "PASS"  # family 9 alone is enough
    assert numerics_criterion(make([error("fp32")]), SCORING).status == "SKIP"  # but not in another format


def test_headline_and_findings():
    rows = [error(k=1024, error=0.1), error(error=0.4, bound=2.0), special()]
    found = summarise(make(rows), FAMILY)
    headline = found["headline"]
    assert headline["worst_scaled_error"] == (0.4, "") and headline["worst_scaled_error_row"] == ("bf16, K 4096", "")
    assert headline["worst_scaled_error_of_bound"] == (0.2, "") and headline["deterministic"] == ("yes", "")
    assert headline["wrong_kernels_caught"] == ("2 of 2", "") and headline["special_values"] == ("as IEEE", "")
    told = " ".join(found["findings"])
    assert "bf16, K 4096: scaled error 0.4 of 2, inside" in told and "with 30 × its bound" in told


def test_findings_tell_what_leans_changes_or_breaks():
    leaning = replace(error(k=1024), result=error(k=1024).result | {"bias": {"outward": {"mean": -0.05, "standard_error": 0.01}}})
    loose = error(k=2048, wrong_kernels={"short_sums": {"error": 0.5, "bound": 1.0}},
                  repeat={"bitwise_equal": False, "few_rows": {"bitwise_equal": False}})  # fmt: skip
    given = {"variant": "as given", "max": 0.3, "bound": 1.0, "within": True, "changed": 0.0, "switch": None}
    split = given | {"variant": "K in 8 chunks", "max": 9.0, "within": False, "changed": 0.5}
    switch = given | {"variant": "allow_x on", "changed": 0.125, "switch": "allow_x"}
    sums = Record(FAMILY, "sums/bf16", "finished", result={"dtype": "bf16", "variants": [given, split, switch]})
    rows = [leaning, loose, sums, special(found="256 finite"), ended("error/fp8/256", "refused", "no fp8 here", FAMILY)]
    found = summarise(make(rows), FAMILY)
    told = " ".join(found["findings"])
    assert found["headline"]["deterministic"] == ("no", "") and found["headline"]["special_values"] == ("not as IEEE", "")
    for words in (
        "lean towards zero, as truncation does in 1 of 3 rows, most in bf16, K 1024: 0.05 ulp", "too loose for short_sums in bf16, K 2048",
        "bits change from run to run in error/bf16/2048", "depend on the batch in bf16", "leave the bound in bf16 (9 of 1)",
        "allow_x on changes 12.5 % of the bf16 results", "bf16: NaN in A: 256 finite", "1 of 5 rows gave no number",
    ):  # fmt: skip
        assert words in told, (words, told)


def test_nothing_measured_still_summarises():
    found = summarise(make(), FAMILY)
    assert {value for value, _ in found["headline"].values()} == {None} and found["findings"] == ["No error was measured."]
