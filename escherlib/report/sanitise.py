"""Foreign HTML and Markdown made harmless: no script, no style, no remote image, ids of their own chapter.

A run folder may be mailed around, so what a notebook holds is material from a stranger. HTML passes an
allow-list (bleach, which nbconvert brings along); Markdown keeps its own syntax and loses raw tags.
"""

import re
from functools import cache, partial

TAG_NAMES = """
a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3
h4 h5 h6 hr i img ins kbd li mark ol p pre q s samp section small span strong sub summary sup table tbody
td tfoot th thead tr u ul var
"""
TAGS = frozenset(TAG_NAMES.split())
ANYWHERE = frozenset(("class", "id", "title", "lang", "dir", "role", "aria-label", "aria-hidden", "tabindex"))
BY_TAG = {
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "th": {"scope", "colspan", "rowspan"},
    "td": {"colspan", "rowspan"},
    "col": {"span"},
    "colgroup": {"span"},
    "details": {"open"},
    "ol": {"start"},
}
IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+\Z")
LINK = re.compile(r"(?:https?://|mailto:|#)", re.IGNORECASE)
NOTEBOOK = re.compile(r"(?:\./)?([A-Za-z0-9_]+)\.ipynb(?:#.*)?\Z")
DROPPED_NAMES = "script style iframe object embed template svg math noscript textarea title head"
DROPPED = DROPPED_NAMES.split()
BARE_NAMES = "br sub sup b i em strong kbd mark s u small details summary"
BARE = "|".join(BARE_NAMES.split())  # tags Markdown may keep, without attributes
BLOCKS = re.compile(rf"<({'|'.join(DROPPED)})\b.*?(</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
FENCED = re.compile(r"(^```.*?^```[^\n]*$|^~~~.*?^~~~[^\n]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def clean_html(text, prefix, shift=0):
    """Harmless HTML of a fragment: ids and local links start with `prefix`, headings move `shift` levels."""
    return _cleaner(prefix, shift).clean(_without_blocks(text))


def _without_blocks(text):
    """Text without elements whose very content must not show, such as scripts."""
    from bs4 import BeautifulSoup, Comment

    if "<" not in text:
        return text
    soup = BeautifulSoup(text, "html.parser")
    for found in soup(DROPPED):
        found.decompose()
    for comment in soup(string=lambda part: isinstance(part, Comment)):
        comment.extract()
    return str(soup)


@cache
def _cleaner(prefix, shift):
    from bleach.sanitizer import Cleaner

    return Cleaner(
        tags=TAGS,
        attributes=_allowed,
        protocols={"http", "https", "mailto", "data"},
        strip=True,
        strip_comments=True,
        filters=[partial(_rewritten, prefix=prefix, shift=shift)],
    )


def _allowed(tag, name, value):
    if name == "src":
        return tag == "img" and bool(IMAGE.match(value))
    if name == "href":
        return tag == "a" and bool(LINK.match(value) or NOTEBOOK.match(value))
    if name == "tabindex":
        return value == "0"
    return name in ANYWHERE or name in BY_TAG.get(tag, ())


def _rewritten(source, prefix, shift):
    """Token filter: prefix ids, point links of notebooks at their chapters, move headings, add alts."""
    for token in source:
        if token["type"] in ("StartTag", "EndTag", "EmptyTag"):
            token["name"] = _shifted(token["name"], shift)
            if token["type"] != "EndTag":
                _rewrite_attributes(token, prefix)
                if token["name"] == "img" and (None, "src") not in token["data"]:
                    token = {"type": "Characters", "data": "[image left out: not part of the notebook]"}
        yield token


def _shifted(name, shift):
    return f"h{min(6, int(name[1]) + shift)}" if re.fullmatch(r"h[1-6]", name) else name


def _rewrite_attributes(token, prefix):
    data = token["data"]
    if (None, "id") in data:
        data[None, "id"] = f"{prefix}-{data[None, 'id']}"
    link = data.get((None, "href"))
    if link and link.startswith("#"):
        data[None, "href"] = f"#{prefix}-{link[1:]}"
    elif link and NOTEBOOK.match(link):
        data[None, "href"] = f"#{anchor(NOTEBOOK.match(link)[1])}"
    if token["name"] == "img":
        data.setdefault((None, "alt"), "Figure without a description")


def rendered(source):
    """Markdown as nbconvert renders it, without its anchor links (ids are given here). Not yet harmless."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    return MarkdownWithMath(renderer=IPythonRenderer(escape=False, exclude_anchor_links=True)).render(source)


def anchor(text):
    """Text as an id: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"


def clean_markdown(text, shift=0):
    """Harmless Markdown: raw tags escaped, scripts, remote images and script links gone."""
    parts = FENCED.split(text)
    return "".join(
        (_clean_code(part) if i % 2 else _clean_prose(part, shift)) for i, part in enumerate(parts)
    )


def _clean_code(text):
    """Code looks as before, but is no tag even to a reader who sees the fence elsewhere."""
    return re.sub(r"<(?=[A-Za-z/!?])", "<\u2060", text)


def _clean_prose(text, shift):
    text = BLOCKS.sub("", text)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", lambda m: f"[image left out: {m[1] or 'no description'}]", text)
    text = re.sub(
        r"\]\(\s*<?(?!https?://|mailto:|#|[A-Za-z0-9_./-]+\.(?:ipynb|md|csv|svg|json)\b)[^)]*\)", "](#)", text
    )
    text = re.sub(r"^(\s*\[[^\]]+\]:\s*)(?!https?://|mailto:|#)\S.*$", r"\1#", text, flags=re.MULTILINE)
    text = re.sub(rf"<(?!/?(?:{BARE})\s*/?>)(?=[A-Za-z/!?])", "&lt;", text)
    if shift:
        text = re.sub(r"^(#{1,6})(?= )", lambda m: "#" * min(6, len(m[1]) + shift), text, flags=re.MULTILINE)
    return text


def plain(text):
    """Terminal output as plain text: colour codes and carriage-return overwrites removed."""
    text = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]", "", text)
    text = re.sub(r"[^\n]*\r(?!\n)", "", text)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text.replace("\r\n", "\n"))
