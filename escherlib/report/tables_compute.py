"""Tables of family 1: GEMM rows, peak, correctness. Rows that failed or were refused stay, with reasons."""

from escherlib.report.display import not_measured
from escherlib.report.facts import family_reason, percent, shape_text, state
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import percent_cell, reading, remark

COMPUTE = "01_bf16_compute"
GEMM_GROUPS = {
    "square/": "Square GEMM",
    "workload/": "Workload GEMMs",
    "skew/": "Size skew at equal FLOP",
    "fused/": "Fused GEMM + bias + GELU",
    "unfused/": "The same unfused",
    "addmm/": "addmm",
    "bmm/": "Batched GEMM",
    "dtype/": "Dtype ladder",
}
VARIANTS = ("fused/", "unfused/", "addmm/", "bmm/")


STATE_COLUMNS = (
    Column("median_ms", "ms"),
    Column("tflops", "TFLOP/s"),
    Column("of_peak_pct", "% peak", percent_cell),
    Column("of_rated_pct", "% rated", percent_cell),
    Column("ci_pct", "± %", lambda value: "–" if value is None else f"{value:.2g}"),
    Column("n", "n"),
    Column("clock_mhz", "MHz"),
    Column("power_w", "W"),
)
OPTIONAL = (
    "of_peak_pct",
    "of_rated_pct",
    "clock_mhz",
    "power_w",
    "remark",
)  # left out where no row has a value


def _state_cells(record, name, peak, profile):
    """Figures of one state of a GEMM row; shares only of a peak and a rating of the row's own dtype."""
    measured, dtype = state(record, name), record.get("dtype", default="")
    tflops, half = measured.get("tflops"), measured.get("ci_rel")
    return {
        "state": name,
        "median_ms": measured["median_s"] * 1e3,
        "tflops": tflops,
        "of_peak_pct": percent(tflops, peak),
        "of_rated_pct": percent(tflops, profile.rated_tflops(dtype) if profile and dtype else None),
        "ci_pct": None if half is None else 100 * half,
        "n": measured.get("n"),
        "clock_mhz": reading(record, name, "clock_mhz"),
        "power_w": reading(record, name, "power_w"),
    }


def gemm(results, prefix="square/"):
    """GEMM rows below `prefix`, one line a state: time, TFLOP/s, shares, interval, clock, power, remark."""
    records = results.rows(COMPUTE, prefix)
    caption = GEMM_GROUPS.get(prefix, f"GEMM rows {prefix}")
    return _gemm_table(results, f"gemm_{prefix.strip('/')}", caption, records, prefix)


def variants(results):
    """Epilogue, bias and batch: the products of the workload and the reference square done in another way."""
    records = [record for prefix in VARIANTS for record in results.rows(COMPUTE, prefix)]
    return _gemm_table(results, "gemm_variants", "Variants: epilogue, bias, batch", records)


def _gemm_table(results, name, caption, records, prefix=""):
    from escherlib.judge.roofs import read_roofs

    if not records:
        return not_measured(caption, family_reason(results, COMPUTE))
    roofs = read_roofs(results)
    rows = [line for record in records for line in _gemm_lines(record, prefix, roofs, results.profile)]
    columns = [Column("row", "row", words, text=True), Column("shape", "m×n×k", words, text=True)]
    columns += [Column("state", "state", words, text=True), *STATE_COLUMNS]
    columns = filled([*columns, Column("remark", "remark", words, text=True)], rows, OPTIONAL)
    if all(row["shape"] in ("", f"{row['row']}³") for row in rows):
        columns = tuple(column for column in columns if column.key != "shape")
    note = "Median of n samples, ± half the 95 % confidence interval; % peak: of the peak in the same state."
    return Table(name, caption, columns, tuple(rows), note, merged=2)


def _gemm_lines(record, prefix, roofs, profile):
    """One line a measured state of a record; one line with the reason where there is none."""
    common = {"row": record.name.removeprefix(prefix), "shape": shape_text(record)}
    peaks = {"burst": roofs.peak_burst_tflops, "sustained": roofs.peak_sustained_tflops}
    same = record.get("dtype") == roofs.peak_dtype
    names = [name for name in ("burst", "sustained", "cold", "hot") if state(record, name)]
    if not names:
        return [common | {"remark": remark(record), "class": "bad"}]
    lines = [
        common | _state_cells(record, name, peaks.get(name) if same else None, profile) for name in names
    ]
    for line in lines:
        line["remark"] = remark(record, line["state"])
    return lines


def peak(results):
    """The peak record: burst and sustained with shape, backend, clock and power beside."""
    record = results.row(COMPUTE, "peak")
    if record is None or not record.ok:
        reason = record.reason or record.status if record is not None else family_reason(results, COMPUTE)
        return not_measured("Measured peak", reason)
    rows = []
    for name in ("burst", "sustained"):
        measured, best = state(record, name), record.get(f"best_{name}", default={})
        if measured:
            shape = "×".join(str(best.get(key, "?")) for key in "mnk")
            more = {"shape": shape, "backend": best.get("backend"), "remark": measured.get("label")}
            rows.append(_state_cells(record, name, None, results.profile) | more)
    columns = (
        Column("state", "state", words, text=True),
        Column("shape", "m×n×k", words, text=True),
        Column("backend", "backend", words, text=True),
        *STATE_COLUMNS,
        Column("remark", "remark", words, text=True),
    )
    caption = f"Measured {record.get('dtype', default='')} peak"
    return Table("peak", caption, filled(columns, rows, OPTIONAL), tuple(rows))


def correctness(results):
    """Error of each (dtype, K) against its bound."""
    records = results.rows(COMPUTE, "correct/")
    if not records:
        return not_measured("Correctness", family_reason(results, COMPUTE))
    rows = [
        {
            "row": record.name.removeprefix("correct/"),
            "unit": record.get("unit"),
            "backend": record.get("backend"),
            "error": record.get("correct", "error"),
            "bound": record.get("correct", "bound"),
            "times_emulation": _times(record.get("max"), record.get("emulation_max")),
            "verdict": ("within" if record.get("correct", "ok") else "OUTSIDE") if record.ok else None,
            "remark": "" if record.ok else remark(record),
            "class": "" if record.ok and record.get("correct", "ok") else "bad",
        }
        for record in records
    ]
    columns = (
        Column("row", "dtype / K", words, text=True),
        Column("unit", "unit", words, text=True),
        Column("backend", "backend", words, text=True),
        Column("error", "scaled error"),
        Column("bound", "bound"),
        Column("times_emulation", "× emulation"),
        Column("verdict", "verdict", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    note = "Largest scaled error against a higher-precision product of the same rounded inputs."
    columns = filled(columns, rows, ("remark", "times_emulation"))
    return Table("correctness", "Correctness of the timed GEMM", columns, tuple(rows), note)


def _times(value, of):
    return value / of if value and of else None
