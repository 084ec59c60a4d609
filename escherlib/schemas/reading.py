"""Reading one YAML file strictly: every mistake becomes one line with file, key, found and expected."""

import difflib
import math
import re
import typing
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError

from escherlib.errors import UserError

MAX_SHOWN = 60
EXPECTED = {  # pydantic's error type → what was expected
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a block of keys",
    "model_type": "a block of keys",
    "missing": "this key with a value",
}


class StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Safe YAML in which the same key twice is an error, not the last one winning."""

    def construct_mapping(self, node, deep=False):
        """Refuse a repeated key."""
        seen = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen and key != "<<":
                problem = f"the key {key!r} stands twice (first in line {seen[key]})"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            if isinstance(key, str):
                seen[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)


def read_yaml(path):
    """Content of a YAML file.

    UserError in one line for a file that is missing, broken, empty or no block of keys.
    """
    path = Path(path)
    try:
        loader = StrictLoader(path.read_text(encoding="utf-8"))
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; expected a YAML text file") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}{where}: broken YAML: {_one_line(error.problem or error.context)}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{path}: broken YAML: {_one_line(error)}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: found {_found(found)}; expected a block of keys")
    return found


def validated(model, data, path):
    """`data` as an instance of `model`, or one line that names file, key, found and expected."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{path}: {_describe(problems[0], model)}{more}") from None


@lru_cache(maxsize=64)
def _cached(model, path, stamp):
    return validated(model, read_yaml(path), path)


def read_validated(model, path):
    """A validated YAML file, read again only when it changed."""
    try:
        status = Path(path).stat()
        stamp = (status.st_mtime_ns, status.st_size)
    except OSError:
        stamp = None
    return _cached(model, Path(path), stamp)


def _describe(problem, model):
    """`key: found …; expected …` for one validation problem."""
    loc, kind = problem["loc"], problem["type"]
    if loc and loc[-1] == "[key]":  # a dictionary with fixed keys
        return f"{_dotted(loc[:-1])}: unknown key; expected {_expected(problem)}"
    if kind == "extra_forbidden":
        known = sorted(_keys_at(model, loc[:-1]))
        close = difflib.get_close_matches(str(loc[-1]), known, 1)
        hint = (
            f"; did you mean {close[0]!r}?"
            if close
            else f"; expected one of {', '.join(known)}"
            if known
            else ""
        )
        return f"{_dotted(loc)}: unknown key{hint}"
    if kind == "missing":
        return f"{_dotted(loc)}: missing; expected {EXPECTED[kind]}"
    if kind == "value_error":
        said = problem["msg"].removeprefix("Value error, ")
        return f"{_dotted(loc)}: {said}" if loc else said
    found, expected = problem["input"], _expected(problem)
    if isinstance(found, str) and kind in ("int_type", "float_type"):
        hint = _number_hint(found) or f"expected {expected}"
        return f"{_dotted(loc)}: found the text {found[:MAX_SHOWN]!r}; {hint}"
    return f"{_dotted(loc)}: found {_found(found)}; expected {expected}"


def _expected(problem):
    said = problem["msg"].removeprefix("Input should be ")
    return EXPECTED.get(
        problem["type"],
        said.replace("greater than or equal to", "at least").replace("greater than", "more than"),
    )


def _number_hint(text):
    """How YAML wants the number that this text was meant to be, or None."""
    plain = text.strip().lower().replace("_", "")
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", plain):
        return None
    mantissa, _, exponent = plain.partition("e")
    if not exponent:
        return f"YAML needs {plain} without quotes"
    if not math.isfinite(float(plain)):
        return None
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"YAML needs {mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _found(value):
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text {value[:MAX_SHOWN]!r}"
    if isinstance(value, (dict, list, tuple)):
        return "a block of keys" if isinstance(value, dict) else "a list"
    return str(value)[:MAX_SHOWN]


def _dotted(loc):
    """('a', 'b', 3, 'c') → a.b[3].c"""
    return (
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".") or "(top)"
    )


def _keys_at(model, loc):
    """Keys known at a place of a schema."""
    places = [model]
    for part in loc:
        places = [inner for place in places for inner in _inside(place, part)]
    models = [found for place in places for found in _models(place)]
    return {
        field.alias or name for found in models for name, field in found.model_fields.items() if name != "id"
    }


def _inside(place, part):
    """Types one step inside a type annotation."""
    models = _models(place)
    if models and isinstance(part, str):
        fields = [
            (field.alias or name, field) for found in models for name, field in found.model_fields.items()
        ]
        named = [field.annotation for name, field in fields if name == part]
        if named:
            return named
    return typing.get_args(place)


def _models(place):
    """Schemas a type annotation can hold directly."""
    if isinstance(place, type) and issubclass(place, BaseModel):
        return [place]
    if typing.get_origin(place) in (dict, tuple, list):
        return []
    return [found for inner in typing.get_args(place) for found in _models(inner)]


def _one_line(text):
    return " ".join(str(text).split())
