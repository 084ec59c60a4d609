"""Which rows are asked for: pure lists, held by hand."""

import subprocess
import sys

from escherlib.files import ROOT
from escherlib.kernels import cases
from escherlib.parameters import load_workload
from escherlib.run.records import Record

ESCHER = load_workload("escher_14b_480p")


def record(**result):
    return Record("01_bf16_compute", "x", "finished", result=result)


def test_listing_cases_needs_no_torch():
    code = "import sys, escherlib.kernels.cases; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "False", found.stderr


def test_small_squares_get_no_sustained_row_and_may_fall_out():
    found = cases.squares([64, 128], ["burst", "sustained"], 128)
    assert [c["states"] for c in found] == [["burst"], ["burst", "sustained"]]
    assert [c["m"] for c in cases.squares([64, 128], ["sustained"], 128)] == [128]


def test_workload_products_are_the_four_distinct_ones_with_bias():
    found = cases.workload_products(ESCHER, ["sustained"], 2.0)
    shapes = {c["row"]: (c["m"], c["n"], c["k"]) for c in found}
    assert shapes == {
        "self_attn.qkv": (4680, 15360, 5120),
        "ffn.linear1": (4680, 13824, 5120),
        "ffn.linear2": (4680, 5120, 13824),
        "self_attn.o": (4680, 5120, 5120),
    }
    assert all(c["bias"] and c["op"] == "addmm" and c["budget_s"] == 2.0 for c in found)
    assert cases.workload_products(ESCHER, ["sustained"], 0) == []


def test_gelu_follows_the_first_ffn_product_only():
    fused, apart = (cases.epilogues(ESCHER, ["burst"], 1.0, fused=f) for f in (True, False))
    assert [c["row"] for c in fused] == [c["row"] for c in apart] == ["ffn.linear1_gelu"]
    assert fused[0] | {"fused": False} == apart[0] and fused[0]["activation"] == "gelu"


def test_skewed_shapes_keep_the_flop_and_differ():
    found = cases.skewed(1024)
    shapes = [(c["m"], c["n"], c["k"]) for c in found]
    assert len(set(shapes)) == len(shapes) >= 4
    assert {m * n * k for m, n, k in shapes} == {1024**3}
    assert (1024, 1024, 1024) not in shapes and min(min(s) for s in shapes) >= 64
    assert cases.skewed(0) == []


def test_batched_products_are_those_of_one_head_times_heads():
    scores, values = cases.batched(1024, ESCHER)
    assert (scores["m"], scores["n"], scores["k"], scores["batch"]) == (1024, 1024, 128, 40)
    assert (values["m"], values["n"], values["k"]) == (1024, 128, 1024)


def test_candidates_are_the_searchs_else_squares_and_workload():
    found = {"sustained": [{"m": 1, "n": 1, "k": 1, "backend": "b"}]}
    assert cases.finalists([record(finalists=found)], [64], ESCHER, 1.0) == found
    for searched in ([], [record()]):
        stand_in = cases.finalists(searched, [64], ESCHER, 1.0)
        assert stand_in[0] == {"m": 64, "n": 64, "k": 64, "backend": "auto"} and len(stand_in) == 5
        assert len(cases.finalists(searched, [64], ESCHER, 0)) == 1


def test_nothing_is_asked_for_where_the_parameters_say_so():
    assert cases.peak_search(0, ESCHER) == cases.transient(0, record(best_burst={"m": 1})) == []
    assert cases.transient(3.0, record()) == []
    assert cases.transient(3.0, record(best_burst={"m": 1})) == [{"m": 1, "total_s": 3.0}]
    assert cases.with_bias(0) == cases.formats(["bf16"], 0) == cases.batched(0, ESCHER) == []


def test_sizes_are_binary():
    assert cases.streams(["copy"], [16])[0] == {"op": "copy", "bytes_per_buffer": 16 * 2**20}
    assert cases.working_sets([32])[0] == {"bytes": 32 * 2**10}
