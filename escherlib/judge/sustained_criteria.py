"""SC-7: does a long run keep its throughput, its spread and its clock from head to tail?"""

from escherlib.judge.criteria import Criterion
from escherlib.judge.rows import SUSTAINED, not_measured, percent
from escherlib.judge.sustained import ROWS, read_hold


def sustained_run(results, scoring):
    """SC-7, opt-in: drift, σ growth and clock drop between the first and the last tenth of the held time."""
    limits = scoring.sc7
    rule = (
        f"{limits.title}: head to tail the time drifts < {percent(limits.drift)}, σ grows < {limits.sigma_growth:g}×, "
        f"the clock drops ≤ {percent(limits.clock_drop)}"
    )
    hold = read_hold(results, scoring)
    if hold is None:
        return Criterion("SC-7", limits.role, "SKIP", _why(results), rule)
    misses, told = [], []
    for word, value, limit, shown in (
        ("drift", hold.drift_share, limits.drift, percent),
        ("σ growth", hold.sigma_growth, limits.sigma_growth, lambda x: f"{x:.2f}×"),
        ("clock drop", hold.clock_drop, limits.clock_drop, percent),
    ):
        if value is None:
            told.append(f"{word} not judged: {'no clock was read' if word == 'clock drop' else 'too few samples'}")
            continue
        told.append(f"{word} {shown(value)}")
        missed = abs(value) >= limit if word == "drift" else value >= limit if word == "σ growth" else value > limit
        misses += [f"{word} {shown(value)}, limit {shown(limit)}"] if missed else []
    seconds = f"{hold.held_s:.0f} s"
    details = {"held_s": hold.held_s, "drift": hold.drift_share, "sigma_growth": hold.sigma_growth,
               "clock_drop": hold.clock_drop, "limit": hold.limit, "ended": hold.ended}  # fmt: skip
    if misses:
        return Criterion("SC-7", limits.role, "FAIL", f"{'; '.join(misses)} (over {seconds}; limited by: {hold.limit})", rule, details)
    short = hold.held_s < 60 * limits.full_length_minutes
    length = f"PASS ({seconds})" if short else f"held {seconds}"
    ended = "" if hold.complete else f"; {hold.ended}"
    return Criterion("SC-7", limits.role, "PASS", f"{length}: {', '.join(told)}{ended}", rule, details)


def _why(results):
    lost = next((r for r in (results.row(SUSTAINED, name) for name in ROWS) if r is not None), None)
    if lost is None:
        return "not measured" if SUSTAINED not in results.records else not_measured(results, SUSTAINED)
    return f"{lost.name} {lost.status}: {lost.reason or 'no window was held'}"
