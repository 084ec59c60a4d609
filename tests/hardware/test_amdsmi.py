"""The amdsmi source on a FAKE package, in the shapes of two releases."""

import sys

import pytest

from escherlib.hardware.telemetry import amdsmi_lib
from escherlib.hardware.telemetry.source import open_source, tried
from tests.hardware import fake_amdsmi
from tests.hardware.fake_amdsmi import BDF
from tests.hardware.test_sources import amd_tree, read_all

JOB = {"stack": "rocm", "bdf": BDF}


@pytest.fixture
def fake(monkeypatch):
    def install(**options):
        module = fake_amdsmi.make(**options)
        monkeypatch.setitem(sys.modules, "amdsmi", module)
        return module

    return install


def test_every_field_of_a_new_release(fake):
    module = fake()
    source = open_source(JOB)
    assert source.name == "amdsmi" and source.absent == {} and source.passed_over == {}
    read_all(source)
    values = read_all(source)
    energy = values.pop("energy_j")
    assert values == {
        "power_w": 712,
        "clock_mhz": 2102,  # the median of three dies; two give no value
        "limit_mask": 2,  # the counter of ppt moved
        "temperature_c": 71,
        "memory_clock_mhz": 1300,
        "memory_temperature_c": 58,
        "utilisation_pct": 99,
        "power_limit_w": 750,
    }
    # three readings after the first: 3 million steps of 15.3 µJ
    assert energy == pytest.approx(45.9) and source.limit_bits[2] == "ppt"
    power = next(reader for reader in source.readers if reader.fields == ("power_w",))
    assert power.averaging == "current, of the socket"
    source.close()
    assert module.state["calls"] == ["init", "shut down"]


def test_names_keys_and_units_of_an_old_release(fake):
    fake(old=True)
    source = open_source(JOB)
    values = read_all(source)
    assert (values["power_w"], values["power_limit_w"], values["clock_mhz"], values["temperature_c"]) == (300, 560, 2100, 71)
    assert values["energy_j"] == pytest.approx(30.6)
    power = next(reader for reader in source.readers if reader.fields == ("power_w",))
    assert power.averaging == "average, as the firmware makes it, of the socket"
    assert source.absent == {"limit_mask": "this amdsmi has no amdsmi_get_violation_status"}


def test_what_is_not_supported_is_absent_and_violations_stand_in_for_counters(fake):
    fake(unsupported=("amdsmi_get_gpu_metrics_info", "amdsmi_get_energy_count", "amdsmi_get_gpu_activity"))
    source = open_source(JOB)
    assert source.absent == dict.fromkeys(("energy_j", "utilisation_pct"), "Error code: 2")
    limits = next(reader for reader in source.readers if reader.fields == ("limit_mask",))
    assert limits.slow and limits.read() == (2,)
    assert source.permanent(fake_amdsmi.AmdSmiLibraryException(2)) and not source.permanent(fake_amdsmi.AmdSmiLibraryException(30))


def test_a_counter_without_its_resolution_is_no_energy(fake):
    fake(amdsmi_get_energy_count=lambda handle: {"energy_accumulator": 5, "counter_resolution": "N/A"})
    assert open_source(JOB).absent == {"energy_j": "the energy counter has no value or no resolution"}


def test_power_that_one_key_shows_as_zero_is_taken_from_the_other(fake):
    fake(amdsmi_get_power_info=lambda handle: {"current_socket_power": 0, "average_socket_power": 17, "socket_power": 0})
    assert read_all(open_source(JOB))["power_w"] == 17
    fake(amdsmi_get_power_info=lambda handle: {"current_socket_power": 65535, "average_socket_power": "N/A"})
    assert open_source(JOB).absent == {"power_w": "N/A"}


def test_a_partition_stands_for_its_card_and_another_card_does_not(fake):
    fake(amdsmi_get_gpu_compute_partition=lambda handle: "CPX")
    assert amdsmi_lib.open_source({"bdf": "0000:c1:00.3"}).notes == ("compute partitions (CPX): sensors are the whole card's",)
    module = fake(known="0000:c2:00.0")
    with pytest.raises(LookupError, match="does not know this device"):
        amdsmi_lib.open_source({"bdf": BDF})
    assert module.state["calls"] == ["init", "shut down"]


def test_without_the_package_sysfs_is_used_and_the_reason_kept(fake, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    root = amd_tree(tmp_path)
    source = open_source({**JOB, "root": root})
    assert source.name == "amdgpu sysfs" and "amdsmi" in source.passed_over["amdsmi"]
    fake(amdsmi_get_processor_handles=list)
    assert open_source({**JOB, "root": root}).passed_over == {"amdsmi": "amdsmi does not know this device"}


def test_a_package_without_its_library_is_a_reason(monkeypatch, tmp_path, capsys):
    (tmp_path / "share/amd_smi").mkdir(parents=True)
    (tmp_path / "share/amd_smi/amdsmi.py").write_text("print('no library')\nraise KeyError('libamd_smi.so')\n")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    with pytest.raises(amdsmi_lib.Missing, match=r"finds no libamd_smi\.so"):
        amdsmi_lib.open_source(JOB)
    assert capsys.readouterr().out == ""


def test_a_sensor_that_fails_for_a_while_is_kept(fake):
    fake()
    source = tried(amdsmi_lib.open_source(JOB))
    assert source.permanent(AttributeError("x")) and not source.permanent(OSError("x"))
