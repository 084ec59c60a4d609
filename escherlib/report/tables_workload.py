"""Tables of family 4: every operation against its floor, attention by backend, what is lost, the workload's totals."""

from escherlib.report import op_groups
from escherlib.report.display import not_measured
from escherlib.report.facts import family_reason, number, percent, reason_of, state
from escherlib.report.op_groups import FAMILY
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import percent_cell, reading, remark

ATTENTION = "attention/"
PATH_WORDS = {"default": "default", "optimized": "optimized", "shared": "both"}


def times(value):
    """`1.06`"""
    return "–" if value is None else f"{value:.2f}"


def operations(results):
    """A5: every kernel of both paths, one launch a line, and what one chunk adds up to."""
    paths = {path: op_groups.read(results, path) for path in ("default", "optimized")}
    if not any(paths.values()):
        return not_measured("Operations", family_reason(results, FAMILY))
    lines, seen = [], set()
    for group in op_groups.joined(*paths.values()):
        for op in (*group.default, *group.optimized):
            if op.kernel.row not in seen:
                seen.add(op.kernel.row)
                lines.append(_op_line(op))
    lines += [line for path, ops in paths.items() if (line := _total_line(path, ops))]
    columns = (
        Column("op", "operation", words, text=True),
        Column("path", "path", words, text=True),
        Column("launches", "launches"),
        Column("shape", "shape", words, text=True),
        Column("gflop", "GFLOP"),
        Column("mb", "MB"),
        Column("flop_per_byte", "FLOP/byte"),
        Column("bound", "bound", words, text=True),
        Column("theory_us", "theory µs"),
        Column("default_us", "default µs"),
        Column("optimized_us", "optimized µs"),
        Column("of_theory", "÷ theory", times),
        Column("class", "class", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    rows = tuple(line | {"class": line.pop("cls", None), "row_class": None} for line in lines)
    note = (
        "Times of one launch, medians, sustained; launches are those of one chunk, and the last lines add all of them up. Theory: "
        "max(FLOP ÷ sustained peak, bytes ÷ memory roof), both measured in this run; bytes are the algorithmic minimum"
        + op_groups.scale_text(results)
        + "."
    )
    return Table("op_table", "Operations of one chunk against the roofline", filled(columns, rows, ("remark",)), rows, note)


def _op_line(op):
    kernel, measured = op.kernel, op.measured_s and 1e6 * op.measured_s
    return {
        "op": kernel.name, "path": PATH_WORDS[kernel.path], "launches": kernel.count, "shape": kernel.shape,
        "flop": kernel.flop, "bytes": kernel.nbytes, "gflop": kernel.flop / 1e9, "mb": kernel.nbytes / 1e6,
        "flop_per_byte": kernel.flop_per_byte, "bound": op.bound, "theory_us": op.floor_s and 1e6 * op.floor_s,
        "default_us": measured if kernel.path != "optimized" else None,
        "optimized_us": measured if kernel.path != "default" else None,
        "of_theory": op.ratio, "cls": op.cls if measured else None, "remark": "" if measured else op.reason or "",
    }  # fmt: skip


def _total_line(path, ops):
    if not ops:
        return None
    flop, moved = (sum(getattr(op.kernel, key) * op.kernel.count for op in ops) for key in ("flop", "nbytes"))
    floor, measured = (op_groups.total(ops, lambda op, key=key: getattr(op, key)) for key in ("floor_s", "measured_s"))
    lost = [op.kernel.name for op in ops if op.measured_s is None]
    return {
        "op": f"one chunk, {path} path", "path": path, "launches": sum(op.kernel.count for op in ops), "shape": "",
        "flop": flop, "bytes": moved, "gflop": flop / 1e9, "mb": moved / 1e6, "flop_per_byte": flop / moved, "bound": "",
        "theory_us": floor and 1e6 * floor, f"{path}_us": measured and 1e6 * measured,
        "of_theory": measured / floor if measured and floor else None, "cls": None,
        "remark": f"no sum: {', '.join(lost)} not timed" if lost else "",
    }  # fmt: skip


def attention(results):
    """Every attention backend that was forced: rate, clock, power, error; the others with their reasons."""
    from escherlib.judge.roofs import read_roofs

    records = results.rows(FAMILY, ATTENTION)
    if not records:
        return not_measured("Attention backends", family_reason(results, FAMILY))
    peak = read_roofs(results).peak_sustained_tflops
    rows = sorted((_attention_line(record, peak) for record in records), key=lambda r: (r["rank"], -(r["tflops"] or 0)))
    columns = (
        Column("op", "attention", words, text=True),
        Column("backend", "backend", words, text=True),
        Column("layout", "layout", words, text=True),
        Column("ms", "ms"),
        Column("tflops", "TFLOP/s"),
        Column("of_peak_pct", "% sustained peak", percent_cell),
        Column("clock_mhz", "MHz"),
        Column("power_w", "W"),
        Column("error", "scaled error"),
        Column("remark", "remark", words, text=True),
    )
    optional = ("layout", "of_peak_pct", "clock_mhz", "power_w", "error", "remark")
    note = (
        "Each backend forced, checked against a float32 reference before and after it is timed; "
        "ordered by throughput, median, sustained."
    )
    return Table("attention", "Attention by backend", filled(columns, rows, optional), tuple(rows), note, merged=1)


def _attention_line(record, peak):
    _, op, backend = record.name.split("/", 2)
    found = state(record, "sustained") or {}
    tflops = found.get("tflops")
    return {
        "rank": ("self_attn.flash", "cross_attn.flash").index(op) if op in ("self_attn.flash", "cross_attn.flash") else 2,
        "op": op.split(".")[0], "backend": backend, "layout": record.get("layout"), "tflops": tflops,
        "ms": found["median_s"] * 1e3 if found else None, "of_peak_pct": percent(tflops, peak),
        "clock_mhz": reading(record, "sustained", "clock_mhz"), "power_w": reading(record, "sustained", "power_w"),
        "error": record.get("correct", "error"), "remark": remark(record), "class": "" if tflops else "bad",
    }  # fmt: skip


def losses(results, path="optimized"):
    """Where a chunk loses time against its floor on one path, largest loss first."""
    found = loss_rows(results, path)
    if not found:
        return not_measured("Losses", _unread(results))
    total, chunk = sum(row["loss_ms"] for row in found), sum(row["ms"] for row in found)
    rows = tuple(
        row | {"share_pct": percent(row["loss_ms"], total), "of_chunk_pct": percent(row["ms"], chunk)} for row in found
    )
    columns = (
        Column("op", "operation", words, text=True),
        Column("ms", "ms a chunk"),
        Column("of_chunk_pct", "% of the sum", percent_cell),
        Column("theory_ms", "theory ms"),
        Column("loss_ms", "lost ms"),
        Column("share_pct", "% of the loss", percent_cell),
        Column("of_theory", "÷ theory", times),
    )
    note = f"{path.capitalize()} path, all launches of one chunk; lost: measured minus theory{op_groups.scale_text(results)}."
    return Table("losses", "Time above the roofline", columns, rows, note)


def loss_rows(results, path):
    """[{op, ms, theory_ms, loss_ms, of_theory}] of every group of one path that has both, largest loss first."""
    found = []
    for group in op_groups.groups(results):
        measured, floor = group.measured_s(path), group.floor_s(path)
        if measured and floor:
            ms, least = 1e3 * measured, 1e3 * floor
            found.append({"op": group.name, "ms": ms, "theory_ms": least, "loss_ms": ms - least, "of_theory": ms / least})
    return sorted(found, key=lambda row: -row["loss_ms"])


def _unread(results):
    records = results.rows(FAMILY, "op/")
    return reason_of(records) if records else family_reason(results, FAMILY)


def totals(results):
    """One block with its time MLP: FLOP and traffic, beside what the pilot published where this is its workload."""
    from escherlib.accounting.workload import block_totals, forward_flop, pilot_reference, printed_traffic
    from escherlib.parameters import workload_from_dict

    workload = workload_from_dict(results.manifest["workload"])
    block, (traffic, unit), pilot = block_totals(workload), printed_traffic(workload), pilot_reference(workload)
    drift = workload.drift
    rows = [
        {"what": "FLOP of a block", "value": block.flop / 1e9, "unit": "GFLOP", "pilot": pilot and pilot.block_gflop,
         "drift_pct": drift and drift.flop_pct},
        {"what": "traffic of a block", "value": traffic, "unit": unit, "pilot": pilot and pilot.block_traffic_mb,
         "drift_pct": drift and drift.traffic_pct},
        {"what": "intensity of a block", "value": block.flop_per_byte, "unit": "FLOP/byte"},
        {"what": f"FLOP of a chunk, {workload.blocks} blocks", "value": forward_flop(workload) / 1e12, "unit": "TFLOP"},
    ]  # fmt: skip
    columns = (
        Column("what", "quantity", words, text=True),
        Column("value", "here", lambda v: f"{v:.1f}"),
        Column("unit", "unit", words, text=True),
        Column("pilot", "published by the pilot", lambda v: "–" if v is None else f"{v:.1f}"),
        Column("drift_pct", "drift, %", lambda v: "–" if v is None else f"{v:+.2f}"),
    )
    note = f"{workload.name}: batch {workload.batch}, {workload.query_tokens} query tokens, {workload.kv_tokens} KV tokens"
    if pilot is None:
        note += "; not the workload that the pilot published, so its figures are withheld"
    elif drift is not None:
        note += f"; the totals may drift by {number(drift.limit_pct)} % at most"
    timed = op_groups.scale_text(results)
    return Table("totals", "The workload, counted", filled(columns, rows, ("pilot", "drift_pct")), tuple(rows), f"{note}{timed}.")


def captured(results):
    """Whether what was captured from the running stacks are the values of a living model."""
    records = results.rows(FAMILY, "capture/")
    if not records:
        return not_measured("Captured operands", family_reason(results, FAMILY))
    rows = [
        {
            "path": record.name.split("/")[1], "depth": record.get("depth"), "remark": remark(record),
            "verdict": None if not record.ok else "alive" if record.get("health", "ok") else "not alive",
            **{key: (record.get("health", "cosines") or {}).get(key) for key in ("qkv", "o", "ffn1", "ffn2")},
        }
        for record in records
    ]  # fmt: skip
    cosines = [Column(key, f"cosine {name}", times) for key, name in
               (("qkv", "QKV"), ("o", "O"), ("ffn1", "FFN 1"), ("ffn2", "FFN 2"))]  # fmt: skip
    columns = (
        Column("path", "path", words, text=True),
        Column("depth", "blocks"),
        *cosines,
        Column("verdict", "values", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    note = "Mean cosine between token rows of the inputs of the large products: rows that are alike would draw less power than real ones."
    return Table("captured", "What the operands look like", filled(columns, rows, ("remark",)), tuple(rows), note)


__all__ = ["attention", "captured", "losses", "operations", "totals"]
