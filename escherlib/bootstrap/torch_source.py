"""Which build of torch, and from where: exactly one place, so that nothing replaces the build that fits."""

import json
import os
import platform
import re
import shutil
import urllib.parse
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from escherlib.bootstrap.console import SetupError, run_logged, say
from escherlib.bootstrap.hosts import cuda_tags, rocm_tags
from escherlib.bootstrap.pip import pip, pip_environment
from escherlib.bootstrap.torch_index import REACH_S, WHEELS, offered

TORCH_WORDS = r"auto|keep|pypi|cpu|cu\d{3}|rocm\d+\.\d+(\.\d+)?"


@dataclass(frozen=True)
class Source:
    """Where torch comes from. label: the stack; arguments: pip install's; said: what the user reads."""

    label: str
    arguments: tuple
    said: str
    index: str | None = None
    environment: dict = field(default_factory=dict)


def check_torch_word(word, kind=None, asked="auto"):
    """Refuse a TORCH value that is no known word, or that contradicts a DEVICE that was asked for."""
    if not re.fullmatch(TORCH_WORDS, word):
        raise SetupError(
            f"TORCH={word}: expected auto, keep, pypi, cpu, cuNNN (say cu130) or rocmN.N (say rocm7.0)"
        )
    means = kind_of_label(word)
    if asked != "auto" and kind in ("cuda", "rocm") and means not in (None, kind):
        raise SetupError(
            f"TORCH={word}: a {means} build can't use DEVICE={asked}, which needs {kind}; leave TORCH out"
        )


def kind_of_label(label):
    """cu130 → cuda, rocm7.0 → rocm, cpu → cpu; None where the word does not tell."""
    return next(
        (
            kind
            for start, kind in (("cpu", "cpu"), ("cu", "cuda"), ("rocm", "rocm"))
            if label.startswith(start)
        ),
        None,
    )


def plan(torch, kind, index_url, requirement):
    """The index that torch comes from, found with nothing installed yet; None where pip must look (`search`).

    torch: value of TORCH except keep; kind: what the device needs; requirement: `torch>=…`. SetupError where
    nothing fits.
    """
    if index_url:
        return _given_index(index_url, torch, requirement)
    if torch == "pypi":
        return None
    if torch == "auto" and kind == "cuda":
        return _first_offered(cuda_tags(), requirement)
    if torch == "auto" and kind == "rocm":
        found = _first_offered(rocm_tags(), requirement)
        if not found:
            raise SetupError(
                f"no ROCm build of {requirement} for this Python can be reached ({WHEELS}); use a ROCm "
                "container with VENV=none, TORCH_INDEX_URL=, or DEVICE=cpu"
            )
        return found
    tag = "cpu" if torch == "auto" else torch
    version, trouble = offered(f"{WHEELS}/{tag}", requirement)
    if version:
        return _index(f"{WHEELS}/{tag}", tag, requirement, f"PyTorch's {tag} index")
    if tag != "cpu":
        raise SetupError(f"TORCH={torch}: {WHEELS}/{torch} {trouble}; use TORCH=auto, or TORCH_INDEX_URL=")
    say(f"  PyTorch's CPU index {trouble}; looking elsewhere")
    return None


def search(torch, kind, index_url, requirement, python, work):
    """torch from a folder of wheels or the default index, by the environment's pip. work: scratch folder."""
    if index_url:
        found = local_wheel(requirement, python, work, folder=index_url)
        if not found:
            raise SetupError(
                f"TORCH_INDEX_URL={index_url}: the folder has no wheel of {requirement} for this Python"
            )
        return found
    if torch == "pypi" or kind != "cpu":
        return default_index(requirement, python, work)
    return local_wheel(requirement, python, work) or default_index(
        requirement, python, work, cpu_only=torch == "cpu"
    )


def _given_index(url, torch, requirement):
    if is_folder_of_wheels(url):
        return None
    if "://" not in url:
        raise SetupError(
            f"TORCH_INDEX_URL={url}: no such folder, and no URL; expected https://… or a folder of wheels"
        )
    if not url.startswith("file:"):
        _, trouble = offered(url, requirement, look_inside=False)
        if trouble:
            raise SetupError(f"TORCH_INDEX_URL={url}: {trouble}")
    last = url.rstrip("/").rsplit("/", 1)[-1]
    label = (
        torch
        if torch != "auto"
        else last
        if kind_of_label(last) and re.fullmatch(TORCH_WORDS, last)
        else "index"
    )
    return _index(url, label, requirement, "TORCH_INDEX_URL")


def is_folder_of_wheels(url):
    """A folder on this machine that is no index (an index has a subfolder for each package)."""
    folder = _folder(url)
    return folder.is_dir() and not (folder / "torch").is_dir()


def _folder(url):
    return Path(urllib.parse.unquote(url.removeprefix("file://"))).expanduser()


def _first_offered(tags, requirement):
    for tag in tags:
        version, trouble = offered(f"{WHEELS}/{tag}", requirement)
        if version:
            return _index(f"{WHEELS}/{tag}", tag, requirement, f"PyTorch's {tag} index")
        if trouble.startswith("unreachable"):
            say(f"  PyTorch's wheel index: {trouble}")
            break
    return None


def _index(url, label, requirement, said):
    # Whatever pip's configuration adds (other indexes, folders of wheels) must not offer a second torch.
    return Source(label, ("--index-url", url, requirement), said, url, {"PIP_EXTRA_INDEX_URL": url})


def local_wheel(requirement, python, work, folder=None):
    """A wheel of the given folder, else a CPU wheel of pip's own folders (find-links), else None."""
    place = Path(work) / "wheel"
    shutil.rmtree(place, ignore_errors=True)
    links = {"PIP_FIND_LINKS": _folder(folder).resolve().as_uri()} if folder else {}
    command = pip(python, "download", "--quiet", "--no-deps", "--no-index", requirement, "--dest", place)
    code, _ = run_logged(command, Path(work) / "setup.log", pip_environment(work, **links))
    wheels = sorted(place.glob("torch-*.whl")) if code == 0 else []
    if not wheels or not (folder or is_cpu_build(wheel_needs(wheels[-1]))):
        shutil.rmtree(place, ignore_errors=True)
        return None
    version = wheels[-1].name.split("-")[1]
    label = version.partition("+")[2] or ("wheel" if folder else "cpu")
    return Source(label, (str(wheels[-1]),), f"torch {version}, a local wheel", folder, links)


def wheel_needs(path):
    """Requires-Dist lines of a wheel."""
    try:
        with zipfile.ZipFile(path) as wheel:
            name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            text = wheel.read(name).decode(errors="replace")
    except (OSError, StopIteration, zipfile.BadZipFile):
        return ["nvidia-unreadable"]  # what can't be read is not taken for a CPU build
    return re.findall(r"^Requires-Dist: *(.+)$", text, re.MULTILINE)


def is_cpu_build(needs):
    """Whether a torch wheel that needs these is a CPU build: GPU builds need vendor libraries, triton."""
    return not any(
        re.match(r"(nvidia|cuda|triton|pytorch-triton|rocm)", need) and "extra ==" not in need
        for need in needs
    )


def default_index(requirement, python, work, cpu_only=False):
    """torch from pip's default index: often a CUDA build of several GB, so its size is said first."""
    report = Path(work) / "torch.json"
    command = pip(
        python, "install", "--quiet", "--dry-run", "--ignore-installed", "--report", report, requirement
    )
    code, output = run_logged(command, Path(work) / "setup.log", pip_environment(work))
    if code != 0:
        raise SetupError(
            f"no {requirement} can be reached for Python {platform.python_version()} ({_reason(output)}); "
            "offline: VENV=none with an interpreter that has it, or TORCH_INDEX_URL=<folder of wheels>"
        )
    items = json.loads(report.read_text())["install"]
    torch = next(item["metadata"] for item in items if item["metadata"]["name"].lower() == "torch")
    cpu = is_cpu_build(torch.get("requires_dist", ()))
    if cpu_only and not cpu:
        raise SetupError(
            "TORCH=cpu: no CPU build can be reached; TORCH=auto takes a CUDA build, which runs on CPUs too"
        )
    size = total_size([item["download_info"]["url"] for item in items])
    build = "CPU build" if cpu else "CUDA build"
    amount = f"{size / 1e9:.1f} GB" if size else "several GB" if not cpu else "size unknown"
    say(f"  torch {torch['version']} from the default index: {build}, {len(items)} packages, {amount}")
    _check_room(work, size)
    return Source(
        "cpu" if cpu else "pypi", (f"torch=={torch['version']}",), f"torch {torch['version']}, {build}"
    )


def total_size(urls):
    """Bytes of all files, or None where one does not tell (best effort, a few seconds)."""
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(_size, urls))
    return sum(sizes) if all(sizes) else None


def _size(url):
    try:
        if url.startswith("file:"):
            return os.path.getsize(urllib.request.url2pathname(urllib.parse.urlparse(url).path))
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=REACH_S) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def _check_room(work, size):
    free = shutil.disk_usage(work).free
    if size and free < 2 * size:  # wheels unpack to about twice their size
        raise SetupError(
            f"{work}: {free / 1e9:.1f} GB free, torch needs about {2 * size / 1e9:.0f} GB; "
            "give VENV=<a folder elsewhere>"
        )


def _reason(output):
    lines = [line for line in output.splitlines() if "ERROR" in line]
    return lines[-1].removeprefix("ERROR: ").strip()[:160] if lines else "pip failed"
