"""What becomes of zeros, subnormals, infinities and NaN? Rows `special/{dtype}` of family 9, judged by SC-10."""

from escherlib.kernels import backends, operands
from escherlib.kernels.lazy import torch
from escherlib.kernels.single_product import given, single
from escherlib.method import method

M, N, K = 16, 16, 32  # whole tiles of every matrix unit
VALUES = (0.5, 1.0, 1.5, 2.0)  # exact in every format, and so are their sums in float32
LARGE = {"fp16": 2.0**10}  # squared and summed beyond the output's range; others take 2⁶⁴
LIFT = {"fp16": 2.0**10, "fp8": 16.0, "fp8_e5m2": 16.0}  # takes a subnormal input to a normal result; others 2¹⁰⁰


@method(version=1)
def special_values(device, *, dtype, backend=None):
    """Small products with special values at known places, against IEEE arithmetic worked out in float64.

    `cases`: one entry each with `case`, `expected`, `found`, `ok`. Subnormal numbers may be kept or flushed to zero:
    `found` says which, and both are `ok`. `omitted`: cases this format cannot have, with the reason.
    """
    product = single(device, dtype, backend)
    with backends.settings(device, product.fmt):
        cases = [_judged(product, name, *make(product.fmt)) for name, make in _propagation(product.fmt).items()]
        cases += [_subnormal(product, *case) for case in _subnormals(product.fmt)]
    if product.fmt.is_fp8:
        cases.append(_cast(product.fmt.storage))
    operands.release(device)
    shape = {"m": M, "n": N, "k": K}
    ok = all(case["ok"] for case in cases)
    return {**product.described(K), **shape, "cases": cases, "ok": ok, "omitted": _omitted(product.fmt)}


def plain():
    """(A [M, K], B [K, N]) of small numbers without zeros, the same ones every time."""
    source = torch.Generator().manual_seed(operands.SEED)
    values = torch.tensor(VALUES)
    signed = [values[torch.randint(4, s, generator=source)] for s in ((M, K), (K, N))]
    return [v * (2 * torch.randint(2, v.shape, generator=source) - 1) for v in signed]


def has_infinity(dtype):
    """Whether a torch dtype can hold an infinity: 8-bit e4m3 can't."""
    return bool(torch.isinf(torch.tensor(torch.inf).to(dtype).float()))


def ieee(a, b):
    """Exact A·B in float64, product by product: a library may take short cuts, this does not."""
    return (a.double().unsqueeze(2) * b.double().unsqueeze(0)).sum(1)


def _propagation(fmt):
    """{case: function of the format → (A, B)} of the cases this format can have."""
    found = {
        "zeros": zeros, "NaN in A": nan_in_a, "NaN in B": nan_in_b, "NaN × 0": nan_times_zero,
        "∞ in A": infinity, "∞ × 0": infinity_times_zero, "∞ − ∞": opposing_infinities,
        "overflow": overflow, "sum passes the range and returns": passing,
    }  # fmt: skip
    return {name: make for name, make in found.items() if name not in _omitted(fmt)}


def _omitted(fmt):
    found = {}
    if not has_infinity(fmt.storage):
        found |= dict.fromkeys(("∞ in A", "∞ × 0", "∞ − ∞"), f"{fmt.stored_as} has no infinity")
    if fmt.is_fp8:
        reason = f"no product of 8-bit numbers leaves the range of {fmt.given_as}"
        found |= dict.fromkeys(("overflow", "subnormal result"), reason)
    if fmt.name != "fp16":
        found["sum passes the range and returns"] = "the output has the range of the accumulator"
    return found


def zeros(fmt):
    a, b = plain()
    return torch.zeros_like(a), b


def nan_in_a(fmt):
    a, b = plain()
    a[4, 7] = torch.nan
    return a, b


def nan_in_b(fmt):
    a, b = plain()
    b[7, 5] = torch.nan
    return a, b


def nan_times_zero(fmt):
    a, b = nan_in_a(fmt)
    b[7, :] = 0.0
    return a, b


def infinity(fmt):
    a, b = plain()
    a[1, 2] = torch.inf
    return a, b


def infinity_times_zero(fmt):
    a, b = infinity(fmt)
    b[2, 3] = 0.0
    return a, b


def opposing_infinities(fmt):
    a, b = infinity(fmt)
    a[1, 5] = -torch.inf
    return a, b.abs()


def overflow(fmt):
    a, b = plain()
    a[0, :] = b[:, 0] = LARGE.get(fmt.name, 2.0**64)
    return a, b


def passing(fmt):
    """Row 0 × column 0 climbs to 8·2²⁰, falls back to 0 and ends at 1: right only in a wider accumulator."""
    a, b = plain()
    a[0, :], b[:, 0] = 0.0, 1.0
    a[0, :8], a[0, 8:16], a[0, 16], b[:16, 0] = 2.0**10, -(2.0**10), 1.0, 2.0**10
    return a, b


def _judged(product, name, a, b):
    """One case: the same kinds of values at the same places, finite ones within two roundings."""
    tensors = given(product, a, b)
    found = product.run(tensors).double().cpu()
    expected = ieee(tensors["a"].cpu().float(), tensors["b"].cpu().float()).to(product.fmt.output).double()
    near = torch.isfinite(expected) & ((found - expected).abs() <= 2 * product.fmt.unit_roundoff * expected.abs())
    same = near | (found == expected) | (torch.isnan(found) & torch.isnan(expected))
    told, ok = tally(found), bool(same.all())
    if not ok and told == tally(expected):
        told += f", {int((~same).sum())} of them with other values or places"
    return {"case": name, "expected": tally(expected), "found": told, "ok": ok}


def tally(values):
    """`224 finite, 16 NaN`; all zeros say so."""
    if bool((values == 0).all()):
        return "all zero"
    kinds = {"finite": torch.isfinite(values), "infinite": torch.isinf(values), "NaN": torch.isnan(values)}
    return ", ".join(f"{int(where.sum())} {kind}" for kind, where in kinds.items() if bool(where.any()))


def _subnormals(fmt):
    """(case, left value, right value, how often) of the products that touch numbers below the smallest normal one."""
    tiny = torch.finfo(fmt.storage).smallest_normal / 4
    found = [("subnormal input", tiny, LIFT.get(fmt.name, 2.0**100), K)]
    if not fmt.is_fp8:
        half = 2.0**-10 if fmt.name == "fp16" else 2.0**-64
        found.append(("subnormal result", half, half, 1))
    return found


def _subnormal(product, name, left, right, count):
    """Row 0 × column 0 as a sum of `count` equal products: kept exactly, flushed to zero, or neither."""
    a, b = torch.zeros(M, K), torch.zeros(K, N)
    a[0, :count], b[:count, 0] = left, right
    value, expected = float(product.run(given(product, a, b))[0, 0]), left * right * count
    found = "kept" if value == expected else "flushed to zero" if value == 0 else f"{value:g} instead of {expected:g}"
    return {"case": name, "expected": "kept or flushed", "found": found, "ok": found in ("kept", "flushed to zero")}


def _cast(dtype):
    """What torch makes of a number above the largest: nobody's mistake, but a quantiser must know it."""
    value = float((torch.tensor(2.0) * torch.finfo(dtype).max).to(dtype).float())
    found = "NaN" if value != value else "infinite" if value == float("inf") else "the largest number"
    return {"case": "cast from above the range", "expected": "told", "found": found, "ok": True}
