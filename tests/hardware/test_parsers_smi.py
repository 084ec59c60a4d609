"""Parsers of amd-smi, rocm-smi and nvidia-smi: captured outputs, damaged ones, and cases made by hand."""

import json

import pytest

from escherlib.hardware.parsers import amd_smi, nvidia_smi, parser_of, rocm_smi
from escherlib.hardware.parsers.contract import read
from escherlib.hardware.parsers.smi_text import GPU_FIELDS, bdf_of, documents, measured, quantity
from tests.logs.corpus import cases, check_damage, check_values, text_of

TOOLS = ("amd-smi", "rocm-smi", "nvidia-smi")
CASES = cases(*TOOLS)


@pytest.mark.parametrize("tool, name, wanted", CASES)
def test_a_captured_output(tool, name, wanted):
    found = read(parser_of(tool), text_of(tool, name))
    check_values(found, wanted)
    for gpu in found["gpus"]:
        nulls = {field for field in GPU_FIELDS if gpu[field] is None}
        assert set(gpu["absent"]) == nulls and all(gpu["absent"].values())


@pytest.mark.parametrize("tool, name, wanted", CASES)
def test_a_damaged_output_is_no_exception(tool, name, wanted):
    check_damage(parser_of(tool), text_of(tool, name))


SAME = ("name", "bdf", "device_id", "power_w", "power_limit_w", "temperature_c", "memory_clock_mhz", "utilisation_pct",
        "memory_used_bytes", "memory_total_bytes", "energy_j", "fan_pct")  # fmt: skip


@pytest.mark.parametrize("tool, name, wanted", [case for case in CASES if len(text_of(*case.values[:2])) < 1300])
def test_a_cut_output_gives_no_other_value_than_the_whole(tool, name, wanted):
    parser, text = parser_of(tool), text_of(tool, name)
    whole = {gpu["index"]: gpu for gpu in parser(text)["gpus"]}
    for cut in range(len(text)):
        for gpu in parser(text[:cut])["gpus"]:
            wrong = {f: gpu[f] for f in SAME if gpu["index"] in whole and gpu[f] not in (None, whole[gpu["index"]][f])}
            assert not wrong or gpu["index"] is None, (cut, wrong)


@pytest.mark.parametrize("tool, name, wanted", CASES)
def test_the_output_of_another_tool_is_unparsed(tool, name, wanted):
    text = text_of(tool, name)
    for other in set(TOOLS) - {tool}:
        found = read(parser_of(other), text)
        assert (found["status"], found["reason"], found["gpus"]) == ("failed", "unparsed", []), other


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "text", ["", "\n\n", "hello", "{}", "[]", "[{}]", '{"gpu_data": 7}', "\0\0", "index,name\n0,x\n", "[" * 5000, "1" * 9000]
)
def test_what_is_no_output_is_unparsed(tool, text):
    found = read(parser_of(tool), text)
    assert (found["status"], found["reason"]) == ("failed", "unparsed")


@pytest.mark.parametrize("tool, other, name", [
    ("amd-smi", "lscpu", "vm-epyc9004-2vcpu-J-v2.38.json"), ("rocm-smi", "rocminfo", "mi210-2cpu-2gpu-ansi-rocm6.1.txt"),
    ("nvidia-smi", "nvidia-smi-topo", "8gpu-nv18-8nic-gpunumaid.txt"), ("amd-smi", "rvs", "gm-mi300x-rocm6.2.txt"),
    ("amd-smi", "nccl-tests", "allreduce-gh200x2-J.json"), ("nvidia-smi", "BabelStream", "v5.0-cuda-a100-80-sxm.txt"),
])  # fmt: skip
def test_a_foreign_text_is_unparsed(tool, other, name):
    assert read(parser_of(tool), text_of(other, name))["reason"] == "unparsed"


# cells


@pytest.mark.parametrize("cell, kind, value", [
    ("182 W", "w", 182), ("182.5W", "w", 182.5), ("182500 mW", "w", 182.5), ("1.2 kW", "w", 1200), (7, "w", 7),
    ({"value": 10, "unit": "W"}, "w", 10), ({"value": "N/A", "unit": "W"}, "w", None), ("N/A", "w", None), ("N/A mV", "mv", None),
    ("[N/A]", "w", None), ("[Not Supported]", "w", None), ("[Unknown Error]", "w", None), ("", "w", None), (None, "w", None),
    ("(300Mhz)", "mhz", 300), ("2.1 GHz", "mhz", 2100), ("34.0°C", "c", 34), ("47.0c", "c", 47), ("-5 C", "c", -5), ("-1 W", "w", None),
    ("65535 W", "w", None), ("65535", "mhz", None), (4294967295, "w", None), (18446744073709551615, "bytes", None),
    ("65535 B", "bytes", 65535), ("437MiB", "bytes", 458227712), ("2 GB", "bytes", 2147483648), ("0.5 KB", "bytes", 512),
    ("12 J", "j", 12), ("12000 mJ", "j", 12), ("1500000 uJ", "j", 1.5), ("5 furlongs", "w", None), ("12 MHz", "w", None),
    ("1e999", "w", None), (True, "w", None), ([1], "w", None), ("12,5 W", "w", None), ("9" * 400, "w", None),
])  # fmt: skip
def test_numbers_units_and_sentinels(cell, kind, value):
    found, why = measured(cell, kind)
    assert found == (value if value is None else pytest.approx(value)) and (why is None) == (value is not None)


def test_small_helpers():
    assert quantity("N/A")[2] == "N/A" and quantity("[Not Supported]")[2] == "Not Supported"
    assert bdf_of("00000000:C1:00.0") == "0000:c1:00.0" == bdf_of("c1:00.0") and bdf_of("gpu") is None
    two = 'WARNING: [x]\n[WARN] {low}\n[{"a": 1}]\n{"b": NaN}\n'
    assert documents(two) == ([[{"a": 1}], {"b": None}], True)
    assert documents('[{"a": 1, "b": {"c": 12') == ([[{"a": 1, "b": {}}]], False)
    assert documents('{"a": "x, y", "b": 2, "c": "}') == ([{"a": "x, y", "b": 2}], False)


# amd-smi


def amd(text):
    return read(amd_smi.parse, text)


@pytest.mark.parametrize("shape", ["list", "gpu_data", "strings", "csv", "text"])
def test_amd_metric_in_every_shape(shape):
    value = (lambda v, u: f"{v} {u}") if shape in ("strings", "text") else (lambda v, u: {"value": v, "unit": u})
    gpu = {
        "gpu": 3, "usage": {"gfx_activity": value(98, "%"), "umc_activity": value(40, "%")},
        "power": {"socket_power": value(712, "W"), "throttle_status": "N/A"},
        "clock": {"gfx_0": {"clk": value(1900, "MHz")}, "gfx_1": {"clk": value(2100, "MHz")}, "mem_0": {"clk": value(1300, "MHz")}},
        "temperature": {"edge": "N/A", "hotspot": value(71, "°C"), "mem": value(60, "°C")},
        "mem_usage": {"total_vram": value(1024, "MB"), "used_vram": value(512, "MB")},
        "energy": {"total_energy_consumption": value(1234.5, "J")},
    }  # fmt: skip
    if shape == "csv":
        head = (
            "gpu,gfx_activity,umc_activity,socket_power,throttle_status,gfx_0_clk,gfx_1_clk,mem_0_clk,edge,hotspot,mem,"
            "total_vram,used_vram,total_energy_consumption,jpeg_activity"
        )
        text = f"{head}\n3,98,40,712,N/A,1900,2100,1300,N/A,71,60,1024 MB,512 MB,1234.5,\"['N/A', '0 %']\"\n"
    elif shape == "text":
        text = "\n".join(_tree(gpu)) + "\n"
    else:
        text = json.dumps({"gpu_data": [gpu]} if shape == "gpu_data" else [gpu])
    found = amd(text)
    (one,) = found["gpus"]
    assert found["status"] == "ok" and one["index"] == 3
    wanted = {
        "power_w": 712, "power_kind": "socket", "clock_mhz": 2000, "memory_clock_mhz": 1300, "temperature_c": 71,
        "temperature_kind": "hotspot", "memory_temperature_c": 60, "utilisation_pct": 98, "memory_utilisation_pct": 40,
        "memory_used_bytes": 2**29, "memory_total_bytes": 2**30, "energy_j": 1234.5, "limits": None,
    }  # fmt: skip
    assert {name: one[name] for name in wanted} == wanted and one["absent"]["limits"] == "N/A"


def _tree(value, indent=0):
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield f"{' ' * indent}{key.upper()}:"
            yield from _tree(inner, indent + 4)
        else:
            yield f"{' ' * indent}{key.upper()}: {inner}"
            indent = indent or 4


def test_amd_power_fields_by_name():
    for name, kind in (("current_socket_power", "current"), ("average_socket_power", "average")):
        (gpu,) = amd(json.dumps([{"gpu": 0, "power": {name: {"value": 5, "unit": "W"}}}]))["gpus"]
        assert (gpu["power_w"], gpu["power_kind"]) == (5, kind)
    both = {"current_socket_power": "N/A", "average_socket_power": 17}
    (gpu,) = amd(json.dumps([{"gpu": 0, "power": both}]))["gpus"]
    assert (gpu["power_w"], gpu["power_kind"]) == (17, "average")


def test_amd_limits_of_both_caps_and_active_violations():
    limit = {"ppt0": {"max_power_limit": {"value": 750, "unit": "W"}, "socket_power_limit": "700 W"}}
    throttle = {"ppt_violation_status": "ACTIVE", "hbm_thermal_violation_status": "NOT ACTIVE", "ppt_accumulated": 9}
    (gpu,) = amd(json.dumps({"gpu_data": [{"gpu": 0, "limit": limit, "throttle": throttle}]}))["gpus"]
    assert (gpu["power_limit_w"], gpu["power_limit_max_w"], gpu["limits"]) == (700, 750, ["ppt"])
    assert gpu["limit_counters"] == {"ppt": 9}


def test_amd_errors_and_warnings():
    assert amd('{"error": "x"}')["reason"] == "unparsed"
    found = amd("ERROR:root:Unable to detect any GPU devices, check amdgpu version and module status (sudo modprobe amdgpu)\n")
    assert found["status"] == "unavailable" and "Unable to detect" in found["reason"]
    found = amd("amd-smi: error: AmdSmiInvalidParameterException: Device 'x' is not valid\n")
    assert found["status"] == "failed" and "not valid" in found["reason"]
    text = "WARNING: User is missing the following required groups: render\n" + json.dumps([{"gpu": 0, "power": {"socket_power": "9 W"}}])
    assert amd(text)["gpus"][0]["power_w"] == 9


def test_amd_list_gives_addresses_and_no_uuid():
    rows = [{"gpu": 0, "bdf": "0000:05:00.0", "uuid": "secret-uuid"}, {"gpu": 1, "bdf": "0000:26:00.0", "uuid": "secret-uuid"}]
    found = amd(json.dumps(rows))
    assert [gpu["bdf"] for gpu in found["gpus"]] == ["0000:05:00.0", "0000:26:00.0"] and "secret" not in json.dumps(found)


def test_amd_watch_keeps_the_last_row_of_each_gpu_and_all_samples():
    table = " TIMESTAMP  GPU  POWER   GPU_T\n17  0  100 W   50 °C\n17  1  110 W   51 °C\n18  0  200 W   52 °C\n"
    found = amd(table)
    assert [gpu["power_w"] for gpu in found["gpus"]] == [200, 110] and len(found["samples"]) == 3
    cut = amd(table + "18  1  21")
    assert cut["status"] == "partial" and [gpu["power_w"] for gpu in cut["gpus"]] == [200, 110]


def test_amd_new_topology_and_tables():
    links = [{"gpu": 0, "bdf": "0000:05:00.0", "weight": 0, "link_status": "ENABLED", "link_type": "SELF", "num_hops": 0},
             {"gpu": 1, "bdf": "0000:26:00.0", "weight": 15, "link_status": "ENABLED", "link_type": "XGMI", "num_hops": 1}]  # fmt: skip
    wanted = {"from": 0, "to": 1, "type": "XGMI", "weight": 15, "hops": 1, "accessible": True}
    assert amd(json.dumps([{"gpu": 0, "bdf": "0000:05:00.0", "links": links}]))["links"] == [wanted]
    names = ("0000:05:00.0", "0000:26:00.0")
    text = "".join(
        f"{title} TABLE:\n             {' '.join(names)}\n{names[0]} {own} {other}\n{names[1]} {other} {own}\n\n"
        for title, own, other in (("ACCESS", "ENABLED", "ENABLED"), ("WEIGHT", 0, 15), ("HOPS", 0, 1), ("LINK TYPE", "SELF", "XGMI"))
    )
    assert amd(text)["links"][0] == wanted


def test_amd_screen_of_rocm_7():
    rule = "+------------------------------------------------------------------------------+"
    text = "\n".join([
        rule, "| AMD-SMI 26.0.0+37d158ab      amdgpu version: 6.14.14  ROCm version: 7.0.0    |",
        "| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |",
        "| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |",
        "| 0000:05:00.0    AMD Instinct MI300X | 3 %      43 °C   0           137/750 W |",
        "|   0       0       7        SPX/NPS1 | 9 %        N/A           283/196300 MB |",
        rule, "| Processes: |", ""])  # fmt: skip
    found = amd(text)
    (gpu,) = found["gpus"]
    assert found["status"] == "ok" and found["versions"]["rocm"] == "7.0.0" and found["versions"]["tool"] == "26.0.0+37d158ab"
    assert (gpu["power_w"], gpu["power_limit_w"], gpu["temperature_c"], gpu["utilisation_pct"]) == (137, 750, 43, 9)
    assert (gpu["bdf"], gpu["compute_partition"], gpu["memory_used_bytes"]) == ("0000:05:00.0", "SPX", 283 * 2**20)


# rocm-smi


def rocm(text):
    return read(rocm_smi.parse, text)


def test_rocm_lines_of_numa_nodes_and_topology_tables():
    text = (
        "============================ ROCm System Management Interface ============================\n"
        "================================ Weight between two GPUs =================================\n"
        "       GPU0         GPU1         \nGPU0   0            15           \nGPU1   15           0            \n\n"
        "=============================== Link Type between two GPUs ===============================\n"
        "       GPU0         GPU1         \nGPU0   0            XGMI         \nGPU1   XGMI         0            \n\n"
        "======================================= Numa Nodes =======================================\n"
        "GPU[0]\t\t: (Topology) Numa Node: 3\nGPU[0]\t\t: (Topology) Numa Affinity: 3\n"
        "GPU[1]\t\t: (Topology) Numa Node: 2\nGPU[1]\t\t: (Topology) Numa Affinity: 4294967295\n"
        "================================== End of ROCm SMI Log ===================================\n"
    )
    found = rocm(text)
    assert found["status"] == "ok" and [gpu["numa_node"] for gpu in found["gpus"]] == [3, 2]
    assert found["gpus"][1]["numa_affinity"] is None
    assert found["links"][0] == {"from": 0, "to": 1, "type": "XGMI", "weight": 15, "hops": None, "accessible": None}


def test_rocm_renamed_keys_and_energy():
    card = {
        "PCI Bus": "0000:C1:00.0", "Current Socket Graphics Package Power (W)": "711.0", "sclk clock level": "1 (2100Mhz)",
        "mclk clock speed:": "(1300Mhz)", "GPU Memory Allocated (VRAM%)": "3", "GPU Memory Read/Write Activity (%)": "55",
        "Accumulated Energy (uJ)": "2500000.0", "Temperature (Sensor junction) (C)": "N/A", "Temperature (Sensor edge) (C)": "40.0",
        "Unique ID": "0xsecret", "Serial Number": "secret",
    }  # fmt: skip
    found = rocm(json.dumps({"card2": card}))
    (gpu,) = found["gpus"]
    wanted = {
        "index": 2, "bdf": "0000:c1:00.0", "power_w": 711, "power_kind": "current", "clock_mhz": 2100, "memory_clock_mhz": 1300,
        "memory_used_pct": 3, "memory_utilisation_pct": 55, "energy_j": 2.5, "temperature_c": 40, "temperature_kind": "edge",
    }  # fmt: skip
    assert {name: gpu[name] for name in wanted} == wanted and "secret" not in json.dumps(found)


def test_rocm_csv_in_several_blocks():
    text = "device,GPU use (%)\ncard0,5\ncard1,7\n\ndevice,Average Graphics Package Power (W)\ncard0,30.0\ncard1,40.0\n"
    found = rocm(text)
    assert [(gpu["utilisation_pct"], gpu["power_w"]) for gpu in found["gpus"]] == [(5, 30), (7, 40)]


def test_rocm_without_devices():
    assert rocm("WARNING: No JSON data to report\n")["status"] == "failed"
    found = rocm("ERROR:root:Driver not initialized (amdgpu not found in modules)\n")
    assert found["status"] == "unavailable" and "not initialized" in found["reason"]


# nvidia-smi


def nvidia(text):
    return read(nvidia_smi.parse, text)


def test_nvidia_query_with_reasons_and_no_uuid():
    text = (
        "index, uuid, pci.bus_id, driver_version, power.draw [W], power.draw.instant [W], enforced.power.limit [W], "
        "clocks.sm [MHz], clocks_throttle_reasons.active, memory.used [MiB], clocks_event_reasons.hw_slowdown\n"
        "1, GPU-secret, 00000000:C1:00.0, 580.1, 600.00 W, 690.10 W, 700.00 W, 1455 MHz, 0x0000000000000404, 1024 MiB, Active\n"
        "2, GPU-secret, 00000000:C2:00.0, 580.1, [N/A], [N/A], 700.00 W, 1455 MHz, [N/A], 1024 MiB, Active\n"
    )
    found = nvidia(text)
    one, two = found["gpus"]
    assert (one["power_w"], one["power_kind"], one["power_limit_w"], one["clock_mhz"]) == (690.1, "instant", 700, 1455)
    assert one["limits"] == ["sw_power_cap", "bit 10"] and one["bdf"] == "0000:c1:00.0" and one["memory_used_bytes"] == 2**30
    assert two["power_w"] is None and two["limits"] == ["hw_slowdown"] and found["versions"]["driver"] == "580.1"
    assert found["power"]["additive"] and "secret" not in json.dumps(found)


def test_nvidia_last_cell_of_a_cut_text_is_not_taken():
    found = nvidia("index, power.draw [W], clocks.sm [MHz]\n0, 69.00, 1410\n1, 70.00, 14")
    assert found["status"] == "partial" and [gpu["clock_mhz"] for gpu in found["gpus"]] == [1410, None]
    assert nvidia("index, power.draw [W]\n")["status"] == "partial"


def test_nvidia_errors():
    for text in ("No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure\n"):
        assert nvidia(text)["status"] == "unavailable"
    found = nvidia('Field "power.draw.instant" is not a valid field to query.\n\n')
    assert found["status"] == "failed" and "power.draw.instant" in found["reason"]


def test_nvidia_table_of_two_gpus_and_the_report():
    rule = "+-----------------------------------------+------------------------+----------------------+"
    rows = [
        line
        for n in (0, 1)
        for line in (
            f"|   {n}  NVIDIA H200                   On  |   00000000:{n}A:00.0 Off |                    0 |",
            f"| N/A   3{n}C    P0            7{n}W /  700W  |     437MiB /  143771MiB |     {n}%      Default |",
            "|                                         |                        |             Disabled |",
            rule,
        )
    ]
    head = "| NVIDIA-SMI 580.1              Driver Version: 580.1      CUDA Version: 13.0     |"
    found = nvidia("\n".join([rule, head, rule, *rows, "", "| Processes: |", "|    0   N/A  N/A   1234   C   python   437MiB |", ""]))
    assert found["status"] == "ok" and [gpu["power_w"] for gpu in found["gpus"]] == [70, 71] and found["power"]["total_w"] == 141
    report = (
        "==============NVSMI LOG==============\n\nDriver Version                            : 580.1\nAttached GPUs   : 1\n"
        "GPU 00000000:0A:00.0\n    Product Name                          : NVIDIA H200\n    GPU UUID : GPU-secret\n"
        "    Clocks Event Reasons\n        Idle  : Not Active\n        SW Power Cap : Active\n"
        "    GPU Power Readings\n        Average Power Draw : 70.10 W\n        Instantaneous Power Draw : 75.00 W\n"
        "    Clocks\n        SM : 345 MHz\n    Max Clocks\n        SM : 1980 MHz\n"
    )
    (gpu,) = (found := nvidia(report))["gpus"]
    assert (gpu["power_w"], gpu["power_kind"], gpu["clock_mhz"], gpu["limits"]) == (75, "instant", 345, ["sw_power_cap"])
    assert gpu["name"] == "NVIDIA H200" and found["versions"]["driver"] == "580.1" and "secret" not in json.dumps(found)
