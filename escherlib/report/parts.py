"""The report's own chapters, as data: each is a title and blocks that know how to be HTML and Markdown."""

import re
from collections import Counter
from dataclasses import dataclass

from escherlib.report import cards, executive, prose
from escherlib.report.display import Card, escape, escape_markdown
from escherlib.report.facts import (
    FAMILIES,
    device_name,
    families,
    family_title,
    number,
    outcome,
    sentence,
    status_word,
)
from escherlib.report.table import Column, Table, words


def _inline(text):
    """Escaped text with `code` marked up."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


@dataclass(frozen=True)
class Text:
    """Paragraphs, or a bulleted list. Plain text; backticks mark code."""

    lines: tuple
    bullets: bool = False

    def to_html(self):
        """Paragraphs or a list."""
        if self.bullets:
            return "<ul>" + "".join(f"<li>{_inline(line)}</li>" for line in self.lines) + "</ul>"
        return "".join(f"<p>{_inline(line)}</p>" for line in self.lines)

    def to_markdown(self):
        """Paragraphs or a list."""
        lines = [line.replace("<", "&lt;") for line in self.lines]
        return "\n".join(f"- {line}" for line in lines) if self.bullets else "\n\n".join(lines)


@dataclass(frozen=True)
class Heading:
    """Heading below a part's own."""

    text: str

    def to_html(self):
        """Level 3."""
        return f"<h3>{escape(self.text)}</h3>"

    def to_markdown(self):
        """Level 3."""
        return f"### {self.text}"


@dataclass(frozen=True)
class Code:
    """Commands to copy."""

    text: str

    def to_html(self):
        """Preformatted."""
        return f"<pre class='commands'>{escape(self.text)}</pre>"

    def to_markdown(self):
        """Fenced."""
        return f"```sh\n{self.text}\n```"


@dataclass(frozen=True)
class Terms:
    """Words and what they mean."""

    pairs: tuple
    head: tuple = ("term", "meaning")

    def to_html(self):
        """Definition list."""
        rows = "".join(
            f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in self.pairs
        )
        return f"<dl class='terms'>{rows}</dl>"

    def to_markdown(self):
        """Table."""
        rows = [f"| {escape_markdown(term)} | {escape_markdown(text)} |" for term, text in self.pairs]
        return "\n".join([f"| {self.head[0]} | {self.head[1]} |", "|:--|:--|", *rows])


@dataclass(frozen=True)
class Part:
    """One chapter of the report that is not a family."""

    anchor: str
    title: str
    blocks: tuple

    def to_html(self):
        """All blocks as HTML."""
        return "\n".join(block.to_html() for block in self.blocks)

    def to_markdown(self):
        """All blocks as Markdown."""
        return "\n\n".join(block.to_markdown() for block in self.blocks)


def summary(results, score):
    """Where the machine stands: one table, the verdict's reasons, findings about denominators."""
    blocks = [executive.table(results, score)]
    told = {f"{c.id} {c.status}": f"{c.id} {c.status}: {c.reason}" for c in score.criteria}
    why = [sentence(told.get(text, text)) for text in score.reasons]
    if why:
        blocks.append(
            Card("failed" if score.verdict == "NO-GO" else "missing", f"{score.verdict}, because", tuple(why))
        )
    if score.findings:
        blocks.append(
            Card("missing", "Findings about the denominators", tuple(map(sentence, score.findings)))
        )
    return Part("summary", "Summary", tuple(blocks))


def scorecard(results, score):
    """Every criterion with its status and reason, then the rules."""
    rows = tuple(
        {"id": c.id, "role": c.role, "status": c.status, "reason": sentence(c.reason)} for c in score.criteria
    )
    columns = (
        Column("id", "criterion", words, text=True),
        Column("role", "role", words, text=True),
        Column("status", "status", words, text=True, pill=True),
        Column("reason", "reason", words, text=True),
    )
    rules = Terms(tuple((c.id, c.rule) for c in score.criteria if c.role != "info"), ("criterion", "rule"))
    return Part(
        "scorecard",
        "Scorecard",
        (Table("scorecard", f"Verdict: {score.verdict}", columns, rows), Heading("Rules"), rules),
    )


def system(results):
    """Which machine this was."""
    return Part("system", "System", (cards.system_card(results),))


def how_to_read(results):
    """What the words and figures mean."""
    lines = prose.HOW_TO_READ + (prose.HOW_TO_READ_CPU if results.kind == "cpu" else ())
    return Part("how-to-read", "How to read this report", (Text(lines),))


def variability(results, dropped):
    """What moved, drifted or was marked, and what the report leaves out."""
    blocks = []
    passes = _passes(results)
    blocks.append(
        passes
        or Text(("This run is one pass; `make benchmark ITERATIONS=5` shows how headline figures vary.",))
    )
    rows = _labelled(results)
    blocks.append(rows or Text(("No row is labelled drifting, noisy, thermal or otherwise unusual.",)))
    left = Counter()
    for counts in dropped:
        left += counts
    if left:
        blocks += [
            Heading("Left out of the chapters"),
            Text(tuple(f"{count} {what}" for what, count in sorted(left.items())), bullets=True),
        ]
    return Part("variability", "Variability and anomalies", tuple(blocks))


def _passes(results):
    from escherlib.files import read_json

    file = results.path / "iterations.json"
    if not file.exists():
        return None
    found = read_json(file)
    rows = tuple({"name": name, "n": len(row["values"]), **row} for name, row in found.items())
    columns = (
        Column("name", "headline", words, text=True),
        Column("unit", "unit", words, text=True),
        Column("n", "passes"),
        Column("mean", "mean"),
        Column("median", "median"),
        Column("cv_pct", "CV, %", lambda v: "–" if v is None else f"{v:.2f}"),
    )
    return Table("iterations", "Headlines over the passes of this run", columns, rows)


def _labelled(results):
    rows = []
    for family, records in results.records.items():
        for record in records.values():
            for name, found in (record.result.get("states") or {}).items():
                marks = len((found or {}).get("marks") or {})
                if found and (found.get("label") or marks):
                    said = "; ".join(
                        filter(None, [found.get("label"), f"{marks} samples marked" if marks else ""])
                    )
                    rows.append(
                        {
                            "family": family_title(results, family),
                            "row": record.name,
                            "state": name,
                            "label": said,
                        }
                    )
    columns = tuple(Column(key, key, words, text=True) for key in ("row", "family", "state", "label"))
    return Table("labels", "Rows with a label", columns, tuple(rows)) if rows else None


def method(results):
    """How the figures were taken."""
    methods = [r.method for rows in results.records.values() for r in rows.values() if r.method]
    versions = Counter(f"{m.get('function')} version {m.get('version')}" for m in methods)
    used = Text(tuple(f"{name}: {count} rows" for name, count in sorted(versions.items())), bullets=True)
    more = (Heading("Method versions in this run"), used) if versions else ()
    return Part("method", "Method", (Text(prose.METHOD), *more))


def not_run(results, score, left_out):
    """Families, rows, criteria and artefacts without a result, each with its reason."""
    rows = []
    for family in sorted({*FAMILIES, *families(results)} - {"12_scorecard"}):
        entry = outcome(results, family)
        if entry["status"] != "finished":
            what = f"family {family_title(results, family)}"
            rows.append({"what": what, "status": status_word(entry), "reason": entry.get("reason")})
    for records in results.records.values():
        for record in records.values():
            if not record.ok:
                rows.append(
                    {
                        "what": f"row {record.name}",
                        "status": status_word({"status": record.status}),
                        "reason": record.reason,
                    }
                )
    for reason in dict.fromkeys(entry["left_out"] for entry in left_out):
        names = ", ".join(entry["id"] for entry in left_out if entry["left_out"] == reason)
        rows.append({"what": f"artefact {names}", "status": "left out", "reason": reason})
    columns = (
        Column("what", "what", words, text=True),
        Column("status", "status", words, text=True),
        Column("reason", "reason", words, text=True),
    )
    if not rows:
        return Part("not-run", "What was not run", (Text(("Everything was run.",)),))
    return Part(
        "not-run", "What was not run, and why", (Table("not_run", "Without a result", columns, tuple(rows)),)
    )


def reproduction(results):
    """Commands that measure this again, and that rebuild this report."""
    manifest, device = results.manifest, results.device
    commit = manifest.get("commit")
    asked = device.get("asked") or "auto"
    switches = (
        f"DEVICE={asked} SUITE={manifest.get('suite')} WORKLOAD={manifest.get('workload', {}).get('name')}"
    )
    passes = 1 + sum(key.startswith("pass_") for key in manifest)
    lines = [f"git checkout {commit.removesuffix('-dirty')}"] if commit else []
    lines += [
        f"make benchmark {switches}" + (f" ITERATIONS={passes}" if passes > 1 else ""),
        f"make report RUN={manifest.get('id')}",
    ]
    said = [f"The figures belong to {device_name(results)}; another machine gives its own."]
    if commit and commit.endswith("-dirty"):
        said.append(
            "The project had uncommitted changes when this run was made: the commit alone is not its code."
        )
    if manifest.get("workload", {}).get("changed"):
        said.append(f"The workload was changed: {', '.join(manifest['workload']['changed'])}.")
    return Part("reproduction", "Reproduction", (Code("\n".join(lines)), Text(tuple(said))))


def glossary(config):
    """Words of the trade, from report.yaml."""
    return Part(
        "glossary",
        "Glossary",
        (Terms(tuple(sorted(config.glossary.items(), key=lambda item: item[0].lower()))),),
    )


__all__ = [
    "Code",
    "Part",
    "Terms",
    "Text",
    "glossary",
    "how_to_read",
    "method",
    "not_run",
    "number",
    "reproduction",
    "scorecard",
    "summary",
    "system",
    "variability",
]
