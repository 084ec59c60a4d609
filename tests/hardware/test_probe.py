"""The standard-library probe, on made-up sysfs trees."""

import subprocess
import sys

import pytest

from escherlib.hardware import probe
from escherlib.hardware.identify import identify
from escherlib.parameters import load_devices

PROFILES = load_devices()
GIB = 2**30
CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC 9654 96-Core Processor
flags\t\t: fpu avx2 avx512f avx512_bf16

processor\t: 1
model name\t: AMD EPYC 9654 96-Core Processor
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text) + "\n")
    return root


def pci(bdf, vendor, device, pci_class="0x120000", **more):
    base = {"vendor": vendor, "device": device, "class": pci_class, **more}
    return {f"sys/bus/pci/devices/{bdf}/{name}": text for name, text in base.items()}


def kfd(number, **properties):
    return {
        f"sys/class/kfd/kfd/topology/nodes/{number}/properties": "\n".join(
            f"{k} {v}" for k, v in properties.items()
        )
    }


def no_smi(fields):
    return None


def gpus(root, smi=no_smi):
    return [facts for facts in probe.probe_devices(root, smi) if facts.kind == "gpu"]


def test_an_mi300x_from_sysfs_alone(tmp_path):
    card = pci(
        "0000:c1:00.0", "0x1002", "0x74a1", revision="0x00", product_name="", current_compute_partition="SPX"
    )
    card |= {"sys/bus/pci/devices/0000:c1:00.0/hwmon/hwmon3/power1_cap": 750_000_000}
    node = kfd(0, simd_count=0, cpu_cores_count=96)
    node |= kfd(
        1,
        simd_count=1216,
        simd_per_cu=4,
        gfx_target_version=90402,
        location_id=0xC100,
        domain=0,
        max_engine_clk_fcompute=2100,
    )
    node |= {
        "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 206141652992"
    }
    facts = gpus(write(tmp_path, card | node))
    assert len(facts) == 1
    only = facts[0]
    assert (only.vendor, only.pci_id, only.pci_revision, only.arch, only.compute_units) == (
        "AMD",
        "1002:74a1",
        "00",
        "gfx942",
        304,
    )
    assert (
        only.memory_gib == pytest.approx(191.98, abs=0.01)
        and only.power_cap_w == 750
        and only.clock_mhz == 2100
    )
    assert identify(only, PROFILES).profile_id == "mi300x"


def test_compute_partitions_are_parts(tmp_path):
    card = pci(
        "0000:c1:00.0", "0x1002", "0x74a1", current_compute_partition="CPX", mem_info_vram_total=192 * GIB
    )
    nodes = {}
    for number in range(1, 9):
        nodes |= kfd(
            number, simd_count=152, simd_per_cu=4, gfx_target_version=90402, location_id=number << 28 | 0xC100
        )
    found = gpus(write(tmp_path, card | nodes))
    assert len(found) == 8 and {facts.compute_units for facts in found} == {38}
    assert {identify(facts, PROFILES).profile_id for facts in found} == {None}


def test_nvidia_by_nvidia_smi_and_sysfs(tmp_path):
    root = write(tmp_path, pci("0000:1b:00.0", "0x10de", "0x2335", "0x030200"))
    row = "00000000:1B:00.0, NVIDIA H200, 143771, 700.00, 1980, Disabled, 9.0\n"
    only = gpus(root, lambda fields: row)[0]
    assert (only.name, only.pci_id, only.arch, only.power_cap_w, only.bdf) == (
        "NVIDIA H200",
        "10de:2335",
        "9.0",
        700,
        "0000:1b:00.0",
    )
    assert only.memory_gib == pytest.approx(140.4, abs=0.01) and only.partition is None
    assert identify(only, PROFILES).profile_id == "h200_sxm"
    mig = gpus(root, lambda fields: row.replace("Disabled", "Enabled"))[0]
    assert identify(mig, PROFILES).profile_id is None


def test_old_drivers_and_missing_values(tmp_path):
    root = write(tmp_path, pci("0000:1b:00.0", "0x10de", "0x1db1", "0x030200"))
    asked = []

    def smi(fields):
        asked.append(fields)
        return (
            None
            if "compute_cap" in fields
            else "00000000:1B:00.0, Tesla V100-SXM2-16GB, 16160, [Not Supported], [N/A]\n"
        )

    only = gpus(root, smi)[0]
    assert len(asked) == 2 and only.power_cap_w is None and only.clock_mhz is None
    assert identify(only, PROFILES).profile_id == "v100_sxm2_16gb"


def test_nvidia_without_any_tool(tmp_path):
    files = pci("0000:1b:00.0", "0x10de", "0x2330", "0x030200")
    files |= {
        "proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   16"
    }
    only = gpus(write(tmp_path, files))[0]
    assert only.name == "NVIDIA H100 80GB HBM3" and identify(only, PROFILES).profile_id == "h100_sxm"


def test_what_is_no_gpu_and_order(tmp_path):
    files = pci("0000:00:02.0", "0x8086", "0x1234", "0x030000") | pci(
        "0000:00:1f.0", "0x1002", "0x1637", "0x040300"
    )
    files |= pci("0000:85:00.0", "0x1002", "0x75a3") | pci("0000:05:00.0", "0x1002", "0x75a3")
    assert [facts.bdf for facts in gpus(write(tmp_path, files))] == ["0000:05:00.0", "0000:85:00.0"]


@pytest.mark.parametrize(
    "smi_text",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver\n",
        ",,,,,\n\0",
        '"\n',
    ],
)
def test_whatever_nvidia_smi_says_nothing_is_raised(tmp_path, smi_text):
    assert gpus(tmp_path, lambda fields: smi_text) == []


def test_broken_files_leave_facts_unknown(tmp_path):
    card = pci(
        "0000:c1:00.0",
        "0x1002",
        "nonsense",
        revision="",
        mem_info_vram_total="x",
        current_compute_partition="",
    )
    card |= {"sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count many\nsimd_per_cu 4\n\n"}
    only = gpus(write(tmp_path, card))[0]
    assert (
        only.pci_id is None
        and only.memory_gib is None
        and only.compute_units is None
        and only.partition is None
    )

    def failing(fields):
        raise RuntimeError("broken tool")

    found = probe.probe_devices(write(tmp_path, {"proc/cpuinfo": CPUINFO}), failing)
    assert [facts.kind for facts in found] == ["cpu"]


def test_the_cpu(tmp_path):
    facts = probe.probe_cpu(write(tmp_path, {"proc/cpuinfo": CPUINFO}))
    assert (facts.name, facts.vendor, facts.cpu_family, facts.cpu_model) == (
        "AMD EPYC 9654 96-Core Processor",
        "AMD",
        25,
        17,
    )
    assert "avx512_bf16" in facts.cpu_flags and facts.compute_units >= 1
    assert identify(facts, PROFILES).profile_id == "cpu_zen4"
    bare = probe.probe_cpu(tmp_path / "nowhere")
    assert bare.kind == "cpu" and bare.vendor is None


@pytest.mark.parametrize(
    "version, target",
    [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950"), (120001, "gfx1201"), (0, None)],
)
def test_gfx_targets(version, target):
    assert probe.gfx_target(version) == target


def test_a_tool_that_fails_or_is_not_there_gives_nothing(monkeypatch):
    def answer(outcome):
        def run(*arguments, **options):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(probe.subprocess, "run", run)
        return probe._nvidia_smi(("name",))

    assert answer(subprocess.CompletedProcess([], 9, "Failed to initialize NVML", "")) is None
    assert answer(subprocess.TimeoutExpired([], 5)) is None
    assert answer(FileNotFoundError()) is None
    assert answer(subprocess.CompletedProcess([], 0, "NVIDIA H200\n", "")) == "NVIDIA H200\n"


def test_this_host_is_probed_with_the_standard_library_alone():
    code = (
        "import sys; from escherlib.hardware.probe import probe_devices; found = probe_devices(); "
        "assert found[-1].kind == 'cpu'; "
        "assert not {'torch', 'yaml', 'pydantic', 'numpy', 'click'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
