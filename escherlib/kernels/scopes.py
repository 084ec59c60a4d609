"""Times the whole stack: chunks of one path in turns with its matrix floor, between two brackets by the peak GEMM.

Runs inside the child process of kernels/e2e.py, which holds one stack alive over its scopes.
"""

import math
import time

from escherlib import timing
from escherlib.accounting import memory, paths
from escherlib.accounting.scale import scale_of
from escherlib.errors import Refused
from escherlib.kernels import attention, backends, capacity_child, gemm, observe, operands, timed
from escherlib.kernels.compiled import Compiled
from escherlib.kernels.formats import format_of, is_emulated, switches
from escherlib.kernels.lazy import dit, dit_fused, torch
from escherlib.kernels.products import Gemm
from escherlib.timing import hold

ROUNDS = 3  # turns of chunks and floor within one scope
COSINE_LIMIT = 0.5  # rows of an input more alike than this would cost less power than real ones
MARKED_CHUNKS = 3
# Roundings one after another on the way of a value through a block's update (norms, products, attention, gates), and of
# the residual stream that the update is added to.
UPDATE_ROUNDINGS, STREAM_ROUNDINGS = 14, 3


def workload_of(geometry):
    """The Workload whose geometry() this is."""
    from escherlib.parameters import workload_from_dict

    return workload_from_dict({"description": "as timed", "printed_megabyte": "MiB", **geometry})


def stack_class(path):
    """Class of the stack of a path."""
    return dit.Stack if path == "default" else dit_fused.FusedStack


def open_stack(device, geometry, path, chosen):
    """(workload, stack) of a path on the device, its window filled by running chunks."""
    w = workload_of(geometry)
    memory.require_ring(w)
    stack = dit.build(w, device.torch_device, format_of(device, w.dtype).storage, stack_class(path))
    if path == "optimized":
        stack.use(chosen or {})
    fill_window(stack)
    return w, stack


def fill_window(stack):
    """Run as many chunks as the ring has slots, and one more: from then on every chunk is steady state."""
    with torch.inference_mode():
        for i in range(stack.slots + 1):
            stack.chunk(i)


class Heater:
    """The peak GEMM: brings the device into its sustained state and brackets the scopes."""

    def __init__(self, device, shape, protocol):
        self.device, self.protocol, self.clock = device, protocol, timing.clock_for(device)
        self.fmt = format_of(device, None)
        work = Gemm(shape["m"], shape["n"], shape["k"]).validated()
        with backends.settings(device, self.fmt):
            self.product, _ = gemm.prepare_best(
                device, work, self.fmt, shape.get("backend") or "auto", self.clock
            )
        self.what = {**work.shape(), "backend": self.product.backend}

    def settle(self):
        """Summary of how this process brought the device into its sustained state."""
        with backends.settings(self.device, self.fmt):
            return timed.settle_once(self.device, self.clock, self.product.call, self.what, self.protocol)

    def bracket(self):
        """Sustained State of the peak GEMM, with its throughput."""
        with backends.settings(self.device, self.fmt):
            state = timing.sustained(self.product.call, self.clock, protocol=self.protocol)
            self.product.check("after")
        flop = self.product.gemm.flop
        return {**timed.rated(state, flop), "flop": flop}


def matrix_floor(stack, path, w, randomise=False):
    """(call(i), FLOP): all matrix kernels of one forward in order, on what the running stack gave them."""
    wanted = {name for kernel in paths.kernels(w, path) if kernel.is_matrix for name in kernel.calls}
    calls = [c for c in observe.record(stack, 0, keep=len(stack.blocks) // 2) if c.name in wanted]
    if randomise:
        calls = observe.randomised(calls, stack)

    def run(i):
        for call in calls:
            call()

    return run, paths.forward_flop(w, path)


def measure(device, w, stack, path, heater, runner, *, chunks, floor_forwards, floor_random, in_situ, protocol):
    """The record of one scope; `runner` has `chunk(i)`, `how`, `compile` (see Compiled). Refused where the values die."""
    with torch.inference_mode():
        before = observe.health(stack, 0, COSINE_LIMIT)
        require_alive(before, "before")
        agrees = compiled_check(stack, runner, format_of(device, w.dtype).unit_roundoff) if runner.compile else None
        floor, flop = matrix_floor(stack, path, w)
        settled = heater.settle()
        brackets = [heater.bracket()]
        clock = heater.clock
        timing.run_calls(floor, clock, 1)
        dropped, _ = timing.run_calls(runner.chunk, clock, 1)
        each = max(1, (chunks - 1) // ROUNDS)
        works = {"chunk": (lambda i: runner.chunk(i + 1), each), "floor": (floor, floor_forwards)}
        states = timing.turns(works, clock, rounds=ROUNDS, protocol=protocol)
        brackets.append(heater.bracket())
        del floor
        situ = _in_situ(stack, runner, clock) if in_situ and not runner.compile else None
        random = _random_floor(stack, path, w, clock, floor_forwards, protocol) if floor_random else None
        after = observe.health(stack, 0, COSINE_LIMIT)
        require_alive(after, "after")
    fmt, chunk = format_of(device, w.dtype), timed.rated(states["chunk"], flop)
    return {
        "states": {"sustained": {**chunk, "flop": flop, "label": settled["label"] or chunk["label"]}},
        "flop": flop, "bytes": paths.forward_bytes(w, path), "bytes_how": paths.BYTES_HOW,
        "dtype": fmt.name, "emulated": is_emulated(device, fmt), "fill": "normal noise and text, window filled by chunks",
        "backend": runner.how, "how": runner.how, "compile": runner.compile, "compiled_check": agrees, "backends": backends_of(stack),
        "dropped_ns": dropped, "throughput": throughput(states["chunk"]), "floor": _floor(states["floor"], flop),
        "floor_random": random and _floor(random, flop),
        "floor_random_reason": None if random else "not asked for in this suite",
        "brackets": brackets, "bracket_gemm": heater.what, "settled": settled, "in_situ": situ,
        "in_situ_reason": None if situ else "marks between operations would change what a compiled stack launches"
        if runner.compile else "not asked for", "health": {"before": before, "after": after},
        "memory": _memory(device, w, path), "scale": scale_of(w), "reduction_switches": switches(device),
        "correct": {"ok": True, "error": None, "bound": None, "how": "values alive before and after; the arithmetic is checked "
                    "on a small instance against float32, see the row correct/" + path},
    }  # fmt: skip


def bound_of(blocks, unit, wanted, starts):
    """The largest relative error of an update that rounding explains: twice the roundings of update and stream.

    `wanted`, `starts`: what chunks gave and began with. The stream is rounded as a whole, so its roundings weigh as
    much more as it is larger than the update.
    """
    stream = max(float(y.float().norm() / (y.float() - x.float()).norm()) for y, x in zip(wanted, starts, strict=True))
    return 2 * unit * (math.sqrt(UPDATE_ROUNDINGS * blocks) + math.sqrt(STREAM_ROUNDINGS * blocks) * stream)


def update_error(result, wanted, start):
    """‖(result − start) − (wanted − start)‖ / ‖wanted − start‖ in float32; infinite where not finite."""
    error = float((result.float() - wanted.float()).norm() / (wanted.float() - start.float()).norm())
    return error if math.isfinite(error) else math.inf


def compiled_check(stack, runner, unit):
    """{error, bound} of a compiled chunk's update against the same chunk run eagerly. Refused where they differ.

    Both are rounded, each on its own way, so twice the bound of one of them holds.
    """
    i, start = 0, stack.noise[0]
    with torch.compiler.set_stance("force_eager"):
        wanted = stack.chunk(i).clone()
    produced = runner.chunk(i)
    produced = stack.room["sum"] if stack.path == "optimized" else produced
    error, bound = update_error(produced, wanted, start), 2 * bound_of(len(stack.blocks), unit, [wanted], [start])
    if not error <= bound:
        raise Refused(f"compiled, the {stack.path} path gave another result: relative error {error:.3g}, bound {bound:.3g}")
    return {"error": error, "bound": bound}


def require_alive(health, when):
    """Refused where the values of a stack are not those of a living model."""
    if not health["ok"]:
        raise Refused(f"the stack's values are no longer alive {when} timing: {health['why']}")


def throughput(state):
    """Chunks over the total time, beside the median."""
    total_s = sum(state["samples_ns"]) / 1e9
    return {"chunks": len(state["samples_ns"]), "total_s": total_s, "s_per_chunk": total_s / len(state["samples_ns"])}


def backends_of(stack):
    """{attention: backend} as the path runs them."""
    return dict(getattr(stack, "backends", None) or dict.fromkeys(attention.OPS, "sdpa"))


def _floor(state, flop):
    rated = timed.rated(state, flop)
    return {"state": rated, "flop": flop, "tflops": rated["tflops"]}


def _random_floor(stack, path, w, clock, forwards, protocol):
    run, _ = matrix_floor(stack, path, w, randomise=True)
    timing.run_calls(run, clock, forwards)
    return timing.turns({"floor": (run, forwards)}, clock, rounds=1, protocol=protocol)["floor"]


def _in_situ(stack, runner, clock):
    """Device time of every operation in its place: mean of a few marked chunks, beside chunks without marks."""
    timing.run_calls(runner.chunk, clock, 1)
    plain, _ = timing.run_calls(runner.chunk, clock, MARKED_CHUNKS)
    found = [observe.marked(stack, i, clock) for i in range(MARKED_CHUNKS)]
    kernels = {
        name: {"s": sum(f[0][name]["s"] for f in found) / len(found), "n": entry["n"]}
        for name, entry in found[0][0].items()
    }
    return {
        "kernels": kernels, "chunk_s": sum(f[1] for f in found) / len(found),
        "unmarked_chunk_s": sum(plain) / len(plain) / 1e9, "chunks": MARKED_CHUNKS,
    }  # fmt: skip


def _memory(device, w, path):
    peak = torch.cuda.max_memory_allocated(device.index) if device.kind == "gpu" else None
    return {"weights_bytes": memory.weight_bytes(w), "kv_bytes": memory.kv_bytes(w, path), "peak_bytes": peak}


class Session:
    """What the child keeps alive between requests: one stack of one path, the heater, what was compiled."""

    def __init__(self, device, *, geometry, path, backends, bracket_gemm, protocol):
        self.device, self.path, self.protocol = device, path, protocol
        self.w, self.stack = open_stack(device, geometry, path, backends)
        operands.release(device)
        self.heater = Heater(device, bracket_gemm, protocol) if bracket_gemm else None
        self.clock = timing.clock_for(device)
        self.compiled = Compiled(device, self.stack, self.clock)

    def compile(self, mode):
        """Try one compile mode: {mode, seconds, chunk_s, …}."""
        with torch.inference_mode():
            return self.compiled.attempt(mode)

    def scope(self, scope, mode=None, tried=(), **how):
        """Measure `eager` or `compiled` (in `mode`, compiling it first where it is not the one alive)."""
        begun = time.monotonic()
        with torch.inference_mode():
            runner = self.compiled.eager() if scope == "eager" else self.compiled.runner(mode, tried)
        found = measure(
            self.device, self.w, self.stack, self.path, self.heater, runner, protocol=self.protocol, **how
        )
        return {**found, "took_s": time.monotonic() - begun}

    def hold(self, tell, *, scope, mode, **how):
        """Tell what runs, then every line of a hold of its chunks (see timing.hold), from rest on."""
        with torch.inference_mode():
            runner = self.compiled.eager() if scope == "eager" else self.compiled.runner(mode)
            require_alive(observe.health(self.stack, 0, COSINE_LIMIT), "before")
            tell({"about": self._about(runner)})
            for line in hold.windows(runner.chunk, self.clock, protocol=self.protocol, **how):
                tell(line)
            require_alive(observe.health(self.stack, 0, COSINE_LIMIT), "after")

    def headroom(self, *, chunk_bytes, granule_bytes):
        """{resident_bytes, forward_bytes, remaining_bytes, chunks}: what the stack holds, what a chunk takes, what is left."""
        name, cuda = self.device.torch_device, torch.cuda
        cuda.synchronize(name)
        cuda.empty_cache()
        resident = cuda.memory_allocated(name)
        cuda.reset_peak_memory_stats(name)
        with torch.inference_mode():
            self.stack.chunk(0)
        cuda.synchronize(name)
        forward = cuda.max_memory_allocated(name) - resident
        cuda.empty_cache()
        host = capacity_child.Gpu(torch, name)
        sizes = {"chunk_bytes": chunk_bytes, "granule_bytes": granule_bytes}
        left = capacity_child.chunked(torch, torch.bfloat16, host, host.free_bytes(), sizes)
        return {"resident_bytes": resident, "forward_bytes": forward, "remaining_bytes": left["found_bytes"], "chunks": left["chunks"]}

    def _about(self, runner):
        fmt = format_of(self.device, self.w.dtype)
        return {
            "flop": paths.forward_flop(self.w, self.path), "bytes": paths.forward_bytes(self.w, self.path),
            "bytes_how": paths.BYTES_HOW, "dtype": fmt.name, "emulated": is_emulated(self.device, fmt),
            "fill": "normal noise and text, window filled by chunks", "backend": runner.how, "how": runner.how,
            "compile": runner.compile, "backends": backends_of(self.stack), "scale": scale_of(self.w),
            "reduction_switches": switches(self.device),
            "correct": {"ok": True, "error": None, "bound": None, "how": "values alive before and after"},
        }  # fmt: skip
