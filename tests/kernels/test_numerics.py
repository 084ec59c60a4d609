"""Family 9's rows: statistics by hand, errors by exact fractions, wrong products caught, special values."""

from fractions import Fraction

import pytest
import torch

from escherlib.errors import Refused, UserError
from escherlib.kernels import numerics, single_product, special_values, summation, wrong_products
from escherlib.kernels.formats import FORMATS, format_of
from tests.kernels.stand_in import cpu


def patched(monkeypatch, run):
    """Every product from now on is `run(tensors)`, which writes into tensors["c"]."""
    monkeypatch.setattr(single_product.products, "kernel", lambda gemm, fmt, device: run)


def ones(k, dtype="bf16", m=2, n=2):
    """A product of `dtype` and its operands, all ones."""
    product = single_product.single(cpu(), dtype)
    return product, single_product.given(product, torch.ones(m, k), torch.ones(k, n))


def exactly(a, b):
    """(A·B, |A|·|B|) in fractions: no rounding at all."""
    rows = [[Fraction(float(x)) for x in row] for row in a.double()]
    columns = [[Fraction(float(x)) for x in column] for column in b.double().T]
    ref = [[sum(x * y for x, y in zip(r, c, strict=True)) for c in columns] for r in rows]
    sizes = [[sum(abs(x * y) for x, y in zip(r, c, strict=True)) for c in columns] for r in rows]
    return ref, sizes


# ---- statistics


def test_spacing_by_hand():
    values = torch.tensor([1.0, -3.0, 0.0, 256.0])
    assert numerics.spacing(values, torch.bfloat16).tolist() == [2.0**-7, 2.0**-6, 2.0**-133, 2.0]
    assert numerics.spacing(values, torch.float16).tolist() == [2.0**-10, 2.0**-9, 2.0**-24, 0.25]
    assert numerics.spacing(values[:1], torch.float32).tolist() == [2.0**-23]


def test_errors_in_ulp_by_hand():
    ref = torch.tensor([1.0, 2.0, 4.0, -1.0], dtype=torch.float64)
    result = torch.tensor([1.0 + 2.0**-7, 2.0, 4.0 + 4 * 2.0**-5, -1.0 - 2.0**-7]).to(torch.bfloat16)
    found = numerics.in_ulp(result, ref, torch.bfloat16)  # 1, 0, 4, 1 ulp
    assert (found["max"], found["quantiles"]["p50"], found["nonfinite"]) == (4.0, 1.0, 0)
    counts = dict(zip(found["histogram"]["edges_log2"], found["histogram"]["counts"], strict=False))
    assert {edge: count for edge, count in counts.items() if count} == {-6: 1, 0: 2, 2: 1}


def test_octaves_hold_what_lies_beyond_at_their_ends():
    low, high = 2.0 ** numerics.ULP_EDGES_LOG2[0], 2.0 ** numerics.ULP_EDGES_LOG2[-1]
    counts = numerics.octaves(torch.tensor([0.0, low / 8, low, high, 8 * high, 0.999, 1.0], dtype=torch.float64))
    assert counts[0] == 3 and counts[-1] == 2 and counts[5] == 1 and counts[6] == 1 and sum(counts) == 7


def test_non_finite_results_are_counted_apart():
    found = numerics.in_ulp(torch.tensor([torch.nan, 1.0]), torch.ones(2, dtype=torch.float64), torch.float32)
    assert (found["nonfinite"], found["max"]) == (1, 0.0)


def test_bias_by_hand():
    ref = torch.tensor([1.0, -1.0], dtype=torch.float64)  # of size 1: an ulp of bf16 is 2⁻⁷
    found = numerics.bias(torch.tensor([1.0 - 2.0**-7, -1.0 + 2.0**-7], dtype=torch.bfloat16), ref, torch.bfloat16)
    assert found["unit"] == 2.0**-7 and found["outward"] == {"mean": -1.0, "standard_error": 0.0}  # both towards zero
    assert found["upward"]["mean"] == 0.0 and found["upward"]["standard_error"] == pytest.approx(1.0)  # −1 and +1


# ---- errors


def test_two_by_two_by_hand():
    product = single_product.single(cpu(), "fp32")
    a, b = torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    tensors = single_product.given(product, a, b)
    ref, sizes = single_product.exact(tensors)
    assert product.run(tensors).tolist() == ref.tolist() == [[-9.0, -10.0], [43.0, 50.0]]
    assert sizes.tolist() == [[19.0, 22.0], [43.0, 50.0]]
    turned = single_product.along_k(product, tensors, torch.tensor([1, 0]))
    assert turned["a"].tolist() == [[-2.0, 1.0], [4.0, 3.0]] and product.run(turned).tolist() == ref.tolist()
    scaled = tensors | {"scale_a": torch.tensor(0.5), "scale_b": torch.tensor(0.25)}
    assert single_product.exact(scaled)[0].tolist() == [[-9 / 8, -10 / 8], [43 / 8, 50 / 8]]


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_layout_changes_no_value(layout):
    product = single_product.single(cpu(), "fp32", f"torch:{layout}")
    tensors = single_product.given(product, torch.eye(3), torch.arange(9.0).reshape(3, 3))
    assert product.run(tensors).tolist() == torch.arange(9.0).reshape(3, 3).tolist()
    kept = single_product.along_k(product, tensors, torch.tensor([0, 1]))
    assert product.run(kept)[2].tolist() == [0.0, 0.0, 0.0]  # the third of K is gone


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_error_is_that_of_exact_fractions(dtype):
    m, n, k = 3, 4, 40
    found = numerics.error_distribution(cpu(), dtype=dtype, k=k, m=m, n=n, repeats=1)
    product = single_product.single(cpu(), dtype)
    tensors = single_product.normal(product, m, n, k)
    ref, sizes = exactly(tensors["a"], tensors["b"])
    result, u, gamma = product.run(tensors).double(), FORMATS[dtype].unit_roundoff, 40**0.5 * 2.0**-24
    places = [(i, j) for i in range(m) for j in range(n)]
    errors = [abs(float(Fraction(float(result[p])) - ref[p[0]][p[1]])) / (
        u * abs(float(ref[p[0]][p[1]])) + gamma * float(sizes[p[0]][p[1]])) for p in places]  # fmt: skip
    assert found["max"] == pytest.approx(max(errors), rel=1e-6) and found["elements"] == 12
    assert found["ok"] and found["quantiles"]["p50"] == pytest.approx(sorted(errors)[6], rel=1e-6)  # the 7th of 12
    assert found["unit_roundoff"] == u and "γ = √K·2⁻²⁴" in found["bound_how"]


def test_a_row_has_what_its_record_needs():
    found = numerics.error_distribution(cpu(), dtype="bf16", k=128, m=32, n=32, repeats=2)
    assert found["states"] == {} and (found["m"], found["n"], found["k"]) == (32, 32, 128)
    assert found["repeat"]["runs"] == 3 and found["repeat"]["bitwise_equal"] and found["repeat"]["few_rows"]["rows"] == 16
    assert sum(found["ulp"]["histogram"]["counts"]) == 32 * 32 and found["emulation_max"] > 0
    assert found["inputs"] == "bfloat16" and found["output"] == "bfloat16"


def test_results_that_change_from_run_to_run_are_told(monkeypatch):
    calls = []

    def restless(t):
        calls.append(0)
        torch.mm(t["a"], t["b"], out=t["c"])
        if len(calls) == 5:
            t["c"][0, 0] += 1

    patched(monkeypatch, restless)
    monkeypatch.setattr(numerics, "_other_work", lambda product, index: None)
    product = single_product.single(cpu(), "fp32")
    tensors = single_product.normal(product, 8, 8, 64)
    repeat = numerics.repeated(product, tensors, product.run(tensors), 4)  # the fifth call is the fourth repeat
    assert (repeat["runs"], repeat["differing"], repeat["bitwise_equal"]) == (5, 1, False)
    assert repeat["few_rows"]["bitwise_equal"]


def test_bits_tell_signs_of_zero_and_keep_nan_equal():
    first, second = torch.tensor([0.0, torch.nan]), torch.tensor([-0.0, torch.nan])
    assert numerics.differing(first, second) == 1 and numerics.differing(first, first) == 0


def test_what_a_host_cannot_do_is_refused_with_the_reason():
    for dtype in ("tf32", "fp8", "fp8_e5m2"):
        with pytest.raises(Refused, match="tf32|fp8"):
            numerics.error_distribution(cpu(), dtype=dtype, k=64)
    with pytest.raises(Refused, match="the time box is 0 s"):
        numerics.error_distribution(cpu(), dtype="fp32", k=64, m=8, n=8, budget_s=0)
    with pytest.raises(UserError, match="unknown number format"):
        numerics.error_distribution(cpu(), dtype="fp4", k=64)


def test_e5m2_meets_e4m3_and_follows_the_chip():
    fmt = format_of(cpu(), "fp8_e5m2")
    assert (fmt.stored_as, fmt.right.stored_as, fmt.output) == ("float8_e5m2", "float8_e4m3fn", torch.bfloat16)
    fnuz = format_of(cpu(arch="gfx942"), "fp8_e5m2")
    assert (fnuz.stored_as, fnuz.right.stored_as) == ("float8_e5m2fnuz", "float8_e4m3fnuz")
    assert format_of(cpu(arch="gfx942"), "fp8").stored_as == "float8_e4m3fnuz"


# ---- products that are wrong on purpose


def test_wrong_products_by_hand():
    product, tensors = ones(256)
    right = product.run(tensors)
    assert wrong_products.dropped_block(product, tensors, right).unique().tolist() == [192.0]
    product, tensors = ones(8)
    assert wrong_products.dropped_block(product, tensors, product.run(tensors)).unique().tolist() == [6.0]
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert wrong_products.swapped_rows(product, tensors, rows).tolist() == [[3.0, 4.0], [1.0, 2.0], [5.0, 6.0]]
    # from 1024 on the numbers of bf16 are 8 apart: adding 4 falls back to the even neighbour, for ever
    product, tensors = ones(2048)
    assert wrong_products.short_sums(product, tensors, product.run(tensors)).unique().tolist() == [1024.0]


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("k", [64, 2048])
def test_the_bound_turns_every_wrong_product_away(dtype, k):
    found = numerics.error_distribution(cpu(), dtype=dtype, k=k, m=32, n=32, repeats=1)
    assert found["ok"] and {name: w["caught"] for name, w in found["wrong_kernels"].items()} == dict.fromkeys(wrong_products.KERNELS, True)
    assert all(w["error"] > w["bound"] for w in found["wrong_kernels"].values())


def test_a_bound_that_is_too_loose_is_told():
    product = single_product.single(cpu(), "fp32")
    tensors = single_product.normal(product, 16, 16, 64)
    result, truth = product.run(tensors), single_product.exact(tensors)
    found = wrong_products.judged(product, tensors, result, truth, 1.0, None)  # an error as large as the sum itself
    assert not any(entry["caught"] for name, entry in found.items() if name != "swapped_rows")
    beside = wrong_products.judged(product, tensors, result, truth, 1.0, 1e-9)  # the emulation catches them all the same
    assert all(entry["caught"] for entry in beside.values())


@pytest.mark.parametrize("dtype", ["fp8", "fp8_e5m2"])
def test_scaled_products_of_8_bit_operands(monkeypatch, dtype):
    """torch emulates them on a CPU: refused as a measurement, good enough to try scales, bound and special values."""
    monkeypatch.setattr(single_product, "require_supported", lambda device, fmt: None)
    found = numerics.error_distribution(cpu(), dtype=dtype, k=4096, m=32, n=32, repeats=1)
    assert found["ok"] and found["gamma"] == 2.0**-10 + 32 * 2.0**-23 and "emulation_max" not in found
    assert all(entry["error"] > entry["bound"] for entry in found["wrong_kernels"].values()), found["wrong_kernels"]
    tensors = single_product.normal(single_product.single(cpu(), dtype), 32, 32, 64)
    assert tensors["a"].float().abs().max() == torch.finfo(tensors["a"].dtype).max  # the largest fills the range
    assert tensors["scale_a"].item() * torch.finfo(tensors["a"].dtype).max == pytest.approx(3.2, abs=1.0)  # of 2048 normals
    special = special_values.special_values(cpu(), dtype=dtype)
    assert special["ok"], special["cases"]


# ---- ways of summing


def test_partial_sums_in_the_output_format_lose_the_last_one():
    product = single_product.single(cpu(), "bf16")
    a = torch.zeros(1, 1024)
    a[0, :257], a[0, 512:768] = 1.0, -1.0  # 257, which bf16 rounds to 256, and −256
    tensors = single_product.given(product, a, torch.ones(1024, 1))
    assert product.run(tensors).item() == 1.0 and summation.in_chunks(product, tensors, 2).item() == 0.0


def test_the_ways_of_summing_and_what_they_change():
    found = summation.accumulation(cpu(), dtype="bf16", k=1024, m=16, n=16, splits=(2, 3, 128))
    ways = {entry["variant"]: entry for entry in found["variants"]}
    assert list(ways) == ["as given", "K shuffled", "K in 2 chunks", "one float32 sum"]  # 3 divides nothing, 128 leave 8
    assert ways["as given"]["changed"] == 0.0 == ways["as given"]["largest_change_ulp"]
    assert ways["as given"]["within"] and ways["K in 2 chunks"]["changed"] > 0.05
    assert ways["K in 2 chunks"]["max"] > ways["as given"]["max"] and found["switches_tried"] == []


def test_a_switch_is_set_and_put_back():
    matmul, name = torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"
    before = getattr(matmul, name)
    for value in (False, True):
        with summation.switched(name, value) as there:
            assert there and bool(getattr(matmul, name)) is value
        assert getattr(matmul, name) == before
    with summation.switched("allow_magic", True) as there:
        assert not there


# ---- special values


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_special_values_of_this_host(dtype):
    found = special_values.special_values(cpu(), dtype=dtype)
    cases = {case["case"]: case for case in found["cases"]}
    assert found["ok"], found["cases"]
    assert cases["zeros"]["found"] == "all zero" and cases["NaN × 0"]["found"] == "240 finite, 16 NaN"
    assert cases["∞ × 0"]["found"] == "240 finite, 15 infinite, 1 NaN" and cases["∞ − ∞"]["found"] == "240 finite, 16 NaN"
    assert cases["overflow"]["found"] == "255 finite, 1 infinite"
    assert {cases[f"subnormal {what}"]["found"] for what in ("input", "result")} <= {"kept", "flushed to zero"}
    assert ("sum passes the range and returns" in cases) == (dtype == "fp16")


def broken_case(monkeypatch, run, dtype="fp32"):
    """Names of the cases that fail with such a product."""
    patched(monkeypatch, run)
    found = special_values.special_values(cpu(), dtype=dtype)
    assert found["ok"] == all(case["ok"] for case in found["cases"])
    return {case["case"] for case in found["cases"] if not case["ok"]}


def test_a_product_that_clamps_is_found(monkeypatch):
    run = lambda t: t["c"].copy_(t["a"].nan_to_num(posinf=1e30) @ t["b"].nan_to_num())  # noqa: E731
    assert broken_case(monkeypatch, run) == {"NaN in A", "NaN in B", "NaN × 0", "∞ in A", "∞ × 0", "∞ − ∞"}


def test_a_product_that_skips_zeros_is_found(monkeypatch):
    def skips(t):
        parts = t["a"].unsqueeze(2) * t["b"].unsqueeze(0)
        parts[(t["b"] == 0).unsqueeze(0).expand_as(parts)] = 0
        t["c"].copy_(parts.sum(1))

    assert broken_case(monkeypatch, skips) == {"NaN × 0", "∞ × 0"}


def test_a_short_accumulator_is_found_where_the_sum_leaves_the_range(monkeypatch):
    def short(t):
        t["c"].zero_()
        for i in range(t["a"].shape[1]):
            t["c"].add_(t["a"][:, i : i + 1] * t["b"][i : i + 1])

    assert broken_case(monkeypatch, short, "fp16") == {"sum passes the range and returns"}


def test_flushed_subnormals_are_told_and_no_fault(monkeypatch):
    def flushing(t):
        tiny = torch.finfo(t["a"].dtype).smallest_normal
        a, b = (torch.where(x.abs() < tiny, 0.0, x) for x in (t["a"], t["b"]))
        t["c"].copy_(a @ b)
        t["c"][t["c"].abs() < tiny] = 0.0

    patched(monkeypatch, flushing)
    found = special_values.special_values(cpu(), dtype="fp32")
    told = {case["case"]: case["found"] for case in found["cases"] if case["case"].startswith("subnormal")}
    assert found["ok"] and told == {"subnormal input": "flushed to zero", "subnormal result": "flushed to zero"}


def test_formats_without_infinity_leave_those_cases_out():
    assert not special_values.has_infinity(torch.float8_e4m3fn) and special_values.has_infinity(torch.float8_e5m2)
    left_out = special_values._omitted(FORMATS["fp8"])
    assert left_out["∞ in A"] == "float8_e4m3fn has no infinity" and "overflow" in left_out
    assert "∞ in A" not in special_values._omitted(FORMATS["fp8_e5m2"])
    assert special_values._cast(torch.float8_e5m2)["found"] == "infinite"
