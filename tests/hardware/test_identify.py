"""From facts to a profile, and to none where a fact says otherwise."""

import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escherlib.errors import UserError
from escherlib.hardware.identify import (
    DeviceFacts,
    contradictions,
    identify,
    identify_command,
    name_words,
    normal_arch,
    normal_pci_id,
)
from escherlib.hardware.profiles import profile_for
from escherlib.parameters import load_devices, load_identification
from tests.hardware.names import NAMES

PROFILES = load_devices()
GPU_NAMES = [(name, profile) for name, profile in NAMES if profile and not profile.startswith("cpu_")]


def found(**facts):
    return identify(DeviceFacts(**facts), PROFILES)


@pytest.mark.parametrize("name, profile", NAMES)
def test_names(name, profile):
    result = found(name=name)
    assert result.profile_id == profile, result
    assert profile is not None or result.notes[0].startswith("no rated value: ")


@pytest.mark.parametrize("name, profile", NAMES)
def test_names_survive_odd_spelling(name, profile):
    for odd in (
        name.upper(),
        name.lower(),
        f"  {name.replace(' ', '   ')}\0\0\0",
        name.replace("-", "_"),
        name.replace("Instinct", "Instinct(TM)").replace("NVIDIA", "NVIDIA®").replace("EPYC", "EPYC™"),
    ):
        assert found(name=odd).profile_id == profile, odd


@pytest.mark.parametrize(
    "pci_id, profile",
    [
        ("1002:75a3", "mi355x"),
        ("1002:75b3", "mi355x"),
        ("1002:75a0", "mi350x"),
        ("1002:75a8", None),
        ("1002:74a5", "mi325x"),
        ("1002:74b9", "mi325x"),
        ("1002:74a1", "mi300x"),
        ("1002:74a9", "mi300x"),
        ("1002:74b5", "mi300x"),
        ("1002:74a2", None),
        ("1002:74a8", None),
        ("1002:74a0", "mi300a"),
        ("1002:7408", "mi250x_gcd"),
        ("1002:740c", "mi250x_gcd"),
        ("1002:740f", "mi210"),
        ("1002:7551", None),
        ("10de:2901", "b200"),
        ("10de:2941", "gb200"),
        ("10de:31c2", "gb300"),
        ("10de:2335", "h200_sxm"),
        ("10de:233b", "h200_nvl"),
        ("10de:2330", "h100_sxm"),
        ("10de:2331", "h100_pcie"),
        ("10de:2321", "h100_nvl"),
        ("10de:2339", "h100_sxm"),
        ("10de:2342", "gh200_96gb"),
        ("10de:2348", "gh200_144gb"),
        ("10de:26b9", "l40s"),
        ("10de:26b5", None),
        ("10de:20b2", "a100_sxm_80gb"),
        ("10de:20b5", "a100_pcie_80gb"),
        ("10de:20b3", None),
        ("10de:20f3", None),
        ("10de:2322", None),
        ("10de:2324", None),
        ("10de:232c", None),
        ("10de:ffff", None),
        ("8086:75a3", None),
    ],
)
def test_pci_ids_alone(pci_id, profile):
    assert found(pci_id=pci_id).profile_id == profile


def test_no_pci_id_stands_for_two_rules_without_conditions():
    seen = set()
    for rule in load_identification().pci_rules:
        free = not any((rule.compute_units, rule.memory_gib, rule.pci_revision, rule.unknown))
        for one in rule.ids:
            assert one not in seen, f"{one}: a rule after one without conditions is never reached"
            seen |= {one} if free else set()


@pytest.mark.parametrize("name, profile", GPU_NAMES)
def test_the_pci_id_comes_before_the_name(name, profile):
    result = found(name=name, pci_id="1002:75a3")
    if PROFILES[profile].vendor == "AMD":
        assert result.profile_id == "mi355x" and result.how == "pci id"
        assert profile == "mi355x" or any(f"the name says {profile}" in note for note in result.notes)


def test_generic_name_is_settled_by_the_pci_id():
    result = found(name="AMD Radeon Graphics", arch="gfx950", memory_gib=288, pci_id="1002:75a3")
    assert (result.profile_id, result.how) == ("mi355x", "pci id")


@pytest.mark.parametrize(
    "facts, reason",
    [
        ({"name": "AMD Instinct MI300X", "compute_units": 80}, "MI308X"),
        ({"name": "AMD Instinct MI300X", "pci_id": "1002:74a2"}, "MI308X"),
        ({"name": "AMD Instinct MI308X", "pci_id": "1002:74a1"}, "MI308X"),
        ({"name": "AMD Instinct MI300X", "compute_units": 38}, "CPX"),
        ({"name": "AMD Instinct MI300X", "compute_units": 152}, "1/2"),
        ({"name": "AMD Instinct MI355X", "pci_id": "1002:75a3", "compute_units": 32}, "1/8"),
        ({"name": "AMD Instinct MI300X", "memory_gib": 256}, "256 GiB"),
        ({"name": "AMD Instinct MI300X", "arch": "gfx90a"}, "gfx90a"),
        ({"name": "AMD Instinct MI350X", "power_cap_w": 1400}, "1400 W"),
        ({"name": "AMD Instinct MI350X", "clock_mhz": 2400}, "2400 MHz"),
        ({"name": "A100-SXM4-40GB", "memory_gib": 80}, "80 GiB"),
        ({"name": "NVIDIA A100-SXM4-80GB", "memory_gib": 63.5}, "63.5 GiB"),
        ({"name": "NVIDIA H100 80GB HBM3", "compute_units": 114}, "114 SM"),
        ({"name": "NVIDIA H100 80GB HBM3", "memory_gib": 93.6}, "93.6 GiB"),
        ({"name": "NVIDIA H100", "memory_gib": 63.6}, "no variant"),
        ({"name": "NVIDIA H100 PCIe", "power_cap_w": 700}, "700 W"),
        ({"name": "NVIDIA H200", "arch": "9.0", "vendor": "AMD"}, "vendor"),
        ({"name": "NVIDIA H200", "pci_id": "1002:75a3"}, None),
        ({"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "pci_id": "10de:2330"}, "slice"),
        ({"name": "NVIDIA H100 80GB HBM3", "pci_id": "10de:2330", "partition": "MIG"}, "MIG"),
        ({"name": "NVIDIA H100 80GB HBM3", "compute_units": 66}, "1/2"),
        ({"name": "AMD Instinct MI300X", "partition": "CPX"}, "CPX"),
        ({"name": "NVIDIA A100-SXM-64GB", "memory_gib": 64}, "64 GB"),
    ],
)
def test_a_contradicting_fact_beats_the_name(facts, reason):
    result = found(**facts)
    if reason is None:  # an AMD id with an NVIDIA name: the id decides, and nothing contradicts it
        assert result.profile_id == "mi355x" and "the name says h200_sxm" in result.notes[0]
        return
    assert result.profile_id is None and reason in result.notes[0], result


@pytest.mark.parametrize(
    "facts, profile",
    [
        ({"name": "AMD Instinct MI250X / MI250", "compute_units": 104, "memory_gib": 64}, "mi250_gcd"),
        ({"name": "AMD Instinct MI250X / MI250", "compute_units": 110, "memory_gib": 63.98}, "mi250x_gcd"),
        ({"name": "AMD Instinct MI250", "compute_units": 110}, "mi250x_gcd"),
        ({"pci_id": "1002:740c", "compute_units": 104}, "mi250_gcd"),
        ({"name": "NVIDIA GH200 480GB", "memory_gib": 95.58}, "gh200_96gb"),
        ({"name": "NVIDIA GH200 480GB", "memory_gib": 142.5}, "gh200_144gb"),
        ({"name": "NVIDIA Graphics Device", "pci_id": "10de:233f", "memory_gib": 95830 / 1024}, "h100_nvl"),
        ({"name": "NVIDIA Graphics Device", "pci_id": "10de:233f"}, None),
        (
            {"name": "AMD Radeon AI PRO R9700", "compute_units": 32, "memory_gib": 31.86, "arch": "gfx1201"},
            "r9700",
        ),
        ({"name": "AMD Radeon Graphics", "pci_id": "1002:7551", "pci_revision": "c0"}, "r9700"),
        (
            {"name": "AMD Radeon Graphics", "pci_id": "1002:7551", "memory_gib": 31.9, "compute_units": 64},
            "r9700",
        ),
        ({"name": "AMD Radeon Graphics", "pci_id": "1002:7551", "memory_gib": 15.9}, None),
        ({"name": "AMD Radeon AI PRO R9600D", "pci_id": "1002:7551", "memory_gib": 31.9}, None),
        ({"name": "AMD Radeon Graphics", "arch": "gfx1201", "memory_gib": 31.9}, "r9700"),
        ({"name": "AMD Radeon Graphics", "arch": "gfx1201", "memory_gib": 15.9}, None),
        ({"name": "AMD Radeon Graphics", "arch": "gfx1100", "memory_gib": 24}, None),
        ({"arch": "gfx950:sramecc+:xnack-", "power_cap_w": 1400}, "mi355x"),
        ({"arch": "gfx950", "clock_mhz": 2400}, "mi355x"),
        ({"arch": "gfx950", "clock_mhz": 2200, "power_cap_w": 1000}, "mi350x"),
        ({"arch": "gfx950", "clock_mhz": 2200, "power_cap_w": 1400}, None),
        ({"arch": "gfx950", "memory_gib": 288}, None),
        ({"arch": "gfx942:sramecc+:xnack-", "compute_units": 304, "memory_gib": 191.98}, "mi300x"),
        ({"arch": "gfx942", "compute_units": 304, "memory_gib": 255.7}, "mi325x"),
        ({"arch": "gfx942", "compute_units": 228, "memory_gib": 100}, "mi300a"),
        ({"arch": "gfx942", "compute_units": 38, "memory_gib": 191.98}, None),
        ({"arch": "gfx942", "compute_units": 80}, None),
        ({"arch": "gfx942", "memory_gib": 191.98}, None),
        ({"arch": "gfx90a", "compute_units": 110}, "mi250x_gcd"),
        ({"arch": "gfx90a", "compute_units": 104, "power_cap_w": 300}, "mi210"),
        ({"arch": "gfx90a", "compute_units": 104, "power_cap_w": 560}, "mi250_gcd"),
        ({"arch": "gfx90a", "compute_units": 104}, None),
        ({"arch": "sm_90", "compute_units": 132, "memory_gib": 79.6}, None),  # an H800 looks the same
        ({"name": "AMD Instinct MI309X", "arch": "gfx942", "compute_units": 304, "memory_gib": 192}, None),
        ({"name": "AMD Instinct MI300A", "memory_gib": 90}, "mi300a"),
        ({"name": "NVIDIA L40S", "memory_gib": 44.99, "arch": "8.9"}, "l40s"),
    ],
)
def test_facts_tell_variants_apart(facts, profile):
    assert found(**facts).profile_id == profile


def test_reported_memory_of_every_profile_fits_it():
    rules = load_identification()
    for profile in PROFILES.values():
        for memory in (profile.memory_reported_gib, profile.memory_capacity_gb):
            facts = DeviceFacts(memory_gib=memory, compute_units=profile.compute_units, arch=profile.arch)
            neutral = next(
                rule for rule in rules.name_rules if not rule.compute_units and not rule.memory_gib
            )
            if profile.device_class == "gpu":
                assert contradictions(facts, profile, neutral, rules) == [], profile.id


def test_virtual_functions_map_to_their_device_with_a_note():
    for facts in ({"name": "AMD Instinct MI300X VF"}, {"pci_id": "1002:74b5"}):
        result = found(**facts)
        assert result.profile_id == "mi300x" and any("virtual function" in note for note in result.notes)
    assert found(name="AMD Instinct MI300X").notes == ()


def test_an_h100_with_other_memory_keeps_compute_and_loses_rated_memory():
    for facts in (
        {"name": "NVIDIA H100", "memory_gib": 93.6},
        {"name": "NVIDIA H100"},
        {"pci_id": "10de:2339"},
    ):
        result = found(**facts)
        assert (result.profile_id, result.withheld) == ("h100_sxm", ("memory",))
        profile = profile_for(result, PROFILES)
        assert profile.rated_tflops("bf16") == 989.4 and profile.memory_bandwidth_gb_s is None
    assert found(name="NVIDIA H100", memory_gib=79.6).withheld == ()


def test_cpus_by_family_and_model_only_where_the_name_says_nothing():
    flags = frozenset({"avx2", "avx512f", "avx512_bf16"})
    zen4 = {"kind": "cpu", "vendor": "AMD", "cpu_family": 25, "cpu_model": 17}
    assert found(name="AMD EPYC", cpu_flags=flags, **zen4).profile_id == "cpu_zen4"
    assert found(name="AMD EPYC Processor", **zen4).profile_id == "cpu_zen4"
    assert found(name="AMD EPYC-Rome Processor", **zen4).profile_id is None
    assert found(name="", **zen4).profile_id is None
    hidden = found(name="AMD EPYC 9654 96-Core Processor", kind="cpu", cpu_flags=frozenset({"avx2"}))
    assert hidden.profile_id is None and "avx512_bf16" in hidden.notes[0]
    assert found(name="AMD EPYC 8324P 32-Core Processor").withheld == ("memory",)
    assert found(name="ARMv8 Processor", kind="cpu").profile_id is None
    assert not any(
        result.profile_id == "cpu_generic" for result in [found(name=""), found(name="", kind="cpu")]
    )


@pytest.mark.parametrize(
    "text, expected",
    [
        ("gfx950:sramecc+:xnack-", "gfx950"),
        ("GFX90A", "gfx90a"),
        ("9.0", "sm_90"),
        ("90", "sm_90"),
        ("sm_90a", "sm_90"),
        ("compute_100", "sm_100"),
        ("10.3", "sm_103"),
        ("", None),
        (None, None),
        ("x86_64", "x86_64"),
    ],
)
def test_normal_arch(text, expected):
    assert normal_arch(text) == expected


@pytest.mark.parametrize(
    "text", ["0x75a3", "75A3", "1002:75a3", "0x1002:0x75A3", " 1002:75a3 ", "0x75a31002"]
)
def test_pci_id_spellings(text):
    assert normal_pci_id(text, "AMD") == "1002:75a3"
    assert identify_command(pci_id=text)["profile"] == "mi355x"


@pytest.mark.parametrize("text", ["", "xyz", "1002:", ":75a3", "0x", "75a3f", "1:2:3", "-75a3", "75 a3"])
def test_bad_pci_ids(text):
    with pytest.raises(UserError, match="--pci-id"):
        identify_command(pci_id=text)


def test_command_output_is_complete_and_plain():
    result = identify_command(name="AMD Instinct MI355X", memory_gib=288.0, compute_units=256)
    assert result["profile"] == "mi355x" and result["how"] == "name" and result["notes"] == []
    assert result["rated"]["bf16_tflops"] == 2516.6 and result["display_name"] == "AMD Instinct MI355X"
    assert result["facts"] == {"name": "AMD Instinct MI355X", "memory_gib": 288.0, "compute_units": 256}
    nothing = identify_command(name="no such thing")
    assert nothing["profile"] is None and nothing["rated"] is None and nothing["notes"]


@pytest.mark.parametrize("facts", [{}, {"name": ""}, {"name": " \0 "}, {"arch": " "}])
def test_nothing_given_is_bad_input(facts):
    with pytest.raises(UserError, match="nothing given"):
        identify_command(**facts)


@pytest.mark.parametrize("name", ["memory_gib", "compute_units", "power_cap_w", "clock_mhz"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "80", True])
def test_numbers_that_can_not_be(name, value):
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')}"):
        identify_command(name="NVIDIA H200", **{name: value})


@pytest.mark.parametrize(
    "name",
    [
        "H100 " * 100_000,
        "a" * 1_000_000,
        "mi300x " + "(" * 50_000,
        "\0" * 100_000,
        "NVIDIA H200 " + "h200 hbm3e " * 50,
        "\ud800",
    ],
)
def test_hostile_names_are_unknown_and_cheap(name):
    begun = time.perf_counter()
    assert identify_command(name=name, pci_id="ffff")["profile"] is None
    assert time.perf_counter() - begun < 5  # milliseconds; this only catches runaway backtracking


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=string.printable + "®™é漢\0", max_size=300), st.sampled_from(GPU_NAMES))
def test_a_name_with_further_words_is_never_a_neighbour(junk, pair):
    name, profile = pair
    result = found(name=f"{name} {junk}")
    extra = set(name_words(junk)) - set(name_words(name))
    rules = load_identification()
    allowed = set(rules.neutral_words).union(
        *(w for rule in rules.name_rules for w in [rule.allows, rule.model, *rule.needs])
    )
    assert result.profile_id is None or result.profile_id == profile or extra <= allowed
    if extra - allowed:
        assert result.profile_id is None


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        DeviceFacts,
        name=st.one_of(st.sampled_from([name for name, _ in NAMES]), st.text(max_size=40)),
        arch=st.sampled_from([None, "gfx950", "gfx942", "gfx90a", "gfx1201", "sm_90", "8.0"]),
        memory_gib=st.none() | st.floats(1, 400),
        compute_units=st.none() | st.integers(1, 400),
        pci_id=st.none()
        | st.sampled_from([one for rule in load_identification().pci_rules for one in rule.ids]),
        power_cap_w=st.none() | st.floats(50, 1500),
        clock_mhz=st.none() | st.floats(500, 3000),
    )
)
def test_whatever_is_identified_fits_its_facts(facts):
    result = identify(facts, PROFILES)
    if result.profile_id is None:
        assert result.notes and result.notes[0].startswith("no rated value: ")
        return
    profile = PROFILES[result.profile_id]
    if profile.device_class == "gpu":
        assert facts.arch is None or normal_arch(facts.arch) == profile.arch
        assert facts.compute_units in (None, profile.compute_units, *profile.compute_units_reported)
        if facts.memory_gib is not None and not profile.memory_shared and not result.withheld:
            assert 0.9 <= facts.memory_gib / profile.memory_capacity_gb <= 1.05
