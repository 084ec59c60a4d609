"""The last word of a family notebook: headline figures and findings, both from the records alone.

`summarise(results, family)` gives what `run.finish` writes into the family's summary; the Takeaway box shows the same
findings. A figure that was not measured is left out of the headline, and a finding says why.
"""

from escherlib.judge.plateaus import OPS, ROOF_OPS, stream_gb_s
from escherlib.judge.roofs import read_roofs
from escherlib.judge.rows import BANDWIDTH, COMPUTE, number, percent, rate_of

ENVIRONMENT, CAPACITY = "00_environment", "03_memory_capacity"
GIB = 2**30


def summarise(results, family):
    """{"headline": {name: (value or None, unit)}, "findings": [sentence]} of one family of a run."""
    headline, findings = SUMMARIES[family](results)
    return {"headline": headline, "findings": [*findings, *unfinished_rows(results, family)]}


def takeaway(results, family):
    """Findings of one family as sentences for its Takeaway box."""
    return summarise(results, family)["findings"]


def unfinished_rows(results, family):
    """One finding about the rows that gave no number, or none."""
    rows = results.rows(family)
    lost = [row for row in rows if not row.ok]
    if not lost:
        return []
    told = "; ".join(f"{row.name} {row.status.replace('_', ' ')}: {row.reason or 'no reason given'}" for row in lost[:3])
    more = f"; and {len(lost) - 3} more" if len(lost) > 3 else ""
    return [f"{len(lost)} of {len(rows)} rows gave no number: {told}{more}."]


# ---- family 0


def environment(results):
    """Whether the machine is fit to be measured, and how many things speak against it."""
    record = results.row(ENVIRONMENT, "precheck")
    if record is None or not record.ok:
        return {"ready": ("not checked", ""), "warnings": (None, "")}, ["The pre-checks gave no result."]
    checks = record.get("checks", default=[])
    warned = [check for check in checks if check["status"] == "warning"]
    unknown = [check["check"] for check in checks if check["status"] == "unknown"]
    ready = "ready" if not warned else "ready with warnings"
    findings = [_device_sentence(results)]
    findings += [f"{check['check']}: {check['found']}; {check['why']}." for check in warned]
    if not warned:
        findings.append(f"{len(checks) - len(unknown)} checks passed, none warns.")
    if unknown:
        findings.append(f"Could not be checked here: {', '.join(unknown)}.")
    return {"ready": (ready, ""), "warnings": (len(warned), "")}, findings


def _device_sentence(results):
    device, profile = results.device, results.profile
    name = device.get("name") or "unknown device"
    if profile is None:
        return f"{name}: no profile, so no rated value and no percentage of one."
    how = f", matched by {device['how']}" if device.get("how") else ""
    return f"{name} is taken for {profile.display_name}{how}."


# ---- family 1


def compute(results):
    """Peaks, best squares, correctness."""
    roofs = read_roofs(results)
    dtype = roofs.peak_dtype
    squares = {state: best_row(results, "square/", state, dtype) for state in ("burst", "sustained")}
    worst = worst_numerics(results)
    headline = {
        "peak_dtype": (dtype, ""),
        f"{dtype}_peak_burst_tflops": (roofs.burst.value, "TFLOP/s"),
        f"{dtype}_peak_sustained_tflops": (roofs.sustained.value, "TFLOP/s"),
        "sustained_of_burst_pct": (100 * roofs.relation.share if roofs.relation.share else None, "%"),
        **{f"best_square_{state}_tflops": (rate_of(row, state), "TFLOP/s") for state, row in squares.items()},
        "worst_error_of_bound": (worst["error"] / worst["bound"] if worst else None, ""),
        "correctness": (_correctness_word(results, worst), ""),
    }
    findings = [
        *_peak_sentences(results, roofs), *_square_sentences(squares, roofs), *_workload_sentences(results, roofs),
        *_epilogue_sentences(results), *_format_sentences(results, dtype), *_numerics_sentences(worst),
        *(f"{text[0].upper()}{text[1:]}." for text in roofs.findings),
    ]  # fmt: skip
    return headline, findings


def best_row(results, prefix, state, dtype=None):
    """The finished row below `prefix` with the highest TFLOP/s in `state` (in one dtype where given), or None."""
    rows = [row for row in results.rows(COMPUTE, prefix) if rate_of(row, state) and dtype in (None, row.get("dtype"))]
    return max(rows, key=lambda row: rate_of(row, state), default=None)


def worst_numerics(results):
    """{row, error, bound} of the correctness row nearest to (or furthest beyond) its bound; None without rows."""
    found = [
        {"row": row.name, "error": row.get("correct", "error"), "bound": row.get("correct", "bound", default=1.0), "ok": row.get("correct", "ok")}
        for row in results.rows(COMPUTE, "correct/") if row.ok
    ]  # fmt: skip
    finite = [entry for entry in found if entry["error"] is not None]
    return max(finite, key=lambda entry: (entry["ok"] is False, entry["error"] / entry["bound"]), default=None)


def _correctness_word(results, worst):
    if worst is None:
        return None
    rows = [row for row in results.rows(COMPUTE, "correct/") if row.ok]
    return "within bounds" if all(row.get("correct", "ok") for row in rows) else "outside its bound"


def _peak_sentences(results, roofs):
    if roofs.burst.value is None and roofs.sustained.value is None:
        return [f"The peak is {roofs.sustained.reason}."]
    told = [_peak_words(state, roof) for state, roof in (("burst", roofs.burst), ("sustained", roofs.sustained)) if roof.value]
    rated = roofs.burst.rated_pct or roofs.sustained.rated_pct
    against = f", {rated:.1f} % of the rated {number(roofs.rated_tflops)}" if rated else ""
    return [f"The {roofs.peak_dtype} peak is {' and '.join(told)}{against}.", *_power_sentences(results, roofs)]


def _peak_words(state, roof):
    shape = "×".join(str(roof.shape[axis]) for axis in "mnk") if roof.shape else roof.row
    label = f", {roof.label}" if roof.label else ""
    return f"{number(roof.value)} TFLOP/s {state} ({shape}{f', {roof.backend}' if roof.backend else ''}{label})"


def _power_sentences(results, roofs):
    """How the two peaks relate, with clock, power and limit reasons of the two windows where they were read."""
    text = roofs.relation.text[0].upper() + roofs.relation.text[1:]
    record = results.row(COMPUTE, "peak")
    seen = {state: (record.telemetry or {}).get(state) or {} for state in ("burst", "sustained")} if record else {}
    told = [f"{state} {_window_words(window)}" for state, window in seen.items() if _window_words(window)]
    reasons = [name for name in seen.get("sustained", {}).get("limit_reasons") or []]
    limited = [f"limits named while sustained: {', '.join(reasons)}"] if reasons else []
    beside = f" ({'; '.join(told + limited)})" if told else ""
    return [f"{text}{beside}."]


def _window_words(window):
    values = [(window.get(key) or {}).get("mean") for key in ("clock_mhz", "power_w")]
    return " at ".join(f"{value:.0f} {unit}" for value, unit in zip(values, ("MHz", "W"), strict=True) if value is not None)


def _square_sentences(squares, roofs):
    told = []
    for state, peak in (("burst", roofs.burst.value), ("sustained", roofs.sustained.value)):
        value = rate_of(squares[state], state)
        if value and peak:
            size = squares[state].name.rpartition("/")[2]
            told.append(f"{percent(value / peak)} of the {state} peak ({size}³)")
    return [f"The best squares reach {' and '.join(told)}."] if told else []


def _workload_sentences(results, roofs):
    for state, peak in (("sustained", roofs.sustained.value), ("burst", roofs.burst.value)):
        found = {row.name.rpartition("/")[2]: rate_of(row, state) for row in results.rows(COMPUTE, "workload/")}
        found = {op: value for op, value in found.items() if value}
        if found and peak:
            low, high = min(found, key=found.get), max(found, key=found.get)
            span = f"{percent(found[low] / peak)} ({low}) to {percent(found[high] / peak)} ({high})"
            return [f"The workload's GEMMs run at {span} of the {state} peak."]
    return []


def _epilogue_sentences(results):
    """GEMM + bias + GELU in one kernel against two."""
    for state in ("sustained", "burst"):
        pairs = [
            (row.name.rpartition("/")[2], _time(row, state), _time(results.row(COMPUTE, f"un{row.name}"), state))
            for row in results.rows(COMPUTE, "fused/")
        ]
        told = [f"{op} {apart / together:.2f}×" for op, together, apart in pairs if together and apart]
        if told:
            return [f"GELU in the epilogue against a kernel of its own, {state}: {', '.join(told)} as fast."]
    return []


def _time(row, state):
    return row.get("states", state, "median_s") if row is not None and row.ok else None


def _format_sentences(results, dtype):
    found = []
    emulated = [row.name.rpartition("/")[2] for row in results.rows(COMPUTE, "dtype/") if row.ok and row.get("emulated")]
    if emulated:
        found.append(f"Emulated on this device: {', '.join(emulated)}; a row to see, not a peak to judge by.")
    for state in ("sustained", "burst"):
        rates = {row.name.rpartition("/")[2]: rate_of(row, state) for row in results.rows(COMPUTE, "dtype/")}
        others = {name: value for name, value in rates.items() if value and name != dtype}
        if rates.get(dtype) and others:
            told = ", ".join(f"{rates[dtype] / value:.2f}× {name}" for name, value in others.items())
            return [*found, f"At one shape {dtype} runs at {told} ({state})."]
    return found


def _numerics_sentences(worst):
    if worst is None:
        return []
    within = "inside" if worst["ok"] else "OUTSIDE"
    return [f"Correctness: the row nearest its bound is {worst['row']}, scaled error {number(worst['error'])} of {number(worst['bound'])}, {within}."]


# ---- family 2


def bandwidth(results):
    """Plateau per operation, and the memory roof."""
    roofs = read_roofs(results)
    headline = {f"{op}_gb_s": (roofs.plateaus[op].gb_s, "GB/s") for op in OPS}
    headline["memory_roof_gb_s"] = (roofs.memory.value, "GB/s")
    findings = [*_roof_sentences(roofs), *_one_way_sentences(roofs), *_strided_sentences(results), *_cache_sentences(results)]
    findings += [f"{text[0].upper()}{text[1:]}." for text in roofs.findings if "peak" not in text]
    return headline, findings


def _roof_sentences(roofs):
    if roofs.memory.value is None:
        return [f"The memory roof is {roofs.memory.reason}."]
    rated = f", {roofs.memory.rated_pct:.1f} % of the rated {number(roofs.memory.rated)} GB/s" if roofs.memory.rated_pct else ""
    first = f"The memory roof is {number(roofs.memory.value)} GB/s, the {roofs.memory.row} plateau{rated}."
    spreads = [f"{op} {percent(p.spread)}" for op, p in roofs.plateaus.items() if op in ROOF_OPS and p.spread is not None]
    sizes = max(len(p.sizes_bytes) for p in roofs.plateaus.values())
    return [first, f"Over the last {sizes} sizes the plateaus vary by {', '.join(spreads)}."] if spreads else [first]


def _one_way_sentences(roofs):
    told = [f"{name} {number(p.gb_s)} GB/s ({percent(p.gb_s / roofs.memory.value)} of the roof)"
            for name, p in (("reads alone (sum)", roofs.plateaus["sum"]), ("writes alone (fill)", roofs.plateaus["fill"]))
            if p.gb_s and roofs.memory.value]  # fmt: skip
    return [f"One-way traffic, shown beside and no roof: {', '.join(told)}."] if told else []


def _largest_gb_s(results, op):
    found = [(int(row.name.rpartition("/")[2]), stream_gb_s(row)[0]) for row in results.rows(BANDWIDTH, f"{op}/")]
    return max(((size, value) for size, value in found if value), default=(None, None))


def _strided_sentences(results):
    (_, strided), (_, copy) = _largest_gb_s(results, "strided"), _largest_gb_s(results, "copy")
    if not (strided and copy):
        return []
    return [f"The strided copy moves bytes at {percent(strided / copy)} of the plain copy's rate, counting only those it keeps."]


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
    return [
        f"From cache a copy reaches {number(top)} GB/s at a working set of {size_text(top_size)}, {top / last:.1f}× the rate at "
        f"{size_text(last_size)}."
    ]


def size_text(count):
    """`64 MiB`"""
    for unit, size in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


# ---- family 3


def capacity(results):
    """Largest tensor, its share of the memory, fragmentation."""
    rows = [row for row in results.rows(CAPACITY, "contiguous/") if row.ok and row.get("bytes")]
    best = max(rows, key=lambda row: row.get("bytes"), default=None)
    chunked = results.row(CAPACITY, "chunked")
    headline = {
        "allocatable_gib": (best.get("bytes") / GIB if best else None, "GiB"),
        "capacity_pct": (best.get("share_of_total_pct") if best else None, "%"),
        "of_free_pct": (best.get("share_of_free_pct") if best else None, "%"),
        "chunked_gib": (chunked.get("bytes") / GIB if chunked is not None and chunked.get("bytes") else None, "GiB"),
        "fragmentation": (chunked.get("fragmentation") if chunked is not None else None, ""),
    }
    return headline, [*_largest_sentences(results, best), *_chunked_sentences(chunked)]


def _largest_sentences(results, best):
    if best is None:
        rows = results.rows(CAPACITY, "contiguous/")
        why = f"{rows[0].status.replace('_', ' ')}: {rows[0].reason}" if rows else "not asked for"
        return [f"The largest tensor is unknown ({why})."]
    size, bound = best.get("bytes") / GIB, best.get("bounded_by", default="nothing known")
    shares = f"{best.get('share_of_free_pct'):.1f} % of what was free, {best.get('share_of_total_pct'):.1f} % of what is installed"
    return [f"One tensor can hold {number(size)} GiB: {shares}; bounded by {bound}."]


def _chunked_sentences(chunked):
    if chunked is None or not chunked.ok or not chunked.get("bytes"):
        return []
    size, ratio = chunked.get("bytes") / GIB, chunked.get("fragmentation")
    first = f"Many tensors together hold {number(size)} GiB"
    return [f"{first}; the largest single one is {percent(ratio)} of that." if ratio else f"{first}."]


SUMMARIES = {ENVIRONMENT: environment, COMPUTE: compute, BANDWIDTH: bandwidth, CAPACITY: capacity}

__all__ = ["best_row", "summarise", "takeaway", "worst_numerics"]
