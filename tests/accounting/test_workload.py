"""The workload's operations, held against the published totals and against closed forms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escherlib.accounting import workload as work
from escherlib.accounting.ops import gemm_flop
from escherlib.parameters import list_workloads, load_workload
from escherlib.schemas.workload import Workload

ESCHER = load_workload("escher_14b_480p")
GFLOP, MIB = 1e9, 2**20


def closed_flop(w):
    """FLOP of one block with the time MLP, without a list of operations."""
    rows = w.batch * w.query_tokens
    cross_kv = 0 if w.cross_kv_cached else 4 * w.batch * w.text_tokens * w.context_dim * w.d_model
    time = 2 * w.rows_time * sum(i * o for i, o in zip(w.time_widths, w.time_widths[1:], strict=False))
    attention = 4 * rows * w.d_model * (w.kv_tokens + w.text_tokens)
    return 12 * rows * w.d_model**2 + 4 * rows * w.d_model * w.ffn + attention + cross_kv + time


def closed_bytes(w):
    """Bytes of one block with the time MLP: every operand once, and the element-wise streams."""
    d, rows, text, window = (
        w.d_model,
        w.batch * w.query_tokens,
        w.batch * w.text_tokens,
        w.batch * w.kv_tokens,
    )
    weights = (
        6 * d * d + 2 * d * w.ffn + sum(i * o for i, o in zip(w.time_widths, w.time_widths[1:], strict=False))
    )
    activations = 12 * rows * d + 2 * rows * (d + w.ffn) + 4 * rows * d + 2 * (window + text) * d
    activations += w.rows_time * (sum(w.time_widths) * 2 - w.time_widths[0] - w.time_widths[-1])
    if not w.cross_kv_cached:
        weights += 2 * w.context_dim * d
        activations += 2 * text * (w.context_dim + d)
    s = w.streams
    streams = rows * d * (s.norm + s.residual + s.kv_cache_write) + rows * w.ffn * s.gelu
    return 2 * (weights + activations + streams)


def test_escher_totals_are_the_published_ones():
    totals = work.block_totals(ESCHER)
    pilot = work.pilot_reference()
    assert totals.flop / GFLOP == pytest.approx(4641.608, abs=1e-3)
    assert totals.flop / GFLOP == pytest.approx(pilot.block_gflop, rel=2e-5)
    assert totals.matrix_bytes / MIB == pytest.approx(2367.9, abs=0.05)
    assert totals.nbytes / MIB == pytest.approx(3071.70, abs=0.005)
    assert totals.flop_per_byte == pytest.approx(1441, abs=0.5)
    assert work.forward_flop(ESCHER) / 1e12 == pytest.approx(185.62, abs=0.005)
    assert ESCHER.drift.flop_pct == pytest.approx(-0.002, abs=5e-4)
    assert ESCHER.drift.traffic_pct == pytest.approx(0.049, abs=5e-4)
    assert ESCHER.is_pilots and ESCHER.label == ""


def test_escher_op_by_op():
    gemms = {gemm.name: gemm.flop / GFLOP for gemm in work.block_gemms(ESCHER)}
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "cross_attn.q", "cross_attn.o"):
        assert gemms.pop(name) == pytest.approx(245.3668, abs=1e-4)
    for name in ("ffn.linear1", "ffn.linear2"):
        assert gemms.pop(name) == pytest.approx(662.4903, abs=1e-4)
    assert set(gemms) == {"time_embed.linear1", "time_embed.linear2", "time_proj"}
    assert sum(gemms.values()) == pytest.approx(1.1089, abs=1e-4)
    attention = {op.name: op.flop / GFLOP for op in work.block_attentions(ESCHER)}
    assert attention["self_attn.flash"] == pytest.approx(1794.2446, abs=1e-4)
    assert attention["cross_attn.flash"] == pytest.approx(49.0734, abs=1e-4)


def test_fused_qkv_is_its_members():
    fused = work.fused_qkv(ESCHER)
    assert (fused.m, fused.n, fused.k) == (4680, 15360, 5120)
    assert fused.flop == 3 * gemm_flop(4680, 5120, 5120)
    assert fused.nbytes(2) < 3 * 148_275_200  # the input is read once, not three times


def test_timed_products_have_distinct_shapes_and_name_every_op():
    for name in list_workloads():
        workload = load_workload(name)
        timed = work.timed_gemms(workload)
        assert len({(g.m, g.n, g.k) for g in timed}) == len(timed) == len({g.name for g in timed})
        assert [g.flop for g in timed] == sorted((g.flop for g in timed), reverse=True)
        named = {member for gemm in timed for member in gemm.members}
        assert named == {gemm.name for gemm in work.block_gemms(workload)}
    assert timed[0].name == "self_attn.qkv" or timed[0].name.startswith("ffn.")


def test_other_workloads():
    notional = load_workload("escher_notional")
    totals = work.block_totals(notional)
    assert totals.flop / GFLOP == pytest.approx(5050.9, abs=0.05)
    assert work.printed_traffic(notional) == (pytest.approx(4422.9, abs=0.05), "MB")
    assert notional.drift.flop_pct == pytest.approx(
        8.8, abs=0.05
    ) and notional.drift.traffic_pct == pytest.approx(44, abs=0.5)
    assert "not the pilot's workload (FLOP +8.8 %" in notional.label
    assert work.pilot_reference(notional) is None and work.pilot_reference(load_workload("smoke")) is None
    assert work.pilot_reference(ESCHER) == work.pilot_reference()
    big = load_workload("big")
    assert (big.query_tokens, big.kv_tokens) == (10800, 43200)
    assert work.block_totals(big).flop / 1e12 == pytest.approx(16.12, abs=0.005)


@pytest.mark.parametrize("name", list_workloads())
def test_the_list_adds_up_to_the_closed_form(name):
    workload = load_workload(name)
    totals = work.block_totals(workload)
    assert totals.flop == closed_flop(workload) and totals.nbytes == closed_bytes(workload)


@st.composite
def workloads(draw):
    """Any consistent geometry."""
    head_dim, heads = draw(st.sampled_from([16, 64, 128])), draw(st.integers(1, 64))
    cached = draw(st.booleans())
    return Workload(
        name="any",
        description="made up",
        dtype="bf16",
        batch=draw(st.integers(1, 4)),
        d_model=heads * head_dim,
        heads=heads,
        head_dim=head_dim,
        ffn=draw(st.integers(1, 20000)),
        blocks=draw(st.integers(1, 80)),
        query_tokens=draw(st.integers(1, 20000)),
        kv_tokens=draw(st.integers(1, 80000)),
        text_tokens=draw(st.integers(1, 1024)),
        cross_kv_cached=cached,
        context_dim=None if cached else draw(st.integers(1, 8192)),
        time_widths=draw(st.lists(st.integers(1, 4096), min_size=2, max_size=5)),
        rows_time=draw(st.integers(1, 8)),
        streams={
            "norm": draw(st.integers(0, 12)),
            "residual": 3,
            "gelu": 2,
            "kv_cache_write": draw(st.integers(0, 4)),
        },
        printed_megabyte="MB",
    )


@settings(max_examples=100, deadline=None)
@given(workloads())
def test_any_geometry_adds_up(workload):
    totals = work.block_totals(workload)
    assert totals.flop == closed_flop(workload) and totals.nbytes == closed_bytes(workload)
    assert totals.nbytes == totals.matrix_bytes + sum(work.stream_traffic(workload).values())
    one = work.forward_flop(workload.model_copy(update={"blocks": 1}))
    assert one == totals.flop  # one block and the time MLP
    names = [op.name for op in [*work.block_gemms(workload), *work.block_attentions(workload)]]
    assert len(set(names)) == len(names)
