"""The goals of make, from the command line of a user to what is run."""

import ast
import os
import shutil
import subprocess
import sys

import pytest

from escherlib.bootstrap import commands
from escherlib.bootstrap.console import SetupError, last_error, run_step
from escherlib.files import ROOT

PACKAGE = ROOT / "escherlib" / "bootstrap"
MAKE = ("make", f"PYTHON={sys.executable}")


def make(*words, **environment):
    """Run make in the project as a user would."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "ESCHER", "MFLAGS"))}
    return subprocess.run(
        [*MAKE, *words],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
    )


def first_error(done):
    """The line of ours; make adds its own."""
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_help_is_the_default_goal():
    shown = make()
    assert shown.returncode == 0, shown.stderr
    assert "make TARGET" in shown.stdout
    assert shown.stdout == make("help").stdout


def test_a_users_mistakes_are_one_line_and_make_nothing(tmp_path):
    place = f"VENV={tmp_path / 'v'}"
    assert "DEVICE=foo: unknown device" in first_error(make("benchmark", place, "DEVICE=foo"))
    assert "no such variable; did you mean DEVICE" in first_error(make("benchmark", place, "DEVCE=cpu"))
    assert "TORCH=gpu: expected auto" in first_error(make("setup", place, "TORCH=gpu"))
    assert "does not use it" in first_error(make("list", place, "SUITE=full"))
    assert "FORCE=x: expected 1 or 0" in first_error(make("benchmark", place, "FORCE=x"))
    assert "VENV=none installs nothing" in first_error(make("setup", "VENV=none", "TORCH=cpu"))
    assert not (tmp_path / "v").exists()


def test_values_never_reach_a_shell(tmp_path):
    trap = tmp_path / "trap"
    value = f"x y'z\"; touch {trap}; $$(touch {trap}) `touch {trap}`"
    told = first_error(make("benchmark", f"DEVICE={value}", f"VENV={tmp_path / 'v'}"))
    assert "unknown device" in told
    assert not trap.exists()


def test_values_of_the_environment_count_and_are_said(tmp_path):
    shown = make("benchmark", DEVICE="foo", VENV=str(tmp_path / "v"))
    assert "from the environment: DEVICE=foo VENV=" in shown.stdout
    assert "unknown device" in first_error(shown)


def test_the_command_gets_its_arguments_whole(tmp_path):
    """Through make, set-up with VENV=none and the hand-over, into a command line that only shows them."""
    for name in ("Makefile", "environment.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "environment.yml").write_text("dependencies:\n  - pip:\n      - pytest>=1.0\n")
    shutil.copytree(PACKAGE, tmp_path / "escherlib" / "bootstrap")
    shutil.copytree(ROOT / "escherlib" / "hardware", tmp_path / "escherlib" / "hardware")
    shutil.copytree(ROOT / "parameters", tmp_path / "parameters")
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "escherlib" / name, tmp_path / "escherlib")
    (tmp_path / "escherlib" / "__main__.py").write_text(
        "import sys, os\nprint(sys.argv[1:], 'MAKELEVEL' in os.environ)\nsys.exit(7)\n"
    )
    marking = 'Confidential – don\'t "share" $$5'
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "ESCHER", "MFLAGS"))}
    done = subprocess.run(
        [*MAKE, "report", "VENV=none", f"MARKING={marking}", "EMBED=0", "RUN=a b"],
        cwd=tmp_path, env=kept, capture_output=True, text=True,
    )  # fmt: skip
    expected = ["report", "--run=a b", f"--marking={marking.replace('$$', '$')}", "--no-embed"]
    assert done.stdout == f"{expected} False\n", done.stderr
    assert "Error 7" in done.stderr


def test_venv_none_lists_what_is_missing(monkeypatch):
    from escherlib.bootstrap import requirements

    monkeypatch.setattr(
        requirements, "lacking", lambda wanted: [("torch>=2.9", None), ("pandas>=2.2", "1.0")]
    )
    with pytest.raises(SetupError) as raised:
        commands.active_interpreter("benchmark")
    assert "lacks 2 packages: torch>=2.9, pandas>=2.2 (has 1.0)" in str(raised.value)
    assert "pip install 'pandas>=2.2'" in str(raised.value)


def test_lab_is_local_and_quiet(monkeypatch):
    command = commands.command_of("lab", [])
    assert "--ip=127.0.0.1" in command
    assert "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate" in command
    assert commands.command_of("test", [])[:2] == ["-m", "pytest"]
    assert commands.command_of("doctor", ["--device=cpu"]) == [
        "-m",
        "escherlib.bootstrap",
        "doctor",
        "--device=cpu",
    ]


def test_clean_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    record = tmp_path / "executed/interactive-20260101/records/a.json"
    left = record.with_name(".a.json.x1y2z3w4")
    keep = [
        record,
        tmp_path / ".venv/lib/__pycache__/x.pyc",
        tmp_path / "executed/run/records/.b.json.x1y2z3w4",
    ]
    gone = [left, tmp_path / "escherlib/__pycache__/x.pyc", tmp_path / ".pytest_cache/x"]
    for path in (*keep, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert commands.run(["clean"]) == 0
    assert all(path.exists() for path in keep)
    assert not any(path.exists() for path in gone)


def test_an_interrupt_is_one_line(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_dispatch", interrupted)
    assert commands.run(["clean"]) == 130
    assert capsys.readouterr().err == "interrupted; the same command takes it up again\n"


def test_a_failing_step_says_why(tmp_path, capsys):
    code, output = run_step(
        "a step", ["sh", "-c", "echo fine; echo ERROR: because; exit 3"], tmp_path / "log"
    )
    assert (code, last_error(output)) == (3, "ERROR: because")
    assert "a step … failed" in capsys.readouterr().out
    assert "ERROR: because" in (tmp_path / "log").read_text()


def test_everything_here_runs_on_the_standard_library_alone():
    names = sorted(p.stem for p in PACKAGE.glob("*.py") if p.stem != "__main__")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + "".join(
        f"import escherlib.bootstrap.{n}\n" for n in names
    )
    code = code.replace(".__init__", "") + "import escherlib.hardware.probe, escherlib.hardware.profiles\n"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_old_python_says_so_instead_of_failing():
    for path in (PACKAGE / "__main__.py", PACKAGE / "__init__.py", ROOT / "escherlib" / "__init__.py"):
        ast.parse(path.read_text(), feature_version=(3, 5))
    code = (
        "import sys, shutil; sys.version_info = (3, 9, 0); shutil.which = lambda name: None\n"
        "from escherlib.bootstrap.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: Python 3.9 is too old")
