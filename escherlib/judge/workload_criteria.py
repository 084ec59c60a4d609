"""SC-3 and SC-4: is every kernel of the workload near its least time, and do chunk and kernels agree?"""

from functools import partial

from escherlib.judge.account import read_account, unexplained_pp
from escherlib.judge.criteria import Criterion, miss, warn
from escherlib.judge.e2e import read_scopes
from escherlib.judge.rows import E2E, OPS, not_measured, number, percent
from escherlib.judge.workload import attention_rows, coverage, read_ops, sum_of_ops, timed_workload

FA4 = "fa4"
FA4_SETUP = "make setup EXTRAS=fa4"


def operations(results, roofs, scoring):
    """SC-3: kernels of the optimized path against max(FLOP ÷ D, bytes ÷ memory roof), from above and from below."""
    limits, timed = scoring.sc3, timed_workload(results)
    rule = (
        f"{limits.title}: time of each kernel ≤ {limits.slowest:g} × its least time, and ≥ that / {limits.fastest:g}; "
        f"least times under {1e6 * limits.lower_bound_only_below_s:.0f} µs from below only"
    )
    ops = read_ops(results, timed, roofs, "optimized", scoring) if timed is not None else []
    judged = [entry for op in ops if (entry := judge_op(results, op, limits))]
    row = partial(Criterion, "SC-3", limits.role, rule=rule, details={"ops": judged, "coverage": coverage(ops)})
    if not judged:
        return row("SKIP", next((op.reason for op in ops if op.reason), None) or not_measured(results, OPS))
    told = [f"{entry['op']}: {entry['miss']}" for entry in judged if entry["miss"]]
    told = ["out of bounds: " + "; ".join(told)] if told else []
    misses = sum(bool(entry["miss"]) for entry in judged)
    lacking = [entry for entry in judged if entry["lacks"]]
    status = miss(results) if misses > len(lacking) else warn(results) if lacking else "PASS"
    if not told:
        slowest = max((e for e in judged if e["ratio"] and not e["lower_only"]), key=lambda e: e["ratio"], default=None)
        told.append(f"{len(judged)} kernels within")
        told += [f"the slowest is {slowest['op']} with {slowest['ratio']:.2f} × its least time"] if slowest else []
    untimed = [op for op in ops if not op.measured_s]
    if untimed:
        names = ", ".join(op.kernel.name for op in untimed)
        told.append(f"not judged: {names} ({untimed[0].reason}); {percent(coverage(ops))} of the least time is covered")
    return row(status, "; ".join(told + ([f"timed: {timed.scale_note}"] if timed.scale_note else [])))


def judge_op(results, op, limits):
    """{op, ratio, lower_only, miss, lacks} of a timed kernel, else None; `lacks`: the package that would make it faster."""
    if not op.ratio:
        return None
    found = {"op": op.kernel.name, "ratio": op.ratio, "measured_s": op.measured_s, "floor_s": op.floor_s, "bound": op.bound}
    found |= {"lower_only": op.floor_s < limits.lower_bound_only_below_s, "miss": None, "lacks": None}
    if op.ratio * limits.fastest < 1:
        return found | {"miss": f"{op.ratio:.2f} × its least time: faster than the roofs allow, so bytes, FLOP or a cache lie"}
    if op.ratio > limits.slowest and not found["lower_only"]:
        found["miss"] = f"{op.ratio:.2f} × its least time"
        if op.kernel.kind == "attention" and lacks_fa4(results, op.kernel.name):
            found |= {"miss": f"{found['miss']}, for want of flash-attn-4: {FA4_SETUP}", "lacks": "flash-attn-4"}
    return found


def lacks_fa4(results, op):
    """Whether flash-attn-4 was asked for and only its package was missing."""
    rows = [row for row in attention_rows(results, op) if row.name.rsplit("/", 1)[1].startswith(FA4)]
    return any(row.status == "refused" and "not installed" in (row.reason or "") for row in rows)


def end_to_end(results, roofs, scoring):
    """SC-4: compiled against eager on both paths; on the default path eager against the sum of its kernels' times."""
    limits = scoring.sc4
    rule = (
        f"{limits.title}: compiled ≥ eager − {limits.compiled_below_eager_pp:g} pp on both paths; default eager within "
        f"{limits.eager_from_sum_of_ops_pp:g} pp of the sum of ops, or all but {limits.unexplained_pp:g} pp explained"
    )
    row = partial(Criterion, "SC-4", limits.role, rule=rule)
    if not results.rows(E2E, "e2e/"):
        return row("SKIP", not_measured(results, E2E))
    if roofs.sustained.value is None:
        return row("SKIP", f"no denominator: {roofs.sustained.reason}")
    scopes = read_scopes(results, roofs, scoring)
    parts = [compiled_against_eager(scopes, path, limits) for path in ("default", "optimized")]
    parts.append(eager_against_ops(results, roofs, scoring, scopes["default", "eager"]))
    details = {"parts": parts, "mfu_pct": {s.name: s.mfu_sustained and 100 * s.mfu_sustained for s in scopes.values()}}
    told = "; ".join(part["text"] for part in parts)
    verdicts = [part["ok"] for part in parts]
    status = miss(results) if False in verdicts else "SKIP" if None in verdicts else "PASS"
    return row(status, told, details=details)


def compiled_against_eager(scopes, path, limits):
    """{what, ok, text}; ok None where a scope is missing."""
    eager, compiled = scopes[path, "eager"], scopes[path, "compiled"]
    missing = next((scope for scope in (eager, compiled) if not scope.ok), None)
    if missing is not None:
        return {"what": path, "ok": None, "text": f"{missing.name} missing: {missing.reason}"}
    apart = 100 * (compiled.mfu_sustained - eager.mfu_sustained)
    text = f"{path}: eager {percent(eager.mfu_sustained)}, compiled {percent(compiled.mfu_sustained)} ({apart:+.1f} pp)"
    return {"what": path, "ok": apart >= -limits.compiled_below_eager_pp, "text": text}


def eager_against_ops(results, roofs, scoring, eager):
    """{what, ok, text} of the default path: near its sum of ops, or its account closes."""
    limits, timed = scoring.sc4, timed_workload(results)
    part = {"what": "sum of ops", "ok": None}
    if not eager.ok:
        return part | {"text": f"{eager.name} missing: {eager.reason}"}
    ops = read_ops(results, timed, roofs, "default", scoring)
    account, total = read_account(eager, ops, scoring), sum_of_ops(ops)
    if account.coverage is not None and account.coverage < limits.coverage:
        return part | {"text": f"sum of ops not compared: it covers {percent(account.coverage)} of the chunk"}
    if total.tflops is None:
        return part | {"text": f"sum of ops missing: {len(total.missing)} kernels have no time, {total.missing[0]} first"}
    share = total.tflops / roofs.sustained.value
    apart, left = 100 * (eager.mfu_sustained - share), unexplained_pp(eager, account, roofs)
    text = f"default sum of ops {percent(share)}, eager {number(abs(apart))} pp {'above' if apart > 0 else 'below'}"
    if left is not None:
        text += f", {number(left)} pp unexplained by the account"
    near = abs(apart) <= limits.eager_from_sum_of_ops_pp
    return part | {"ok": near or (left is not None and left <= limits.unexplained_pp), "text": text}
