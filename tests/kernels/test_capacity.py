"""Capacity: the bisection on made-up memories, and real children that live, hang and are killed."""

import json
import sys

import pytest
import torch

from escherlib.errors import Refused
from escherlib.kernels import capacity, capacity_child
from escherlib.kernels.capacity_child import largest_size
from tests.kernels.stand_in import cpu

MIB = 2**20


@pytest.mark.parametrize("edge", [0, 1, 2, 77, 69_999, 70_000])
def test_bisection_finds_the_exact_edge(edge):
    size, probes = largest_size(lambda size: size <= edge * MIB + 5, 70_000 * MIB + 17, MIB)
    assert size == edge * MIB
    assert len(probes) <= 34 and len({p["bytes"] for p in probes}) == len(probes)


def test_an_edge_just_under_the_bound_takes_few_probes():
    _, probes = largest_size(lambda size: size <= 143_000 * MIB, 143_010 * MIB, 2 * MIB)
    assert len(probes) <= 7


def test_a_fresh_process_allocates_touches_and_answers():
    found = capacity.largest(cpu(), limit_gib=0.0625, tolerance_mib=4)
    assert found["bytes"] == 64 * MIB and found["allocated_bytes"] == 64 * MIB
    assert (
        found["bounded_by"] == "limit of 0.0625 GiB" and found["correct"]["ok"] and found["dtype"] == "bf16"
    )
    assert 0 < found["share_of_free_pct"] < 100
    json.dumps(found, allow_nan=False)


def test_chunks_add_up_and_fragmentation_is_their_ratio():
    found = capacity.chunked(
        cpu(), chunk_mib=24, limit_gib=0.0625, tolerance_mib=4, contiguous_bytes=32 * MIB
    )
    # 2 × 24 MiB, then the rest of 64 MiB by halves: 12, and 4 are left below the last half of 6
    assert found["bytes"] == 60 * MIB and found["chunks"] == 3
    assert found["fragmentation"] == 32 / 60


@pytest.fixture
def child(monkeypatch, tmp_path):
    """Puts another script in the child's place."""

    def replace(source):
        script = tmp_path / "child.py"
        script.write_text(source)
        monkeypatch.setattr(capacity, "CHILD", script)

    return replace


def test_a_killed_child_is_a_refusal_that_says_what_it_held(child):
    child(
        "import os, signal\n"
        'print(\'{"progress": "touched", "held_bytes": 3221225472}\', flush=True)\n'
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with pytest.raises(Refused, match=r"killed by signal 9 \(out of memory\?\) while it held 3\.00 GiB"):
        capacity.largest(cpu(), limit_gib=0.01)


def test_a_child_that_hangs_is_ended_and_refused(child, monkeypatch):
    child("import time\nprint('{\"held_bytes\": 1073741824}', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(capacity, "START_S", 0.5)
    with pytest.raises(Refused, match=r"no answer in 0\.6 s while it held 1\.00 GiB"):
        capacity.largest(cpu(), limit_gib=0.01, time_limit_s=0.1)


def test_a_broken_child_gives_its_last_line(child):
    child("raise SystemExit('no such device')")
    with pytest.raises(Refused, match="failed: no such device"):
        capacity.largest(cpu(), limit_gib=0.01)


@pytest.mark.parametrize(
    ("stopped", "bounded_by"),
    [("the host began to swap", "the host began to swap"), ("time box", "0.5 of free memory")],
)
def test_what_stopped_the_child_bounds_the_result_unless_it_was_only_time(monkeypatch, stopped, bounded_by):
    answer = {
        "found_bytes": 4 * MIB, "touched_bytes": 3 * MIB, "free_bytes": 16 * MIB, "total_bytes": 32 * MIB,
        "stopped": stopped, "ends_ok": True,
    }  # fmt: skip
    monkeypatch.setattr(capacity, "ask", lambda request, timeout_s: dict(answer))
    found = capacity.largest(cpu(memory_bytes=32 * MIB))
    assert found["bounded_by"] == bounded_by and found["share_of_total_pct"] == 12.5
    assert "75 % of the pages touched" in found["correct"]["how"]


def test_pages_are_touched_until_time_or_memory_runs_out(monkeypatch):
    request = {"reserve_bytes": 0, "time_limit_s": 60}
    tensor = torch.zeros(2**20, dtype=torch.bfloat16)
    monkeypatch.setattr(capacity_child, "TOUCH_BYTES", 2**20)
    assert capacity_child.Host(request).touch(tensor) == (2**21, "all touched")
    assert capacity_child.Host({**request, "time_limit_s": -1}).touch(tensor) == (0, "time box")
    greedy = capacity_child.Host({**request, "reserve_bytes": 2**62})
    assert greedy.touch(tensor) == (0, "memory reserved for the host reached")


def test_memory_that_forgets_is_refused(monkeypatch):
    answer = {
        "found_bytes": 4,
        "touched_bytes": 4,
        "free_bytes": 8,
        "total_bytes": 8,
        "stopped": "all touched",
        "ends_ok": False,
    }
    monkeypatch.setattr(capacity, "ask", lambda request, timeout_s: dict(answer))
    with pytest.raises(Refused, match="did not hold"):
        capacity.largest(cpu())


def test_the_child_runs_with_the_same_interpreter_and_torch_s_own_allocator(monkeypatch, child):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    child(
        "import json, os, sys\n"
        "free = 'PYTORCH_CUDA_ALLOC_CONF' not in os.environ\n"
        "print(json.dumps({'result': {'executable': sys.executable, 'free': free}}))\n"
    )
    assert capacity.ask({}, 30) == {"executable": sys.executable, "free": True}
