"""Sensor sources on a fake NVML and on made-up sysfs trees."""

import sys

import pytest

from escherlib.hardware.driver import gpu_state
from escherlib.hardware.telemetry import amdgpu, nvml, procfs
from escherlib.hardware.telemetry.source import open_source, tried
from tests.hardware import fake_nvml
from tests.hardware.trees import write

BDF = "0000:c1:00.0"


@pytest.fixture
def fake(monkeypatch):
    def install(**options):
        module = fake_nvml.make(**options)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return module

    return install


def read_all(source):
    """{field: value} of one round."""
    return {name: value for r in source.readers for name, value in zip(r.fields, r.read(), strict=True)}


def test_nvml_reads_every_field_in_its_unit(fake):
    energy = iter([5_000_000, 5_000_000, 5_350_500])
    module = fake(TotalEnergyConsumption=lambda: next(energy))
    source = open_source({"stack": "cuda", "uuid": fake_nvml.UUID})
    assert source.name == "nvml" and not source.absent
    read_all(source)
    values = read_all(source)
    assert values == {
        "clock_mhz": 1455,
        "power_w": pytest.approx(690.1),
        "limit_mask": 4,
        "energy_j": pytest.approx(350.5),  # mJ, since the first reading
        "temperature_c": 61,
        "memory_clock_mhz": 1455,
        "memory_temperature_c": 58,
        "utilisation_pct": 100,
        "power_limit_w": 700,
    }
    assert source.limit_bits == {
        1: "gpu_idle",
        2: "applications_clocks_setting",
        4: "sw_power_cap",
        64: "hw_thermal_slowdown",
    }
    source.close()
    assert module.inits == ["init", "shutdown"]


def test_nvml_leaves_out_what_is_not_supported(fake):
    fake(missing=(82, "TotalEnergyConsumption", "Temperature"))
    source = open_source({"stack": "cuda", "uuid": f"GPU-{fake_nvml.UUID}"})
    assert source.absent == dict.fromkeys(
        ("energy_j", "temperature_c", "memory_temperature_c"), "Not Supported"
    )
    assert "power_w" in source.fields and "energy_j" not in source.fields


@pytest.mark.parametrize("capability, span_s", [((9, 0), 1.0), ((8, 0), 0.0), ((8, 6), 1.0), ((7, 0), 0.0)])
def test_without_instant_power_the_averaging_is_said(fake, capability, span_s):
    fake(missing=("fields",), CudaComputeCapability=capability)
    source = open_source({"stack": "cuda", "uuid": fake_nvml.UUID})
    power = next(r for r in source.readers if r.fields == ("power_w",))
    assert power.span_s == span_s and power.read() == (pytest.approx(612.345),)
    assert power.averaging == ("average of the last second" if span_s else "instant")


def test_the_older_name_of_the_limit_reasons(fake):
    fake(old_names=True)
    source = open_source({"stack": "cuda", "uuid": fake_nvml.UUID})
    assert read_all(source)["limit_mask"] == 4 and source.limit_bits[4] == "sw_power_cap"


def test_the_device_is_found_by_uuid_else_by_address_never_by_index(fake):
    fake(known=BDF)
    assert open_source({"stack": "cuda", "uuid": "other", "bdf": BDF}).name == "nvml"
    module = fake(known="another")
    with pytest.raises(RuntimeError, match="does not know this device"):
        open_source({"stack": "cuda", "uuid": fake_nvml.UUID, "bdf": BDF})
    assert module.inits == ["init", "shutdown"] and not hasattr(module, "nvmlDeviceGetHandleByIndex")
    fake(known=f"MIG-{fake_nvml.UUID}", MigMode=[1, 1])
    assert open_source({"stack": "cuda", "uuid": fake_nvml.UUID}).notes == (
        "MIG is on: sensors are the whole card's",
    )


def test_no_driver_is_a_reason_not_a_crash(fake):
    def missing():
        raise fake_nvml.NVMLError(12)

    fake().nvmlInit = missing
    with pytest.raises(RuntimeError, match="nvml: Unknown Error"):
        open_source({"stack": "cuda", "uuid": fake_nvml.UUID})


def test_nvml_bits_of_the_installed_package():
    bits = nvml.limit_bits(pytest.importorskip("pynvml"))
    assert bits[4] == "sw_power_cap" and bits[1] == "gpu_idle" and bits[64] == "hw_thermal_slowdown"
    assert bits[2] == "applications_clocks_setting" and 0 not in bits


def test_state_of_an_nvidia_gpu(fake):
    fake(
        EnforcedPowerLimit=650_000,
        missing=("PowerManagementLimitConstraints", "MigMode"),
        CurrentClocksEventReasons=5,
    )
    state = gpu_state("cuda", fake_nvml.UUID)
    assert state["power"] == {"cap_w": 650, "cap_default_w": 700, "cap_min_w": None, "cap_max_w": None}
    assert (
        state["modes"]["mig"] is None
        and state["modes"]["ecc"] == "on"
        and state["modes"]["compute"] == "default"
    )
    assert state["limits_now"] == ["gpu_idle", "sw_power_cap"] and state["other_processes"] == 0
    assert state["driver"] == "580.00.fake" and state["memory_used_bytes"] == 2**30
    assert state["link"]["pcie_width"] is None  # the fake has no such call
    fake(known="another")
    assert gpu_state("cuda", fake_nvml.UUID)["power"]["cap_w"] is None
    assert fake_nvml.UUID not in str(state)


def amd_tree(root, **more):
    at = f"sys/bus/pci/devices/{BDF}/hwmon/hwmon5"
    files = {
        f"{at}/power1_input": 712_000_000,
        f"{at}/power1_cap": 750_000_000,
        f"{at}/power1_cap_default": 1_000_000_000,
        f"{at}/freq1_input": 2_100_000_000,
        f"{at}/freq1_label": "sclk",
        f"{at}/freq2_input": 1_300_000_000,
        f"{at}/freq2_label": "mclk",
        f"{at}/temp2_input": 67_000,
        f"{at}/temp2_label": "junction",
        f"{at}/temp3_input": 51_000,
        f"{at}/temp3_label": "mem",
        f"sys/bus/pci/devices/{BDF}/gpu_busy_percent": 99,
        f"sys/bus/pci/devices/{BDF}/current_compute_partition": "SPX",
        f"sys/bus/pci/devices/{BDF}/current_memory_partition": "NPS1",
    }
    return write(root, files | {f"{at}/{name}": text for name, text in more.items()})


def test_amd_sensors_by_pci_address(tmp_path):
    source = tried(amdgpu.open_source({"bdf": BDF, "root": amd_tree(tmp_path)}))
    assert read_all(source) == {
        "clock_mhz": 2100,
        "memory_clock_mhz": 1300,
        "power_w": pytest.approx(712),
        "temperature_c": 67,
        "memory_temperature_c": 51,
        "utilisation_pct": 99,
        "power_limit_w": 750,
    }
    assert source.absent == {
        "energy_j": "sysfs has no energy counter",
        "limit_mask": "sysfs has no limit reasons",
    }
    state = gpu_state("rocm", None, BDF, tmp_path)
    assert state["power"]["cap_w"] == 750 and state["power"]["cap_default_w"] == 1000
    assert (state["temperature_c"], state["modes"]["memory_partition"]) == (67, "NPS1")


def test_amd_average_power_sentinels_and_another_address(tmp_path):
    root = amd_tree(tmp_path, power1_average=640_000_000, freq1_input=65535)
    (root / f"sys/bus/pci/devices/{BDF}/hwmon/hwmon5/power1_input").unlink()
    source = tried(amdgpu.open_source({"bdf": BDF, "root": root}))
    values = read_all(source)
    assert values["power_w"] == pytest.approx(640) and values["clock_mhz"] is None
    power = next(r for r in source.readers if r.fields == ("power_w",))
    assert power.averaging == "average, as the firmware makes it"
    with pytest.raises(FileNotFoundError):
        amdgpu.open_source({"bdf": "0000:c2:00.0", "root": root})


def test_amd_labels_that_kernels_give_other_names(tmp_path):
    root = amd_tree(tmp_path, temp1_input=41_000, temp1_label="edge", temp2_label="hotspot", temp3_label="HBM", freq1_label="gfxclk")
    values = read_all(tried(amdgpu.open_source({"bdf": BDF, "root": root})))
    assert (values["temperature_c"], values["memory_temperature_c"], values["clock_mhz"]) == (67, 51, 2100)
    for name in ("temp2_input", "temp2_label"):
        (root / f"sys/bus/pci/devices/{BDF}/hwmon/hwmon5/{name}").unlink()
    write(root, {f"sys/bus/pci/devices/{BDF}/current_compute_partition": "CPX"})
    source = tried(amdgpu.open_source({"bdf": BDF, "root": root}))
    assert read_all(source)["temperature_c"] == 41
    assert source.notes == ("compute partitions (CPX): sensors are the whole card's", "temperature_c is the edge sensor's")


def test_amd_power_that_can_t_be_read_gives_way_to_the_average(tmp_path):
    root = amd_tree(tmp_path, power1_input="", power1_average=640_000_000)
    source = tried(amdgpu.open_source({"bdf": BDF, "root": root}))
    assert read_all(source)["power_w"] == pytest.approx(640) and source.notes == ()


def test_nvml_calls_by_their_newer_names(fake):
    module = fake()
    older = module.nvmlDeviceGetTemperature
    del module.nvmlDeviceGetTemperature
    module.nvmlDeviceGetTemperatureV = older
    module.nvmlDeviceGetPowerManagementLimit = lambda handle: 650_000
    del module.nvmlDeviceGetEnforcedPowerLimit
    values = read_all(open_source({"stack": "cuda", "uuid": fake_nvml.UUID}))
    assert (values["temperature_c"], values["power_limit_w"]) == (61, 650)


def cpu_tree(root, virtual=False, **more):
    flags = "fpu hypervisor" if virtual else "fpu"
    blocks = [
        f"processor: {i}\ncpu MHz: {mhz}\nflags: {flags}" for i, mhz in enumerate((3000.0, 2000.0, 1000.0))
    ]
    files = {
        "proc/cpuinfo": "\n\n".join(blocks),
        "proc/loadavg": "1.50 1 1 1/2 3",
        "proc/stat": "cpu  0 0 0 0 0 0 0 0\ncpu0 100 0 0 100 0 0 0 0\ncpu1 0 0 0 200 0 0 0 0\ncpu2 9 0 0 0",
    }
    return write(root, files | more)


def test_cpu_clock_of_the_usable_cpus(tmp_path):
    source = tried(procfs.open_source({"root": cpu_tree(tmp_path), "cpus": "0-1"}))
    assert read_all(source)["clock_mhz"] == 2500
    cpufreq = {
        f"sys/devices/system/cpu/cpu{i}/cpufreq/scaling_cur_freq": khz
        for i, khz in ((0, 2_400_000), (1, 2_600_000))
    }
    source = tried(procfs.open_source({"root": write(tmp_path, cpufreq), "cpus": "0-1"}))
    assert read_all(source)["clock_mhz"] == 2500 and source.readers[0].averaging == "mean of 2 of 2 CPUs"


def test_a_virtual_machine_has_no_measured_clock(tmp_path):
    source = tried(procfs.open_source({"root": cpu_tree(tmp_path, virtual=True), "cpus": "0-2"}))
    assert "clock_mhz" not in source.fields and "nominal, not measured" in source.absent["clock_mhz"]
    assert source.absent["energy_j"] == source.absent["power_w"] == "no RAPL energy counter"
    assert source.absent["temperature_c"] == "no temperature sensor is shown"


def test_cpu_utilisation_and_steal_between_two_reads(tmp_path):
    source = tried(procfs.open_source({"root": cpu_tree(tmp_path), "cpus": "0-1"}))
    stat = "cpu0 150 0 10 120 0 0 0 20\ncpu1 0 0 0 300 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0"
    write(tmp_path, {"proc/stat": stat})
    values = read_all(source)
    # 200 ticks passed on CPUs 0 and 1: 60 busy, 120 idle, 20 stolen
    assert values["utilisation_pct"] == pytest.approx(30) and values["steal_pct"] == pytest.approx(10)
    assert read_all(source)["utilisation_pct"] is None  # no time passed
    assert values["load_1m"] == 1.5


def test_rapl_sums_packages_and_wraps(tmp_path):
    at = "sys/class/powercap/intel-rapl:"
    zones = {}
    for package, energy in ((0, 900_000), (1, 10_000_000)):
        zones |= {f"{at}{package}/name": f"package-{package}", f"{at}{package}/energy_uj": energy}
        zones |= {f"{at}{package}/max_energy_range_uj": 1_000_000, f"{at}{package}:0/name": "core"}
    source = tried(procfs.open_source({"root": cpu_tree(tmp_path, **zones), "cpus": "0"}))
    write(tmp_path, {f"{at}0/energy_uj": 200_000, f"{at}1/energy_uj": 12_000_000})
    values = read_all(source)
    assert values["energy_j"] == pytest.approx(0.3 + 2.0) and values["power_w"] > 0


def test_a_temperature_from_hwmon_or_a_zone(tmp_path):
    zone = {
        "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp",
        "sys/class/thermal/thermal_zone0/temp": 48000,
    }
    source = tried(procfs.open_source({"root": cpu_tree(tmp_path, **zone), "cpus": "0"}))
    assert read_all(source)["temperature_c"] == 48
    chips = {}
    for i, degrees in enumerate((51000, 57000)):
        chips |= {
            f"sys/class/hwmon/hwmon{i}/name": "k10temp",
            f"sys/class/hwmon/hwmon{i}/temp1_input": degrees,
        }
    source = tried(procfs.open_source({"root": write(tmp_path, chips), "cpus": "0"}))
    assert read_all(source)["temperature_c"] == 57
