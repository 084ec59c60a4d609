"""A capture of /sys/devices/system/{cpu,node} as `path: value` lines (`grep -r .` gives them without the blank).

Source of the files' meaning: the kernel's documents on cputopology and ABI/stable/sysfs-devices-node.
"""

import re

from escherlib.hardware.parsers.contract import unparsed
from escherlib.hardware.parsers.host_text import graded, plain_lines
from escherlib.hardware.sysfs import format_cpus, parse_cpus
from escherlib.hardware.topology import core_of, core_types, cpu_cells, cpu_rows, numa_cpus, shared_caches

LINE = re.compile(r"/?sys/devices/((?:system/(?:cpu|node)|cpu_\w+)/[\w./]+):(.*)")


def parse(text):
    """`cpus` [{cpu, socket, die, cluster, core, node, siblings, l3_cpus, l3_bytes}], groups that share an L3, nodes, cells.

    Sockets and cores are counted among the CPUs that the capture holds. `cells` are CPUs of one socket, node and L3.
    """
    files = {found[1]: found[2].strip() for found in map(LINE.fullmatch, plain_lines(text)) if found}
    rows = cpu_rows(files)
    nodes = numa_cpus(files)
    if not rows and not nodes:
        return unparsed()
    online = parse_cpus(files.get("system/cpu/online"))
    cores = {core_of(row) for row in rows} - {None}
    sockets = {row["socket"] for row in rows} - {None}
    return graded(
        _gaps(online, rows, nodes),
        online_cpus=format_cpus(online) or None,
        present_cpus=files.get("system/cpu/present") or None,
        cpus=[_cpu(row) for row in rows],
        sockets=len(sockets) or None,
        cores=len(cores) or None,
        l3_groups=[format_cpus(cpus) for cpus, _ in shared_caches(rows, 3)],
        numa_nodes=[{"node": node, "cpus": format_cpus(cpus)} for node, cpus in sorted(nodes.items())],
        core_types=core_types(files, rows),
        cells=cpu_cells(rows),
    )


def _cpu(row):
    """A row as JSON."""
    l3 = next(((size, cpus) for level, kind, size, cpus in row["caches"] if level == 3 and kind != "Instruction"), None)
    named = {name: row[name] for name in ("cpu", "socket", "die", "cluster", "core", "node")}
    return named | {
        "siblings": format_cpus(row["siblings"]) if row["siblings"] else None,
        "l3_cpus": format_cpus(l3[1]) if l3 else None,
        "l3_bytes": l3[0] if l3 else None,
    }


def _gaps(online, rows, nodes):
    placed = {row["cpu"] for row in rows if row["core"] is not None}
    found = [] if online else ["no list of online CPUs"]
    if online - placed:
        found.append(f"{len(online & placed)} of {len(online)} online CPUs")
    if not nodes:
        found.append("no NUMA nodes")
    return found
