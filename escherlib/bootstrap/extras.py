"""EXTRAS: optional backends that set-up installs beside the rest, where the device can use them."""

import shutil
import tempfile

from escherlib.bootstrap import hosts
from escherlib.bootstrap.console import SetupError, last_error, run_step, say, warn
from escherlib.bootstrap.environments import python_in, write_stamp
from escherlib.bootstrap.fit import facts_of
from escherlib.bootstrap.pip import INSTALL, pip, pip_environment

# A floor that is a pre-release lets pip take pre-releases of this one package, and of nothing that it needs.
FLASH_ATTENTION = ("flash-attn-4", ">=4.0.0b36")
HOPPER = (9, 0)
NAMES = ("fa4",)
IMPORT = "import json, flash_attn.cute; print('\\n' + json.dumps(True))"
GAIN = "without it attention runs on the next best backend"


def read_extras(text, kind, capability=None):
    """Extras of EXTRAS= that this host can use, as a tuple; a line for each that it can't.

    `capability`: asks for the oldest GPU's compute capability. SetupError for an unknown one.
    """
    names = tuple(dict.fromkeys(word.strip().lower() for word in (text or "").split(",") if word.strip()))
    for name in names:
        if name not in NAMES:
            raise SetupError(
                f"EXTRAS={text}: unknown extra {name!r}; expected a comma list of {', '.join(NAMES)}"
            )
    usable = []
    for name in names:
        reason = why_not(kind, capability or hosts.oldest_capability)
        if reason:
            say(f"EXTRAS={name}: left out, {reason}; {GAIN}")
        else:
            usable.append(name)
    return tuple(usable)


def why_not(kind, capability):
    """Why flash-attn-4 is of no use on a host; None where it is, or where the GPU can't be asked."""
    needs = "flash-attn-4 needs an NVIDIA GPU of the Hopper or Blackwell generation"
    if kind != "cuda":
        return f"{needs}, and this set-up is for {kind}"
    found = capability()
    return (
        f"{needs}, and this one has compute capability {found[0]}.{found[1]}"
        if found and found < HOPPER
        else None
    )


def requirement(stamp):
    """What pip is asked for: CUDA 13 has libraries of its own, which an extra of the package brings."""
    name, floor = FLASH_ATTENTION
    return f"{name}[cu13]{floor}" if (stamp.get("cuda") or "").startswith("13.") else f"{name}{floor}"


def add_extras(path, stamp, wanted, log):
    """Install the extras that an environment lacks; one that can't be had is a warning. Returns the stamp."""
    have = list(stamp.get("extras", ()))
    for name in [name for name in wanted if name not in have]:
        trouble = _install(path, stamp, log)
        if trouble:
            warn(f"EXTRAS={name}: {trouble}; {GAIN}")
            continue
        have.append(name)
        stamp = {**stamp, "extras": have}
        write_stamp(path, stamp)
    return stamp


def _install(path, stamp, log):
    """What went wrong, or None. torch stays as it is: a package that wants another one is not installed."""
    if stamp["kind"] != "cuda":
        return f"not installed, since torch {stamp['torch']} is a {stamp['kind']} build"
    wanted, python = requirement(stamp), python_in(path)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="escher-") as held:
        held.write(f"torch=={stamp['torch']}\n")
        held.flush()
        command = pip(python, *INSTALL, wanted, "--constraint", held.name)
        code, output = run_step(wanted, command, log, pip_environment(path))
    shutil.rmtree(path / "tmp", ignore_errors=True)
    if code != 0:
        return f"could not be installed: {last_error(output)}; log: {log}"
    _, trouble = facts_of(python, IMPORT)
    return f"installed, but can't be imported: {trouble}; log: {log}" if trouble else None
