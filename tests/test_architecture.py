"""The house rules that a machine can hold: arrows between rooms, sizes of modules, light commands."""

import ast
import json
import subprocess
import sys
import time

import pytest

from escherlib.files import ROOT

PACKAGE = ROOT / "escherlib"
BASE = {"errors", "files", "method", "parameters", "schemas"}
MAY_IMPORT = {
    "schemas": {"errors"},
    "parameters": {"errors", "files", "schemas", "accounting"},
    "hardware": BASE,
    "timing": BASE | {"hardware"},
    "accounting": BASE,
    "kernels": BASE | {"timing", "accounting", "hardware"},
    "run": BASE | {"timing", "accounting", "hardware"},
    "judge": BASE | {"run", "accounting", "timing"},
    "report": BASE | {"run", "judge", "accounting"},
    "tools": BASE | {"timing", "accounting", "hardware"},
    "bootstrap": {"hardware"},
}
# lines that a small module may grow to, and a function
MODULE_LINES, FUNCTION_LINES = 450, 60
FIXED = {"errors", "files", "method", "__init__", "__main__", "cli"}


def modules():
    """Every module of the library with its syntax tree."""
    return [(path, ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def rooms_imported(tree):
    """Top-level rooms of escherlib that a module imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "escherlib":
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name.split(".")[1] for a in node.names if a.name.startswith("escherlib.")]
        found |= {name for name in names if not name.startswith("_")}
    return found


@pytest.mark.parametrize("path, tree", modules(), ids=lambda value: value.name if hasattr(value, "name") else "")
def test_arrows_point_one_way(path, tree):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room in FIXED:
        return
    forbidden = rooms_imported(tree) - MAY_IMPORT[room] - {room}
    assert not forbidden, f"{path.relative_to(ROOT)} imports {forbidden}"


@pytest.mark.parametrize("path, tree", modules(), ids=lambda value: value.name if hasattr(value, "name") else "")
def test_modules_and_functions_stay_small(path, tree):
    assert len(path.read_text().splitlines()) <= MODULE_LINES
    long = [
        node.name for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]  # fmt: skip
    assert not long, f"{path.relative_to(ROOT)}: {long}"


@pytest.mark.parametrize("arguments", [["--help"], ["identify", "--name", "NVIDIA H200"], ["list"], ["benchmark", "--testcase", "list"]])
def test_what_measures_nothing_answers_without_torch(arguments):
    watch = (
        "import sys\nfrom escherlib.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit as end: code = end.code\n"
        "import json; print('\\n' + json.dumps([code, sorted({'torch', 'altair', 'pandas', 'numpy'} & set(sys.modules))]))"
    )
    begun = time.monotonic()
    found = subprocess.run([sys.executable, "-c", watch, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert json.loads(found.stdout.splitlines()[-1]) == [0, []], found.stderr
    assert time.monotonic() - begun < 10  # about half a second here; this only catches a hang
