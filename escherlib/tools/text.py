"""Small readings that the parsers of validators share: lines without dressing, numbers, JSON that may be cut.

Nothing here raises on any text. A number is None where the word is no finite decimal number (`N/A`, `-nan`, blank).
"""

import json
import re

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# mpirun --tag-output, srun and wandb-like `node out: `, srun --label
LAUNCHER = re.compile(r"^(?:\[[0-9]+,[0-9]+\]<std(?:out|err)>: ?|[\w.-]{1,64} (?:out|err): |[0-9]{1,6}: )")
ELISION = re.compile(r"^\s*(?:\.\s?){3}\s*$", re.MULTILINE)
DECIMAL = re.compile(r"[-+]?[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][-+]?[0-9]{1,2})?")
WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
CANNOT = re.compile(
    r"no (?:CUDA|ROCm|HIP)-capable device[^\n]*|driver version is insufficient[^\n]*|no (?:\w+ )?(?:devices?|GPUs?)(?: were)? "
    r"(?:found|detected|available)[^\n]*|unable to open /dev/kfd[^\n]*|command not found|"
    r"error while loading shared libraries[^\n]*|permission denied[^\n]*", re.IGNORECASE
)  # fmt: skip
LONGEST = 160  # characters of a reason


def lines_of(text):
    """Lines without ANSI codes and launcher prefixes. `\\r` parts lines too: progress is drawn over itself."""
    plain = ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return [LAUNCHER.sub("", line, count=1).rstrip() for line in plain.split("\n")]


def number(word):
    """A decimal number as float, or None."""
    return float(word) if isinstance(word, str) and DECIMAL.fullmatch(word.strip()) else None


def whole(word):
    """A whole number as int, or None."""
    return int(word) if isinstance(word, str) and WHOLE.fullmatch(word.strip()) else None


def fixed(word, places):
    """A number printed with exactly `places` decimals, else None: a shorter one was cut off."""
    return number(word) if isinstance(word, str) and re.fullmatch(rf"-?[0-9]+\.[0-9]{{{places}}}", word) else None


def found(pattern, text, group=1):
    """Group of the first match of a pattern, stripped, or None where there is none or it is blank."""
    match = re.search(pattern, text, re.MULTILINE)
    return (match[group] or "").strip() or None if match else None


def elided(text):
    """True where the source left lines out: a line of dots alone."""
    return bool(ELISION.search(text))


def cannot(text):
    """The words by which a program says that it can't work here (no device, driver, permission, file), or None."""
    match = CANNOT.search(text)
    return shortened(match[0]) if match else None


def shortened(text):
    """One line of bounded length."""
    return " ".join(text.split())[:LONGEST]


def missing(parts):
    """`a; b` of those that are true in {text: condition}, or None: what a partial result says of itself."""
    return "; ".join(text for text, condition in parts.items() if condition) or None


def json_value(text):
    """(value, whole): the first JSON object or array of a text; (None, False) where it doesn't end or is broken."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        return None, False
    try:
        return json.JSONDecoder().raw_decode(text, start)[0], True
    except (ValueError, RecursionError):
        return None, False


def json_objects(text, first_key):
    """All whole objects whose first key is `first_key`, from JSON that may be cut or broken."""
    objects, reader, at = [], json.JSONDecoder(), 0
    for match in re.finditer(r'\{\s*"' + re.escape(first_key) + '"', text):
        if match.start() < at:
            continue
        try:
            value, at = reader.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        objects.append(value)
    return objects


def entry(value, *path):
    """Value inside nested dicts, or None where a step is missing or no dict."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def entries(value, *path):
    """The dicts of a list inside nested dicts; [] where there is no list."""
    inner = entry(value, *path)
    return [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []


def largest(values):
    """Maximum of those that are numbers, or None."""
    return max((value for value in values if value is not None), default=None)


def smallest(values):
    """Minimum of those that are numbers, or None."""
    return min((value for value in values if value is not None), default=None)


def extreme_cell(cells, pick):
    """{source, destination, gb_s} of the extreme one of [(source, destination, value)], or None."""
    known = [cell for cell in cells if cell[2] is not None]
    if not known:
        return None
    source, destination, value = pick(known, key=lambda cell: cell[2])
    return {"source": source, "destination": destination, "gb_s": value}
