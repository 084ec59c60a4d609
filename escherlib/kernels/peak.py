"""The peak of a device: search, confirmation, the way from idle to steady state, and a brute force to hold
against.

Rows `search`, `peak` and `transient` of family 1. A shape is {m, n, k}, a candidate {m, n, k, backend}.
"""

import time

from escherlib import timing
from escherlib.errors import Refused
from escherlib.kernels import backends, explore, gemm, operands, products, ranking, timed
from escherlib.kernels.formats import format_of, is_emulated, require_supported, switches
from escherlib.kernels.products import Gemm
from escherlib.method import method

CONFIRM_WINDOW_S = {"gpu": 3.0, "cpu": 0.5}
PEAK_TRIES = 5


@method(version=1)
def search(
    device, *, budget_s, dtype=None, workload_gemms=(), grid=None, states=("sustained", "burst"),
    fill="normal", protocol=None,
):  # fmt: skip
    """Rank shapes and backends in both states within `budget_s`, everything included.

    `workload_gemms`: shapes that are always candidates. `grid`: coarse shapes (None: the built-in list).
    Sustained: the device is conditioned, then candidates run 0.3 s each back to back: workload and coarse
    shapes, the other backends on the best, then finer and finer neighbours until none gains. Burst: one try
    each, big squares and the best sustained shapes first, then as before.

    Result: `candidates` (each with `sustained_tflops`, `burst_tflops`, and by state its samples, phase,
    order, or why it was refused), `best_sustained`, `best_burst`, `finalists` ({state: candidates}) for
    `confirm`, `stopped` by state, `hit_budget`, `budget_s`, `took_s`. Refused where nothing could be
    measured.
    """
    started_s = time.monotonic()
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    timed.check_states(states)
    workload = [ranking.shape_of(shape) for shape in workload_gemms]
    builtin = ranking.GPU_SHAPES if device.kind == "gpu" else ranking.CPU_SHAPES
    coarse = [ranking.shape_of(shape) for shape in grid or builtin]
    with backends.settings(device, fmt):
        ranker = ranking.Ranker(device, fmt, fill, protocol, ranking.HEAVY_SHARE * budget_s)
        if "sustained" in states:
            ranker.condition(coarse[0])
        trails = ranking.rank(ranker, states, coarse, workload, budget_s, started_s=started_s)
    operands.release(device)
    best = {state: trail.ranked()[:1] for state, (trail, _) in trails.items()}
    if not all(best.values()):
        raise Refused("; ".join(f"{state}: {stop}" for state, (_, stop) in trails.items()))
    return {
        "states": {},
        "flop": None,
        "bytes": None,
        "bytes_how": "not counted in a search",
        "dtype": fmt.name,
        "emulated": is_emulated(device, fmt),
        "fill": fill,
        "backends": list(ranker.names),
        "correct": {
            "ok": True,
            "error": None,
            "bound": None,
            "how": "every candidate checked before it was timed",
        },
        **{f"best_{state}": ranking.as_dict(found[0]) for state, found in best.items()},
        "finalists": ranking.finalists(trails, workload),
        "candidates": ranking.merged(trails, ranker.seen),
        "stopped": {state: stop for state, (_, stop) in trails.items()},
        "hit_budget": any(trail.out_of_time for trail, _ in trails.values()),
        "budget_s": budget_s,
        "took_s": time.monotonic() - started_s,
    }


@method(version=1)
def confirm(
    device, *, candidates, rounds=3, window_s=None, tries=PEAK_TRIES, dtype=None, fill="normal", protocol=None
):
    """The `peak` record: the device is settled, then the candidates are timed again, apart from their
    ranking.

    `candidates`: {"sustained": […], "burst": […]} (the search's `finalists`) or one list for both. Sustained:
    `rounds` interleaved windows of `window_s` (None: 3 s, CPU 0.5 s); the highest median is the sustained
    peak. An unsettled device labels it. Burst: `tries` tries each; the highest median is the burst peak.

    Result: `best_sustained`, `best_burst`, `states` (each with its `flop`), `candidates` (`sustained_tflops`,
    `sustained_range_tflops` p10–p90, `burst_tflops`, `burst_range_tflops` over tries, label or reason),
    `settled`, `correct`, `dtype`. Refused where no candidate can be timed in one of the states or a result is
    wrong.
    """
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    if not isinstance(candidates, dict):
        candidates = {"sustained": candidates}
    burst_candidates = candidates.get("burst") or candidates["sustained"]
    window_s = window_s or CONFIRM_WINDOW_S[device.kind]
    with backends.settings(device, fmt):
        ranker = ranking.Ranker(device, fmt, fill, protocol)
        table = {}
        settled, sustained, right = _confirm_sustained(
            ranker, candidates["sustained"], rounds, window_s, table
        )
        burst = _confirm_burst(ranker, burst_candidates, tries, table)
    operands.release(device)
    flop = {state: Gemm(*best[:3]).flop for state, (best, _) in (("sustained", sustained), ("burst", burst))}
    return {
        "states": {
            "burst": {**burst[1], "flop": flop["burst"]},
            "sustained": {
                **sustained[1],
                "flop": flop["sustained"],
                "label": settled["label"] or sustained[1]["label"],
            },
        },
        "flop": flop["sustained"],
        "bytes": products.moved_bytes(Gemm(*sustained[0][:3]), fmt)[0],
        "bytes_how": "of the sustained peak: A and B read once, C written once",
        "dtype": fmt.name,
        "emulated": is_emulated(device, fmt),
        "fill": fill,
        "backend": sustained[0][3],
        "best_sustained": ranking.as_dict(sustained[0]),
        "best_burst": ranking.as_dict(burst[0]),
        "candidates": list(table.values()),
        "settled": settled,
        "correct": right,
        "reduction_switches": switches(device),
    }


def _prepared(ranker, listed, table):
    """{candidate: product} of those that can be had; the others get their reason in `table`."""
    found = {}
    for given in listed:
        candidate = (*ranking.shape_of({axis: given[axis] for axis in "mnk"}), given["backend"])
        try:
            product = ranker.product(candidate)
        except Refused as error:
            table.setdefault(candidate, ranking.as_dict(candidate))["refused"] = str(error)
            continue
        candidate = (*candidate[:3], product.backend)
        table.setdefault(candidate, ranking.as_dict(candidate))
        found[candidate] = product
    if not found:
        raise Refused("; ".join(entry.get("refused", "no candidate given") for entry in table.values()))
    return found


def _confirm_sustained(ranker, listed, rounds, window_s, table):
    """(settled, (best candidate, State), correct): interleaved windows of all, on a settled device."""
    ready = _prepared(ranker, listed, table)
    first = next(iter(ready))
    what = ranking.as_dict(first)
    settled = timed.settle_once(ranker.device, ranker.clock, ready[first].call, what, ranker.protocol)
    for product in ready.values():
        product.poison()
    calls = {candidate: product.call for candidate, product in ready.items()}
    states = timing.interleaved(
        calls, ranker.clock, window_s=window_s, rounds=rounds, protocol=ranker.protocol
    )
    right = {candidate: product.check("after") for candidate, product in ready.items()}
    for candidate, state in states.items():
        states[candidate] = state = timed.rated(state, ready[candidate].gemm.flop)
        _enter(table[candidate], "sustained", state, (state["p90_s"], state["p10_s"]))
    best = max(states, key=lambda candidate: states[candidate]["tflops"] or 0.0)
    return settled, (best, states[best]), right[best]


def _confirm_burst(ranker, listed, tries, table):
    """(best candidate, State): several burst tries of each candidate, one after another."""
    states = {}
    for candidate, product in _prepared(ranker, listed, table).items():
        product.poison()
        state = timing.burst(product.call, ranker.clock, tries=tries, protocol=ranker.protocol)
        if product.touched:
            product.check("after")
        states[candidate] = state = timed.rated(state, product.gemm.flop)
        _enter(table[candidate], "burst", state, (state["max_s"], state["min_s"]))
    best = max(states, key=lambda candidate: states[candidate]["tflops"] or 0.0)
    return best, states[best]


def _enter(entry, name, state, ends_s):
    """Add one state of a candidate to its line of the table."""
    entry[f"{name}_tflops"] = state["tflops"]
    if state["tflops"]:
        entry[f"{name}_range_tflops"] = [state["tflops"] * state["median_s"] / end_s for end_s in ends_s]
    if state["label"]:
        entry[f"{name}_label"] = state["label"]


@method(version=1)
def transient(
    device,
    *,
    m,
    n,
    k,
    backend="auto",
    idle_s=1.0,
    total_s=3.0,
    window_s=0.02,
    dtype=None,
    fill="normal",
    protocol=None,
):
    """Throughput from idle to steady state at one shape, in windows of `window_s`.

    Result: `windows` [{at_s, t_s, tflops}] (start and middle since the first call after `idle_s` of idling),
    `trace_ns` (host stamps of the whole stretch, for telemetry beside it), `samples_ns`, `calls_per_sample`.
    """
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    work = Gemm(m, n, k).validated()
    with backends.settings(device, fmt):
        clock = timing.clock_for(device)
        product, _ = gemm.prepare_best(device, work, fmt, backend, clock, fill)
        product.check("before")
        product.poison()
        found = timing.transient(
            product.call, clock, idle_s=idle_s, window_s=window_s, total_s=total_s, protocol=protocol
        )
        right, used, rotation = product.check("after"), product.backend, product.rotation
        del product
    operands.release(device)
    windows = [
        {"at_s": w["at_s"], "t_s": w["at_s"] + window_s / 2, "tflops": work.flop / w["call_s"] / 1e12}
        for w in found.pop("windows")
    ]
    return {
        "states": {},
        **work.shape(),
        "flop": work.flop,
        "bytes": products.moved_bytes(work, fmt)[0],
        "bytes_how": products.moved_bytes(work, fmt)[1],
        "dtype": fmt.name,
        "fill": fill,
        "backend": used,
        "rotation": rotation,
        "correct": right,
        "windows": windows,
        **found,
    }


@method(version=1)
def brute_force(
    device, *, shapes, backends_used=None, dtype=None, state="burst", fill="normal", protocol=None
):
    """Every shape through every backend (None: all there are) in one state: what the search is held against.

    Result: `candidates` as in `search`, `best_<state>` with its `tflops`.
    """
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    listed = [ranking.shape_of(shape) for shape in shapes]
    started_s = time.monotonic()
    with backends.settings(device, fmt):
        ranker = ranking.Ranker(device, fmt, fill, protocol)
        trail = explore.Trail(lambda candidate: ranker.rate(state, candidate), float("inf"))
        if state == "sustained":
            ranker.condition(listed[0])
        for shape in listed:
            for backend in backends_used or ranker.names:
                trail.visit((*shape, backend), "grid")
    operands.release(device)
    if not trail.ranked():
        raise Refused("no shape of the grid could be measured")
    best = trail.ranked()[0]
    return {
        "states": {},
        "dtype": fmt.name,
        "fill": fill,
        f"best_{state}": {**ranking.as_dict(best), "tflops": trail.scores[best]},
        "candidates": ranking.merged({state: (trail, "whole grid")}, ranker.seen),
        "took_s": time.monotonic() - started_s,
    }
