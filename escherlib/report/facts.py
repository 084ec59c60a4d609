"""Small readings and phrasings that charts, tables, cards and report share. Values in, values or text out."""

import math
from datetime import UTC, datetime

from escherlib.judge.rows import rate_of, state_of

FAMILIES = {
    "00_environment": "Environment",
    "01_bf16_compute": "Compute: GEMM",
    "02_memory_bandwidth": "Memory bandwidth",
    "03_memory_capacity": "Memory capacity",
    "04_workload_ops": "Workload operations",
    "05_e2e_mfu": "End to end and MFU",
    "06_multigpu_comm": "Communication between devices",
    "07_sustained": "Sustained run",
    "08_topology": "Topology",
    "09_numerical_stability": "Numerical stability",
    "10_fused_collectives": "Fused collectives",
    "11_validation": "Validation against external tools",
    "12_scorecard": "Scorecard",
    "strong_scaling": "Strong scaling",
}
STATUS_WORDS = {
    "finished": "finished",
    "failed": "failed",
    "timed_out": "timed out",
    "not_run": "not run",
    "running": "unfinished",
    "refused": "refused",
    "unfinished": "unfinished",
    "not_measured": "not measured",
    "stale": "stale",
}
GIB = 2**30
state, rate = state_of, rate_of  # one reading of a record for judge and report


def family_title(results, family):
    """Name of a family on this machine: memory bandwidth is called HBM bandwidth where the memory is HBM."""
    if family == "02_memory_bandwidth":
        return f"{memory_word(results)} bandwidth"
    return FAMILIES.get(family, family.replace("_", " "))


def memory_word(results):
    """`HBM` where the device profile says so, else `Memory`."""
    kind = str(getattr(results.profile, "memory_type", "") or "") if results.kind == "gpu" else ""
    return "HBM" if kind.upper().startswith("HBM") else "Memory"


def device_name(results):
    """Name to print: that of the profile, else what the driver or the host says."""
    if results.kind == "gpu" and results.profile is not None:
        return results.profile.display_name
    return results.device.get("name") or "unknown device"


def rate_range(record, name, unit="tflops"):
    """(low, high) of a rate from the p90 and p10 times of a state; (None, None) where they are not known."""
    found = state(record, name)
    if not found or not found.get(unit):
        return None, None
    work = found[unit] * found["median_s"]
    slow, fast = found.get("p90_s"), found.get("p10_s")
    return (work / slow if slow else None), (work / fast if fast else None)


def shape_text(record):
    """`8192³`, `4680×15360×5120`, or nothing."""
    m, n, k = (record.arguments.get(key) or record.get(key) for key in "mnk")
    if not (m and n and k):
        return ""
    return f"{m}³" if m == n == k else f"{m}×{n}×{k}"


def reason_of(records, nothing="no row was measured"):
    """Why there is nothing to show: the reasons of rows that did not finish, else `nothing`."""
    reasons = dict.fromkeys(
        f"{r.name}: {r.reason}" if r.reason else f"{r.name} {r.status}" for r in records if not r.ok
    )
    shown = list(reasons)[:2]
    more = f" (and {len(reasons) - 2} more)" if len(reasons) > 2 else ""
    return "; ".join(shown) + more if shown else nothing


def families(results):
    """Families of a run in their order: those its suite asks for, those it ran, those it has records of."""
    return sorted({*results.manifest.get("parameters", {}), *results.statuses, *results.records})


def outcome(results, family):
    """{status, reason} of a family: the suite's word, or where there is none what its folder shows."""
    entry = results.statuses.get(family)
    if entry is not None:
        return entry
    if family in results.summaries:
        return {"status": "finished", "reason": None}
    if results.rows(family):
        return {"status": "running", "reason": "its last cell has not run yet"}
    planned = family in results.manifest.get("parameters", {})
    suite = results.manifest.get("suite")
    return {"status": "not_run", "reason": "it was not started" if planned else f"not in the {suite} suite"}


def status_word(entry):
    """Status of an outcome or a record in words."""
    return STATUS_WORDS.get(entry["status"], entry["status"])


def family_reason(results, family):
    """Why a family has no rows (of one kind): nobody asked for them, or the family's status and reason."""
    if results.rows(family):
        return "no row of this kind was asked for"
    entry = outcome(results, family)
    word = f"{family_title(results, family)} {status_word(entry)}"
    return word + (f": {entry['reason']}" if entry.get("reason") else "")


def number(value, missing="–"):
    """A number for people: three significant digits, whole numbers from 100 up."""
    if value is None:
        return missing
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1e-4:
        return f"{value:.{2 - math.floor(math.log10(size))}f}"
    return f"{value:.1e}"


def quantity(value, unit, missing="–"):
    """Number and unit with a no-break space."""
    return missing if value is None else f"{number(value)} {unit}".strip() if unit else number(value)


def percent(value, of, digits=1):
    """`value` as % of `of`, or None where either is missing."""
    return None if value is None or not of else round(100 * value / of, digits)


def percent_text(value, missing="–"):
    """`93.1 %`"""
    return missing if value is None else f"{value:.1f} %" if abs(value) < 100 else f"{value:.0f} %"


def bytes_text(count):
    """Size in binary units: `64 MiB`, `1.5 GiB`."""
    for unit, size in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def time_text(seconds, missing="–"):
    """Duration with a fitting unit: `12.3 µs`, `4.56 ms`, `1.20 s`."""
    if seconds is None:
        return missing
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


def created(results):
    """When the run began, as an aware datetime; the epoch where run.json does not say."""
    try:
        moment = datetime.fromisoformat(results.manifest["created"])
    except (KeyError, TypeError, ValueError):
        return datetime.fromtimestamp(0, UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def join_words(words):
    """`a`, `a and b`, `a, b and c`."""
    words = list(words)
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"


def sentence(text):
    """Text with a capital first letter and a full stop."""
    text = str(text).strip()
    return text and text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
