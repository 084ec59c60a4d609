"""rocm-smi: JSON, CSV, `GPU[n] : key: value` lines, the concise table and the topology tables.

Keys were renamed over the years: average package power (MI200 and earlier), current socket power (MI300 and later); they are
told apart by patterns. Exit codes say nothing; a text output is whole with its line "End of ROCm SMI Log".
"""

import re

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.hardware.parsers.smi_text import (
    CUT,
    blank,
    csv_records,
    documents,
    fill,
    finished,
    links_of,
    matrix,
    measured,
    power_total,
    take,
    whole,
    word,
)  # fmt: skip

RULES = (
    (r"current socket graphics package power \(w\)", "power_w", {"power_kind": "current"}),
    (r"average (socket )?graphics package power \(w\)", "power_w", {"power_kind": "average"}),
    (r"(socket|graphics package) power \(w\)", "power_w", {"power_kind": "socket"}),
    (r"max graphics package power \(w\)", "power_limit_w", {}),
    (r"accumulated energy \(uj\)", "energy_uj", {}),
    (r"temperature \(sensor junction\) \(c\)", "temperature_c", {"temperature_kind": "junction"}),
    (r"temperature \(sensor edge\) \(c\)", "temperature_c", {"temperature_kind": "edge"}),
    (r"temperature \(sensor mem(ory)?\) \(c\)", "memory_temperature_c", {}),
    (r"sclk clock speed", "clock_mhz", {"clock_kind": "as printed"}),
    (r"sclk clock level", "clock_level", {}),
    (r"mclk clock speed", "memory_clock_mhz", {}),
    (r"gpu use \(%\)", "utilisation_pct", {}),
    (r"gpu memory (use|read/write activity) \(%\)", "memory_utilisation_pct", {}),
    (r"gpu memory allocated \(vram%\)", "memory_used_pct", {}),
    (r"vram total used memory \(b\)", "memory_used_bytes", {}),
    (r"vram total memory \(b\)", "memory_total_bytes", {}),
    (r"fan speed \(%\)", "fan_pct", {}),
    (r"voltage \(mv\)", "gfx_voltage_mv", {}),
    (r"device name|card series", "name", {}),
    (r"gpu id|device id|card model", "device_id", {}),
    (r"gfx version", "gfx_target", {}),
    (r"pci bus", "bdf", {}),
)
KNOWN = re.compile("|".join(f"(?:{pattern})" for pattern, _, _ in RULES) + r"|driver version|.*clock (?:speed|level)|.*\(topology\).*")
VENDOR_ID = "0x1002"  # shown in place of a model by some versions
ROW = re.compile(
    r"\s*(?P<index>\d{1,4})\s+(?P<ids>.*?)\s*(?P<temperature>[\d.]+\s*[^\x00-\x7f]{0,3}[cC]|N/A)\s+(?P<power>[\d.]+\s*W|N/A)\s+"
    r"(?:(?P<memory>[\w/]+),\s*(?P<compute>[\w/]+)(?:,\s*(?P<id>[\w/]+))?\s+)?(?P<sclk>[\d.]+\s?[MG][hH]z|N/A|None)\s+"
    r"(?P<mclk>[\d.]+\s?[MG][hH]z|N/A|None)\s+(?P<fan>[\d.]+%|N/A|None%?)\s+(?P<perf>[a-zA-Z_/]+)\s+"
    r"(?P<cap>[\d.]+\s?W|N/A|[a-z]+)\s+(?P<vram>[\d.]+%|N/A|[a-z]+)\s+(?P<use>[\d.]+%|N/A)\s*"
)
MORE = ("compute_partition", "memory_partition", "partition_id", "numa_node", "numa_affinity", "card_model", "performance_level")
RULE = "=" * 10
CLOSED = "End of ROCm SMI Log"
TITLE = re.compile(r"=\s*(?:ROCm System Management Interface|Concise Info|End of ROCm SMI Log|ROCm SMI)")
CANNOT = re.compile(
    r".*(?:driver not initialized|not found in modules|no amd gpus|no gpus?\b|amdgpu.*not (?:loaded|found)|permission denied|"
    r"unable to (?:open|initialize)|rsmi_init).*",
    re.IGNORECASE,
)
TABLE = r"^=+ (Weight|Hops|Link Type|Link accessibility) between two GPUs =+\n((?:[^=\n][^\n]*\n?|\n)*)"
TOPOLOGY = {"weight": "weight", "hops": "hops", "link type": "type", "accessible": "accessible"}


def parse(text):
    """{status, reason, gpus, links, versions, power, notes} of one output of rocm-smi."""
    text = _unprefixed(str(text or ""))
    cards, found = {}, {"links": [], "versions": {"driver": None}, "notes": [], "damage": None}
    found["notes"] += [line.strip()[:160] for line in text.splitlines() if line.startswith("WARNING")]
    for reader in (_from_json, _from_csv, _from_text):
        if reader(text, cards, found):
            break
    else:
        return _without(text)
    gpus = [cards[index] for index in sorted(cards)]
    values = {
        "gpus": [finished(dict(gpu)) for gpu in gpus], "links": found["links"], "versions": found["versions"],
        "power": power_total(gpus, *_shared(gpus)), "notes": found["notes"],
    }  # fmt: skip
    return result(PARTIAL if found["damage"] else OK, found["damage"], **values)


def _without(text):
    """A result without values: the tool's own words where it had some."""
    lines = [line.strip() for line in text.splitlines()]
    ours = bool(re.search(r"rocm.?smi|rsmi|amdgpu|AMD GPU|No JSON data to report|ROCm System Management", text, re.IGNORECASE))
    line = next((line for line in lines if CANNOT.fullmatch(line) or re.match(r"(ERROR|WARNING|usage: rocm)", line)), None)
    if not line or not ours:
        return unparsed(gpus=[])
    return result(UNAVAILABLE if CANNOT.fullmatch(line) else FAILED, line[:200], gpus=[])


def _unprefixed(text):
    """The text without what a launcher put before each line (`node01 out: `), as its first rule of === shows it."""
    ruled = next((line for line in text.split("\n") if RULE in line), "")
    prefix = ruled[: ruled.find(RULE)] if ruled else ""
    prefix = prefix if prefix.strip() else ""
    return "\n".join(line.removeprefix(prefix) for line in text.split("\n")) if prefix else text


def _shared(gpus):
    """(whether rows are whole sockets, why)."""
    modes = {gpu.get("compute_partition") for gpu in gpus}
    if modes - {None, "SPX"} or any(gpu.get("partition_id") for gpu in gpus):
        return False, "several rows are partitions of one socket and repeat its power: do not add them"
    powers = [gpu["power_w"] is not None for gpu in gpus]
    if len(gpus) > 1 and len(gpus) % 2 == 0 and powers == [True, False] * (len(gpus) // 2):
        return True, "the first die of each module reports the module's power, the second none"
    if modes == {"SPX"} or len(gpus) == 1:
        return True, "each row is a whole socket" if len(gpus) > 1 else "there is one row"
    if all(powers) and gpus and all(gpu["power_kind"] == "average" for gpu in gpus):
        return True, "each row reports its own package"
    return False, "the output does not say whether rows are partitions, which repeat the power of their socket: do not add them"


def _card(cards, index):
    """The record of a card, made where it is new."""
    if index not in cards:
        cards[index] = blank(index) | dict.fromkeys(MORE) | {"temperatures_c": {}}
    return cards[index]


def _keyed(gpu, values):
    """Fill a record from {key as printed: cell}."""
    cells = {str(key).strip().rstrip(":").strip().lower(): cell for key, cell in values.items()}
    bogus = {key for key, cell in cells.items() if key in ("card series", "device name") and str(cell).startswith("0x")}
    named = {key: cell for key, cell in cells.items() if key not in bogus and cell != VENDOR_ID}
    fill(gpu, named, [rule for rule in RULES if rule[1] not in ("energy_uj", "clock_level")])
    for key, cell in cells.items():
        sensor = re.fullmatch(r"temperature \(sensor (.+)\) \(c\)", key)
        if sensor and (value := measured(cell, "c")[0]) is not None:
            gpu["temperatures_c"][sensor[1].replace("memory", "mem")] = value
    if "sclk clock level" in cells and gpu["clock_mhz"] is None:
        level = re.search(r"\(([^()]*)\)", str(cells["sclk clock level"]))
        gpu["clock_kind"] = "as printed" if level and take(gpu, "clock_mhz", level[1]) else gpu["clock_kind"]
    if "accumulated energy (uj)" in cells:
        take(gpu, "energy_j", f"{cells['accumulated energy (uj)']} uJ")
    for field, key in (("numa_node", "(topology) numa node"), ("numa_affinity", "(topology) numa affinity")):
        gpu[field] = whole(cells[key]) if key in cells else gpu[field]
    for field, keys in (("compute_partition", ("compute partition",)), ("memory_partition", ("memory partition",)),
                        ("card_model", ("card model",)), ("performance_level", ("performance level",))):  # fmt: skip
        gpu[field] = next((word(cells[key]) for key in keys if key in cells), gpu[field])
    gpu["card_model"] = None if gpu["card_model"] == VENDOR_ID else gpu["card_model"]


def _system(values, found):
    """Driver version, and links between devices, of the entry that is no card."""
    tables = {}
    for key, cell in values.items():
        key = str(key).strip().lower()
        if key == "driver version":
            found["versions"]["driver"] = word(cell)
        pair = re.fullmatch(r"\(topology\) (weight|hops|link type) between drm devices (\d{1,4}) and (\d{1,4})", key)
        if pair:
            tables.setdefault(TOPOLOGY[pair[1]], {})[int(pair[2]), int(pair[3])] = cell
    found["links"] += links_of(tables)


def _from_json(text, cards, found):
    docs, is_whole = documents(text)
    for doc in docs:
        for name, values in doc.items() if isinstance(doc, dict) else ():
            card = re.fullmatch(r"card(\d{1,4})", name)
            known = isinstance(values, dict) and any(KNOWN.fullmatch(str(key).strip().rstrip(":").lower()) for key in values)
            if card and known:
                _keyed(_card(cards, int(card[1])), values)
            elif name == "system" and isinstance(values, dict):
                _system(values, found)
    found["damage"] = None if is_whole else f"{CUT} or damaged JSON"
    return bool(cards or found["versions"]["driver"] or found["links"])


def _from_csv(text, cards, found):
    """Blocks of CSV, each with its header; a card may stand in several."""
    rows, columns, fit = csv_records(text.splitlines(), lambda cells: cells[0] == "device" and len(cells) > 1, text.endswith("\n"))
    if not columns:
        return False
    for row in rows:
        card = re.fullmatch(r"card(\d{1,4})", row.pop("device"))
        if card:
            _keyed(_card(cards, int(card[1])), row)
    found["versions"]["driver"] = next((word(row["Driver version"]) for row in rows if "Driver version" in row), None)
    found["damage"] = f"{CUT}: a header without rows" if not rows else None if fit else f"{CUT} or damaged rows"
    return True


def _from_text(text, cards, found):
    """Everything that is drawn for people."""
    title = bool(TITLE.search(text))
    head = text[: text.find("\n0 ")] if "\n0 " in text else text[:2000]
    kinds = {
        "power_kind": "average" if re.search(r"AvgPwr|\(Avg\)", head) else "socket" if "(Socket)" in head else None,
        "temperature_kind": next((kind for kind in ("edge", "junction") if f"({kind.capitalize()})" in head), None),
    }
    bad, last, lines = 0, None, text.splitlines()
    for line in lines if text.endswith("\n") or CLOSED in text else lines[:-1]:  # half a line may hold half a value
        row = ROW.fullmatch(line)
        if row:
            last = _card(cards, int(row["index"]))
            _concise(last, row, kinds)
        elif keyed := re.match(r"GPU\[(\d{1,4})\]\s*:\s*(.*)", line):
            _line(_card(cards, int(keyed[1])), keyed[2].strip())
        elif last is not None and re.fullmatch(r"\s{4,}[A-Za-z(][\w /().+-]*", line):
            last["name"], last = word(line), None
        elif driver := re.match(r"Driver version:\s*(\S+)", line):
            found["versions"]["driver"] = driver[1]
        else:
            bad += bool(re.match(r"\s*\d+\s+\S+.*(?:W|Mhz|[^\x00-\x7f]C|\d[cC])\b", line))
    found["links"] += _tables(text)
    if not cards and not found["links"] and not (found["versions"]["driver"] and title):
        return False
    if not title and not any(gpu["power_w"] is not None or gpu["absent"] for gpu in cards.values()) and not found["links"]:
        return False
    missing = [] if title else ["its head"]
    missing += [] if CLOSED in text else ["its end"]
    found["damage"] = f"{CUT}: without {' and '.join(missing)}" if missing else f"{bad} unreadable rows" if bad else None
    return True


def _concise(gpu, row, kinds):
    """One row of the concise table."""
    fields = {"temperature_c": "temperature", "power_w": "power", "clock_mhz": "sclk", "memory_clock_mhz": "mclk", "fan_pct": "fan",
              "power_limit_w": "cap", "memory_used_pct": "vram", "utilisation_pct": "use"}  # fmt: skip
    for field, name in fields.items():
        take(gpu, field, row[name])
    gpu["clock_kind"] = "as printed" if gpu["clock_mhz"] is not None else None
    gpu |= {field: kind for field, kind in kinds.items() if gpu[f"{field[:-5]}_{'w' if field[0] == 'p' else 'c'}"] is not None}
    gpu["compute_partition"], gpu["memory_partition"] = word(row["compute"]), word(row["memory"])
    gpu["partition_id"], gpu["performance_level"] = whole(row["id"]), word(row["perf"])
    model = re.search(r"\[\s*(0x[0-9a-f]+)", row["ids"])
    device = re.search(r"(0x[0-9a-f]+),", row["ids"])
    gpu["card_model"] = model[1] if model else None
    gpu["device_id"] = device[1] if device else None


def _line(gpu, said):
    """One `GPU[n] : …` line: key and value, or why there is none."""
    refusal = re.fullmatch(r"get_(\w+?)_metric\w*, (Not supported.*)", said)
    if refusal:
        fields = {"volt": "gfx_voltage_mv", "power": "power_w", "temp": "temperature_c"}
        gpu["absent"][fields.get(refusal[1], refusal[1])] = refusal[2]
        return
    key, colon, value = (part.strip() for part in said.partition(": "))
    if not colon and said.endswith(":"):
        return
    _keyed(gpu, {key: value})


def _tables(text):
    """Links from the tables `Weight between two GPUs` and its sisters."""
    tables = {}
    for hit in re.finditer(TABLE, text, re.MULTILINE):
        what = "accessible" if "access" in hit[1] else TOPOLOGY[hit[1].lower()]
        lines = [line for line in hit[2].splitlines() if line.strip()]
        cells = matrix(lines)
        tables[what] = {(int(a[3:]), int(b[3:])): cell for (a, b), cell in cells.items() if _gpu(a) and _gpu(b)}
    return links_of(tables)


def _gpu(label):
    return re.fullmatch(r"GPU\d{1,4}", label)
