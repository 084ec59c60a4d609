"""When is an attention right? A scaled error against float64 on the same rounded inputs, on sampled queries.

With s_j = q·k_j/√D, p_j = exp(s_j − max s)/l, l = Σ exp(s_j − max s), o = Σ p_j·v_j, an honest kernel loses:

1. Rounding of the result: u·|o| (u: half the spacing of numbers near 1 in the stored format).
2. Rounding of P to the stored format ahead of the product with V, each by at most u·p_j, or by half the
   smallest subnormal number where p_j is that small. Rounding to nearest errs as often up as down, and the
   errors of different j are independent, so by Hoeffding's inequality their sum stays below
   λ·√(Σ (u·p_j + tiny)²·v_j²) except with probability 2·exp(−λ²/2); SIGMAS makes that less than one element
   in 10¹⁰. (l is summed before the rounding.)
3. All that is done in float32, each at most its share of Σ p_j·|v_j|, in the numerator and again in l, so
   twice: a score errs by γ_D·|q|·|k_j|/√D ≤ γ_D·‖q‖·max‖k‖/√D, which is a relative error of exp(s);
   exponentials by EXP_ERROR; sums over the keys by γ_N (`error_bounds.gamma`), and the rescaling of the sums at
   every block of keys by as much again.

The scaled error of an element is |out − o| over the sum of the three; its bound is 1. It does not grow with
the number of keys as a worst case for P would, so a kernel that leaves out a block of keys stands out.
"""

import math

from escherlib.accounting import error_bounds
from escherlib.kernels import correct, operands
from escherlib.kernels.lazy import torch

SIGMAS = 7.0
# fast exponentials err by some 20 units in the last place; polynomials of degree 3, enough for a 16-bit P,
# by 9·10⁻⁵
EXP_ERROR_SHORT, EXP_ERROR = 2.0**-13, 2.0**-19
MATRIX_DEPTH = 8  # products that a matrix instruction sums at once, at the least
CHECKED_ROWS = {"cuda": 64, "cpu": 16}


def check_output(out, q, k, v):
    """The record's `correct` entry of an attention's output; all are (batch, tokens, heads, head_dim).

    `ok` is false where a sampled element is over its bound, any at all is not finite, or the shape is wrong.
    """
    return verify(out, q, expect(q, k, v))


def expect(q, k, v):
    """(rows, reference, allowance) for `verify`: sampled queries of every head in float64.

    Both are [batch, rows, heads, head_dim].
    """
    rows = sampled(q.shape[1], CHECKED_ROWS.get(q.device.type, 16), q.device)
    shape = (q.shape[0], len(rows), *q.shape[2:])
    reference, allowance = (torch.empty(shape, dtype=torch.float64, device=q.device) for _ in range(2))
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):  # one head at a time: scores are rows × keys
            found = _head(q[b, rows, h], k[b, :, h], v[b, :, h])
            reference[b, :, h], allowance[b, :, h] = found
    return rows, reference, allowance


def _head(q, k, v):
    """(reference, allowance) of one head: q [rows, D], k, v [keys, D]."""
    u, least = unit_of(q.dtype)
    keys, width = k.shape
    exact_q, exact_k, exact_v = q.double(), k.double(), v.double()
    p = torch.softmax(exact_q @ exact_k.T / math.sqrt(width), dim=1)
    o = p @ exact_v
    rounding_p = SIGMAS * ((u * p + least).square() @ exact_v.square()).sqrt()
    largest = exact_q.norm(dim=1, keepdim=True) * exact_k.norm(dim=1).max() / math.sqrt(width)
    scores = gamma(width, q) * largest
    exponential = EXP_ERROR_SHORT if q.dtype.itemsize == 2 else EXP_ERROR
    float32 = 2 * (scores + exponential + 2 * gamma(keys, q))
    return o, u * o.abs() + rounding_p + float32 * (p @ exact_v.abs())


def unit_of(dtype):
    """(half the spacing of numbers near 1, half the smallest number above 0) of a format."""
    info = torch.finfo(dtype)
    return info.eps / 2, info.tiny * info.eps / 2


def gamma(k, like):
    """γ of a sum of K products in float32 where a tensor lives: GPUs truncate in matrix units, CPUs round."""
    return error_bounds.gamma(k, like.device.type != "cpu", MATRIX_DEPTH)


def sampled(count, most, device, seed=operands.SEED):
    """Indices of queries to check: the first, the last (tiles end there) and others at random, in order."""
    source = torch.Generator().manual_seed(seed)
    picked = {0, count - 1, *torch.randperm(count, generator=source)[: max(0, most - 2)].tolist()}
    return torch.tensor(sorted(picked), device=device)


def verify(out, q, expected):
    """`correct` entry of an output against what `expect` gave."""
    rows, reference, allowance = expected
    how = (
        f"{len(rows)} queries (first, last, random) of every head against float64 on the same rounded "
        "inputs, scaled by what rounding of P and O and sums in float32 may lose; the whole output finite"
    )
    if out.shape != q.shape or out.dtype != q.dtype:
        shown = f"{out.dtype} of {tuple(out.shape)} for {q.dtype} of {tuple(q.shape)}"
        return {"ok": False, "error": None, "bound": 1.0, "how": f"{how}; the result is {shown}"}
    result = out[:, rows].double()
    error = (result - reference).abs() / allowance.clamp_min(torch.finfo(torch.float64).tiny)
    error = torch.where(torch.isfinite(error), error, torch.full_like(error, math.inf))
    found = correct.verdict(error, torch.ones_like(error), how)
    if found["ok"] and not all_finite(out):
        return {**found, "ok": False, "error": None}
    return found


def all_finite(out):
    """Whether every element is finite; the extremes tell, without a mask as large as the output."""
    return bool(torch.isfinite(torch.stack(out.aminmax())).all())
