"""FAKE family 9: every value is invented, so that tables and charts have something to show."""

FAMILY = "09_numerical_stability"
DEPTHS = (256, 1024, 4096, 16384)
# invented (scaled error at the first depth, factor a depth, bound, median ulp)
SHAPES = {
    "fp32": (0.2, 0.5, 1.0, 1.8), "tf32": (0.1, 0.6, 1.0, 3.5), "fp16": (0.97, 0.8, 2.0, 0.25), "bf16": (0.98, 0.97, 2.0, 0.25),
    "fp8": (0.6, 0.7, 1.0, 0.6), "fp8_e5m2": (0.62, 0.7, 1.0, 0.61),
}  # fmt: skip
EDGES = list(range(-6, 21))


def error_result(dtype, k, error, bound, median_ulp, **changes):
    """Result of one row `error/…`."""
    step = round(1 + max(0.0, median_ulp))
    counts = [0] * (len(EDGES) - 1)
    for i, count in enumerate((500, 900, 1800, 3600, 7200, 2000 * step, 900, 300, 90, 30, 9, 3, 1)):
        counts[i] = count
    sixteen = dtype in ("fp16", "bf16")
    wrong = {"dropped_block": 3e5 / k, "swapped_rows": 6e6 / k, "short_sums": 9e4 / k**0.9}
    entries = {
        name: {"error": value, "bound": bound, "max": value, "times_emulation": value / 0.9 if sixteen else None, "caught": True}
        for name, value in wrong.items()
    }
    result = {
        "states": {}, "dtype": dtype, "unit": "matrix" if dtype != "fp32" else "vector", "backend": "cublas:nn", "m": 256, "n": 256, "k": k,
        "correct": {"ok": error <= bound, "error": error, "bound": bound, "how": "invented"}, "max": error, "ok": error <= bound,
        "ulp": {"max": 400.0 * step, "quantiles": {"p50": median_ulp, "p90": 2.0 * median_ulp, "p99": 9.0 * median_ulp, "p999": 80.0},
                "histogram": {"edges_log2": EDGES, "counts": counts}, "nonfinite": 0},
        "bias": {"upward": {"mean": 0.001, "standard_error": 0.002},
                 "outward": {"mean": -0.02 if dtype == "tf32" else -0.001, "standard_error": 0.002}, "unit": 2.0**-8},
        "wrong_kernels": entries,
        "repeat": {"runs": 5, "differing": 0, "bitwise_equal": True, "elements": 65536,
                   "few_rows": {"rows": 16, "differing": 12 if dtype == "bf16" else 0, "bitwise_equal": dtype != "bf16", "elements": 4096}},
        "reduction_switches": {"allow_fp16_accumulation": False},
    }  # fmt: skip
    return result | ({"emulation_max": 0.9, "emulation_ok": True} if sixteen else {}) | changes


def sums_result(dtype, k):
    """Result of one row `sums/…`: as given, shuffled, in chunks."""
    ulp = {"p50": 0.25, "p90": 0.45, "p99": 0.5, "p999": 0.6, "max": 3.0}
    given = {"variant": "as given", "max": 0.9, "bound": 2.0, "within": True, "ulp": ulp, "changed": 0.0, "largest_change_ulp": 0.0,
             "switch": None}  # fmt: skip
    variants = [given, given | {"variant": "K shuffled", "changed": 0.01, "largest_change_ulp": 2.0}]
    variants.append(given | {"variant": "K in 8 chunks", "max": 8.5, "bound": 1.0, "within": False, "changed": 0.4})
    if dtype == "bf16":
        variants.append(given | {"variant": "allow_bf16_reduced_precision_reduction on", "changed": 0.125, "switch": "x"})
    return {"states": {}, "dtype": dtype, "output": "bfloat16", "k": k, "variants": variants, "switches_tried": []}


def special_result(dtype, broken=False):
    """Result of one row `special/…`."""
    cases = [
        {"case": "zeros", "expected": "all zero", "found": "all zero", "ok": True},
        {"case": "NaN in A", "expected": "240 finite, 16 NaN", "found": "256 finite" if broken else "240 finite, 16 NaN", "ok": not broken},
        {"case": "subnormal input", "expected": "kept or flushed", "found": "flushed to zero" if dtype == "bf16" else "kept", "ok": True},
    ]
    omitted = {"∞ in A": "float8_e4m3fn has no infinity"} if dtype == "fp8" else {}
    return {"states": {}, "dtype": dtype, "m": 16, "n": 16, "k": 32, "cases": cases, "ok": not broken, "omitted": omitted}


def fill_numerics(run, changes=None, broken=()):
    """Invented family 9; `changes` go into every row `error/…`, formats in `broken` lose a NaN."""
    dtypes = list(SHAPES) if run.kind == "gpu" else ["fp32", "bf16"]
    for dtype in dtypes:
        first, factor, bound, median_ulp = SHAPES[dtype]
        for index, k in enumerate(DEPTHS):
            result = error_result(dtype, k, first * factor**index, bound, median_ulp, **(changes or {}))
            run.add(FAMILY, f"error/{dtype}/{k}", result, dtype=dtype, k=k)
    if run.kind == "cpu":
        reason = "one call took 9 s in fp16 here, the time box is 1 s"
        run.add(FAMILY, "error/fp16/256", status="refused", reason=reason, dtype="fp16", k=256)
    for dtype in dtypes:
        run.add(FAMILY, f"sums/{dtype}", sums_result(dtype, DEPTHS[-1]), dtype=dtype, k=DEPTHS[-1])
    for dtype in dtypes:
        run.add(FAMILY, f"special/{dtype}", special_result(dtype, dtype in broken), dtype=dtype)
    run.manifest["parameters"][FAMILY] = {"dtypes": dtypes, "k_values": list(DEPTHS), "m": 256, "n": 256}
    run.finish(FAMILY, {"worst_scaled_error": (0.98, "")}, ["Invented: bf16 is nearest its bound."])
