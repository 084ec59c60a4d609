"""rocminfo: the agents of the HSA runtime, CPUs and GPUs. Source: ROCm/rocminfo. UUIDs and bus addresses are left out.

The program ends with `*** Done ***`; without that line the output is cut.
"""

import re

from escherlib.hardware.parsers.contract import FAILED, UNAVAILABLE, result, unparsed
from escherlib.hardware.parsers.host_text import absent, first_line, graded, plain_lines, whole

AGENT = re.compile(r"\s*Agent\s+([0-9]{1,6})")
POOL = re.compile(r"\s*Pool\s+([0-9]{1,6})")
ISA = re.compile(r"amdgcn-amd-amdhsa--(gfx[0-9a-f]+)((?::[a-z]+[+-])*)")
DONE = r"\*\*\* Done \*\*\*"
NO_DEVICE = r"ROCk module is NOT loaded|Unable to open /dev/kfd|not member of .*group|no GPU devices"
ERROR = r"hsa api call failure|HSA_STATUS_ERROR|hsa_init"
NUMBERS = {
    "node": "Node", "compute_units": "Compute Unit", "simds_per_cu": "SIMDs per CU", "shader_engines": "Shader Engines",
    "max_clock_mhz": "Max Clock Freq. (MHz)", "wavefront_size": "Wavefront Size", "cacheline_bytes": "Cacheline Size",
}  # fmt: skip
ABSENT_AT_ZERO = ("max_clock_mhz", "simds_per_cu", "shader_engines", "cacheline_bytes")  # 0: the runtime doesn't know


def parse(text):
    """`agents` with kind, gfx target, unit count, clock, caches and pools (KB as printed), and how many GPUs and CPUs."""
    lines = plain_lines(text)
    blocks = _blocks(lines)
    agents = [agent for agent in (_agent(number, block) for number, block in blocks) if agent]
    if not agents:
        none, error = first_line(lines, NO_DEVICE), first_line(lines, ERROR)
        if none or error:
            return result(UNAVAILABLE if none else FAILED, none or error)
        return absent(lines, "rocminfo") or unparsed()
    missing = [] if first_line(lines, DONE) else ["cut: the closing line is missing"]
    return graded(
        missing,
        runtime_version=_value(lines, "Runtime Version"),
        agents=agents,
        gpus=sum(agent["kind"] == "gpu" for agent in agents),
        cpus=sum(agent["kind"] == "cpu" for agent in agents),
        gpu_agents=[agent["agent"] for agent in agents if agent["kind"] == "gpu"],
    )


def _blocks(lines):
    """[(agent number or None, its lines)]; an output that starts inside an agent has one without a number."""
    found = [(None, [])]
    for line in lines:
        heading = AGENT.fullmatch(line)
        if heading:
            found.append((int(heading[1]), []))
        else:
            found[-1][1].append(line)
    return found


def _agent(number, lines):
    """One agent, or None for lines that are none."""
    kind = (_value(lines, "Device Type") or "").lower() or None
    name = _value(lines[: _first_section(lines)], "Name")
    if number is None and not (kind and _value(lines, "Marketing Name")):
        return None
    isa = next((found for found in map(ISA.search, lines) if found), None)
    gfx = name if re.fullmatch(r"gfx[0-9a-f]+", name or "") else None
    numbers = {key: whole(_value(lines, label)) for key, label in NUMBERS.items()}
    features = dict(re.findall(r"([a-z]+)([+-])", isa[2])) if isa else {}
    return {
        "agent": number,
        "kind": kind or ("gpu" if gfx else None),
        "name": name,
        "marketing_name": _value(lines, "Marketing Name"),
        "vendor": _value(lines, "Vendor Name"),
        "gfx": gfx or (isa[1] if isa else None),
        "sramecc": {"+": True, "-": False}.get(features.get("sramecc")),
        "xnack": {"+": True, "-": False}.get(features.get("xnack")),
        "chip_id": _chip(_value(lines, "Chip ID")),
        **{key: None if value == 0 and key in ABSENT_AT_ZERO else value for key, value in numbers.items()},
        "cache_kb": {f"l{level}": whole(_value(lines, f"L{level}")) for level in (1, 2, 3)},
        "pools": _pools(lines),
    }


def _first_section(lines):
    """Where the agent's own lines end: names below are those of instruction sets."""
    return next((at for at, line in enumerate(lines) if re.match(r"\s*(?:Pool|ISA) (?:Info|[0-9])", line)), len(lines))


def _value(lines, name):
    """The first value of a name, or None."""
    for line in lines:
        label, colon, value = line.partition(":")
        if colon and label.strip() == name:
            return value.strip() or None
    return None


def _chip(text):
    """`29857(0x74a1)` → 0x74a1; 0 is no chip."""
    number = whole(text)
    return f"0x{number:04x}" if number else None


def _pools(lines):
    """[{pool, segment, flags, size_kb}] of an agent."""
    found = []
    for line in lines:
        heading, (name, _, value) = POOL.fullmatch(line), line.partition(":")
        if heading:
            found.append({"pool": int(heading[1]), "segment": None, "flags": [], "size_kb": None})
        elif found and name.strip() == "Segment":
            segment, _, flags = value.partition(";")
            words = flags.partition(":")[2].split(",")
            found[-1] |= {"segment": segment.strip() or None, "flags": [word.strip() for word in words if word.strip()]}
        elif found and name.strip() == "Size" and found[-1]["size_kb"] is None:
            found[-1]["size_kb"] = whole(value)
    return found
