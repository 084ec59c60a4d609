"""Builds all that is re-made from records: tables as CSV, charts, summary, report in its formats."""

import shutil

from escherlib import __version__
from escherlib.files import write_bytes, write_json, write_text
from escherlib.report import artefacts, cards, document, tables
from escherlib.report.facts import created
from escherlib.report.pdf import Pdf, make_pdf
from escherlib.report.summary import summary

SCHEMA = 1


def build_report(results, score, *, formats=artefacts.FORMATS, marking=None, report_config=None, embed=True):
    """Write tables, charts, hardware.md, summary.md, report.{formats} and report.json into the run folder.

    `results` (escherlib.run.Results) carries the profile to present the run as; `score` is judge.scorecard's;
    marking None takes report.yaml's. Returns {kind: path}; a PDF that no engine here can make is "not built:
    …" instead of a path. UserError where a marking is asked for and is not on every page.
    """
    from escherlib.parameters import load_report_config

    config = load_report_config(report_config)
    marking = " ".join((config.marking if marking is None else marking).split())
    tables.write_tables(results)
    artefacts.make_charts(results)
    card = cards.system_card(results)
    write_text(results.path / "hardware.md", f"# Hardware summary\n\n{card.to_markdown()}\n")
    printed = (
        make_print(results, score, config, marking)
        if "pdf" in formats
        else Pdf(None, reason="format switched off")
    )
    shutil.rmtree(results.path / "report_files", ignore_errors=True)
    built = {
        kind: _write(kind, results, score, config, marking, embed)
        for kind in ("md", "html")
        if kind in formats
    }
    _clear(results.path, formats, printed)
    if printed.content is not None:
        write_bytes(results.path / "report.pdf", printed.content)
    if "pdf" in formats:
        built["pdf"] = (
            results.path / "report.pdf" if printed.content is not None else f"not built: {printed.reason}"
        )
    write_json(results.path / artefacts.META, _meta(results, formats, marking, embed, printed))
    listed = artefacts.check(results, formats)
    assumed = [entry | {"ok": None} if entry["id"] == "A11" else entry for entry in listed]
    write_text(results.path / "summary.md", summary(results, score, assumed, marking))
    return {**built, "summary": results.path / "summary.md", "charts": results.path / "charts"}


def make_print(results, score, config, marking):
    """PDF of the report."""
    composed = document.compose(results, score, config, "pdf", marking, artefacts.left_out(results))
    return make_pdf(document.to_html(composed, results, config, "pdf", marking), marking, created(results))


def _write(kind, results, score, config, marking, embed):
    """report.md or report.html, with the chart files that belong to it. Returns its path."""
    composed = document.compose(results, score, config, kind, marking, artefacts.left_out(results), embed)
    for name, content in composed.files.items():
        write_bytes(results.path / "report_files" / name, content)
    text = (
        document.to_markdown(composed, results, config, marking)
        if kind == "md"
        else document.to_html(composed, results, config, kind, marking, embed)
    )
    path = results.path / f"report.{kind}"
    write_text(path, text)
    return path


def _clear(path, formats, printed):
    """Reports of an earlier build that this one did not make would contradict it."""
    for kind in artefacts.FORMATS:
        if kind not in formats or (kind == "pdf" and printed.content is None):
            (path / f"report.{kind}").unlink(missing_ok=True)


def _meta(results, formats, marking, embed, printed):
    return {
        "schema": SCHEMA,
        "run": results.manifest.get("id"),
        "created": created(results).isoformat(),
        "escherlib": __version__,
        "formats": list(formats),
        "embed": embed,
        "marking": marking,
        "target": results.target,
        "pdf": {
            "engine": printed.engine,
            "pages": printed.pages,
            "marking_verified": printed.verified,
            "reason": printed.reason,
        },
    }
