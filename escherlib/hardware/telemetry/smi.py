"""Sensors through a program, the last resort: amd-smi, rocm-smi or nvidia-smi, one run a sample.

Each run has a deadline, after which its whole process group is killed; what it prints is read by the parsers of
hardware/parsers. The device is found by the PCI address (or UUID) that the program itself shows, never by an index
alone. A value is of some moment inside the run, so a sample is never closer to the next than a run takes.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import time

from escherlib.hardware.parsers import amd_smi, nvidia_smi, rocm_smi
from escherlib.hardware.parsers.contract import USABLE, read
from escherlib.hardware.parsers.smi_text import bdf_of
from escherlib.hardware.telemetry.source import AMD_LIMITS, Reader, Source, amd_mask, since_first

DEADLINE_S = 3.0
SLICE_S = 0.05  # how soon the end of the sampler is noticed during a run
SHORTEST_S = 0.5
LIMIT_BYTES = 4 * 2**20  # no output of these programs is larger
FIELDS = {  # canonical field → decimals
    "power_w": 1, "clock_mhz": 0, "temperature_c": 0, "memory_clock_mhz": 0, "memory_temperature_c": 0, "utilisation_pct": 0,
    "power_limit_w": 0, "energy_j": 2, "limit_mask": 0,
}  # fmt: skip
ROCM_QUERY = ("--showbus", "--showpower", "--showmaxpower", "--showenergycounter", "--showtemp", "--showuse", "--showclocks", "--json")
QUERY = (
    "pci.bus_id", "power.draw.instant", "power.draw", "enforced.power.limit", "temperature.gpu", "temperature.memory",
    "utilization.gpu", "clocks.sm", "clocks.mem", "clocks_event_reasons.active", "memory.used", "mig.mode.current",
)  # fmt: skip
OLDER = {"clocks_event_reasons.active": "clocks_throttle_reasons.active", "enforced.power.limit": "power.limit"}
UNITS = {"memory.used": "memory.used [MiB]"}
AVERAGING = {
    "average": "average, as the firmware makes it", "current": "current", "instant": "instant",
    "socket": "of the socket; current or average is not said", "default": "average of the last second",
}  # fmt: skip
LAG_S = {"default": 1.0}


class NoAnswer(Exception):
    """The program gave nothing of use; the message says why."""


def open_source(job):
    """The program named by job["source"] as a Source. NoAnswer or LookupError where it gives no values of the device."""
    tool = job["source"]
    program = path_of(tool)
    if program is None:
        raise NoAnswer(f"no {tool} on PATH")
    ended = job.get("ended") or (lambda: False)
    ask = ASKERS[tool](lambda *arguments: run([program, *arguments], ended), bdf_of(job.get("bdf")), job.get("uuid"))
    begun = time.monotonic()
    gpu = ask()
    took_s = time.monotonic() - begun
    bits = nvidia_smi.REASONS if tool == "nvidia-smi" else {1 << bit: name for bit, name in enumerate(AMD_LIMITS)}
    values = _values(gpu, bits)
    absent = {name: _why(gpu, name, tool) for name, value in values.items() if value is None}
    names = [name for name in FIELDS if name not in absent]
    if not names:
        raise NoAnswer(f"{tool} shows no sensor of this device")
    return Source(
        name=tool,
        readers=tuple(_readers(names, lambda: _values(ask(), bits), gpu["power_kind"])),
        interval_s=max(SHORTEST_S, round(took_s, 2)),
        permanent=lambda error: False,  # a program that failed may work again
        absent=absent,
        limit_bits=bits,
        notes=tuple(_notes(gpu)),
    )


def path_of(tool):
    """The program's path, on PATH or where ROCm puts it; None where it is not there."""
    return shutil.which(tool) or shutil.which(tool, path=os.path.join(os.environ.get("ROCM_PATH") or "/opt/rocm", "bin"))


def run(command, ended=lambda: False, deadline_s=None):
    """What a program prints on stdout within the deadline. NoAnswer for everything else; its exit code says nothing.

    `ended()`: whether to give up. The program gets a session of its own, so that all it started can be killed.
    """
    name = os.path.basename(command[0])
    until = time.monotonic() + (DEADLINE_S if deadline_s is None else deadline_s)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            start_new_session=True, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        raise NoAnswer(f"{name} could not be started: {error.strerror}") from error
    try:
        text = _output(process, name, until, ended)
    finally:
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
    if not text.strip():
        raise NoAnswer(f"{name} printed nothing")
    return text.decode(errors="replace")


def _output(process, name, until, ended):
    """Everything on stdout until the program ends."""
    text, pipe = b"", process.stdout.fileno()
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise NoAnswer(f"{name} gave no answer in time")
        if ended():
            raise NoAnswer(f"{name}: sampling ends")
        if not select.select([pipe], [], [], min(left, SLICE_S))[0]:
            continue
        data = os.read(pipe, 65536)
        if not data:
            break
        text += data
        if len(text) > LIMIT_BYTES:
            raise NoAnswer(f"{name} printed more than {LIMIT_BYTES >> 20} MiB")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(SLICE_S, until - time.monotonic()))
    return text


def parsed(tool, parser, text):
    """A parser's result; NoAnswer with its reason where it is of no use."""
    found = read(parser.parse, text)
    if found["status"] not in USABLE:
        raise NoAnswer(f"{tool}: {found['reason']}")
    return found


def pick(tool, gpus, bdf):
    """The record with this PCI address; a partition that is not listed stands for its card. LookupError without one."""
    shown = {gpu["bdf"]: gpu for gpu in gpus if gpu["bdf"]}
    card = {address.rpartition(".")[0]: gpu for address, gpu in reversed(shown.items())}
    found = shown.get(bdf) or card.get((bdf or "").rpartition(".")[0])
    if found is None:
        raise LookupError(f"{tool} does not show this device")
    return found


def _ask_amd(call, bdf, uuid):
    """amd-smi: `metric` shows indices only; `list` says whose they are."""
    listed = pick("amd-smi", parsed("amd-smi", amd_smi, call("list", "--json"))["gpus"], bdf)["index"]

    def ask():
        found = parsed("amd-smi", amd_smi, call("metric", "--gpu", str(listed), "--json"))
        gpu = next((gpu for gpu in found["gpus"] if gpu["index"] == listed), None)
        if gpu is None:
            raise LookupError("amd-smi does not show this device")
        return gpu

    return ask


def _ask_rocm(call, bdf, uuid):
    return lambda: pick("rocm-smi", parsed("rocm-smi", rocm_smi, call(*ROCM_QUERY))["gpus"], bdf)


def _ask_nvidia(call, bdf, uuid):
    """nvidia-smi: fields that a driver does not know are replaced by their older names, or left out."""
    bdf = bdf or _address(call("--query-gpu=uuid,pci.bus_id", "--format=csv,noheader"), uuid)
    columns = list(QUERY)

    def ask():
        for _ in range(2 * len(QUERY)):
            text = call(f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits")
            unknown = re.search(r'Field "([^"]+)" is not a valid field', text)
            if not unknown or unknown[1] not in columns:
                break
            place = columns.index(unknown[1])
            columns[place : place + 1] = [OLDER[unknown[1]]] if unknown[1] in OLDER else []
        head = ", ".join(UNITS.get(column, column) for column in columns)
        refusal = read(nvidia_smi.parse, text)
        if refusal["status"] != "failed" and not refusal["gpus"]:
            raise NoAnswer(f"nvidia-smi: {refusal['reason']}")
        found = parsed("nvidia-smi", nvidia_smi, f"{head}\n{text}")
        return pick("nvidia-smi", found["gpus"], bdf)

    return ask


def _address(text, uuid):
    """PCI address of a UUID in `uuid, pci.bus_id` lines; torch leaves the prefix of a UUID out."""
    bare = re.sub("^(GPU|MIG)-", "", uuid or "")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return next((bdf_of(row[1]) for row in rows if len(row) == 2 and bare and row[0] in (bare, f"GPU-{bare}")), None)


ASKERS = {"amd-smi": _ask_amd, "rocm-smi": _ask_rocm, "nvidia-smi": _ask_nvidia}


def _values(gpu, bits):
    """Canonical values of a parser's record."""
    mask = None
    if gpu["limits"] is not None and bits is nvidia_smi.REASONS:
        by_name = {name: bit for bit, name in bits.items()}
        mask = sum(by_name.get(name) or 1 << int(name.removeprefix("bit ")) for name in gpu["limits"])
    elif gpu["limits"] is not None:
        mask = amd_mask(gpu["limits"])
    return {name: mask if name == "limit_mask" else gpu[name] for name in FIELDS}


def _why(gpu, name, tool):
    return f"{tool}: {gpu['absent'].get('limits' if name == 'limit_mask' else name) or 'not said'}"


def _readers(names, ask, power_kind):
    """One reader a field, so that one that is null takes no other along; the first runs the program for all."""
    state = {"values": None, "error": NoAnswer("not asked yet")}

    def fresh():
        state["values"] = None
        try:
            state["values"] = ask()
        except Exception as error:
            state["error"] = error
            raise

    def value_of(name):
        def value():
            if name == names[0]:
                fresh()
            if state["values"] is None:
                raise state["error"]
            return state["values"][name]

        return value

    for name in names:
        read_one = since_first(value_of(name)) if name == "energy_j" else value_of(name)
        power = name == "power_w"
        yield Reader(
            (name,), lambda read_one=read_one: (read_one(),), FIELDS[name],
            averaging=AVERAGING.get(power_kind) if power else None, span_s=LAG_S.get(power_kind, 0.0) if power else 0.0,
        )  # fmt: skip


def _notes(gpu):
    mode = gpu.get("compute_partition")
    if mode and mode != "SPX":
        yield f"compute partitions ({mode}): sensors are the whole card's"
    if gpu.get("mig") == "enabled":
        yield "MIG is on: sensors are the whole card's"
    if gpu["temperature_kind"] == "edge":
        yield "temperature_c is the edge sensor's"
