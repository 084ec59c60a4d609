"""What set-up says, and how it runs other programs: one line a step, the rest in a log."""

import os
import subprocess
import sys
import time
from pathlib import Path


class SetupError(Exception):
    """Set-up can't go on. The message is one line (what, why, what to do); exit code 2."""


def say(text, end="\n"):
    """Print at once."""
    print(text, end=end, flush=True)


def warn(text):
    """One line on stderr."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def run_step(title, command, log, env=None):
    """Run a program as one step: `title … 12 s`, its output in `log`. Returns (exit code, output)."""
    begun = time.monotonic()
    say(f"  {title} …", end="")
    try:
        code, output = run_logged(command, log, env, title if sys.stdout.isatty() else None)
    except BaseException:
        say("")
        raise
    say(f"{_erase(title)} {time.monotonic() - begun:.0f} s" if code == 0 else f"{_erase(title)} failed")
    return code, output


def run_logged(command, log, env=None, title=None):
    """Run a program with its output in `log`, its latest line shown behind `title` if that is given.

    Returns (exit code, output). An interrupt ends the program too.
    """
    output = []
    with Path(log).open("a", errors="replace") as stream:
        stream.write(f"$ {' '.join(map(str, command))}\n")
        child = subprocess.Popen(
            list(map(str, command)), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        try:
            for line in child.stdout:
                stream.write(line)
                output.append(line)
                if title:
                    _show(title, line)
            return child.wait(), "".join(output)
        except BaseException:
            _end(child)
            raise


def last_error(output):
    """The line of a program's output that says best why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if line.lower().startswith(("error", "e:")) and "ResolutionImpossible" not in line
    ]
    return (errors or lines or ["no output"])[-1][:300]


def _end(child):
    child.terminate()
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _show(title, line):
    room = os.get_terminal_size(sys.stdout.fileno()).columns - len(title) - 6
    text = " ".join(line.split())
    if text and room > 10:
        say(f"\r\033[K  {title} … {text[:room]}", end="")


def _erase(title):
    return f"\r\033[K  {title} …" if sys.stdout.isatty() else ""
