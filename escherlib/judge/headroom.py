"""SC-11: does the model fit, with room for its activations?"""

from escherlib.judge.criteria import Criterion
from escherlib.judge.rows import CAPACITY, not_measured, number

GIB = 2**30
ROW = "headroom"


def read_headroom(results, scoring):
    """{fits, held_gib, need_gib, rest_gib, spare_gib, forward_gib, how, measured} of the row, or None without one."""
    record = results.row(CAPACITY, ROW)
    if record is None or not record.ok:
        return None
    rest, measured = record.get("rest_bytes"), record.get("measured")
    need = scoring.sc11.live_set_factor * record.get("live_set_bytes")
    return {
        "fits": record.get("fits"), "held_gib": record.get("bytes") / GIB, "need_gib": need / GIB,
        "rest_gib": None if rest is None else rest / GIB, "spare_gib": None if rest is None else (rest - need) / GIB,
        "free_gib": record.get("free_bytes") / GIB, "forward_gib": measured["forward_bytes"] / GIB if measured else None,
        "how": record.get("how"), "measured": bool(measured),
    }  # fmt: skip


def memory_headroom(results, scoring):
    """SC-11, opt-in: weights and KV rings resident, and the rest holds the activations with a margin."""
    limits = scoring.sc11
    rule = f"{limits.title}: weights and KV rings resident, and the rest ≥ {limits.live_set_factor:g} × the largest set of activations"
    room = read_headroom(results, scoring)
    if room is None:
        record = results.row(CAPACITY, ROW)
        lost = record is not None and record.status != "not_measured"
        why = f"{ROW} {record.status}: {record.reason}" if lost else _why(results)
        return Criterion("SC-11", limits.role, "SKIP", why, rule)
    miss = "WARN_CPU" if results.kind == "cpu" else "FAIL"
    held = f"the model holds {number(room['held_gib'])} GiB"
    if not room["fits"]:
        why = f"{held}, {number(room['free_gib'])} GiB are free ({room['how']})"
        return Criterion("SC-11", limits.role, miss, why, rule, room)
    told = f"{held}, {number(room['rest_gib'])} GiB are left, activations need {number(room['need_gib'])} GiB"
    told += "" if room["measured"] else " (accounted, not allocated)"
    return Criterion("SC-11", limits.role, "PASS" if room["spare_gib"] >= 0 else miss, told, rule, room)


def _why(results):
    return "not measured" if not results.rows(CAPACITY) else not_measured(results, CAPACITY)
