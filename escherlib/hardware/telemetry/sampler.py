"""The sampler process: `python -m escherlib.hardware.telemetry.sampler`, started by telemetry.start().

The first line on stdin is the job as JSON, {stack, uuid, bdf, path, interval_s, parent}: the device's UUID
never stands on a command line. Each further line is a command, `<number> interval <s>`, `<number> latest`,
`<number> flush` or `<number> stop`, answered on stdout by `<number> <JSON>`. It ends by itself when stdin
closes or the parent is gone, survives every error of a sensor, and never waits for a reader of its output.
"""

import contextlib
import json
import math
import os
import select
import signal
import sys
import time

from escherlib.hardware.telemetry.log import Log, header, no_source
from escherlib.hardware.telemetry.source import open_source, reason_of

NICE = 5
CHECK_S = 0.5  # the longest wait before looking for the parent
SHORTEST_S, LONGEST_S = 0.002, 10.0
RETRY_S, RETRY_LONGEST_S = 0.5, 5.0


class Sampling:
    """One sampler: a source, a log, and the commands of the parent."""

    def __init__(self, job, opener=open_source, commands=0, answers=1):
        self.job, self.opener = {**job, "ended": lambda: bool(self.ending)}, opener
        self.commands, self.answers, self.pending = commands, answers, b""
        self.log, self.start_ns = Log(job["path"]), time.monotonic_ns()
        self.source, self.name, self.fields, self.absent = None, None, [], {}
        self.base_s = self.interval_s = job.get("interval_s") or CHECK_S
        self.row, self.ending, self.backoff_s = None, None, 0.0
        self.due = self.slow_due = time.monotonic()

    def run(self):
        """Sample until told to stop, until the parent is gone, or until a signal. Returns the reason."""
        self.open()
        while not self.ending:
            self.wait()
            if self.ending or time.monotonic() < self.due:
                continue
            begun = time.monotonic()
            pause_s = self.attempt()
            ended = time.monotonic()
            # a sensor that is slower than the pace leaves half the time to others
            self.due = max(self.due + pause_s, ended + (ended - begun))
        self.event({"end": self.ending})
        self.log.close()
        return self.ending

    def open(self):
        """Open the source and write the header; without a source a header that says why, and the end."""
        try:
            self.source = self.opener(self.job)
        except Exception as error:
            self.log.add(no_source(reason_of(error, 500), self.start_ns))
            self.ending = "no source"
            return
        self.begin()

    def begin(self):
        """Fields and pace of the source that was opened, and its header."""
        self.fields = self.source.fields
        self.base_s = self.interval_s = self.job.get("interval_s") or self.source.interval_s
        self.name = self.source.name
        self.log.add(header(self.source, self.interval_s, self.start_ns))

    def wait(self):
        """Until it is time for a sample or a command has come. Also looks whether the parent lives."""
        if self.job.get("parent") and os.getppid() != self.job["parent"]:
            self.ending = "parent ended"
            return
        timeout = min(CHECK_S, max(0.0, self.due - time.monotonic()))
        if not select.select([self.commands], [], [], timeout)[0]:
            return
        data = os.read(self.commands, 65536)
        if not data:
            self.ending = self.ending or "parent ended"
            return
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            self.obey(*[*line.decode(errors="replace").split(), "", "", ""][:3])

    def obey(self, number, name, value):
        """One command. What is not understood is answered with null."""
        answer = None
        if name == "stop":
            self.ending = "stopped"
        elif name == "interval":
            answer = self.set_interval(value)
        elif name == "latest":
            answer = self.latest()
        elif name == "flush":
            self.attempt()  # a sample behind the last window, so that its end is bracketed
            self.log.flush()
            answer = True
        with contextlib.suppress(OSError):  # nobody reads: not our concern
            os.write(self.answers, f"{number} {json.dumps(answer)}\n".encode())

    def latest(self):
        """The last row by names, with the limits that were set then."""
        if self.row is None:
            return None
        mask = self.row.get("limit_mask") or 0
        bits = self.source.limit_bits if self.source else {}
        return {**self.row, "limit_reasons": [name for bit, name in bits.items() if mask & bit]}

    def set_interval(self, text):
        """Change the pace at once; `default` is the pace of the start. Returns the interval in s."""
        with contextlib.suppress(ValueError):
            wanted = self.base_s if text == "default" else float(text)
            self.interval_s = min(max(wanted, SHORTEST_S), LONGEST_S)
            self.due = time.monotonic()
            self.event({"interval_s": self.interval_s})
        return self.interval_s

    def attempt(self):
        """One sample, whatever happens. Returns seconds until the next one."""
        try:
            return self.reopen() if self.source is None else self.sample()
        except Exception as error:  # whatever it was, the next sample may work
            return self.lose(reason_of(error))

    def sample(self):
        """Read every sensor once and keep the row. Returns seconds until the next one."""
        begun = time.monotonic_ns()
        slow = begun / 1e9 >= self.slow_due
        values, errors = self.read(slow)
        stamp = (begun + time.monotonic_ns()) // 2
        if errors and not values:
            return self.lose(reason_of(errors[0]))
        if slow:
            self.slow_due = begun / 1e9 + 0.9 * self.base_s
        self.backoff_s = 0.0
        self.log.add([(stamp - self.start_ns) // 1000, *(values.get(name) for name in self.fields)])
        self.row = {"t_ns": stamp, **{name: values.get(name) for name in self.fields}}
        return self.interval_s

    def read(self, slow):
        """({field: value}, errors). A sensor that can't ever be read is left out from then on."""
        values, errors = {}, []
        for reader in self.source.readers:
            if (reader.slow and not slow) or reader.fields[0] in self.absent:
                continue
            try:
                found = [rounded(value, reader.digits) for value in reader.read()]
                values |= dict(zip(reader.fields, found, strict=True))
            except Exception as error:  # a driver may fail in any way
                errors.append(error)
                if self.source.permanent(error):
                    gone = dict.fromkeys(reader.fields, reason_of(error))
                    self.absent |= gone
                    self.event({"absent": gone})
        return values, errors

    def lose(self, reason):
        """Nothing could be read: note it once, close the source, come back later. Returns seconds to wait."""
        if not self.backoff_s:
            self.event({"gap": reason})
        if self.source is not None:
            with contextlib.suppress(Exception):
                self.source.close()
        self.source = None
        self.backoff_s = min(RETRY_LONGEST_S, self.backoff_s * 2 or RETRY_S)
        return self.backoff_s

    def reopen(self):
        """Try the source again; its fields keep their places, those of another source get a header. Returns s to wait."""
        try:
            self.source, self.absent = self.opener(self.job), {}
        except Exception as error:
            return self.lose(reason_of(error))
        if self.source.name != self.name:
            self.start_ns = time.monotonic_ns()
            self.begin()
        return 0.0

    def event(self, what):
        """Keep an event line with its time."""
        self.log.add({"t": (time.monotonic_ns() - self.start_ns) // 1000, **what})


def rounded(value, digits):
    """A number with few digits, so that files stay small; None for None and for what is no finite number."""
    if value is None or not math.isfinite(value):
        return None
    return round(value) if digits == 0 else round(float(value), digits)


def main():
    """Read the job, sample, and end quietly whatever happens."""
    job = json.loads(read_line(0))
    with contextlib.suppress(OSError):
        os.nice(NICE)
    sampling = Sampling(job)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: setattr(sampling, "ending", "terminated"))
    os.set_blocking(1, False)
    sampling.run()


def read_line(descriptor):
    """One line, byte by byte: what follows belongs to select."""
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            sys.exit(0)
        text += byte
    return text.decode()


if __name__ == "__main__":
    main()
