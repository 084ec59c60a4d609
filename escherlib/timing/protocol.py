"""The figures of the measuring protocol (DESIGN §5), and how they differ between GPU and CPU hosts."""

from dataclasses import asdict, dataclass, replace

ENGINE_VERSION = 1


@dataclass(frozen=True)
class Protocol:
    """Seconds unless named otherwise. The one used is stored in every State."""

    batch_s: float = 1e-3  # a sample is a batch of calls at least this long
    most_samples: int = 3000
    short_call_s: float = 100e-6  # below this a burst replays a graph
    ahead_s: float = 0.05  # work kept enqueued ahead of the device
    host_share: float = 0.5  # host enqueue time over device time above which a graph is replayed
    burst_idle_s: float = 0.5
    burst_idle_cap_s: float = 8.0
    burst_run_s: float = 0.15
    burst_run_calls: int = 3
    burst_best_s: float = 0.02  # a try is the fastest run of whole calls of at least this
    burst_tries: int = 3
    burst_recovered: float = 0.01
    burst_cap_s: float = 16.0  # no longer idle is tried once a row's burst has taken this
    settle_window_s: float = 1.0
    settle_min_s: float = 6.0
    settle_cap_s: float = 45.0
    settle_rel: float = 0.005
    condition_s: float = 1.0
    condition_rel: float = 0.01  # medians of two halves of `condition_s` this close end the conditioning
    window_s: float = 1.0
    window_calls: int = 5
    drift_rel: float = 0.01
    ci_rel: float = 0.005
    adaptive_min_s: float = 0.2
    adaptive_max_s: float = 2.0
    warm_max_s: float = 1.0


GPU = Protocol()
CPU = Protocol(
    burst_idle_cap_s=1.0, burst_recovered=0.05, burst_cap_s=4.0,
    settle_window_s=0.5, settle_cap_s=10.0, settle_min_s=3.0, condition_s=0.3, condition_rel=0.02, window_s=0.5,
    adaptive_max_s=1.0, warm_max_s=0.3, drift_rel=0.05, ci_rel=0.01
)


def protocol_for(clock, changes=None):
    """The protocol of a clock's kind, with the changes a suite asks for (field → value)."""
    return replace(GPU if clock.kind == "gpu" else CPU, **(changes or {}))


def describe(protocol):
    """Protocol as a plain dict for the record."""
    return asdict(protocol)
