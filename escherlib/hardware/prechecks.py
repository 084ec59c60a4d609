"""Is this machine fit to be measured? Looks once, touches nothing; a warning stops nothing."""

import os
import time
from pathlib import Path

from escherlib.hardware.driver import gpu_state
from escherlib.hardware.environment import knobs, shared_memory_bytes
from escherlib.hardware.host import host_facts
from escherlib.hardware.sysfs import parse_bytes, parse_pairs, read_text
from escherlib.method import method

GIB = 2**30
# where a warning begins
MEMORY_SHARE = 0.02  # of the device's memory, in use
FREE_SHARE = 0.5  # of the host's memory, free for a run on the CPU
WARM_C = 60  # a device at rest
LOAD_SHARE = 0.5  # of the usable CPUs, busy beside one for this process
STEAL_PCT = 1.0
SHARED_MEMORY_BYTES = GIB
STEAL_WATCH_S = 0.3
SLOWING = {  # variable → values that do harm; None: any
    "AMD_LOG_LEVEL": None,
    "AMD_SERIALIZE_KERNEL": ("1", "2", "3"),
    "CUDA_DEVICE_MAX_CONNECTIONS": ("1",),
    "CUDA_LAUNCH_BLOCKING": ("1",),
    "HIP_LAUNCH_BLOCKING": ("1",),
    "HSA_OVERRIDE_GFX_VERSION": None,
    "NVIDIA_TF32_OVERRIDE": None,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1",),
    "TORCH_LOGS": None,
}


@method(version=1)
def precheck(device):
    """All checks of this device and its host: {"states": {}, "checks": [{check, status, found, why}]}.

    status: "ok", "warning", or "unknown" where it can't be read here.
    """
    host = host_facts()
    common = [*container_checks(host), variable_check(os.environ), *load_checks(host)]
    if device.kind == "gpu":
        state = gpu_state(device.stack, device.smi_key, device.bdf)
        own = [*gpu_checks(state, device.memory_bytes), shared_memory_check(shared_memory_bytes())]
    else:
        own = [*knob_checks(knobs(), len(host["numa_nodes"])), *memory_checks(host["memory_limit_bytes"])]
    return {"states": {}, "checks": own + common}


def judged(name, value, warns, text, why):
    """One row. A value of None is unknown; else warns(value) and text(value) say what was found."""
    if value is None:
        return {"check": name, "status": "unknown", "found": "not readable", "why": why}
    status = "warning" if warns(value) else "ok"
    return {"check": name, "status": status, "found": text(value), "why": why}


def gpu_checks(state, memory_bytes):
    """Checks of what the driver says (driver.gpu_state) about a GPU at rest."""
    return [*neighbour_checks(state, memory_bytes), *cap_checks(state)]


def neighbour_checks(state, memory_bytes):
    """Who else is on the GPU, and what they left behind."""
    # what is used while nobody else is there is this process's own context
    used = 0 if state["other_processes"] == 0 else state["memory_used_bytes"]
    return [
        judged(
            "memory in use",
            used,
            lambda size: size > MEMORY_SHARE * memory_bytes,
            lambda size: f"{size / GIB:.2f} of {memory_bytes / GIB:.1f} GiB",
            "memory that others hold lowers capacity and may mean other work on the device",
        ),
        judged(
            "other processes",
            state["other_processes"],
            lambda count: count > 0,
            lambda count: f"{count} on the device",
            "another process takes time, power and memory",
        ),
        judged(
            "temperature at rest",
            state["temperature_c"],
            lambda degrees: degrees >= WARM_C,
            lambda degrees: f"{degrees} °C",
            "a warm start shortens the burst",
        ),
    ]


def cap_checks(state):
    """What holds the GPU below what it could do."""
    power, clocks, modes = state["power"], state["clocks"], state["modes"]
    limits = state["limits_now"]
    parts = {
        "MIG": modes["mig"] == "on",
        "compute partition": modes["compute_partition"] not in (None, "SPX"),
    }
    return [
        judged(
            "power cap",
            _both(power["cap_w"], power["cap_default_w"]),
            lambda pair: pair[0] < pair[1],
            lambda pair: f"{pair[0]:g} W, default {pair[1]:g} W",
            "a lowered cap lowers every sustained figure",
        ),
        judged(
            "clock limit",
            _both(clocks["application_mhz"], clocks["max_mhz"]),
            lambda pair: pair[0] < pair[1],
            lambda pair: f"applications may use {pair[0]} of {pair[1]} MHz",
            "a lowered or locked clock lowers burst figures",
        ),
        judged(
            "limits at rest",
            None if limits is None else [name for name in limits if name != "gpu_idle"],
            bool,
            lambda names: ", ".join(names) or "none",
            "what limits a device at rest is not taken for the cause of a lower clock later",
        ),
        judged(
            "partition",
            [name for name, part in parts.items() if part],
            bool,
            lambda names: " and ".join(names) or "the whole device",
            "a part of a device has no rated value of its own",
        ),
    ]


def container_checks(host):
    """What affinity, cpusets and control groups leave of the host."""
    return [
        judged(
            "usable CPUs",
            host["usable_cpus"],
            lambda count: count < host["online_cpus"],
            lambda count: f"{count} of {host['online_cpus']} ({host['usable_cpus_how']})",
            "CPU figures are those of the usable part, and launching kernels needs a core too",
        ),
        judged(
            "usable memory",
            host["memory_limit_bytes"],
            lambda size: size < (host["memory_total_bytes"] or size),
            lambda size: f"{size / GIB:.1f} GiB ({host['memory_limit_how']})",
            "sizes are cut to the limit; above it the process is killed",
        ),
    ]


def variable_check(environ):
    """Variables that make kernels slower, or the device another one."""
    found = [
        f"{name}={environ[name]}"
        for name, harmful in SLOWING.items()
        if name in environ and (harmful is None or environ[name] in harmful)
    ]
    why = "these slow kernels or change what the device claims to be"
    return judged("variables", found, bool, lambda names: ", ".join(names) or "none that slows", why)


def load_checks(host, root="/", watch_s=STEAL_WATCH_S):
    """Load that others make on the host's CPUs, and time that a hypervisor takes."""
    root = Path(root)
    words = (read_text(root / "proc/loadavg") or "").split()
    before = _ticks(root)
    time.sleep(watch_s if before else 0)
    passed = [now - then for now, then in zip(_ticks(root), before, strict=False)]
    return [
        judged(
            "host load",
            float(words[0]) if words else None,
            lambda load: load > 1 + LOAD_SHARE * host["usable_cpus"],
            lambda load: f"{load:.2f} in the last minute for {host['usable_cpus']} CPUs",
            "other work takes cores, cache and memory bandwidth",
        ),
        judged(
            "stolen time",
            100 * passed[7] / sum(passed) if len(passed) > 7 and sum(passed) > 0 else None,
            lambda percent: percent > STEAL_PCT,
            lambda percent: f"{percent:.1f} % of CPU time",
            "the hypervisor gives cores to others",
        ),
    ]


def knob_checks(switches, nodes):
    """Kernel switches (environment.knobs) that move CPU figures; `nodes`: number of NUMA nodes."""
    no_turbo = {"0": "1", "1": "0"}.get(switches["no_turbo"])
    return [
        judged(
            "governor",
            switches["governor"],
            lambda name: name not in ("performance", "schedutil"),
            str,
            "a saving governor lowers and delays clocks",
        ),
        judged(
            "boost",
            switches["boost"] or no_turbo,
            lambda flag: flag == "0",
            lambda flag: "off" if flag == "0" else "on",
            "without boost the clock stays at its base",
        ),
        judged(
            "huge pages",
            switches["transparent_huge_pages"],
            lambda mode: mode == "never",
            str,
            "small pages cost memory bandwidth",
        ),
        judged(
            "NUMA balancing",
            switches["numa_balancing"],
            lambda flag: flag != "0" and nodes > 1,
            lambda flag: f"{'off' if flag == '0' else 'on'}, NUMA nodes: {nodes}",
            "pages that move between nodes make bandwidth unsteady",
        ),
    ]


def memory_checks(limit_bytes, root="/"):
    """Free memory and swap of a CPU host."""
    info = parse_pairs(read_text(Path(root) / "proc/meminfo"))
    names = ("MemAvailable", "SwapTotal", "SwapFree")
    free, swap, swap_free = (parse_bytes(info.get(name, "").replace(" kB", "K")) for name in names)
    return [
        judged(
            "free memory",
            _both(free, limit_bytes),
            lambda pair: pair[0] < FREE_SHARE * pair[1],
            lambda pair: f"{min(pair) / GIB:.1f} of {pair[1] / GIB:.1f} GiB",
            "less room for arrays beyond the last-level cache",
        ),
        judged(
            "swap",
            None if swap is None else swap - (swap_free or 0),
            lambda size: size > 0,
            lambda size: f"{size / GIB:.2f} GiB in use",
            "pages on disk make times meaningless",
        ),
    ]


def shared_memory_check(size):
    """Size of /dev/shm, which ranks of one host talk through."""
    return judged(
        "shared memory",
        size,
        lambda found: found < SHARED_MEMORY_BYTES,
        lambda found: f"{found / GIB:.1f} GiB in /dev/shm",
        "several ranks need room there",
    )


def _both(first, second):
    return None if first is None or second is None else (first, second)


def _ticks(root):
    """Clock ticks of all CPUs since boot: user nice system idle iowait irq softirq steal."""
    lines = (read_text(root / "proc/stat") or "").splitlines()
    total = next((line for line in lines if line.startswith("cpu ")), "")
    return [int(word) for word in total.split()[1:9]]
