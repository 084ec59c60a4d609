"""How a host is built: which CPUs share a core, a last-level cache, a NUMA node and a socket.

Everything but `gather` is pure: `files` maps paths below /sys/devices to text, of a live host or of a capture; rows
of CPUs come from there or from lscpu. Source of meaning: the kernel's documents on cputopology and NUMA in sysfs.
"""

import re

from escherlib.hardware.parsers.host_text import mask_cpus
from escherlib.hardware.sysfs import folders, format_cpus, parse_bytes, parse_cpus, read_text

PLACES = {"socket": "physical_package_id", "die": "die_id", "cluster": "cluster_id", "core": "core_id"}
SIBLINGS = ("core_cpus_list", "thread_siblings_list")  # the second is the older name
CACHE_FILES = ("level", "type", "size", "shared_cpu_list")
TYPES = ("cpu_core", "cpu_atom", "cpu_lowpower")  # x86 with several kinds of core: one PMU a kind
UNKNOWN = (65535, 2**32 - 1)  # what the kernel writes for "no such level"
SHARED_FROM = 3  # a cache of this level is shared by design, even where one core has it alone


def gather(root):
    """{path below /sys/devices: text} of the files that tell how this host is built."""
    base, found = root / "sys/devices", {}
    wanted = [base / "system/cpu/online", *(base / kind / "cpus" for kind in TYPES)]
    for cpu in folders(base / "system/cpu", "cpu[0-9]*"):
        wanted += [cpu / "topology" / name for name in (*PLACES.values(), *SIBLINGS)] + [cpu / "cpu_capacity"]
        wanted += [index / name for index in folders(cpu / "cache", "index*") for name in CACHE_FILES]
    wanted += [node / "cpulist" for node in folders(base / "system/node", "node[0-9]*")]
    for path in wanted:
        text = read_text(path)
        if text is not None:
            found[str(path.relative_to(base))] = text
    return found


def cpu_rows(files, cpus=None):
    """One row a CPU that has topology or caches (of `cpus` alone, where given), in order of their numbers.

    {cpu, socket, die, cluster, core, node, capacity: numbers or None, siblings: threads of its core or None,
    caches: [(level, type, bytes, CPUs that share it)]}.
    """
    names = {}
    for path in files:
        found = re.match(r"system/cpu/cpu([0-9]{1,6})/(topology|cache)/", path)
        if found and (cpus is None or int(found[1]) in cpus):
            names.setdefault(int(found[1]), []).append(path)
    node_of = {cpu: node for node, members in numa_cpus(files).items() for cpu in members}
    return [_row(files, cpu, names[cpu], node_of.get(cpu)) for cpu in sorted(names)]


def _row(files, cpu, paths, node):
    at = f"system/cpu/cpu{cpu}"
    indices = sorted({path.split("/")[4] for path in paths if path.startswith(f"{at}/cache/")})
    siblings = next(filter(None, (parse_cpus(files.get(f"{at}/topology/{name}")) for name in SIBLINGS)), None)
    return {
        "cpu": cpu,
        **{place: _number(files.get(f"{at}/topology/{name}")) for place, name in PLACES.items()},
        "node": node,
        "capacity": _number(files.get(f"{at}/cpu_capacity")),
        "siblings": frozenset(siblings) if siblings else None,
        "caches": [_cache(files, f"{at}/cache/{index}", cpu) for index in indices],
    }


def _cache(files, at, cpu):
    level, kind, size, shared = (files.get(f"{at}/{name}") for name in CACHE_FILES)
    return _number(level) or 0, kind, parse_bytes(size), frozenset(parse_cpus(shared) or {cpu})


def _number(text):
    """A number that means something: not -1, not the kernel's "none"."""
    found = int(text) if re.fullmatch(r"[0-9]{1,12}", text or "") else None
    return None if found in UNKNOWN else found


def numa_cpus(files):
    """{node: its CPUs}; nodes of memory alone have none."""
    found = {}
    for path, text in files.items():
        match = re.fullmatch(r"system/node/node([0-9]{1,6})/(cpulist|cpumap)", path)
        if match:
            cpus = parse_cpus(text) if match[2] == "cpulist" else mask_cpus(text)
            found[int(match[1])] = found.get(int(match[1]), set()) | cpus
    return found


def lscpu_rows(table):
    """Rows of `lscpu -e` in the same form; CPUs that share an L3 share its number."""
    used = [row for row in table if row["online"] is not False]
    level = next((name for name in ("l3", "l2") if any(row[name] is not None for row in used)), None)
    rows = []
    for row in used:
        same = frozenset(r["cpu"] for r in used if level and r[level] == row[level] and row[level] is not None)
        siblings = frozenset(
            r["cpu"] for r in used if row["core"] is not None and (r["socket"], r["core"]) == (row["socket"], row["core"])
        )
        caches = [(int(level[1]), "Unified", None, same)] if same else []
        more = {"die": None, "cluster": None, "capacity": None, "siblings": siblings or None, "caches": caches}
        rows.append({name: row[name] for name in ("cpu", "socket", "core", "node")} | more)
    return rows


def core_of(row):
    """What tells one core from another, or None where nothing does.

    The threads themselves, where they are known: numbers of cores repeat per socket, and on Arm per cluster.
    """
    if row["siblings"]:
        return row["siblings"]
    return None if row["core"] is None else (row["socket"], row["die"], row["cluster"], row["core"])


def last_cache(row):
    """(level, bytes, CPUs) of the last data cache that a CPU shares with others, or None.

    A second level that only its own core uses is no group: many Arm servers show none above it.
    """
    level, _, size, cpus = max(_data_caches(row), key=lambda cache: cache[0], default=(0, None, None, frozenset()))
    private = level < SHARED_FROM and cpus <= (row["siblings"] or {row["cpu"]})
    return None if private else (level, size, cpus)


def _data_caches(row):
    return [cache for cache in row["caches"] if cache[1] != "Instruction"]


def shared_caches(rows, level=None):
    """[(CPUs among the rows, bytes)] of each data cache of a level (None: the last one each CPU has)."""
    known, found = {row["cpu"] for row in rows}, {}
    for row in rows:
        wanted = level or max((cache[0] for cache in _data_caches(row)), default=0)
        found |= {cpus: size for at, _, size, cpus in _data_caches(row) if at == wanted}
    pairs = [(set(cpus) & known, size) for cpus, size in found.items()]
    return sorted((pair for pair in pairs if pair[0]), key=lambda pair: min(pair[0]))


def cpu_cells(rows):
    """The finest domains: CPUs of one socket, one NUMA node and one last-level cache, in order of their first CPU.

    Nodes split a cache where the firmware does (sub-NUMA clusters), caches split a node where a node has several (CCDs).
    [{cpus, socket, node, die, llc_level, llc_bytes}]; `llc_bytes` is the whole cache's.
    """
    groups = {}
    for row in rows:
        groups.setdefault((row["socket"], row["node"], last_cache(row)), []).append(row)
    return [
        {
            "cpus": format_cpus(row["cpu"] for row in members),
            "socket": socket,
            "node": node,
            "die": members[0]["die"] if len({row["die"] for row in members}) == 1 else None,
            "llc_level": cache[0] if cache else None,
            "llc_bytes": cache[1] if cache else None,
        }
        for (socket, node, cache), members in sorted(groups.items(), key=lambda group: group[1][0]["cpu"])
    ]


def core_types(files, rows):
    """[{type, cpus}] of a host with several kinds of core (x86: the kernel's names; Arm: by capacity), else []."""
    known = {row["cpu"] for row in rows}
    kinds = {kind: parse_cpus(files.get(f"{kind}/cpus")) & known for kind in TYPES}
    capacities = sorted({row["capacity"] for row in rows} - {None}, reverse=True)
    if not any(kinds.values()):
        kinds = {f"capacity {one}": {row["cpu"] for row in rows if row["capacity"] == one} for one in capacities}
    kinds = {kind: cpus for kind, cpus in kinds.items() if cpus}
    return [{"type": kind, "cpus": format_cpus(cpus)} for kind, cpus in kinds.items()] if len(kinds) > 1 else []
