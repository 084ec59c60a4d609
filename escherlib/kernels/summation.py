"""Does it matter in which order, and in what width, K products are summed? Rows `sums/{dtype}` of family 9."""

from contextlib import contextmanager

from escherlib.kernels import backends, correct, gemm_check, operands
from escherlib.kernels.lazy import torch
from escherlib.kernels.numerics import differing, in_ulp, run_in_time, spacing
from escherlib.kernels.single_product import along_k, exact, normal, scale_of, single
from escherlib.method import method

LEAST_CHUNK = 16  # products a chunk of K must hold: what an 8-bit matrix instruction takes at once
SWITCHES = {  # torch's own, by the format they act on
    "fp16": ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation"),
    "bf16": ("allow_bf16_reduced_precision_reduction",),
}


@method(version=1)
def accumulation(device, *, dtype, k, m=256, n=256, splits=(2, 8, 32), backend=None, budget_s=5.0):
    """The same product summed in other ways, each against float64.

    `variants`: one entry a way with `variant`, `max` (scaled error), `bound`, `ulp` (p50, p99, max), `changed` (share of
    elements with other bits than the product as given) and `largest_change_ulp`. Ways: K shuffled; K in `splits`
    chunks whose partial results are rounded to the output format before they are added; one float32 sum; and each of
    torch's switches for reduced precision, off and on, where this torch and device have them (`switches_tried`).
    """
    product = single(device, dtype, backend)
    with backends.settings(device, product.fmt):
        variants = _variants(product, m, n, k, splits, budget_s)
    operands.release(device)
    tried = sorted({v["switch"] for v in variants if v.get("switch")})
    return {**product.described(k), "m": m, "n": n, "k": k, "fill": "normal", "variants": variants, "switches_tried": tried}


def _variants(product, m, n, k, splits, budget_s):
    tensors = normal(product, m, n, k)
    given = run_in_time(product, tensors, budget_s)
    truth = exact(tensors)
    source = torch.Generator().manual_seed(operands.SEED)
    order = torch.randperm(k, generator=source).to(tensors["a"].device)
    ways = [("as given", given, None), ("K shuffled", product.run(along_k(product, tensors, order)), None)]
    for parts in splits:
        if k // parts >= LEAST_CHUNK and k % parts == 0:
            ways.append((f"K in {parts} chunks", in_chunks(product, tensors, parts), None))
    ways.append(("one float32 sum", _float32_sum(product, tensors), None))
    for name in SWITCHES.get(product.fmt.name, ()) if product.device.kind == "gpu" else ():
        for value in (False, True):
            with switched(name, value) as there:
                if there:
                    ways.append((f"{name} {'on' if value else 'off'}", product.run(tensors), name))
    return [_compared(product, k, name, result, given, truth) | {"switch": switch} for name, result, switch in ways]


def in_chunks(product, tensors, parts):
    """K in equal chunks: each a product of its own, rounded to the output format; added in float32, rounded once more.

    What a split-K kernel does that passes partial results through memory in the output's format.
    """
    index = torch.arange(tensors["a"].shape[1], device=tensors["a"].device)
    total = 0
    for chunk in index.chunk(parts):
        total = total + product.run(along_k(product, tensors, chunk)).float()
    return total.to(product.fmt.output)


def _float32_sum(product, tensors):
    scaled = gemm_check.emulate(product.device, product.fmt, tensors)
    if "scale_a" not in tensors:
        return scaled
    total = tensors["a"].float() @ tensors["b"].float()
    return (total * scale_of(tensors)).to(product.fmt.output)


@contextmanager
def switched(name, value):
    """One of torch's matmul switches set for a while; yields False where this torch has no such switch."""
    matmul = torch.backends.cuda.matmul
    try:
        before = getattr(matmul, name)
        setattr(matmul, name, value)
    except (AttributeError, RuntimeError):
        yield False
        return
    try:
        yield True
    finally:
        setattr(matmul, name, before)


def _compared(product, k, name, result, given, truth):
    """One way of summing against the truth and against the product as given."""
    ref, sizes = truth
    rounding = product.fmt.unit_roundoff * ref.abs()
    error, limit = correct.scaled_error(result, ref, product.gamma(k) * sizes, rounding)
    verdict, ulp = correct.verdict(error, limit, name), in_ulp(result, ref, product.fmt.output)
    change = (result.double() - given.double()).abs() / spacing(ref, product.fmt.output)
    return {
        "variant": name, "max": gemm_check.distribution(error)["max"], "bound": verdict["bound"], "within": verdict["ok"],
        "ulp": {**ulp["quantiles"], "max": ulp["max"]}, "changed": differing(result, given) / given.numel(),
        "largest_change_ulp": float(change.max()) if bool(torch.isfinite(change).all()) else None,
    }  # fmt: skip
