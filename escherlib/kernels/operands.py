"""Memory of a measurement: random values, sets to rotate through, what fits, and giving it back."""

import gc
import math
from pathlib import Path

from escherlib.errors import Refused, UserError
from escherlib.hardware.cgroups import own_groups
from escherlib.hardware.sysfs import parse_pairs, read_int, read_text
from escherlib.kernels.lazy import torch
from escherlib.timing import rotations

SEED = 20260401
FILLS = ("normal", "zeros")
CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
MEMORY_SHARE = 0.8  # of what is free: the rest is for workspaces and for the reference


def generator(device, seed=SEED):
    """Seeded random generator on the device."""
    return torch.Generator(device=device.torch_device).manual_seed(seed)


def random_tensor(shape, fmt, device, fill="normal", source=None, scale=1.0):
    """Tensor of normal values of spread `scale`, rounded to the format; zeros only as a named variant."""
    if fill not in FILLS:
        raise UserError(f"fill {fill!r}: unknown; expected one of {', '.join(FILLS)}")
    if fill == "zeros":
        return torch.zeros(shape, dtype=fmt.storage, device=device.torch_device)
    if fmt.is_fp8:
        values = torch.empty(shape, dtype=torch.float16, device=device.torch_device)
    else:
        values = torch.empty(shape, dtype=fmt.storage, device=device.torch_device)
    values.normal_(std=scale, generator=source)
    if fmt.name == "tf32":
        round_mantissa_(values, fmt.input_mantissa_bits)
    return values.to(fmt.storage)


def round_mantissa_(values, bits):
    """Round float32 values in place to `bits` mantissa bits, ties to even, so that a tf32 unit sees them
    exactly.
    """
    drop = 23 - bits
    raw = values.view(torch.int32)
    raw += ((raw >> drop) & 1) + (1 << (drop - 1)) - 1
    raw &= -(1 << drop)
    return values


def free_bytes(device):
    """Bytes that can still be allocated: the driver's free plus torch's own cache; on a CPU what the host can
    give.
    """
    if device.kind == "gpu":
        free, _ = torch.cuda.mem_get_info(device.index)
        cached = torch.cuda.memory_reserved(device.index) - torch.cuda.memory_allocated(device.index)
        return free + cached
    import psutil

    return min(psutil.virtual_memory().available, device.memory_bytes or math.inf, cgroup_free_bytes())


def cgroup_free_bytes(root="/"):
    """Memory the control groups of this process still allow; infinity where none limits it.

    Inactive page cache counts as free: it is given back before anything is refused.
    """
    free = math.inf
    for group in own_groups(Path(root)):
        cache = parse_pairs((read_text(group / "memory.stat") or "").replace(" ", ":"))
        for limit, used, idle in CGROUP_FILES:
            bounds = read_int(group / limit), read_int(group / used)
            if None not in bounds:
                free = min(free, max(0, bounds[0] - bounds[1] + int(cache.get(idle) or 0)))
    return free


def set_count(set_bytes, device, most=None):
    """Sets to rotate through so that together they outgrow the last-level cache, as far as memory goes.

    Returns (count, spans: True, False, or None where the cache is unknown). Refused where not one set fits.
    """
    room = int(free_bytes(device) * MEMORY_SHARE)
    if set_bytes > room:
        raise Refused(f"does not fit: one set of operands takes {gib(set_bytes)}, {gib(room)} can be used")
    wanted = rotations(set_bytes, device.llc_bytes)
    count = min(rotations(set_bytes, device.llc_bytes, room), most or wanted)
    return count, count >= wanted if device.llc_bytes else None


def gib(size_bytes):
    """Size as text in GiB."""
    return f"{size_bytes / 2**30:.2f} GiB"


def describe_sets(count, set_bytes, spans, device, what):
    """The record's account of what was rotated."""
    return {
        "sets": count,
        "set_bytes": set_bytes,
        "span_bytes": count * set_bytes,
        "llc_bytes": device.llc_bytes,
        "spans_cache": spans,
        "rotated": what,
        "seed": SEED,
    }


def synchronize(device):
    """Wait for the device; nothing to do on a CPU."""
    if device.kind == "gpu":
        torch.cuda.synchronize(device.index)


def release(device):
    """Give cached memory back to the driver. Call after the last reference is gone."""
    gc.collect()
    if device.kind == "gpu":
        torch.cuda.empty_cache()
