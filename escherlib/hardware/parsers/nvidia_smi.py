"""nvidia-smi: `--query-gpu` as CSV (with or without header and units), the table, and the report of `-q`.

Field names: `nvidia-smi --help-query-gpu`. `power.draw` averages over 1 s from Ampere on, GA100 excepted: kind "default", since
the text alone does not tell; `power.draw.instant` and `power.draw.average` say it. utilization.gpu is the share of time in which
a kernel was resident, not load. UUIDs and serial numbers are left out.
"""

import re

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.hardware.parsers.smi_text import (
    CUT,
    blank,
    csv_cells,
    csv_records,
    fill,
    finished,
    latest,
    power_total,
    whole,
    word,
)  # fmt: skip

RULES = (
    (r"power\.draw\.instant", "power_w", {"power_kind": "instant"}),
    (r"power\.draw\.average", "power_w", {"power_kind": "average"}),
    (r"power\.draw", "power_w", {"power_kind": "default"}),
    (r"enforced\.power\.limit", "power_limit_w", {}),
    (r"power\.limit", "power_limit_w", {}),
    (r"power\.default_limit", "power_limit_default_w", {}),
    (r"power\.min_limit", "power_limit_min_w", {}),
    (r"power\.max_limit", "power_limit_max_w", {}),
    (r"total_energy_consumption", "energy_j", {}),
    (r"temperature\.gpu", "temperature_c", {"temperature_kind": "gpu"}),
    (r"temperature\.memory", "memory_temperature_c", {}),
    (r"clocks\.(current\.)?sm", "clock_mhz", {"clock_kind": "sm"}),
    (r"clocks\.(current\.)?(graphics|gr)", "clock_mhz", {"clock_kind": "graphics"}),
    (r"clocks\.(current\.)?mem(ory)?", "memory_clock_mhz", {}),
    (r"utilization\.gpu", "utilisation_pct", {}),
    (r"utilization\.memory", "memory_utilisation_pct", {}),
    (r"memory\.used", "memory_used_bytes", {}),
    (r"memory\.total", "memory_total_bytes", {}),
    (r"fan\.speed", "fan_pct", {}),
    (r"(gpu_)?name", "name", {}),
    (r"(gpu_)?(pci\.)?bus_id", "bdf", {}),
    (r"pci\.device_id", "device_id", {}),
)
FIELD = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*(?: \[[A-Za-z%]+\])?")
PLAIN = {"index", "name", "count", "timestamp", "uuid", "serial", "pstate", "gpu_name", "gpu_uuid", "driver_version", "vbios_version"}
ROOTS = r"(?:power|clocks\w*|temperature|utilization|memory|fan|mig|pci|enforced|ecc|pcie|encoder|compute\w*|total_energy\w*|gsp|gpu_\w+)"
# query orders in which programs are known to print without a header; the cells must fit (see _fits)
ORDERS = (
    ("name", "utilization.gpu", "utilization.memory", "temperature.gpu", "power.draw", "power.limit", "fan.speed", "pstate",
     "clocks.current.graphics", "clocks.current.memory", "power.max_limit", "power.default_limit"),
)  # fmt: skip
UNITS = {"power": "W", "clocks": "MHz", "utilization": "%", "fan": "%", "memory": "MiB", "enforced": "W"}
REASONS = {
    0x1: "gpu_idle", 0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown", 0x100: "display_clock_setting",
}  # fmt: skip
CANNOT = re.compile(
    r"Failed to initialize NVML.*|NVIDIA-SMI has failed.*|No devices were found.*|.*couldn't communicate with the NVIDIA driver.*|"
    r"Unable to determine the device handle.*|.*GPU is lost.*|.*[Ii]nsufficient [Pp]ermissions\.?|NVIDIA-SMI couldn't find libnvidia-ml.*"
)
WRONG = re.compile(
    r'Field ".*" is not a valid field to query.*|.*is not a valid (?:option|argument).*|Option .* is not recognized.*|ERROR: .*'
)
UPPER = re.compile(
    r"\|\s+(\d{1,3})\s+(\S.*?)\s+(?:On|Off|N/A)?\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s+(?:On|Off|N/A)\s*\|"
)
LOWER = re.compile(
    r"\|\s*(\S+)\s+(\S+)\s+(P\d+|N/A)\s+(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)\s*/\s*(\S+)\s*\|\s*(\S+(?: %)?)\s+(\S.*?)\s*\|\s*"
)
LOWER_FIELDS = (
    "fan.speed", "temperature.gpu", "pstate", "power.draw", "power.limit", "memory.used", "memory.total", "utilization.gpu",
)  # fmt: skip
REPORT = {
    "product name": "name", "gpu power readings/average power draw": "power.draw.average",
    "gpu power readings/instantaneous power draw": "power.draw.instant", "gpu power readings/power draw": "power.draw",
    "power readings/power draw": "power.draw", "gpu power readings/current power limit": "power.limit",
    "power readings/power limit": "power.limit", "power readings/enforced power limit": "enforced.power.limit",
    "gpu power readings/default power limit": "power.default_limit", "power readings/default power limit": "power.default_limit",
    "gpu power readings/min power limit": "power.min_limit", "gpu power readings/max power limit": "power.max_limit",
    "temperature/gpu current temp": "temperature.gpu", "temperature/memory current temp": "temperature.memory",
    "utilization/gpu": "utilization.gpu", "utilization/memory": "utilization.memory", "clocks/sm": "clocks.sm",
    "clocks/graphics": "clocks.gr", "clocks/memory": "clocks.mem", "fb memory usage/used": "memory.used",
    "fb memory usage/total": "memory.total", "fan speed": "fan.speed", "performance state": "pstate",
    "mig mode/current": "mig.mode.current", "mig mode/pending": "mig.mode.pending",
}  # fmt: skip


def parse(text):
    """{status, reason, gpus, samples, rows, power, versions, notes} of one output of nvidia-smi."""
    text = str(text or "").lstrip("\ufeff")
    for reader in (_from_csv, _from_table, _from_report, _from_bare):
        found = reader(text)
        if found:
            break
    else:
        return _without(text)
    rows, damage, notes = found
    gpus, samples = latest(rows)
    known = [row["power_w"] for row in rows if row["power_w"] is not None]
    named = all(gpu["index"] is not None or gpu["bdf"] for gpu in gpus)
    why = "each row is a whole GPU" if named else "rows name no GPU: they may be one GPU over time"
    why = "there is one row" if len(gpus) == 1 else why
    notes += [] if named or len(rows) < 2 else [why]
    notes += ["MIG is on: power and temperature are the whole card's"] if any(gpu["mig"] == "enabled" for gpu in gpus) else []
    values = {
        "gpus": [finished(dict(gpu)) for gpu in gpus], "samples": samples and [finished(dict(row)) for row in samples],
        "rows": {"count": len(rows), "power_max_w": max(known, default=None), "power_min_w": min(known, default=None)},
        "power": power_total(gpus, (named and bool(gpus)) or len(gpus) == 1, why), "versions": _versions(text, rows), "notes": notes,
    }  # fmt: skip
    return result(PARTIAL if damage else OK, damage, **values)


def _without(text):
    """A result without values: the tool's own words where it had some."""
    lines = [line.strip() for line in text.splitlines()]
    for pattern, status in ((CANNOT, UNAVAILABLE), (WRONG, FAILED)):
        line = next((line for line in lines if pattern.fullmatch(line)), None)
        if line and not (line.startswith("ERROR: ") and not re.search("nvidia|nvml", text, re.IGNORECASE)):
            return result(status, line[:200], gpus=[], versions=_versions(text, []))
    return unparsed(gpus=[])


def _versions(text, rows):
    """{tool, driver, cuda, library}, None where not said."""
    names = {"tool": r"NVIDIA-SMI\s+(\d[\d.]*)", "driver": r"Driver Version\s*:\s*(\d[\d.]*)", "cuda": r"CUDA Version\s*:\s*(\d[\d.]*)",
             "library": r"NVML (?:library )?version\s*:\s*(\d[\d.]*)"}  # fmt: skip
    found = {name: hit[1] if (hit := re.search(pattern, text)) else None for name, pattern in names.items()}
    found["driver"] = next((row["driver"] for row in rows if row.get("driver")), found["driver"])
    return found


def record(cells):
    """One GPU from {query field: cell}."""
    gpu = fill(blank(whole(cells.get("index"))), cells, RULES)
    gpu["performance_state"], gpu["driver"] = word(cells.get("pstate")), word(cells.get("driver_version"))
    gpu["timestamp"] = word(cells.get("timestamp"))
    gpu["mig"], gpu["mig_pending"] = _mode(cells.get("mig.mode.current")), _mode(cells.get("mig.mode.pending"))
    gpu["limits"] = _limits(gpu, cells)
    return gpu


def _mode(cell):
    """enabled, disabled, unsupported (the part has no such mode), or None where it was not asked."""
    if cell is None:
        return None
    text = cell.strip("[] ").lower()
    return "unsupported" if text in ("n/a", "not supported") else text if text in ("enabled", "disabled") else None


def _limits(gpu, cells):
    """Names of what limits the clock: from the bit mask, else from the fields of each reason; None where not asked."""
    mask = next((cell for key, cell in cells.items() if re.fullmatch(r"clocks_(event|throttle)_reasons\.active", key)), None)
    if mask is not None:
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask):
            bits = int(mask, 16)
            return [REASONS.get(1 << bit, f"bit {bit}") for bit in range(bits.bit_length()) if bits >> bit & 1]
        gpu["absent"]["limits"] = mask.strip("[] ")[:80] or "empty"
    single = {hit[1]: cell for key, cell in cells.items() if (hit := re.fullmatch(r"clocks_(?:event|throttle)_reasons\.(\w+)", key))}
    states = {name: cell.strip().lower() for name, cell in single.items() if name not in ("active", "supported") and cell}
    if any(state in ("active", "not active") for state in states.values()):
        return [name for name, state in states.items() if state == "active"]
    return None


def _is_header(cells):
    """Every cell a query field, at least one of them beyond doubt."""
    if not all(FIELD.fullmatch(cell) for cell in cells):
        return False
    names = [cell.partition(" [")[0] for cell in cells]
    ours = all(re.match(ROOTS, name) or name in PLAIN for name in names)
    return ours and any("." in name or name in PLAIN - {"name", "count", "index"} for name in names)


def _cells(row):
    """{query field: cell with its unit}: with `nounits` the unit stands in the header only."""
    found = {}
    for column, cell in row.items():
        name, _, unit = column.partition(" [")
        unit = unit.rstrip("]")
        bare = cell is not None and re.fullmatch(r"[-+]?\d+(?:\.\d+)?", cell)
        found[name] = f"{cell} {unit}" if bare and unit else cell if cell is not None else ""
    return found


def _from_csv(text):
    rows, columns, fit = csv_records(text.splitlines(), _is_header, text.endswith("\n"))
    if not columns:
        return None
    damage = f"{CUT}: a header without rows" if not rows else None if fit else f"{CUT} or damaged rows"
    return [record(_cells(row)) for row in rows], damage, []


def _from_table(text):
    """The table of nvidia-smi alone: two or three lines a GPU, and a rule that closes it."""
    head = re.search(r"\|\s*NVIDIA-SMI\s+\d[^\n]*Driver Version", text)
    if not head:
        return None
    rows, upper, closed = [], None, False
    for line in text[head.end() :].splitlines():
        if "Processes:" in line or "MIG devices:" in line:
            break
        closed = closed or (bool(rows) and bool(re.fullmatch(r"\+[-=+]+\+\s*", line)))
        if hit := UPPER.match(line):
            upper = hit
        elif upper and (hit := LOWER.fullmatch(line)):
            cells = dict(zip(LOWER_FIELDS, hit.groups()[:-1], strict=True))
            rows.append(record({"index": upper[1], "name": upper[2], "pci.bus_id": upper[3], **cells}))
            upper = None
        elif rows and (mode := re.fullmatch(r"\|\s*\|\s*\|\s*(Enabled|Disabled|N/A)\*?\s*\|\s*", line)):
            rows[-1]["mig"] = _mode(mode[1])
    damage = None if closed and upper is None else f"{CUT}: the table is not closed"
    return rows, damage, []


def _from_report(text):
    """The report of `nvidia-smi -q`: sections by indent, `key : value`, one block a GPU."""
    if not re.search(r"=NVSMI LOG=", text):
        return None
    rows, cells, stack = [], None, []
    for line in text.splitlines():
        if hit := re.fullmatch(r"GPU ([0-9A-Fa-f:]+\.\d)\s*", line):
            cells = {"index": None, "pci.bus_id": hit[1]}
            rows.append(cells)
            stack = []
            continue
        hit = re.fullmatch(r"(\s+)(\S.*?)\s*(?::\s(.*))?", line)
        if cells is None or not hit:
            continue
        indent, key = len(hit[1]), hit[2].strip().lower()
        stack = [(depth, name) for depth, name in stack if depth < indent]
        if hit[3] is None:
            stack.append((indent, key))
            continue
        path = "/".join([name for _, name in stack] + [key])
        reason = re.fullmatch(r"clocks (?:event|throttle) reasons/(?:.*/)?(.+)", path)
        name = f"clocks_event_reasons.{reason[1].replace(' ', '_')}" if reason else REPORT.get(path)
        if name and "\ufffd" not in hit[3]:
            cells.setdefault(name, hit[3].strip())
    found = [record({key: cell for key, cell in row.items() if cell is not None}) for row in rows]
    ended = text.endswith("\n") and bool(rows) and any(row["power_w"] is not None or row["absent"] for row in found)
    return found, None if ended else f"{CUT}: without values", []


def _from_bare(text):
    """Rows without a header, in one of ORDERS."""
    rows = []
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines:
        cells = csv_cells(line) or []
        order = next((order for order in ORDERS if _fits(order, cells)), None)
        if order:
            rows.append(record(dict(zip(order, cells, strict=True))))
    if not rows:
        return None
    return rows, "no header: columns are taken from a known order of them", []


def _fits(order, cells):
    """Whether each cell can be what the order says, and at least one is sure to be: a P state, or a unit in its place."""
    if len(cells) != len(order):
        return False
    sure = 0
    for name, cell in zip(order, cells, strict=True):
        if name == "name":
            if not re.fullmatch(r"[A-Z][\w .()-]+", cell):
                return False
        elif not re.fullmatch(r"\[?(N/A|Not Supported|Unknown Error)\]?", cell):
            unit = UNITS.get(name.partition(".")[0])
            wanted = r"P\d+" if name == "pstate" else r"\d+" if unit is None else rf"\d+(\.\d+)? {unit}"
            if not re.fullmatch(wanted, cell):
                return False
            sure += name == "pstate" or unit is not None
    return sure > 0
