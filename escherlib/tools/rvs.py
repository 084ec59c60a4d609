"""rvs, the ROCm Validation Suite: one module per action, each with lines of its own form.

gst: GFLOPS of GEMMs (decimal); the closing value is the best interval, samples of the ramp are no result. The number format
stands in the configuration, in the text only in the action's name, which may lie: `dtype_named`. pbqt and pebb: decimal
GB/s, bytes count once, `bidirectional: true` is both directions. mem test 11 prints a bandwidth without a GPU. iet prints
power samples. babel: rates in MiB/s or MB/s, as the header says. The exit code says nothing; verdicts do.
"""

import json
import re

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, result, unparsed
from escherlib.tools.figures import copy, figure, memory, middle, usable
from escherlib.tools.finding import find_programs
from escherlib.tools.rvs_actions import written
from escherlib.tools.text import cannot, elided, found, largest, lines_of, missing, number, shortened, smallest, whole

STACKS = ("rocm",)
PROGRAMS = ("rvs",)
VARIABLES = ("ESCHER_RVS",)
DEADLINE_S = 240
BABEL = {"Copy": "copy", "Mul": "mul", "Add": "add", "Triad": "axpy", "Dot": "sum"}
LEVEL = re.compile(r"\[(RESULT|INFO|ERROR|WARN)\s*\]\s*\[\s*[0-9]+\.[0-9]*\s*\]\s*(?:\[([^\]:]+)\]\s*)?(.*)")
GPU = r"(?:\[GPU::\s*(?:[0-9]+ - )?([0-9]{1,9})(?: - [0-9a-fA-F:.]+)?\]|([0-9]{1,9}))"
GST = re.compile(
    r"(?:\[GPU::\s*([0-9]{1,9})\]|gst ([0-9]{1,9}))\s+GFLOPS ([0-9.]{1,18})"
    r"(?:\s+Target (?:GFLOPS|stress)\s*:\s*([0-9.]{1,18})\s+met\s*:\s*(TRUE|FALSE))?"
)
P2P = re.compile(rf"p2p-bandwidth\s*\[\s*([0-9]{{1,6}})/([0-9]{{1,6}})\]\s*{GPU}\s+{GPU}\s+bidirectional:\s*(true|false)\s+(\S+)\s*GBps")
PCIE = re.compile(
    rf"pcie-bandwidth\s*\[\s*([0-9]{{1,6}})/([0-9]{{1,6}})\]\s*(?:\[CPU::\s*([0-9]{{1,4}})\]|([0-9]{{1,4}}))\s+{GPU}\s+"
    r"h2d::?\s*(true|false)\s+d2h::?\s*(true|false)\s+(\S+)\s*GBps"
)
PEERS = re.compile(rf"p2p {GPU}\s+{GPU}\s+peers:(true|false)\s+distance:(-?[0-9]{{1,9}})(?:\s+(\w+):([0-9]{{1,9}}))?")
MEM = re.compile(r"mem Test ([0-9]{1,2})\s*:\s*(PASS|FAIL)?(?:elapsedtime = ([0-9.]{1,18})\s+bandwidth = ([0-9.]{1,18})\s*GB/s)?")
DTYPE = re.compile(r"(fp8|bf16|fp16|fp32|fp64|xf32|i8|sgemm|hgemm|dgemm)", re.IGNORECASE)
NAMED = {"sgemm": "fp32", "hgemm": "fp16", "dgemm": "fp64", "i8": "int8", "xf32": "tf32"}
LISTED = re.compile(
    r"^([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])\s+- GPU\[\s*([0-9]{1,6})\s*-\s*([0-9]{1,9})\s*\]"
    r"\s+(.+?)\s+\(Device [0-9]{1,9}\)"
)
CLOSED = re.compile(r"(?:TRUE|FALSE|PASS|FAIL|secs?|ms|GBps|GB/s|\.\.\.|\(Device [0-9]+\)|[A-Za-z]:-?[0-9]+|[}|])$")  # how whole lines end
BABEL_UNITS = {"MiBytes/sec": 2**20 / 1e9, "MBytes/sec": 1e-3}
MEASURES = ("gpus", "gst", "iet", "mem", "p2p", "pcie", "peers", "peqt", "violations", "properties", "babel")


def parse(text):
    """Everything the modules say, by module, with verdicts per GPU id (that of the kernel driver, KFD)."""
    values = _empty() | {"version": found(r"ROCm Validation Suite \(version (\S+?)\)", text)}
    lines = lines_of(text)
    state = {"action": None, "ramp": set(), "last": len(lines) - 1 if lines and lines[-1] else None}
    for at, line in enumerate(lines):
        _read_line(values, state, line, at == state["last"])
    broken_json = _read_json(values, text)
    _babel(values, lines)
    _derive(values)
    errors = [shortened(error) for error in re.findall(r"RVS-ERROR\s+(?:\[\w+\]\s*)?(.*)", text)] + values.pop("errors")
    if not any(values[name] for name in MEASURES):
        words = cannot(text)
        return (
            result(FAILED, errors[0] or "error", **values) if errors else result(UNAVAILABLE, words) if words else unparsed()
        )
    unmet = _unmet(values)
    reason = missing({
        "parts were left out by the source": elided(text),
        "the JSON is cut": broken_json,
        "ends inside a line": not text.endswith("\n") and not CLOSED.search(text.rstrip(" \t")),
        "an action has no verdict": _without_verdict(values),
        "pairs are missing": _pairs_missing(values),
    })  # fmt: skip
    values |= {"truncated": bool(reason), "validation": "failed" if unmet else "passed" if _met(values) and not errors else None}
    if errors or unmet:
        return result(FAILED, (errors or [f"validation failed: {unmet}"])[0], **values)
    return result(PARTIAL if reason else OK, reason, **values)


def _empty():
    return {
        "version": None, "gpus": [], "actions": [], "gst": [], "iet": [], "mem": {}, "p2p": [], "pcie": [], "peers": [],
        "peqt": [], "violations": {}, "properties": {}, "babel": [], "verdicts": [], "errors": [],
    }  # fmt: skip


def _read_line(values, state, line, open_end):
    """One line. `open_end`: the text ends inside it, so that a number at its end may be cut."""
    gpu = LISTED.match(line)
    if gpu:
        values["gpus"].append({"bus": gpu[1], "node": int(gpu[2]), "gpu_id": int(gpu[3]), "name": gpu[4]})
    parts = LEVEL.search(line)
    if not parts:
        return
    level, action, rest = parts[1], parts[2], parts[3].strip()
    named = re.match(r"Action name :\s*(\S+)", rest)
    if named:
        values["actions"].append({"name": named[1], "module": None})
    module = re.match(r"Module name :\s*(\S+)", rest)
    if module and values["actions"]:
        values["actions"][-1]["module"] = module[1]
    if level == "ERROR":
        values["errors"].append(shortened(rest))
    _stress(values, state, action, rest, open_end)
    _links(values, action, rest, level)
    _memory(values, rest)
    if not open_end:
        _facts(values, rest)


def _stress(values, state, action, rest, open_end):
    """gst and iet."""
    ramp = re.match(r"\[GPU::\s*([0-9]{1,9})\] (Start|End) of GPU ramp up", rest)
    if ramp:
        (state["ramp"].add if ramp[2] == "Start" else state["ramp"].discard)((action, int(ramp[1])))
    gst = GST.match(rest)
    if gst and number(gst[3]) is not None and not (open_end and not gst[5]):
        row = _row(values["gst"], action, int(gst[1] or gst[2]), {
            "dtype_named": _dtype(action), "samples_gflops": [], "ramp_gflops": [], "gflops": None, "target_gflops": None, "met": None,
        })  # fmt: skip
        if gst[5]:
            row |= {"gflops": number(gst[3]), "target_gflops": number(gst[4]), "met": gst[5] == "TRUE"}
            state["ramp"].discard((action, row["gpu_id"]))
        else:
            kind = "ramp_gflops" if (action, row["gpu_id"]) in state["ramp"] else "samples_gflops"
            row[kind].append(number(gst[3]))
    power = re.match(r"\[GPU::\s*([0-9]{1,9})\] Power\(W\)\s+([0-9]+\.[0-9]{6})$", rest)
    if power:
        row = _row(values["iet"], action, int(power[1]), {"power_samples_w": [], "passed": None})
        row["power_samples_w"].append(number(power[2]))
    verdict = re.match(r"\[GPU::\s*([0-9]{1,9})\] pass:\s*(TRUE|FALSE)", rest)
    if verdict:
        passed = verdict[2] == "TRUE"
        values["verdicts"].append({"action": action, "gpu_id": int(verdict[1]), "passed": passed})
        if any(a["name"] == action and a["module"] == "iet" for a in values["actions"]):
            _row(values["iet"], action, int(verdict[1]), {"power_samples_w": [], "passed": None})["passed"] = passed


def _row(rows, action, gpu_id, blank):
    """The row of an action and GPU, made where it isn't there yet."""
    for row in rows:
        if (row["action"], row["gpu_id"]) == (action, gpu_id):
            return row
    rows.append({"action": action, "gpu_id": gpu_id, **blank})
    return rows[-1]


def _dtype(action):
    match = DTYPE.search(action or "")
    return NAMED.get(match[1].lower(), match[1].lower()) if match else None


def _links(values, action, rest, level):
    """pbqt, pebb and peqt. A sample in between is marked `(*)` or stands at another level than RESULT."""
    interim = level != "RESULT" or "(*)" in rest
    if match := P2P.search(rest):
        n, of, s1, s2, d1, d2, both, rate = match.groups()
        values["p2p"].append({
            "action": action, "number": int(n), "of": int(of), "source": int(s1 or s2), "destination": int(d1 or d2),
            "bidirectional": both == "true", "gb_s": number(rate), "interim": interim, "link": None, "passed": None,
        })  # fmt: skip
    elif match := PCIE.search(rest):
        n, of, c1, c2, g1, g2, h2d, d2h, rate = match.groups()
        values["pcie"].append({
            "action": action, "number": int(n), "of": int(of), "cpu": int(c1 or c2), "gpu_id": int(g1 or g2),
            "h2d": h2d == "true", "d2h": d2h == "true", "gb_s": number(rate), "interim": interim,
        })  # fmt: skip
    elif match := PEERS.search(rest):
        s1, s2, d1, d2, peers, distance, link, hops = match.groups()
        values["peers"].append({
            "source": int(s1 or s2), "destination": int(d1 or d2), "peers": peers == "true", "link": link,
            "distance": int(distance) if int(distance) >= 0 else None, "link_distance": whole(hops),
        })  # fmt: skip
    elif match := re.match(r"peqt (TRUE|FALSE)$", rest):
        values["peqt"].append({"action": action, "passed": match[1] == "TRUE"})


def _memory(values, rest):
    match = MEM.match(rest)
    if match:
        test = values["mem"].setdefault(match[1], {"starts": 0, "passes": 0, "fails": 0, "bandwidth_gb_s": []})
        test["passes"] += match[2] == "PASS"
        test["fails"] += match[2] == "FAIL"
        if match[4] and number(match[4]) is not None:
            test["bandwidth_gb_s"].append(number(match[4]))
        elif not match[2]:
            test["starts"] += 1


def _facts(values, rest):
    """gm and gpup."""
    if match := re.match(r"gm ([0-9]{1,9}) (\w+) violations ([0-9]{1,9})$", rest):
        values["violations"].setdefault(match[1], {})[match[2]] = int(match[3])
    if match := re.match(r"gpup ([0-9]{1,9}) (?:([0-9]{1,3}) )?([a-zA-Z_]\w*) (-?[0-9]{1,18})$", rest):
        facts = values["properties"].setdefault(match[1], {"links": {}})
        (facts if match[2] is None else facts["links"].setdefault(match[2], {}))[match[3]] = int(match[4])


def _read_json(values, text):
    """Flat objects of `-j`; numbers and booleans are strings there. True where the whole is no valid JSON."""
    if not re.search(r'"(?:srcgpu|gpu_id|throughput)"\s*:', text):
        return False
    for match in re.finditer(r"\{[^{}]{1,4000}\}", text):
        try:
            item = json.loads(match[0])
        except (ValueError, RecursionError):
            continue
        rate = re.fullmatch(r"([0-9.]{1,18})\s*GBps", str(item.get("throughput")))
        source, destination = whole(str(item.get("srcgpu"))), whole(str(item.get("dstgpu")))
        if None in (rate, source, destination):
            continue
        passed = {"true": True, "false": False}.get(str(item.get("pass")).lower())
        values["p2p"].append({
            "action": None, "number": None, "of": None, "source": source, "destination": destination, "bidirectional": None,
            "gb_s": number(rate[1]), "interim": False, "link": item.get("intf") if isinstance(item.get("intf"), str) else None,
            "passed": passed,
        })  # fmt: skip
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _babel(values, lines):
    """Tables of babel: the first figure of a row is the best rate, in the header's unit."""
    factor = unit = None
    for line in lines:
        header = re.search(r"GPU Id\s+Function\s+(MiBytes/sec|MBytes/sec)", line)
        if header:
            unit, factor = header[1], BABEL_UNITS[header[1]]
        row = re.match(r"\s*([0-9]{1,9})\s+(Copy|Mul|Add|Triad|Dot)\s+([0-9]+\.[0-9]{3})\s", line)
        if row and factor and number(row[3]) is not None:
            values["babel"].append({"gpu_id": int(row[1]), "function": row[2], "gb_s": round(number(row[3]) * factor, 9), "unit": unit})


def _derive(values):
    final = [row for row in values["p2p"] if not row["interim"]]
    for name, both in (("p2p_unidirectional_max_gb_s", False), ("p2p_bidirectional_max_gb_s", True)):
        values[name] = largest(row["gb_s"] for row in final if row["bidirectional"] is both)
    values["p2p_unstated_max_gb_s"] = largest(row["gb_s"] for row in final if row["bidirectional"] is None)
    rates = values["mem"].get("11", {}).get("bandwidth_gb_s", [])
    values["mem_bandwidth"] = {
        "max_gb_s": largest(rates), "min_gb_s": smallest(rates), "mean_gb_s": sum(rates) / len(rates) if rates else None,
    }  # fmt: skip


def _unmet(values):
    """What failed by the suite's own verdict, in words, or None."""
    told = [f"gst {row['action']} GPU {row['gpu_id']}: target not met" for row in values["gst"] if row["met"] is False]
    told += [f"{row['action']} GPU {row['gpu_id']}: pass FALSE" for row in values["verdicts"] if not row["passed"]]
    told += [f"mem test {name}: FAIL" for name, test in values["mem"].items() if test["fails"]]
    told += [f"peqt {row['action']}: FALSE" for row in values["peqt"] if not row["passed"]]
    told += [f"p2p {row['source']} to {row['destination']}: not passed" for row in values["p2p"] if row["passed"] is False]
    return shortened("; ".join(told)) or None


def _met(values):
    return bool(
        any(row["met"] for row in values["gst"]) or values["verdicts"] or values["peqt"]
        or any(test["passes"] for test in values["mem"].values()) or any(row["passed"] for row in values["p2p"])
    )  # fmt: skip


def _without_verdict(values):
    started = {a["name"] for a in values["actions"] if a["module"] in ("gst", "iet")}
    judged = {row["action"] for row in values["gst"] if row["met"] is not None} | {row["action"] for row in values["verdicts"]}
    return bool(
        started - judged
        or any(row["met"] is None for row in values["gst"])
        or any(row["passed"] is None for row in values["iet"])
        or any(test["passes"] + test["fails"] < max(test["starts"], len(test["bandwidth_gb_s"])) for test in values["mem"].values())
    )


def _pairs_missing(values):
    """True where `[n/of]` counts more pairs than there are final rows of an action and direction."""
    groups = {}
    for row in [*values["p2p"], *values["pcie"]]:
        key = (row["action"], row.get("bidirectional"), row.get("h2d"), row["of"])
        groups.setdefault(key, set()).update([row["number"]] if not row["interim"] else [])
    return any(key[3] is not None and len(numbers) < key[3] for key, numbers in groups.items())


def find(environ=None):
    """{program: path}."""
    return find_programs(PROGRAMS, VARIABLES, environ)


def commands(device, programs, folder, gpus=1):
    """One run per module with our own configuration, written into `folder`; pairs only where there are two GPUs."""
    return [[programs[name], "-c", str(path)] for name in PROGRAMS if name in programs for path in written(folder, gpus)]


def metrics(parsed):
    """GEMM rates by the number format that the action names, babel's bandwidths, pairs and host copies."""
    if not usable(parsed):
        return []
    found = []
    for dtype in ("bf16", "fp32"):
        rates = [row["gflops"] for row in parsed["gst"] if row["dtype_named"] == dtype]
        value = middle(rates)
        found += figure(
            f"gemm_{dtype}_tflops", value and value / 1e3, dtype=dtype, statistic="best interval, median over devices",
            note="the number format is the action's word",
        )  # fmt: skip
    for name, operation in BABEL.items():
        rates = [row["gb_s"] for row in parsed["babel"] if row["function"] == name]
        found += memory(operation, middle(rates), statistic="best run, median over devices")
    final = [row for row in parsed["p2p"] if not row["interim"]]
    for metric, both in (("d2d", False), ("d2d_bidirectional", True)):
        rates = [row["gb_s"] for row in final if row["bidirectional"] is both]
        found += copy(f"{metric}_gb_s", largest(rates), statistic="best pair")
        found += copy(f"{metric}_min_gb_s", smallest(rates), statistic="slowest pair")
    for metric, way, other in (("h2d_gb_s", "h2d", "d2h"), ("d2h_gb_s", "d2h", "h2d")):
        rates = [row["gb_s"] for row in parsed["pcie"] if row[way] and not row[other] and not row["interim"]]
        found += copy(metric, largest(rates), statistic="best pair")
    return found
