"""Family 5 as the judge reads it: chunk times of every scope as MFU, beside their floor, brackets and energy."""

import math
from dataclasses import dataclass, field

from escherlib.judge.rows import E2E, number, percent, state_of, why_missing
from escherlib.run.records import Record

SCOPES = tuple((path, scope) for path in ("default", "optimized") for scope in ("eager", "compiled"))


@dataclass(frozen=True)
class Scope:
    """One scope of one path; shares are of 1, None where unknown, and `reason` says why there is no chunk time.

    mfu_sustained = FLOP ÷ median chunk ÷ D; mfu_in_state ÷ mean of the two brackets; of_floor = matrix floor's chunk ÷
    chunk; floor_mfu = matrix floor on D. uncertainty_pp: half-widths of chunk and D, and half the distance of the
    brackets, in quadrature, as percentage points of mfu_sustained.
    """

    path: str
    scope: str
    reason: str | None = None
    chunk_s: float | None = None
    flop: int | None = None
    mfu_sustained: float | None = None
    mfu_in_state: float | None = None
    mfu_burst: float | None = None
    mfu_rated: float | None = None
    floor_tflops: float | None = None
    floor_mfu: float | None = None
    of_floor: float | None = None
    uncertainty_pp: float | None = None
    joules_per_chunk: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None
    throughput_tflops: float | None = None
    brackets_tflops: tuple = ()
    how: str | None = None
    record: Record | None = None
    findings: tuple[str, ...] = field(default=())

    @property
    def name(self):
        """`optimized eager`"""
        return f"{self.path} {self.scope}"

    @property
    def ok(self):
        """Whether there is a chunk time."""
        return self.chunk_s is not None

    @property
    def tflops(self):
        """FLOP ÷ median chunk, or None."""
        return self.flop / self.chunk_s / 1e12 if self.chunk_s else None

    @property
    def bracket_tflops(self):
        """Mean of the brackets, or None."""
        return sum(self.brackets_tflops) / len(self.brackets_tflops) if self.brackets_tflops else None


def read_scopes(results, roofs, scoring):
    """{(path, scope): Scope} of all four scopes; those without a time say why."""
    return {key: read_scope(results, roofs, scoring, *key) for key in SCOPES}


def read_scope(results, roofs, scoring, path, scope):
    """One scope from its record."""
    name = f"e2e/{path}/{scope}"
    record = results.row(E2E, name)
    found = state_of(record, "sustained")
    if found is None:
        return Scope(path, scope, why_missing(results, E2E, name), record=record)
    flop, chunk_s = record.get("flop"), found["median_s"]
    tflops, brackets = flop / chunk_s / 1e12, tuple(b["tflops"] for b in record.get("brackets", default=[]))
    floor, total = record.get("floor") or {}, record.get("throughput") or {}
    floor_tflops, window = floor.get("tflops"), (record.telemetry or {}).get("sustained") or {}
    energy = (window.get("energy_j") or {}).get("value")
    mean = sum(brackets) / len(brackets) if brackets else None
    made = Scope(
        path, scope, None, chunk_s, flop,
        mfu_sustained=_share(tflops, roofs.sustained.value), mfu_in_state=_share(tflops, mean),
        mfu_burst=_share(tflops, roofs.burst.value), mfu_rated=_share(tflops, roofs.burst.rated),
        floor_tflops=floor_tflops, floor_mfu=_share(floor_tflops, roofs.sustained.value),
        of_floor=_share(tflops, floor_tflops), uncertainty_pp=_uncertainty(found, brackets, tflops, results, roofs),
        joules_per_chunk=energy / total["chunks"] if energy and total.get("chunks") else None,
        clock_mhz=(window.get("clock_mhz") or {}).get("mean"), power_w=(window.get("power_w") or {}).get("mean"),
        throughput_tflops=flop / total["s_per_chunk"] / 1e12 if total.get("s_per_chunk") else None,
        brackets_tflops=brackets, how=record.get("how"), record=record,
    )  # fmt: skip
    return _with_findings(made, roofs, scoring)


def _share(value, of):
    return value / of if value and of else None


def _uncertainty(found, brackets, tflops, results, roofs):
    """Half-width of MFU on D in percentage points; None without D."""
    if not roofs.sustained.value:
        return None
    parts = [(found["ci_high_s"] - found["ci_low_s"]) / 2 / found["median_s"]] if found.get("ci_high_s") else []
    if len(brackets) > 1:
        parts.append((max(brackets) - min(brackets)) / 2 / (sum(brackets) / len(brackets)))
    peak = state_of(results.row("01_bf16_compute", roofs.sustained.row or "peak"), "sustained")
    if peak and peak.get("ci_high_s"):
        parts.append((peak["ci_high_s"] - peak["ci_low_s"]) / 2 / peak["median_s"])
    return 100 * tflops / roofs.sustained.value * math.sqrt(sum(part**2 for part in parts)) if parts else None


def _with_findings(scope, roofs, scoring):
    from dataclasses import replace

    return replace(scope, findings=tuple(_findings(scope, roofs, scoring.mfu)))


def _findings(scope, roofs, limits):
    """Sentences about one scope that a reader must know before believing its number."""
    d, mean = roofs.sustained.value, scope.bracket_tflops
    if scope.mfu_rated and scope.mfu_rated > 1:
        yield f"{scope.name}: {percent(scope.mfu_rated)} of the rated peak: FLOP or chunk time must be wrong"
    if scope.mfu_sustained and scope.mfu_sustained > 1:
        yield f"{scope.name}: {percent(scope.mfu_sustained)} MFU: the peak search missed the peak"
    if scope.of_floor and scope.of_floor > 1 + limits.confirm_above_peak:
        yield f"{scope.name}: a chunk takes less time than its matrix kernels alone ({percent(scope.of_floor)})"
    if mean and d and abs(mean / d - 1) > limits.brackets_apart:
        yield (
            f"{scope.name}: the peak GEMM beside it gave {number(mean)} TFLOP/s, D is {number(d)}: "
            f"{percent(scope.mfu_in_state)} in state beside {percent(scope.mfu_sustained)} on D"
        )
    if len(scope.brackets_tflops) > 1:
        low, high = min(scope.brackets_tflops), max(scope.brackets_tflops)
        if high / low - 1 > limits.brackets_apart:
            yield f"{scope.name}: its brackets lie {percent(high / low - 1)} apart, so the device's state changed meanwhile"
    if scope.throughput_tflops and abs(scope.throughput_tflops / scope.tflops - 1) > limits.throughput_apart:
        yield (
            f"{scope.name}: over the total time {number(scope.throughput_tflops)} TFLOP/s, by the median chunk "
            f"{number(scope.tflops)}: single chunks were held up"
        )


def audit(scopes, ops, roofs, scoring):
    """Findings of all scopes, and a compiled chunk under the sum of its kernels' least times: too good to be true."""
    found = [text for scope in scopes.values() for text in scope.findings]
    for scope in scopes.values():
        floors = [op.floor_s and op.floor_s * op.kernel.count for op in ops.get(scope.path, [])]
        if scope.ok and floors and all(floors) and scope.chunk_s < sum(floors):
            found.append(
                f"{scope.name}: {1e3 * scope.chunk_s:.1f} ms a chunk is less than the {1e3 * sum(floors):.1f} ms that its "
                "kernels need at the measured roofs"
            )
    return tuple(found)


def mfu_sentence(scope, roofs):
    """`91.9 % sustained (617 TFLOP/s, 1490 MHz, 692 W) · sustained throughput as 77.9 % of the burst peak · 62.4 % rated`."""
    if not scope.ok:
        return f"{scope.name}: {scope.reason}"
    known = [f"{number(scope.tflops)} TFLOP/s"]
    known += [f"{scope.clock_mhz:.0f} MHz"] if scope.clock_mhz else ["clock not read"]
    known += [f"{scope.power_w:.0f} W"] if scope.power_w else ["power not read"]
    parts = [
        f"{percent(scope.mfu_sustained) if scope.mfu_sustained else 'no measured peak'} sustained ({', '.join(known)})",
        f"sustained throughput as {percent(scope.mfu_burst)} of the burst peak" if scope.mfu_burst else "no burst peak",
        f"{percent(scope.mfu_rated)} rated" if scope.mfu_rated else roofs.burst.rated_reason or "no rated value",
    ]
    return " · ".join(parts)


__all__ = ["SCOPES", "Scope", "audit", "mfu_sentence", "read_scopes"]
