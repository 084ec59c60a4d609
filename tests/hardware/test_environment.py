"""env.json, conditions and pre-checks: what is in them, and what must never be."""

import json
import socket
import sys
from types import SimpleNamespace

import pytest

from escherlib.hardware import driver, environment, prechecks
from escherlib.hardware.host import host_facts
from escherlib.hardware.scrub import safe_variables, scrub
from escherlib.method import describe
from tests.hardware import fake_nvml
from tests.hardware.trees import write

CPU = SimpleNamespace(kind="cpu", stack="cpu", smi_key=None, bdf=None, memory_bytes=2**33)
GPU = SimpleNamespace(kind="gpu", stack="cuda", smi_key=fake_nvml.UUID, bdf=None, memory_bytes=141 * 10**9)
GIB = 2**30


@pytest.fixture
def nvml(monkeypatch):
    def install(**options):
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml.make(**options))

    return install


def test_env_json_of_a_cpu_host():
    env = environment.capture(CPU)
    text = json.dumps(env, allow_nan=False)
    assert env["gpu"] == {} and env["driver"] is None and env["power"]["cap_w"] is None
    assert (
        env["software"]["torch"] and env["software"]["packages"]["torch"] and env["host"]["usable_cpus"] >= 1
    )
    assert socket.gethostname() not in (env["system"]["kernel"], "") and env["system"]["os"]
    assert fake_nvml.UUID not in text


def test_env_json_of_a_gpu_host_holds_caps_and_no_identity(nvml):
    nvml(
        EnforcedPowerLimit=650_000,
        ComputeRunningProcesses=[SimpleNamespace(pid=4242), SimpleNamespace(pid=4243)],
    )
    env = environment.capture(GPU)
    assert (env["power"]["cap_w"], env["power"]["cap_default_w"], env["driver"]) == (650, 700, "580.00.fake")
    assert (
        env["gpu"]["other_processes"] == 1
        and env["gpu"]["mig"] == "off"
        and env["gpu"]["clocks"]["max_mhz"] == 1980
    )
    text = json.dumps(env, allow_nan=False)
    assert fake_nvml.UUID not in text and "4242" not in text and "4243" not in text


def test_only_safe_variables_are_kept():
    environ = {
        "HOME": "/home/someone",
        "CUDA_VISIBLE_DEVICES": "GPU-12345678-1234-1234-1234-1234567890ab,1",
        "HIP_VISIBLE_DEVICES": "GPU-abcdef12",
        "NCCL_DEBUG": "INFO",
        "NCCL_COMM_ID": "10.1.2.3:4567",
        "HF_TOKEN": "hf_x",
        "TORCH_AUTH_TOKEN": "x",
        "CUDA_API_KEY": "x",
        "PYTORCH_PASSWORD": "x",
        "PYTHONPATH": "/home/someone/code:/home/other/lib:/opt/x",
        "TORCH_INDEX": "https://user:word@example.org/simple",
        "AWS_REGION": "x",
        "PATH": "/bin",
        "OMP_NUM_THREADS": "8",
    }
    found = safe_variables(environ)
    assert set(found) == {
        "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NCCL_DEBUG", "NCCL_COMM_ID",
        "TORCH_INDEX", "OMP_NUM_THREADS",
    }  # fmt: skip
    assert found["OMP_NUM_THREADS"] == "8"
    assert (
        found["TORCH_INDEX"] == "https://<login>@example.org/simple"
        and found["NCCL_COMM_ID"] == "<address>:4567"
    )
    assert found["CUDA_VISIBLE_DEVICES"].endswith(",1") and found["CUDA_VISIBLE_DEVICES"].startswith("GPU-#")
    assert "12345678" not in str(found) and "abcdef12" not in str(found)


def test_a_uuid_becomes_the_same_hash_every_time():
    one = "GPU-12345678-1234-1234-1234-1234567890ab"
    assert (
        scrub(one) == scrub(one.upper().replace("GPU", "GPU")) != scrub(one.replace("12345678", "12345679"))
    )


def test_the_host_name_goes_but_not_words_that_contain_it(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.cluster.example")
    text = scrub("node17 node17.cluster.example mynode17 node171", {"HOME": "/"})
    assert text == "<host> <host> mynode17 node171"
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert scrub("localhost:1", {}) == "localhost:1"


def test_conditions_are_comparable_and_hashed(nvml):
    nvml()
    environ = {"CUDA_VISIBLE_DEVICES": f"GPU-{fake_nvml.UUID}", "OMP_NUM_THREADS": "4", "HOME": "/root"}
    found = environment.conditions(GPU, environ)
    assert found == environment.conditions(GPU, dict(environ)) and found["power_cap_w"] == 700
    assert found["omp_num_threads"] == "4" and found["mkl_num_threads"] is None and found["affinity"]
    assert fake_nvml.UUID not in json.dumps(found)
    assert environment.conditions(CPU, {})["visible_devices"] is None


@pytest.mark.parametrize(
    "line, policy",
    [
        ("7f00 default anon=1", None),
        ("7f00 bind:0-1 anon=1", "bind:0-1"),
        ("7f00 interleave:0,2", "interleave:0,2"),
    ],
)
def test_the_memory_policy_is_what_numactl_set(tmp_path, line, policy):
    assert environment.memory_policy(write(tmp_path, {"proc/self/numa_maps": line})) == policy
    assert environment.memory_policy(tmp_path / "none") is None


@pytest.mark.parametrize(
    "files, name",
    [
        ({"run/.containerenv": ""}, "podman"),
        ({".dockerenv": ""}, "docker"),
        ({"proc/1/cgroup": "0::/kubepods/besteffort/pod1"}, "kubernetes"),
        ({"proc/1/cgroup": "0::/init.scope"}, None),
    ],
)
def test_the_container_is_a_hint(tmp_path, files, name):
    assert environment.container(write(tmp_path, files)) == name


def test_knobs_read_the_chosen_word(tmp_path):
    files = {
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/kernel/mm/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never",
        "proc/sys/kernel/numa_balancing": "1",
    }
    found = environment.knobs(write(tmp_path, files))
    assert (found["transparent_huge_pages"], found["huge_page_defrag"]) == ("madvise", "defer+madvise")
    assert found["numa_balancing"] == "1" and found["governor"] is None


def status(checks, name):
    return next(check for check in checks if check["check"] == name)["status"]


def state(**changes):
    """State of an invented, healthy GPU, with changes by dotted name."""
    found = {name: dict(value) if isinstance(value, dict) else value for name, value in driver.EMPTY.items()}
    healthy = {
        "power.cap_w": 700, "power.cap_default_w": 700, "clocks.max_mhz": 1980,
        "clocks.application_mhz": 1980, "modes.mig": "off", "temperature_c": 35, "memory_used_bytes": GIB,
        "other_processes": 0, "limits_now": ["gpu_idle"],
    }  # fmt: skip
    for name, value in {**healthy, **changes}.items():
        group, _, key = name.rpartition(".")
        (found[group] if group else found)[key] = value
    return found


@pytest.mark.parametrize(
    "changes, check, verdict",
    [
        ({}, "memory in use", "ok"),
        ({"other_processes": 1}, "other processes", "warning"),
        ({"other_processes": 1, "memory_used_bytes": 20 * GIB}, "memory in use", "warning"),
        ({"other_processes": None, "memory_used_bytes": GIB}, "memory in use", "ok"),
        ({"memory_used_bytes": None, "other_processes": None}, "memory in use", "unknown"),
        ({"power.cap_w": 500}, "power cap", "warning"),
        ({"power.cap_default_w": None}, "power cap", "unknown"),
        ({"clocks.application_mhz": 1500}, "clock limit", "warning"),
        ({"limits_now": ["gpu_idle", "sw_thermal_slowdown"]}, "limits at rest", "warning"),
        ({"limits_now": None}, "limits at rest", "unknown"),
        ({"temperature_c": 75}, "temperature at rest", "warning"),
        ({"modes.mig": "on"}, "partition", "warning"),
        ({"modes.compute_partition": "CPX"}, "partition", "warning"),
        ({"modes.compute_partition": "SPX"}, "partition", "ok"),
    ],
)
def test_checks_of_a_gpu(changes, check, verdict):
    assert status(prechecks.gpu_checks(state(**changes), 141 * GIB), check) == verdict


def test_checks_of_the_container_and_the_variables():
    host = {
        "usable_cpus": 2, "online_cpus": 64, "usable_cpus_how": "cgroup quota: 2 of 64 CPUs",
        "memory_limit_bytes": 8 * GIB, "memory_total_bytes": 128 * GIB, "memory_limit_how": "cgroup limit",
    }  # fmt: skip
    checks = prechecks.container_checks(host)
    assert [check["status"] for check in checks] == ["warning", "warning"]
    assert "2 of 64 (cgroup quota: 2 of 64 CPUs)" in checks[0]["found"]
    assert prechecks.variable_check({"CUDA_LAUNCH_BLOCKING": "0"})["status"] == "ok"
    assert prechecks.variable_check({"CUDA_LAUNCH_BLOCKING": "1"})["found"] == "CUDA_LAUNCH_BLOCKING=1"


def test_checks_of_load_memory_and_knobs(tmp_path):
    files = {
        "proc/loadavg": "9.00 1 1",
        "proc/meminfo": f"MemAvailable: {2**20} kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB",
    }
    root = write(tmp_path, files)
    host = {"usable_cpus": 2}
    assert [c["status"] for c in prechecks.load_checks(host, root, 0)] == ["warning", "unknown"]
    assert [c["status"] for c in prechecks.memory_checks(8 * GIB, root)] == ["warning", "warning"]
    assert [c["status"] for c in prechecks.memory_checks(None, tmp_path / "none")] == ["unknown", "unknown"]
    switches = {
        "governor": "powersave",
        "boost": None,
        "no_turbo": "1",
        "transparent_huge_pages": "never",
        "numa_balancing": "1",
    }
    assert {c["status"] for c in prechecks.knob_checks(switches, 2)} == {"warning"}
    assert {c["status"] for c in prechecks.knob_checks(dict.fromkeys(switches), 2)} == {"unknown"}
    assert status(prechecks.knob_checks({**switches, "numa_balancing": "1"}, 1), "NUMA balancing") == "ok"


def test_the_precheck_of_this_host_is_a_measuring_function(nvml):
    found = prechecks.precheck(CPU)
    assert found["states"] == {} and {c["status"] for c in found["checks"]} <= {"ok", "warning", "unknown"}
    assert all(set(check) == {"check", "status", "found", "why"} for check in found["checks"])
    assert describe(prechecks.precheck)["version"] == 1
    nvml(EnforcedPowerLimit=600_000)
    checks = prechecks.precheck(GPU)["checks"]
    assert status(checks, "power cap") == "warning" and status(checks, "other processes") == "ok"
    json.dumps([found, checks], allow_nan=False)
    assert host_facts()["usable_cpus"] >= 1
