"""Which base clock a CPU host is rated at."""

import pytest

from escherlib.hardware.cpu_clock import base_clock
from tests.hardware.trees import write

AT = "sys/devices/system/cpu/cpu"


def clocks(root, **files):
    """Two CPUs with the same clock files; `__` stands for a slash."""
    named = {f"{AT}{cpu}/{name.replace('__', '/')}": value for name, value in files.items() for cpu in (0, 1)}
    return write(root, named)


def test_the_kernel_s_base_frequency_comes_first(tmp_path):
    root = clocks(tmp_path, cpufreq__base_frequency=2000000, cpufreq__cpuinfo_max_freq=3800000, acpi_cppc__nominal_freq=1900)
    assert base_clock({0, 1}, root) == (
        2000.0, "cpufreq base_frequency",
    )  # fmt: skip


def test_then_cppc_then_the_highest_clock(tmp_path):
    root = clocks(tmp_path, cpufreq__cpuinfo_max_freq=3707812)
    mhz, how = base_clock({0, 1}, root)
    assert mhz == pytest.approx(3707.812) and how.startswith("cpufreq cpuinfo_max_freq: the highest clock")
    clocks(root, acpi_cppc__nominal_freq=2401)
    assert base_clock({0, 1}, root) == (2401.0, "nominal frequency of ACPI CPPC")


def test_a_machine_that_hides_its_clock_has_none(tmp_path):
    mhz, how = base_clock({0, 1}, tmp_path)
    assert mhz is None and how == "the clock of this host is hidden: no cpufreq, no CPPC"
    zero = clocks(tmp_path, acpi_cppc__nominal_freq=0)
    assert base_clock({0, 1}, zero)[0] is None


def test_cores_of_different_clocks_have_no_common_one(tmp_path):
    root = write(tmp_path, {f"{AT}0/cpufreq/base_frequency": 2500000, f"{AT}1/cpufreq/base_frequency": 1800000})
    assert base_clock({0, 1}, root) == (None, "cpufreq base_frequency differs between cores: 1800 to 2500 MHz")
    assert base_clock({1}, root)[0] == 1800.0
