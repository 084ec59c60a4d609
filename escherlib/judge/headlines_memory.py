"""Families 2 and 3 in their last words: plateaus and memory roof, largest tensor and fragmentation."""

from escherlib.judge.headroom import read_headroom
from escherlib.judge.plateaus import OPS, ROOF_OPS, stream_gb_s
from escherlib.judge.roofs import read_roofs
from escherlib.judge.rows import BANDWIDTH, CAPACITY, number, percent, rate_of

GIB = 2**30


def bandwidth(results):
    """Plateau per operation, and the memory roof."""
    roofs = read_roofs(results)
    headline = {f"{op}_gb_s": (roofs.plateaus[op].gb_s, "GB/s") for op in OPS}
    headline["memory_roof_gb_s"] = (roofs.memory.value, "GB/s")
    findings = [
        *_roof_sentences(roofs),
        *_one_way_sentences(roofs),
        *_strided_sentences(results),
        *_cache_sentences(results),
    ]
    findings += [f"{text[0].upper()}{text[1:]}." for text in roofs.findings if "peak" not in text]
    return headline, findings


def _roof_sentences(roofs):
    if roofs.memory.value is None:
        return [f"The memory roof is {roofs.memory.reason}."]
    rated = (
        f", {roofs.memory.rated_pct:.1f} % of the rated {number(roofs.memory.rated)} GB/s"
        if roofs.memory.rated_pct
        else ""
    )
    first = f"The memory roof is {number(roofs.memory.value)} GB/s, the {roofs.memory.row} plateau{rated}."
    spreads = [
        f"{op} {percent(p.spread)}"
        for op, p in roofs.plateaus.items()
        if op in ROOF_OPS and p.spread is not None
    ]
    sizes = max(len(p.sizes_bytes) for p in roofs.plateaus.values())
    return (
        [first, f"Over the last {sizes} sizes the plateaus vary by {', '.join(spreads)}."]
        if spreads
        else [first]
    )


def _one_way_sentences(roofs):
    ways = {
        "reads alone (sum)": roofs.plateaus["sum"].gb_s,
        "writes alone (fill)": roofs.plateaus["fill"].gb_s,
    }
    told = [
        f"{name} {number(value)} GB/s ({percent(value / roofs.memory.value)} of the roof)"
        for name, value in ways.items()
        if value and roofs.memory.value
    ]
    return [f"One-way traffic, shown beside and no roof: {', '.join(told)}."] if told else []


def _largest_gb_s(results, op):
    found = [
        (int(row.name.rpartition("/")[2]), stream_gb_s(row)[0]) for row in results.rows(BANDWIDTH, f"{op}/")
    ]
    return max(((size, value) for size, value in found if value), default=(None, None))


def _strided_sentences(results):
    (_, strided), (_, copy) = _largest_gb_s(results, "strided"), _largest_gb_s(results, "copy")
    if not (strided and copy):
        return []
    share = percent(strided / copy)
    return [f"The strided copy runs at {share} of the plain copy's rate, counting only the bytes it keeps."]


def _cache_sentences(results):
    found = []
    for row in results.rows(BANDWIDTH, "cache/"):
        value = rate_of(row, "hot", "gb_s") or stream_gb_s(row)[0]
        if value:
            found.append((row.get("working_set_bytes", default=int(row.name.rpartition("/")[2])), value))
    if len(found) < 2:
        return []
    (top_size, top), (last_size, last) = max(found, key=lambda entry: entry[1]), max(found)
    if top_size == last_size:
        return []  # the curve ends before memory does
    times = f"{top / last:.1f}× the rate at {size_text(last_size)}"
    return [f"From cache a copy reaches {number(top)} GB/s (working set {size_text(top_size)}), {times}."]


def size_text(count):
    """`64 MiB`"""
    for unit, size in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def capacity(results):
    """Largest tensor, its share of the memory, fragmentation, and what is left beside the model."""
    from escherlib.parameters import load_scoring

    rows = [row for row in results.rows(CAPACITY, "contiguous/") if row.ok and row.get("bytes")]
    best = max(rows, key=lambda row: row.get("bytes"), default=None)
    chunked = results.row(CAPACITY, "chunked")
    room = read_headroom(results, load_scoring())
    headline = {
        "allocatable_gib": (best.get("bytes") / GIB if best else None, "GiB"),
        "capacity_pct": (best.get("share_of_total_pct") if best else None, "%"),
        "of_free_pct": (best.get("share_of_free_pct") if best else None, "%"),
        "chunked_gib": (
            chunked.get("bytes") / GIB if chunked is not None and chunked.get("bytes") else None,
            "GiB",
        ),
        "fragmentation": (chunked.get("fragmentation") if chunked is not None else None, ""),
        "headroom_gib": (room["spare_gib"] if room else None, "GiB"),
    }
    return headline, [*_largest_sentences(results, best), *_chunked_sentences(chunked), *_room_sentences(results, room)]


def _largest_sentences(results, best):
    if best is None:
        rows = results.rows(CAPACITY, "contiguous/")
        why = f"{rows[0].status.replace('_', ' ')}: {rows[0].reason}" if rows else "not asked for"
        return [f"The largest tensor is unknown ({why})."]
    size, bound = best.get("bytes") / GIB, best.get("bounded_by", default="nothing known")
    free, installed = best.get("share_of_free_pct"), best.get("share_of_total_pct")
    shares = f"{free:.1f} % of what was free, {installed:.1f} % of what is installed"
    return [f"One tensor can hold {number(size)} GiB: {shares}; bounded by {bound}."]


def _room_sentences(results, room):
    if room is None:
        return
    name = results.manifest["workload"]["name"]
    if not room["fits"]:
        yield f"{name} does not fit: it holds {number(room['held_gib'])} GiB, {number(room['free_gib'])} GiB are free."
        return
    beyond = f"{number(abs(room['spare_gib']))} GiB {'to spare' if room['spare_gib'] >= 0 else 'short'}"
    how = "measured" if room["measured"] else "accounted"
    yield (
        f"With {name} resident ({number(room['held_gib'])} GiB) {number(room['rest_gib'])} GiB are left for "
        f"{number(room['need_gib'])} GiB of activations with their margin: {beyond} ({how})."
    )


def _chunked_sentences(chunked):
    if chunked is None or not chunked.ok or not chunked.get("bytes"):
        return []
    size, ratio = chunked.get("bytes") / GIB, chunked.get("fragmentation")
    first, bound = f"Many tensors together hold {number(size)} GiB", chunked.get("bounded_by")
    if bound not in (None, "driver free"):
        return [f"{first}, bounded by {bound}: that says nothing of fragmentation."]
    return [f"{first}; the largest single one is {percent(ratio)} of that." if ratio else f"{first}."]


__all__ = ["bandwidth", "capacity"]
