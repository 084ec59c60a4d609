"""Strict loading: what is wrong in a parameter file is one line that names file, key, found and expected."""

import re
import shutil

import pytest
import yaml

from escherlib import parameters
from escherlib.errors import UserError
from escherlib.files import ROOT

PILOT_FIGURES = re.compile(r"(?<![\d.])(4641\.7|3070\.2|1360)(?![\d.]*\d)")
TEXT = {".py", ".yaml", ".yml", ".md", ".ipynb", ".html", ".j2", ".toml"}


@pytest.fixture
def override(tmp_path):
    """A PARAMS folder; call with a path and replacements in a copy of the real file, or with a whole text."""

    def write(relative, *replacements, text=None):
        path = tmp_path / relative
        path.parent.mkdir(exist_ok=True)
        content = text if text is not None else (ROOT / "parameters" / relative).read_text()
        for old, new in replacements:
            assert old in content, old
            content = content.replace(old, new, 1)
        path.write_text(content)
        return tmp_path

    return write


def one_line(load, *arguments, **options):
    """The message of the UserError that a load must end with."""
    with pytest.raises(UserError) as caught:
        load(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_shipped_file_loads_and_is_known():
    assert len(parameters.load_devices()) == 37
    assert parameters.load_scoring().sc1.square_share_of_peak == 0.90
    assert parameters.load_report_config().marking == ""
    assert set(parameters.list_suites()) == {"smoke", "headline", "standard", "full"}
    assert {"escher_14b_480p", "escher_notional", "smoke", "big"} <= set(parameters.list_workloads())
    for name in parameters.list_suites():
        assert parameters.load_suite(name).name == name
    for name in parameters.list_workloads():
        assert parameters.load_workload(name).name == name


def test_plain_and_c_yaml_read_the_device_file_alike():
    text = (ROOT / "parameters/devices.yaml").read_text()
    assert yaml.safe_load(text) == yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@pytest.mark.parametrize(
    "change, expected",
    [
        (
            ("role: gating\n  title: Memory", "rolle: gating\n  title: Memory"),
            r"sc2\.rolle: unknown key; did you mean 'role'\?|sc2\.role: missing",
        ),
        (
            ("flatness_gpu: 0.05", "flatness_gpu: 5e-2"),
            r"sc2\.flatness_gpu: found the text '5e-2'; YAML needs 5\.0e-2",
        ),
        (
            ("square_share_of_peak: 0.90", "square_share_of_peak: 1e15"),
            r"found the text '1e15'; YAML needs 1\.0e\+15",
        ),
        (
            ("square_share_of_peak: 0.90", "square_share_of_peak: '0.9'"),
            r"found the text '0\.9'; YAML needs 0\.9 without quotes",
        ),
        (
            ("square_share_of_peak: 0.90", "square_share_of_peak: high"),
            r"found the text 'high'; expected a number",
        ),
        (("square_share_of_peak: 0.90", "square_share_of_peak: yes"), r"found true; expected a number"),
        (
            ("square_share_of_peak: 0.90", "square_share_of_peak: .nan"),
            r"found nan; expected a finite number",
        ),
        (("square_share_of_peak: 0.90", "square_share_of_peak: -1.0"), r"found -1\.0; expected more than 0"),
        (("square_share_of_peak: 0.90", "square_share_of_peak:"), r"found nothing; expected a number"),
        (("last_sizes: 3", "last_sizes: 3.5"), r"sc2\.last_sizes: found 3\.5; expected a whole number"),
        (("last_sizes: 3", "last_sizes: [3]"), r"sc2\.last_sizes: found a list; expected a whole number"),
        (
            ("role: gating", "role: sometimes"),
            r"sc1\.role: found the text 'sometimes'; expected 'gating' or 'opt-in'",
        ),
        (
            ("role: gating", "role: gating\n  role: opt-in"),
            r"line \d+, column \d+: broken YAML: the key 'role' stands twice",
        ),
        (("sc1:", "sc1: ["), r"line \d+, column \d+: broken YAML"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_found_and_expected(override, change, expected):
    message = one_line(parameters.load_scoring, override("scoring.yaml", change))
    assert "scoring.yaml" in message and re.search(expected, message), message


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "found nothing"),
        ("- 1\n", "found a list"),
        ("a: \x07", "broken YAML"),
        ("a: !!python/object:os.x {}", "broken YAML"),
    ],
)
def test_files_that_are_no_block_of_keys(override, text, expected):
    assert expected in one_line(parameters.load_scoring, override("scoring.yaml", text=text))


def test_a_file_that_is_not_utf8_or_not_there(override, tmp_path):
    folder = override("scoring.yaml")
    (folder / "scoring.yaml").write_bytes(b"sc1: \xff\xfe")
    assert "not UTF-8" in one_line(parameters.load_scoring, folder)
    assert "cannot be read" in one_line(parameters.load_report_config, tmp_path / "no.yaml")
    assert "no such folder" in one_line(parameters.load_scoring, tmp_path / "nowhere")


def test_overrides_go_file_by_file_and_follow_changes(override, monkeypatch):
    folder = override("scoring.yaml", ("flatness_gpu: 0.05", "flatness_gpu: 0.07"))
    assert parameters.load_scoring(folder).sc2.flatness_gpu == 0.07
    assert parameters.load_scoring().sc2.flatness_gpu == 0.05
    assert "mi355x" in parameters.load_devices(folder)
    monkeypatch.setenv("ESCHER_PARAMS", str(folder))
    assert parameters.load_scoring().sc2.flatness_gpu == 0.07
    override("scoring.yaml", ("flatness_gpu: 0.05", "flatness_gpu: 0.061"))
    assert parameters.load_scoring().sc2.flatness_gpu == 0.061


@pytest.mark.parametrize("name", ["score.yaml", "scoring.yml", "workloads/mine.yml"])
def test_a_file_that_overrides_nothing_is_said_so(override, name):
    assert "overrides nothing" in one_line(parameters.load_scoring, override(name, text="a: 1"))


def test_a_rated_value_without_a_source_is_an_error(override):
    folder = override(
        "devices.yaml",
        ("{fields: [bf16_tflops, fp16_tflops], refs: [geak_sku", "{fields: [fp16_tflops], refs: [geak_sku"),
    )
    message = one_line(parameters.load_devices, folder)
    assert "devices.yaml: profiles.mi355x: bf16_tflops = 2516.6 has no source" in message


def test_a_source_a_profile_or_an_id_that_does_not_exist_is_an_error(override):
    message = one_line(
        parameters.load_devices, override("devices.yaml", ("source: hipkittens", "source: hearsay"))
    )
    assert "profiles.mi355x names the source 'hearsay'" in message
    message = one_line(
        parameters.load_devices,
        override("devices.yaml", ("'1002:75a3'], profile: mi355x", "'1002:75a3'], profile: mi999")),
    )
    assert "names the profile 'mi999'" in message
    message = one_line(parameters.load_devices, override("devices.yaml", ("'1002:75a3'", "'0x75A3'")))
    assert "identification.pci_rules[0].ids[0]: '0x75A3' is no PCI id" in message
    message = one_line(
        parameters.load_devices, override("devices.yaml", ("bf16_tflops: 2516.6", "bf16_tflop: 2516.6"))
    )
    assert "profiles.mi355x.rated.bf16_tflop: unknown key; expected 'bf16_tflops'" in message


def test_a_new_device_needs_only_its_profile_and_a_rule(override):
    profile = """profiles:
  mi999:
    display_name: AMD Instinct MI999
    vendor: AMD
    device_class: gpu
    unit: whole device
    architecture: CDNA9
    arch: gfx999
    bf16_native: true
    rated_basis: dense
    rated: {bf16_tflops: 9999.0}
    sources:
    - {fields: [architecture, arch, bf16_tflops], refs: [recall], evidence: unverified, basis: made up}
"""
    rule = "  name_rules:\n  - {model: [mi999], profile: mi999}\n"
    folder = override("devices.yaml", ("profiles:\n", profile), ("  name_rules:\n", rule))
    devices = parameters.load_devices(folder)
    assert devices["mi999"].rated_tflops("bf16") == 9999.0 and devices["mi999"].rated_tflops("fp8") is None


def test_profiles_carry_what_they_rest_on():
    devices = parameters.load_devices()
    mi355x, gcd, volta = devices["mi355x"], devices["mi250x_gcd"], devices["v100_sxm2_16gb"]
    assert mi355x.rated_tflops("bf16") == pytest.approx(256 * 4096 * 2.4e9 / 1e12, abs=0.05)
    assert gcd.rated_tflops("bf16") == 191.5 and gcd.memory_bandwidth_gb_s == 1638.4
    assert volta.rated_tflops("bf16") is None and volta.rated_tflops("fp16") == 125 and not volta.bf16_native
    assert mi355x.achievable_share("bf16") == pytest.approx(1565 / 2516.6)
    assert devices["mi350x"].achievable_share("bf16") is None
    assert devices["h200_sxm"].achievable["memory_copy_gb_s"] == 4010
    assert all(profile.sc1_sustained_floor is None for profile in devices.values())
    sources = parameters.load_sources()
    for profile in devices.values():
        for name, value in profile.rated.items():
            if value is not None:
                source = profile.source_of(name)
                assert source.basis and all(ref in sources for ref in source.refs)


def test_fp32_of_matrix_units_is_the_rated_rate_of_matrix_work():
    gcd = parameters.load_devices()["mi250x_gcd"]
    assert (gcd.rated["fp32_tflops"], gcd.rated["fp32_matrix_tflops"], gcd.rated_tflops("fp32")) == (
        23.9,
        47.9,
        47.9,
    )
    assert gcd.rated_tflops("float16") == 191.5


def test_a_cpu_host_is_rated_by_its_cores_and_clock():
    zen5 = parameters.load_devices()["cpu_zen5"]
    assert zen5.rated_tflops("bf16") is None and zen5.memory_bandwidth_gb_s is None
    assert zen5.host_tflops("bf16", cores=192, clock_ghz=3.7) == pytest.approx(90.9, abs=0.1)
    assert parameters.load_devices()["cpu_zen3"].host_tflops("bf16", 64, 3.0) is None


def test_withheld_memory_leaves_compute():
    whole = parameters.load_devices()["h100_sxm"]
    part = whole.without(("memory",))
    assert part.rated_tflops("bf16") == whole.rated_tflops("bf16")
    assert part.memory_bandwidth_gb_s is None and part.memory_capacity_gb is None
    assert "memory_copy_gb_s" not in part.achievable and "bf16_tflops" in part.achievable
    assert whole.without(()) is whole


def test_suite_parameters_are_plain_and_belong_to_families():
    standard, smoke = parameters.load_suite("standard"), parameters.load_suite("smoke")
    names = ("00_environment", "01_bf16_compute", "02_memory_bandwidth", "03_memory_capacity")
    names += ("04_workload_ops", "05_e2e_mfu", "07_sustained", "09_numerical_stability")
    assert standard.families == names and smoke.workload == "smoke" and standard.workload is None
    assert standard.family_parameters("00_environment", "gpu") == {}
    assert standard.family_parameters("03_memory_capacity", "cpu")["limit_gib"] is None
    assert smoke.family_parameters("02_memory_bandwidth", "cpu")["ops"] == ["copy", "add", "sum"]
    assert standard.deadline_s("01_bf16_compute") == 600
    with pytest.raises(KeyError):
        parameters.load_suite("headline").family_parameters("00_environment", "cpu")


def test_suite_mistakes(override):
    change = ("reference_size: 256", "reference_size: 256\n      reference_sise: 1")
    assert "families.01_bf16_compute.cpu.reference_sise: unknown key; did you mean 'reference_size'?" in one_line(
        parameters.load_suite, "smoke", override("suites/smoke.yaml", change)
    )
    change = ("02_memory_bandwidth", "02_memory_bandwith")
    assert "families.02_memory_bandwith: unknown key; did you mean '02_memory_bandwidth'?" in one_line(
        parameters.load_suite, "smoke", override("suites/smoke.yaml", change)
    )
    change = ("workload: smoke", "workload: smokes")
    assert "workload: found the text 'smokes'; expected one of" in one_line(
        parameters.load_suite, "smoke", override("suites/smoke.yaml", change)
    )
    assert "SUITE=quick: unknown suite; choose from full" in one_line(parameters.load_suite, "quick")


def test_workload_mistakes(override):
    relative = "workloads/big.yaml"
    cases = {
        ("heads: 40", "heads: 41"): "heads × head_dim is 5248; expected d_model = 5120",
        ("window: 12", "window: 2"): "window = 2: it holds the chunk's 3 latent frames too",
        ("window: 12", ""): "query_tokens: missing",
        ("text_tokens: 512", "text_tokens: 0"): "text_tokens: found 0; expected more than 0",
        ("cross_kv_cached: true", "cross_kv_cached: false"): "context_dim is missing",
        ("name: big", "name: huge"): "name: found the text 'huge'; expected 'big'",
        ("dtype: bf16", "dtype: int4"): "dtype: found the text 'int4'; expected 'bf16', 'fp16' or 'fp32'",
    }
    for change, expected in cases.items():
        assert expected in one_line(parameters.load_workload, "big", override(relative, change)), change
    for name in ("nope", "../suites/smoke", "big.yaml", "", "a/b"):
        assert "unknown workload; choose from big" in one_line(parameters.load_workload, name)


def test_a_new_workload_and_suite_of_a_params_folder_are_listed(override):
    text = (ROOT / "parameters/workloads/big.yaml").read_text().replace("name: big", "name: mine")
    folder = override("workloads/mine.yaml", text=text)
    assert "mine" in parameters.list_workloads(folder) and "mine" not in parameters.list_workloads()
    assert parameters.load_workload("mine", folder).query_tokens == 10800


def test_the_reproduction_basis_may_not_drift(override):
    path = "workloads/escher_14b_480p.yaml"
    message = one_line(
        parameters.load_workload, "escher_14b_480p", override(path, ("ffn: 13824", "ffn: 16384"))
    )
    assert "+5.28 % FLOP" in message and "expected within 5 %" in message
    folder = override(path)
    text = (folder / path).read_text()
    (folder / path).write_text(text[: text.index("pilot_reference:")])
    assert "pilot_reference belongs to" in one_line(parameters.load_workload, "escher_14b_480p", folder)


def test_overrides_change_tokens_and_say_so():
    plain = parameters.load_workload("escher_14b_480p")
    assert (plain.query_tokens, plain.kv_tokens, plain.rows_time, plain.label) == (4680, 18720, 3, "")
    two = parameters.load_workload("escher_14b_480p", depth=2)
    assert (
        two.blocks == 2 and two.is_pilots and two.label == "changed: blocks 40 → 2" and two.sha != plain.sha
    )
    wide = parameters.load_workload("escher_14b_480p", frames=6, window=24, text_tokens=256)
    assert (wide.query_tokens, wide.kv_tokens, wide.rows_time, wide.text_tokens) == (9360, 37440, 6, 256)
    assert not wide.is_pilots and "not the pilot's workload (FLOP +" in wide.label
    same = parameters.load_workload("escher_14b_480p", depth=40, frames=None)
    assert same.sha == plain.sha and same.label == ""


@pytest.mark.parametrize(
    "name, overrides, expected",
    [
        ("escher_14b_480p", {"frames": 0}, "FRAMES=0: expected a whole number of at least 1"),
        ("escher_14b_480p", {"depth": True}, "DEPTH=True: expected a whole number"),
        ("escher_14b_480p", {"window": 2}, "WINDOW=2: the window"),
        ("escher_14b_480p", {"frames": 13}, "FRAMES=13: the window"),
        ("escher_14b_480p", {"text_tokens": -5}, "TEXT_TOKENS=-5"),
        ("escher_14b_480p", {"layers": 2}, "layers: no such override"),
        ("escher_notional", {"window": 2}, "WINDOW=2: escher_notional is given in tokens"),
    ],
)
def test_overrides_that_do_not_fit(name, overrides, expected):
    assert expected in one_line(parameters.load_workload, name, **overrides)


def test_a_workload_survives_the_manifest():
    for name in parameters.list_workloads():
        workload = parameters.load_workload(name)
        assert parameters.workload_from_dict(workload.model_dump(mode="json")) == workload
    assert "run.json: workload" in one_line(parameters.workload_from_dict, {"name": "x"})


def test_only_remarks_leave_the_hash_alone(override):
    plain = parameters.load_workload("smoke").sha
    folder = override(
        "workloads/smoke.yaml", ("for tests and first looks", "for anything"), ("4×4 patches", "few patches")
    )
    assert parameters.load_workload("smoke", folder).sha == plain
    folder = override("workloads/smoke.yaml", ("text_tokens: 64", "text_tokens: 65"))
    assert parameters.load_workload("smoke", folder).sha != plain


def test_the_pilots_figures_stand_in_one_file():
    home = ROOT / "parameters/workloads/escher_14b_480p.yaml"
    rooms = [p for p in ROOT.iterdir() if not p.name.startswith(".") and p.name not in ("executed", "tests")]
    files = [p for room in rooms for p in ([room] if room.is_file() else room.rglob("*")) if p.suffix in TEXT]
    assert home in files and PILOT_FIGURES.search(home.read_text())
    found = [str(p.relative_to(ROOT)) for p in files if p != home and PILOT_FIGURES.search(p.read_text())]
    assert not found, f"read the pilot's figures with accounting.workload.pilot_reference() in {found}"


def test_the_shipped_folder_works_as_a_params_folder(tmp_path):
    copy = shutil.copytree(ROOT / "parameters", tmp_path / "all")
    assert parameters.load_devices(copy).keys() == parameters.load_devices().keys()
