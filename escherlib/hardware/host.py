"""Host facts: what CPUs and memory this process may really use, and how the processor is built.

Everything comes from /proc, /sys and control groups (lscpu where /sys tells no topology); a file that is missing
leaves its fact None. Sources: the kernel's documents on cputopology, cgroup v1 and v2, and NUMA in sysfs.
"""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

from escherlib.hardware.cgroups import limits
from escherlib.hardware.parsers.contract import read
from escherlib.hardware.parsers.lscpu import parse as parse_lscpu
from escherlib.hardware.sysfs import format_cpus, parse_bytes, parse_cpus, parse_pairs, read_text
from escherlib.hardware.topology import (
    core_of,
    core_types,
    cpu_cells,
    cpu_rows,
    gather,
    last_cache,
    lscpu_rows,
    numa_cpus,
    shared_caches,
)

LSCPU = ["lscpu", "-J", "-e=CPU,CORE,SOCKET,NODE,CACHE,ONLINE"]
LSCPU_DEADLINE_S = 5
DOMAINS = {"ccd": ("socket", "node", "cpus"), "numa": ("socket", "node"), "socket": ("socket",)}
ISA_WORDS = re.compile(r"avx\w*|amx\w*|sve\w*|asimd\w*|fma|f16c|sse4_2|i8mm|sme|bf16")


def host_facts(root="/", affinity=None):
    """What this host is and what of it may be used, as JSON values.

    `root` and `affinity` (set of CPU numbers) are for tests. Cache sizes are sums over the usable CPUs; `ccds` are
    groups of CPUs that share a last-level cache, `cpu_cells` the same split by NUMA node and socket (see `domains`).
    """
    root = Path(root)
    cap = limits(root)
    online, allowed = _cpus(root, affinity, cap)
    info = parse_pairs((read_text(root / "proc/cpuinfo") or "").split("\n\n")[0])
    rows, files, source = _described(root, online)
    place = {row["cpu"]: core_of(row) for row in rows}
    cores = [core for core in place.values() if core]
    return {
        "model_name": info.get("model name") or info.get("Hardware"),
        "cpu_vendor": info.get("vendor_id") or info.get("CPU implementer"),
        "cpu_family": _number(info.get("cpu family")),
        "cpu_model": _number(info.get("model")),
        "isa_flags": _isa_flags(info),
        "virtual_machine": "hypervisor" in (info.get("flags") or "").split(),
        **_usable(online, allowed, {place.get(cpu) for cpu in allowed} - {None}, cap),
        "topology_source": source,
        "sockets": len({row["socket"] for row in rows} - {None}) or None,
        "threads_per_core": max(Counter(cores).values(), default=None),
        "ccds": list(dict.fromkeys(format_cpus(last[2] & online) for last in map(last_cache, rows) if last)),
        "cpu_cells": _cells(rows, online, files),
        "core_types": core_types(files, rows),
        "numa_nodes": _numa_nodes(root, online, files),
        "l1d_bytes": _cache_total(rows, allowed, 1),
        "l2_bytes": _cache_total(rows, allowed, 2),
        "llc_bytes": _cache_total(rows, allowed),
        **_memory(root, cap),
    }


def usable_threads(facts):
    """Threads worth starting: one a usable core, never more than the quota pays for, at least one."""
    return max(1, min(facts["usable_cores"] or facts["usable_cpus"], facts["usable_cpus"]))


def _cpus(root, affinity, cap):
    """(online CPUs, CPUs this process may run on)."""
    if affinity is None:
        try:
            affinity = os.sched_getaffinity(0)
        except (AttributeError, OSError):
            affinity = range(os.cpu_count() or 1)
    affinity = set(affinity)
    online = parse_cpus(read_text(root / "sys/devices/system/cpu/online")) or affinity
    allowed = affinity & online & (set(cap.cpus) if cap.cpus else online)
    return online, allowed or affinity


def _usable(online, allowed, cores, cap):
    """How many CPUs may be used, and what decides it."""
    count, quota = len(allowed), cap.quota_cpus
    how = "all CPUs online" if allowed == online else f"affinity or cpuset: {count} of {len(online)} CPUs"
    if quota is not None and quota < count:
        how = f"cgroup quota: {quota:.3g} of {count} CPUs"
        count = max(1, int(quota))
    return {
        "online_cpus": len(online),
        "usable_cpus": count,
        "usable_cpus_how": how,
        "usable_cores": min(len(cores), count) or None,
        "allowed_cpus": format_cpus(allowed),
        "quota_cpus": quota,
    }


def _described(root, online):
    """(rows of the online CPUs, files below /sys/devices, where the rows come from)."""
    files = gather(root)
    rows = cpu_rows(files, online)
    if any(row["core"] is not None or row["siblings"] for row in rows):
        return rows, files, "sysfs"
    table = lscpu_table() if root == Path("/") else []  # lscpu would tell of this host, not of another root
    listed = [row for row in lscpu_rows(table) if row["cpu"] in online]
    return (listed, files, "lscpu") if listed else (rows, files, "sysfs" if rows else None)


def lscpu_table():
    """Rows of `lscpu -J -e=…`, [] where it fails or says nothing in time."""
    try:
        done = subprocess.run(LSCPU, capture_output=True, text=True, errors="replace", timeout=LSCPU_DEADLINE_S)
    except (OSError, subprocess.SubprocessError):
        return []
    return read(parse_lscpu, done.stdout).get("table") or []


def domains(facts_or_root, kind):
    """CPU sets that a rank may be pinned to, allowed CPUs only, in order of their first CPU.

    `kind`: "ccd" (one last-level cache within one NUMA node; the node where CPUs share no cache), "numa" or "socket".
    Takes host_facts' value or the root of a tree. [{cpus: [numbers], node, nodes, socket, core_types}]; `node` is None
    for a set of several nodes, and what the host does not tell is None. ValueError for another kind.
    """
    if kind not in DOMAINS:
        raise ValueError(f"{kind!r} is no kind of domain; expected one of {', '.join(DOMAINS)}")
    facts = facts_or_root if isinstance(facts_or_root, dict) else host_facts(facts_or_root)
    allowed, groups = parse_cpus(facts["allowed_cpus"]), {}
    for cell in facts["cpu_cells"]:
        key = tuple(cell[name] for name in DOMAINS[kind])
        groups.setdefault(key, []).append(cell)
    found = [_domain(cells, allowed, facts["core_types"]) for cells in groups.values()]
    return sorted((one for one in found if one["cpus"]), key=lambda one: one["cpus"][0])


def _domain(cells, allowed, core_types):
    cpus = {cpu for cell in cells for cpu in parse_cpus(cell["cpus"]) & allowed}
    nodes = sorted({cell["node"] for cell in cells if cell["node"] is not None and parse_cpus(cell["cpus"]) & allowed})
    sockets = {cell["socket"] for cell in cells}
    return {
        "cpus": sorted(cpus),
        "node": nodes[0] if len(nodes) == 1 else None,
        "nodes": nodes,
        "socket": sockets.pop() if len(sockets) == 1 else None,
        "core_types": [kind["type"] for kind in core_types if parse_cpus(kind["cpus"]) & cpus],
    }


def _cells(rows, online, files):
    """cpu_cells of the rows; CPUs that no row describes go by their node alone."""
    unplaced, nodes = online - {row["cpu"] for row in rows}, numa_cpus(files)
    bare = {"socket": None, "die": None, "llc_level": None, "llc_bytes": None}
    rest = {node: cpus & unplaced for node, cpus in nodes.items()}
    rest[None] = unplaced.difference(*rest.values())
    cells = cpu_cells(rows) + [{"cpus": format_cpus(cpus), "node": node} | bare for node, cpus in rest.items() if cpus]
    return sorted(cells, key=lambda cell: min(parse_cpus(cell["cpus"])))


def _cache_total(rows, allowed, level=None):
    """Bytes of all data caches of a level (None: the last one) that the allowed CPUs have a part in."""
    return sum(size for cpus, size in shared_caches(rows, level) if size and cpus & allowed) or None


def _numa_nodes(root, online, files):
    """Every node with its CPUs ("" for memory without CPUs) and memory; numbers may skip."""
    found = []
    for node, cpus in sorted(numa_cpus(files).items()):
        meminfo = parse_pairs(read_text(root / f"sys/devices/system/node/node{node}/meminfo"))
        total = meminfo.get(f"Node {node} MemTotal", "")
        found.append(
            {"node": node, "cpus": format_cpus(cpus & online), "memory_bytes": parse_bytes(total.replace(" kB", "K"))}
        )
    return found


def _memory(root, cap):
    """Memory of the host and what of it this process may take."""
    info = parse_pairs(read_text(root / "proc/meminfo"))
    sizes = {name: parse_bytes(info.get(name, "").replace(" kB", "K")) for name in ("MemTotal", "SwapTotal")}
    total = sizes["MemTotal"]
    limited = cap.memory_bytes is not None and (total is None or cap.memory_bytes < total)
    return {
        "memory_total_bytes": total,
        "memory_limit_bytes": cap.memory_bytes if limited else total,
        "memory_limit_how": "cgroup limit" if limited else "memory of the host",
        "swap_bytes": sizes["SwapTotal"],
    }


def _isa_flags(info):
    """Instruction sets that the speed of matrix products hangs on."""
    words = (info.get("flags") or info.get("Features") or "").split()
    return sorted({word for word in words if ISA_WORDS.fullmatch(word)})


def _number(text):
    return int(text) if text and text.isdigit() else None
