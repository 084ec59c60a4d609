"""The last word of a family notebook: headline figures and findings, both from the records alone.

`summarise(results, family)` gives what `run.finish` writes into the family's summary; the Takeaway box shows
the same findings. A figure that was not measured is left out of the headline, and a finding says why.
"""

from escherlib.judge.headlines_compute import best_row, compute, worst_numerics
from escherlib.judge.headlines_memory import CAPACITY, bandwidth, capacity
from escherlib.judge.headlines_numerics import numerical_stability
from escherlib.judge.headlines_sustained import sustained
from escherlib.judge.headlines_workload import e2e, workload
from escherlib.judge.rows import BANDWIDTH, COMPUTE, E2E, OPS, STABILITY, SUSTAINED

ENVIRONMENT = "00_environment"
OFFERED = "attention/"  # rows of what may be had or not; their own sentence names those that are not


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
    lost = [row for row in rows if not row.ok and not (row.status == "refused" and row.name.startswith(OFFERED))]
    if not lost:
        return []
    told = "; ".join(
        f"{row.name} {row.status.replace('_', ' ')}: {row.reason or 'no reason given'}" for row in lost[:3]
    )
    more = f"; and {len(lost) - 3} more" if len(lost) > 3 else ""
    return [f"{len(lost)} of {len(rows)} rows gave no number: {told}{more}."]


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


SUMMARIES = {
    ENVIRONMENT: environment, COMPUTE: compute, BANDWIDTH: bandwidth, CAPACITY: capacity, OPS: workload, E2E: e2e,
    SUSTAINED: sustained, STABILITY: numerical_stability,
}  # fmt: skip

__all__ = ["best_row", "summarise", "takeaway", "worst_numerics"]
