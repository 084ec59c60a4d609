"""Where sensor values come from: the interface of a source, and the order in which sources are tried.

A source is a set of readers. The sampler calls each reader, so that one sensor that fails takes no other
along. Canonical fields: clock_mhz, memory_clock_mhz, power_w, energy_j (since the file began), temperature_c,
memory_temperature_c, utilisation_pct, power_limit_w, limit_mask (bits named by `limit_bits`); for a CPU also
steal_pct and load_1m.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter_ns

UNITS = {"mhz": "MHz", "w": "W", "j": "J", "c": "°C", "pct": "%"}
ORDER = {"cuda": ("nvml",), "rocm": ("amdgpu",), "cpu": ("procfs",)}  # modules of this room, best first


@dataclass(frozen=True)
class Reader:
    """One call that gives one or more fields.

    `read()` returns as many values as `fields`, None for what is not known now. `digits`: decimals kept.
    `slow`: changes slowly, need not be read at a raised pace. `averaging`: what the value is an average of;
    `span_s`: seconds that average looks back.
    """

    fields: tuple
    read: Callable
    digits: int = 0
    slow: bool = False
    averaging: str | None = None
    span_s: float = 0.0


@dataclass(frozen=True)
class Source:
    """An opened source.

    `absent`: field → why it is not there. `permanent(error)`: whether asking again is pointless.
    `limit_bits`: bit → name. `read_us`: what the readers cost when they were tried.
    """

    name: str
    readers: tuple
    interval_s: float
    permanent: Callable
    absent: dict = field(default_factory=dict)
    limit_bits: dict = field(default_factory=dict)
    notes: tuple = ()
    close: Callable = lambda: None
    read_us: dict = field(default_factory=dict)

    @property
    def fields(self):
        """Names of all fields, in the order of the readers."""
        return [name for reader in self.readers for name in reader.fields]


def open_source(job):
    """Open the first source of the job's stack that answers. RuntimeError with every reason if none does.

    `job`: {"stack", "uuid", "bdf", "root"}.
    """
    reasons = []
    for name in ORDER[job["stack"]]:
        try:
            return tried(importlib.import_module(f"{__package__}.{name}").open_source(job))
        except Exception as error:  # a source may fail in any way; the next one is asked
            reasons.append(f"{name}: {reason_of(error)}")
    raise RuntimeError("; ".join(reasons))


def tried(source):
    """Read everything once: what is not supported goes to `absent`, and what each call costs is kept."""
    readers, absent, cost = [], dict(source.absent), {}
    for reader in source.readers:
        begun = perf_counter_ns()
        try:
            reader.read()
        except Exception as error:
            if source.permanent(error):
                absent |= dict.fromkeys(reader.fields, reason_of(error))
                continue
        readers.append(reader)
        cost[reader.fields[0]] = (perf_counter_ns() - begun) // 1000
    if not readers:
        raise RuntimeError(next(iter(absent.values()), "no sensor can be read"))
    return replace(source, readers=tuple(readers), absent=absent, read_us=cost)


def reason_of(error):
    """An error as half a line; of a file error only what went wrong, since its path names the device."""
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = (said.strip().splitlines() or [""])[0][:120]
    return text or type(error).__name__
