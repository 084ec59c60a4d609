"""CPU sensors: clock, utilisation, energy, temperature and load from /proc and /sys.

Sources: the kernel's documents on cpufreq, powercap (RAPL), hwmon, thermal zones and /proc/stat.
"""

import os
import time
from pathlib import Path

from escherlib.hardware.sysfs import folders, parse_cpus, parse_pairs, read_int, read_text
from escherlib.hardware.telemetry.source import Reader, Source

INTERVAL_S = 0.2
CLOCK_CPUS = 16  # a clock costs one file a CPU; on larger hosts an even pick stands for all
CHIPS = ("k10temp", "zenpower", "coretemp", "cpu_thermal")
ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc_thermal", "acpitz")
SINCE_LAST = "since the last sample"
HIDDEN = "a virtual machine shows its nominal clock, not the real one"


class Absent(Exception):
    """A sensor that this host does not have; the message says why."""


def open_source(job):
    """The CPU as a Source."""
    root = Path(job.get("root") or "/")
    cpus = sorted(parse_cpus(job.get("cpus")) or os.sched_getaffinity(0))
    clock, how = _clock(root, cpus)
    return Source(
        name="procfs",
        readers=(
            Reader(("clock_mhz",), clock, averaging=how),
            Reader(("utilisation_pct", "steal_pct"), _utilisation(root, cpus), 1, averaging=SINCE_LAST),
            Reader(("energy_j", "power_w"), _rapl(root), 2, averaging=SINCE_LAST),
            Reader(("temperature_c",), _temperature(root), slow=True),
            Reader(("load_1m",), lambda: (_load(root),), 2, slow=True),
        ),
        interval_s=INTERVAL_S,
        permanent=lambda error: isinstance(error, (Absent, PermissionError, FileNotFoundError)),
    )


def _absent(why):
    def read():
        raise Absent(why)

    return read


def _clock(root, cpus):
    """(reader of the mean clock in MHz, which CPUs it is the mean of)."""
    picked = cpus[:: -(-len(cpus) // CLOCK_CPUS)]
    files = [root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in picked]
    files = [path for path in files if read_int(path)]
    if files:
        return lambda: (_mean(map(read_int, files), 1e-3),), f"mean of {len(files)} of {len(cpus)} CPUs"
    blocks = _cpuinfo(root)
    if not any("cpu MHz" in block for block in blocks):
        return _absent("this kernel shows no clock"), None
    if "hypervisor" in blocks[0].get("flags", "").split():
        return _absent(f"{HIDDEN} ({float(blocks[0]['cpu MHz']):.0f} MHz: nominal, not measured)"), None

    def from_cpuinfo():
        shown = [float(b["cpu MHz"]) for b in _cpuinfo(root) if int(b.get("processor", -1)) in wanted]
        return (_mean(shown, 1),)

    wanted = set(cpus)
    return from_cpuinfo, f"mean of {len(cpus)} of {len(cpus)} CPUs"


def _cpuinfo(root):
    return [parse_pairs(block) for block in (read_text(root / "proc/cpuinfo") or "").split("\n\n")]


def _mean(values, scale):
    known = [value for value in values if value]
    return sum(known) / len(known) * scale if known else None


def _utilisation(root, cpus):
    """Busy and stolen share of the time of these CPUs since the last call, in percent.

    Columns of /proc/stat: user nice system idle iowait irq softirq steal.
    """
    path, wanted = root / "proc/stat", {f"cpu{cpu}" for cpu in cpus}
    before = []

    def read():
        rows = [line.split() for line in path.read_text().splitlines() if line.startswith("cpu")]
        ticks = [[int(n) for n in row[1:9]] for row in rows if row[0] in wanted]
        total = [sum(column) for column in zip(*ticks, strict=True)]
        last, before[:] = list(before), total
        passed = [now - then for now, then in zip(total, last, strict=False)]
        if not last or sum(passed) <= 0:
            return None, None
        idle, steal = passed[3] + passed[4], passed[7]
        return (100 * (1 - (idle + steal) / sum(passed)), 100 * steal / sum(passed))

    return read


def _rapl(root):
    """(J since the first call, W since the last call) over all packages; counters wrap at their range."""
    zones = [z for z in folders(root / "sys/class/powercap", "intel-rapl:*") if z.name.count(":") == 1]
    zones = [z for z in zones if (read_text(z / "name") or "").startswith("package")]
    if not zones:
        return _absent("no RAPL energy counter")
    state = {"last": {}, "joules": 0.0, "at": None}

    def read():
        moved = 0
        for zone in zones:
            now = int((zone / "energy_uj").read_text())  # root only on most hosts: PermissionError
            then = state["last"].get(zone, now)
            moved += now - then if now >= then else now - then + (read_int(zone / "max_energy_range_uj") or 0)
            state["last"][zone] = now
        at = time.monotonic()
        passed = at - state["at"] if state["at"] is not None else 0
        state["at"], state["joules"] = at, state["joules"] + moved * 1e-6
        return state["joules"], (moved * 1e-6 / passed if passed > 0 else None)

    return read


def _temperature(root):
    """Hottest package in °C: hwmon of the processor, else a thermal zone."""
    chips = [
        chip for chip in folders(root / "sys/class/hwmon", "hwmon*") if read_text(chip / "name") in CHIPS
    ]
    files = [chip / "temp1_input" for chip in chips]
    zones = folders(root / "sys/class/thermal", "thermal_zone*")
    for kind in ZONES:
        files = files or [zone / "temp" for zone in zones if read_text(zone / "type") == kind]
    if not files:
        return _absent("no temperature sensor is shown")
    return lambda: (max(int(path.read_text()) for path in files) * 1e-3,)


def _load(root):
    return float((root / "proc/loadavg").read_text().split()[0])
