"""Tables of family 9: errors against bounds, wrong products, ways of summing, special values, the workload's depths."""

from escherlib.report.display import not_measured
from escherlib.report.facts import family_reason, reason_of
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import remark

FAMILY = "09_numerical_stability"
YES_NO = {True: "yes", False: "no", None: ""}


def short(value):
    """Three digits, powers of ten where a number is very large or very small."""
    return "–" if value is None else f"{value:.3g}"


def signed(value):
    """`+0.0012`"""
    return "–" if value is None else f"{value:+.2g}"


def _scoring():
    from escherlib.parameters import load_scoring

    return load_scoring()


def _box(results, caption, prefix):
    rows = results.rows(FAMILY, prefix)
    return not_measured(caption, reason_of(rows) if rows else family_reason(results, FAMILY))


def error_bounds(results):
    """One row a (dtype, K): scaled error, bound, ulp quantiles, bias, whether results repeat, verdict."""
    records = results.rows(FAMILY, "error/")
    if not records:
        return _box(results, "Errors against their bounds", "error/")
    rows = tuple(_error_row(record) for record in records)
    columns = (
        Column("dtype", "dtype", words, text=True),
        Column("k", "K"),
        Column("unit", "unit", words, text=True),
        Column("backend", "backend", words, text=True),
        Column("error", "scaled error", short),
        Column("bound", "bound"),
        Column("times_emulation", "× emulation", short),
        Column("p50_ulp", "p50", short, group="error, ulp"),
        Column("p99_ulp", "p99", short, group="error, ulp"),
        Column("max_ulp", "max", short, group="error, ulp"),
        Column("bias_ulp", "mean", signed, group="outward bias, ulp"),
        Column("bias_se_ulp", "±", short, group="outward bias, ulp"),
        Column("repeats", "repeats", words, text=True),
        Column("few_rows", "in any batch", words, text=True),
        Column("verdict", "verdict", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    note = (
        "Largest scaled error of all elements against float64 on the same rounded inputs. Ulp: of each result; bias: of a "
        "typical one, negative towards zero, ± its standard error. Repeats: the same bits in every run; in any batch: a few "
        "rows computed alone have the bits they have among all."
    )
    columns = filled(columns, rows, ("remark", "times_emulation"))
    return Table("error_bounds", "Errors against their bounds", columns, rows, note, merged=1)


def _error_row(record):
    _, dtype, k = record.name.split("/")
    from escherlib.judge.criteria import judge_numerics

    miss = judge_numerics(record, _scoring().sc6)["miss"] if record.ok else None
    largest, emulated = record.get("max"), record.get("emulation_max")
    return {
        "dtype": dtype, "k": int(k), "unit": record.get("unit"), "backend": record.get("backend"),
        "error": record.get("correct", "error"), "bound": record.get("correct", "bound"),
        "times_emulation": largest / emulated if largest and emulated else None,
        "p50_ulp": record.get("ulp", "quantiles", "p50"), "p99_ulp": record.get("ulp", "quantiles", "p99"),
        "max_ulp": record.get("ulp", "max"), "bias_ulp": record.get("bias", "outward", "mean"),
        "bias_se_ulp": record.get("bias", "outward", "standard_error"),
        "repeats": YES_NO[record.get("repeat", "bitwise_equal")],
        "few_rows": YES_NO[record.get("repeat", "few_rows", "bitwise_equal")],
        "verdict": ("OUTSIDE" if miss else "within") if record.ok else None,
        "remark": miss or (remark(record) if not record.ok or record.get("emulated") else ""),
        "class": "bad" if miss or not record.ok else "",
    }  # fmt: skip


def wrong_kernels(results):
    """Scaled error of each product that is wrong on purpose, and whether the rule of SC-6 turns it away."""
    from escherlib.judge.numerics import wrong_kernels as read

    found = read(results.rows(FAMILY, "error/"), _scoring().sc6)
    if not found:
        return _box(results, "Products that are wrong on purpose", "error/")
    names = list(dict.fromkeys(entry["kernel"] for entry in found))
    rows = []
    for name in dict.fromkeys(entry["row"] for entry in found):
        entries = {entry["kernel"]: entry for entry in found if entry["row"] == name}
        _, dtype, k = name.split("/")
        caught = all(entry["caught"] for entry in entries.values())
        row = {"dtype": dtype, "k": int(k), "caught": "all turned away" if caught else "PASSED", "class": "" if caught else "bad"}
        rows.append(row | {kernel: _error_of(entry) for kernel, entry in entries.items()})
    columns = (
        Column("dtype", "dtype", words, text=True),
        Column("k", "K"),
        *(Column(name, name.replace("_", " "), _error_cell, group="scaled error") for name in names),
        Column("caught", "verdict", words, text=True),
    )
    note = (
        "Dropped block: the last tile of K is left out. Swapped rows: two rows stand in each other's place. Short sums: "
        "every few products the sum is rounded to 16 bits. Each must exceed the bound that the right product stays within."
    )
    return Table("wrong_kernels", "Products that are wrong on purpose", columns, tuple(rows), note, merged=1)


def _error_of(entry):
    return "not finite" if entry["error"] is None else entry["error"]


def _error_cell(value):
    return value if isinstance(value, str) else short(value)


def summation(results):
    """One row a way of summing: scaled error, ulp quantiles, share of results that changed."""
    records = results.rows(FAMILY, "sums/")
    rows = tuple(line for record in records for line in _sum_rows(record))
    if not any(record.ok for record in records):
        return _box(results, "Ways of summing", "sums/")
    columns = (
        Column("dtype", "dtype", words, text=True),
        Column("variant", "sum", words, text=True),
        Column("error", "scaled error", short),
        Column("bound", "bound"),
        Column("p50_ulp", "p50", short, group="error, ulp"),
        Column("p99_ulp", "p99", short, group="error, ulp"),
        Column("max_ulp", "max", short, group="error, ulp"),
        Column("changed_pct", "changed, %", short),
        Column("remark", "remark", words, text=True),
    )
    depth = next(record.get("k") for record in records if record.ok)
    note = (
        "Changed: share of results with other bits than the product as given. In chunks, partial sums pass through the output's "
        "format, as in a split-K kernel with reduced precision; the bound is that of the whole product."
    )
    return Table("summation", f"Ways of summing, K = {depth}", filled(columns, rows, ("remark",)), rows, note, merged=1)


def _sum_rows(record):
    dtype = record.name.split("/")[1]
    if not record.ok:
        return [{"dtype": dtype, "remark": remark(record), "class": "bad"}]
    return [
        {
            "dtype": dtype, "variant": entry["variant"], "error": entry["max"], "bound": entry["bound"],
            "p50_ulp": entry["ulp"].get("p50"), "p99_ulp": entry["ulp"].get("p99"), "max_ulp": entry["ulp"].get("max"),
            "changed_pct": 100 * entry["changed"], "remark": "" if entry["within"] else "outside the bound",
        }
        for entry in record.get("variants", default=[])
    ]  # fmt: skip


def special_values(results):
    """What became of zeros, subnormals, infinities and NaN, one row a (dtype, case)."""
    records = results.rows(FAMILY, "special/")
    if not any(record.ok for record in records):
        return _box(results, "Special values", "special/")
    rows = tuple(line for record in records for line in _special_rows(record))
    columns = (
        Column("dtype", "dtype", words, text=True),
        Column("case", "case", words, text=True),
        Column("expected", "expected", words, text=True),
        Column("found", "found", words, text=True),
        Column("verdict", "verdict", words, text=True),
    )
    shape = next("×".join(str(record.get(axis)) for axis in "mn") for record in records if record.ok)
    note = f"Results of {shape} elements; expected values are worked out in float64, product by product."
    return Table("special_values", "Special values", columns, rows, note, merged=1)


def _special_rows(record):
    dtype = record.name.split("/")[1]
    if not record.ok:
        return [{"dtype": dtype, "case": remark(record), "class": "bad"}]
    found = [
        {**case, "dtype": dtype, "verdict": _special_verdict(case), "class": "" if case["ok"] else "bad"}
        for case in record.get("cases", default=[])
    ]
    left_out = record.get("omitted", default={})
    return found + [{"dtype": dtype, "case": case, "found": f"left out: {why}"} for case, why in left_out.items()]


def _special_verdict(case):
    if case["expected"] in ("told", "kept or flushed") and case["ok"]:
        return "told"
    return "as IEEE" if case["ok"] else "WRONG"


def depths(results):
    """The depths K of the workload's products: which term of the bound rules there, in the device's peak format."""
    from escherlib.accounting import error_bounds as bounds
    from escherlib.accounting.workload import timed_gemms
    from escherlib.parameters import workload_from_dict

    dtype = results.device.get("peak_dtype") or "bf16"
    matrix_unit = results.kind == "gpu" and dtype != "fp32"
    by_depth = {}
    for gemm in timed_gemms(workload_from_dict(results.manifest["workload"])):
        by_depth.setdefault(gemm.k, []).append(gemm.name)
    rows = []
    for k in sorted(by_depth):
        rounding, accumulation = bounds.typical(dtype, k, matrix_unit)
        nearest, error = _nearest(results, dtype, k)
        rows.append({
            "k": k, "products": ", ".join(by_depth[k]), "rounding": rounding, "accumulation": accumulation,
            "rules": "rounding of the output" if rounding > accumulation else "accumulation", "nearest_k": nearest, "error": error,
        })  # fmt: skip
    columns = (
        Column("k", "K"),
        Column("products", "products of the block", words, text=True),
        Column("rounding", "rounding", short, group="allowed on average"),
        Column("accumulation", "accumulation", short, group="allowed on average"),
        Column("rules", "what rules", words, text=True),
        Column("nearest_k", "measured at K", group="nearest row"),
        Column("error", "scaled error", short, group="nearest row"),
    )
    note = "Allowances are absolute, for standard normal operands, whose results have a spread of √K."
    return Table("depths", f"Depths of the products of this workload in {dtype}", columns, tuple(rows), note)


def _nearest(results, dtype, k):
    """(K, scaled error) of the measured row whose depth is nearest by ratio, (None, None) without one."""
    found = [(int(row.name.split("/")[2]), row.get("correct", "error")) for row in results.rows(FAMILY, f"error/{dtype}/") if row.ok]
    return min(found, key=lambda entry: max(entry[0] / k, k / entry[0]), default=(None, None))


__all__ = ["depths", "error_bounds", "special_values", "summation", "wrong_kernels"]
