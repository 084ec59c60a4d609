"""Chapters: what is shown, what is left out and counted, what a failed or stale family looks like."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from escherlib.report import charts, stitch
from escherlib.report.display import Card
from escherlib.run import load_results
from tests.report.factory import FakeRun, fake_run, fill_compute
from tests.report.notebooks import add_notebooks, code, shown

FAMILY = "01_bf16_compute"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    results = load_results(fake_run(tmp_path_factory.mktemp("stitch")))
    add_notebooks(results)
    return results


def replaced(tmp_path, cells, metadata=None, failed=()):
    """Results of a fake run whose family 1 has a notebook of these cells."""
    results = load_results(fake_run(tmp_path, failed=failed))
    nbformat.write(new_notebook(cells=cells, metadata=metadata or {}), tmp_path / f"{FAMILY}.ipynb")
    return results


def test_tags_decide_what_a_chapter_shows(run):
    body = stitch.chapter(run, FAMILY, "html").body
    assert "open_run" not in body and "widget()" not in body  # setup hidden, interactive removed
    assert "sizes = None" not in re.sub(r"<[^>]+>", "", body)  # the injected cell replaces the defaults
    assert '<details class="code">' in body
    printed = stitch.chapter(run, FAMILY, "pdf").body
    assert "<details" not in printed and "<script" not in printed


def test_what_is_left_out_is_counted(run):
    chapter = stitch.chapter(run, FAMILY, "html")
    assert chapter.dropped["lines on stderr"] == 2 and "a warning" not in chapter.body


def test_charts_come_live_static_or_as_files(run):
    live, printed, text = (stitch.chapter(run, FAMILY, kind) for kind in ("html", "pdf", "md"))
    assert live.body.count("class='spec'") == 6 and len(live.figures) == 6
    assert printed.body.count("<svg") == 6 and "<title>" in printed.body
    assert len(text.files) == 6 and all(f"](report_files/{name})" in text.body for name in text.files)
    linked = stitch.chapter(run, FAMILY, "html", embed=False)
    assert linked.body.count("<img src='report_files/") == 6 and "<script" not in linked.body


def test_captions_stand_once_inside_their_figure(run):
    body = stitch.chapter(run, FAMILY, "html").body
    assert body.count("The settled state keeps") == 1 + body.count('"caption": "The settled state keeps')


def test_ids_are_unique_and_belong_to_the_chapter(run):
    bodies = [stitch.chapter(run, family, "pdf").body for family in (FAMILY, "02_memory_bandwidth")]
    ids = re.findall(r"\bid=['\"]([^'\"]+)", "".join(bodies))
    assert len(ids) == len(set(ids)) and all(
        i.startswith(("01-bf16-compute", "02-memory-bandwidth")) for i in ids
    )


def test_headings_without_content_are_dropped(run):
    printed, live = stitch.chapter(run, FAMILY, "pdf").body, stitch.chapter(run, FAMILY, "html").body
    assert "Play with it" not in printed and "Play with it" not in live
    assert (
        "Measure</h3>" not in printed and "Measure</h3>" in live
    )  # its progress lines are in the HTML alone
    assert "Play with it" not in stitch.chapter(run, FAMILY, "md").body


def test_text_for_the_person_at_the_notebook_is_left_out(run):
    live, printed = stitch.chapter(run, FAMILY, "html").body, stitch.chapter(run, FAMILY, "pdf").body
    assert "Tells how to hold" not in live and "Move the slider" not in live
    assert "Change one and run" in live and "Change one and run" not in printed
    assert "A limit of everything" in printed


def test_a_roofline_that_lacked_a_roof_is_drawn_again(tmp_path):
    early = FakeRun(tmp_path, profile=None)
    fill_compute(early)
    box = charts.roofline(load_results(early.write()), FAMILY)
    assert "not measured" in box.to_text()
    results = replaced(tmp_path, [code("show(…)", *shown(box)), code("again", *shown(forged()))])
    chapter = stitch.chapter(results, FAMILY, "html")
    assert len(chapter.figures) == 1 and "ridge lies at 152" in chapter.figures[0][1]
    assert "not measured" not in chapter.body.split("again")[0]


def forged():
    """A box that asks for something which is no chart."""
    return Card("missing", "x", ("y",), redraw={"chart": "theme", "family": "os"})


def test_the_chapter_has_a_title_that_fits_the_machine(run):
    chapter = stitch.chapter(run, "02_memory_bandwidth", "html")
    assert chapter.title == "HBM bandwidth" and "<h2" not in chapter.body


def test_a_failed_family_shows_reason_records_and_charts(tmp_path):
    results = load_results(fake_run(tmp_path, failed=("02_memory_bandwidth",)))
    for kind in ("html", "pdf", "md"):
        body = stitch.chapter(results, "02_memory_bandwidth", kind).body
        assert "the kernel died" in body and "copy 64 MiB" in body
    assert stitch.chapter(results, "02_memory_bandwidth", "pdf").body.count("<svg") == 2


def test_errors_become_boxes_and_papermills_own_cells_go(tmp_path):
    failed = new_output(
        "error", ename="ValueError", evalue="bad", traceback=["\x1b[0;31mTraceback\x1b[0m", "line"]
    )
    red = '<span style="color:red">An Exception was encountered</span>'
    later = [new_markdown_cell("## Charts\n\nNobody got here."), new_code_cell("y()")]
    own = new_markdown_cell(red, metadata={"tags": ["papermill-error-cell-tag"]})
    cells = [own, new_markdown_cell("# T\n\ntext"), code("x()", failed), *later]
    results = replaced(tmp_path, cells, failed=(FAMILY,))
    body = stitch.chapter(results, FAMILY, "html").body
    assert "An Exception was encountered" not in body and "\x1b" not in body
    assert "Nobody got here" not in body and "Charts." in body
    assert "ValueError: bad" in body and "This family: failed" in body and "square/1024" in body
    assert "line" not in stitch.chapter(results, FAMILY, "md").body.split("ValueError: bad")[1].split("\n")[0]


def test_a_broken_notebook_still_makes_a_chapter(tmp_path):
    results = load_results(fake_run(tmp_path))
    (tmp_path / f"{FAMILY}.ipynb").write_text('{"cells": [')
    assert "square/1024" in stitch.chapter(results, FAMILY, "md").body


def test_a_chapter_older_than_its_records_is_marked(tmp_path):
    cells = [new_markdown_cell("# T\n\ntext")]
    old = {"papermill": {"end_time": "2026-03-04T05:09:00+00:00"}}
    assert "make analyze" in stitch.chapter(replaced(tmp_path, cells, old), FAMILY, "md").body
    new = {"papermill": {"end_time": "2026-03-04T05:10:01"}}  # no zone: UTC
    assert "make analyze" not in stitch.chapter(replaced(tmp_path, cells, new), FAMILY, "md").body


def test_a_family_that_was_never_run_says_so(tmp_path):
    results = load_results(fake_run(tmp_path))
    results.manifest["parameters"]["05_e2e_mfu"] = {}
    assert "not run" in stitch.chapter(results, "05_e2e_mfu", "md").body


def test_text_can_not_break_out_of_its_fence(tmp_path):
    cells = [
        code(
            "x", new_output("execute_result", {"text/plain": "a\n```\n<script>b</script>"}, execution_count=1)
        )
    ]
    body = stitch.chapter(replaced(tmp_path, cells), FAMILY, "md").body
    assert "````text\na\n```\n<script>b</script>\n````" in body


def test_widgets_are_dropped(tmp_path):
    view = new_output(
        "display_data", {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "W()"}
    )
    chapter = stitch.chapter(replaced(tmp_path, [new_code_cell("w", outputs=[view])]), FAMILY, "html")
    assert chapter.dropped["widgets and scripts"] == 1 and "W()" not in chapter.body
