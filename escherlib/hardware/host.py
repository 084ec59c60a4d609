"""Host facts: what CPUs and memory this process may really use, and how the processor is built.

Everything comes from /proc, /sys and control groups; a file that is missing leaves its fact None. Sources:
the kernel's documents on cputopology, cgroup v1 and v2, and NUMA in sysfs.
"""

import os
import re
from pathlib import Path

from escherlib.hardware.cgroups import limits
from escherlib.hardware.sysfs import (
    folders,
    format_cpus,
    parse_bytes,
    parse_cpus,
    parse_pairs,
    read_int,
    read_text,
)

ISA_WORDS = re.compile(r"avx\w*|amx\w*|sve\w*|asimd\w*|fma|f16c|sse4_2|i8mm|sme|bf16")


def host_facts(root="/", affinity=None):
    """What this host is and what of it may be used, as JSON values.

    `root` and `affinity` (set of CPU numbers) are for tests. Cache sizes are sums over the usable CPUs;
    `ccds` are groups of CPUs that share a last-level cache.
    """
    root = Path(root)
    cap = limits(root)
    online, allowed = _cpus(root, affinity, cap)
    info = parse_pairs((read_text(root / "proc/cpuinfo") or "").split("\n\n")[0])
    topology = {cpu: _place(root, cpu) for cpu in sorted(online)}
    cores = {topology[cpu] for cpu in allowed if topology.get(cpu)}
    ccds = _shared_caches(root, online, level=None)
    return {
        "model_name": info.get("model name") or info.get("Hardware"),
        "cpu_vendor": info.get("vendor_id") or info.get("CPU implementer"),
        "cpu_family": _number(info.get("cpu family")),
        "cpu_model": _number(info.get("model")),
        "isa_flags": _isa_flags(info),
        "virtual_machine": "hypervisor" in (info.get("flags") or "").split(),
        **_usable(online, allowed, cores, cap),
        "sockets": len({place[0] for place in topology.values() if place}) or None,
        "threads_per_core": _threads_per_core(topology),
        "ccds": [format_cpus(cpus) for cpus, _ in ccds],
        "numa_nodes": _numa_nodes(root, online),
        "l1d_bytes": _cache_total(root, allowed, 1),
        "l2_bytes": _cache_total(root, allowed, 2),
        "llc_bytes": sum(size for cpus, size in ccds if cpus & allowed and size) or None,
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


def _place(root, cpu):
    """(socket, die, core) of a CPU, or None. Old kernels have no die_id; core numbers repeat per socket."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    core = read_int(folder / "core_id")
    if core is None:
        return None
    return read_int(folder / "physical_package_id") or 0, read_int(folder / "die_id") or 0, core


def _threads_per_core(topology):
    places = [place for place in topology.values() if place]
    return max(map(places.count, set(places)), default=None)


def _caches(root, cpu):
    """[(level, type, bytes, CPUs that share it)] of one CPU."""
    return [
        (
            read_int(index / "level") or 0,
            read_text(index / "type"),
            parse_bytes(read_text(index / "size")),
            frozenset(parse_cpus(read_text(index / "shared_cpu_list")) or {cpu}),
        )
        for index in folders(root / f"sys/devices/system/cpu/cpu{cpu}/cache", "index*")
    ]


def _shared_caches(root, cpus, level):
    """[(CPUs, bytes)] of each data cache of a level (None: the last one) among some CPUs."""
    found = {}
    for cpu in sorted(cpus):
        caches = [c for c in _caches(root, cpu) if c[1] != "Instruction"]
        wanted = level or max((c[0] for c in caches), default=0)
        found |= {shared: size for at, _, size, shared in caches if at == wanted}
    pairs = [(set(shared) & cpus, size) for shared, size in found.items()]
    return sorted(pairs, key=lambda pair: min(pair[0]))


def _cache_total(root, cpus, level):
    return sum(size for _, size in _shared_caches(root, cpus, level) if size) or None


def _numa_nodes(root, online):
    """Every node with its CPUs ("" for memory without CPUs) and memory; numbers may skip."""
    found = []
    for folder in folders(root / "sys/devices/system/node", "node[0-9]*"):
        total = parse_pairs(read_text(folder / "meminfo")).get(f"Node {folder.name[4:]} MemTotal", "")
        found.append(
            {
                "node": int(folder.name[4:]),
                "cpus": format_cpus(parse_cpus(read_text(folder / "cpulist")) & online),
                "memory_bytes": parse_bytes(total.replace(" kB", "K")),
            }
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
