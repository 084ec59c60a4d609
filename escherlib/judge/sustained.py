"""Family 7 from its records: phases of a hold, drift, spread, energy, and what limited the clock."""

import statistics
from dataclasses import dataclass
from itertools import accumulate

from escherlib.judge.rows import SUSTAINED, number, percent
from escherlib.timing.statistics import theil_sen

ROWS = ("hold/stack", "hold/ffn")
MINUTE_S, SHORT_S = 60.0, 10.0  # the worst minute; of a hold shorter than two minutes the worst ten seconds
BLOCKS = 60  # a power cap's control loop swings for tenths of a second: neighbours are no independent witnesses
AT_CAP, AT_CLOCK, SHARE = 0.97, 0.985, 0.05  # of the power limit, of the fastest clock seen, of the samples
THERMAL = ("thermal", "temp", "prochot", "hotspot")
POWER = ("power", "ppt", "tdp", "edp")
CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Window:
    """One window: seconds since the held time began (negative while warming), seconds a call, sensors' means or None."""

    at_s: float
    length_s: float
    call_s: float
    warming: bool
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    power_limit_w: float | None = None
    steal_pct: float | None = None
    limits: dict | None = None


@dataclass(frozen=True)
class Phase:
    """Windows of one part of a hold, as one: medians and means over it. `sigma_s` is of single samples."""

    name: str
    start_s: float
    end_s: float
    call_s: float
    sigma_s: float | None
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class Hold:
    """A hold as read: phases by name, drift over the held time, energy, what limited it, and why it may be doubted."""

    row: str
    flop: int | None
    held_s: float
    ended: str
    complete: bool
    windows: tuple
    phases: dict
    drift: dict | None
    drift_share: float | None
    sigma_growth: float | None
    clock_drop: float | None
    joules_per_call: float | None
    energy_how: str | None
    limit: str
    limit_why: str
    label: str | None

    def tflops(self, call_s):
        """TFLOP/s at that many seconds a call, or None."""
        return self.flop / call_s / 1e12 if self.flop and call_s else None


def read_hold(results, scoring):
    """The Hold of a run, or None where nothing was held. One that was cut short counts as far as it goes."""
    record = next((r for r in (results.row(SUSTAINED, name) for name in ROWS) if r is not None), None)
    if record is None or record.status not in ("finished", "unfinished") or not record.get("states", "sustained", "median_s"):
        return None
    windows, samples, times = read_windows(record)
    held = [w for w in windows if not w.warming]
    limits = scoring.sc7
    phases = phases_of(windows, samples, times, limits.head_share, limits.tail_share)
    head, tail = phases["head"], phases["tail"]
    clocks = head.clock_mhz, tail.clock_mhz
    energy = (record.telemetry.get("sustained") or {}).get("energy_j") or {}
    calls = len(samples) * record.get("states", "sustained", "calls_per_sample", default=1)
    limit, why = limit_of(held, fastest_clock(results, windows))
    return Hold(
        row=record.name, flop=record.get("flop"), held_s=record.get("held_s"), ended=record.get("ended"),
        complete=record.get("held_s") >= 0.99 * record.get("seconds_asked"), windows=tuple(windows), phases=phases,
        drift=drift_line(held), drift_share=tail.call_s / head.call_s - 1,
        sigma_growth=tail.sigma_s / head.sigma_s if head.sigma_s and tail.sigma_s is not None else None,
        clock_drop=1 - clocks[1] / clocks[0] if all(clocks) else None,
        joules_per_call=energy["value"] / calls if energy.get("value") and calls else None, energy_how=energy.get("how"),
        limit=limit, limit_why=why, label=record.get("states", "sustained", "label"),
    )  # fmt: skip


def read_windows(record):
    """([Window], seconds a call of every held sample, when each ended) of a hold's record, telemetry beside where there is any."""
    calls = record.get("states", "sustained", "calls_per_sample", default=1)
    beside = record.telemetry.get("timeline") or []
    samples = {
        True: record.get("warming", "samples_ns", default=[]), False: record.get("states", "sustained", "samples_ns", default=[]),
    }  # fmt: skip
    timeline = record.get("timeline", default=[])
    zero_ns = next(part["window_ns"][0] for part in timeline if not part["warming"])
    taken, windows, kept_s, times = {True: 0, False: 0}, [], [], []
    for index, part in enumerate(timeline):
        warming, first = part["warming"], taken[part["warming"]]
        inside = [s for s in samples[warming][first : first + part["samples"]] if s > 0]
        taken[warming] = first + part["samples"]
        if not inside:
            continue
        start, end = part["window_ns"]
        if not warming:
            kept_s += [s / 1e9 / calls for s in inside]
            times += [(start - zero_ns + passed) / 1e9 for passed in accumulate(inside)]
        sensors = beside[index] if index < len(beside) else {}
        kept = {name: sensors.get(name) for name in ("clock_mhz", "power_w", "temperature_c", "power_limit_w", "steal_pct", "limits")}
        windows.append(Window((start - zero_ns) / 1e9, (end - start) / 1e9, statistics.median(inside) / 1e9 / calls, warming, **kept))
    return windows, kept_s, times


def phases_of(windows, samples, times, head_share, tail_share):
    """{name: Phase}: first window from rest, head, middle, tail, worst stretch, all that was held."""
    held = [w for w in windows if not w.warming]
    end = held[-1].at_s + held[-1].length_s
    cuts = {"head": (0.0, head_share * end), "middle": (head_share * end, (1 - tail_share) * end),
            "tail": ((1 - tail_share) * end, end), "held": (0.0, end)}  # fmt: skip
    found = {name: _phase(name, held, samples, times, *cut) for name, cut in cuts.items()}
    span = MINUTE_S if end >= 2 * MINUTE_S else SHORT_S
    if end >= 2 * span:
        found["worst"] = _worst(held, samples, times, span, end)
    if windows[0].warming:
        found["first"] = _phase("first", windows[:1], [], [], windows[0].at_s, windows[0].at_s + windows[0].length_s)
    return found


def _phase(name, windows, samples, times, start, end):
    inside = [w for w in windows if start - 1e-9 <= w.at_s < end] or windows[:1]
    own = [s for s, at in zip(samples, times, strict=False) if start < at <= end + 1e-9]
    call_s = statistics.median(own or [w.call_s for w in inside])
    means = {key: _mean([getattr(w, key) for w in inside]) for key in ("clock_mhz", "power_w", "temperature_c")}
    return Phase(name, start, end, call_s, statistics.stdev(own) if len(own) > 2 else None, **means)


def _worst(held, samples, times, span, end):
    starts = [w.at_s for w in held if w.at_s + span <= end + 1e-9]
    return max((_phase("worst", held, samples, times, start, start + span) for start in starts), key=lambda phase: phase.call_s)


def _mean(values):
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def drift_line(held):
    """Theil–Sen line through the held windows: change over the whole time as a share of the median, with its interval."""
    times, values = [w.at_s + w.length_s / 2 for w in held], [w.call_s for w in held]
    line = theil_sen(times, values, most=BLOCKS) if len(held) >= 5 else None
    if line is None:
        return None
    scale = (held[-1].at_s + held[-1].length_s) / statistics.median(values)
    return {key: line[name] * scale for key, name in (("change", "slope"), ("low", "low"), ("high", "high"))}


def fastest_clock(results, windows):
    """The fastest clock this run saw under load: of these windows, or of family 1's transient."""
    transient = results.row("01_bf16_compute", "transient")
    trace = (transient.telemetry or {}).get("trace") or [] if transient is not None else []
    seen = [w.clock_mhz for w in windows] + [sample.get("clock_mhz") for sample in trace]
    return max((value for value in seen if value), default=None)


def limit_of(held, fastest_mhz):
    """(what limited the device while held, why): from limit bits, power against its limit, and clock, in that order.

    One of "thermal", "power cap", "clock limit", "not limited", or "cannot tell" where the signals say too little.
    """
    bits = _shares([w.limits for w in held if w.limits is not None])
    power, cap = _mean([w.power_w for w in held]), _mean([w.power_limit_w for w in held])
    clock = _mean([w.clock_mhz for w in held])
    at_cap = power and cap and power >= AT_CAP * cap
    hot = {name: share for name, share in bits.items() if any(word in name for word in THERMAL)}
    capped = {name: share for name, share in bits.items() if any(word in name for word in POWER)}
    signs = [f"{name} in {percent(share)} of the samples" for name, share in bits.items() if share >= SHARE]
    signs += [f"{number(power)} W of {number(cap)} W allowed"] if power and cap else []
    signs += [f"{number(clock)} MHz, the fastest seen {number(fastest_mhz)}"] if clock and fastest_mhz else []
    why = "; ".join(signs)
    if any(share >= SHARE for share in hot.values()):
        return "thermal", why
    if at_cap or any(share >= SHARE for share in capped.values()):
        return "power cap", why + _steady(held)
    if any(share >= SHARE for share in bits.values()):
        return "clock limit", why
    if clock and fastest_mhz and clock >= AT_CLOCK * fastest_mhz:
        return "not limited", why
    lacking = [word for word, value in (("clock", clock), ("power", power), ("limit reasons", bits or None)) if not value]
    return CANNOT_TELL, "; ".join([*signs, f"not read: {', '.join(lacking)}"] if lacking else signs or ["the signals contradict"])


def _steady(held):
    """Words for a capped clock that stays where it is: a cap that holds is no throttling that grows."""
    clocks = [(w.at_s, w.clock_mhz) for w in held if w.clock_mhz]
    if len(clocks) < 5:
        return ""
    half = len(clocks) // 2
    first, second = (statistics.median(c for _, c in part) for part in (clocks[:half], clocks[half:]))
    return f"; the clock {'stays' if abs(second / first - 1) <= 0.02 else 'moves'} ({number(first)} to {number(second)} MHz)"


def _shares(listed):
    """Mean share of each limit over all windows."""
    names = dict.fromkeys(name for limits in listed for name in limits)
    return {name: sum(limits.get(name, 0.0) for limits in listed) / len(listed) for name in names}


def recovery_points(results):
    """[{idle_s, tflops, before_tflops, clock_mhz}] of the recovery curve; [] where it was not measured."""
    record = results.row(SUSTAINED, "recovery")
    if record is None or not record.ok:
        return []
    found = []
    for index, point in enumerate(record.get("points", default=[])):
        sensors = (record.telemetry or {}).get(f"points.{index}") or {}
        clock = (sensors.get("clock_mhz") or {}).get("mean")
        rate = point["tflops"] or point["first_tflops"]
        found.append({"idle_s": point["idle_s"], "tflops": rate, "before_tflops": point["before_tflops"],
                      "fastest_run": point["tflops"] is not None, "clock_mhz": clock})  # fmt: skip
    return found
