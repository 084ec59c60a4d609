"""nvbandwidth: copies between host and NVIDIA GPUs and among GPUs, as text or JSON (`-j`).

GB/s are decimal and bytes count once, in a local copy too. A bidirectional copy by the copy engine (CE) reports one of its
two directions, by kernels (SM) their sum. Latency tests use the same matrix in ns. `Waived` is not possible here, and a
test counts only if it passed. Matrices keep null where the tool prints N/A; rows and columns are device indices.
"""

import re

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, UNPARSED, result, unparsed
from escherlib.tools.figures import copy, memory, middle, usable
from escherlib.tools.finding import find_programs
from escherlib.tools.text import (
    cannot,
    entries,
    entry,
    found,
    json_objects,
    json_value,
    largest,
    lines_of,
    missing,
    number,
    shortened,
    smallest,
    whole,
)

STACKS = ("cuda",)
PROGRAMS = ("nvbandwidth",)
VARIABLES = ("ESCHER_NVBANDWIDTH", "NVBANDWIDTH_DIR")
DEADLINE_S = 180
BUFFER_MIB = 256
HOST_TESTS = {"host_to_device_memcpy_ce": "h2d_gb_s", "device_to_host_memcpy_ce": "d2h_gb_s", "device_local_copy": None}
PAIR_TESTS = {  # metric, and what the printed figure is multiplied by
    "device_to_device_memcpy_read_ce": ("d2d_gb_s", 1), "device_to_device_memcpy_write_ce": ("d2d_gb_s", 1),
    "device_to_device_bidirectional_memcpy_read_ce": ("d2d_bidirectional_gb_s", 2),
    "device_to_device_bidirectional_memcpy_write_ce": ("d2d_bidirectional_gb_s", 2),
}  # fmt: skip
DESCRIPTION = re.compile(r"(?:(?P<row>CPU|GPU)\(row\) +(?:<->|->|<-) +)?(?P<column>CPU|GPU)\(column\).*\((?P<unit>GB/s|ns)\)")
NO_DEVICE = re.compile(r"CUDA_ERROR_NO_DEVICE|CUDA_ERROR_STUB_LIBRARY|insufficient|NVML_ERROR_LIBRARY_NOT_FOUND")
CLOSING = "NOTE: The reported results"


def parse(text):
    """Tests by name: matrix with row and column ids, its unit, sum, extremes, and what direction is counted."""
    if '"nvbandwidth"' in text:
        return _json(text)
    lines = lines_of(text)
    version = found(r"^nvbandwidth Version: v?(\S+)", text)
    tests = _text_tests(lines)
    head = {
        "version": version,
        "cuda_runtime": whole(found(r"^CUDA Runtime Version: (\S+)", text)),
        "driver_version": found(r"^Driver Version: (\S+)", text),
        "devices": [
            {"index": int(m[1]), "name": m[2]}
            for m in re.finditer(r"^Device ([0-9]{1,3}): (.+?)(?: \([0-9a-fA-F:.]+\))?$", text, re.MULTILINE)
        ],
        "tests": tests,
        "waived": sum(line.strip().startswith("Waived:") for line in lines),
    }  # fmt: skip
    error = found(r"^(\[?CUDA_ERROR_\w+.*|.*\b(?:CUDA|NVML) ?(?:_ERROR_\w+|error).*)$", text)
    if error and (version or tests):
        return result(UNAVAILABLE if NO_DEVICE.search(error) else FAILED, shortened(error), **head, truncated=True)
    if not tests:
        words = cannot(text)
        if words:
            return result(UNAVAILABLE, words)
        return _empty(version, text, head)
    reason = missing({
        "the beginning is missing": version is None,
        "the end is missing": CLOSING not in text,
        "a matrix is cut": any(test["status"] == "cut" for test in tests.values()),
    })  # fmt: skip
    return result(PARTIAL if reason else OK, reason, **head, truncated=bool(reason))


def _empty(version, text, head):
    """No test ran: a list of tests is no measurement, and a banner alone is a cut output."""
    if version is None:
        return unparsed()
    if "Index, Name:" in text:
        return result(FAILED, UNPARSED, **head, truncated=True)
    return result(PARTIAL, "ends before the first test", **head, truncated=True)


def _text_tests(lines):
    """Tests of the text form; a test without its SUM line is cut."""
    tests, name, at = {}, None, 0
    while at < len(lines):
        running = re.match(r"\s*Running (\w+)\.$", lines[at])
        described = DESCRIPTION.search(lines[at])
        if running:
            name = running[1]
        elif described and name:
            ids, rows, matrix, at = _matrix(lines, at + 1)
            summed = next(
                (number(m[1]) for line in lines[at : at + 3] if (m := re.match(rf"\s*SUM {name} (\S+)$", line))), None
            )
            status = "cut" if summed is None or None in (ids, matrix) else "passed"
            tests[name] = _test(name, described, rows or [], ids or [], matrix or [], summed, status)
            name = None
            continue
        at += 1
    return tests


def _matrix(lines, at):
    """(column ids, row ids, matrix, next line); cut rows end it. Ids are None where their line is missing."""
    ids = [whole(word) for word in lines[at].split()] if at < len(lines) else []
    if not ids or None in ids:
        return None, None, None, at
    rows, matrix = [], []
    for at in range(at + 1, len(lines)):  # noqa: B020 (the next line to read is what is given back)
        words = lines[at].split()
        if len(words) != len(ids) + 1 or whole(words[0]) is None:
            break
        rows.append(int(words[0]))
        matrix.append([number(word) for word in words[1:]])
    return ids, rows, matrix, at


def _test(name, described, rows, columns, matrix, summed, status):
    """One test in the form that both outputs share."""
    cells = [value for row in matrix for value in row]
    unit = described["unit"] if described else None
    bandwidth = unit == "GB/s" and status == "passed"
    best, worst = largest(cells), smallest(cells)
    total = sum(value for value in cells if value is not None)
    return {
        "status": status,
        "unit": unit,
        "engine": "copy engine" if name.endswith("_ce") else "kernel" if name.endswith("_sm") else None,
        "direction": _direction(name),
        "row_kind": described["row"] if described else None,
        "column_kind": described["column"] if described else None,
        "rows": rows,
        "columns": columns,
        "matrix": matrix,
        "cells": sum(value is not None for value in cells),
        "max_gb_s": best if bandwidth else None,
        "min_gb_s": worst if bandwidth else None,
        "max_ns": best if unit == "ns" and status == "passed" else None,
        "sum": summed,
        "sum_agrees": abs(total - summed) <= 1e-3 * abs(summed) + 0.01 if summed is not None and matrix else None,
    }


def _direction(name):
    """What the figures of a test count."""
    if "latency" in name:
        return None
    if "bidirectional" in name:
        return "both ways, sum" if name.endswith("_sm") else "both ways, one of them"
    return "one way"


def _json(text):
    """The JSON form; where it is cut, the whole tests that stand in it."""
    data, complete = json_value(text)
    inner = entry(data, "nvbandwidth")
    if not isinstance(inner, dict):
        inner, complete = {"testcases": json_objects(text, "bandwidth_description")}, False
    tests, waived, unfinished = {}, 0, []
    for case in entries(inner, "testcases"):
        name, status = str(case.get("name")), str(case.get("status")).lower()
        waived += status == "waived"
        if status not in ("passed", "waived"):
            unfinished.append(f"{name}: {status}")
        tests[name] = _json_test(name, case, status)
    version, error = inner.get("version"), inner.get("error")
    runtime = inner.get("CUDA Runtime Version")
    head = {
        "version": version.lstrip("v") if isinstance(version, str) else None,
        "cuda_runtime": runtime if isinstance(runtime, int) else None,
        "driver_version": inner.get("Driver Version") if isinstance(inner.get("Driver Version"), str) else None,
        "devices": [],
        "tests": tests,
        "waived": waived,
    }
    if error or unfinished:
        reason = shortened(str(error).partition(" in expression")[0] if error else "; ".join(unfinished))
        code = re.search(r"CUDA_ERROR_\w+", reason)
        status = UNAVAILABLE if NO_DEVICE.search(reason) else FAILED
        return result(status, reason, error_code=code[0] if code else None, **head, truncated=not complete)
    if not tests:
        return result(PARTIAL, "the file is cut", **head, truncated=True) if not complete and version else unparsed()
    reason = None if complete else "the file is cut"
    return result(PARTIAL if reason else OK, reason, **head, truncated=not complete)


def _json_test(name, case, status):
    given = case.get("bandwidth_matrix")
    matrix = [[number(str(cell)) for cell in row] for row in given if isinstance(row, list)] if isinstance(given, list) else []
    width = max(map(len, matrix), default=0)
    described = DESCRIPTION.search(str(case.get("bandwidth_description")))
    summed = case.get("sum")
    summed = float(summed) if isinstance(summed, (int, float)) and not isinstance(summed, bool) and abs(summed) < 1e300 else None
    return _test(name, described, list(range(len(matrix))), list(range(width)), matrix, summed, status)


def find(environ=None):
    """{program: path}."""
    return find_programs(PROGRAMS, VARIABLES, environ)


def commands(device, programs, folder, gpus=1):
    """One run of the copy-engine tests that have a counterpart here, as JSON with all digits."""
    tests = [*HOST_TESTS, *(PAIR_TESTS if gpus > 1 else ())]
    return [[programs[name], "-t", *tests, "-b", str(BUFFER_MIB), "-j"] for name in PROGRAMS if name in programs]


def metrics(parsed):
    """Copies by the copy engine, as torch makes them. A local copy is doubled: it reads and writes each byte it counts."""
    if not usable(parsed):
        return []
    tests = {name: test for name, test in parsed["tests"].items() if test["status"] == "passed" and test["unit"] == "GB/s"}
    found = []
    for name, metric in HOST_TESTS.items():
        test = tests.get(name)
        if test and metric:
            found += copy(metric, test["max_gb_s"], statistic="best device, median of samples")
        elif test:
            cells = middle(value for row in test["matrix"] for value in row)
            found += memory("copy", cells and 2 * cells, statistic="median over devices", note="printed once per byte, doubled")
    for name, (metric, times) in PAIR_TESTS.items():
        for suffix, key, which in (("", "max_gb_s", "best"), ("_min", "min_gb_s", "slowest")):
            value = tests.get(name, {}).get(key)
            note = f"{name.removeprefix('device_to_device_')}" + (", one direction printed, doubled" if times == 2 else "")
            given = metric.replace("_gb_s", f"{suffix}_gb_s")
            found += copy(given, value and times * value, statistic=f"{which} pair", note=note)
    return found
