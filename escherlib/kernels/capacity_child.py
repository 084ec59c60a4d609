"""Run as a script in a fresh process: allocate as much as there is, prove it, tell, and end.

One argument, a JSON object: {what: "contiguous"|"chunked", torch_device, dtype, upper_bytes|null,
granule_bytes, chunk_bytes, reserve_bytes, time_limit_s}. Output: one JSON object a line; `progress` lines,
then one `result`. The process dies with its memory, also when it is killed: that is why it exists.
"""

import contextlib
import json
import sys
import time
from pathlib import Path

PAGE_BYTES = 4096
TOUCH_BYTES = 2**28  # memory touched between two looks at what the host has left
SWAP_SLACK_BYTES = 2**26
ALL, TIME_BOX = "all touched", "time box"
HARMLESS = (ALL, TIME_BOX)  # neither says anything against memory that was given but not touched any more


def largest_size(attempt, upper, granule):
    """(size, probes): the largest multiple of `granule` ≤ `upper` for which `attempt(size)` is true.

    Assumes one edge: all smaller sizes succeed, all larger ones fail. Since the edge is usually just under
    the upper bound, steps double downwards from there until a size succeeds; bisection finds the edge in
    between.
    """
    probes = []

    def probe(units):
        ok = bool(attempt(units * granule))
        probes.append({"bytes": units * granule, "ok": ok})
        return ok

    low, high = 0, upper // granule + 1  # low succeeds (nothing at all), high fails
    step = 1
    while high - low > 1:
        middle = high - step if high - step > low else (low + high) // 2
        if probe(middle):
            low = middle
            break
        high, step = middle, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if probe(middle) else (low, middle)
    return low * granule, probes


def tell(**line):
    """One JSON line, at once."""
    print(json.dumps(line, allow_nan=False), flush=True)


def main(request):
    """Do what was asked; see the module's docstring."""
    import torch

    # if anyone must go, let it be this process; where that can't be said, the limits protect the others
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    dtype = getattr(torch, request["dtype"])
    host = Host(request) if request["torch_device"] == "cpu" else Gpu(torch, request["torch_device"])
    upper = min(host.free_bytes(), request["upper_bytes"] or host.free_bytes())
    start = {"free_bytes": host.free_bytes(), "total_bytes": host.total_bytes(), "upper_bytes": upper}
    tell(progress="start", held_bytes=0, **start)
    work = contiguous if request["what"] == "contiguous" else chunked
    found = work(torch, dtype, host, upper, request)
    tell(result={**start, **found})


def contiguous(torch, dtype, host, upper, request):
    """Largest single tensor: find the edge, allocate it once more and touch all of it."""

    def attempt(size):
        return host.allocate(torch, dtype, size) is not None

    size, probes = largest_size(attempt, upper, request["granule_bytes"])
    tensor = host.allocate(torch, dtype, size) if size else None
    if tensor is None:
        empty = {"found_bytes": 0, "touched_bytes": 0, "probes": probes, "ends_ok": False}
        empty["stopped"] = "nothing could be allocated"
        return {**empty, **host.accounts()}
    touched, stopped = host.touch(tensor)
    found = size if stopped in HARMLESS else touched
    ends_ok = found > 0 and write_ends(tensor, found // tensor.element_size())
    held = {"found_bytes": found, "touched_bytes": touched, "probes": probes, "stopped": stopped}
    return {**held, "ends_ok": ends_ok, **host.accounts()}


def chunked(torch, dtype, host, upper, request):
    """Sum of chunks until nothing fits; after the last whole chunk, halves of it down to a granule."""
    chunks, total, touched, size, ends_ok = [], 0, 0, request["chunk_bytes"], True
    stopped = ALL
    while size >= request["granule_bytes"]:
        tensor = host.allocate(torch, dtype, size) if total + size <= upper else None
        if tensor is None:
            size //= 2
            continue
        part, why = host.touch(tensor)
        chunks.append(tensor)
        touched += part
        total += size if why in HARMLESS else part
        ends_ok = ends_ok and write_ends(
            tensor, max(1, (size if why in HARMLESS else part) // tensor.element_size())
        )
        stopped = why if why != ALL else stopped
        if why not in HARMLESS:
            break
    held = {"found_bytes": total, "touched_bytes": touched, "chunks": len(chunks), "stopped": stopped}
    return {**held, "ends_ok": ends_ok, **host.accounts()}


def write_ends(tensor, elements):
    """Write the first and the last of `elements`, read both back."""
    tensor[0], tensor[elements - 1] = 1.0, 2.0
    return elements == 1 or (float(tensor[0]), float(tensor[elements - 1])) == (1.0, 2.0)


class Gpu:
    """Device memory: the driver says what is free; filling it is quick."""

    def __init__(self, torch, name):
        self.torch, self.name = torch, name
        torch.zeros(1, device=name)  # the context takes its share before anything is asked
        torch.cuda.empty_cache()

    def free_bytes(self):
        return self.torch.cuda.mem_get_info(self.name)[0]

    def total_bytes(self):
        return self.torch.cuda.mem_get_info(self.name)[1]

    def allocate(self, torch, dtype, size):
        try:
            tensor = torch.empty(size // dtype.itemsize, dtype=dtype, device=self.name)
            tensor[0], tensor[-1] = 1.0, 2.0
            return tensor
        except torch.OutOfMemoryError:
            return None
        finally:
            torch.cuda.empty_cache()

    def touch(self, tensor):
        tensor.fill_(1.0)
        self.torch.cuda.synchronize()
        return tensor.numel() * tensor.element_size(), ALL

    def accounts(self):
        cuda = self.torch.cuda
        return {
            "allocated_bytes": cuda.memory_allocated(self.name),
            "reserved_bytes": cuda.memory_reserved(self.name),
            "free_left_bytes": self.free_bytes(),
        }


class Host:
    """Main memory: pages exist once touched, so they are touched little by little while watching what is
    left.
    """

    def __init__(self, request):
        import psutil

        self.psutil, self.reserve_bytes = psutil, request["reserve_bytes"]
        self.deadline_s = time.monotonic() + request["time_limit_s"]
        self.swap_before = psutil.swap_memory().used
        self.held_bytes = 0

    def free_bytes(self):
        return self.psutil.virtual_memory().available

    def total_bytes(self):
        return self.psutil.virtual_memory().total

    def allocate(self, torch, dtype, size):
        try:
            return torch.empty(size // dtype.itemsize, dtype=dtype)
        except (MemoryError, RuntimeError):
            return None

    def touch(self, tensor):
        import torch

        raw = tensor.view(torch.uint8)
        for start in range(0, raw.numel(), TOUCH_BYTES):
            why = self._why_stop()
            if why:
                return start, why
            part = raw[start : start + TOUCH_BYTES]
            part[::PAGE_BYTES] = 1
            self.held_bytes += part.numel()
            tell(progress="touched", held_bytes=self.held_bytes)
        return raw.numel(), ALL

    def _why_stop(self):
        if self.free_bytes() < self.reserve_bytes:
            return "memory reserved for the host reached"
        if self.psutil.swap_memory().used > self.swap_before + SWAP_SLACK_BYTES:
            return "the host began to swap"
        if time.monotonic() > self.deadline_s:
            return TIME_BOX
        return None

    def accounts(self):
        return {
            "allocated_bytes": self.held_bytes,
            "reserved_bytes": None,
            "free_left_bytes": self.free_bytes(),
        }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
