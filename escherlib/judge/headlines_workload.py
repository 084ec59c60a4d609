"""Headline figures and findings of families 4 and 5."""

from escherlib.judge.account import read_account, waterfall
from escherlib.judge.e2e import audit, mfu_sentence, read_scopes
from escherlib.judge.roofs import read_roofs
from escherlib.judge.rows import number, percent
from escherlib.judge.workload import (
    attention_rows,
    best_attention,
    coverage,
    read_ops,
    sum_of_ops,
    timed_workload,
)

PATHS = ("default", "optimized")
ORDER = (("optimized", "compiled"), ("optimized", "eager"), ("default", "compiled"), ("default", "eager"))
TOP = 3  # losses worth a sentence


def _read(results):
    """(scoring, roofs, timed workload, {path: ops})."""
    from escherlib.parameters import load_scoring

    scoring, timed = load_scoring(), timed_workload(results)
    roofs = read_roofs(results, scoring)
    ops = {path: read_ops(results, timed, roofs, path, scoring) if timed is not None else [] for path in PATHS}
    return scoring, roofs, timed, ops


def workload(results):
    """Sum of ops of both paths as MFU, coverage, drift, best attention."""
    _, roofs, timed, ops = _read(results)
    d, sums = roofs.sustained.value, {path: sum_of_ops(ops[path]) for path in PATHS}
    share = {path: 100 * s.tflops / d if s.tflops and d else None for path, s in sums.items()}
    best = {op: best_attention(results, op) for op in ("self_attn.flash", "cross_attn.flash")}
    drift, covered = results.manifest["workload"].get("drift") or {}, coverage(ops["optimized"])
    headline = {
        "sum_of_ops_optimized_mfu_pct": (share["optimized"], "%"),
        "sum_of_ops_default_mfu_pct": (share["default"], "%"),
        "ops_coverage_pct": (100 * covered if covered is not None else None, "%"),
        "flop_drift_pct": (drift.get("flop_pct"), "%"),
        "traffic_drift_pct": (drift.get("traffic_pct"), "%"),
        "attention_self_tflops": (best["self_attn.flash"][1], "TFLOP/s"),
        "attention_cross_tflops": (best["cross_attn.flash"][1], "TFLOP/s"),
    }
    return headline, [
        *_sum_sentences(sums, share, roofs), *_loss_sentences(ops["optimized"]), *_attention_sentences(results, best),
        *_flag_sentences(ops["optimized"]), *_scale_sentences(timed),
    ]  # fmt: skip


def _sum_sentences(sums, share, roofs):
    for path in reversed(PATHS):
        total = sums[path]
        if total.seconds is None:
            missing = f": {', '.join(total.missing[:TOP])} not timed" if total.missing else ""
            yield f"The {path} path has no sum of ops{missing}."
        elif share[path] is None:
            yield f"The kernels of the {path} path take {1e3 * total.seconds:.1f} ms a chunk; {roofs.sustained.reason}."
        else:
            yield (
                f"The kernels of the {path} path, each alone, add up to {1e3 * total.seconds:.1f} ms a chunk: "
                f"{number(total.tflops)} TFLOP/s, {share[path]:.1f} % of the sustained peak."
            )


def _loss_sentences(ops):
    lost = [(op.kernel.count * (op.measured_s - op.floor_s), op) for op in ops if op.measured_s and op.floor_s]
    whole = sum(op.kernel.count * op.measured_s for _, op in lost)
    top = sorted(lost, key=lambda entry: -entry[0])[:TOP]
    if not top:
        return []
    told = ", ".join(f"{op.kernel.name} {1e3 * seconds:.1f} ms ({percent(seconds / whole)})" for seconds, op in top)
    return [f"Most is lost above the roofline in {told} of a chunk."]


def _attention_sentences(results, best):
    for op, (backend, rate) in best.items():
        if backend:
            yield f"Fastest for {op}: {backend}, {number(rate)} TFLOP/s sustained."
    absent = dict.fromkeys(
        row.name.rsplit("/", 1)[1] for row in attention_rows(results) if row.status == "refused"
    )
    if absent:
        yield f"Attention backends that gave no number here: {', '.join(absent)}; the table says why."


def _flag_sentences(ops):
    flagged = [op for op in ops if op.cls == "flag" and op.floor_s]
    if flagged:
        told = ", ".join(f"{op.kernel.name} {op.ratio:.2f}×" for op in flagged[:2 * TOP])
        yield f"Flagged as far from the least time: {told}."


def _scale_sentences(timed):
    if timed is not None and timed.scale_note:
        yield f"This device timed a part of the workload: {timed.scale_note}."


def e2e(results):
    """MFU of every scope, the matrix floor, chunk times, energy."""
    scoring, roofs, timed, ops = _read(results)
    scopes = read_scopes(results, roofs, scoring)
    headline = {}
    for path, scope in ORDER:  # what a reader looks for first stands first
        found, name = scopes[path, scope], scope if path == "optimized" else f"{scope}_default"
        headline[f"{name}_mfu_sustained_pct"] = (_pct(found.mfu_sustained), "%")
        headline[f"{name}_mfu_in_state_pct"] = (_pct(found.mfu_in_state), "%")
        headline[f"{name}_chunk_ms"] = (1e3 * found.chunk_s if found.ok else None, "ms")
        if path == "optimized":
            headline[f"{name}_of_floor_pct"] = (_pct(found.of_floor), "%")
            headline[f"{name}_joules_per_chunk"] = (found.joules_per_chunk, "J")
    eager = scopes["optimized", "eager"]
    headline["matrix_floor_mfu_pct"] = (_pct(eager.floor_mfu), "%")
    sentences = [f"{scope.name}: {mfu_sentence(scope, roofs)}" for scope in scopes.values() if scope.ok]
    return headline, [
        *(f"{text}." for text in sentences), *_floor_sentences(eager), *_waterfall_sentences(eager, ops, scoring, roofs),
        *(f"{text}." for text in audit(scopes, ops, roofs, scoring)), *_scale_sentences(timed),
    ]  # fmt: skip


def _pct(share):
    return None if share is None else 100 * share


def _floor_sentences(eager):
    if eager.ok and eager.floor_tflops and eager.of_floor:
        told = f" ({percent(eager.floor_mfu)} of the sustained peak)" if eager.floor_mfu else ""
        yield (
            f"The matrix kernels alone, in the same order and state, reach {number(eager.floor_tflops)} TFLOP/s{told}; "
            f"the eager optimized path keeps {percent(eager.of_floor)} of that."
        )


def _waterfall_sentences(eager, ops, scoring, roofs):
    steps = waterfall(eager, read_account(eager, ops["optimized"], scoring), roofs)[1:]
    top = sorted(steps, key=lambda step: -step[1])[:TOP]
    if top:
        told = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in top)
        yield f"Of the {1e3 * eager.chunk_s:.1f} ms of an optimized eager chunk, the sustained peak is missed by {told}."


__all__ = ["e2e", "workload"]
