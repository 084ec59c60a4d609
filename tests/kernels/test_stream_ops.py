"""Streaming operations: what they move, and that each of their checks catches what it should."""

import pytest
import torch

from escherlib.accounting.ops import STREAM_ACCESSES, STREAM_BUFFERS
from escherlib.errors import Refused
from escherlib.kernels import stream_ops
from escherlib.kernels.formats import FORMATS
from tests.kernels.stand_in import cpu

SIZE = 2**16
FP32 = FORMATS["fp32"]


def made(op, device=None):
    """Sets of one operation, run three times on the first of them."""
    sets, _ = stream_ops.make_sets(device or cpu(), op, SIZE, FP32)
    for _ in range(3):
        stream_ops.OPS[op].run(sets[0])
    return sets


def test_operations_are_those_that_are_accounted():
    assert set(stream_ops.OPS) == set(STREAM_ACCESSES)
    assert {op: len(entry.buffers) for op, entry in stream_ops.OPS.items()} == STREAM_BUFFERS
    assert [entry.id for entry in stream_ops.OPS.values()] == [f"BW-{i}" for i in range(1, 8)]


@pytest.mark.parametrize("op", stream_ops.OPS)
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_right_results_pass_sampled_and_whole(op, kind):
    found = stream_ops.check(op, made(op)[0], cpu(kind=kind), "after")
    assert found["ok"] and found["error"] <= found["bound"]


@pytest.mark.parametrize("op", stream_ops.OPS)
def test_buffers_nothing_wrote_are_refused(op):
    sets = made(op)
    stream_ops.reset(op, sets)
    with pytest.raises(Refused, match="wrong result after timing"):
        stream_ops.check(op, sets[0], cpu(), "after")


@pytest.mark.parametrize("op", [op for op in stream_ops.OPS if op != "sum"])
def test_one_wrong_element_in_the_last_place_is_found(op):
    tensors = made(op)[0]
    tensors["c"][-1] += 0.01
    with pytest.raises(Refused, match=op):
        stream_ops.check(op, tensors, cpu(), "after")


def test_a_sum_that_left_out_a_thousandth_is_found():
    tensors = made("sum")[0]
    tensors["s"].copy_(tensors["a"][: -SIZE // 4 // 1000].sum())
    with pytest.raises(Refused, match="sum"):
        stream_ops.check("sum", tensors, cpu(), "after")


def test_axpy_tells_how_often_every_element_was_updated():
    assert "updated 3 times" in stream_ops.check("axpy", made("axpy")[0], cpu(), "after")["how"]
    tensors = made("axpy")[0]
    half = tensors["c"].numel() // 2
    tensors["c"][half:].add_(tensors["a"][half:], alpha=stream_ops.STEP)
    with pytest.raises(Refused, match="axpy"):
        stream_ops.check("axpy", tensors, cpu(), "after")


def test_values_do_not_repeat_at_powers_of_two():
    block = torch.arange(13.0)
    out = stream_ops.repeat(block, 40)
    assert out[:13].tolist() == block.tolist() and out[13:26].tolist() == block.tolist() and out[39] == 0.0


def test_samples_hold_both_ends():
    parts = stream_ops.pieces(10_000_000, cpu())
    assert (parts[0].start, parts[-1].stop, len(parts)) == (0, 10_000_000, stream_ops.CPU_SAMPLES)
    whole = stream_ops.pieces(2**25 + 1, cpu(kind="gpu"))
    assert [(p.start, p.stop) for p in whole] == [(0, 2**24), (2**24, 2**25), (2**25, 2**25 + 1)]
