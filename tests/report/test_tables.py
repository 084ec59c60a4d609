"""Tables and cards: forms, rounding, and rows that failed."""

import csv
import io

import pytest

from escherlib.report import cards, facts, tables
from escherlib.report.display import Card
from escherlib.report.table import Column, Table, words
from escherlib.run import load_results
from tests.report.factory import FakeRun, fake_run

COLUMNS = (Column("name", "name", words, text=True), Column("gb_s", "GB/s", group="rate"))


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "–"), (0.0, "0"), (4285.4, "4285"), (801.23, "801"), (99.96, "100.0"), (12.34, "12.3"),
        (1.234, "1.23"), (0.41, "0.410"), (0.02464, "0.0246"), (0.000123, "0.000123"), (1e-7, "1.0e-07"),
        (31, "31"), (-5.678, "-5.68"), ("bf16", "bf16"),
    ],
)  # fmt: skip
def test_numbers_keep_three_significant_digits(value, text):
    assert facts.number(value) == text


def test_units_of_size_and_time():
    assert [facts.bytes_text(n) for n in (512, 32768, 2**20, 3 * 2**29)] == [
        "512 B",
        "32 KiB",
        "1 MiB",
        "1.5 GiB",
    ]
    assert [facts.time_text(s) for s in (2.0, 1.5e-3, 2.5e-5, 3e-8, None)] == [
        "2.00 s",
        "1.50 ms",
        "25.0 µs",
        "30.0 ns",
        "–",
    ]


def test_html_has_caption_scopes_and_escapes():
    html = Table("t", "A <b>", COLUMNS, ({"name": "<script>", "gb_s": 1.0},)).to_html()
    assert "<caption" in html and "A &lt;b&gt;" in html and "<script>" not in html
    assert "scope='col'" in html and "scope='colgroup'" in html and "scope='row'" in html


def test_markdown_keeps_to_its_cells():
    text = Table("t", "c", COLUMNS, ({"name": "a|b\nc<i>", "gb_s": None},)).to_markdown()
    assert text.splitlines()[-1] == "| a\\|b c&lt;i> | – |"


def test_csv_and_frame_hold_raw_values():
    table = Table("t", "c", COLUMNS, ({"name": "x", "gb_s": 1.23456789},))
    assert list(csv.reader(io.StringIO(table.to_csv()))) == [["name", "gb_s"], ["x", "1.23456789"]]
    assert table.frame.loc[0, "gb_s"] == 1.23456789


def test_gemm_table_compares_like_with_like(gpu):
    burst, late = (row for row in tables.gemm(gpu).rows if row["row"] == "16384")
    assert (burst["state"], late["state"]) == ("burst", "sustained")
    assert burst["of_peak_pct"] == pytest.approx(100 * burst["tflops"] / 800, abs=0.06)
    assert late["of_peak_pct"] == pytest.approx(100 * late["tflops"] / 670, abs=0.06)
    assert late["of_rated_pct"] == pytest.approx(100 * late["tflops"] / 989.4, abs=0.06)
    assert burst["clock_mhz"] == 1975.0 and late["power_w"] == 698.0


def test_other_dtypes_are_no_share_of_the_peak(gpu):
    shares = {row["row"]: row["of_peak_pct"] for row in tables.gemm(gpu, "dtype/").rows}
    assert shares["bf16"] == 100.0 and shares["fp8"] is None


def test_repeated_names_are_shown_once_but_kept_in_the_csv(gpu):
    table = tables.gemm(gpu)
    names = [line[0] for line in table.cells()]
    assert names.count("16384") == 1 and "" in names
    assert [row["row"] for row in csv.DictReader(io.StringIO(table.to_csv()))].count("16384") == 2


def test_refused_and_failed_rows_stay_with_their_reason(tmp_path):
    run = FakeRun(tmp_path)
    run.gemm("01_bf16_compute", "square/1024", 1024, 1024, 1024, 500.0, 400.0, labels={"sustained": "noisy"})
    run.add("01_bf16_compute", "square/2048", status="refused", reason="wrong result", m=2048, n=2048, k=2048)
    run.add(
        "01_bf16_compute", "square/4096", status="failed", reason="RuntimeError: no", m=4096, n=4096, k=4096
    )
    run.finish("01_bf16_compute")
    results = load_results(run.write())
    said = [(row["row"], row["remark"]) for row in tables.gemm(results).rows]
    assert said[:2] == [("1024", ""), ("1024", "noisy")]
    assert said[2:] == [("2048", "refused: wrong result"), ("4096", "failed: RuntimeError: no")]
    assert "RuntimeError: no" in tables.any_rows(results, "01_bf16_compute").to_html()


def test_plateau_is_the_median_of_the_last_three_sizes(gpu):
    row = next(r for r in tables.plateaus(gpu).rows if r["op"] == "copy")
    values = sorted(r.get("states", "cold", "gb_s") for r in gpu.rows("02_memory_bandwidth", "copy/"))[-3:]
    assert row["gb_s"] == pytest.approx(values[1])
    assert row["spread_pct"] == pytest.approx(100 * (values[2] - values[0]) / values[1])


def test_missing_families_give_boxes(tmp_path):
    results = load_results(FakeRun(tmp_path).write())
    for name in ("gemm", "peak", "correctness", "bandwidth", "plateaus", "capacity", "precheck"):
        assert isinstance(getattr(tables, name)(results), Card)
    assert tables.all_tables(results) == []


def test_every_table_is_written_as_csv(tmp_path):
    results = load_results(fake_run(tmp_path))
    files = tables.write_tables(results)
    assert {f.name for f in files} >= {
        "gemm_square.csv",
        "peak.csv",
        "bandwidth.csv",
        "plateaus.csv",
        "capacity.csv",
    }
    assert all(len(list(csv.reader(f.open()))) > 1 for f in files)


def test_cards_are_generated_from_the_run(gpu, cpu):
    assert "rated bf16, dense: 989 TFLOP/s" in cards.ceiling_card(gpu, "01_bf16_compute").to_text()
    assert "no rated value" in cards.ceiling_card(cpu, "01_bf16_compute").to_text()
    assert "800 TFLOP/s burst" in cards.takeaway(gpu, "01_bf16_compute").to_text()
    assert "CPU host" in cards.system_card(cpu).to_text()
    assert "not run" in cards.takeaway(load_results(gpu.path), "05_e2e_mfu").to_text()


def test_a_card_displays_itself_in_three_forms():
    data, metadata = Card("takeaway", "T", ("a <b>",))._repr_mimebundle_()
    assert (
        set(data) == {"text/html", "text/markdown", "text/plain"} and metadata["escher"]["role"] == "takeaway"
    )
    assert "a &lt;b&gt;" in data["text/html"] and "a &lt;b>" in data["text/markdown"]
