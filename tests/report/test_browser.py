"""report.html in a headless Chromium: no request leaves the page, all charts are drawn, no foreign script has
run.
"""

import pytest

from escherlib.report import pdf

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND",
]  # fmt: skip
DRAWN = "window.__charts.ok + window.__charts.err.length === document.querySelectorAll('script.spec').length"


@pytest.mark.browser
@pytest.mark.skipif(pdf.find_browser() is None, reason="needs Chromium")
def test_report_works_offline_and_draws_every_chart(marked):
    playwright = pytest.importorskip("playwright.sync_api")
    requests, errors = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=pdf.find_browser(), args=FLAGS)
        page = browser.new_context(offline=True, viewport={"width": 1300, "height": 1000}).new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(marked[1]["html"].as_uri())
        page.wait_for_function(DRAWN, timeout=20_000)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        count = page.locator("script.spec").count()
        state = page.evaluate("window.__charts")
        assert count >= 8 and state == {"ok": count, "err": []} and errors == []
        assert [url for url in requests if not url.startswith("data:")] == [marked[1]["html"].as_uri()]
        assert page.evaluate("typeof window.__xss") == "undefined"
        assert page.locator("figure.chart svg.marks").count() == count
        assert page.locator(".banner").inner_text() == "Confidential - Distribution Under NDA"
        page.click("#code-toggle")
        assert (
            page.locator("details.code:not([open])").count() == 0 and page.locator("details.code").count() > 5
        )
        browser.close()
