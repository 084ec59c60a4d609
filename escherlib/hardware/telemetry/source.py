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
ORDER = {  # best first: libraries give most, files cost least, a program is the last resort
    "cuda": ("nvml", "nvidia-smi"),
    "rocm": ("amdsmi", "amdgpu", "amd-smi", "rocm-smi"),
    "cpu": ("procfs",),
}
MODULES = {"amdsmi": "amdsmi_lib", "nvidia-smi": "smi", "amd-smi": "smi", "rocm-smi": "smi"}  # others: as they are called
# what holds an AMD clock back, one bit each: the same for the package and the programs
AMD_LIMITS = ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal", "gfx_clk_below_host_limit", "throttled", "other")


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
    `limit_bits`: bit → name. `read_us`: what the readers cost when they were tried. `passed_over`: better
    sources → why they were not taken.
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
    passed_over: dict = field(default_factory=dict)

    @property
    def fields(self):
        """Names of all fields, in the order of the readers."""
        return [name for reader in self.readers for name in reader.fields]


def open_source(job):
    """Open the first source of the job's stack that answers. RuntimeError with every reason if none does.

    `job`: {"stack", "uuid", "bdf", "root", "ended" (a function: whether to give up)}.
    """
    passed_over = {}
    for name in ORDER[job["stack"]]:
        try:
            module = importlib.import_module(f"{__package__}.{MODULES.get(name, name)}")
            return replace(tried(module.open_source({**job, "source": name})), passed_over=passed_over)
        except Exception as error:  # a source may fail in any way; the next one is asked
            passed_over[name] = reason_of(error)
    raise RuntimeError("; ".join(f"{name}: {why}" for name, why in passed_over.items()))


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


def amd_mask(names):
    """Bits of the limits of AMD_LIMITS that are named; names that are not in it share the last bit."""
    found = 0
    for name in names:
        found |= 1 << AMD_LIMITS.index(name if name in AMD_LIMITS else "other")
    return found


def since_first(read):
    """`read()` counted from its first value on: drivers count from their own start. None stays None."""
    first = []

    def moved():
        now = read()
        if now is None:
            return None
        first.append(now) if not first else None
        return now - first[0]

    return moved


def reason_of(error, length=120):
    """An error as half a line; of a file error only what went wrong, since its path names the device."""
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = (said.strip().splitlines() or [""])[0][:length]
    return text or type(error).__name__
