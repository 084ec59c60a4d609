"""When is a matrix product right? A scaled error against float64 on the same rounded inputs.

The scaled error of an element is |C − ref| / (u_out·|ref| + γ·Σ|a||b|): the first term is the rounding of the
output, the second what the accumulation may lose. 1 is the bound; where output rounding dominates, 2, since a
result that lies between two representable numbers may be rounded twice.
"""

import math

from escherlib.accounting import error_bounds
from escherlib.kernels.lazy import torch

BLOCK_ELEMENTS = 2**26  # columns of the reference are taken in blocks of at most this many elements


def default_k_block(fmt):
    """Products a matrix instruction of this format sums at once (see accounting.error_bounds)."""
    return error_bounds.default_k_block(fmt.name)


def gamma_for(fmt, k, matrix_unit, k_block=None):
    """γ_K of a number format; `k_block` None takes `default_k_block`."""
    return error_bounds.gamma_of(fmt.name, k, matrix_unit, k_block)


def reference(a, b):
    """float64 (A·B, |A|·|B|) of A [M, K] and B [K, N] as given; both [M, N]."""
    exact_a = a.double()
    width = max(1, BLOCK_ELEMENTS // b.shape[0])
    products, sizes = [], []
    for start in range(0, b.shape[1], width):
        block = b[:, start : start + width].double()
        products.append(exact_a @ block)
        sizes.append(exact_a.abs() @ block.abs())
    return torch.cat(products, dim=1), torch.cat(sizes, dim=1)


def scaled_error(result, ref, accumulation, rounding):
    """(error, limit) per element; `accumulation` and `rounding` are the two absolute allowances, same shape
    as ref.

    A non-finite result has an infinite error.
    """
    allowed = (accumulation + rounding).clamp_min(torch.finfo(torch.float64).tiny)
    error = (result.double() - ref).abs() / allowed
    error = torch.where(torch.isfinite(error), error, torch.full_like(error, math.inf))
    limit = torch.where(rounding > accumulation, 2.0, 1.0).to(error.dtype)
    return error, limit


def verdict(error, limit, how):
    """The record's `correct` entry from scaled errors and their limits. Strict JSON: an infinite error reads
    null.
    """
    worst = int((error / limit).argmax())
    value, bound = float(error.flatten()[worst]), float(limit.flatten()[worst])
    return {
        "ok": bool((error <= limit).all()),
        "error": value if math.isfinite(value) else None,
        "bound": bound,
        "how": how,
    }
