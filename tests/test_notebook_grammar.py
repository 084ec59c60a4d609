"""The grammar of notebooks (order, sizes, tags, no outputs), held for every file in notebooks/."""

import ast
import json
import re
from statistics import median

import nbformat
import pytest

from escherlib.files import ROOT
from escherlib.parameters import list_suites, load_suite

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FAMILIES = [path for path in NOTEBOOKS if re.match(r"\d\d_", path.stem)]
# Second-level headings of a family notebook, in this order. Table and Chart may be plural.
ORDER = (
    "Why it matters", "Parameters", "Set-up", "System", "Expected ceiling", "Measure", "Table", "Chart",
    "Where it", "Takeaway", "Method and caveats", "Summary",
)  # fmt: skip
COMMON = ("device", "suite", "workload")
WHY_WORDS, SETUP_LINES, MEDIAN_LINES, MOST_LINES, LINE_LENGTH = 120, 6, 6, 15, 110
DEVICE_WORDS = (
    r"\b(H200|H100|A100|B200|V100|MI\d{3}\w?|HBM\d?\w?|Hopper|Blackwell|CDNA\d?|cuBLAS\w*|Xeon|EPYC|NVLink)\b"
)

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
each_family = pytest.mark.parametrize("path", FAMILIES, ids=lambda p: p.stem)


def read(path):
    """Notebook and its cells as (markdown cells, code cells)."""
    notebook = nbformat.read(path, as_version=4)
    cells = notebook.cells
    return (
        notebook,
        [c for c in cells if c.cell_type == "markdown"],
        [c for c in cells if c.cell_type == "code"],
    )


def lines_of(cell):
    """Lines of a cell that are not blank."""
    return [line for line in cell.source.splitlines() if line.strip()]


def tagged(cells, tag):
    """Cells that carry a tag."""
    return [c for c in cells if tag in c.metadata.get("tags", [])]


def headings(cells, level):
    """Texts of the headings of one level, in order, fenced code left out."""
    text = re.sub(r"^```.*?^```", "", "\n".join(c.source for c in cells), flags=re.S | re.M)
    return re.findall(rf"^{'#' * level} (.+)$", text, flags=re.M)


def test_the_families_of_this_issue_are_here():
    assert {p.stem for p in NOTEBOOKS} >= {
        "00_environment",
        "01_bf16_compute",
        "02_memory_bandwidth",
        "03_memory_capacity",
        "START",
    }


@each
def test_committed_form(path):
    notebook, _, code = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert (notebook.metadata.kernelspec.name, notebook.metadata.kernelspec.language) == ("python3", "python")
    assert not {"papermill", "widgets"} & set(notebook.metadata)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z][a-z0-9-]*", i) for i in ids), (
        "ids are readable words"
    )
    for cell in code:
        assert cell.outputs == [] and cell.execution_count is None, cell.id
        assert not set(cell.metadata) - {"tags"}, cell.id
    assert path.read_text() == json.dumps(json.loads(path.read_text()), indent=1, ensure_ascii=False) + "\n"


@each
def test_proportions(path):
    _, markdown, code = read(path)
    sizes = [len(lines_of(cell)) for cell in code]
    assert len(markdown) >= len(code)
    assert median(sizes) <= MEDIAN_LINES and max(sizes) <= MOST_LINES
    assert min(sizes) >= 1, "no empty code cell"
    assert max(len(line) for cell in code for line in cell.source.splitlines()) <= LINE_LENGTH


@each
def test_headings(path):
    notebook, markdown, _ = read(path)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    assert len(headings(markdown, 1)) == 1
    levels = [len(found) for c in markdown for found in re.findall(r"^(#+) ", c.source, flags=re.M)]
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False)), (
        "no level is skipped"
    )


@each
def test_code_is_plain(path):
    _, _, code = read(path)
    for cell in code:
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.ClassDef), cell.id
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 5, f"{cell.id}: {node.name} belongs into the library"
            if isinstance(node, ast.ImportFrom):
                assert all(alias.name != "*" for alias in node.names), cell.id
            if isinstance(node, ast.BinOp):
                raise AssertionError(
                    f"{cell.id}: arithmetic belongs into the library, so that a test can hold it"
                )


@each
def test_charts_go_through_show(path):
    """`theme.show` adds alternative text and caption; a bare chart would have neither in a report."""
    _, _, code = read(path)
    for cell in code:
        for call in re.findall(r"^.*\bcharts\.\w+\(.*$", cell.source, flags=re.M):
            assert "theme.show(charts." in call, f"{cell.id}: {call}"


@each
def test_prose_names_no_device_and_no_tex(path):
    _, markdown, code = read(path)
    for cell in markdown + code:
        found = re.search(DEVICE_WORDS, cell.source)
        assert not found or "parameters" in cell.metadata.get("tags", []), f"{cell.id}: {found[0]}"
    assert not any("$" in cell.source or "\\frac" in cell.source for cell in markdown)


@each_family
def test_order(path):
    notebook, markdown, _ = read(path)
    found = headings(markdown, 2)
    assert len(found) == len(ORDER), found
    for heading, expected in zip(found, ORDER, strict=True):
        assert heading.startswith(expected), f"{heading!r} where {expected!r} was expected"
    question = markdown[0].source.splitlines()
    assert question[2].startswith("**") and question[2].endswith("?**"), "the title cell holds the question"
    why = next(c.source for c in markdown if c.source.startswith("## Why it matters"))
    assert len(why.split()) - 4 <= WHY_WORDS


@each_family
def test_parameters_cell(path):
    """One assignment a line with a trailing comment, which papermill shows; keys are those of the suites."""
    _, _, code = read(path)
    (cell,) = tagged(code, "parameters")
    names = []
    for line in cell.source.splitlines():
        found = re.fullmatch(r"(\w+) = (\S+)  # (\S.*)", line)
        assert found, line
        names.append(found[1])
        assert found[1] in COMMON or found[2] == "None", (
            f"{line}: a default here would hide the suite's value"
        )
    assert tuple(names[:3]) == COMMON
    for suite in map(load_suite, list_suites()):
        if path.stem in suite.families:
            for kind in ("cpu", "gpu"):
                assert set(suite.family_parameters(path.stem, kind)) == set(names[3:]), (suite.name, kind)


@each_family
def test_setup_cell(path):
    _, _, code = read(path)
    (cell,) = tagged(code, "setup")
    assert len(lines_of(cell)) <= SETUP_LINES
    assert f'run = open_run("{path.stem}", device, suite, workload' in cell.source
    (parameters,) = tagged(code, "parameters")
    for name in re.findall(r"^(\w+) = ", parameters.source, flags=re.M)[len(COMMON) :]:
        assert f"{name}={name}" in cell.source, f"{name} is not handed to open_run"


@each_family
def test_one_measurement_a_cell(path):
    _, _, code = read(path)
    counts = [len(re.findall(r"\brun\.(?:measure|sweep)\(", cell.source)) for cell in code]
    assert max(counts) == 1 and sum(counts) >= 1
    order = [i for i, cell in enumerate(code) if re.search(r"\brun\.(measure|sweep)\(", cell.source)]
    shown = [i for i, cell in enumerate(code) if re.search(r"\b(tables|charts)\.", cell.source)]
    assert max(order) < min(shown), "everything is measured before anything is shown"


@each_family
def test_cards_and_sentinel(path):
    _, _, code = read(path)
    sources = [cell.source for cell in code]
    for card in ("cards.system_card(", "cards.ceiling_card(", "cards.takeaway("):
        assert sum(card in source for source in sources) == 1, card
    assert "run.finish(" in sources[-1] and sum("run.finish(" in source for source in sources) == 1


@each_family
def test_no_row_name_stands_twice(path):
    """A name is one row; templates of different cells must not be able to make the same one."""
    _, _, code = read(path)
    text = "\n".join(cell.source for cell in code)
    names = re.findall(r'run\.(?:measure|sweep)\(\s*f?"([^"]+)"', text)
    assert len(names) == len(set(names)) == len(re.findall(r"run\.(?:measure|sweep)\(", text))
