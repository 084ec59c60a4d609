"""The suite against notebooks that fail in every way a notebook can. The notebooks are small stand-ins made here."""

import nbformat
import pytest

from escherlib.files import read_json
from escherlib.run import load_results, suite
from tests.run.factory import make_run

GOOD = """
from escherlib.run import open_run
from tests.run.factory import count
run = open_run(FAMILY)
run.measure("square/4", count, n=4)
"""
LAST = 'run.finish({"best": (4, "x")})'
NOTEBOOKS = {
    "10_good": [GOOD, LAST],
    "11_raises": [GOOD, "raise ValueError('no such thing')", LAST],
    "12_killed": [GOOD, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", LAST],
    "13_hangs": [GOOD, "import time; time.sleep(600)", LAST],
    "14_no_last_cell": [GOOD],
    "15_exits": [GOOD, "import sys; sys.exit(0)", LAST],
}


def write_notebook(folder, family, cells):
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "x"}})
    parameters = nbformat.v4.new_code_cell("unused = None", metadata={"tags": ["parameters"]})
    code = [nbformat.v4.new_code_cell(text.replace("FAMILY", repr(family))) for text in cells]
    notebook.cells = [parameters, *code]
    nbformat.write(notebook, folder / f"{family}.ipynb")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebooks")
    run_path = make_run(tmp_path_factory.mktemp("run"), families=tuple(NOTEBOOKS), deadlines_s={"13_hangs": 6})
    for family, cells in NOTEBOOKS.items():
        write_notebook(folder, family, cells)
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "notebook_source", lambda family: folder / f"{family}.ipynb")
        patch.setenv("ESCHER_STAT", "off")
        say = lambda text, transient=False: said.append(text)  # noqa: E731
        entries = suite.run_families(run_path, list(NOTEBOOKS), say)
        yield run_path, entries, said, folder


def test_every_ending_has_its_status_and_reason(finished):
    _, entries, _, _ = finished
    assert {family: entry["status"] for family, entry in entries.items()} == {
        "10_good": "finished", "11_raises": "failed", "12_killed": "failed", "13_hangs": "timed_out",
        "14_no_last_cell": "failed", "15_exits": "failed",
    }  # fmt: skip
    assert entries["11_raises"]["reason"] == "ValueError: no such thing"
    assert "kernel died" in entries["12_killed"]["reason"]
    assert "last cell" in entries["14_no_last_cell"]["reason"]


def test_finished_records_survive_whatever_follows(finished):
    run_path, _, _, _ = finished
    results = load_results(run_path)
    assert all(results.row(family, "square/4").ok for family in NOTEBOOKS)
    assert results.summaries["10_good"]["status"] == "finished"
    assert "11_raises" not in results.summaries


def test_executed_notebooks_are_kept_whole_and_no_working_copy_is_left(finished):
    run_path, _, _, _ = finished
    assert {p.stem for p in run_path.glob("*.ipynb")} == set(NOTEBOOKS)
    assert not list(run_path.glob(".*.ipynb"))
    nbformat.read(run_path / "12_killed.ipynb", 4)


def test_statuses_are_in_the_manifest_and_in_the_lines_said(finished):
    run_path, entries, said, _ = finished
    assert read_json(run_path / "run.json")["families"] == entries
    assert any("12_killed" in line and "failed" in line for line in said)


def test_analyze_keeps_the_statuses_and_prefers_a_copy_edited_by_hand(finished):
    run_path, entries, said, folder = finished
    own = run_path / "10_good.ipynb"
    notebook = nbformat.read(own, 4)
    notebook.cells.insert(2, nbformat.v4.new_code_cell("print('edited')"))
    nbformat.write(notebook, own)
    again = suite.run_families(run_path, ["10_good"], lambda text, transient=False: said.append(text), mode="analyze")
    assert again["10_good"]["status"] == "finished" and "analyzed" in again["10_good"]
    assert any("edited by hand" in line for line in said)
    assert "edited" in str(nbformat.read(own, 4).cells)
