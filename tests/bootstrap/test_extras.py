"""EXTRAS: which are taken where, how they are installed, and that a failure is no end."""

from pathlib import Path

import pytest

from escherlib.bootstrap import commands, doctor, extras, install
from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.environments import Request, choose, read_stamp
from tests.bootstrap.test_environments import made

STAMP = {"kind": "cuda", "torch": "2.11.0+cu130", "cuda": "13.0"}


@pytest.mark.parametrize("capability", [None, (9, 0), (10, 0), (12, 0)])
def test_taken_on_hopper_blackwell_and_where_the_gpu_cannot_be_asked(capability, capsys):
    assert extras.read_extras(" FA4, fa4,", "cuda", lambda: capability) == ("fa4",)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "kind, capability, why",
    [("cpu", None, "is for cpu"), ("rocm", None, "is for rocm"), ("cuda", (8, 9), "compute capability 8.9")],
)
def test_left_out_elsewhere_with_one_line(kind, capability, why, capsys):
    assert extras.read_extras("fa4", kind, lambda: capability) == ()
    told = capsys.readouterr().out.splitlines()
    assert (
        len(told) == 1 and told[0].startswith("EXTRAS=fa4: left out, flash-attn-4 needs") and why in told[0]
    )


def test_an_unknown_extra_is_a_users_mistake(monkeypatch):
    with pytest.raises(
        SetupError, match=r"EXTRAS=fa4,fa5: unknown extra 'fa5'; expected a comma list of fa4"
    ):
        extras.read_extras("fa4,fa5", "cpu")
    with pytest.raises(SetupError, match="unknown extra"):
        commands.set_up("setup", {"EXTRAS": "x", "DEVICE": "cpu"})
    monkeypatch.setattr(extras.hosts, "oldest_capability", lambda: (9, 0))
    monkeypatch.setattr("escherlib.bootstrap.devices.check_device", lambda *_: "cuda")
    with pytest.raises(SetupError, match="VENV=none installs nothing, so EXTRAS= can't be followed"):
        commands.set_up("setup", {"EXTRAS": "fa4", "VENV": "none"})


def test_an_environment_without_the_extra_is_updated(tmp_path):
    made(tmp_path / ".venv", "cu130", "cuda")
    asked = Request(kind="cuda", extras=("fa4",))
    assert (
        choose(asked, tmp_path).action == "update" and choose(Request(kind="cuda"), tmp_path).action == "use"
    )
    made(tmp_path / "b" / ".venv", "cu130", "cuda", extras=["fa4"])
    assert choose(asked, tmp_path / "b").action == "use"


def test_what_pip_is_asked_for():
    assert extras.requirement(STAMP) == "flash-attn-4[cu13]>=4.0.0b36"
    assert extras.requirement({**STAMP, "cuda": "12.8"}) == "flash-attn-4>=4.0.0b36"
    assert extras.requirement({**STAMP, "cuda": None}) == "flash-attn-4>=4.0.0b36"


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """pip and the first import by stand-ins: set their answers, see what was run."""
    answers = {"code": 0, "output": "", "trouble": None, "ran": []}

    def run_step(title, command, log, env=None):
        held = command[command.index("--constraint") + 1]
        answers["ran"].append((title, Path(held).read_text()))
        return answers["code"], answers["output"]

    monkeypatch.setattr(extras, "run_step", run_step)
    monkeypatch.setattr(extras, "facts_of", lambda python, code: (True, answers["trouble"]))
    return answers


def test_installed_once_with_torch_held(pip, tmp_path, capsys):
    stamp = extras.add_extras(tmp_path, STAMP, ("fa4",), tmp_path / "log")
    assert stamp["extras"] == ["fa4"] and read_stamp(tmp_path)["extras"] == ["fa4"]
    assert pip["ran"] == [("flash-attn-4[cu13]>=4.0.0b36", "torch==2.11.0+cu130\n")]
    assert not (tmp_path / "tmp").exists()
    assert extras.add_extras(tmp_path, stamp, ("fa4",), tmp_path / "log") == stamp and len(pip["ran"]) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "change, torch, why",
    [
        ({"code": 1, "output": "ERROR: No match"}, STAMP, "could not be installed: ERROR: No match"),
        ({"trouble": "ImportError: cutlass"}, STAMP, "can't be imported: ImportError: cutlass"),
        ({}, {**STAMP, "kind": "cpu"}, "not installed, since torch 2.11.0.cu130 is a cpu build"),
    ],
)  # fmt: skip
def test_a_failure_is_a_warning_and_the_rest_goes_on(pip, tmp_path, capsys, change, torch, why):
    pip.update(change)
    assert extras.add_extras(tmp_path, torch, ("fa4",), tmp_path / "log") == torch
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and told[0].startswith("warning: EXTRAS=fa4: ") and "next best backend" in told[0]
    assert why.replace("2.11.0.cu130", "2.11.0+cu130") in told[0]


def test_set_up_adds_what_is_asked_for_and_what_was_there(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(install, "find_torch", lambda request: (None, None))
    monkeypatch.setattr(install, "_build", lambda path, request, torch: {**STAMP, "state": "ready"})
    monkeypatch.setattr(
        install, "add_extras", lambda path, stamp, wanted, log: seen.append(list(wanted)) or stamp
    )
    place = tmp_path / "v"
    install.prepare(Request(kind="cuda", venv=str(place), extras=("fa4",)))
    extras.write_stamp(place, {"state": "unfinished", "extras": ["fa4"]})
    install.prepare(Request(kind="cuda", venv=str(place)))
    assert seen == [["fa4"], ["fa4"]]


def test_doctor_tells_how_to_get_it_where_it_is_of_use():
    assert "EXTRAS=fa4" in doctor._hinted("flash-attn-4", "cuda", "–")
    assert doctor._hinted("flash-attn-4", "cuda", "4.0.0b40") == "4.0.0b40"
    assert doctor._hinted("flash-attn-4", "cpu", "–") == doctor._hinted("aiter", "cuda", "–") == "–"
