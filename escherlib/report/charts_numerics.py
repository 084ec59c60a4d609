"""Charts of family 9: scaled error over K beside its bound, and how errors are spread in ulp."""

import math

import altair as alt

from escherlib.report import charts_base as base
from escherlib.report.charts_compute import missing
from escherlib.report.facts import join_words
from escherlib.report.tables_numerics import FAMILY, short
from escherlib.report.theme import FILLS, GREY, INK, MUTED, SERIES

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 285, 120, 2
DECADES = "datum.value >= 1000 ? format(datum.value, '~s') : format(datum.value, '~f')"
HALF_ULP_LOG2 = -1


def error_over_k(results):
    """Largest scaled error over K, a line a dtype, the bound at 1, and the least error of the wrong products above it."""
    found = {}
    for row in results.rows(FAMILY, "error/"):
        _, dtype, k = row.name.split("/")
        if row.ok and row.get("correct", "error"):
            found.setdefault(dtype, []).append(_point(row, dtype, int(k)))
    if not found:
        return missing(results, "Scaled error over K", "error/", FAMILY)
    points = [point for line in found.values() for point in line]
    wrong = [point | {"y": point["wrong"]} for point in points if point["wrong"]]
    values = [p["y"] for p in points + wrong] + [1.0, 2.0]
    domain_y, sizes = base.padded_log(values, 2.0), sorted({p["x"] for p in points})
    domain_x = base.padded_log(sizes, 1.25)
    x = base.axis_x(domain_x, "K, products summed for each result", "log2", sizes, "format(datum.value, 'd')")
    decades = [10.0**e for e in range(math.ceil(math.log10(domain_y[0])), math.floor(math.log10(domain_y[1])) + 1)]
    y = base.axis_y(domain_y, "scaled error (log)", "log", decades, labelExpr=DECADES)
    fields = (("dtype", "dtype"), ("x", "K", "d"), ("y", "scaled error", ".3g"), ("bound", "bound", "d"), ("kernel", "wrong product"))
    tooltip = base.tips(*fields)
    layers = [base.level(1.0, domain_x, x, y, INK, None, 2), base.level(2.0, domain_x, x, y, INK, (4, 4), 1)]
    labels = [(1.0, "bound", INK), (2.0, "bound where rounding rules", INK)]
    for style, (dtype, line) in zip(SERIES, found.items(), strict=False):
        line.sort(key=lambda p: p["x"])
        layers += base.series(line, style, x, y, tooltip)
        labels.append((line[-1]["y"], dtype, style.color))
    if wrong:
        marks = alt.Chart(base.data(wrong)).mark_point(shape="cross", color=GREY, filled=False, size=45, angle=45)
        layers.append(marks.encode(x=x, y=y, tooltip=tooltip))
        labels.append((max((p["y"] for p in wrong if p["x"] == sizes[-1]), default=None), "wrong on purpose", GREY))
    layers += base.margin_labels(labels, y, domain_y)
    return base.finish(layers, *_error_words(points, wrong))


def _point(row, dtype, k):
    """Scaled error of one row, and the wrong product that comes nearest to passing."""
    entries = row.get("wrong_kernels", default={}).items()
    wrong = {name: entry["error"] for name, entry in entries if entry.get("error")}
    nearest = min(wrong, key=wrong.get, default=None)
    error, bound = row.get("correct", "error"), row.get("correct", "bound", default=1.0)
    kernel = (nearest or "").replace("_", " ")
    return {"x": k, "y": error, "dtype": dtype, "bound": bound, "wrong": wrong.get(nearest), "kernel": kernel}


def _error_words(points, wrong):
    top = max(points, key=lambda p: p["y"] / p["bound"])
    outside = [p for p in points if p["y"] > p["bound"]]
    name = f"{top['dtype']} at K = {top['x']}"
    title = f"Every product stays within its bound; the nearest is {name} with {short(top['y'])} of {top['bound']:g}"
    if outside:
        title = f"{len(outside)} of {len(points)} products exceed their bound, {name} most with {short(top['y'])} of {top['bound']:g}"
    dtypes = join_words(dict.fromkeys(p["dtype"] for p in points))
    caption = "Largest error of all elements, scaled by what rounding and accumulation may cost."
    told = ""
    if wrong:
        least = min(wrong, key=lambda p: p["y"] / p["bound"])
        told = f" Of the products that are wrong on purpose (crosses) the nearest to passing, {least['kernel']} in {least['dtype']}"
        told += f" at K = {least['x']}, has {short(least['y'])}."
    alt_text = f"Line chart of scaled error over K on log axes for {dtypes}, the bound at 1. {title}.{told}"
    return title, "Error ÷ (u·|ref| + γ·Σ|a||b|), no unit; below the line is right", alt_text, caption + told


def ulp_histogram(results):
    """How errors are spread over octaves of an ulp: a panel a dtype, at the deepest K it was measured at."""
    deepest = {}
    for row in results.rows(FAMILY, "error/"):
        _, dtype, k = row.name.split("/")
        if row.ok and sum(row.get("ulp", "histogram", "counts", default=[])):
            deepest[dtype] = max(deepest.get(dtype, (0, row)), (int(k), row), key=lambda entry: entry[0])
    if not deepest:
        return missing(results, "Errors in ulp", "error/", FAMILY)
    shares = {dtype: _shares(row) for dtype, (_, row) in deepest.items()}
    last = max(bar["x"] for bars in shares.values() for bar in bars if bar["y"] > 0) + 1
    top = max(bar["y"] for bars in shares.values() for bar in bars)
    shares = {dtype: [bar for bar in bars if bar["x"] < last] for dtype, bars in shares.items()}
    panels = [_panel(f"{dtype}, K = {deepest[dtype][0]}", bars, top, last) for dtype, bars in shares.items()]
    chart = alt.concat(*panels, columns=COLUMNS, spacing=18).resolve_scale(x="independent", y="independent")
    return base.dress(chart, *_ulp_words(deepest))


def _shares(row):
    """Bars of one histogram: `x` and `x2` log2 of the bin's ends, `y` its share of all results in %."""
    counts, edges = row.get("ulp", "histogram", "counts"), row.get("ulp", "histogram", "edges_log2")
    return [{"x": edges[i], "x2": edges[i + 1], "y": 100 * count / sum(counts)} for i, count in enumerate(counts)]


def _panel(title, bars, top, last):
    first = bars[0]["x"]
    ticks = [exponent for exponent in range(first, last + 1) if (exponent - HALF_ULP_LOG2) % 5 == 0 or exponent == HALF_ULP_LOG2]
    label = "datum.value < 0 ? '1/' + format(pow(2, -datum.value), 'd') : format(pow(2, datum.value), 'd')"
    x = base.axis_x((first, last), "error, ulp (log)", values=ticks, label=label, grid=False)
    y = base.axis_y((0, 1.08 * top), "% of results", tickCount=4)
    tooltip = base.tips(("y", "% of results", ".2f"))
    marks = alt.Chart(base.data(bars)).mark_rect(color=FILLS["sky"], stroke=INK, strokeWidth=0.5)
    layers = [marks.encode(x=x, x2="x2:Q", y=y, y2=alt.datum(0), tooltip=tooltip), *base.vertical_rule(HALF_ULP_LOG2, x)]
    heading = alt.TitleParams(text=title, fontSize=11, fontWeight="normal", color=MUTED, offset=4, frame="group")
    return alt.layer(*layers).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title=heading)


def _ulp_words(deepest):
    medians = {dtype: row.get("ulp", "quantiles", "p50") for dtype, (_, row) in deepest.items()}
    largest = {dtype: row.get("ulp", "max") for dtype, (_, row) in deepest.items()}
    best, worst = min(medians, key=medians.get), max(medians, key=medians.get)
    title = f"Median error: {short(medians[best])} ulp in {best}"
    title += f", {short(medians[worst])} in {worst}" if best != worst else ""
    told = "; ".join(f"{dtype} median {short(medians[dtype])}, largest {short(largest[dtype])}" for dtype in medians)
    caption = "Left of the dashed line, at half an ulp, no result of that format lies nearer to the exact one; the first and the last bin "
    caption += "hold what lies beyond. Results near zero have a tiny ulp, so their errors in ulp are large whatever sums them."
    alt_text = f"{len(deepest)} histograms of errors in ulp: {told}."
    return title, "Share of results by error in units of the output's last place", alt_text, caption


__all__ = ["error_over_k", "ulp_histogram"]
