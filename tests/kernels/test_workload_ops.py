"""Rows of family 4: each kernel of the stack alone, checked, with its count and its share of the forward."""

import json
from types import SimpleNamespace

import pytest
import torch

from escherlib.accounting import paths
from escherlib.errors import Refused, UserError
from escherlib.kernels import cases, op_check, timed, workload_ops
from escherlib.kernels.formats import FORMATS
from tests.kernels.stand_in import QUICK, cpu
from tests.kernels.tiny import tiny

HEATER = {"m": 32, "n": 32, "k": 32, "backend": "auto"}


@pytest.fixture(autouse=True)
def clean():
    timed.forget()
    yield
    timed.forget()
    workload_ops.release(cpu())


@pytest.mark.parametrize("kind", [*paths.PATHS, paths.SHARED])
def test_every_kernel_of_a_path_can_be_timed_and_is_right(kind):
    w = tiny()
    for case in cases.kernels(w, kind):
        found = workload_ops.time_kernel(
            cpu(), geometry=w.identity(), **case, depth_captured=2, settle=HEATER, protocol=QUICK
        )
        assert found["correct"]["ok"] and found["correct_before"]["ok"] and found["correct"]["error"] <= found["correct"]["bound"]
        assert found["states"]["sustained"]["median_s"] > 0 and found["kernel"] == case["kernel"]
        assert found["path"] == kind
        json.dumps(found, allow_nan=False)


def test_the_three_lists_hold_every_launch_of_both_paths_once():
    w = tiny()
    listed = {kind: [case["kernel"] for case in cases.kernels(w, kind)] for kind in ("default", "shared", "optimized")}
    assert listed["shared"] == ["time_embed.linear1", "time_embed.linear2", "self_attn.o", "cross_attn.q", "ffn.linear2"]
    for path in paths.PATHS:
        assert sorted(listed["shared"] + listed[path]) == sorted(kernel.name for kernel in paths.kernels(w, path))
    assert {case["path"] for case in cases.kernels(w, "shared")} == {"optimized"}


def test_counts_and_flop_of_the_rows_are_those_of_the_whole_workload_not_of_the_captured_blocks():
    w = tiny()
    found = workload_ops.time_kernel(
        cpu(), geometry=w.identity(), path="default", kernel="self_attn.q", depth_captured=2, protocol=QUICK
    )
    assert found["count"] == 3 * 3 and found["calls"] == ["self_attn.q", "self_attn.k", "self_attn.v"]
    assert found["flop"] == 2 * 16 * 64 * 64 and found["rotation"]["sets"] == 2 * 3
    assert found["scale"]["blocks"] == 3 and found["settled"] is None


def test_the_optional_rotary_embedding_has_a_row():
    found = workload_ops.time_kernel(
        cpu(), geometry=tiny().identity(), path="default", kernel="rope", depth_captured=2, protocol=QUICK
    )
    assert found["correct"]["ok"] and found["flop"] == 0


def test_a_capture_tells_whether_the_values_live():
    found = workload_ops.capture(cpu(), geometry=tiny().identity(), path="optimized", depth_captured=2)
    assert found["health"]["ok"] and found["depth"] == 2 and found["scale"]["blocks"] == 3


def test_an_unknown_kernel_names_those_there_are():
    with pytest.raises(UserError, match="'ffn.linear3'.*ffn.linear2"):
        workload_ops.time_kernel(cpu(), geometry=tiny().identity(), path="default", kernel="ffn.linear3")


def test_a_window_that_is_no_multiple_of_the_chunk_is_one_clear_line():
    odd = tiny(window=5)
    with pytest.raises(UserError, match="whole chunks of 2 latent frames"):
        workload_ops.capture(cpu(), geometry=odd.identity(), path="default")


def test_a_launch_over_its_budget_is_refused():
    with pytest.raises(Refused, match="time box"):
        workload_ops.time_kernel(
            cpu(), geometry=tiny().identity(), path="default", kernel="ffn.linear1", protocol=QUICK, budget_s=1e-9
        )


def call_of(function, *arguments, name="op", **keywords):
    from escherlib.kernels.observe import Call

    return Call(0, name, function, arguments, keywords)


def test_the_check_finds_what_is_wrong_and_accepts_what_is_rounded():
    torch.manual_seed(1)
    a, b = torch.randn(64, 256), torch.randn(256, 32)
    right = op_check.check(call_of(torch.mm, a, b), FORMATS["fp32"])
    assert right["ok"] and right["error"] < right["bound"] == pytest.approx(4 * 2.0**-24 + 2 * 16 * 2.0**-24)
    half = op_check.check(call_of(torch.mm, a.bfloat16(), b.bfloat16()), FORMATS["bf16"])
    assert half["ok"] and half["error"] > 1e-4  # one rounding of the output shows

    def off_by_one_column(x, y):
        result = x @ y
        return result.roll(1, 1) if x.dtype == torch.bfloat16 else result

    wrong = op_check.check(call_of(off_by_one_column, a.bfloat16(), b.bfloat16()), FORMATS["bf16"])
    assert not wrong["ok"] and wrong["error"] > 1

    def not_a_number(x, y):
        return x @ y * (torch.nan if x.dtype == torch.bfloat16 else 1)

    broken = op_check.check(call_of(not_a_number, a.bfloat16(), b.bfloat16()), FORMATS["bf16"])
    assert not broken["ok"] and broken["error"] is None
    with pytest.raises(Refused, match="wrong result after timing: relative error not finite"):
        op_check.require_right(broken, "op", "after")


def test_a_check_leaves_the_recorded_tensors_alone():
    x, y = torch.randn(8, 16), torch.randn(16, 16)
    before = x.clone()

    def addmm_(t, a, b):
        return t.addmm_(a, b)

    a = torch.randn(8, 16)
    assert op_check.check(call_of(addmm_, x, a, y), FORMATS["fp32"])["ok"] and torch.equal(x, before)


def test_a_wrong_output_buffer_is_found_too():
    x, out, other = torch.randn(8, 16), torch.empty(8, 16), torch.empty(8, 16)

    def two(value, sum_out, out):
        sum_out.copy_(value)
        out.copy_(value * (2 if value.dtype == torch.float32 else 3))

    assert not op_check.check(call_of(two, x, sum_out=other, out=out), FORMATS["fp32"])["ok"]


def test_work_rotates_over_all_recorded_calls():
    seen = []
    work = workload_ops.prepared([call_of(seen.append, 0), call_of(seen.append, 1)])
    for i in range(4):
        work.call(i)
    assert seen == [0, 1, 0, 1] and work.rotation["sets"] == 2


def test_the_backend_names_what_runs():
    stack = SimpleNamespace(path="optimized", backends={"self_attn.flash": "sdpa:math"}, time=[SimpleNamespace(weight=torch.zeros(1))])
    kernels = {k.name: k for k in paths.kernels(tiny(), "optimized")}
    assert workload_ops.backend_of(kernels["self_attn.flash"], stack) == "sdpa:math"
    assert workload_ops.backend_of(kernels["fused.qk_norm"], stack) == "torch"  # no Triton on a CPU tensor


def test_the_scale_stands_in_the_record():
    w = tiny().model_copy(update={"scale_note": "3 of 40 blocks"})
    found = workload_ops.capture(cpu(), geometry=w.geometry(), path="default", depth_captured=2)
    assert found["scale"]["note"] == "3 of 40 blocks" and found["scale"]["blocks"] == 3
