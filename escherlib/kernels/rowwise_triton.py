"""Triton kernels of rowwise.py: one program a row, the whole row in registers, each tensor read and written once.

Rows are taken last to first: the product before wrote the last rows last, so they are still in the L2 cache, and the
product after begins with the first rows, which are then the ones in the cache.
"""

import triton
import triton.language as tl

from escherlib.kernels.rowwise import EPS

WARPS = 8


@triton.jit
def _norm_kernel(
    x_ptr, y_ptr, gate_ptr, shift_ptr, scale_ptr, later_ptr, sum_ptr, out_ptr,
    tokens, gate_every, mod_every, gate_stride, shift_stride, scale_stride, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ONE: tl.constexpr, RESIDUAL: tl.constexpr, LATER: tl.constexpr,
):  # fmt: skip
    row = tokens - 1 - tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    x = tl.load(x_ptr + row * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        y = tl.load(y_ptr + row * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_ptr + (row // gate_every) * gate_stride + columns, mask=inside, other=0.0)
        x += y * gate.to(tl.float32)
        kept = x
        if LATER:
            kept += tl.load(later_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(sum_ptr + row * WIDTH + columns, kept.to(sum_ptr.dtype.element_ty), mask=inside)
    mean = tl.sum(x, 0) / WIDTH
    centred = tl.where(inside, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, 0) / WIDTH + eps)
    of = row // mod_every
    scale = tl.load(scale_ptr + of * scale_stride + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(shift_ptr + of * shift_stride + columns, mask=inside, other=0.0).to(tl.float32)
    out = centred * rstd * (ONE + scale) + shift
    tl.store(out_ptr + row * WIDTH + columns, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _rms_kernel(x_ptr, weight_ptr, tokens, stride, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tokens - 1 - tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    at = x_ptr + row * stride + part * WIDTH + columns
    x = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + part * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + eps)
    tl.store(at, (x * rstd * weight).to(x_ptr.dtype.element_ty), mask=inside)


def norm(x, y, gate, shift, scale, one, later, sum_out, out):
    """LayerNorm with scale and shift, after a gated residual where `y` is given. Shapes as in rowwise.py."""
    tokens, width = x.shape
    gate = shift if gate is None else gate
    _norm_kernel[(tokens,)](
        x, x if y is None else y, gate, shift, scale, x if later is None else later,
        x if sum_out is None else sum_out, out, tokens, tokens // gate.shape[0], tokens // shift.shape[0],
        gate.stride(0), shift.stride(0), scale.stride(0), EPS,
        WIDTH=width, BLOCK=triton.next_power_of_2(width), ONE=one, RESIDUAL=y is not None,
        LATER=later is not None, num_warps=WARPS,
    )  # fmt: skip
    return out


def rms_norm_(x, weight):
    """RMSNorm in place: x [tokens, parts·width], weight [parts, width]."""
    parts, width = weight.shape
    _rms_kernel[(x.shape[0], parts)](
        x, weight, x.shape[0], x.stride(0), EPS, WIDTH=width, BLOCK=triton.next_power_of_2(width), num_warps=WARPS
    )  # fmt: skip
    return x
