"""Tables of families 2 and 3: bandwidth by size, plateaus, capacity."""

from escherlib.judge.headroom import ROW, read_headroom
from escherlib.report.charts_memory import OPERATIONS, stream_value
from escherlib.report.display import not_measured
from escherlib.report.facts import GIB, bytes_text, family_reason, memory_word, percent, reason_of
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import percent_cell, remark

BANDWIDTH, CAPACITY = "02_memory_bandwidth", "03_memory_capacity"


def bandwidth(results):
    """GB/s by size (rows) and operation (columns), the value of each row's own state."""
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
    columns.append(Column("remark", "remark", words, text=True))
    return Table("bandwidth", caption, filled(columns, rows, ("remark",)), tuple(rows))


def _size(record):
    return int(record.name.rpartition("/")[2])


def plateaus(results):
    """Each operation: bytes counted, median of the largest sizes, how far they lie apart, % rated."""
    from escherlib.judge.plateaus import read_plateau
    from escherlib.parameters import load_scoring

    last_sizes = load_scoring().sc2.last_sizes
    rated, rows = results.profile.memory_bandwidth_gb_s if results.profile else None, []
    for op in OPERATIONS:
        records = sorted(results.rows(BANDWIDTH, f"{op}/"), key=_size)
        if not records:
            continue
        found, last = read_plateau(results, op, last_sizes), records[-1]
        rows.append(
            {
                "op": op,
                "bytes_how": last.get("bytes_how"),
                "gb_s": found.gb_s,
                "spread_pct": _pct(found.spread),
                "sizes": " – ".join(
                    dict.fromkeys(
                        bytes_text(size) for size in (found.sizes_bytes[:1] + found.sizes_bytes[-1:])
                    )
                ),
                "of_rated_pct": percent(found.gb_s, rated),
                "class": "" if found.gb_s else "bad",
                "remark": "; ".join(filter(None, [found.reason, *found.notes])),
            }
        )
    if not rows:
        return not_measured("Plateau of each operation", family_reason(results, BANDWIDTH))
    columns = (
        Column("op", "operation", words, text=True),
        Column("bytes_how", "bytes counted", words, text=True),
        Column("gb_s", "GB/s"),
        Column("spread_pct", "spread, %", percent_cell),
        Column("of_rated_pct", "% rated", percent_cell),
        Column("sizes", "over sizes", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    note = (
        f"Plateau: median of the {last_sizes} largest sizes; spread: (largest − smallest) / median of these."
    )
    return Table(
        "plateaus",
        "Plateau of each operation",
        filled(columns, rows, ("remark", "of_rated_pct")),
        tuple(rows),
        note,
    )


def _pct(share):
    return None if share is None else 100 * share


def headroom(results):
    """The model resident, what is left, and what its activations need."""
    from escherlib.parameters import load_scoring

    room = read_headroom(results, load_scoring())
    if room is None:
        rows = results.rows(CAPACITY, "headroom")
        return not_measured("Beside the model", reason_of(rows) if rows else family_reason(results, CAPACITY))
    lines = (
        ("weights, KV rings, cached text", room["held_gib"], "by accounting" if not room["measured"] else "resident"),
        ("free before", room["free_gib"], "as the driver or the host says"),
        ("left beside the model", room["rest_gib"], room["how"]),
        ("one chunk took", room["forward_gib"], "beyond what the stack keeps, measured"),
        ("activations need", room["need_gib"], "largest set alive at once, with the margin of SC-11"),
        ("to spare", room["spare_gib"], "" if room["fits"] else "the model does not fit"),
    )
    rows = tuple({"what": what, "gib": value, "how": how} for what, value, how in lines if value is not None or what == "to spare")
    columns = (Column("what", "what", words, text=True), Column("gib", "GiB"), Column("how", "how", words, text=True))
    return Table("headroom", f"Beside the model ({results.manifest['workload']['name']})", columns, rows)


def capacity(results):
    """Largest tensors and chunked total: GiB, % of what was free, % of what is installed."""
    records = [record for record in results.rows(CAPACITY) if record.name != ROW]
    if not records:
        return not_measured("Memory capacity", family_reason(results, CAPACITY))
    rows = []
    for record in records:
        size, free = record.get("bytes"), record.get("free_bytes")
        rows.append(
            {
                "row": record.name,
                "gib": size and size / GIB,
                "free_gib": free and free / GIB,
                "of_free_pct": record.get("share_of_free_pct"),
                "of_total_pct": record.get("share_of_total_pct"),
                "fragmentation": record.get("fragmentation"),
                "bounded_by": record.get("bounded_by"),
                "remark": remark(record),
                "class": "" if record.ok else "bad",
            }
        )
    columns = [
        Column("row", "allocation", words, text=True),
        Column("gib", "GiB"),
        Column("free_gib", "free before, GiB"),
        Column("of_free_pct", "% of free", percent_cell),
        Column("of_total_pct", "% of installed", percent_cell),
        Column("fragmentation", "contiguous / chunked"),
        Column("bounded_by", "bounded by", words, text=True),
        Column("remark", "remark", words, text=True),
    ]
    columns = filled(columns, rows, ("remark", "fragmentation"))
    return Table("capacity", "Memory capacity, each in a fresh process", columns, tuple(rows))
