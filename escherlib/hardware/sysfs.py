"""Readers of /proc and /sys. What is missing, unreadable or broken is None (or empty), never an error."""

import re

UNIT_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
CPU_LIMIT = 2**16  # no kernel counts further; a damaged list must not fill memory


def read_text(path):
    """Text of a small file without blanks and NULs around it, or None."""
    try:
        return path.read_text(errors="replace").strip("\0 \t\n")
    except OSError:
        return None


def read_int(path):
    """A whole number, decimal or 0x…, or None."""
    try:
        return int(read_text(path) or "", 0)
    except ValueError:
        return None


def folders(parent, pattern):
    """Entries of a folder that fit a pattern, in the order of the numbers in their names."""
    try:
        return sorted(parent.glob(pattern), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
    except OSError:
        return []


def parse_cpus(text):
    """Kernel list format: `0-3,8` → {0, 1, 2, 3, 8}. Empty for nothing and for what is no list."""
    found = set()
    for part in (text or "").split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if ends and len(ends[2] or ends[1]) < 8 and int(ends[2] or ends[1]) < CPU_LIMIT:
            found |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return found


def format_cpus(numbers):
    """{0, 1, 2, 3, 8} → `0-3,8`."""
    runs = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse_bytes(text):
    """`32768K` → 33554432, or None."""
    found = re.fullmatch(r"(\d+)\s*([KMG]?)i?B?", text or "")
    return int(found[1]) * UNIT_BYTES[found[2]] if found else None


def parse_pairs(text):
    """`name : value` lines of /proc files as a dict; the first of equal names counts."""
    found = {}
    for line in (text or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found
