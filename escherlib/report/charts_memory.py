"""Charts of families 2 and 3: bandwidth by size and operation, cache curve, capacity."""

import altair as alt

from escherlib.judge.plateaus import ROOF_OPS, stream_gb_s
from escherlib.report import charts_base as base
from escherlib.report.display import not_measured
from escherlib.report.facts import (
    GIB,
    bytes_text,
    family_reason,
    join_words,
    memory_word,
    number,
    percent,
    rate,
    rate_range,
    reason_of,
    sentence,
    state,
    time_text,
)
from escherlib.report.theme import BLACK, BLUE, FILLS, GREEN, GREY, INK, MUTED, PURPLE, VERMILLION, Style

BANDWIDTH, CAPACITY = "02_memory_bandwidth", "03_memory_capacity"
# The roof is read from copy, add and axpy, so these stand out; the others are context.
OPERATIONS = {
    "copy": Style(BLUE, "circle"),
    "add": Style(VERMILLION, "square", (6, 3)),
    "axpy": Style(GREEN, "diamond", (2, 2)),
    "mul": Style(PURPLE, "triangle-up", (8, 2, 2, 2)),
    "sum": Style(BLACK, "cross", (4, 2)),
    "fill": Style(GREY, "triangle-down", (1, 2)),
    "strided": Style(GREY, "triangle-right", (10, 3)),
}
ALLOCATIONS = {
    "contiguous/bf16": "largest bf16 tensor",
    "contiguous/fp16": "largest fp16 tensor",
    "chunked": "total in chunks",
}


def _missing(results, title, family, prefix=""):
    rows = results.rows(family, prefix)
    return not_measured(title, reason_of(rows) if rows else family_reason(results, family))


def stream_value(record):
    """(GB/s, state name) of a stream row; hot counts only where there is nothing else (cache curve)."""
    value, name = stream_gb_s(record)
    return (value, name) if value else (rate(record, "hot", "gb_s"), "hot")


def stream_points(results, prefix):
    """Points of the finished rows below `prefix`: size in bytes, GB/s with its p10–p90 range, state, n."""
    found = []
    for row in results.rows(BANDWIDTH, prefix):
        value, name = stream_value(row)
        if value:
            low, high = rate_range(row, name, "gb_s")
            measured = state(row, name)
            size = int(row.name.rpartition("/")[2])
            found.append(
                {
                    "x": size,
                    "y": value,
                    "low": low,
                    "high": high,
                    "op": row.name.split("/")[0],
                    "state": name,
                    "size": bytes_text(size),
                    "time": time_text(measured["median_s"]),
                    "n": measured.get("n"),
                }
            )
    return sorted(found, key=lambda p: p["x"])


def bandwidth(results):
    """A3: bandwidth by buffer size and operation, with the measured roof and the rated line."""
    from escherlib.judge.roofs import read_roofs

    points = {op: stream_points(results, f"{op}/") for op in OPERATIONS}
    points = {op: found for op, found in points.items() if found}
    word = memory_word(results)
    if not points:
        return _missing(results, f"{word} bandwidth by size", BANDWIDTH)
    roofs = read_roofs(results)
    lines = [
        (roofs.memory_gb_s, "measured roof", INK, None),
        (roofs.rated_memory_gb_s, "rated", GREY, (4, 4)),
    ]
    drawn = [p for found in points.values() for p in found]
    domain_y = base.headroom([p["high"] or p["y"] for p in drawn] + [line[0] for line in lines])
    domain_x = base.padded_log([p["x"] for p in drawn], 1.15)
    sizes = sorted({p["x"] for p in drawn})
    x = base.axis_x(domain_x, "bytes per buffer", "log2", sizes, base.SIZE_LABELS)
    y = base.axis_y(domain_y, "GB/s (10⁹ bytes a second)")
    layers, labels = [], []
    for value, text, color, dash in lines:
        if value:
            layers.append(base.level(value, domain_x, x, y, color, dash, 1.2))
            labels.append((value, f"{text} {number(value)}", color))
    for op, found in points.items():
        layers += base.series(found, OPERATIONS[op], x, y, _stream_tips("bytes per buffer"))
        labels.append((found[-1]["y"], f"{op} {number(found[-1]['y'])}", OPERATIONS[op].color))
    layers += base.margin_labels(labels, y, domain_y)
    return base.finish(layers, *_bandwidth_words(points, roofs, word))


def _stream_tips(size):
    return base.tips(
        ("op", "operation"),
        ("size", size),
        ("y", "GB/s", ".1f"),
        ("time", "median time"),
        ("state", "state"),
        ("n", "n"),
    )


def _bandwidth_words(points, roofs, word):
    plateaus = {op: p.gb_s for op, p in roofs.plateaus.items() if p.gb_s}
    told = ", ".join(f"{op} {number(plateaus[op])}" for op in ROOF_OPS if op in plateaus)
    title = f"{word} bandwidth levels off at {told} GB/s" if told else f"{word} bandwidth by size"
    share = percent(roofs.memory_gb_s, roofs.rated_memory_gb_s)
    against = (
        f"the roof is {share:.0f} % of the rated {number(roofs.rated_memory_gb_s)} GB/s" if share else ""
    )
    alt_text = (
        f"Line chart, bytes per buffer on a log axis against GB/s, {len(points)} operations. {title}"
        + (f"; {against}." if against else ".")
    )
    caption = (
        "Median with p10–p90; every byte that an operation must read or write counts once. "
        + (sentence(against) + " " if against else "")
        + "Sum only reads and fill only writes: they are shown, but are not the roof."
    )
    return title, "Bandwidth by operation and buffer size, GB/s; higher is better", alt_text, caption


def cache_curve(results):
    """A3b: copy bandwidth over the working set, with the sizes of the caches as vertical rules."""
    points = stream_points(results, "cache/")
    if not points:
        return _missing(results, "Bandwidth over the working set", BANDWIDTH, "cache/")
    for point, row in zip(points, _cache_rows(results), strict=True):
        point["x"] = row.get("working_set_bytes", default=point["x"])
        point["size"] = bytes_text(point["x"])
    domain_x, domain_y = (
        base.padded_log([p["x"] for p in points], 1.2),
        base.headroom([p["high"] or p["y"] for p in points], 0.16),
    )
    x = base.axis_x(domain_x, "working set", "log2", base.powers_of_two(*domain_x, every=2), base.SIZE_LABELS)
    y = base.axis_y(domain_y, "GB/s (10⁹ bytes a second)")
    levels = [(name, size) for name, size in cache_levels(results) if domain_x[0] < size < domain_x[1]]
    rules = base.data(
        [{"x": size, "text": f"{name} {bytes_text(size)}", "y": domain_y[1]} for name, size in levels]
    )
    layers = [alt.Chart(rules).mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x)] if levels else []
    layers += base.series(points, Style(BLUE, "circle"), x, y, _stream_tips("working set"))
    if levels:
        text = alt.Chart(rules).mark_text(align="left", baseline="top", dx=4, dy=2, fontSize=11, color=MUTED)
        layers.append(text.encode(x=x, y=y, text="text:N"))
    best, last = max(points, key=lambda p: p["y"]), points[-1]
    factor = best["y"] / last["y"]
    title = f"Caches give up to {number(factor)} × the bandwidth of memory"
    if best is last:
        title = f"Copy reaches {number(best['y'])} GB/s at the largest working set"
    told = f"{number(best['y'])} GB/s at {best['size']}, {number(last['y'])} GB/s at {last['size']}"
    ruled = f"; rules mark {join_words(f'{n} {bytes_text(s)}' for n, s in levels)}" if levels else ""
    alt_text = f"Line chart, working set on a log axis against copy bandwidth in GB/s: {told}{ruled}."
    caption = f"Copy within a working set, buffers reused (hot): {told}{ruled}."
    return base.finish(
        layers,
        title,
        "Copy bandwidth over the working set (all buffers together), GB/s",
        alt_text,
        caption,
        margin=False,
    )


def _cache_rows(results):
    rows = [row for row in results.rows(BANDWIDTH, "cache/") if stream_value(row)[0]]
    return sorted(rows, key=lambda row: int(row.name.rpartition("/")[2]))


def cache_levels(results):
    """[(name, bytes)] of the caches run.json or env.json know of, smallest first."""
    host = (results.env or {}).get("host", {}) if results.kind == "cpu" else {}
    device = results.device
    known = {
        "L1": host.get("l1d_bytes"),
        "L2": device.get("l2_bytes") or host.get("l2_bytes"),
        "LLC": device.get("llc_bytes") or host.get("llc_bytes"),
    }
    if known["LLC"] == known["L2"]:
        known["LLC"] = None
    return sorted(((name, size) for name, size in known.items() if size), key=lambda item: item[1])


def capacity(results):
    """A4: what the driver calls free, the largest single tensors, and the total in chunks, in GiB."""
    rows = {row.name: row for row in results.rows(CAPACITY) if row.name != "headroom"}
    free = next((row.get("free_bytes") for row in rows.values() if row.get("free_bytes")), None)
    found = [_bar(rows[name], label, free) for name, label in ALLOCATIONS.items() if name in rows]
    measured = [bar for bar in found if bar["bytes"]]
    if not measured:
        return _missing(results, "Memory capacity", CAPACITY)
    if free:
        found.insert(
            0,
            {
                "name": "free before",
                "x": free / GIB,
                "bytes": free,
                "text": f"{number(free / GIB)} GiB",
                "color": FILLS["grey"],
            },
        )
    limit = results.device.get("memory_bytes")
    domain = base.headroom([bar["x"] for bar in found] + [limit / GIB if limit else None], 0.06)
    layers, x = base.horizontal_bars(found, domain, "GiB (2³⁰ bytes)", step=32)
    if limit:
        layers += base.vertical_rule(limit / GIB, x, f"installed {number(limit / GIB)}")
    largest = max(
        (bar for bar in measured if bar["name"] != ALLOCATIONS["chunked"]),
        key=lambda bar: bar["x"],
        default=measured[0],
    )
    share = percent(largest["bytes"], free)
    told_share = f", {share:.1f} % of what was free" if share else ""
    bound = largest["bounded_by"] if largest["bounded_by"] not in (None, "driver free") else None
    why = f" (bounded by: {bound})" if bound else told_share
    title = f"The {largest['name']} takes {number(largest['x'])} GiB{why}"
    told = "; ".join(f"{bar['name']} {bar['text']}" for bar in found)
    caption = f"{told[0].upper()}{told[1:]}. Each was allocated in a fresh process and written to."
    height, words = 32 * len(found), (title, "Allocatable memory, GiB", f"Bar chart. {told}.", caption)
    return base.finish(layers, *words, height=height, margin=False)


def _bar(row, label, free):
    size = row.get("bytes")
    share = percent(size, free)
    if size is None:
        text = base.shorten(f"{row.status}: {row.reason or 'no value'}", 64)
    else:
        text = f"{number(size / GIB)} GiB" + (f" · {share:.1f} % of free" if share else "")
    bar = {"name": label, "x": (size or 0) / GIB, "bytes": size, "text": text, "color": FILLS["sky"]}
    return bar | {"bounded_by": row.get("bounded_by")}
