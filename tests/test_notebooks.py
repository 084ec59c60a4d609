"""Every notebook through papermill the way users run it: as a suite, in a moved run folder, by hand.

The smoke suite on this CPU host, once for all tests. Values are real and hasty: none is judged by its size.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
import yaml

from escherlib.files import ROOT, read_json, write_json
from escherlib.run import load_results

COMPUTE, BANDWIDTH, CAPACITY = "01_bf16_compute", "02_memory_bandwidth", "03_memory_capacity"
OPS, E2E = "04_workload_ops", "05_e2e_mfu"
SUSTAINED, STABILITY = "07_sustained", "09_numerical_stability"
FAMILIES = ["00_environment", COMPUTE, BANDWIDTH, CAPACITY, OPS, E2E, SUSTAINED, STABILITY]
PRODUCTS = ["self_attn.qkv", "ffn.linear1", "ffn.linear2", "self_attn.o"]
VEGA = "application/vnd.vegalite.v5+json"
TOO_HEAVY = "the time box is"  # the one reason for which a busy host may refuse a row here


def clean_environment(**more):
    """The environment without what a run around us may have set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ESCHER_")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def benchmark(results_dir, *options):
    """`python -m escherlib benchmark`; returns (finished process, Results of its run)."""
    command = [
        sys.executable,
        "-m",
        "escherlib",
        "benchmark",
        "--suite",
        "smoke",
        "--device",
        "cpu",
        "--format",
        "md",
    ]
    command += ["--results-dir", str(results_dir), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    (run_json,) = results_dir.glob("*/run.json")
    return done, load_results(run_json.parent)


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory):
    """Locks of our own: values are not judged, so whoever else measures on this host may go on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """One run of the whole smoke suite."""
    return benchmark(tmp_path_factory.mktemp("smoke"))


@pytest.fixture(scope="session")
def results(smoke):
    """Its results."""
    return smoke[1]


@pytest.fixture(scope="session")
def without_bf16(tmp_path_factory):
    """Family 1 on a device whose profile says that it has no bf16 arithmetic of its own."""
    from escherlib.hardware.device import open_device

    profile = open_device("cpu").profile
    if profile is None:
        pytest.skip("this CPU has no profile that could be overridden")
    devices = yaml.safe_load((ROOT / "parameters" / "devices.yaml").read_text())
    devices["profiles"][profile.id]["bf16_native"] = False
    folder = tmp_path_factory.mktemp("params")
    (folder / "devices.yaml").write_text(yaml.safe_dump(devices, allow_unicode=True, sort_keys=False))
    suite = yaml.safe_load((ROOT / "parameters" / "suites" / "smoke.yaml").read_text())
    quick = {
        "search_s": 1.0,
        "transient_s": 0,
        "call_budget_s": 0,
        "square_sizes": [128, 256],
        "reference_size": 128,
    }
    suite["families"][COMPUTE]["cpu"] |= quick
    (folder / "suites").mkdir()
    (folder / "suites" / "smoke.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    return benchmark(tmp_path_factory.mktemp("no-bf16"), "--testcase", "compute", "--params", str(folder))[1]


def execute(notebook, folder, parameters=None, **environment):
    """Execute one notebook in `folder` without the suite, as a person would. Returns (verdict, notebook)."""
    target = folder / f".executed-{notebook.stem}.ipynb"
    job = folder / ".job.json"
    write_json(job, {
        "source": str(notebook), "target": str(target), "cell_timeout_s": 200, "cwd": str(folder),
        "parameters": parameters or {},
    })  # fmt: skip
    command = [sys.executable, "-m", "escherlib.run.execute", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(**environment))
    executed = nbformat.read(target, as_version=4)
    target.unlink()
    job.unlink()
    return json.loads(done.stdout.splitlines()[-1]), executed


def outputs(notebook):
    """(cell, output) of every output."""
    return [(cell, out) for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]


def texts(notebook):
    """Plain text of all outputs."""
    found = [out.get("text") or out.get("data", {}).get("text/plain", "") for _, out in outputs(notebook)]
    return "\n".join(found)


def told_by(notebook, cell_id):
    """Plain text of the outputs of one cell."""
    (cell,) = [cell for cell in notebook.cells if cell.id == cell_id]
    return "\n".join(out.get("text") or out["data"]["text/plain"] for out in cell.outputs)


def executed(results, family):
    """The executed notebook of a run."""
    return nbformat.read(results.path / f"{family}.ipynb", as_version=4)


# ---- the suite


def test_every_family_finishes(smoke):
    done, results = smoke
    assert {family: entry["status"] for family, entry in results.statuses.items()} == dict.fromkeys(
        FAMILIES, "finished"
    )
    assert all(results.summaries[family]["status"] == "finished" for family in FAMILIES)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_on_stderr_and_no_error(results, family):
    bad = [
        out
        for _, out in outputs(executed(results, family))
        if out.output_type == "error" or out.get("name") == "stderr"
    ]
    assert bad == []


@pytest.mark.parametrize("family", FAMILIES)
def test_every_chart_has_alternative_text_and_a_caption(results, family):
    found = [out for _, out in outputs(executed(results, family))]
    charts = [i for i, out in enumerate(found) if VEGA in out.get("data", {})]
    assert charts
    for i in charts:
        spec, below = found[i].data[VEGA], found[i + 1]
        assert len(spec["description"]) > 20 and found[i].metadata["alt"] == spec["description"]
        assert "$schema" not in spec
        assert below.metadata["escher"]["role"] == "caption" and len(below.data["text/plain"]) > 10


def test_the_expected_rows_are_there(results):
    names = set(results.records[COMPUTE])
    expected = {
        "search",
        "peak",
        "transient",
        "square/256",
        "square/512",
        "addmm/256",
        "bmm/scores",
        "bmm/values",
    }
    expected |= {f"workload/{name}" for name in PRODUCTS}
    expected |= {"fused/ffn.linear1_gelu", "unfused/ffn.linear1_gelu", "dtype/fp32", "dtype/bf16"}
    expected |= {f"correct/{dtype}/{k}" for dtype in ("fp32", "bf16") for k in (256, 1024)}
    assert expected <= names
    assert names - expected == {name for name in names if name.startswith("skew/")}
    mib = 2**20
    assert {f"{op}/{size * mib}" for op in ("copy", "add", "sum") for size in (16, 32, 64)} < set(
        results.records[BANDWIDTH]
    )
    assert set(results.records[CAPACITY]) == {"contiguous/bf16", "contiguous/fp16", "chunked", "headroom"}
    assert set(results.records["00_environment"]) == {"precheck"}
    expected = {f"error/{dtype}/{k}" for dtype in ("fp32", "bf16") for k in (256, 1024)}
    expected |= {f"{kind}/{dtype}" for kind in ("sums", "special") for dtype in ("fp32", "bf16")}
    assert set(results.records[STABILITY]) == expected


def test_rows_finish_or_say_why_not(results):
    for family in FAMILIES:
        for row in results.rows(family):
            assert row.ok or TOO_HEAVY in row.reason, (row.name, row.status, row.reason)


def test_states_are_those_asked_for(results):
    def states(name):
        return {state for state, found in results.row(COMPUTE, name).result["states"].items() if found}

    assert states("square/256") == {"burst"}  # below sustained_from
    assert states("square/512") == {"burst", "sustained"}
    assert states("addmm/256") == {"sustained"}  # variants on a CPU host
    peak = results.row(COMPUTE, "peak")
    settle = results.row(COMPUTE, "square/512").arguments["settle"]
    assert settle == peak.get("best_sustained")


def test_skewed_shapes_keep_the_flop(results):
    rows = results.rows(COMPUTE, "skew/")
    assert len(rows) == 4 and {row.get("flop") for row in rows if row.ok} == {2 * 256**3}


def test_headlines(results):
    compute = results.summaries[COMPUTE]["headline"]
    assert compute["peak_dtype"]["value"] in ("bf16", "fp32")
    dtype = compute["peak_dtype"]["value"]
    assert compute[f"{dtype}_peak_sustained_tflops"]["value"] > 0
    assert compute["correctness"]["value"] == "within bounds"
    bandwidth = results.summaries[BANDWIDTH]["headline"]
    assert bandwidth["memory_roof_gb_s"]["value"] == max(
        bandwidth[f"{op}_gb_s"]["value"] for op in ("copy", "add")
    )
    capacity = results.summaries[CAPACITY]["headline"]
    assert capacity["allocatable_gib"]["value"] == pytest.approx(0.5, abs=0.02)  # the suite's limit
    assert results.summaries["00_environment"]["headline"]["ready"]["value"].startswith("ready")


def test_the_takeaway_shows_what_the_summary_keeps(results):
    box = texts(executed(results, CAPACITY))
    for finding in results.summaries[CAPACITY]["findings"]:
        assert finding.rstrip(".") in box


def test_the_injected_parameters_are_the_suites(results):
    (cell,) = [
        c for c in executed(results, BANDWIDTH).cells if "injected-parameters" in c.metadata.get("tags", [])
    ]
    assert "sizes_mib = [16, 32, 64]" in cell.source


def test_a_finished_run_measures_nothing_again(smoke):
    _, results = smoke
    before = sorted(p.name for p in results.path.glob("records/*/*.json"))
    command = [sys.executable, "-m", "escherlib", "benchmark", "--run", str(results.path), "--format", "md"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=clean_environment())
    assert done.returncode == 0 and "01_bf16_compute" not in done.stdout, done.stdout + done.stderr
    assert sorted(p.name for p in results.path.glob("records/*/*.json")) == before


# ---- a device without bf16 arithmetic


def test_without_native_bf16_the_headline_is_in_another_format(without_bf16):
    headline = without_bf16.summaries[COMPUTE]["headline"]
    assert headline["peak_dtype"]["value"] == "fp32"
    assert headline["fp32_peak_sustained_tflops"]["value"] > 0
    assert not [name for name in headline if name.startswith("bf16_")]


def test_bf16_rows_are_labelled_emulated(without_bf16):
    row = without_bf16.row(COMPUTE, "dtype/bf16")
    assert row.get("emulated") is True
    notebook = executed(without_bf16, COMPUTE)
    assert "Emulated on this device: bf16" in told_by(notebook, "takeaway-card")
    assert "emulated" in told_by(notebook, "dtypes-chart")


# ---- analysis: the run folder was mailed to somebody


@pytest.fixture(scope="session")
def mailed(results, tmp_path_factory):
    """The finished run in another place."""
    target = tmp_path_factory.mktemp("mailed") / "from-a-colleague"
    shutil.copytree(results.path, target)
    return target


@pytest.fixture(scope="session")
def no_torch(tmp_path_factory):
    """Module path on which torch can't be imported."""
    folder = tmp_path_factory.mktemp("no-torch")
    (folder / "torch.py").write_text("raise ModuleNotFoundError('there is no torch here')\n")
    return os.pathsep.join([str(folder), str(ROOT)])


@pytest.mark.parametrize("family", FAMILIES)
def test_in_a_moved_folder_a_notebook_reads_and_measures_nothing(mailed, no_torch, family):
    before = {p: p.stat().st_mtime_ns for p in mailed.glob("records/*/*.json") if p.name != "summary.json"}
    verdict, notebook = execute(mailed / f"{family}.ipynb", mailed, PYTHONPATH=no_torch)
    assert verdict["ok"], verdict
    assert {
        p: p.stat().st_mtime_ns for p in mailed.glob("records/*/*.json") if p.name != "summary.json"
    } == before
    told = texts(notebook)
    assert "0 measured now" in told and "not measured with these parameters" not in told
    assert not [out for _, out in outputs(notebook) if out.get("name") == "stderr"]


def test_a_changed_parameter_in_a_moved_folder_reads_not_measured(mailed):
    edited = nbformat.read(mailed / f"{BANDWIDTH}.ipynb", as_version=4)
    (cell,) = [c for c in edited.cells if "injected-parameters" in c.metadata.get("tags", [])]
    cell.source = cell.source.replace("[16, 32, 64]", "[16, 32, 48]")
    nbformat.write(edited, mailed / "edited.ipynb")
    verdict, notebook = execute(mailed / "edited.ipynb", mailed)
    assert verdict["ok"], verdict
    assert "not measured with these parameters" in texts(notebook)


# ---- by hand


def test_by_hand_a_changed_parameter_measures_what_is_new(tmp_path):
    source, given = (
        ROOT / "notebooks" / f"{BANDWIDTH}.ipynb",
        {"device": "cpu", "suite": "smoke", "ops": ["copy"]},
    )
    given |= {"sizes_mib": [1, 2, 3], "cache_sizes_kib": [64]}
    verdict, first = execute(source, tmp_path, given, RESULTS_DIR=str(tmp_path))
    assert verdict["ok"], verdict
    assert "4 measured now, 0 loaded" in texts(first)
    (run_json,) = tmp_path.glob("interactive-*/run.json")
    verdict, second = execute(source, tmp_path, given | {"sizes_mib": [1, 2, 4]}, RESULTS_DIR=str(tmp_path))
    assert verdict["ok"], verdict
    assert "1 measured now, 3 loaded" in texts(second)  # a changed parameter measures what is new
    rows = load_results(run_json.parent).records[BANDWIDTH]
    assert list(rows) == [f"copy/{n * 2**20}" for n in (1, 2, 4)] + ["cache/65536"]


def test_a_search_without_time_stops_no_later_cell(tmp_path):
    given = {
        "device": "cpu", "suite": "smoke", "search_s": 0.001, "transient_s": 0, "square_sizes": [128],
        "reference_size": 0, "call_budget_s": 0, "dtypes": ["fp32"], "correct_k": [64], "sustained_from": 64,
    }  # fmt: skip
    source = ROOT / "notebooks" / f"{COMPUTE}.ipynb"
    verdict, notebook = execute(source, tmp_path, given, RESULTS_DIR=str(tmp_path))
    assert verdict["ok"], verdict
    (run_json,) = tmp_path.glob("interactive-*/run.json")
    results = load_results(run_json.parent)
    assert results.row(COMPUTE, "search").status == "refused"
    assert results.row(COMPUTE, "peak").get("best_sustained")["m"] == 128  # the squares stand in
    assert "search refused" in told_by(notebook, "takeaway-card")
    assert "nothing to measure" in told_by(notebook, "measure-transient-row")
    assert results.summaries[COMPUTE]["headline"]


def test_start_opens_the_latest_run(results, tmp_path):
    source = ROOT / "notebooks" / "START.ipynb"
    verdict, notebook = execute(source, tmp_path, RESULTS_DIR=str(results.path.parent))
    assert verdict["ok"], verdict
    assert "memory" in told_by(notebook, "headline-table").lower()
    assert not [out for _, out in outputs(notebook) if out.get("name") == "stderr"]


def test_start_without_any_run_says_what_to_do(tmp_path, monkeypatch):
    from escherlib.report import browse

    assert browse.open_first({}) is None
    assert "make benchmark" in browse.headline_table(None).to_text()
    assert "make benchmark" in browse.picker({}).to_text()
    (tmp_path / "broken").mkdir()
    assert browse.open_first({"gone": tmp_path / "broken"}) is None


def test_progress_lines_name_every_row_that_was_measured(results):
    events = [
        json.loads(line) for line in (results.path / "logs" / "progress.jsonl").read_text().splitlines()
    ]
    measured = {event["row"] for event in events if event["event"] == "row" and event["family"] == CAPACITY}
    assert measured == {"contiguous/bf16", "contiguous/fp16", "chunked", "headroom"}


def test_no_serials_hosts_or_paths_in_the_records(results):
    """What is mailed around names no machine: no host name and no home folder."""
    import socket

    host = socket.gethostname()
    for file in results.path.glob("records/*/*.json"):
        text = file.read_text()
        assert not (len(host) > 4 and re.search(rf"\b{re.escape(host)}\b", text)), file
        assert str(ROOT) not in text, file
    assert read_json(results.path / "run.json")["device"]["sha"]
