"""Tables of families 0–3, read from the records. Rows that failed or were refused stay, with their reason."""

from escherlib.files import write_text
from escherlib.report.display import not_measured
from escherlib.report.facts import (
    GIB, STATUS_WORDS, bytes_text, family_reason, memory_word, number, percent, reason_of, state,
)  # fmt: skip
from escherlib.report.table import Column, Table, words

COMPUTE, BANDWIDTH, CAPACITY, ENVIRONMENT = "01_bf16_compute", "02_memory_bandwidth", "03_memory_capacity", "00_environment"
GEMM_GROUPS = {
    "square/": "Square GEMM", "workload/": "Workload GEMMs", "skew/": "Size skew at equal FLOP", "fused/": "Fused GEMM + bias + GELU",
    "unfused/": "The same unfused", "addmm/": "addmm", "bmm/": "Batched GEMM", "dtype/": "Dtype ladder",
}  # fmt: skip


def percent_cell(value):
    """`93.1`"""
    return "–" if value is None else f"{value:.1f}"


def reading(record, name, key, field="mean"):
    """Mean of one telemetry field over the window of one state, or None."""
    window = (record.telemetry or {}).get(name) or {}
    return (window.get(key) or {}).get(field)


def remark(record):
    """What a reader must know of a row: status and reason, wrong results, labels of its states."""
    if not record.ok:
        word = STATUS_WORDS.get(record.status, record.status)
        return f"{word}: {record.reason}" if record.reason else word
    said = []
    if record.get("emulated"):
        said.append("emulated")
    for name, found in (record.result.get("states") or {}).items():
        if found and found.get("label"):
            said.append(f"{name}: {found['label']}")
    if record.get("correct", "ok") is False:
        said.append("outside its error bound")
    return "; ".join(said)


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


def shape_text(record):
    """`8192³`, `4680×15360×5120`, or nothing."""
    m, n, k = (record.arguments.get(key) or record.get(key) for key in "mnk")
    if not (m and n and k):
        return ""
    return f"{m}³" if m == n == k else f"{m}×{n}×{k}"


def _gemm_columns(rows, names):
    columns = [Column("row", "row", words, text=True), Column("shape", "m×n×k", words, text=True)]
    for name in names:
        columns += [
            Column(f"{name}_median_ms", "ms", group=name), Column(f"{name}_tflops", "TFLOP/s", group=name),
            Column(f"{name}_of_peak_pct", "% peak", percent_cell, group=name),
            Column(f"{name}_ci_pct", "± %", lambda v: "–" if v is None else f"{v:.2g}", group=name),
            Column(f"{name}_n", "n", group=name), Column(f"{name}_clock_mhz", "MHz", group=name),
            Column(f"{name}_power_w", "W", group=name),
        ]  # fmt: skip
    columns += [Column("of_rated_pct", "% rated", percent_cell), Column("remark", "remark", words, text=True)]
    optional = [c for c in columns if c.key.endswith(("_mhz", "_power_w", "rated_pct", "remark", "shape"))]
    empty = {c.key for c in optional if not any(row.get(c.key) not in (None, "") for row in rows)}
    return tuple(column for column in columns if column.key not in empty)


def gemm(results, prefix="square/"):
    """GEMM rows below `prefix`: time, TFLOP/s, share of the peak of the same state, clock, power, remark."""
    from escherlib.judge.roofs import read_roofs

    caption = GEMM_GROUPS.get(prefix, f"GEMM rows {prefix}")
    records = results.rows(COMPUTE, prefix)
    if not records:
        return not_measured(caption, family_reason(results, COMPUTE))
    roofs = read_roofs(results)
    peaks = {"burst": roofs.peak_burst_tflops, "sustained": roofs.peak_sustained_tflops}
    names = [n for n in ("burst", "sustained", "cold", "hot") if any(state(r, n) for r in records)] or ["sustained"]
    rows = []
    for record in records:
        cells = {"row": record.name.removeprefix(prefix), "shape": shape_text(record), "remark": remark(record)}
        for name in names:
            cells |= _state_cells(record, name, peaks.get(name) or peaks["burst"])
        best = cells.get("burst_tflops") or cells.get("sustained_tflops") or cells.get("cold_tflops")
        dtype = record.get("dtype")
        rated = results.profile.rated_tflops(dtype) if results.profile and dtype else None
        rows.append(cells | {"of_rated_pct": percent(best, rated), "class": "" if record.ok else "bad"})
    note = "Median of n samples, ± half the 95 % confidence interval; % peak against the measured peak of the same state."
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
            cells = {key.removeprefix(f"{name}_"): value for key, value in _state_cells(record, name, None).items()}
            shape = "×".join(str(best.get(key, "?")) for key in "mnk")
            rated = results.profile.rated_tflops(record.get("dtype", default="")) if results.profile else None
            rows.append(cells | {
                "state": name, "shape": shape, "backend": best.get("backend"), "label": measured.get("label"),
                "of_rated_pct": percent(cells["tflops"], rated),
            })  # fmt: skip
    columns = (
        Column("state", "state", words, text=True), Column("shape", "m×n×k", words, text=True),
        Column("backend", "backend", words, text=True), Column("tflops", "TFLOP/s"), Column("median_ms", "ms"),
        Column("ci_pct", "± %", lambda v: "–" if v is None else f"{v:.2g}"), Column("n", "n"), Column("clock_mhz", "MHz"),
        Column("power_w", "W"), Column("of_rated_pct", "% rated", percent_cell), Column("label", "label", words, text=True),
    )  # fmt: skip
    return Table("peak", f"Measured {record.get('dtype', default='')} peak", columns, tuple(rows))


def correctness(results):
    """Error of each (dtype, K) against its bound."""
    records = results.rows(COMPUTE, "correct/")
    if not records:
        return not_measured("Correctness", family_reason(results, COMPUTE))
    rows = [
        {
            "row": record.name.removeprefix("correct/"), "unit": record.get("unit"), "backend": record.get("backend"),
            "error": record.get("correct", "error"), "bound": record.get("correct", "bound"),
            "verdict": ("within" if record.get("correct", "ok") else "OUTSIDE") if record.ok else None,
            "remark": "" if record.ok else remark(record), "class": "" if record.ok and record.get("correct", "ok") else "bad",
        }
        for record in records
    ]  # fmt: skip
    columns = (
        Column("row", "dtype / K", words, text=True), Column("unit", "unit", words, text=True),
        Column("backend", "backend", words, text=True), Column("error", "scaled error"), Column("bound", "bound"),
        Column("verdict", "verdict", words, text=True), Column("remark", "remark", words, text=True),
    )  # fmt: skip
    note = "Largest scaled error against a higher-precision product of the same rounded inputs."
    return Table("correctness", "Correctness of the timed GEMM", columns, tuple(rows), note)


def bandwidth(results):
    """GB/s by size (rows) and operation (columns), the value of each row's own state."""
    from escherlib.report.charts_memory import OPERATIONS, stream_value

    records = {op: results.rows(BANDWIDTH, f"{op}/") for op in OPERATIONS}
    records = {op: found for op, found in records.items() if found}
    caption = f"{memory_word(results)} bandwidth by size and operation"
    if not records:
        return not_measured(caption, family_reason(results, BANDWIDTH))
    sizes = sorted({_size(r) for found in records.values() for r in found})
    rows = []
    for size in sizes:
        cells, said = {"bytes_per_buffer": size}, []
        for op, found in records.items():
            record = next((r for r in found if _size(r) == size), None)
            cells[f"{op}_gb_s"] = stream_value(record)[0] if record is not None else None
            if record is not None and remark(record):
                said.append(f"{op} {remark(record)}")
        rows.append(cells | {"remark": "; ".join(said)})
    columns = [Column("bytes_per_buffer", "per buffer", bytes_text, text=True)]
    columns += [Column(f"{op}_gb_s", op, group="GB/s") for op in records]
    columns += [Column("remark", "remark", words, text=True)] if any(r["remark"] for r in rows) else []
    return Table("bandwidth", caption, tuple(columns), tuple(rows))


def _size(record):
    return int(record.name.rpartition("/")[2])


def plateaus(results):
    """Each operation at its largest size: bytes counted, GB/s, flatness over the last three sizes, % rated."""
    from escherlib.report.charts_memory import OPERATIONS, stream_value

    rated, rows = results.profile.memory_bandwidth_gb_s if results.profile else None, []
    for op in OPERATIONS:
        records = sorted((r for r in results.rows(BANDWIDTH, f"{op}/")), key=_size)
        finished = [r for r in records if stream_value(r)[0]]
        if not records:
            continue
        if not finished:
            rows.append({"op": op, "remark": remark(records[-1]), "class": "bad"})
            continue
        last, (value, name) = finished[-1], stream_value(finished[-1])
        tail = [stream_value(r)[0] for r in finished[-3:]]
        rows.append({
            "op": op, "bytes_how": last.get("bytes_how"), "bytes_per_buffer": _size(last), "gb_s": value, "state": name,
            "last_three_pct": 100 * (max(tail) / min(tail) - 1) if len(tail) == 3 else None, "of_rated_pct": percent(value, rated),
            "n": last.result["states"][name].get("n"), "ci_pct": _pct(last.result["states"][name].get("ci_rel")),
            "remark": remark(last),
        })  # fmt: skip
    if not rows:
        return not_measured("Plateau of each operation", family_reason(results, BANDWIDTH))
    columns = [
        Column("op", "operation", words, text=True), Column("bytes_how", "bytes counted", words, text=True),
        Column("bytes_per_buffer", "per buffer", lambda v: bytes_text(v) if v else "–"), Column("gb_s", "GB/s"),
        Column("last_three_pct", "last three ± %", percent_cell), Column("of_rated_pct", "% rated", percent_cell), Column("n", "n"),
        Column("ci_pct", "± %", lambda v: "–" if v is None else f"{v:.2g}"), Column("state", "state", words, text=True),
        Column("remark", "remark", words, text=True),
    ]  # fmt: skip
    columns = [c for c in columns if c.key not in ("remark", "of_rated_pct") or any(r.get(c.key) for r in rows)]
    return Table("plateaus", "Plateau of each operation", tuple(columns), tuple(rows))


def _pct(share):
    return None if share is None else 100 * share


def capacity(results):
    """Largest tensors and chunked total: GiB, % of what was free, % of what is installed."""
    records = results.rows(CAPACITY)
    if not records:
        return not_measured("Memory capacity", family_reason(results, CAPACITY))
    rows = []
    for record in records:
        size, free = record.get("bytes"), record.get("free_bytes")
        rows.append({
            "row": record.name, "gib": size and size / GIB, "free_gib": free and free / GIB,
            "of_free_pct": record.get("share_of_free_pct"), "of_total_pct": record.get("share_of_total_pct"),
            "fragmentation": record.get("fragmentation"), "bounded_by": record.get("bounded_by"),
            "remark": remark(record), "class": "" if record.ok else "bad",
        })  # fmt: skip
    columns = [
        Column("row", "allocation", words, text=True), Column("gib", "GiB"), Column("free_gib", "free before, GiB"),
        Column("of_free_pct", "% of free", percent_cell), Column("of_total_pct", "% of installed", percent_cell),
        Column("fragmentation", "contiguous / chunked"), Column("bounded_by", "bounded by", words, text=True),
        Column("remark", "remark", words, text=True),
    ]  # fmt: skip
    columns = [c for c in columns if c.key != "remark" or any(r["remark"] for r in rows)]
    return Table("capacity", "Memory capacity, each in a fresh process", tuple(columns), tuple(rows))


def precheck(results):
    """What family 0 checked before anything was measured."""
    record = results.row(ENVIRONMENT, "precheck")
    if record is None or not record.ok:
        return not_measured("Pre-checks", reason_of([record]) if record is not None else family_reason(results, ENVIRONMENT))
    rows = tuple(check | {"class": "bad" if check["status"] == "warning" else ""} for check in record.get("checks", default=[]))
    columns = (
        Column("check", "check", words, text=True), Column("status", "status", words, text=True),
        Column("found", "found", words, text=True), Column("why", "why it matters", words, text=True),
    )  # fmt: skip
    return Table("precheck", "Pre-checks", columns, rows)


def environment(results):
    """env.json as name and value, nested names joined by dots; long lists are shortened."""
    if not results.env:
        return not_measured("Environment", "env.json is missing")
    rows = tuple({"name": name, "value": value} for name, value in _flat(results.env) if value not in (None, "", [], {}))
    columns = (Column("name", "what", words, text=True), Column("value", "value", _short, text=True))
    return Table("environment", "Environment", columns, rows)


def _flat(tree, prefix=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value, longest=110):
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= longest else f"{text[:longest]}…"


def any_rows(results, family):
    """All rows of a family in the plainest form: what stands in the report where a notebook is missing or failed."""
    records = results.rows(family)
    if not records:
        return not_measured(f"Records of {family}", family_reason(results, family))
    rows = []
    for record in records:
        values = []
        for name, measured in (record.result.get("states") or {}).items():
            for key, unit in (("tflops", "TFLOP/s"), ("gb_s", "GB/s")):
                if measured and measured.get(key):
                    values.append(f"{number(measured[key])} {unit} {name}")
        rows.append({
            "row": record.name, "status": STATUS_WORDS.get(record.status, record.status), "value": ", ".join(values),
            "remark": remark(record) if record.ok else record.reason, "class": "" if record.ok else "bad",
        })  # fmt: skip
    columns = (
        Column("row", "row", words, text=True), Column("status", "status", words, text=True),
        Column("value", "value", words, text=True), Column("remark", "remark", words, text=True),
    )  # fmt: skip
    return Table("rows", "Records", columns, tuple(rows))


def all_tables(results):
    """(family, table) of every table that has rows."""
    made = [(COMPUTE, gemm(results, prefix)) for prefix in GEMM_GROUPS if results.rows(COMPUTE, prefix)]
    made += [(COMPUTE, peak(results)), (COMPUTE, correctness(results)), (BANDWIDTH, bandwidth(results))]
    made += [(BANDWIDTH, plateaus(results)), (CAPACITY, capacity(results)), (ENVIRONMENT, precheck(results))]
    return [(family, table) for family, table in made if isinstance(table, Table)]


def write_tables(results):
    """Write each table as CSV beside its records. Returns the files."""
    files = []
    for family, table in all_tables(results):
        files.append(results.path / "records" / family / f"{table.id}.csv")
        write_text(files[-1], table.to_csv())
    return files


__all__ = [
    "all_tables", "any_rows", "bandwidth", "capacity", "correctness", "environment", "gemm", "peak", "plateaus", "precheck", "reading",
    "remark", "write_tables",
]  # fmt: skip
