"""Charts of family 4: every operation as theory, default and optimized (A7), and attention by backend."""

import altair as alt

from escherlib.report import charts_base as base
from escherlib.report import op_groups
from escherlib.report.charts_compute import missing
from escherlib.report.facts import number, percent, rate
from escherlib.report.op_groups import FAMILY
from escherlib.report.tables_workload import ATTENTION
from escherlib.report.theme import FILLS, INK

LOOKS = {"theory": FILLS["grey"], "default": FILLS["sky"], "optimized": FILLS["orange"]}
SMALLEST_SHARE = 0.001  # of a chunk; below it a bar is no longer seen


def op_times(results):
    """A7: least, default and optimized milliseconds of a chunk for all work that both paths do."""
    shown = [g for g in op_groups.groups(results) if g.measured_s("optimized") or g.measured_s("default")]
    if not shown:
        return missing(results, "Operations", "op/", FAMILY)
    longest = max(_times(group, "default")[1] or 0 for group in shown) or 1
    shown = [g for g in shown if max(filter(None, (*_times(g, "default"), *_times(g, "optimized")))) > SMALLEST_SHARE * longest]
    rows = [row for group in shown for row in _bars(group)]
    order = [group.name for group in shown]
    domain = base.headroom([row["x"] for row in rows], 0.28)
    axis = alt.Axis(title=None, labelLimit=230, labelColor=INK, ticks=False, domain=False)
    y = alt.Y("name:N", sort=order, scale=alt.Scale(domain=order, paddingInner=0.25), axis=axis)
    offset = alt.YOffset("kind:N", sort=list(LOOKS), scale=alt.Scale(domain=list(LOOKS), paddingInner=0.1))
    x = alt.X("x:Q", scale=alt.Scale(domain=list(domain), nice=False), axis=alt.Axis(title="ms a chunk, all launches", format="~f"))
    legend = alt.Legend(orient="top", title=None, symbolStrokeColor=INK, symbolStrokeWidth=0.5)
    color = alt.Color("kind:N", scale=alt.Scale(domain=list(LOOKS), range=list(LOOKS.values())), legend=legend)
    tooltip = base.tips(("name", "work"), ("kind", "what"), ("x", "ms a chunk", ".3f"), ("text", "÷ theory"))
    bars = alt.Chart(base.data(rows)).mark_bar(stroke=INK, strokeWidth=0.4)
    layers = [bars.encode(x=x, y=y, yOffset=offset, color=color, tooltip=tooltip)]
    told = alt.Chart(base.data([row for row in rows if row["text"]])).mark_text(align="left", baseline="middle", dx=5, fontSize=10)
    layers.append(told.encode(x=x, y=y, yOffset=offset, text="text:N"))
    return base.finish(layers, *_op_words(results, shown), height=44 * len(order), margin=False)


def _times(group, path):
    """(least, measured) milliseconds of a chunk on one path, None where unknown."""
    return tuple(value and 1e3 * value for value in (group.floor_s(path), group.measured_s(path)))


def _bars(group):
    """Rows of one group. Theory is that of the optimized path, else of the default one."""
    least = _times(group, "optimized")[0] or _times(group, "default")[0]
    found = [{"name": group.name, "kind": "theory", "x": least, "text": ""}] if least else []
    for path in ("default", "optimized"):
        floor, value = _times(group, path)
        if value:
            text = f"{number(value)} ms" + (f" · {value / floor:.2f}×" if floor else "")
            found.append({"name": group.name, "kind": path, "x": value, "text": text})
    return found


def _op_words(results, shown):
    sums = {path: [g.measured_s(path) for g in shown] for path in ("default", "optimized")}
    whole = {path: 1e3 * sum(values) for path, values in sums.items() if all(values)}
    title = "Least and measured time of the work of one chunk"
    if len(whole) == 2:
        title = f"Kernels of one chunk: {number(whole['default'])} ms as plain modules, {number(whole['optimized'])} ms optimized"
    losses = [(g.measured_s("optimized") - g.floor_s("optimized"), g) for g in shown if g.ratio("optimized")]
    told = ""
    if losses:
        seconds, group = max(losses, key=lambda entry: entry[0])
        told = f" Most is lost in {group.name}: {number(1e3 * seconds)} ms above its least time."
    caption = f"Beside each bar its time and how often it holds its own path's least time.{told}"
    subtitle = f"ms a chunk, sustained, each kernel timed alone{op_groups.scale_text(results)}"
    return title, subtitle, f"Bar chart of {len(shown)} operations, theory, default and optimized. {title}.{told}", caption


def attention(results):
    """TFLOP/s of every attention backend on both attentions, beside the sustained peak."""
    from escherlib.judge.roofs import read_roofs

    peak, records = read_roofs(results).peak_sustained_tflops, results.rows(FAMILY, ATTENTION)
    found = [(record.name.split("/", 2), rate(record, "sustained")) for record in records]
    found = sorted((op, -value, backend) for (_, op, backend), value in found if value)
    if not found:
        return missing(results, "Attention backends", ATTENTION, FAMILY)
    found.sort(key=lambda entry: (entry[0] != "self_attn.flash", entry[1]))
    rows = [_attention_bar(op, -value, backend, peak) for op, value, backend in found]
    domain = base.headroom([row["x"] for row in rows] + [peak], 0.05)
    layers, x = base.horizontal_bars(rows, domain, "TFLOP/s, sustained")
    if peak:
        layers += base.vertical_rule(peak, x, f"sustained peak {number(peak)}")
    best = {op: (backend, -value) for op, value, backend in reversed(found)}
    told = "; ".join(f"{op.split('.')[0]}: {backend} {number(value)}" for op, (backend, value) in reversed(best.items()))
    shares = [f"{percent(value, peak):.0f} %" for _, value in reversed(best.values())] if peak else []
    title = f"Fastest attention in TFLOP/s: {told}"
    caption = "Each backend forced on its own; colours tell self from cross attention."
    caption += f" The fastest reach {' and '.join(shares)} of the sustained peak." if shares else ""
    subtitle = f"Throughput by backend{op_groups.scale_text(results)}"
    told = f"Bar chart of {len(rows)} attention rows. {title}."
    return base.finish(layers, title, subtitle, told, caption, height=26 * len(rows), margin=False)


def _attention_bar(op, value, backend, peak):
    share = f" · {percent(value, peak):.0f} %" if peak else ""
    color = FILLS["sky"] if op == "self_attn.flash" else FILLS["orange"]
    return {"name": f"{op.split('_')[0]} · {backend}", "x": value, "text": f"{number(value)} TFLOP/s{share}", "color": color}


__all__ = ["attention", "op_times"]
