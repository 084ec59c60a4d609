"""Print HTML → PDF: WeasyPrint, else an installed Chromium, else none and the line that installs one."""

import logging
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from escherlib.errors import UserError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "apt-get install -y libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core"
TIMEOUT_S = 120


@dataclass(frozen=True)
class Pdf:
    """content and pages, or None with reason; engine with version; verified: how the marking was checked."""

    content: bytes | None
    engine: str | None = None
    pages: int | None = None
    verified: str | None = None
    reason: str | None = None


def make_pdf(html, marking, moment):
    """PDF of a print page, dated `moment`. UserError where a marking can't be shown to be on every page."""
    with build_date(moment):
        found = by_weasyprint(html, marking)
        if found is None:
            found = by_browser(html, marking)
    if found is None:
        return Pdf(
            None,
            reason=f"no PDF engine works here (no libraries for WeasyPrint, no Chromium): {INSTALL}",
        )
    return found


@contextmanager
def build_date(moment):
    """Embedded fonts are stamped with this variable: with it the same run gives the same bytes."""
    before = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ["SOURCE_DATE_EPOCH"] = str(int(moment.timestamp()))
    try:
        yield
    finally:
        if before is None:
            del os.environ["SOURCE_DATE_EPOCH"]
        else:
            os.environ["SOURCE_DATE_EPOCH"] = before


def by_weasyprint(html, marking):
    """PDF by WeasyPrint, or None where it or its libraries are missing."""
    try:
        import weasyprint
    except (ImportError, OSError):
        return None
    if not hasattr(weasyprint.urls, "URLFetcher"):  # too old to be held to what the page itself contains
        return None
    logging.getLogger("weasyprint").setLevel(logging.CRITICAL)  # it tells of every refused image
    only_data = weasyprint.urls.URLFetcher(allowed_protocols=["data"])  # a report holds all it needs
    document = weasyprint.HTML(string=html, base_url="about:blank", url_fetcher=only_data).render()
    if marking:
        check_pages([_margin_text(page) for page in document.pages], marking)
    content = document.write_pdf(pdf_tags=True)
    verified = "margin boxes of every page" if marking else None
    return Pdf(content, f"WeasyPrint {weasyprint.__version__}", len(document.pages), verified)


def _margin_text(page):
    """Text of the margin boxes of a rendered page, as laid out."""
    boxes = [box for box in page._page_box.children if type(box).__name__ == "MarginBox"]
    return " ".join("".join(getattr(part, "text", "") for part in box.descendants()) for box in boxes)


def check_pages(texts, marking):
    """UserError unless the marking is in the text of every page (white space apart)."""
    wanted = _bare(marking)
    lacking = [number for number, text in enumerate(texts, start=1) if wanted not in _bare(text)]
    if lacking or not texts:
        where = f"page {lacking[0]} of {len(texts)}" if lacking else "any page"
        raise UserError(
            f"MARKING={marking}: not on {where} of the PDF, so no report was written; shorten it to one line"
        )


def _bare(text):
    return re.sub(r"\s+", "", text)


def find_browser():
    """Path of an installed Chromium, or None."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def by_browser(html, marking):
    """PDF by a headless Chromium from the same page, or None where there is none or it gives none."""
    browser = find_browser()
    if browser is None:
        return None
    with tempfile.TemporaryDirectory(prefix="escher-pdf-") as folder:
        page, target = Path(folder) / "report.print.html", Path(folder) / "report.pdf"
        page.write_text(html)
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={folder}/profile",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--no-pdf-header-footer",
            "--generate-pdf-document-outline",
            f"--print-to-pdf={target}",
            page.as_uri(),
        ]
        try:
            subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
            content = target.read_bytes()
        except (OSError, subprocess.SubprocessError):
            return None
        texts = page_texts(target)
    if marking and texts is None:
        raise UserError(
            f"MARKING={marking}: can't be checked on the pages of a PDF by Chromium; "
            f"apt-get install -y poppler-utils, or {INSTALL}"
        )
    if marking:
        check_pages(texts, marking)
    pages = len(texts) if texts else None
    return Pdf(
        content, f"Chromium ({_version(browser)})", pages, "pdftotext of every page" if marking else None
    )


def _version(browser):
    done = subprocess.run([browser, "--version"], capture_output=True, text=True, timeout=30)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout)
    return found[0] if found else "version unknown"


def page_texts(path):
    """Text of each page by pdftotext, or None where that is not installed."""
    tool = shutil.which("pdftotext")
    if tool is None:
        return None
    done = subprocess.run(
        [tool, "-layout", str(path), "-"], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    return done.stdout.split("\f")[:-1] if done.returncode == 0 else None
