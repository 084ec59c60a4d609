"""The peak of a device: a search over shapes and backends, a confirmation, the way from idle to steady state.

Rows `search`, `peak` and `transient`. A shape is {m, n, k}, a candidate {m, n, k, backend}.
"""

import time

from escherlib import timing
from escherlib.errors import Refused, UserError
from escherlib.kernels import backends, gemm, operands, products, search, timed
from escherlib.kernels.formats import format_of, require_supported, switches
from escherlib.kernels.products import Gemm
from escherlib.method import method

# Coarse grid, the most promising first: squares; what public searches found best on recent chips; long and flat ones.
GPU_SHAPES = (
    (8192, 8192, 8192), (4096, 8192, 4096), (2048, 2048, 13312), (12288, 8192, 8192), (4096, 4096, 4096),
    (10240, 15360, 8192), (12288, 12288, 12288), (16384, 16384, 16384), (13312, 10240, 8192), (8192, 8192, 16384),
    (4864, 4096, 8192), (4096, 4096, 16384), (8192, 16384, 4096), (16384, 8192, 4096), (2048, 8192, 8192),
    (8192, 2048, 8192), (1024, 10240, 5120), (1792, 16128, 3072), (6144, 6144, 6144), (2048, 2048, 2048),
)  # fmt: skip
GPU_SQUARES = tuple((size, size, size) for size in (12288, 8192, 16384, 10240, 6144, 4096, 20480))
CPU_SHAPES = (
    (1024, 1024, 1024), (512, 512, 512), (2048, 1024, 1024), (2048, 2048, 512), (512, 512, 2048), (2048, 2048, 2048),
    (1024, 2048, 512), (512, 2048, 1024), (1536, 1536, 1536),
)  # fmt: skip
CPU_SQUARES = ((1024, 1024, 1024), (512, 512, 512), (768, 768, 768))

SUSTAINED_SHARE = 0.55  # of the search's budget; the burst ranking has the rest
RANK_WINDOW_S = 0.3
RANK_BATCH_S = 0.01  # samples of the ranking are batches this long, so that a record of many candidates stays small
FINALISTS = 3


@method(version=1)
def search_peak(
    device, *, budget_s, dtype=None, workload_gemms=(), grid=None, states=("sustained", "burst"), fill="normal",
    protocol=None,
):  # fmt: skip
    """Rank shapes and backends in both states within `budget_s`; confirm the `finalists` afterwards.

    `workload_gemms`: shapes that are always candidates. `grid`: coarse shapes (None: the built-in list). Sustained:
    the device is conditioned, then every candidate runs 0.3 s back to back, coarse grid first, other backends on
    the best, then finer and finer neighbours until none gains. Burst: one burst try each, big squares and the best
    sustained shapes first. What was not reached in time is not tried.

    Result: `candidates` (each with `sustained_tflops`, `burst_tflops`, samples, phase and order, or why it was
    refused), `best_sustained`, `best_burst`, `finalists` ({sustained: the best three and the best workload GEMM,
    burst: the best three}), `stopped` by state, `hit_budget`, `took_s`. Refused where nothing could be measured.
    """
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    states = [name for name in timed.check_states(states) if name in ("sustained", "burst")]
    workload = [_shape(s) for s in workload_gemms]
    coarse = [_shape(s) for s in grid] if grid else list(GPU_SHAPES if device.kind == "gpu" else CPU_SHAPES)
    begun_s = time.monotonic()
    with backends.settings(device, fmt):
        ranker = Ranker(device, fmt, fill, protocol, budget_s)
        if "sustained" in states:
            ranker.condition(coarse[0])
        trails = ranker.rank(states, coarse, workload, begun_s)
    operands.release(device)
    return _search_result(trails, workload, fmt, fill, budget_s, time.monotonic() - begun_s)


class Ranker:
    """Evaluates candidates for a search: prepares, checks and times one, and keeps what was seen."""

    def __init__(self, device, fmt, fill, protocol, budget_s):
        self.device, self.fmt, self.fill = device, fmt, fill
        self.protocol = {"batch_s": RANK_BATCH_S, **(protocol or {})}
        self.clock = timing.clock_for(device)
        self.names = backends.available(device, fmt)
        self.heavy_s = budget_s / 20  # no candidate may take a larger part of the budget in one call
        self.seen = {}  # (state, candidate) → compact State

    def condition(self, shape):
        """Warm the device up with one shape, so that the first candidate is not flattered by a cool die."""
        product = self._product((*shape, self.names[0]))
        state = timing.sustained(product.call, self.clock, window_s=RANK_WINDOW_S, protocol=self.protocol)
        return state["median_s"]

    def _product(self, candidate):
        *shape, backend = candidate
        work = Gemm(*shape)
        gemm.require_light(self.device, work, self.fmt, self.clock, self.heavy_s)
        product = products.prepare(self.device, work, self.fmt, backend, self.fill)
        product.check("before")
        return product

    def evaluate(self, name, candidate):
        """TFLOP/s of one candidate in one state. Refused where it has no value."""
        product = self._product(candidate)
        if name == "sustained":
            state = timing.sustained(
                product.call, self.clock, condition_s=0, window_s=RANK_WINDOW_S, min_calls=3, protocol=self.protocol
            )
        else:
            state = timing.burst(product.call, self.clock, tries=1, protocol={**self.protocol, "batch_s": 1e-3})
        kept = ("samples_ns", "calls_per_sample", "windows_ns", "label", "timed_as")
        self.seen[name, candidate] = {key: state[key] for key in kept}
        rate = timed.rated(state, product.gemm.flop)["tflops"]
        if rate is None:
            raise Refused(state["label"] or "no value")
        return rate

    def rank(self, states, coarse, workload, begun_s):
        """{state: (Trail, why it stopped)}: sustained first, its best shapes then go into the burst ranking."""
        found = {}
        burst_start = list(GPU_SQUARES if self.device.kind == "gpu" else CPU_SQUARES)
        for name in states:
            share = SUSTAINED_SHARE if name == "sustained" and "burst" in states else 1.0
            # what is left of the whole budget, of which preparations before this point are part
            left_s = self.budget_left_s(begun_s, share)
            trail = search.Trail(lambda candidate, name=name: self.evaluate(name, candidate), left_s)
            if name == "sustained":
                shapes, musts, keep = coarse, workload, 2
            else:
                best = [c[:3] for c in found["sustained"][0].best_shapes(FINALISTS)] if "sustained" in found else []
                shapes, musts, keep = list(dict.fromkeys(burst_start + best + coarse)), [], 1
            stop = search.explore(trail, shapes, musts, self.names, admit=self._admit(name, trail), keep=keep)
            found[name] = (trail, stop)
        return found

    def budget_left_s(self, begun_s, share):
        """Seconds of the budget's `share` that are left."""
        return max(0.0, share * 20 * self.heavy_s - (time.monotonic() - begun_s))

    def _admit(self, name, trail):
        """Whether a shape's call is short enough, judged by the best rate so far: a burst ends after 20 ms."""
        limits = timing.protocol_for(self.clock, self.protocol)
        longest_s = limits.burst_best_s if name == "burst" else self.heavy_s

        def admit(shape):
            ranked = trail.ranked()
            return not ranked or Gemm(*shape).flop / (trail.scores[ranked[0]] * 1e12) <= longest_s

        return admit


def _shape(given):
    """(m, n, k) of a shape given as dict or sequence."""
    if isinstance(given, dict):
        return given["m"], given["n"], given["k"]
    if len(given) != 3:
        raise UserError(f"shape {given}: expected m, n, k")
    return tuple(given)


def as_dict(candidate):
    """{m, n, k, backend} of a candidate tuple."""
    return dict(zip(("m", "n", "k", "backend"), candidate, strict=True))
