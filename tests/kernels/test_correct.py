"""Error bounds against values worked out by hand."""

import math

import pytest
import torch

from escherlib.accounting import error_bounds
from escherlib.errors import Refused
from escherlib.kernels import correct, gemm_check
from escherlib.kernels.formats import FORMATS
from tests.kernels.stand_in import cpu


def test_gamma_of_a_matrix_unit_counts_truncations():
    # 1024 products, 16 at a time: 64 truncations of at most 2⁻²³ each
    assert error_bounds.gamma(1024, True, 16) == 64 * 2.0**-23 == 2.0**-17
    assert error_bounds.gamma(1025, True, 16) == 65 * 2.0**-23


def test_gamma_of_a_vector_unit_grows_as_the_root():
    assert error_bounds.gamma(1024, False, 16) == 32 * 2.0**-24


def test_fp8_carries_its_sums_over_every_128_products():
    # 128 products, 16 at a time, 13 fraction bits: 8·2⁻¹³; then 4096/128 = 32 additions in float32
    assert correct.gamma_for(FORMATS["fp8"], 4096, True) == 8 * 2.0**-13 + 32 * 2.0**-23


def test_k_block_defaults_to_sixteen_bytes_of_k():
    assert [correct.default_k_block(FORMATS[name]) for name in ("fp8", "bf16", "fp16", "tf32")] == [
        16,
        8,
        8,
        4,
    ]


def test_scaled_error_by_hand():
    ref = torch.tensor([[4.0, 0.0]], dtype=torch.float64)
    sizes = torch.tensor([[8.0, 16.0]], dtype=torch.float64)
    result = torch.tensor([[4.5, 0.25]])
    error, limit = correct.scaled_error(result, ref, 0.03125 * sizes, 0.25 * ref.abs())
    # 0.5 / (1 + 0.25), rounding dominates; 0.25 / 0.5, accumulation dominates
    assert error.tolist() == [[0.4, 0.5]]
    assert limit.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_result_is_never_right(bad):
    one = torch.ones(1, 1, dtype=torch.float64)
    found = correct.verdict(*correct.scaled_error(torch.tensor([[bad]]), one, one, one), "test")
    assert found["ok"] is False and found["error"] is None


def test_reference_is_exact_and_blocks_do_not_change_it(monkeypatch):
    a, b = torch.randn(3, 8), torch.randn(8, 5)
    whole = correct.reference(a, b)
    monkeypatch.setattr(correct, "BLOCK_ELEMENTS", 16)
    ref, sizes = correct.reference(a, b)
    # another block width may sum in another order: the last bit is the library's affair
    assert torch.allclose(ref, whole[0], rtol=1e-13) and torch.allclose(sizes, whole[1], rtol=1e-13)
    assert torch.allclose(sizes, a.double().abs() @ b.double().abs())


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_check_passes_a_right_product(dtype):
    found = gemm_check.check(cpu(), dtype=dtype, k=256, m=64, n=96)
    assert found["ok"] and found["correct"]["ok"]
    assert sum(found["histogram"]["counts"]) == found["elements"] == 64 * 96
    assert found["quantiles"]["p50"] <= found["quantiles"]["p999"] <= found["max"]
    assert found["gamma"] == 16 * 2.0**-24 and found["unit"] == "vector"
    assert ("emulation_max" in found) == (dtype != "fp32")


def test_check_tells_a_product_that_sums_in_its_own_format():
    # bf16 partial sums of 16 terms each: every one rounds to 8 bits before it is added
    def sloppy(t):
        t["c"].zero_()
        for start in range(0, t["a"].shape[1], 16):
            t["c"].add_(t["a"][:, start : start + 16] @ t["b"][start : start + 16])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm_check.products, "kernel", lambda gemm, fmt, device: sloppy)
        found = gemm_check.check(cpu(), dtype="bf16", k=1024, m=32, n=32)
    assert found["ok"] is False and found["correct"]["ok"] is False
    assert found["max"] > 4 * found["emulation_max"]


def test_the_emulation_is_judged_beside_the_bound():
    # a k_block of 1 product with a matrix unit makes the bound loose: 4 × the emulation still holds
    found = gemm_check.check(cpu(), dtype="fp16", k=512, m=32, n=32, unit="matrix", k_block=1)
    assert found["gamma"] == 512 * 2.0**-23 and found["k_block"] == 1 and found["emulation_ok"]


def test_formats_a_cpu_lacks_are_refused():
    for dtype in ("tf32", "fp8"):
        with pytest.raises(Refused, match=dtype):
            gemm_check.check(cpu(), dtype=dtype, k=64)
