"""Criteria: pure functions of a run that return a Criterion. The frame, HOST, SC-5, SC-6, those to come."""

from dataclasses import dataclass, field

from escherlib.judge.roofs import peak_dtype
from escherlib.judge.rows import COMPUTE, STABILITY, number, why_missing

WRONG = "wrong result"  # how the GEMM kernels name a result outside its error bound
# Criteria whose families are still to be built, with the rule they will apply.
UNBUILT_RULES = {
    "SC-8": "headline metrics vary little over repeated runs",
    "SC-9": "no external validation row fails and at least one passes",
    "SC-12": "an exact fused backend is correct and faster than the best sequential pair",
}


@dataclass(frozen=True)
class Criterion:
    """One row of the scorecard.

    role: `gating`, `opt-in` or `info`. status: PASS, FAIL, WARN, WARN_CPU, SKIP, PARTIAL_PASS. `details`
    holds the numbers behind the reason; two rows that say the same are equal whatever their details.
    """

    id: str
    role: str
    status: str
    reason: str
    rule: str
    details: dict = field(default_factory=dict, compare=False)


def miss(results):
    """The word for a missed limit of SC-1, SC-2 or SC-3. A CPU host is warned: its threads may be bimodal."""
    return "WARN_CPU" if results.kind == "cpu" else "FAIL"


def warn(results):
    """The word for a warning."""
    return "WARN_CPU" if results.kind == "cpu" else "WARN"


def host_row(results):
    """The row that leads the scorecard: what was judged, and by which rules."""
    name, profile = results.device.get("name") or "unknown device", results.profile
    details = {"kind": results.kind, "name": name, "profile": profile.id if profile is not None else None}
    rule = "which host was judged, and by which rules"
    if getattr(results, "target", None):
        name += f", presented as {results.target}"
    if results.kind == "cpu":
        reason = (
            f"CPU host, {name}: misses of SC-1 to SC-3 warn, and criteria alone never change the exit code"
        )
        return Criterion("HOST", "info", "WARN_CPU", reason, rule, details)
    if profile is None:
        reason = f"GPU host, {name}: no profile, so no rated value"
        return Criterion("HOST", "info", "WARN", reason, rule, details)
    reason = f"GPU host, {name}, rated as {profile.display_name}"
    return Criterion("HOST", "info", "PASS", reason, rule, details)


def artefacts_criterion(results, scoring, artefacts):
    """SC-5: every artefact and report file exists and opens.

    `artefacts` is a list of {id, files, ok, reason, left_out, engine_missing}. ok None, or no list at all,
    stands for files yet to be made that are assumed to come out well: the report shows this very score.
    """
    listed = artefacts or []
    left_out = [entry for entry in listed if entry.get("left_out")]
    judged = [entry for entry in listed if not entry.get("left_out")]
    lost = [entry for entry in judged if entry["ok"] is False]
    lenient = results.kind == "cpu" and all(entry.get("engine_missing") for entry in lost)
    status = "PASS" if not lost else "WARN_CPU" if lenient else "FAIL"
    told = "; ".join(f"{entry['id']}: {entry.get('reason') or 'missing'}" for entry in lost)
    told = told or "every artefact and report file exists and opens"
    if left_out:
        told += "; left out: " + ", ".join(f"{entry['id']} ({_why_left_out(entry)})" for entry in left_out)
    details = {
        "artefacts": listed,
        "assumed": not judged or any(entry["ok"] is None for entry in judged),
    }
    rule = (
        f"{scoring.sc5.title}: every artefact that applies, and the report in every format, exists and opens"
    )
    return Criterion("SC-5", scoring.sc5.role, status, told, rule, details)


def _why_left_out(entry):
    why = entry["left_out"]
    return why if isinstance(why, str) else entry.get("reason") or "does not apply here"


def numerics_criterion(results, scoring):
    """SC-6: errors of GEMMs against a higher-precision reference on the same rounded inputs.

    Judged anew from the numbers of each row `correct/{dtype}/{k}` of family 1 and `error/{dtype}/{k}` of family
    9; a GEMM refused as wrong fails too.
    """
    limits = scoring.sc6
    rule = (
        f"{limits.title}: scaled error ≤ {limits.error:g} "
        f"(≤ {limits.error_output_rounding:g} where output rounding dominates), and for 16-bit "
        f"output ≤ {limits.times_emulation:g} × the error of a float32-accumulating emulation"
    )
    rows = [*results.rows(COMPUTE, "correct/"), *results.rows(STABILITY, "error/")]
    judged = [judge_numerics(row, limits) for row in rows if row.ok]
    wrong = [
        f"{row.name}: {row.reason}"
        for row in results.rows(COMPUTE)
        if row.status == "refused" and WRONG in (row.reason or "")
    ]
    misses = [f"{entry['row']}: {entry['miss']}" for entry in judged if entry["miss"]] + wrong
    unjudged = [f"{row.name} {row.status}: {row.reason or 'no reason given'}" for row in rows if not row.ok]
    details = {"rows": judged, "wrong": wrong, "not_judged": unjudged}
    if misses:
        return Criterion("SC-6", limits.role, "FAIL", "; ".join(misses), rule, details)
    dtype = peak_dtype(results)
    if not any(entry["row"].split("/")[1] == dtype for entry in judged):
        missing = next((row.name for row in rows if row.name.startswith(f"correct/{dtype}/")), "correct/")
        reason = (f"no row in {dtype}: " if dtype else "") + why_missing(results, COMPUTE, missing)
        return Criterion("SC-6", limits.role, "SKIP", reason, rule, details)
    top = max(judged, key=lambda entry: entry["error"] / entry["bound"])
    nearest = f"{top['row']} with {number(top['error'])} of {number(top['bound'])}"
    reason = f"{len(judged)} row{'s' if len(judged) > 1 else ''} within bound, the nearest {nearest}"
    reason += _switches_text(results, rows) + ("; not judged: " + "; ".join(unjudged) if unjudged else "")
    # a format that the device lacks is no gap, a row that broke is
    broken = any(not row.ok and row.status != "refused" for row in rows)
    return Criterion("SC-6", limits.role, "PARTIAL_PASS" if broken else "PASS", reason, rule, details)


def judge_numerics(row, limits):
    """One row about errors: {row, error, bound, times_emulation, miss}; `miss` says what is wrong, or is None."""
    error = row.get("correct", "error")
    bound = min(row.get("correct", "bound", default=limits.error), limits.error_output_rounding)
    found = {"row": row.name, "error": error, "bound": bound, "times_emulation": None, "miss": None}
    if error is None:
        return found | {"miss": "the result is not finite"}
    largest, emulated = max(error, row.get("max", default=0.0)), row.get("emulation_max")
    if emulated:
        found["times_emulation"] = largest / emulated
    if error > bound:
        found["miss"] = f"scaled error {number(error)} above its bound {number(bound)}"
    elif emulated is not None and largest > limits.times_emulation * emulated:
        found["miss"] = (
            f"scaled error {number(largest)} above {limits.times_emulation:g} × "
            f"the emulation's {number(emulated)}"
        )
    elif row.get("ok") is False or row.get("correct", "ok") is False:
        found["miss"] = f"the record says wrong (scaled error {number(error)}, bound {number(bound)})"
    return found


def _switches_text(results, rows):
    if results.kind == "cpu":
        return ""
    switches = next((row.get("reduction_switches") for row in rows if row.get("reduction_switches")), None)
    if not switches:
        return "; reduced-precision switches not recorded"
    on = [name for name, value in switches.items() if value is True]
    return f"; reduced-precision switches on: {', '.join(on)}" if on else "; reduced-precision switches off"


def unbuilt(scoring):
    """Rows of the criteria that nothing here measures yet."""
    limits = scoring.criteria()
    return [
        Criterion(name, limits[name].role, "SKIP", "not measured", f"{limits[name].title}: {rule}")
        for name, rule in UNBUILT_RULES.items()
    ]
