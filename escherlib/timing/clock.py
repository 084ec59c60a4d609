"""Clocks: how the end of a piece of work is marked and how far apart two marks are, on a GPU and on a CPU."""

import time


class CudaClock:
    """Device events on the current stream (CUDA and HIP alike). Marks cost no synchronisation."""

    kind, timed_as, can_graph = "gpu", "events", True

    def __init__(self, device):
        import torch

        self._torch, self._device = torch, device.torch_device
        torch.cuda.set_device(self._device)

    now_ns = staticmethod(time.monotonic_ns)
    sleep = staticmethod(time.sleep)

    def record(self):
        """A mark behind all work enqueued so far."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark):
        """Block until the device has reached a mark; later work stays queued."""
        mark.synchronize()

    def elapsed_ns(self, first, second):
        """Device time between two reached marks in ns; may be zero or negative on a faulty timer."""
        return round(first.elapsed_time(second) * 1e6)

    def synchronize(self):
        """Block until the device is idle."""
        self._torch.cuda.synchronize(self._device)

    def graph(self, call, count, first=0):
        """Function that replays calls `first` … `first + count − 1` as one captured graph. RuntimeError where capture fails."""
        torch = self._torch
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for i in range(3):
                call(first + i)
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(count):
                call(first + i)
        return graph.replay


class CpuClock:
    """Host clock: calls run when they are made, so a mark is a reading of the counter."""

    kind, timed_as, can_graph = "cpu", "host", False

    now_ns = staticmethod(time.monotonic_ns)
    sleep = staticmethod(time.sleep)
    record = staticmethod(time.perf_counter_ns)

    def wait(self, mark):
        """Nothing to wait for."""

    def elapsed_ns(self, first, second):
        """Time between two readings in ns."""
        return second - first

    def synchronize(self):
        """Nothing is outstanding."""


def clock_for(device):
    """The clock of a device: events on a GPU, the host's counter on a CPU."""
    return CudaClock(device) if device.kind == "gpu" else CpuClock()
