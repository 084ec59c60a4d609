"""End to end: scopes of the whole stack, each path in a child process of its own that can be ended alone.

The child holds stack and device memory; this process holds none. Rows `e2e/{path}/{scope}` and `correct/{path}`.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

from escherlib.errors import Refused, UserError
from escherlib.kernels import operands
from escherlib.kernels.compiled import modes_for
from escherlib.method import method

CHILD = "escherlib.kernels.e2e_child"
SCOPES = ("eager", "compiled")
SCOPE_LIMIT_S = 600.0  # no answer for this long means stuck; a notebook's own deadline is usually shorter
LOG_TAIL_CHARS = 300
_alive = {}  # the one child there is: {"key": what it was opened for, "child": Child}


@method(version=1)
def time_scope(
    device, *, geometry, path, scope, bracket_gemm, backends=None, chunks=25, floor_forwards=4, floor_random=False,
    compile_modes=("default",), compile_budget_s=120.0, in_situ=True, protocol=None,
):  # fmt: skip
    """Time `chunks` chunks of the stack (the first is dropped), in turns with its matrix floor, between two brackets.

    `geometry`: geometry() of the workload as timed. `path` default or optimized, `scope` eager or compiled; compiled
    takes the fastest of `compile_modes`, each tried for at most `compile_budget_s`. `bracket_gemm`: {m, n, k, backend} of
    the peak. `backends`: {attention: backend} of the optimized path. `floor_forwards`: of the floor in each turn.

    Result: `states.sustained` (a sample is one chunk), `dropped_ns`, `floor`, `floor_random`, `brackets`, `throughput`,
    `how`, `compile`, `backends`, `health`, `memory`, `in_situ`, `scale`. Refused: out of memory, no mode that
    compiles, values that died.
    """
    if scope not in SCOPES:
        raise UserError(f"scope {scope!r}: unknown; expected one of {', '.join(SCOPES)}")
    operands.release(device)
    opened = {
        "device": device.asked, "geometry": geometry, "path": path, "backends": (backends or {}) if path == "optimized" else {},
        "bracket_gemm": bracket_gemm, "protocol": protocol or {},
    }  # fmt: skip
    request = {
        "scope": scope, "chunks": chunks, "floor_forwards": floor_forwards, "floor_random": floor_random, "in_situ": in_situ,
    }  # fmt: skip
    if scope == "compiled":
        modes = modes_for(path, device.kind, compile_modes)
        tried = try_modes(opened, modes, compile_budget_s)
        request |= {"mode": fastest(tried, path, device), "tried": tried}
    return child_for(opened).ask({"scope": request}, SCOPE_LIMIT_S)


def try_modes(opened, modes, budget_s):
    """Every mode tried in the child: [{mode, seconds, chunk_s or None, reason or None}]. A stuck one ends with the child."""
    tried = []
    for mode in modes:
        begun = time.monotonic()
        child = child_for(opened)  # opening a stack is no part of compiling it
        try:
            tried.append(child.ask({"compile": mode}, budget_s))
        except Stuck:
            reason = f"not compiled within {budget_s:g} s; ended"
            tried.append(_in_vain(mode, time.monotonic() - begun, reason))
        except (Refused, RuntimeError) as error:
            tried.append(_in_vain(mode, time.monotonic() - begun, str(error)))
    return tried


def _in_vain(mode, seconds, reason):
    return {"mode": mode, "seconds": seconds, "chunk_s": None, "reason": reason}


def fastest(tried, path, device):
    """The mode with the shortest chunk. Refused, with every reason, where there is none."""
    good = [entry for entry in tried if entry["chunk_s"]]
    if good:
        return min(good, key=lambda entry: entry["chunk_s"])["mode"]
    if not tried:
        raise Refused(f"the {path} path is compiled by capturing a graph, which needs a GPU" if device.kind == "cpu" else
                      "no compile mode was asked for")  # fmt: skip
    raise Refused("nothing compiled: " + "; ".join(f"{entry['mode']}: {entry['reason']}" for entry in tried))


def close():
    """End the child, if there is one; its device memory is free then."""
    if _alive:
        _alive.pop("child").end()
        _alive.clear()


def child_for(opened):
    """The child opened for these arguments: the one alive, or a new one in the place of another."""
    key = json.dumps(opened, sort_keys=True)
    if _alive.get("key") != key or not _alive["child"].is_alive():
        close()
        child = Child()
        _alive.update(key=key, child=child)
        child.ask({"open": opened}, SCOPE_LIMIT_S)
    return _alive["child"]


class Stuck(RuntimeError):
    """The child gave no answer in time, and was ended."""


class Child:
    """A process of its own group: answers come over a pipe that no library prints into."""

    def __init__(self):
        reading, writing = os.pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self.process = subprocess.Popen(
            [sys.executable, "-m", CHILD, str(writing)], stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT,
            pass_fds=(writing,), start_new_session=True, text=True,
        )  # fmt: skip
        os.close(writing)
        self.answers = os.fdopen(reading)

    def is_alive(self):
        """Whether it still runs."""
        return self.process.poll() is None

    def ask(self, request, limit_s, progress=None):
        """The child's answer. Stuck after `limit_s`; Refused or UserError as the child says; RuntimeError where it failed or died.

        `progress(line)` gets what the child tells on the way; each such line gives it `limit_s` anew.
        """
        try:
            self._send(request)
            answer = json.loads(self._line(limit_s))
            while "progress" in answer:
                progress(answer["progress"])
                answer = json.loads(self._line(limit_s))
        except BaseException:
            self.end()
            raise
        if "ok" in answer:
            return answer["ok"]
        if "refused" in answer:
            raise Refused(answer["refused"])
        if "bad_input" in answer:
            raise UserError(answer["bad_input"])
        raise RuntimeError(answer["failed"])

    def _send(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(self._last_words()) from None

    def _line(self, limit_s):
        ready, _, _ = select.select([self.answers], [], [], limit_s)
        if not ready:
            raise Stuck(f"no answer within {limit_s:g} s")
        line = self.answers.readline()
        if not line.endswith("\n"):
            raise RuntimeError(self._last_words())
        return line

    def _last_words(self):
        """How a dead child ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.returncode
        how = f"was killed by signal {-code} (out of memory?)" if code and code < 0 else f"ended with code {code}"
        self.log.seek(0)
        tail = self.log.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"the process of the stack {how}" + (f": {tail[0][:LOG_TAIL_CHARS]}" if tail else "")

    def end(self):
        """Kill it and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.answers.close()
        self.log.close()


atexit.register(close)
