"""Tables that need no run: the operations of a workload, and the registry of models."""

from escherlib.accounting import memory
from escherlib.accounting.scale import needed_bytes
from escherlib.accounting.workload import (
    block_attentions,
    block_gemms,
    block_totals,
    forward_flop,
    printed_traffic,
    stream_traffic,
)
from escherlib.report.facts import GIB, number
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import percent_cell
from escherlib.schemas.workload import MEGABYTE


def block_ops(workload):
    """Every operation of one block and the time MLP: shape, GFLOP, traffic, FLOP/byte, share of the FLOP."""
    w, whole = workload, block_totals(workload)
    rows = [_row(op.name, f"{op.m}×{op.n}×{op.k}", op.flop, op.nbytes(w.itemsize), whole, w) for op in block_gemms(w)]
    for op in block_attentions(w):
        shape = f"{op.query_tokens}×{op.kv_tokens}×{w.heads}×{w.head_dim}"
        rows.append(_row(op.name, shape, op.flop, op.nbytes(w.itemsize), whole, w))
    names = {"norm": "norm.*", "residual": "residual", "gelu": "ffn.gelu", "kv_cache_write": "kv_cache_write"}
    counts = w.streams.model_dump()
    for kind, nbytes in stream_traffic(w).items():
        if nbytes:
            rows.append(_row(names[kind], f"{counts[kind]} streams of {w.batch * w.query_tokens} tokens", 0, nbytes, whole, w))
    rows.append(_row("total", "one block with the time MLP", whole.flop, whole.nbytes, whole, w))
    unit = w.printed_megabyte
    columns = (
        Column("op", "operation", words, text=True),
        Column("shape", "shape", words, text=True),
        Column("gflop", "GFLOP", lambda v: f"{v:.1f}"),
        Column("traffic", unit, lambda v: f"{v:.1f}"),
        Column("flop_per_byte", "FLOP/byte", lambda v: f"{v:.0f}"),
        Column("share_pct", "% FLOP", percent_cell),
    )
    note = (
        "Matrix products m×n×k, attentions queries×keys×heads×head_dim; bytes are each operand once; "
        "how norms, GELU and cache write share theirs is inferred."
    )
    return Table("block_ops", f"{w.name}: {w.description}", columns, tuple(rows), note)


def _row(name, shape, flop, nbytes, whole, w):
    return {
        "op": name, "shape": shape, "flop": flop, "bytes": nbytes, "gflop": flop / 1e9, "traffic": nbytes / MEGABYTE[w.printed_megabyte],
        "flop_per_byte": flop / nbytes, "share_pct": 100 * flop / whole.flop,
    }  # fmt: skip


def totals_lines(workload):
    """Sentences below the table: totals, drift against published ones, forward, memory."""
    w, block = workload, block_totals(workload)
    value, unit = printed_traffic(w)
    found = [f"one block: {block.flop / 1e9:.1f} GFLOP, {value:.1f} {unit}, {block.flop_per_byte:.0f} FLOP/byte"]
    if w.drift is not None:
        found.append(
            f"drift against the published totals: FLOP {w.drift.flop_pct:+.2f} %, traffic {w.drift.traffic_pct:+.2f} % "
            f"(limit {w.drift.limit_pct:g} %)"
        )
    found.append(f"one forward of {w.blocks} blocks: {forward_flop(w) / 1e12:.2f} TFLOP")
    kept = memory.kv_bytes(w, "optimized") + memory.text_kv_bytes(w)
    found.append(
        f"memory: weights {number(memory.weight_bytes(w) / GIB)} GiB, KV rings and text {number(kept / GIB)} GiB, "
        f"all of it {number(needed_bytes(w, 'optimized') / GIB)} GiB on one device"
    )
    return found + ([f"note: {w.label}"] if w.label else [])


def models(listed):
    """The registry of reference models."""
    heads = {name: model.heads and f"{model.heads}×{model.head_dim}" for name, model in listed.items()}
    rows = tuple({"id": name, **model.model_dump(), "heads": heads[name]} for name, model in listed.items())
    columns = tuple(
        Column(key, title, words, text=True)
        for key, title in (
            ("id", "model"), ("workload", "workload"), ("hub", "hub id"), ("d_model", "d_model"), ("blocks", "blocks"), ("heads", "heads"),
            ("ffn", "FFN"), ("tokens", "tokens"), ("licence", "licence"), ("note", "note"),
        )
    )  # fmt: skip
    return Table("models", "Reference models", filled(columns, rows, ()), rows)


__all__ = ["block_ops", "models", "totals_lines"]
