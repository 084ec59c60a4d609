"""Is there room to run the model? Weights and KV rings resident, one chunk run, and how much can still be had.

Row `headroom` of family 3. A GPU holds the whole stack in a process of its own; a CPU host is only accounted for,
since filling its memory with weights would take longer than all the rest.
"""

from escherlib.accounting import memory
from escherlib.accounting.scale import MEMORY_SHARE
from escherlib.errors import Refused
from escherlib.kernels import e2e, operands, scopes
from escherlib.method import method

LIMIT_S = 300.0  # building the stack, one turn of the ring, and filling what is left
ACCOUNTED = "accounted, not allocated: a host's pages would have to be filled one by one"


@method(version=1)
def headroom(device, *, geometry, path="optimized", chunk_mib=512, tolerance_mib=16):
    """What is left beside a resident model of `geometry`.

    Result: `resident` {weights_bytes, kv_bytes, text_bytes} by accounting, `live_set_bytes` (the largest set of
    activations at once, by accounting), `free_bytes` and `total_bytes` before, `fits`, and on a GPU as measured:
    `resident_bytes` (allocated by the stack, its work space included), `forward_bytes` (what one chunk takes beyond),
    `remaining_bytes` (allocated in chunks until nothing fitted). `rest_bytes`: what is free for activations.
    """
    w = scopes.workload_of(geometry)
    operands.release(device)
    free = operands.free_bytes(device)
    parts = {
        "weights_bytes": memory.weight_bytes(w), "kv_bytes": memory.kv_bytes(w, path), "text_bytes": memory.text_kv_bytes(w),
    }  # fmt: skip
    held = sum(parts.values())
    found = {
        "states": {}, "flop": None, "bytes": held, "bytes_how": "weights, KV rings and cached text", "dtype": w.dtype, "fill": None,
        "backend": None, "path": path, "resident": parts, "live_set_bytes": memory.live_set_bytes(w, path), "free_bytes": free,
        "total_bytes": device.memory_bytes, "fits": held <= free, "measured": None, "how": ACCOUNTED,
        "rest_bytes": free - held if held <= free else None, "correct": {"ok": True, "error": None, "bound": None, "how": "sizes only"},
    }  # fmt: skip
    if device.kind != "gpu" or held > MEMORY_SHARE * free:
        return found if device.kind != "gpu" else found | {"how": "not tried: it holds more than there is"}
    opened = {"device": device.asked, "geometry": geometry, "path": path, "backends": {}, "bracket_gemm": None, "protocol": {}}
    try:
        asked = {"chunk_bytes": chunk_mib * 2**20, "granule_bytes": tolerance_mib * 2**20}
        measured = e2e.child_for(opened).ask({"headroom": asked}, LIMIT_S)
    except Refused as error:
        return found | {"fits": False, "how": str(error), "rest_bytes": None}
    finally:
        e2e.close()
    rest = measured["remaining_bytes"] + measured["resident_bytes"] - held
    return found | {"measured": measured, "how": "held by a process of its own", "rest_bytes": rest}
