"""Does a matrix product stay within its error bound? Rows `correct/{dtype}/{k}`, judged by SC-6."""

import math

from escherlib.accounting.ops import gemm_flop
from escherlib.kernels import backends, correct, operands, products
from escherlib.kernels.formats import (
    format_of,
    is_emulated,
    on_matrix_unit,
    require_supported,
    switches,
)
from escherlib.kernels.lazy import torch
from escherlib.method import method

EMULATION_FACTOR = 4.0
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
BIN_EDGES_LOG10 = [edge / 4 for edge in range(-24, 9)]  # 10⁻⁶ … 100 in quarter decades


@method(version=1)
def check(device, *, dtype, k, m=512, n=512, backend=None, unit=None, k_block=None, fill="normal"):
    """Error distribution of C[M, N] = A·B against float64 on the same rounded inputs.

    error = |C − ref| / (u_out·|ref| + γ_K·Σ|a||b|), with u_out the unit roundoff of the output and γ_K as
    `accounting.error_bounds.gamma` derives it: K/k_block·2⁻²³ on matrix units (`unit="matrix"`), √K·2⁻²⁴ on vector units.
    `unit` and `k_block` (products one instruction sums) default to what the device and format use. Bound 1,
    and 2 where output rounding dominates; for bf16 and fp16 output the largest error is at most 4 × that of a
    product that accumulates in float32 and rounds once. A result outside its bound is a row with `ok` false,
    not an error.
    """
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    backend = backend or backends.available(device, fmt)[0]
    matrix_unit = on_matrix_unit(device, fmt) if unit is None else unit == "matrix"
    gemm = products.Gemm(m, n, k).validated()
    library, layout = backends.require(device, fmt, backend)
    with backends.settings(device, fmt):
        sets, _ = products.make_sets(device, gemm, fmt, layout, fill, most=1)
        backends.selector(library)()
        products.kernel(gemm, fmt, device)(sets[0])
    errors = _errors(device, fmt, sets[0], correct.gamma_for(fmt, k, matrix_unit, k_block))
    del sets
    operands.release(device)
    return {
        "states": {},
        **gemm.shape(),
        "flop": gemm_flop(m, n, k),
        "bytes": None,
        "bytes_how": "not timed",
        "dtype": fmt.name,
        "emulated": is_emulated(device, fmt),
        "fill": fill,
        "backend": backend,
        "unit": "matrix" if matrix_unit else "vector",
        "k_block": (k_block or correct.default_k_block(fmt)) if matrix_unit else None,
        "gamma": correct.gamma_for(fmt, k, matrix_unit, k_block),
        "unit_roundoff": fmt.unit_roundoff,
        "reduction_switches": switches(device),
        **errors,
    }


def _errors(device, fmt, tensors, gamma_k):
    """Distribution, histogram, verdict and the emulation's largest error."""
    return judged(device, fmt, tensors, correct.reference(tensors["a"], tensors["b"]), gamma_k)


def judged(device, fmt, tensors, exact, gamma_k):
    """The record's account of a result `tensors["c"]` against `exact` (float64 A·B and |A|·|B|).

    Verdict, distribution of the scaled error, and for 16-bit results the emulation's largest error.
    """
    ref, sizes = exact
    accumulation, rounding = gamma_k * sizes, fmt.unit_roundoff * ref.abs()
    error, limit = correct.scaled_error(tensors["c"], ref, accumulation, rounding)
    how = "all elements against float64 on the same rounded inputs"
    found = {"correct": correct.verdict(error, limit, how), **distribution(error)}
    if fmt.output in (torch.bfloat16, torch.float16) and not fmt.is_fp8:
        emulated, _ = correct.scaled_error(emulate(device, fmt, tensors), ref, accumulation, rounding)
        largest = float(emulated.max())
        found["emulation_max"] = largest
        found["emulation_ok"] = bool(error.max() <= EMULATION_FACTOR * largest)
    found["ok"] = found["correct"]["ok"] and found.get("emulation_ok", True)
    found["correct"]["ok"] = found["ok"]
    return found


def emulate(device, fmt, tensors):
    """The product of the same rounded inputs, accumulated in float32 and rounded to the output once."""
    fp32 = format_of(device, "fp32")
    with backends.settings(device, fp32):
        return (tensors["a"].float() @ tensors["b"].float()).to(fmt.output)


def distribution(error):
    """Largest value, quantiles and histogram of scaled errors; null where a value is not finite."""
    ordered = error.flatten().sort().values
    last = ordered.numel() - 1
    logs = ordered.clamp(10.0 ** BIN_EDGES_LOG10[0], 10.0 ** BIN_EDGES_LOG10[-1]).log10()
    counts = torch.histc(
        logs.float().cpu(), len(BIN_EDGES_LOG10) - 1, BIN_EDGES_LOG10[0], BIN_EDGES_LOG10[-1]
    )
    histogram = {"edges_log10": BIN_EDGES_LOG10, "counts": [int(c) for c in counts]}
    return {"max": _finite(ordered[-1]), "quantiles": quantiles(ordered), "histogram": histogram, "elements": last + 1}


def quantiles(ordered):
    """{name: value} of values in ascending order, null where a value is not finite; none of no values."""
    last = ordered.numel() - 1
    return {name: _finite(ordered[math.ceil(q * last)]) for name, q in QUANTILES.items()} if last >= 0 else {}


def _finite(value):
    return float(value) if math.isfinite(value) else None
