"""How pip is called: in the environment and nowhere else, and quick where an index can't be reached."""

import os
from pathlib import Path

ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PYTHONPATH", "PYTHONHOME")
SETTINGS = {"PIP_RETRIES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_USER": "0"}
INSTALL = ("install", "--quiet", "--progress-bar", "off", "--no-compile", "--no-warn-script-location")


def pip(python, *arguments):
    """Command line of an environment's pip."""
    return [str(python), "-m", "pip", *arguments]


def pip_environment(work, **more):
    """Environment variables for pip: the caller's, less those that install elsewhere, with quick retries.

    Temporary files go below `work`, the environment: /tmp may be too small for a GPU build of torch, and
    what a killed pip leaves behind is gone with the next set-up.
    """
    temporary = Path(work) / "tmp"
    temporary.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return {**SETTINGS, **kept, "TMPDIR": str(temporary), **more}
