"""Which environment serves a request: `.venv` and its siblings, each with a stamp that is written last.

An environment without a finished stamp is made anew, so an interrupted set-up heals itself. A folder that
set-up did not make is never touched.
"""

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.paths import ENVIRONMENT_FILE, PROJECT_FILE, ROOT

STAMP = "escher-stack.json"
READY = "ready"


@dataclass(frozen=True)
class Request:
    """What is asked of an environment. kind: stack the device needs; torch: TORCH; index: TORCH_INDEX_URL.

    extras: optional backends to install, as extras.read_extras gives them.
    """

    kind: str = "cpu"
    torch: str = "auto"
    index: str | None = None
    tests: bool = False
    venv: str | None = None
    python_given: bool = False
    extras: tuple = ()


@dataclass(frozen=True)
class Choice:
    """An environment and what is to be done with it: "use", "update" (its lists have changed) or "build"."""

    path: Path
    action: str
    stamp: dict
    why: str = ""


def python_in(path):
    """Interpreter of an environment."""
    return Path(path) / "bin" / "python"


def read_stamp(path):
    """Content of a stamp, {} where there is none or it is broken."""
    try:
        stamp = json.loads((Path(path) / STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(path, stamp):
    """Whole or not at all."""
    temporary = Path(path) / f"{STAMP}.{os.getpid()}"
    temporary.write_text(json.dumps(stamp, indent=1) + "\n")
    temporary.replace(Path(path) / STAMP)


def lists_hash():
    """Hash of what decides an environment's content: requirements, project table, place of the project."""
    project = PROJECT_FILE.read_text().split("[tool.")[0]
    text = "\n".join([ENVIRONMENT_FILE.read_text(), project, str(ROOT)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sound(path, stamp, python_given=False):
    """Whether a finished environment still runs: its interpreter is the one it was made with."""
    python = python_in(path)
    wanted = [str(number) for number in sys.version_info[:2]]
    return (
        stamp.get("state") == READY
        and os.access(python, os.X_OK)
        and stamp.get("interpreter") == os.path.realpath(python)
        and (not python_given or stamp.get("python", "").split(".")[:2] == wanted)
    )


def serves(stamp, request):
    """Whether an environment's stack is the one asked for. With TORCH=auto a GPU build also serves a CPU."""
    if request.index and stamp.get("index") != request.index:
        return False
    if request.torch != "auto":
        return request.torch in (stamp.get("label"), stamp.get("asked"))
    return request.kind in (stamp.get("kind"), "cpu")


def choose(request, root=ROOT):
    """The environment that serves a request, or where to build one. SetupError for a folder not ours."""
    if request.venv:
        places = [Path(root) / Path(request.venv).expanduser()]
    else:
        places = [Path(root) / ".venv", *sorted(Path(root).glob(".venv-*"))]
    for path in places:
        stamp = read_stamp(path)
        if sound(path, stamp, request.python_given) and serves(stamp, request):
            current = stamp.get("lists") == lists_hash() and (stamp.get("tests") or not request.tests)
            current = current and {*request.extras} <= {*stamp.get("extras", ())}
            return Choice(path, "use" if current else "update", stamp)
    return _place_to_build(places[0], request)


def _place_to_build(path, request):
    stamp = read_stamp(path)
    if not request.venv and (sound(path, stamp, request.python_given) or _foreign(path)):
        stack = request.kind if request.torch == "auto" else request.torch
        path = path.with_name(f"{path.name}-{stack}")
        stamp = read_stamp(path)
    if _foreign(path):
        hint = "activate it and give VENV=none, or give VENV=<another folder>"
        raise SetupError(f"{path}: exists and was not made by this set-up; {hint}")
    return Choice(path, "build", stamp, _why(stamp, request) if stamp else "")


def _why(stamp, request):
    """Why an environment is made anew."""
    if stamp.get("state") != READY:
        return "an earlier set-up did not finish"
    return "its Python has changed" if serves(stamp, request) else f"it holds {stamp.get('label')}"


def _foreign(path):
    """Whether something is there that set-up did not make: no folder, or content without a stamp."""
    if not os.path.lexists(path):
        return False
    try:
        ours = path.is_dir() and all(entry.name.startswith(STAMP) for entry in path.iterdir())
        return not ours and not (path / STAMP).is_file()
    except OSError as error:
        raise SetupError(
            f"{path}: cannot be read ({error.strerror}); give VENV=<a folder of yours>"
        ) from None
