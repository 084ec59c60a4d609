"""The whole report: three formats, marking on every page, failed families, artefacts and how they are
checked.
"""

import json
import re
from datetime import UTC, datetime

import pypdf
import pytest
import yaml

from escherlib.errors import UserError
from escherlib.judge import scorecard
from escherlib.parameters import load_scoring
from escherlib.report import artefacts, build, document, pdf
from escherlib.run import load_results
from tests.report.conftest import MARKING
from tests.report.factory import fake_run

DAY = datetime(2026, 3, 4, tzinfo=UTC)
PAGE = (
    "<html lang='en'><head><title>t</title><style>@page{{@top-left{{content:{}}}"
    "@bottom-right{{content:counter(page) ' of ' counter(pages)}}}}</style></head>"
    "<body><p>one</p><p style='break-before:page'>two</p></body></html>"
)


@pytest.fixture(scope="module")
def pages(marked):
    reader = pypdf.PdfReader(marked[1]["pdf"])
    return reader, [re.sub(r"\s+", " ", page.extract_text()) for page in reader.pages]


def test_every_pdf_page_has_marking_run_and_number(pages):
    _, texts = pages
    assert len(texts) > 5
    for number, text in enumerate(texts, start=1):
        assert MARKING in text and f"page {number} of {len(texts)}" in text and "fake-run" in text


def test_pdf_has_title_outline_tags_and_the_runs_date(pages):
    reader, _ = pages
    assert "benchmark report" in reader.metadata.title and MARKING in reader.metadata.title
    assert reader.metadata.creation_date == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    top = [entry.title for entry in reader.outline if not isinstance(entry, list)]
    assert any("Summary" in title for title in top) and any("Compute: GEMM" in title for title in top)
    assert reader.trailer["/Root"]["/MarkInfo"]["/Marked"]


def test_contents_name_pages(pages):
    contents = next(
        text for text in pages[1] if text.split("Contents")[0:1] and "Contents" in text and "Glossary" in text
    )
    assert re.search(r"Glossary[ .]*\d+", contents) and re.search(r"Scorecard[ .]*\d+", contents)


def test_the_failed_family_and_its_records_are_in_every_format(marked, pages):
    built = marked[1]
    for text in (built["md"].read_text(), built["html"].read_text(), " ".join(pages[1])):
        assert "the kernel died" in text and "copy 64 MiB" in text and "NO-GO" in text


def test_markdown_front_matter(marked):
    text = marked[1]["md"].read_text()
    head = yaml.safe_load(text.split("---\n")[1])
    assert {"author", "sensitivity", "title"} <= set(head)
    assert head["marking"] == MARKING and head["verdict"] == "NO-GO" and f"**{MARKING}**" in text
    files = re.findall(r"\]\((report_files/[^)]+)\)", text)
    assert files and all((marked[0].path / file).exists() for file in files)


def test_html_is_one_file_that_names_no_address_to_load(marked):
    text = marked[1]["html"].read_text()
    outside = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(
        r"""(?:src|srcset|action|data)\s*=\s*['"]?https?:|url\(\s*['"]?https?:|@import""", outside
    )
    assert "default-src 'none'" in text and text.count("<h1") == 1 and 'class="skip"' in text
    assert text.count(MARKING) >= 3 and len(text) < 3e6
    assert 'lang="en"' in text and "prefers-color-scheme: dark" in text


def test_hostile_notebook_is_neutralised_in_html(marked):
    text = marked[1]["html"].read_text()
    chapter = text[text.index('<section id="00-environment"') : text.index('<section id="01-bf16-compute"')]
    bare = re.sub(r"<script type='application/json'.*?</script>", "", chapter, flags=re.DOTALL)
    assert not re.search(
        r"<script|<iframe|<form|onerror=|onload=['\"]|javascript:", re.sub(r"&lt;.*?&gt;", "", bare)
    )
    assert "example.com" not in bare and "red papermill box" not in chapter


def test_summary_leads_with_the_verdict(marked):
    text = (marked[0].path / "summary.md").read_text()
    assert text.startswith(f"**{MARKING}**\n\n# NO-GO: ")
    assert "670 TFLOP/s" in text and "1450 MHz" in text and "A3b" in text and "the kernel died" in text


def test_the_engine_is_recorded(marked):
    found = json.loads((marked[0].path / "report.json").read_text())
    assert found["pdf"]["engine"].startswith("WeasyPrint") and found["marking"] == MARKING
    assert found["pdf"]["pages"] > 5 and found["pdf"]["marking_verified"]


def test_artefacts_are_there_and_open(marked):
    found = {entry["id"]: entry for entry in artefacts.check(marked[0])}
    present = {"A1", "A2", "A3", "A3b", "A4", "A6", "A10", "A11", "report.md", "report.html", "report.pdf"}
    assert {name for name, entry in found.items() if entry["ok"]} == present
    assert all(entry["left_out"] for name, entry in found.items() if name not in present)
    assert "Workload operations" in found["A5"]["left_out"]


def test_check_sees_missing_and_broken_files(tmp_path):
    results = load_results(fake_run(tmp_path))
    artefacts.make_charts(results)
    (tmp_path / "charts" / "A2_gemm_sweep.svg").write_text("<svg><g>")
    (tmp_path / "charts" / "A3_bandwidth.png").unlink()
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.7\nhalf")
    (tmp_path / "report.html").write_text("<!DOCTYPE html><html><body>")
    found = {entry["id"]: entry for entry in artefacts.check(results, ("html", "pdf"))}
    assert found["A2"]["ok"] is False and "does not open" in found["A2"]["reason"]
    assert found["A3"]["ok"] is False and "A3_bandwidth.png is missing" in found["A3"]["reason"]
    assert found["A4"]["ok"] is True and found["report.md"]["left_out"] == "format switched off"
    assert found["report.pdf"]["ok"] is False and found["report.html"]["ok"] is False


def test_a_chart_that_can_not_be_drawn_is_no_artefact(tmp_path):
    results = load_results(fake_run(tmp_path))
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "A4_capacity.svg").write_text("<svg/>")
    results.records["03_memory_capacity"].clear()
    artefacts.make_charts(results)
    assert not (tmp_path / "charts" / "A4_capacity.svg").exists()


def small(tmp_path, **options):
    """A quick build without chapters of notebooks."""
    results = load_results(fake_run(tmp_path, failed=()))
    for family in list(results.records):
        results.records[family].clear()
    return results, build.build_report(results, scorecard.score(results, load_scoring()), **options)


def test_formats_are_a_choice_and_old_ones_go(tmp_path):
    (tmp_path / "report.pdf").write_bytes(b"old")
    _, built = small(tmp_path, formats=("md",))
    assert set(built) == {"md", "summary", "charts"} and not (tmp_path / "report.pdf").exists()


def test_without_an_engine_the_fix_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "by_weasyprint", lambda *_: None)
    monkeypatch.setattr(pdf, "by_browser", lambda *_: None)
    results, built = small(tmp_path, formats=("pdf",))
    assert built["pdf"].startswith("not built: ") and "apt-get install" in built["pdf"]
    entry = next(e for e in artefacts.check(results, ("pdf",)) if e["id"] == "report.pdf")
    assert entry["ok"] is False and entry["engine_missing"] and "apt-get install" in entry["reason"]


def test_a_marking_that_is_missing_on_a_page_fails_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "_margin_text", lambda page: "")
    with pytest.raises(UserError, match="MARKING=secret"):
        small(tmp_path, formats=("html", "pdf"), marking="secret")
    assert not (tmp_path / "report.html").exists()


def test_pages_are_checked_one_by_one():
    pdf.check_pages(["x Top  Secret y", "TopSecret"], "Top Secret")
    with pytest.raises(UserError, match="page 2 of 2"):
        pdf.check_pages(["Top Secret", "nothing"], "Top Secret")
    with pytest.raises(UserError):
        pdf.check_pages([], "Top Secret")


@pytest.mark.parametrize(
    "text", ['a"b', "back\\slash", "line\nbreak", "</style><script>", "Streng geheim – Größe", "}{;"]
)
def test_any_marking_is_safe_in_css_and_comes_out_whole(text):
    css = document.css_string(text)
    assert "<" not in css and "\n" not in css and css.count('"') == 2
    made = pdf.by_weasyprint(PAGE.format(css), text)
    assert made.pages == 2


def test_a_blank_after_an_escaped_sign_stays():
    assert document.css_string("a · b") == '"a \\0000b7  b"'


def test_the_same_run_gives_the_same_pdf():
    first, second = (pdf.make_pdf(PAGE.format('"m"'), "m", DAY).content for _ in range(2))
    assert first == second


def test_nothing_outside_is_ever_fetched(monkeypatch):
    opened = []
    monkeypatch.setattr(
        "urllib.request.OpenerDirector.open", lambda self, request, *_, **__: opened.append(request)
    )
    images = "<img src='file:///etc/hostname'><img src='https://example.com/x.png'>one"
    assert pdf.by_weasyprint(PAGE.format('"m"').replace("<p>one</p>", images), "m").pages == 2
    assert opened == []


@pytest.mark.skipif(
    pdf.find_browser() is None or not pdf.shutil.which("pdftotext"), reason="needs Chromium and pdftotext"
)
def test_chromium_prints_the_same_page(monkeypatch):
    monkeypatch.setattr(pdf, "by_weasyprint", lambda *_: None)
    made = pdf.make_pdf(PAGE.format('"Top Secret"'), "Top Secret", DAY)
    assert made.engine.startswith("Chromium (1") and made.pages == 2 and "pdftotext" in made.verified


def test_what_is_expected_scores_like_what_is_there(marked):
    results, scoring = marked[0], load_scoring()
    before = scorecard.score(results, scoring, artefacts.left_out(results))
    assert before == scorecard.score(results, scoring, artefacts.check(results))
