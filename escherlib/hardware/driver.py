"""What the driver says of one GPU: caps, clocks, modes, memory, processes. Read once, never set.

NVIDIA through NVML, AMD through sysfs. Every value that the driver does not give is None. No serial number,
no UUID and no process id leaves this module.
"""

import contextlib
from pathlib import Path

from escherlib.hardware.sysfs import folders, read_int, read_text

EMPTY = {
    "driver": None,
    "power": dict.fromkeys(("cap_w", "cap_default_w", "cap_min_w", "cap_max_w")),
    "clocks": dict.fromkeys(("max_mhz", "max_memory_mhz", "now_mhz", "application_mhz")),
    "modes": dict.fromkeys(("ecc", "mig", "compute", "persistence", "compute_partition", "memory_partition")),
    "link": dict.fromkeys(("pcie_generation", "pcie_width", "pcie_max_generation", "pcie_max_width")),
    "temperature_c": None,
    "memory_used_bytes": None,
    "other_processes": None,
    "limits_now": None,
}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


def gpu_state(stack, uuid=None, bdf=None, root="/"):
    """State of one GPU as JSON values, in the shape of EMPTY. `stack`: "cuda", "rocm" or "cpu" (all None)."""
    found = {name: dict(value) if isinstance(value, dict) else value for name, value in EMPTY.items()}
    with contextlib.suppress(Exception):  # no driver library, another driver, a lost device: all None
        if stack == "cuda":
            _from_nvml(found, uuid, bdf)
        elif stack == "rocm":
            _from_sysfs(found, Path(root), bdf)
    return found


def _from_nvml(found, uuid, bdf):
    from escherlib.hardware.telemetry.nvml import connect, limit_bits, limit_mask

    nvml, handle = connect(uuid, bdf)
    try:
        ask = _asker(nvml, handle)
        limits = ask("PowerManagementLimitConstraints") or (None, None)
        found["driver"] = _quietly(nvml.nvmlSystemGetDriverVersion)
        found["power"] = {
            "cap_w": _watts(ask("EnforcedPowerLimit")),
            "cap_default_w": _watts(ask("PowerManagementDefaultLimit")),
            "cap_min_w": _watts(limits[0]),
            "cap_max_w": _watts(limits[1]),
        }
        found["clocks"] = {
            "max_mhz": ask("MaxClockInfo", nvml.NVML_CLOCK_SM),
            "max_memory_mhz": ask("MaxClockInfo", nvml.NVML_CLOCK_MEM),
            "now_mhz": ask("ClockInfo", nvml.NVML_CLOCK_SM),
            "application_mhz": ask("ApplicationsClock", nvml.NVML_CLOCK_SM),
        }
        found["modes"] |= {
            "ecc": _on_off((ask("EccMode") or (None,))[0]),
            "mig": _on_off((ask("MigMode") or (None,))[0]),
            "compute": COMPUTE_MODES.get(ask("ComputeMode")),
            "persistence": _on_off(ask("PersistenceMode")),
        }
        found["link"] = {
            "pcie_generation": ask("CurrPcieLinkGeneration"),
            "pcie_width": ask("CurrPcieLinkWidth"),
            "pcie_max_generation": ask("MaxPcieLinkGeneration"),
            "pcie_max_width": ask("MaxPcieLinkWidth"),
        }
        found["temperature_c"] = ask("Temperature", nvml.NVML_TEMPERATURE_GPU)
        found["memory_used_bytes"] = _memory_used(nvml, handle, ask)
        found["other_processes"] = _other_processes(ask("ComputeRunningProcesses"))
        mask = _quietly(limit_mask, nvml, handle)
        if mask is not None:
            found["limits_now"] = [name for bit, name in sorted(limit_bits(nvml).items()) if mask & bit]
    finally:
        nvml.nvmlShutdown()


def _asker(nvml, handle):
    """ask("PowerUsage") → value of nvmlDeviceGetPowerUsage(handle), None where it is not supported."""
    return lambda name, *more: _quietly(getattr(nvml, f"nvmlDeviceGet{name}", None), handle, *more)


def _quietly(function, *arguments):
    try:
        return function(*arguments)
    except Exception:  # NVML raises one class per code, and TypeError where the call does not exist
        return None


def _memory_used(nvml, handle, ask):
    """Bytes in use without what the driver reserves for itself (version 1 of the call counts that too)."""
    newer = getattr(nvml, "nvmlMemory_v2", None)
    info = (newer and ask("MemoryInfo", newer)) or ask("MemoryInfo")
    return getattr(info, "used", None)


def _other_processes(processes):
    """Number of compute processes besides this one, which holds the opened device itself.

    Pids are no help: in a container they may be those of another namespace.
    """
    return None if processes is None else max(0, len(processes) - 1)


def _from_sysfs(found, root, bdf):
    device = root / "sys/bus/pci/devices" / (bdf or "none")
    hwmon = next(iter(folders(device, "hwmon/hwmon*")), device / "hwmon")
    caps = {"cap_w": "power1_cap", "cap_default_w": "power1_cap_default", "cap_min_w": "power1_cap_min",
            "cap_max_w": "power1_cap_max"}  # fmt: skip
    found["driver"] = read_text(root / "sys/module/amdgpu/version")
    found["power"] = {name: _micro(read_int(hwmon / file)) for name, file in caps.items()}
    found["clocks"]["now_mhz"] = _micro(read_int(hwmon / "freq1_input"))
    found["modes"] |= {
        "compute_partition": read_text(device / "current_compute_partition") or None,
        "memory_partition": read_text(device / "current_memory_partition") or None,
    }
    found["link"] |= {
        "pcie_width": read_int(device / "current_link_width"),
        "pcie_max_width": read_int(device / "max_link_width"),
    }
    labels = {read_text(path): path for path in folders(hwmon, "temp*_label")}
    path = labels.get("junction") or next(iter(labels.values()), hwmon / "temp1_label")
    degrees = read_int(path.with_name(path.name.replace("_label", "_input")))
    found["temperature_c"] = None if degrees is None else degrees // 1000
    found["memory_used_bytes"] = read_int(device / "mem_info_vram_used")


def _watts(milliwatts):
    return None if milliwatts is None else round(milliwatts / 1000, 1)


def _micro(value):
    return None if value is None else round(value / 1e6, 1)


def _on_off(flag):
    return None if flag is None else ("on" if flag else "off")
