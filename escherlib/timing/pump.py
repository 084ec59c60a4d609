"""Keeps a device busy without a gap and reads the time of every batch: the one loop under all states."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

MOST_CALLS = 65536  # calls in one batch
STUCK_S = 2.0  # a stream ends this long after three times the time it should take, whatever the timer reads


@dataclass(frozen=True)
class Work:
    """A batch: `run()` enqueues `calls` calls. How it is timed, and what the host needs to enqueue one call."""

    run: Callable[[], None]
    calls: int
    timed_as: str
    call_s: float
    host_share: float | None = None
    note: str | None = None


def estimate_call_s(call, clock, least_s=2e-3, most_calls=4096):
    """(device seconds, host enqueue seconds) of one call, after a first call that may load or compile."""
    call(0)
    clock.synchronize()
    count = 1
    while True:
        first, begun = clock.record(), clock.now_ns()
        for i in range(count):
            call(i)
        host_ns, last = clock.now_ns() - begun, clock.record()
        clock.wait(last)
        took_ns = clock.elapsed_ns(first, last)
        if took_ns <= 0:  # a timer that reads nothing: the host's clock bounds it
            took_ns = clock.now_ns() - begun
        if took_ns >= least_s * 1e9 or count >= most_calls:
            return max(took_ns, 1) / count / 1e9, host_ns / count / 1e9
        count = min(most_calls, max(2 * count, round(count * 1.5 * least_s * 1e9 / max(took_ns, 1))))


def make_work(call, clock, protocol, *, batch_s=None, graph_below_s=0.0):
    """Work whose batch lasts at least `batch_s`: single calls where they are long, else many calls or a graph."""
    call_s, host_s = estimate_call_s(call, clock)
    batch_s = batch_s or protocol.batch_s
    calls = min(MOST_CALLS, max(1, -int(-batch_s // call_s)))
    share = host_s / call_s if clock.can_graph else None
    note = None
    if clock.can_graph and (share > protocol.host_share or call_s < graph_below_s):
        try:
            replay = clock.graph(call, calls)
            graphed_s, host_s = estimate_call_s(lambda i: replay(), clock)
            call_s, share = graphed_s / calls, host_s / graphed_s
            return Work(replay, calls, "graph", call_s, share, "launch-bound" if share > protocol.host_share else None)
        except RuntimeError as error:
            note = f"launch-bound; no graph: {str(error).splitlines()[0][:120]}" if share > protocol.host_share else None
    position = [0]

    def run():
        for i in range(position[0], position[0] + calls):
            call(i)
        position[0] += calls

    return Work(run, calls, clock.timed_as, call_s, share, note)


def stream(work, clock, protocol, *, least_s, least_samples=1, most_samples=None, on_start=None):
    """Run batches back to back for at least `least_s` device seconds and `least_samples`; never drains the queue.

    Returns (samples_ns, [start_ns, end_ns]): device time of each batch and the host stamps around them.
    """
    ahead = max(2, round(protocol.ahead_s / max(work.call_s * work.calls, 1e-9))) if clock.kind == "gpu" else 1
    ahead = min(ahead, 64)
    samples, pending = [], deque([clock.record()])
    clock.wait(pending[0])
    start_ns = clock.now_ns()
    total_ns = 0
    stuck_ns = start_ns + (3 * least_s + STUCK_S) * 1e9
    while total_ns < least_s * 1e9 or len(samples) < least_samples:
        if total_ns < least_s * 1e9 and clock.now_ns() > stuck_ns and len(samples) >= least_samples:
            break
        while len(pending) <= ahead:
            work.run()
            pending.append(clock.record())
        clock.wait(pending[1])
        samples.append(clock.elapsed_ns(pending[0], pending[1]))
        total_ns += max(samples[-1], 1)
        pending.popleft()
        if most_samples and len(samples) >= most_samples:
            break
    while len(pending) > 1:
        clock.wait(pending[1])
        samples.append(clock.elapsed_ns(pending[0], pending[1]))
        pending.popleft()
    return samples, [start_ns, clock.now_ns()]
