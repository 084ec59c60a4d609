"""Family 4 as the judge reads it: every kernel against its own least time under the roofs of this run."""

from dataclasses import dataclass

from escherlib.accounting import memory, paths, roofline, scale
from escherlib.judge.rows import E2E, OPS, rate_of, state_of, why_missing
from escherlib.run.records import Record

ATTENTION = "attention/"
SLOWEST_TFLOPS = 0.05  # a host whose rate no row tells counts as slow


@dataclass(frozen=True)
class Op:
    """One kernel of a path, one launch: measured and least time, what binds it, how near it is.

    `cls`: `at limit`, `tunable` or `flag` (scoring.yaml, classes), None where a time is missing; `reason` says why.
    """

    kernel: paths.Kernel
    measured_s: float | None
    floor_s: float | None
    bound: str | None
    ratio: float | None
    cls: str | None
    reason: str | None
    record: Record | None

    @property
    def tflops(self):
        """Measured TFLOP/s of a kernel that has FLOP, or None."""
        return self.kernel.flop / self.measured_s / 1e12 if self.kernel.flop and self.measured_s else None


@dataclass(frozen=True)
class SumOfOps:
    """All launches of one forward added up; `seconds` None where a kernel has no time (`missing` names them)."""

    seconds: float | None
    flop: int
    missing: tuple[str, ...]

    @property
    def tflops(self):
        """FLOP of the forward over the sum, or None."""
        return self.flop / self.seconds / 1e12 if self.seconds else None


def timed_workload(results):
    """The workload as this run timed it (perhaps reduced), read from its records; None where no record says."""
    from escherlib.parameters import workload_from_dict

    rows = [*results.rows(OPS), *results.rows(E2E, "e2e/")]
    geometry = next((row.arguments["geometry"] for row in rows if row.arguments.get("geometry")), None)
    if geometry is None:
        return None
    return workload_from_dict({"description": "as timed", "printed_megabyte": "MiB", **geometry})


def workload_to_time(results, chunk_budget_s):
    """The run's workload, or as much of it as the device's memory holds and a host computes in `chunk_budget_s`.

    A host's rate is the sustained peak of this run, else its row `speed`. UserError where the window is no ring of
    whole chunks, or nothing fits.
    """
    from escherlib.judge.roofs import read_roofs
    from escherlib.parameters import workload_from_dict

    workload = workload_from_dict(results.manifest["workload"])
    memory.require_ring(workload)
    budget = None
    if results.kind == "cpu":
        rates = [rate_of(row, "burst") for family in (OPS, E2E) for row in results.rows(family, "speed")]
        rate = read_roofs(results).peak_sustained_tflops or next(filter(None, rates), None)
        budget = 1e12 * rate * chunk_budget_s if rate else 1e12 * SLOWEST_TFLOPS * chunk_budget_s
    return scale.fit(workload, results.device["peak_dtype"], results.device["memory_bytes"], budget)


def read_ops(results, workload, roofs, path, scoring):
    """Every Op of one path in launch order; those without a time say why."""
    return [read_op(results, kernel, roofs, scoring) for kernel in paths.kernels(workload, path)]


def read_op(results, kernel, roofs, scoring):
    """One kernel against the roofs. Kernels that mostly read are held against the plateau of reads alone."""
    record = results.row(OPS, kernel.row)
    found = state_of(record, "sustained")
    measured = found["median_s"] if found else None
    memory = roofs.memory
    if (kernel.read_share or 0) > scoring.sc3.read_share_for_read_roof and roofs.read.value:
        memory = roofs.read
    reason = None if measured else why_missing(results, OPS, kernel.row)
    if roofs.sustained.value is None or memory.value is None:
        lacking = roofs.sustained if roofs.sustained.value is None else memory
        return Op(kernel, measured, None, None, None, None, reason or lacking.reason, record)
    limits = (kernel.flop, kernel.nbytes, roofs.sustained.value, memory.value)
    floor = roofline.floor_s(*limits)
    ratio = measured / floor if measured else None
    return Op(kernel, measured, floor, roofline.bound(*limits), ratio, classify(ratio, scoring.classes), reason, record)


def classify(ratio, classes):
    """`at limit`, `tunable` or `flag` of measured ÷ least time."""
    if ratio is None:
        return None
    return "at limit" if ratio <= classes.at_limit else "tunable" if ratio <= classes.tunable else "flag"


def sum_of_ops(ops):
    """All launches of one forward, one after another."""
    missing = tuple(op.kernel.name for op in ops if op.measured_s is None)
    flop = sum(op.kernel.flop * op.kernel.count for op in ops)
    whole = bool(ops) and not missing
    return SumOfOps(sum(op.measured_s * op.kernel.count for op in ops) if whole else None, flop, missing)


def coverage(ops):
    """Share of a forward's least time whose kernels have a measured time; None without roofs."""
    known = [op for op in ops if op.floor_s]
    whole = sum(op.floor_s * op.kernel.count for op in known)
    return sum(op.floor_s * op.kernel.count for op in known if op.measured_s) / whole if whole else None


def attention_rows(results, op=None):
    """Records of the forced attention backends, of one attention or of both; family 5 has its own where 4 has none."""
    prefix = f"{ATTENTION}{op}/" if op else ATTENTION
    return results.rows(OPS, prefix) or results.rows(E2E, prefix)


def best_attention(results, op):
    """(backend, TFLOP/s sustained) of the fastest correct backend; (None, None) where none was timed."""
    rated = [(rate_of(row, "sustained"), row.name.split("/", 2)[2]) for row in attention_rows(results, op)]
    best = max(((rate, name) for rate, name in rated if rate), default=(None, None))
    return best[1], best[0]


def chosen_attention(results):
    """{attention: its fastest backend} of the optimized path, of what this run timed."""
    ops = dict.fromkeys(row.name.split("/", 2)[1] for row in attention_rows(results))
    return {op: name for op in ops if (name := best_attention(results, op)[0])}


def attention_choices(results, family):
    """Backends to ask for where the choice must be made in `family` itself: all; none where family 4 made it."""
    known = attention_rows(results)
    return () if any(row.family != family for row in known) else ("auto",)


__all__ = [
    "Op",
    "SumOfOps",
    "attention_choices",
    "attention_rows",
    "best_attention",
    "chosen_attention",
    "coverage",
    "read_ops",
    "sum_of_ops",
    "timed_workload",
    "workload_to_time",
]
