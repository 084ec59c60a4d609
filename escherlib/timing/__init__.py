"""How long did it take? Burst, sustained, cold and hot times of `call(i)`, with every sample kept."""

from escherlib.timing.clock import clock_for
from escherlib.timing.flush import rotations
from escherlib.timing.protocol import ENGINE_VERSION, Protocol, protocol_for
from escherlib.timing.states import adaptive, burst, interleaved, settle, sustained, transient
from escherlib.timing.turns import run_calls, turns

__all__ = [
    "ENGINE_VERSION", "Protocol", "adaptive", "burst", "clock_for", "interleaved", "protocol_for", "rotations", "run_calls",
    "settle", "sustained", "transient", "turns",
]  # fmt: skip
