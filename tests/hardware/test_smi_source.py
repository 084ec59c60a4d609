"""The program source: FAKE tools on PATH (stand-ins written by the tests), in this process and under the real sampler."""

import json
import os
import stat
import sys
import time
from types import SimpleNamespace

import pytest

from escherlib.hardware import telemetry
from escherlib.hardware.telemetry import control, smi
from escherlib.hardware.telemetry.source import open_source
from tests.hardware.test_sources import read_all
from tests.hardware.test_telemetry import lines, running, until

BDF = "0000:c1:00.0"
GPU = SimpleNamespace(stack="rocm", smi_key=None, bdf=BDF)
LIST = [{"gpu": 0, "bdf": "0000:11:00.0"}, {"gpu": 1, "bdf": BDF}]
METRIC = [{
    "gpu": 1, "usage": {"gfx_activity": {"value": 98, "unit": "%"}},
    "power": {"socket_power": {"value": 712, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
    "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}},
    "energy": {"total_energy_consumption": {"value": 5000.0, "unit": "J"}},
}]  # fmt: skip
SHORT_S = 0.4
FAULTS = {
    "hang": "sleep 600 & sleep 600",
    "die": "kill -9 $$",
    "nothing": "exit 0",
    "garbage": "head -c 3000 /dev/urandom",
}


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """tool(name, script): a shell program of that name, first on PATH. A marked STAND-IN, never the vendor's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "no rocm"))
    monkeypatch.setattr(smi, "DEADLINE_S", 5.0)

    def make(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n# stand-in of a test\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def amd_script(tmp_path, fault=""):
    """A fake amd-smi that works until the file `fault` is there."""
    (tmp_path / "list.json").write_text(json.dumps(LIST))
    (tmp_path / "metric.json").write_text("WARNING: a line before the JSON\n" + json.dumps(METRIC))
    return (
        f'if [ -e "{tmp_path}/fault" ]; then {fault or ":"}; exit 0; fi\n'
        f'if [ "$1" = list ]; then cat "{tmp_path}/list.json"; else cat "{tmp_path}/metric.json"; fi'
    )


def test_amd_smi_by_pci_address(tool, tmp_path):
    tool("amd-smi", amd_script(tmp_path))
    source = open_source({"stack": "rocm", "bdf": BDF, "root": tmp_path})
    assert source.name == "amd-smi" and set(source.passed_over) == {"amdsmi", "amdgpu"}
    assert read_all(source) == {
        "power_w": 712, "temperature_c": 71, "utilisation_pct": 98, "energy_j": 0, "limit_mask": 0,
    }  # fmt: skip
    assert source.absent["clock_mhz"] == "amd-smi: not in this output" and source.interval_s >= smi.SHORTEST_S
    power = next(reader for reader in source.readers if reader.fields == ("power_w",))
    assert power.averaging == "of the socket; current or average is not said"
    with pytest.raises(RuntimeError, match="amd-smi does not show this device"):
        open_source({"stack": "rocm", "bdf": "0000:c9:00.0", "root": tmp_path})


def test_rocm_smi_where_amd_smi_gives_nothing(tool, tmp_path):
    tool("amd-smi", "exit 3")
    cards = {
        "card0": {"PCI Bus": "0000:11:00.0", "Average Graphics Package Power (W)": "1.0"},
        "card1": {"PCI Bus": "0000:C1:00.0", "Average Graphics Package Power (W)": "300.0", "sclk clock speed:": "(1700Mhz)",
                  "Max Graphics Package Power (W)": "560.0", "Temperature (Sensor junction) (C)": "50.0"},
    }  # fmt: skip
    (tmp_path / "rocm.json").write_text(json.dumps(cards))
    tool("rocm-smi", f'cat "{tmp_path}/rocm.json"; exit 2')
    source = open_source({"stack": "rocm", "bdf": BDF, "root": tmp_path})
    assert source.name == "rocm-smi" and source.passed_over["amd-smi"] == "amd-smi printed nothing"
    assert read_all(source) == {"power_w": 300, "clock_mhz": 1700, "temperature_c": 50, "power_limit_w": 560}


NVIDIA = """
case "$1" in
  *uuid*) echo "GPU-abc, 00000000:C1:00.0"; echo "GPU-def, 00000000:C2:00.0"; exit 0;;
  *power.draw.instant*) echo 'Field "power.draw.instant" is not a valid field to query.'; exit 2;;
  *clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;;
esac
echo "00000000:C1:00.0, 611.10, 700.00, 61, [N/A], 100, 1455, 2619, 0x0000000000000004, 1024, [N/A]"
echo "00000000:C2:00.0, 70.00, 700.00, 30, [N/A], 0, 345, 2619, 0x0000000000000001, 1, [N/A]"
"""


@pytest.mark.parametrize("job", [{"bdf": BDF}, {"uuid": "abc"}, {"uuid": "GPU-abc"}])
def test_nvidia_smi_with_the_fields_of_an_older_driver(tool, monkeypatch, job):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    tool("nvidia-smi", NVIDIA)
    source = open_source({"stack": "cuda", **job})
    assert source.name == "nvidia-smi" and list(source.passed_over) == ["nvml"]
    assert read_all(source) == {
        "power_w": 611.1, "clock_mhz": 1455, "temperature_c": 61, "memory_clock_mhz": 2619, "utilisation_pct": 100,
        "power_limit_w": 700, "limit_mask": 4,
    }  # fmt: skip
    power = next(reader for reader in source.readers if reader.fields == ("power_w",))
    assert power.averaging == "average of the last second" and power.span_s == 1.0
    assert source.absent["memory_temperature_c"] == "nvidia-smi: N/A" and source.limit_bits[4] == "sw_power_cap"
    with pytest.raises(RuntimeError, match="does not show this device"):
        open_source({"stack": "cuda", "uuid": "unknown"})


def test_a_refusal_of_nvidia_smi_is_the_reason(tool, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    tool("nvidia-smi", 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    with pytest.raises(RuntimeError, match="nvidia-smi: nvidia-smi: Failed to initialize NVML: Driver/library version mismatch"):
        open_source({"stack": "cuda", "bdf": BDF})


def test_a_run_that_hangs_is_killed_with_all_it_started(tool, tmp_path):
    path = tool("amd-smi", f'sleep 600 & echo $! > "{tmp_path}/pid"; sleep 600')
    begun = time.monotonic()
    with pytest.raises(smi.NoAnswer, match="no answer in time"):
        smi.run([str(path)], deadline_s=SHORT_S)
    assert time.monotonic() - begun < SHORT_S + 2
    assert until(lambda: not running(int((tmp_path / "pid").read_text())))
    with pytest.raises(smi.NoAnswer, match="sampling ends"):
        smi.run([str(path)], ended=lambda: True)


@pytest.mark.parametrize("script, why", [
    ("exit 0", "printed nothing"), ("kill -9 $$", "printed nothing"), ("yes", "printed more than 4 MiB"),
    ("exec 1>&-; sleep 600", "printed nothing"),
])  # fmt: skip
def test_a_run_without_an_answer_says_why(tool, script, why):
    with pytest.raises(smi.NoAnswer, match=why):
        smi.run([str(tool("amd-smi", script))], deadline_s=1.0)
    with pytest.raises(smi.NoAnswer, match="could not be started"):
        smi.run(["/no/such/amd-smi"])


# under the real sampler process


@pytest.fixture
def sampler(tmp_path, monkeypatch):
    """start(): a real sampler of the fake GPU with a short deadline and a short wait between attempts."""
    code = (
        "from escherlib.hardware.telemetry import sampler, smi\n"
        f"smi.DEADLINE_S, smi.SHORTEST_S, sampler.RETRY_S = {SHORT_S}, 0.05, 0.1\n"
        "sampler.main()"
    )
    monkeypatch.setattr(control, "COMMAND", (sys.executable, "-c", code))
    started = []

    def start():
        started.append(telemetry.start(GPU, tmp_path / "t.jsonl", interval_s=0.05))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def gaps(path):
    return [line["gap"] for line in lines(path) if isinstance(line, dict) and "gap" in line]


WORDS = {
    "hang": "no answer in time", "die": "printed nothing", "nothing": "printed nothing", "garbage": "unparsed",
    "gone": "could not be started",
}  # fmt: skip


@pytest.mark.parametrize("fault", WORDS)
def test_a_tool_that_fails_in_mid_run_is_a_gap_and_comes_back(tool, sampler, tmp_path, fault):
    path = tool("amd-smi", amd_script(tmp_path, FAULTS.get(fault, "")))
    one = sampler()
    assert until(one.latest)["power_w"] == 712
    hidden = path.with_name("hidden")
    path.rename(hidden) if fault == "gone" else (tmp_path / "fault").touch()
    assert until(lambda: one.flush() and gaps(one.path)), "no gap was noted"
    begun = time.monotonic()
    one.latest()
    assert one.running and time.monotonic() - begun < control.ANSWER_S + 1
    assert WORDS[fault] in gaps(one.path)[0]
    hidden.rename(path) if fault == "gone" else (tmp_path / "fault").unlink()
    since = time.monotonic_ns()
    assert until(lambda: (last := one.latest()) and last["t_ns"] > since)
    one.stop()
    found = [line for line in lines(one.path) if isinstance(line, dict) and "fields" in line]
    assert [line["source"] for line in found] == ["amd-smi"] and set(found[0]["passed_over"]) == {"amdsmi", "amdgpu"}
    assert "c1:00" not in one.path.read_text() and lines(one.path)[-1]["end"] == "stopped"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tool_that_fails_from_the_start_leaves_a_reason(tool, sampler, tmp_path, fault):
    (tmp_path / "fault").touch()
    tool("amd-smi", amd_script(tmp_path, FAULTS[fault]))
    tool("rocm-smi", FAULTS[fault])
    one = sampler()
    assert until(lambda: not one.running) and one.latest() is None
    why = telemetry.window(one.path, 0, 10)["reasons_null"]["power_w"]
    assert f"amd-smi: {'amd-smi: ' if fault == 'garbage' else ''}" in why and WORDS[fault] in why and "rocm-smi: " in why


def test_stop_does_not_wait_for_a_tool_that_hangs(tool, sampler, tmp_path, monkeypatch):
    tool("amd-smi", amd_script(tmp_path, f'echo $$ > "{tmp_path}/pid"; sleep 600'))
    monkeypatch.setattr(control, "COMMAND", (sys.executable, "-m", "escherlib.hardware.telemetry.sampler"))
    monkeypatch.setattr(control, "STOP_S", 0.3)
    one = sampler()
    assert until(one.latest)
    (tmp_path / "fault").touch()
    pid = until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    begun = time.monotonic()
    one.stop()
    assert time.monotonic() - begun < 2 and until(lambda: not running(int(pid)))
