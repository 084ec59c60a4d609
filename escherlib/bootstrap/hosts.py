"""What the drivers of this host run: tags of PyTorch's wheel index, best first."""

import re
import subprocess
from pathlib import Path

from escherlib.bootstrap.console import SetupError

OLDEST_CUDA = (12, 6)  # no torch >= 2.9 is built for an older one; its wheels run on every 12.x driver
CUDA_OF_DRIVER = ((580, (13, 0)), (570, (12, 8)), (525, OLDEST_CUDA))
FIRST_WITHOUT_VOLTA = (12, 8)  # builds from here on carry no kernels below compute capability 7.5
VOLTA_END = (7, 5)
NEWEST_ROCM = (7, 9)  # where to begin looking when the host does not tell


def cuda_tags(root="/", smi=None):
    """cuNNN tags that the NVIDIA driver runs, newest first. SetupError where the driver is too old."""
    version = driver_cuda(root, smi)
    if version is None:
        return []
    if version < (12, 0):
        raise SetupError(
            f"the NVIDIA driver runs CUDA {version[0]}.{version[1]}, torch >= 2.9 needs 12.x; "
            "update the driver, or use DEVICE=cpu"
        )
    version = max(version, OLDEST_CUDA)
    found = [(major, minor) for major in range(version[0], 11, -1) for minor in range(9, -1, -1)]
    old = oldest_capability(smi)
    ceiling = FIRST_WITHOUT_VOLTA if old and old < VOLTA_END else (99, 0)
    return [
        f"cu{major}{minor}"
        for major, minor in found
        if OLDEST_CUDA <= (major, minor) <= version and (major, minor) < ceiling
    ]


def driver_cuda(root="/", smi=None):
    """CUDA version of the NVIDIA driver as (major, minor), or None."""
    found = re.search(r"CUDA[^:\n|]*Version\s*:\s*(\d+)\.(\d+)", (smi or _smi)())
    if found:
        return int(found[1]), int(found[2])
    driver = re.search(
        r"Kernel Module[^\d\n]*(?:for \S+\s+)?(\d+)\.\d+", _text(Path(root) / "proc/driver/nvidia/version")
    )
    if not driver:
        return None
    return next((cuda for floor, cuda in CUDA_OF_DRIVER if int(driver[1]) >= floor), (11, 0))


def oldest_capability(smi=None):
    """Lowest compute capability among the GPUs as (major, minor), or None."""
    text = (smi or _smi)("--query-gpu=compute_cap", "--format=csv,noheader")
    found = [tuple(map(int, line.split("."))) for line in text.split() if re.fullmatch(r"\d+\.\d", line)]
    return min(found, default=None)


def rocm_tags(root="/"):
    """rocmN.N tags to try: the installed version, older ones of its generation, newer ones.

    Wheels bring a runtime of their own, so the version is a preference and no condition.
    """
    found = re.match(r"(\d+)\.(\d+)", _text(Path(root) / "opt/rocm/.info/version"))
    major, minor = (int(found[1]), int(found[2])) if found else NEWEST_ROCM
    order = [*range(minor, -1, -1), *range(minor + 1, NEWEST_ROCM[1] + 1)]
    tags = [f"rocm{major}.{number}" for number in order]
    return (
        tags
        if major >= NEWEST_ROCM[0]
        else tags + [f"rocm{NEWEST_ROCM[0]}.{number}" for number in range(NEWEST_ROCM[1] + 1)]
    )


def _smi(*arguments):
    try:
        return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=15).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _text(path):
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
