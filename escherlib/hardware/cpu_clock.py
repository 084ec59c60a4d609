"""The base clock of a CPU host, and how it is known. No clock is guessed: a host that hides it has none.

Source: the kernel's documents on cpufreq and CPPC.
"""

from pathlib import Path

from escherlib.hardware.sysfs import read_int

# file below cpuN, its unit in MHz, what it is: the first that tells holds
BASE_FILES = (
    ("cpufreq/base_frequency", 1e-3, "cpufreq base_frequency"),
    ("acpi_cppc/nominal_freq", 1.0, "nominal frequency of ACPI CPPC"),
)
MAX_FILE = ("cpufreq/cpuinfo_max_freq", 1e-3, "cpufreq cpuinfo_max_freq: the highest clock, which may include boost")


def base_clock(cpus, root="/"):
    """(MHz, how it is known) or (None, why not) of the CPUs that may be used.

    Base clock as the kernel tells it, else the highest clock it tells.
    """
    told = (_of_files(root, cpus, *file) for file in (*BASE_FILES, MAX_FILE))
    return next((one for one in told if one), (None, "the clock of this host is hidden: no cpufreq, no CPPC"))


def _of_files(root, cpus, file, unit_mhz, how):
    """What one kind of file says of all CPUs, or None. Cores of different clocks have no common one."""
    base = Path(root) / "sys/devices/system/cpu"
    values = {read_int(base / f"cpu{cpu}" / file) for cpu in cpus} - {None, 0}
    if len(values) > 1:
        return None, f"{how} differs between cores: {min(values) * unit_mhz:g} to {max(values) * unit_mhz:g} MHz"
    return (values.pop() * unit_mhz, how) if values else None
