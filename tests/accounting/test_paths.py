"""What both paths launch: by hand for escher, for any geometry, and against what a tiny stack really runs."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from escherlib.accounting import paths, workload
from escherlib.kernels import dit, dit_fused, observe
from escherlib.parameters import load_workload
from tests.accounting.test_workload import workloads
from tests.kernels.conftest import one_thread  # noqa: F401
from tests.kernels.tiny import tiny

ESCHER = load_workload("escher_14b_480p")
STACKS = {"default": dit.Stack, "optimized": dit_fused.FusedStack}
TOKENS, WINDOW, TEXT, WIDTH, FFN, ROWS, BLOCKS = 4680, 18720, 512, 5120, 13824, 3, 40
FEW = settings(max_examples=30, deadline=None)

# bytes in bf16
X = 47_923_200  # an activation [4680 × 5120]
U = 129_392_640  # an activation [4680 × 13824]
V = 10_240  # a vector of 5120: a norm's weight or bias
M = 30_720  # shift, scale or gate: 3 rows of 5120
W = 52_428_800  # a weight [5120 × 5120]
F = 141_557_760  # a weight of the FFN [5120 × 13824]
KV = 383_385_600  # K and V of the window, [18720 × 5120] each
TEXT_KV = 10_485_760  # K and V of the text, [512 × 5120] each
TIME = 184_320  # what the time MLP hands over: 3 rows of 30720

SQUARE = 245_366_784_000  # 2·4680·5120·5120
WIDE = 662_490_316_800  # 2·4680·5120·13824
SELF = 1_794_244_608_000  # 4·4680·18720·5120
CROSS = 49_073_356_800  # 4·4680·512·5120
DD, QK = "4680×5120", "4680×2×5120"

# kernel: (kind, shape, FLOP, bytes read, bytes written, launches)
TIME_MLP = {
    "time_embed.linear1": ("gemm", "3×5120×256", 7_864_320, 2_622_976, M, 1),
    "time_embed.linear2": ("gemm", "3×5120×5120", 157_286_400, 52_459_520, M, 1),
    "time_proj": ("gemm", "3×30720×5120", 943_718_400, 314_603_520, TIME, 1),
}
SHARED = TIME_MLP | {
    "self_attn.o": ("gemm", "4680×5120×5120", SQUARE, X + W, X, 40),
    "cross_attn.q": ("gemm", "4680×5120×5120", SQUARE, X + W, X, 40),
    "ffn.linear2": ("gemm", "4680×5120×13824", WIDE, U + F, X, 40),
}
FLASH = {
    "self_attn.flash": ("attention", "4680×18720×40×128", SELF, X + KV, X, 40),
    "cross_attn.flash": ("attention", "4680×512×40×128", CROSS, X + TEXT_KV, X, 40),
}
DEFAULT = FLASH | {
    "glue.modulation": ("glue", "3×6×5120", 0, 6 * V + TIME, 6 * M, 40),
    "norm.self": ("norm", DD, 0, X, X, 40),
    "glue.self_modulate": ("glue", DD, 0, X + 2 * M, X, 40),
    "self_attn.q": ("gemm", "4680×5120×5120", SQUARE, X + W, X, 120),
    "norm.q": ("norm", DD, 0, X + V, X, 80),
    "kv_cache_write": ("cache", QK, 0, 2 * X, 2 * X, 40),
    "glue.self_residual": ("glue", DD, 0, 2 * X + M, X, 40),
    "norm.cross": ("norm", DD, 0, X + 2 * V, X, 40),
    "norm.cross_q": ("norm", DD, 0, X + V, X, 40),
    "cross_attn.o": ("gemm", "4680×5120×5120", SQUARE, X + W, X, 40),
    "glue.cross_residual": ("glue", DD, 0, 2 * X, X, 40),
    "norm.ffn": ("norm", DD, 0, X, X, 40),
    "glue.ffn_modulate": ("glue", DD, 0, X + 2 * M, X, 40),
    "ffn.linear1": ("gemm", "4680×13824×5120", WIDE, X + F, U, 40),
    "ffn.gelu": ("gelu", "4680×13824", 0, U, U, 40),
    "glue.ffn_residual": ("glue", DD, 0, 2 * X + M, X, 40),
}
OPTIMIZED = FLASH | {
    "glue.modulation": ("glue", "40×3×6×5120", 0, 240 * V + TIME, 240 * M, 1),
    "fused.norm_self_first": ("norm", DD, 0, X + 2 * M, X, 1),
    "self_attn.qkv": ("gemm", "4680×15360×5120", 3 * SQUARE, X + 3 * W, 3 * X, 40),
    "fused.qk_norm": ("norm", QK, 0, 2 * X + 2 * V, 2 * X, 40),
    "fused.self_residual_norm_cross": ("norm", DD, 0, 2 * X + M + 3 * V, 2 * X, 40),
    "norm.cross_q": ("norm", DD, 0, X + V, X, 40),
    "cross_attn.o_residual": ("gemm", "4680×5120×5120", SQUARE, 2 * X + W, X, 40),
    "fused.norm_ffn": ("norm", DD, 0, X + 2 * M, X, 40),
    "ffn.linear1_gelu": ("gemm", "4680×13824×5120", WIDE, X + F, U, 40),
    "fused.ffn_residual_norm_self": ("norm", DD, 0, 2 * X + 3 * M, 2 * X, 39),
    "fused.ffn_residual_last": ("glue", DD, 0, 2 * X + M, X, 1),
}
OWN = {"default": DEFAULT, "optimized": OPTIMIZED}

VARIANTS = {
    "cached": {},
    "uncached": {"cross_kv_cached": False, "context_dim": 48},
    "one block": {"blocks": 1},
    "time handed over as one row": {"time_widths": [32, 64], "blocks": 2},
    "four layers of time": {"time_widths": [32, 16, 48, 64, 384], "blocks": 2},
}
both_paths = pytest.mark.parametrize("path", paths.PATHS)
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
both_texts = pytest.mark.parametrize("changes", list(VARIANTS.values())[:2], ids=list(VARIANTS)[:2])


def fields(kernel):
    """A kernel as the tables above list it."""
    return kernel.kind, kernel.shape, kernel.flop, kernel.read_bytes, kernel.written_bytes, kernel.count


def test_sizes_of_the_tables_follow_from_the_shapes():
    assert (2 * TOKENS * WIDTH, 2 * TOKENS * FFN, 2 * WIDTH, 2 * ROWS * WIDTH) == (X, U, V, M)
    assert (2 * WIDTH**2, 2 * WIDTH * FFN, 2 * ROWS * 6 * WIDTH) == (W, F, TIME)
    assert (2 * 2 * WINDOW * WIDTH, 2 * 2 * TEXT * WIDTH) == (KV, TEXT_KV)
    assert (2 * TOKENS * WIDTH**2, 2 * TOKENS * WIDTH * FFN) == (SQUARE, WIDE)
    assert (4 * TOKENS * WINDOW * WIDTH, 4 * TOKENS * TEXT * WIDTH) == (SELF, CROSS)


@both_paths
def test_every_kernel_of_escher_by_hand(path):
    listed = paths.kernels(ESCHER, path)
    assert {kernel.name: fields(kernel) for kernel in listed} == SHARED | OWN[path]
    assert len(listed) == len(SHARED | OWN[path])
    assert {kernel.name: kernel.path for kernel in listed} == (dict.fromkeys(SHARED, "shared") | dict.fromkeys(OWN[path], path))


def test_a_forward_of_escher_by_hand():
    time_flop, time_bytes = 7_864_320 + 157_286_400 + 943_718_400, 369_931_776
    flop = 40 * (6 * SQUARE + 2 * WIDE + SELF + CROSS) + time_flop
    assert flop == 185_621_080_965_120
    assert paths.forward_flop(ESCHER, "default") == paths.forward_flop(ESCHER, "optimized") == flop
    block = 47 * X + 4 * U + 11 * V + 12 * M + TIME + 6 * W + 2 * F + KV + TEXT_KV  # the tables' rows
    assert paths.forward_bytes(ESCHER, "default") == 40 * block + time_bytes == 150_857_381_376
    # qkv's input, the ring's copy, residual with norm (for one bias more), residual, norm with modulation, GELU
    inside = 2 * X + 4 * X + (X - V) + 2 * X + 2 * X + 2 * U
    between = TIME + 3 * X  # from one block's residual to the next one's modulated norm
    saved = 40 * inside + 39 * between + 2 * X
    assert paths.forward_bytes(ESCHER, "optimized") == 150_857_381_376 - saved == 113_710_122_496


def test_text_that_is_not_cached_by_hand():
    w = ESCHER.model_copy(update={"cross_kv_cached": False, "context_dim": 4096})
    own = {
        "cross_attn.k": ("gemm", "512×5120×4096", 21_474_836_480, 46_137_344, 5_242_880, 80),
        "norm.cross_k": ("norm", "512×5120", 0, 5_242_880 + V, 5_242_880, 40),
    }
    for path in paths.PATHS:
        listed = {kernel.name: kernel for kernel in paths.kernels(w, path)}
        assert {name: fields(kernel) for name, kernel in listed.items()} == SHARED | OWN[path] | own
        assert listed["cross_attn.k"].path == listed["norm.cross_k"].path == "shared"


def test_a_batch_of_two_moves_twice_the_activations_and_the_same_weights():
    listed = {k.name: k for k in paths.kernels(ESCHER.model_copy(update={"batch": 2}), "optimized")}
    assert fields(listed["self_attn.flash"]) == (
        "attention", "2×4680×18720×40×128", 2 * SELF, 2 * (X + KV), 2 * X, 40,
    )  # fmt: skip
    assert fields(listed["self_attn.o"]) == ("gemm", "9360×5120×5120", 2 * SQUARE, 2 * X + W, 2 * X, 40)
    assert fields(listed["fused.norm_ffn"]) == ("norm", "9360×5120", 0, 2 * X + 2 * M, 2 * X, 40)


def test_the_rotary_embedding_by_hand_is_in_no_list():
    rope = paths.rope_kernel(ESCHER)
    angles = 4680 * 64 * 4  # one for each pair of a head's coordinates, in float32
    assert fields(rope) == ("rope", "4680×2×40×128", 0, 2 * X + angles, 2 * X, 40)
    assert rope.calls == rope.members == ("rope",) and rope.row == "op/default/rope"
    assert "rope" not in {kernel.name for path in paths.PATHS for kernel in paths.kernels(ESCHER, path)}


def test_figures_of_a_kernel():
    fields_of = {"calls": ("a",), "members": ("a",), "count": 1, "shape": "1", "path": "shared"}
    kernel = paths.Kernel(name="a", kind="gemm", flop=120, read_bytes=30, written_bytes=10, **fields_of)
    assert (kernel.nbytes, kernel.read_share, kernel.flop_per_byte) == (40, 0.75, 3.0)
    assert kernel.row == "op/shared/a"
    still = paths.Kernel(name="b", kind="glue", flop=0, read_bytes=0, written_bytes=0, **fields_of)
    assert still.read_share is None and still.flop_per_byte is None
    listed = [kernel for path in paths.PATHS for kernel in paths.kernels(ESCHER, path)]
    assert {kernel.kind for kernel in listed if kernel.is_matrix} == {"gemm", "attention"}


def test_an_unknown_path_names_those_there_are():
    with pytest.raises(ValueError, match="path 'fast': expected one of default, optimized"):
        paths.kernels(ESCHER, "fast")


def time_flop(w):
    """FLOP of the time MLP from its widths."""
    return 2 * w.rows_time * sum(a * b for a, b in zip(w.time_widths, w.time_widths[1:], strict=False))


@FEW
@given(workloads(), st.integers(2, 5))
def test_both_paths_do_the_flop_of_the_workload_linear_in_blocks_and_batch(w, factor):
    whole = workload.forward_flop(w)
    more_blocks = w.model_copy(update={"blocks": factor * w.blocks})
    more_videos = w.model_copy(update={"batch": factor * w.batch})
    for path in paths.PATHS:
        assert paths.forward_flop(w, path) == whole
        for more in (more_blocks, more_videos):
            assert paths.forward_flop(more, path) - time_flop(w) == factor * (whole - time_flop(w))


@FEW
@given(workloads())
def test_fusing_never_moves_more(w):
    by_path = {path: paths.forward_bytes(w, path) for path in paths.PATHS}
    assert by_path["optimized"] < by_path["default"]
    wide = w.model_copy(update={"dtype": "fp32"})  # twice as wide as bf16
    for path in paths.PATHS:
        assert paths.forward_bytes(wide, path) == 2 * by_path[path]


@FEW
@given(workloads(), st.sampled_from(paths.PATHS), st.integers(2, 4))
def test_products_move_each_operand_of_their_shape_once(w, path, factor):
    more = {k.name: k for k in paths.kernels(w.model_copy(update={"batch": factor * w.batch}), path)}
    for kernel in paths.kernels(w, path):
        if kernel.kind != "gemm":
            continue
        m, n, k = map(int, kernel.shape.split("×"))
        added = m * n if kernel.name == "cross_attn.o_residual" else 0  # what its epilogue adds is read
        assert kernel.read_bytes == 2 * (m * k + k * n + added) and kernel.written_bytes == 2 * m * n
        assert kernel.flop == 2 * m * n * k
        rows = 1 if kernel.name.startswith("time_") else factor  # one time for all videos
        assert more[kernel.name].read_bytes == 2 * (rows * (m * k + added) + k * n)
        assert more[kernel.name].written_bytes == rows * kernel.written_bytes


def covered(listed):
    """{operation: times in a forward}; launches are even over a kernel's calls, each covers its members."""
    times = Counter()
    for kernel in listed:
        assert kernel.count % len(kernel.calls) == 0
        for member in kernel.members:
            times[member] += kernel.count // len(kernel.calls)
    return times


@FEW
@given(workloads())
def test_the_fused_kernels_cover_the_default_ones_exactly(w):
    default, optimized = (paths.kernels(w, path) for path in paths.PATHS)
    once, fused = covered(default), covered(optimized)
    assert fused.pop("glue.modulation") == 1 and once.pop("glue.modulation") == w.blocks
    assert fused == once
    assert all(kernel.members == kernel.calls for kernel in default)
    assert {name for kernel in default for name in kernel.members} == {member for kernel in optimized for member in kernel.members}


@FEW
@given(workloads())
def test_what_is_shared_is_the_same_in_both_lists_and_nothing_else_is(w):
    default, optimized = ({k.row: k for k in paths.kernels(w, path)} for path in paths.PATHS)
    common = default.keys() & optimized.keys()
    assert all(default[row] == optimized[row] for row in common)
    assert common == {row for row, kernel in (default | optimized).items() if kernel.path == paths.SHARED}
    for path, listed in zip(paths.PATHS, (default, optimized), strict=True):
        assert len(listed) == len(paths.kernels(w, path))
        assert all(kernel.count > 0 and kernel.nbytes > 0 for kernel in listed.values())


def running(path, w):
    """A stack of the path on the CPU."""
    return dit.build(w, "cpu", torch.float32, STACKS[path])


@variants
@both_paths
def test_calls_and_counts_are_those_that_a_stack_really_runs(path, changes):
    w = tiny(**changes)
    listed = paths.kernels(w, path)
    with torch.inference_mode():
        ran = [call.name for call in observe.record(running(path, w), 0)]
    assert Counter(name for kernel in listed for name in kernel.calls) == Counter(set(ran))
    times = Counter(ran)
    for kernel in listed:
        assert {times[name] for name in kernel.calls} == {kernel.count // len(kernel.calls)}, kernel.name
        assert sum(times[name] for name in kernel.calls) == kernel.count
    kernel_of = {name: kernel.name for kernel in listed for name in kernel.calls}
    assert list(dict.fromkeys(kernel_of[name] for name in ran)) == [kernel.name for kernel in listed]


def test_the_rotary_embedding_is_the_only_name_beside_the_list_where_it_is_asked_for():
    w = tiny()
    stack = running("default", w)
    stack.angles = dit.rope_angles(w.query_tokens, w.head_dim, "cpu")
    with torch.inference_mode():
        ran = Counter(call.name for call in observe.record(stack, 0))
    rope = paths.rope_kernel(w)
    extra = ran.keys() - {name for kernel in paths.kernels(w, "default") for name in kernel.calls}
    assert extra == set(rope.calls) and ran["rope"] == rope.count == 3
    assert rope.read_bytes == 2 * w.query_tokens * w.d_model * 4 + stack.angles.nbytes


def tensors(value):
    """Every tensor in nested arguments."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in tensors(item)] if isinstance(value, tuple | list) else []


def moved(call, is_gemm):
    """(bytes read, written) by a recorded call: every operand and result once, no biases of products."""
    read = tensors(call.arguments)
    if isinstance(call.function, torch.nn.Module):
        read += list(call.function.parameters())
    result = tensors(call())
    written = [value for name, value in call.keywords.items() if name in ("out", "sum_out")] or result
    if call.name == "kv_cache_write":
        read = written = read[1:]  # of the ring only the slot of k and v is touched
    if is_gemm:
        read = [tensor for tensor in read if tensor.dim() == 2]
    return tuple(sum(tensor.numel() * tensor.element_size() for tensor in side) for side in (read, written))


@both_texts
@both_paths
def test_bytes_are_those_of_the_tensors_that_a_stack_hands_to_its_operations(path, changes):
    w = tiny(**changes)
    kernel_of = {name: kernel for kernel in paths.kernels(w, path) for name in kernel.calls}
    with torch.inference_mode():
        for call in observe.record(running(path, w), 1):
            kernel = kernel_of[call.name]
            assert moved(call, kernel.kind == "gemm") == (kernel.read_bytes, kernel.written_bytes), call.name


def addmm_flop(added, a, b, out_shape=None, **_):
    """torch hands over shapes: 2·m·n·k of the product."""
    return 2 * a[0] * a[1] * b[1]


@both_texts
@both_paths
def test_flop_are_those_that_torch_counts_in_one_chunk(path, changes):
    """Attention through sdpa's math backend, whose products are counted; the CPU's flash operation isn't.

    Nor are the two products with an epilogue of the optimized path; they count as any addmm.
    """
    w, aten = tiny(**changes), torch.ops.aten
    stack = running(path, w)
    epilogues = dict.fromkeys((aten._addmm_activation, aten.addmm_), addmm_flop)
    counter = FlopCounterMode(display=False, custom_mapping=epilogues if path == "optimized" else None)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        stack.chunk(0)
    listed = paths.kernels(w, path)
    by_kind = {kind: sum(k.flop * k.count for k in listed if k.kind == kind) for kind in ("gemm", "attention")}
    seen = counter.get_flop_counts()["Global"]
    assert seen.pop(aten.bmm) == by_kind["attention"] and sum(seen.values()) == by_kind["gemm"]
    assert counter.get_total_flops() == paths.forward_flop(w, path) == workload.forward_flop(w)
