"""AMD sensors through the amdsmi package of the installed ROCm: what sysfs does not have, energy and limits.

Calls, keys and units: AMD's amdsmi reference, ROCm 6.0 to 7.x. Structures change with the release, so the copy of the
installed ROCm is preferred; values that a part does not give are "N/A" or all ones. The device is found by PCI address.
"""

import contextlib
import importlib
import io
import os
import sys
from pathlib import Path
from statistics import median

from escherlib.hardware.parsers.smi_text import bdf_of, measured
from escherlib.hardware.telemetry.source import AMD_LIMITS, Reader, Source, amd_mask, reason_of, since_first

INTERVAL_S = 0.1
CACHE = "AMDSMI_GPU_METRICS_CACHE_MS"  # the package repeats a reading for this long
PERMANENT_CODES = (2, 3, 10)  # not supported, not yet implemented, no permission
POWER = {  # key → what it is an average of; a part has the one or the other
    "current_socket_power": "current, of the socket",
    "average_socket_power": "average, as the firmware makes it, of the socket",
    "socket_power": "of the socket; current or average is not said",
}
ENERGY = ("energy_accumulator", "power")  # the second until ROCm 6.0
CLOCK = ("clk", "cur_clk")  # the second until ROCm 6.0
RESIDENCIES = {
    "prochot_residency_acc": "prochot", "ppt_residency_acc": "ppt", "socket_thm_residency_acc": "socket_thermal",
    "vr_thm_residency_acc": "vr_thermal", "hbm_thm_residency_acc": "hbm_thermal",
}  # fmt: skip
VIOLATIONS = {
    "active_prochot_thrm": "prochot", "active_ppt_pwr": "ppt", "active_socket_thrm": "socket_thermal",
    "active_vr_thrm": "vr_thermal", "active_hbm_thrm": "hbm_thermal",
    "active_gfx_clk_below_host_limit": "gfx_clk_below_host_limit", "active_gfx_clk_below_host_limit_total": "gfx_clk_below_host_limit",
}  # fmt: skip
MICRO_FROM = 1e5  # a cap above this is in µW: no part takes 100 kW
MILLI_FROM = 1000  # a temperature above this is in m°C


class Missing(Exception):
    """A value that this part or release does not give; the message says why."""


def open_source(job):
    """amdsmi as a Source. Raises what the package raises, and LookupError where it does not know the device."""
    lib = load()
    lib.amdsmi_init()
    try:
        handle = find(lib, job.get("bdf"))
        readers, absent = _readers(lib, handle)
        if not readers:
            raise Missing(next(iter(absent.values()), "no sensor can be read"))
        notes = tuple(_notes(lib, handle))
    except Exception:
        with contextlib.suppress(Exception):
            lib.amdsmi_shut_down()
        raise
    return Source(
        name="amdsmi",
        readers=readers,
        interval_s=INTERVAL_S,
        permanent=lambda error: isinstance(error, (Missing, AttributeError)) or _code(error) in PERMANENT_CODES,
        absent=absent,
        limit_bits={1 << bit: name for bit, name in enumerate(AMD_LIMITS)},
        notes=notes,
        close=lib.amdsmi_shut_down,
    )


def load():
    """The package; without ROCm it raises a KeyError and prints a line, which must not reach the answers of the sampler."""
    os.environ.setdefault(CACHE, "0")
    folder = Path(os.environ.get("ROCM_PATH") or "/opt/rocm") / "share/amd_smi"
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except KeyError as error:
        raise Missing(f"the amdsmi package finds no {str(error.args[0])[:40]}") from error


def call(lib, names, *arguments):
    """The first of `names` that this release has, called."""
    for name in names:
        function = getattr(lib, name, None)
        if function is not None:
            return function(*arguments)
    raise Missing(f"this amdsmi has no {names[0]}")


def find(lib, bdf):
    """Handle of the device with this PCI address; a partition that is not listed stands for its card."""
    shown = {}
    for handle in call(lib, ("amdsmi_get_processor_handles", "amdsmi_get_device_handles")):
        with contextlib.suppress(Exception):  # one that gives no address is another one
            address = bdf_of(call(lib, ("amdsmi_get_gpu_device_bdf", "amdsmi_get_device_bdf"), handle))
            shown.setdefault(address, handle)
    shown.pop(None, None)
    wanted = bdf_of(bdf)
    if wanted in shown:
        return shown[wanted]
    card = [handle for address, handle in shown.items() if wanted and address.rpartition(".")[0] == wanted.rpartition(".")[0]]
    if not card:
        raise LookupError("amdsmi does not know this device")
    return card[0]


def _readers(lib, handle):
    """(readers, absent): of the ways to a field the first that gives a value now."""
    ways = {
        "power_w": [(_power(lib, handle, key), how) for key, how in POWER.items()],
        "clock_mhz": [
            (_die_clocks(lib, handle), "median of the dies"),
            *((_clock(lib, handle, name), None) for name in ("GFX", "SYS")),
        ],
        "energy_j": [(since_first(_energy(lib, handle)), None)],
        "temperature_c": [(_temperature(lib, handle, name), None) for name in ("HOTSPOT", "JUNCTION", "EDGE")],
        "memory_clock_mhz": [(_clock(lib, handle, "MEM"), None)],
        "memory_temperature_c": [(_temperature(lib, handle, name), None) for name in ("VRAM", "HBM_0")],
        "utilisation_pct": [(_activity(lib, handle), None)],
        "power_limit_w": [(_cap(lib, handle), None)],
    }
    fast, digits = ("power_w", "clock_mhz", "energy_j", "limit_mask"), {"power_w": 1, "energy_j": 2}
    readers, absent = [], {}
    for name, candidates in ways.items():
        read, how, why = _first(candidates)
        if read is None:
            absent[name] = why
        else:
            readers.append(Reader((name,), _single(read), digits.get(name, 0), name not in fast, how))
    for way, slow in ((_residencies(lib, handle), False), (_violations(lib, handle), True)):
        try:
            way()
        except Exception as error:  # the next way is tried
            absent["limit_mask"] = reason_of(error)
            continue
        absent.pop("limit_mask", None)
        readers.append(Reader(("limit_mask",), _single(way), slow=slow, averaging=None if slow else "since the last sample"))
        break
    return tuple(readers), absent


def _single(read):
    return lambda: (read(),)


def _first(candidates):
    """(read, averaging, None) of the first way that gives a value; one that gives 0 only where no other gives more."""
    zero, why = None, "N/A"
    for read, how in candidates:
        try:
            value = read()
        except Exception as error:  # a driver may fail in any way
            why = reason_of(error)
            continue
        if value:
            return read, how, None
        if value == 0 and zero is None:
            zero = read, how
    return (*zero, None) if zero else (None, None, why)


def known(cell, kind):
    """A number in the unit of `kind`, or None for "N/A", sentinels and what is no number."""
    return None if cell is None else measured(cell, kind)[0]


def _power(lib, handle, key):
    return lambda: known(call(lib, ("amdsmi_get_power_info", "amdsmi_get_power_measure"), handle).get(key), "w")


def _metrics(lib, handle):
    return call(lib, ("amdsmi_get_gpu_metrics_info",), handle)


def _die_clocks(lib, handle):
    def read():
        clocks = _metrics(lib, handle).get("current_gfxclks")
        found = [known(clock, "mhz") for clock in (clocks if isinstance(clocks, (list, tuple)) else [])]
        found = [clock for clock in found if clock]
        return median(found) if found else None

    return read


def _clock(lib, handle, kind):
    def read():
        which = getattr(lib.AmdSmiClkType, kind)
        info = call(lib, ("amdsmi_get_clock_info", "amdsmi_get_clock_measure"), handle, which)
        return next((value for key in CLOCK if (value := known(info.get(key), "mhz")) is not None), None)

    return read


def _temperature(lib, handle, kind):
    def read():
        which, current = getattr(lib.AmdSmiTemperatureType, kind), lib.AmdSmiTemperatureMetric.CURRENT
        value = known(call(lib, ("amdsmi_get_temp_metric", "amdsmi_dev_get_temp_metric"), handle, which, current), "c")
        return value / 1000 if value is not None and value > MILLI_FROM else value

    return read


def _activity(lib, handle):
    return lambda: known(call(lib, ("amdsmi_get_gpu_activity",), handle).get("gfx_activity"), "pct")


def _cap(lib, handle):
    def read():
        value = known(call(lib, ("amdsmi_get_power_cap_info",), handle).get("power_cap"), "w")
        return value / 1e6 if value is not None and value > MICRO_FROM else value

    return read


def _energy(lib, handle):
    """J of the accumulator: it counts steps of `counter_resolution` µJ. Without that its steps mean nothing."""

    def read():
        info = call(lib, ("amdsmi_get_energy_count",), handle)
        count = next((value for key in ENERGY if (value := known(info.get(key), "j")) is not None), None)
        step = known(info.get("counter_resolution"), "j")
        if count is None or not step:
            raise Missing("the energy counter has no value or no resolution")
        return count * step * 1e-6

    return read


def _residencies(lib, handle):
    """Bits of the limits whose time counters moved since the last reading; None at the first."""
    before = {}

    def read():
        metrics = _metrics(lib, handle)
        now = {name: value for key, name in RESIDENCIES.items() if (value := known(metrics.get(key), "s")) is not None}
        if not now:
            raise Missing("no counters of limits in the metrics of this part")
        last = dict(before)
        before.update(now)
        return amd_mask(name for name, value in now.items() if value > last.get(name, value)) if last else None

    return read


def _violations(lib, handle):
    """Bits of the limits that are active now: a call of about 0.1 s, from ROCm 6.3 on."""

    def read():
        found = call(lib, ("amdsmi_get_violation_status",), handle)
        states = {name: found[key] for key, name in VIOLATIONS.items() if isinstance(found.get(key), (bool, int))}
        if not states:
            raise Missing("this part reports no violations")
        return amd_mask(name for name, active in states.items() if active is True or active == 1)

    return read


def _notes(lib, handle):
    with contextlib.suppress(Exception):
        mode = str(call(lib, ("amdsmi_get_gpu_compute_partition",), handle))
        if mode not in ("SPX", "N/A", ""):
            yield f"compute partitions ({mode}): sensors are the whole card's"


def _code(error):
    code = getattr(error, "err_code", None)
    return getattr(code, "value", code)
