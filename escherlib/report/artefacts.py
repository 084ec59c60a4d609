"""Artefacts A1…A11 and the report files: what belongs to a run, how it is made, whether it opens."""

import csv
import json
from dataclasses import dataclass
from html.parser import HTMLParser
from xml.etree import ElementTree

from escherlib.files import read_json, write_bytes, write_text
from escherlib.report import static
from escherlib.report.facts import family_title, outcome
from escherlib.report.theme import spec_of

FORMATS = ("md", "html", "pdf")
META = "report.json"


@dataclass(frozen=True)
class Artefact:
    """One artefact: id, title, families it needs, then chart function and file stem, or file."""

    id: str
    title: str
    families: tuple
    chart: str | None = None
    stem: str | None = None
    file: str | None = None

    @property
    def files(self):
        """Paths below the run folder."""
        return (f"charts/{self.stem}.svg", f"charts/{self.stem}.png") if self.chart else (self.file,)


COMPUTE, BANDWIDTH, CAPACITY = "01_bf16_compute", "02_memory_bandwidth", "03_memory_capacity"
OPS, E2E = "04_workload_ops", "05_e2e_mfu"
REGISTRY = (
    Artefact("A1", "hardware summary", (), file="hardware.md"),
    Artefact("A2", "GEMM size sweep", (COMPUTE,), "gemm_sweep", "A2_gemm_sweep"),
    Artefact("A3", "bandwidth by size and operation", (BANDWIDTH,), "bandwidth", "A3_bandwidth"),
    Artefact("A3b", "cache curve", (BANDWIDTH,), "cache_curve", "A3b_cache_curve"),
    Artefact("A4", "capacity", (CAPACITY,), "capacity", "A4_capacity"),
    Artefact("A5", "op table", (OPS,), file=f"records/{OPS}/op_table.csv"),
    Artefact("A6", "roofline", (COMPUTE, BANDWIDTH), "roofline", "A6_roofline"),
    Artefact("A7", "per-op theory, default, optimized", (OPS,), "op_times", "A7_op_times"),
    Artefact("A8", "MFU", (E2E,), "mfu", "A8_mfu"),
    Artefact("A8b", "per-chunk distribution", (E2E,), "chunks", "A8b_chunks"),
    Artefact("A9", "collectives and scaling", ("06_multigpu_comm",)),
    Artefact("A10", "environment", (), file="env.json"),
    Artefact("A11", "summary", (), file="summary.md"),
)


def left_out_reason(results, artefact):
    """Why an artefact does not belong to this run, or None: a family it needs was not run."""
    for family in artefact.families:
        entry = outcome(results, family)
        if entry["status"] == "not_run":
            return f"{family_title(results, family)}: {entry.get('reason') or 'not run'}"
    return None


def left_out(results):
    """[{id, left_out}] of the artefacts that do not belong to this run."""
    found = ((artefact.id, left_out_reason(results, artefact)) for artefact in REGISTRY)
    return [{"id": name, "left_out": reason} for name, reason in found if reason]


def make_charts(results):
    """Write each chart as SVG and PNG into charts/, remove what is no longer drawn. Returns the files."""
    from escherlib.report import charts

    made = []
    for artefact in REGISTRY:
        if not artefact.chart:
            continue
        paths = [results.path / file for file in artefact.files]
        drawn = None if left_out_reason(results, artefact) else getattr(charts, artefact.chart)(results)
        if drawn is None or not hasattr(drawn, "to_dict"):
            for path in paths:
                path.unlink(missing_ok=True)
            continue
        spec = static.safe_spec(spec_of(drawn))
        write_text(paths[0], static.svg(spec) + "\n")
        write_bytes(paths[1], static.png(spec))
        made += paths
    return made


def check(results, formats=FORMATS):
    """One dict an artefact and report file: id, files, ok, reason, left_out (why), engine_missing."""
    found = []
    for artefact in REGISTRY:
        away = left_out_reason(results, artefact)
        made = None if away else _checked(results, artefact.id, artefact.files, artefact.title)
        found.append(made or _entry(artefact.id, (), None, None, away))
    return found + [_report_entry(results, kind, formats) for kind in FORMATS]


def _report_entry(results, kind, formats):
    if kind not in formats:
        return _entry(f"report.{kind}", (), None, None, "format switched off")
    entry = _checked(results, f"report.{kind}", (f"report.{kind}",), "report")
    reason = _pdf_reason(results) if kind == "pdf" and not entry["ok"] else None
    return entry | ({"engine_missing": True, "reason": reason} if reason else {})


def _entry(name, files, ok, reason, left_out=None):
    return {
        "id": name,
        "files": list(files),
        "ok": ok,
        "reason": reason,
        "left_out": left_out,
        "engine_missing": False,
    }


def _checked(results, name, files, title):
    if not files or None in files:
        return _entry(name, (), False, f"{title}: this version makes no such artefact")
    problems = [f"{file} {problem}" for file in files if (problem := problem_of(results.path / file))]
    return _entry(name, files, not problems, "; ".join(problems) or None)


def _pdf_reason(results):
    try:
        return read_json(results.path / META).get("pdf", {}).get("reason")
    except Exception:  # no report was built: the missing file speaks for itself
        return None


def problem_of(path):
    """What is wrong with a file (`is missing`, `does not open: …`), or None."""
    try:
        content = path.read_bytes()
    except OSError:
        return "is missing"
    try:
        OPENERS[path.suffix](content)
    except Exception as error:  # whatever a reader stumbles over, the file does not open
        return f"does not open: {str(error)[:120] or type(error).__name__}"
    return None


def _open_png(content):
    if not (
        content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR" and content[-8:-4] == b"IEND"
    ):
        raise ValueError("no whole PNG image")


def _open_pdf(content):
    if not (
        content.startswith(b"%PDF-")
        and b"startxref" in content[-1024:]
        and content.rstrip().endswith(b"%%EOF")
    ):
        raise ValueError("no whole PDF file")


def _open_html(content):
    text = content.decode()
    HTMLParser().feed(text)
    if not text.rstrip().endswith("</html>"):
        raise ValueError("cut off before its end")


def _open_text(content):
    if not content.decode().strip():
        raise ValueError("empty")


def _open_csv(content):
    if len({len(row) for row in csv.reader(content.decode().splitlines())}) != 1:
        raise ValueError("no table with rows of one length")


OPENERS = {
    ".csv": _open_csv,
    ".svg": ElementTree.fromstring,
    ".png": _open_png,
    ".pdf": _open_pdf,
    ".html": _open_html,
    ".json": json.loads,
    ".md": _open_text,
}
