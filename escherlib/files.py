"""Files that are whole or absent: atomic writes, strict JSON, content hashes."""

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path

from escherlib.errors import UserError

NUMBER_LIST = re.compile(r"\[(?:\s*-?[0-9][0-9.eE+-]*,?)+\s*\](?=,?\n)")  # as indented JSON prints it, never inside a string
ROOT = Path(__file__).resolve().parent.parent


def canonical_json(obj):
    """JSON text that is the same for the same content: sorted keys, no blanks, no NaN."""
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def sha256_text(text):
    """First 16 hex digits of the SHA-256 of a text: short enough to read, long enough not to collide here."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_bytes(path, data):
    """Write `data` so that a reader sees the old file or the whole new one, also after a crash."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path, text):
    """Atomic write of UTF-8 text."""
    write_bytes(path, text.encode())


def write_json(path, obj):
    """Atomic write of strict JSON (ValueError on NaN or infinity). Lists of numbers stay on one line."""
    text = json.dumps(obj, indent=1, allow_nan=False, ensure_ascii=False)
    write_text(path, NUMBER_LIST.sub(lambda found: "".join(found.group().split()), text) + "\n")


def read_json(path):
    """Read JSON; a file that is missing or broken is a UserError that names it."""
    try:
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected a JSON file of a run") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); restore or delete the file") from None
