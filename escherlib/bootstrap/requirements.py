"""What must be installed, from environment.yml, and what of it an interpreter lacks."""

import re
from importlib import metadata

from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.paths import ENVIRONMENT_FILE

TESTS_MARK = "only for the tests"


def read_requirements(tests=False, path=ENVIRONMENT_FILE):
    """Requirements in order, torch first, `-e .` included; those below the tests' mark only with `tests`."""
    found = []
    inside = False
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise SetupError(
            f"{path}: cannot be read ({error.strerror}); restore it from the repository"
        ) from None
    for line in lines:
        if re.fullmatch(r"\s*- pip:\s*", line):
            inside = True
        elif inside and TESTS_MARK in line and not tests:
            break
        elif inside and (entry := re.fullmatch(r"\s+- ([^#]+?)\s*(?:#.*)?", line)):
            found.append(entry[1].strip("\"'"))
    if not found:
        raise SetupError(f"{path}: no pip list found; expected `- pip:` and one requirement a line")
    return found


def package_of(requirement):
    """`vl-convert-python>=1.8` → ("vl-convert-python", (1, 8))."""
    name, _, floor = requirement.partition(">=")
    return name.strip(), release(floor)


def release(version):
    """Leading numbers of a version: "2.9.0a0+git1" → (2, 9, 0). A pre-release counts as the release."""
    found = re.match(r"\d+(?:\.\d+)*", version.strip())
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def meets(version, floor):
    """Whether a version reaches a floor, both as text or tuples: 2.9 reaches 2.9.0."""
    have, need = (release(v) if isinstance(v, str) else v for v in (version, floor))
    width = max(len(have), len(need))
    return have + (0,) * (width - len(have)) >= need + (0,) * (width - len(need))


def lacking(requirements):
    """Requirements that the running interpreter doesn't meet: [(requirement, version found or None)]."""
    found = []
    for requirement in requirements:
        if requirement.startswith("-"):
            continue
        name, floor = package_of(requirement)
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = None
        if version is None or not meets(version, floor):
            found.append((requirement, version))
    return found
