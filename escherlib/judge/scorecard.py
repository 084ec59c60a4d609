"""The scorecard of a run: every criterion, and the verdict. Writes scorecard.json and scorecard.md."""

from dataclasses import asdict, dataclass

from escherlib.files import write_json, write_text
from escherlib.judge.criteria import Criterion, artefacts_criterion, host_row, numerics_criterion, unbuilt
from escherlib.judge.headroom import memory_headroom
from escherlib.judge.numerics import stability
from escherlib.judge.roof_criteria import compute_roof, memory_roof
from escherlib.judge.roofs import read_roofs
from escherlib.judge.sustained_criteria import sustained_run
from escherlib.judge.workload_criteria import end_to_end, operations

SCHEMA = 1
BROKEN = ("failed", "timed_out")  # a family without its sentinel counts as failed already
CONDITIONAL = ("SKIP", "WARN", "PARTIAL_PASS")
GO, CONDITIONAL_GO, NO_GO = "GO", "CONDITIONAL GO", "NO-GO"


@dataclass(frozen=True)
class Score:
    """criteria: HOST, then SC-1 … SC-12. reasons: what made the verdict. findings: those of the roofs."""

    criteria: tuple[Criterion, ...]
    verdict: str
    reasons: tuple[str, ...]
    findings: tuple[str, ...] = ()


def score(results, scoring, artefacts=None):
    """Score of a run from its records.

    artefacts: what was found of the files, one dict an artefact; None assumes them all, for the report that
    shows this very score (see `criteria.artefacts_criterion`).
    """
    roofs = read_roofs(results, scoring)
    judged = [
        compute_roof(results, roofs, scoring),
        memory_roof(results, roofs, scoring),
        operations(results, roofs, scoring),
        end_to_end(results, roofs, scoring),
        artefacts_criterion(results, scoring, artefacts),
        numerics_criterion(results, scoring),
        sustained_run(results, scoring),
        stability(results, scoring),
        memory_headroom(results, scoring),
        *unbuilt(scoring),
    ]
    order = list(scoring.criteria())
    criteria = (host_row(results), *sorted(judged, key=lambda criterion: order.index(criterion.id)))
    verdict, reasons = judge(criteria, results.kind, broken_families(results))
    return Score(criteria, verdict, reasons, roofs.findings)


def broken_families(results):
    """`family status: reason` of every family of any pass that failed or ran out of time."""
    passes = {"": results.statuses}
    passes |= {
        f" in {key.replace('_', ' ')}": value
        for key, value in sorted(results.manifest.items())
        if key.startswith("pass_")
    }
    return tuple(
        f"{family}{where} {entry['status'].replace('_', ' ')}"
        + (f": {entry['reason']}" if entry.get("reason") else "")
        for where, families in passes.items()
        for family, entry in families.items()
        if entry.get("status") in BROKEN
    )


def judge(criteria, kind, broken=()):
    """(verdict, reasons). `broken` are families that failed; they count on every host.

    NO-GO: a gating FAIL or a broken family. CONDITIONAL GO: a gating SKIP, WARN or PARTIAL_PASS on a GPU
    host, or an opt-in FAIL. GO otherwise: a CPU host is not held to what it can't measure.
    """
    gating = [c for c in criteria if c.role == "gating"]
    failed = [f"{c.id} {c.status}" for c in gating if c.status == "FAIL"]
    if failed or broken:
        return NO_GO, (*failed, *broken)
    open_points = [f"{c.id} {c.status}" for c in gating if c.status in CONDITIONAL and kind != "cpu"]
    open_points += [f"{c.id} {c.status}" for c in criteria if c.role == "opt-in" and c.status == "FAIL"]
    return (CONDITIONAL_GO, tuple(open_points)) if open_points else (GO, ())


def exit_code(results, score):
    """1 where a family failed or timed out (every host) or a gating criterion FAILs (GPU host), else 0."""
    gating_fail = any(c.role == "gating" and c.status == "FAIL" for c in score.criteria)
    return 1 if broken_families(results) or (gating_fail and results.kind != "cpu") else 0


def headline(score):
    """One line: the verdict and every criterion that was judged."""
    told = [f"{c.id} {c.status}" for c in score.criteria if c.role != "info" and c.reason != "not measured"]
    rest = len(score.criteria) - 1 - len(told)
    words = [f"verdict: {score.verdict}", *told] + ([f"{rest} more not measured"] if rest else [])
    return " · ".join(words)


def to_json(results, score):
    """Content of scorecard.json: plain lists and dicts, strict JSON."""
    return {
        "schema": SCHEMA,
        "run": results.manifest.get("id"),
        "device": {
            "kind": results.kind,
            "name": results.device.get("name"),
            "profile": results.device.get("profile"),
        },
        "verdict": score.verdict,
        "reasons": list(score.reasons),
        "criteria": [asdict(criterion) for criterion in score.criteria],
        "findings": list(score.findings),
    }


def to_markdown(results, score):
    """Text of scorecard.md: verdict, one table row a criterion, findings."""
    lines = [f"# Scorecard of {results.manifest.get('id', results.path.name)}", ""]
    lines += [f"**{score.verdict}**" + (f" ({_cell('; '.join(score.reasons))})" if score.reasons else ""), ""]
    lines += ["| id | status | reason | rule |", "|---|---|---|---|"]
    lines += [f"| {c.id} | {c.status} | {_cell(c.reason)} | {_cell(c.rule)} |" for c in score.criteria]
    if score.findings:
        lines += ["", "Findings:", "", *(f"- {_cell(finding)}" for finding in score.findings)]
    return "\n".join(lines) + "\n"


def _cell(text):
    """Text that stays inside one table cell and is never taken for HTML."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def write(results, score):
    """Write scorecard.json and scorecard.md into the run folder. Returns their paths."""
    paths = (results.path / "scorecard.json", results.path / "scorecard.md")
    write_json(paths[0], to_json(results, score))
    write_text(paths[1], to_markdown(results, score))
    return paths
