"""The streaming operations BW-1 … BW-7: buffers, the call that is timed, and whether it did what it says.

Every check recomputes the result in float64 from the inputs. A GPU compares all elements, a CPU evenly spaced
blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from escherlib.errors import Refused
from escherlib.kernels import operands
from escherlib.kernels.lazy import torch

SCALAR = 1.5  # exact in every format, and no identity
STEP = 2.0**-12  # of axpy: y grows by this share of x a call, so that thousands of calls stay finite
STRIDE = 2
BLOCK_VALUES = 2**22 - 3  # random values in one block; its odd length keeps repeats off power-of-two offsets
CHECK_BLOCK = 2**24
SUM_BOUND = 2.0**-14  # thousands of float32 additions a thread stay below it; a block left out does not
CPU_SAMPLES, CPU_SAMPLE_VALUES = 64, 4096


@dataclass(frozen=True)
class StreamOp:
    """One operation: its buffers (as shares of `bytes_per_buffer`), how it runs, what must come out."""

    id: str
    buffers: dict  # name → share of bytes_per_buffer
    run: Callable  # (tensors) → None, enqueues one call
    expected: Callable | None  # (tensors as float64 pieces) → float64 piece of the output; None: see `check`
    output: str

    @property
    def counted(self):
        """Name of the buffer whose elements are counted: the result, or what is read where that is one
        number.
        """
        return "a" if self.output == "s" else self.output


def _strided(t):
    t["c"].copy_(t["a"][::STRIDE])


OPS = {
    "copy": StreamOp("BW-1", {"a": 1, "c": 1}, lambda t: t["c"].copy_(t["a"]), lambda t: t["a"], "c"),
    "add": StreamOp(
        "BW-2",
        {"a": 1, "b": 1, "c": 1},
        lambda t: torch.add(t["a"], t["b"], out=t["c"]),
        lambda t: t["a"] + t["b"],
        "c",
    ),
    "mul": StreamOp(
        "BW-3",
        {"a": 1, "c": 1},
        lambda t: torch.mul(t["a"], SCALAR, out=t["c"]),
        lambda t: SCALAR * t["a"],
        "c",
    ),
    "axpy": StreamOp("BW-4", {"a": 1, "c": 1}, lambda t: t["c"].add_(t["a"], alpha=STEP), None, "c"),
    "sum": StreamOp("BW-5", {"a": 1}, lambda t: torch.sum(t["a"], dim=0, out=t["s"]), None, "s"),
    "fill": StreamOp(
        "BW-6", {"c": 1}, lambda t: t["c"].fill_(SCALAR), lambda t: torch.full_like(t["c"], SCALAR), "c"
    ),
    "strided": StreamOp("BW-7", {"a": 1, "c": 1 / STRIDE}, _strided, lambda t: t["a"], "c"),
}


def make_sets(device, op, bytes_per_buffer, fmt, most=None):
    """(sets, rotation): buffers of one operation, in as many copies as cache and memory ask for (at most
    `most`).
    """
    elements = {
        name: int(share * bytes_per_buffer) // fmt.storage.itemsize for name, share in OPS[op].buffers.items()
    }
    size = sum(elements.values()) * fmt.storage.itemsize
    count, spans = operands.set_count(size, device, most)
    source = operands.generator(device)
    # a sum of numbers around 1 shows a block left out; around 0 it would drown in the spread
    block = torch.empty(BLOCK_VALUES, dtype=fmt.storage, device=device.torch_device)
    block.normal_(mean=1.0 if op == "sum" else 0.0, generator=source)
    sets = []
    for _ in range(count):
        tensors = {name: repeat(block, n, shift) for shift, (name, n) in enumerate(elements.items())}
        if op == "sum":
            tensors["s"] = torch.empty((), dtype=fmt.storage, device=device.torch_device)
        sets.append(tensors)
    reset(op, sets)
    return sets, operands.describe_sets(count, size, spans, device, "all buffers of the operation")


def repeat(block, elements, shift=0):
    """A buffer of `elements` values that repeats the block, begun `shift` thousands of values later."""
    out = torch.empty(elements, dtype=block.dtype, device=block.device)
    rolled = block.roll(-1000 * shift)
    for start in range(0, elements, rolled.numel()):
        part = out[start : start + rolled.numel()]
        part.copy_(rolled[: part.numel()])
    return out


def reset(op, sets):
    """Put the outputs into a state from which a later check sees every write: NaN, or y = x for axpy."""
    for tensors in sets:
        if op == "axpy":
            tensors["c"].copy_(tensors["a"])
        else:
            tensors[OPS[op].output].fill_(torch.nan)


def check(op, tensors, device, when):
    """The record's `correct` entry of one set. Refused where a value is wrong."""
    if op == "sum":
        error, bound, how = _sum_error(tensors, device)
    elif op == "axpy":
        error, bound, how = _axpy_error(tensors, device)
    else:
        error, bound, how = _elementwise_error(op, tensors, device)
    ok = error <= bound  # false for NaN too
    if not ok:
        raise Refused(
            f"{op} gave a wrong result {when} timing: relative error {error:.3g}, bound {bound:.3g}"
        )
    return {"ok": True, "error": error, "bound": bound, "how": how}


def pieces(elements, device):
    """Slices to be compared: all of it in blocks on a GPU, evenly spaced samples (both ends included) on a
    CPU.
    """
    if device.kind == "gpu" or elements <= CPU_SAMPLES * CPU_SAMPLE_VALUES:
        return [slice(start, min(start + CHECK_BLOCK, elements)) for start in range(0, elements, CHECK_BLOCK)]
    last = elements - CPU_SAMPLE_VALUES
    starts = [last * i // (CPU_SAMPLES - 1) for i in range(CPU_SAMPLES)]
    return [slice(start, start + CPU_SAMPLE_VALUES) for start in starts]


def _where(parts, elements):
    whole = sum(part.stop - part.start for part in parts) >= elements
    return "all elements" if whole else f"{len(parts)} evenly spaced blocks of {CPU_SAMPLE_VALUES} elements"


def _piece(tensors, part, stride):
    """float64 values of the buffers behind one piece of the output."""
    wide = slice(part.start * stride, part.stop * stride, stride)
    return {name: t[wide if name == "a" else part].double() for name, t in tensors.items()}


def _elementwise_error(op, tensors, device):
    """(largest error relative to max(1, |expected|), bound, how)."""
    entry, stride = OPS[op], STRIDE if op == "strided" else 1
    out = tensors[entry.output]
    parts = pieces(out.numel(), device)
    worst = torch.zeros((), dtype=torch.float64, device=out.device)
    for part in parts:
        values = _piece(tensors, part, stride)
        expected = entry.expected(values)
        error = ((values[entry.output] - expected).abs() / expected.abs().clamp_min(1.0)).max()
        worst = torch.maximum(worst, error)  # keeps NaN
    how = f"{_where(parts, out.numel())} against float64 on the same inputs"
    return float(worst), torch.finfo(out.dtype).eps / 2, how


def _axpy_error(tensors, device):
    """y began as x, so after j calls it is x·(1 + j·STEP) everywhere, with one whole j ≥ 1 for all elements.

    The bound grows with j, since every call rounds once.
    """
    x, y = tensors["a"], tensors["c"]
    parts = pieces(y.numel(), device)
    head = _piece(tensors, parts[0], 1)
    calls = float(((head["c"] / head["a"]).median() - 1) / STEP)
    if not calls >= 0.5:
        return float("inf"), 0.0, "no element was updated"
    calls, worst = round(calls), torch.zeros((), dtype=torch.float64, device=x.device)
    for part in parts:
        values = _piece(tensors, part, 1)
        expected = values["a"] * (1 + calls * STEP)
        error = ((values["c"] - expected).abs() / expected.abs().clamp_min(1.0)).max()
        worst = torch.maximum(worst, error)
    bound = max(1, calls) * torch.finfo(y.dtype).eps / 2
    return float(worst), bound, f"{_where(parts, y.numel())}: each was updated {calls} times, in float64"


def _sum_error(tensors, device):
    """(error relative to Σ|a|, bound, how): the whole buffer, since a sum has no samples."""
    a = tensors["a"]
    exact = size = torch.zeros((), dtype=torch.float64, device=a.device)
    for start in range(0, a.numel(), CHECK_BLOCK):
        block = a[start : start + CHECK_BLOCK].double()
        exact, size = exact + block.sum(), size + block.abs().sum()
    error = float((tensors["s"].double() - exact).abs() / size)
    return error, SUM_BOUND + torch.finfo(a.dtype).eps / 2, "the sum in float64, relative to Σ|a|"
