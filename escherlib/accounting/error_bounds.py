"""How far may a product of rounded numbers be off? Unit roundoff of each format, and γ_K of a sum of K products.

A result C passes where |C − ref| ≤ u·|ref| + γ_K·Σ|a||b|, ref being exact on the same rounded inputs. The first
term is the rounding of the output, the second what accumulating K products may lose.
"""

import math

UNIT_ROUNDOFF = {  # half the spacing of output numbers near 1; 8-bit products come out in bf16
    "fp32": 2.0**-24, "tf32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "fp8": 2.0**-8, "fp8_e5m2": 2.0**-8,
}  # fmt: skip
OPERAND_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp8_e5m2": 1}
CARRIED = 128  # 8-bit products that a library sums in the matrix unit before it carries them into float32
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def gamma(k, matrix_unit, k_block, sum_unit=2.0**-23):
    """γ_K: the share of Σ|a||b| that summing K products may lose.

    A matrix unit adds `k_block` products to its accumulator at a time and truncates, losing less than one
    unit in the last place of float32 (`sum_unit`, 2⁻²³ of the sum) at each of the K/k_block steps; truncation
    has one sign, so losses add up. A vector unit rounds to nearest at each of K steps (2⁻²⁴); such errors
    have random signs and grow as √K.
    """
    if matrix_unit:
        return math.ceil(k / k_block) * sum_unit
    return math.sqrt(k) * 2.0**-24


def gamma_fp8(k, k_block):
    """γ_K of 8-bit floats: the unit may keep only 13 fraction bits of a sum, for the 128 products after which
    libraries carry it over into float32 (DeepSeek-V3 technical report, 3.3.2: "about 14 bits" on Hopper)."""
    carried = min(k, CARRIED)
    return gamma(carried, True, k_block, sum_unit=2.0**-13) + gamma(k, True, carried)


def default_k_block(dtype):
    """Products a matrix instruction sums at once: 16 bytes of K, the shallowest of the supported matrix units.

    Deeper instructions (32 bytes on recent chips) lose less, so this choice never makes the bound too tight.
    """
    return 16 // OPERAND_BYTES[dtype]


def gamma_of(dtype, k, matrix_unit, k_block=None):
    """γ_K of a number format; `k_block` None takes `default_k_block`."""
    k_block = k_block or default_k_block(dtype)
    return gamma_fp8(k, k_block) if OPERAND_BYTES[dtype] == 1 else gamma(k, matrix_unit, k_block)


def formula(dtype, matrix_unit, k_block=None):
    """γ as a reader would write it: `K/8·2⁻²³`, `√K·2⁻²⁴`."""
    k_block = k_block or default_k_block(dtype)
    if OPERAND_BYTES[dtype] == 1:
        return f"{CARRIED}/{k_block}·2⁻¹³ + K/{CARRIED}·2⁻²³"
    return f"K/{k_block}·2⁻²³" if matrix_unit else "√K·2⁻²⁴"


def power_text(value):
    """A power of two as text: 0.00390625 is `2⁻⁸`."""
    return "2" + str(round(math.log2(value))).translate(SUPERSCRIPTS)


def derivation(dtype, matrix_unit, k_block=None):
    """The bound of one format in one line, as a record keeps it."""
    unit = "matrix unit, truncating" if matrix_unit else "vector unit, rounding to nearest"
    u = power_text(UNIT_ROUNDOFF[dtype])
    return f"|C − ref| ≤ u·|ref| + γ·Σ|a||b|, u = {u}, γ = {formula(dtype, matrix_unit, k_block)} ({unit})"


def typical(dtype, k, matrix_unit):
    """(rounding, accumulation): mean allowance of each term for independent standard normal operands.

    |ref| averages √(2K/π), since ref is nearly normal with variance K; |a||b| averages 2/π.
    """
    rounding = UNIT_ROUNDOFF[dtype] * math.sqrt(2 * k / math.pi)
    return rounding, gamma_of(dtype, k, matrix_unit) * 2 * k / math.pi
