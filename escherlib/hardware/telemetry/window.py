"""What the sensors said during a timed window. A sensor too slow for the window gives null and the reason.

Rule: a sensor counts only if it gives a new value at least three times a window. For power and energy that
is judged by how often the value really changes, since a driver may repeat an old one.
"""

from itertools import pairwise
from statistics import median

from escherlib.hardware.telemetry.samples import Samples, read_samples

ALWAYS = ("clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
WHERE_READ = ("memory_temperature_c", "utilisation_pct", "steal_pct", "power_limit_w")
RESTLESS = ("power_w", "energy_j")  # never twice the same unless the sensor was not refreshed
TRACED = ("clock_mhz", "power_w", "temperature_c")
NO_LIMIT = ("gpu_idle",)
PER_WINDOW = 3
GAP_NS = 3_000_000_000  # samples on both sides of a window's end must lie closer than this
AROUND_NS = 1_000_000_000
ENOUGH_CHANGES = 5


def window(samples, start_ns, end_ns):
    """Readings between two time.monotonic_ns() stamps. See `windows`."""
    return windows(samples, [[start_ns, end_ns]])


def windows(samples, spans_ns):
    """Readings over several windows of one state, [[start, end], …] in ns of time.monotonic_ns().

    `samples`: Samples or the path of a telemetry file. Returns {field: {mean, min, max, n} | None, …,
    "energy_j": {value, how} | None (the sum), "energy_compare": {counter_j, integral_j, difference_pct} | None
    (the counter and the integral of power over the same windows), "limit_reasons": [names], "limit_shares": {name: share of the
    samples}, "n": samples, "reasons_null": {field: why}}. Means weigh each sample by the time it stands for.
    """
    samples = samples if isinstance(samples, Samples) else read_samples(samples)
    spans = [(int(start), int(end)) for start, end in spans_ns if end > start]
    found, why = {}, {}
    names = [*ALWAYS, *(name for name in WHERE_READ if name in samples.series)]
    for name in names:
        found[name], reason = _over(samples, name, spans)
        if reason:
            why[name] = reason
    found["energy_j"], reason = _energy(samples, spans)
    if reason:
        why["energy_j"] = reason
    found["energy_compare"], reason = _compare(samples, spans)
    if reason:
        why["energy_compare"] = reason
    found["limit_reasons"], found["limit_shares"], reason = _limits(samples, spans)
    if reason:
        why["limit_reasons"] = reason
    return {**found, "n": _count(samples, spans), "reasons_null": why}


def trace(samples, start_ns, end_ns):
    """Raw samples between two stamps: [{"t_ns": since start_ns, "clock_mhz", "power_w", "temperature_c"}]."""
    samples = samples if isinstance(samples, Samples) else read_samples(samples)
    rows = {}
    for name in TRACED:
        series = samples.series.get(name)
        low, high = series.inside(start_ns, end_ns) if series else (0, 0)
        for at, value in zip(series.at_ns[low:high], series.values[low:high], strict=True) if series else ():
            rows.setdefault(at, {})[name] = value
    return [{"t_ns": at - int(start_ns), **rows[at]} for at in sorted(rows)]


def _count(samples, spans):
    """Samples inside the windows: those of the sensor that was read most often."""
    ranges = [[series.inside(*span) for span in spans] for series in samples.series.values()]
    return max((sum(high - low for low, high in found) for found in ranges), default=0)


def _over(samples, name, spans):
    """(statistics of a field over all windows that its sensor is fast enough for, reason if none)."""
    good, reasons = [], []
    for start, end in spans:
        reason = _too_slow(samples, name, start, end)
        if reason:
            reasons.append(reason)
        else:
            good.append((end - start, *weighted(samples.series[name], start, end)))
    if not good:
        return None, samples.why(name) or next(iter(reasons), "no timed window")
    total = sum(length for length, *_ in good)
    return {
        "mean": round(sum(length * mean for length, mean, *_ in good) / total, 3),
        "min": min(low for _, _, low, _, _ in good),
        "max": max(high for *_, high, _ in good),
        "n": sum(n for *_, n in good),
    }, None


def weighted(series, start, end):
    """(mean, min, max, n) of the samples inside a window.

    Each stands for the time that is closer to it than to its neighbours; what lies outside is not looked
    at, since a window often begins where the load does.
    """
    low, high = series.inside(start, end)
    at, values = series.at_ns[low:high], series.values[low:high]
    edges = [start, *((a + b) / 2 for a, b in pairwise(at)), end]
    mean = sum(v * (b - a) for v, (a, b) in zip(values, pairwise(edges), strict=True)) / (end - start)
    return mean, min(values), max(values), len(values)


def _too_slow(samples, name, start, end):
    """Why a sensor says nothing about a window, or None."""
    series = samples.series.get(name)
    if series is None:
        return samples.why(name)
    low, high = series.inside(start, end)
    length, spacing = end - start, _spacing(series, low, high)
    if low == high and (spacing is None or spacing > GAP_NS):
        return _missing(samples, series.at_ns[low - 1] if low else start, end, length)
    for phrase, ns in (
        ("averaged over", samples.header.get("span_s", {}).get(name, 0) * 1e9),
        ("sampled every", spacing or 0),
        ("refreshed every", _change_ns(series, start, end) if name in RESTLESS else 0),
    ):
        if PER_WINDOW * ns > length:
            return f"{phrase} {_time(ns)}, window {_time(length)}"
    holes = [b - a for a, b in pairwise([start, *series.at_ns[low:high], end])]
    if 2 * max(holes) > length:
        return f"no sample for {_time(max(holes))} of a window of {_time(length)}"
    return None


def _missing(samples, since, end, length):
    """Why there is no sample at all: the gap that the sampler noted, if it did."""
    noted = [what["gap"] for at, what in samples.events if "gap" in what and since <= at <= end]
    return f"no sample in this window of {_time(length)}" + (f": {noted[0]}" if noted else "")


def _spacing(series, low, high):
    """Median time between the samples of a window and its two neighbours, or None."""
    gaps = [b - a for a, b in pairwise(series.at_ns[max(0, low - 1) : high + 1])]
    return median(gaps) if gaps else None


def _change_ns(series, start, end):
    """Median time between changes of the value in and around a window; 0 where too few are seen to tell."""
    low, high = series.inside(start - AROUND_NS, end + AROUND_NS)
    at, values = series.at_ns[low:high], series.values[low:high]
    moments = [at[i] for i in range(1, len(at)) if values[i] != values[i - 1]]
    gaps = [b - a for a, b in pairwise(moments)]
    return median(gaps) if len(gaps) >= ENOUGH_CHANGES else 0


def _energy(samples, spans):
    """({value in J, how}, reason): from the counter, else from power; null where one window can't be had."""
    if not spans:
        return None, "no timed window"
    parts, hows = [], set()
    for start, end in spans:
        value, how, reason = energy_j(samples, start, end)
        if value is None:
            return None, reason
        parts.append(value)
        hows.add(how)
    return {"value": round(sum(parts), 3), "how": " and ".join(sorted(hows))}, None


def energy_j(samples, start, end):
    """(J of one window, how, None), or (None, None, why not)."""
    reasons = []
    for name, how in (("energy_j", "counter"), ("power_w", "power over time")):
        value, reason = _energy_by(samples, name, start, end)
        if value is not None:
            return value, how, None
        reasons.append(reason)
    return None, None, reasons[0] if "energy_j" in samples.series else reasons[-1]


def _energy_by(samples, name, start, end):
    """(J of one window by one sensor, None), or (None, why not)."""
    reason = _too_slow(samples, name, start, end)
    value_of = {"energy_j": _counter_difference, "power_w": _trapezoid}[name]
    return (None, reason) if reason else value_of(samples.series[name], start, end)


def _compare(samples, spans):
    """({counter_j, integral_j, difference_pct: integral over counter - 1}, None) over windows, or (None, why not)."""
    sums = []
    for name in ("energy_j", "power_w"):
        total = 0.0
        for start, end in spans:
            value, reason = _energy_by(samples, name, start, end)
            if value is None:
                return None, reason
            total += value
        sums.append(total)
    if not spans or sums[0] <= 0:
        return None, "the energy counter did not move" if spans else "no timed window"
    counter, integral = sums
    difference = round(100 * (integral / counter - 1), 3)
    return {"counter_j": round(counter, 3), "integral_j": round(integral, 3), "difference_pct": difference}, None


def _counter_difference(series, start, end):
    """J between two stamps from a counter, linear between the moments at which it moved."""
    if any(start < at <= end for at in series.restarts):
        return None, "sampling was interrupted in this window"
    first = max([start - GAP_NS, *(at for at in series.restarts if at <= start)])
    last = min([end + GAP_NS, *(at - 1 for at in series.restarts if at > end)])
    low, high = series.inside(first, last)
    points = [
        (series.at_ns[i], series.values[i])
        for i in range(low, high)
        if i == low or series.values[i] != series.values[i - 1]
    ]
    if len(points) == 1 and high - low > 1:
        return None, "the energy counter did not move"
    ends = [_between(points, moment) for moment in (start, end)]
    if None in ends:
        return None, "no sample on both sides of the window"
    if any(v < u for (_, u), (_, v) in pairwise(points)):
        return None, "the energy counter began anew around this window"
    return ends[1] - ends[0], None


def _trapezoid(series, start, end):
    """J between two stamps from power samples, linear between them; the ends must be bracketed."""
    low, high = series.inside(start, end)
    points = list(zip(series.at_ns, series.values, strict=True))[max(0, low - 1) : high + 1]
    ends = [_between(points, moment) for moment in (start, end)]
    if None in ends:
        return None, "no sample on both sides of the window"
    if any(b - a > GAP_NS for (a, _), (b, _) in pairwise(points)):
        return None, f"a gap of more than {_time(GAP_NS)} between samples"
    curve = [(start, ends[0]), *((at, w) for at, w in points if start < at < end), (end, ends[1])]
    return sum((b - a) * (u + v) / 2 for (a, u), (b, v) in pairwise(curve)) * 1e-9, None


def _between(points, moment):
    """Value at a moment, linear between the two samples around it; None where one is missing or too far."""
    for (a, u), (b, v) in pairwise(points):
        if a <= moment <= b and b - a <= GAP_NS:
            return u + (v - u) * (moment - a) / (b - a)
    return None


def _limits(samples, spans):
    """(names of the limits seen, share of the samples each was seen in, reason if nothing can be said)."""
    names = {int(bit): name for bit, name in samples.header.get("limit_bits", {}).items()}
    masks, reasons = [], []
    for start, end in spans:
        reason = _too_slow(samples, "limit_mask", start, end)
        if reason:
            reasons.append(reason)
            continue
        low, high = samples.series["limit_mask"].inside(start, end)
        masks += [mask & ~samples.idle_mask for mask in samples.series["limit_mask"].values[low:high]]
    if not masks:
        return [], {}, next(iter(reasons), "no timed window")
    counted = {}
    for bit in range(max(masks).bit_length()):
        name = names.get(1 << bit, f"bit {bit}")
        seen = sum(mask >> bit & 1 for mask in masks)
        if seen and name not in NO_LIMIT:
            counted[name] = round(seen / len(masks), 3)
    return list(counted), counted, None


def _time(ns):
    """`20 ms`, `1.5 s`."""
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else f"{ns / 1e6:.3g} ms"
