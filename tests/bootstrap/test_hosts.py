"""Tags of the wheel index that a host's driver runs."""

import pytest

from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.hosts import cuda_tags, driver_cuda, rocm_tags


def smi(version, capability="9.0"):
    """A stand-in for nvidia-smi: its banner, and the answer to a query."""
    return lambda *arguments: (
        f"{capability}\n" if arguments else f"| Driver Version: 1.2  CUDA Version: {version} |"
    )


@pytest.mark.parametrize(
    "version, capability, first, last",
    [
        ("13.0", "9.0", "cu130", "cu126"), ("12.8", "9.0", "cu128", "cu126"),
        ("12.2", "8.0", "cu126", "cu126"),
        ("13.2", "10.0", "cu132", "cu126"), ("13.0", "7.0", "cu127", "cu126"),
    ],
)  # fmt: skip
def test_cuda_tags(version, capability, first, last):
    tags = cuda_tags(smi=smi(version, capability))
    assert (tags[0], tags[-1]) == (first, last)


def test_a_driver_that_is_too_old():
    with pytest.raises(SetupError, match=r"CUDA 11.8, torch >= 2.9 needs 12.x"):
        cuda_tags(smi=smi("11.8"))


@pytest.mark.parametrize(
    "banner, version",
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan", (12, 8)),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release", (13, 0)),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.10  Thu", (11, 0)),
        ("nothing", None),
    ],
)  # fmt: skip
def test_driver_version_without_tools(tmp_path, banner, version):
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(banner)
    assert driver_cuda(tmp_path, smi=lambda *_: "") == version


def test_rocm_tags_prefer_the_installed_version(tmp_path):
    (tmp_path / "opt/rocm/.info").mkdir(parents=True)
    version = tmp_path / "opt/rocm/.info/version"
    version.write_text("7.1.2-56\n")
    assert rocm_tags(tmp_path)[:3] == ["rocm7.1", "rocm7.0", "rocm7.2"]
    version.write_text("6.4.0-1")
    assert rocm_tags(tmp_path)[0] == "rocm6.4"
    assert "rocm7.0" in rocm_tags(tmp_path)
    assert rocm_tags(tmp_path / "nowhere")[0].startswith("rocm7.")
