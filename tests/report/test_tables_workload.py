"""Tables of families 4 and 5 on invented records, the operation listing and the registry of models."""

from dataclasses import replace

import pytest

from escherlib.parameters import load_models, load_workload
from escherlib.report import artefacts, cards, tables, tables_accounting
from escherlib.report.display import Card
from escherlib.run import load_results
from tests.report.factory import fake_run
from tests.report.factory_workload import fake_workload_run

NAMES = (
    "operations", "attention_backends", "losses", "captured", "totals", "mfu", "chunks", "compiles", "path_checks",
    "account", "what_if",
)  # fmt: skip


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    return load_results(fake_workload_run(tmp_path_factory.mktemp("gpu")))


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    return load_results(fake_workload_run(tmp_path_factory.mktemp("cpu"), "cpu", "cpu_zen4"))


@pytest.mark.parametrize("name", NAMES)
def test_every_table_in_every_form(name, gpu, cpu):
    for results in (gpu, cpu):
        table = getattr(tables, name)(results)
        lines = table.to_csv().splitlines()
        assert len(lines) == len(table.rows) + 1 and "nan" not in table.to_csv().lower()
        assert table.caption in table.to_html() and table.to_markdown().count("|") > 8
        assert list(table.frame.columns) == [column.key for column in table.columns]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("totals", "what_if")])
def test_without_the_families_a_box_says_how_to_get_them(name, tmp_path):
    box = getattr(tables, name)(load_results(fake_run(tmp_path)))
    assert isinstance(box, Card) and box.lines[0].startswith("not measured")


def test_the_last_lines_of_the_op_table_add_up(gpu):
    rows = tables.operations(gpu).rows
    total = next(row for row in rows if row["op"] == "one chunk, optimized path")
    kernels = [row for row in rows if row["path"] in ("optimized", "both") and not row["op"].startswith("one chunk")]
    assert total["optimized_us"] == pytest.approx(sum(row["launches"] * row["optimized_us"] for row in kernels))
    assert total["gflop"] == pytest.approx(185621.081, abs=0.01)


def test_the_mfu_table_has_scopes_ceilings_and_the_pilot_apart(gpu, cpu):
    table = tables.mfu(gpu)
    assert [row["scope"] for row in table.rows][:4] == ["default eager", "default compiled", "optimized eager", "optimized compiled"]
    assert {"optimized matrix floor", "default sum of ops"} <= {row["scope"] for row in table.rows}
    assert "77 %, eager 93 %, compiled 99 %" in table.note and "of its own device" in table.note
    lost = next(row for row in tables.mfu(cpu).rows if row["scope"] == "optimized compiled")
    assert lost["mfu_pct"] is None and "needs a GPU" in lost["remark"]
    assert "2 of 40 blocks" in tables.mfu(cpu).note


def test_the_pilots_figures_are_withheld_elsewhere(gpu):
    notional = load_workload("escher_notional").model_dump(mode="json")
    other = replace(gpu, manifest={**gpu.manifest, "workload": notional})
    assert "withheld" in tables.mfu(other).note and "93 %" not in tables.mfu(other).note


def test_the_losses_are_the_time_above_the_floor(gpu):
    rows = tables.losses(gpu).rows
    assert [row["loss_ms"] for row in rows] == sorted((row["loss_ms"] for row in rows), reverse=True)
    assert all(row["loss_ms"] == pytest.approx(row["ms"] - row["theory_ms"]) for row in rows)
    assert sum(row["share_pct"] for row in rows) == pytest.approx(100, abs=1)


def test_the_audit_card(gpu):
    assert "nothing is too good to be true" in cards.audit(gpu).title


def test_a_cut_table_does_not_open(tmp_path):
    good, cut, empty = (tmp_path / name for name in ("good.csv", "cut.csv", "empty.csv"))
    good.write_text('a,b\n1,"x, y"\n')
    cut.write_text("a,b\n1\n")
    empty.write_text("")
    assert artefacts.problem_of(good) is None
    assert "rows of one length" in artefacts.problem_of(cut) and artefacts.problem_of(empty)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("escher_14b_480p", ["one block: 4641.6 GFLOP, 3071.7 MiB, 1441 FLOP/byte", "FLOP -0.00 %, traffic +0.05 %", "185.62 TFLOP"]),
        ("escher_notional", ["5050.9 GFLOP, 4422.9 MB", "FLOP +8.82 %", "note: not the pilot's workload (FLOP +8.8 %"]),
        ("wan2_2_t2v_a14b_480p", ["1678.28 TFLOP"]),
        ("wan2_2_t2v_a14b_720p", ["6523.29 TFLOP"]),
        ("wan2_2_ti2v_5b", ["516.92 TFLOP"]),
    ],
)
def test_the_listing_of_a_workload(name, lines):
    w = load_workload(name)
    text = "\n".join(tables_accounting.totals_lines(w))
    assert all(line in text for line in lines), text
    rows = tables_accounting.block_ops(w).rows
    assert rows[-1]["flop"] == sum(row["flop"] for row in rows[:-1])
    assert rows[-1]["bytes"] == sum(row["bytes"] for row in rows[:-1])


def test_the_models_and_their_workloads_agree():
    models = load_models()
    assert models["odyssey_14b_fusili"].workload == "escher_14b_480p" and len(models) >= 16
    for model in models.values():
        if model.workload:
            w = load_workload(model.workload)
            assert (model.d_model, model.blocks, model.heads, model.head_dim, model.ffn, model.tokens) == (
                w.d_model, w.blocks, w.heads, w.head_dim, w.ffn, w.query_tokens)  # fmt: skip
