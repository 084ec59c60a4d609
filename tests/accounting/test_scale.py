"""How much of a workload is timed: the rule's order, its limits, and what it says."""

import pytest

from escherlib.accounting import scale
from escherlib.accounting.workload import forward_flop
from escherlib.errors import UserError
from escherlib.parameters import load_workload

ESCHER = load_workload("escher_14b_480p")
PLENTY = 200 * 2**30


def test_all_of_it_is_timed_where_it_fits():
    timed = scale.fit(ESCHER, "bf16", PLENTY)
    assert timed.scale_note == "" and not scale.is_scaled(ESCHER, timed)
    assert scale.scale_of(timed) == {
        "note": "", "blocks": 40, "query_tokens": 4680, "kv_tokens": 18720, "text_tokens": 512,
    }  # fmt: skip


def test_memory_takes_blocks_first():
    timed = scale.fit(ESCHER, "bf16", 32 * 2**30)
    assert 2 < timed.blocks < 40 and timed.query_tokens == 4680
    assert timed.scale_note == f"{timed.blocks} of 40 blocks"
    share = scale.MEMORY_SHARE * 32 * 2**30
    more = timed.model_copy(update={"blocks": timed.blocks + 1})
    assert scale.needed_bytes(timed, "optimized") <= share < scale.needed_bytes(more, "optimized")


def test_time_takes_blocks_then_frames_then_tokens():
    two_blocks = forward_flop(ESCHER.model_copy(update={"blocks": 2}))
    deep = scale.fit(ESCHER, "bf16", PLENTY, budget_flop=two_blocks)
    assert (deep.blocks, deep.frames, deep.query_tokens) == (2, 3, 4680)
    short = scale.fit(ESCHER, "bf16", PLENTY, budget_flop=0.5 * two_blocks)
    assert (short.blocks, short.frames, short.window, short.query_tokens) == (2, 1, 4, 1560)
    small = scale.fit(ESCHER, "bf16", PLENTY, budget_flop=1e11)
    assert (small.blocks, small.frames, small.window) == (2, 1, 4) and small.tokens_per_latent_frame < 100
    assert forward_flop(small) <= 1e11
    assert small.query_tokens == small.tokens_per_latent_frame and small.kv_tokens == 4 * small.query_tokens
    assert f"{small.query_tokens} of 4680 query tokens" in small.scale_note


def test_a_budget_below_everything_times_one_token_of_one_block():
    least = scale.fit(ESCHER, "bf16", PLENTY, budget_flop=1.0)
    assert (least.blocks, least.query_tokens, least.kv_tokens) == (1, 1, 4)


def test_the_number_format_counts_in_memory_but_is_no_scale():
    exact = scale.fit(ESCHER, "fp32", PLENTY)
    assert exact.dtype == "fp32" and not scale.is_scaled(ESCHER, exact)
    assert scale.needed_bytes(exact, "optimized") == 2 * scale.needed_bytes(ESCHER, "optimized")


def test_no_room_for_the_smallest_part_is_one_clear_line():
    with pytest.raises(UserError, match="smallest part.*WORKLOAD=smoke") as found:
        scale.fit(ESCHER, "bf16", 2**20)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("edge", [1, 2, 7, 40])
def test_largest_finds_the_edge(edge):
    assert scale.largest(40, lambda n: n <= edge) == edge


def test_a_workload_in_tokens_keeps_its_proportion():
    notional = load_workload("escher_notional")
    small = scale.fit(notional, "bf16", PLENTY, budget_flop=1e11)
    assert small.query_tokens == small.kv_tokens and forward_flop(small) <= 1e11
