"""Finding, running and reading validators, driven by stand-ins that replay captured outputs."""

import os
import stat
import time
from types import SimpleNamespace

import pytest
import yaml

from escherlib import parameters, tools
from escherlib.judge.validation import compare
from escherlib.method import describe, full_arguments
from escherlib.tools import babelstream, finding, measured, rvs_actions
from escherlib.tools import running as runs
from escherlib.tools.running import imported, module_of, run, suited, validate
from tests.logs import corpus

LIMITS = parameters.load_validation()
CUDA = SimpleNamespace(stack="cuda", index=0, memory_bytes=80 * 10**9, llc_bytes=50 * 2**20, name="A device")
ROCM = SimpleNamespace(stack="rocm", index=1, memory_bytes=192 * 10**9, llc_bytes=256 * 2**20, name="A device")
CPU = SimpleNamespace(stack="cpu", index=None, memory_bytes=8 * 10**9, llc_bytes=32 * 2**20, name="A CPU")
SMALL = SimpleNamespace(stack="cuda", index=0, memory_bytes=2**33, llc_bytes=None, name="A small device")
A100 = ("BabelStream", "v4.0-cuda-a100-40-sxm.txt")


@pytest.fixture
def bin_folder(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def environ(bin_folder, tmp_path):
    """An environment in which only stand-ins are found; /bin holds the shell's own programs."""
    return {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(tmp_path), "ROCM_PATH": str(tmp_path / "rocm"), "CUDA_HOME": str(tmp_path)}


@pytest.fixture
def stand_in(bin_folder):
    """stand_in(name, body): a shell script on PATH; `replay(tool, file)` is a body that prints a captured output."""

    def write(name, body):
        path = bin_folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return write


def replay(tool, name, marker="echo '# replay'"):
    return f"{marker}\ncat '{corpus.HERE / tool / name}'"


def outcomes(tool, device, folder, environ, **more):
    return validate(tool, device, folder / "logs", environ=environ, **more)["outcomes"]


def statuses(found, ours):
    return [row["status"] for entry in found for row in compare(ours, entry, LIMITS)]


def own(metric, value, size=None, **convention):
    return {"metric": metric, "size_bytes": size, "value": value, "unit": "GB/s", "convention": convention}


# What a run comes to


def test_pass_and_fail_of_a_replay(tmp_path, stand_in, environ):
    stand_in("cuda-stream", replay(*A100))
    found = outcomes("BabelStream", CUDA, tmp_path, environ)
    assert [(entry["status"], entry["source"], entry["exit_code"]) for entry in found] == [("ok", "replay", 0)]
    assert (tmp_path / "logs" / found[0]["stdout"]).read_text().endswith(corpus.text_of(*A100))
    values = {entry["metric"]: entry["value"] for entry in found[0]["metrics"]}
    assert values["memory_copy_gb_s"] == pytest.approx(1394.571325) and values["memory_axpy_gb_s"] == pytest.approx(1377.425601)
    assert statuses(found, [own("memory_copy_gb_s", 1300.0)]) == ["PASS", "SKIP", "SKIP", "SKIP", "SKIP"]
    assert "FAIL" in statuses(found, [own("memory_copy_gb_s", 900.0)])


def test_the_switch_marks_a_replay_too(tmp_path, stand_in, environ):
    stand_in("cuda-stream", replay(*A100, marker=":"))
    assert outcomes("BabelStream", CUDA, tmp_path, environ)[0]["source"] == "external"
    assert outcomes("BabelStream", CUDA, tmp_path, environ | {"ESCHER_REPLAY": "1"})[0]["source"] == "replay"


def test_absent_is_skipped_with_the_reason(tmp_path, environ):
    (found,) = outcomes("nvbandwidth", CUDA, tmp_path, environ)
    assert found["status"] == "absent" and found["reason"].startswith("nvbandwidth not found") and "ESCHER_NVBANDWIDTH" in found["reason"]
    assert statuses([found], []) == ["SKIP"]


def test_a_tool_of_another_stack_and_a_single_device_are_skipped(tmp_path, stand_in, environ):
    (found,) = outcomes("rvs", CUDA, tmp_path, environ)
    assert found["reason"] == "for rocm devices; this one is cuda"
    stand_in("all_reduce_perf", "exit 0")
    (found,) = outcomes("nccl-tests", CUDA, tmp_path, environ, gpus=1)
    assert found["reason"] == "needs two devices; 1 is visible" and statuses([found], []) == ["SKIP"]


def test_exit_0_without_evidence_is_unparsed_and_never_passes(tmp_path, stand_in, environ):
    stand_in("nvbandwidth", "echo all done; exit 0")
    (found,) = outcomes("nvbandwidth", CUDA, tmp_path, environ)
    assert found["status"] == "unparsed" and found["exit_code"] == 0 and found["metrics"] == []
    assert statuses([found], [own("h2d_gb_s", 50.0)]) == ["WARN"]


def test_a_deadline_ends_the_whole_group_and_keeps_what_was_said(tmp_path, stand_in, environ):
    stand_in("nvbandwidth", f"echo started\nsleep 60 & echo $! > '{tmp_path}/child'\nwait")
    begun = time.monotonic()
    (found,) = outcomes("nvbandwidth", CUDA, tmp_path, environ, deadline_s=0.5)
    assert time.monotonic() - begun < 20 and found["status"] == "timed out" and found["reason"] == "ended after 0.5 s"
    assert (tmp_path / "logs" / found["stdout"]).read_text() == "started\n"
    assert statuses([found], []) == ["WARN"]
    assert not _alive(int((tmp_path / "child").read_text()))


def _alive(pid, wait_s=5.0):
    """True while a process runs after `wait_s` (a zombie doesn't run)."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stream:
                if stream.read().rpartition(")")[2].split()[0] == "Z":
                    return False
        except OSError:
            return False
        time.sleep(0.05)
    return True


def test_a_crash_names_its_signal_and_keeps_whole_rows(tmp_path, stand_in, environ):
    stand_in("cuda-stream", replay(*A100) + "\nkill -SEGV $$")
    (found,) = outcomes("BabelStream", CUDA, tmp_path, environ)
    assert found["status"] == "crashed" and found["reason"] == "signal 11 (SIGSEGV)" and found["exit_code"] == -11
    assert statuses([found], [own("memory_copy_gb_s", 1394.0)])[0] == "WARN"


def test_an_exit_code_brings_the_tools_own_words(tmp_path, stand_in, environ):
    stand_in("all_reduce_perf", replay("nccl-tests", "error-badarg-repeated-v2.19.7.txt") + "\nexit 255")
    (found,) = outcomes("nccl-tests", CUDA, tmp_path, environ, gpus=2)
    assert found["status"] == "crashed" and found["reason"] == "exit code 255: invalid size specified for 'minbytes'"


def test_a_failed_check_of_the_tool_fails_whatever_the_exit_code(tmp_path, stand_in, environ):
    stand_in("cuda-stream", "cat >&2 <<'END'\nValidation failed on sum. Error 3\nEND\n" + replay(*A100))  # it goes to stderr
    (found,) = outcomes("BabelStream", CUDA, tmp_path, environ)
    assert found["status"] == "failed" and found["metrics"] == [] and found["parsed"]["best_gb_s"] == 1394.571325
    assert statuses([found], [own("memory_copy_gb_s", 1394.0)]) == ["FAIL"]


def test_no_device_is_unavailable(tmp_path, stand_in, environ):
    stand_in("cuda-stream", "echo 'Error: no CUDA-capable device is detected' >&2; exit 0")
    (found,) = outcomes("BabelStream", CUDA, tmp_path, environ)
    assert found["status"] == "unavailable" and statuses([found], []) == ["SKIP"]


def test_a_program_that_cannot_start_is_absent(tmp_path, bin_folder):
    broken = bin_folder / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    found = run([str(broken)], tmp_path / "logs", 5)
    assert found["status"] == "absent" and found["reason"].startswith("broken can't be started")
    assert run([str(bin_folder / "none")], tmp_path / "logs", 5)["status"] == "absent"


def test_output_is_bounded_and_the_tool_is_not_held_up(tmp_path, stand_in, monkeypatch):
    monkeypatch.setattr(runs, "LIMIT_BYTES", 1000)
    found = run([str(stand_in("noisy", "head -c 300000 /dev/zero | tr '\\0' x; echo done >&2"))], tmp_path / "logs", 20)
    assert found["status"] == "ok" and found["clipped"] is True
    assert (tmp_path / "logs" / found["stdout"]).stat().st_size == 1000
    assert (tmp_path / "logs" / found["stderr"]).read_text() == "done\n"


def test_runs_of_a_program_keep_their_own_files(tmp_path, stand_in):
    path = str(stand_in("tool", "echo $1"))
    first, second = (run([path, word], tmp_path / "logs", 5) for word in ("one", "two"))
    assert [(tmp_path / "logs" / ran["stdout"]).read_text() for ran in (first, second)] == ["one\n", "two\n"]


def test_no_folder_of_the_machine_stands_in_an_outcome(tmp_path, stand_in, environ):
    stand_in("rvs", replay("rvs", "pqt-mi25x2-2019.txt"))
    found = outcomes("rvs", ROCM, tmp_path, environ)
    assert [entry["command"] for entry in found] == [["rvs", "-c", f"rvs-{name}.conf"] for name in ("gst", "babel", "pebb")]
    assert str(tmp_path) not in str(found)


# Imports


def test_imports_take_a_file_by_its_text(tmp_path):
    saved = tmp_path / "saved"
    (saved / "deep").mkdir(parents=True)
    (saved / "nccl.log").write_text(corpus.text_of("rvs", "pqt-mi25x2-2019.txt"))  # a name that lies
    (saved / "deep" / "x").write_text(corpus.text_of("nccl-tests", "allreduce-a100x8-nochk-v2.8era.txt"))
    (saved / "notes.md").write_text("nothing to see")
    (saved / "replayed").write_text("# replay\n" + corpus.text_of(*A100))
    found = {tool: [(e["stdout"], e["status"], e["source"]) for e in imported(tool, saved)] for tool in tools.MODULES}
    assert found == {
        "BabelStream": [("replayed", "ok", "replay")], "TransferBench": [], "nccl-tests": [("deep/x", "ok", "import")],
        "nvbandwidth": [], "rccl-tests": [], "rocm-bandwidth-test": [], "rvs": [("nccl.log", "ok", "import")],
    }  # fmt: skip


def test_an_imported_collective_is_compared_by_size(tmp_path):
    (tmp_path / "log").write_text(corpus.text_of("nccl-tests", "allreduce-a100x8-nochk-v2.8era.txt"))
    (found,) = imported("nccl-tests", tmp_path)
    ours = [own("all_reduce_busbw_gb_s", 230.0, 512 * 2**20, bytes="bus")]
    rows = [row for row in compare(ours, found, LIMITS) if row["ours"]]
    assert [(row["status"], row["theirs"]) for row in rows] == [("PASS", 224.55)]  # in place, as torch works


def test_what_the_notebook_measures_with(tmp_path, monkeypatch, stand_in, environ):
    stand_in("cuda-stream", replay(*A100))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(measured.LOGS, "")
    measured.use(tmp_path / "logs")
    (found,) = measured.external(CUDA, tool="BabelStream")["outcomes"]
    assert found["status"] == "ok" and (tmp_path / "logs" / found["stdout"]).is_file()
    assert str(tmp_path) not in str(full_arguments(measured.external, {"tool": "BabelStream"}))
    assert describe(measured.external)["version"] == 1


def test_saved_logs_are_known_by_their_contents(tmp_path, monkeypatch):
    monkeypatch.delenv(measured.IMPORT, raising=False)
    assert measured.digest() is None
    monkeypatch.setenv(measured.IMPORT, str(tmp_path))
    empty = measured.digest()
    (tmp_path / "log").write_text(corpus.text_of(*A100))
    assert empty and measured.digest() not in (None, empty)
    (found,) = measured.saved(CUDA, "BabelStream", measured.digest())["outcomes"]
    assert (found["source"], found["stdout"], found["status"]) == ("import", "log", "ok")


# Finding and commands


def test_a_variable_names_a_folder_or_a_program(tmp_path, stand_in, environ):
    stand_in("nvbandwidth", "exit 0")
    mine = tmp_path / "mine" / "build"
    mine.mkdir(parents=True)
    (mine / "nvbandwidth").write_text("#!/bin/sh\n")
    (mine / "nvbandwidth").chmod(0o755)
    find = module_of("nvbandwidth").find
    assert find(environ)["nvbandwidth"].endswith("bin/nvbandwidth")
    for value in (tmp_path / "mine", mine, mine / "nvbandwidth"):
        assert find(environ | {"ESCHER_NVBANDWIDTH": str(value)}) == {"nvbandwidth": str(mine / "nvbandwidth")}
    assert find(environ | {"ESCHER_NVBANDWIDTH": str(tmp_path / "nowhere")}) == {}


def test_usual_folders_are_searched_after_path(tmp_path):
    folder = tmp_path / "rocm" / "bin"
    folder.mkdir(parents=True)
    (folder / "rvs").write_text("#!/bin/sh\n")
    (folder / "rvs").chmod(0o755)
    assert finding.find_programs(("rvs",), ("X",), {"PATH": "", "ROCM_PATH": str(tmp_path / "rocm")}) == {"rvs": str(folder / "rvs")}


def test_tools_of_each_stack():
    assert suited(CUDA) == ["BabelStream", "TransferBench", "nccl-tests", "nvbandwidth"]
    assert suited(ROCM) == ["BabelStream", "TransferBench", "rccl-tests", "rocm-bandwidth-test", "rvs"]
    assert suited(CPU) == ["BabelStream"]


@pytest.mark.parametrize(
    "device, program, expected",
    [
        (CUDA, "cuda-stream", ["--device", "0", "-s", str(2**28), "-n", "50"]),
        (ROCM, "hip-stream", ["--device", "1", "-s", str(2**28), "-n", "50"]),
        (CPU, "omp-stream", ["-s", str(2**25), "-n", "20"]),
        (SMALL, "cuda-stream", ["--device", "0", "-s", str(2**27), "-n", "50"]),
    ],
)
def test_babelstream_arrays_fit_the_device_and_outgrow_its_cache(device, program, expected):
    assert babelstream.commands(device, {program: f"/x/{program}"}, None) == [[f"/x/{program}", *expected]]
    elements = int(expected[expected.index("-s") + 1])
    assert elements % 1024 == 0 and 3 * 8 * elements < device.memory_bytes / 2
    assert 8 * elements >= 4 * (device.llc_bytes or 0)


def test_collectives_run_in_bf16_over_all_devices():
    module = module_of("rccl-tests")
    found = module.commands(ROCM, {"all_reduce_perf": "/x/all_reduce_perf"}, None, gpus=8)
    assert [" ".join(argv) for argv in found] == ["/x/all_reduce_perf -b 1M -e 1G -f 2 -g 8 -d bfloat16 -n 20 -w 5"]


def test_pair_tests_of_nvbandwidth_need_two_devices():
    commands = module_of("nvbandwidth").commands
    assert not any("device_to_device" in word for word in commands(CUDA, {"nvbandwidth": "n"}, None)[0])
    assert sum("device_to_device" in word for word in commands(CUDA, {"nvbandwidth": "n"}, None, gpus=2)[0]) == 4


def test_rvs_configuration_is_yaml_and_names_its_number_formats(tmp_path):
    paths = rvs_actions.written(tmp_path, gpus=2)
    actions = {a["name"]: a for path in paths for a in yaml.safe_load(path.read_text())["actions"]}
    assert actions["xcheck-bf16"]["data_type"] == "bf16_r" and actions["xcheck-bf16"]["module"] == "gst"
    assert actions["xcheck-sgemm"]["ops_type"] == "sgemm" and actions["xcheck-babel"]["mibibytes"] is False
    assert actions["xcheck-both-ways"]["bidirectional"] is True and actions["xcheck-h2d"]["device_to_host"] is False
    assert [path.name for path in rvs_actions.written(tmp_path, gpus=1)] == ["rvs-gst.conf", "rvs-babel.conf", "rvs-pebb.conf"]


# Figures: counted as ours are


def figures(tool, name):
    parsed = module_of(tool).parse(corpus.text_of(tool, name))
    return [(f["metric"], pytest.approx(f["value"]), f["convention"]["direction"]) for f in module_of(tool).metrics(parsed)]


@pytest.mark.parametrize(
    "tool, name, expected",
    [
        # local copies print each byte once: 2 × the median of the diagonal, (1689.85 + 1690.87) ÷ 2
        ("TransferBench", "p2p-mi300x8-squeezed.txt", [
            ("memory_copy_gb_s", 3380.72, None), ("d2h_gb_s", 55.26, "one way"), ("d2d_gb_s", 48.97, "one way"),
            ("d2d_min_gb_s", 47.47, "one way"), ("d2d_bidirectional_gb_s", 93.00, "both ways, sum"),
            ("d2d_bidirectional_min_gb_s", 91.93, "both ways, sum"),
        ]),
        # the copy engine prints one of two directions: doubled
        ("nvbandwidth", "v0.5-J-a100x2-abridged.json", [
            ("h2d_gb_s", 12.3492, "one way"), ("d2h_gb_s", 13.1969, "one way"), ("d2d_gb_s", 267.1, "one way"),
            ("d2d_min_gb_s", 266.503, "one way"), ("d2d_gb_s", 276.952, "one way"), ("d2d_min_gb_s", 276.952, "one way"),
            ("d2d_bidirectional_gb_s", 507.32, "both ways, sum"), ("d2d_bidirectional_min_gb_s", 507.32, "both ways, sum"),
            ("d2d_bidirectional_gb_s", 524.16, "both ways, sum"), ("d2d_bidirectional_min_gb_s", 523.648, "both ways, sum"),
        ]),
        # local copies count both already: the median of 925.889 and 887.683
        ("rocm-bandwidth-test", "2.6.0-mi100x2-epyc7763-cut.txt", [
            ("memory_copy_gb_s", 906.786, None), ("h2d_gb_s", 28.351, "one way"), ("d2h_gb_s", 28.531, "one way"),
            ("d2d_gb_s", 49.920, "one way"), ("d2d_min_gb_s", 48.902, "one way"),
        ]),
        ("rocm-bandwidth-test", "2.6.0-s0-d4-h2d-table.txt", [("h2d_gb_s", 28.675, "one way")]),
        ("rvs", "pqt-mi25x2-2019.txt", [
            ("d2d_gb_s", 7.056, "one way"), ("d2d_min_gb_s", 7.030, "one way"),
            ("d2d_bidirectional_gb_s", 12.081, "both ways, sum"), ("d2d_bidirectional_min_gb_s", 11.901, "both ways, sum"),
        ]),
        ("rvs", "gst-fp8-mi300x-rocm6.2.txt", []),  # fp8 is no evidence for bf16
        ("rvs", "p2p-json-tail-mi300x-rvs1.1.0.json", []),  # no direction is stated
        ("nccl-tests", "alltoall-rtx5090-1gpu-na.txt", []),  # one rank
        ("BabelStream", "v4.0-cuda-a100-pcie-float-validation-failed.txt", []),
        ("BabelStream", "v5.0-hip-mi300x8-mpi-interleaved.txt", []),  # several processes
    ],
)  # fmt: skip
def test_figures_in_our_convention(tool, name, expected):
    assert figures(tool, name) == expected


def test_rvs_bf16_by_the_name_of_our_action():
    lines = "".join(
        f"[RESULT] [1.0] [xcheck-bf16] [GPU:: {gpu}] GFLOPS {rate} Target GFLOPS: 1000 met: TRUE\n"
        for gpu, rate in ((1, 600000), (2, 620000), (3, 640000))
    )
    (found,) = module_of("rvs").metrics(module_of("rvs").parse(lines))
    assert (found["metric"], found["value"], found["unit"]) == ("gemm_bf16_tflops", 620.0, "TFLOP/s")


def test_local_copy_of_nvbandwidth_is_doubled():
    text = (
        "nvbandwidth Version: v0.8\nRunning device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n           0\n 0   1900.50\n\n"
        "SUM device_local_copy 1900.50\n\nNOTE: The reported results may not reflect the full capabilities of the platform.\n"
    )
    (found,) = module_of("nvbandwidth").metrics(module_of("nvbandwidth").parse(text))
    assert (found["metric"], found["value"], found["convention"]["bytes"]) == ("memory_copy_gb_s", 3801.0, "read + write")


def test_a_collectives_sizes_and_the_half_that_torch_uses():
    parsed = module_of("nccl-tests").parse(corpus.text_of("nccl-tests", "allreduce-gh200x2-J.json"))
    found = {f["size_bytes"]: f["value"] for f in module_of("nccl-tests").metrics(parsed)}
    assert len(found) == 11 and found[512 * 2**20] == 112.164642 and found[8 * 2**30] == 118.293326


def test_every_module_keeps_the_same_face():
    for tool in tools.MODULES:
        module = module_of(tool)
        assert all(callable(getattr(module, name)) for name in ("parse", "find", "commands", "metrics"))
        assert module.PROGRAMS and module.VARIABLES and module.DEADLINE_S > 0 and set(module.STACKS) <= {"cuda", "rocm", "cpu"}
        assert module.metrics({"status": "failed", "reason": "unparsed"}) == []


def test_the_environment_is_the_one_given(tmp_path, stand_in):
    found = run([str(stand_in("shows", "echo $LC_ALL $X"))], tmp_path, 5, env={"X": "1", "PATH": os.environ["PATH"]})
    assert (tmp_path / found["stdout"]).read_text() == "C 1\n"
