"""Family 1 in its last words: peaks, power states, squares, products, epilogues, formats, correctness."""

from escherlib.judge.roofs import read_roofs
from escherlib.judge.rows import COMPUTE, number, percent, rate_of


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
        *_peak_sentences(results, roofs),
        *_square_sentences(squares, roofs),
        *_workload_sentences(results, roofs),
        *_epilogue_sentences(results),
        *_format_sentences(results, dtype),
        *_numerics_sentences(worst),
        *(f"{text[0].upper()}{text[1:]}." for text in roofs.findings),
    ]
    return headline, findings


def best_row(results, prefix, state, dtype=None):
    """The finished row below `prefix` with the highest TFLOP/s in `state` (and dtype, if given), or None."""
    rows = [
        row
        for row in results.rows(COMPUTE, prefix)
        if rate_of(row, state) and dtype in (None, row.get("dtype"))
    ]
    return max(rows, key=lambda row: rate_of(row, state), default=None)


def worst_numerics(results, family=COMPUTE, prefix="correct/"):
    """{row, error, bound, ok} of the row about errors nearest to or furthest beyond its bound, or None."""
    found = [
        {"row": row.name, "bound": 1.0, **row.get("correct", default={})}
        for row in results.rows(family, prefix)
        if row.ok
    ]
    finite = [entry for entry in found if entry.get("error") is not None]
    return max(
        finite, key=lambda entry: (entry.get("ok") is False, entry["error"] / entry["bound"]), default=None
    )


def _correctness_word(results, worst):
    if worst is None:
        return None
    rows = [row for row in results.rows(COMPUTE, "correct/") if row.ok]
    return "within bounds" if all(row.get("correct", "ok") for row in rows) else "outside its bound"


def _peak_sentences(results, roofs):
    if roofs.burst.value is None and roofs.sustained.value is None:
        return [f"The peak is {roofs.sustained.reason}."]
    told = [
        _peak_words(state, roof)
        for state, roof in (("burst", roofs.burst), ("sustained", roofs.sustained))
        if roof.value
    ]
    rated = roofs.burst.rated_pct or roofs.sustained.rated_pct
    against = f", {rated:.1f} % of the rated {number(roofs.rated_tflops)}" if rated else ""
    return [
        f"The {roofs.peak_dtype} peak is {' and '.join(told)}{against}.",
        *_power_sentences(results, roofs),
    ]


def _peak_words(state, roof):
    shape = "×".join(str(roof.shape[axis]) for axis in "mnk") if roof.shape else roof.row
    label = f", {roof.label}" if roof.label else ""
    return (
        f"{number(roof.value)} TFLOP/s {state} ({shape}{f', {roof.backend}' if roof.backend else ''}{label})"
    )


def _power_sentences(results, roofs):
    """How the two peaks relate, with clock, power and limit reasons of their windows where they were read."""
    text = roofs.relation.text[0].upper() + roofs.relation.text[1:]
    record = results.row(COMPUTE, "peak")
    telemetry = (record.telemetry or {}) if record is not None else {}
    seen = {state: telemetry.get(state) or {} for state in ("burst", "sustained")}
    told = [f"{state} {_window_words(window)}" for state, window in seen.items() if _window_words(window)]
    reasons = seen["sustained"].get("limit_reasons") or []
    limited = [f"limits named while sustained: {', '.join(reasons)}"] if reasons else []
    beside = f" ({'; '.join(told + limited)})" if told else ""
    return [f"{text}{beside}."]


def _window_words(window):
    values = [(window.get(key) or {}).get("mean") for key in ("clock_mhz", "power_w")]
    return " at ".join(
        f"{value:.0f} {unit}" for value, unit in zip(values, ("MHz", "W"), strict=True) if value is not None
    )


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
        found = {
            row.name.rpartition("/")[2]: rate_of(row, state) for row in results.rows(COMPUTE, "workload/")
        }
        found = {op: value for op, value in found.items() if value}
        if found and peak:
            low, high = min(found, key=found.get), max(found, key=found.get)
            span = f"{percent(found[low] / peak)} ({low})"
            span += f" to {percent(found[high] / peak)} ({high})" if len(found) > 1 else ""
            return [f"The workload's GEMMs run at {span} of the {state} peak."]
    return []


def _epilogue_sentences(results):
    """GEMM + bias + GELU in one kernel against two."""
    for state in ("sustained", "burst"):
        pairs = [
            (
                row.name.rpartition("/")[2],
                _time(row, state),
                _time(results.row(COMPUTE, f"un{row.name}"), state),
            )
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
    emulated = [
        row.name.rpartition("/")[2]
        for row in results.rows(COMPUTE, "dtype/")
        if row.ok and row.get("emulated")
    ]
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
    error = f"scaled error {number(worst['error'])} of {number(worst['bound'])}"
    within = "inside" if worst.get("ok") else "OUTSIDE"
    return [f"Correctness: the row nearest its bound is {worst['row']}, {error}, {within}."]


__all__ = ["best_row", "compute", "worst_numerics"]
