"""amd-smi: metric, monitor, static, list, topology, process, partition and version, as JSON, CSV or text.

Shapes: AMD's amdsmi changelog. Up to ROCm 6.4 the JSON is a list, from 7.0 {"gpu_data": [...]}; values are
plain, `182 W`, or {"value", "unit"}. `socket_power` is the driver's choice of current or average: kind "socket". Power and
memory are those of the socket: each partition of it repeats them.
"""

import re
from statistics import median

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.hardware.parsers.smi_text import (
    CUT,
    blank,
    csv_records,
    documents,
    fill,
    finished,
    latest,
    links_of,
    matrix,
    measured,
    power_total,
    quantity,
    take,
    whole,
    word,
)  # fmt: skip

MORE_THAN_SOCKETS = 16  # no host has more sockets: what is listed beyond are partitions
DEPTH = 6
WHOLE_SOCKET = "SPX"
RULES = (
    (r"(power_)?current_socket_power", "power_w", {"power_kind": "current"}),
    (r"(power_)?average_socket_power", "power_w", {"power_kind": "average"}),
    (r"(power_)?socket_power|power|power_usage", "power_w", {"power_kind": "socket"}),
    (r"limit_(ppt0_)?(socket_power|current_power|power_cap)(_limit)?|pwr_cap|power_cap", "power_limit_w", {}),
    (r"limit_(ppt0_)?max_power(_limit)?", "power_limit_max_w", {}),
    (r"limit_(ppt0_)?min_power(_limit)?", "power_limit_min_w", {}),
    (r"limit_(ppt0_)?default_power(_limit)?", "power_limit_default_w", {}),
    (r"(energy_)?total_energy_consumption", "energy_j", {}),
    (r"(temperature_)?hotspot(_temperature)?", "temperature_c", {"temperature_kind": "hotspot"}),
    (r"gpu_temp|gpu_t", "temperature_c", {"temperature_kind": "gpu"}),
    (r"(temperature_)?edge(_temperature)?", "temperature_c", {"temperature_kind": "edge"}),
    (r"(temperature_)?(mem|vram)(_temperature)?|mem_temp|mem_t", "memory_temperature_c", {}),
    (r"gfx_clock|gfx_clk", "clock_mhz", {"clock_kind": "as printed"}),
    (r"(clock_)?mem(_0)?_(cur_)?clk|mem_clock", "memory_clock_mhz", {}),
    (r"(usage_)?gfx_(activity|usage)|gfx_util|gfx%", "utilisation_pct", {}),
    (r"(usage_)?(umc|mem)_activity|mem_util|mem%", "memory_utilisation_pct", {}),
    (r"(mem_usage_|fb_usage_|vram_)?(used_vram|vram_used)|(fb_usage|vram)_used", "memory_used_bytes", {}),
    (r"(mem_usage_|fb_usage_|vram_)?(total_vram|vram_total)|(fb_usage|vram)_(total|size)|size", "memory_total_bytes", {}),
    (r"(fan_)?usage|fan_speed", "fan_pct", {}),
    (r"(power_)?gfx_voltage", "gfx_voltage_mv", {}),
    (r"(power_)?soc_voltage", "soc_voltage_mv", {}),
    (r"(power_)?mem_voltage", "memory_voltage_mv", {}),
    (r"(asic_)?market_name", "name", {}),
    (r"(bus_)?bdf", "bdf", {}),
    (r"(asic_)?device_id", "device_id", {}),
    (r"(asic_)?target_graphics_version", "gfx_target", {}),
    (r"timestamp", "timestamp_s", {}),
)
FILLED = tuple({field for _, field, _ in RULES} - {"timestamp_s"})
MONITOR = {
    "timestamp", "gpu", "xcp", "power", "pwr_cap", "gpu_temp", "gpu_t", "mem_temp", "mem_t", "gfx_util", "gfx%", "gfx_clock",
    "gfx_clk", "mem_util", "mem%", "mem_clock", "vram_used", "vram_total", "vram_free", "vram%", "vram_usage", "pcie_bw", "enc%",
    "dec%", "enc_util", "enc_clock", "dec_util", "dec_clock", "pviol", "tviol", "phot_tviol", "vr_tviol", "hbm_tviol",
    "single_ecc", "double_ecc", "pcie_replay",
}  # fmt: skip
CSV_MARKS = MONITOR | {
    "socket_power", "gfx_activity", "umc_activity", "pid", "bdf", "market_name", "hotspot", "max_power", "compute_partition",
}  # fmt: skip
VIOLATIONS = {
    "pviol": "ppt", "tviol": "socket_thermal", "phot_tviol": "prochot", "vr_tviol": "vr_thermal", "hbm_tviol": "hbm_thermal",
}  # fmt: skip
UNITS_AT_END = ("W", "MHz", "%", "mV", "MB", "GB", "J", r"\W{0,3}C", "GT/s", "Mb/s")
VERSIONS = {
    "tool": r"(?:AMD-?SMI(?: Tool:)?|version)\s*:?\s*", "library": r"(?:AMDSMI Library version|amdsmi_library_version)\s*:\s*",
    "rocm": r"(?:ROCm version|rocm_version)\s*:\s*", "driver": r"(?:amdgpu version|amdgpu_version)\s*:\s*",
    "hsmp": r"(?:amd_hsmp(?: driver)? version|amd_hsmp_driver_version)\s*:\s*",
}  # fmt: skip
CELL = re.compile(r"N/A(?:\s(?:W|MB|MHz|%|mV|GB|Mb/s))?|[-+\d./]+\s?(?:W|\W{0,3}C|MHz|%|MB|GB|Mb/s|x)?(?=\s|$)|\S+")
CANNOT = re.compile(
    r".*(?:unable to (?:detect|find|get)|driver not (?:loaded|initialized|found)|not initialized|no (?:amd )?gpus?\b|not found in modules|"
    r"permission|NO_PERM|DRIVER_NOT_LOADED|libamd_smi\.so).*",
    re.IGNORECASE,
)
ERROR = re.compile(r"^\s*(?:ERROR|Error|AmdSmi\w*Exception|\w*Error:|Traceback|amd-smi: error)|amdsmi\w*exception", re.MULTILINE)
TOPOLOGY = {"ACCESS": "accessible", "WEIGHT": "weight", "HOPS": "hops", "LINK TYPE": "type"}


def parse(text):
    """{status, reason, gpus, samples, links, processes, versions, power, columns, notes} of one output of amd-smi."""
    text = str(text or "")
    found = {"gpus": [], "links": [], "processes": [], "versions": {}, "columns": None, "damage": None}
    for reader in (_from_json, _from_csv, _from_monitor, _from_screen, _from_tables, _from_tree):
        if reader(text, found):
            break
    else:
        return _without(text)
    rows, samples = latest([gpu for gpu in found["gpus"] if gpu["index"] is not None or _says_something(gpu)])
    shared = _shared(rows)
    values = {
        "gpus": [finished(dict(gpu)) for gpu in rows], "samples": samples and [finished(dict(gpu)) for gpu in samples],
        "links": found["links"], "processes": found["processes"], "versions": found["versions"] or versions(text),
        "columns": found["columns"], "power": power_total(rows, *shared),
    }  # fmt: skip
    return result(PARTIAL if found["damage"] else OK, found["damage"], **values)


def versions(text):
    """{tool, library, rocm, driver, hsmp}: versions that a text names; the rest is None."""
    found = {}
    for name, pattern in VERSIONS.items():
        hit = re.search(pattern + r"(\d[\w.+-]*)", text)
        found[name] = hit[1] if hit else None
    return found


def _says_something(gpu):
    return any(value not in (None, {}, []) for field, value in gpu.items() if field != "absent")


def _without(text):
    """A result without values: the tool's own words where it had some."""
    line = next((line.strip() for line in text.splitlines() if ERROR.search(line) or CANNOT.fullmatch(line)), None)
    if line and re.search("amd|gpu|driver", text, re.IGNORECASE) and not re.search(r"nvidia|rocm.smi|nccl|rvs", text, re.IGNORECASE):
        return result(UNAVAILABLE if CANNOT.fullmatch(line) else FAILED, line[:200], gpus=[])
    return unparsed(gpus=[])


def _shared(gpus):
    """(whether rows are whole sockets, why)."""
    modes = {gpu.get("compute_partition") for gpu in gpus}
    split = any(gpu.get("partition_id") for gpu in gpus) or modes - {None, WHOLE_SOCKET}
    split = split or any(len(gpu["xcp_utilisation_pct"]) > 1 for gpu in gpus)
    if split or len(gpus) > MORE_THAN_SOCKETS:
        return False, "several rows are partitions of one socket and repeat its power: do not add them"
    if modes == {WHOLE_SOCKET} or len(gpus) == 1:
        return True, "each row is a whole socket" if len(gpus) > 1 else "there is one row"
    return False, "the output does not say whether rows are partitions, which repeat the power of their socket: do not add them"


def record(index, cells):
    """One GPU from flat cells {key in lower case: cell}."""
    if "max_power" in cells:  # the limits of `static` in CSV: there socket_power is the cap
        cells = {(f"limit_{key}" if key in ("max_power", "min_power", "socket_power") else key): c for key, c in cells.items()}
    gpu = fill(blank(index), cells, RULES)
    gpu["compute_units"] = whole(_first(cells, r"(asic_)?num_compute_units"))
    _clocks(gpu, cells)
    if "vram_usage" in cells:  # `2.0/192.0 GB`
        used, _, total = str(cells["vram_usage"]).partition("/")
        unit = (total.split() or [""])[-1]
        take(gpu, "memory_used_bytes", f"{used} {unit}")
        take(gpu, "memory_total_bytes", total)
    _limits(gpu, cells)
    for name, pattern in (("compute_partition", r"(partition_)?(compute|accelerator)_(partition|type|profile_type)"),
                          ("memory_partition", r"(partition_)?memory_partition")):  # fmt: skip
        gpu[name] = word(_first(cells, pattern))
    gpu["partition_id"] = whole(_first(cells, r"(partition_)?partition_id|xcp"))
    gpu["memory_type"] = word(_first(cells, r"vram_type|type"))
    gpu["power_management"] = word(_first(cells, r"(power_)?power_management"))
    gpu["driver"] = word(_first(cells, r"driver_(driver_)?version"))
    gpu["pcie"] = {
        "width": whole(_first(cells, r"pcie_width")),
        "speed_gt_s": measured(_first(cells, r"pcie_speed"), "speed")[0],
        "bandwidth_mbit_s": measured(_first(cells, r"pcie_bandwidth|pcie_bw"), "rate")[0],
        "max_width": whole(_first(cells, r"(bus_)?max_pcie_width")),
        "max_speed_gt_s": measured(_first(cells, r"(bus_)?max_pcie_speed"), "speed")[0],
        "interface": word(_first(cells, r"(bus_)?pcie_interface_version")),
        "slot": word(_first(cells, r"(bus_)?slot_type")),
    }
    gpu["pcie"] = gpu["pcie"] if any(gpu["pcie"].values()) else None
    gpu["xcp_utilisation_pct"] = _partitions(cells)
    return gpu


def _first(cells, pattern):
    return next((cell for key, cell in cells.items() if re.fullmatch(pattern, key)), None)


def _clocks(gpu, cells):
    """Clocks of each accelerator die; `clock_mhz` is their median."""
    found = [measured(cell, "mhz")[0] for key, cell in cells.items() if re.fullmatch(r"(clock_)?gfx(_\d+)?_(cur_)?clk", key)]
    known = [clock for clock in found if clock is not None]
    gpu["clocks_mhz"] = found
    if known and gpu["clock_mhz"] is None:
        gpu["clock_mhz"], gpu["clock_kind"] = median(known), f"median of {len(known)} dies"
        gpu["absent"].pop("clock_mhz", None)
    elif found and gpu["clock_mhz"] is None:
        gpu["absent"]["clock_mhz"] = "N/A"


def _limits(gpu, cells):
    """What holds the clock back: `limits` (names), their counters, and the shares of time in percent."""
    active, counters, shares, known = [], {}, {}, False
    for key, cell in cells.items():
        name = re.fullmatch(r"(?:throttle_)?(\w+?)_violation_(status|activity)", key)
        if name and name[2] == "status":
            known |= word(cell) is not None or str(cell).strip().upper() == "NOT ACTIVE"
            active += [name[1]] if str(cell).strip().upper() == "ACTIVE" else []
        elif name or key in VIOLATIONS:
            shares[name[1] if name else VIOLATIONS[key]] = measured(cell, "pct")[0]
        elif counter := re.fullmatch(r"(?:throttle_)?(\w+)_accumulated", key):
            counters[counter[1]] = quantity(cell)[0]
    status = word(_first(cells, r"(power_)?throttle_status"))
    gpu["throttle_status"], gpu["limit_counters"], gpu["limit_pct"] = status, counters, shares
    if status:
        known, active = True, active + (["throttled"] if status.upper() == "THROTTLED" else [])
    if not known and any(share is not None for share in shares.values()):
        known, active = True, [name for name, share in shares.items() if share]
    if known:
        gpu["limits"] = active
    elif "power_throttle_status" in cells or "throttle_status" in cells:
        gpu["absent"]["limits"] = "N/A"


def _partitions(cells):
    """[[% of each live die] of each partition] from usage.gfx_busy_inst; empty where it is not shown."""
    found = {}
    for key, cell in cells.items():
        part = re.fullmatch(r"(?:usage_)?gfx_busy_inst_xcp_(\d{1,4})", key)
        if part:
            values = [measured(one, "pct")[0] for one in (cell if isinstance(cell, list) else [cell])]
            while values and values[-1] is None:
                values.pop()
            found[int(part[1])] = values
    return [found[number] for number in sorted(found)]


def flat(value, prefix="", depth=0):
    """{path joined by _: leaf} of nested dicts; {"value", "unit"} and lists are leaves."""
    found = {}
    for key, inner in value.items():
        path = f"{prefix}{str(key).strip().lower().replace(' ', '_')}"
        if isinstance(inner, dict) and "value" not in inner and depth < DEPTH:
            found |= flat(inner, path + "_", depth + 1)
        else:
            found[path] = inner
    return found


def _from_json(text, found):
    """JSON of any command. Errors that come as JSON are left to the words of the text."""
    docs, is_whole = documents(text)
    entries = []
    for doc in docs:
        inner = doc.get("gpu_data", doc) if isinstance(doc, dict) else doc
        entries += [entry for entry in (inner if isinstance(inner, list) else [inner]) if isinstance(entry, dict)]
    merged = {}
    for entry in entries:
        if "amdsmi_library_version" in entry:
            names = {"tool": "version", "library": "amdsmi_library_version", "rocm": "rocm_version",
                     "driver": "amdgpu_version", "hsmp": "amd_hsmp_driver_version"}  # fmt: skip
            found["versions"] = {name: word(entry.get(key)) for name, key in names.items()}
        elif whole(entry.get("gpu")) is not None:
            _entry(entry, whole(entry["gpu"]), merged, found)
        elif any(isinstance(leaf, dict) and "unit" in leaf for leaf in flat(entry).values()):
            gpu = record(None, flat(entry))  # one section, as jq cuts it out
            found["gpus"] += [gpu] if any(gpu[field] is not None for field in FILLED) else []
    found["gpus"] += [record(index, flat(entry)) for index, entry in merged.items()]
    found["damage"] = None if is_whole else f"{CUT} or damaged JSON"
    return bool(found["gpus"] or found["versions"] or found["links"])


def _entry(entry, index, merged, found):
    """One GPU's object: its sections, its links (two shapes), its processes."""
    old = {"accessible": "link_accessibility", "weight": "weight", "hops": "hops", "type": "link_type"}
    if isinstance(entry.get("link_type"), dict):
        tables = {}
        for what, key in old.items():
            shown = entry.get(key) if isinstance(entry.get(key), dict) else {}
            numbered = {whole(to.removeprefix("gpu_")): cell for to, cell in shown.items()}
            tables[what] = {(index, to): cell for to, cell in numbered.items() if to is not None}
        found["links"] += links_of(tables)
        entry = {"gpu": index}
    for link in entry.get("links") if isinstance(entry.get("links"), list) else []:
        to = whole(link.get("gpu")) if isinstance(link, dict) else None
        if to is not None and to != index:
            new = {"accessible": "link_status", "weight": "weight", "hops": "num_hops", "type": "link_type"}
            found["links"] += links_of({what: {(index, to): link.get(key)} for what, key in new.items()})
    for one in entry.get("process_list") if isinstance(entry.get("process_list"), list) else []:
        info = one.get("process_info", one) if isinstance(one, dict) else None
        if isinstance(info, dict):
            found["processes"].append(_process(index, flat(info)))
    kept = {key: value for key, value in entry.items() if key not in ("gpu", "links", "process_list")}
    merged.setdefault(index, {}).update(kept)


def _process(index, cells):
    """{gpu, vram_bytes, gtt_bytes, cpu_bytes} of one process; no id, no name."""
    kinds = ("vram", "gtt", "cpu")
    return {"gpu": index, **{f"{kind}_bytes": measured(_first(cells, rf"(memory_usage_)?{kind}_mem"), "bytes")[0] for kind in kinds}}


def _from_csv(text, found):
    def is_header(cells):
        names = {cell.strip().lower() for cell in cells}
        return "gpu" in names and bool(names & (CSV_MARKS - {"gpu", "timestamp"}))

    lines = text.splitlines()
    rows, columns, fit = csv_records(lines, is_header, text.endswith("\n"))
    if not columns:
        return False
    found["columns"] = columns
    for row in rows:
        cells = {key.lower(): cell for key, cell in row.items()}
        index = whole(cells.pop("gpu", None))
        if "pid" in cells:
            found["processes"].append(_process(index, cells))
        elif index is not None:
            found["gpus"].append(record(index, cells))
        else:
            fit = False
    found["damage"] = f"{CUT}: a header without rows" if not rows else None if fit else f"{CUT} or damaged rows"
    return True


def _from_monitor(text, found):
    """The table of `amd-smi monitor`: columns by the names in its head, cells by counting."""
    columns, bad = None, 0
    lines, half = _whole_lines(text)
    for line in lines:
        names = line.split()
        if "GPU" in names[:2] and len(names) > 1 and all(re.fullmatch(r"[A-Z][A-Z_0-9]*%?", name) for name in names):
            if len({name.lower() for name in names} & MONITOR) < 2:
                columns = columns and []  # the process table that -q adds
            else:
                columns = [name.lower() for name in names]
            continue
        if not columns or not re.match(r"\s*\d", line):
            continue
        cells = CELL.findall(line.strip())
        row = dict(zip(columns, cells, strict=False))
        index = whole(row.pop("gpu", None))
        if len(cells) != len(columns) or index is None or "\ufffd" in line.replace("\ufffdC", ""):
            bad += 1
            continue
        found["gpus"].append(record(index, row))
    if columns is None:
        return False
    found["columns"] = columns
    none = not found["gpus"]
    found["damage"] = f"{CUT}: a header without rows" if none else f"{CUT}: {bad} unreadable rows" if bad else half
    return True


def _from_screen(text, found):
    """The screen that `amd-smi` alone draws from ROCm 7.0 on: two lines a GPU."""
    head = re.search(r"\|\s*AMD-SMI\s+\d", text)
    if not head:
        return False
    first = re.compile(r"\|\s*([0-9a-f:]+\.\d)\s+(.*?)\s*\|\s*(\S+ ?%?)\s+(\S+ ?\W{0,3}C|N/A)\s+(\S+)\s+(\S+)/(\S+) W\s*\|")
    second = re.compile(r"\|\s*(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s*\|\s*(\S+ ?%?)\s+(\S+(?: ?%)?)\s+(\S+)/(\S+) MB\s*\|")
    top = None
    for line in text.splitlines():
        if "Processes" in line:
            break
        if hit := first.match(line):
            top = hit
        elif top and (hit := second.match(line)):
            compute, _, memory = hit[4].partition("/")
            cells = {"bdf": top[1], "market_name": top[2], "mem_util": top[3], "gpu_temp": top[4], "power": f"{top[6]} W",
                     "pwr_cap": f"{top[7]} W", "gfx_util": hit[5], "vram_used": f"{hit[7]} MB", "vram_total": f"{hit[8]} MB",
                     "compute_partition": compute, "memory_partition": memory}  # fmt: skip
            found["gpus"].append(record(int(hit[1]), cells))
            top = None
    ended = re.search(r"^\+-+\+?\s*$", text[head.end() :], re.MULTILINE)
    found["damage"] = None if ended and found["gpus"] and top is None else f"{CUT}: the table is not closed"
    return True


def _from_tables(text, found):
    """The tables of `amd-smi topology`, one a property, labelled by PCI address."""
    tables = {}
    for hit in re.finditer(r"^(ACCESS|WEIGHT|HOPS|LINK TYPE) TABLE:\s*\n((?:[^\n]*\S[^\n]*\n?)+)", text, re.MULTILINE):
        tables[TOPOLOGY[hit[1]]] = matrix(hit[2].splitlines())
    if not any(tables.values()):
        return False
    order = list(dict.fromkeys(a for table in tables.values() for a, _ in table))
    place = {name: number for number, name in enumerate(order)}
    found["links"] = links_of({what: {(place[a], place[b]): cell for (a, b), cell in t.items()} for what, t in tables.items()})
    return True


def _from_tree(text, found):
    """Indented `KEY: value` lines under `GPU: n`; the line of versions."""
    if re.match(r"\s*AMDSMI Tool:", text):
        found["versions"] = versions(text)
        return found["versions"]["tool"] is not None
    lines, damage = _whole_lines(text)
    index, block, sections = None, {}, 0
    for line in [*lines, "GPU: end"]:
        hit = re.match(r"GPU:\s*(\S+)\s*$", line)
        if not hit:
            block.setdefault("lines", []).append(line)
            continue
        if index is not None:
            tree, unread = _tree(block.get("lines", []))
            found["gpus"].append(record(index, flat(tree)))
            sections += sum(isinstance(section, dict) for section in tree.values()) + ("bdf" in tree)
            clock = list(tree["clock"]) if isinstance(tree.get("clock"), dict) else []
            if clock and all(key.startswith("gfx") for key in clock):
                damage = damage or f"{CUT} in the section of clocks"
            damage = damage or (f"{unread} unreadable lines" if unread else None)
        index, block = whole(hit[1]), {}
    if not sections:
        return False
    found["damage"] = damage
    return True


def _whole_lines(text):
    """(lines, damage): without a newline at the end the last line may hold half a value, unless it ends in a unit."""
    lines = text.splitlines()
    if lines and not text.endswith("\n") and not re.search(r"\d ?(?:" + "|".join(UNITS_AT_END) + r")$|\bN/A$|\]$", lines[-1]):
        return lines[:-1], f"{CUT} in its last line"
    return lines, None


def _tree(lines):
    """(nested dict with keys in lower case, number of lines that fit nothing)."""
    root, unread = {}, 0
    stack = [(-1, root)]
    for line in lines:
        hit = re.fullmatch(r"(\s*)([A-Z][A-Z0-9_ ]*):\s*(.*?)\s*", line)
        if not hit:
            unread += bool(line.strip())
            continue
        indent, key, value = len(hit[1]), hit[2].strip().lower(), hit[3]
        while indent <= stack[-1][0]:
            stack.pop()
        if value:
            stack[-1][1].setdefault(key, value)
        else:
            inner = {}
            stack[-1][1].setdefault(key, inner)
            stack.append((indent, inner))
    return root, unread

