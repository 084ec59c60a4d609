"""Building blocks of charts: series with range bars, labelled reference lines, labels that do not overlap.

A chart here is an Altair layer with explicit domains. It carries its own alternative text (`description`) and
caption (`usermeta.caption`), both generated from the numbers that are drawn.
"""

import math

import altair as alt

from escherlib.report.theme import FONT, GREY, INK, MUTED, TEXT

WIDTH, HEIGHT = 500, 290  # of the plot where labels stand in the margin
TOTAL_WIDTH = 680  # of the whole chart where nothing stands outside the axes
LABEL_GAP = 15  # pixels between two labels in the margin
SIZE_LABELS = (
    "datum.value >= 1073741824 ? datum.value/1073741824 + ' GiB' : datum.value >= 1048576 ? "
    "datum.value/1048576 + ' MiB' : datum.value/1024 + ' KiB'"
)


def data(rows):
    """Rows (list of dicts) as inline data."""
    return alt.Data(values=list(rows))


def spread(positions, gap, low, high):
    """Move positions as little as possible until they are `gap` apart and within low…high; same order."""
    groups = []
    for index in sorted(range(len(positions)), key=lambda i: positions[i]):
        groups.append([[index], positions[index]])
        while len(groups) > 1 and _top(groups[-2], gap, low, high) + gap > _bottom(
            groups[-1], gap, low, high
        ):
            members, centre = groups.pop()
            joined = groups[-1]
            total = len(joined[0]) + len(members)
            joined[1] = (joined[1] * len(joined[0]) + centre * len(members)) / total
            joined[0] += members
    placed = [0.0] * len(positions)
    for group in groups:
        for rank, index in enumerate(group[0]):
            placed[index] = _bottom(group, gap, low, high) + rank * gap
    return placed


def _bottom(group, gap, low, high):
    extent = (len(group[0]) - 1) * gap
    return max(low, min(high - extent, group[1] - extent / 2))


def _top(group, gap, low, high):
    return _bottom(group, gap, low, high) + (len(group[0]) - 1) * gap


def axis_x(domain, title, kind="linear", values=None, label=None, **axis):
    """Horizontal position encoding on an explicit domain. `kind` is linear, log (base 10) or log2."""
    options = {"type": "log", "base": 2} if kind == "log2" else {"type": kind}
    axis = {"title": title, "grid": kind == "log", "format": "~f"} | axis
    if values is not None:
        axis["values"] = list(values)
    if label:
        axis["labelExpr"] = label
    return alt.X("x:Q", scale=alt.Scale(domain=list(domain), nice=False, **options), axis=alt.Axis(**axis))


def axis_y(domain, title, kind="linear", values=None, **axis):
    """Vertical position encoding on an explicit domain."""
    if values is not None:
        axis["values"] = list(values)
    scale = alt.Scale(domain=list(domain), nice=False, type=kind)
    return alt.Y("y:Q", scale=scale, axis=alt.Axis(title=title, **{"format": "~f"} | axis))


def series(rows, style, x, y, tooltip, line=True):
    """One series: range bars (`low`–`high` where known), a dashed line, points with its shape."""
    base = alt.Chart(data(rows)).encode(x=x, y=y, tooltip=tooltip)
    layers = []
    ranged = [row for row in rows if row.get("low") is not None and row.get("high") is not None]
    if ranged:
        bars = alt.Chart(data(ranged)).mark_rule(color=style.color, strokeWidth=1.5, opacity=0.75)
        layers.append(bars.encode(x=x, y=alt.Y("low:Q", scale=y["scale"]), y2="high:Q"))
    if line:
        layers.append(base.mark_line(color=style.color, strokeWidth=2, strokeDash=list(style.dash)))
    layers.append(base.mark_point(shape=style.shape, color=style.color, filled=True))
    return layers


def level(value, domain_x, x, y, color=GREY, dash=None, width=1.5):
    """Horizontal reference line across the plot."""
    ends = [{"x": domain_x[0], "y": value}, {"x": domain_x[1], "y": value}]
    mark = {"color": color, "strokeWidth": width} | ({"strokeDash": list(dash)} if dash else {})
    return alt.Chart(data(ends)).mark_line(**mark).encode(x=x, y=y)


def margin_labels(items, y, domain, width=WIDTH, height=HEIGHT):
    """Labels right of the plot, each beside its value. `items`: [(value, text, colour)]; returns layers.

    Labels that would overlap move apart, and a thin leader joins each to its value.
    """
    log = y["scale"]["type"] == "log"
    items = [item for item in items if item[0] is not None]
    wanted = [_pixel(value, domain, height, log) for value, _, _ in items]
    placed = spread(wanted, LABEL_GAP, 4, height - 2)
    rows = [
        {
            "y": value,
            "to": _value(at, domain, height, log),
            "text": text,
            "line": color,
            "ink": TEXT.get(color, color),
        }
        for (value, text, color), at in zip(items, placed, strict=True)
    ]
    moved = [row for row, at, want in zip(rows, placed, wanted, strict=True) if abs(at - want) > 3]
    label = alt.Chart(data(rows)).mark_text(align="left", baseline="middle", font=FONT, fontSize=11)
    at_label = alt.Y("to:Q", scale=y["scale"])
    ink = alt.Color("ink:N", scale=None)
    layers = [label.encode(x=alt.value(width + 12), y=at_label, text="text:N", color=ink)]
    if moved:
        leader = alt.Chart(data(moved)).mark_rule(strokeWidth=0.8, opacity=0.7)
        ends = {"x": alt.value(width + 1), "x2": alt.value(width + 9), "y": y, "y2": "to:Q"}
        layers.append(leader.encode(**ends, color=alt.Color("line:N", scale=None)))
    return layers


def _pixel(value, domain, height, log):
    low, high = (math.log(v) if log else v for v in domain)
    share = ((math.log(value) if log else value) - low) / (high - low)
    return height * (1 - min(1, max(0, share)))


def _value(pixel, domain, height, log):
    low, high = (math.log(v) if log else v for v in domain)
    at = low + (1 - pixel / height) * (high - low)
    return math.exp(at) if log else at


def headroom(values, share=0.08, low=0.0):
    """Domain from `low` to a little above the largest value."""
    top = max((v for v in values if v is not None), default=1.0)
    return (low, top * (1 + share))


def powers_of_two(low, high, every=1):
    """Powers of two between two positive numbers, every n-th of them."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    return [2**exponent for exponent in range(first, last + 1, every)]


def padded_log(values, by=1.12):
    """Domain around positive values for a log axis."""
    return (min(values) / by, max(values) * by)


def tips(*fields):
    """Tooltip entries from (field, title) or (field, title, format)."""
    found = []
    for field, title, *form in fields:
        kind = ":Q" if form else ":N"
        found.append(alt.Tooltip(f"{field}{kind}", title=title, **({"format": form[0]} if form else {})))
    return found


def finish(layers, title, subtitle, alt_text, caption, height=HEIGHT, margin=True):
    """Layers as one chart with title (the finding), subtitle (quantity and unit), alt text and caption.

    `margin`: labels stand right of the plot; otherwise axes and plot together fill the chart's width.
    """
    chart = alt.layer(*layers).properties(width=WIDTH if margin else TOTAL_WIDTH, height=height)
    if not margin:
        chart = chart.properties(autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    return dress(chart, title, subtitle, alt_text, caption)


def dress(chart, title, subtitle, alt_text, caption):
    """Add title, alternative text and caption to any chart."""
    heading = alt.TitleParams(text=wrapped(title, 74), subtitle=wrapped(subtitle, 92))
    return chart.properties(title=heading, description=alt_text, usermeta={"caption": caption})


def wrapped(text, width):
    """Text as lines of at most `width` characters, one string where it fits."""
    import textwrap

    lines = textwrap.wrap(text, width)
    return lines if len(lines) > 1 else text


def horizontal_bars(rows, domain, title, step=26):
    """Layers of horizontal bars with their texts: rows with `name`, `x`, `text`, `color`, and tooltip fields.

    Bars are fills, so light colours are allowed with an outline. The text of a long bar stands inside it, so
    that it crosses no line; that of a short or missing one to its right.
    """
    order = [row["name"] for row in rows]
    axis = alt.Axis(title=None, labelLimit=230, labelColor=INK, ticks=False, domain=False)
    y = alt.Y("name:N", sort=order, scale=alt.Scale(domain=order), axis=axis)
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=list(domain), nice=False),
        axis=alt.Axis(title=title, format="~f", tickCount=8),
    )
    tooltip = tips(("name", "row"), ("text", "value"))
    bars = alt.Chart(data(rows)).mark_bar(stroke=INK, strokeWidth=0.5, height=step * 0.64)
    layers = [bars.encode(y=y, x=x, color=alt.Color("color:N", scale=None), tooltip=tooltip)]
    inside = [row for row in rows if row["x"] > 0.45 * domain[1]]
    for chosen, align, dx in ((inside, "right", -7), ([row for row in rows if row not in inside], "left", 6)):
        if chosen:
            label = alt.Chart(data(chosen)).mark_text(
                align=align, baseline="middle", dx=dx, fontSize=11, color=INK
            )
            layers.append(label.encode(y=y, x=x, text="text:N"))
    return layers, x


def vertical_rule(value, x, text=None, dy=-3):
    """Dashed vertical rule with a label above the plot."""
    base = alt.Chart(data([{"x": value, "text": text or ""}]))
    layers = [base.mark_rule(color=INK, strokeDash=[4, 3]).encode(x=x)]
    if text:
        label = base.mark_text(align="center", baseline="bottom", fontSize=11, color=MUTED)
        layers.append(label.encode(x=x, y=alt.value(dy), text="text:N"))
    return layers


def shorten(text, width):
    """Text cut at a word end, with an ellipsis where something was left out."""
    import textwrap

    return textwrap.shorten(str(text), width, placeholder=" …")
