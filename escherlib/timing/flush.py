"""Cold caches: operands that rotate over more than the cache holds."""

import math

CACHE_SPAN = 4  # a working set this many times the last-level cache finds nothing of its last visit


def rotations(set_bytes, llc_bytes, room_bytes=None):
    """Operand sets of `set_bytes` that together span the cache several times, as far as `room_bytes` goes."""
    wanted = max(1, math.ceil(CACHE_SPAN * (llc_bytes or 0) / set_bytes))
    return min(wanted, max(1, room_bytes // set_bytes)) if room_bytes else wanted
