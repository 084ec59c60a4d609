"""The workload as a list of operations: names, shapes, FLOP and bytes of one block and its time MLP.

Names are those of the pilot's table: self_attn.{q,k,v,o,flash}, cross_attn.{q,o,flash},
ffn.{linear1,linear2}, time_embed, time_proj. Matrix products are [rows m × inputs k] · [k × outputs n].
"""

from dataclasses import dataclass

from escherlib.accounting.ops import attention_bytes, attention_flop, gemm_bytes, gemm_flop
from escherlib.schemas.workload import MEGABYTE, Drift


@dataclass(frozen=True)
class Gemm:
    """One matrix product of the block.

    `members` are the pilot's names it stands for; `activation` follows it in the FFN.
    """

    name: str
    m: int
    n: int
    k: int
    members: tuple
    activation: str | None = None

    @property
    def flop(self):
        """2·m·n·k."""
        return gemm_flop(self.m, self.n, self.k)

    def nbytes(self, itemsize):
        """Each operand moved once."""
        return gemm_bytes(self.m, self.n, self.k, itemsize)


@dataclass(frozen=True)
class Attention:
    """One attention of the block; all heads together have `width` = heads × head_dim."""

    name: str
    batch: int
    query_tokens: int
    kv_tokens: int
    width: int

    @property
    def flop(self):
        """4·Sq·Skv·width per item of the batch."""
        return self.batch * attention_flop(self.query_tokens, self.kv_tokens, self.width)

    def nbytes(self, itemsize):
        """Q, K, V and O moved once."""
        return self.batch * attention_bytes(self.query_tokens, self.kv_tokens, self.width, itemsize)


@dataclass(frozen=True)
class Totals:
    """FLOP and bytes of one block with the time MLP."""

    flop: int
    nbytes: int
    matrix_bytes: int  # without the streams of the element-wise operations

    @property
    def flop_per_byte(self):
        """Arithmetic intensity."""
        return self.flop / self.nbytes


def block_gemms(workload):
    """Every matrix product of one block and of the time MLP, one entry per name of the pilot's table."""
    w, rows, d = workload, workload.batch * workload.query_tokens, workload.d_model
    shapes = [(f"self_attn.{part}", rows, d, d) for part in "qkvo"] + [("cross_attn.q", rows, d, d)]
    if not w.cross_kv_cached:
        shapes += [(f"cross_attn.{part}", w.batch * w.text_tokens, d, w.context_dim) for part in "kv"]
    shapes.append(("cross_attn.o", rows, d, d))
    shapes += [("ffn.linear1", rows, w.ffn, d), ("ffn.linear2", rows, d, w.ffn)]
    names = time_names(len(w.time_gemms))
    shapes += [(name, w.rows_time, n, k) for name, (k, n) in zip(names, w.time_gemms, strict=True)]
    gelu = {"ffn.linear1": "gelu"}
    return [Gemm(name, m, n, k, (name,), gelu.get(name)) for name, m, n, k in shapes]


def time_names(layers):
    """time_embed has two layers, time_proj follows where there is a third."""
    return (
        ["time_embed.linear1", "time_embed.linear2", "time_proj"]
        + [f"time_proj.{i}" for i in range(4, layers + 1)]
    )[:layers]


def fused_qkv(workload):
    """q, k and v as the one product that real stacks launch; block_gemms lists its members instead."""
    rows, d = workload.batch * workload.query_tokens, workload.d_model
    return Gemm("self_attn.qkv", rows, 3 * d, d, ("self_attn.q", "self_attn.k", "self_attn.v"))


def timed_gemms(workload):
    """The products worth timing: one per distinct shape, largest first, fused QKV included.

    Members name what each stands for.
    """
    by_shape = {}
    for gemm in [fused_qkv(workload), *block_gemms(workload)]:
        by_shape.setdefault((gemm.m, gemm.n, gemm.k), []).append(gemm)
    merged = [
        Gemm(same[0].name, m, n, k, tuple(name for gemm in same for name in gemm.members), same[0].activation)
        for (m, n, k), same in by_shape.items()
    ]
    return sorted(merged, key=lambda gemm: -gemm.flop)


def block_attentions(workload):
    """Self attention over the KV window and cross attention over the text."""
    kv_tokens = {"self_attn.flash": workload.kv_tokens, "cross_attn.flash": workload.text_tokens}
    return [
        Attention(name, workload.batch, workload.query_tokens, tokens, workload.d_model)
        for name, tokens in kv_tokens.items()
    ]


def stream_traffic(workload):
    """Bytes of the element-wise operations of one block by kind (0 FLOP).

    The split is inferred, see the workload's file.
    """
    rows, width = workload.batch * workload.query_tokens, {"gelu": workload.ffn}
    counts = workload.streams.model_dump()
    return {
        kind: n * rows * width.get(kind, workload.d_model) * workload.itemsize for kind, n in counts.items()
    }


def block_totals(workload):
    """Totals of one block with the time MLP, summed op by op."""
    listed = [*block_gemms(workload), *block_attentions(workload)]
    matrix = sum(op.nbytes(workload.itemsize) for op in listed)
    return Totals(sum(op.flop for op in listed), matrix + sum(stream_traffic(workload).values()), matrix)


def forward_flop(workload):
    """FLOP of one forward through all blocks; the time MLP runs once a forward, not once a block."""
    time = sum(gemm.flop for gemm in block_gemms(workload) if gemm.name.startswith("time_"))
    return workload.blocks * (block_totals(workload).flop - time) + time


def printed_traffic(workload):
    """(value, unit) of one block's traffic in the megabytes in which it is compared with published totals."""
    return block_totals(workload).nbytes / MEGABYTE[workload.printed_megabyte], workload.printed_megabyte


def drift_against(workload, pilot, limit_pct):
    """Drift of one block's totals against published ones, the traffic as printed."""
    return Drift(
        flop_pct=100 * (block_totals(workload).flop / 1e9 / pilot.block_gflop - 1),
        traffic_pct=100 * (printed_traffic(workload)[0] / pilot.block_traffic_mb - 1),
        limit_pct=limit_pct,
    )


def pilot_reference(workload=None, params_dir=None):
    """What the pilot published.

    For a given workload: None where it is not the pilot's, so that its figures are withheld.
    """
    from escherlib.parameters import DEFAULT_WORKLOAD, load_workload

    if workload is not None and not workload.is_pilots:
        return None
    return load_workload(workload.reference if workload else DEFAULT_WORKLOAD, params_dir).pilot_reference
