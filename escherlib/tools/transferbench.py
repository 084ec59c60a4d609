"""TransferBench: copies among CPUs, GPUs and NICs on AMD (and NVIDIA) hosts.

GB/s are decimal and bytes count once, in a local copy too. In bidirectional blocks `->` and `<-` are the two directions
and `<->` their sum, while the averages below are per direction. Of a configuration file's tests, the Transfer line is the
kernel, the Executor line the whole executor and Aggregate (CPU) includes launching: three different figures. The source
runs the copy, so CPU to GPU is made by CPU threads. Columns are counted, never measured: documents squeeze blanks.
"""

import re

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.tools.figures import copy, memory, middle, usable
from escherlib.tools.finding import find_programs
from escherlib.tools.text import (
    cannot,
    elided,
    extreme_cell,
    fixed,
    found,
    largest,
    lines_of,
    missing,
    number,
    shortened,
    whole,
)

STACKS = ("rocm", "cuda")
PROGRAMS = ("TransferBench", "TransferBenchCuda")
VARIABLES = ("ESCHER_TRANSFERBENCH", "TRANSFERBENCH_DIR")
DEADLINE_S = 180
ENV = {"HIDE_ENV": "1"}
SIZE = "1G"
BORDER = str.maketrans({"│": "|", "║": "|", "┃": "|"})
RULE = re.compile(r"[\s─━┌┐└┘├┤┬┴┼|+=-]+")
UNIT = re.compile(r"(CPU|GPU)\s+([0-9]{1,3})")
FIGURE = r"\s*\|\s*([0-9.]{1,18})\s*GB/s\s*\|\s*([0-9.]{1,18})\s*ms\s*\|"
EXECUTOR = re.compile(rf"Executor:\s*(\w+)\s+([0-9]{{1,3}}){FIGURE}\s*([0-9]{{1,18}}) bytes\s*\|\s*([0-9.]{{1,18}})\s*GB/s\s*\(sum\)")
TRANSFER = re.compile(rf"Transfer\s+([0-9]{{1,6}}){FIGURE}\s*([0-9]{{1,18}}) bytes\s*\|\s*(\S+) -> (\S+) -> (\S+)")
PERCENTILE = re.compile(rf"p([0-9]{{1,3}}){FIGURE}")
AGGREGATE = re.compile(rf"Aggregate \(CPU\){FIGURE}\s*([0-9]{{1,18}}) bytes\s*\|\s*Overhead:?\s*([0-9.]{{1,18}})\s*ms")
ACTOR = re.compile(r"(?:R[0-9]+)?(GPU|DMA|CPU|NIC|G|D|C|N|I)([0-9]{1,3})(?:\.\S*?)?:([0-9]{1,4})")
KINDS = {"G": "GPU", "D": "DMA", "C": "CPU", "N": "NIC", "I": "NIC"}
AVERAGES = re.compile(r"Averages \(During\s+(UniDir|BiDir)\):\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*$")
PAIRS = ("cpu_to_cpu", "cpu_to_gpu", "gpu_to_cpu", "gpu_to_gpu")
ARROWS = {"->": "forward", "<-": "backward", "<->": "sum"}
ENDING = ("p2p", "a2a", "tests", "scaling", "nic_p2p")


def parse(text):
    """Whatever presets and tests stand in the output, each in its own part; None for those that don't."""
    lines = [line.translate(BORDER) for line in lines_of(text)]
    lines = [line for line in lines if not line.strip() or not RULE.fullmatch(line) or "=" in line]
    version = found(r"^TransferBench v([0-9.]+)", text)
    error = found(r"^\s*(\[ERROR\].*|.*Unexpected mismatch.*)$", text)
    parts = {
        "p2p": _p2p(lines),
        "a2a": _a2a(lines, text),
        "tests": _tests(lines),
        "scaling": _scaling(lines, text),
        "nic_p2p": _nic(lines, text),
    }
    values = {"version": version, **parts}
    there = [parts[name] for name in ENDING if parts[name]]
    preamble = bool(re.search(r"^\[Common\]\s", text, re.MULTILINE) and re.search(r"^[A-Z_]{4,40} += +[0-9]+ : ", text, re.MULTILINE))
    if error and (version or there or preamble):
        reason = shortened(error.removeprefix("[ERROR]"))
        return result(FAILED, reason, **values, truncated=True)
    if not there:
        if version or preamble:
            return result(PARTIAL, "ends before a result", **values, truncated=True)
        words = cannot(text)
        return result(UNAVAILABLE, words) if words else unparsed()
    cut = [part["cut"] for part in there if isinstance(part, dict)] + [test["cut"] for test in parts["tests"] or []]
    reason = missing({
        "a table is cut or abridged": any(cut),
        "parts were left out by the source": elided(text),
    })  # fmt: skip
    return result(PARTIAL if reason else OK, reason, **values, truncated=bool(reason))


def _p2p(lines):
    """{bytes, unidirectional, bidirectional, cut} of the p2p preset, or None."""
    blocks, averages, title, columns, size = {}, {}, None, [], None
    for line in lines:
        if re.search(r"(Unidirectional|Bidirectional) copy peak bandwidth", line):
            title = None if "NIC" in line else "unidirectional" if "Unidir" in line else "bidirectional"
        size = size or whole(found(r"Bytes Per Direction:? ([0-9]{1,18})", line))
        if re.match(r"\s*SRC(?:\+EXE)?\\DST\b", line) and "STotal" not in line:
            columns = [f"{kind} {int(index)}" for kind, index in UNIT.findall(line)]
        row = re.match(r"\s*(CPU|GPU)\s+([0-9]{1,3})\s+(<->|->|<-)\s+(.*)$", line)
        if row and title and columns:
            cells = [None if word == "N/A" else fixed(word, 2) for word in row[4].split()]
            block = blocks.setdefault(title, {})
            rows = block.setdefault(ARROWS[row[3]], {"columns": columns, "rows": [], "matrix": []})
            if len(cells) == len(columns) and all(c is not None or w == "N/A" for c, w in zip(cells, row[4].split(), strict=True)):
                rows["rows"].append(f"{row[1]} {int(row[2])}")
                rows["matrix"].append(cells)
        given = AVERAGES.search(line)
        if given:
            name = "unidirectional" if given[1] == "UniDir" else "bidirectional"
            averages[name] = dict(zip(PAIRS, map(number, given.groups()[1:]), strict=True))
    if not blocks and not averages:
        return None
    single = any(re.match(r"P2P_MODE\s+=\s+[12]\b", line) for line in lines)
    parts = {name: _side(blocks.get(name, {}), averages.get(name)) for name in ("unidirectional", "bidirectional")}
    whole_parts = [part for part in parts.values() if part and not part["cut"]]
    cut = any(part["cut"] for part in parts.values() if part) or len(whole_parts) < (1 if single else 2)
    return {"bytes_per_direction": size, **parts, "cut": cut}


def _side(block, averages):
    """One of the two p2p parts with its matrices, averages and extremes, or None."""
    if not block and not averages:
        return None
    cells = {name: _cells(rows) for name, rows in block.items()}
    remote = {name: [c for c in found_ if _gpu(c[0]) and _gpu(c[1]) and c[0] != c[1]] for name, found_ in cells.items()}
    forward = cells.get("forward", [])
    return {
        **{name: block.get(name) for name in ARROWS.values()},
        "averages_gb_s": averages,
        "gpu_to_gpu_max": extreme_cell(remote.get("forward", []), max),
        "gpu_to_gpu_min": extreme_cell(remote.get("forward", []), min),
        "gpu_to_gpu_sum_max": extreme_cell(remote.get("sum", []), max),
        "gpu_to_gpu_sum_min": extreme_cell(remote.get("sum", []), min),
        "gpu_to_cpu_max": extreme_cell([c for c in forward if _gpu(c[0]) and not _gpu(c[1])], max),
        "local_gb_s": [value for source, to, value in forward if _gpu(source) and source == to and value is not None],
        "cut": averages is None or not block or any(len(rows["rows"]) < len(rows["columns"]) for rows in block.values()),
    }


def _gpu(name):
    return name.startswith("GPU")


def _cells(rows):
    """(source, destination, value) of every cell of a matrix."""
    return [
        (source, destination, value)
        for source, values in zip(rows["rows"], rows["matrix"], strict=True)
        for destination, value in zip(rows["columns"], values, strict=True)
    ]


def _a2a(lines, text):
    """The a2a preset: all pairs at once; average is per link, aggregate the sum over all links."""
    columns, rows, matrix, totals = [], [], [], None
    for line in lines:
        words = line.split()
        if re.match(r"\s*SRC\\DST\b", line) and "STotal" in line:
            columns = [f"{kind} {int(index)}" for kind, index in UNIT.findall(line)]
        row = re.match(r"\s*(GPU)\s+([0-9]{1,3})\s+(?!->|<-)(.*)$", line)
        if row and columns:
            cells = row[3].split()
            values = [None if word == "N/A" else fixed(word, 3) for word in cells]
            if len(cells) == len(columns) + 2 and values.count(None) == cells.count("N/A"):
                rows.append(f"GPU {int(row[2])}")
                matrix.append(values[: len(columns)])
        if words[:1] == ["RTotal"] and columns:
            totals = [number(word) for word in words[1 : len(columns) + 1]]
    if not columns:
        return None
    block = {"columns": columns, "rows": rows, "matrix": matrix}
    figures = {
        "average_gb_s": number(found(r"Average\s+bandwidth \(GPU Timed\):\s+(\S+) GB/s", text)),
        "aggregate_gb_s": number(found(r"Aggregate\s+bandwidth \(GPU Timed\):\s+(\S+) GB/s", text)),
        "aggregate_cpu_timed_gb_s": number(found(r"Aggregate\s+bandwidth \(CPU Timed\):\s+(\S+) GB/s", text)),
    }
    cells = _cells(block)
    return {
        "bytes_per_transfer": whole(found(r"\[([0-9]{1,18}) bytes per Transfer\]", text)),
        **block,
        "received_gb_s": totals,
        **figures,
        "pair_max": extreme_cell(cells, max),
        "pair_min": extreme_cell(cells, min),
        "cut": None in figures.values() or len(rows) < len(columns) or totals is None,
    }


def _tests(lines):
    """Tests of a configuration file: [{number, comment, executors: [{…, transfers}], aggregate}], or None."""
    tests, comment = [], None
    for line in lines:
        if line.lstrip().startswith("## "):
            comment = line.strip(" #")
        header = re.match(r"\s*Test ([0-9]{1,6}):", line)
        if header:
            tests.append({"number": int(header[1]), "comment": comment, "executors": [], "aggregate": None, "cut": True})
            comment = None
        if tests:
            _read_test_line(tests[-1], line)
    begun = comment is not None or any(not test["executors"] for test in tests)  # one more test whose result isn't there
    tests = [test for test in tests if test["executors"]]
    for test in tests:
        test["cut"] = test["aggregate"] is None or not all(executor["transfers"] for executor in test["executors"])
    if tests and begun:
        tests[-1]["cut"] = True
    return tests or None


def _read_test_line(test, line):
    if match := EXECUTOR.search(line):
        test["executors"].append({
            "kind": match[1], "index": int(match[2]), "gb_s": number(match[3]), "ms": number(match[4]), "bytes": int(match[5]),
            "sum_gb_s": number(match[6]), "transfers": [],
        })  # fmt: skip
    elif test["executors"] and (match := TRANSFER.search(line)):
        actor = ACTOR.fullmatch(match[6])
        test["executors"][-1]["transfers"].append({
            "number": int(match[1]), "gb_s": number(match[2]), "ms": number(match[3]), "bytes": int(match[4]),
            "source": match[5], "executor": match[6], "destination": match[7],
            "executor_kind": KINDS.get(actor[1], actor[1]) if actor else None,
            "subexecutors": int(actor[3]) if actor else None, "percentiles_gb_s": {},
        })  # fmt: skip
    elif test["executors"] and test["executors"][-1]["transfers"] and (match := PERCENTILE.search(line)):
        test["executors"][-1]["transfers"][-1]["percentiles_gb_s"][f"p{match[1]}"] = number(match[2])
    elif match := AGGREGATE.search(line):
        figures = {"gb_s": number(match[1]), "ms": number(match[2]), "bytes": int(match[3]), "overhead_ms": number(match[4])}
        test["aggregate"] = {"timed_by": "CPU", **figures}


def _scaling(lines, text):
    """The scaling preset: GB/s from one GPU to every device by number of compute units, or None."""
    begin = next((at for at, line in enumerate(lines) if re.match(r"\s*Num(?:CUs|SEs|SubExecs?)\s+(?:CPU|GPU)", line)), None)
    if begin is None:
        return None
    columns = [f"{kind} {int(index)}" for kind, index in re.findall(r"(CPU|GPU)\s*([0-9]{1,3})", lines[begin])]
    rows, cut, ended = [], False, False
    for line in lines[begin + 1 :]:
        words = line.split()
        ended |= words[:1] == ["Best"]
        if not words or whole(words[0]) is None:
            continue
        values = [fixed(word, 2) for word in words[1:]]
        if len(values) != len(columns) or None in values:
            cut = True
            continue
        rows.append({"compute_units": int(words[0]), "gb_s": values})
    best = {}
    for at, name in enumerate(columns):
        top = max(rows, key=lambda row, at=at: row["gb_s"][at], default=None)
        best[name] = {"gb_s": top["gb_s"][at], "compute_units": top["compute_units"]} if top else None
    return {
        "bytes": whole(found(r"Copying ([0-9]{1,18}) bytes", text)), "columns": columns, "rows": rows, "best": best,
        "cut": cut or not ended,
    }  # fmt: skip


def _nic(lines, text):
    """The nicp2p preset: GB/s of every pair of NICs, or None. Progress lines hold seconds, no bandwidths."""
    if not re.search(r"copy peak bandwidth GB/s \(NIC", text):
        return None
    devices = next((re.findall(r"GPU [0-9]{2}", line) for line in lines if "Mem Device" in line), [])
    rows = []
    for line in lines:
        match = re.match(r"[\s|]*(?:Rank ([0-9]{1,4}))?[\s|]*(\w+)\s+GPU ([0-9]{1,3})\s*\|(.*)$", line)
        values = [fixed(word, 2) for word in match[4].replace("|", " ").split()] if match else []
        if match and len(values) == len(devices) and values and None not in values:
            rank = int(match[1]) if match[1] else rows[-1]["rank"] if rows else None
            rows.append({"rank": rank, "nic": match[2], "gpu": int(match[3]), "gb_s": values, "max_gb_s": largest(values)})
    return {"columns": len(devices), "rows": rows, "cut": not devices or len(rows) < len(devices)}


def find(environ=None):
    """{program: path}."""
    return find_programs(PROGRAMS, VARIABLES, environ)


def commands(device, programs, folder, gpus=1):
    """The p2p preset over all devices of the host, at a size well above every cache."""
    return [[programs[name], "p2p", SIZE] for name in PROGRAMS if name in programs]


def metrics(parsed):
    """Copies made by kernels of the source. A CPU source copies with its threads, which nothing of ours does: left out."""
    p2p = parsed.get("p2p") if usable(parsed) else None
    if not p2p:
        return []
    one, both = p2p["unidirectional"] or {}, p2p["bidirectional"] or {}
    size = {"size_bytes": p2p["bytes_per_direction"]}
    local = middle(one.get("local_gb_s") or [])
    found = memory("copy", local and 2 * local, statistic="median over devices", note="printed once per byte, doubled", **size)
    for metric, cell, which in (
        ("d2h_gb_s", one.get("gpu_to_cpu_max"), "best pair"),
        ("d2d_gb_s", one.get("gpu_to_gpu_max"), "best pair"),
        ("d2d_min_gb_s", one.get("gpu_to_gpu_min"), "slowest pair"),
        ("d2d_bidirectional_gb_s", both.get("gpu_to_gpu_sum_max"), "best pair"),
        ("d2d_bidirectional_min_gb_s", both.get("gpu_to_gpu_sum_min"), "slowest pair"),
    ):
        found += copy(metric, cell and cell["gb_s"], statistic=which, note="copied by a kernel", **size)
    return found
