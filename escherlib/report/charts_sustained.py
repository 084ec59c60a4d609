"""Charts of family 7: throughput, clock, power and temperature on one time line; recovery; throughput against clock."""

import altair as alt

from escherlib.judge.sustained import recovery_points
from escherlib.report import charts_base as base
from escherlib.report.display import not_measured
from escherlib.report.facts import number, percent
from escherlib.report.tables_sustained import missing, read
from escherlib.report.theme import BLUE, GREEN, GREY, INK, PURPLE, VERMILLION
from escherlib.report.traces import transient_trace

SENSORS = (("clock_mhz", "clock, MHz", GREEN), ("power_w", "power, W", PURPLE), ("temperature_c", "temperature, °C", VERMILLION))
POINTS = 240  # windows drawn: more would only thicken the line


def timeline(results):
    """Throughput of every window since rest, clock, power and temperature below it, on one time axis."""
    hold, roofs, _ = read(results)
    if hold is None:
        return missing(results, "The long run")
    windows = hold.windows[:: -(-len(hold.windows) // POINTS)]
    domain = (min(w.at_s for w in windows), max(w.at_s + w.length_s for w in windows))
    rates = [{"x": w.at_s + w.length_s / 2, "y": hold.tflops(w.call_s)} for w in windows]
    peak = roofs.sustained.value
    lines = [(peak, f"sustained peak {number(peak)}", GREY)] if peak else []
    panels = [("TFLOP/s", rates, lines, BLUE, 150)]
    for key, title, color in SENSORS:
        points = [{"x": w.at_s + w.length_s / 2, "y": getattr(w, key)} for w in windows if getattr(w, key) is not None]
        cap = next((w.power_limit_w for w in windows if w.power_limit_w), None) if key == "power_w" else None
        if points:
            panels.append((title, points, [(cap, f"limit {number(cap)}", GREY)] if cap else [], color, 80))
    drawn = [_panel(*panel, domain, last=index == len(panels) - 1) for index, panel in enumerate(panels)]
    chart = alt.vconcat(*drawn, spacing=12).resolve_scale(x="independent", y="independent")
    return base.dress(chart, *_timeline_words(hold, len(panels)))


def _panel(title, points, lines, color, height, domain, last):
    values = [p["y"] for p in points] + [value for value, _, _ in lines]
    margin = max(0.12 * (max(values) - min(values)), 0.02 * max(values))
    domain_y = (max(0, min(values) - margin), max(values) + margin)
    x = base.axis_x(domain, "seconds since settled" if last else None, labels=last, tickCount=8)
    y = base.axis_y(domain_y, title, tickCount=4 if height < 100 else 6)
    zero = alt.Chart(base.data([{"x": 0}])).mark_rule(color=INK, strokeDash=[3, 3], strokeWidth=0.8).encode(x=x)
    marks = alt.Chart(base.data(points)).encode(x=x, y=y, tooltip=base.tips(("x", "s", ".1f"), ("y", title, ".4~g")))
    layers = [zero, *(base.level(value, domain, x, y, shade, (5, 3), 1.2) for value, _, shade in lines)]
    layers += [marks.mark_line(color=color, strokeWidth=1.6), marks.mark_point(color=color, filled=True, size=12)]
    layers += base.margin_labels(lines, y, domain_y, height=height)
    return alt.layer(*layers).properties(width=base.WIDTH, height=height)


def _timeline_words(hold, panels):
    held = hold.phases["held"]
    rate = hold.tflops(held.call_s)
    title = f"Held {number(rate)} TFLOP/s for {hold.held_s:.0f} s, drifting by {100 * hold.drift_share:+.1f} %"
    seen = [f"{held.clock_mhz:.0f} MHz"] if held.clock_mhz else []
    seen += [f"{held.power_w:.0f} W"] if held.power_w else []
    beside = f" at {', '.join(seen)}" if seen else "; no clock or power was read"
    caption = f"Windows since rest; the dashed line is where the device had settled. Limited by: {hold.limit}{beside}."
    what = "chunks of the stack" if hold.row.endswith("stack") else "FFN forwards"
    return title, f"{what[0].upper()}{what[1:]}, median of each window", f"{panels} line chart(s) against time. {title}. {caption}", caption


def recovery(results):
    """Speed after rest against the length of the rest, between the settled speed and the burst peak."""
    points = recovery_points(results)
    if not points:
        return missing(results, "Recovery", "recovery")
    rows = [{"x": 1e3 * p["idle_s"], "y": p["tflops"]} for p in points]
    before = sorted(p["before_tflops"] for p in points)[len(points) // 2]
    levels = [(before, f"before rest {number(before)}", GREY)]
    domain_x = base.padded_log([row["x"] for row in rows], 1.3)
    values = [row["y"] for row in rows] + [before]
    margin = max(0.15 * (max(values) - min(values)), 0.02 * max(values))
    domain_y = (min(values) - margin, max(values) + margin)
    x = base.axis_x(domain_x, "rest before the work, ms (log)", "log", [row["x"] for row in rows], "format(datum.value, '~g')")
    y = base.axis_y(domain_y, "TFLOP/s", tickCount=6)
    marks = alt.Chart(base.data(rows)).encode(x=x, y=y, tooltip=base.tips(("x", "ms", "~g"), ("y", "TFLOP/s", ".4~g")))
    layers = [base.level(value, domain_x, x, y, shade, (5, 3), 1.2) for value, _, shade in levels]
    layers += [marks.mark_line(color=BLUE, strokeWidth=2), marks.mark_point(color=BLUE, filled=True, size=45)]
    layers += base.margin_labels([*levels, (rows[-1]["y"], f"after {number(rows[-1]['x'])} ms", BLUE)], y, domain_y, height=220)
    gain = percent(points[-1]["tflops"], points[-1]["before_tflops"]) - 100
    title = f"After {number(1e3 * points[-1]['idle_s'])} ms of rest: {gain:+.1f} % throughput against before it"
    caption = "First calls after rest, each point after the same stretch of work; the dashed line is the speed before the rest."
    return base.finish(layers, title, "TFLOP/s right after rest", f"Line chart. {title}. {caption}", caption, height=220)


def speed_clock(results):
    """Throughput against clock as the transient of family 1 and the long run show it."""
    hold, _, _ = read(results)
    rows = [("held", w.clock_mhz, hold.tflops(w.call_s)) for w in (hold.windows if hold else ()) if w.clock_mhz]
    trace = transient_trace(results)
    found = [("peak GEMM from rest", clock, rate) for clock, rate in _paired(trace)] if trace else []
    groups = {name: [{"x": c, "y": r} for n, c, r in [*rows, *found] if n == name and r] for name in ("held", "peak GEMM from rest")}
    groups = {name: points for name, points in groups.items() if points}
    if not groups:
        return not_measured("Throughput against clock", "no clock was read while anything ran")
    everything = [p for points in groups.values() for p in points]
    clocks, rates = [p["x"] for p in everything], [p["y"] for p in everything]
    spread = max(clocks) - min(clocks) or 0.02 * max(clocks)
    domain_x = (min(clocks) - 0.1 * spread, max(clocks) + 0.1 * spread)
    x, y = base.axis_x(domain_x, "clock, MHz"), base.axis_y((0.9 * min(rates), 1.05 * max(rates)), "TFLOP/s")
    layers = []
    for (name, points), (color, shape) in zip(groups.items(), ((BLUE, "circle"), (VERMILLION, "diamond")), strict=False):
        marks = alt.Chart(base.data(points)).encode(x=x, y=y, tooltip=base.tips(("x", "MHz", ".0f"), ("y", "TFLOP/s", ".4~g")))
        layers.append(marks.mark_point(color=color, shape=shape, filled=True, size=30, opacity=0.8))
        middle = sorted(p["y"] for p in points)[len(points) // 2]
        layers += base.margin_labels([(middle, name, color)], y, (0.9 * min(rates), 1.05 * max(rates)))
    title = f"Clocks from {min(clocks):.0f} to {max(clocks):.0f} MHz, {number(min(rates))} to {number(max(rates))} TFLOP/s"
    caption = "Windows with a clock reading; nothing was set, the device chose these clocks itself."
    return base.finish(layers, title, "Throughput against clock", f"Scatter chart. {title}. {caption}", caption)


def _paired(trace):
    """(clock, rate) of the transient's windows, each with the nearest clock reading in time."""
    clocks = trace["clock_mhz"]
    return [(min(clocks, key=lambda c: abs(c["x"] - p["x"]))["y"], p["y"]) for p in trace["tflops"]] if clocks else []


__all__ = ["recovery", "speed_clock", "timeline"]
