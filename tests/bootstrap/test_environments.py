"""Which environment serves, and when one is made anew."""

import os
import sys

import pytest

from escherlib.bootstrap import environments
from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.environments import Request, choose, lists_hash, read_stamp, write_stamp


def made(path, label="cpu", kind="cpu", **more):
    """A finished environment, as far as a stamp and an interpreter go."""
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").symlink_to(sys.executable)
    stamp = {
        "state": "ready", "label": label, "asked": "auto", "kind": kind,
        "lists": lists_hash(), "tests": True, "index": None,
        "interpreter": os.path.realpath(sys.executable), "python": ".".join(map(str, sys.version_info[:3])),
    }  # fmt: skip
    write_stamp(path, {**stamp, **more})
    return path


def test_the_first_is_dot_venv(tmp_path):
    choice = choose(Request(), tmp_path)
    assert (choice.path, choice.action) == (tmp_path / ".venv", "build")
    assert not choice.path.exists()


def test_a_finished_one_is_used(tmp_path):
    path = made(tmp_path / ".venv")
    assert choose(Request(), tmp_path) == environments.Choice(path, "use", read_stamp(path))
    assert choose(Request(torch="cpu"), tmp_path).action == "use"


def test_another_stack_gets_a_folder_of_its_own(tmp_path):
    made(tmp_path / ".venv")
    assert choose(Request(kind="cuda"), tmp_path).path.name == ".venv-cuda"
    assert choose(Request(kind="cuda", torch="cu130"), tmp_path).path.name == ".venv-cu130"
    made(tmp_path / ".venv-cuda", "cu130", "cuda")
    assert choose(Request(kind="cuda"), tmp_path).action == "use"
    assert choose(Request(kind="cpu"), tmp_path).path.name == ".venv"
    assert choose(Request(kind="cuda", torch="cu126"), tmp_path).path.name == ".venv-cu126"


def test_a_gpu_build_serves_a_cpu(tmp_path):
    made(tmp_path / ".venv", "rocm7.0", "rocm")
    assert choose(Request(kind="cpu"), tmp_path).action == "use"
    assert choose(Request(kind="cpu", torch="cpu"), tmp_path).path.name == ".venv-cpu"


def test_changed_lists_and_tests_are_an_update(tmp_path):
    made(tmp_path / ".venv", lists="old")
    assert choose(Request(), tmp_path).action == "update"
    made(tmp_path / "b" / ".venv", tests=False)
    assert choose(Request(), tmp_path / "b").action == "use"
    assert choose(Request(tests=True), tmp_path / "b").action == "update"


@pytest.mark.parametrize("change", [{"state": "unfinished"}, {"interpreter": "/usr/bin/python2"}])
def test_an_unfinished_or_broken_one_is_made_anew(tmp_path, change):
    path = made(tmp_path / ".venv", **change)
    choice = choose(Request(kind="cuda"), tmp_path)
    assert (choice.path, choice.action) == (path, "build")
    assert choice.why


def test_an_interpreter_that_is_gone(tmp_path):
    path = made(tmp_path / ".venv")
    (path / "bin" / "python").unlink()
    assert choose(Request(), tmp_path).action == "build"


def test_another_python_only_when_asked_for(tmp_path):
    made(tmp_path / ".venv", python="3.1.0")
    assert choose(Request(), tmp_path).action == "use"
    assert choose(Request(python_given=True), tmp_path).action == "build"


def test_another_index_is_another_stack(tmp_path):
    made(tmp_path / ".venv", index="https://a.example/whl")
    assert choose(Request(index="https://a.example/whl"), tmp_path).action == "use"
    assert choose(Request(index="https://b.example/whl"), tmp_path).action == "build"


def test_foreign_folders_are_left_alone(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    assert choose(Request(), tmp_path).path.name == ".venv-cpu"
    for name in (".venv", "file"):
        (tmp_path / "file").touch()
        with pytest.raises(SetupError, match="was not made by this set-up"):
            choose(Request(venv=str(tmp_path / name)), tmp_path)
    (tmp_path / "empty").mkdir()
    assert choose(Request(venv="empty"), tmp_path).path == tmp_path / "empty"


def test_a_broken_stamp_reads_as_none(tmp_path):
    (tmp_path / environments.STAMP).write_text("[1,")
    assert read_stamp(tmp_path) == {}
