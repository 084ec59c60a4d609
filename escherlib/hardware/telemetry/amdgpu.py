"""AMD sensors from the kernel driver's sysfs files of one PCI address.

Source: the kernel's amdgpu document (hwmon, gpu_busy_percent). One card has one set of sensors: partitions
of a card share it.
"""

from pathlib import Path

from escherlib.hardware.sysfs import folders, read_int, read_text
from escherlib.hardware.telemetry.source import Reader, Source

INTERVAL_S = 0.04
NOT_KNOWN = {2**bits - 1 for bits in (16, 32, 64)}  # all ones stands for "no value"
# field → labels that drivers and kernels give its sensor, best first
CLOCKS = {"clock_mhz": ("sclk", "gfxclk"), "memory_clock_mhz": ("mclk", "uclk")}
TEMPERATURES = {"temperature_c": ("junction", "hotspot", "edge"), "memory_temperature_c": ("mem", "memory", "vram", "hbm")}
WHOLE = ("", "SPX")  # compute partition modes in which the card is one device
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
        *_labelled(hwmon, "temp", TEMPERATURES, 1e-3, slow=tuple(TEMPERATURES)),
        _file("utilisation_pct", device / "gpu_busy_percent", slow=True),
        _file("power_limit_w", hwmon / "power1_cap", 1e-6, slow=True),
    ]
    have = {name for reader in readers for name in reader.fields}
    absent = dict.fromkeys([*CLOCKS, *TEMPERATURES, "power_w"], "no such sensor")
    return Source(
        name="amdgpu sysfs",
        readers=tuple(readers),
        interval_s=INTERVAL_S,
        permanent=lambda error: isinstance(error, (FileNotFoundError, PermissionError)),
        absent={name: why for name, why in absent.items() if name not in have}
        | {"energy_j": "sysfs has no energy counter", "limit_mask": "sysfs has no limit reasons"},
        notes=tuple(_notes(device, hwmon)),
    )


def _labelled(hwmon, kind, names, scale, slow):
    """Readers of the sensors with the best known label of each field; a lone unlabelled one is the first field's."""
    found = {}
    for path in folders(hwmon, f"{kind}*_input"):
        label = (read_text(path.with_name(path.name.replace("_input", "_label"))) or "").lower()
        for name, labels in names.items():
            if label in labels or (not label and name == next(iter(names))):
                found.setdefault(name, []).append((labels.index(label) if label else 0, path))
    best = {name: min(paths, key=lambda ranked: ranked[0])[1] for name, paths in found.items()}
    return [_file(name, path, scale, slow=name in slow) for name, path in best.items()]


def _power(hwmon):
    """Instant power where the driver shows it and it can be read, else the average: parts have the one or the other."""
    present = [name for name in POWER if (hwmon / name).exists()]
    readable = [name for name in present if read_int(hwmon / name) is not None]
    return [_file("power_w", hwmon / name, 1e-6, 1, averaging=POWER[name]) for name in (readable or present)[:1]]


def _notes(device, hwmon):
    """What a reader of the values should know of the card."""
    mode = read_text(device / "current_compute_partition") or ""
    if mode.upper() not in WHOLE:
        yield f"compute partitions ({mode}): sensors are the whole card's"
    labels = {(read_text(path) or "").lower() for path in folders(hwmon, "temp*_label")}
    if "edge" in labels and not labels & set(TEMPERATURES["temperature_c"][:2]):
        yield "temperature_c is the edge sensor's"
    power = read_text(hwmon / "power1_label")
    if power and power.upper() != "PPT":
        yield f"power_w is {power}"


def _file(field, path, scale=1, digits=0, slow=False, averaging=None):
    """A reader of one file; the sentinel for "no value" is None."""

    def read():
        value = int(path.read_text())
        return (None if value in NOT_KNOWN else value * scale,)

    return Reader((field,), read, digits, slow, averaging)
