"""Plateaus of memory bandwidth: what an operation reaches once its buffers are larger than every cache."""

from dataclasses import dataclass
from statistics import median

from escherlib.judge.rows import BANDWIDTH, not_measured, rate_of, rate_range, why_missing

OPS = ("copy", "add", "mul", "axpy", "sum", "fill")
ROOF_OPS = (
    "copy",
    "add",
    "axpy",
)  # read and write together; reads or writes alone are shown, but are no roof
STATES = (
    "sustained",
    "cold",
    "burst",
)  # the first that a row has; hot buffers may sit in a cache and never count


@dataclass(frozen=True)
class Plateau:
    """Median GB/s of the last sizes of one operation; `reason` says why `gb_s` is None.

    sizes_bytes: bytes per buffer, ascending, of the values used (fewer than asked for if no more exist).
    spread: (largest − smallest) / median of the values, None below two. ranges_gb_s: p10–p90 of each.
    notes: sizes above the smallest used one that gave no number, with the reason.
    cached: sizes whose rotating buffers do not outgrow the last-level cache (`rotation.spans_cache` false).
    """

    op: str
    gb_s: float | None
    sizes_bytes: tuple = ()
    values_gb_s: tuple = ()
    ranges_gb_s: tuple = ()
    spread: float | None = None
    reason: str | None = None
    notes: tuple = ()
    cached: tuple = ()


def stream_gb_s(record):
    """(GB/s, state) of a stream row, or (None, None)."""
    for state in STATES:
        value = rate_of(record, state, "gb_s")
        if value:
            return value, state
    return None, None


def read_plateau(results, op, last):
    """Plateau of one operation over the `last` sizes among the rows `op/{bytes per buffer}` of this run."""
    rows = sorted((_size(row), row) for row in results.rows(BANDWIDTH, f"{op}/") if _size(row))
    found = [(size, row, *stream_gb_s(row)) for size, row in rows]
    used = [entry for entry in found if entry[2]][-last:]
    if not used:
        reason = (
            why_missing(results, BANDWIDTH, rows[-1][1].name) if rows else not_measured(results, BANDWIDTH)
        )
        return Plateau(op, None, reason=reason)
    values = tuple(value for _, _, value, _ in used)
    middle = median(values)
    lost = [row for size, row, value, _ in found if not value and size > used[0][0]]
    return Plateau(
        op, middle, tuple(size for size, *_ in used), values,
        tuple(rate_range(row, state, "gb_s") for _, row, _, state in used),
        (max(values) - min(values)) / middle if len(values) > 1 else None,
        notes=tuple(f"{row.name} {row.status}: {row.reason or 'no value'}" for row in lost),
        cached=tuple(size for size, row, *_ in used if row.get("rotation", "spans_cache") is False),
    )  # fmt: skip


def _size(row):
    tail = row.name.rpartition("/")[2]
    return int(tail) if tail.isdigit() else None
