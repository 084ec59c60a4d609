"""What each of the two paths of the stack launches: FLOP and necessary bytes of every kernel, and how often.

`default` is kernels/dit.py, `optimized` is kernels/dit_fused.py. Both do the same FLOP; they differ in how often the
activations pass through memory. Names of calls are those under which the stacks run their operations.
"""

from dataclasses import dataclass

from escherlib.accounting.ops import attention_bytes, gemm_bytes
from escherlib.accounting.workload import block_attentions, block_gemms, fused_qkv, time_names

PATHS = ("default", "optimized")
SHARED = "shared"
ROPE_ITEMSIZE = 4  # the rotary angles stay in float32
BYTES_HOW = (
    "every operand once: activations, weights, norm weights and modulation rows are read once, results written once; "
    "biases of matrix products count 0, attention scores never leave the chip"
)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a path; `flop` and bytes are those of one launch, `count` launches make one forward.

    `calls` are the stack's names it stands for, `members` the operations of the default path's list that it covers.
    `kind`: gemm, attention, norm, gelu, cache, glue or rope. `path` is `shared` where both paths launch the same.
    """

    name: str
    kind: str
    calls: tuple
    members: tuple
    flop: int
    read_bytes: int
    written_bytes: int
    count: int
    shape: str
    path: str

    @property
    def nbytes(self):
        """Bytes read and written by one launch."""
        return self.read_bytes + self.written_bytes

    @property
    def read_share(self):
        """Share of the bytes that is read; None where nothing moves."""
        return self.read_bytes / self.nbytes if self.nbytes else None

    @property
    def flop_per_byte(self):
        """Arithmetic intensity; None where nothing moves."""
        return self.flop / self.nbytes if self.nbytes else None

    @property
    def is_matrix(self):
        """Whether it is a matrix product or an attention."""
        return self.kind in ("gemm", "attention")

    @property
    def row(self):
        """Name of its record."""
        return f"op/{self.path}/{self.name}"


def kernels(workload, path):
    """Every kernel of one forward in launch order, without the optional rotary embedding."""
    if path not in PATHS:
        raise ValueError(f"path {path!r}: expected one of {', '.join(PATHS)}")
    listed = _default(workload) if path == "default" else _optimized(workload)
    return [kernel for kernel in [*_time(workload), *listed] if kernel.count]


def rope_kernel(workload):
    """The rotary embedding of q and k, which the stack runs only where it is asked for; in no sum."""
    stream, tokens = _stream(workload), _rows(workload)
    angles = workload.query_tokens * (workload.head_dim // 2) * ROPE_ITEMSIZE
    shape = f"{tokens}×2×{workload.heads}×{workload.head_dim}"
    return Kernel(
        "rope", "rope", ("rope",), ("rope",), 0, 2 * stream + angles, 2 * stream, workload.blocks, shape, "default"
    )


def forward_flop(workload, path):
    """FLOP of one forward, kernel by kernel; the same for both paths."""
    return sum(kernel.flop * kernel.count for kernel in kernels(workload, path))


def forward_bytes(workload, path):
    """Necessary bytes of one forward, kernel by kernel."""
    return sum(kernel.nbytes * kernel.count for kernel in kernels(workload, path))


def _rows(w):
    return w.batch * w.query_tokens


def _stream(w):
    """Bytes of one [query tokens × d_model] activation."""
    return _rows(w) * w.d_model * w.itemsize


def _width(w):
    """Bytes of one vector of d_model: a norm's weight, or one of six modulation vectors of one row."""
    return w.d_model * w.itemsize


def _time(w):
    """The time MLP, once a forward."""
    gemms = {gemm.name: gemm for gemm in block_gemms(w)}
    return [_gemm(w, gemms[name], SHARED, 1) for name in time_names(len(w.time_gemms))]


def _default(w):
    """Plain modules: every norm, modulation, residual and the GELU is a launch of its own."""
    gemms, flash = _listed(w)
    s, d, rows, blocks = _stream(w), _width(w), w.rows_time * _width(w), w.blocks
    wide = _rows(w) * w.ffn * w.itemsize
    tokens = f"{_rows(w)}×{w.d_model}"

    def one(name, kind, read, written, shape=tokens):
        return Kernel(name, kind, (name,), (name,), 0, read, written, blocks, shape, "default")

    def gemm(name, path="default"):
        return _gemm(w, gemms[name], path, blocks)

    norm_q = Kernel(
        "norm.q", "norm", ("norm.q", "norm.k"), ("norm.q", "norm.k"), 0, s + d, s, 2 * blocks, tokens, "default"
    )
    qkv = tuple(f"self_attn.{part}" for part in "qkv")
    return [
        one("glue.modulation", "glue", 6 * d + _time_row(w), 6 * rows, f"{w.rows_time}×6×{w.d_model}"),
        one("norm.self", "norm", s, s),
        one("glue.self_modulate", "glue", s + 2 * rows, s),
        _gemm(w, gemms["self_attn.q"], "default", 3 * blocks, calls=qkv, members=qkv),
        norm_q,
        one("kv_cache_write", "cache", 2 * s, 2 * s, f"{_rows(w)}×2×{w.d_model}"),
        _attention(w, flash["self_attn.flash"], "default"),
        gemm("self_attn.o", SHARED),
        one("glue.self_residual", "glue", 2 * s + rows, s),
        one("norm.cross", "norm", s + 2 * d, s),
        gemm("cross_attn.q", SHARED),
        one("norm.cross_q", "norm", s + d, s),
        *_text_kv(w, gemms),
        _attention(w, flash["cross_attn.flash"], "default"),
        gemm("cross_attn.o"),
        one("glue.cross_residual", "glue", 2 * s, s),
        one("norm.ffn", "norm", s, s),
        one("glue.ffn_modulate", "glue", s + 2 * rows, s),
        gemm("ffn.linear1"),
        one("ffn.gelu", "gelu", wide, wide, f"{_rows(w)}×{w.ffn}"),
        gemm("ffn.linear2", SHARED),
        one("glue.ffn_residual", "glue", 2 * s + rows, s),
    ]


def _optimized(w):
    """One product for q, k and v; norms, modulation and residuals fused; GELU and one residual are epilogues."""
    gemms, flash = _listed(w)
    s, d, rows, blocks = _stream(w), _width(w), w.rows_time * _width(w), w.blocks
    tokens = f"{_rows(w)}×{w.d_model}"

    def one(name, kind, members, read, written, count=blocks, shape=tokens):
        return Kernel(name, kind, (name,), members, 0, read, written, count, shape, "optimized")

    norm_self, last = ("norm.self", "glue.self_modulate"), ("glue.ffn_residual",)
    qkv = fused_qkv(w)
    return [
        one(
            "glue.modulation", "glue", ("glue.modulation",), blocks * 6 * d + _time_row(w), blocks * 6 * rows, 1,
            f"{blocks}×{w.rows_time}×6×{w.d_model}",
        ),
        one("fused.norm_self_first", "norm", norm_self, s + 2 * rows, s, 1),
        _gemm(w, qkv, "optimized", blocks, members=qkv.members),
        one(
            "fused.qk_norm", "norm", ("norm.q", "norm.k", "kv_cache_write"), 2 * s + 2 * d, 2 * s,
            shape=f"{_rows(w)}×2×{w.d_model}",
        ),
        _attention(w, flash["self_attn.flash"], "optimized"),
        _gemm(w, gemms["self_attn.o"], SHARED, blocks),
        one(  # beside its own weight and bias it adds the bias of the product that accumulates into its sum
            "fused.self_residual_norm_cross", "norm", ("glue.self_residual", "norm.cross"), 2 * s + rows + 3 * d, 2 * s
        ),
        _gemm(w, gemms["cross_attn.q"], SHARED, blocks),
        one("norm.cross_q", "norm", ("norm.cross_q",), s + d, s),
        *_text_kv(w, gemms),
        _attention(w, flash["cross_attn.flash"], "optimized"),
        _gemm(
            w, gemms["cross_attn.o"], "optimized", blocks, "cross_attn.o_residual",
            members=("cross_attn.o", "glue.cross_residual"), more_read=s,
        ),
        one("fused.norm_ffn", "norm", ("norm.ffn", "glue.ffn_modulate"), s + 2 * rows, s),
        _gemm(w, gemms["ffn.linear1"], "optimized", blocks, "ffn.linear1_gelu", members=("ffn.linear1", "ffn.gelu")),
        _gemm(w, gemms["ffn.linear2"], SHARED, blocks),
        one("fused.ffn_residual_norm_self", "norm", (*last, *norm_self), 2 * s + 3 * rows, 2 * s, blocks - 1),
        one("fused.ffn_residual_last", "glue", last, 2 * s + rows, s, 1),
    ]  # fmt: skip


def _text_kv(w, gemms):
    """Cross K and V of the text, where they are computed in every forward: the same modules in both paths."""
    if w.cross_kv_cached:
        return []
    text, names = w.batch * w.text_tokens, ("cross_attn.k", "cross_attn.v")
    stream = text * _width(w)
    return [
        _gemm(w, gemms["cross_attn.k"], SHARED, 2 * w.blocks, calls=names, members=names),
        Kernel(
            "norm.cross_k", "norm", ("norm.cross_k",), ("norm.cross_k",), 0, stream + _width(w), stream, w.blocks,
            f"{text}×{w.d_model}", SHARED,
        ),
    ]  # fmt: skip


def _listed(w):
    """The workload's products and attentions by name."""
    return {gemm.name: gemm for gemm in block_gemms(w)}, {op.name: op for op in block_attentions(w)}


def _time_row(w):
    """Bytes of what the time MLP hands to the blocks."""
    return w.rows_time * w.time_widths[-1] * w.itemsize


def _gemm(w, gemm, path, count, name=None, *, calls=None, members=None, more_read=0):
    """A matrix product as a kernel; `more_read` bytes are read by its epilogue."""
    name = name or gemm.name
    written = gemm.m * gemm.n * w.itemsize
    read = gemm_bytes(gemm.m, gemm.n, gemm.k, w.itemsize) - written + more_read
    shape = f"{gemm.m}×{gemm.n}×{gemm.k}"
    return Kernel(
        name, "gemm", calls or (name,), members or (name,), gemm.flop, read, written, count, shape, path
    )


def _attention(w, op, path):
    """An attention as a kernel: queries × keys × heads × head_dim."""
    written = op.batch * op.query_tokens * op.width * w.itemsize
    read = op.batch * attention_bytes(op.query_tokens, op.kv_tokens, op.width, w.itemsize) - written
    batch = f"{op.batch}×" if op.batch > 1 else ""
    shape = f"{batch}{op.query_tokens}×{op.kv_tokens}×{w.heads}×{w.head_dim}"
    return Kernel(op.name, "attention", (op.name,), (op.name,), op.flop, read, written, w.blocks, shape, path)
