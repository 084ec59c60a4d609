"""Headline figures and findings of family 7."""

from escherlib.judge.roofs import read_roofs
from escherlib.judge.rows import number, percent
from escherlib.judge.sustained import read_hold, recovery_points

WORST = {True: "worst minute", False: "worst ten seconds"}


def sustained(results):
    """Throughput held, drift, σ growth, clock drop, energy; what limited it, and how rest restores speed."""
    from escherlib.parameters import load_scoring

    scoring = load_scoring()
    hold, roofs = read_hold(results, scoring), read_roofs(results, scoring)
    points = recovery_points(results)
    if hold is None:
        return {}, ["Nothing was held at work."] + list(_recovery_sentences(points))
    held, worst = hold.phases["held"], hold.phases.get("worst")
    headline = {
        "held_tflops": (hold.tflops(held.call_s), "TFLOP/s"),
        "held_seconds": (hold.held_s, "s"),
        "drift_pct": (100 * hold.drift_share, "%"),
        "sigma_growth": (hold.sigma_growth, "×"),
        "clock_drop_pct": (None if hold.clock_drop is None else 100 * hold.clock_drop, "%"),
        "worst_tflops": (hold.tflops(worst.call_s) if worst else None, "TFLOP/s"),
        "joules_per_call": (hold.joules_per_call, "J"),
        "gflop_per_joule": (hold.flop / hold.joules_per_call / 1e9 if hold.joules_per_call and hold.flop else None, "GFLOP/J"),
    }
    return headline, [
        *_held_sentences(hold, roofs), *_start_sentences(hold), *_drift_sentences(hold),
        f"What limits it: {hold.limit}" + (f" ({hold.limit_why})." if hold.limit_why else "."),
        *_energy_sentences(hold), *_recovery_sentences(points),
    ]  # fmt: skip


def _held_sentences(hold, roofs):
    what = "chunks of the stack" if hold.row.endswith("stack") else "forwards of the FFN"
    rate, d = hold.tflops(hold.phases["held"].call_s), roofs.sustained.value
    share = f", {percent(rate / d)} of the sustained peak" if rate and d else ""
    cut = "" if hold.complete else f" ({hold.ended})"
    told = f"{number(rate)} TFLOP/s{share}" if rate else f"{1e3 * hold.phases['held'].call_s:.1f} ms a call"
    yield f"Held for {hold.held_s:.0f} s{cut}: {what} at {told}."
    worst = hold.phases.get("worst")
    if worst:
        word = WORST[worst.end_s - worst.start_s >= 60]
        lost = worst.call_s / hold.phases["held"].call_s - 1
        yield f"A call of the {word} (from {worst.start_s:.0f} s on) takes {100 * lost:+.1f} % time against the median of all."


def _start_sentences(hold):
    first, head = hold.phases.get("first"), hold.phases["head"]
    if first is None:
        return
    moved = "; ".join(
        f"{word} from {number(a)} to {number(b)} {unit}"
        for word, a, b, unit in (("clock", first.clock_mhz, head.clock_mhz, "MHz"), ("power", first.power_w, head.power_w, "W"))
        if a and b
    )
    change = 100 * (head.call_s / first.call_s - 1)
    yield f"A settled call takes {change:+.1f} % time against the first window from rest" + (f": {moved}." if moved else ".")


def _drift_sentences(hold):
    if hold.drift:
        low, high = (f"{100 * hold.drift[key]:+.2f}" for key in ("low", "high"))
        yield (
            f"Over the held time the time of a call drifts by {100 * hold.drift['change']:+.2f} % "
            f"(95 % interval {low} to {high} %); tail against head {100 * hold.drift_share:+.2f} %."
        )


def _energy_sentences(hold):
    if hold.joules_per_call and hold.flop:
        yield (
            f"Energy by {hold.energy_how}: {number(hold.joules_per_call)} J a call, "
            f"{number(hold.flop / hold.joules_per_call / 1e9)} GFLOP/J."
        )


def _recovery_sentences(points):
    if points:
        short, long = points[0], points[-1]
        gains = [f"{100 * (p['tflops'] / p['before_tflops'] - 1):+.1f} % after {1e3 * p['idle_s']:.0f} ms" for p in (short, long)]
        yield f"Speed right after rest, against before it: {', '.join(gains)}."


__all__ = ["sustained"]
