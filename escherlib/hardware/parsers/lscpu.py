"""lscpu: the summary as text or JSON (-J), and the tables of -e and -p. Source: lscpu(1) of util-linux.

Sizes of caches are sums over all instances where the program says how many there are (2.34 and later), else of one.
"""

import json
import re

from escherlib.hardware.parsers.contract import unparsed
from escherlib.hardware.parsers.host_text import absent, cpu_list, decimal, graded, plain_lines, whole
from escherlib.hardware.sysfs import format_cpus, parse_cpus

TEXTS = {
    "architecture": "Architecture", "vendor": "Vendor ID", "model_name": "Model name",
    "hypervisor": "Hypervisor vendor", "virtualization": "Virtualization", "virtualization_type": "Virtualization type",
}  # fmt: skip
NUMBERS = {
    "cpus": "CPU(s)", "threads_per_core": "Thread(s) per core", "cores_per_socket": "Core(s) per socket",
    "sockets": "Socket(s)", "cores_per_cluster": "Core(s) per cluster", "clusters": "Cluster(s)",
    "family": "CPU family", "model": "Model", "stepping": "Stepping", "numa_nodes_stated": "NUMA node(s)",
}  # fmt: skip
CLOCKS = {"cpu_max_mhz": "CPU max MHz", "cpu_min_mhz": "CPU min MHz"}
EVIDENCE = {"CPU(s)", "CPU op-mode(s)", "Byte Order", "On-line CPU(s) list", "Thread(s) per core", "Core(s) per socket",
            "Core(s) per cluster", "Socket(s)", "NUMA node(s)"}  # fmt: skip
NODE = re.compile(r"NUMA node([0-9]{1,6}) CPU\(s\)")
CACHE = re.compile(r"(L[0-9][di]?)(?: cache)?")
SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([KMG]?)(?:iB|B|bytes)?(?:\s+\(([0-9]{1,6}) instances?\))?")
UNIT_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
STRING = r'"(?:[^"\\]|\\.)*"'
FIELD = re.compile(rf'"field"\s*:\s*({STRING})\s*,\s*"data"\s*:\s*({STRING}|null)')
COLUMNS = ("cpu", "core", "socket", "node", "l1d", "l1i", "l2", "l3", "online")
CACHE_COLUMNS = ("l1d", "l1i", "l2", "l3")


def parse(text):
    """Counts, NUMA nodes, caches, flags and the table of CPUs; `l3_groups` are CPUs that share an L3 (from a table)."""
    lines = plain_lines(text)
    pairs, rows, missing = _json(text) if text.lstrip().startswith("{") else _text(lines)
    names = {name for name, _ in pairs}
    nodes = [name for name in names if NODE.fullmatch(name)]
    if not rows and len(names & EVIDENCE) + 2 * len(nodes) < 2:
        return absent(lines, "lscpu") or unparsed()
    values = {**_summary(pairs), **_table(rows)}
    return graded([*missing, *_gaps(values, names, rows)], **_completed(values))


def _json(text):
    """(pairs, table rows, what is missing) of -J, cut ones too."""
    pairs = [(json.loads(name).rstrip(":"), json.loads(data)) for name, data in _strings(FIELD.findall(text))]
    rows = []
    for piece in re.findall(r"\{[^{}]*\}", text):
        try:
            found = json.loads(piece)
        except ValueError:
            continue
        if "cpu" in found:
            rows.append(_row(found))
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return pairs, rows, ["the JSON is cut or damaged"]
    return pairs, rows, []


def _strings(found):
    """The pairs whose two strings JSON accepts."""
    for pair in found:
        try:
            [json.loads(part) for part in pair]
        except ValueError:
            continue
        yield pair


def _text(lines):
    """(pairs, rows of the first table, what is missing) of the text forms."""
    pairs, tables, header, broken = [], [], None, 0
    for line in lines:
        words = line.removeprefix("#").split("," if line.startswith("# CPU,") else None)
        named = [word.strip().lower() for word in words]
        if named and named[0] == "cpu" and len(named) > 1 and {"core", "socket", "node", "online"} & set(named):
            header, separator = named, "," if "," in line else None
            tables.append([])
        elif header and re.match(r"\s*[0-9]{1,6}(?:[\s,]|$)", line):
            cells = [cell.strip() for cell in line.split(separator)]
            if len(cells) == len(header):
                tables[-1].append(_row(dict(zip(header, cells, strict=True))))
            else:
                broken += len(tables) == 1
        elif ":" in line and not line.startswith("#"):
            name, _, value = line.partition(":")
            pairs.append((name.strip(), value.strip()))
    missing = [f"{broken} rows of the table have other columns than its header"] if broken else []
    return pairs, tables[0] if tables else [], missing


def _row(found):
    """One row of a table with numbers for logical ids; what is `-`, empty or missing is None."""
    found = {str(name).lower(): value for name, value in found.items()}
    for name in [name for name in found if ":" in name]:
        values = str(found[name]).split(":")
        found |= dict(zip(name.split(":"), values, strict=False)) if len(values) == len(name.split(":")) else {}
    online = str(found.get("online")).lower()
    numbers = {name: whole(found.get(name)) for name in COLUMNS[:-1]}
    return numbers | {"online": {"yes": True, "true": True, "no": False, "false": False}.get(online)}


def _summary(pairs):
    """Values of the summary; the first of equal names counts, as later ones are of further kinds of core."""
    first = {}
    for name, value in pairs:
        first.setdefault(name, value)
    nodes = [(int(NODE.fullmatch(name)[1]), value) for name, value in first.items() if NODE.fullmatch(name)]
    return {
        **{key: first.get(name) or None for key, name in TEXTS.items()},
        "model_names": list(dict.fromkeys(value for name, value in pairs if name == "Model name" and value)),
        **{key: whole(first.get(name)) for key, name in NUMBERS.items()},
        **{key: decimal(first.get(name)) for key, name in CLOCKS.items()},
        "online_cpus": cpu_list(first.get("On-line CPU(s) list")),
        "numa_nodes": [{"node": node, "cpus": cpu_list(value) or ""} for node, value in sorted(nodes)],
        "caches": {CACHE.fullmatch(name)[1].lower(): _size(value) for name, value in first.items() if CACHE.fullmatch(name)},
        "flags": sorted(set((first.get("Flags") or "").split())),
    }


def _size(text):
    """`128 MiB (16 instances)` → {size_bytes, instances}."""
    found = SIZE.fullmatch(text or "")
    if not found:
        return {"size_bytes": None, "instances": None}
    return {"size_bytes": round(float(found[1]) * UNIT_BYTES[found[2]]), "instances": whole(found[3])}


def _table(rows):
    """The table, once a CPU."""
    return {"table": list({row["cpu"]: row for row in rows if row["cpu"] is not None}.values())}


def _completed(values):
    """Counts and groups that the table or the lists of the nodes say where the summary doesn't."""
    used = [row for row in values["table"] if row["online"] is not False]
    listed = set().union(*(parse_cpus(node["cpus"]) for node in values["numa_nodes"]))
    cores = {(row["socket"], row["core"]) for row in used if row["core"] is not None}
    sockets = {row["socket"] for row in used if row["socket"] is not None}
    counted = {
        "cpus": len(used) or len(listed) or None,
        "sockets": len(sockets) or None,
        "cores_per_socket": len(cores) // len(sockets) if cores and sockets else None,
        "threads_per_core": len(used) // len(cores) if cores else None,
        "online_cpus": format_cpus(row["cpu"] for row in used) or None,
    }
    nodes = values["numa_nodes"] or [{"node": node, "cpus": cpus} for node, cpus in _groups(used, "node")]
    return {
        **values,
        **{name: value if values[name] is None else values[name] for name, value in counted.items()},
        "numa_nodes": nodes,
        "numa_nodes_with_cpus": sum(bool(node["cpus"]) for node in nodes),
        "l3_groups": [cpus for _, cpus in _groups(used, "l3")],
    }


def _groups(rows, column):
    """[(id, CPUs)] of the rows that share a value of a column."""
    ids = sorted({row[column] for row in rows if row[column] is not None})
    return [(one, format_cpus(row["cpu"] for row in rows if row[column] == one)) for one in ids]


def _gaps(values, names, rows):
    """What a whole output would hold beside this."""
    if rows and not names & EVIDENCE:
        return []
    stated, nodes = values["numa_nodes_stated"], values["numa_nodes"]
    found = [f"no line {name!r}" for name in ("CPU(s)", "Thread(s) per core") if name not in names]
    if stated is not None and stated != len(nodes):
        found.append(f"{len(nodes)} of {stated} NUMA nodes")
    elif stated is None and not any(name.startswith("Vulnerability") for name in names):
        found.append("no NUMA nodes and nothing after them")
    online = parse_cpus(values["online_cpus"])
    if rows and online and len(values["table"]) < len(online):
        found.append(f"{len(values['table'])} of {len(online)} CPUs in the table")
    return found
