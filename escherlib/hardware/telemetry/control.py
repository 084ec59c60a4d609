"""The parent's side of telemetry: start the sampler, ask it, stop it. Nothing here raises."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from escherlib.files import ROOT
from escherlib.hardware.telemetry.log import Log, no_source

SWITCH, INTERVAL = "ESCHER_STAT", "ESCHER_STAT_INTERVAL_S"  # set by `--stat` and `--stat-interval`
ANSWER_S, IMPATIENT_S, STOP_S = 1.0, 0.05, 2.0
COMMAND = (sys.executable, "-m", "escherlib.hardware.telemetry.sampler")


def start(device, path, interval_s=None):
    """Start sampling `device` into the file `path`, appending. Returns a Sampler at once.

    `interval_s`: seconds between samples; default the environment's ESCHER_STAT_INTERVAL_S, else the source's
    own. ESCHER_STAT=off starts nothing. Where nothing runs, the Sampler's `reason` says why. The device is
    joined by its UUID or PCI address, never by an index.
    """
    path = Path(path).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.environ.get(SWITCH, "").strip().lower() == "off":
            return _without("switched off (STAT=off)", path)
        given = interval_s or os.environ.get(INTERVAL)
        job = {
            "stack": device.stack,
            "uuid": device.smi_key,
            "bdf": device.bdf,
            "path": str(path),
            "interval_s": float(given) if given else None,
            "parent": os.getpid(),
        }
        process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": search_path()}, start_new_session=True,
        )  # fmt: skip
        os.set_blocking(process.stdin.fileno(), False)
        process.stdin.write(json.dumps(job).encode() + b"\n")
        return Sampler(path, process)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return _without(f"the sampler could not be started: {error}", path)


def search_path():
    """PYTHONPATH of the child: this library, then whatever this process was given."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def _without(reason, path):
    """A Sampler that samples nothing; the file says why."""
    log = Log(path)
    log.add(no_source(reason, time.monotonic_ns()))
    log.close()
    return Sampler(path, None, reason)


class Sampler:
    """A running sampler process, or the `reason` why there is none. No method raises or waits long."""

    def __init__(self, path, process, reason=None):
        self.path, self.reason = path, reason
        self._process, self._number, self._read, self._patience_s = process, 0, b"", ANSWER_S

    @property
    def running(self):
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def latest(self):
        """The last sample: {t_ns (time.monotonic_ns()), field: value, …, limit_reasons: [names]}, or None."""
        return self._ask("latest")

    def flush(self):
        """Take one more sample and have everything written to the file. True when it is there."""
        return self._ask("flush") is True

    @contextlib.contextmanager
    def fast(self, interval_s):
        """Sample every `interval_s` seconds inside the `with` block; slow sensors keep their pace."""
        self._ask(f"interval {interval_s}")
        try:
            yield self
        finally:
            self._ask("interval default")

    def stop(self):
        """End the sampler; the file is complete afterwards."""
        process, self._process = self._process, None
        if process is None:
            return
        self.reason = "stopped"
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(b"0 stop\n")
            process.stdin.close()
        for end in (lambda: None, process.terminate, process.kill):
            with contextlib.suppress(OSError):
                end()
            try:
                process.wait(STOP_S)
                break
            except subprocess.TimeoutExpired:
                continue
        with contextlib.suppress(OSError):
            process.stdout.close()

    def _ask(self, command):
        """Send one command and wait a moment for its answer; None where none comes.

        A sampler that once kept us waiting (its driver hangs, perhaps) is not waited for until it answers.
        """
        if not self.running:
            return None
        self._number += 1
        try:
            self._process.stdin.write(f"{self._number} {command}\n".encode())
            answer = self._answer(str(self._number), time.monotonic() + self._patience_s)
        except (OSError, ValueError):
            return None
        self._patience_s = IMPATIENT_S if answer is None else ANSWER_S
        return answer

    def _answer(self, number, until):
        """The answer of one command, or None in time; late answers of older ones are dropped."""
        pipe = self._process.stdout.fileno()
        while (left := until - time.monotonic()) > 0:
            while b"\n" in self._read:
                line, _, self._read = self._read.partition(b"\n")
                head, _, text = line.decode().partition(" ")
                if head == number:
                    return json.loads(text)
            if not select.select([pipe], [], [], left)[0]:
                break
            data = os.read(pipe, 65536)
            if not data:
                break
            self._read += data
        return None
