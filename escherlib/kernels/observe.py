"""Looking into a running stack: record its operations to time them alone, mark their times in place, judge its values."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from escherlib.kernels.lazy import torch

IN_PLACE = "cross_attn.o_residual"  # its first argument is also its result
HEALTH_INPUTS = {
    "qkv": ("self_attn.q", "self_attn.qkv"), "o": ("self_attn.o",),
    "ffn1": ("ffn.linear1", "ffn.linear1_gelu"), "ffn2": ("ffn.linear2",),
}  # fmt: skip
BLOCK_INPUTS = ("glue.self_residual", "fused.self_residual_norm_cross")  # their first argument enters the block


@dataclass(frozen=True)
class Call:
    """One recorded operation: calling it runs it again on what it saw, writing where nobody reads."""

    block: int | None
    name: str
    function: object
    arguments: tuple
    keywords: dict = field(default_factory=dict)

    def __call__(self):
        return self.function(*self.arguments, **self.keywords)


def storage(tensor):
    """Identity of the memory behind a tensor."""
    return tensor.untyped_storage().data_ptr()


def lasting(stack):
    """Storages that outlive a chunk: weights, rings, text, modulation."""
    held = [*stack.parameters(), *stack.rings, *(t for text in stack.text for t in _tensors(text))]
    for layer in getattr(stack, "layers", ()):
        held += [value for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    held += [stack.modulation] if hasattr(stack, "modulation") else []
    return {storage(tensor) for tensor in held}


def _tensors(value):
    return value if isinstance(value, tuple) else (value,)


def record(stack, chunk, keep=None):
    """Every Call of one chunk, in order. Activations are copied as each operation sees them.

    `keep`: the number of the one block whose activations are copied; the others get the same values with their own
    weights and rings (forty blocks' activations would take more memory than the weights). None keeps all.
    """
    fixed, spare = lasting(stack), {}
    if keep is not None:
        reference = {call.name: call for call in _recorded(stack, chunk, fixed, spare, only=keep)}
        return _recorded(stack, chunk, fixed, spare, reference=reference)
    return _recorded(stack, chunk, fixed, spare)


def _recorded(stack, chunk, fixed, spare, only=None, reference=None):
    found = []

    def observe(block, name, function, *arguments, **keywords):
        if only is None or block == only:
            seen = reference.get(name) if reference and block is not None else None
            taken = tuple(
                seen.arguments[i] if seen and _passing(value, fixed) else _kept(value, fixed)
                for i, value in enumerate(arguments)
            )
            found.append(Call(block, name, function, taken, _spared(name, keywords, spare)))
        return function(*arguments, **keywords)

    with observed(stack, lambda block: partial(observe, block)):
        stack.chunk(chunk)
    return found


@contextmanager
def observed(stack, make_call):
    """Within it every operation of a stack runs through `make_call(block number or None)`, compiled blocks too."""
    stack.observe(make_call)
    try:
        with torch.compiler.set_stance("force_eager"):  # a compiled block has no operations to look at
            yield
    finally:
        stack.observe(None)


def _passing(value, fixed):
    return isinstance(value, torch.Tensor) and storage(value) not in fixed


def _kept(value, fixed):
    return value.clone() if _passing(value, fixed) else value


def _spared(name, keywords, spare):
    """Keywords with every output replaced by memory of the same layout that nobody reads."""
    return {
        key: spare.setdefault((name, key), torch.empty_like(value)) if key in ("out", "sum_out") else value
        for key, value in keywords.items()
    }


def randomised(calls, stack):
    """The same calls on normal random values instead of those of the running stack, weights as they are."""
    rings = {storage(ring): ring for ring in stack.rings}
    one_ring = torch.randn_like(stack.rings[0])
    fixed, fresh = lasting(stack), {}

    def random(value):
        if not isinstance(value, torch.Tensor):
            return value
        if storage(value) in rings:
            return one_ring.as_strided(value.shape, value.stride(), value.storage_offset())
        if storage(value) in fixed:
            return value
        return fresh.setdefault(value.data_ptr(), torch.randn_like(value))

    return [Call(c.block, c.name, c.function, tuple(map(random, c.arguments)), c.keywords) for c in calls]


def marked(stack, chunk, clock):
    """{call name: {"s": device time in this chunk, "n": calls}} and the chunk's own seconds, by a mark after each call.

    The time of an operation runs from the mark before it, so that gaps count where they are waited for.
    """
    marks = []

    def observe(name, function, *arguments, **keywords):
        result = function(*arguments, **keywords)
        marks.append((name, clock.record()))
        return result

    with observed(stack, lambda block: observe):
        first = clock.record()
        stack.chunk(chunk)
    clock.wait(marks[-1][1])
    found, before = {}, first
    for name, mark in marks:
        entry = found.setdefault(name, {"s": 0.0, "n": 0})
        entry["s"] += clock.elapsed_ns(before, mark) / 1e9
        entry["n"] += 1
        before = mark
    return found, clock.elapsed_ns(first, before) / 1e9


def health(stack, chunk, limit_cosine):
    """Are the values alive? Statistics of the rings and of what enters the first, middle and last block.

    `cosines`: mean cosine between token rows of the inputs of the large products, the largest of those blocks.
    `ok` False with `why` for non-finite or constant values, or rows alike beyond `limit_cosine`.
    """
    last = len(stack.blocks) - 1
    watched = {0: "first", last // 2: "middle", last: "last"}
    blocks, cosines = {}, {}
    of = {name: group for group, names in HEALTH_INPUTS.items() for name in names}

    def observe(block, name, function, *arguments, **keywords):
        if block in watched and name in BLOCK_INPUTS:
            blocks[watched[block]] = spread(arguments[0])
        if block in watched and name in of:
            rows = next(a for a in arguments if isinstance(a, torch.Tensor) and a.dim() == 2)
            cosines[of[name]] = max(cosines.get(of[name], -1.0), mean_cosine(rows))
        return function(*arguments, **keywords)

    with observed(stack, lambda block: partial(observe, block)):
        stack.chunk(chunk)
    rings = {watched[i]: spread(stack.rings[i]) for i in watched}
    why = _unhealthy({**{f"ring of the {k} block": v for k, v in rings.items()},
                      **{f"input of the {k} block": v for k, v in blocks.items()}}, cosines, limit_cosine)  # fmt: skip
    return {"rings": rings, "blocks": blocks, "cosines": cosines, "ok": not why, "why": why}


def _unhealthy(statistics, cosines, limit_cosine):
    """What is wrong with the values, as one text; None for nothing."""
    wrong = [f"{what} is not finite" for what, s in statistics.items() if s["nonfinite_share"]]
    wrong += [f"{what} is constant" for what, s in statistics.items() if not s["nonfinite_share"] and not s["std"]]
    wrong += [
        f"rows of the input of {name} are alike: mean cosine {value:.2f}, limit {limit_cosine:g}"
        for name, value in cosines.items()
        if not value <= limit_cosine
    ]
    return "; ".join(wrong) or None


def spread(tensor):
    """{mean, std, zero_share, nonfinite_share} of a tensor; mean and spread of its finite values."""
    values = tensor.float()
    finite = torch.isfinite(values)
    good = values[finite] if not bool(finite.all()) else values
    empty = good.numel() < 2
    return {
        "mean": None if empty else float(good.mean()), "std": None if empty else float(good.std()),
        "zero_share": float((values == 0).float().mean()), "nonfinite_share": 1 - float(finite.float().mean()),
    }  # fmt: skip


def mean_cosine(rows):
    """Mean cosine between all pairs of different rows."""
    unit = torch.nn.functional.normalize(rows.float(), dim=1)
    n = unit.shape[0]
    return float((unit.sum(0).square().sum() - n) / (n * (n - 1))) if n > 1 else 0.0
