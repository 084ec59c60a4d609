"""What if: chunk time, MFU and memory of another window, chunk or degree of tensor parallelism, from measured roofs.

Analytic: every kernel takes its least time under the roofs, stretched by what this run measured of kernels of its
name. Communication between devices counts only where a rate is given.
"""

from dataclasses import dataclass

from escherlib.accounting import memory, paths, roofline
from escherlib.accounting.scale import MEMORY_SHARE

SPLIT = ("self_attn.qkv", "self_attn.flash", "self_attn.o", "cross_attn.q", "cross_attn.flash", "cross_attn.o_residual",
         "ffn.linear1_gelu", "ffn.linear2", "fused.qk_norm", "norm.cross_q", "cross_attn.k")  # fmt: skip
REDUCED = 3  # all-reduces of the activations a block: after O, cross O and FFN 2
DEGREES = (1, 2, 4, 8)
FRAMES, WINDOWS = (1, 3, 6), (3, 6, 12, 24, 48)  # latent frames of a chunk and of the window


@dataclass(frozen=True)
class WhatIf:
    """One case: seconds a chunk, MFU of each device on D, bytes one device holds, and what they are made of."""

    frames: int | None
    window: int | None
    tp: int
    step_s: float
    comm_s: float | None
    mfu: float
    memory_bytes: int
    fits: bool | None


def what_if(workload, roofs, *, tp=1, stretch=None, room_bytes=None, interconnect_gb_s=None):
    """WhatIf of a workload on `tp` devices; `stretch`: {kernel name: measured ÷ least time}, others count 1.

    Matrix products and attention are split over the devices, the rest runs on all of them alike.
    """
    peak, memory_gb_s, stretch = roofs.sustained.value, roofs.memory.value, stretch or {}
    kernels = paths.kernels(workload, "optimized")
    step = sum(_kernel_s(kernel, tp, peak, memory_gb_s) * stretch.get(kernel.name, 1.0) * kernel.count for kernel in kernels)
    flop = sum(kernel.flop / _ways(kernel, tp) * kernel.count for kernel in kernels)
    comm = comm_s(workload, tp, interconnect_gb_s)
    step += comm or 0.0
    held = device_bytes(workload, tp)
    return WhatIf(
        workload.frames, workload.window, tp, step, comm, flop / step / (1e12 * peak), held,
        held <= MEMORY_SHARE * room_bytes if room_bytes else None,
    )  # fmt: skip


def _ways(kernel, tp):
    return tp if kernel.name in SPLIT else 1


def _kernel_s(kernel, tp, peak, memory_gb_s):
    ways = _ways(kernel, tp)
    return roofline.floor_s(kernel.flop / ways, kernel.nbytes / ways, peak, memory_gb_s)


def comm_s(workload, tp, interconnect_gb_s):
    """Seconds of a ring's all-reduces in one chunk, not overlapped; None where no rate is given."""
    if tp == 1:
        return 0.0
    if not interconnect_gb_s:
        return None
    stream = workload.batch * workload.query_tokens * workload.d_model * workload.itemsize
    return workload.blocks * REDUCED * 2 * (tp - 1) / tp * stream / (1e9 * interconnect_gb_s)


def device_bytes(workload, tp=1):
    """Bytes one device holds: its share of weights, rings and text, and all of the activations (an upper bound)."""
    w = workload
    shared = memory.weight_bytes(w) + memory.kv_bytes(w, "optimized") + memory.text_kv_bytes(w)
    return -(-shared // tp) + memory.live_set_bytes(w, "optimized")


def tp_needed(workload, room_bytes):
    """The smallest degree at which one device's share fits `room_bytes`, or None."""
    fitting = (tp for tp in DEGREES if not workload.heads % tp and device_bytes(workload, tp) <= MEMORY_SHARE * room_bytes)
    return next(fitting, None)


def room_of(results):
    """Bytes of one device that can be had: what this run allocated in chunks, else what the device reports."""
    chunked = results.row("03_memory_capacity", "chunked")
    found = chunked.get("bytes") if chunked is not None and chunked.ok else None
    return found or results.device.get("memory_bytes")


def cases(workload, windows=WINDOWS, frames=FRAMES):
    """Variants of a workload given by frames: every chunk length with every window that holds whole chunks."""
    if workload.frames is None:
        return [workload]
    return [resized(workload, f, window) for f in frames for window in windows if window >= f and not window % f]


def resized(workload, frames, window):
    """The workload with another chunk and window, in latent frames."""
    tokens = workload.tokens_per_latent_frame
    sizes = {"frames": frames, "window": window, "query_tokens": frames * tokens, "kv_tokens": window * tokens}
    return workload.model_copy(update={**sizes, "rows_time": frames})


def sweep(workload, roofs, ops=(), *, room_bytes=None, interconnect_gb_s=None, degrees=DEGREES):
    """[WhatIf] of all cases and degrees. [] without both roofs."""
    if roofs.sustained.value is None or roofs.memory.value is None:
        return []
    stretch = {op.kernel.name: op.ratio for op in ops if op.ratio}
    return [
        what_if(variant, roofs, tp=tp, stretch=stretch, room_bytes=room_bytes, interconnect_gb_s=interconnect_gb_s)
        for variant in cases(workload)
        for tp in degrees
        if not workload.heads % tp
    ]


__all__ = ["WhatIf", "cases", "device_bytes", "room_of", "sweep", "tp_needed", "what_if"]
