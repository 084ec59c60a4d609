"""Charts of family 5: MFU of every scope (A8), single chunks (A8b), where a chunk's time goes, what if."""

import altair as alt

from escherlib.judge import account as accounts
from escherlib.judge.workload import read_ops, sum_of_ops, timed_workload
from escherlib.report import charts_base as base
from escherlib.report import op_groups, tables_e2e
from escherlib.report.display import not_measured
from escherlib.report.facts import GIB, number, percent
from escherlib.report.tables_e2e import PILOT, missing, read
from escherlib.report.theme import FILLS, GREY, INK, SERIES

PATHS = ("default", "optimized")
PATH_FILLS = {"default": FILLS["sky"], "optimized": FILLS["orange"]}


def mfu(results):
    """A8: MFU of every scope with its uncertainty and ceilings; the pilot's published figures in a panel of their own."""
    roofs, scopes, scoring = read(results)
    if not any(scope.ok for scope in scopes.values()):
        return missing(results, "MFU")
    d = roofs.sustained.value
    if not d:
        return not_measured("MFU", roofs.sustained.reason)
    rows = [row for path in PATHS for row in _path_bars(results, path, scopes, roofs, scoring)]
    domain = (0, max(112.0, 1.1 * max(row["x"] for row in rows)))
    layers, x = base.horizontal_bars(rows, domain, f"% of the sustained peak ({number(d)} TFLOP/s)")
    layers += base.vertical_rule(100, x) + _whiskers(rows, x)
    panel = _pilot_panel(results, domain)
    words = _mfu_words(results, scopes, roofs, panel is not None)
    if panel is None:
        return base.finish(layers, *words, height=26 * len(rows), margin=False)
    chart = alt.layer(*layers).properties(width=base.WIDTH, height=26 * len(rows))
    return base.dress(alt.vconcat(chart, panel, spacing=30), *words)


def _path_bars(results, path, scopes, roofs, scoring):
    """Sum of ops, eager, compiled, matrix floor of one path, as shares of the sustained peak."""
    timed, d = timed_workload(results), roofs.sustained.value
    total = sum_of_ops(read_ops(results, timed, roofs, path, scoring)) if timed is not None else None
    rows = [_bar(f"{path} · sum of ops", total and percent(total.tflops, d), FILLS["grey"], total and total.tflops)]
    for scope in ("eager", "compiled"):
        found = scopes[path, scope]
        share = percent(found.mfu_sustained, 1)
        reason = None if found.ok else tables_e2e.remark_of(found)
        rows.append(_bar(f"{path} · {scope}", share, PATH_FILLS[path], found.tflops, found.uncertainty_pp, reason))
    floor = next((s for s in scopes.values() if s.path == path and s.floor_tflops), None)
    if floor is not None:
        rows.append(_bar(f"{path} · matrix floor", percent(floor.floor_tflops, d), FILLS["grey"], floor.floor_tflops))
    return rows


def _bar(name, share, color, tflops, uncertainty=None, reason=None):
    text = f"{share:.1f} % · {number(tflops)} TFLOP/s" if share else base.shorten(reason or "not measured", 70)
    return {"name": name, "x": share or 0, "text": text, "color": color, "off": uncertainty}


def _whiskers(rows, x):
    known = [row | {"low": row["x"] - row["off"], "high": row["x"] + row["off"]} for row in rows if row.get("off") and row["x"]]
    if not known:
        return []
    order = [row["name"] for row in rows]
    mark = alt.Chart(base.data(known)).mark_rule(color=INK, strokeWidth=2)
    y = alt.Y("name:N", sort=order, scale=alt.Scale(domain=order))
    return [mark.encode(x=alt.X("low:Q", scale=x["scale"]), x2="high:Q", y=y)]


def _pilot_panel(results, domain):
    """The published figures, on their own basis; None where this is not the pilot's workload."""
    from escherlib.accounting.workload import pilot_reference
    from escherlib.parameters import workload_from_dict

    pilot = pilot_reference(workload_from_dict(results.manifest["workload"]))
    if pilot is None:
        return None
    published = [(name, getattr(pilot, key)) for name, key in PILOT]
    rows = [{"name": f"pilot · {name}", "x": value, "text": f"{value:g} %", "color": "#FFFFFF"} for name, value in published]
    title = f"published, % of a peak of {pilot.peak_tflops:g} TFLOP/s on another device"
    layers, _ = base.horizontal_bars(rows, domain, title)
    return alt.layer(*layers).properties(width=base.WIDTH, height=26 * len(rows))


def _mfu_words(results, scopes, roofs, with_pilot):
    good = [scope for scope in scopes.values() if scope.ok]
    best = max(good, key=lambda scope: scope.mfu_sustained)
    title = f"The stack reaches {100 * best.mfu_sustained:.1f} % of the sustained peak ({best.name})"
    state = [f"{best.clock_mhz:.0f} MHz"] if best.clock_mhz else []
    state += [f"{best.power_w:.0f} W"] if best.power_w else []
    at = f" at {', '.join(state)}" if state else ""
    caption = f"Median chunk of each scope{at}; black rules are uncertainties. Sum of ops and matrix floor are ceilings, no scopes."
    caption += " Below, what the pilot published: another device and basis, no target." if with_pilot else ""
    told = "; ".join(f"{scope.name} {100 * scope.mfu_sustained:.1f} %" for scope in good)
    subtitle = f"Model FLOP utilisation, one FLOP count, one denominator{op_groups.scale_text(results)}"
    return title, subtitle, f"Bar chart of MFU: {told}. {caption}", caption


def chunks(results):
    """A8b: every chunk in the order it ran, as % of its scope's median, scope below scope."""
    _, scopes, _ = read(results)
    good = [scope for scope in scopes.values() if scope.ok]
    if not good:
        return missing(results, "Chunks")
    rows = {scope.name: _chunk_points(scope) for scope in good}
    off = max(abs(row["y"] - 100) for found in rows.values() for row in found)
    count = max(len(found) for found in rows.values())
    domain_y = (100 - 1.25 * max(off, 0.4), 100 + 1.25 * max(off, 0.4))
    panels = []
    for index, scope in enumerate(good):
        last = index == len(good) - 1
        x = base.axis_x((0, count + 1), "chunk, in the order it ran" if last else None, labels=last)
        y = base.axis_y(domain_y, "% of median", tickCount=3)
        marks = alt.Chart(base.data(rows[scope.name])).encode(x=x, y=y, tooltip=base.tips(("x", "chunk", "d"), ("ms", "ms", ".3f")))
        style = SERIES[index]
        level = base.level(100, (0, count + 1), x, y, GREY, (4, 4), 1)
        points = marks.mark_point(shape=style.shape, color=style.color, filled=True, size=30)
        layers = [level, marks.mark_line(color=style.color, strokeWidth=1.2), points]
        text = f"{scope.name} {number(1e3 * scope.chunk_s)} ms"
        layers += base.margin_labels([(100, text, style.color)], y, domain_y, height=90)
        panels.append(alt.layer(*layers).properties(width=base.WIDTH, height=90))
    widest = max(good, key=lambda scope: max(abs(row["y"] - 100) for row in rows[scope.name]))
    title = f"Chunks stay within {off:.1f} % of their scope's median"
    caption = f"One point a chunk, the dropped first one left out; furthest from its median is a chunk of {widest.name}."
    subtitle = f"Chunk time, % of the scope's median{op_groups.scale_text(results)}"
    chart = alt.vconcat(*panels, spacing=10).resolve_scale(x="independent", y="independent")
    return base.dress(chart, title, subtitle, f"{len(good)} line charts of chunk times. {title}. {caption}", caption)


def _chunk_points(scope):
    samples = scope.record.get("states", "sustained", "samples_ns")
    return [{"x": i + 1, "y": 100 * s / 1e9 / scope.chunk_s, "ms": s / 1e6} for i, s in enumerate(samples)]


def waterfall(results, path="optimized", scope="eager"):
    """Where a chunk's time goes, from its FLOP at the sustained peak to its median."""
    roofs, scopes, scoring = read(results)
    found, timed = scopes[path, scope], timed_workload(results)
    if not found.ok:
        return missing(results, "Where the time goes")
    ops = read_ops(results, timed, roofs, path, scoring)
    steps = accounts.waterfall(found, accounts.read_account(scopes[path, "eager"], ops, scoring), roofs)
    if not steps:
        return not_measured("Where the time goes", roofs.sustained.reason)
    rows = _waterfall_rows(steps, found)
    order = [row["name"] for row in rows]
    axis = alt.Axis(title=None, labelLimit=230, labelColor=INK, ticks=False, domain=False)
    y = alt.Y("name:N", sort=order, scale=alt.Scale(domain=order), axis=axis)
    low = min(0.97 * rows[0]["high"], min(min(row["low"], row["high"]) for row in rows[1:-1]))
    high = max(row["high"] for row in rows)
    domain = (low, high + 0.22 * (high - low))
    rows = [row | {"low": max(row["low"], low)} for row in rows]
    axis = alt.Axis(title="ms a chunk (axis does not start at 0)", format="~f")
    x = alt.X("low:Q", scale=alt.Scale(domain=list(domain), nice=False), axis=axis)
    tooltip = base.tips(("name", "what"), ("text", "value"))
    bars = alt.Chart(base.data(rows)).mark_bar(stroke=INK, strokeWidth=0.5, height=17)
    layers = [bars.encode(y=y, x=x, x2="high:Q", color=alt.Color("color:N", scale=None), tooltip=tooltip)]
    text = alt.Chart(base.data(rows)).mark_text(align="left", baseline="middle", dx=6, fontSize=11, color=INK)
    layers.append(text.encode(y=y, x=alt.X("edge:Q", scale=x["scale"]), text="text:N"))
    return base.finish(layers, *_waterfall_words(results, steps, found), height=26 * len(rows), margin=False)


def _waterfall_rows(steps, scope):
    """[{name, low, high, edge, text, color}] in ms, a bar a step, beginning where the one before ended."""
    rows, at = [], 0.0
    for index, (name, seconds) in enumerate(steps):
        ms = 1e3 * seconds
        color = FILLS["grey"] if index == 0 else FILLS["orange"] if ms >= 0 else FILLS["sky"]
        text = f"{ms:.1f} ms" if index == 0 else f"{ms:+.1f} ms · {100 * seconds / scope.chunk_s:.1f} %"
        rows.append({"name": name, "low": min(at, at + ms), "high": max(at, at + ms), "text": text, "color": color})
        at += ms
    rows.append({"name": "median chunk", "low": 0.0, "high": at, "text": f"{at:.1f} ms", "color": FILLS["grey"]})
    return [row | {"edge": row["high"]} for row in rows]


def _waterfall_words(results, steps, scope):
    lost = sorted(steps[1:], key=lambda step: -step[1])
    name, seconds = lost[0]
    title = f"Of {1e3 * scope.chunk_s:.1f} ms a chunk, {1e3 * steps[0][1]:.1f} are its FLOP at the sustained peak; {name} cost most beyond"
    caption = f"{scope.name}: what each group of kernels takes above its FLOP at the sustained peak; together exactly the median chunk."
    told = ", ".join(f"{what} {1e3 * value:.1f} ms" for what, value in steps)
    subtitle = f"ms a chunk{op_groups.scale_text(results)}"
    return title, subtitle, f"Waterfall: {told}; together {1e3 * scope.chunk_s:.1f} ms.", caption


def what_if(results):
    """MFU and memory of one device against the window, one line a degree of tensor parallelism."""
    whole, room, cases = tables_e2e.what_if_cases(results)
    cases = [case for case in cases if case.frames == whole.frames and case.window]
    if not cases:
        in_tokens = "this workload is given in tokens, not latent frames"
        why = in_tokens if whole.frames is None else "both roofs are needed, or no window fits this chunk"
        return not_measured("What if", why)
    windows = sorted({case.window for case in cases})
    domain_x = base.padded_log(windows, 1.15)
    mfus, memories = [100 * case.mfu for case in cases], [case.memory_bytes / GIB for case in cases]
    margin, limit = max(2.0, 0.12 * (max(mfus) - min(mfus))), room and room / GIB
    above = base.headroom([*memories, limit])
    panels = [
        _what_if_panel(cases, "MFU, %", lambda case: 100 * case.mfu, (min(mfus) - margin, max(mfus) + margin), domain_x, windows, False),
        _what_if_panel(cases, "GiB a device", lambda case: case.memory_bytes / GIB, above, domain_x, windows, True, limit),
    ]  # fmt: skip
    chart = alt.vconcat(*panels, spacing=12).resolve_scale(x="independent", y="independent")
    own = next((case for case in cases if case.window == whole.window and case.tp == 1), cases[0])
    title = f"Window {own.window}: {1e3 * own.step_s:.0f} ms a chunk and {own.memory_bytes / GIB:.0f} GiB on one device"
    caption = tables_e2e.tp_note(whole, room)
    subtitle = f"{whole.name}, chunk of {whole.frames} latent frames; analytic"
    return base.dress(chart, title, subtitle, f"Two line charts against the window. {title}. {caption}", caption)


def _what_if_panel(cases, title, of, domain_y, domain_x, windows, last, limit=None):
    x = base.axis_x(domain_x, "window, latent frames (log)" if last else None, "log2", windows, "format(datum.value, 'd')", labels=last)
    y = base.axis_y(domain_y, title, tickCount=5)
    layers, labels = [], []
    if limit:
        layers.append(base.level(limit, domain_x, x, y, INK, (4, 3), 1.2))
        labels.append((limit, "memory of this device", INK))
    for style, tp in zip(SERIES, sorted({case.tp for case in cases}), strict=False):
        rows = [{"x": case.window, "y": of(case), "tp": tp} for case in cases if case.tp == tp]
        layers += base.series(rows, style, x, y, base.tips(("x", "window", "d"), ("tp", "TP"), ("y", title, ".1f")))
        labels.append((rows[-1]["y"], f"TP {tp}", style.color))
    layers += base.margin_labels(labels, y, domain_y, height=170)
    return alt.layer(*layers).properties(width=base.WIDTH, height=170)


__all__ = ["chunks", "mfu", "waterfall", "what_if"]
