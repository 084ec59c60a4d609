"""How far is a matrix product from exact, and does it repeat? Rows `error/{dtype}/{k}`, judged by SC-6 and SC-10."""

import time

from escherlib.accounting.error_bounds import derivation
from escherlib.accounting.ops import gemm_flop
from escherlib.errors import Refused
from escherlib.kernels import backends, gemm_check, operands, wrong_products
from escherlib.kernels.lazy import torch
from escherlib.kernels.single_product import exact, normal, single
from escherlib.method import method

ULP_EDGES_LOG2 = list(range(-6, 21))  # bins of an octave; the outer ones also hold what lies beyond
FEW_ROWS = 16  # a batch this small may take another kernel


@method(version=1)
def error_distribution(device, *, dtype, k, m=256, n=256, repeats=4, backend=None, budget_s=5.0):
    """Errors of C[M, N] = A·B against float64 on the same rounded normal inputs.

    Result beside what `gemm_check.check` says (`correct`, `max`, `quantiles`, `histogram`, `emulation_max`, `ok`):
    `ulp`, errors in units of the output's last place; `bias`, their mean with its standard error; `wrong_kernels`,
    the same bound against products that are wrong on purpose; `repeat`, whether further runs gave the same bits;
    `bound_how`. Refused where the format or the backend is lacking, or one call of a CPU takes over `budget_s`.
    """
    product = single(device, dtype, backend)
    with backends.settings(device, product.fmt):
        result = _measured(product, m, n, k, repeats, budget_s)
    operands.release(device)
    return {
        **product.described(k), "m": m, "n": n, "k": k, "flop": gemm_flop(m, n, k), "bytes": None,
        "bytes_how": "not timed", "fill": "normal", "bound_how": derivation(product.fmt.name, product.matrix_unit), **result,
    }  # fmt: skip


def _measured(product, m, n, k, repeats, budget_s):
    """Everything that needs the operands; they are gone when it returns."""
    device, fmt, gamma_k = product.device, product.fmt, product.gamma(k)
    tensors = normal(product, m, n, k)
    result = run_in_time(product, tensors, budget_s)
    truth = exact(tensors)
    found = gemm_check.judged(device, fmt, {**tensors, "c": result}, truth, gamma_k)
    return {
        **found,
        "ulp": in_ulp(result, truth[0], fmt.output),
        "bias": bias(result, truth[0], fmt.output),
        "wrong_kernels": wrong_products.judged(product, tensors, result, truth, gamma_k, found.get("emulation_max")),
        "repeat": repeated(product, tensors, result, repeats),
    }


def run_in_time(product, tensors, budget_s):
    """The product; Refused where a CPU host, which may emulate the format, takes longer than the time box."""
    begun = time.perf_counter()
    result = product.run(tensors)
    took_s = time.perf_counter() - begun
    if product.device.kind == "cpu" and took_s > budget_s:
        raise Refused(f"one call took {took_s:.3g} s in {product.fmt.name} here, the time box is {budget_s:g} s")
    return result


def spacing(values, dtype):
    """Distance of neighbouring numbers of `dtype` around each value: its unit in the last place."""
    info = torch.finfo(dtype)
    sizes = values.double().abs().clamp_min(info.smallest_normal)
    return sizes / torch.frexp(sizes).mantissa * (info.eps / 2)  # a power of two: the quotient is exact


def in_ulp(result, ref, dtype):
    """|C − ref| in ulp of the output at ref: largest, quantiles, histogram over octaves; finite results only."""
    error = ((result.double() - ref) / spacing(ref, dtype)).abs().flatten()
    finite = error[torch.isfinite(error)].sort().values
    counts = octaves(finite)
    return {
        "max": float(finite[-1]) if finite.numel() else None,
        "quantiles": gemm_check.quantiles(finite),
        "histogram": {"edges_log2": ULP_EDGES_LOG2, "counts": counts},
        "nonfinite": error.numel() - finite.numel(),
    }


def octaves(values):
    """How many values lie in each bin of ULP_EDGES_LOG2."""
    low, last = ULP_EDGES_LOG2[0], len(ULP_EDGES_LOG2) - 2
    bins = (torch.frexp(values.clamp_min(2.0**low)).exponent - 1 - low).clamp(0, last).long()
    return torch.bincount(bins.cpu(), minlength=last + 1).tolist()


def bias(result, ref, dtype):
    """Mean signed error with its standard error, in ulp of a result of typical (root mean square) size.

    An ulp of each result's own size would leave a mean without a variance: ref may be as near 0 as it likes.
    `upward` is C − ref as it is; `outward` counts away from zero, so that truncation shows as a negative mean.
    """
    unit = float(spacing(ref.square().mean().sqrt().reshape(1), dtype))
    error = (result.double() - ref) / unit
    return {"upward": _mean(error), "outward": _mean(error * ref.sign()), "unit": unit}


def _mean(values):
    values = values.flatten()
    values = values[torch.isfinite(values)]
    if values.numel() < 2:
        return {"mean": None, "standard_error": None}
    return {"mean": float(values.mean()), "standard_error": float(values.std() / values.numel() ** 0.5)}


def bits(tensor):
    """The same memory as integers, so that NaN equals itself and -0 differs from 0."""
    return tensor.view({2: torch.int16, 4: torch.int32}[tensor.dtype.itemsize])


def differing(first, second):
    """How many elements have other bits."""
    return int((bits(first) != bits(second)).sum())


def repeated(product, tensors, result, repeats):
    """Bits of further runs on the same operands, each after other work; and of a few rows computed alone."""
    counts = []
    for index in range(repeats):
        _other_work(product, index)
        counts.append(differing(product.run(tensors), result))
    rows = min(FEW_ROWS, result.shape[0])
    alone = differing(product.run({**tensors, "a": tensors["a"][:rows]}), result[:rows])
    return {
        "runs": repeats + 1, "differing": max(counts, default=0), "bitwise_equal": not any(counts), "elements": result.numel(),
        "few_rows": {"rows": rows, "differing": alone, "bitwise_equal": not alone, "elements": result[:rows].numel()},
    }  # fmt: skip


def _other_work(product, index):
    """A product of another shape: workspaces and caches no longer hold what the last run left."""
    product.run(normal(product, 64, 96 + 32 * (index % 4), 128))
