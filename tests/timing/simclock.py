"""A simulated device: calls take what a model says, the queue runs ahead of the host, nothing depends on real time."""


class SimClock:
    """Clock with the interface of CudaClock. `duration_ns(busy_s, idle_s, i)` models one call.

    `host_ns` passes on the host for every enqueued call. `gaps` counts how often the device ran dry between two
    calls of one busy stretch.
    """

    timed_as, kind = "events", "gpu"

    def __init__(self, duration_ns, host_ns=1_000, can_graph=False, distort=lambda elapsed, n: elapsed):
        self.duration_ns, self.host_ns, self.can_graph, self.distort = duration_ns, host_ns, can_graph, distort
        self.host, self.device_end = 1_000_000_000, 1_000_000_000
        self.busy_since, self.gaps, self.calls, self.readings, self.graphs = None, 0, 0, 0, 0

    def call(self, i):
        """Enqueue one call."""
        self.host += self.host_ns
        self._run(1)

    def _run(self, count):
        for _ in range(count):
            start = max(self.host, self.device_end)
            idle = start - self.device_end
            if self.busy_since is None or idle > 50_000_000:
                self.busy_since = start
            elif idle > 0:
                self.gaps += 1
            self.device_end = start + int(self.duration_ns((start - self.busy_since) / 1e9, idle / 1e9, self.calls))
            self.calls += 1

    def now_ns(self):
        return self.host

    def record(self):
        return max(self.host, self.device_end)

    def wait(self, mark):
        self.host = max(self.host, mark)

    def elapsed_ns(self, first, second):
        self.readings += 1
        return self.distort(second - first, self.readings)

    def sleep(self, seconds):
        self.host += int(seconds * 1e9)

    def synchronize(self):
        self.host = max(self.host, self.device_end)

    def graph(self, call, count, first=0):
        self.graphs += 1

        def replay():
            self.host += self.host_ns
            self._run(count)

        return replay


def capped(fast_ns=1_000_000, slow_ns=1_250_000, after_s=0.05):
    """A power-capped chip: fast for `after_s` after idling, slow from then on."""
    return lambda busy_s, idle_s, i: fast_ns if busy_s < after_s else slow_ns
