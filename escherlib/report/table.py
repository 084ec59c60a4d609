"""One table, four forms: HTML with caption and scopes, Markdown, plain text, CSV with raw values."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass

from escherlib.report.display import escape, escape_markdown
from escherlib.report.facts import number

SHORT = 16  # characters a cell keeps on one line
WIDE = 12  # columns from which print takes a smaller type
KEPT = 14  # rows up to which print keeps a table on one page


@dataclass(frozen=True)
class Column:
    """One column: key of the row's value, heading with unit, how a value becomes text, group heading.

    `text` columns are aligned left; `pill` columns hold status words, which HTML shows in colour.
    """

    key: str
    title: str
    form: Callable = number
    group: str = ""
    text: bool = False
    pill: bool = False


@dataclass(frozen=True)
class Table:
    """Rows (dicts of raw values) under columns. `id` names the CSV, `note` is one line below.

    Of the first `merged` columns a value that repeats from row to row is shown once; CSV and frame keep it.
    """

    id: str
    caption: str
    columns: tuple
    rows: tuple
    note: str = ""
    merged: int = 0

    @property
    def frame(self):
        """Raw values as a pandas DataFrame; column names carry the units."""
        import pandas

        keys = [column.key for column in self.columns]
        return pandas.DataFrame([[row.get(key) for key in keys] for row in self.rows], columns=keys)

    def cells(self):
        """Texts of the body, row by row."""
        found, last = [], {}
        for row in self.rows:
            line = [column.form(row.get(column.key)) for column in self.columns]
            for index, column in enumerate(self.columns[: self.merged]):
                repeats = last and all(row.get(c.key) == last.get(c.key) for c in self.columns[: index + 1])
                line[index] = "" if repeats and column.text else line[index]
            found.append(line)
            last = row
        return found

    def to_html(self):
        """Table with caption, `scope` on every heading, and column groups where columns have them."""
        head = "".join(f"<tr>{''.join(line)}</tr>" for line in self._head_lines())
        lines = zip(self.rows, self.cells(), strict=True)
        body = "".join(f"<tr{_row_class(row)}>{self._body_line(cells)}</tr>" for row, cells in lines)
        note = f"<p class='note'>{escape(self.note)}</p>" if self.note else ""
        keep, wide = " keep" * (len(self.rows) <= KEPT), " wide" * (len(self.columns) >= WIDE)
        title = escape(self.caption)
        return (
            f"<div class='table-wrap{keep}' tabindex='0' role='region' aria-label='{title}'>"
            f"<table class='data{wide}'><caption style='text-align:left'>{title}</caption>"
            f"<thead>{head}</thead><tbody>{body}</tbody></table></div>{note}"
        )

    def _head_lines(self):
        grouped = any(column.group for column in self.columns)
        first, second, last = [], [], None
        for column in self.columns:
            kind = " class='text' style='text-align:left'" if column.text else ""
            title = escape(column.title).replace("/", "/\u2060")  # TFLOP/s stays on one line
            if not grouped or not column.group:
                span = " rowspan='2'" if grouped else ""
                first.append(f"<th scope='col'{span}{kind}>{title}</th>")
            else:
                if column.group != last:
                    width = sum(c.group == column.group for c in self.columns)
                    first.append(
                        f"<th scope='colgroup' colspan='{width}' class='group'>{escape(column.group)}</th>"
                    )
                second.append(f"<th scope='col'{kind}>{title}</th>")
            last = column.group
        return [first, second] if grouped else [first]

    def _body_line(self, cells):
        parts = []
        for index, (column, text) in enumerate(zip(self.columns, cells, strict=True)):
            short = " short" if len(text) <= SHORT else ""
            kind = f" class='text{short}' style='text-align:left'" if column.text else ""
            name, scope = ("th", " scope='row'") if index == 0 else ("td", "")
            shown = pill(text) if column.pill and text else escape(text)
            parts.append(f"<{name}{scope}{kind}>{shown}</{name}>")
        return "".join(parts)

    def to_markdown(self):
        """Table as a Markdown pipe table below its caption."""
        titles = [f"{c.group} {c.title}".strip() for c in self.columns]
        lines = [f"**{self.caption}**", "", "| " + " | ".join(map(escape_markdown, titles)) + " |"]
        lines.append("|" + "|".join(":--" if c.text else "--:" for c in self.columns) + "|")
        lines += ["| " + " | ".join(map(escape_markdown, cells)) + " |" for cells in self.cells()]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    def to_text(self):
        """Table as aligned plain text."""
        grid = [[f"{c.group} {c.title}".strip() for c in self.columns], *self.cells()]
        widths = [max(len(line[i]) for line in grid) for i in range(len(self.columns))]
        place = [str.ljust if column.text else str.rjust for column in self.columns]
        lines = ["  ".join(f(cell, width) for f, cell, width in zip(place, line, widths, strict=True)).rstrip() for line in grid]
        return "\n".join([self.caption, *lines])

    def to_csv(self):
        """Raw values as CSV; headings are keys with units."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.key for column in self.columns])
        for row in self.rows:
            writer.writerow([row.get(column.key) for column in self.columns])
        return stream.getvalue()

    def _repr_mimebundle_(self, **_):
        data = {
            "text/html": self.to_html(),
            "text/markdown": self.to_markdown(),
            "text/plain": self.to_text(),
        }
        return data, {"escher": {"role": "table", "id": self.id}}


def _row_class(row):
    return f" class='{row['class']}'" if row.get("class") else ""


def pill(word):
    """A status word as a coloured pill; the word itself stays readable without colour."""
    return f"<span class='pill pill-{escape(str(word).replace(' ', '_'))}'>{escape(word)}</span>"


def filled(columns, rows, optional):
    """Columns without those named in `optional` that no row has a value for."""
    empty = {key for key in optional if all(row.get(key) in (None, "") for row in rows)}
    return tuple(column for column in columns if column.key not in empty)


def words(value):
    """Text column: empty where there is nothing to say."""
    return "" if value is None else str(value)
