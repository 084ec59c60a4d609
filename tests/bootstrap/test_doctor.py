"""The doctor's verdicts, on answers that hosts would give."""

import json

import pytest

from escherlib.bootstrap import doctor

GOOD = {
    "torch": "2.9.0+cu130",
    "cuda": "13.0",
    "hip": None,
    "build": "cuda",
    "device": "NVIDIA H200, sm_90",
    "trouble": None,
}
DEVICE = {"device": "NVIDIA H200", "profile": "h200_sxm", "how": "name", "notes": ["a note"]}


@pytest.fixture
def host(monkeypatch):
    """A host that answers as told: (kind of device, answer to the torch question)."""

    def prepare(kind, torch, packages_missing=()):
        answers = {
            doctor.TORCH: torch,
            doctor.PROFILE: (True, json.dumps(DEVICE)),
            doctor.WEASYPRINT: (True, "70.0"),
        }
        monkeypatch.setattr(
            doctor, "ask", lambda code, *_, **__: answers.get(code, (False, "ImportError: no"))
        )
        monkeypatch.setattr(doctor, "check_device", lambda spec: kind)
        monkeypatch.setattr(doctor, "lacking", lambda wanted: list(packages_missing))

    return prepare


@pytest.mark.parametrize(
    "kind, change, says",
    [
        ("cuda", {}, "yes"),
        ("rocm", {}, "no: the host has a rocm device, but torch 2.9.0+cu130 is a cuda build"),
        (
            "cuda",
            {"trouble": "no kernel image", "device": None},
            "no: torch can't compute on the cuda device: no kernel image",
        ),
        ("cpu", {"trouble": "no driver", "device": None}, "yes"),  # a GPU build on a CPU host
    ],
)
def test_verdict(host, capsys, kind, change, says):
    host(kind, (True, json.dumps(GOOD | change)))
    assert doctor.run_doctor() == (0 if says == "yes" else 2)
    verdict = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("fits"))
    assert says in verdict


def test_no_torch_and_missing_packages(host, capsys):
    host("cpu", (False, "ModuleNotFoundError: No module named 'torch'"), [("pandas>=2.2", None)])
    assert doctor.run_doctor() == 2
    told = capsys.readouterr().out
    assert "torch can't be imported" in told
    assert "missing: pandas>=2.2" in told


def test_a_device_that_is_none(capsys):
    assert doctor.run_doctor("foo") == 2
    assert capsys.readouterr().err.startswith("error: DEVICE=foo: unknown device")


def test_questions_have_a_time_limit():
    assert doctor.ask("print('a'); print('b')") == (True, "b")
    assert doctor.ask("raise ValueError('why')") == (False, "ValueError: why")
    assert doctor.ask("import time; time.sleep(20)", limit_s=0.3) == (False, "no answer in 0.3 s")
    assert doctor.ask("import os; os.kill(os.getpid(), 9)") == (False, "ended by signal 9")


def test_pdf_engine_falls_back(monkeypatch):
    monkeypatch.setattr(doctor, "ask", lambda *_: (False, "OSError: no pango"))
    monkeypatch.setattr(
        doctor.shutil, "which", lambda name: "/usr/bin/chromium" if name == "chromium" else None
    )
    assert doctor.pdf_engine().startswith("/usr/bin/chromium (WeasyPrint: ")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert "apt-get install -y --no-install-recommends libpango-1.0-0" in doctor.pdf_engine()
    monkeypatch.setattr(
        doctor, "ask", lambda *_: (False, "ModuleNotFoundError: No module named 'weasyprint'")
    )
    assert doctor.pdf_engine() == "none (WeasyPrint: not installed)"


def test_an_optional_backend_that_is_a_stranger_of_the_same_name(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(
        doctor, "ask", lambda code, **_: (False, "ModuleNotFoundError: No module named 'aiter.ops'")
    )
    assert doctor._optional(*doctor.OPTIONAL["aiter"]).startswith("– (ModuleNotFoundError")
