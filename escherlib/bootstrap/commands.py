"""Commands of `python3 -m escherlib.bootstrap` and goals of make: check, set up, hand over to the CLI."""

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from escherlib.bootstrap import variables
from escherlib.bootstrap.console import SetupError, say
from escherlib.bootstrap.paths import ROOT

INTERRUPTED = 130
WORKERS = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile")  # fixtures that measure are made once a file
OF_MAKE = ("ESCHER_GIVEN", "ESCHER_GOALS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHONHOME")


def run(arguments):
    """Run one command. Returns the exit code: 0, 2 (bad input, or set-up can't go on), 130 (interrupted)."""
    parser = argparse.ArgumentParser(prog="python3 -m escherlib.bootstrap", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="a goal of the Makefile; variables come from the environment")
    make.add_argument("goal", choices=[*variables.TARGETS])
    setup = commands.add_parser("setup", help="make or repair the environment")
    for option in ("--device", "--torch", "--torch-index-url", "--venv", "--extras", "--params"):
        setup.add_argument(option)
    setup.add_argument("--tests", action="store_true", help="also what only the tests need")
    check = commands.add_parser(
        "check-device", help="is this word a device, and has this host one? prints the stack it needs"
    )
    check.add_argument("spec")
    check.add_argument("--params")
    shown = commands.add_parser("help", help="targets and variables of make")
    shown.add_argument("--markdown", action="store_true", help="the table of variables for the README")
    commands.add_parser("clean", help="remove caches")
    doctor = commands.add_parser("doctor", help="does this interpreter's stack fit the device?")
    doctor.add_argument("--device", default="auto")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _dispatch(parser.parse_args(arguments))
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command takes it up again", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _interrupt(*_):
    raise KeyboardInterrupt


def _dispatch(options):
    if options.command == "make":
        return make_goal(options.goal, os.environ)
    if options.command == "check-device":
        from escherlib.bootstrap.devices import check_device

        say(check_device(options.spec, options.params))
    elif options.command == "help":
        say(variables.help_markdown() if options.markdown else variables.help_text())
    elif options.command == "clean":
        clean()
    elif options.command == "doctor":
        from escherlib.bootstrap.doctor import run_doctor

        return run_doctor(options.device)
    else:
        asked = ("device", "torch", "torch_index_url", "venv", "extras", "params")
        given = {name.upper(): getattr(options, name) for name in asked if getattr(options, name) is not None}
        set_up("test" if options.tests else "setup", given)
    return 0


def make_goal(goal, environ):
    """One goal of the Makefile. Becomes the command in the end, so that exit code and signals are its own."""
    names = variables.overridden(environ.get("ESCHER_GIVEN", ""))
    if environ.get("MAKELEVEL", "1") == "1":  # another Makefile may have variables of its own
        variables.check_names(names, environ.get("ESCHER_GOALS", "").split() or [goal])
    if goal == "help":
        say(variables.help_text())
        return 0
    if goal == "clean":
        return clean()
    given = variables.read_given(goal, environ, names)
    arguments = variables.forward(goal, given)
    inherited = [f"{name}={value}" for name, value in given.items() if name not in {*names, "PYTHON"}]
    if inherited:
        say(f"from the environment: {' '.join(inherited)}")
    python = set_up(goal, given, python_given="PYTHON" in names)
    if goal == "setup":
        return 0
    return hand_over(python, goal, command_of(goal, arguments))


def command_of(goal, arguments):
    """Arguments of the interpreter for a goal that runs in the environment."""
    if goal == "test":
        return ["-m", "pytest", *WORKERS, *arguments]
    if goal == "doctor":  # answers where click is missing too
        return ["-m", "escherlib.bootstrap", goal, *arguments]
    if goal != "lab":
        return ["-m", "escherlib", goal, *arguments]
    start = "notebooks/START.ipynb" if (ROOT / "notebooks" / "START.ipynb").is_file() else "notebooks"
    # news and update pop-ups off: their fetches go outside, and the first thing seen should be the notebook
    command = ["-m", "jupyterlab", "--ip=127.0.0.1", f"--ServerApp.root_dir={ROOT}",
               f"--LabApp.default_url=/lab/tree/{start}",
               "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
               "--LabApp.extension_manager=readonly"]  # fmt: skip
    command += ["--allow-root"] if os.geteuid() == 0 else []
    return command + (
        [] if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") else ["--no-browser"]
    )


def set_up(goal, given, python_given=False):
    """Check DEVICE and TORCH, make the environment where needed, give the interpreter a goal runs with."""
    from escherlib.bootstrap.devices import check_device
    from escherlib.bootstrap.environments import Request, python_in
    from escherlib.bootstrap.torch_source import check_torch_word

    device, torch = given.get("DEVICE", "auto"), given.get("TORCH", "auto").strip().lower()
    kind = check_device(device, given.get("PARAMS"))
    check_torch_word(torch, kind, device.strip().lower())
    venv, extras = given.get("VENV"), given.get("EXTRAS")
    if extras:
        from escherlib.bootstrap.extras import read_extras

        extras = read_extras(extras, kind)
    if venv == "none":
        if extras:
            raise SetupError(
                "VENV=none installs nothing, so EXTRAS= can't be followed; leave it out, install it yourself"
            )
        if torch not in ("auto", "keep") or given.get("TORCH_INDEX_URL"):
            raise SetupError(
                "VENV=none installs nothing, so TORCH= and TORCH_INDEX_URL= can't be followed; leave them out"
            )
        return Path(sys.executable) if goal == "doctor" else active_interpreter(goal)
    from escherlib.bootstrap.fit import require_fit
    from escherlib.bootstrap.install import prepare, system_packages

    index, tests = given.get("TORCH_INDEX_URL"), goal == "test"
    request = Request(kind, torch, index, tests, venv, python_given, extras or ())
    path, stamp = prepare(request)
    if goal in ("setup", "test", *variables.REPORTING):
        system_packages(path, tests=goal == "test")
    if goal == "benchmark":
        require_fit(path, stamp, kind)
    elif goal == "setup":
        say(f"{path}: {stamp['label']}, torch {stamp['torch']}, Python {stamp['python']}")
    return python_in(path)


def active_interpreter(goal):
    """VENV=none: the running interpreter, if it has all that is needed. Installs nothing."""
    from escherlib.bootstrap.requirements import lacking, read_requirements

    lack = lacking(read_requirements(tests=goal == "test"))
    if not lack:
        return Path(sys.executable)
    listed = ", ".join(f"{wanted} (has {version})" if version else wanted for wanted, version in lack)
    others = " ".join(f"'{wanted}'" for wanted, _ in lack if not wanted.startswith("torch>"))
    lines = [
        f"VENV=none: {sys.executable} (Python {sys.version.split()[0]}) lacks {len(lack)} packages: {listed}"
    ]
    if others:
        lines.append(f"  install them yourself: {sys.executable} -m pip install {others}")
    if any(wanted.startswith("torch>") for wanted, _ in lack):
        lines.append("  torch: the build that fits this device, from its vendor or from PyTorch's index")
    lines.append("  or leave VENV out: make then installs everything into .venv")
    raise SetupError("\n".join(lines))


def hand_over(python, goal, command):
    """Become the command, with the environment's programs first on PATH and without what belongs to make."""
    folder = Path(python).parent
    dropped = {*OF_MAKE, *(variables.BY_NAME if goal == "test" else ())}  # tests choose their own values
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', os.defpath)}"
    if (folder.parent / "pyvenv.cfg").is_file():
        environment["VIRTUAL_ENV"] = str(folder.parent)
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(python, [str(python), *command], environment)


CACHES = {"__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"}


def clean():
    """Remove caches below the project and left-over temporary files of interactive runs; nothing measured."""
    removed = 0
    for folder, names, files in os.walk(ROOT):
        here = Path(folder)
        for name in [n for n in names if n in CACHES or n.endswith(".egg-info")]:
            shutil.rmtree(here / name, ignore_errors=True)
            names.remove(name)
            removed += 1
        names[:] = [n for n in names if n != ".git" and not n.startswith(".venv")]
        if any(part.startswith("interactive-") for part in here.relative_to(ROOT).parts):
            # atomic writes name their temporary file .<file>.<eight letters>
            for name in files:
                if name.startswith(".") and name.count(".") >= 3 and len(name.rsplit(".", 1)[1]) == 8:
                    (here / name).unlink(missing_ok=True)
                    removed += 1
    say(f"removed {removed} caches and temporary files; .venv* and executed runs are kept")
    return 0
