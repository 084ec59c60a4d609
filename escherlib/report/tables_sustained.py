"""Tables of family 7: phases of a hold, drift and energy, and how rest restores speed."""

from escherlib.judge.roofs import read_roofs
from escherlib.judge.rows import SUSTAINED
from escherlib.judge.sustained import read_hold, recovery_points
from escherlib.report.display import not_measured
from escherlib.report.facts import family_reason, number, percent, reason_of
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import percent_cell

FAMILY = SUSTAINED
NAMES = {"first": "from rest", "head": "head", "middle": "middle", "tail": "tail", "worst": "worst stretch", "held": "all held"}


def read(results):
    """(Hold or None, roofs, scoring) of a run."""
    from escherlib.parameters import load_scoring

    scoring = load_scoring()
    return read_hold(results, scoring), read_roofs(results, scoring), scoring


def missing(results, title, prefix="hold/"):
    """Box in place of a table or chart: reasons of the rows, else of the family."""
    rows = [row for row in results.rows(FAMILY, prefix) if not row.ok]
    return not_measured(title, reason_of(rows) if rows else family_reason(results, FAMILY))


def phases(results):
    """One row a phase: time of a call, throughput, spread, clock, power, temperature."""
    hold, roofs, _ = read(results)
    if hold is None:
        return missing(results, "Phases of the long run")
    rows = []
    for name, title in NAMES.items():
        phase = hold.phases.get(name)
        if phase is None:
            continue
        rate = hold.tflops(phase.call_s)
        rows.append({
            "phase": title, "start_s": phase.start_s, "end_s": phase.end_s, "ms": 1e3 * phase.call_s, "tflops": rate,
            "of_peak_pct": percent(rate, roofs.sustained.value), "sigma_pct": percent(phase.sigma_s, phase.call_s),
            "clock_mhz": phase.clock_mhz, "power_w": phase.power_w, "temperature_c": phase.temperature_c,
        })  # fmt: skip
    columns = (
        Column("phase", "phase", words, text=True), Column("start_s", "from s"), Column("end_s", "to s"), Column("ms", "ms a call"),
        Column("tflops", "TFLOP/s"), Column("of_peak_pct", "% sustained peak", percent_cell), Column("sigma_pct", "σ, %", percent_cell),
        Column("clock_mhz", "MHz"), Column("power_w", "W"), Column("temperature_c", "°C"),
    )  # fmt: skip
    optional = ("tflops", "of_peak_pct", "sigma_pct", "clock_mhz", "power_w", "temperature_c")
    ended = f"{hold.ended[0].upper()}{hold.ended[1:]} after {hold.held_s:.0f} s."
    note = f"Medians of single calls; seconds count from the end of settling. {ended}"
    return Table("phases", "The long run, phase by phase", filled(columns, rows, optional), tuple(rows), note)


def staying(results):
    """What SC-7 judges, and what stands beside: value, limit, how it was found."""
    hold, _, scoring = read(results)
    if hold is None:
        return missing(results, "Staying power")
    limits, drift = scoring.sc7, hold.drift
    line = drift and f"line through the windows {100 * drift['change']:+.2f} % ({100 * drift['low']:+.2f} to {100 * drift['high']:+.2f})"
    few, blind = "too few samples", "no clock was read"
    rows = [
        _line("drift, tail against head", 100 * hold.drift_share, "%", f"< {100 * limits.drift:g}", line),
        _line("σ growth, tail over head", hold.sigma_growth, "×", f"< {limits.sigma_growth:g}", None if hold.sigma_growth else few),
        _line("clock drop, head to tail", hold.clock_drop and 100 * hold.clock_drop, "%", f"≤ {100 * limits.clock_drop:g}",
              None if hold.clock_drop is not None else blind),
        _line("energy of a call", hold.joules_per_call, "J", "", hold.energy_how or "no energy was read"),
        _line("work per energy", hold.joules_per_call and hold.flop and hold.flop / hold.joules_per_call / 1e9, "GFLOP/J", "", None),
        _line("limited by", None, "", "", f"{hold.limit}: {hold.limit_why}" if hold.limit_why else hold.limit),
    ]  # fmt: skip
    columns = (
        Column("what", "what", words, text=True), Column("value", "value"), Column("unit", "unit", words, text=True),
        Column("limit", "limit of SC-7", words, text=True), Column("how", "how, or why not", words, text=True),
    )  # fmt: skip
    return Table("staying", "Staying power", columns, tuple(rows))


def _line(what, value, unit, limit, how):
    return {"what": what, "value": value, "unit": unit, "limit": limit, "how": how or ""}


def recovery(results):
    """Speed after rest of growing length, beside the speed before it."""
    points = recovery_points(results)
    if not points:
        return missing(results, "Recovery", "recovery")
    rows = [
        {"idle_ms": 1e3 * p["idle_s"], "before": p["before_tflops"], "after": p["tflops"], "clock_mhz": p["clock_mhz"],
         "gain_pct": percent(p["tflops"], p["before_tflops"]) - 100}
        for p in points
    ]  # fmt: skip
    columns = (
        Column("idle_ms", "rest, ms"), Column("before", "TFLOP/s before"), Column("after", "TFLOP/s after"),
        Column("gain_pct", "gain, %", percent_cell), Column("clock_mhz", "MHz after"),
    )  # fmt: skip
    first_calls = "the median of the first calls, since one call is longer than a burst"
    how = "the fastest run of whole calls" if points[0]["fastest_run"] else first_calls
    record = results.row(FAMILY, "recovery")
    shape = "×".join(str(record.arguments[axis]) for axis in "mnk")
    note = f"GEMM {shape}: {number(record.get('work_s'))} s of work, the rest, then {how} within {number(1e3 * record.get('probe_s'))} ms."
    return Table("recovery", "How rest restores speed", filled(columns, rows, ("clock_mhz",)), tuple(rows), note)


__all__ = ["phases", "recovery", "staying"]
