"""Writing the telemetry file: buffered, and never a reason to stop."""

import json
import time

from escherlib.hardware.telemetry.source import UNITS

SCHEMA = 1
FLUSH_S = 0.5


def header(source, interval_s, start_ns):
    """First line of a file, from an opened Source."""
    averaging = {name: reader.averaging for reader in source.readers for name in reader.fields}
    spans = {name: reader.span_s for reader in source.readers for name in reader.fields}
    return {
        "schema": SCHEMA,
        "source": source.name,
        "fields": source.fields,
        "units": {name: UNITS[suffix] for name in source.fields if (suffix := name.split("_")[-1]) in UNITS},
        "interval_s": interval_s,
        "averaging": {name: how for name, how in averaging.items() if how},
        "span_s": {name: span for name, span in spans.items() if span},
        "absent": source.absent,
        "passed_over": source.passed_over,
        "limit_bits": {str(bit): name for bit, name in source.limit_bits.items()},
        "start_ns": start_ns,
        "notes": list(source.notes),
        "read_us": source.read_us,
    }


def no_source(reason, start_ns):
    """Header of a file that will hold no sample, so that every window can say why."""
    return {"schema": SCHEMA, "source": None, "fields": [], "reason": reason, "start_ns": start_ns}


class Log:
    """Appends lines to a file about twice a second. A full disk costs samples, not the process."""

    def __init__(self, path):
        self._path, self._lines, self._flushed, self._lost = path, [], time.monotonic(), 0
        self._stream = None

    def add(self, value):
        """Keep one JSON value; write all kept ones when it is time."""
        self._lines.append(json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False))
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()

    def flush(self):
        """Write what is kept. Lines that can't be written are counted, and told once writing works again."""
        lines, self._lines, self._flushed = self._lines, [], time.monotonic()
        if not lines:
            return
        try:
            if self._stream is None:
                self._stream = open(self._path, "ab", buffering=0)  # noqa: SIM115 (kept open on purpose)
            told = [f'{{"lost_lines":{self._lost}}}'] if self._lost else []
            # after a failed write the file may end inside a line; an empty line costs nothing
            text = "\n" * bool(self._lost) + "\n".join([*told, *lines]) + "\n"
            data = text.encode()
            if self._stream.write(data) != len(data):
                raise OSError("cut short")
            self._lost = 0
        except OSError:
            self._lost += len(lines)

    def close(self):
        """Write the rest and close the file."""
        self.flush()
        if self._stream is not None:
            self._stream.close()
