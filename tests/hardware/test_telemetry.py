"""The sampler: as a process, and its loop with sources that misbehave."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from escherlib.files import ROOT
from escherlib.hardware import telemetry
from escherlib.hardware.telemetry import control
from escherlib.hardware.telemetry.log import Log
from escherlib.hardware.telemetry.sampler import Sampling
from escherlib.hardware.telemetry.source import Reader, Source, tried
from tests.hardware import fake_nvml

CPU = SimpleNamespace(stack="cpu", smi_key=None, bdf=None)
GPU = SimpleNamespace(stack="cuda", smi_key=fake_nvml.UUID, bdf="0000:c1:00.0")
UNSUPPORTED = "NotSupported"


def until(condition, limit_s=10):
    """Wait for a condition; its value."""
    end = time.monotonic() + limit_s
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def running(pid):
    """Whether a process exists and is no zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@pytest.fixture
def started(tmp_path):
    """telemetry.start, stopped at the end whatever happens."""
    running = []

    def start(device=CPU, name="telemetry/t.jsonl", **options):
        running.append(telemetry.start(device, tmp_path / name, **options))
        return running[-1]

    yield start
    for sampler in running:
        sampler.stop()


def test_a_sampler_writes_answers_and_stops(started):
    sampler = started(interval_s=0.05)
    assert sampler.running and sampler.reason is None
    first = until(sampler.latest)
    assert first["t_ns"] <= time.monotonic_ns() and first["limit_reasons"] == []
    later = until(lambda: (found := sampler.latest())["t_ns"] > first["t_ns"] and found)
    assert later and sampler.flush()
    written = telemetry.read_samples(sampler.path).series["utilisation_pct"].at_ns
    assert min(abs(at_ns - later["t_ns"]) for at_ns in written) < 1000  # the file counts µs
    sampler.stop()
    assert not sampler.running and sampler.latest() is None and sampler.flush() is False
    sampler.stop()
    written = lines(sampler.path)
    assert written[0]["source"] == "procfs" and written[0]["interval_s"] == 0.05
    assert written[-1]["end"] == "stopped" and all(
        len(r) == len(written[0]["fields"]) + 1 for r in written[1:-1]
    )


def test_the_pace_is_raised_for_a_while(started):
    sampler = started(interval_s=5)
    until(sampler.latest)
    with sampler.fast(0.02):
        begun = time.monotonic_ns()
        until(lambda: sampler.latest()["t_ns"] > begun + 300_000_000)
        ended = time.monotonic_ns()
    sampler.flush()
    found = telemetry.window(sampler.path, begun, ended)
    assert found["n"] >= 5
    assert [e["interval_s"] for e in lines(sampler.path) if isinstance(e, dict) and "t" in e] == [0.02, 5]


def test_start_returns_at_once_and_a_second_start_appends(started):
    begun = time.monotonic()
    sampler = started()
    assert time.monotonic() - begun < 2  # a fork and nothing else; not a measure
    until(sampler.latest)
    sampler.stop()
    again = started()
    until(again.latest)
    again.stop()
    assert sum(isinstance(line, dict) and "fields" in line for line in lines(again.path)) == 2


def test_it_ends_with_its_parent(tmp_path):
    path = tmp_path / "t.jsonl"
    code = (
        "import os, signal, sys, time; from types import SimpleNamespace as N\n"
        "from escherlib.hardware import telemetry\n"
        f"s = telemetry.start(N(stack='cpu', smi_key=None, bdf=None), {str(path)!r}, 0.05)\n"
        "while not s.latest(): time.sleep(0.02)\n"
        "print(s._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    pid = int(parent.stdout)
    assert until(lambda: path.exists() and "end" in path.read_text() and not running(pid))
    assert lines(path)[-1]["end"] == "parent ended"


def test_a_signal_ends_it_with_a_complete_file(started):
    sampler = started(interval_s=0.05)
    until(sampler.latest)
    os.kill(sampler._process.pid, signal.SIGINT)  # what a Ctrl-C sends to a whole group
    assert until(sampler.latest)
    os.kill(sampler._process.pid, signal.SIGTERM)
    assert until(lambda: not sampler.running)
    assert lines(sampler.path)[-1]["end"] == "terminated" and sampler.latest() is None


def test_switched_off_or_not_startable_is_a_reason(started, monkeypatch, tmp_path):
    monkeypatch.setenv("ESCHER_STAT", "off")
    sampler = started()
    assert sampler.reason == "switched off (STAT=off)" and not sampler.running
    with sampler.fast(0.01):
        assert sampler.latest() is None and not sampler.flush()
    assert telemetry.window(sampler.path, 0, 10)["reasons_null"]["clock_mhz"] == "switched off (STAT=off)"
    monkeypatch.delenv("ESCHER_STAT")
    monkeypatch.setattr(control, "COMMAND", ("/no/such/program",))
    assert "could not be started" in started(name="u.jsonl").reason
    assert telemetry.start(SimpleNamespace(), tmp_path / "v.jsonl").reason
    (tmp_path / "file").write_text("")
    assert telemetry.start(CPU, tmp_path / "file" / "t.jsonl").reason


def test_the_interval_of_the_environment(started, monkeypatch):
    monkeypatch.setenv("ESCHER_STAT_INTERVAL_S", "0.3")
    sampler = started()
    until(sampler.latest)
    sampler.stop()
    assert lines(sampler.path)[0]["interval_s"] == 0.3


def fake_gpu_path(monkeypatch, tmp_path, options):
    """Let child processes import a FAKE pynvml."""
    (tmp_path / "fake").mkdir()
    text = f"from tests.hardware.fake_nvml import make\nglobals().update(vars(make({options})))\n"
    (tmp_path / "fake" / "pynvml.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))


def test_a_gpu_run_ends_with_limits_power_and_no_identity(started, monkeypatch, tmp_path):
    fake_gpu_path(monkeypatch, tmp_path, "missing=('TotalEnergyConsumption',)")
    sampler = started(GPU, interval_s=0.02)
    assert until(sampler.latest)["limit_reasons"] == ["sw_power_cap"]
    begun = time.monotonic_ns()
    time.sleep(0.5)
    ended = time.monotonic_ns()
    sampler.flush()  # takes the sample that brackets the end
    found = telemetry.window(sampler.path, begun, ended)
    assert found["clock_mhz"]["mean"] == 1455 and found["power_w"]["mean"] == 690.1
    assert found["energy_j"]["value"] == pytest.approx(690.1 * (ended - begun) / 1e9, rel=1e-3)
    assert found["energy_j"]["how"] == "power over time" and found["limit_reasons"] == ["sw_power_cap"]
    text = sampler.path.read_text()
    assert (
        fake_nvml.UUID not in text
        and "c1:00" not in text
        and os.uname().nodename not in json.loads(text.splitlines()[0])
    )


def test_no_device_leaves_a_reason_in_the_file(started, monkeypatch, tmp_path):
    fake_gpu_path(monkeypatch, tmp_path, "known='another'")
    sampler = started(GPU)
    assert until(lambda: not sampler.running) and sampler.latest() is None
    why = telemetry.window(sampler.path, 0, 10)["reasons_null"]["power_w"]
    assert why.startswith("nvml: NVML does not know this device; nvidia-smi: ")


# the loop itself, in this process


def source_of(*reads, closed=None):
    """A Source of readers named f0, f1, …"""
    readers = tuple(Reader((f"f{i}_mhz",), read) for i, read in enumerate(reads))
    return Source(
        "test", readers, 0.01, lambda error: str(error) == UNSUPPORTED, close=closed or (lambda: None)
    )


def run_loop(tmp_path, opener, seconds, commands=b""):
    """Run a Sampling for a while; returns its lines."""
    read_end, write_end = os.pipe()
    sampling = Sampling({"path": str(tmp_path / "t")}, opener, read_end, os.open(os.devnull, os.O_WRONLY))
    os.write(write_end, commands)
    timer = threading.Timer(seconds, lambda: os.write(write_end, b"9 stop\n"))
    timer.start()
    sampling.run()
    timer.cancel()
    return lines(tmp_path / "t")


def test_a_sensor_that_explodes_takes_no_other_along(tmp_path):
    def explode():
        raise ValueError("boom")

    written = run_loop(tmp_path, lambda job: source_of(lambda: (7,), explode, lambda: (float("nan"),)), 0.2)
    rows = [line for line in written if isinstance(line, list)]
    assert len(rows) > 3 and all(row[1:] == [7, None, None] for row in rows)


def test_a_sensor_that_is_no_longer_supported_is_left_out_once(tmp_path):
    calls = []

    def fading():
        calls.append(1)
        if len(calls) > 3:
            raise ValueError(UNSUPPORTED)
        return (1,)

    written = run_loop(tmp_path, lambda job: tried(source_of(fading, lambda: (2,))), 0.2)
    assert [e["absent"] for e in written if isinstance(e, dict) and "t" in e and "absent" in e] == [
        {"f0_mhz": UNSUPPORTED}
    ]
    assert len(calls) == 4 and written[-2][1:] == [None, 2]


def test_everything_fails_then_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr("escherlib.hardware.telemetry.sampler.RETRY_S", 0.02)
    opened, closed = [], []

    def opener(job):
        opened.append(time.monotonic())
        if len(opened) == 2:
            raise OSError("still gone")
        return source_of(read, closed=lambda: closed.append(1))

    def read():
        if len(opened) < 3 and time.monotonic() - opened[0] > 0.05:
            raise ValueError("GPU is lost")
        return (5,)

    written = run_loop(tmp_path, opener, 0.5)
    gaps = [e["gap"] for e in written if isinstance(e, dict) and "gap" in e]
    assert gaps == ["GPU is lost"] and len(opened) == 3 and closed == [1]
    assert isinstance(written[-2], list) and written[-2][1] == 5
    assert [line for line in written if isinstance(line, list) and None in line] == []


def test_nonsense_commands_do_no_harm(tmp_path):
    text = b"\n1\n2 dance\n3 interval soon\n4 interval 99999\n\xff\xfe 3\n5 interval 0\n"
    written = run_loop(tmp_path, lambda job: source_of(lambda: (1,)), 0.2, commands=text)
    assert [e["interval_s"] for e in written[1:] if isinstance(e, dict) and "interval_s" in e] == [
        10.0,
        0.002,
    ]
    assert written[-1]["end"] == "stopped"


def test_a_slow_sensor_leaves_half_the_time(tmp_path):
    def slow():
        time.sleep(0.05)
        return (1,)

    written = run_loop(tmp_path, lambda job: source_of(slow), 0.6)
    assert 2 <= sum(isinstance(line, list) for line in written) <= 7  # 0.1 s each instead of 0.01


def test_slow_sensors_keep_their_pace(tmp_path):
    source = Source(
        "test",
        (Reader(("a_mhz",), lambda: (1,)), Reader(("b_c",), lambda: (2,), slow=True)),
        0.1,
        lambda error: False,
    )
    written = run_loop(tmp_path, lambda job: source, 0.5, commands=b"1 interval 0.01\n")
    rows = [line for line in written if isinstance(line, list)]
    read = [row for row in rows if row[2] is not None]
    assert len(rows) > 8 and 1 <= len(read) <= 6


def test_a_full_disk_loses_lines_not_the_sampler(tmp_path, monkeypatch):
    log = Log(tmp_path / "missing" / "t")
    log.add({"n": 1})
    log.flush()
    (tmp_path / "missing").mkdir()
    log.add({"n": 2})
    log.close()
    assert lines(tmp_path / "missing" / "t") == [{"lost_lines": 1}, {"n": 2}]


def test_file_size_of_a_minute_stays_small(tmp_path):
    """A row of a busy GPU, every 40 ms, is below 150 kB a minute; a CPU row every 0.2 s below 25 kB."""
    gpu = json.dumps([59_999_999, 1455, 690.1, 4, 41234.56, 61, 3201, 58, 100, 700], separators=(",", ":"))
    cpu = json.dumps([59_999_999, 2500, 99.5, 0.0, 12345.67, 250.12, 61, 12.34], separators=(",", ":"))
    assert (len(gpu) + 1) * 60 / 0.04 < 150_000 and (len(cpu) + 1) * 60 / 0.2 < 25_000


def test_the_sampler_imports_no_torch():
    code = "import sys, escherlib.hardware.telemetry.sampler, escherlib.hardware.telemetry.procfs\n"
    code += "print([m for m in ('torch', 'numpy', 'pydantic', 'yaml') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout
        == "[]\n"
    )
