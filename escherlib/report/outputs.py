"""Outputs of a cell as harmless HTML or Markdown; Walk keeps what a chapter must know of its cells."""

import base64
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from escherlib.report import sanitise, static
from escherlib.report.display import Card, escape
from escherlib.report.theme import caption_of

VEGA = (
    "application/vnd.vegalite.v5+json",
    "application/vnd.vegalite.v6+json",
    "application/vnd.vegalite.v5.json",
    "application/vnd.vegalite.v6.json",
)
WIDGETS = ("application/vnd.jupyter.widget-view+json", "application/javascript")
FIGURES = ("image/png", "image/jpeg", "image/svg+xml")
LONGEST_TEXT = 20_000  # characters of one text output


@dataclass
class Walk:
    """kind: html, pdf or md. prefix: of the chapter's ids. dropped: what was left out. files: name → bytes.

    redrawn: ({chart, family}) → chart drawn from the records as they are now, or None.
    held: our own markup of charts, which is put in place of its marker once nbconvert has laid the chapter
    out.
    """

    kind: str
    prefix: str
    embed: bool = True
    dropped: Counter = field(default_factory=Counter)
    files: dict = field(default_factory=dict)
    charts: int = 0
    figures: list = field(default_factory=list)
    held: dict = field(default_factory=dict)
    redrawn: Callable | None = None


def visible(cell, walk):
    """Outputs that belong into a report, as (what, content, extra); the rest is counted in `dropped`."""
    for output in cell.outputs:
        kind = output.output_type
        if kind == "stream":
            if output.name == "stderr":
                walk.dropped["lines on stderr"] += len(output.text.splitlines())
            elif walk.kind != "html":
                walk.dropped["lines of progress (they are in the HTML report)"] += len(
                    output.text.splitlines()
                )
            elif output.text.strip():
                yield "text", sanitise.plain(output.text)[:LONGEST_TEXT], None
        elif kind == "error":
            yield "error", output, None
        elif kind in ("display_data", "execute_result"):
            told = output.metadata.get("escher") or {}
            role, again = told.get("role"), _redrawn(output, told, walk)
            if any(mime in output.data for mime in WIDGETS):
                walk.dropped["widgets and scripts"] += 1
            elif again is not None:
                yield "chart", again, caption_of(again)
            elif role == "system":
                yield "system", None, None
            elif role != "caption":  # a chart brings its caption along
                yield from _data(output, walk)


def _redrawn(output, told, walk):
    """Spec of a chart that asked to be drawn again once more is measured, or None."""
    vega = next((output.data[mime] for mime in VEGA if mime in output.data), None)
    meta = vega.get("usermeta") if isinstance(vega, dict) else None
    asked = told.get("redraw") or (meta.get("redraw") if isinstance(meta, dict) else None)
    return walk.redrawn(asked) if asked and walk.redrawn else None


def _data(output, walk):
    data = output.data
    vega = next((mime for mime in VEGA if mime in data), None)
    figure = next((mime for mime in FIGURES if mime in data), None)
    if vega:
        spec = static.safe_spec(data[vega])
        if spec is None:
            walk.dropped["charts that name an address"] += 1
            return
        caption = (output.metadata.get("escher") or {}).get("caption") or caption_of(spec)
        yield "chart", spec, caption
    elif "text/html" in data and (walk.kind != "md" or "text/markdown" not in data):
        yield "html", data["text/html"], data.get("text/plain")
    elif "text/markdown" in data:
        yield "markdown", data["text/markdown"], None
    elif figure == "image/svg+xml" and walk.kind == "md":
        walk.dropped["SVG images"] += 1  # as a file of its own it could run scripts
    elif figure:
        alt = (output.metadata.get(figure) or {}).get("alt") or output.metadata.get("alt")
        yield (
            "figure",
            (figure, data[figure]),
            alt or data.get("text/plain") or "Figure without a description",
        )
    elif "text/plain" in data:
        yield "text", _unquoted(sanitise.plain(data["text/plain"])[:LONGEST_TEXT]), None


def _unquoted(text):
    """A string that was the last line of a cell, without the quotes of its repr."""
    quoted = len(text) > 1 and text[0] == text[-1] == "'" and "\n" not in text
    return text[1:-1] if quoted else text


# ---- HTML and print


def to_html(cell, walk):
    """HTML of each visible output of a cell."""
    return [_html(what, content, extra, walk) for what, content, extra in visible(cell, walk)]


def _html(what, content, extra, walk):
    if what == "text":
        line = content.strip()
        return f"<p class='out'>{escape(line)}</p>" if "\n" not in line else f"<pre>{escape(content)}</pre>"
    if what == "error":
        return _error_html(content, walk)
    if what == "system":
        return "<p class='see'>The system card of this run stands in <a href='#system'>System</a>.</p>"
    if what == "chart":
        walk.held[f"chart-{len(walk.held)}"] = chart_html(content, extra, walk)
        return f'<p data-held="chart-{len(walk.held) - 1}"></p>'
    if what == "html":
        return sanitise.clean_html(content, walk.prefix, shift=1)
    if what == "markdown":
        return sanitise.clean_html(sanitise.rendered(content), walk.prefix, shift=1)
    mime, data = content
    return f"<figure class='chart'><img src='{_data_uri(mime, data)}' alt='{escape(extra)}'></figure>"


def _data_uri(mime, data):
    if mime == "image/svg+xml":  # as an image it can run nothing
        data = base64.b64encode(data.encode()).decode()
    return f"data:{mime};base64,{''.join(char for char in data if char.isalnum() or char in '+/=')}"


def _error_html(output, walk):
    trace = sanitise.plain("\n".join(output.traceback))
    card = Card(
        "failed", "This cell failed", (f"{output.ename}: {sanitise.plain(str(output.evalue))[:500]}",)
    )
    folded = (
        f"<details class='code'><summary>Traceback</summary><pre>{escape(trace)}</pre></details>"
        if walk.kind == "html"
        else ""
    )
    return card.to_html() + folded


def chart_html(spec, caption, walk):
    """One chart as a figure: live over its drawing, which shows without scripts; static; or a file."""
    walk.charts += 1
    name = f"{walk.prefix}-chart-{walk.charts}"
    alt = spec.get("description") or "Chart without a description"
    try:
        drawn = static.svg(spec)
    except ValueError as error:
        return Card(
            "missing", "Chart left out", (f"it could not be drawn: {str(error).splitlines()[0][:200]}",)
        ).to_html()
    walk.figures.append((f"{name}-figure", title_of(spec)))
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    if walk.kind == "pdf":
        return f"<figure class='chart' id='{name}-figure'>{static.prefixed(drawn, name)}{below}</figure>"
    if not walk.embed:
        walk.files[f"{name}.svg"] = drawn.encode()
        return (
            f"<figure class='chart'><img src='report_files/{name}.svg' alt='{escape(alt)}'>{below}</figure>"
        )
    return (
        f"<figure class='chart'><div class='plot' id='{name}' role='img' aria-label='{escape(alt)}'>"
        f"{static.prefixed(drawn, name)}</div>{below}"
        f"<script type='application/json' class='spec' data-target='{name}'>{static.script_json(spec)}"
        "</script></figure>"
    )


def put_back(fragment, walk):
    """Fragment with the markup held back in place of its markers. Foreign HTML can't carry a marker."""
    return re.sub(r'<p data-held="(chart-\d+)"></p>', lambda found: walk.held[found[1]], fragment)


def title_of(spec):
    """Title of a chart as one line."""
    title = spec.get("title")
    title = title.get("text") if isinstance(title, dict) else title
    return " ".join(map(str, title)) if isinstance(title, list) else str(title or "Chart")


# ---- Markdown


def to_markdown(cell, walk):
    """Markdown of each visible output of a cell."""
    return [_markdown(what, content, extra, walk) for what, content, extra in visible(cell, walk)]


def _markdown(what, content, extra, walk):
    if what == "text":
        return fenced(content)
    if what == "error":
        return Card(
            "failed", "This cell failed", (f"{content.ename}: {sanitise.plain(str(content.evalue))[:500]}",)
        ).to_markdown()
    if what == "system":
        return "The system card of this run stands in the chapter System."
    if what == "chart":
        return chart_markdown(content, extra, walk)
    if what == "html":
        return fenced(sanitise.plain(extra or "an HTML output without a plain form")[:LONGEST_TEXT])
    if what == "markdown":
        return sanitise.clean_markdown(content, shift=1)
    mime, data = content
    walk.charts += 1
    name = f"{walk.prefix}-figure-{walk.charts}.{mime.rpartition('/')[2]}"
    walk.files[name] = base64.b64decode(data)
    return f"![{_label(extra)}](report_files/{name})"


def chart_markdown(spec, caption, walk):
    """One chart as an image link and its caption; the drawing goes to `walk.files`."""
    walk.charts += 1
    name = f"{walk.prefix}-chart-{walk.charts}.svg"
    try:
        walk.files[name] = static.svg(spec).encode()
    except ValueError as error:
        return Card(
            "missing", "Chart left out", (f"it could not be drawn: {str(error).splitlines()[0][:200]}",)
        ).to_markdown()
    image = f"![{_label(spec.get('description') or 'Chart')}](report_files/{name})"
    return f"{image}\n\n*{sanitise.clean_markdown(caption)}*" if caption else image


def _label(text):
    return sanitise.plain(text).replace("[", "(").replace("]", ")").replace("\n", " ").replace("<", "&lt;")


def fenced(text):
    """Text as a code block that it can't break out of."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text.rstrip()}\n{fence}"
