"""The whole stack in turns with its matrix floor: what a scope's record holds, in this process and in a child."""

import json
import statistics

import pytest
import torch

from escherlib.accounting import paths
from escherlib.accounting.workload import forward_flop
from escherlib.errors import Refused
from escherlib.kernels import dit, e2e, observe, path_check, rowwise, scopes, timed
from escherlib.kernels.compiled import Runner
from tests.kernels.stand_in import QUICK, cpu
from tests.kernels.tiny import tiny

HEATER = {"m": 32, "n": 32, "k": 32, "backend": "auto"}
HOW = {"chunks": 7, "floor_forwards": 1, "floor_random": True, "in_situ": True}


@pytest.fixture(autouse=True)
def unsettled():
    timed.forget()
    yield
    timed.forget()


def session(path, w=None):
    return scopes.Session(
        cpu(), geometry=(w or tiny()).identity(), path=path, backends={}, bracket_gemm=HEATER, protocol=QUICK
    )


@pytest.mark.parametrize("path", paths.PATHS)
def test_a_scope_holds_what_its_figures_rest_on(path):
    found = session(path).scope("eager", **HOW)
    state = found["states"]["sustained"]
    assert state["n"] == 6 and len(found["dropped_ns"]) == 1 and len(state["windows_ns"]) == scopes.ROUNDS
    assert found["flop"] == state["flop"] == forward_flop(tiny())
    assert state["tflops"] == pytest.approx(found["flop"] / statistics.median(state["samples_ns"]) / 1e3)
    assert found["floor"]["state"]["n"] == scopes.ROUNDS and found["floor"]["flop"] == found["flop"]
    assert found["floor_random"]["tflops"] > 0 and [b["flop"] for b in found["brackets"]] == [2 * 32**3] * 2
    total = found["throughput"]["total_s"]
    assert total == pytest.approx(sum(state["samples_ns"]) / 1e9) and found["throughput"]["chunks"] == 6
    assert found["health"]["before"]["ok"] and found["health"]["after"]["ok"]
    launched = {name: entry["n"] for name, entry in found["in_situ"]["kernels"].items()}
    counted = {}
    for kernel in paths.kernels(tiny(), path):
        assert sum(launched[name] for name in kernel.calls) == kernel.count
        counted |= dict.fromkeys(kernel.calls)
    assert set(counted) == set(launched)
    json.dumps(found, allow_nan=False)


def test_the_floor_runs_the_matrix_kernels_alone_and_leaves_the_stack_as_it_was():
    w, stack = scopes.open_stack(cpu(), tiny().identity(), "optimized", {})
    with torch.inference_mode():
        run, flop = scopes.matrix_floor(stack, "optimized", w)
        before = [ring.clone() for ring in stack.rings]
        run(0)
        assert all(torch.equal(a, b) for a, b in zip(before, stack.rings, strict=True))
    assert flop == forward_flop(w)


def test_values_that_died_are_refused_not_timed():
    opened = session("default")
    for block in opened.stack.blocks:
        block.linear2.weight.data.fill_(torch.nan)
    with pytest.raises(Refused, match="no longer alive before timing.*not finite"):
        opened.scope("eager", **HOW)


def test_health_counts_only_what_the_stack_computes(monkeypatch):
    monkeypatch.setattr(observe, "mean_cosine", lambda rows: 0.9)
    with pytest.raises(Refused, match="mean cosine 0.90, limit 0.5"):
        session("optimized").scope("eager", **HOW)


def test_a_real_child_measures_a_scope():
    found = e2e.time_scope(
        cpu(asked="cpu"), geometry=tiny().identity(), path="optimized", scope="eager", bracket_gemm=HEATER, protocol=QUICK,
        chunks=4, floor_forwards=1,
    )  # fmt: skip
    assert found["states"]["sustained"]["n"] == 3 and found["how"] == "eager"
    with pytest.raises(Refused, match="needs a GPU"):
        e2e.time_scope(
            cpu(asked="cpu"), geometry=tiny().identity(), path="optimized", scope="compiled", bracket_gemm=HEATER, protocol=QUICK
        )
    e2e.close()


@pytest.mark.parametrize("path", paths.PATHS)
def test_a_small_instance_of_each_path_is_right(path):
    found = path_check.check_path(cpu(peak_dtype="bf16"), path=path, head_dim=32)
    assert found["correct"]["ok"] and 1e-4 < found["correct"]["error"] <= found["correct"]["bound"]


def test_a_path_that_forgets_a_gate_does_not_pass(monkeypatch):
    monkeypatch.setattr(rowwise, "residual", lambda x, y, gate, out: torch.add(x, y, out=out))
    with pytest.raises(Refused, match="optimized path gave a wrong result"):
        path_check.check_path(cpu(), path="optimized", head_dim=32)


def test_weights_laid_end_to_end_have_no_two_rows_alike(monkeypatch):
    monkeypatch.setattr(dit, "DRAWN", 101)
    value = torch.empty(40, 8)
    dit.fill_normal(value)
    assert len({tuple(row) for row in value.tolist()}) == 40 and value.std() == pytest.approx(dit.WEIGHT_STD, rel=0.3)


def test_a_compiled_chunk_is_held_against_the_eager_one():
    stack = session("default").stack
    right = Runner(stack.chunk, "as written", {})
    with torch.inference_mode():
        found = scopes.compiled_check(stack, right, 2.0**-9)
        assert found["error"] == 0 and 0 < found["bound"] < 1
        wrong = Runner(lambda i: 2 * stack.chunk(i), "doubled", {})
        with pytest.raises(Refused, match="compiled, the default path gave another result: relative error"):
            scopes.compiled_check(stack, wrong, 2.0**-9)
