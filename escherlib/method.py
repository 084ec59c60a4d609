"""Marks measuring functions with the version of their method, so that unlike numbers are never compared silently."""

import ast
import inspect
import io
import textwrap
import tokenize

from escherlib.files import sha256_text


def method(version):
    """Decorate a measuring function `f(device, **arguments) -> dict`; raise `version` whenever numbers stop being comparable."""

    def mark(function):
        function.method_version = version
        return function

    return mark


def code_only(source):
    """Source text of one function without docstring, comments and white space: the same on every Python version."""
    source = textwrap.dedent(source)
    lines = source.splitlines(keepends=True)
    spans = [(t.start, t.end) for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    function = ast.parse(source).body[0]
    if ast.get_docstring(function) is not None:
        text = function.body[0]
        end = len(lines[text.end_lineno - 1].encode()[: text.end_col_offset].decode())  # ast counts bytes
        spans.append(((text.lineno, text.col_offset), (text.end_lineno, end)))
    for (first, left), (last, right) in sorted(spans, reverse=True):
        tail = lines[last - 1][right:]
        lines[first - 1] = lines[first - 1][:left] + tail
        del lines[first:last]
    return "".join("".join(lines).split())


def describe(function):
    """Name, version and source hash of a measuring function, as kept in each record."""
    if not hasattr(function, "method_version"):
        raise TypeError(f"{function.__qualname__} measures but has no @method(version=…)")
    return {
        "function": f"{function.__module__}.{function.__qualname__}",
        "version": function.method_version,
        "source_sha": sha256_text(code_only(inspect.getsource(inspect.unwrap(function)))),
    }


def full_arguments(function, arguments):
    """All arguments of one call, defaults filled in, the leading device left out. TypeError where they do not fit."""
    bound = inspect.signature(function).bind(None, **arguments)
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[1:])
