"""The transient from idle to steady state: throughput windows, clock and power beside them."""

import math

from escherlib.report.facts import number, shape_text

FAMILY = "01_bf16_compute"


def transient_trace(results):
    """Points for the transient chart, or None where it was not measured.

    {tflops, clock_mhz, power_w: [{x: ms since idle, y}], settled_tflops, window_ms, shape, lines, moved}
    """
    record = results.row(FAMILY, "transient")
    if record is None or not record.ok:
        return None
    windows = record.get("windows", default=[])
    points = [{"x": 1e3 * w["t_s"], "y": w["tflops"]} for w in windows if w.get("tflops") and w["t_s"] > 0]
    if not points:
        return None
    trace = (record.telemetry or {}).get("trace") or []
    beside = {key: _readings(trace, key) for key in ("clock_mhz", "power_w")}
    tail = points[-max(1, len(points) // 5) :]
    moved = [
        (word, found[0]["y"], found[-1]["y"], unit)
        for key, word, unit in (("clock_mhz", "clock", "MHz"), ("power_w", "power", "W"))
        if (found := beside[key])
    ]
    width = points[1]["x"] - points[0]["x"] if len(points) > 1 else points[0]["x"]
    return {
        "tflops": thinned(points),
        **{key: thinned(found) for key, found in beside.items()},
        "settled_tflops": sorted(p["y"] for p in tail)[len(tail) // 2],
        "window_ms": width,
        "shape": shape_text(record) or "unknown",
        "lines": _limits(results),
        "moved": moved,
    }


def thinned(points, per_decade=14):
    """Median point of each of `per_decade` bins of log time, so that a log axis is not crowded at its end."""
    bins = {}
    for point in points:
        bins.setdefault(math.floor(per_decade * math.log10(point["x"])), []).append(point)
    middles = ((found, sorted(p["y"] for p in found)) for found in bins.values())
    return [{"x": found[len(found) // 2]["x"], "y": ordered[len(ordered) // 2]} for found, ordered in middles]


def _readings(trace, key):
    return [{"x": s["t_ns"] / 1e6, "y": s[key]} for s in trace if s.get(key) is not None and s["t_ns"] > 0]


def _limits(results):
    """Reference lines of the clock and power panels: what the profile and the environment state."""
    from escherlib.report.theme import GREY

    lines = {}
    if results.profile is not None and results.profile.boost_clock_mhz:
        clock = results.profile.boost_clock_mhz
        lines["clock_mhz"] = [(clock, f"rated boost {number(clock)}", GREY)]
    cap = ((results.env or {}).get("power") or {}).get("cap_w")
    if cap:
        lines["power_w"] = [(cap, f"power cap {number(cap)}", GREY)]
    return lines


__all__ = ["transient_trace"]
