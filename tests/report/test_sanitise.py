"""Foreign HTML and Markdown come out harmless, and what is harmless comes out whole."""

import re

import pytest

from escherlib.report import sanitise, static
from tests.report.notebooks import ATTACKS

ACTIVE = re.compile(
    r"<\s*(script|style|iframe|object|embed|svg|math|form|input|link|meta|base)\b|\son\w+\s*=|javascript:",
    re.I,
)


@pytest.mark.parametrize("text", ATTACKS)
def test_attacks_lose_their_teeth(text):
    for clean in (sanitise.clean_html(text, "p"), sanitise.clean_html(sanitise.rendered(text), "p")):
        assert not ACTIVE.search(clean), clean
        assert "example.com" not in clean and "style=" not in clean
    markdown = sanitise.clean_markdown(text)
    assert not re.search(r"<(?!/?(br|sub|sup|b|i|em|strong)>)[a-z/!]", markdown, re.I), markdown


def test_scripts_leave_nothing_behind_but_text_around_them():
    assert sanitise.clean_html("<p>a<script>x()</script>b<style>p{}</style></p>", "p") == "<p>ab</p>"


def test_ids_links_and_headings_belong_to_their_chapter():
    clean = sanitise.clean_html(
        "<h1 id='top'>T</h1><a href='#top'>x</a><a href='02_memory_bandwidth.ipynb'>y</a>", "01-x", shift=1
    )
    assert clean == '<h2 id="01-x-top">T</h2><a href="#01-x-top">x</a><a href="#02-memory-bandwidth">y</a>'


def test_tables_and_data_images_survive():
    table = '<table class="data"><caption>c</caption><thead><tr><th scope="col">a</th></tr></thead></table>'
    assert sanitise.clean_html(table, "p") == table
    image = sanitise.clean_html('<img src="data:image/png;base64,iVBORw0KGgo=">', "p")
    assert "data:image/png" in image and "alt=" in image
    assert "<img" not in sanitise.clean_html('<img src="data:text/html,<script>">', "p")
    assert "href" not in sanitise.clean_html('<a href="data:text/html,x">x</a>', "p")


def test_markdown_keeps_code_and_drops_remote_images_and_script_links():
    text = "# T\n\n`<b>` a < b & c\n\n![i](https://x.y/z.png) [l](javascript:x) [m](https://ok.org)\n\n```\n<script>\n```"
    clean = sanitise.clean_markdown(text, shift=1)
    assert (
        clean.startswith("## T") and "`<\u2060b>` a < b & c" in clean and "```\n<\u2060script>\n```" in clean
    )
    assert "image left out: i" in clean and "](#)" in clean and "[m](https://ok.org)" in clean


def test_markdown_code_is_no_tag_wherever_a_reader_sees_its_fence():
    assert "<img" not in sanitise.clean_markdown("\\`<img src=x onerror=alert(1)>`")


def test_terminal_text_is_plain():
    assert sanitise.plain("\x1b[31mred\x1b[0m\n10%\r20%\rdone\x07\n") == "red\ndone\n"


def test_specs_are_reduced_to_what_draws():
    assert static.safe_spec({"data": {"url": "https://x"}, "mark": "point"}) is None
    assert static.safe_spec({"layer": [{"encoding": {"href": {"value": "javascript:x"}}}]}) is None
    assert static.safe_spec("no object") is None
    kept = static.safe_spec({"$schema": "x", "mark": "bar", "usermeta": {"caption": "c", "embedOptions": {}}})
    assert kept == {"mark": "bar", "usermeta": {"caption": "c"}}


def test_json_can_not_end_its_script_element():
    text = static.script_json({"a": "</script><script>x()</script>\u2028"})
    assert "<" not in text and "\u2028" not in text


def test_ids_of_drawings_do_not_collide():
    drawn = static.prefixed(
        '<svg><g id="clip0"/><path clip-path="url(#clip0)"/><use href="#clip0"/></svg>', "c1"
    )
    assert drawn == '<svg><g id="c1-clip0"/><path clip-path="url(#c1-clip0)"/><use href="#c1-clip0"/></svg>'
