"""Executed notebooks → chapters. What a notebook holds is made harmless first, then nbconvert lays it out.

Three kinds of chapter come from one walk over the cells: `html` (live charts, folded code), `pdf` (static
charts, no code) and `md` (chart files, no code). Whatever is left out is counted.
"""

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from escherlib.report import outputs, sanitise, static, tables
from escherlib.report.display import Card, escape
from escherlib.report.facts import family_title, join_words, outcome, status_word

TEMPLATES = Path(__file__).with_name("templates")
REMOVED = {"setup", "interactive", "remove", "remove-cell", "papermill-error-cell-tag"}
HIDDEN_INPUT = {"hide-input", "results"}
USE_OF_NOTEBOOK = {"parameters", "set-up", "setup"}  # headings whose text is for the person at the notebook
SLACK_S = 2  # clocks of notebook and record are read to the second


@dataclass(frozen=True)
class Chapter:
    """One family in the report. `body` is HTML or Markdown by kind; figures are (id, title) of its charts."""

    family: str
    title: str
    anchor: str
    status: str
    body: str
    figures: tuple = ()
    dropped: Counter = field(default_factory=Counter)
    files: dict = field(default_factory=dict)


def chapter(results, family, kind, embed=True):
    """Chapter of one family: its notebook, or its records where there is none; bad news on top."""
    entry = outcome(results, family)
    prefix = sanitise.anchor(family)
    walk = outputs.Walk(kind, prefix, embed, redrawn=lambda asked: redrawn(results, asked))
    notebook = read_notebook(results.path / f"{family}.ipynb")
    parts = [_render(card, kind) for card in _notices(results, family, entry, notebook)]
    if notebook is not None:
        missed = () if entry["status"] == "finished" else cut_off(notebook)
        parts.append(_markdown(notebook, walk) if kind == "md" else _html(notebook, walk))
        parts += (
            [_render(Card("missing", "Not reached", (f"{join_words(missed)}.",)), kind)] if missed else []
        )
    if results.rows(family) and (notebook is None or entry["status"] != "finished"):
        title = "Records"
        parts += _own_charts(results, family, walk)
        parts += [
            f"### {title}" if kind == "md" else f"<h3 id='{prefix}-records'>{title}</h3>",
            _render(tables.any_rows(results, family), kind),
        ]
    body = "\n\n".join(part for part in parts if part)
    return Chapter(
        family,
        family_title(results, family),
        prefix,
        entry["status"],
        body,
        tuple(walk.figures),
        walk.dropped,
        walk.files,
    )


def redrawn(results, asked):
    """Spec of the chart a notebook asks for again, from the records as they are now, or None."""
    from escherlib.report import charts
    from escherlib.report.theme import spec_of

    name, family = asked.get("chart"), asked.get("family")
    if name not in charts.__all__:
        return None
    chart = getattr(charts, name)(results, family) if family else getattr(charts, name)(results)
    return static.safe_spec(spec_of(chart)) if hasattr(chart, "to_dict") else None


def _own_charts(results, family, walk):
    """Charts of a family whose notebook could not draw any: they come from its records all the same."""
    from escherlib.report import artefacts, charts
    from escherlib.report.theme import caption_of, spec_of

    names = (
        [a.chart for a in artefacts.REGISTRY if a.chart and a.families == (family,)]
        if not walk.charts
        else []
    )
    drawn = [chart for name in names if hasattr(chart := getattr(charts, name)(results), "to_dict")]
    make = outputs.chart_markdown if walk.kind == "md" else outputs.chart_html
    specs = [spec_of(chart) for chart in drawn]
    return [make(static.safe_spec(spec), caption_of(spec), walk) for spec in specs]


def _render(shown, kind):
    return shown.to_markdown() if kind == "md" else shown.to_html()


def _notices(results, family, entry, notebook):
    """Boxes at the head of a chapter: how the family ended, whether the text is older than the records."""
    if entry["status"] not in ("finished", "running"):
        word = status_word(entry)
        kept = ("What was measured before that is kept and shown below.",) if results.rows(family) else ()
        yield Card(
            "failed",
            f"This family: {word}",
            (f"Reason: {entry.get('reason') or 'none given'}.", *kept),
        )
    if notebook is not None and is_stale(results, family, notebook):
        yield Card(
            "missing",
            "Stale chapter",
            ("Records of this family are newer than this text and its charts: run `make analyze`.",),
        )


def read_notebook(path):
    """A notebook as nbformat 4, or None where there is none or it can't be read."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except Exception:  # missing, cut off or no notebook at all: the records still make a chapter
        return None


def cut_off(notebook):
    """Drop what lies behind the last cell that ran; returns the titles of the sections that were lost."""
    cells = notebook.cells
    ran = [
        i
        for i, cell in enumerate(cells)
        if cell.cell_type == "code" and (cell.execution_count or cell.outputs)
    ]
    end = ran[-1] + 1 if ran else 0
    lost = [re.match(r"## (.+)", cell.source) for cell in cells[end:] if cell.cell_type == "markdown"]
    notebook.cells = cells[:end]
    return tuple(sanitise.plain(found[1]).strip() for found in lost if found)


def is_stale(results, family, notebook):
    """True where a record of the family ended after its notebook was last executed."""
    executed = _moment(notebook.metadata.get("papermill", {}).get("end_time"))
    executed = executed or _moment(results.summaries.get(family, {}).get("written"))
    ended = [_moment(row.meta.get("ended")) for row in results.rows(family)]
    latest = max((moment for moment in ended if moment), default=None)
    return bool(executed and latest and (latest - executed).total_seconds() > SLACK_S)


def _moment(text):
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def visible_cells(notebook, kind="html"):
    """Cells of the report: no hidden ones, and no section that only tells how to use the notebook.

    Where papermill injected parameters, the defaults they replace are left out; print shows neither.
    """
    tags = [set(cell.metadata.get("tags", [])) for cell in notebook.cells]
    injected = any("injected-parameters" in found for found in tags)
    removed = REMOVED | ({"parameters"} if injected else set())
    removed |= set() if kind == "html" else {"parameters", "injected-parameters"}
    shown = [
        cell.cell_type != "raw" and not found & removed
        for cell, found in zip(notebook.cells, tags, strict=True)
    ]
    for index, cell in enumerate(notebook.cells):
        beneath = list(
            itertools.takewhile(
                lambda i: notebook.cells[i].cell_type != "markdown", range(index + 1, len(shown))
            )
        )
        if cell.cell_type == "markdown" and beneath and not any(shown[i] for i in beneath):
            heading = re.match(r"#{2,6} (.+)", cell.source)
            played = all("interactive" in tags[i] for i in beneath)
            told = heading and (played or sanitise.anchor(heading[1]) in USE_OF_NOTEBOOK)
            shown[index] = shown[index] and not told
    return [cell for cell, seen in zip(notebook.cells, shown, strict=True) if seen]


# ---- HTML and print


def _html(notebook, walk):
    """Fragment of a notebook."""
    import nbformat

    ids, cells = set(), []
    for cell in visible_cells(notebook, walk.kind):
        if cell.cell_type == "markdown":
            text = sanitise.clean_html(sanitise.rendered(cell.source), walk.prefix, shift=1)
            text = _with_ids(_without_title(text), walk.prefix, ids)
            cells.append(nbformat.v4.new_markdown_cell("", metadata={"report_html": text}))
        else:
            made = [
                nbformat.v4.new_output("display_data", {"text/html": text})
                for text in outputs.to_html(cell, walk)
            ]
            hidden = walk.kind != "html" or HIDDEN_INPUT & set(cell.metadata.get("tags", []))
            code = nbformat.v4.new_code_cell(cell.source, outputs=made)
            if hidden:
                code.metadata["transient"] = {"remove_source": True}
            if made or not hidden:
                cells.append(code)
    kept = _without_empty_sections(cells, _cell_level)
    shown = nbformat.v4.new_notebook(cells=kept, metadata={"language_info": {"name": "python"}})
    return outputs.put_back(_exporter().from_notebook_node(shown)[0], walk)


@cache
def _exporter():
    """nbconvert with the chapter template; it takes over nothing of nbconvert's own page."""
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    config = Config()
    config.CSSHTMLHeaderPreprocessor.enabled = False
    return HTMLExporter(template_name="chapter", extra_template_basedirs=[str(TEMPLATES)], config=config)


def _without_title(text):
    """The notebook's own title goes: the chapter has one that fits the machine."""
    return re.sub(r"^\s*<h2\b[^>]*>.*?</h2>\s*", "", text, count=1, flags=re.DOTALL)


def _with_ids(text, prefix, taken):
    """Give every heading an id that is unique in the report."""

    def mark(found):
        level, inner = int(found[1]), found[2]
        label = re.sub(r"<[^>]+>", "", inner).strip()
        base = f"{prefix}-{sanitise.anchor(label)}"
        name = next(
            n for n in itertools.chain([base], (f"{base}--{i}" for i in itertools.count(2))) if n not in taken
        )
        taken.add(name)
        return f'<h{level} id="{escape(name)}">{inner}</h{level}>'

    return re.sub(r"<h([2-6])\b[^>]*>(.*?)</h\1>", mark, text, flags=re.DOTALL)


def _cell_level(cell):
    """Heading level of a cell that is a heading and nothing else, 0 for any other cell."""
    text = cell.metadata.get("report_html")
    alone = (
        re.fullmatch(r"\s*<h([2-6])\b[^>]*>(?:(?!</h\1>).)*</h\1>\s*", text, flags=re.DOTALL)
        if text is not None
        else None
    )
    return int(alone[1]) if alone else 0


def _without_empty_sections(items, level_of):
    """Drop headings that nothing follows before the next heading of the same or a higher rank."""
    kept = []
    for item in reversed(items):
        level = level_of(item)
        if level and (not kept or 0 < level_of(kept[-1]) <= level):
            continue
        kept.append(item)
    return kept[::-1]


# ---- Markdown


def _markdown(notebook, walk):
    """Markdown of a notebook."""
    blocks = []
    for cell in visible_cells(notebook, walk.kind):
        if cell.cell_type == "markdown":
            text = sanitise.clean_markdown(cell.source, shift=1).strip()
            blocks.append(re.sub(r"^## [^\n]*\n*", "", text, count=1))
        else:
            blocks += outputs.to_markdown(cell, walk)
    blocks = _without_empty_sections([b for b in blocks if b.strip()], _line_level)
    return "\n\n".join(blocks)


def _line_level(block):
    alone = re.fullmatch(r"(#{2,6}) [^\n]+", block.strip())
    return len(alone[1]) if alone else 0
