"""The account of a chunk: every kernel's time in its place beside its time alone, and what a chunk loses against D."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """All launches of one kernel in one chunk; `alone_s` None where it was not timed, `in_situ_s` where it wasn't marked."""

    name: str
    kind: str
    flop: int
    count: int
    alone_s: float | None
    in_situ_s: float | None


@dataclass(frozen=True)
class Account:
    """Closure of one path. Shares are of 1; None where nothing was marked in place, and `why` says so.

    profiled_s: chunk with marks; unprofiled_s: chunks without them beside it; in_situ_s: sum of the marks.
    coverage: share of the marked time whose kernels were also timed alone. closed: marks add up to the profiled
    chunk, and that is like the unprofiled one, both within scoring.account.
    """

    entries: tuple[Entry, ...]
    profiled_s: float | None = None
    unprofiled_s: float | None = None
    in_situ_s: float | None = None
    coverage: float | None = None
    closed: bool | None = None
    why: str | None = None


def read_account(scope, ops, scoring):
    """Account of a path from its eager Scope (whose operations were marked) and its Ops."""
    marked = scope.record.get("in_situ") if scope.ok else None
    marks = (marked or {}).get("kernels", {})
    entries = tuple(_entry(op, marks) for op in ops)
    if not marked:
        return Account(entries, why=scope.reason or scope.record.get("in_situ_reason") or "nothing was marked in place")
    summed = sum(mark["s"] for mark in marks.values())
    covered = sum(entry.in_situ_s for entry in entries if entry.in_situ_s and entry.alone_s)
    profiled, unprofiled, limits = marked["chunk_s"], marked["unmarked_chunk_s"], scoring.account
    apart, drawn = abs(summed / profiled - 1), abs(profiled / unprofiled - 1)
    why = []
    if apart > limits.closes_within:
        why.append(f"the marks add up to {100 * summed / profiled:.1f} % of the marked chunk")
    if drawn > limits.profiled_within:
        why.append(f"a chunk with marks takes {100 * profiled / unprofiled:.1f} % of one without")
    return Account(entries, profiled, unprofiled, summed, covered / summed, not why, "; ".join(why) or None)


def _entry(op, marks):
    kernel = op.kernel
    found = [marks[name] for name in kernel.calls if name in marks]
    in_situ = sum(mark["s"] for mark in found) if len(found) == len(kernel.calls) else None
    alone = op.measured_s * kernel.count if op.measured_s else None
    return Entry(kernel.name, kernel.kind, kernel.flop * kernel.count, kernel.count, alone, in_situ)


def unexplained_pp(scope, account, roofs):
    """MFU points of a scope that its account leaves open: chunk against alone + (in place − alone), kernel by kernel."""
    if not (scope.ok and account.in_situ_s and roofs.sustained.value):
        return None
    covered = sum(entry.in_situ_s for entry in account.entries if entry.in_situ_s and entry.alone_s)
    return 100 * scope.mfu_sustained * abs(1 - covered / account.unprofiled_s)


GROUPS = (
    ("matrix products", ("gemm",)),
    ("attention", ("attention",)),
    ("norms and modulation", ("norm",)),
    ("GELU", ("gelu",)),
    ("KV cache write", ("cache",)),
    ("residuals and glue", ("glue",)),
)


def waterfall(scope, account, roofs):
    """[(what, seconds)] from FLOP ÷ D to the median chunk; the seconds add up to it exactly. [] without D or a chunk.

    Losses come from times in place where they were marked, else from times alone; the last entry is what is between
    the kernels, and in a compiled scope also what compiling changed.
    """
    if not (scope.ok and roofs.sustained.value):
        return []
    steps, rate = [("FLOP at the sustained peak", scope.flop / (1e12 * roofs.sustained.value))], 1e12 * roofs.sustained.value
    for name, kinds in GROUPS:
        entries = [entry for entry in account.entries if entry.kind in kinds]
        times = [entry.in_situ_s or entry.alone_s for entry in entries]
        if entries and all(times):
            steps.append((name, sum(times) - sum(entry.flop for entry in entries) / rate))
    rest = scope.chunk_s - sum(seconds for _, seconds in steps)
    return [*steps, ("between kernels" if scope.scope == "eager" else "between kernels, and won by compiling", rest)]


__all__ = ["Account", "Entry", "read_account", "unexplained_pp", "waterfall"]
