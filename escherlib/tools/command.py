"""`python -m escherlib parse <tool> <file>`: what a saved output says, as JSON."""

import json
from pathlib import Path

from escherlib import tools
from escherlib.errors import UserError
from escherlib.hardware.parsers.contract import USABLE, read

LIMIT_BYTES = 64 * 2**20  # no output of these tools is larger


def parse_file(tool, path):
    """Normalised content of a saved output: {tool, status, reason, …}. The file's name carries no information."""
    if tool not in tools.known():
        raise UserError(f"parse {tool}: unknown tool; expected one of {', '.join(tools.known())}")
    path = Path(path)
    if not path.is_file():
        raise UserError(f"parse: {path}: no such file; expected a saved output of {tool}")
    if path.stat().st_size > LIMIT_BYTES:
        raise UserError(f"parse: {path}: larger than {LIMIT_BYTES >> 20} MiB; expected a saved output of {tool}")
    text = path.read_bytes().decode("utf-8", errors="replace")
    return {"tool": tool, **read(tools.parser_of(tool), text)}


def parse_command(tool, path):
    """(JSON text, exit code, line for stderr or None)."""
    found = parse_file(tool, path)
    usable = found["status"] in USABLE
    line = None if usable else f"parse: {path}: {found['status']}: {found['reason']}"
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False), 0 if usable else 1, line
