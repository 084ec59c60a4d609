"""The tracked example runs: whole, small, of one device, free of private text, and analysed anew on this machine."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys

import pytest

from escherlib.files import ROOT
from escherlib.run import load_results

EXAMPLES = sorted(p.parent for p in (ROOT / "executed" / "examples").glob("*/run.json"))
PRIVATE = re.compile(r"GPU-[0-9a-f]{8}-|/home/|/root/|\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")
MOST_BYTES_A_FILE, MOST_BYTES = 1_000_000, 6_000_000


def tracked(folder):
    """Files of a folder that git keeps; all files where there is no git."""
    found = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", str(folder)], capture_output=True, text=True)
    names = [n for n in found.stdout.split("\0") if n]
    return [ROOT / n for n in names] or [p for p in folder.rglob("*") if p.is_file()]


def run_cli(*arguments):
    """One command of the product in a process of its own."""
    command = [sys.executable, "-m", "escherlib", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=240)


def test_there_is_a_gpu_and_a_cpu_example_and_they_are_small():
    assert {load_results(p).kind for p in EXAMPLES} == {"gpu", "cpu"}
    files = [file for folder in EXAMPLES for file in tracked(folder)]
    assert max(file.stat().st_size for file in files) < MOST_BYTES_A_FILE
    assert sum(file.stat().st_size for file in files) < MOST_BYTES


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
def test_nothing_private_is_in_an_example(folder):
    for file in tracked(folder):
        found = PRIVATE.search(file.read_text(errors="replace"))
        assert not found, f"{file.relative_to(ROOT)}: {found.group()}"


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
def test_every_family_finished_and_every_record_names_the_device(folder):
    results = load_results(folder)
    assert {entry["status"] for entry in results.statuses.values()} == {"finished"}
    rows = [row for family in results.records.values() for row in family.values()]
    assert {row.meta["device_sha"] for row in rows} == {results.device["sha"]}
    assert len(rows) > 40


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
def test_rates_follow_from_the_samples_by_an_independent_sum(folder):
    results = load_results(folder)
    checked = 0
    for row in results.rows("02_memory_bandwidth"):
        for state in row.result["states"].values():
            times = [ns for i, ns in enumerate(state["samples_ns"]) if str(i) not in state["marks"]]
            rate = row.result["bytes"] * state["calls_per_sample"] / statistics.median(times)
            assert rate == pytest.approx(state["gb_s"], rel=1e-9)
            checked += 1
    assert checked > 20


@pytest.mark.slow
@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
def test_an_example_is_analysed_and_reported_without_its_device(folder, tmp_path):
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("report*", "charts", "scorecard*", "summary.md"))
    before = {row.name: row.meta["key"] for family in load_results(copy).records.values() for row in family.values()}
    done = run_cli("analyze", "--run", copy)
    assert done.returncode == 0, done.stdout + done.stderr
    after = load_results(copy)
    assert {row.name: row.meta["key"] for family in after.records.values() for row in family.values()} == before
    missing = [row for family in after.records.values() for row in family.values() if row.status == "not_measured"]
    assert not missing
    for notebook in copy.glob("*.ipynb"):
        assert "not measured with these parameters" not in notebook.read_text()
    assert all((copy / f"report.{kind}").stat().st_size > 10_000 for kind in ("md", "html", "pdf"))
    score = json.loads((copy / "scorecard.json").read_text())
    statuses = {c["id"]: c["status"] for c in score["criteria"]}
    assert statuses["SC-5"] == "PASS" and statuses["SC-6"] == "PASS"
