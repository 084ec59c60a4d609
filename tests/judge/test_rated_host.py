"""Rated compute of CPU hosts by hand: FLOP per cycle × usable cores × base clock, and who has none."""

from pathlib import Path

import pytest

from escherlib.judge.roofs import rated_compute, rated_memory, read_roofs
from escherlib.parameters import load_devices
from escherlib.run.results import Results
from escherlib.schemas.hosts import on_host
from tests.judge.factory import peak

PROFILES = load_devices()
AMX = ["amx_bf16", "amx_int8", "amx_tile", "avx512_bf16", "avx512f"]
ZEN4 = ["avx512_bf16", "avx512_vnni", "avx512f"]


def host(cores, mhz, flags, how="cpufreq base_frequency", **more):
    return {"rated_cores": cores, "base_clock_mhz": mhz, "base_clock_how": how, "isa_flags": flags} | more


def run(profile, device, target=None, rows=()):
    device = {"kind": "cpu", "profile": profile, "peak_dtype": "bf16"} | device
    records = {"01_bf16_compute": {row.name: row for row in rows}}
    return Results(Path("run"), {"id": "run-1", "device": device}, records=records, target=target)


@pytest.mark.parametrize(
    "profile, device, dtype, tflops",
    [
        ("cpu_zen4", host(96, 2400, ZEN4), "bf16", 14.7456),  # 64 × 96 × 2.4
        ("cpu_zen4", host(96, 2400, ZEN4), "fp32", 7.3728),
        ("cpu_zen4", host(8, 2400, ZEN4), "bf16", 1.2288),  # eight cores of a larger part
        ("cpu_sapphire_rapids", host(112, 2000, AMX), "bf16", 229.376),  # 1024 × 112 × 2.0
        ("cpu_sapphire_rapids", host(112, 2000, AMX), "float32", 14.336),
        ("cpu_zen3", host(64, 2450, ["avx2", "fma"]), "fp32", 5.0176),
    ],
)
def test_rated_peaks(profile, device, dtype, tflops):
    value, why = rated_compute(run(profile, device), dtype)
    assert value == pytest.approx(tflops) and why is None


def test_the_basis_names_clock_and_cores():
    basis = run("cpu_zen4", host(96, 2400, ZEN4)).profile.rated_basis
    assert basis == "FLOP per cycle and core × 96 usable cores × 2400 MHz (cpufreq base_frequency)"
    guest = run("cpu_zen4", host(2, 2400, ZEN4, virtual_machine=True)).profile.rated_basis
    assert "2 usable cores as the virtual machine shows them" in guest


@pytest.mark.parametrize(
    "profile, device, why",
    [
        ("cpu_zen3", host(64, 2450, ["avx2", "fma"]), "cores of cpu_zen3 have no native bf16"),
        ("cpu_zen3", host(64, None, [], how="hidden"), "cores of cpu_zen3 have no native bf16"),
        ("cpu_zen4", host(2, None, ZEN4, how="the clock of this host is hidden"), "the clock of this host is hidden"),
        ("cpu_zen4", host(None, 2400, ZEN4), "the number of cores that may be used is not known"),
        ("cpu_zen4", {}, "this run does not record the clock of its CPU"),
        ("cpu_zen4", host(8, 2400, ["avx512f"]), "this host does not show avx512_bf16"),
        ("cpu_sapphire_rapids", host(8, 2000, ["avx512_bf16", "avx512f"]), "this host does not show amx_bf16"),
        ("cpu_generic", host(8, 2000, ["avx2"]), "the profile cpu_generic states no bf16 rate"),
    ],
)
def test_a_host_without_a_rated_peak_says_why(profile, device, why):
    assert rated_compute(run(profile, device), "bf16") == (None, f"no rated value: {why}")


def test_a_rate_whose_instructions_are_hidden_is_left_out_alone():
    found = run("cpu_zen4", host(10, 2000, ["avx512f"])).profile
    assert found.rated_tflops("fp32") == pytest.approx(0.64) and found.rated_tflops("bf16") is None


def test_no_profile_no_figure_and_a_forced_profile_is_no_host():
    assert rated_compute(run(None, host(8, 2000, AMX)), "bf16")[1] == "no rated value: the device has no profile"
    forced = run("cpu_zen4", host(96, 2400, ZEN4), target="cpu_zen5")
    assert forced.profile.rated_tflops("bf16") is None
    assert run("cpu_zen4", host(96, 2400, ZEN4), target="cpu_zen4").profile.rated_tflops("bf16") == pytest.approx(14.7456)
    gpu = PROFILES["h200_sxm"]
    assert on_host(gpu, host(8, 2000, AMX)) is gpu


def test_memory_of_a_cpu_host_is_not_rated():
    value, why = rated_memory(run("cpu_zen4", host(96, 2400, ZEN4)))
    assert value is None and "memory channels of this host" in why


def test_roofs_of_a_cpu_run_hold_its_rated_peak():
    roofs = read_roofs(run("cpu_zen4", host(96, 2400, ZEN4), rows=[peak(10.0, 9.0)]))
    assert roofs.rated_tflops == pytest.approx(14.7456) and roofs.burst.rated_pct == pytest.approx(67.8168, rel=1e-4)
    assert roofs.rated_memory_gb_s is None and "rated_tflops" not in roofs.reasons
