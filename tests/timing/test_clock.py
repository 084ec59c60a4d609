"""The CPU clock on this host, and what a flush and a rotation must span."""

from types import SimpleNamespace

from escherlib import timing
from escherlib.timing import flush


def test_the_cpu_clock_times_work_that_was_done():
    clock = timing.clock_for(SimpleNamespace(kind="cpu"))
    first = clock.record()
    clock.sleep(0.01)
    assert 10_000_000 <= clock.elapsed_ns(first, clock.record()) < 1_000_000_000


def test_a_real_row_on_this_cpu_has_every_field():
    clock = timing.clock_for(SimpleNamespace(kind="cpu"))
    short = {"condition_s": 0.01, "window_s": 0.02}
    state = timing.sustained(lambda i: sum(range(2000)), clock, protocol=short)
    assert state["n"] >= 5 and state["protocol"]["window_s"] == 0.02 and state["timed_as"] == "host"
    assert state["windows_ns"][0][0] < state["windows_ns"][0][1]


def test_rotation_by_hand():
    assert flush.rotations(64 * 2**20, 50 * 2**20) == 4  # 200 MiB in sets of 64
    assert flush.rotations(64 * 2**20, 50 * 2**20, room_bytes=130 * 2**20) == 2
    assert flush.rotations(2**33, 50 * 2**20) == 1
