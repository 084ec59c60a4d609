"""Small readings of records that roofs and criteria share, and the words for what is missing."""

COMPUTE, BANDWIDTH = "01_bf16_compute", "02_memory_bandwidth"
OPS, E2E = "04_workload_ops", "05_e2e_mfu"
CAPACITY = "03_memory_capacity"
SUSTAINED, STABILITY = "07_sustained", "09_numerical_stability"
TESTCASES = {
    COMPUTE: "compute", BANDWIDTH: "bandwidth", CAPACITY: "capacity", OPS: "workload", E2E: "e2e", SUSTAINED: "sustained",
    STABILITY: "stability",
}  # fmt: skip
UNSETTLED = ("drifting", "noisy", "thermal")  # labels of a sustained state that reached its cap of time


def state_of(record, name):
    """One state of a finished record that has a median, else None."""
    found = record.get("states", name) if record is not None and record.ok else None
    return found if found and found.get("median_s") else None


def rate_of(record, name, unit="tflops"):
    """`tflops` or `gb_s` of one state from its median, or None."""
    found = state_of(record, name)
    return found.get(unit) if found else None


def rate_range(record, name, unit="tflops"):
    """(low, high): the rate at the p90 and at the p10 time of a state, or None where they are not known."""
    found = state_of(record, name)
    if not found or not (found.get(unit) and found.get("p10_s") and found.get("p90_s")):
        return None
    work = found[unit] * found["median_s"]
    return work / found["p90_s"], work / found["p10_s"]


def label_of(record, name):
    """Label of a state (`drifting`, `burst not recovered`, …), with or without a value, or None."""
    found = record.get("states", name) if record is not None else None
    return (found or {}).get("label")


def not_measured(results, family):
    """Why a family gives no number here, and the command that would give it."""
    hint = f"run TESTCASE={TESTCASES[family]} RUN={results.manifest.get('id', '<id>')}"
    entry = results.statuses.get(family) or {}
    if entry.get("status") in (None, "finished"):
        return f"not measured: {hint}"
    told = f" ({entry['reason']})" if entry.get("reason") else ""
    return f"not measured: family {family} {entry['status'].replace('_', ' ')}{told}; {hint}"


def why_missing(results, family, name):
    """Why one row gives no number: its own status and reason, else that it was not measured."""
    record = results.row(family, name)
    if record is None or record.ok or record.status == "not_measured":
        return not_measured(results, family)
    hint = f"run TESTCASE={TESTCASES[family]} RUN={results.manifest.get('id', '<id>')}"
    hint += " FORCE=1" if record.status == "refused" else ""  # a refusal is final until forced
    return f"{name} {record.status}: {record.reason or 'no reason given'}; {hint}"


def number(value):
    """A number for people: four significant digits, never an exponent."""
    return (
        f"{value:.0f}"
        if abs(value) >= 1000
        else f"{value:.4g}"
        if abs(value) >= 1e-3 or value == 0
        else f"{value:.6f}"
    )


def percent(share):
    """`93.1 %`"""
    return f"{100 * share:.1f} %"
