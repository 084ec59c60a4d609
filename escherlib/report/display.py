"""What cells display besides charts: cards and tables, as HTML, Markdown and plain text at once.

Each front end takes the form it knows. Colours inside a notebook are inline and work on light and dark pages;
the report drops them and styles the same elements by class.
"""

import html
from dataclasses import dataclass

LOOKS = {
    "takeaway": "border-left:4px solid #0072B2;background:rgba(0,114,178,.09)",
    "system": "border-left:4px solid #7a8490;background:rgba(122,132,144,.09)",
    "ceiling": "border-left:4px solid #009E73;background:rgba(0,158,115,.09)",
    "missing": "border-left:4px solid #E69F00;background:rgba(230,159,0,.12)",
    "failed": "border-left:4px solid #D55E00;background:rgba(213,94,0,.10)",
}
PADDING = "padding:.6em 1em;margin:.6em 0;max-width:56em;border-radius:3px"


def escape(text):
    """Text made safe for HTML element content and attribute values."""
    return html.escape(str(text), quote=True)


def escape_markdown(text):
    """Text made safe for a Markdown table cell: no tag, no cell border, no line break."""
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


@dataclass(frozen=True)
class Card:
    """A box with a title, and sentences (`lines`) or name-value pairs (`pairs`). `kind` is a key of LOOKS.

    `redraw` ({chart, family}) names the chart it stands for, which a report may be able to draw by then.
    """

    kind: str
    title: str
    lines: tuple = ()
    pairs: tuple = ()
    redraw: dict | None = None

    def to_html(self):
        """Box as HTML; text is escaped here, so callers pass plain text."""
        body = "".join(f"<p style='margin:.3em 0'>{escape(line)}</p>" for line in self.lines)
        if len(self.lines) > 1:
            body = "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in self.lines) + "</ul>"
        if self.pairs:
            rows = "".join(
                f"<tr><th scope='row' style='text-align:left'>{escape(name)}</th>"
                f"<td style='text-align:left'>{escape(value)}</td></tr>"
                for name, value in self.pairs
            )
            body += f"<table class='pairs'><tbody>{rows}</tbody></table>"
        return (
            f"<div class='card {self.kind}' style='{LOOKS[self.kind]};{PADDING}'>"
            f"<p class='card-title'><strong>{escape(self.title)}</strong></p>{body}</div>"
        )

    def to_markdown(self):
        """Box as Markdown: a block quote, or a table for pairs."""
        if self.pairs:
            head = [f"**{self.title}**", "", "| | |", "|:--|:--|"]
            rows = [f"| {escape_markdown(name)} | {escape_markdown(value)} |" for name, value in self.pairs]
            return "\n".join([*head, *rows, *([""] if self.lines else []), *self.lines])
        sentences = [f"- {line}" for line in self.lines] if len(self.lines) > 1 else list(self.lines)
        return "\n".join(
            f"> {line}".rstrip() for line in [f"**{self.title}**", "", *map(_plain_markdown, sentences)]
        )

    def to_text(self):
        """Box as plain text."""
        return "\n".join([self.title, *self.lines, *(f"{name}: {value}" for name, value in self.pairs)])

    def _repr_mimebundle_(self, **_):
        data = {
            "text/html": self.to_html(),
            "text/markdown": self.to_markdown(),
            "text/plain": self.to_text(),
        }
        return data, {"escher": {"role": self.kind} | ({"redraw": self.redraw} if self.redraw else {})}


def _plain_markdown(line):
    return line.replace("<", "&lt;")


def not_measured(title, reason, redraw=None):
    """Box that stands where a chart or table would, and says why there is none."""
    return Card("missing", title, (f"not measured: {reason}",), redraw=redraw)
