"""rocm-bandwidth-test: copies between host and AMD GPUs and among GPUs.

Up to 2.6 it prints matrices over all devices, CPUs (one per NUMA node) first. GB/s are decimal, of the best run, and bytes
count once, except on the diagonal: a GPU's local copy counts bytes read and written. Bidirectional cells are the sum of
both directions. Since ROCm 7 it runs plug-ins and prints TransferBench's output, which that parser reads.
"""

import re

from escherlib.hardware.parsers.contract import OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.tools import transferbench
from escherlib.tools.figures import copy, memory, middle, usable
from escherlib.tools.finding import find_programs
from escherlib.tools.text import cannot, extreme_cell, fixed, found, largest, lines_of, missing, number, smallest, whole

STACKS = ("rocm",)
CLASSIC, NEWER = "rocm-bandwidth-test", "rocm_bandwidth_test"
PROGRAMS = (CLASSIC, NEWER)
VARIABLES = ("ESCHER_ROCM_BANDWIDTH_TEST",)
DEADLINE_S = 240
TITLES = {
    "access": r"Inter-Device Access", "distance": r"Inter-Device Numa Distance",
    "unidirectional": r"Unidirectional copy peak bandwidth GB/s", "bidirectional": r"Bi?directional copy peak bandwidth GB/s",
}  # fmt: skip
BUS = re.compile(r"[0-9a-fA-F]{2,4}:[0-9a-fA-F]{1,2}\.[0-9a-fA-F]")
SIZES = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
LARGEST_DEFAULT = 512 * 2**20
PLUGIN_FROM = (1, 63)  # the first TransferBench that ROCm 7 shipped as a plug-in


def parse(text):
    """Devices, the four matrices with their ids, the table of a pair by size, and the extremes by kind of pair."""
    lines = lines_of(text)
    version = found(r"RocmBandwidthTest Version:\s*(\S+)", text)
    devices = _devices(lines)
    blocks = _blocks(lines)
    table = _table(lines)
    if version is None and not blocks and table is None:
        return _plugin(text) or _nothing(text)
    kinds, inferred = _kinds(devices, blocks)
    command = found(r"Launch Command is:\s*(.*)$", text) or ""
    reason = missing({
        "the beginning is missing": version is None,
        "ends before a result": not ("unidirectional" in blocks or "bidirectional" in blocks or table),
        "a matrix is cut": any(block["cut"] for block in blocks.values()),
        "the second matrix is missing": _wants_both(command) and "unidirectional" in blocks and "bidirectional" not in blocks,
        "the table is cut": bool(table) and not _table_ends(table, command),
    })  # fmt: skip
    values = {
        "version": version,
        "devices": [{**device, "kind": kinds.get(device["index"])} for device in devices],
        "kinds_inferred": inferred,
        **{name: blocks.get(name) for name in TITLES},
        "table": table,
        **_extremes(blocks, kinds),
        "plugin": None,
    }
    return result(PARTIAL if reason else OK, reason, **values, truncated=bool(reason))


def _plugin(text):
    """TransferBench's result where its banner is that of a plug-in's version, else None."""
    version = re.search(r"^TransferBench v([0-9]{1,3})\.([0-9]{1,3})", text, re.MULTILINE)
    if not version or (int(version[1]), int(version[2])) < PLUGIN_FROM:
        return None
    return {**transferbench.parse(text), "plugin": "TransferBench"}


def _nothing(text):
    words = cannot(text)
    return result(UNAVAILABLE, words) if words else unparsed()


def _devices(lines):
    """Devices in order; a GPU's line ends with its bus address. UUIDs are dropped."""
    devices = []
    for line in lines:
        match = re.match(r"\s*Device: ([0-9]{1,3}),\s*(.*)$", line)
        if match:
            fields = [field.strip() for field in re.split(r",\s{2,}", match[2])]
            bus = fields[-1] if BUS.fullmatch(fields[-1]) else None
            devices.append({"index": int(match[1]), "name": fields[0] or None, "bus": bus})
    return devices


def _blocks(lines):
    """{access, distance, unidirectional, bidirectional: {columns, rows, matrix, cut}} of those that are there."""
    blocks, title, at = {}, None, 0
    while at < len(lines):
        words = lines[at].split()
        title = next((name for name, pattern in TITLES.items() if re.search(pattern, lines[at])), title)
        at += 1
        if words[:1] == ["D/D"] and title:
            columns = [whole(word) for word in words[1:]]
            if None in columns or not columns:
                continue
            block, at = _rows(lines, at, columns, title in ("unidirectional", "bidirectional"))
            blocks.setdefault(title, block)
            title = None
    return blocks


def _rows(lines, at, columns, bandwidth):
    rows, matrix, cut = [], [], False
    while at < len(lines) and len(rows) < len(columns):
        words = lines[at].split()
        if words:
            cells = [_cell(word, bandwidth) for word in words[1:]]
            if whole(words[0]) is None or len(cells) != len(columns) or any(cell is False for cell in cells):
                cut = whole(words[0]) is not None
                break
            rows.append(int(words[0]))
            matrix.append([None if cell == "N/A" else cell for cell in cells])
        at += 1
    return {"columns": columns, "rows": rows, "matrix": matrix, "cut": cut or len(rows) < len(columns)}, at


def _cell(word, bandwidth):
    """Number, "N/A", or False for a word that is neither (bandwidths have three decimals: a shorter one was cut)."""
    if word == "N/A":
        return word
    value = fixed(word, 3) if bandwidth else whole(word)
    return False if value is None else value


def _kinds(devices, blocks):
    """({index: cpu or gpu}, whether inferred): without a device list, the first devices without copies among them are CPUs."""
    if devices:
        return {device["index"]: "gpu" if device["bus"] else "cpu" for device in devices}, False
    block = blocks.get("unidirectional") or blocks.get("bidirectional")
    if not block or block["cut"]:
        return {}, False
    matrix, ids = block["matrix"], block["columns"]
    alone = [n for n in range(1, len(ids)) if all(v is None for row in matrix[:n] for v in row[:n])]
    cpus = max(alone, default=0)
    return {index: "cpu" if at < cpus else "gpu" for at, index in enumerate(ids)}, True


def _extremes(blocks, kinds):
    """Best and worst cell of each kind of pair; a local copy is no pair."""
    values = {}
    for name, short in (("unidirectional", ""), ("bidirectional", "bidirectional_")):
        groups = {"h2d": [], "d2h": [], "d2d": [], "local": []}
        for source, destination, value in _cells(blocks.get(name)):
            kind = (kinds.get(source), kinds.get(destination))
            group = {("cpu", "gpu"): "h2d", ("gpu", "cpu"): "d2h", ("gpu", "gpu"): "d2d"}.get(kind)
            group = "local" if group == "d2d" and source == destination else group
            if group:
                groups[group].append((source, destination, value))
        values[f"{short}d2d_max"] = extreme_cell(groups["d2d"], max)
        values[f"{short}d2d_min"] = extreme_cell(groups["d2d"], min)
        if short:
            both = [value for *_, value in groups["h2d"] + groups["d2h"]]
            values[f"{short}host_max_gb_s"], values[f"{short}host_min_gb_s"] = largest(both), smallest(both)
            continue
        for group in ("h2d", "d2h"):
            values[f"{group}_max_gb_s"] = largest(value for *_, value in groups[group])
            values[f"{group}_min_gb_s"] = smallest(value for *_, value in groups[group])
        values["local_gb_s"] = [value for *_, value in groups["local"]]
    return values


def _cells(block):
    """(source, destination, value or None) of every cell."""
    if not block:
        return []
    return [
        (row, column, value)
        for row, values in zip(block["rows"], block["matrix"], strict=True)
        for column, value in zip(block["columns"], values, strict=True)
    ]


def _table(lines):
    """The table of one pair by size, or None."""
    text = "\n".join(lines)
    if not re.search(r"^Data Size\s+Avg Time\(us\)", text, re.MULTILINE):
        return None
    rows, cut = [], False
    begin = next(at for at, line in enumerate(lines) if line.startswith("Data Size"))
    for line in lines[begin + 1 :]:
        words = line.split()
        if len(words) < 2 or number(words[0]) is None or words[1] not in SIZES:
            cut |= bool(words)
            continue
        values = [fixed(word, 3) for word in words[2:]]
        if len(values) != 4 or None in values:
            cut = True
            continue
        names = ("average_us", "average_gb_s", "min_us", "peak_gb_s")
        rows.append({"size_bytes": round(number(words[0]) * SIZES[words[1]]), **dict(zip(names, values, strict=True))})
    ends = {}
    for end, name in (("Src", "source"), ("Dst", "destination")):
        match = re.search(rf"{end} Device Id: ([0-9]{{1,3}}) {end} Device Type: (\w+)", text)
        ends |= {name: int(match[1]) if match else None, f"{name}_kind": match[2].lower() if match else None}
    direction = "both ways, sum" if re.search(r"=\s+Bi?directional Benchmark Result", text) else "one way"
    best = max(rows, key=lambda row: row["peak_gb_s"], default=None)
    return {**ends, "direction": direction, "rows": rows, "peak_gb_s": best and best["peak_gb_s"],
            "peak_size_bytes": best and best["size_bytes"], "cut": cut}  # fmt: skip


def _table_ends(table, command):
    """True where the last size asked for is there: the largest default one, or any with own sizes (-m)."""
    last = table["rows"][-1]["size_bytes"] if table["rows"] else 0
    return not table["cut"] and (last == LARGEST_DEFAULT or (bool(table["rows"]) and " -m" in command))


def _wants_both(command):
    return "rocm_bandwidth -a" in command and "rocm_bandwidth -A" in command


def find(environ=None):
    """{program: path}."""
    return find_programs(PROGRAMS, VARIABLES, environ)


def commands(device, programs, folder, gpus=1):
    """All pairs, one and both ways. The newer program runs TransferBench's p2p preset as a plug-in."""
    if CLASSIC in programs:
        return [[programs[CLASSIC]]]
    return [[programs[NEWER], "plugin", "--run", "tb", "p2p"]] if NEWER in programs else []


def metrics(parsed):
    """Copies by the copy engines. A local copy counts bytes read and written already."""
    if not usable(parsed):
        return []
    if parsed["plugin"]:
        return transferbench.metrics(parsed)
    found = memory("copy", middle(parsed["local_gb_s"]), statistic="best iteration, median over devices")
    found += copy("h2d_gb_s", parsed["h2d_max_gb_s"], statistic="best pair, best iteration")
    found += copy("d2h_gb_s", parsed["d2h_max_gb_s"], statistic="best pair, best iteration")
    for metric, cell, which in (
        ("d2d_gb_s", parsed["d2d_max"], "best pair"),
        ("d2d_min_gb_s", parsed["d2d_min"], "slowest pair"),
        ("d2d_bidirectional_gb_s", parsed["bidirectional_d2d_max"], "best pair"),
        ("d2d_bidirectional_min_gb_s", parsed["bidirectional_d2d_min"], "slowest pair"),
    ):
        found += copy(metric, cell and cell["gb_s"], statistic=f"{which}, best iteration")
    return found + _of_table(parsed["table"])


def _of_table(table):
    """The best size of a table that goes between host and device, one way."""
    if not table or table["direction"] != "one way":
        return []
    metric = {("cpu", "gpu"): "h2d_gb_s", ("gpu", "cpu"): "d2h_gb_s"}.get((table["source_kind"], table["destination_kind"]))
    if metric is None:
        return []
    return copy(metric, table["peak_gb_s"], size_bytes=table["peak_size_bytes"], statistic="best iteration, best size")
