"""The corpus as test cases, and the checks that every parser must pass whatever the text.

Each folder holds expected.yaml: file name → {status, source (where the text comes from), values: {dotted path into the
parser's result: value}}. A path's number picks an element of a list; `~` before the last word asks for its length.
"""

import json
import random
from pathlib import Path

import pytest
import yaml

from escherlib.hardware.parsers.contract import FAILED, OK, PARTIAL, UNAVAILABLE, read

HERE = Path(__file__).parent
STATUSES = (OK, PARTIAL, FAILED, UNAVAILABLE)
PREFIXES, EDITS = 40, 15  # cuts and damaged copies of a file that are tried


def text_of(tool, name):
    """A captured output as text."""
    return (HERE / tool / name).read_bytes().decode("utf-8", errors="replace")


def expected(tool):
    """{file name: {status, source, values}} of one folder."""
    return yaml.safe_load((HERE / tool / "expected.yaml").read_text())


def cases(*tools):
    """pytest parameters (tool, file, expectation) of some folders; a file without an expectation is an error."""
    found = []
    for tool in tools:
        wanted, there = expected(tool), {p.name for p in (HERE / tool).iterdir()} - {"expected.yaml"}
        assert set(wanted) == there, f"{tool}: {set(wanted) ^ there} stand in expected.yaml or in the folder alone"
        found += [pytest.param(tool, name, wanted[name], id=f"{tool}/{name}") for name in sorted(wanted)]
    return found


def at(value, path):
    """The value at a dotted path; `…~n` is a length."""
    *steps, last = str(path).split(".")
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    if last.startswith("~"):
        return len(value[last[1:]])
    return value[int(last)] if isinstance(value, list) else value[last]


def check_values(found, wanted):
    """Status and every expected value."""
    assert found["status"] == wanted["status"], found["reason"]
    for path, value in wanted.get("values", {}).items():
        given = at(found, path)
        assert given == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), path


def check_damage(parser, text, seed=0):
    """Every cut and every damaged copy gives a strict JSON result of a known status, and raises nothing itself."""
    draw = random.Random(seed)
    cuts = sorted({draw.randrange(len(text) + 1) for _ in range(PREFIXES)} | {0, len(text)})
    damaged = [text[:cut] for cut in cuts]
    for _ in range(EDITS):
        data = bytearray(text.encode())
        for _ in range(1 + len(data) // 200):
            data[draw.randrange(len(data))] = draw.randrange(256)
        damaged.append(bytes(data).decode("utf-8", errors="replace"))
    for piece in damaged:
        parser(piece)  # the parser itself must not stumble: the guard is for what nobody thought of
        found = read(parser, piece)
        assert found["status"] in STATUSES
        json.dumps(found, allow_nan=False)
