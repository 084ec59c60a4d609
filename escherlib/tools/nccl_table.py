"""The table that nccl-tests and rccl-tests share, as text and as JSON.

Sizes are bytes of the whole collective as the tool counts them (all-gather: its output), times µs, bandwidths decimal
GB/s. Columns are taken by the header where there is one; a tail without header has 11 to 13 words a row. `wrong` None
means not checked, never 0; `error` is the deviation that versions before 2022 print in its place. The environment
that the JSON carries is never read: it holds secrets. The average is over all sizes and both halves, never a peak.
"""

import re
from itertools import pairwise

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.tools.text import (
    cannot,
    elided,
    entries,
    entry,
    found,
    json_objects,
    json_value,
    lines_of,
    missing,
    number,
    shortened,
    whole,
)

DTYPES = {
    "half": "fp16", "float": "fp32", "double": "fp64", "bfloat16": "bf16", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2",
    "f8e4m3": "fp8_e4m3", "f8e5m2": "fp8_e5m2", "int8": "int8", "uint8": "uint8", "int32": "int32", "uint32": "uint32",
    "int64": "int64", "uint64": "uint64",
}  # fmt: skip
TIMES = ("time", "cputime")
RANK = re.compile(
    r"#\s*Rank\s+(?P<rank>[0-9]{1,6})\s+(?:Group\s+[0-9]+\s+)?Pid\s+[0-9]+\s+on\s+\S+\s+device\s+(?P<device>[0-9]{1,3})"
    r"\s+\[(?P<bus>[0-9a-fA-Fx:.]+)\]\s+(?P<name>\S.*)"
)
ERROR = re.compile(
    r"Test (?:NCCL|CUDA|HIP|RCCL) failure [^\n]*|Invalid number of GPUs: [^\n]*|invalid size specified for '\w+'|"
    r"Test failure [\w./-]+:[0-9]+|Invalid (?:step|minimum|maximum)[^\n]*"
)
RCCL = re.compile(r"rccl-tests|RCCL version|librccl|AMD (?:Instinct|Radeon)|Errors with asterisks indicate", re.IGNORECASE)
NCCL = re.compile(
    r"nccl-tests|NVIDIA|Tesla|GeForce|Quadro|\b[AHLV]100-|cudaDriverVersion|NCCL version|\"nccl_version\""
)
HEADING = re.compile(r"#\s*(?:nThread\b|Collective test starting|(?:nccl|rccl)-tests version)")
STEPS = re.compile(r"step: (\d{1,18})\((\w+)\)", re.ASCII)
SETTINGS = {
    "threads": r"nThread (\d+)", "gpus_per_thread": r"nGpus (\d+)", "min_bytes": r"minBytes (\d+)",
    "max_bytes": r"maxBytes (\d+)", "warmup_iterations": r"warmup iters: (\d+)", "iterations": r"[0-9] iters: (\d+)",
    "aggregated_iterations": r"agg iters: (\d+)", "validation": r"validation: (\d+)", "graph": r"graph: (\d+)",
}  # fmt: skip
HALVES = ("out_of_place", "in_place")
CONSISTENT = 0.02  # size ÷ time against algbw: both are printed rounded


def parse(text, library):
    """Content of one output; `library` is `nccl` or `rccl`, whose tests alone are taken."""
    if _library(text) not in (library, None):
        return unparsed()
    if '"alg_bw"' in text or ('"nccl_version"' in text and '"config"' in text):
        return _json(text)
    runs = [_run(part) for part in _parts(lines_of(text))]
    runs = [run for run in runs if run is not None]
    if not runs:
        words = cannot(text)
        return result(UNAVAILABLE, words) if words else unparsed()
    first = next((run for run in runs if run["rows"]), runs[0])
    others = [run for run in runs if run is not first]
    return {**first, "library": _library(text), "further_runs": others}


def _library(text):
    """`rccl`, `nccl` or None where nothing tells the two apart. `NCCL INFO` lines stand in the logs of both."""
    if RCCL.search(text):
        return "rccl"
    return "nccl" if NCCL.search(text) else None


def _parts(lines):
    """Lines of each test in a file: another one begins at a heading that follows rows or an average."""
    parts, measured = [[]], False
    for line in lines:
        if measured and HEADING.match(line):
            parts.append([])
            measured = False
        parts[-1].append(line)
        words = line.split()
        measured |= "Avg bus bandwidth" in line or (len(words) >= 11 and whole(words[0]) is not None)
    return parts


def _run(lines):
    """One test, or None where nothing of it is there."""
    text = "\n".join(lines)
    devices, listed = _devices(lines)
    columns, rows, cut = _rows(lines)
    settings = _settings(text)
    error = found(rf"({ERROR.pattern})", text, 0)
    average, bounds = _average(text), _bounds(text)
    named = found(r"#\s*Collective test starting: (\w+)", text)
    tool = re.search(r"(?:^|# |\n)(?:nccl|rccl)-tests:? version:? (\S+)", text, re.IGNORECASE)
    library = found(r"(?:NCCL|RCCL) version\s*:?\s*([0-9]\S*)", text)
    marks = [devices, rows, settings, error, named, tool, columns, average is not None, library]
    if not any(marks):
        return None
    ranks = (max(device["rank"] for device in devices) + 1) if devices and listed else None
    values = {
        "tool_version": tool[1] if tool else None,
        "library_version": library,
        "rocm_version": found(r"ROCm version\s*:\s*(\S+)", text),
        "collective": named.removesuffix("_perf") if named else _inferred(rows, ranks),
        "collective_how": "named" if named else "inferred" if _inferred(rows, ranks) else None,
        "ranks": ranks,
        "devices": devices,
        "settings": settings,
        **_results(rows, average, bounds, ranks),
    }
    begun, ended = settings is not None, average is not None
    reason = missing({
        "the beginning is missing": not begun,
        "ends before the first row": begun and not rows,
        "the end is missing": rows and not ended,
        "a row is cut or unreadable": cut,
        "rows were left out by the source": elided(text),
        "the average printed is not that of the rows": begun and values["rows_complete"] is False and not elided(text),
        "size, time and algbw of a row disagree": not all(row["consistent"] for row in rows),
    })  # fmt: skip
    status, reason = _verdict(error, values, reason)
    return result(status, reason, **values, truncated=not (begun and ended and rows) or cut)


def _verdict(error, values, reason):
    if error:
        return FAILED, shortened(error)
    if values["validation"] == "failed":
        return FAILED, f"validation failed: {values['wrong_total'] or values['out_of_bounds']['count']} wrong values"
    return (PARTIAL, reason) if reason else (OK, None)


def _results(rows, average, bounds, ranks):
    """What both formats share: rows, peaks, average, verdict of the tool's own check."""
    halves = [row[half] for row in rows for half in HALVES if row[half]]
    wrong = [half["wrong"] for half in halves if half["wrong"] is not None]
    means = [half["busbw_gb_s"] for half in halves if half["busbw_gb_s"] is not None]
    checked = bool(wrong)
    broken = sum(wrong) > 0 or (bounds["okay"] is False)
    one = ranks == 1
    complete = None
    if average is not None and means:
        complete = abs(sum(means) / len(means) - average) <= 1e-4 * average + 0.006  # each is printed rounded
    return {
        "rows": rows,
        "peak": {half: None if one else _peak(rows, half) for half in HALVES},
        "average_busbw_gb_s": average,
        "rows_complete": complete,
        "out_of_bounds": bounds,
        "wrong_total": sum(wrong) if checked else None,
        "checked": checked if rows else None,
        "validation": "failed" if broken else "passed" if checked else "unchecked" if rows else None,
        "meaningful": bool(rows) and not one,
        "note": "one rank: nothing is exchanged, so neither busbw nor algbw is a bandwidth" if one and rows else None,
    }


def _peak(rows, half):
    known = [row for row in rows if row[half] and row[half]["busbw_gb_s"] and row["consistent"]]
    if not known:
        return None
    best = max(known, key=lambda row: row[half]["busbw_gb_s"])
    return {"size_bytes": best["size_bytes"], "busbw_gb_s": best[half]["busbw_gb_s"]}


def _devices(lines):
    """(devices as listed, whether the list is whole: the table's header or a row follows, and nothing was left out)."""
    matches = [RANK.match(line.lstrip()) for line in lines]
    devices = [
        {"rank": int(m["rank"]), "device": int(m["device"]), "bus": m["bus"], "name": m["name"].strip()} for m in matches if m
    ]
    last = max((at for at, match in enumerate(matches) if match), default=0)
    following = [line for line in lines[last + 1 :] if line.strip(" #")]
    whole_list = any("size" in line or whole(line.split()[0]) is not None for line in following) and not elided("\n".join(lines))
    return devices, whole_list


def _settings(text):
    line = found(r"^#\s*(nThread .*)$", text)
    if line is None:
        return None
    settings = {name: whole(found(pattern, line)) for name, pattern in SETTINGS.items()}
    step = STEPS.search(line)
    return {**settings, "step": int(step[1]) if step else None, "step_kind": step[2] if step else None}


def _average(text):
    return number(found(r"#\s*Avg bus bandwidth\s*:\s*(\S+)", text))


def _bounds(text):
    match = re.search(r"#\s*Out of bounds values\s*:\s*([0-9]{1,18})\s+(OK|FAILED)", text)
    return {"count": int(match[1]), "okay": match[2] == "OK"} if match else {"count": None, "okay": None}


def _rows(lines):
    """(columns or None, rows, whether one was cut or unreadable)."""
    columns, rows, cut = None, [], False
    for line in lines:
        words = line.split()
        if words[:3] in (["#", "size", "count"], ["#size", "count", "type"]):
            columns = [word.lstrip("#") for word in words if word != "#"]
            continue
        if not words or whole(words[0]) is None or line.lstrip().startswith(("#", "[")):
            continue
        row = _by_header(words, columns) if columns else _by_count(words)
        if row:
            rows.append(row)
        else:
            cut = True
    return columns, rows, cut


def _by_header(words, columns):
    """A row by the names over it; a timestamp is two words."""
    if len(words) != len(columns) + ("timestamp" in columns):
        return None
    starts = [at for at, name in enumerate(columns) if name in TIMES]
    if len(starts) != 2 or "size" not in columns or "type" not in columns:
        return None
    head = dict(zip(columns[: starts[0]], words, strict=False))
    halves = [dict(zip(columns[a:b], words[a:b], strict=False)) for a, b in pairwise([*starts, len(columns)])]
    return _row(head, halves)


def _by_count(words):
    """A row without a header: busbw stands second from the end of each half of four words, and size, time and algbw agree."""
    if not 11 <= len(words) <= 13:
        return None
    head = {"size": words[0], "count": words[1], "type": words[2]}
    rest = words[3:-8]
    if rest and whole(rest[0]) is None:
        head["redop"] = rest.pop(0)
    if rest:
        head["root"] = rest[0]
    names = ("time", "algbw", "busbw", "wrong")
    row = _row(head, [dict(zip(names, words[at : at + 4 or None], strict=False)) for at in (-8, -4)])
    return row if row and row["consistent"] else None


def _row(head, halves):
    size, count = whole(head.get("size")), whole(head.get("count"))
    if size is None or count is None or size < 0 or not re.fullmatch(r"[a-z][a-z0-9_]{2,11}", head["type"]):
        return None
    sides = [_half(half) for half in halves]
    if None in sides:
        return None
    return _row_of(size, count, head["type"], head.get("redop"), whole(head.get("root")), *sides)


def _row_of(size, count, kind, redop, root, outside, inside):
    consistent = all(_agrees(size, half) for half in (outside, inside) if half)
    return {
        "size_bytes": size, "count": count, "type": kind, "dtype": DTYPES.get(kind), "redop": None if redop == "none" else redop,
        "root": root if root is None or root >= 0 else None, "out_of_place": outside, "in_place": inside, "consistent": consistent,
    }  # fmt: skip


def _half(words):
    """One half of a row, or None where a number is unreadable."""
    values = [number(words.get(name)) for name in ("algbw", "busbw")]
    time = number(words.get("time", words.get("cputime")))
    last = words.get("wrong", words.get("error"))
    if time is None or None in values or (number(last) is None and last != "N/A"):
        return None
    deviation = "error" in words or whole(last) is None
    return {
        "time_us": time, "time_kind": "cpu" if "cputime" in words else "wall", "algbw_gb_s": values[0], "busbw_gb_s": values[1],
        "wrong": None if deviation else whole(last), "error": number(last) if deviation else None,
    }  # fmt: skip


def _agrees(size, half):
    """True where algbw is size ÷ time within what rounding to two decimals (time: four digits) allows.

    Old versions print busbw as algbw for all-gather and reduce-scatter, (n−1)/n of it.
    """
    time, given = half["time_us"], half["algbw_gb_s"]
    if not time or given is None or time < 0:
        return time is None or time >= 0
    expected = size / time / 1e3
    slack = 0.0051 + CONSISTENT * max(given, expected)
    old = given == half["busbw_gb_s"] and expected / 2 - slack <= given <= expected
    return abs(expected - given) <= slack or old


def _inferred(rows, ranks):
    """The collective where the table alone settles it: the text names it only in newer versions.

    busbw ÷ algbw is 2(n−1)/n for all-reduce, (n−1)/n for reduce-scatter (which alone of those has an operation), and
    1 for those with a root. All-gather and all-to-all can't be told apart.
    """
    best = max(rows, key=lambda row: (row["in_place"] or {}).get("busbw_gb_s") or 0, default=None)
    half = best and best["in_place"]
    if not half or not half["algbw_gb_s"] or not half["busbw_gb_s"] or best["redop"] is None or ranks == 1:
        return None
    ratio = half["busbw_gb_s"] / half["algbw_gb_s"]
    if ratio > 1.05 or (ratio > 0.95 and best["root"] is None and ranks in (2, None)):
        return "all_reduce"
    return "reduce_scatter" if ratio < 0.95 else None


def _json(text):
    """The file of `-J`; where it is cut, the whole rows that stand in it."""
    data, complete = json_value(text)
    if not isinstance(data, dict):
        data, complete = {"results": json_objects(text, "size")}, False
        data["config"] = {"devices": json_objects(text, "rank")}
        data["args"] = [found(r'"(\S+_perf)"', text)]
    rows = [row for row in map(_json_row, entries(data, "results")) if row]
    devices = [
        {"rank": item.get("rank"), "device": item.get("device"), "bus": item.get("device_hex"), "name": item.get("device_info")}
        for item in entries(data, "config", "devices")
    ]
    config, version = entry(data, "config") or {}, entry(data, "nccl_version")
    average, bounds = entry(data, "average_bus_bandwidth", "bandwidth"), entry(data, "out_of_bounds") or {}
    if not rows and not devices:
        return unparsed()
    ranks = len(devices) or None
    program = next((str(word).rpartition("/")[2] for word in entry(data, "args") or [] if str(word).endswith("_perf")), None)
    bounds = {"count": _real(bounds.get("count")), "okay": _truth(bounds.get("okay"))}
    values = {
        "tool_version": None,
        "library_version": _version(version),
        "rocm_version": None,
        "collective": program.removesuffix("_perf") if program else _inferred(rows, ranks),
        "collective_how": "named" if program else "inferred",
        "ranks": ranks,
        "devices": devices,
        "settings": {
            "min_bytes": config.get("minimum_bytes"), "max_bytes": config.get("maximum_bytes"), "step": config.get("step_factor"),
            "iterations": config.get("iterations"), "warmup_iterations": config.get("warmup_iters"),
            "validation": config.get("validation"),
        },
        **_results(rows, _real(average), bounds, ranks),
    }  # fmt: skip
    told = [str(word) for word in entry(data, "errors") or [] if word]
    ended = complete and average is not None
    status, reason = _verdict(told[0] if told else None, values, missing({"the file is cut": not ended, "no rows": not rows}))
    return result(status, reason, **values, library="nccl", further_runs=[], truncated=not ended)


def _json_row(item):
    size, count, kind = item.get("size"), item.get("count"), item.get("type")
    if not isinstance(size, int) or not isinstance(count, int) or not isinstance(kind, str):
        return None
    sides = [_json_half(item.get(name)) for name in HALVES]
    redop = item.get("redop") if isinstance(item.get("redop"), str) else None
    return _row_of(size, count, kind, redop, whole(str(item.get("root"))), *sides)


def _json_half(half):
    if not isinstance(half, dict):
        return None
    time, wrong = _real(half.get("time", half.get("cpu_time"))), _real(half.get("nwrong"))
    return {
        "time_us": time, "time_kind": "cpu" if "cpu_time" in half else "wall", "algbw_gb_s": _real(half.get("alg_bw")),
        "busbw_gb_s": _real(half.get("bus_bw")), "wrong": None if wrong is None else int(wrong), "error": None,
    }  # fmt: skip


def _real(value):
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 else None


def _truth(value):
    return {"true": True, "false": False}.get(str(value).lower())


def _version(number_):
    """NCCL's packed number as text: 22907 is 2.29.7."""
    if not isinstance(number_, int) or number_ < 10000:
        return None
    return f"{number_ // 10000}.{number_ // 100 % 100}.{number_ % 100}"
