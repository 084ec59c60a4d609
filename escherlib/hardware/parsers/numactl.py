"""numactl -H: NUMA nodes with their CPUs, memory and distances. Source: numactl(8). Its MB are MiB."""

import re

from escherlib.hardware.parsers.contract import FAILED, UNAVAILABLE, result, unparsed
from escherlib.hardware.parsers.host_text import absent, first_line, graded, plain_lines, whole
from escherlib.hardware.sysfs import format_cpus

AVAILABLE = re.compile(r"available: ([0-9]{1,6}) nodes?\b")
NODE = re.compile(r"node ([0-9]{1,6}) (cpus|size|free):(.*)")
HEADER = re.compile(r"node((?:\s+[0-9]{1,6})+)")
ROW = re.compile(r"\s*([0-9]{1,6}):((?:\s+[0-9]{1,6})*)")
NONE_HERE = r"No NUMA (?:available|support)|not available on this system"
ERROR = r"libnuma: Warning|^numactl: |is invalid$|^usage: numactl"


def parse(text):
    """`nodes` [{node, cpus, size_mib, free_mib}], `distances` {node: {node: distance}}, which nodes lack CPUs or memory.

    Nodes are those that have lines of their own; a cut output has distances to others too.
    """
    lines = plain_lines(text)
    available = next((found for found in map(AVAILABLE.match, lines) if found), None)
    nodes, (columns, distances) = _nodes(lines), _distances(lines)
    if not nodes and not distances and not available:
        none, error = first_line(lines, NONE_HERE), first_line(lines, ERROR)
        if none or error:
            return result(UNAVAILABLE if none else FAILED, none or error)
        return absent(lines, "numactl") or unparsed()
    stated = int(available[1]) if available else None
    return graded(
        _gaps(stated, nodes, columns, distances, lines),
        nodes_stated=stated,
        nodes=nodes,
        nodes_with_cpus=[node["node"] for node in nodes if node["cpus"]],
        nodes_with_memory=[node["node"] for node in nodes if node["size_mib"]],
        nodes_without_cpus=[node["node"] for node in nodes if node["cpus"] == ""],
        nodes_without_memory=[node["node"] for node in nodes if node["size_mib"] == 0],
        distances=distances,
    )


def _nodes(lines):
    """Every node with a line of its own; `cpus` is "" for none and None where it was not said."""
    found = {}
    for match in filter(None, map(NODE.fullmatch, lines)):
        node = found.setdefault(int(match[1]), {"cpus": None, "size_mib": None, "free_mib": None})
        if match[2] == "cpus":
            node["cpus"] = format_cpus({int(word) for word in match[3].split() if re.fullmatch("[0-9]{1,6}", word)})
        else:
            node[f"{match[2]}_mib"] = whole(match[3])
    return [{"node": number, **found[number]} for number in sorted(found)]


def _distances(lines):
    """(nodes of the matrix, {from: {to: distance}}); rows of another length are left out."""
    header = next((found for found in map(HEADER.fullmatch, lines) if found), None)
    columns = header[1].split() if header else []
    rows = [(found[1], found[2].split()) for found in map(ROW.fullmatch, lines) if found]
    return columns, {
        node: dict(zip(columns, map(int, cells), strict=True)) for node, cells in rows if cells and len(cells) == len(columns)
    }


def _gaps(stated, nodes, columns, distances, lines):
    found = [] if stated is not None else ["no line `available`"]
    if stated is not None and stated != len(nodes):
        found.append(f"{len(nodes)} of {stated} nodes")
    if any(None in (node["cpus"], node["size_mib"], node["free_mib"]) for node in nodes):
        found.append("a node lacks its CPUs or its memory")
    if len(distances) < (len(columns) or 1) and not first_line(lines, "No distance information"):
        found.append(f"{len(distances)} of {len(columns) or stated or '?'} rows of distances")
    return found
