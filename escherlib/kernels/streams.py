"""Times streaming operations: rows `copy/…` … `strided/…` by bytes per buffer, `cache/…` by working set."""

from dataclasses import dataclass

from escherlib import timing
from escherlib.accounting.ops import STREAM_NOTES, stream_bytes
from escherlib.errors import Refused, UserError
from escherlib.kernels import operands, stream_ops, timed
from escherlib.kernels.formats import FORMATS
from escherlib.kernels.stream_ops import OPS
from escherlib.method import method

DTYPES = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class Streamed:
    """A prepared streaming operation, in the form that timed.time_states takes."""

    call: object
    hot: object
    rotation: dict


@method(version=1)
def time_stream(device, *, op, bytes_per_buffer, dtype="fp32", states=("cold",), protocol=None):
    """Time one of the operations BW-1 … BW-7 on buffers of `bytes_per_buffer`, checked before and after.

    Buffers rotate over more than the last-level cache (`rotation`); where memory does not suffice for that,
    the state is labelled. `bytes` are the necessary ones, as `bytes_how` says. Values are random, a block
    repeated.

    Result: `states` with `gb_s` (10⁹ bytes a second), `op`, `id`, `elements`, `bytes`, `bytes_how`, `dtype`,
    `rotation`, `correct`, `correct_before`. Refused: does not fit, or a wrong result before or after.
    """
    fmt = _format(op, dtype)
    states = timed.check_states(states)
    result = _time(device, op, bytes_per_buffer, fmt, states, protocol)
    operands.release(device)
    return result


@method(version=1)
def time_copy_in_cache(device, *, bytes, dtype="fp32", protocol=None):
    """A point of the cache curve: copy within one working set of `bytes` (source and destination), again and
    again.

    Result as of time_stream, with state `hot` and `working_set_bytes`.
    """
    result = _time(device, "copy", bytes // 2, _format("copy", dtype), ["hot"], protocol)
    operands.release(device)
    return {**result, "working_set_bytes": bytes}


def _format(op, dtype):
    if op not in OPS:
        raise UserError(f"op {op!r}: unknown streaming operation; expected one of {', '.join(OPS)}")
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r}: streams are measured in {', '.join(DTYPES)}")
    if op == "axpy" and dtype != "fp32":
        raise Refused("axpy adds a small share of x to y, which 16 bits round away; it is measured in fp32")
    return FORMATS[dtype]


def _time(device, op, bytes_per_buffer, fmt, states, protocol):
    """The result dict; everything it allocated is gone when it returns."""
    clock = timing.clock_for(device)
    sets, rotation = stream_ops.make_sets(
        device, op, bytes_per_buffer, fmt, most=1 if states == ["hot"] else None
    )
    touched = set()

    def call(i):
        j = i % len(sets)
        touched.add(j)
        OPS[op].run(sets[j])

    call(0)
    before = stream_ops.check(op, sets[0], device, "before")
    stream_ops.reset(op, sets)
    touched.clear()
    measured = timed.time_states(Streamed(call, lambda i: call(0), rotation), clock, states, protocol)
    checks = [stream_ops.check(op, sets[j], device, "after") for j in sorted(touched)]
    elements = sets[0][OPS[op].counted].numel()
    moved = stream_bytes(op, elements, fmt.storage.itemsize)
    return {
        "states": timed.rated_all(measured, moved_bytes=moved),
        "op": op,
        "id": OPS[op].id,
        "bytes_per_buffer": bytes_per_buffer,
        "elements": elements,
        "flop": None,
        "bytes": moved,
        "bytes_how": STREAM_NOTES[op],
        "dtype": fmt.name,
        "fill": "normal, a block repeated",
        "backend": "torch",
        "rotation": rotation,
        "correct": max(checks, key=lambda found: found["error"]),
        "correct_before": before,
    }
