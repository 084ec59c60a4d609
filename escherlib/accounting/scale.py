"""What of a workload is timed on a device that is too small or too slow for all of it: reduced by rule, and said."""

from escherlib.accounting import memory
from escherlib.accounting.workload import forward_flop
from escherlib.errors import UserError

MEMORY_SHARE = 0.85  # of the room: the rest is for workspaces, captured operands and the allocator's gaps
FEWEST_BLOCKS = 2  # the fewest between which a residual is handed over


def fit(workload, dtype, room_bytes, budget_flop=None, path="optimized"):
    """The workload as it is timed: `dtype`, and as much of it as fits `room_bytes` and `budget_flop` a chunk.

    Reduced in this order, each only as far as needed: blocks (not below two), latent frames (the window in
    proportion), tokens a latent frame. Where tokens are given without frames, query and KV tokens shrink together.
    `changed` and `scale_note` of the result say what was done. UserError where not even one token of one block fits.
    """

    def fits(w):
        light = budget_flop is None or forward_flop(w) <= budget_flop
        return light and needed_bytes(w, path) <= MEMORY_SHARE * room_bytes

    timed = workload.model_copy(update={"dtype": dtype})
    for step in (_blocks, _frames, _tokens, _one_block):
        if fits(timed):
            break
        timed = step(timed, fits)
    if needed_bytes(timed, path) > room_bytes:
        raise UserError(
            f"{workload.name}: {needed_bytes(timed, path) / 2**30:.1f} GiB for its smallest part, "
            f"{room_bytes / 2**30:.1f} GiB of memory here; use a smaller workload (WORKLOAD=smoke)"
        )
    return timed.model_copy(update={"scale_note": _note(workload, timed)})


def needed_bytes(workload, path):
    """Weights, rings, text K and V, and the largest set of activations."""
    parts = memory.weight_bytes(workload), memory.kv_bytes(workload, path), memory.text_kv_bytes(workload)
    return sum(parts) + memory.live_set_bytes(workload, path)


def is_scaled(workload, timed):
    """Whether less than the workload itself is timed (another number format alone is no scale)."""
    names = ("blocks", "query_tokens", "kv_tokens", "text_tokens")
    return any(getattr(workload, name) != getattr(timed, name) for name in names)


def scale_of(timed):
    """The record's `scale` of what was timed."""
    names = ("blocks", "query_tokens", "kv_tokens", "text_tokens")
    return {"note": timed.scale_note, **{name: getattr(timed, name) for name in names}}


def _blocks(w, fits):
    return w.model_copy(update={"blocks": largest(w.blocks, lambda n: fits(w.model_copy(update={"blocks": n})), FEWEST_BLOCKS)})


def _one_block(w, fits):
    return w.model_copy(update={"blocks": 1})


def _frames(w, fits):
    if w.frames is None:
        return w
    slots = max(1, w.window // w.frames)

    def shorter(frames):
        return _resized(w, w.tokens_per_latent_frame, frames, slots)

    return shorter(largest(w.frames, lambda frames: fits(shorter(frames))))


def _tokens(w, fits):
    if w.frames is None:
        slots = max(1, w.kv_tokens // w.query_tokens)

        def smaller(tokens):
            rows = max(1, min(w.rows_time, tokens))
            tokens -= tokens % rows
            return w.model_copy(update={"query_tokens": tokens, "kv_tokens": slots * tokens, "rows_time": rows})

        return smaller(largest(w.query_tokens, lambda n: fits(smaller(n))))
    slots = max(1, w.window // w.frames)
    return _resized(w, largest(w.tokens_per_latent_frame, lambda n: fits(_resized(w, n, w.frames, slots))), w.frames, slots)


def _resized(w, tokens, frames, slots):
    return w.model_copy(
        update={
            "tokens_per_latent_frame": tokens, "frames": frames, "window": slots * frames, "rows_time": frames,
            "query_tokens": tokens * frames, "kv_tokens": tokens * slots * frames,
        }
    )  # fmt: skip


def largest(most, good, least=1):
    """The largest of least…most for which `good` holds, `least` where none does; it holds below where it holds above."""
    low, high = min(least, most), most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if good(middle) else (low, middle - 1)
    return low


def _note(workload, timed):
    """How the timed part differs, as text; empty where it is all of the workload."""
    parts = [workload.scale_note] if workload.scale_note else []
    if timed.blocks != workload.blocks:
        parts.append(f"{timed.blocks} of {workload.blocks} blocks")
    for name, text in (("query_tokens", "query tokens"), ("kv_tokens", "KV tokens")):
        if getattr(timed, name) != getattr(workload, name):
            parts.append(f"{getattr(timed, name)} of {getattr(workload, name)} {text}")
    return ", ".join(parts)
