"""The report as a document: cover, numbered sections in their order, and its three renderings."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from escherlib import __version__
from escherlib.errors import UserError
from escherlib.report import parts, static, stitch
from escherlib.report.display import escape_markdown
from escherlib.report.facts import created, device_name, families, sentence

TEMPLATES = Path(__file__).with_name("templates")
VERDICT_PILLS = {"GO": "PASS", "CONDITIONAL GO": "WARN", "NO-GO": "FAIL"}
VERDICT_TEXT = {
    "GO": "every gating criterion that applies here is met",
    "CONDITIONAL GO": "nothing failed, but points are open",
    "NO-GO": "a gating criterion or a family failed",
}


@dataclass(frozen=True)
class Section:
    """One numbered section; `body` is HTML or Markdown by the kind of the document."""

    anchor: str
    number: str
    title: str
    body: str
    status: str = ""
    family: bool = False
    first: bool = False


@dataclass(frozen=True)
class Document:
    """All sections of one kind, cover facts, figures as (id, title), and chart files beside it."""

    cover: dict
    sections: tuple
    figures: tuple
    files: dict


def compose(results, score, config, kind, marking="", left_out=(), embed=True):
    """Document of one kind (`html`, `pdf`, `md`)."""
    chapters = [stitch.chapter(results, family, kind, embed) for family in families(results)]
    before = [
        parts.summary(results, score),
        parts.scorecard(results, score),
        parts.system(results),
        parts.how_to_read(results),
    ]
    after = [
        parts.variability(results, [chapter.dropped for chapter in chapters]),
        parts.method(results),
        parts.not_run(results, score, left_out),
        parts.reproduction(results),
        parts.glossary(config),
    ]
    render = (lambda part: part.to_markdown()) if kind == "md" else (lambda part: part.to_html())
    found = [Section(part.anchor, "", part.title, render(part), first=part is before[0]) for part in before]
    found += [
        Section(c.anchor, "", c.title, c.body, c.status, family=c.status != "not_run") for c in chapters
    ]
    found += [Section(part.anchor, "", part.title, render(part), first=part is after[0]) for part in after]
    sections = tuple(replace(section, number=str(number)) for number, section in enumerate(found, start=1))
    figures = tuple(figure for chapter in chapters for figure in chapter.figures)
    files = {name: content for chapter in chapters for name, content in chapter.files.items()}
    return Document(cover(results, score, config, marking), sections, figures, files)


def cover(results, score, config, marking):
    """Title, verdict and facts of the first page."""
    manifest, moment = results.manifest, created(results)
    title = (
        "CPU host benchmark report" if results.kind == "cpu" else f"{device_name(results)} benchmark report"
    )
    workload = manifest.get("workload", {})
    facts = [
        ("device", results.device.get("name")),
        ("date", f"{moment:%d %B %Y, %H:%M} UTC".lstrip("0")),
        ("run", manifest.get("id")),
        ("suite", manifest.get("suite")),
        ("workload", workload.get("name")),
        ("commit", manifest.get("commit")),
        ("author", config.cover.author),
        ("organisation", config.cover.organisation),
        ("sensitivity", config.sensitivity),
    ]
    verdict = f"{VERDICT_TEXT.get(score.verdict, '')}"
    told = f"{title}: {score.verdict}, {verdict}. {results.device.get('name')}, run {manifest.get('id')}."
    return {
        "eyebrow": config.cover.title,
        "title": title,
        "subtitle": config.cover.subtitle,
        "author": config.cover.author,
        "verdict": score.verdict,
        "verdict_class": VERDICT_PILLS.get(score.verdict, "WARN"),
        "verdict_text": verdict,
        "bands": bands(results),
        "facts": [(name, value) for name, value in facts if value],
        "created_iso": moment.isoformat(),
        "description": told,
        "keywords": ", ".join(
            filter(None, ["benchmark", results.device.get("name"), workload.get("name"), marking])
        ),
        "hub": hub_link(workload),
    }


def bands(results):
    """What nobody may overlook: CPU hosts, short suites, changed workloads, forced profiles."""
    found = []
    if results.kind == "cpu":
        found.append("CPU host: these are figures of this host's processor, not of an accelerator.")
    if results.manifest.get("suite") == "smoke":
        found.append(
            "Smoke suite: seconds a family, made to try the machinery. Its figures are not for quoting."
        )
    if workload_label(results):
        found.append(sentence(f"workload: {workload_label(results)}"))
    if results.target and results.target != results.device.get("profile"):
        found.append(
            f"Presented as {results.target}: summary and scorecard use its rated figures, while the run was "
            f"bound to {results.device.get('profile') or 'no profile'}; chapters follow with `make analyze`."
        )
    return found


def workload_label(results):
    """How the run's workload differs from the pilot's own; empty where it does not."""
    from escherlib.parameters import workload_from_dict

    try:
        return workload_from_dict(results.manifest["workload"]).label
    except (KeyError, UserError):  # a run of another version of the schema
        return ""


def hub_link(workload):
    """Address of the workload's model on the Hub, where it names one."""
    repo = workload.get("huggingface_id")
    return f"https://huggingface.co/{repo}" if repo else None


# ---- HTML and print


def to_html(document, results, config, kind, marking, embed=True):
    """The page as one HTML text; `kind` html is live, pdf is for the print engines."""
    live = kind == "html" and embed
    return _template().render(
        kind=kind,
        live=live,
        embed=embed,
        cover=document.cover,
        sections=document.sections,
        figures=document.figures,
        marking=marking,
        version=__version__,
        page_title=" · ".join(filter(None, [document.cover["title"], results.manifest.get("id"), marking])),
        css=_css(results, config, kind, marking),
        vega=static.bundle() if live else "",
        footer=footer(results),
    )


@cache
def _template():
    import jinja2

    loader = jinja2.FileSystemLoader(str(TEMPLATES))
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(
        "page.html.j2"
    )


def footer(results):
    """Run and commit, as at the foot of every page."""
    commit = results.manifest.get("commit")
    return f"{results.manifest.get('id')}" + (f" · commit {commit}" if commit else "")


def _css(results, config, kind, marking):
    own = "print.css" if kind == "pdf" else "screen.css"
    text = _read("common.css") + _read(own) + pill_css(config)
    if kind == "pdf":
        values = {
            "@PAPER@": config.page.size,
            "@MARGIN@": f"{config.page.margin_mm:g}mm",
            "@MARKING@": css_string(marking or ""),
            "@FOOTER@": css_string(footer(results)),
        }
        for name, value in values.items():
            text = text.replace(name, value)
        return text
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    paper = ".highlight,.highlight pre{background:var(--soft)}"
    if marking:  # a browser's own print-out carries it on every page too
        paper += (
            f'@page{{margin:18mm 14mm;@top-left{{content:{css_string(marking)};font:700 8pt "DejaVu Sans"}}}}'
        )
    return f"{text}\n{light}\n@media (prefers-color-scheme: dark){{{dark}}}\n{paper}"


@cache
def _read(name):
    return (TEMPLATES / name).read_text()


def css_string(text):
    """Any text as a CSS string: all but plain letters and digits is escaped, so nothing ends it early."""
    safe = " -_.,:/"
    # the blank after an escape belongs to it
    return f'"{"".join(c if c.isascii() and (c.isalnum() or c in safe) else _escaped(c) for c in text)}"'


def _escaped(char):
    return f"\\{ord(char):06x} "


def pill_css(config):
    """Colours of status words from report.yaml; words of families borrow those of the scorecard."""
    borrowed = {
        "failed": "FAIL",
        "timed_out": "FAIL",
        "timed": "FAIL",
        "not_run": "SKIP",
        "unfinished": "WARN",
        "stale": "WARN",
        "measured": "SKIP",
    }
    rules = {name: pill.colour for name, pill in config.pills.items()}
    rules |= {name: rules[source] for name, source in borrowed.items() if source in rules}
    return "\n".join(f".pill-{name}{{background:{colour}}}" for name, colour in rules.items())


# ---- Markdown


def to_markdown(document, results, config, marking):
    """The document as Markdown with YAML front matter."""
    import yaml

    front = {
        "title": document.cover["title"],
        "author": config.cover.author,
        "sensitivity": config.sensitivity,
        "marking": marking or "",
        "date": document.cover["created_iso"][:10],
        "device": results.device.get("name"),
        "run": results.manifest.get("id"),
        "verdict": document.cover["verdict"],
    }
    head = ["---", yaml.safe_dump(front, allow_unicode=True, sort_keys=False).strip(), "---", ""]
    if marking:
        head += [f"**{escape_markdown(marking)}**", ""]
    head += [f"# {document.cover['title']}", "", f"*{document.cover['subtitle']}*", ""]
    head += [f"**{document.cover['verdict']}**: {document.cover['verdict_text']}.", ""]
    for band in document.cover["bands"]:
        head += [f"> {escape_markdown(band)}", ""]
    head += ["| | |", "|:--|:--|"] + [
        f"| {name} | {escape_markdown(value)} |" for name, value in document.cover["facts"]
    ]
    if document.cover["hub"]:
        head.append(f"| model | <{document.cover['hub']}> |")
    body = [f"## {section.number} {section.title}\n\n{section.body}" for section in document.sections]
    end = f"---\n\n{footer(results)}" + (f"\n\n**{escape_markdown(marking)}**" if marking else "")
    return "\n".join(head) + "\n\n" + "\n\n".join([*body, end]) + "\n"
