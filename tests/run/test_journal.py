"""A long measurement whose process dies: what it told is a result, marked as unfinished."""

import json

import pytest

from escherlib.run import records
from escherlib.run.measuring import Journal
from escherlib.run.records import Record
from escherlib.timing import hold
from tests.timing.simclock import SimClock

BRIEF = {"settle_min_s": 0.6, "settle_cap_s": 3.0}


def test_lines_of_a_dead_process_are_its_result(tmp_path):
    clock = SimClock(lambda busy, idle, i: 1_000_000)
    lines = [{"about": {"flop": 10**9}}, *hold.windows(clock.call, clock, seconds=1.0, window_s=0.1, idle_s=0.1, protocol=BRIEF)]
    mark = {"pid": 999_999_999, "start": 1}
    records.write_record(tmp_path, "hold_stack--k--01.json", Record("07_sustained", "hold/stack", "running", meta={"process": mark}))
    file = records.lines_file(tmp_path / "hold_stack--k--01.json")
    seen = []
    with Journal(file, seen.append) as journal:
        for line in lines:
            journal.keep(line)
    with file.open("a") as stream:
        stream.write('{"samples_ns": [1, 2')  # the line that was being written when it died
    record = records.read_record(tmp_path / "hold_stack--k--01.json")
    assert record.status == "unfinished" and not record.ok and len(seen) == len(lines)
    assert record.get("states", "sustained", "tflops") == pytest.approx(1.0)
    assert record.get("ended") == "the process ended"


def test_a_journal_without_a_line_leaves_no_file(tmp_path):
    with Journal(tmp_path / "x.lines.jsonl", None):
        pass
    assert not list(tmp_path.iterdir())
    assert records.read_lines(tmp_path / "x.lines.jsonl") == {}
    (tmp_path / "x.lines.jsonl").write_text(json.dumps({"about": {}}) + "\n")
    assert records.read_lines(tmp_path / "x.lines.jsonl") == {}
