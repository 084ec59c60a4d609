"""Where torch comes from: an index on this machine, a folder of wheels, and what is refused."""

import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from escherlib.bootstrap import torch_index, torch_source
from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.torch_source import (
    check_torch_word,
    is_cpu_build,
    kind_of_label,
    local_wheel,
    plan,
    wheel_needs,
)

TORCH = "torch>=2.9"
PYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}"
MACHINE = __import__("platform").machine()


def fake_wheel(folder, version="2.9.9+cpu", needs=(), module='__version__ = "2.9.9+cpu"\n'):
    """A tiny wheel that is called torch."""
    path = folder / f"torch-{version}-py3-none-any.whl"
    info = f"torch-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {n}\n" for n in needs
    )
    files = {
        "torch/__init__.py": module,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, logs nothing."""

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A wheel index on 127.0.0.1 that has /cpu and /cu126, the latter with an old torch only."""
    for tag, version in (("cpu", "2.9.9"), ("cu126", "2.8.0"), ("cu128", "2.97.0"), ("rocm7.1", "2.98.0")):
        (tmp_path / tag / "torch").mkdir(parents=True)
        name = f"torch-{version}%2B{tag}-{PYTHON}-{PYTHON}-manylinux_2_28_{MACHINE}.whl"
        (tmp_path / tag / "torch" / "index.html").write_text(f'<a href="/whl/{name}">{name}</a>')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(torch_source, "WHEELS", url)
    yield url
    server.shutdown()
    server.server_close()


def test_the_index_of_the_stack(index, monkeypatch):
    source = plan("auto", "cpu", None, TORCH)
    assert (source.label, source.arguments) == ("cpu", ("--index-url", f"{index}/cpu", TORCH))
    assert source.environment == {"PIP_EXTRA_INDEX_URL": f"{index}/cpu"}  # no other index beside it
    monkeypatch.setattr(torch_source, "cuda_tags", lambda: ["cu130", "cu128", "cu126"])
    assert plan("auto", "cuda", None, TORCH).label == "cu128"  # the driver's own tag is not there
    monkeypatch.setattr(torch_source, "cuda_tags", lambda: ["cu126"])
    assert plan("auto", "cuda", None, TORCH) is None  # too old there: the default index
    monkeypatch.setattr(torch_source, "rocm_tags", lambda: ["rocm7.2", "rocm7.1"])
    assert plan("auto", "rocm", None, TORCH).label == "rocm7.1"
    assert plan("pypi", "cuda", None, TORCH) is None
    with pytest.raises(SetupError, match=r"TORCH=cu126.*has no torch>=2.9"):
        plan("cu126", "cuda", None, TORCH)


def test_an_own_index(index):
    assert plan("auto", "cuda", f"{index}/cu128", TORCH).label == "cu128"
    assert plan("auto", "cpu", f"{index}/cpu/", TORCH).arguments[1] == f"{index}/cpu/"
    with pytest.raises(SetupError, match=r"has no torch .HTTP 404"):
        plan("auto", "cpu", f"{index}/nothing", TORCH)
    with pytest.raises(SetupError, match="no such folder, and no URL"):
        plan("auto", "cpu", "nonsense", TORCH)


def test_an_unreachable_index_goes_on_where_it_can(monkeypatch, capsys):
    monkeypatch.setattr(torch_source, "WHEELS", "http://127.0.0.1:1")
    assert plan("auto", "cpu", None, TORCH) is None
    assert plan("cpu", "cpu", None, TORCH) is None
    assert "unreachable (Connection refused)" in capsys.readouterr().out
    with pytest.raises(SetupError, match="no ROCm build"):
        plan("auto", "rocm", None, TORCH)
    with pytest.raises(SetupError, match=r"TORCH=cu130.*unreachable"):
        plan("cu130", "cuda", None, TORCH)


def test_an_index_that_never_answers(monkeypatch):
    monkeypatch.setattr(torch_index, "REACH_S", 0.1)
    monkeypatch.setattr(torch_index, "_fetch", lambda url: threading.Event().wait(20))
    version, trouble = torch_index.offered("http://127.0.0.1:1", TORCH)
    assert version is None
    assert trouble.startswith("unreachable (no answer")


def test_versions_on_a_page():
    tags = f"{PYTHON}-{PYTHON}-manylinux_2_28_{MACHINE}"
    names = [f"torch-{v}%2Bcpu-{tags}.whl" for v in ("2.10.0", "2.9.1", "2.8.0")]
    names += [f"torch-3.0.0-cp27-cp27m-linux_{MACHINE}.whl", f"torch-4.0-{PYTHON}-{PYTHON}-win_amd65.whl"]
    assert torch_index.wheel_versions("\n".join(names), TORCH) == ["2.9.1+cpu", "2.10.0+cpu"]


def test_wheels_of_a_folder(tmp_path):
    folder, work = tmp_path / "my wheels", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    assert local_wheel(TORCH, sys.executable, work, folder=str(folder)) is None
    fake_wheel(folder, "2.9.9+cu130", ["nvidia-cublas-cu13==1"])
    source = local_wheel(TORCH, sys.executable, work, folder=str(folder))
    assert source.label == "cu130"
    assert source.arguments[0].endswith("torch-2.9.9+cu130-py3-none-any.whl")


def test_cpu_builds_are_told_by_what_they_need(tmp_path):
    assert is_cpu_build(["sympy", "nvidia-ml-py; extra == 'x'"])
    for need in ("nvidia-cublas-cu13==1", "triton==3.8; platform_system == 'Linux'", "cuda-bindings>=13"):
        assert not is_cpu_build([need])
    assert wheel_needs(fake_wheel(tmp_path, needs=["sympy>=1"])) == ["sympy>=1"]
    broken = tmp_path / "torch-1.whl"
    broken.write_bytes(b"no zip")
    assert not is_cpu_build(wheel_needs(broken))


@pytest.mark.parametrize("word", ["auto", "keep", "pypi", "cpu", "cu126", "cu130", "rocm7.0", "rocm6.4.2"])
def test_words(word):
    check_torch_word(word)


@pytest.mark.parametrize("word", ["cu13", "gpu", "rocm7", "CPU ", "2.9", ""])
def test_words_that_are_none(word):
    with pytest.raises(SetupError, match=f"TORCH={word}: expected auto, keep"):
        check_torch_word(word)


def test_a_build_that_contradicts_the_device():
    with pytest.raises(SetupError, match="TORCH=cpu: a cpu build can't use DEVICE=cuda"):
        check_torch_word("cpu", "cuda", "cuda")
    check_torch_word("cpu", "cuda", "auto")
    check_torch_word("cu130", "cpu", "cpu")
    assert [kind_of_label(w) for w in ("cpu", "cu130", "rocm7.0", "keep")] == ["cpu", "cuda", "rocm", None]
