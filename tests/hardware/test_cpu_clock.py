"""Which base clock a CPU host is rated at, and the Arm cores that are told by implementer and part."""

import pytest

from escherlib.hardware.cpu_clock import base_clock
from escherlib.hardware.identify import identify
from escherlib.hardware.probe import probe_cpu
from escherlib.parameters import load_devices
from tests.hardware.trees import write

PROFILES = load_devices()
ZEN4, AT = PROFILES["cpu_zen4"], "sys/devices/system/cpu/cpu"
GENOA = "AMD EPYC 9654 96-Core Processor"


def clocks(root, **files):
    """Two CPUs with the same clock files; `__` stands for a slash."""
    named = {f"{AT}{cpu}/{name.replace('__', '/')}": value for name, value in files.items() for cpu in (0, 1)}
    return write(root, named)


def test_the_kernel_s_base_frequency_comes_first(tmp_path):
    root = clocks(tmp_path, cpufreq__base_frequency=2000000, cpufreq__cpuinfo_max_freq=3800000, acpi_cppc__nominal_freq=1900)
    assert base_clock("Intel(R) Xeon(R) Platinum 8480+", PROFILES["cpu_sapphire_rapids"], {0, 1}, root) == (
        2000.0, "cpufreq base_frequency",
    )  # fmt: skip


def test_then_cppc_then_the_data_sheet_then_the_highest_clock(tmp_path):
    root = clocks(tmp_path, cpufreq__cpuinfo_max_freq=3707812)
    assert base_clock(GENOA, ZEN4, {0, 1}, root) == (2400.0, "base clock of model 9654 by its data sheet")
    mhz, how = base_clock("AMD EPYC 9R14", ZEN4, {0, 1}, root)
    assert mhz == pytest.approx(3707.812) and how.startswith("cpufreq cpuinfo_max_freq: the highest clock")
    clocks(root, acpi_cppc__nominal_freq=2401)
    assert base_clock(GENOA, ZEN4, {0, 1}, root) == (2401.0, "nominal frequency of ACPI CPPC")


def test_a_machine_that_hides_its_clock_and_model_has_none(tmp_path):
    mhz, how = base_clock("AMD EPYC", ZEN4, {0, 1}, tmp_path)
    assert mhz is None and how == (
        "the clock of this host is hidden: no cpufreq, no CPPC, and 'AMD EPYC' is no model with a known base clock"
    )
    zero = clocks(tmp_path, acpi_cppc__nominal_freq=0)
    assert base_clock("AMD EPYC", ZEN4, {0, 1}, zero)[0] is None
    assert base_clock(GENOA, None, {0, 1}, zero)[0] is None  # a model's clock comes with its profile


def test_a_model_number_is_the_whole_word(tmp_path):
    xeon = PROFILES["cpu_sapphire_rapids"]
    assert base_clock("Intel(R) Xeon(R) Platinum 8480+", xeon, {0}, tmp_path)[0] == 2000
    assert base_clock("Intel(R) Xeon(R) Platinum 8480C", xeon, {0}, tmp_path)[0] is None


def test_cores_of_different_clocks_have_no_common_one(tmp_path):
    root = write(tmp_path, {f"{AT}0/cpufreq/base_frequency": 2500000, f"{AT}1/cpufreq/base_frequency": 1800000})
    assert base_clock(GENOA, ZEN4, {0, 1}, root) == (None, "cpufreq base_frequency differs between cores: 1800 to 2500 MHz")
    assert base_clock(GENOA, ZEN4, {1}, root)[0] == 1800.0


@pytest.mark.parametrize(
    "implementer, part, flags, profile",
    [
        ("0x41", "0xd40", "fp asimd sve bf16 i8mm", "cpu_neoverse_v1"),
        ("0x41", "0xd4f", "fp asimd sve sve2 bf16 i8mm", "cpu_neoverse_v2"),
        ("0x41", "0xd4f", "fp asimd", None),
        ("0x41", "0xd0c", "fp asimd", None),
        ("0x61", "0xd4f", "fp asimd bf16", None),
    ],
)
def test_arm_cores_by_implementer_and_part(tmp_path, monkeypatch, implementer, part, flags, profile):
    monkeypatch.setattr("platform.processor", lambda: "aarch64")
    text = f"processor\t: 0\nFeatures\t: {flags}\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n\n"
    facts = probe_cpu(write(tmp_path, {"proc/cpuinfo": text}))
    found = identify(facts, PROFILES)
    assert found.profile_id == profile and facts.cpu_model == int(part, 16)
