"""Running validators and reading what they, or saved logs of them, say.

The notebook calls these through escherlib.tools.measured; escherlib.judge.validation makes the table. An outcome is
{tool, command, status, reason, source, reading, exit_code, seconds, stdout, stderr, parsed, metrics}:
  status   ok · absent (no such program, or not for this device) · unavailable (it says that it can't work here) ·
           timed out · crashed (exit code or signal) · failed (it reports an error) · unparsed (no evidence, whatever the exit
           code says: never a pass)
  source   external (a program ran here) · import (a saved log) · replay (a stand-in printed a saved log)
  reading  the parser's own word: ok, partial, failed, unavailable
"""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from importlib import import_module
from pathlib import Path

from escherlib import tools
from escherlib.hardware.parsers.contract import FAILED, UNAVAILABLE, UNPARSED, USABLE, read
from escherlib.tools.finding import where_searched

LIMIT_BYTES = 16 * 2**20  # kept of each stream; the rest is read and dropped, so that the tool isn't held up
GRACE_S = 2.0  # from asking a program to end to ending it
REPLAY = "ESCHER_REPLAY"
MARKER = re.compile(r"^# replay\b", re.MULTILINE)
EXTERNAL, IMPORT, REPLAYED = "external", "import", "replay"


def module_of(tool):
    """The module of a validator: PROGRAMS, STACKS, VARIABLES, DEADLINE_S, find, commands, parse, metrics."""
    return import_module(f"escherlib.tools.{tools.MODULES[tool]}")


def suited(device):
    """Names of the validators for this device's stack (cuda, rocm, cpu)."""
    return [tool for tool in tools.MODULES if device.stack in module_of(tool).STACKS]


def validate(tool, device, folder, gpus=1, deadline_s=None, environ=None):
    """{"outcomes": [one per command]} of a validator on this device; all output stays in `folder`.

    gpus: devices of this host that may be used. deadline_s: of each command; default the tool's own.
    """
    environ = dict(os.environ) if environ is None else environ
    module = module_of(tool)
    if device.stack not in module.STACKS:
        return _nothing(tool, f"for {' and '.join(module.STACKS)} devices; this one is {device.stack}")
    programs = module.find(environ)
    if not programs:
        return _nothing(tool, where_searched(module.PROGRAMS, module.VARIABLES))
    argvs = module.commands(device, programs, Path(folder), gpus=gpus)
    if not argvs:
        return _nothing(tool, f"needs two devices; {gpus} is visible" if gpus < 2 else f"no program of it fits {device.stack}")
    more = getattr(module, "ENV", {})
    outcomes = []
    for argv in argvs:
        ran = run(argv, folder, deadline_s or module.DEADLINE_S, env={**environ, **more})
        outcomes.append(outcome(tool, ran, folder, replayed=environ.get(REPLAY) == "1"))
    return {"outcomes": outcomes}


def imported(tool, folder):
    """Outcomes of all files below `folder` whose text is this tool's output; names carry no information.

    A TransferBench output is read under that name alone, also where rocm-bandwidth-test ran it.
    """
    found = []
    for path in sorted(Path(folder).rglob("*")):
        if not path.is_file() or path.stat().st_size > LIMIT_BYTES:
            continue
        text = path.read_bytes().decode("utf-8", errors="replace")
        parsed = read(module_of(tool).parse, text)
        foreign = str(parsed["reason"]).startswith(UNPARSED) or parsed["status"] == UNAVAILABLE or parsed.get("plugin")
        if not foreign:
            source = REPLAYED if MARKER.search(text) else IMPORT
            status = "ok" if parsed["status"] in USABLE else FAILED
            found.append(_outcome(tool, status, parsed["reason"], source, parsed, stdout=str(path.relative_to(folder))))
    return found


def run(argv, folder, deadline_s, env=None):
    """Run one program in a process group of its own; what it prints goes to two files as it comes.

    env: the whole environment (default: this process's). Returns {argv, status, reason, exit_code, seconds, stdout,
    stderr (file names in `folder`), clipped}; status ok, absent, timed out or crashed. Nothing is raised.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = _file_names(folder, Path(argv[0]).name)
    ran = {
        "argv": [Path(argv[0]).name, *argv[1:]], "status": "absent", "reason": None, "exit_code": None, "seconds": None,
        "stdout": names[0], "stderr": names[1], "clipped": False,
    }  # fmt: skip
    begun = time.monotonic()
    try:
        process = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**(os.environ if env is None else env), "LC_ALL": "C"}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return {**ran, "reason": f"{ran['argv'][0]} can't be started: {error.strerror}", "stdout": None, "stderr": None}
    clipped = []
    pumps = [
        threading.Thread(target=_pump, args=(stream, folder / name, clipped), daemon=True)
        for stream, name in zip((process.stdout, process.stderr), names, strict=True)
    ]
    for pump in pumps:
        pump.start()
    try:
        timed_out = _wait(process, deadline_s)
    finally:
        _end(process)
        for pump in pumps:
            pump.join(GRACE_S)
    code = process.returncode
    ran |= {"exit_code": code, "seconds": time.monotonic() - begun, "clipped": bool(clipped)}
    if timed_out:
        return {**ran, "status": "timed out", "reason": f"ended after {deadline_s:g} s"}
    if code:
        words = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return {**ran, "status": "crashed", "reason": words}
    return {**ran, "status": "ok"}


def outcome(tool, ran, folder, replayed=False):
    """What a run says: its status and what the tool's parser finds in its output and error output together."""
    if ran["stdout"] is None:
        return _outcome(tool, ran["status"], ran["reason"], EXTERNAL, {"status": FAILED, "reason": UNPARSED}, **_kept(ran))
    text = "\n".join(_text(Path(folder) / ran[name]) for name in ("stdout", "stderr"))
    parsed = read(module_of(tool).parse, text)
    source = REPLAYED if replayed or MARKER.search(text) else EXTERNAL
    status, reason = ran["status"], ran["reason"]
    if status == "ok" and parsed["status"] not in USABLE:
        unparsed = str(parsed["reason"]).startswith(UNPARSED)
        status = UNPARSED if unparsed else parsed["status"]
        reason = "exit code 0, but nothing in its output is evidence of a result" if unparsed else parsed["reason"]
    elif parsed["reason"] and not str(parsed["reason"]).startswith(UNPARSED):
        reason = f"{reason}: {parsed['reason']}" if reason else parsed["reason"]
    if ran["clipped"]:
        reason = "; ".join(filter(None, [reason, f"output kept up to {LIMIT_BYTES >> 20} MiB"]))
    return _outcome(tool, status, reason, source, parsed, **_kept(ran))


def _kept(ran):
    """Of a run, what an outcome keeps; folders of the machine stay out of it."""
    command = [Path(word).name if word.startswith("/") else word for word in ran["argv"]]
    return {"command": command} | {key: ran[key] for key in ("exit_code", "seconds", "stdout", "stderr", "clipped")}


def _outcome(tool, status, reason, source, parsed, **more):
    blank = dict.fromkeys(("command", "exit_code", "seconds", "stdout", "stderr"))
    return {
        "tool": tool, "status": status, "reason": reason, "source": source, **blank, **more, "reading": parsed["status"],
        "parsed": parsed, "metrics": module_of(tool).metrics(parsed),
    }  # fmt: skip


def _nothing(tool, reason):
    return {"outcomes": [_outcome(tool, "absent", reason, EXTERNAL, {"status": UNAVAILABLE, "reason": reason})]}


def _wait(process, deadline_s):
    """True where the program had to be told to end."""
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        return True
    return False


def _end(process):
    """End what is left of the group: the program itself, and children that outlived it."""
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process, number):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _pump(stream, path, clipped):
    """Copy a stream into a file, unbuffered, up to LIMIT_BYTES; what comes after is read and dropped."""
    left = LIMIT_BYTES
    with stream, open(path, "wb", buffering=0) as file:
        while chunk := os.read(stream.fileno(), 2**16):
            file.write(chunk[:left])
            if len(chunk) > left:
                clipped.append(str(path))
            left = max(0, left - len(chunk))


def _file_names(folder, program):
    """Two names that don't exist yet."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", program)[:60]
    serial = 1
    while (folder / f"{safe}-{serial:02d}.stdout").exists():
        serial += 1
    return f"{safe}-{serial:02d}.stdout", f"{safe}-{serial:02d}.stderr"


def _text(path):
    return path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
