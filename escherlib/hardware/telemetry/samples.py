"""Reading a telemetry file, whatever state a crash left it in."""

import bisect
import json
from dataclasses import dataclass, field
from pathlib import Path

IDLE_ROWS = 5


@dataclass(frozen=True)
class Series:
    """One field over time: `at_ns` (time.monotonic_ns, ascending) and as many values. `restarts`: ns at which
    sampling was interrupted or another sampler took over, so that counters began anew.
    """

    at_ns: tuple = ()
    values: tuple = ()
    restarts: tuple = ()

    def inside(self, start_ns, end_ns):
        """Index range [low, high) of the samples of a window, ends included."""
        return bisect.bisect_left(self.at_ns, start_ns), bisect.bisect_right(self.at_ns, end_ns)


@dataclass(frozen=True)
class Samples:
    """A telemetry file in memory. `header`: the last one; `series`: field → Series; `events`: [(ns, dict)];
    `absent`: field → why; `idle_mask`: limit bits that are set while the device idles; `broken`: unreadable
    lines.
    """

    header: dict = field(default_factory=dict)
    series: dict = field(default_factory=dict)
    events: tuple = ()
    absent: dict = field(default_factory=dict)
    idle_mask: int = 0
    broken: int = 0

    def why(self, name):
        """Why there is nothing of a field, or None where there is something."""
        if name in self.series:
            return None
        if name in self.absent:
            return self.absent[name]
        return self.header.get("reason") or f"{self.header.get('source') or 'telemetry'} has no such sensor"


def read_samples(path):
    """Read a file of the sampler. A missing file, and a line cut short by a crash, are no error."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError as error:
        return Samples(header={"source": None, "reason": f"no telemetry file ({error.strerror})"})
    header, columns, events, restarts, absent, broken = {}, {}, [], [], {}, 0
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            broken += 1
            continue
        if isinstance(value, list) and value and len(value) == len(header.get("fields", ())) + 1:
            stamp = header["start_ns"] + value[0] * 1000
            for name, number in zip(header["fields"], value[1:], strict=True):
                if number is not None:
                    at, values = columns.setdefault(name, ([], []))
                    at.append(stamp)
                    values.append(number)
        elif isinstance(value, dict) and "fields" in value:
            restarts += [value["start_ns"]] if header else []
            header, absent = value, dict(value.get("absent", {}))
        elif isinstance(value, dict) and "t" in value and header:
            events.append((header["start_ns"] + value.pop("t") * 1000, value))
            absent |= value.get("absent", {})
            restarts += [events[-1][0]] if "gap" in value else []
        else:
            broken += 1
    series = {name: Series(*map(tuple, column), tuple(restarts)) for name, column in columns.items()}
    return Samples(header, series, tuple(events), absent, idle_mask(series), broken)


def idle_mask(series):
    """Limit bits set in every sample of an idle device: some devices never clear a bit.

    Every, not most: drivers report utilisation late and keep a power cap's bit for half a second after the load.
    Idle is a utilisation of 0; where it is not known, the first samples of the file count.
    """
    masks = series.get("limit_mask")
    if masks is None:
        return 0
    used = series.get("utilisation_pct")
    rows = masks.values[:IDLE_ROWS]
    if used is not None:
        idle = {at for at, value in zip(used.at_ns, used.values, strict=True) if value == 0}
        rows = [mask for at, mask in zip(masks.at_ns, masks.values, strict=True) if at in idle]
    bits = {bit for mask in rows for bit in range(mask.bit_length()) if mask >> bit & 1}
    return sum(1 << bit for bit in bits if all(mask >> bit & 1 for mask in rows))

