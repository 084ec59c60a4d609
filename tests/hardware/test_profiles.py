"""DEVICE and TARGET: words that mean a device of this host, or a profile."""

import pytest

from escherlib.errors import UserError
from escherlib.hardware.identify import DeviceFacts
from escherlib.hardware.profiles import candidates, resolve_device, resolve_target
from escherlib.parameters import load_devices

PROFILES = load_devices()
CPU = DeviceFacts(kind="cpu", name="AMD EPYC 9654 96-Core Processor", vendor="AMD", compute_units=2)
ODD_CPU = DeviceFacts(kind="cpu", name="AMD EPYC", vendor="AMD", compute_units=2)
H200 = DeviceFacts(kind="gpu", name="NVIDIA H200", vendor="NVIDIA")
H100 = DeviceFacts(kind="gpu", name="NVIDIA H100 80GB HBM3", vendor="NVIDIA")
H100_PCIE = DeviceFacts(kind="gpu", name="NVIDIA H100 PCIe", vendor="NVIDIA")
MI250X = DeviceFacts(kind="gpu", name="AMD Instinct MI250X / MI250", vendor="AMD", compute_units=110)
RX = DeviceFacts(kind="gpu", name="AMD Radeon RX 9070 XT", vendor="AMD")


def pick(spec, *facts):
    return resolve_device(spec, list(facts), PROFILES)


def test_auto_takes_the_first_gpu_else_the_cpu():
    assert pick("auto", H200, H100, CPU) == (0, "h200_sxm")
    assert pick("auto", CPU, RX) == (0, None)
    assert pick("auto", CPU) == (None, "cpu_zen4")
    assert pick("auto", ODD_CPU) == (None, None)
    assert pick("auto") == (None, None)


def test_stacks():
    assert pick("cpu", H200, CPU) == (None, "cpu_zen4") == pick(" CPU ", CPU) == pick("cpu_generic", CPU)
    assert pick("cuda", MI250X, H200, CPU) == (1, "h200_sxm")
    assert pick("rocm", H200, MI250X, CPU) == (1, "mi250x_gcd")
    with pytest.raises(
        UserError, match=r"DEVICE=rocm: no AMD GPU on this host \(found: NVIDIA H200; CPU AMD EPYC"
    ):
        pick("rocm", H200, CPU)


def test_ids_aliases_and_patterns():
    assert pick("h200_sxm", H100, H200, CPU) == (1, "h200_sxm")
    assert pick("h100", H200, H100_PCIE, CPU) == (1, "h100_pcie")
    assert pick("mi250x", MI250X) == (0, "mi250x_gcd")
    assert pick("*mi250x*", CPU, MI250X) == (0, "mi250x_gcd")
    assert pick("Instinct MI250X", MI250X) == (0, "mi250x_gcd")
    assert pick("9070", CPU, RX) == (0, None)
    assert pick("cpu_zen4", H200, CPU) == (None, "cpu_zen4")


def test_several_kinds_that_fit_are_listed():
    with pytest.raises(
        UserError, match="DEVICE=h100: fits several devices of this host; choose one of h100_sxm, h100_pcie"
    ):
        pick("h100", H100, H100_PCIE)
    assert pick("h100", H100, H100) == (0, "h100_sxm")


def test_what_is_not_here_says_what_is():
    with pytest.raises(UserError) as caught:
        pick("mi355x", ODD_CPU)
    assert str(caught.value) == (
        "DEVICE=mi355x: this host has no such device (found: CPU AMD EPYC, 2 cores); "
        "connect to a host that has one, or use DEVICE=auto"
    )
    with pytest.raises(
        UserError, match=r"DEVICE=h100 \(h100_sxm, h100_pcie, h100_nvl\): this host has no such device"
    ):
        pick("h100", H200, CPU)
    with pytest.raises(UserError, match="found nothing"):
        pick("mi355x")


@pytest.mark.parametrize("spec", ["bogus", "mi999x", "a", "h", "mi355x;ls", "[", "x" * 5000])
def test_unknown_words_list_the_ids(spec):
    with pytest.raises(UserError, match="unknown device; expected auto.*mi355x, mi350x"):
        pick(spec, CPU)


@pytest.mark.parametrize("spec", ["", "  ", None])
def test_an_empty_word(spec):
    with pytest.raises(UserError, match="empty"):
        pick(spec, CPU)


def test_a_part_of_a_device_is_not_that_device():
    mig = DeviceFacts(kind="gpu", name="NVIDIA H100 80GB HBM3", vendor="NVIDIA", partition="MIG")
    with pytest.raises(UserError, match="no such device"):
        pick("h100_sxm", mig, CPU)
    assert pick("auto", mig) == (0, None)


def test_targets():
    assert resolve_target("h200_sxm", PROFILES) == "h200_sxm"
    assert resolve_target("MI300X", PROFILES) == "mi300x"
    assert resolve_target("h100", PROFILES, detected="h100_nvl") == "h100_nvl"
    with pytest.raises(
        UserError, match="TARGET=h100: means several profiles; choose one of h100_sxm, h100_pcie, h100_nvl"
    ):
        resolve_target("h100", PROFILES, detected="h200_sxm")
    with pytest.raises(UserError, match="TARGET=zx81: unknown device"):
        resolve_target("zx81", PROFILES)


def test_families_are_the_first_part_of_an_id():
    assert candidates("v100", PROFILES) == [
        "v100_sxm2_16gb",
        "v100_sxm2_32gb",
        "v100_pcie_16gb",
        "v100_pcie_32gb",
    ]
    assert candidates("h200", PROFILES) == ["h200_sxm", "h200_nvl"]
    assert len(candidates("a100", PROFILES)) == 4 and candidates("mi300", PROFILES) == ["mi300x", "mi300a"]
