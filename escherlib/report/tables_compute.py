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


def _state_cells(record, name, peak):
    measured = state(record, name)
    if measured is None:
        return {}
    tflops, half = measured.get("tflops"), measured.get("ci_rel")
    return {
        f"{name}_median_ms": measured["median_s"] * 1e3,
        f"{name}_tflops": tflops,
        f"{name}_of_peak_pct": percent(tflops, peak),
        f"{name}_ci_pct": None if half is None else 100 * half,
        f"{name}_n": measured.get("n"),
        f"{name}_clock_mhz": reading(record, name, "clock_mhz"),
        f"{name}_power_w": reading(record, name, "power_w"),
    }


def _gemm_columns(rows, names):
    columns = [Column("row", "row", words, text=True), Column("shape", "m×n×k", words, text=True)]
    for name in names:
        columns += [
            Column(f"{name}_median_ms", "ms", group=name),
            Column(f"{name}_tflops", "TFLOP/s", group=name),
            Column(f"{name}_of_peak_pct", "% peak", percent_cell, group=name),
            Column(f"{name}_ci_pct", "± %", lambda v: "–" if v is None else f"{v:.2g}", group=name),
            Column(f"{name}_n", "n", group=name),
            Column(f"{name}_clock_mhz", "MHz", group=name),
            Column(f"{name}_power_w", "W", group=name),
        ]
    columns += [Column("of_rated_pct", "% rated", percent_cell), Column("remark", "remark", words, text=True)]
    optional = [c.key for c in columns if c.key.endswith(("_mhz", "_power_w", "rated_pct"))]
    columns = filled(columns, rows, [*optional, "remark"])
    squares = all(row["shape"] in ("", f"{row['row']}³") for row in rows)
    return tuple(column for column in columns if not (squares and column.key == "shape"))


def gemm(results, prefix="square/"):
    """GEMM rows below `prefix`: time, TFLOP/s, share of the peak of the same state, clock, power, remark."""
    from escherlib.judge.roofs import read_roofs

    caption = GEMM_GROUPS.get(prefix, f"GEMM rows {prefix}")
    records = results.rows(COMPUTE, prefix)
    if not records:
        return not_measured(caption, family_reason(results, COMPUTE))
    roofs = read_roofs(results)
    peaks = {"burst": roofs.peak_burst_tflops, "sustained": roofs.peak_sustained_tflops}
    names = [n for n in ("burst", "sustained", "cold", "hot") if any(state(r, n) for r in records)] or [
        "sustained"
    ]
    rows = []
    for record in records:
        cells = {
            "row": record.name.removeprefix(prefix),
            "shape": shape_text(record),
            "remark": remark(record),
        }
        for name in names:
            cells |= _state_cells(record, name, peaks.get(name) or peaks["burst"])
        best = cells.get("burst_tflops") or cells.get("sustained_tflops") or cells.get("cold_tflops")
        dtype = record.get("dtype")
        rated = results.profile.rated_tflops(dtype) if results.profile and dtype else None
        rows.append(cells | {"of_rated_pct": percent(best, rated), "class": "" if record.ok else "bad"})
    note = "Median of n samples, ± half the 95 % confidence interval; % peak: of the peak in the same state."
    return Table(f"gemm_{prefix.strip('/')}", caption, _gemm_columns(rows, names), tuple(rows), note)


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
            cells = {
                key.removeprefix(f"{name}_"): value for key, value in _state_cells(record, name, None).items()
            }
            shape = "×".join(str(best.get(key, "?")) for key in "mnk")
            rated = results.profile.rated_tflops(record.get("dtype", default="")) if results.profile else None
            rows.append(
                cells
                | {
                    "state": name,
                    "shape": shape,
                    "backend": best.get("backend"),
                    "label": measured.get("label"),
                    "of_rated_pct": percent(cells["tflops"], rated),
                }
            )
    columns = (
        Column("state", "state", words, text=True),
        Column("shape", "m×n×k", words, text=True),
        Column("backend", "backend", words, text=True),
        Column("tflops", "TFLOP/s"),
        Column("median_ms", "ms"),
        Column("ci_pct", "± %", lambda v: "–" if v is None else f"{v:.2g}"),
        Column("n", "n"),
        Column("clock_mhz", "MHz"),
        Column("power_w", "W"),
        Column("of_rated_pct", "% rated", percent_cell),
        Column("label", "label", words, text=True),
    )
    columns = filled(columns, rows, ("label", "power_w", "clock_mhz", "of_rated_pct"))
    return Table("peak", f"Measured {record.get('dtype', default='')} peak", columns, tuple(rows))


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
        Column("verdict", "verdict", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    note = "Largest scaled error against a higher-precision product of the same rounded inputs."
    return Table(
        "correctness", "Correctness of the timed GEMM", filled(columns, rows, ("remark",)), tuple(rows), note
    )
