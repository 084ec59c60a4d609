"""FLOP and bytes of single operations: by hand, and against an operation counted element by element."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escherlib.accounting import ops

SIZE = st.integers(1, 10**5)
SMALL = st.integers(1, 6)


def test_values_by_hand():
    assert ops.gemm_flop(4680, 5120, 5120) == 245_366_784_000
    assert ops.gemm_bytes(4680, 5120, 5120, 2) == 148_275_200
    assert ops.attention_flop(4680, 18720, 5120) == 1_794_244_608_000
    assert ops.attention_bytes(4680, 512, 5120, 2) == 106_332_160
    per_element = {"copy": 4, "add": 6, "mul": 4, "axpy": 6, "sum": 2, "fill": 2, "strided": 4}
    assert {op: ops.stream_bytes(op, 10, 2) for op in ops.STREAM_ACCESSES} == {
        k: 10 * v for k, v in per_element.items()
    }
    assert per_element.keys() == ops.STREAM_NOTES.keys() == ops.STREAM_BUFFERS.keys()
    with pytest.raises(KeyError):
        ops.stream_bytes("triad", 10, 2)


@given(SMALL, SMALL, SMALL)
def test_gemm_flop_counts_every_multiply_and_add(m, n, k):
    counted = sum(2 for _ in range(m) for _ in range(n) for _ in range(k))
    assert ops.gemm_flop(m, n, k) == counted


@given(SMALL, SMALL, SMALL)
def test_attention_is_two_products_per_head(queries, keys, heads):
    head_dim = 4
    one_head = ops.gemm_flop(queries, keys, head_dim) + ops.gemm_flop(queries, head_dim, keys)
    assert ops.attention_flop(queries, keys, heads * head_dim) == heads * one_head


@given(SIZE, SIZE, SIZE, st.sampled_from([1, 2, 4, 8]))
def test_gemm_is_symmetric_additive_and_bounded(m, n, k, itemsize):
    assert ops.gemm_flop(m, n, k) == ops.gemm_flop(n, m, k) == ops.gemm_flop(k, n, m)
    assert ops.gemm_bytes(m, n, k, itemsize) == ops.gemm_bytes(n, m, k, itemsize)
    assert ops.gemm_flop(2 * m, n, k) == 2 * ops.gemm_flop(m, n, k)
    # splitting rows moves B twice: never fewer bytes than in one go
    assert 2 * ops.gemm_bytes(m, n, k, itemsize) - ops.gemm_bytes(2 * m, n, k, itemsize) == k * n * itemsize
    # intensity is at most that of the smallest side: FLOP/byte < 2·min(m, n, k)/itemsize
    assert ops.gemm_flop(m, n, k) / ops.gemm_bytes(m, n, k, itemsize) < 2 * min(m, n, k) / itemsize


@given(st.sampled_from(sorted(ops.STREAM_ACCESSES)), SIZE, SIZE, st.sampled_from([1, 2, 4]))
def test_streams_are_linear_and_touch_each_buffer(op, first, second, itemsize):
    whole = ops.stream_bytes(op, first + second, itemsize)
    assert whole == ops.stream_bytes(op, first, itemsize) + ops.stream_bytes(op, second, itemsize)
    assert ops.stream_bytes(op, first, 2 * itemsize) == 2 * ops.stream_bytes(op, first, itemsize)
    assert ops.stream_bytes(op, first, itemsize) >= ops.STREAM_BUFFERS[op] * first * itemsize
