"""External validation: our figures beside those of other people's tools, with the reason where they differ.

Pure functions of plain dicts. How the notebook uses them:

    limits = load_validation()                                  # parameters/validation.yaml
    rows = table(results, limits, more=own_rows)                # records of family 11 against our own records
    status, reason = external_verdict(rows)                     # what SC-9 says

`table` reads every record of family 11_validation whose result holds `outcomes` (escherlib.tools.running, .measured) and takes
our figures from families 1 and 2; `more` adds figures in the same form, such as those of families 6 and 8:
{"metric": "all_reduce_busbw_gb_s", "size_bytes": 2**26, "value": 310.0, "unit": "GB/s", "row": "all_reduce/67108864",
 "convention": {"bytes": "bus", "direction": None, "dtype": "bf16"}}.
Internal second opinions are outcomes with `source: internal`.

A row is {metric, size_bytes, ours, theirs, unit, tool, difference_pct, tolerance_pct: [−below, above], status, why, source,
convention, row, file, note}; difference_pct = 100 · (ours − theirs) ÷ theirs.
  PASS  within the tolerance, on a whole output     FAIL  outside it, or the tool's own check found wrong results
  WARN  the tool ran and gave nothing whole: crashed, timed out, unparsed, cut (then also within the tolerance)
  SKIP  tool absent, nothing of ours to compare, another convention or device, a size that is shown but not judged
"""

from escherlib.judge.plateaus import OPS
from escherlib.judge.roofs import gemm_rows, read_roofs
from escherlib.judge.rows import number, rate_of

FAMILY = "11_validation"
COUNTED = ("external", "import")  # sources that SC-9 counts; a replay proves the machinery, not the machine
NOT_THERE = ("absent", "unavailable")
CONVENTION = ("bytes", "direction")  # what must agree; another number format is told, not refused
MEMORY_OPS = ("copy", "mul", "add", "axpy", "sum")


def table(results, limits, more=()):
    """Rows of every outcome that a run holds, against this run's own figures."""
    ours = [*own_figures(results), *more]
    outcomes = [entry for record in results.rows(FAMILY) if record.ok for entry in record.get("outcomes", default=[])]
    return [row for entry in outcomes for row in compare(ours, entry, limits, results.device.get("name"))]


def own_figures(results):
    """Our peaks and memory plateaus in the form that validators' figures have."""
    roofs = read_roofs(results)
    found = []
    for dtype in ("bf16", "fp32"):
        value, row = _gemm(results, roofs, dtype)
        found += _own(f"gemm_{dtype}_tflops", value, row, "TFLOP/s", dtype=dtype)
    for op in (op for op in MEMORY_OPS if op in OPS):
        plateau = roofs.plateaus[op]
        counted = "read" if op == "sum" else "read + write"
        size = plateau.sizes_bytes[-1] if plateau.sizes_bytes else None
        found += _own(f"memory_{op}_gb_s", plateau.gb_s, f"{op} plateau", "GB/s", bytes=counted, size_bytes=size)
    return found


def _gemm(results, roofs, dtype):
    """Best sustained rate of a number format: the confirmed peak where it is that format, else the best row."""
    if roofs.peak_dtype == dtype:
        return roofs.sustained.value or roofs.burst.value, "peak"
    for state in ("sustained", "burst"):
        known = [(rate, row.name) for row in gemm_rows(results, dtype) if (rate := rate_of(row, state))]
        if known:
            return max(known)
    return None, None


def _own(metric, value, row, unit, *, bytes=None, dtype=None, size_bytes=None):
    if not value:
        return []
    convention = {"bytes": bytes, "direction": None, "dtype": dtype}
    return [{"metric": metric, "size_bytes": size_bytes, "value": value, "unit": unit, "convention": convention, "row": row}]


def compare(ours, outcome, limits, device_name=None):
    """Rows of one outcome of a tool against our figures."""
    whole = _whole_row(outcome, device_name)
    if whole:
        return [whole]
    return [_figure_row(ours, theirs, outcome, limits) for theirs in outcome["metrics"]]


def _blank(outcome, **more):
    row = dict.fromkeys((
        "metric", "size_bytes", "ours", "theirs", "unit", "tool", "difference_pct", "tolerance_pct", "status", "why", "source",
        "convention", "row", "file", "note",
    ))  # fmt: skip
    return {**row, "tool": outcome["tool"], "source": outcome["source"], "file": outcome.get("stdout"), **more}


def _whole_row(outcome, device_name):
    """The one row of an outcome of which nothing can be compared, or None."""
    parsed, status, reason = outcome.get("parsed") or {}, outcome["status"], outcome.get("reason")
    if parsed.get("validation") == "failed":
        return _blank(outcome, status="FAIL", why=f"the tool's own check failed: {reason or parsed.get('reason')}")
    if status in NOT_THERE:
        return _blank(outcome, status="SKIP", why=f"{status}: {reason}")
    if status not in ("ok", "timed out", "crashed") or (status != "ok" and not outcome["metrics"]):
        return _blank(outcome, status="WARN", why=f"{status}: {reason}")
    other = _other_device(outcome, device_name)
    if other:
        return _blank(outcome, status="SKIP", why=f"the log names another device: {other}")
    if not outcome["metrics"]:
        why = "printed nothing that has a counterpart here" + (f" ({reason})" if reason else "")
        return _blank(outcome, status="SKIP", why=why)
    return None


def _other_device(outcome, device_name):
    """Name of a device in a saved log that isn't ours, or None where it is ours or nothing says."""
    if outcome["source"] != "import" or not device_name:
        return None
    parsed = outcome.get("parsed") or {}
    entries = [*(parsed.get("devices") or []), *(parsed.get("gpus") or [])]
    named = [entry.get("name") if isinstance(entry, dict) else entry for entry in entries if not _is_host(entry)]
    words = [name for name in named if name]
    mine = _plain(device_name)
    fits = any(_plain(name) in mine or mine in _plain(name) for name in words)
    return None if fits or not words else words[0]


def _is_host(entry):
    return isinstance(entry, dict) and entry.get("kind") == "cpu"


def _plain(name):
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _figure_row(ours, theirs, outcome, limits):
    """One figure of theirs with its counterpart of ours."""
    metric, size = theirs["metric"], theirs.get("size_bytes")
    shown = {
        "metric": metric, "size_bytes": size, "theirs": theirs["value"], "unit": theirs["unit"], "convention": theirs["convention"],
        "note": "; ".join(filter(None, [theirs.get("statistic"), theirs.get("note")])) or None,
    }  # fmt: skip
    limit = limits.of(metric)
    if limit is None:
        return _blank(outcome, **shown, status="SKIP", why="no tolerance in parameters/validation.yaml")
    mine = _counterpart(ours, theirs, limit)
    if mine is None:
        at = f" at {size} bytes" if limit.sizes == "same" and size else ""
        return _blank(outcome, **shown, status="SKIP", why=f"not measured here{at}")
    difference = 100 * (mine["value"] - theirs["value"]) / theirs["value"]
    tolerance = [-limit.below_pct, limit.above_pct]
    shown |= {"ours": mine["value"], "row": mine.get("row"), "difference_pct": difference, "tolerance_pct": tolerance}
    apart = _convention_apart(mine, theirs)
    if apart:
        return _blank(outcome, **shown, status="SKIP", why=apart)
    if limit.judged_from_bytes and size is not None and size < limit.judged_from_bytes:
        return _blank(outcome, **shown, status="SKIP", why=f"informational: below {limit.judged_from_bytes} bytes")
    status, why = _judged(difference, tolerance, limit, outcome)
    return _blank(outcome, **shown, status=status, why=why + _dtype_told(mine, theirs))


def _judged(difference, tolerance, limit, outcome):
    """(status, why) of a difference; a cut output can warn or fail, never pass."""
    told = f"ours {number(abs(difference))} % {'above' if difference > 0 else 'below'} theirs"
    if not tolerance[0] <= difference <= tolerance[1]:
        known = f"; known reasons: {'; '.join(limit.reasons)}" if limit.reasons else ""
        return "FAIL", f"{told}, outside {tolerance[0]:g} to {tolerance[1]:+g} %{known}"
    if outcome["status"] != "ok" or outcome.get("reading") == "partial":
        what = outcome["status"] if outcome["status"] != "ok" else "its output is incomplete"
        return "WARN", f"{told}, within the tolerance, but {what}: {outcome.get('reason') or 'no reason given'}"
    return "PASS", told


def _counterpart(ours, theirs, limit):
    """Our figure of the same metric, and of the same size where sizes count; a plateau's convention decides between several."""
    fits = [entry for entry in ours if entry["metric"] == theirs["metric"]]
    if limit.sizes == "same":
        fits = [entry for entry in fits if entry.get("size_bytes") == theirs.get("size_bytes")]
    agreeing = [entry for entry in fits if _convention_apart(entry, theirs) is None]
    return next(iter(agreeing or fits), None)


def _convention_apart(mine, theirs):
    """Words for conventions that both state and that differ, or None."""
    for key in CONVENTION:
        a, b = mine["convention"].get(key), theirs["convention"].get(key)
        if a and b and a != b:
            return f"counted differently: {key} {a} here, {b} there"
    return None


def _dtype_told(mine, theirs):
    a, b = mine["convention"].get("dtype"), theirs["convention"].get("dtype")
    return f"; {a} here, {b} there" if a and b and a != b else ""


def external_verdict(rows):
    """(status, reason) for SC-9: FAIL where an external row fails, PASS where one passes, else SKIP."""
    counted = [row for row in rows if row["source"] in COUNTED]
    failed = [row for row in counted if row["status"] == "FAIL"]
    passed = [row for row in counted if row["status"] == "PASS"]
    if failed:
        told = "; ".join(f"{row['tool']} {row['metric'] or ''}".strip() + f": {row['why']}" for row in failed[:3])
        return "FAIL", f"{len(failed)} of {len(counted)} external rows fail: {told}"
    if passed:
        return "PASS", f"{len(passed)} external rows pass, none fails"
    tools = ", ".join(dict.fromkeys(row["tool"] for row in rows if row["status"] == "SKIP"))
    return "SKIP", f"no external figure to compare with (skipped: {tools})" if tools else "no external tool was run"
