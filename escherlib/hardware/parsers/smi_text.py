"""Numbers, units and sentinels of GPU telemetry tools, and the record of one GPU that their parsers fill.

A cell is what a tool prints for one value: `182 W`, `(300Mhz)`, `N/A mV`, `[Not Supported]`, {"value": 10, "unit": "W"}.
MB and GB of these tools are powers of two. `absent` of a record says of every null field why it is null.
"""

import csv
import json
import math
import re

GPU_FIELDS = (
    "index", "name", "bdf", "device_id", "gfx_target", "compute_units", "timestamp_s",
    "power_w", "power_kind", "power_limit_w", "power_limit_min_w", "power_limit_max_w", "power_limit_default_w", "energy_j",
    "temperature_c", "temperature_kind", "memory_temperature_c", "clock_mhz", "clock_kind", "memory_clock_mhz",
    "utilisation_pct", "memory_utilisation_pct", "memory_used_bytes", "memory_total_bytes", "memory_used_pct", "fan_pct",
    "gfx_voltage_mv", "soc_voltage_mv", "memory_voltage_mv", "limits",
)  # fmt: skip
SCALES = {
    "w": {"": 1, "w": 1, "mw": 1e-3, "uw": 1e-6, "kw": 1e3},
    "j": {"": 1, "j": 1, "mj": 1e-3, "uj": 1e-6, "kj": 1e3, "wh": 3600},
    "c": {"": 1, "c": 1},
    "mhz": {"": 1, "mhz": 1, "ghz": 1e3, "khz": 1e-3, "hz": 1e-6},
    "pct": {"": 1, "%": 1},
    "bytes": {"": 1, "b": 1} | {f"{p}{i}b": 2**n for p, n in (("k", 10), ("m", 20), ("g", 30), ("t", 40)) for i in ("", "i")},
    "mv": {"": 1, "mv": 1, "v": 1e3},
    "s": {"": 1, "s": 1, "ms": 1e-3},
    "width": {"": 1, "x": 1},
    "speed": {"gt/s": 1},
    "rate": {"mb/s": 1},
}
WIDE = ("bytes", "j", "s")  # 65535 of these is a value like any other
BELOW_ZERO = ("c",)
ALL_ONES = {float(2**32 - 1), float(2**64 - 1)}
NO_VALUE = re.compile(
    r"\W*(?:n/?a|none|null|nan|not (?:supported|available|active)\b.*|unsupported|unknown(?: error)?|err!?|gpu requires reset|"
    r"insufficient permissions|)\W*(?:\s(?:[a-z]{1,3}|%|\W{0,3}c)(?:/s)?)?",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\(?\s*([-+]?\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?)\s*([^\d\s()*]{0,6})\s*\)?\s*\*?")
BDF = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
CUT = "cut off"


def quantity(cell):
    """(number, unit in lower case, None), or (None, None, why) of a cell: the tool's word, or what can't be read."""
    unit = None
    if isinstance(cell, dict):
        cell, unit = cell.get("value"), cell.get("unit")
    if isinstance(cell, (bool, dict, list)):
        return None, None, "not a number"
    if isinstance(cell, (int, float)):
        text = repr(cell)
    else:
        text = str("" if cell is None else cell).strip()
    if NO_VALUE.fullmatch(text):
        return None, None, text.strip("[]") or "empty"
    found = NUMBER.fullmatch(text)
    if not found:
        return None, None, "not a number"
    unit = str(unit if isinstance(unit, str) else found[2]).lower().replace("µ", "u")
    number = float(found[1])
    if not math.isfinite(number):
        return None, None, "not a finite number"
    whole = number.is_integer() and abs(number) < 2**53
    return int(number) if whole else number, re.sub(r"[^a-z%/]", "", unit), None


def measured(cell, kind):
    """(value in the unit of `kind`, None) or (None, why). `kind`: a key of SCALES, the end of a field's name."""
    number, unit, why = quantity(cell)
    if why:
        return None, why
    if number in ALL_ONES or (number == 2**16 - 1 and kind not in WIDE):
        return None, "all ones: the driver gives no value"
    if number < 0 and kind not in BELOW_ZERO:
        return None, "negative: the driver gives no value"
    scale = SCALES[kind].get(unit)
    if scale is None:
        return None, f"unexpected unit {unit}"
    if kind == "bytes":
        return round(number * scale), None
    return (number if scale == 1 else round(number * scale, 6)), None


def whole(cell):
    """A count, or None: sentinels and -1 are none."""
    value, _ = measured(cell, "width")
    return value if isinstance(value, int) else None


def word(cell):
    """A text cell, or None where it says nothing."""
    text = "" if cell is None or isinstance(cell, (dict, list)) else str(cell).strip()
    return None if NO_VALUE.fullmatch(text) else text[:200]


def bdf_of(text):
    """PCI address in the kernel's form, `0000:c1:00.0`, or None."""
    found = BDF.fullmatch(str(text or "").strip())
    return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}.{found[4]}".lower() if found else None


def blank(index=None):
    """A record of one GPU with every field null."""
    return {**dict.fromkeys(GPU_FIELDS), "index": index, "absent": {}}


def take(gpu, field, cell):
    """Put a cell into a null field; keep why where it holds nothing. Returns whether it gave a value."""
    if gpu.get(field) is not None:
        return False
    kind = field.rsplit("_", 1)[-1]
    if kind in SCALES:
        value, why = measured(cell, kind)
        if field == "power_limit_w" and value == 0:  # the second die of a module reports power and cap for neither
            value, why = None, "0 W: not reported for this die"
    else:
        value = bdf_of(cell) if field == "bdf" else word(cell)
        why = None if value is not None else str(cell if isinstance(cell, str) else "empty").strip("[] ")[:80]
    gpu[field] = value
    if value is None:
        gpu["absent"][field] = why
    return value is not None


def fill(gpu, cells, rules):
    """Apply rules (pattern of a whole key, field, {fields that go with it}) in order; the first value of a field wins."""
    for pattern, field, more in rules:
        for key, cell in cells.items():
            if re.fullmatch(pattern, key) and take(gpu, field, cell):
                gpu.update(more)
    return gpu


def finished(gpu):
    """The record with a reason for every null field and none for others; where another field explains, that one does."""
    said = gpu.pop("absent")
    kinds = {"power_kind": "power_w", "temperature_kind": "temperature_c", "clock_kind": "clock_mhz"}
    why = {}
    for field in GPU_FIELDS:
        if gpu[field] is None:
            base = kinds.get(field, field)
            why[field] = said.get(base) or ("not said" if gpu[base] is not None else "not in this output")
    return {**gpu, "absent": why}


def power_total(gpus, additive, why):
    """{additive, total_w, why}: whether the rows' powers may be added, and their sum where they may."""
    known = [gpu["power_w"] for gpu in gpus if gpu["power_w"] is not None]
    total = round(sum(known), 3) if additive and known else None
    return {"additive": bool(additive), "total_w": total, "why": why}


def latest(rows):
    """(one record a GPU: its last row, all rows). Rows without an index stay single: nothing tells whose they are."""
    found = {}
    for number, row in enumerate(rows):
        found[row["index"] if row["index"] is not None else f"row {number}"] = row
    return list(found.values()), (rows if len(found) < len(rows) else None)


def documents(text):
    """(JSON documents of a text in order, whether all were whole). What stands before and between them is skipped.

    Of a damaged document what comes before the damage is kept.
    """
    decoder, found, whole_, at = json.JSONDecoder(parse_constant=lambda _: None), [], True, 0
    opening = re.compile(r"^[ \t]*([\[{])", re.MULTILINE)
    while start := opening.search(text, at):
        try:
            value, at = decoder.raw_decode(text, start.start(1))
        except RecursionError:
            return found, False
        except ValueError as error:
            value, at = closed(text[start.start(1) : getattr(error, "pos", 0)]), start.end()
            if value:
                return [*found, value], False
            whole_ = whole_ and bool(re.match(r"\[\w+\]", text[start.start(1) :]))  # `[WARN] …` is a line of a log
            continue
        found.append(value)
    return found, whole_


def closed(text):
    """The JSON value of a text that breaks off: cut back to the last whole value and closed; None without one."""
    stack, safe, inside, escaped = [], None, False, False
    for at, sign in enumerate(text):
        if inside:
            inside, escaped = escaped or sign != '"', sign == "\\" and not escaped
        elif sign == '"':
            inside = True
        elif sign in "[{":
            stack.append("]" if sign == "[" else "}")
            safe = at + 1, "".join(reversed(stack))
        elif sign in "]}" and stack:
            stack.pop()
            safe = at + 1, "".join(reversed(stack))
        elif sign == ",":
            safe = at, "".join(reversed(stack))
    try:
        return json.loads(text[: safe[0]] + safe[1], parse_constant=lambda _: None) if safe else None
    except (ValueError, RecursionError):
        return None


def csv_cells(line):
    """Cells of one CSV line without blanks around them, or None where it is none."""
    try:
        row = next(csv.reader([line], skipinitialspace=True, strict=True), [])
    except (csv.Error, StopIteration):
        return None
    return [cell.strip() for cell in row]


def csv_records(lines, is_header, ended):
    """([(column → cell)] of CSV lines under their headers, columns, whether all rows fit). `ended`: a newline ends the text.

    Without that the last cell may be half a value: it is left out unless it ends in a unit.
    """
    columns, rows, fit = [], [], True
    for number, line in enumerate(lines):
        cells = csv_cells(line)
        if cells and is_header(cells):
            columns = [cell.strip() for cell in cells]
            fit = fit and (ended or number + 1 < len(lines))
        elif columns and line.strip():
            last = not ended and number + 1 == len(lines)
            if cells and last and len(cells) == len(columns) and not re.search(r"\d\s*[A-Za-z%\]]+$|N/A\]?$", cells[-1]):
                cells, fit = [*cells[:-1], None], False
            if not cells or len(cells) != len(columns):
                fit = False
                continue
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows, columns, fit


def matrix(lines):
    """{(row label, column label): cell} of a square table whose first line holds the labels."""
    head = lines[0].split() if lines else []
    found = {}
    for line in lines[1:]:
        label, *cells = line.split() or [""]
        if label in head and len(cells) == len(head):
            found |= {(label, column): cell for column, cell in zip(head, cells, strict=True)}
    return found


def links_of(tables):
    """[{from, to, type, weight, hops, accessible}] of {what: {(from, to): cell}}; a device's link to itself is left out."""
    pairs = sorted({pair for table in tables.values() for pair in table if pair[0] != pair[1]})
    return [
        {
            "from": a, "to": b, "type": word(tables.get("type", {}).get((a, b))),
            **{name: whole(tables.get(name, {}).get((a, b))) for name in ("weight", "hops")},
            "accessible": {"ENABLED": True, "TRUE": True, "DISABLED": False, "FALSE": False}.get(
                str(tables.get("accessible", {}).get((a, b))).upper()
            ),
        }
        for a, b in pairs
    ]  # fmt: skip
