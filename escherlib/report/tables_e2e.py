"""Tables of family 5: MFU of every scope, chunks, compiling, the check of both paths, the account, what if."""

from escherlib.judge import account as accounts
from escherlib.judge import whatif
from escherlib.judge.e2e import read_scopes
from escherlib.judge.roofs import read_roofs
from escherlib.judge.workload import read_ops, sum_of_ops, timed_workload
from escherlib.report import op_groups
from escherlib.report.display import not_measured
from escherlib.report.facts import GIB, family_reason, number, percent, reason_of
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import percent_cell, remark

FAMILY = "05_e2e_mfu"
PILOT = (("sum of ops", "mfu_sum_of_ops_pct"), ("eager", "mfu_eager_pct"), ("compiled", "mfu_compiled_pct"))


def read(results):
    """(roofs, {(path, scope): Scope}, scoring) of a run."""
    from escherlib.parameters import load_scoring

    scoring = load_scoring()
    roofs = read_roofs(results, scoring)
    return roofs, read_scopes(results, roofs, scoring), scoring


def missing(results, title, prefix="e2e/"):
    """Box in place of a table or chart: reasons of the rows, else of the family."""
    rows = [row for row in results.rows(FAMILY, prefix) if not row.ok]
    return not_measured(title, reason_of(rows) if rows else family_reason(results, FAMILY))


def mfu(results):
    """A8 as a table: every scope, its ceilings, and what the pilot published of its own device."""
    roofs, scopes, scoring = read(results)
    if not results.rows(FAMILY, "e2e/"):
        return missing(results, "MFU")
    rows = [_scope_line(scope) for scope in scopes.values()] + _ceiling_lines(results, roofs, scopes, scoring)
    columns = (
        Column("scope", "scope", words, text=True),
        Column("ms", "ms a chunk"),
        Column("tflops", "TFLOP/s"),
        Column("mfu_pct", "sustained", percent_cell, "MFU, %"),
        Column("uncertainty_pp", "±", percent_cell, "MFU, %"),
        Column("in_state_pct", "in state", percent_cell, "MFU, %"),
        Column("of_floor_pct", "% of matrix floor", percent_cell),
        Column("of_burst_pct", "% burst peak", percent_cell),
        Column("of_rated_pct", "% rated", percent_cell),
        Column("clock_mhz", "MHz"),
        Column("power_w", "W"),
        Column("joules", "J a chunk"),
        Column("remark", "remark", words, text=True),
    )
    optional = ("uncertainty_pp", "of_burst_pct", "of_rated_pct", "clock_mhz", "power_w", "joules", "remark")
    return Table("mfu", "Share of the peak, scope by scope", filled(columns, rows, optional), tuple(rows), _mfu_note(results, roofs))


def _scope_line(scope):
    shares = ("mfu_sustained", "mfu_in_state", "of_floor", "mfu_burst", "mfu_rated")
    keys = ("mfu_pct", "in_state_pct", "of_floor_pct", "of_burst_pct", "of_rated_pct")
    line = {key: percent(getattr(scope, share), 1) for key, share in zip(keys, shares, strict=True)}
    return line | {
        "scope": scope.name, "ms": scope.chunk_s and 1e3 * scope.chunk_s, "tflops": scope.tflops,
        "uncertainty_pp": scope.uncertainty_pp, "clock_mhz": scope.clock_mhz, "power_w": scope.power_w,
        "joules": scope.joules_per_chunk, "remark": (scope.how if scope.ok else remark_of(scope)), "class": "" if scope.ok else "bad",
    }  # fmt: skip


def remark_of(scope):
    """Why a scope has no time."""
    return remark(scope.record) if scope.record is not None else scope.reason


def _ceiling_lines(results, roofs, scopes, scoring):
    """Sum of ops and matrix floor of both paths: ceilings of the scopes above, judged on the same peak."""
    found, timed, d = [], timed_workload(results), roofs.sustained.value
    for path in ("default", "optimized"):
        total = sum_of_ops(read_ops(results, timed, roofs, path, scoring)) if timed is not None else None
        if total is not None and total.seconds:
            found.append({"scope": f"{path} sum of ops", "ms": 1e3 * total.seconds, "tflops": total.tflops,
                          "mfu_pct": percent(total.tflops, d), "remark": "each kernel timed alone"})  # fmt: skip
        floors = [(s.floor_tflops, s) for s in scopes.values() if s.path == path and s.floor_tflops]
        for rate, scope in floors[:1]:
            found.append({"scope": f"{path} matrix floor", "ms": 1e3 * scope.flop / rate / 1e12, "tflops": rate,
                          "mfu_pct": percent(rate, d), "in_state_pct": percent(rate, scope.bracket_tflops),
                          "remark": "products and attentions alone, in order, between the chunks"})  # fmt: skip
    return found


def _mfu_note(results, roofs):
    from escherlib.accounting.workload import pilot_reference
    from escherlib.parameters import workload_from_dict

    note = f"Sustained peak {number(roofs.sustained.value)} TFLOP/s" if roofs.sustained.value else f"No MFU: {roofs.sustained.reason}"
    note += "; in state: on the mean of the two brackets beside the chunks" + op_groups.scale_text(results) + "."
    pilot = pilot_reference(workload_from_dict(results.manifest["workload"]))
    if pilot is None:
        return f"{note} Not the pilot's workload, so its figures are withheld."
    told = ", ".join(f"{name} {getattr(pilot, key):g} %" for name, key in PILOT)
    return f"{note} The pilot published {told}, on a peak of {pilot.peak_tflops:g} TFLOP/s of its own device."


def chunks(results):
    """Distribution of the chunk times of every scope."""
    _, scopes, _ = read(results)
    rows = [_chunk_line(scope) for scope in scopes.values() if scope.ok]
    if not rows:
        return missing(results, "Chunks")
    columns = (
        Column("scope", "scope", words, text=True),
        Column("n", "chunks"),
        Column("dropped_ms", "first, ms"),
        Column("min_ms", "least, ms"),
        Column("p10_ms", "p10, ms"),
        Column("ms", "median, ms"),
        Column("p90_ms", "p90, ms"),
        Column("max_ms", "most, ms"),
        Column("spread_pct", "p10–p90, %", percent_cell),
        Column("mean_ms", "total ÷ chunks, ms"),
        Column("label", "label", words, text=True),
    )
    note = f"The first chunk of each scope is dropped and kept here{op_groups.scale_text(results)}."
    return Table("chunks", "Chunk times", filled(columns, rows, ("label", "dropped_ms")), tuple(rows), note)


def _chunk_line(scope):
    found = scope.record.get("states", "sustained")
    samples = [s / 1e6 for s in found["samples_ns"]]
    total, dropped = scope.record.get("throughput") or {}, scope.record.get("dropped_ns") or []
    line = {"scope": scope.name, "n": len(samples), "min_ms": min(samples), "max_ms": max(samples), "ms": 1e3 * scope.chunk_s}
    line |= {f"{q}_ms": 1e3 * found[f"{q}_s"] for q in ("p10", "p90") if found.get(f"{q}_s")}
    if "p10_ms" in line and "p90_ms" in line:
        line["spread_pct"] = percent(line["p90_ms"] - line["p10_ms"], line["ms"])
    return line | {"dropped_ms": dropped[0] / 1e6 if dropped else None, "label": found.get("label"),
                   "mean_ms": 1e3 * total["s_per_chunk"] if total.get("s_per_chunk") else None}  # fmt: skip


def compiles(results):
    """Every compile mode that was tried: time, chunk, graphs, breaks, recompiles; which one was measured."""
    rows = []
    for record in results.rows(FAMILY, "e2e/"):
        compiled = (record.get("compile") if record.ok else None) or {}
        for tried in compiled.get("tried") or []:
            rows.append({
                "path": record.arguments["path"], "mode": tried["mode"], "seconds": tried.get("seconds"),
                "ms": tried["chunk_s"] and 1e3 * tried["chunk_s"], "measured": "yes" if tried["mode"] == compiled["mode"] else "",
                **{key: tried.get(key) for key in ("graphs", "breaks", "recompiles")}, "reason": tried.get("reason"),
            })  # fmt: skip
    if not rows:
        return missing(results, "Compiling", "e2e/")
    columns = (
        Column("path", "path", words, text=True),
        Column("mode", "mode", words, text=True),
        Column("seconds", "took, s"),
        Column("ms", "trial chunk, ms"),
        Column("graphs", "graphs", words),
        Column("breaks", "graph breaks", words),
        Column("recompiles", "recompiles", words),
        Column("measured", "measured", words, text=True),
        Column("reason", "remark", words, text=True),
    )
    return Table("compiles", "Compile modes tried", filled(columns, rows, ("reason",)), tuple(rows), merged=1)


def path_checks(results):
    """Error of both paths on a small instance against float32, and of compiled against eager."""
    records = results.rows(FAMILY, "correct/")
    if not records:
        return missing(results, "Correctness", "correct/")
    rows = tuple(
        {
            "path": record.name.split("/")[1], "error": record.get("correct", "error"), "bound": record.get("correct", "bound"),
            "compiled": _compiled_error(results, record), "remark": remark(record),
            "verdict": "within its bound" if record.ok else None, "class": "" if record.ok else "bad",
        }
        for record in records
    )  # fmt: skip
    columns = (
        Column("path", "path", words, text=True),
        Column("error", "relative error of the update", scientific),
        Column("bound", "bound", scientific),
        Column("compiled", "compiled against eager", scientific),
        Column("verdict", "verdict", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    return Table("path_checks", "A small instance against float32", filled(columns, rows, ("compiled", "remark")), rows)


def _compiled_error(results, record):
    """Relative error of the same path compiled against eager, on the stack itself, or None."""
    compiled = results.row(FAMILY, f"e2e/{record.name.split('/')[1]}/compiled")
    return (compiled.get("compiled_check") or {}).get("error") if compiled is not None and compiled.ok else None


def scientific(value):
    """`1.1e-02`"""
    return "–" if value is None else f"{value:.1e}"


def account(results, path="optimized"):
    """Every kernel of one chunk: alone, in its place, and what its FLOP would take at the sustained peak."""
    roofs, scopes, scoring = read(results)
    timed, scope = timed_workload(results), scopes[path, "eager"]
    if not scope.ok:
        return missing(results, "Account of a chunk")
    found = accounts.read_account(scope, read_ops(results, timed, roofs, path, scoring), scoring)
    rows = [_account_line(entry, scope, roofs) for entry in found.entries]
    rows.append(_account_total(found, rows, scope))
    columns = (
        Column("kernel", "kernel", words, text=True),
        Column("launches", "launches", words),
        Column("peak_ms", "FLOP at the peak, ms"),
        Column("alone_ms", "alone, ms"),
        Column("in_situ_ms", "in place, ms"),
        Column("lost_ms", "above the peak, ms"),
        Column("share_pct", "% of the chunk", percent_cell),
    )
    note = found.why and f"The account does not close: {found.why}."
    if found.closed:
        note = f"Marks and chunk agree; {percent(found.coverage, 1):.1f} % of the marked time was also timed alone."
    optional = ("alone_ms", "in_situ_ms", "peak_ms", "lost_ms")
    return Table("account", f"Account of one chunk, {path} path, eager", filled(columns, rows, optional), tuple(rows), note or "")


def _account_line(entry, scope, roofs):
    d, in_place = roofs.sustained.value, entry.in_situ_s or entry.alone_s
    peak = entry.flop / d / 1e12 if d else None
    return {
        "kernel": entry.name, "launches": entry.count, "peak_ms": peak and 1e3 * peak, "alone_ms": _ms(entry.alone_s),
        "in_situ_ms": _ms(entry.in_situ_s), "lost_ms": None if peak is None or not in_place else 1e3 * (in_place - peak),
        "share_pct": percent(in_place, scope.chunk_s),
    }  # fmt: skip


def _ms(seconds):
    return None if seconds is None else 1e3 * seconds


def _account_total(found, rows, scope):
    sums = {key: _sum(rows, key) for key in ("peak_ms", "alone_ms", "in_situ_ms")}
    chunk_ms = 1e3 * scope.chunk_s
    lost = chunk_ms - sums["peak_ms"] if sums["peak_ms"] else None
    return {"kernel": f"the chunk: {chunk_ms:.1f} ms", "launches": sum(e.count for e in found.entries), **sums, "lost_ms": lost}


def _sum(rows, key):
    values = [row[key] for row in rows]
    return sum(v or 0 for v in values) if any(v is not None for v in values) else None


def what_if_cases(results):
    """(workload, room in bytes, [WhatIf]) of the whole workload under the roofs of a run."""
    from escherlib.parameters import workload_from_dict

    roofs, _, scoring = read(results)
    whole, timed, room = workload_from_dict(results.manifest["workload"]), timed_workload(results), whatif.room_of(results)
    ops = read_ops(results, timed, roofs, "optimized", scoring) if timed is not None else []
    return whole, room, whatif.sweep(whole, roofs, ops, room_bytes=room)


def what_if(results):
    """Chunk time, MFU and memory against chunk, window and degree of tensor parallelism."""
    whole, room, cases = what_if_cases(results)
    if not cases:
        return not_measured("What if", "this run has not measured both roofs (run TESTCASE=compute and TESTCASE=bandwidth)")
    rows, degrees = [], sorted({case.tp for case in cases})
    for frames, window in dict.fromkeys((case.frames, case.window) for case in cases):
        alike = {case.tp: case for case in cases if (case.frames, case.window) == (frames, window)}
        row = {"frames": frames, "window": window, "fits": next((f"TP={tp}" for tp in degrees if alike[tp].fits), "none" if room else None)}
        for tp, case in alike.items():
            row |= {f"ms_tp{tp}": 1e3 * case.step_s, f"mfu_pct_tp{tp}": 100 * case.mfu, f"gib_tp{tp}": case.memory_bytes / GIB}
        rows.append(row | {"class": "bad" if row["fits"] == "none" else ""})
    columns = (
        Column("frames", "frames", words),
        Column("window", "window", words),
        *(Column(f"ms_tp{tp}", f"TP {tp}", group="ms a chunk") for tp in degrees),
        *(Column(f"mfu_pct_tp{tp}", f"TP {tp}", percent_cell, group="MFU, %") for tp in degrees),
        *(Column(f"gib_tp{tp}", f"TP {tp}", group="GiB a device") for tp in degrees),
        Column("fits", "fits from", words, text=True),
    )
    caption = "What another chunk, window or degree would give (frames and window in latent frames)"
    return Table("what_if", caption, filled(columns, rows, ("frames", "window", "fits")), tuple(rows), tp_note(whole, room))


def tp_note(whole, room):
    """Which degree the workload itself needs on this device."""
    analytic = "Analytic, optimized path: each kernel takes its least time, stretched by what this run measured of it; no communication."
    if not room:
        return analytic
    needed, held = whatif.tp_needed(whole, room), whatif.device_bytes(whole) / GIB
    fit = "one device is enough" if needed == 1 else f"TP={needed} is the first that fits" if needed else "no degree tried fits"
    return f"{analytic} {whole.name} holds {number(held)} GiB, this device {number(room / GIB)}: {fit}."


__all__ = ["account", "chunks", "compiles", "mfu", "path_checks", "what_if"]
