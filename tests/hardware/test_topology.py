"""CCD, NUMA and socket maps of made-up hosts, worked out by hand."""

import subprocess

import pytest

from escherlib.hardware import host
from escherlib.hardware.host import domains, host_facts
from escherlib.hardware.parsers.lscpu import parse as parse_lscpu
from escherlib.hardware.sysfs import format_cpus, parse_cpus
from escherlib.hardware.topology import cpu_cells, lscpu_rows
from tests.hardware.trees import node_files, write
from tests.logs.corpus import text_of

KIB = 2**10


def tree(root, cpus, nodes, more=None):
    """`cpus`: {number: {socket, core, siblings, die, cluster, caches: [(level, type, size, shared)]}}."""
    files = {"sys/devices/system/cpu/online": format_cpus(cpus)} | (more or {})
    names = {"socket": "physical_package_id", "core": "core_id", "die": "die_id", "cluster": "cluster_id",
             "siblings": "thread_siblings_list"}  # fmt: skip
    for cpu, facts in cpus.items():
        at = f"sys/devices/system/cpu/cpu{cpu}"
        files |= {f"{at}/topology/{names[key]}": facts[key] for key in names if key in facts}
        for index, values in enumerate(facts.get("caches", ())):
            for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
                files[f"{at}/cache/index{index}/{name}"] = value
    for node, listed in nodes.items():
        files |= node_files(node, listed, 1024)
    return write(root, files)


def caches(own, l3, l2=None, l3_size="32768K"):
    """L1 and L2 of the core's threads, and an L3 where there is one."""
    found = [(1, "Data", "32K", own), (1, "Instruction", "32K", own), (2, "Unified", "1024K", l2 or own)]
    return found + ([(3, "Unified", l3_size, l3)] if l3 else [])


def epyc(sockets, cores_per_socket, ccd_cores, threads=2):
    """An EPYC: CPU n and its second thread n + all cores; `ccd_cores` cores share an L3."""
    total, found = sockets * cores_per_socket, {}
    for cpu in range(total * threads):
        core = cpu % total
        first = core // ccd_cores * ccd_cores
        own = ",".join(str(core + total * t) for t in range(threads))
        l3 = ",".join(f"{first + total * t}-{first + total * t + ccd_cores - 1}" for t in range(threads))
        found[cpu] = {
            "socket": core // cores_per_socket, "core": core % cores_per_socket, "siblings": own, "die": 0,
            "cluster": 65535, "caches": caches(own, l3),
        }  # fmt: skip
    return found


def short(found):
    return [(format_cpus(one["cpus"]), one["node"], one["socket"]) for one in found]


def test_an_epyc_of_two_sockets_in_four_nodes_each(tmp_path):
    """2 × 32 cores, CCDs of 8 cores, one CCD a node: 64–127 are the second threads of 0–63."""
    nodes = {n: f"{8 * n}-{8 * n + 7},{64 + 8 * n}-{64 + 8 * n + 7}" for n in range(8)}
    facts = host_facts(tree(tmp_path, epyc(2, 32, 8), nodes), affinity=range(128))
    assert (facts["sockets"], facts["threads_per_core"], facts["usable_cores"], len(facts["ccds"])) == (2, 2, 64, 8)
    assert facts["llc_bytes"] == 8 * 32768 * KIB and facts["topology_source"] == "sysfs"
    ccds = short(domains(facts, "ccd"))
    assert ccds[0] == ("0-7,64-71", 0, 0) and ccds[5] == ("40-47,104-111", 5, 1) and len(ccds) == 8
    assert short(domains(facts, "numa")) == ccds
    sockets = domains(facts, "socket")
    assert short(sockets) == [("0-31,64-95", None, 0), ("32-63,96-127", None, 1)]
    assert sockets[1]["nodes"] == [4, 5, 6, 7]


def test_an_epyc_in_one_node_with_eight_ccds(tmp_path):
    """64 cores without second threads in one node; of them 4–19 are allowed: three CCDs in part or whole."""
    root = tree(tmp_path, epyc(1, 64, 8, threads=1), {0: "0-63"})
    facts = host_facts(root, affinity=range(64))
    assert short(domains(facts, "ccd")) == [(f"{8 * n}-{8 * n + 7}", 0, 0) for n in range(8)]
    assert short(domains(facts, "numa")) == short(domains(facts, "socket")) == [("0-63", 0, 0)]
    few = host_facts(root, affinity=range(4, 20))
    assert short(domains(few, "ccd")) == [("4-7", 0, 0), ("8-15", 0, 0), ("16-19", 0, 0)]
    assert few["llc_bytes"] == 3 * 32768 * KIB and few["usable_cores"] == 16


def test_a_xeon_whose_firmware_splits_the_sockets(tmp_path):
    """2 × 8 cores, one L3 a socket, two sub-NUMA clusters each: nodes split what shares the L3."""
    cpus = {
        cpu: {"socket": cpu // 8, "core": cpu % 8, "die": 0, "siblings": cpu,
              "caches": caches(cpu, f"{cpu // 8 * 8}-{cpu // 8 * 8 + 7}", l3_size="107520K")}
        for cpu in range(16)
    }  # fmt: skip
    facts = host_facts(tree(tmp_path, cpus, {0: "0-3", 1: "4-7", 2: "8-11", 3: "12-15"}), affinity=range(16))
    assert facts["ccds"] == ["0-7", "8-15"] and facts["llc_bytes"] == 2 * 107520 * KIB
    four = [("0-3", 0, 0), ("4-7", 1, 0), ("8-11", 2, 1), ("12-15", 3, 1)]
    assert short(domains(facts, "ccd")) == short(domains(facts, "numa")) == four
    assert [one["nodes"] for one in domains(facts, "socket")] == [[0, 1], [2, 3]]


def hybrid():
    """8 P cores with two threads (0–15), 16 E cores in fours that share an L2 (16–31), 2 of low power without L3."""
    cpus = {}
    for cpu in range(34):
        if cpu < 16:
            own = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
            cpus[cpu] = {"core": cpu // 2 * 4, "siblings": own, "caches": caches(own, "0-31", l3_size="36864K")}
        else:
            first = cpu // 4 * 4
            four = f"{first}-{min(first + 3, 33)}"
            l3 = "0-31" if cpu < 32 else None
            cpus[cpu] = {"core": 16 + cpu, "siblings": cpu, "caches": caches(cpu, l3, l2=four, l3_size="36864K")}
        cpus[cpu] |= {"socket": 0, "die": 0, "cluster": cpu // 4}
    return cpus


def test_a_laptop_with_three_kinds_of_core(tmp_path):
    more = {
        "sys/devices/cpu_core/cpus": "0-15", "sys/devices/cpu_atom/cpus": "16-31",
        "sys/devices/cpu_lowpower/cpus": "32-33",
    }  # fmt: skip
    facts = host_facts(tree(tmp_path, hybrid(), {0: "0-33"}, more), affinity=range(34))
    assert (facts["sockets"], facts["threads_per_core"], facts["usable_cores"]) == (1, 2, 8 + 16 + 2)
    assert [kind["cpus"] for kind in facts["core_types"]] == ["0-15", "16-31", "32-33"]
    ccds = domains(facts, "ccd")
    assert short(ccds) == [("0-31", 0, 0), ("32-33", 0, 0)]
    assert [one["core_types"] for one in ccds] == [["cpu_core", "cpu_atom"], ["cpu_lowpower"]]
    assert facts["llc_bytes"] == (36864 + 1024) * KIB  # the low-power pair ends at its L2
    assert [one["core_types"] for one in domains(host_facts(tmp_path, affinity={3, 4}), "ccd")] == [["cpu_core"]]


@pytest.mark.parametrize("l3, expected", [("0-7", [("0-7", 0, 0)]), (None, [("0-7", 0, 0)])])
def test_an_arm_server_without_die_numbers(tmp_path, l3, expected):
    """One L3 or none at all: private second levels are no CCDs. Numbers of cores repeat per cluster."""
    cpus = {
        cpu: {"socket": 0, "core": cpu % 4, "cluster": cpu // 4, "siblings": cpu, "caches": caches(cpu, l3)}
        for cpu in range(8)
    }
    facts = host_facts(tree(tmp_path, cpus, {0: "0-7"}), affinity=range(8))
    assert (facts["usable_cores"], facts["threads_per_core"], facts["sockets"]) == (8, 1, 1)
    assert facts["ccds"] == (["0-7"] if l3 else []) and facts["llc_bytes"] == (32768 if l3 else 8 * 1024) * KIB
    assert short(domains(facts, "ccd")) == expected and facts["core_types"] == []


def test_an_arm_host_with_two_capacities_and_no_package(tmp_path):
    """-1 for the package, capacities 1024 and 446, no cache files: one domain, two kinds of core."""
    cpus = {cpu: {"socket": -1, "core": cpu % 4, "cluster": cpu // 4} for cpu in range(8)}
    more = {f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity": 446 if cpu < 4 else 1024 for cpu in range(8)}
    facts = host_facts(tree(tmp_path, cpus, {}, more), affinity=range(8))
    assert facts["sockets"] is None and facts["usable_cores"] == 8 and facts["numa_nodes"] == []
    assert facts["core_types"] == [
        {"type": "capacity 1024", "cpus": "4-7"}, {"type": "capacity 446", "cpus": "0-3"},
    ]  # fmt: skip
    for kind in ("ccd", "numa", "socket"):
        assert short(domains(facts, kind)) == [("0-7", None, None)]


def test_nodes_of_memory_alone_are_no_domains(tmp_path):
    """GH200: 72 cores in node 0, eight nodes that the GPU's memory may take."""
    cpus = {
        cpu: {"socket": 0, "core": cpu, "siblings": cpu, "caches": caches(cpu, "0-71", l3_size="116736K")}
        for cpu in range(72)
    }
    facts = host_facts(tree(tmp_path, cpus, {0: "0-71"} | dict.fromkeys(range(1, 9), "")), affinity=range(72))
    assert len(facts["numa_nodes"]) == 9 and sum(bool(node["cpus"]) for node in facts["numa_nodes"]) == 1
    for kind in ("ccd", "numa", "socket"):
        assert short(domains(facts, kind)) == [("0-71", 0, 0)]


def test_a_virtual_machine_of_two_cpus(tmp_path):
    cpus = {
        cpu: {"socket": 0, "core": cpu, "die": 0, "cluster": 65535, "siblings": cpu, "caches": caches(cpu, "0-1")}
        for cpu in (0, 1)
    }
    facts = host_facts(tree(tmp_path, cpus, {0: "0-1"}), affinity={1})
    assert short(domains(facts, "ccd")) == [("1", 0, 0)] and facts["ccds"] == ["0-1"]
    assert facts["cpu_cells"] == [
        {"cpus": "0-1", "socket": 0, "node": 0, "die": 0, "llc_level": 3, "llc_bytes": 2**25}
    ]


def test_nothing_known_is_one_domain_and_no_invention(tmp_path):
    facts = host_facts(tmp_path, affinity={0, 1, 5})
    assert facts["topology_source"] is None and facts["usable_cores"] is None
    for kind in ("ccd", "numa", "socket"):
        assert short(domains(facts, kind)) == [("0-1,5", None, None)]
    nodes = host_facts(tree(tmp_path, dict.fromkeys(range(4), {}), {0: "0-1", 1: "2-3"}), affinity=range(4))
    assert short(domains(nodes, "ccd")) == [("0-1", 0, None), ("2-3", 1, None)]
    with pytest.raises(ValueError, match="expected one of ccd, numa, socket"):
        domains(facts, "die")


def test_this_host_as_facts_and_as_a_root():
    found = domains("/", "socket")
    allowed = parse_cpus(host_facts()["allowed_cpus"])
    assert set().union(*(one["cpus"] for one in found)) == allowed


def test_lscpu_is_asked_where_sysfs_tells_nothing(tmp_path, monkeypatch):
    """The saved table of a 2 × 24-core EPYC 7451: 16 groups of three cores, two an NUMA node."""
    calls = []

    def run(command, **options):
        calls.append((command, options["timeout"]))
        return subprocess.CompletedProcess(command, 0, text_of("lscpu", "epyc7451x2-nps4-J-e-v2.38.json"), "")

    monkeypatch.setattr(host.subprocess, "run", run)
    cells = cpu_cells(lscpu_rows(host.lscpu_table()))
    assert calls == [(["lscpu", "-J", "-e=CPU,CORE,SOCKET,NODE,CACHE,ONLINE"], 5)]
    assert len(cells) == 16 and cells[0]["cpus"] == "0-2,48-50" and cells[15]["cpus"] == "45-47,93-95"
    assert [cell["node"] for cell in cells] == [n // 2 for n in range(16)] and cells[8]["socket"] == 1
    rows, _, source = host._described(tmp_path, {0, 1})
    assert (rows, source, len(calls)) == ([], None, 1)  # never for another root
    monkeypatch.setattr(host, "gather", lambda root: {})
    facts = host_facts(affinity=range(96))
    assert facts["topology_source"] == "lscpu" and len(calls) == 2


@pytest.mark.parametrize("trouble", [FileNotFoundError(), subprocess.TimeoutExpired("lscpu", 5)])
def test_an_lscpu_that_fails_tells_nothing(monkeypatch, trouble):
    def run(*_, **__):
        raise trouble

    monkeypatch.setattr(host.subprocess, "run", run)
    assert host.lscpu_table() == []


def test_offline_rows_of_lscpu_are_left_out():
    table = parse_lscpu("CPU CORE SOCKET NODE L1d:L1i:L2:L3 ONLINE\n0 0 0 0 0:0:0:0 yes\n1 - - - - no\n2 1 0 0 1:1:1:- yes\n")["table"]
    rows = lscpu_rows(table)
    assert [row["cpu"] for row in rows] == [0, 2] and rows[0]["siblings"] == {0} and rows[1]["caches"] == []
