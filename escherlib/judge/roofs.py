"""The roofs of a run: peaks, memory roof, ridge. The only place that turns records into denominators.

Everything comes from this run's records; a rated value only from the profile, and it has no default.
"""

from dataclasses import dataclass, replace

from escherlib.judge.plateaus import OPS, ROOF_OPS, Plateau, read_plateau
from escherlib.judge.rows import COMPUTE, label_of, number, percent, rate_of, why_missing

PEAK = "peak"
FILL = "normal"  # random values; other fills change power, so speed, and are named variants only
# Rows of family 1 that time one GEMM, held against the confirmed peak. Search passes are too short to count.
GEMM_ROWS = ("square/", "workload/", "skew/", "fused/", "unfused/", "addmm/", "bmm/", "dtype/")


@dataclass(frozen=True)
class Roof:
    """One limit: `value` in `unit`, or None with `reason`. `row` names the record it comes from.

    label: what the record says of its state (`drifting`, …). shape: {m, n, k} of a GEMM. rated: the profile's
    figure in the same unit, or None with `rated_reason`.
    """

    value: float | None
    unit: str
    reason: str | None = None
    label: str | None = None
    row: str | None = None
    shape: dict | None = None
    backend: str | None = None
    rated: float | None = None
    rated_reason: str | None = None

    @property
    def rated_pct(self):
        """`value` in % of the rated figure, or None where either is missing."""
        return 100 * self.value / self.rated if self.value and self.rated else None


@dataclass(frozen=True)
class Relation:
    """Sustained peak against burst peak: kind, share = sustained ÷ burst as confirmed, and one sentence."""

    kind: str | None
    share: float | None
    text: str


@dataclass(frozen=True)
class Roofs:
    """All roofs of a run. `sustained` is D, the denominator of every MFU, and `ridge` goes with it."""

    peak_dtype: str | None
    burst: Roof
    sustained: Roof
    relation: Relation
    memory: Roof
    read: Roof
    plateaus: dict[str, Plateau]
    ridge: Roof
    ridge_burst: Roof
    findings: tuple[str, ...] = ()

    @property
    def peak_burst_tflops(self):
        """Burst peak in TFLOP/s, or None."""
        return self.burst.value

    @property
    def peak_sustained_tflops(self):
        """D in TFLOP/s, or None."""
        return self.sustained.value

    @property
    def memory_gb_s(self):
        """Memory roof in GB/s, or None."""
        return self.memory.value

    @property
    def read_gb_s(self):
        """Plateau of reads alone (sum) in GB/s, or None."""
        return self.read.value

    @property
    def ridge_flop_per_byte(self):
        """D ÷ memory roof in FLOP/byte, or None."""
        return self.ridge.value

    @property
    def ridge_burst_flop_per_byte(self):
        """Burst peak ÷ memory roof in FLOP/byte, or None."""
        return self.ridge_burst.value

    @property
    def rated_tflops(self):
        """Rated dense TFLOP/s in the peak's dtype, or None."""
        return self.burst.rated

    @property
    def rated_memory_gb_s(self):
        """Rated memory bandwidth in GB/s, or None."""
        return self.memory.rated

    @property
    def reasons(self):
        """Shortcut name → why it is None, for those that are."""
        parts = {
            "peak_burst_tflops": self.burst, "peak_sustained_tflops": self.sustained,
            "memory_gb_s": self.memory, "read_gb_s": self.read,
            "ridge_flop_per_byte": self.ridge, "ridge_burst_flop_per_byte": self.ridge_burst,
        }  # fmt: skip
        found = {name: roof.reason for name, roof in parts.items() if roof.value is None}
        rated = {"rated_tflops": self.burst, "rated_memory_gb_s": self.memory}
        return found | {name: roof.rated_reason for name, roof in rated.items() if roof.rated is None}


def read_roofs(results, scoring=None):
    """Roofs of a run. `scoring` (default: parameters/scoring.yaml) holds the limits of the findings."""
    if scoring is None:
        from escherlib.parameters import load_scoring

        scoring = load_scoring()
    tolerance = scoring.mfu.confirm_above_peak
    dtype = peak_dtype(results)
    confirmed = {state: _confirmed(results, state, dtype) for state in ("burst", "sustained")}
    sustained, above = highest_sustained(results, confirmed["sustained"], dtype, tolerance)
    relation = relate(confirmed["burst"], confirmed["sustained"], scoring.peaks_alike)
    burst = confirmed["burst"]
    if relation.kind == "slow ramp":
        burst = replace(sustained, label="slow ramp: the sustained peak")
    plateaus = {op: read_plateau(results, op, scoring.sc2.last_sizes) for op in OPS}
    memory, read = _memory(results, plateaus)
    burst_above = _rows_above(results, "burst", confirmed["burst"].value, dtype, tolerance)
    return Roofs(
        dtype, burst, sustained, relation, memory, read, plateaus,
        _ridge(sustained, memory), _ridge(burst, memory),
        findings=(
            *_unconfirmed(above, "sustained", confirmed["sustained"].value),
            *_unconfirmed(burst_above, "burst", confirmed["burst"].value),
            *denominator_findings(burst, sustained, memory, plateaus, scoring.above_roof_finding),
            *_cache_findings(plateaus),
        ),
    )  # fmt: skip


def peak_dtype(results):
    """Number format the peak was found in: the record's word, else the device's, else None."""
    record = results.row(COMPUTE, PEAK)
    return (record.get("dtype") if record is not None else None) or results.device.get("peak_dtype")


def _confirmed(results, state, dtype):
    """Burst or sustained value of the `peak` record, or why there is none."""
    record = results.row(COMPUTE, PEAK)
    value, label = rate_of(record, state), label_of(record, state)
    rated, rated_reason = rated_compute(results, dtype)
    common = {"rated": rated, "rated_reason": rated_reason}
    if value is None:
        reason = why_missing(results, COMPUTE, PEAK)
        if record is not None and record.ok:
            reason = label or f"the peak record holds no {state} value"
        return Roof(None, "TFLOP/s", reason=reason, label=label, **common)
    best = record.get(f"best_{state}", default={})
    shape = {axis: best[axis] for axis in "mnk"} if all(axis in best for axis in "mnk") else None
    return Roof(value, "TFLOP/s", None, label, PEAK, shape, best.get("backend"), **common)


def rated_compute(results, dtype):
    """(rated dense TFLOP/s or None, why None)."""
    profile = results.profile
    return _rated(profile, profile and dtype and profile.rated_tflops(dtype), profile and profile.why_unrated(dtype))


def rated_memory(results):
    """(rated memory bandwidth in GB/s or None, why None). A CPU's hangs on the channels that are fitted."""
    profile = results.profile
    why = profile and f"the profile {profile.id} states no memory bandwidth"
    if profile is not None and profile.cpu is not None:
        why = "which memory channels of this host are fitted, and how fast, is not known"
    return _rated(profile, profile and profile.memory_bandwidth_gb_s, why)


def _rated(profile, value, why):
    if profile is None:
        return None, "no rated value: the device has no profile"
    return value or None, None if value else f"no rated value: {why}"


def gemm_rows(results, dtype):
    """Finished GEMM rows of family 1 in one dtype, on normal random values, not emulated."""
    rows = [row for prefix in GEMM_ROWS for row in results.rows(COMPUTE, prefix) if row.ok]
    return [
        row for row in rows
        if row.get("dtype") == dtype and row.get("fill", default=FILL) == FILL and not row.get("emulated")
    ]  # fmt: skip


def _rows_above(results, state, peak, dtype, tolerance):
    """Rows whose rate in `state` is more than `tolerance` above the confirmed peak, highest first."""
    if peak is None:
        return []
    rated = [(rate_of(row, state), row) for row in gemm_rows(results, dtype)]
    found = [(value, row) for value, row in rated if value and value > peak * (1 + tolerance)]
    return sorted(found, key=lambda entry: -entry[0])


def highest_sustained(results, confirmed, dtype, tolerance):
    """(D, rows above it that were never confirmed).

    D is the highest sustained median that the confirming pass supports: that of the `peak` record, or of an
    unlabelled row within `tolerance` of it. A row further above is no denominator before it is confirmed too.
    """
    above = _rows_above(results, "sustained", confirmed.value, dtype, tolerance)
    if confirmed.value is None:
        return confirmed, above
    best, limit = confirmed, confirmed.value * (1 + tolerance)
    for row in gemm_rows(results, dtype):
        value = rate_of(row, "sustained")
        if value and best.value < value <= limit and not label_of(row, "sustained"):
            shape = {axis: row.get(axis) or row.arguments.get(axis) for axis in "mnk"}
            shape = shape if all(shape.values()) else None
            best = replace(best, value=value, row=row.name, shape=shape, backend=row.get("backend"))
    return best, above


def relate(burst, sustained, tolerance):
    """Relation of the confirmed peaks: above 1 + tolerance the burst was none, within it no cap is felt."""
    if burst.value is None or sustained.value is None:
        lacking = burst if burst.value is None else sustained
        return Relation(None, None, f"burst and sustained can't be compared: {lacking.reason}")
    share = sustained.value / burst.value
    kept = f"sustained throughput is {percent(share)} of the burst peak"
    if share > 1 + tolerance:
        return Relation("slow ramp", share, f"slow ramp: {kept}, so the burst peak is the sustained one")
    if share >= 1 - tolerance:
        return Relation("cap not binding", share, f"cap not binding: {kept}")
    return Relation("cap binding", share, kept)


def _memory(results, plateaus):
    """(memory roof, plateau of reads alone)."""
    rated, rated_reason = rated_memory(results)
    common = {"rated": rated, "rated_reason": rated_reason}
    best = max((plateaus[op] for op in ROOF_OPS), key=lambda plateau: plateau.gb_s or 0.0)
    read = plateaus["sum"]
    return (
        Roof(best.gb_s, "GB/s", best.reason, row=best.op if best.gb_s else None, **common),
        Roof(read.gb_s, "GB/s", read.reason, row=read.op if read.gb_s else None, **common),
    )


def _ridge(peak, memory):
    """FLOP per byte at which a peak and the memory roof meet."""
    if peak.value is None or memory.value is None:
        return Roof(None, "FLOP/byte", reason="; ".join(r.reason for r in (peak, memory) if r.value is None))
    value = 1e12 * peak.value / (1e9 * memory.value)
    rated = 1e12 * peak.rated / (1e9 * memory.rated) if peak.rated and memory.rated else None
    rated_reason = None if rated else peak.rated_reason or memory.rated_reason
    return Roof(value, "FLOP/byte", rated=rated, rated_reason=rated_reason)


def _unconfirmed(above, state, peak):
    """One finding for all rows above a confirmed peak."""
    if not above:
        return ()
    value, row = above[0]
    more = f" (and {len(above) - 1} more)" if len(above) > 1 else ""
    return (
        f"unconfirmed row above peak: {row.name} with {number(value)} TFLOP/s {state} is "
        f"{percent(value / peak - 1)} above the confirmed {state} peak of {number(peak)}{more}; "
        "the peak search missed it, and it is not used as the peak",
    )


def denominator_findings(burst, sustained, memory, plateaus, limit):
    """Sentences for values above `limit` × rated, and for a mul plateau above `limit` × the memory roof."""
    measured = [(f"{name} peak", roof.value, roof.rated, "rated", "TFLOP/s") for name, roof in
                (("burst", burst), ("sustained", sustained))]  # fmt: skip
    measured += [(f"{op} plateau", p.gb_s, memory.rated, "rated", "GB/s") for op, p in plateaus.items()]
    measured += [("mul plateau", plateaus["mul"].gb_s, memory.value, "measured roof of", "GB/s")]
    return tuple(
        f"the {what} of {number(value)} {unit} is {percent(value / of)} of the {basis} {number(of)} {unit}: "
        "a finding about the denominator, not an achievement"
        for what, value, of, basis, unit in measured
        if value and of and value > limit * of
    )


def _cache_findings(plateaus):
    """One finding where plateaus of the roof rest on buffers that a cache may have held."""
    held = [op for op in ROOF_OPS if plateaus[op].cached]
    if not held:
        return ()
    return (f"the plateau of {', '.join(held)} rests on buffers that the last-level cache may partly hold",)
