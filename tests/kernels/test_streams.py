"""Rows of family 2: bytes by hand, rotation, refusals."""

import json
from dataclasses import replace

import pytest

from escherlib.errors import Refused, UserError
from escherlib.kernels import operands, stream_ops, streams
from tests.kernels.stand_in import QUICK, cpu

SIZE = 2**16
# bytes per call on buffers of 64 KiB: reads and writes, each element once; strided counts the kept half
BYTES = {"copy": 2, "add": 3, "mul": 2, "axpy": 3, "sum": 1, "fill": 1, "strided": 1}


@pytest.mark.parametrize("op", BYTES)
def test_a_row_counts_necessary_bytes_and_checks_before_and_after(op):
    found = streams.time_stream(cpu(), op=op, bytes_per_buffer=SIZE, protocol=QUICK)
    state = found["states"]["cold"]
    assert found["bytes"] == BYTES[op] * SIZE and found["bytes_how"]
    assert state["gb_s"] == pytest.approx(found["bytes"] / state["median_s"] / 1e9)
    assert found["correct"]["ok"] and found["correct_before"]["ok"] and found["dtype"] == "fp32"
    json.dumps(found, allow_nan=False)


def test_sets_rotate_until_they_outgrow_the_cache():
    found = streams.time_stream(cpu(), op="copy", bytes_per_buffer=SIZE, protocol=QUICK)
    assert found["rotation"]["sets"] == 4 * 2**20 // (2 * SIZE) and found["rotation"]["spans_cache"] is True
    large = streams.time_stream(cpu(), op="copy", bytes_per_buffer=2**22, protocol=QUICK)
    assert large["rotation"]["sets"] == 1 and large["rotation"]["spans_cache"] is True


def test_too_little_memory_for_that_is_labelled(monkeypatch):
    monkeypatch.setattr(operands, "free_bytes", lambda device: 4 * SIZE)
    found = streams.time_stream(cpu(), op="copy", bytes_per_buffer=SIZE, protocol=QUICK)
    assert (
        found["rotation"]["spans_cache"] is False and found["states"]["cold"]["label"] == "may fit in cache"
    )
    with pytest.raises(Refused, match="does not fit"):
        streams.time_stream(cpu(), op="add", bytes_per_buffer=2 * SIZE, protocol=QUICK)


def test_a_point_of_the_cache_curve_stays_in_its_working_set():
    found = streams.time_copy_in_cache(cpu(), bytes=SIZE, protocol=QUICK)
    assert found["working_set_bytes"] == SIZE == found["bytes"] and found["rotation"]["sets"] == 1
    assert list(found["states"]) == ["hot"] and found["states"]["hot"]["gb_s"] > 0


def test_a_loop_that_stops_writing_is_refused(monkeypatch):
    calls = [0]
    copy = stream_ops.OPS["copy"]

    def lazy(t):
        if calls[0] == 0:
            copy.run(t)
        calls[0] += 1

    monkeypatch.setitem(stream_ops.OPS, "copy", replace(copy, run=lazy))
    with pytest.raises(Refused, match="copy gave a wrong result after timing"):
        streams.time_stream(cpu(), op="copy", bytes_per_buffer=SIZE, protocol=QUICK)


def test_words_that_mean_nothing():
    with pytest.raises(UserError, match="triad"):
        streams.time_stream(cpu(), op="triad", bytes_per_buffer=SIZE)
    with pytest.raises(UserError, match="fp8"):
        streams.time_stream(cpu(), op="copy", bytes_per_buffer=SIZE, dtype="fp8")
    with pytest.raises(Refused, match="fp32"):
        streams.time_stream(cpu(), op="axpy", bytes_per_buffer=SIZE, dtype="bf16")
