"""AMD sensors from the kernel driver's sysfs files of one PCI address.

Source: the kernel's amdgpu document (hwmon, gpu_busy_percent). One card has one set of sensors: partitions
of a card share it.
"""

from pathlib import Path

from escherlib.hardware.sysfs import folders, read_text
from escherlib.hardware.telemetry.source import Reader, Source

INTERVAL_S = 0.04
NOT_KNOWN = {2**bits - 1 for bits in (16, 32, 64)}  # all ones stands for "no value"
CLOCKS = {"sclk": "clock_mhz", "mclk": "memory_clock_mhz"}
TEMPERATURES = {"junction": "temperature_c", "mem": "memory_temperature_c"}
POWER = {"power1_input": "instant", "power1_average": "average, as the firmware makes it"}


def open_source(job):
    """sysfs of the job's PCI address as a Source. FileNotFoundError where the driver shows no sensors."""
    device = Path(job.get("root") or "/") / "sys/bus/pci/devices" / (job.get("bdf") or "none")
    hwmon = next(iter(folders(device, "hwmon/hwmon*")), None)
    if hwmon is None:
        raise FileNotFoundError("the amdgpu driver shows no sensors for this device")
    readers = [
        *_labelled(hwmon, "freq", CLOCKS, 1e-6, slow=("memory_clock_mhz",)),
        *_power(hwmon),
        *_labelled(hwmon, "temp", TEMPERATURES, 1e-3, slow=tuple(TEMPERATURES.values())),
        _file("utilisation_pct", device / "gpu_busy_percent", slow=True),
        _file("power_limit_w", hwmon / "power1_cap", 1e-6, slow=True),
    ]
    have = {name for reader in readers for name in reader.fields}
    absent = dict.fromkeys([*CLOCKS.values(), *TEMPERATURES.values(), "power_w"], "no such sensor")
    return Source(
        name="amdgpu sysfs",
        readers=tuple(readers),
        interval_s=INTERVAL_S,
        permanent=lambda error: isinstance(error, (FileNotFoundError, PermissionError)),
        absent={name: why for name, why in absent.items() if name not in have}
        | {"energy_j": "sysfs has no energy counter", "limit_mask": "sysfs has no limit reasons"},
    )


def _labelled(hwmon, kind, names, scale, slow):
    """Readers of the sensors whose label is one of `names`; a lone unlabelled one is the first of them."""
    found = {}
    for path in folders(hwmon, f"{kind}*_input"):
        label = read_text(path.with_name(path.name.replace("_input", "_label")))
        name = names.get(label) if label else next(iter(names.values()))
        if name:
            found.setdefault(name, path)
    return [_file(name, path, scale, slow=name in slow) for name, path in found.items()]


def _power(hwmon):
    present = [name for name in POWER if (hwmon / name).exists()]
    return [_file("power_w", hwmon / name, 1e-6, 1, averaging=POWER[name]) for name in present[:1]]


def _file(field, path, scale=1, digits=0, slow=False, averaging=None):
    """A reader of one file; the sentinel for "no value" is None."""

    def read():
        value = int(path.read_text())
        return (None if value in NOT_KNOWN else value * scale,)

    return Reader((field,), read, digits, slow, averaging)
