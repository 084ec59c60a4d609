"""The stack compiled: torch.compile of each block on the default path, a captured graph on the optimized one."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from escherlib import timing
from escherlib.errors import Refused
from escherlib.kernels.lazy import torch

GRAPH = "graph"  # the mode of the optimized path: its launches captured once a ring slot, and replayed
TRIAL_CHUNKS = 3


@dataclass(frozen=True)
class Runner:
    """`chunk(i)` runs the i-th chunk; `compile`: what compiling took and gave, None for eager."""

    chunk: Callable[[int], object]
    how: str
    compile: dict | None = None


def modes_for(path, kind, modes):
    """The compile modes of a path: torch's on the default path; the optimized path has one, and only on a GPU."""
    if path == "default":
        return list(modes)
    return [GRAPH] if kind == "gpu" else []


class Compiled:
    """A stack and the one mode it is compiled in at a time."""

    def __init__(self, device, stack, clock):
        self.device, self.stack, self.clock = device, stack, clock
        self.mode, self.facts, self._replay = None, None, None

    def eager(self):
        """The stack as it is written."""
        self._reset()
        return Runner(self.stack.chunk, "eager")

    def attempt(self, mode):
        """Compile in a mode and look how fast a chunk is: {mode, seconds, chunk_s, graphs, breaks, recompiles}."""
        self._reset()
        begun = time.monotonic()
        facts = self._capture() if mode == GRAPH else self._compile(mode)
        self.mode = mode
        seconds = time.monotonic() - begun
        samples, _ = timing.run_calls(self._chunk, self.clock, TRIAL_CHUNKS)
        self.facts = {"mode": mode, "seconds": seconds, **facts}
        return {**self.facts, "chunk_s": min(samples) / 1e9, "reason": None}

    def runner(self, mode, tried=()):
        """The Runner of a mode, compiled now unless it is the one alive."""
        if mode != self.mode:
            self.attempt(mode)
        how = "captured graph" if mode == GRAPH else f"torch.compile of each block, mode {mode}"
        return Runner(self._chunk, how, {**self.facts, "tried": list(tried)})

    def _chunk(self, i):
        return self._replay(i) if self._replay else self.stack.chunk(i)

    def _reset(self):
        if self.mode is None:
            return
        self.mode, self.facts, self._replay = None, None, None
        for block in self.stack.blocks:
            block._compiled_call_impl = None
        if self.device.kind == "gpu":
            torch.cuda.empty_cache()

    def _compile(self, mode):
        """torch.compile of each block: one compilation serves all, since they differ in their weights alone."""
        import torch._dynamo as dynamo

        dynamo.reset()
        dynamo.utils.counters.clear()
        for block in self.stack.blocks:
            block.compile(mode=None if mode == "default" else mode)
        for i in range(self.stack.slots + 1):  # a slot that is new to it would compile in the middle of a timing
            self.stack.chunk(i)
        self.clock.synchronize()
        return compile_facts(dynamo.utils.counters)

    def _capture(self):
        """One graph a ring slot; they share their memory, since no two run at once."""
        if self.device.kind != "gpu":
            raise Refused("a captured graph needs a GPU")
        stack, graphs, pool = self.stack, [], None
        side = torch.cuda.Stream(self.device.torch_device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for i in range(stack.slots):
                stack.chunk(i)
        torch.cuda.current_stream().wait_stream(side)
        for slot in range(stack.slots):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                stack.chunk(slot)
            pool = pool or graph.pool()
            graphs.append(graph)
        self._replay = lambda i: graphs[i % len(graphs)].replay()
        self._replay(0)
        self.clock.synchronize()
        return {"graphs": len(graphs), "breaks": 0, "recompiles": 0}


def compile_facts(counters):
    """{graphs, breaks, recompiles} from dynamo's counters."""
    return {
        "graphs": counters["stats"].get("unique_graphs", 0),
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters["recompiles"].values()) if "recompiles" in counters else 0,
    }
