"""Times every kernel of the workload's block alone, on what the running stack gave it. Rows `capture/…` and `op/…`.

A stack of a few blocks runs until its window is full; the operations of one chunk are recorded with their operands.
A row then rotates over the recorded calls of all blocks, so that weights and activations come from memory as they do
in the stack.
"""

from types import SimpleNamespace

from escherlib import timing
from escherlib.accounting import paths
from escherlib.accounting.scale import scale_of
from escherlib.errors import Refused, UserError
from escherlib.kernels import backends as gemm_backends
from escherlib.kernels import gemm, observe, op_check, operands, rowwise, scopes, timed
from escherlib.kernels.formats import format_of, is_emulated, switches
from escherlib.kernels.lazy import dit, torch
from escherlib.kernels.products import Gemm
from escherlib.method import method

FILL = "captured from the running stack"
ROPE = "rope"
_captured = {}  # the stack of one path and its recorded calls: {"key": what was asked, "stack", "calls", "health", "w"}


@method(version=1)
def capture(device, *, geometry, path, backends=None, depth_captured=4):
    """Build a stack of `depth_captured` blocks, fill its window, record one chunk; is what it computes alive?

    Result: `health`, `depth`, `scale`; no states. Refused where the values are not alive, or memory is short.
    """
    found = captured(device, geometry, path, backends, depth_captured)
    scopes.require_alive(found["health"], "before")
    fmt = format_of(device, found["w"].dtype)
    return {
        "states": {}, "flop": None, "bytes": None, "bytes_how": "nothing is timed here", "dtype": fmt.name,
        "emulated": is_emulated(device, fmt), "fill": FILL, "backend": None, "path": path, "health": found["health"],
        "depth": found["w"].blocks, "scale": scale_of(scopes.workload_of(geometry)),
        "correct": {"ok": True, "error": None, "bound": None, "how": "each operation is checked in its own row"},
    }  # fmt: skip


@method(version=1)
def time_kernel(
    device, *, geometry, path, kernel, backends=None, depth_captured=4, states=("sustained",), settle=None,
    protocol=None, budget_s=10.0,
):  # fmt: skip
    """Time one kernel of a path (a name of accounting/paths.py) per launch, checked before and after.

    `settle`: {m, n, k, backend} of the GEMM that brings the device into its sustained state, once in a process.
    `budget_s`: seconds one launch may take. Result: `states`, `flop` and `bytes` of one launch, `count` launches in
    one forward of the timed workload, `kind`, `calls`, `members`, `read_share`, `shape`, `path`, `scale`, `backend`.
    Refused: a wrong result, memory, or a launch over its budget.
    """
    w = scopes.workload_of(geometry)
    what = kernel_named(w, path, kernel)
    found = captured(device, geometry, path, backends, depth_captured)
    calls = recorded_of(found, what)
    fmt, clock = format_of(device, w.dtype), timing.clock_for(device)
    with torch.inference_mode():
        before = op_check.check(calls[0], fmt)
        op_check.require_right(before, kernel, "before")
        work = prepared(calls)
        require_light(work.call, clock, budget_s)
        settled = settle_with(device, settle, clock, protocol) if "sustained" in states else None
        measured = timed.time_states(work, clock, states, protocol)
        after = op_check.check(calls[0], fmt)
        op_check.require_right(after, kernel, "after")
    return {
        "states": timed.rated_all(measured, what.flop, what.nbytes), "flop": what.flop, "bytes": what.nbytes,
        "bytes_how": paths.BYTES_HOW, "dtype": fmt.name, "emulated": is_emulated(device, fmt), "fill": FILL,
        "backend": backend_of(what, found["stack"]), "path": what.path, "kernel": what.name, "kind": what.kind,
        "calls": list(what.calls), "members": list(what.members), "count": what.count, "read_share": what.read_share,
        "shape": what.shape, "rotation": work.rotation, "scale": scale_of(w), "settled": settled, "correct": after,
        "correct_before": before, "reduction_switches": switches(device),
    }  # fmt: skip


def release(device):
    """Give back the captured stack and its memory. `device` None (a notebook that only reads) holds none."""
    _captured.clear()
    if device is not None:
        operands.release(device)


def kernel_named(w, path, name):
    """The accounted kernel of that name; the rotary embedding stands beside the list. UserError for an unknown name."""
    if name == ROPE:
        return paths.rope_kernel(w)
    known = {kernel.name: kernel for kernel in paths.kernels(w, path)}
    if name not in known:
        raise UserError(f"kernel {name!r}: the {path} path launches none of that name; choose from {', '.join(known)}")
    return known[name]


def captured(device, geometry, path, chosen, depth):
    """The recorded stack of a path: the one alive, or a new one in the place of another."""
    key = (device.torch_device, str(sorted(geometry.items())), path, str(sorted((chosen or {}).items())), depth)
    if _captured.get("key") != key:
        release(device)
        shallow = {**geometry, "blocks": min(depth, geometry["blocks"])}
        w, stack = scopes.open_stack(device, shallow, path, chosen)
        with torch.inference_mode():
            health = observe.health(stack, 0, scopes.COSINE_LIMIT)
            calls = observe.record(stack, 0)
        _captured.update(key=key, w=w, stack=stack, health=health, calls=calls)
    return _captured


def recorded_of(found, what):
    """The recorded calls that a kernel stands for, of all blocks."""
    if what.name == ROPE:
        return rope_calls(found)
    calls = [call for call in found["calls"] if call.name in what.calls]
    if not calls:
        raise Refused(f"the stack did not launch {what.name}; its list of kernels is out of date")
    return calls


def rope_calls(found):
    """What the optional rotary embedding would do to each block's recorded q and k."""
    w, stack = found["w"], found["stack"]
    angles = dit.rope_angles(w.query_tokens, w.head_dim, stack.time[0].weight.device)
    by_block = {}
    for call in found["calls"]:
        if call.name in ("norm.q", "norm.k"):
            by_block.setdefault(call.block, {})[call.name] = call()
    return [
        observe.Call(block, ROPE, dit.rotate, (rows["norm.q"], rows["norm.k"], angles, w.heads)) for block, rows in by_block.items()
    ]


def prepared(calls):
    """Recorded calls as timed.time_states takes a work: `call` rotates over them, `hot` repeats the first."""
    count, span = len(calls), sum(operand_bytes(call) for call in calls)
    rotation = {"sets": count, "span_bytes": span, "spans_cache": None, "rotated": "recorded calls of all blocks"}
    return SimpleNamespace(call=lambda i: calls[i % count](), hot=lambda i: calls[0](), rotation=rotation)


def operand_bytes(call):
    """Bytes of the tensors a recorded call is given, results with a place of their own included."""
    values = [*call.arguments, *call.keywords.values()]
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))


def require_light(run, clock, budget_s):
    """Refused where one launch takes longer than its budget."""
    call_s = timed.quick_pass({"op": run}, clock, rounds=1, least_s=0.0)["op"]
    if call_s > budget_s:
        raise Refused(f"one launch takes {call_s:.3g} s here, the time box is {budget_s:g} s")


def settle_with(device, shape, clock, protocol):
    """Summary of how this process brought the device into its sustained state; None without a shape to do it with."""
    if shape is None and not timed.is_settled(device):
        return None
    if timed.is_settled(device):
        return timed.settle_once(device, clock, None, None, protocol)
    fmt, work = format_of(device, None), Gemm(shape["m"], shape["n"], shape["k"]).validated()
    with gemm_backends.settings(device, fmt):
        product, _ = gemm.prepare_best(device, work, fmt, shape.get("backend") or "auto", clock)
        return timed.settle_once(device, clock, product.call, {**work.shape(), "backend": product.backend}, protocol)


def backend_of(what, stack):
    """What runs a kernel: the attention backend, our own launch or torch."""
    if what.kind == "attention":
        return scopes.backends_of(stack).get(what.name, "sdpa")
    if what.name.startswith(("fused.", "norm.cross_q")) and stack.path == "optimized":
        return rowwise.backend(stack.time[0].weight)
    return "torch"
