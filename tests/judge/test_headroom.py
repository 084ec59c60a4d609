"""SC-11 on hand-made records: fits with margin, fits without, does not fit, on GPU and CPU."""

import pytest

from escherlib.judge.headlines_memory import capacity
from escherlib.judge.headroom import memory_headroom, read_headroom
from escherlib.parameters import load_scoring
from escherlib.report import tables
from escherlib.run.results import load_results
from tests.report.factory import GIB, FakeRun, fill_capacity

SCORING = load_scoring()


def results(tmp_path, kind="gpu", status="finished", **changes):
    run = FakeRun(tmp_path, kind, "h200_sxm" if kind == "gpu" else None)
    fill_capacity(run)
    row = run.records["03_memory_capacity"]["headroom"]
    row["result"] |= changes
    row |= {"status": status, "reason": None if status == "finished" else "an invented reason"}
    return load_results(run.write())


def test_room_by_hand(tmp_path):
    found = results(tmp_path, free_bytes=100 * GIB, bytes=49 * GIB, rest_bytes=50 * GIB, live_set_bytes=4 * GIB)
    room = read_headroom(found, SCORING)
    assert (room["held_gib"], room["rest_gib"], room["need_gib"]) == (49, 50, 5)  # 1.25 × 4
    assert room["spare_gib"] == 45 and room["forward_gib"] == pytest.approx(1 / 8)
    row = memory_headroom(found, SCORING)
    assert (row.status, row.role) == ("PASS", "opt-in")
    assert row.reason == "the model holds 49 GiB, 50 GiB are left, activations need 5 GiB"
    headline, sentences = capacity(found)
    assert headline["headroom_gib"] == (45, "GiB") and "45 GiB to spare (measured)" in sentences[-1]
    lines = {line["what"]: line["gib"] for line in tables.headroom(found).rows}
    assert lines["to spare"] == 45 and lines["one chunk took"] == pytest.approx(1 / 8)
    assert all(line["row"] != "headroom" for line in tables.capacity(found).rows)


@pytest.mark.parametrize(
    ("kind", "changes", "status"),
    [
        ("gpu", {"rest_bytes": GIB, "live_set_bytes": GIB}, "FAIL"),  # 1 GiB for 1.25
        ("cpu", {"rest_bytes": GIB, "live_set_bytes": GIB, "fits": True}, "WARN_CPU"),
        ("gpu", {"fits": False, "rest_bytes": None}, "FAIL"),
        ("cpu", {"fits": False, "rest_bytes": None}, "WARN_CPU"),
        ("cpu", {"fits": True, "rest_bytes": 9 * GIB, "live_set_bytes": GIB}, "PASS"),
    ],
)
def test_every_branch(tmp_path, kind, changes, status):
    assert memory_headroom(results(tmp_path, kind, **changes), SCORING).status == status


def test_a_row_that_failed_or_is_not_there_is_a_skip(tmp_path):
    assert memory_headroom(results(tmp_path / "a", status="failed"), SCORING).reason == "headroom failed: an invented reason"
    empty = load_results(FakeRun(tmp_path / "b", "gpu", "h200_sxm").write())
    assert (memory_headroom(empty, SCORING).status, memory_headroom(empty, SCORING).reason) == ("SKIP", "not measured")
