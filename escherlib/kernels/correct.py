"""When is a matrix product right? A scaled error against float64 on the same rounded inputs.

The scaled error of an element is |C − ref| / (u_out·|ref| + γ·Σ|a||b|): the first term is the rounding of the
output, the second what the accumulation may lose. 1 is the bound; where output rounding dominates, 2, since a
result that lies between two representable numbers may be rounded twice.
"""

import math

from escherlib.kernels.lazy import torch

BLOCK_ELEMENTS = 2**26  # columns of the reference are taken in blocks of at most this many elements


def gamma(k, matrix_unit, k_block, sum_unit=2.0**-23):
    """γ_K: the share of Σ|a||b| that summing K products may lose.

    A matrix unit adds `k_block` products to its accumulator at a time and truncates, losing less than one
    unit in the last place of float32 (`sum_unit`, 2⁻²³ of the sum) at each of the K/k_block steps; truncation
    has one sign, so losses add up. A vector unit rounds to nearest at each of K steps (2⁻²⁴); such errors
    have random signs and grow as √K.
    """
    if matrix_unit:
        return math.ceil(k / k_block) * sum_unit
    return math.sqrt(k) * 2.0**-24


def gamma_fp8(k, k_block):
    """γ_K of 8-bit floats: the unit may keep only 13 fraction bits of a sum, for the 128 products after which
    libraries carry it over into float32 (DeepSeek-V3 technical report, 3.3.2: "about 14 bits" on Hopper)."""
    carried = min(k, 128)
    return gamma(carried, True, k_block, sum_unit=2.0**-13) + gamma(k, True, carried)


def default_k_block(fmt):
    """Products a matrix instruction sums at once: 16 bytes of K, the shallowest of the supported matrix
    units.

    Deeper instructions (32 bytes on recent chips) lose less, so this choice never makes the bound too tight.
    """
    return 16 // fmt.storage.itemsize


def gamma_for(fmt, k, matrix_unit, k_block=None):
    """γ_K of a number format; `k_block` None takes `default_k_block`."""
    k_block = k_block or default_k_block(fmt)
    return gamma_fp8(k, k_block) if fmt.name == "fp8" else gamma(k, matrix_unit, k_block)


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
