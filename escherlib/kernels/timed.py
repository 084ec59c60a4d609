"""Joins prepared work to the timing engine: which states, in which order, settled once in a process."""

import statistics

from escherlib import timing
from escherlib.errors import UserError

STATES = ("sustained", "burst", "cold", "hot")  # in this order: what needs a settled device comes first
_settled = {}  # torch device → how this process brought it into its sustained state


def settle_once(device, clock, call, what, protocol=None):
    """Bring the device into its sustained state with `call`, unless this process has done so.

    Returns the summary that records keep: {what, settled, stop, label, window_medians_s, windows_ns}.
    """
    if device.torch_device not in _settled:
        state = timing.settle(call, clock, protocol=protocol)
        kept = ("settled", "stop", "label", "window_medians_s", "windows_ns")
        _settled[device.torch_device] = {"what": what, **{name: state[name] for name in kept}}
    return _settled[device.torch_device]


def is_settled(device):
    """Whether this process has brought the device into its sustained state."""
    return device.torch_device in _settled


def forget():
    """Forget that a device was settled (after something cooled it, and in tests)."""
    _settled.clear()


def check_states(states):
    """The states asked for, in the order they are measured. UserError for an unknown one."""
    unknown = [name for name in states if name not in STATES]
    if unknown or not states:
        raise UserError(f"states {list(states)}: expected a list out of {', '.join(STATES)}")
    return [name for name in STATES if name in states]


def time_states(product, clock, states, protocol=None):
    """State dicts of one prepared work (`call`, `hot`, `rotation`), by name."""
    return {name: _time(product, clock, name, protocol) for name in check_states(states)}


def _time(product, clock, name, protocol):
    if name == "sustained":
        return timing.sustained(product.call, clock, protocol=protocol)
    if name == "burst":
        return timing.burst(product.call, clock, protocol=protocol)
    if name == "hot":
        return timing.adaptive(product.hot, clock, protocol=protocol)
    # rotating operands find nothing of themselves in the cache: cold without a flush
    state = timing.adaptive(product.call, clock, protocol=protocol)
    outgrown = product.rotation["spans_cache"]
    label = state["label"] or (None if outgrown else "may fit in cache")
    return {**state, "state": "cold", "label": label, "cold_by": "rotation"}


def rated(state, flop=None, moved_bytes=None):
    """The State with its throughput: `tflops` and `gb_s` from the median, None where there is no median."""
    median_s = state["median_s"]
    added = {}
    if flop:
        added["tflops"] = flop / median_s / 1e12 if median_s else None
    if moved_bytes:
        added["gb_s"] = moved_bytes / median_s / 1e9 if median_s else None
    return {**state, **added}


def rated_all(states, flop=None, moved_bytes=None):
    """All States with their throughput."""
    return {name: rated(state, flop, moved_bytes) for name, state in states.items()}


def quick_pass(calls, clock, rounds=3, least_s=0.03, heavy_s=0.3):
    """Median seconds a call of several works measured in turn: good for a choice, never for a result.

    `calls`: name → call(i). The first round sizes the others; works above `heavy_s` get a single one.
    """
    found = {name: [] for name in calls}
    first = {name: _timed_s(call, clock, 1) for name, call in calls.items()}
    if max(first.values()) > heavy_s:
        return first
    for _ in range(rounds):
        for name, call in calls.items():
            count = max(1, -int(-least_s // first[name]))
            found[name].append(_timed_s(call, clock, count))
    return {name: statistics.median(times) for name, times in found.items()}


def _timed_s(call, clock, count):
    start = clock.record()
    for i in range(count):
        call(i)
    end = clock.record()
    clock.wait(end)
    return max(clock.elapsed_ns(start, end), 1) / 1e9 / count
