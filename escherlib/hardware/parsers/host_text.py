"""Small readers that the parsers of host tools share. Odd text gives None or nothing, never an error."""

import re

from escherlib.hardware.parsers.contract import OK, PARTIAL, UNAVAILABLE, result
from escherlib.hardware.sysfs import format_cpus, parse_cpus

COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CPU_LIST = re.compile(r"\s*[0-9]{1,6}(?:-[0-9]{1,6})?(?:\s*,\s*[0-9]{1,6}(?:-[0-9]{1,6})?)*\s*")
MASK = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*")


def plain_lines(text):
    """Lines without colour codes, carriage returns, NULs and blanks at their ends."""
    return [line.rstrip() for line in COLOURS.sub("", text).replace("\r", "").replace("\0", "").splitlines()]


def whole(text):
    """The whole number that a text begins with (`29857(0x74a1)`, `64306 MB`), or None."""
    found = re.match(r"\s*([0-9]{1,18})(?![0-9.])", str(text if text is not None else ""))
    return int(found[1]) if found else None


def decimal(text):
    """The number that a text begins with, as a float, or None."""
    found = re.match(r"\s*(-?[0-9]{1,15}(?:\.[0-9]{1,15})?)", str(text if text is not None else ""))
    return float(found[1]) if found else None


def cpu_list(text):
    """A list of CPUs in the kernel's format, normalised (`0,1,2,8` → `0-2,8`); None for what is no list."""
    return format_cpus(parse_cpus(text)) if CPU_LIST.fullmatch(text or "") else None


def mask_cpus(text):
    """CPUs of a kernel mask, 32 bits a word, highest word first: `00000001,00000003` → {0, 1, 32}; {} for no mask."""
    if not MASK.fullmatch(text or ""):
        return set()
    number = int("".join(word.zfill(8) for word in text.split(",")), 16)
    return {bit for bit in range(number.bit_length()) if number >> bit & 1}


def first_line(lines, pattern):
    """The first line that a pattern is found in, without blanks around it, or None."""
    return next((line.strip() for line in lines if re.search(pattern, line)), None)


def graded(missing, **values):
    """A result with evidence: partial where something is missing, else ok."""
    return result(PARTIAL if missing else OK, "; ".join(missing) or None, **values)


def absent(lines, program):
    """The result for a shell that does not know the program, or None."""
    line = first_line(lines, rf"\b{re.escape(program)}: (?:command )?not found")
    return result(UNAVAILABLE, line) if line else None
