"""Memory that a stack holds: weights, KV rings, the text's K and V, and the largest set of activations alive at once."""

from escherlib.errors import UserError

RING_STREAMS = {"default": 2, "optimized": 3}  # K and V; the fused product writes q|k|v side by side into the ring
NOISE_INPUTS = 2  # chunks of noise that a stack keeps ready as inputs
WORK_STREAMS = 5  # query-token activations the optimized path keeps for all blocks: x, sum, h, y, q


def require_ring(workload):
    """Refuse in one line what can't run chunk by chunk over a ring: the window must be whole chunks, a chunk whole rows."""
    w = workload
    if w.kv_tokens % w.query_tokens:
        if w.frames is not None:
            below = max(w.frames, w.window - w.window % w.frames)
            raise UserError(
                f"WINDOW={w.window}: the ring holds whole chunks of {w.frames} latent frames; "
                f"expected a multiple of {w.frames}, such as {below} or {below + w.frames}"
            )
        raise UserError(
            f"{w.name}: kv_tokens = {w.kv_tokens}: the ring holds whole chunks of {w.query_tokens} query tokens; "
            f"expected a multiple of {w.query_tokens}"
        )
    if w.query_tokens % w.rows_time:
        raise UserError(
            f"{w.name}: rows_time = {w.rows_time}: one modulation row serves a whole number of tokens; "
            f"expected a divisor of query_tokens = {w.query_tokens}"
        )


def weight_bytes(workload):
    """All parameters with biases and norms, cross K and V's own too where the text is cached; no fused duplicates."""
    w, d = workload, workload.d_model
    context = w.context_dim or d
    products = 6 * (d * d + d) + 2 * (context * d + d) + (d * w.ffn + w.ffn) + (w.ffn * d + d)
    vectors = 6 * d + 4 * d + 2 * d  # modulation; RMSNorms of q, k, cross q, cross k; affine LayerNorm
    time = sum(inputs * outputs + outputs for inputs, outputs in w.time_gemms)
    return (w.blocks * (products + vectors) + time) * w.itemsize


def kv_bytes(workload, path):
    """Rings of all blocks."""
    w = workload
    return RING_STREAMS[path] * w.batch * w.kv_tokens * w.d_model * w.blocks * w.itemsize


def text_kv_bytes(workload):
    """What is kept of the text: K and V of every block where they are cached, else the encoded text alone."""
    w = workload
    kept = 2 * w.d_model * w.blocks if w.cross_kv_cached else w.context_dim
    return w.batch * w.text_tokens * kept * w.itemsize


def live_set_bytes(workload, path):
    """Largest set of activations alive at once in one forward, noise inputs included; nothing that a library keeps."""
    w = workload
    stream, wide = (w.batch * w.query_tokens * width for width in (w.d_model, w.ffn))
    text = 0 if w.cross_kv_cached else w.batch * w.text_tokens * w.d_model
    time = w.rows_time * w.time_widths[-1] if path == "default" else 0  # let go of once all blocks' tables are made
    peak = _default_peak(stream, wide, text) if path == "default" else _optimized_peak(stream, wide, text)
    tables = w.rows_time * 6 * w.d_model * (1 if path == "default" else w.blocks)
    return (NOISE_INPUTS * stream + time + tables + peak) * w.itemsize


def _default_peak(stream, wide, text):
    """Elements alive in a block at its fullest: around the norm of q and k, the text's K and V, or GELU."""
    norms = 7 * stream  # the block's input, what was normed, q, k, v, and q and k again
    text_kv = 6 * stream + 3 * text  # input, sum, normed, q and still this chunk's k and v; k, v of the text, k normed
    gelu = 3 * stream + 2 * text + 2 * wide  # input, sum and cross q beside GELU's two sides
    return max(norms, text_kv, gelu)


def _optimized_peak(stream, wide, text):
    """Elements alive in a block at its fullest: the kept work space, one attention's result, and what comes beside it."""
    return (WORK_STREAMS + 1) * stream + max(stream + 2 * text, wide + 2 * text, 3 * text)
