"""Ranks GEMM candidates (m, n, k, backend) on a device within a budget: what the search and the brute force
share.
"""

import time

from escherlib import timing
from escherlib.errors import Refused, UserError
from escherlib.kernels import backends, explore, gemm, products, timed
from escherlib.kernels.products import Gemm

# Coarse grids, the most promising first: squares, what public searches found best on recent chips, long and
# flat ones.
GPU_SHAPES = (
    (8192, 8192, 8192), (4096, 8192, 4096), (2048, 2048, 13312), (12288, 8192, 8192), (4096, 4096, 4096),
    (10240, 15360, 8192), (12288, 12288, 12288), (16384, 16384, 16384), (13312, 10240, 8192),
    (8192, 8192, 16384), (4864, 4096, 8192), (4096, 4096, 16384), (8192, 16384, 4096), (16384, 8192, 4096),
    (2048, 8192, 8192), (8192, 2048, 8192), (1024, 10240, 5120), (1792, 16128, 3072), (6144, 6144, 6144),
    (2048, 2048, 2048),
)  # fmt: skip
# Bursts are ranked from big squares and from long K, which writes little output for its work.
GPU_SQUARES = (
    *((size, size, size) for size in (12288, 8192, 16384, 10240)),
    (2048, 2048, 65536), (4096, 4096, 32768), (2048, 2048, 131072), (6144, 6144, 6144), (4096, 4096, 4096),
)  # fmt: skip
CPU_SHAPES = (
    (1024, 1024, 1024), (512, 512, 512), (2048, 1024, 1024), (2048, 2048, 512), (512, 512, 2048),
    (2048, 2048, 2048), (1024, 2048, 512), (512, 2048, 1024), (1536, 1536, 1536),
)  # fmt: skip
CPU_SQUARES = tuple((size, size, size) for size in (1024, 512, 768))

SUSTAINED_SHARE = 0.55  # of the search's budget; the burst ranking has the rest
WINDOW_S = 0.3
BATCH_S = (
    0.01  # samples of the sustained ranking are this long, so that a record of many candidates stays small
)
HEAVY_SHARE = 0.05  # of the budget: no candidate may take a larger part of it in one call
FINALISTS = 3
KEPT = ("samples_ns", "calls_per_sample", "windows_ns", "label", "timed_as")


class Ranker:
    """Prepares, checks and times single candidates on one device, and keeps a compact State of each."""

    def __init__(self, device, fmt, fill="normal", protocol=None, longest_call_s=10.0):
        self.device, self.fmt, self.fill, self.protocol = device, fmt, fill, protocol or {}
        self.clock = timing.clock_for(device)
        self.names = backends.available(device, fmt)
        self.longest_call_s = longest_call_s
        self.seen = {}  # (state, candidate) → compact State

    def product(self, candidate):
        """The prepared and checked product of a candidate; backend "auto" is the fastest in a quick pass.
        Refused where it can't be had.
        """
        *shape, backend = candidate
        work = Gemm(*shape).validated()
        gemm.require_light(self.device, work, self.fmt, self.clock, self.longest_call_s)
        if backend == "auto":
            return gemm.prepare_best(self.device, work, self.fmt, backend, self.clock, self.fill)[0]
        product = products.prepare(self.device, work, self.fmt, backend, self.fill)
        product.check("before")
        return product

    def condition(self, shape):
        """Warm the device up with one shape, so that a cool die flatters no early candidate."""
        product = self.product((*shape, self.names[0]))
        timing.sustained(product.call, self.clock, window_s=WINDOW_S, protocol=self.protocol)

    def rate(self, state, candidate):
        """TFLOP/s of one candidate in one state, from one short look. Refused where it has no value."""
        product = self.product(candidate)
        if state == "sustained":
            protocol = {"batch_s": BATCH_S, **self.protocol}
            found = timing.sustained(
                product.call, self.clock, condition_s=0, window_s=WINDOW_S, min_calls=3, protocol=protocol
            )
        else:
            found = timing.burst(product.call, self.clock, tries=1, protocol=self.protocol)
        rate = timed.rated(found, product.gemm.flop)["tflops"]
        if rate is None:
            raise Refused(found["label"] or "no value")
        self.seen[state, candidate] = {name: found[name] for name in KEPT}
        return rate

    def admits(self, state, trail):
        """Function of a shape: is its call short enough, by the best rate so far? A burst ends early."""
        limit_s = self.longest_call_s
        if state == "burst":
            limit_s = min(limit_s, timing.protocol_for(self.clock, self.protocol).burst_best_s)

        def admit(shape):
            ranked = trail.ranked()
            return not ranked or Gemm(*shape).flop / (trail.scores[ranked[0]] * 1e12) <= limit_s

        return admit


def rank(ranker, states, coarse, workload, budget_s, now_s=time.monotonic, started_s=None):
    """{state: (Trail, why it stopped)} for the states asked for, sustained first, all within `budget_s`.

    `ranker`: has `names`, `rate(state, candidate)` and `admits(state, trail)`. The best sustained shapes go
    into the burst ranking beside the big squares.
    """
    started_s = now_s() if started_s is None else started_s
    squares = GPU_SQUARES if ranker.device.kind == "gpu" else CPU_SQUARES
    found = {}
    for state in ("sustained", "burst"):
        if state not in states:
            continue
        share = SUSTAINED_SHARE if state == "sustained" and "burst" in states else 1.0
        left_s = share * budget_s - (now_s() - started_s)
        trail = explore.Trail(lambda candidate, state=state: ranker.rate(state, candidate), left_s, now_s)
        if state == "sustained":
            # a host's workload products take a second each: behind the grid, or they eat its time
            fast = ranker.device.kind == "gpu"
            shapes, musts, keep = (coarse, workload, 2) if fast else ((*coarse, *workload), (), 2)
        else:
            best = (
                [c[:3] for c in found["sustained"][0].best_shapes(FINALISTS)] if "sustained" in found else []
            )
            shapes, musts, keep = dict.fromkeys((*squares[:3], *best, *squares[3:], *coarse)), (), 1
        admit = ranker.admits(state, trail)
        found[state] = (trail, explore.explore(trail, shapes, musts, ranker.names, admit=admit, keep=keep))
    return found


def finalists(trails, workload):
    """{state: candidates to confirm}: the best three shapes, and in sustained also the best workload GEMM."""
    found = {}
    for state, (trail, _) in trails.items():
        best = trail.best_shapes(FINALISTS)
        if state == "sustained":
            best += [c for c in trail.best_shapes(1, among=set(workload)) if c not in best]
        found[state] = [as_dict(candidate) for candidate in best]
    return found


def merged(trails, seen):
    """All candidates of all states as the record lists them: one entry each, in the order they were first
    tried.
    """
    entries = {}
    for state, (trail, _) in trails.items():
        for order, entry in enumerate(trail.entries):
            candidate = (entry["m"], entry["n"], entry["k"], entry["backend"])
            into = entries.setdefault(candidate, as_dict(candidate))
            into[f"{state}_tflops"] = entry["score"]
            about = {"order": order, "phase": entry["phase"], "took_s": round(entry["took_s"], 3)}
            if entry.get("refused"):
                about["refused"] = entry["refused"]
            into[state] = {**about, **seen.get((state, candidate), {})}
    return list(entries.values())


def shape_of(given):
    """(m, n, k) of a shape given as {m, n, k} or as a sequence. UserError for anything else."""
    try:
        m, n, k = (given[axis] for axis in "mnk") if isinstance(given, dict) else given
    except (KeyError, TypeError, ValueError):
        raise UserError(f"shape {given}: expected m, n, k") from None
    return m, n, k


def as_dict(candidate):
    """{m, n, k, backend} of a candidate."""
    return dict(zip(("m", "n", "k", "backend"), candidate, strict=True))
