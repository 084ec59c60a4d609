"""Which devices does this host have?

Standard library only, so that it can run before anything is installed. Never raises.

Sources: PCI devices, KFD topology and hwmon in sysfs, nvidia-smi, /proc/driver/nvidia, /proc/cpuinfo. A
source that is missing or broken leaves its facts unknown.
"""

import csv
import os
import platform
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from escherlib.hardware.identify import DeviceFacts

VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA"}
GPU_CLASSES = (0x03, 0x12)  # display controllers, processing accelerators
SMI_DEADLINE_S = 5
SMI_FIELDS = ("pci.bus_id", "name", "memory.total", "power.limit", "clocks.max.sm")
SMI_EXTRA = ("mig.mode.current", "compute_cap")  # unknown to old drivers
CPU_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel", "0x41": "Arm"}
GIB = 2**30
LOCAL_HEAPS = (1, 2)  # KFD heap types: frame buffer, public and private


def probe_devices(root="/", smi=None):
    """All GPUs by PCI address, then the CPU, as DeviceFacts.

    `root` and `smi` (fields → text or None) are for tests.
    """
    found = []
    for source in (lambda: _gpus(Path(root), smi or _nvidia_smi), lambda: [probe_cpu(root)]):
        try:
            found += source()
        except Exception:  # the promise is: whatever is broken on a host, the answer is what could be read
            continue
    return found


def _gpus(root, smi):
    by_bdf = {facts.bdf: facts for facts in _pci_gpus(root)}
    for bdf, known in _smi_gpus(smi).items():
        base = by_bdf.get(bdf, DeviceFacts(kind="gpu", vendor="NVIDIA", bdf=bdf))
        by_bdf[bdf] = replace(base, **{name: value for name, value in known.items() if value is not None})
    nodes = _kfd_nodes(root)
    found = []
    for bdf in sorted(by_bdf):
        facts = by_bdf[bdf]
        mine = nodes.get(bdf, [{}])  # one node a partition
        partition = facts.partition or (f"{len(mine)} partitions" if len(mine) > 1 else None)
        found += [replace(facts, **{**node, "partition": partition}) for node in mine]
    return found


def _pci_gpus(root):
    for folder in sorted(_glob(root / "sys/bus/pci/devices", "*")):
        vendor, pci_class = _integer(folder / "vendor"), _integer(folder / "class")
        if vendor not in VENDORS or pci_class is None or pci_class >> 16 not in GPU_CLASSES:
            continue
        vram = _integer(folder / "mem_info_vram_total")
        revision = _integer(folder / "revision")
        device = _integer(folder / "device")
        yield DeviceFacts(
            kind="gpu",
            name=_text(folder / "product_name") or _driver_model(root, folder.name),
            vendor=VENDORS[vendor],
            pci_id=None if device is None else f"{vendor:04x}:{device:04x}",
            pci_revision=None if revision is None else f"{revision:02x}",
            memory_gib=vram / GIB if vram else None,
            power_cap_w=next(
                (c / 1e6 for c in map(_integer, _glob(folder, "hwmon/hwmon*/power1_cap")) if c), None
            ),
            partition=_text(folder / "current_compute_partition") or None,
            bdf=folder.name.lower(),
        )


def _driver_model(root, bdf):
    """Name that the NVIDIA kernel driver gives, without any tool."""
    text = _text(root / "proc/driver/nvidia/gpus" / bdf.lower() / "information")
    return next(
        (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Model")), ""
    )


def _smi_gpus(smi):
    """PCI address → facts that nvidia-smi knows."""
    text = smi(SMI_FIELDS + SMI_EXTRA) or smi(SMI_FIELDS)
    found = {}
    for row in csv.reader((text or "").splitlines(), skipinitialspace=True):
        if len(row) < len(SMI_FIELDS) or not re.fullmatch(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+", row[0].strip()):
            continue
        bus, name, memory, power, clock, *extra = (cell.strip() for cell in row)
        mig, capability = (extra + ["", ""])[:2]
        megabytes = _number(memory)
        found[_short_bdf(bus)] = {
            "name": name or None,
            "memory_gib": megabytes / 1024 if megabytes else None,
            "power_cap_w": _number(power),
            "clock_mhz": _number(clock),
            "partition": "MIG" if mig.casefold() == "enabled" else None,
            "arch": capability if re.fullmatch(r"\d+\.\d", capability) else None,
        }
    return found


def _nvidia_smi(fields):
    """Output of one query, or None. A failed query writes its message to stdout, so the exit code decides."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SMI_DEADLINE_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _kfd_nodes(root):
    """PCI address → facts of each compute node there (AMD's kernel driver has one node a partition)."""
    found = {}
    for folder in sorted(
        _glob(root / "sys/class/kfd/kfd/topology/nodes", "*"), key=lambda path: _number(path.name) or 0
    ):
        node = _properties(folder / "properties")
        if not node.get("simd_count") or not node.get("simd_per_cu"):
            continue  # a CPU node
        location = node.get("location_id", 0)
        bdf = f"{node.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"
        heaps = [_properties(path) for path in _glob(folder, "mem_banks/*/properties")]
        memory = sum(bank.get("size_in_bytes", 0) for bank in heaps if bank.get("heap_type") in LOCAL_HEAPS)
        facts = {
            "arch": gfx_target(node.get("gfx_target_version")),
            "compute_units": node["simd_count"] // node["simd_per_cu"],
            "memory_gib": memory / GIB if memory else None,
            "clock_mhz": float(node["max_engine_clk_fcompute"])
            if node.get("max_engine_clk_fcompute")
            else None,
        }
        found.setdefault(bdf, []).append({name: value for name, value in facts.items() if value is not None})
    return found


def gfx_target(version):
    """KFD's gfx_target_version as a target name: 90402 → gfx942, 90010 → gfx90a, 120001 → gfx1201.

    None for nothing.
    """
    if not version:
        return None
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def probe_cpu(root="/"):
    """Facts of the CPU as the process may use it."""
    text = _text(Path(root) / "proc/cpuinfo")
    first = dict(re.findall(r"^([\w ]+?)\s*:[ \t]*(.*?)\s*$", text.split("\n\n")[0], re.MULTILINE))
    family, model = (_number(first.get(name, "")) for name in ("cpu family", "model"))
    if family is None and model is None:  # Arm: who made the core, and which part it is
        family, model = (_hex(first.get(f"CPU {name}")) for name in ("implementer", "part"))
    return DeviceFacts(
        kind="cpu",
        name=first.get("model name") or first.get("Hardware") or platform.processor() or platform.machine(),
        vendor=CPU_VENDORS.get(first.get("vendor_id") or first.get("CPU implementer")),
        compute_units=_usable_cores(text),
        cpu_family=None if family is None else int(family),
        cpu_model=None if model is None else int(model),
        cpu_flags=frozenset((first.get("flags") or first.get("Features") or "").split()),
    )


def _hex(text):
    """0x41 → 65, or None."""
    return int(text, 16) if re.fullmatch(r"0x[0-9a-f]{1,4}", text or "") else None


def _usable_cores(cpuinfo):
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE)) or None


def _short_bdf(bus):
    """00000000:1B:00.0 → 0000:1b:00.0, the form sysfs uses."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _properties(path):
    """`name value` lines of a KFD properties file, whole numbers only."""
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _glob(folder, pattern):
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _text(path):
    try:
        return path.read_text(errors="replace").strip("\0 \t\n")
    except OSError:
        return ""


def _integer(path):
    """A sysfs number, decimal or 0x…, or None."""
    try:
        return int(_text(path), 0)
    except ValueError:
        return None


def _number(text):
    """A plain number, or None for N/A, [Not Supported] and the like."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:MiB|W|MHz)?\s*", text)
    return float(found[1]) if found else None
