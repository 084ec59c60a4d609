"""DEVICE before anything is installed."""

import pytest

from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.devices import check_device, detect_kind, read_profiles
from escherlib.hardware.identify import DeviceFacts
from escherlib.parameters import load_devices

CPU = DeviceFacts(kind="cpu", name="AMD EPYC 9654", vendor="AMD")
H200 = DeviceFacts(kind="gpu", name="NVIDIA H200", vendor="NVIDIA")
MI355X = DeviceFacts(kind="gpu", name="AMD Instinct MI355X", vendor="AMD")
ODD = DeviceFacts(kind="gpu", name="NVIDIA Quux 9", vendor="NVIDIA")


def test_profiles_are_read_without_a_yaml_parser_as_with_one():
    bare, full = read_profiles(), load_devices()
    assert list(bare) == list(full)
    for name, profile in full.items():
        found = bare[name]
        assert (found.display_name, found.vendor, found.device_class) == (
            profile.display_name, profile.vendor, profile.device_class,
        )  # fmt: skip


@pytest.mark.parametrize(
    "spec, facts, kind",
    [
        ("cpu", [CPU], "cpu"), ("CPU_generic", [H200, CPU], "cpu"), ("cpu_zen4", [CPU], "cpu"),
        ("cuda", [H200, CPU], "cuda"), ("rocm", [MI355X, CPU], "rocm"), ("mi355x", [MI355X, CPU], "rocm"),
        ("MI355X", [MI355X, CPU], "rocm"), ("h200", [H200, CPU], "cuda"), ("h200_sxm", [H200, CPU], "cuda"),
        ("quux", [ODD, CPU], "cuda"), ("*quux*", [ODD, CPU], "cuda"),
        ("h100", [H200, CPU], "cuda"),  # the right vendor: which card it is, the CLI will say
    ],
)  # fmt: skip
def test_devices_that_may_be(spec, facts, kind):
    assert check_device(spec, facts=facts) == kind


@pytest.mark.parametrize(
    "spec, facts, message",
    [
        ("mi355x", [CPU], "no such device .found: no GPU; CPU AMD EPYC 9654"),
        ("h200_sxm", [CPU], "no such device"), ("h100", [MI355X, CPU], "no such device .found: AMD Instinct"),
        ("cuda", [MI355X, CPU], "no NVIDIA GPU"), ("rocm", [CPU], "no AMD GPU"),
        ("foo", [CPU], "unknown device; expected auto, cpu.*mi355x"), ("quux", [CPU], "unknown device"),
        ("", [CPU], "empty"), ("../x", [H200, CPU], "unknown device"), ("x\ny'\"", [CPU], "unknown device"),
    ],
)  # fmt: skip
def test_devices_that_cannot_be(spec, facts, message):
    with pytest.raises(SetupError, match=message):
        check_device(spec, facts=facts)


def test_own_profiles_of_a_params_folder(tmp_path):
    (tmp_path / "devices.yaml").write_text(
        "profiles:\n\n  mine:  # ours\n    display_name: 'My GPU'\n    vendor: AMD\n"
        "    device_class: gpu\nother:\n  no:\n"
    )
    assert list(read_profiles(tmp_path)) == ["mine"]
    assert check_device("mine", tmp_path, [MI355X]) == "rocm"
    (tmp_path / "devices.yaml").write_text("]broken")
    assert read_profiles(tmp_path) == {}
    assert (
        check_device("mi355x", tmp_path, [MI355X, CPU]) == "rocm"
    )  # by its name; the CLI names the broken file


def test_kind_by_device_files(tmp_path):
    assert detect_kind(tmp_path) == "cpu"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert detect_kind(tmp_path) == "rocm"
    (tmp_path / "dev/nvidia0").touch()
    assert detect_kind(tmp_path) == "cuda"
