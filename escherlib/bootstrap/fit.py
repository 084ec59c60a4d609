"""Does an environment import, and can its torch use the device? Asked of its interpreter, in children."""

import json
import os
import subprocess
import sys
import tempfile
import time

from escherlib.bootstrap.console import SetupError, last_error, say
from escherlib.bootstrap.environments import python_in, write_stamp
from escherlib.bootstrap.requirements import meets, package_of

FIRST_IMPORTS = """
import escherlib, jupyterlab.labapp, ipykernel.kernelapp, papermill.execute, nbconvert, pandas, altair
import vl_convert, ipywidgets, pydantic, psutil, yaml
try:
    import weasyprint
except OSError:
    pass  # without Pango the PDF has another engine
"""
IMPORT_LIMIT_S = 300
TORCH_FACTS = """
import json, platform, sys, torch
facts = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
facts |= {"gpu": False, "why": ""}
facts["kind"] = "rocm" if facts["hip"] else "cuda" if facts["cuda"] else "cpu"
facts["python"] = platform.python_version()
facts["places"] = [place for place in sys.path if place.endswith("-packages")]
if facts["kind"] != "cpu":
    try:
        torch.cuda.init()
        facts["gpu"] = torch.cuda.device_count() > 0
    except Exception as error:
        facts["why"] = str(error).splitlines()[0]
print("\\n" + json.dumps(facts))
"""
UNLESS_ABSENT = """
import importlib.util
if importlib.util.find_spec("torch") is None:
    raise SystemExit("has no torch")
"""


def facts_of(python, code=TORCH_FACTS, environment=None):
    """Facts that a child prints as its last line: (facts, None) or (None, what went wrong)."""
    settings = {"env": environment, "capture_output": True, "text": True, "timeout": IMPORT_LIMIT_S}
    try:
        done = subprocess.run([python, "-c", code], **settings)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.returncode != 0:
        return None, last_error(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]), None


def verify(python, log):
    """First import of torch and, beside it, of the rest; leaves byte code too. Returns torch's facts."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    begun = time.monotonic()
    say("  first imports …", end="")
    with tempfile.TemporaryDirectory() as elsewhere:  # the package must import from anywhere
        rest = subprocess.Popen(
            [python, "-c", FIRST_IMPORTS], env=kept, cwd=elsewhere, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            facts, trouble = facts_of(python, environment=kept)
            _, errors = rest.communicate(timeout=IMPORT_LIMIT_S)
        except subprocess.TimeoutExpired:
            errors = f"no end after {IMPORT_LIMIT_S} s"
        finally:
            rest.kill()
    say(f" {time.monotonic() - begun:.0f} s" if facts and rest.returncode == 0 else " failed")
    if not facts:
        raise SetupError(f"torch was installed but can't be imported: {trouble}; log: {log}")
    if rest.returncode != 0:
        raise SetupError(f"the environment is incomplete: {last_error(errors)}; log: {log}")
    return facts


def kept_torch(request, requirement):
    """Facts of the torch that the calling interpreter already has, if it is to be kept, else None.

    TORCH=auto keeps one that is new enough and can use the device; TORCH=keep without one is a SetupError.
    """
    if request.torch not in ("auto", "keep") or request.index:
        return None
    facts, trouble = facts_of(sys.executable, UNLESS_ABSENT + TORCH_FACTS)
    if facts and not meets(facts["torch"], package_of(requirement)[1]):
        facts, trouble = None, f"has torch {facts['torch']}, {requirement} is needed"
    if facts and (request.torch == "keep" or can_use(facts, request.kind)):
        return facts
    if request.torch == "keep":
        hint = "use TORCH=auto, or PYTHON=<interpreter with torch>"
        raise SetupError(f"TORCH=keep: {sys.executable} {trouble}; {hint}")
    return None


def can_use(facts, kind):
    """Whether a torch with these facts can use a kind of device; any torch can use the CPU."""
    return kind == "cpu" or (facts["kind"] == kind and facts["gpu"])


def require_fit(path, stamp, kind):
    """SetupError unless the environment's torch can use the kind of device that is asked for."""
    if can_use(stamp, kind):
        return
    if stamp["kind"] == kind:  # the driver may have come up since: ask again, and keep the answer
        facts, trouble = facts_of(python_in(path))
        stamp = {**stamp, "gpu": bool(facts and facts["gpu"]), "why": trouble or facts["why"]}
        write_stamp(path, stamp)
        if stamp["gpu"]:
            return
    reason = stamp["why"] if stamp["kind"] == kind else f"it is a {stamp['kind']} build"
    raise SetupError(
        f"torch {stamp['torch']} can't use this host's {kind} device ({reason}); choose another build with "
        "TORCH=, or measure the CPU with DEVICE=cpu; `make doctor` shows more"
    )
