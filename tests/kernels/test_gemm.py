"""Rows that time one product: their fields, what they refuse, how a device is settled."""

import json

import pytest
import torch

from escherlib.errors import Refused, UserError
from escherlib.kernels import gemm, products, timed
from escherlib.kernels.formats import FORMATS
from escherlib.method import full_arguments
from tests.kernels.stand_in import QUICK, cpu

SHAPE = {"m": 64, "n": 96, "k": 64}
CONTRACT = {
    "states",
    "flop",
    "bytes",
    "bytes_how",
    "dtype",
    "fill",
    "backend",
    "correct",
    "rotation",
    "emulated",
}


@pytest.fixture(autouse=True)
def unsettled():
    timed.forget()
    yield
    timed.forget()


def test_a_row_has_what_the_record_needs():
    found = gemm.time_gemm(cpu(), **SHAPE, states=["cold", "burst", "sustained", "hot"], protocol=QUICK)
    assert found.keys() >= CONTRACT and list(found["states"]) == ["sustained", "burst", "cold", "hot"]
    assert found["flop"] == 2 * 64 * 96 * 64 and found["bytes"] == 4 * (64 * 64 + 64 * 96 + 64 * 96)
    for name, state in found["states"].items():
        assert state["state"] == name and state["windows_ns"]
        assert state["tflops"] == pytest.approx(found["flop"] / state["median_s"] / 1e12)
    assert found["correct"]["ok"] and found["correct_before"]["ok"]
    assert set(found["choice"]) == {"torch:nn", "torch:nt"} and found["backend"] in found["choice"]
    json.dumps(found, allow_nan=False)


def test_arguments_are_plain_values_with_defaults():
    assert json.dumps(full_arguments(gemm.time_gemm, SHAPE), allow_nan=False)
    assert gemm.time_gemm.method_version and gemm.time_dtype.method_version


def test_the_device_is_settled_once_in_a_process_and_by_the_named_gemm():
    peak = {"m": 32, "n": 32, "k": 32, "backend": "torch:nt"}
    first = gemm.time_gemm(cpu(), **SHAPE, settle=peak, states=["sustained"], protocol=QUICK)
    second = gemm.time_gemm(cpu(), **SHAPE, states=["sustained"], protocol=QUICK)
    assert first["settled"]["what"] == peak and second["settled"] == first["settled"]
    assert gemm.time_gemm(cpu(), **SHAPE, states=["burst"], protocol=QUICK)["settled"] is None


@pytest.mark.parametrize("spoilt_from", [0, 1])
def test_a_wrong_backend_is_refused_before_and_after(monkeypatch, spoilt_from):
    """Wrong from its first call on; or right at first, and wrong in the timed loop."""
    calls = [0]

    def sloppy(work, fmt, device):
        def run(t):
            torch.mm(t["a"], t["b"], out=t["c"])
            if calls[0] >= spoilt_from:
                t["c"].mul_(1.001)
            calls[0] += 1

        return run

    monkeypatch.setattr(products, "kernel", sloppy)
    with pytest.raises(Refused, match=f"wrong result {'after' if spoilt_from else 'before'} timing"):
        gemm.time_gemm(cpu(), **SHAPE, backend="torch:nn", states=["hot"], protocol=QUICK)


def test_a_timed_loop_that_writes_nothing_is_refused(monkeypatch):
    calls = [0]

    def lazy(work, fmt, device):
        def run(t):
            if calls[0] == 0:
                torch.mm(t["a"], t["b"], out=t["c"])
            calls[0] += 1

        return run

    monkeypatch.setattr(products, "kernel", lazy)
    with pytest.raises(Refused, match="not finite"):
        gemm.time_gemm(cpu(), **SHAPE, backend="torch:nn", states=["hot"], protocol=QUICK)


def test_auto_leaves_out_a_wrong_backend_and_says_why(monkeypatch):
    kernel = products.kernel

    def sloppy(work, fmt, device):
        right = kernel(work, fmt, device)

        def run(t):
            right(t)
            if t["w"].shape == (work.n, work.k):
                t["c"].add_(1.0)

        return run

    monkeypatch.setattr(products, "kernel", sloppy)
    found = gemm.time_gemm(cpu(), **SHAPE, states=["hot"], protocol=QUICK)
    assert found["backend"] == "torch:nn" and "wrong result" in found["choice"]["torch:nt"]


def test_unavailable_backends_and_unknown_words_are_told_apart():
    with pytest.raises(Refused, match="cublas:nn"):
        gemm.time_gemm(cpu(), **SHAPE, backend="cublas:nn", protocol=QUICK)
    with pytest.raises(UserError, match="bf17"):
        gemm.time_gemm(cpu(), **SHAPE, dtype="bf17")
    with pytest.raises(UserError, match="states"):
        gemm.time_gemm(cpu(), **SHAPE, states=["warm"])
    with pytest.raises(UserError, match="fill"):
        gemm.time_gemm(cpu(), **SHAPE, fill="ones")


def test_a_product_too_heavy_for_its_time_box_is_refused_from_a_small_probe(monkeypatch):
    asked = []
    monkeypatch.setattr(timed, "quick_pass", lambda calls, clock, **more: asked.append(1) or {"probe": 1e-3})
    # 256³ in 1 ms is 33.6 GFLOP/s: 4096³ takes 4.1 s; 512³ in 1 ms makes it 0.5 s
    with pytest.raises(Refused, match=r"about 0\.512 s in fp32 here, the time box is 0\.5 s"):
        gemm.time_gemm(cpu(), m=4096, n=4096, k=4096, budget_s=0.5, protocol=QUICK)
    assert len(asked) == 2


def test_a_format_emulated_so_slowly_that_even_the_second_probe_is_too_much(monkeypatch):
    asked = []
    monkeypatch.setattr(timed, "quick_pass", lambda calls, clock, **more: asked.append(1) or {"probe": 1.0})
    with pytest.raises(Refused, match=r"about 4\.1e\+03 s in bf16"):
        gemm.time_dtype(
            cpu(native_bf16=False), dtype="bf16", m=4096, n=4096, k=4096, budget_s=2, protocol=QUICK
        )
    assert len(asked) == 1


def test_emulated_formats_are_labelled():
    common = {**SHAPE, "backend": "torch:nn", "states": ["hot"], "protocol": QUICK}
    assert gemm.time_dtype(cpu(native_bf16=False), dtype="bf16", **common)["emulated"] is True
    assert gemm.time_dtype(cpu(), dtype="bf16", **common)["emulated"] is False
    with pytest.raises(Refused, match="fp8"):
        gemm.time_dtype(cpu(), dtype="fp8", **common)


def test_zeros_are_a_named_variant():
    found = gemm.time_gemm(cpu(), **SHAPE, fill="zeros", backend="torch:nn", states=["hot"], protocol=QUICK)
    assert found["fill"] == "zeros" and found["correct"]["ok"]


def test_fused_and_separate_gelu_are_both_right():
    common = {
        **SHAPE,
        "op": "addmm",
        "bias": True,
        "activation": "gelu",
        "states": ["hot"],
        "protocol": QUICK,
    }
    fused = gemm.time_gemm(cpu(), dtype="bf16", **common)
    apart = gemm.time_gemm(cpu(), dtype="bf16", fused=False, **common)
    assert apart["bytes"] - fused["bytes"] == 2 * 2 * 64 * 96 and apart["flop"] == fused["flop"]


def test_a_state_that_a_cache_may_hold_says_so():
    product = products.prepare(cpu(), products.Gemm(64, 96, 64), FORMATS["fp32"], "torch:nn")
    product.rotation["spans_cache"] = False
    clock = timed.timing.clock_for(cpu())
    assert timed.time_states(product, clock, ["cold"], QUICK)["cold"]["label"] == "may fit in cache"
