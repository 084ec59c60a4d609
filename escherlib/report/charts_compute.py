"""Charts of family 1: GEMM over size, idle to steady state, workload shapes, peak search, dtypes."""

import math

import altair as alt

from escherlib.report import charts_base as base
from escherlib.report.display import not_measured
from escherlib.report.facts import (
    family_reason,
    join_words,
    number,
    percent,
    rate,
    rate_range,
    reason_of,
    shape_text,
    state,
    time_text,
)
from escherlib.report.theme import BLUE, FILLS, GREEN, GREY, INK, PURPLE, STATES, VERMILLION
from escherlib.report.traces import transient_trace

FAMILY = "01_bf16_compute"
MILLISECONDS = "datum.value >= 1000 ? datum.value/1000 + ' s' : datum.value + ' ms'"


def missing(results, title, prefix, family=FAMILY):
    """Box in place of a chart: reasons of the rows, else of the family."""
    rows = results.rows(family, prefix)
    return not_measured(title, reason_of(rows) if rows else family_reason(results, family))


def _roofs(results):
    from escherlib.judge.roofs import read_roofs

    return read_roofs(results)


def gemm_sweep(results):
    """A2: square GEMM over size, burst and sustained with p10–p90, measured peaks and the rated line."""
    rows, roofs = results.rows(FAMILY, "square/"), _roofs(results)
    points = {name: _square_points(rows, name) for name in ("burst", "sustained")}
    drawn = [p for found in points.values() for p in found]
    if not drawn:
        return missing(results, "GEMM over size", "square/")
    dtype = roofs.peak_dtype or rows[0].get("dtype", default="")
    lines = [
        (roofs.peak_burst_tflops, "burst peak", STATES["burst"].color, None),
        (roofs.peak_sustained_tflops, "sustained peak", STATES["sustained"].color, None),
        (roofs.rated_tflops, "rated", GREY, (4, 4)),
    ]
    domain_y = base.headroom([p["high"] or p["y"] for p in drawn] + [line[0] for line in lines])
    domain_x = base.padded_log([p["x"] for p in drawn], 1.18)
    sizes = sorted({p["x"] for p in drawn})
    x = base.axis_x(domain_x, "size m = n = k", "log2", sizes, "format(datum.value, 'd')")
    y = base.axis_y(domain_y, "TFLOP/s")
    layers, labels = [], []
    for value, name, color, dash in lines:
        if value:
            layers.append(base.level(value, domain_x, x, y, color, dash, 1.2))
            labels.append((value, f"{name} {number(value)}", color))
    for name, found in points.items():
        if found:
            layers += base.series(found, STATES[name], x, y, _sweep_tips())
            labels.append((found[-1]["y"], f"squares, {name}", STATES[name].color))
    layers += base.margin_labels(labels, y, domain_y)
    return base.finish(layers, *_sweep_words(points, roofs, dtype))


def _square_points(rows, name):
    found = []
    for row in rows:
        value, measured = rate(row, name), state(row, name)
        if value:
            low, high = rate_range(row, name)
            size = row.arguments.get("m") or int(row.name.split("/")[1])
            found.append(
                {
                    "x": size,
                    "y": value,
                    "low": low,
                    "high": high,
                    "state": name,
                    "n": measured.get("n"),
                    "time": time_text(measured["median_s"]),
                }
            )
    return sorted(found, key=lambda p: p["x"])


def _sweep_tips():
    return base.tips(
        ("x", "size", "d"), ("state", "state"), ("y", "TFLOP/s", ".1f"), ("time", "median time"), ("n", "n")
    )


def _sweep_words(points, roofs, dtype):
    best = {name: max(found, key=lambda p: p["y"]) for name, found in points.items() if found}
    told = [f"{number(p['y'])} TFLOP/s {name}" for name, p in best.items()]
    where = join_words(f"{name} at {p['x']}³" for name, p in best.items())
    shares = []
    for name, point in best.items():
        share = percent(point["y"], getattr(roofs, f"peak_{name}_tflops"))
        if share:
            shares.append(f"{share:.1f} % of the {name} peak")
    title = f"Square {dtype} GEMM: at best {' and '.join(told)}"
    alt_text = (
        f"Line chart, size on a log axis against TFLOP/s. {title}"
        + (f"; {', '.join(shares)}" if shares else "")
        + f". Best {where}."
    )
    caption = (
        "Median of each size with p10–p90; burst is the first moments from idle, sustained what settles. "
        + (
            f"The best squares ({where}) reach {' and '.join(shares)}."
            if shares
            else "The peak was not measured."
        )
    )
    return title, f"{dtype} GEMM throughput in TFLOP/s over size; higher is better", alt_text, caption


def transient(results):
    """Throughput, clock and power since idle at the peak shape: the chart that explains the two peaks."""
    trace = transient_trace(results)
    if trace is None:
        return missing(results, "From idle to steady state", "transient")
    roofs = _roofs(results)
    domain_x = base.padded_log([p["x"] for p in trace["tflops"]], 1.15)
    panels = [_panel(trace["tflops"], "TFLOP/s", domain_x, _peak_lines(roofs), 150, BLUE)]
    for key, title, color in (("clock_mhz", "clock, MHz", GREEN), ("power_w", "power, W", PURPLE)):
        inside = [p for p in trace[key] if domain_x[0] <= p["x"] <= domain_x[1]]
        if inside:
            panels.append(_panel(inside, title, domain_x, trace["lines"].get(key, []), 80, color))
    panels = [_with_time_axis(panel, index == len(panels) - 1) for index, panel in enumerate(panels)]
    chart = alt.vconcat(*panels, spacing=12).resolve_scale(x="independent", y="independent")
    return base.dress(chart, *_transient_words(trace, roofs, len(panels)))


def _peak_lines(roofs):
    lines = [
        (roofs.peak_burst_tflops, "burst peak", STATES["burst"].color),
        (roofs.peak_sustained_tflops, "sustained peak", STATES["sustained"].color),
    ]
    return [(value, f"{text} {number(value)}", color) for value, text, color in lines if value]


def _panel(points, title, domain_x, lines, height, color):
    values = [p["y"] for p in points] + [value for value, _, _ in lines]
    low, high = min(values), max(values)
    margin = max(0.12 * (high - low), 0.03 * high)  # a flat curve stays flat to the eye
    return {
        "points": points,
        "title": title,
        "domain_x": domain_x,
        "lines": lines,
        "height": height,
        "color": color,
        "domain_y": (max(0, low - margin), high + margin),
    }


def _with_time_axis(panel, last):
    ticks = [
        t
        for t in (1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000)
        if panel["domain_x"][0] <= t <= panel["domain_x"][1]
    ]
    x = base.axis_x(
        panel["domain_x"], "time since idle (log)" if last else None, "log", ticks, MILLISECONDS, labels=last
    )
    y = base.axis_y(panel["domain_y"], panel["title"], tickCount=4 if panel["height"] < 100 else 6)
    layers, labels = [], []
    for value, text, color in panel["lines"]:
        layers.append(base.level(value, panel["domain_x"], x, y, color, (5, 3), 1.2))
        labels.append((value, text, color))
    marks = alt.Chart(base.data(panel["points"])).encode(
        x=x, y=y, tooltip=base.tips(("x", "ms", ".0f"), ("y", panel["title"], ".1f"))
    )
    layers.append(marks.mark_line(color=panel["color"], strokeWidth=2, interpolate="linear"))
    layers.append(marks.mark_point(color=panel["color"], filled=True, size=18))
    layers += base.margin_labels(labels, y, panel["domain_y"], height=panel["height"])
    return alt.layer(*layers).properties(width=base.WIDTH, height=panel["height"])


def _transient_words(trace, roofs, panels):
    first, last = trace["tflops"][0]["y"], trace["settled_tflops"]
    change = percent(last, max(p["y"] for p in trace["tflops"]))
    title = f"From idle the peak GEMM starts at {number(first)} TFLOP/s and settles at {number(last)}"
    evidence = [name for name, key in (("clock", "clock_mhz"), ("power", "power_w")) if trace[key]]
    seen = f" with {' and '.join(evidence)} beside" if evidence else " (no clock or power was sampled)"
    alt_text = (
        f"{panels} line chart(s) against time since idle on a log axis: throughput{seen}. "
        f"It starts at {number(first)}, settles at {number(last)} TFLOP/s: {change:.0f} % of its best window."
    )
    moved = [f"{word} from {number(a)} to {number(b)} {unit}" for word, a, b, unit in trace["moved"]]
    caption = f"The settled state keeps {change:.0f} % of the best window" + (
        f"; {', '.join(moved)}." if moved else "."
    )
    return title, f"Shape {trace['shape']}, windows of {trace['window_ms']:.0f} ms", alt_text, caption


def workload_gemms(results):
    """Workload GEMMs as % of the measured peak of the same state, sustained where it was measured."""
    rows, roofs = results.rows(FAMILY, "workload/"), _roofs(results)
    name, peak = next(
        (
            (s, p)
            for s, p in (("sustained", roofs.peak_sustained_tflops), ("burst", roofs.peak_burst_tflops))
            if p and any(rate(row, s) for row in rows)
        ),
        (None, None),
    )
    if peak is None:
        return missing(results, "Workload GEMMs", "workload/")
    found = []
    for row in rows:
        value = rate(row, name)
        label = row.name.split("/", 1)[1]
        share = percent(value, peak)
        text = (
            f"{share:.0f} % · {number(value)} TFLOP/s"
            if value
            else base.shorten(f"{row.status}: {row.reason or 'no value'}", 72)
        )
        found.append(
            {"name": label, "x": share or 0, "text": text, "color": FILLS["sky"], "shape": shape_text(row)}
        )
    domain = (0, max(104, max(r["x"] for r in found) * 1.04))
    layers, x = base.horizontal_bars(found, domain, f"% of the {name} peak ({number(peak)} TFLOP/s)")
    layers += base.vertical_rule(100, x)
    worst = min((r for r in found if r["x"]), key=lambda r: r["x"])
    every = "Every workload GEMM" if all(r["x"] for r in found) else "Every workload GEMM that was timed"
    title = f"{every} reaches at least {math.floor(worst['x'])} % of the {name} peak"
    if worst["x"] >= 100:
        title = f"{every} reaches the {name} peak"
    lowest = f"the lowest is {worst['name']} with {worst['x']:.0f} %"
    alt_text = f"Bar chart of {len(found)} workload GEMMs as % of the {name} peak; {lowest}."
    caption = f"{worst['name']} ({worst['shape']}) is furthest from the {name} peak with {worst['x']:.1f} %."
    words = (title, f"Share of the measured {name} peak, %", alt_text, caption)
    return base.finish(layers, *words, height=26 * len(found), margin=False)


def search_ranking(results, state_name=None, top=14):
    """Dot plot of the best candidates in one state: search pass, and confirming pass of the finalists.

    `state_name` is sustained or burst; without it sustained, unless only burst was ranked.
    """
    rows = {"search pass": results.row(FAMILY, "search"), "confirmed": results.row(FAMILY, "peak")}
    names = [state_name] if state_name else ["sustained", "burst"]
    candidates, shown = next(((c, n) for n in names if (c := _candidates(rows, n))), (None, None))
    if not candidates:
        return missing(results, "Peak search", "search")
    best = _best_candidates(candidates, top)
    order = list(dict.fromkeys(c["name"] for c in best))
    ends = [v for c in best for v in (c["x"], c["low"], c["high"]) if v]
    margin = 0.06 * (max(ends) - min(ends)) or 0.01 * max(ends)
    names = {
        "title": None,
        "labelLimit": 260,
        "labelColor": INK,
        "grid": True,
        "ticks": False,
        "domain": False,
    }
    y = alt.Y("name:N", sort=order, scale=alt.Scale(domain=order), axis=alt.Axis(**names))
    title = "TFLOP/s (axis does not start at 0)"
    x = base.axis_x((min(ends) - margin, max(ends) + margin), title, grid=True)
    layers = [
        layer
        for kind in CANDIDATE_LOOKS
        for layer in _dots([c for c in best if c["kind"] == kind], kind, x, y)
    ]
    return base.finish(layers, *_search_words(candidates, order, shown), height=22 * len(order), margin=False)


CANDIDATE_LOOKS = {"search pass": (GREY, "circle"), "confirmed": (VERMILLION, "square")}


def _dots(chosen, kind, x, y):
    """Points of one pass with their ranges, if there are any."""
    if not chosen:
        return []
    color, shape = CANDIDATE_LOOKS[kind]
    tooltip = base.tips(("name", "shape, backend"), ("kind", "pass"), ("x", "TFLOP/s", ".1f"))
    marks = alt.Chart(base.data(chosen)).mark_point(color=color, filled=True, shape=shape, size=70)
    layers = [marks.encode(x=x, y=y, tooltip=tooltip)]
    ranged = [c for c in chosen if c["low"] and c["high"]]
    if ranged:
        bars = alt.Chart(base.data(ranged)).mark_rule(color=color, strokeWidth=1.5)
        layers.insert(0, bars.encode(x=alt.X("low:Q", scale=x["scale"]), x2="high:Q", y=y))
    return layers


def _best_candidates(candidates, top):
    """Candidates of the `top` names, by their confirmed value where they have one."""
    rank = {}
    for c in candidates:  # confirmed ones come last and so decide
        rank[c["name"]] = (c["kind"] == "confirmed", c["x"])
    kept = sorted(rank, key=lambda name: rank[name], reverse=True)[:top]
    return sorted((c for c in candidates if c["name"] in kept), key=lambda c: kept.index(c["name"]))


def _candidates(rows, name):
    """Every candidate with a rate in one state: name, TFLOP/s, range where known, and which pass saw it."""
    found = []
    for kind, row in rows.items():
        for entry in row.get("candidates", default=[]) if row is not None and row.ok else []:
            value = entry.get(f"{name}_tflops")
            low, high = entry.get(f"{name}_range_tflops") or (None, None)
            if value:
                label = f"{entry['m']}×{entry['n']}×{entry['k']} · {entry.get('backend') or ''}".rstrip(" ·")
                found.append({"name": label, "x": value, "low": low, "high": high, "kind": kind})
    return found


def _search_words(candidates, order, shown):
    count, confirmed = (
        len({c["name"] for c in candidates}),
        [c for c in candidates if c["kind"] == "confirmed"],
    )
    leader = max(confirmed or candidates, key=lambda c: c["x"])
    title = f"{leader['name']} leads with {number(leader['x'])} TFLOP/s {shown}"
    alt_text = f"Dot plot of the best {len(order)} of {count} candidates of the peak search: {title}."
    squares = (
        "squares the confirming pass, which alone sets the peak"
        if confirmed
        else "no confirming pass was made"
    )
    caption = f"Candidates tried: {count}. Grey dots are the search pass, {squares}."
    return title, f"{shown.capitalize()} throughput by shape m×n×k and backend, TFLOP/s", alt_text, caption


def _why_none(row, name):
    """Why a row has no value in a state: its reason, else the label of the state."""
    if not row.ok:
        return f"{row.status}: {row.reason or 'no reason given'}"
    return row.get("states", name, "label") or "no value"


def dtype_ladder(results):
    """Best throughput of each dtype at one shape; emulated and refused ones say so."""
    rows = results.rows(FAMILY, "dtype/")
    values = {row.name: {name: rate(row, name) for name in ("sustained", "burst")} for row in rows}
    shown = next((s for s in ("sustained", "burst") if any(v[s] for v in values.values())), None)
    if shown is None:
        return missing(results, "Dtype ladder", "dtype/")
    found = []
    for row in rows:
        value = values[row.name][shown]
        note = " · emulated" if row.get("emulated") else ""
        text = f"{number(value)} TFLOP/s{note}" if value else base.shorten(_why_none(row, shown), 72)
        color = FILLS["orange"] if row.get("emulated") else FILLS["sky"]
        found.append({"name": row.name.split("/", 1)[1], "x": value or 0, "text": text, "color": color})
    native = [r for r in found if r["x"] and "emulated" not in r["text"]]
    best, most = max(native or found, key=lambda r: r["x"]), max(r["x"] for r in found)
    layers, _ = base.horizontal_bars(found, base.headroom([most], 0.05), "TFLOP/s")
    title = f"{best['name']} is the fastest dtype with {number(best['x'])} TFLOP/s {shown}"
    told = ", ".join(f"{r['name']} {r['text']}" for r in found)
    caption = f"One shape, casts outside the timed region, {shown} state: {told}."
    words = (title, f"GEMM throughput by dtype, {shown}, TFLOP/s", f"Bar chart. {caption}", caption)
    return base.finish(layers, *words, height=26 * len(found), margin=False)
