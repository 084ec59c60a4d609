"""run.measure and run.sweep: what loads, what measures, what is written when things go wrong."""

import json

import pytest

from escherlib.errors import Refused, UserError
from escherlib.files import read_json
from escherlib.method import method
from escherlib.run import load_results, open_run, records
from tests.run.factory import CALLS, count, make_run

FAMILY = "01_bf16_compute"


@pytest.fixture
def run_path(tmp_path, monkeypatch):
    CALLS.clear()
    monkeypatch.setenv("ESCHER_RUN", str(make_run(tmp_path)))
    monkeypatch.setenv("ESCHER_STAT", "off")
    return tmp_path



def test_a_measured_row_is_loaded_the_second_time(run_path):
    first = open_run(FAMILY).measure("square/4", count, n=4)
    second = open_run(FAMILY).measure("square/4", count, n=4)
    assert first.ok and second.ok and first.result == second.result
    assert CALLS == [4]


def test_defaults_are_part_of_the_question(run_path):
    open_run(FAMILY).measure("square/4", count, n=4)
    open_run(FAMILY).measure("square/4", count, n=4, state="sustained")
    open_run(FAMILY).measure("square/4", count, n=4, state="burst")
    assert CALLS == [4, 4]


def test_again_measures_anew_and_keeps_the_old_record(run_path):
    open_run(FAMILY).measure("square/4", count, n=4)
    open_run(FAMILY).measure("square/4", count, n=4, again=True)
    assert CALLS == [4, 4]
    assert len(list((run_path / "records" / FAMILY).glob("square_4--*.json"))) == 2


def test_force_measures_only_what_is_older_than_the_process(run_path, monkeypatch):
    open_run(FAMILY).measure("square/4", count, n=4)
    monkeypatch.setenv("ESCHER_FORCE_BEFORE", "2999-01-01T00:00:00+00:00")
    open_run(FAMILY).measure("square/4", count, n=4)
    monkeypatch.setenv("ESCHER_FORCE_BEFORE", "2000-01-01T00:00:00+00:00")
    open_run(FAMILY).measure("square/4", count, n=4)
    assert CALLS == [4, 4]


def test_sweep_names_rows_by_case_and_refuses_equal_names(run_path):
    run = open_run(FAMILY)
    assert [r.name for r in run.sweep("square/{n}", count, [{"n": 1}, {"n": 2}])] == ["square/1", "square/2"]
    with pytest.raises(UserError, match="stands twice"):
        run.sweep("square", count, [{"n": 1}, {"n": 2}])


def test_row_is_a_word_for_the_name_and_no_argument(run_path):
    (record,) = open_run(FAMILY).sweep("workload/{row}", count, [{"row": "o", "n": 3}])
    assert (record.name, record.arguments) == ("workload/o", {"n": 3, "state": "sustained"})
    assert open_run(FAMILY).sweep("none/{n}", count, []) == []


@method(version=1)
def refuse(device):
    """Refuses."""
    raise Refused("needs another device")


@method(version=1)
def explode(device):
    """Fails."""
    CALLS.append("boom")
    raise ValueError("first line\nsecond line")


@method(version=1)
def interrupt(device):
    """Is interrupted."""
    raise KeyboardInterrupt


def test_a_refusal_is_final_and_a_failure_is_measured_again(run_path):
    assert open_run(FAMILY).measure("x", refuse).status == "refused"
    assert open_run(FAMILY).measure("x", refuse).reason == "needs another device"
    failed = open_run(FAMILY).measure("y", explode)
    assert (failed.status, failed.reason) == ("failed", "ValueError: first line")
    open_run(FAMILY).measure("y", explode)
    assert CALLS == ["boom", "boom"]
    assert len(records.history(run_path / "records" / FAMILY, failed.meta["key"])) == 2


def test_an_interrupt_is_written_down_and_passes_on(run_path):
    with pytest.raises(KeyboardInterrupt):
        open_run(FAMILY).measure("x", interrupt)
    assert load_results(run_path).row(FAMILY, "x").status == "unfinished"


def test_out_of_memory_is_a_refusal(run_path):
    @method(version=1)
    def too_big(device):
        raise MemoryError("no room")

    record = open_run(FAMILY).measure("x", too_big)
    assert (record.status, record.reason) == ("refused", "out of memory: no room")


def test_a_running_record_of_a_dead_process_reads_as_unfinished(run_path):
    open_run(FAMILY).measure("square/4", count, n=4)
    file = next((run_path / "records" / FAMILY).glob("square_4--*.json"))
    data = read_json(file)
    data |= {"status": "running", "meta": data["meta"] | {"process": {"pid": 2**22 + 1, "start": 1}}}
    file.write_text(json.dumps(data))
    assert records.read_record(file).status == "unfinished"
    open_run(FAMILY).measure("square/4", count, n=4)
    assert CALLS == [4, 4]


def test_analysis_never_measures_and_says_what_is_missing(run_path, monkeypatch, tmp_path_factory):
    open_run(FAMILY).measure("square/4", count, n=4)
    before = sorted(p.name for p in (run_path / "records" / FAMILY).iterdir())
    monkeypatch.delenv("ESCHER_RUN")
    moved = tmp_path_factory.mktemp("elsewhere") / "mailed"
    run_path.rename(moved)
    monkeypatch.chdir(moved)
    run = open_run(FAMILY, device="cuda")
    assert run.mode == "analyze" and run.device is None
    assert run.measure("square/4", count, n=4).ok
    missing = run.measure("square/8", count, n=8)
    assert (missing.status, missing.reason) == ("not_measured", "not measured with these parameters")
    assert run.measure("square/4", count, n=5).status == "not_measured"
    shown = run.results.records[FAMILY]  # tables and charts read the same answer
    assert {name: row.status for name, row in shown.items()} == {"square/4": "not_measured", "square/8": "not_measured"}
    assert sorted(p.name for p in (moved / "records" / FAMILY).iterdir()) == before
    assert CALLS == [4]


def test_finish_writes_the_summary_and_drops_rows_no_longer_asked_for(run_path, monkeypatch):
    open_run(FAMILY).sweep("square/{n}", count, [{"n": 1}, {"n": 2}])
    run = open_run(FAMILY)
    run.measure("square/2", count, n=2)
    monkeypatch.setenv("ESCHER_TOKEN", "t1")
    line = run.finish({"best": (1.5, "TFLOP/s"), "absent": (None, "s")}, ["a finding"])
    results = load_results(run_path)
    assert list(results.records[FAMILY]) == ["square/2"]
    assert results.summaries[FAMILY]["headline"] == {"best": {"value": 1.5, "unit": "TFLOP/s"}}
    assert (results.summaries[FAMILY]["token"], results.summaries[FAMILY]["findings"]) == ("t1", ["a finding"])
    assert "1 finished" in line and "1 loaded" in line


def test_a_lost_device_makes_later_rows_say_so(run_path, monkeypatch):
    run = open_run(FAMILY)
    monkeypatch.setattr(run._measuring(), "_device_answers", lambda: False)
    assert run.measure("first", explode).status == "failed"
    later = run.measure("square/4", count, n=4)
    assert (later.status, later.reason) == ("failed", "not run: device lost after first")
    assert CALLS == ["boom"]


def test_unknown_parameter_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("ESCHER_RUN", str(make_run(tmp_path, parameters={"square_sizes": [4]})))
    assert open_run(FAMILY, square_sizes=None).p.square_sizes == [4]
    assert open_run(FAMILY, square_sizes=[8]).p.square_sizes == [8]
    with pytest.raises(UserError, match="unknown parameter 'sizes'; known are square_sizes"):
        open_run(FAMILY, sizes=[1])


def test_later_passes_have_records_and_pointers_of_their_own(run_path, monkeypatch):
    open_run(FAMILY).measure("square/4", count, n=4)
    monkeypatch.setenv("ESCHER_ITERATION", "2")
    open_run(FAMILY).measure("square/4", count, n=4)
    assert CALLS == [4, 4]
    assert (run_path / "iterations" / "2" / f"{FAMILY}.current.json").exists()
    assert len(load_results(run_path).records[FAMILY]) == 1


def test_a_record_of_another_device_is_refused_on_load(run_path):
    open_run(FAMILY).measure("square/4", count, n=4)
    file = next((run_path / "records" / FAMILY).glob("square_4--*.json"))
    data = read_json(file)
    data["meta"]["device_sha"] = "other"
    file.write_text(json.dumps(data))
    with pytest.raises(UserError, match="square/4 was measured on another device"):
        load_results(run_path)


def test_a_row_of_a_sweep_is_finished_before_the_next_one_begins(run_path):
    @method(version=1)
    def die_at_two(device, *, n):
        if n == 2:
            raise KeyboardInterrupt
        return {"states": {}}

    with pytest.raises(KeyboardInterrupt):
        open_run(FAMILY).sweep("square/{n}", die_at_two, [{"n": 1}, {"n": 2}, {"n": 3}])
    rows = load_results(run_path).records[FAMILY]
    assert {name: row.status for name, row in rows.items()} == {"square/1": "finished", "square/2": "unfinished"}
