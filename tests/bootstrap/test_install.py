"""A whole set-up with a stand-in for torch and no network: made, used again, healed; system packages."""

import json
import os
import sys

import pytest

from escherlib.bootstrap import fit, install, packages
from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.environments import Request, python_in, read_stamp, write_stamp
from tests.bootstrap.test_torch_source import fake_wheel

FAKE_TORCH = """
__version__ = "2.9.9+cpu"
class version: cuda = hip = None
"""


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A folder of wheels; what else is installed and imported is left out."""
    (tmp_path / "my wheels").mkdir()
    fake_wheel(tmp_path / "my wheels", module=FAKE_TORCH)
    monkeypatch.setattr(install, "_install_rest", lambda path, tests: None)
    monkeypatch.setattr(install, "verify", lambda python, log: fit.facts_of(python)[0])
    return Request(index=str(tmp_path / "my wheels"), venv=str(tmp_path / "an environment"))


def test_made_used_and_healed(offline, monkeypatch, capsys):
    path, stamp = install.prepare(offline)
    assert stamp["state"] == "ready"
    assert (stamp["label"], stamp["torch"], stamp["kind"]) == ("cpu", "2.9.9+cpu", "cpu")
    assert read_stamp(path) == stamp
    assert "torch 2.9.9+cpu, a local wheel" in capsys.readouterr().out
    assert install.prepare(offline) == (path, stamp)
    assert capsys.readouterr().out == ""  # nothing to do, nothing said
    news = json.loads((path / "share/jupyter/lab/settings/overrides.json").read_text())
    assert next(iter(news.values()))["fetchNews"] == "false"

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "_install_torch", interrupted)
    write_stamp(path, {**stamp, "state": "unfinished"})
    with pytest.raises(KeyboardInterrupt):
        install.prepare(offline)
    assert read_stamp(path)["state"] == "unfinished"
    monkeypatch.undo()
    monkeypatch.setattr(install, "_make_venv", lambda path: (path / "bin").mkdir())
    monkeypatch.setattr(install, "_install_torch", lambda *_: ("cpu", offline.index))
    monkeypatch.setattr(install, "_install_rest", lambda *_: None)
    monkeypatch.setattr(install, "verify", lambda *_: {"torch": "2.9.9", "places": []})
    assert install.prepare(offline)[1]["state"] == "ready"
    assert "an earlier set-up did not finish" in capsys.readouterr().out
    assert not (path / "lib").exists()  # nothing of the half-made one is left


def test_nothing_is_made_for_a_bad_index_or_folder(tmp_path):
    with pytest.raises(SetupError, match="unreachable"):
        install.prepare(Request(index="http://127.0.0.1:1/x", venv=str(tmp_path / "v")))
    assert not (tmp_path / "v").exists()
    with pytest.raises(SetupError, match="cannot be written"):
        install._make_folder(install.envs.Path("/proc/nope"))
    with pytest.raises(SetupError, match="below a path with ':'"):
        install._make_folder(tmp_path / "a:b")


def test_a_torch_that_cannot_be_kept(monkeypatch):
    monkeypatch.setattr(fit, "facts_of", lambda *_: ({"torch": "2.8.0", "kind": "cuda", "gpu": True}, None))
    assert fit.kept_torch(Request(kind="cuda"), "torch>=2.9") is None
    with pytest.raises(SetupError, match=r"TORCH=keep: .* has torch 2.8.0, torch>=2.9 is needed"):
        fit.kept_torch(Request(torch="keep"), "torch>=2.9")
    vendor = {"torch": "2.9.0a0+git7", "kind": "rocm", "gpu": True}
    monkeypatch.setattr(fit, "facts_of", lambda *_: (vendor, None))
    assert fit.kept_torch(Request(kind="rocm"), "torch>=2.9") == vendor
    assert fit.kept_torch(Request(kind="cuda"), "torch>=2.9") is None
    assert fit.kept_torch(Request(kind="cuda", torch="keep"), "torch>=2.9") == vendor
    assert fit.kept_torch(Request(kind="rocm", torch="rocm7.0"), "torch>=2.9") is None


def test_a_stack_that_does_not_fit_its_device(tmp_path, monkeypatch):
    stamp = {"torch": "2.9.0+cu130", "kind": "cuda", "gpu": False, "why": "driver too old"}
    monkeypatch.setattr(fit, "facts_of", lambda *_: (stamp, None))
    fit.require_fit(tmp_path, stamp, "cpu")
    with pytest.raises(SetupError, match=r"can't use this host's cuda device .driver too old"):
        fit.require_fit(tmp_path, stamp, "cuda")
    with pytest.raises(SetupError, match=r"can't use this host's rocm device .it is a cuda build"):
        fit.require_fit(tmp_path, stamp, "rocm")
    monkeypatch.setattr(fit, "facts_of", lambda *_: ({**stamp, "gpu": True, "why": ""}, None))
    fit.require_fit(tmp_path, stamp, "cuda")
    assert read_stamp(tmp_path)["gpu"] is True


def test_facts_of_a_child_that_fails():
    assert fit.facts_of(sys.executable, "raise SystemExit('has no torch')") == (None, "has no torch")
    assert fit.facts_of("/no/python", "1")[0] is None
    assert python_in("/x").as_posix() == "/x/bin/python"


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """A system with dpkg and apt-get of our own making, on which nothing is installed yet."""
    state, tools = tmp_path / "installed", tmp_path / "tools"
    tools.mkdir()
    state.write_text("fonts-dejavu-core installed\n")
    scripts = {
        "dpkg-query": f"cat '{state}'",
        "apt-get": f"case \"$*\" in *update*) ;; *chromium*) echo 'E: no chromium'; exit 100 ;; *)"
        f" for p in \"$@\"; do echo \"$p installed\" >> '{state}'; done ;; esac",
    }  # fmt: skip
    for name, text in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def test_system_packages_are_installed_as_root(debian, capsys):
    path = debian / "env"
    path.mkdir()
    install.system_packages(path, tests=True)
    assert packages.missing(packages.REPORT + packages.TESTS) == [
        "chromium"
    ]  # one that can't be had, and it alone
    told = capsys.readouterr()
    assert "apt-get install -y --no-install-recommends chromium" in told.err
    install.system_packages(path, tests=True)
    again = capsys.readouterr()
    assert again.out == ""  # not tried again each time
    assert "chromium" in again.err


def test_otherwise_the_exact_line_is_printed(debian, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    install.system_packages(debian, tests=False)
    wanted = " ".join(name for name in packages.REPORT if name != "fonts-dejavu-core")
    assert f"sudo apt-get install -y --no-install-recommends {wanted}" in capsys.readouterr().err


def test_no_dpkg_no_opinion(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert packages.missing(packages.REPORT) == []


def test_what_lies_beside_a_kept_torch_is_out_of_sight_while_packages_are_installed(tmp_path):
    folder = tmp_path / "lib/python3.12/site-packages"
    folder.mkdir(parents=True)
    places = folder / "escher_kept_torch.pth"
    with install._without_kept_places(tmp_path):
        assert not places.exists()
    assert not places.exists()
    places.write_text("/elsewhere\n")
    with pytest.raises(KeyboardInterrupt), install._without_kept_places(tmp_path):
        assert not places.exists()
        raise KeyboardInterrupt
    assert places.read_text() == "/elsewhere\n"
