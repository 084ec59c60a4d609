"""Prepared products: what they cost, what they rotate, and that a wrong one never passes."""

import pytest
import torch

from escherlib.errors import Refused, UserError
from escherlib.kernels import backends, operands, products
from escherlib.kernels.formats import FORMATS
from tests.kernels.stand_in import cpu

SMALL = products.Gemm(48, 80, 64)
BF16, FP32, FP8 = FORMATS["bf16"], FORMATS["fp32"], FORMATS["fp8"]


@pytest.mark.parametrize(
    ("gemm", "fmt", "flop", "moved"),
    [
        (SMALL, BF16, 491_520, 2 * (48 * 64 + 64 * 80 + 48 * 80)),
        (SMALL, FP8, 491_520, 48 * 64 + 64 * 80 + 2 * 48 * 80),
        (products.Gemm(48, 80, 64, op="addmm", bias=True), BF16, 491_520, 24_064 + 160),
        (products.Gemm(48, 80, 64, op="bmm", batch=3), FP32, 3 * 491_520, 3 * 48_128),
        (
            products.Gemm(48, 80, 64, op="addmm", activation="gelu", fused=False),
            BF16,
            491_520,
            24_224 + 2 * 7680,
        ),
    ],
)
def test_flop_and_bytes_by_hand(gemm, fmt, flop, moved):
    assert gemm.flop == flop
    assert products.moved_bytes(gemm, fmt)[0] == moved


@pytest.mark.parametrize("backend", ["torch:nn", "torch:nt"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "more",
    [
        {}, {"op": "addmm", "bias": True}, {"op": "addmm", "activation": "gelu"},
        {"op": "addmm", "activation": "gelu", "fused": False}, {"op": "bmm", "batch": 3},
    ],
)  # fmt: skip
def test_every_form_is_right_before_and_after(backend, dtype, more):
    product = products.prepare(cpu(), products.Gemm(48, 80, 64, **more), FORMATS[dtype], backend)
    assert product.check("before")["ok"]
    product.poison()
    for i in range(3):
        product.call(i)
    assert product.touched == {0, 1, 2} and product.check("after")["ok"]


def test_sets_span_four_caches_and_live_apart():
    product = products.prepare(cpu(), SMALL, BF16, "torch:nn")
    size = products.set_bytes(SMALL, BF16)
    assert len(product.sets) == -(-4 * 2**20 // size) and product.rotation["spans_cache"] is True
    assert len({t["a"].data_ptr() for t in product.sets}) == len(product.sets)
    assert torch.equal(product.sets[0]["a"], product.sets[-1]["a"])


def test_unknown_cache_is_told_apart_from_a_small_span():
    assert operands.set_count(2**20, cpu(llc_bytes=None)) == (1, None)
    assert operands.set_count(2**20, cpu(memory_bytes=3 * 2**20, llc_bytes=2**20)) == (2, False)


def test_operands_that_do_not_fit_are_refused():
    with pytest.raises(Refused, match="does not fit"):
        products.prepare(cpu(memory_bytes=2**10), SMALL, BF16, "torch:nn")


def test_an_untouched_output_is_wrong():
    product = products.prepare(cpu(), SMALL, BF16, "torch:nn")
    product.poison()
    product.touched.add(0)
    with pytest.raises(Refused, match="wrong result after timing: scaled error not finite"):
        product.check("after")


def test_one_wrong_row_is_found():
    product = products.prepare(cpu(), SMALL, FP32, "torch:nn")
    product.sets[0]["c"][47] += 0.01
    with pytest.raises(Refused, match="wrong result before timing"):
        product.check("before")


@pytest.mark.parametrize(
    "bad", [{"m": 0}, {"op": "conv"}, {"activation": "relu"}, {"batch": 2}, {"op": "bmm", "bias": True}]
)
def test_bad_input_is_a_user_error(bad):
    with pytest.raises(UserError):
        products.Gemm(**({"m": 8, "n": 8, "k": 8} | bad)).validated()


def test_backends_of_each_stack():
    cuda, rocm = cpu(kind="gpu", stack="cuda"), cpu(kind="gpu", stack="rocm")
    assert backends.available(cpu(), BF16) == ("torch:nn", "torch:nt")
    assert backends.available(cuda, BF16) == ("cublas:nn", "cublas:nt", "cublaslt:nn", "cublaslt:nt")
    assert backends.available(cuda, BF16, epilogue=True) == ("cublaslt:nn", "cublaslt:nt")
    assert backends.available(rocm, BF16)[-1] == "hipblaslt:nt"
    assert backends.available(cuda, FP8) == ("scaled_mm:nt",)
    with pytest.raises(Refused, match="available: torch:nn"):
        backends.require(cpu(), BF16, "cublas:nn")


def test_tf32_values_are_rounded_to_ten_bits_ties_to_even():
    one_and = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-20, -1 - 2.0**-12]
    rounded = operands.round_mantissa_(torch.tensor(one_and), 10)
    assert rounded.tolist() == [1.0, 1 + 2 * 2.0**-10, 1 + 2.0**-10, -1.0]


def test_sampled_rows_hold_both_ends():
    rows = products.sample(4680, 64, cpu())
    assert len(rows) == 64 and (rows[0], rows[-1]) == (0, 4679) and rows.diff().max() <= 75
    assert products.sample(3, 64, cpu()).tolist() == [0, 1, 2]
