"""nvidia-smi topo -m: how GPUs and NICs are linked, and which CPUs are near. Source: nvidia-smi's own legend.

Columns are counted, not measured: documents space the header anew, and rows of NICs have no affinity.
"""

import re

from escherlib.hardware.parsers.contract import FAILED, UNAVAILABLE, result, unparsed
from escherlib.hardware.parsers.host_text import absent, cpu_list, first_line, graded, plain_lines, whole

SELF = "X"
LINK = re.compile(r"NV[0-9]{1,3}|SYS|NODE|PHB|PXB|PIX|SOC|PSB")
COLUMNS = {"cpu_affinity": "CPU Affinity", "numa_affinity": "NUMA Affinity", "gpu_numa_id": "GPU NUMA ID"}
NIC_NAME = re.compile(r"\s*(NIC[0-9]{1,4}):\s+([\w.-]{1,40})")
NO_DEVICE = r"No devices were found|couldn't communicate with the NVIDIA driver|Driver Not Loaded|Insufficient Permissions"
ERROR = r"Failed to initialize NVML|Unable to determine|is not a valid|Failed to process command"


def parse(text):
    """`links` {device: {device: NV#, PIX, …}}, `devices` [{device, kind, cpu_affinity, numa_node, …}], kinds of GPU links."""
    lines = plain_lines(text)
    at, names, columns = _header(lines)
    rows = {name: cells for name, *cells in (line.split() for line in lines[at + 1 :] if line.split()) if name in names}
    links = {name: _links(name, names, cells) for name, cells in rows.items()}
    if not names or not (columns or any(any(LINK.fullmatch(c) for c in cells) for cells in rows.values())):
        none, error = first_line(lines, NO_DEVICE), first_line(lines, ERROR)
        if none or error:
            return result(UNAVAILABLE if none else FAILED, none or error)
        return absent(lines, "nvidia-smi") or unparsed()
    nics = dict(found.groups() for found in map(NIC_NAME.fullmatch, lines) if found)
    devices = [_device(name, rows.get(name, [])[len(names) :], columns, nics) for name in names]
    gpus = [name for name in names if _kind(name) == "gpu"]
    between = {links.get(one, {}).get(other) for one in gpus for other in gpus if one != other}
    return graded(
        _gaps(names, columns, rows, links),
        gpus=len(gpus),
        nics=len(names) - len(gpus),
        devices=devices,
        links=links,
        gpu_link_kinds=sorted(between - {None}),
    )


def _header(lines):
    """(line number, names of devices, names of further columns) of the matrix; a device's name stands once."""
    for at, line in enumerate(lines):
        words = line.split()
        if not words or not re.fullmatch(r"GPU[0-9]{1,4}", words[0]):
            continue
        names = words[: next((i for i, word in enumerate(words) if word == "CPU"), len(words))]
        if len(set(names)) == len(names) and SELF not in names and not any(map(LINK.fullmatch, names)):
            return at, names, [key for key, title in COLUMNS.items() if title in " ".join(words)]
    return len(lines), [], []


def _kind(name):
    return "gpu" if re.fullmatch(r"GPU[0-9]{1,4}", name) else "nic"


def _links(name, names, cells):
    """{other device: kind of link}; None for a word that is no link."""
    return {
        other: cell if LINK.fullmatch(cell) else None
        for other, cell in zip(names, cells, strict=False) if other != name
    }  # fmt: skip


def _device(name, cells, columns, nics):
    """One device and what its row says behind the links; `N/A` is None."""
    said = dict.fromkeys(COLUMNS) | dict(zip(columns, cells, strict=False))
    return {
        "device": name,
        "kind": _kind(name),
        "nic": nics.get(name) if _kind(name) == "nic" else None,
        "cpu_affinity": cpu_list(said["cpu_affinity"]),
        "numa_affinity": cpu_list(said["numa_affinity"]),
        "numa_node": whole(said["numa_affinity"]) if str(said["numa_affinity"]).isdigit() else None,
        "gpu_numa_id": whole(said["gpu_numa_id"]),
    }


def _gaps(names, columns, rows, links):
    """Rows that are missing, too short, or shifted against the diagonal."""
    found = [f"{len(rows)} of {len(names)} rows"] if len(rows) < len(names) else []
    short = [name for name in rows if len(rows[name]) < len(names) + (len(columns) if _kind(name) == "gpu" else 0)]
    shifted = [
        name for name in rows
        if name not in short and (rows[name][names.index(name)] != SELF or None in links[name].values())
    ]  # fmt: skip
    found += [f"the row of {name} is cut" for name in short]
    return found + [f"the row of {name} can't be read" for name in shifted]
