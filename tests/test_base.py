"""Atomic strict files, and the identity of a measuring function."""

import json

import pytest

from escherlib import files, method
from escherlib.errors import UserError


def test_json_lists_of_numbers_stay_on_one_line_and_read_back(tmp_path):
    content = {"samples": [1, 2.5, -3e-07], "text": "[\n 1,\n 2\n]", "nested": [[1, 2], [3]], "none": [], "mixed": [1, "a"]}
    files.write_json(tmp_path / "a.json", content)
    assert json.loads((tmp_path / "a.json").read_text()) == content
    assert ' "samples": [1,2.5,-3e-07],\n' in (tmp_path / "a.json").read_text()


def test_nan_is_refused_and_the_old_file_stays_whole(tmp_path):
    files.write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert files.read_json(tmp_path / "a.json") == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_broken_json_names_the_file(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match="run.json.*not valid JSON"):
        files.read_json(tmp_path / "run.json")


def test_code_hash_ignores_docstring_comments_and_layout_but_not_code():
    plain = "def f(a, b=1):\n    return a + b\n"
    dressed = 'def f(a, b=1):\n    """Says Ü\n    more Ü."""\n\n    # why\n    return a + b  # sum\n'
    assert method.code_only(plain) == method.code_only(dressed)
    assert method.code_only(plain) != method.code_only(plain.replace("a + b", "a - b"))


def test_full_arguments_fill_in_defaults_and_leave_the_device_out():
    def time_it(device, *, m, n=2):
        return {}

    assert method.full_arguments(time_it, {"m": 1}) == {"m": 1, "n": 2}
    with pytest.raises(TypeError):
        method.full_arguments(time_it, {"k": 1})


def test_a_measuring_function_must_carry_its_method_version():
    with pytest.raises(TypeError, match="method"):
        method.describe(lambda device: {})
