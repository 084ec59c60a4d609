"""Host facts on made-up trees: cgroups of both versions, CCDs, sockets, NUMA, missing files."""

import pytest

from escherlib.hardware.cgroups import limits, own_groups
from escherlib.hardware.host import host_facts, usable_threads
from escherlib.hardware.sysfs import format_cpus, parse_bytes, parse_cpus
from tests.hardware.trees import cgroup2, cpu_files, node_files, write

GIB = 2**30


@pytest.mark.parametrize(
    "text, found",
    [
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("", set()),
        (None, set()),
        ("5", {5}),
        ("x,1", {1}),
        (" 0-1 , 4 ", {0, 1, 4}),
    ],
)
def test_cpu_lists(text, found):
    assert parse_cpus(text) == found
    assert parse_cpus(format_cpus(found)) == found


@pytest.mark.parametrize(
    "text, size", [("32768K", 32 * 2**20), ("8", 8), ("x", None), (None, None), ("1G", GIB)]
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


def host64(root, extra, topology=False):
    """64 CPUs, two sockets, 128 GiB."""
    files = {"sys/devices/system/cpu/online": "0-63", "proc/meminfo": f"MemTotal: {128 * 2**20} kB"}
    for cpu in range(64 if topology else 0):
        files |= cpu_files(cpu, socket=cpu // 32, core=cpu % 32, l3=f"{cpu // 8 * 8}-{cpu // 8 * 8 + 7}")
    return write(root, files | extra)


def test_a_version_2_quota_and_memory_limit(tmp_path):
    """64 CPUs, cpu.max 200000 100000, memory.max 8 GiB → 2 usable CPUs, 8 GiB."""
    group = {"": {"cpu.max": "max 100000"}, "app": {"cpu.max": "200000 100000", "memory.max": 8 * GIB}}
    facts = host_facts(host64(tmp_path, cgroup2("/app", group)), affinity=range(64))
    assert (facts["usable_cpus"], facts["online_cpus"]) == (2, 64)
    assert facts["usable_cpus_how"] == "cgroup quota: 2 of 64 CPUs" and facts["quota_cpus"] == 2.0
    assert facts["memory_limit_bytes"] == 8 * GIB and facts["memory_total_bytes"] == 128 * GIB
    assert facts["memory_limit_how"] == "cgroup limit" and usable_threads(facts) == 2


def test_the_tightest_group_up_the_tree_counts(tmp_path):
    groups = {
        "": {"cpu.max": "800000 100000"},
        "a": {
            "cpu.max": "350000 100000",
            "memory.max": "max",
            "memory.high": 6 * GIB,
            "cpuset.cpus.effective": "0-15",
        },
        "a/b": {"cpu.max": "max 100000", "memory.max": 9 * GIB, "cpuset.cpus.effective": "0-7"},
    }
    found = limits(write(tmp_path, cgroup2("/a/b", groups)))
    assert (found.quota_cpus, found.memory_bytes, found.cpus) == (3.5, 6 * GIB, frozenset(range(8)))
    facts = host_facts(host64(tmp_path, {}), affinity=range(64))
    assert facts["usable_cpus"] == 3 and facts["allowed_cpus"] == "0-7"  # 3.5 pay for three threads


def test_version_1_with_its_sentinels(tmp_path):
    mounts = [("cpu", "cpu,cpuacct"), ("memory", "memory"), ("cpuset", "cpuset")]
    files = {
        "proc/self/cgroup": "5:cpuset:/docker/x\n4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/",
        "proc/self/mountinfo": "\n".join(
            f"{30 + i} 23 0:28 /docker/x /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{options}"
            for i, (name, options) in enumerate(mounts)
        ),
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "4-7",
    }
    found = limits(write(tmp_path, files))
    assert (found.quota_cpus, found.memory_bytes, found.cpus) == (1.5, None, frozenset({4, 5, 6, 7}))
    facts = host_facts(host64(tmp_path, {}), affinity=range(64))
    assert (facts["usable_cpus"], facts["memory_limit_how"]) == (1, "memory of the host")
    write(tmp_path, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"})
    assert limits(tmp_path).quota_cpus is None


@pytest.mark.parametrize("path, shown", [("/../../up", "/"), ("/elsewhere", "/docker/x"), ("/gone", "/")])
def test_a_namespace_that_hides_the_own_path(tmp_path, path, shown):
    root = write(tmp_path, cgroup2(path, {"": {"cpu.max": "100000 100000"}}, shown=shown))
    assert own_groups(root) == [root / "sys/fs/cgroup"] and limits(root).quota_cpus == 1.0


def test_affinity_and_threads_that_share_a_core(tmp_path):
    """Two threads a core: four usable CPUs are two cores, and two threads are worth starting."""
    files = {"sys/devices/system/cpu/online": "0-7"}
    for cpu in range(8):
        files |= cpu_files(cpu, core=cpu % 4, l3="0-7")
    facts = host_facts(write(tmp_path, files), affinity={0, 1, 4, 5, 99})
    assert (facts["usable_cpus"], facts["usable_cores"], facts["threads_per_core"]) == (4, 2, 2)
    assert facts["usable_cpus_how"] == "affinity or cpuset: 4 of 8 CPUs" and usable_threads(facts) == 2
    assert facts["l1d_bytes"] == 4 * 32 * 2**10 and facts["llc_bytes"] == 32 * 2**20


def test_dies_sockets_and_caches(tmp_path):
    facts = host_facts(host64(tmp_path, {}, topology=True), affinity=set(range(16)) | {40})
    assert facts["sockets"] == 2 and facts["ccds"][:2] == ["0-7", "8-15"] and len(facts["ccds"]) == 8
    assert facts["llc_bytes"] == 3 * 32 * 2**20  # CPUs 0–7, 8–15 and 40 touch three of the eight
    assert facts["usable_cores"] == 17  # core numbers repeat per socket


def test_numa_nodes_skip_lack_cpus_and_hold_offline_ones(tmp_path):
    files = (
        {"sys/devices/system/cpu/online": "0-1,3"}
        | cpu_files(0)
        | cpu_files(1, core=1)
        | cpu_files(3, core=3)
    )
    files |= node_files(0, "0-3", 1024) | node_files(2, "", 2048) | node_files(10, "", 0)
    facts = host_facts(write(tmp_path, files), affinity=range(4))
    assert facts["numa_nodes"] == [
        {"node": 0, "cpus": "0-1,3", "memory_bytes": 2**20},
        {"node": 2, "cpus": "", "memory_bytes": 2**21},
        {"node": 10, "cpus": "", "memory_bytes": 0},
    ]
    assert facts["usable_cpus"] == 3


def test_an_empty_tree_and_broken_files_leave_unknowns(tmp_path):
    facts = host_facts(tmp_path, affinity=range(3))
    assert (facts["usable_cpus"], facts["usable_cores"], facts["llc_bytes"], facts["sockets"]) == (
        3,
        None,
        None,
        None,
    )
    assert facts["memory_limit_bytes"] is None and usable_threads(facts) == 3
    files = {
        "proc/self/cgroup": "nonsense",
        "proc/self/mountinfo": "a b - cgroup2",
        "proc/meminfo": "MemTotal: many",
    }
    files |= {
        "sys/fs/cgroup/cpu.max": "0 0",
        "sys/fs/cgroup/memory.max": "-3",
        "sys/devices/system/cpu/online": "?",
    }
    facts = host_facts(write(tmp_path, files), affinity=range(3))
    assert facts["usable_cpus"] == 3 and facts["memory_limit_bytes"] is None


def test_the_processor(tmp_path):
    info = "model name\t: Some CPU\ncpu family\t: 25\nmodel\t\t: 17\n"
    info += "flags\t\t: fpu avx2 avx512_bf16 smep hypervisor\n\n"
    facts = host_facts(write(tmp_path, {"proc/cpuinfo": info}), affinity={0})
    assert (facts["model_name"], facts["cpu_family"], facts["cpu_model"]) == ("Some CPU", 25, 17)
    assert facts["isa_flags"] == ["avx2", "avx512_bf16"] and facts["virtual_machine"]


def test_this_host():
    facts = host_facts()
    assert 1 <= facts["usable_cpus"] <= facts["online_cpus"] and facts["memory_limit_bytes"] > 0
