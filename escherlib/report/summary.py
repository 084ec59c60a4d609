"""summary.md (A11): verdict first, then headline figures with units, power states, findings, artefacts."""

from escherlib.judge.roofs import read_roofs
from escherlib.report import executive
from escherlib.report.display import escape_markdown
from escherlib.report.facts import (
    created,
    device_name,
    families,
    family_title,
    number,
    outcome,
    quantity,
    sentence,
    state,
    status_word,
)
from escherlib.report.table_rows import reading


def summary(results, score, artefacts, marking=None):
    """Text of summary.md. `artefacts` are the entries of artefacts.check."""
    lines = [f"**{escape_markdown(marking)}**", ""] if marking else []
    lines += [f"# {score.verdict}: {device_name(results)}", ""]
    why = "; ".join(score.reasons)
    judged = [f"{c.id} {c.status}" for c in score.criteria if c.role != "info" and c.reason != "not measured"]
    lines += [f"{sentence(why)} " if why else "", " · ".join(judged), ""]
    lines += [
        f"Run {results.manifest.get('id')} · {created(results):%Y-%m-%d %H:%M} UTC · "
        f"suite {results.manifest.get('suite')} · "
        f"workload {results.manifest.get('workload', {}).get('name')} · {results.device.get('name')}",
        "",
    ]
    lines += [executive.table(results, score).to_markdown(), ""]
    for title, found in (
        ("Power states", power_states(results)),
        ("Findings", findings(results, score)),
        ("Families", endings(results)),
    ):
        lines += [f"## {title}", "", *(f"- {escape_markdown(line)}" for line in found or ["none"]), ""]
    lines += ["## Headline figures", "", *headlines(results), "", "## Artefacts", "", *listed(artefacts)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def power_states(results):
    """Burst and sustained peak with the clock and power that explain them."""
    record, roofs = results.row("01_bf16_compute", "peak"), read_roofs(results)
    found = []
    for name, value in (("burst", roofs.peak_burst_tflops), ("sustained", roofs.peak_sustained_tflops)):
        if value is None or state(record, name) is None:
            continue
        beside = [(reading(record, name, "clock_mhz"), "MHz"), (reading(record, name, "power_w"), "W")]
        told = (
            ", ".join(quantity(v, unit) for v, unit in beside if v is not None)
            or "no clock or power was sampled"
        )
        found.append(f"{name}: {number(value)} TFLOP/s {roofs.peak_dtype} ({told})")
    return found + ([sentence(roofs.relation.text)] if found else [])


def findings(results, score):
    """Findings of the families and of the score, each once."""
    found = [
        text for family in sorted(results.summaries) for text in results.summaries[family].get("findings", [])
    ]
    return list(dict.fromkeys(map(sentence, [*score.findings, *found])))


def endings(results):
    """How each family ended."""
    entries = [(family_title(results, family), outcome(results, family)) for family in families(results)]
    return [
        f"{title}: {status_word(entry)}" + (f" ({entry['reason']})" if entry.get("reason") else "")
        for title, entry in entries
    ]


def headlines(results):
    """Table of every headline figure by its name."""
    rows = [
        f"| {name} | {escape_markdown(number(entry['value']))} | {entry['unit'] or ''} "
        f"| {family_title(results, family)} |"
        for family in sorted(results.summaries)
        for name, entry in results.summaries[family].get("headline", {}).items()
    ]
    return ["| headline | value | unit | family |", "|:--|--:|:--|:--|", *rows] if rows else ["none"]


def listed(artefacts):
    """One line an artefact."""
    lines = []
    for entry in artefacts:
        if entry["left_out"]:
            lines.append(f"- {entry['id']}: left out ({entry['left_out']})")
        else:
            files = ", ".join(f"[{file}]({file})" for file in entry["files"]) or "none"
            lines.append(
                f"- {entry['id']}: {files}" + ("" if entry["ok"] is not False else f" – {entry['reason']}")
            )
    return lines
