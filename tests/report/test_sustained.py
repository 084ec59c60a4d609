"""Tables, charts and sentences of family 7 on invented records."""

import pytest

from escherlib.judge.headlines import summarise
from escherlib.report import charts, tables
from escherlib.report.table import Table
from escherlib.run.results import load_results
from tests.report.factory import FakeRun, fill_compute
from tests.report.factory_sustained import SUSTAINED, fill_sustained


@pytest.fixture(scope="module", params=["gpu", "cpu"])
def results(request, tmp_path_factory):
    run = FakeRun(tmp_path_factory.mktemp(request.param), request.param, "h200_sxm" if request.param == "gpu" else None)
    fill_compute(run)
    fill_sustained(run, blind=request.param == "cpu")
    return load_results(run.write())


def test_the_phases_table_has_rest_head_tail_and_all(results):
    table = tables.phases(results)
    assert [row["phase"] for row in table.rows] == ["from rest", "head", "middle", "tail", "worst stretch", "all held"]
    titles = [column.title for column in table.columns]
    assert ("MHz" in titles) == (results.kind == "gpu")  # no column without a value
    held = table.rows[-1]
    assert held["of_peak_pct"] == pytest.approx(100 * held["tflops"] / results.row("01_bf16_compute", "peak").get(
        "states", "sustained", "tflops"), abs=0.06)  # fmt: skip


def test_the_staying_table_gives_limit_and_how(results):
    rows = {row["what"]: row for row in tables.staying(results).rows}
    assert rows["drift, tail against head"]["limit"] == "< 5" and "line through the windows" in rows["drift, tail against head"]["how"]
    limited = rows["limited by"]["how"]
    assert limited.startswith("power cap: sw_power_cap in 98.0 %" if results.kind == "gpu" else "cannot tell")
    assert (rows["clock drop, head to tail"]["how"] == "no clock was read") == (results.kind == "cpu")


def test_recovery_by_hand(results):
    rows = tables.recovery(results).rows
    assert [row["idle_ms"] for row in rows] == pytest.approx([30, 100, 300, 1000])
    assert all(row["gain_pct"] == pytest.approx(100 * row["after"] / row["before"] - 100, abs=0.06) for row in rows)


def test_charts_say_what_they_show(results):
    found = charts.timeline(results).to_dict()
    assert "Held" in found["title"]["text"] and found["description"]
    assert len(found["vconcat"]) == (4 if results.kind == "gpu" else 1)
    assert "Line chart" in charts.recovery(results).to_dict()["description"]


def test_headline_and_sentences_come_from_the_records(results):
    found = summarise(results, SUSTAINED)
    assert found["headline"]["held_seconds"] == (60.0, "s")
    assert (found["headline"]["joules_per_call"][0] is None) == (results.kind == "cpu")
    assert any(text.startswith("Held for 60 s: ") for text in found["findings"])
    assert sum("What limits it" in text for text in found["findings"]) == 1


def test_a_run_without_the_family_says_so(tmp_path):
    empty = load_results(FakeRun(tmp_path, "gpu", "h200_sxm").write())
    for made in (tables.phases, tables.staying, tables.recovery, charts.timeline, charts.recovery):
        assert not isinstance(made(empty), Table) and "not measured" in made(empty).lines[0]
