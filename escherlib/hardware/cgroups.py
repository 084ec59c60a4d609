"""What control groups leave to this process: every limit on the way from its own group up to the root.

Version 1 and 2, side by side too. In a container the mount may show only a part of the tree; limits above
it can't be seen.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from escherlib.hardware.sysfs import parse_cpus, read_int, read_text

UNLIMITED = 2**60  # version 1 writes "no limit" as a number near 2^63
CPUSET_FILES = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
MEMORY_FILES = ("memory.max", "memory.high", "memory.limit_in_bytes")


@dataclass(frozen=True)
class Limits:
    """The tightest limits found; None where nothing limits."""

    cpus: frozenset | None = None
    quota_cpus: float | None = None
    memory_bytes: int | None = None


def limits(root="/"):
    """Limits of this process. `root` is for tests."""
    groups = own_groups(Path(root))
    cpusets = [cpus for cpus in map(_cpuset, groups) if cpus]
    quotas = [quota for quota in map(_quota, groups) if quota]
    memory = [size for size in (_memory(group, name) for group in groups for name in MEMORY_FILES) if size]
    return Limits(
        cpus=frozenset.intersection(*map(frozenset, cpusets)) if cpusets else None,
        quota_cpus=min(quotas, default=None),
        memory_bytes=min(memory, default=None),
    )


def own_groups(root):
    """Folders of the groups that this process is in and of all groups above, in every mounted hierarchy."""
    paths = _own_paths(read_text(root / "proc/self/cgroup"))
    mounts = _mounts(read_text(root / "proc/self/mountinfo")) or [("sys/fs/cgroup", "/", frozenset([""]))]
    found = []
    for point, shown, controllers in mounts:
        path = next((own for names, own in paths if names & controllers), "/")
        top = root / point
        below = path.removeprefix(shown.rstrip("/")) if path.startswith(shown) else ""
        group = top / below.strip("/")
        if ".." in below or not group.is_dir():
            group = top  # a namespace hides where this process really is; the mount is its own group
        found += [group, *[parent for parent in group.parents if parent.is_relative_to(top)]]
    return list(dict.fromkeys(found))


def _own_paths(text):
    """[(controllers, path)] of /proc/self/cgroup; version 2 has the controller ""."""
    rows = (line.split(":", 2) for line in (text or "").splitlines())
    return [(frozenset(row[1].split(",")), row[2]) for row in rows if len(row) == 3]


def _mounts(text):
    """[(mount point without leading /, path it shows, controllers)] of all cgroup mounts."""
    found = []
    for line in (text or "").splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if not dash or len(before) < 5 or not after or after[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = {""} if after[0] == "cgroup2" else set(after[-1].split(","))
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), before[4])
        found.append((point.lstrip("/"), before[3], frozenset(controllers)))
    return found


def _cpuset(group):
    return next(filter(None, (parse_cpus(read_text(group / name)) for name in CPUSET_FILES)), None)


def _quota(group):
    """CPUs' worth of time a group may use, or None."""
    words = (read_text(group / "cpu.max") or "").split()
    if not words:
        words = [read_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None  # "max", -1, or no such file
    return int(words[0]) / int(words[1]) or None


def _memory(group, name):
    size = read_int(group / name)
    return size if size is not None and 0 < size < UNLIMITED else None
