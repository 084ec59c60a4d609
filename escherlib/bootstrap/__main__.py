"""`python3 -m escherlib.bootstrap …`. Old Pythons can read it, to say what is wrong."""
# ruff: noqa: UP031

import os
import shutil
import sys

OLDEST = (3, 11)


def newer_python():
    """Path of an interpreter that is new enough, the newest first, or None."""
    names = ["python3.%d" % minor for minor in range(14, OLDEST[1] - 1, -1)]
    return next((path for path in map(shutil.which, names) if path), None)


def main():
    """Run the commands, in a newer Python where this one is too old."""
    if sys.version_info < OLDEST:
        newer = newer_python()
        if newer:
            os.execv(newer, [newer, "-m", "escherlib.bootstrap"] + sys.argv[1:])
        sys.stderr.write(
            "error: Python %d.%d is too old, 3.11 or newer is needed; install one (apt-get install -y "
            "python3.11 python3.11-venv) and give it with PYTHON=python3.11\n" % sys.version_info[:2]
        )
        sys.exit(2)
    from escherlib.bootstrap.commands import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
