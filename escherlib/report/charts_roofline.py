"""The roofline: measured and rated roofs of this run, and where its rows lie under them."""

import math

import altair as alt

from escherlib.accounting.roofline import attainable, ridge
from escherlib.report import charts_base as base
from escherlib.report.display import not_measured
from escherlib.report.facts import family_title, join_words, number, percent, rate, sentence
from escherlib.report.theme import BLUE, GREY, INK, MUTED, STATES, VERMILLION

# Shape tells the kind of row, colour its state.
GROUPS = {
    "01_bf16_compute": (
        ("square/", "squares", "circle"),
        ("workload/", "workload GEMMs", "diamond"),
        ("skew/", "skewed", "triangle-up"),
    ),
    "02_memory_bandwidth": (
        ("add/", "add", "square"),
        ("axpy/", "axpy", "diamond"),
        ("sum/", "sum", "cross"),
    ),
    "04_workload_ops": (
        ("op/optimized/", "optimized path", "diamond"),
        ("op/shared/", "both paths", "square"),
        ("op/default/", "default path", "triangle-up"),
    ),
    "05_e2e_mfu": (("e2e/optimized/", "optimized path", "diamond"), ("e2e/default/", "default path", "triangle-up")),
}
STREAM_FLOP = {"add": 1, "axpy": 2, "sum": 1}  # FLOP an element; a copy has none and no place on a log axis


def roofline(results, family=None):
    """Log–log roofline with the rows of `family` (default: of every family that has FLOP and bytes).

    x is algorithmic FLOP/byte, y TFLOP/s. Measured roofs are solid, rated ones dashed.
    """
    from escherlib.judge.roofs import read_roofs

    roofs = read_roofs(results)
    where = family_title(results, family) if family else "the rows of this run"
    slopes = roofs.memory_gb_s or roofs.rated_memory_gb_s
    flats = roofs.peak_sustained_tflops or roofs.rated_tflops
    if not (slopes and flats):
        return not_measured("Roofline", f"this run has not measured {_lacking(roofs)}", _redraw(family))
    points = [p for name in ([family] if family else GROUPS) for p in _points(results, name)]
    lines = _roof_lines(roofs)
    domain_x, domain_y = _domains(points, lines, ridge_of(roofs)[0])
    x = base.axis_x(
        domain_x, "FLOP per byte (algorithmic)", "log", _decades(domain_x), "format(datum.value, '~g')"
    )
    y = base.axis_y(domain_y, "TFLOP/s", "log", _decades(domain_y), labelExpr="format(datum.value, '~g')")
    layers, labels = [], []
    for line in lines:
        layers += _roof(line, domain_x, domain_y, x, y)
        if line["slope"]:
            labels.append((line["value"], f"{line['name']} {number(line['value'])}", line["color"]))
    layers += _ridge(roofs, domain_y, x, y) + _marks(points, x, y)
    layers += base.margin_labels(labels, y, domain_y, height=320)
    chart = base.finish(layers, *_words(points, roofs, where), height=320)
    if _lacking(roofs):  # a report may know more by then
        chart = chart.properties(usermeta=chart.usermeta | {"redraw": _redraw(family)})
    return chart


def _redraw(family):
    return {"chart": "roofline", "family": family}


def _lacking(roofs):
    """Measured roofs that this run lacks, with the command that gives them; empty where it has both."""
    lacks = []
    if not roofs.peak_sustained_tflops:
        lacks.append("the compute roof (run TESTCASE=compute)")
    if not roofs.memory_gb_s:
        lacks.append("the memory roof (run TESTCASE=bandwidth)")
    return join_words(lacks)


def _points(results, family):
    found = []
    for prefix, label, shape in GROUPS.get(family, ()):
        for row in results.rows(family, prefix):
            flop, moved = _flop(row), row.get("bytes")
            name, value = _best_state(row, flop)
            if flop and moved and value:
                found.append(
                    {
                        "x": flop / moved,
                        "y": value,
                        "row": row.name,
                        "group": label,
                        "shape": shape,
                        "state": name,
                        "color": STATES[name].color,
                    }
                )
    return found


def _flop(row):
    """FLOP of one call: the record's own, or counted for a stream."""
    counted = STREAM_FLOP.get(row.name.split("/")[0], 0) * row.get("elements", default=0)
    return row.get("flop") or counted or None


def _best_state(row, flop):
    for name in ("sustained", "cold", "burst", "hot"):
        value = rate(row, name)
        if value is None and flop and rate(row, name, "gb_s"):
            value = flop / row.result["states"][name]["median_s"] / 1e12
        if value:
            return name, value
    return None, None


def _roof_lines(roofs):
    """Known slopes (GB/s) and flats (TFLOP/s) with name, colour, dash. Flats begin at their slope."""
    measured, rated = roofs.memory_gb_s, roofs.rated_memory_gb_s
    wanted = [
        (measured, "memory", INK, None, None),
        (rated, "memory, rated", GREY, (4, 4), None),
        (roofs.peak_sustained_tflops, "sustained peak", VERMILLION, None, measured or rated),
        (roofs.peak_burst_tflops, "burst peak", BLUE, None, measured or rated),
        (roofs.rated_tflops, "rated", GREY, (4, 4), rated or measured),
    ]
    lines = [
        {"value": value, "name": name, "color": color, "dash": dash, "slope": slope}
        for value, name, color, dash, slope in wanted
        if value
    ]
    for line in lines:  # a slope ends where the highest flat of its own kind begins
        flats = [
            other["value"] for other in lines if other["slope"] and bool(other["dash"]) == bool(line["dash"])
        ]
        line["end"] = max(flats or [other["value"] for other in lines if other["slope"]])
    return lines


def _domains(points, lines, ridge):
    """Domains that hold every point and the ridge, in whole decades where that wastes little."""
    tops = [line["value"] for line in lines if line["slope"]]
    slope = max(line["value"] for line in lines if not line["slope"])
    knee = ridge or max(tops) * 1e3 / slope
    low_x = min([p["x"] for p in points] + [knee / 30]) / 1.5
    high_x = max([p["x"] for p in points] + [knee * 12]) * 1.5
    low_y = min([p["y"] for p in points] + [slope * 1e-3 * low_x]) / 1.3
    return (low_x, high_x), (low_y, max(max(tops) * 1.8, *(p["y"] * 1.3 for p in points), 0))


def _decades(domain):
    low, high = math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1]))
    found = [10.0**e for e in range(low, high + 1) if domain[0] <= 10.0**e <= domain[1]]
    if len(found) < 3:
        found = sorted(
            m * 10.0**e
            for e in range(low, high + 1)
            for m in (1, 2, 5)
            if domain[0] <= m * 10.0**e <= domain[1]
        )
    return found


def _roof(line, domain_x, domain_y, x, y):
    """One roof as a line; slopes carry their label along the line, flats in the margin."""
    mark = {"color": line["color"], "strokeWidth": 1.8} | (
        {"strokeDash": list(line["dash"])} if line["dash"] else {}
    )
    if line["slope"]:
        start = max(domain_x[0], line["value"] / (line["slope"] * 1e-3))
        ends = [{"x": start, "y": line["value"]}, {"x": domain_x[1], "y": line["value"]}]
        return [alt.Chart(base.data(ends)).mark_line(**mark).encode(x=x, y=y)]
    per_flop = line["value"] * 1e-3
    stop = min(domain_x[1], line["end"] / per_flop)
    ends = [{"x": domain_x[0], "y": domain_x[0] * per_flop}, {"x": stop, "y": stop * per_flop}]
    return [
        alt.Chart(base.data(ends)).mark_line(**mark).encode(x=x, y=y),
        _slope_label(line, domain_x, domain_y, x, y),
    ]


def _slope_label(line, domain_x, domain_y, x, y):
    decades = (math.log10(domain_x[1] / domain_x[0]), math.log10(domain_y[1] / domain_y[0]))
    angle = -math.degrees(math.atan((320 / decades[1]) / (base.WIDTH / decades[0])))
    share = 0.16 if not line["dash"] else 0.30
    at = domain_x[0] * (domain_x[1] / domain_x[0]) ** share
    below = line["dash"] is None
    text = f"{line['name']} {number(line['value'])} GB/s"
    mark = alt.Chart(base.data([{"x": at, "y": at * line["value"] * 1e-3, "text": text}]))
    return mark.mark_text(
        angle=angle % 360,
        align="left",
        baseline="top" if below else "bottom",
        dy=4 if below else -4,
        fontSize=11,
        color=INK if below else MUTED,
    ).encode(x=x, y=y, text="text:N")


def ridge_of(roofs):
    """(FLOP/byte, word before it): the measured ridge, else the rated one, else (None, "")."""
    if roofs.ridge_flop_per_byte:
        return roofs.ridge_flop_per_byte, ""
    if roofs.rated_tflops and roofs.rated_memory_gb_s:
        return ridge(roofs.rated_tflops, roofs.rated_memory_gb_s), "rated "
    return None, ""


def _ridge(roofs, domain_y, x, y):
    value, word = ridge_of(roofs)
    if value is None:
        return []
    text = f"{word}ridge {number(value)} FLOP/byte"
    at = alt.Chart(base.data([{"x": value, "y": domain_y[0], "text": text}]))
    label = at.mark_text(align="left", baseline="bottom", dx=5, dy=-4, fontSize=11, color=MUTED)
    return [at.mark_rule(color=MUTED, strokeDash=[2, 3]).encode(x=x), label.encode(x=x, y=y, text="text:N")]


def _marks(points, x, y):
    """All rows as points: shape by kind of row, colour by state, both with a legend below."""
    if not points:
        return []
    shapes = {p["group"]: p["shape"] for p in points}
    states = list(dict.fromkeys(p["state"] for p in points))
    legend = {"orient": "bottom", "title": None, "symbolFillColor": GREY, "symbolStrokeColor": GREY}
    shape = alt.Shape(
        "group:N",
        scale=alt.Scale(domain=list(shapes), range=list(shapes.values())),
        legend=alt.Legend(**legend),
    )
    color = alt.Color(
        "state:N",
        scale=alt.Scale(domain=states, range=[STATES[s].color for s in states]),
        legend=alt.Legend(orient="bottom", title=None, symbolType="circle"),
    )
    tooltip = base.tips(
        ("row", "row"), ("state", "state"), ("x", "FLOP/byte", ".3~g"), ("y", "TFLOP/s", ".3~g")
    )
    marks = alt.Chart(base.data(points)).mark_point(filled=True, size=60, opacity=1)
    return [marks.encode(x=x, y=y, shape=shape, color=color, tooltip=tooltip)]


def _words(points, roofs, where):
    knee, word = ridge_of(roofs)
    title = f"{sentence(where)[:-1]} on the roofline" if points else "The roofs of this device"
    title += f": the {word}ridge lies at {number(knee)} FLOP/byte" if knee else ""
    shares = [(percent(p["y"], under_roofs(p["x"], roofs)), p) for p in points]
    shares = [(share, p) for share, p in shares if share is not None]
    told = f" Not measured when this was drawn: {_lacking(roofs)}." if _lacking(roofs) else ""
    if shares:
        share, point = min(shares, key=lambda item: item[0])
        told = f" Furthest below its roof is {point['row']} with {share:.0f} % (sustained roofs)."
    lead = f"{sentence(where)[:-1]}; bytes are the algorithmic minimum. " if points else ""
    caption = f"{lead}Solid roofs are measured, dashed ones rated.{told}"
    alt_text = f"Roofline, log–log, FLOP per byte against TFLOP/s, {where}, {len(points)} rows.{told}"
    return title, "Attainable throughput over arithmetic intensity, TFLOP/s; both axes log", alt_text, caption


def under_roofs(flop_per_byte, roofs):
    """TFLOP/s under the measured sustained roofs, or None where one is missing."""
    if not roofs.memory_gb_s or not roofs.peak_sustained_tflops:
        return None
    return attainable(flop_per_byte, roofs.peak_sustained_tflops, roofs.memory_gb_s)


__all__ = ["roofline"]
