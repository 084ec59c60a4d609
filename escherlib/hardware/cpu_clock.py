"""The base clock of a CPU host, and how it is known. No clock is guessed: a host that hides it has none.

Sources: the kernel's documents on cpufreq and CPPC; data sheets by model number in parameters/devices.yaml.
"""

from pathlib import Path

from escherlib.hardware.identify import name_words
from escherlib.hardware.sysfs import read_int

# file below cpuN, its unit in MHz, what it is: the first that tells holds
BASE_FILES = (
    ("cpufreq/base_frequency", 1e-3, "cpufreq base_frequency"),
    ("acpi_cppc/nominal_freq", 1.0, "nominal frequency of ACPI CPPC"),
)
MAX_FILE = ("cpufreq/cpuinfo_max_freq", 1e-3, "cpufreq cpuinfo_max_freq: the highest clock, which may include boost")


def base_clock(name, profile, cpus, root="/"):
    """(MHz, how it is known) or (None, why not) of the CPUs that may be used.

    Base clock as the kernel tells it, else as the data sheet of the model, else the highest clock the kernel tells.
    """
    told = [*(_of_files(root, cpus, *file) for file in BASE_FILES), _of_model(name, profile), _of_files(root, cpus, *MAX_FILE)]
    found = next((one for one in told if one), None)
    hidden = f"the clock of this host is hidden: no cpufreq, no CPPC, and {name!r} is no model with a known base clock"
    return found or (None, hidden)


def _of_files(root, cpus, file, unit_mhz, how):
    """What one kind of file says of all CPUs, or None. Cores of different clocks have no common one."""
    base = Path(root) / "sys/devices/system/cpu"
    values = {read_int(base / f"cpu{cpu}" / file) for cpu in cpus} - {None, 0}
    if len(values) > 1:
        return None, f"{how} differs between cores: {min(values) * unit_mhz:g} to {max(values) * unit_mhz:g} MHz"
    return (values.pop() * unit_mhz, how) if values else None


def _of_model(name, profile):
    """The data sheet's base clock of the model number in a CPU's name, or None."""
    table = profile.cpu.base_clock_mhz if profile is not None and profile.cpu is not None else {}
    word = next((word for word in name_words(name) if word in table), None)
    return (table[word], f"base clock of model {word} by its data sheet") if word else None
