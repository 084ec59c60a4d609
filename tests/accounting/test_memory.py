"""What a stack holds: by hand for escher, against a tiny stack's tensors; more of anything is never less."""

import re
import weakref
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from escherlib.accounting import memory, paths
from escherlib.errors import UserError
from escherlib.kernels import dit, dit_fused, observe
from escherlib.parameters import load_workload
from tests.accounting.test_workload import workloads
from tests.kernels.conftest import one_thread  # noqa: F401
from tests.kernels.tiny import tiny

ESCHER = load_workload("escher_14b_480p")
STACKS = {"default": dit.Stack, "optimized": dit_fused.FusedStack}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FEW = settings(max_examples=30, deadline=None)

VARIANTS = {
    "cached": {},
    "uncached": {"cross_kv_cached": False, "context_dim": 48},
    "cached, text of its own width": {"context_dim": 48},
    "half precision, wide FFN, one chunk a ring": {"dtype": "bf16", "ffn": 400, "window": 2, "blocks": 2},
    "long text": {"cross_kv_cached": False, "context_dim": 16, "text_tokens": 100, "blocks": 2},
    "long text, wide FFN": {"cross_kv_cached": False, "context_dim": 16, "text_tokens": 40, "ffn": 400},
    "two layers of time": {"time_widths": [32, 64]},
}
both_paths = pytest.mark.parametrize("path", paths.PATHS)
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)


def running(path, w):
    """A stack of the path on the CPU."""
    return dit.build(w, "cpu", DTYPES[w.dtype], STACKS[path])


def tensors(value):
    """Every tensor in a tensor, tuple or list."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in tensors(item)] if isinstance(value, tuple | list) else []


def held(*values):
    """Bytes of the memory behind tensors, each piece once."""
    pieces = {observe.storage(t): t.untyped_storage().nbytes() for value in values for t in tensors(value)}
    return sum(pieces.values())


def test_escher_by_hand():
    products = 8 * (5120 * 5120 + 5120) + (5120 * 13824 + 13824) + (13824 * 5120 + 5120)
    time = (256 * 5120 + 5120) + (5120 * 5120 + 5120) + (5120 * 30720 + 30720)
    assert memory.weight_bytes(ESCHER) == 2 * (40 * (products + 12 * 5120) + time) == 28_481_249_280
    assert memory.kv_bytes(ESCHER, "default") == 2 * 2 * 18720 * 5120 * 40 == 15_335_424_000
    assert memory.kv_bytes(ESCHER, "optimized") == 2 * 3 * 18720 * 5120 * 40 == 23_003_136_000
    assert memory.text_kv_bytes(ESCHER) == 2 * 2 * 512 * 5120 * 40 == 419_430_400
    uncached = ESCHER.model_copy(update={"cross_kv_cached": False, "context_dim": 4096})
    assert memory.text_kv_bytes(uncached) == 2 * 512 * 4096 == 4_194_304
    narrower = 40 * 2 * (5120 - 4096) * 5120  # cross k and v of every block take 4096 instead of 5120
    assert memory.weight_bytes(uncached) == 28_481_249_280 - 2 * narrower


def test_escher_s_activations_by_hand():
    x, u = 4680 * 5120, 4680 * 13824  # elements of an activation
    noise, time, table = 2 * x, 3 * 30720, 3 * 6 * 5120
    gelu = 3 * x + 2 * u  # fuller than the seven activations around the norm of q and k
    assert memory.live_set_bytes(ESCHER, "default") == 2 * (noise + time + table + gelu) == 498_769_920
    kept = 6 * x + u  # x, sum, h, y, q, cross attention's result, and GELU's
    assert memory.live_set_bytes(ESCHER, "optimized") == 2 * (noise + 40 * table + kept) == 520_151_040


UNCACHED = {"cross_kv_cached": False, "context_dim": 48}


@pytest.mark.parametrize(
    ("changes", "default", "optimized"),
    [
        # elements of one activation: 16 × 64 = 1024; of the FFN 16 × ffn; of the text tokens × 64
        ({"ffn": 96}, 7 * 1024, 6 * 1024 + 1536),
        ({"ffn": 400}, 3 * 1024 + 2 * 6400, 6 * 1024 + 6400),
        ({"ffn": 1}, 7 * 1024, 6 * 1024 + 1024),
        ({"text_tokens": 100}, 7 * 1024, 6 * 1024 + 1536),
        (UNCACHED | {"text_tokens": 100}, 6 * 1024 + 3 * 6400, 6 * 1024 + 3 * 6400),
        (UNCACHED, 7 * 1024, 6 * 1024 + 1536 + 2 * 320),
        (UNCACHED | {"ffn": 1}, 7 * 1024, 7 * 1024 + 2 * 320),
        (UNCACHED | {"text_tokens": 40, "ffn": 400}, 3 * 1024 + 2 * 8960, 6 * 1024 + 6400 + 2 * 2560),
    ],
)
def test_each_fullest_moment_of_a_block_by_hand(changes, default, optimized):
    noise, time, table = 2 * 1024, 2 * 384, 2 * 6 * 64
    assert memory.live_set_bytes(tiny(**changes), "default") == 4 * (noise + time + table + default)
    assert memory.live_set_bytes(tiny(**changes), "optimized") == 4 * (noise + 3 * table + optimized)


@variants
@both_paths
def test_a_stack_s_parameters_rings_and_text_are_as_accounted(path, changes):
    w = tiny(**changes)
    stack = running(path, w)
    size = {"fp32": 4, "bf16": 2}[w.dtype]
    assert memory.weight_bytes(w) == sum(p.numel() * size for p in stack.parameters())
    assert memory.kv_bytes(w, path) == held(stack.rings) == sum(ring.nbytes for ring in stack.rings)
    assert memory.text_kv_bytes(w) == held(stack.text)
    assert len(stack.text) == len(stack.rings) == w.blocks


@variants
@both_paths
def test_beside_the_weights_only_small_fused_duplicates_are_kept(path, changes):
    w = tiny(**changes)
    stack = running(path, w)
    layers = [list(vars(layer).values()) for layer in getattr(stack, "layers", ())]
    kept = held(list(stack.parameters()), *layers, getattr(stack, "modulation", ()))
    qkv_bias, qk_norm, modulation = 3 * 64, 2 * 64, 6 * 64
    duplicates = w.blocks * (qkv_bias + qk_norm + modulation) * w.itemsize if path == "optimized" else 0
    assert kept == memory.weight_bytes(w) + duplicates


def test_escher_s_weights_are_those_of_its_modules_at_full_size():
    with torch.device("meta"):
        stack = dit.Stack(ESCHER)
    assert memory.weight_bytes(ESCHER) == 2 * sum(p.numel() for p in stack.parameters())


def fullest(stack):
    """Most bytes of noise, work space and results alive after any operation of one chunk.

    Results are followed until nothing holds their memory; weights, rings and text are not among them.
    """
    ours = [*stack.noise, *getattr(stack, "room", {}).values()]
    alive = {observe.storage(t): t.untyped_storage().nbytes() for t in ours}
    fixed, most = observe.lasting(stack) | {observe.storage(stack.steps)}, []

    def watch(name, function, *arguments, **keywords):
        result = function(*arguments, **keywords)
        for tensor in tensors(result):
            piece, key = tensor.untyped_storage(), observe.storage(tensor)
            if key not in fixed and key not in alive:
                alive[key] = piece.nbytes()
                weakref.finalize(piece, alive.pop, key)
        most.append(sum(alive.values()))
        return result

    with torch.inference_mode(), observe.observed(stack, lambda block: partial(watch)):
        stack.chunk(1)
    return max(most)


@variants
@both_paths
def test_the_live_set_is_what_a_running_stack_holds_at_once(path, changes):
    w = tiny(**changes)
    assert memory.live_set_bytes(w, path) == fullest(running(path, w))


@both_paths
def test_one_block_alone_holds_no_more_than_counted(path):
    w = tiny(blocks=1)
    one_activation = 16 * 64 * 4  # the only block's input is the noise itself, which is counted already
    surplus = memory.live_set_bytes(w, path) - fullest(running(path, w))
    assert 0 <= surplus <= (one_activation if path == "default" else 0)


@both_paths
@FEW
@given(workloads(), st.data())
def test_more_of_anything_never_takes_less(path, w, data):
    parts = (
        memory.weight_bytes,
        memory.text_kv_bytes,
        partial(memory.kv_bytes, path=path),
        partial(memory.live_set_bytes, path=path),
    )
    names = ["batch", "ffn", "blocks", "query_tokens", "kv_tokens", "text_tokens", "rows_time", "heads"]
    name = data.draw(st.sampled_from(names if w.cross_kv_cached else [*names, "context_dim"]))
    update = {name: getattr(w, name) + data.draw(st.integers(1, 1000))}
    if name == "heads":
        update["d_model"] = update["heads"] * w.head_dim
    more = w.model_copy(update=update)
    before, after = [part(w) for part in parts], [part(more) for part in parts]
    assert all(a >= b > 0 for a, b in zip(after, before, strict=True))
    assert after != before
    if name in ("batch", "query_tokens", "rows_time", "heads"):
        assert after[-1] > before[-1]


@both_paths
@FEW
@given(workloads())
def test_all_of_it_follows_the_width_of_the_number_format(path, w):
    wide = w.model_copy(update={"dtype": "fp32"})  # twice as wide as bf16
    for part in (memory.weight_bytes, memory.text_kv_bytes):
        assert part(wide) == 2 * part(w)
    for part in (memory.kv_bytes, memory.live_set_bytes):
        assert part(wide, path) == 2 * part(w, path)


@FEW
@given(workloads(), st.integers(2, 5))
def test_rings_and_weights_are_linear(w, factor):
    blocks, batch = (w.model_copy(update={name: factor * getattr(w, name)}) for name in ("blocks", "batch"))
    for path in paths.PATHS:
        for more in (blocks, batch):
            assert memory.kv_bytes(more, path) == factor * memory.kv_bytes(w, path)
    assert memory.text_kv_bytes(batch) == factor * memory.text_kv_bytes(w)
    assert memory.text_kv_bytes(blocks) == (factor if w.cross_kv_cached else 1) * memory.text_kv_bytes(w)
    time = w.itemsize * sum((a + 1) * b for a, b in zip(w.time_widths, w.time_widths[1:], strict=False))
    assert memory.weight_bytes(blocks) - time == factor * (memory.weight_bytes(w) - time)
    assert memory.weight_bytes(batch) == memory.weight_bytes(w)


@pytest.mark.parametrize("window", [2, 4, 6, 200])
def test_a_window_of_whole_chunks_is_accepted(window):
    memory.require_ring(tiny(window=window))
    memory.require_ring(ESCHER)


@pytest.mark.parametrize(
    ("frames", "window", "such_as"),
    [(2, 5, "4 or 6"), (2, 3, "2 or 4"), (3, 4, "3 or 6"), (3, 14, "12 or 15")],
)
def test_a_window_in_frames_that_is_not_whole_chunks_says_which_are(frames, window, such_as):
    with pytest.raises(UserError) as found:
        memory.require_ring(tiny(frames=frames, window=window))
    assert str(found.value) == (
        f"WINDOW={window}: the ring holds whole chunks of {frames} latent frames; expected a multiple of {frames}, such as {such_as}"
    )


@FEW
@given(st.integers(1, 9), st.integers(0, 60))
def test_what_is_refused_is_what_does_not_divide_and_what_is_advised_is_accepted(frames, more):
    w = tiny(frames=frames, window=frames + more)
    if more % frames == 0:
        memory.require_ring(w)
        return
    with pytest.raises(UserError) as found:
        memory.require_ring(w)
    below, above = map(int, re.search(r"such as (\d+) or (\d+)$", str(found.value)).groups())
    assert frames <= below < w.window < above == below + frames
    for window in (below, above):
        memory.require_ring(tiny(frames=frames, window=window))


def in_tokens(**changes):
    """A tiny workload given in tokens, without frames."""
    frames = {"tokens_per_latent_frame": None, "frames": None, "window": None}
    return tiny(**(frames | {"query_tokens": 16, "kv_tokens": 48, "rows_time": 2} | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"kv_tokens": 40},
            "tiny: kv_tokens = 40: the ring holds whole chunks of 16 query tokens; expected a multiple of 16",
        ),
        (
            {"kv_tokens": 8},
            "tiny: kv_tokens = 8: the ring holds whole chunks of 16 query tokens; expected a multiple of 16",
        ),
        (
            {"rows_time": 3},
            "tiny: rows_time = 3: one modulation row serves a whole number of tokens; expected a divisor of query_tokens = 16",
        ),
    ],
)
def test_a_workload_in_tokens_is_refused_with_its_own_figures(changes, said):
    memory.require_ring(in_tokens())
    with pytest.raises(UserError) as found:
        memory.require_ring(in_tokens(**changes))
    assert str(found.value) == said


def test_rows_that_do_not_divide_a_chunk_of_frames_are_refused_too():
    with pytest.raises(UserError, match="rows_time = 5: .*divisor of query_tokens = 16$"):
        memory.require_ring(tiny(rows_time=5))
