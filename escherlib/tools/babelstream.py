"""BabelStream (`hip-stream`, `cuda-stream`, `omp-stream`, `babelstream`): memory bandwidth per operation.

It counts bytes read and written: two arrays for Copy, Mul and Dot, three for Add and Triad. The rate is that of the best
run, in decimal MB/s, or in MiB/s with `--mibibytes`: the header says which. Init and Read lines are single shots with
swapped names in 5.0 and no results. `Validation failed` makes the result failed while the exit code may stay 0.
"""

import re

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.tools.figures import memory, usable
from escherlib.tools.finding import find_programs
from escherlib.tools.text import ANSI, cannot, elided, fixed, found, largest, lines_of, missing, number, shortened, whole

STACKS = ("rocm", "cuda", "cpu")
BY_STACK = {"rocm": ("hip-stream", "babelstream"), "cuda": ("cuda-stream", "babelstream"), "cpu": ("omp-stream",)}
PROGRAMS = ("babelstream", "hip-stream", "cuda-stream", "omp-stream")
VARIABLES = ("ESCHER_BABELSTREAM", "BABELSTREAM_DIR")
DEADLINE_S = 120
GPU_ARRAY_BYTES, CPU_ARRAY_BYTES = 2**31, 2**28
OURS = {"Copy": "copy", "Mul": "mul", "Add": "add", "Triad": "axpy", "Dot": "sum"}
OPERATIONS = ("Copy", "Mul", "Add", "Triad", "Dot")
UNITS = {  # header word → factor to GB/s
    "MBytes/sec": 1e-3, "MB/s": 1e-3, "GB/s": 1.0, "GBytes/sec": 1.0,
    "MiBytes/sec": 2**20 / 1e9, "MiB/s": 2**20 / 1e9, "GiB/s": 2**30 / 1e9, "GiBytes/sec": 2**30 / 1e9,
}  # fmt: skip
HEADER = re.compile(r"\s*Function\s+(\S+)\s+Min \(sec\)")
CSV_HEADER = "function,num_times,n_elements,sizeof,"
DTYPES = {"double": "fp64", "float": "fp32"}
FAILURE = re.compile(r"(?:Validation failed|FAILED validation of)[^\n]*", re.IGNORECASE)


def parse(text):
    """Tables of the output: rates in GB/s and seconds a run, with the tool's own unit beside."""
    plain = ANSI.sub("", text)
    lines = lines_of(text)
    tables = [*_tables(lines), *_csv_tables(lines)]
    banners = len(re.findall(r"^BabelStream$", plain, re.MULTILINE))
    failure = FAILURE.search(plain)
    words = cannot(plain)
    if not tables:
        return _without_table(plain, banners, failure, words)
    cut = any(set(OPERATIONS) - set(table["rows"]) and not table["triad_only"] for table in tables)
    devices = re.findall(r"^Using \w+ device (.+?)\s*$", plain, re.MULTILINE)
    csv = any(table["csv"] for table in tables)
    reason = missing({
        "the beginning is missing": not banners and not csv,
        "the table is cut": cut or any(table["cut"] for table in tables),
        "parts were left out by the source": elided(plain),
        "tables of several processes that name no device": len(tables) > 1,
    })  # fmt: skip
    values = {
        **_banner(plain),
        "devices": sorted(set(devices)),
        "device": devices[0] if len(tables) == 1 and len(devices) == 1 else None,
        "attributable": len(tables) == 1,
        "tables": tables,
        "best_gb_s": largest(row["gb_s"] for table in tables for row in table["rows"].values()),
        "validation": "failed" if failure else None,
    }
    if failure:
        return result(FAILED, shortened(f"validation failed: {failure[0]}"), **values)
    return result(PARTIAL if reason else OK, reason, **values)


def _without_table(text, banners, failure, words):
    if words and not failure:
        return result(UNAVAILABLE, words)
    error = found(r"^(Error: .+|Invalid device index.*|FAILED .+)$", text)
    if banners and (failure or error):
        return result(FAILED, shortened(failure[0] if failure else error), **_banner(text), tables=[])
    if banners:
        return result(PARTIAL, "ends before the table", **_banner(text), tables=[])
    return unparsed()


def _banner(text):
    """What stands above the table; in an interleaved output the first of each."""
    precision = found(r"^Precision: (\w+)", text)
    size = re.search(r"^Array size: ([0-9.]{1,18}) (K|M|G)(i?)B", text, re.MULTILINE)
    base = 1024 if size and size[3] else 1000
    power = {"K": 1, "M": 2, "G": 3}[size[2]] if size else 0
    return {
        "version": found(r"^Version: (\S+)", text),
        "implementation": found(r"^Implementation: (.+)$", text),
        "runs": whole(found(r"^Running kernels ([0-9]{1,9}) times", text)),
        "precision": precision,
        "dtype": DTYPES.get(precision),
        "array_bytes_about": round(number(size[1]) * base**power) if size and number(size[1]) is not None else None,
        "driver": found(r"^Driver: (\S+)", text),
    }


def _tables(lines):
    """Tables in text form; the rows of a header follow it without a gap."""
    tables, table = [], None
    for line in lines:
        header = HEADER.match(line)
        triad = re.match(r"\s*Bandwidth \(GB/s\):\s+([0-9.]+)$", line)
        if header and header[1] in UNITS:
            table = {"unit": header[1], "rows": {}, "csv": False, "triad_only": False, "cut": False}
            tables.append(table)
        elif triad and number(triad[1]) is not None:
            row = {"gb_s": number(triad[1]), "min_s": None, "max_s": None, "average_s": None}
            tables.append({"unit": "GB/s", "rows": {"Triad": row}, "csv": False, "triad_only": True, "cut": False})
        elif table is not None and line.strip():
            name, *words = line.split()
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]{1,11}", name):
                table = None
            elif (row := _row(words, UNITS[table["unit"]])) is None:
                table["cut"] = True
            else:
                table["rows"].setdefault(name, row)
    return tables


def _row(words, factor):
    """Rate and times; every one is printed with fixed decimals, so a shorter one was cut."""
    if len(words) != 4 or fixed(words[0], 3) is None or None in (times := [fixed(word, 5) for word in words[1:]]):
        return None
    return {"gb_s": round(number(words[0]) * factor, 9), "min_s": times[0], "max_s": times[1], "average_s": times[2]}


def _csv_tables(lines):
    """The table of `--csv`; its rates have six digits."""
    at = next((at for at, line in enumerate(lines) if line.startswith(CSV_HEADER)), None)
    if at is None:
        return []
    names = lines[at].split(",")
    rate = next((name for name in names if name.startswith("max_") and name.endswith("_per_sec")), None)
    factor = {"max_mbytes_per_sec": 1e-3, "max_mibytes_per_sec": 2**20 / 1e9}.get(rate)
    table = {"unit": rate, "rows": {}, "csv": True, "triad_only": False, "cut": False}
    for line in lines[at + 1 :]:
        cells = dict(zip(names, line.split(","), strict=False))
        if factor is None or len(cells) < len(names) or number(cells[rate]) is None:
            table["cut"] |= bool(line.strip())
            continue
        times = [number(cells.get(name)) for name in ("min_runtime", "max_runtime", "avg_runtime")]
        row = {"gb_s": round(number(cells[rate]) * factor, 9), "min_s": times[0], "max_s": times[1], "average_s": times[2]}
        table["rows"].setdefault(cells["function"].strip().capitalize(), row)
    return [table] if table["rows"] else []


def find(environ=None):
    """{program: path}."""
    return find_programs(PROGRAMS, VARIABLES, environ)


def commands(device, programs, folder, gpus=1):
    """One run on this device. Arrays outgrow the last-level cache four times and leave most of the memory free."""
    name = next((name for name in BY_STACK.get(device.stack, ()) if name in programs), None)
    if name is None:
        return []
    cpu = device.stack == "cpu"
    wanted = max(CPU_ARRAY_BYTES if cpu else GPU_ARRAY_BYTES, 4 * (device.llc_bytes or 0))
    elements = min(wanted, device.memory_bytes // 8) // 8 // 1024 * 1024
    where = [] if cpu else ["--device", str(device.index or 0)]
    return [[programs[name], *where, "-s", str(elements), "-n", "20" if cpu else "50"]]


def metrics(parsed):
    """Best run of each operation. Triad reads two arrays and writes one, as axpy does; Dot reads two, as sum reads one."""
    if not usable(parsed) or not parsed.get("attributable"):
        return []
    rows, more = parsed["tables"][0]["rows"], {"dtype": parsed["dtype"], "size_bytes": parsed["array_bytes_about"]}
    return [
        entry
        for name, operation in OURS.items()
        if name in rows
        for entry in memory(operation, rows[name]["gb_s"], statistic="best run", **more)
    ]
