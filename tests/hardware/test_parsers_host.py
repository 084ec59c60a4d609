"""Parsers of lscpu, numactl, rocminfo, nvidia-smi topo and captures of /sys: the corpus, damage, and cases by hand."""

import json

import pytest

from escherlib.hardware.parsers import parser_of
from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, UNPARSED
from escherlib.hardware.parsers.host_text import cpu_list, decimal, mask_cpus, plain_lines, whole
from tests.logs.corpus import cases, check_damage, check_values, expected, text_of

TOOLS = ("lscpu", "numactl", "rocminfo", "nvidia-smi-topo", "sysfs-topology")


def parsed(tool, text):
    return parser_of(tool)(text)


@pytest.mark.parametrize("tool, name, wanted", cases(*TOOLS))
def test_values_of_the_corpus(tool, name, wanted):
    check_values(parsed(tool, text_of(tool, name)), wanted)


@pytest.mark.parametrize("tool, name, wanted", cases(*TOOLS))
def test_damage_never_breaks_a_parser(tool, name, wanted):
    check_damage(parser_of(tool), text_of(tool, name))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("text", ["", "\n\n", "{", "[]", "null", "some words\nand more: of them\n", "\0\x1b[0m"])
def test_no_evidence_is_unparsed(tool, text):
    found = parsed(tool, text)
    assert (found["status"], found["reason"]) == (FAILED, UNPARSED)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_output_of_another_tool_is_unparsed(tool):
    for other in TOOLS:
        for name in expected(other) if other != tool else ():
            found = parsed(tool, text_of(other, name))
            assert (found["status"], found["reason"]) == (FAILED, UNPARSED), (tool, other, name)


@pytest.mark.parametrize(
    "tool, name, keep",
    [
        ("lscpu", "epyc7451x2-nps4-J-v2.38.json", 0.6),
        ("lscpu", "epyc7451x2-nps4-J-e-v2.38.json", 0.5),
        ("lscpu", "epyc7451x2-nps4-text-and-parse.txt", 0.2),
        ("numactl", "epyc-2x64c-nps4-8nodes.txt", 0.5),
        ("numactl", "threadripper3960x-nps4-memoryless.txt", 0.95),
        ("nvidia-smi-topo", "a100x8-respaced.txt", 0.5),
        ("sysfs-topology", "vm-epyc9004-2vcpu-flat.txt", 0.5),
    ],
)
def test_a_cut_output_is_partial_and_says_what_is_missing(tool, name, keep):
    text = text_of(tool, name)
    found = parsed(tool, text[: int(len(text) * keep)])
    assert found["status"] == PARTIAL and found["reason"]


def test_a_cut_json_keeps_what_is_whole():
    text = text_of("lscpu", "epyc7451x2-nps4-J-v2.38.json")
    found = parsed("lscpu", text[: text.index("CPU min MHz")])
    assert found["cpu_max_mhz"] == 2300.0 and found["cpu_min_mhz"] is None and found["sockets"] == 2
    rows = text_of("lscpu", "epyc7451x2-nps4-J-e-v2.38.json")
    assert len(parsed("lscpu", rows[: rows.index('"cpu": 10,')])["table"]) == 10


def test_lscpu_with_indented_groups_and_kinds_of_core():
    """Newer summaries are indented in groups; on Arm each kind of core has its own block, the first counts."""
    text = """
Architecture:             aarch64
  CPU op-mode(s):         32-bit, 64-bit
CPU(s):                   6
Vendor ID:                ARM
  Model name:             Cortex-A55
    Thread(s) per core:   1
    Socket(s):            -
  Model name:             Cortex-A76
    Thread(s) per core:   1
Caches (sum of all):
  L1d:                    192 KiB (6 instances)
NUMA:
  NUMA node(s):           1
  NUMA node0 CPU(s):      0-5
"""
    found = parsed("lscpu", text)
    assert found["status"] == OK and found["model_names"] == ["Cortex-A55", "Cortex-A76"]
    assert (found["cpus"], found["sockets"], found["numa_nodes_with_cpus"]) == (6, None, 1)
    assert found["caches"]["l1d"] == {"size_bytes": 192 * 1024, "instances": 6}


def test_lscpu_tables_as_text():
    head = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ\n"
    rows = "  0    0      0    0 0:0:0:0          yes 2000.0000 800.0000\n  1    0      0    0 0:0:0:0          yes 2000.0000 800.0000\n"
    found = parsed("lscpu", head + rows + "  2    -      -    - -                 no         -        -\n")
    assert (found["status"], found["cpus"], found["threads_per_core"]) == (OK, 2, 2)
    assert found["table"][2]["online"] is False and found["table"][2]["core"] is None
    assert parsed("lscpu", head + rows[:70])["status"] == PARTIAL


def test_numactl_without_numa_or_without_the_program():
    assert parsed("numactl", "No NUMA available on this system\n")["status"] == UNAVAILABLE
    assert parsed("numactl", "bash: numactl: command not found\n")["status"] == UNAVAILABLE
    found = parsed("numactl", "available: 1 nodes (0)\nnode 0 cpus: 0 1 4\nnode 0 size: 100 MB\nnode 0 free: 9 MB\n"
                              "node distances:\nnode   0 \n  0:  10 \n")  # fmt: skip
    assert (found["status"], found["nodes"][0]["cpus"], found["distances"]) == (OK, "0-1,4", {"0": {"0": 10}})


def test_rocminfo_whole_failed_and_without_a_driver():
    text = text_of("rocminfo", "mi300x8-agent3-cut-rocm6.4.2.txt") + "*** Done ***\n"
    assert parsed("rocminfo", text)["status"] == OK
    none = "ROCk module is NOT loaded, possibly no GPU devices\n"
    assert parsed("rocminfo", none) == {"status": UNAVAILABLE, "reason": none.strip()}
    failed = "hsa api call failure at: rocminfo.cc:1148\nCall returned HSA_STATUS_ERROR_OUT_OF_RESOURCES\n"
    assert parsed("rocminfo", failed)["status"] == FAILED and "hsa api" in parsed("rocminfo", failed)["reason"]


def test_rocminfo_keeps_no_uuid_and_no_bus_address():
    kept = json.dumps(parsed("rocminfo", text_of("rocminfo", "mi210-2cpu-2gpu-ansi-rocm6.1.txt")))
    assert "GPU-0000000000000001" not in kept and "25344" not in kept


def test_topo_of_one_gpu_with_colours_and_errors():
    found = parsed("nvidia-smi-topo", "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-15\t0-1\t\tN/A\n")
    assert (found["status"], found["links"], found["gpu_link_kinds"]) == (OK, {"GPU0": {}}, [])
    assert (found["devices"][0]["cpu_affinity"], found["devices"][0]["numa_affinity"]) == ("0-15", "0-1")
    assert found["devices"][0]["numa_node"] is None
    assert parsed("nvidia-smi-topo", "No devices were found\n")["status"] == UNAVAILABLE
    assert parsed("nvidia-smi-topo", "Failed to initialize NVML: Driver/library version mismatch\n")["status"] == FAILED
    hops = "       GPU0         GPU1         \nGPU0   0            15           \nGPU1   15           0            \n"
    assert parsed("nvidia-smi-topo", hops)["reason"] == UNPARSED  # rocm-smi --showtopo


def test_topo_rows_that_do_not_fit_their_header():
    shifted = "     GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 NV2 X 0-3 0\nGPU1 NV2 ?? 0-3 0\n"
    found = parsed("nvidia-smi-topo", shifted)
    assert found["status"] == PARTIAL and found["reason"] == "the row of GPU0 can't be read; the row of GPU1 can't be read"


def test_sysfs_as_grep_prints_it():
    at = "/sys/devices/system/cpu/cpu0"
    lines = [f"{at}/topology/core_id:3", f"{at}/topology/physical_package_id:1", f"{at}/topology/cluster_id:-1",
             "/sys/devices/system/cpu/online:0", "/sys/devices/system/node/node4/cpulist:0"]  # fmt: skip
    found = parsed("sysfs-topology", "\n".join(lines))
    assert found["status"] == OK and found["cpus"] == [
        {"cpu": 0, "socket": 1, "die": None, "cluster": None, "core": 3, "node": 4, "siblings": None, "l3_cpus": None,
         "l3_bytes": None}
    ]  # fmt: skip


def test_small_readers():
    assert [whole(text) for text in ("29857(0x74a1)", "64306 MB", "1.5", "", None, "x", "9" * 5000)] == [
        29857, 64306, None, None, None, None, None,
    ]  # fmt: skip
    assert decimal("126%") == 126.0 and decimal("-") is None
    assert cpu_list("0,1,2,8") == "0-2,8" and cpu_list("N/A") is None and cpu_list("") is None
    assert mask_cpus("00000001,00000003") == {0, 1, 32} and mask_cpus("x") == set()
    assert plain_lines("\x1b[37ma b\x1b[0m \r\nc\0") == ["a b", "c"]
