"""The bound of a rounded product: values worked out by hand, and by counting on random numbers."""

import math
import random

import pytest

from escherlib.accounting import error_bounds


def test_gamma_by_hand():
    assert error_bounds.gamma_of("bf16", 1024, True) == 128 * 2.0**-23  # 8 products at a time
    assert error_bounds.gamma_of("tf32", 1024, True) == 256 * 2.0**-23  # 4 at a time
    assert error_bounds.gamma_of("fp32", 1024, False) == 32 * 2.0**-24
    assert error_bounds.gamma_of("bf16", 1024, True, k_block=16) == 64 * 2.0**-23
    # 8 truncations to 13 bits in the unit, then 2 additions in float32, for both kinds of 8-bit operands
    assert error_bounds.gamma_of("fp8", 256, True) == error_bounds.gamma_of("fp8_e5m2", 256, True) == 2.0**-10 + 2 * 2.0**-23


def test_a_reader_sees_what_is_computed():
    assert error_bounds.formula("bf16", True) == "K/8·2⁻²³" and error_bounds.formula("fp32", False) == "√K·2⁻²⁴"
    assert error_bounds.formula("fp8", True) == "128/16·2⁻¹³ + K/128·2⁻²³"
    assert error_bounds.power_text(2.0**-11) == "2⁻¹¹"
    told = error_bounds.derivation("fp16", True)
    assert "u = 2⁻¹¹" in told and "γ = K/8·2⁻²³ (matrix unit, truncating)" in told


@pytest.mark.parametrize("dtype", error_bounds.UNIT_ROUNDOFF)
def test_every_format_has_all_its_figures(dtype):
    assert 16 % error_bounds.OPERAND_BYTES[dtype] == 0 and error_bounds.gamma_of(dtype, 64, dtype != "fp32") > 0


def test_typical_allowances_are_means_over_normal_operands():
    source, k = random.Random(7), 64
    refs, sizes = [], []
    for _ in range(2000):
        products = [source.gauss(0, 1) * source.gauss(0, 1) for _ in range(k)]
        refs.append(abs(math.fsum(products)))
        sizes.append(math.fsum(map(abs, products)))
    rounding, accumulation = error_bounds.typical("bf16", k, True)
    assert rounding == pytest.approx(2.0**-8 * sum(refs) / len(refs), rel=0.06)
    assert accumulation == pytest.approx(8 * 2.0**-23 * sum(sizes) / len(sizes), rel=0.02)
