"""Is this machine fit to be measured? Looks once, touches nothing; a warning stops nothing."""

import os
import time
from pathlib import Path

from escherlib.hardware.driver import gpu_state
from escherlib.hardware.environment import knobs, system
from escherlib.hardware.host import host_facts
from escherlib.hardware.sysfs import parse_bytes, parse_pairs, read_text
from escherlib.method import method

GIB = 2**30
# where a warning begins
MEMORY_SHARE = 0.02  # of the device's memory, in use by others
MEMORY_FREE_SHARE = 0.5  # of the host's memory, free for a run on the CPU
WARM_C = 60  # a device at rest
LOAD_SHARE = 0.5  # of the usable CPUs, kept busy by others
STEAL_PCT = 1.0
SHARED_MEMORY_BYTES = GIB
STEAL_WATCH_S = 0.3
SLOWING = {
    "CUDA_LAUNCH_BLOCKING": "1", "HIP_LAUNCH_BLOCKING": "1", "AMD_SERIALIZE_KERNEL": "3", "AMD_LOG_LEVEL": None,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TORCH_LOGS": None, "NVIDIA_TF32_OVERRIDE": None,
    "HSA_OVERRIDE_GFX_VERSION": None, "CUDA_DEVICE_MAX_CONNECTIONS": "1", "MKL_DEBUG_CPU_TYPE": None,
}  # fmt: skip


@method(version=1)
def precheck(device):
    """All checks of this device and its host: {"states": {}, "checks": [{check, status, found, why}]}.

    status: "ok", "warning", or "unknown" where it can't be read here.
    """
    host, switches = host_facts(), knobs()
    checks = [*container_checks(host), *variable_checks(os.environ), *load_checks(host)]
    if device.kind == "gpu":
        state = gpu_state(device.stack, device.smi_key, device.bdf)
        checks = [*gpu_checks(state, device.memory_bytes), *checks]
        checks.append(shared_memory_check(system()["shared_memory_bytes"]))
    else:
        checks += [*knob_checks(switches, host), *memory_checks(host)]
    return {"states": {}, "checks": checks}


def check(name, warns, found, why):
    """One row. `warns`: True, False, or None for unknown; `why` says what a warning would move."""
    status = "unknown" if warns is None else ("warning" if warns else "ok")
    return {"check": name, "status": status, "found": found, "why": why}


def gpu_checks(state, memory_bytes):
    """Checks of what the driver says (driver.gpu_state) about a GPU at rest."""
    power, clocks, modes = state["power"], state["clocks"], state["modes"]
    cap, default = power["cap_w"], power["cap_default_w"]
    used, others, degrees = state["memory_used_bytes"], state["other_processes"], state["temperature_c"]
    foreign = 0 if others == 0 else used  # what is used while nobody else is there is our own context
    limits = None if state["limits_now"] is None else [name for name in state["limits_now"] if name != "gpu_idle"]
    application, highest = clocks["application_mhz"], clocks["max_mhz"]
    lowered = application is not None and highest is not None and application < highest
    parts = [f"{kind} {mode}" for kind, mode in (("MIG", modes["mig"]), ("compute partition", modes["compute_partition"]))
             if mode not in (None, "off", "SPX")]  # fmt: skip
    return [
        check("memory in use", None if foreign is None else foreign > MEMORY_SHARE * memory_bytes,
              "not readable" if foreign is None else f"{foreign / GIB:.2f} GiB of {memory_bytes / GIB:.1f} GiB",
              "memory that others hold lowers capacity and may mean other work on the device"),
        check("other processes", None if others is None else others > 0,
              "not readable" if others is None else f"{others} on the device",
              "another process takes time, power and memory"),
        check("power cap", None if None in (cap, default) else cap < default,
              _cap_text(cap, default), "a lowered cap lowers every sustained figure"),
        check("clock limit", None if None in (application, highest) else lowered,
              f"applications may use {application} of {highest} MHz" if lowered else f"{_or(highest)} MHz at most",
              "a locked or lowered clock lowers burst figures"),
        check("limits at rest", None if limits is None else bool(set(limits) - {"applications_clocks_setting"}),
              "not readable" if limits is None else ", ".join(limits) or "none",
              "a limit that is set at rest is left out of the reasons for lower clocks later"),
        check("temperature at rest", None if degrees is None else degrees >= WARM_C,
              "not readable" if degrees is None else f"{degrees} °C", "a warm start shortens the burst"),
        check("partition", bool(parts), ", ".join(parts) or "whole device",
              "a part of a device has no rated value of its own"),
        check("exclusive mode", None if modes["compute"] is None else modes["compute"] not in ("default", "exclusive process"),
              modes["compute"] or "not readable", "a device that refuses processes ends a run"),
    ]  # fmt: skip


def container_checks(host):
    """What affinity, cpusets and control groups leave of the host."""
    few = host["usable_cpus"] < host["online_cpus"]
    limited = host["memory_limit_how"] == "cgroup limit"
    size = host["memory_limit_bytes"]
    return [
        check("usable CPUs", few, f"{host['usable_cpus']} of {host['online_cpus']} ({host['usable_cpus_how']})",
              "CPU figures are those of the usable part, and launching kernels needs a core too"),
        check("usable memory", None if size is None else limited,
              "not readable" if size is None else f"{size / GIB:.1f} GiB ({host['memory_limit_how']})",
              "sizes are cut to the limit; above it the process is killed"),
    ]  # fmt: skip


def variable_checks(environ):
    """Variables that make kernels slower, or the device another one."""
    found = [f"{name}={environ[name]}" for name, value in SLOWING.items() if name in environ and value in (None, environ[name])]
    return [check("variables", bool(found), ", ".join(found) or "none that slows", "these slow kernels or change results")]


def load_checks(host, root="/", watch_s=STEAL_WATCH_S):
    """Load that others make on the host's CPUs, and time that a hypervisor takes."""
    root = Path(root)
    words = (read_text(root / "proc/loadavg") or "").split()
    load = float(words[0]) if words else None
    before = _ticks(root)
    time.sleep(watch_s if before else 0)
    passed = [now - then for now, then in zip(_ticks(root), before, strict=False)]
    steal = 100 * passed[7] / sum(passed) if len(passed) > 7 and sum(passed) > 0 else None
    return [
        check("host load", None if load is None else load > 1 + LOAD_SHARE * host["usable_cpus"],
              "not readable" if load is None else f"{load:.2f} in the last minute for {host['usable_cpus']} CPUs",
              "other work takes cores, cache and memory bandwidth"),
        check("stolen time", None if steal is None else steal > STEAL_PCT,
              "not readable" if steal is None else f"{steal:.1f} % of CPU time", "the hypervisor gives cores to others"),
    ]  # fmt: skip


def knob_checks(switches, host):
    """Kernel switches that move CPU figures."""
    governor, pages = switches["governor"], switches["transparent_huge_pages"]
    balancing, nodes = switches["numa_balancing"], len(host["numa_nodes"])
    boost_off = switches["boost"] == "0" or switches["no_turbo"] == "1"
    shown = switches["boost"] is not None or switches["no_turbo"] is not None
    return [
        check("governor", None if governor is None else governor not in ("performance", "schedutil"),
              governor or "not shown", "a saving governor lowers and delays clocks"),
        check("boost", boost_off if shown else None, ("off" if boost_off else "on") if shown else "not shown",
              "without boost the clock stays at its base"),
        check("huge pages", None if pages is None else pages == "never", pages or "not shown",
              "small pages cost memory bandwidth"),
        check("NUMA balancing", None if balancing is None else balancing != "0" and nodes > 1,
              f"{'off' if balancing == '0' else 'on'}, {nodes} nodes" if balancing is not None else "not shown",
              "pages that move between nodes make bandwidth unsteady"),
    ]  # fmt: skip


def memory_checks(host, root="/"):
    """Free memory and swap of a CPU host."""
    info = parse_pairs(read_text(Path(root) / "proc/meminfo"))
    size = {name: parse_bytes(info.get(name, "").replace(" kB", "K")) for name in ("MemAvailable", "SwapTotal", "SwapFree")}
    free, limit = size["MemAvailable"], host["memory_limit_bytes"]
    swapped = (size["SwapTotal"] or 0) - (size["SwapFree"] or 0)
    return [
        check("free memory", None if None in (free, limit) else free < MEMORY_FREE_SHARE * limit,
              "not readable" if None in (free, limit) else f"{min(free, limit) / GIB:.1f} of {limit / GIB:.1f} GiB",
              "less room for arrays beyond the last-level cache"),
        check("swap", swapped > 0, f"{swapped / GIB:.2f} GiB in use" if swapped else "none in use",
              "pages on disk make times meaningless"),
    ]  # fmt: skip


def shared_memory_check(size):
    """Size of /dev/shm, which ranks of one host talk through."""
    return check("shared memory", None if size is None else size < SHARED_MEMORY_BYTES,
                 "not readable" if size is None else f"{size / GIB:.1f} GiB in /dev/shm",
                 "several ranks need room there")  # fmt: skip


def _ticks(root):
    line = next((x for x in (read_text(root / "proc/stat") or "").splitlines() if x.startswith("cpu ")), "")
    return [int(word) for word in line.split()[1:9]]


def _cap_text(cap, default):
    if cap is None:
        return "not readable"
    return f"{cap:g} W" + ("" if default is None else f" (default {default:g} W)")


def _or(value):
    return "?" if value is None else value
