"""Times one attention of the workload through one backend. Rows `attention/{op}/{backend}`.

The operands are laid out as the optimized path holds them: those of self attention are parts of rows that
hold q|k|v side by side, as the ring does; those of cross attention are tensors of their own.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from escherlib import timing
from escherlib.accounting.ops import attention_bytes, attention_flop
from escherlib.errors import Refused, UserError
from escherlib.kernels import attention_check, backends, gemm, operands, timed
from escherlib.kernels.attention_backends import BACKENDS, attend, chosen, layout, missing, require_known, survey
from escherlib.kernels.attention_check import check_output
from escherlib.kernels.formats import format_of, is_emulated, require_supported
from escherlib.kernels.lazy import torch
from escherlib.method import method

__all__ = ["BACKENDS", "OPS", "attend", "check_output", "chosen", "layout", "survey", "time_attention"]
OPS = ("self_attn.flash", "cross_attn.flash")
BYTES_HOW = "Q, K, V read once, O written once; scores stay on the chip"
PROBE = {"query_tokens": 256, "kv_tokens": 1024}  # an attention this small tells what a large one would take
PROBED_FLOP = 1e9  # below this no host is slow enough to be asked first
SCORE_COPIES = 3  # float32 matrices alive at once where scores are kept in memory: scores, exponentials, P


@dataclass(frozen=True)
class Attention:
    """softmax(Q·Kᵀ/√head_dim)·V of one op of the block, batch 1, without a mask."""

    op: str
    query_tokens: int
    kv_tokens: int
    heads: int
    head_dim: int

    @property
    def width(self):
        """Elements of a row of Q, all heads together."""
        return self.heads * self.head_dim

    @property
    def flop(self):
        """4·queries·keys·width; the softmax counts nothing."""
        return attention_flop(self.query_tokens, self.kv_tokens, self.width)

    @property
    def side_by_side(self):
        """Whether q, k and v are parts of the same rows."""
        return self.op == OPS[0] and self.query_tokens <= self.kv_tokens

    def sizes(self):
        """{query_tokens, kv_tokens, heads, head_dim}."""
        return {name: getattr(self, name) for name in ("query_tokens", "kv_tokens", "heads", "head_dim")}

    def text(self):
        """`4680×18720×40×128`."""
        return "×".join(map(str, self.sizes().values()))

    def validated(self):
        """Itself, or a UserError that says what does not fit."""
        if self.op not in OPS:
            raise UserError(f"op {self.op!r}: unknown; expected one of {', '.join(OPS)}")
        if min(self.sizes().values()) < 1:
            raise UserError(f"attention {self.text()}: every size must be at least 1")
        return self


@dataclass(frozen=True)
class Prepared:
    """An attention ready to be timed: `call(i)` enqueues it on set i mod `len(sets)` and keeps its result."""

    work: Attention
    backend: str
    call: Callable[[int], None]
    sets: list  # (q, k, v)
    outputs: list
    touched: set
    rotation: dict
    expected: tuple  # as attention_check.expect makes it

    def hot(self, i):
        """The call on the first set again and again."""
        self.call(0)

    def poison(self):
        """Fill the results with NaN and give them back, so that the next ones are made where NaN stands."""
        for j, out in enumerate(self.outputs):
            if out is not None:
                out.fill_(torch.nan)
            self.outputs[j] = None
        self.touched.clear()

    def check(self, when):
        """The record's `correct` entry over all touched sets. Refused where a result is wrong."""
        q = self.sets[0][0]
        outputs = [self.outputs[j] for j in sorted(self.touched)]
        found = [attention_check.verify(out, q, self.expected) for out in outputs]
        worst = max(found, key=lambda v: (not v["ok"], v["error"] or 0.0))
        if not worst["ok"]:
            error = "not finite"
            if worst["error"]:
                error = f"scaled error {worst['error']:.3g}, bound {worst['bound']:g}"
            elif outputs[0].shape != q.shape or outputs[0].dtype != q.dtype:
                error = f"{outputs[0].dtype} of {tuple(outputs[0].shape)}"
            raise Refused(f"{self.backend} gave a wrong result {when} timing: {error}")
        return worst


@method(version=1)
def time_attention(
    device, *, op, backend, query_tokens, kv_tokens, heads, head_dim, dtype=None, states=("sustained",),
    settle=None, protocol=None, budget_s=10.0,
):  # fmt: skip
    """Time one attention through one backend in the asked states, checked before and after.

    `op`: self_attn.flash (q, k, v side by side in rows) or cross_attn.flash. `dtype` None: the device's peak
    dtype. `settle`: {m, n, k, backend} of the GEMM that brings the device into its sustained state, once in a
    process (None: this attention). `budget_s`: seconds one call may take.

    Result: `states` with `tflops`, op, query_tokens, kv_tokens, heads, head_dim, `flop`, `bytes`,
    `bytes_how`, `dtype`, `emulated`, `fill`, `backend`, `layout`, `rotation`, `correct`, `correct_before`,
    `settled`. Refused: unavailable, too heavy, does not fit, or a wrong result before or after.
    """
    require_known(backend)
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    work = Attention(op, query_tokens, kv_tokens, heads, head_dim).validated()
    states = timed.check_states(states)
    reason, result = missing(device, fmt, backend), None
    if reason:
        raise Refused(f"{backend}: {reason}")
    try:
        with backends.settings(device, fmt), torch.inference_mode():
            result = _time(device, work, fmt, backend, states, settle, protocol, budget_s)
    except torch.OutOfMemoryError:
        size = operands.gib(set_bytes(work, fmt))
        reason = f"{backend}: out of memory at {work.text()}; one set of operands takes {size}"
    operands.release(device)  # outside of the handler, which keeps the failed call's tensors alive
    if reason:
        raise Refused(f"{reason}, {operands.gib(operands.free_bytes(device))} are free now")
    return result


def _time(device, work, fmt, backend, states, settle, protocol, budget_s):
    """The result dict; everything it allocated is gone when it returns."""
    clock = timing.clock_for(device)
    require_room(device, work, backend)
    require_light(device, work, fmt, backend, clock, budget_s)
    prepared = prepare(device, work, fmt, backend)
    before = prepared.check("before")
    settled = settle_with(device, settle, prepared, clock, protocol) if "sustained" in states else None
    prepared.poison()
    measured = timed.time_states(prepared, clock, states, protocol)
    after = prepared.check("after")
    held = "q, k, v side by side in rows" if work.side_by_side else "q, k, v contiguous"
    return {
        "states": timed.rated_all(measured, work.flop),
        "op": work.op,
        **work.sizes(),
        "flop": work.flop,
        "bytes": attention_bytes(work.query_tokens, work.kv_tokens, work.width, fmt.storage.itemsize),
        "bytes_how": BYTES_HOW,
        "dtype": fmt.name,
        "emulated": is_emulated(device, fmt),
        "fill": f"normal, q scaled so that scores spread by {logit_spread():g}",
        "backend": backend,
        "layout": f"{held}; {layout(backend)}",
        "rotation": prepared.rotation,
        "correct": after,
        "correct_before": before,
        "settled": settled,
    }


def prepare(device, work, fmt, backend, most=None):
    """Prepared attention on at most `most` sets, called once. Refused where the backend does not take it."""
    run = attend(backend)
    sets, rotation = make_sets(device, work, fmt, most)
    outputs, touched = [None] * len(sets), set()

    def call(i):
        j = i % len(sets)
        touched.add(j)
        outputs[j] = run(*sets[j])

    _first_call(backend, call)
    return Prepared(work, backend, call, sets, outputs, touched, rotation, attention_check.expect(*sets[0]))


def _first_call(backend, call):
    """The first call may load or compile, and fail in any way; torch gives its reasons as warnings before."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            call(0)
            return
        except (Refused, torch.OutOfMemoryError, torch.AcceleratorError):
            raise  # memory, or a device in trouble: not the backend's refusal
        except Exception as error:
            lines = [str(warning.message) for warning in told if issubclass(warning.category, UserWarning)]
            lines = dict.fromkeys(line.split(" (Triggered")[0].strip() for line in lines)
            said = " ".join([(str(error).strip().splitlines() or [type(error).__name__])[0], *lines])
    raise Refused(f"{backend} does not take this attention ({said[:300]})")


def set_bytes(work, fmt):
    """Bytes of one set of operands and its result."""
    rows = 3 * work.kv_tokens if work.side_by_side else work.query_tokens + 2 * work.kv_tokens
    return (rows + work.query_tokens) * work.width * fmt.storage.itemsize


def logit_spread():
    """Standard deviation of the scores: that of the stack, where some hundred keys matter to a query."""
    from escherlib.kernels.dit import LOGIT_STD

    return LOGIT_STD


def make_sets(device, work, fmt, most=None):
    """(sets of (q, k, v), rotation): normal values, as many copies as cache and memory ask for, or `most`."""
    size = set_bytes(work, fmt)
    count, spans = operands.set_count(size, device, most)
    source = operands.generator(device)
    parts = 3 if work.side_by_side else 2
    q = operands.random_tensor((work.query_tokens, work.width), fmt, device, "normal", source, logit_spread())
    rows = operands.random_tensor((work.kv_tokens, parts * work.width), fmt, device, "normal", source)
    sets = []
    for _ in range(count):
        if work.side_by_side:
            held = rows.clone() if sets else rows
            held[-work.query_tokens :, : work.width] = q
            own = (held[-work.query_tokens :, : work.width], *held.split(work.width, dim=1)[1:])
        else:
            own = (q.clone(), *(half.contiguous() for half in rows.split(work.width, dim=1)))
        sets.append(tuple(t.unflatten(1, (work.heads, work.head_dim)).unsqueeze(0) for t in own))
    what = (
        "inputs; every set holds the same values at its own addresses, results lie where they are allocated"
    )
    return sets, operands.describe_sets(count, size, spans, device, what)


def settle_with(device, shape, prepared, clock, protocol=None):
    """Settle the device, once in a process, with the GEMM `shape` ({m, n, k, backend}) or the attention."""
    if timed.is_settled(device) or shape is None:
        what = {"op": prepared.work.op, **prepared.work.sizes(), "backend": prepared.backend}
        return timed.settle_once(device, clock, prepared.call, what, protocol)
    fmt = format_of(device, None)
    with backends.settings(device, fmt):
        return gemm.settle_with(device, shape, None, fmt, clock, protocol=protocol)


def require_room(device, work, backend):
    """Refused where a backend keeps all scores in memory and they don't fit; a host would end the process."""
    if backend != "sdpa:math":
        return
    needed = SCORE_COPIES * 4 * work.heads * work.query_tokens * work.kv_tokens
    room = int(operands.free_bytes(device) * operands.MEMORY_SHARE)
    if needed > room:
        sizes = f"its scores at {work.text()} take {operands.gib(needed)}, {operands.gib(room)} can be used"
        raise Refused(f"{backend}: does not fit: {sizes}")


def require_light(device, work, fmt, backend, clock, budget_s):
    """Refused where one call would take more than `budget_s`. Only hosts are asked, by a small attention."""
    if device.kind == "gpu" or work.flop < PROBED_FLOP:
        return
    smaller = {name: min(size, PROBE.get(name, size)) for name, size in work.sizes().items()}
    small = Attention(work.op, **smaller)
    probe = prepare(device, small, fmt, backend, most=1)
    call_s = min(timed.quick_pass({"probe": probe.call}, clock, least_s=0.0).values())
    expected_s = call_s * work.flop / small.flop
    if expected_s > budget_s:
        expected = f"about {expected_s:.3g} s in {fmt.name} here"
        raise Refused(f"{backend}: one call would take {expected}, the time box is {budget_s:g} s")
