"""Made-up /proc and /sys trees of invented hosts."""


def write(root, files):
    """Write {path: text} below `root`; returns root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def cpu_files(cpu, socket=0, core=0, die=None, l3="0-7", l3_size="32768K"):
    """Topology and caches of one CPU."""
    at = f"sys/devices/system/cpu/cpu{cpu}"
    files = {
        f"{at}/topology/physical_package_id": socket,
        f"{at}/topology/core_id": core,
        f"{at}/topology/cluster_id": 65535,
    }
    if die is not None:
        files[f"{at}/topology/die_id"] = die
    for index, (level, kind, size, shared) in enumerate(
        [
            (1, "Data", "32K", cpu),
            (1, "Instruction", "32K", cpu),
            (2, "Unified", "1024K", cpu),
            (3, "Unified", l3_size, l3),
        ]
    ):
        cache = f"{at}/cache/index{index}"
        files |= {
            f"{cache}/level": level,
            f"{cache}/type": kind,
            f"{cache}/size": size,
            f"{cache}/shared_cpu_list": shared,
        }
    return files


def node_files(node, cpus, memory_kb):
    """One NUMA node."""
    at = f"sys/devices/system/node/node{node}"
    return {f"{at}/cpulist": cpus, f"{at}/meminfo": f"Node {node} MemTotal:  {memory_kb} kB"}


def cgroup2(path="/", limits=None, controllers_mount="/sys/fs/cgroup", shown="/"):
    """A version 2 hierarchy: own path, and {folder relative to the mount: {file: text}}."""
    files = {
        "proc/self/cgroup": f"0::{path}",
        "proc/self/mountinfo": f"31 23 0:28 {shown} {controllers_mount} rw - cgroup2 cgroup2 rw",
    }
    for folder, found in (limits or {}).items():
        files |= {f"sys/fs/cgroup/{folder}/{name}": text for name, text in found.items()}
    return files
