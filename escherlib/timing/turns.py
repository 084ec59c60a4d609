"""Whole calls of several works in turns: a chunk of the model is seconds long work, and one sample each."""

from escherlib.timing.protocol import protocol_for
from escherlib.timing.pump import Work
from escherlib.timing.states import drift_of, state_of


def turns(works, clock, *, rounds, protocol=None):
    """Time `works` {name: (call, calls a round)} in turn for `rounds` rounds, back to back. Returns {name: State}.

    A sample is one call, from its start mark to the start mark of the next one; the index of a call counts on over
    the rounds. A State holds one window a round, so that clock and power are those of its own calls.
    """
    p = protocol_for(clock, protocol)
    found = {name: ([], []) for name in works}
    for _ in range(rounds):
        for name, (call, count) in works.items():
            samples, windows = found[name]
            more, window = run_calls(call, clock, count, first=len(samples))
            samples.extend(more)
            windows.append(window)
    return {
        name: _turned(samples, windows, f"{rounds} × {works[name][1]} calls, in turn", p, clock)
        for name, (samples, windows) in found.items()
        if samples
    }


def run_calls(call, clock, count, first=0):
    """(samples_ns, [start_ns, end_ns]) of `count` calls enqueued one behind the other."""
    start_ns, marks = clock.now_ns(), [clock.record()]
    for i in range(first, first + count):
        call(i)
        marks.append(clock.record())
    clock.wait(marks[-1])
    samples = [clock.elapsed_ns(a, b) for a, b in zip(marks, marks[1:], strict=False)]
    return samples, [start_ns, clock.now_ns()]


def _turned(samples, windows, stop, p, clock):
    work = Work(lambda: None, 1, clock.timed_as, 0.0)
    drift = drift_of(samples, p.drift_rel)
    label = "drifting" if drift and drift["drifting"] else None
    return {**state_of("sustained", samples, work, windows, stop, p, clock, label), "drift": drift}
