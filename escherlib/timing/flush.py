"""Cold caches: a flush between calls, or operands that rotate over more than the cache holds."""

import math

CACHE_SPAN = 4  # a working set this many times the last-level cache finds nothing of its last visit
FLUSH_SPAN = 2
LARGE_CACHE_BYTES, LARGE_FLUSH_BYTES = 128 * 2**20, 512 * 2**20


def flush_bytes(llc_bytes):
    """Bytes to write so that nothing of a last-level cache of `llc_bytes` survives."""
    return max(FLUSH_SPAN * llc_bytes, LARGE_FLUSH_BYTES if llc_bytes >= LARGE_CACHE_BYTES else 0)


def make_flush(device):
    """(flush(), bytes): writes a buffer larger than the last-level cache; call it outside the timed region."""
    import torch

    size = flush_bytes(device.llc_bytes or LARGE_CACHE_BYTES)
    buffer = torch.empty(size, dtype=torch.uint8, device=device.torch_device)
    return buffer.zero_, size


def rotations(set_bytes, llc_bytes, room_bytes=None):
    """Operand sets of `set_bytes` that together span the cache several times, as far as `room_bytes` goes."""
    wanted = max(1, math.ceil(CACHE_SPAN * (llc_bytes or 0) / set_bytes))
    return min(wanted, max(1, room_bytes // set_bytes)) if room_bytes else wanted
