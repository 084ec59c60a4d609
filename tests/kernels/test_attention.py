"""Attention backends by name: which there are, what they return, which are refused; the error bound."""

import json
import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from escherlib.errors import Refused, UserError
from escherlib.kernels import attention, attention_backends, attention_check, timed
from escherlib.method import full_arguments
from tests.kernels.stand_in import QUICK, cpu

SELF = {"op": "self_attn.flash", "query_tokens": 48, "kv_tokens": 144, "heads": 2, "head_dim": 32}
CROSS = {**SELF, "op": "cross_attn.flash", "kv_tokens": 40}
ON_CPU = ("sdpa:flash", "sdpa:math", "sdpa")


@pytest.fixture(autouse=True)
def unsettled():
    timed.forget()
    yield
    timed.forget()


def hopper(**changes):
    fields = {"kind": "gpu", "stack": "cuda", "arch": "sm_90", "peak_dtype": "bf16"}
    return cpu(**(fields | changes))


def operands(queries=32, keys=512, heads=2, width=64, dtype=torch.bfloat16, spread=3.0):
    source = torch.Generator().manual_seed(7)
    q = (torch.randn(1, queries, heads, width, generator=source) * spread).to(dtype)
    k, v = (torch.randn(1, keys, heads, width, generator=source).to(dtype) for _ in range(2))
    return q, k, v


def online(q, k, v, block=64, left_out=None):
    """An honest kernel: blocks of keys, running maximum, P rounded ahead of its product, sums in float32."""
    out = torch.empty_like(q)
    for h in range(q.shape[2]):
        rows, keys, values = (t[0, :, h].float() for t in (q, k, v))
        top = torch.full((len(rows), 1), -math.inf)
        total, result = torch.zeros(len(rows), 1), torch.zeros_like(rows)
        for i in range(0, len(keys), block):
            if left_out is not None and i // block == left_out:
                continue
            scores = rows @ keys[i : i + block].T / math.sqrt(rows.shape[1])
            above = torch.maximum(top, scores.amax(1, keepdim=True))
            p, fade = (scores - above).exp(), (top - above).exp()
            total = total * fade + p.sum(1, keepdim=True)
            result = result * fade + p.to(q.dtype).float() @ values[i : i + block]
            top = above
        out[0, :, h] = (result / total).to(q.dtype)
    return out


# the error bound


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 6.0])
def test_the_bound_holds_for_an_honest_kernel_and_not_without_a_block_of_keys(dtype, spread):
    q, k, v = operands(keys=2048, dtype=dtype, spread=spread)
    assert attention_check.check_output(online(q, k, v), q, k, v)["ok"]
    for block in (0, 13, 31):  # 64 of 2048 keys
        found = attention_check.check_output(online(q, k, v, left_out=block), q, k, v)
        assert not found["ok"] and found["error"] > found["bound"]


def with_one(out, value):
    out = out.clone()
    out[0, 11, 1, 5] = value
    return out


@pytest.mark.parametrize(
    "spoil",
    [
        torch.zeros_like,
        lambda out: out.roll(1, dims=2),  # heads exchanged
        lambda out: out.roll(1, dims=1),
        lambda out: out * 1.02,
        lambda out: torch.full_like(out, math.nan),
        lambda out: with_one(out, math.nan),
        lambda out: with_one(out, math.inf),
        lambda out: out[:, :-1],
        lambda out: out.float(),
        lambda out: out.transpose(1, 2),
    ],
)
def test_wrong_outputs_are_found(spoil):
    q, k, v = operands(queries=200)
    out = online(q, k, v)
    found = attention_check.check_output(spoil(out), q, k, v)
    assert not found["ok"] and attention_check.check_output(out, q, k, v)["ok"]
    json.dumps(found, allow_nan=False)


def test_the_last_rows_and_every_head_are_among_the_sample():
    assert attention_check.sampled(5, 16, "cpu").tolist() == [0, 1, 2, 3, 4]
    rows = attention_check.sampled(4680, 64, "cpu").tolist()
    assert rows[0] == 0 and rows[-1] == 4679 and rows == sorted(set(rows)) and 62 <= len(rows) <= 64
    q, k, v = operands(queries=300, heads=3)
    for head in range(3):
        out = online(q, k, v)
        out[0, -1, head] += 0.5  # the last tile is the one a kernel forgets
        assert not attention_check.check_output(out, q, k, v)["ok"]


def test_allowance_of_one_key_is_rounding_alone():
    """With one key p is 1 and o is v: only the rounding of the result, of P, and small terms are left."""
    q, k, v = operands(queries=1, keys=1, heads=1, width=4)
    _, reference, allowance = attention_check.expect(q, k, v)
    u, size = 2.0**-8, v.double().abs()
    assert torch.equal(reference, v.double())
    least = (u + attention_check.SIGMAS * u + 2 * 2.0**-13) * size
    assert (allowance >= least).all() and (allowance <= 1.01 * least).all()


# backends


def test_every_backend_of_a_cpu_agrees_and_returns_contiguous_tokens():
    q, _, _ = operands(queries=20, heads=3, width=32)
    ring = torch.randn(100, 3 * 96, generator=torch.Generator().manual_seed(1)).bfloat16()
    k, v = (part.unflatten(1, (3, 32)).unsqueeze(0) for part in ring.split(96, dim=1)[1:])
    before = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    for name in ON_CPU:
        out = attention.attend(name)(q, k, v)
        assert out.shape == q.shape and out.is_contiguous()
        assert attention.check_output(out, q, k, v)["ok"]
    assert before == (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled())


def test_one_backend_is_forced(monkeypatch):
    """What torch would choose by itself is switched off, and on again even after a failure."""
    seen = []

    def watch(*_):
        flags = torch.backends.cuda
        seen.append([n for n in attention_backends.SDPA.values() if getattr(flags, f"{n}_sdp_enabled")()])
        raise RuntimeError("as a backend does that takes no such shape")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watch)
    for name in ("sdpa:cudnn", "sdpa:flash", "sdpa:efficient", "sdpa:math"):
        with pytest.raises(RuntimeError):
            attention.attend(name)(*operands(4, 4))
    assert seen == [["cudnn"], ["flash"], ["mem_efficient"], ["math"]]
    assert torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()


def test_unknown_names_are_the_users_mistake():
    for call in (attention.attend, attention.layout, lambda name: attention.survey(cpu(), names=(name,))):
        with pytest.raises(UserError, match="'fa5'.*fa4, fa4:192x128, flash_attn.*sdpa"):
            call("fa5")
    with pytest.raises(UserError, match="none named"):
        attention.survey(cpu(), names=())
    with pytest.raises(UserError, match="unknown"):
        attention.time_attention(cpu(), **SELF, backend="fa5")


def test_survey_says_what_a_cpu_has_and_why_not():
    found = attention.survey(cpu())
    assert tuple(found) == attention.BACKENDS
    assert [name for name, reason in found.items() if reason is None] == list(ON_CPU)
    assert "cuda" in found["fa4"] and "rocm" in found["aiter"]
    assert list(attention.survey(cpu(), names=["sdpa", "sdpa:math"])) == [
        "sdpa:math",
        "sdpa",
    ]  # in their fixed order
    assert set(attention.survey(cpu(), "fp8").values()) == {"attention is measured in 16 and 32 bits"}


def test_survey_knows_the_limits_of_gpus(monkeypatch):
    monkeypatch.setattr(
        attention_backends, "PROBES", {name: lambda *_: None for name in attention_backends.PROBES}
    )
    cases = {
        ("sm_90", "bf16"): {"aiter"},
        ("sm_100", "bf16"): {"aiter", "fa4:192x128"},
        ("sm_89", "fp16"): {"aiter", "fa4", "fa4:192x128"},
        ("sm_75", "fp32"): {"aiter", "fa4", "fa4:192x128", "flash_attn", "sdpa:cudnn", "sdpa:flash", "flex"},
        ("sm_90", "fp32"): {"aiter", "fa4", "fa4:192x128", "flash_attn", "sdpa:cudnn", "sdpa:flash"},
    }
    for (arch, dtype), lacking in cases.items():
        found = attention.survey(hopper(arch=arch), dtype)
        assert {name for name, reason in found.items() if reason} == lacking, arch
    found = attention.survey(hopper(stack="rocm", arch="gfx942"))
    assert {name for name, reason in found.items() if reason} == {"fa4", "fa4:192x128", "sdpa:cudnn"}


@pytest.fixture
def package(monkeypatch):
    """Puts a stand-in module in the place of an optional package."""

    def put(path, **content):
        parts = path.split(".")
        for i in range(len(parts)):
            module = ModuleType(".".join(parts[: i + 1]))
            module.__path__, module.__spec__ = (
                [],
                SimpleNamespace(name=parts[i], submodule_search_locations=[]),
            )
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(content)

    return put


def test_an_absent_package_is_a_reason_with_advice(monkeypatch):
    monkeypatch.setattr(attention_backends.importlib.util, "find_spec", lambda name: None)
    found = attention.survey(hopper(), names=("fa4", "flash_attn", "flex"))
    assert found["fa4"].startswith("flash-attn-4 is not installed; `make setup EXTRAS=fa4`")
    assert found["flash_attn"].startswith("flash_attn is not installed") and "triton" in found["flex"]
    with pytest.raises(Refused, match="not installed"):
        attention.attend("fa4")


def test_flash_attn_4_alone_is_not_flash_attn_2(package):
    package("flash_attn.cute.interface", flash_attn_func=lambda q, k, v: (q, None))
    found = attention.survey(hopper(), names=("fa4", "fa4:192x128", "flash_attn"))
    assert found["fa4"] is None and found["flash_attn"].startswith("flash_attn is not installed")
    assert found["fa4:192x128"] == "flash-attn-4 has no _flash_attn_fwd in this version"


def test_a_stranger_called_aiter_and_a_broken_package(package, monkeypatch):
    package("aiter")
    rocm = hopper(stack="rocm", arch="gfx942")
    assert "no flash_attn_func" in attention.survey(rocm, names=("aiter",))["aiter"]
    monkeypatch.setattr(attention_backends.importlib.util, "find_spec", lambda name: object())

    def broken(name):
        raise OSError("undefined symbol: _ZN3c10\nmore")

    monkeypatch.setattr(attention_backends.importlib, "import_module", broken)
    assert attention.survey(rocm, names=("aiter",))["aiter"] == (
        "aiter can't be imported (OSError: undefined symbol: _ZN3c10)"
    )


def test_tiles_are_given_as_a_version_takes_them(package):
    seen = []

    def older(q, k, v, tile_mn=None, mma_pv_is_rs=None, num_threads=384):
        seen.append((tile_mn, mma_pv_is_rs, num_threads))
        return q, None, None

    def newer(q, k, v, tile_mn=None, mma_pv_is_rs=None):
        seen.append((tile_mn, mma_pv_is_rs))
        return q, None

    q, k, v = operands(4, 4)
    for function in (older, newer):
        package("flash_attn.cute.interface", _flash_attn_fwd=function)
        assert attention.attend("fa4:192x128")(q, k, v) is q
    assert seen == [((192, 128), False, 512), ((192, 128), False)]
    package("flash_attn.cute.interface", _flash_attn_fwd=lambda q, k, v: q)
    with pytest.raises(Refused, match="does not take tile_mn"):
        attention.attend("fa4:192x128")


# rows


@pytest.mark.parametrize("shape", [SELF, CROSS])
@pytest.mark.parametrize("backend", ON_CPU)
def test_a_row_has_what_the_record_needs(shape, backend):
    found = attention.time_attention(
        cpu(), **shape, backend=backend, states=["hot", "sustained"], protocol=QUICK
    )
    assert list(found["states"]) == ["sustained", "hot"]
    assert found["flop"] == 4 * 48 * shape["kv_tokens"] * 64
    assert found["bytes"] == 4 * 64 * 2 * (48 + shape["kv_tokens"])
    state = found["states"]["sustained"]
    assert state["tflops"] == pytest.approx(found["flop"] / state["median_s"] / 1e12)
    assert (
        found["correct"]["ok"]
        and found["correct_before"]["ok"]
        and found["settled"]["what"]["op"] == shape["op"]
    )
    assert {k: found[k] for k in shape} == shape and found["backend"] == backend
    assert (
        found["rotation"]["spans_cache"] and "spread by 3" in found["fill"] and "strides" in found["layout"]
    )
    assert ("side by side" in found["layout"]) == (shape is SELF)
    json.dumps(found, allow_nan=False)


def test_arguments_are_plain_values_with_defaults():
    assert json.dumps(full_arguments(attention.time_attention, {**SELF, "backend": "sdpa"}), allow_nan=False)
    assert attention.time_attention.method_version


def test_the_device_is_settled_by_the_named_gemm():
    peak = {"m": 32, "n": 32, "k": 32, "backend": "torch:nt"}
    found = attention.time_attention(cpu(), **SELF, backend="sdpa", settle=peak, protocol=QUICK)
    assert found["settled"]["what"] == peak
    assert (
        attention.time_attention(cpu(), **CROSS, backend="sdpa", protocol=QUICK)["settled"]
        == found["settled"]
    )


def test_scores_spread_as_the_fill_says():
    work = attention.Attention("self_attn.flash", 200, 400, 2, 64)
    sets, rotation = attention.make_sets(cpu(), work, attention.format_of(cpu(), "fp32"))
    (q, k, v), (other, *_) = sets[0], sets[1]
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 8
    assert float(scores.std()) == pytest.approx(3, rel=0.05) and float(v.std()) == pytest.approx(1, rel=0.05)
    assert q.stride(1) == k.stride(1) == v.stride(1) == 3 * 128 and torch.equal(q, other)
    assert q.data_ptr() != other.data_ptr() and rotation["sets"] == len(sets)
    apart, _ = attention.make_sets(
        cpu(), attention.Attention("cross_attn.flash", 200, 40, 2, 64), attention.format_of(cpu(), "fp32")
    )
    assert all(t.is_contiguous() for t in apart[0])


def honest(q, k, v):
    return attention_backends.attend("sdpa")(q, k, v)


def once_right(spoil):
    """A backend that is right in its first call only."""
    calls = [0]

    def run(q, k, v):
        calls[0] += 1
        return honest(q, k, v) if calls[0] == 1 else spoil(q, k, v)

    return run


@pytest.mark.parametrize(
    "spoil",
    [
        lambda q, k, v: torch.zeros_like(q).contiguous(),
        lambda q, k, v: torch.full(q.shape, math.nan),
        lambda q, k, v: honest(q, k[:, :-16], v[:, :-16]),
        lambda q, k, v: honest(q, k, v).roll(1, dims=2),
        lambda q, k, v: honest(q, k, v)[:, :-1],
    ],
)
def test_wrong_backends_are_refused_before_and_after(monkeypatch, spoil):
    monkeypatch.setattr(attention, "attend", lambda name: spoil)
    with pytest.raises(Refused, match="sdpa gave a wrong result before timing"):
        attention.time_attention(cpu(), **SELF, backend="sdpa", states=["hot"], protocol=QUICK)
    monkeypatch.setattr(attention, "attend", lambda name: once_right(spoil))
    with pytest.raises(Refused, match="sdpa gave a wrong result after timing"):
        attention.time_attention(cpu(), **SELF, backend="sdpa", states=["hot"], protocol=QUICK)


def test_a_backend_that_writes_nothing_any_more_is_refused(monkeypatch):
    """It hands out the tensor of its first call again, which was right; NaN was put there meanwhile."""
    kept = []

    def lazy(q, k, v):
        kept.extend([honest(q, k, v)] if not kept else [])
        return kept[0]

    monkeypatch.setattr(attention, "attend", lambda name: lazy)
    with pytest.raises(Refused, match="wrong result after timing: not finite"):
        attention.time_attention(cpu(), **SELF, backend="sdpa", states=["hot"], protocol=QUICK)


def raising(error):
    def run(q, k, v):
        raise error

    return run


def test_a_backend_that_does_not_take_the_call_is_refused_with_its_words(monkeypatch):
    def warns(q, k, v):
        import warnings

        warnings.warn(
            "head_dim should be a multiple of 8 (Triggered internally at x.cpp:1.)", UserWarning, stacklevel=1
        )
        raise RuntimeError("No available kernel.\nmore")

    monkeypatch.setattr(attention, "attend", lambda name: warns)
    with pytest.raises(
        Refused, match=r"not take this attention \(No available kernel. head_dim .* multiple of 8\)"
    ):
        attention.time_attention(cpu(), **SELF, backend="sdpa", protocol=QUICK)
    monkeypatch.setattr(attention, "attend", lambda name: raising(AssertionError()))
    with pytest.raises(Refused, match=r"not take this attention \(AssertionError\)"):
        attention.time_attention(cpu(), **SELF, backend="sdpa", protocol=QUICK)


@pytest.mark.parametrize("calls_before", [0, 2])
def test_out_of_memory_is_refused_with_sizes(monkeypatch, calls_before):
    calls = [0]

    def run(q, k, v):
        calls[0] += 1
        if calls[0] > calls_before:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return honest(q, k, v)

    monkeypatch.setattr(attention, "attend", lambda name: run)
    with pytest.raises(
        Refused, match=r"sdpa: out of memory at 48×144×2×32; one set of operands takes 0.00 GiB, .* free"
    ):
        attention.time_attention(cpu(), **SELF, backend="sdpa", states=["hot"], protocol=QUICK)


def test_what_takes_too_long_or_too_much_is_refused_first(monkeypatch):
    large = {**SELF, "query_tokens": 4680, "kv_tokens": 18720, "heads": 2, "head_dim": 64}
    with pytest.raises(
        Refused, match=r"one call would take about .* s in fp32 here, the time box is 0.001 s"
    ):
        attention.time_attention(cpu(), **large, backend="sdpa", budget_s=0.001)
    monkeypatch.setattr(attention.operands, "free_bytes", lambda device: 2**30)
    with pytest.raises(
        Refused, match=r"sdpa:math: does not fit: its scores at 4680×18720×2×64 take 1.96 GiB, 0.80 GiB"
    ):
        attention.time_attention(cpu(), **large, backend="sdpa:math")
    with pytest.raises(Refused, match="fa4: made for cuda"):
        attention.time_attention(cpu(), **SELF, backend="fa4")


@pytest.mark.parametrize(
    "change, word", [({"op": "attention"}, "op 'attention'"), ({"heads": 0}, "at least 1")]
)
def test_bad_shapes_are_the_users_mistake(change, word):
    with pytest.raises(UserError, match=word):
        attention.time_attention(cpu(), **{**SELF, **change}, backend="sdpa")


# on a real GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("backend", attention.BACKENDS)
@pytest.mark.parametrize("shape", [SELF, CROSS])
def test_every_backend_is_right_or_refused_with_a_reason(backend, shape):
    from escherlib.hardware.device import open_device

    gpu = open_device("auto")
    larger = {
        **shape,
        "query_tokens": 780,
        "kv_tokens": 5 * shape["kv_tokens"] + 780,
        "heads": 8,
        "head_dim": 128,
    }
    reason = attention.survey(gpu, names=(backend,))[backend]
    if reason:
        with pytest.raises(Refused):
            attention.time_attention(gpu, **larger, backend=backend, protocol=QUICK)
        pytest.skip(reason)
    found = attention.time_attention(
        gpu, **larger, backend=backend, states=["sustained", "hot"], protocol=QUICK
    )
    assert found["correct"]["ok"] and found["states"]["hot"]["tflops"] > 1
