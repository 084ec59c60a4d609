"""How much memory can really be had? Each question is asked in a fresh process that ends with the memory it
took.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from escherlib.errors import Refused
from escherlib.kernels import operands
from escherlib.kernels.capacity_child import HARMLESS
from escherlib.kernels.formats import format_of
from escherlib.method import method

CHILD = Path(__file__).with_name("capacity_child.py")
MIB, GIB = 2**20, 2**30
CPU_SHARE = 0.5  # of the memory a CPU host has to spare: other processes live there too
START_S = 60.0  # what a child may take beyond its own time box to start, import torch and open the device
ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@method(version=1)
def largest(device, *, dtype="bf16", limit_gib=None, share=None, tolerance_mib=16, time_limit_s=5.0):
    """Largest contiguous tensor of `dtype`, found by bisection below what the driver calls free.

    `limit_gib` and `share` (of the free memory; default all of a GPU's, half of a host's) lower the upper
    bound. On a CPU pages are touched for `time_limit_s`, never more than the host can spare; what had no turn
    by then counts as given, and `touched_bytes` says how much had. Result: `bytes` found, `free_bytes` and
    `total_bytes` before, `share_of_free_pct`, `share_of_total_pct`, `bounded_by`, `probes`, and what torch
    reserved, allocated and left. Refused where the child dies or does not answer.
    """
    request = _request(device, "contiguous", dtype, limit_gib, share, time_limit_s)
    request["granule_bytes"] = tolerance_mib * MIB
    return _result(device, request, ask(request, time_limit_s + START_S))


@method(version=1)
def chunked(
    device, *, chunk_mib, dtype="bf16", contiguous_bytes=None, limit_gib=None, share=None, tolerance_mib=16,
    time_limit_s=5.0,
):  # fmt: skip
    """Total of chunks of `chunk_mib` until nothing fits, the rest filled by halved chunks.

    With `contiguous_bytes` (the largest single tensor of the same dtype and bounds) the result has
    `fragmentation` = contiguous/chunked: 1 where one tensor can be as large as many together.
    """
    request = _request(device, "chunked", dtype, limit_gib, share, time_limit_s)
    request |= {"granule_bytes": tolerance_mib * MIB, "chunk_bytes": chunk_mib * MIB}
    result = _result(device, request, ask(request, time_limit_s + START_S))
    ratio = contiguous_bytes / result["bytes"] if contiguous_bytes and result["bytes"] else None
    return {**result, "chunk_bytes": chunk_mib * MIB, "fragmentation": ratio}


def _request(device, what, dtype, limit_gib, share, time_limit_s):
    """What the child is asked, bounds included; gives our own cached memory back first."""
    operands.release(device)
    fmt = format_of(device, dtype)
    free = operands.free_bytes(device)
    share = share if share is not None else (1.0 if device.kind == "gpu" else CPU_SHARE)
    bounds = {f"{share:g} of free memory": int(free * share)} if share < 1 else {}
    if limit_gib is not None:
        bounds[f"limit of {limit_gib:g} GiB"] = int(limit_gib * GIB)
    upper = min(bounds.values(), default=None)
    reasons = [reason for reason, value in bounds.items() if value == upper]
    return {
        "what": what,
        "torch_device": device.torch_device,
        "dtype": str(fmt.storage).removeprefix("torch."),
        "format": fmt.name,
        "upper_bytes": upper,
        "bounded_by": reasons[0] if reasons else "driver free",
        "chunk_bytes": 0,
        "reserve_bytes": int(free * (1 - share)) if device.kind == "cpu" else 0,
        "time_limit_s": time_limit_s,
    }


def ask(request, timeout_s):
    """Run the child and return its result. Refused, with what is known, where it dies or hangs."""
    command = [sys.executable, str(CHILD), json.dumps(request)]
    environment = {name: value for name, value in os.environ.items() if name not in ALLOCATOR_SETTINGS}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment)
    except subprocess.TimeoutExpired as error:
        held = _held(error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or "")
        raise Refused(
            f"the allocating process gave no answer in {timeout_s:g} s while it held {held}"
        ) from None
    lines = _lines(done.stdout)
    if done.returncode == 0 and lines and "result" in lines[-1]:
        return lines[-1]["result"]
    if done.returncode < 0:
        reason = f"was killed by signal {-done.returncode} (out of memory?)"
    else:
        reason = f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1][:200]}"
    raise Refused(f"the allocating process {reason} while it held {_held(done.stdout)}")


def _lines(text):
    """The whole JSON lines of a child's output; a line cut off by its end is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _held(text):
    """Memory a child last said it held, as text."""
    return operands.gib(max((line.get("held_bytes", 0) for line in _lines(text)), default=0))


def _result(device, request, found):
    """The record of one answer."""
    size, total = found.pop("found_bytes"), device.memory_bytes or found["total_bytes"]
    free, stopped, touched = found["free_bytes"], found["stopped"], found["touched_bytes"]
    if not found["ends_ok"]:
        raise Refused(f"memory did not hold what was written to it, or there was none ({stopped})")
    how = f"first and last element written and read back, {100 * touched / size:.0f} % of the pages touched"
    return {
        "states": {},
        "flop": None,
        "bytes": size,
        "bytes_how": "bytes of the tensor"
        if request["what"] == "contiguous"
        else "bytes of all chunks together",
        "dtype": request["format"],
        "fill": None,
        "backend": "torch allocator in a fresh process",
        "correct": {"ok": True, "error": 0.0, "bound": 0.0, "how": how},
        "bounded_by": request["bounded_by"] if stopped in HARMLESS else stopped,
        "share_of_free_pct": 100 * size / free,
        "share_of_total_pct": 100 * size / total,
        **found,
    }
