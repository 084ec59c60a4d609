"""Tables, charts and cards of family 9 on invented records."""

import pytest

from escherlib.report import cards, charts, tables, theme
from escherlib.report.display import Card
from escherlib.run import load_results
from tests.report.factory import FakeRun
from tests.report.factory_numerics import FAMILY, fill_numerics

NAMES = ("error_bounds", "wrong_kernels", "summation", "special_values")


def made(path, kind="gpu", **options):
    run = FakeRun(path, kind, "h200_sxm" if kind == "gpu" else "cpu_zen4")
    fill_numerics(run, **options)
    return load_results(run.write())


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    return made(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    return made(tmp_path_factory.mktemp("cpu"), "cpu")


@pytest.mark.parametrize("name", [*NAMES, "depths"])
def test_every_table_in_every_form(name, gpu, cpu):
    for results in (gpu, cpu):
        table = getattr(tables, name)(results)
        lines = table.to_csv().splitlines()
        assert len(lines) == len(table.rows) + 1 and "nan" not in table.to_csv().lower().replace("nan in a", "").replace("16 nan", "")
        assert table.caption in table.to_html() and table.to_markdown().count("|") > 8
        assert list(table.frame.columns) == [column.key for column in table.columns]
    assert (FAMILY, name) in [(family, table.id) for family, table in tables.all_tables(gpu)]


@pytest.mark.parametrize("name", NAMES)
def test_without_the_family_a_box_says_why(name, tmp_path):
    assert isinstance(getattr(tables, name)(load_results(FakeRun(tmp_path).write())), Card)


def test_errors_beside_their_bounds(gpu, cpu):
    rows = {(row["dtype"], row["k"]): row for row in tables.error_bounds(gpu).rows}
    assert len(rows) == 24 and rows["bf16", 256]["error"] == 0.98 and rows["bf16", 256]["bound"] == 2.0
    assert rows["bf16", 256]["times_emulation"] == pytest.approx(0.98 / 0.9) and rows["fp32", 256]["times_emulation"] is None
    assert (rows["bf16", 256]["repeats"], rows["bf16", 256]["few_rows"], rows["fp32", 256]["few_rows"]) == ("yes", "no", "yes")
    assert {row["verdict"] for row in rows.values()} == {"within"}
    lost = tables.error_bounds(cpu).rows[-1]
    assert lost["dtype"] == "fp16" and "refused: one call took 9 s" in lost["remark"] and lost["class"] == "bad"


def test_a_row_outside_its_bound_is_red_whatever_it_says_of_itself(tmp_path):
    wrong = {"correct": {"ok": True, "error": 2.5, "bound": 50.0}, "max": 2.5, "ok": True, "emulation_max": None}
    results = made(tmp_path, changes=wrong)
    assert {(row["verdict"], row["class"]) for row in tables.error_bounds(results).rows} == {("OUTSIDE", "bad")}
    assert "24 of 24 products exceed their bound" in str(theme.spec_of(charts.error_over_k(made(tmp_path / "x", changes={
        "correct": {"ok": False, "error": 2.5, "bound": 1.0}})))["title"]["text"])  # fmt: skip


def test_a_wrong_product_that_passes_is_red(tmp_path):
    passing = {"wrong_kernels": {"short_sums": {"error": 0.5, "bound": 1.0}}}
    rows = tables.wrong_kernels(made(tmp_path, changes=passing)).rows
    assert {(row["caught"], row["class"], row["short_sums"]) for row in rows} == {("PASSED", "bad", 0.5)}


def test_special_values_and_what_is_left_out(gpu, tmp_path):
    rows = {(row["dtype"], row["case"]): row for row in tables.special_values(gpu).rows}
    assert rows["bf16", "zeros"]["verdict"] == "as IEEE" and rows["bf16", "subnormal input"]["verdict"] == "told"
    assert rows["fp8", "∞ in A"]["found"] == "left out: float8_e4m3fn has no infinity"
    lost = {(row["dtype"], row["case"]): row for row in tables.special_values(made(tmp_path, broken=("bf16",))).rows}
    assert (lost["bf16", "NaN in A"]["verdict"], lost["bf16", "NaN in A"]["class"]) == ("WRONG", "bad")


def test_ways_of_summing(gpu):
    table = tables.summation(gpu)
    rows = {(row["dtype"], row["variant"]): row for row in table.rows}
    assert table.caption == "Ways of summing, K = 16384"
    assert rows["bf16", "K in 8 chunks"]["remark"] == "outside the bound" and rows["bf16", "K in 8 chunks"]["changed_pct"] == 40.0
    assert rows["bf16", "as given"]["remark"] == ""


def test_the_depths_of_the_workload_say_which_term_rules(gpu, cpu):
    rows = {row["k"]: row for row in tables.depths(gpu).rows}
    # bf16, matrix unit: u·√(2K/π) = 2⁻⁸·57.1 = 0.223; γ·2K/π = 640·2⁻²³·3259 = 0.249
    assert rows[5120]["rounding"] == pytest.approx(0.223, abs=5e-4) and rows[5120]["accumulation"] == pytest.approx(0.2487, abs=5e-4)
    assert rows[5120]["rules"] == "accumulation" and rows[5120]["nearest_k"] == 4096 and rows[13824]["nearest_k"] == 16384
    assert {row["rules"] for row in tables.depths(cpu).rows} == {"rounding of the output"}


def test_the_ceiling_card_names_each_format_s_bound(gpu, cpu):
    pairs = dict(cards.ceiling_card(gpu, FAMILY).pairs)
    assert pairs["bf16"].startswith("u = 2⁻⁸, γ = K/8·2⁻²³; at K = 16384") and "√K" in pairs["fp32"]
    assert list(dict(cards.ceiling_card(cpu, FAMILY).pairs)) == ["fp32", "bf16"]


def test_charts_say_what_is_nearest(gpu, cpu):
    spec = theme.spec_of(charts.error_over_k(gpu))
    assert "fp8_e5m2 at K = 256 with 0.62 of 1" in " ".join(spec["title"]["text"])
    # short sums: 9·10⁴ ÷ 16384^0.9 = 14.5, and the bound of 16-bit rows is 2
    assert "short sums in fp16 at K = 16384, has 14.5" in spec["usermeta"]["caption"]
    histogram = theme.spec_of(charts.ulp_histogram(cpu))
    assert len(histogram["concat"]) == 2 and "Median error: 0.25 ulp in bf16, 1.8 in fp32" in str(histogram["title"]["text"])


def test_shares_of_a_histogram_add_up(gpu):
    from escherlib.report.charts_numerics import _shares

    bars = _shares(gpu.row(FAMILY, "error/bf16/256"))
    assert sum(bar["y"] for bar in bars) == pytest.approx(100) and bars[0]["x"] == -6 and bars[0]["x2"] == -5
