"""Minutes at work: the whole stack (GPU) or the FFN's forward (CPU) held without a gap, and how rest restores speed.

Rows `hold/stack`, `hold/ffn` and `recovery` of family 7.
"""

from escherlib import timing
from escherlib.accounting.scale import scale_of
from escherlib.errors import Refused, UserError
from escherlib.kernels import backends, e2e, ffn, gemm, operands, scopes
from escherlib.kernels.formats import format_of, is_emulated, switches
from escherlib.kernels.products import Gemm
from escherlib.method import method
from escherlib.timing import hold, journal, pump
from escherlib.timing.states import fastest_run_s
from escherlib.timing.statistics import median_of

WORKS = ("stack", "ffn")
START_S = 300.0  # what opening and compiling a stack may take before its first window


@method(version=1)
def hold_work(
    device, *, work, geometry, seconds, window_s=1.0, idle_s=1.0, path="optimized", scope="compiled", backends=None,
    bracket_gemm=None, mode=None, protocol=None,
):  # fmt: skip
    """Run `work` for `seconds` after it has settled, in windows of `window_s`, from `idle_s` of rest on.

    "stack": chunks of a `path` and `scope` in a process of its own, as in family 5 (`bracket_gemm` and `backends` as
    there; `mode`: the compile mode of the default path). "ffn": the two products of one FFN with GELU between them.
    An interrupt ends it early and keeps what there is. Result: as timing.hold.assemble, with `flop` of a call,
    `tflops`, and what ran. Refused where no window was held, or what runs can't be had.
    """
    if work not in WORKS:
        raise UserError(f"work {work!r}: unknown; expected one of {', '.join(WORKS)}")
    how = {"seconds": seconds, "window_s": window_s, "idle_s": idle_s}
    if work == "ffn":
        return _held_ffn(device, geometry, how, protocol)
    operands.release(device)
    opened = {
        "device": device.asked, "geometry": geometry, "path": path, "backends": (backends or {}) if path == "optimized" else {},
        "bracket_gemm": bracket_gemm, "protocol": protocol or {},
    }  # fmt: skip
    if scope == "compiled":
        mode = mode or e2e.modes_for(path, device.kind, ["default"])[0]
    request = {"hold": {"scope": scope, "mode": mode, **how}}
    lines, ended = [], hold.ENOUGH
    try:
        e2e.child_for(opened).ask(request, START_S + window_s, progress=lambda line: _keep(lines, line))
    except KeyboardInterrupt:
        ended = hold.ENDED_BY_USER
    finally:
        e2e.close()
    return _result(lines, ended)


def _keep(lines, line):
    lines.append(line)
    journal.note(line)


def _held_ffn(device, geometry, how, protocol):
    w, clock = scopes.workload_of(geometry), timing.clock_for(device)
    work = ffn.prepare(device, w)
    about = {
        "flop": work.flop, "bytes": None, "bytes_how": "not counted here", "dtype": work.dtype, "fill": "normal",
        "emulated": is_emulated(device, format_of(device, work.dtype)), "backend": work.backend, "how": "eager",
        "scale": scale_of(w), "correct": work.check("before"), "reduction_switches": switches(device),
    }  # fmt: skip
    lines, ended = [], hold.ENOUGH
    try:
        _keep(lines, {"about": about})
        for line in hold.windows(work.call, clock, protocol=protocol, **how):
            _keep(lines, line)
    except KeyboardInterrupt:
        ended = hold.ENDED_BY_USER
    return _result(lines, ended) | {"correct": work.check("after")}


def _result(lines, ended):
    found = hold.assemble(lines, ended)
    if found is None and ended == hold.ENDED_BY_USER:
        raise KeyboardInterrupt
    if found is None:
        raise Refused("not a single window was held")
    return found


@method(version=1)
def recovery(device, *, m, n, k, backend="auto", idles_s=(0.03, 0.1, 0.3, 1.0), work_s=1.0, probe_s=0.15, protocol=None):
    """How rest restores speed: work for `work_s`, rest, then the first `probe_s`; one point for each of `idles_s`.

    Result: `points` [{idle_s, before_tflops (the end of the work), tflops (fastest run of whole calls that the
    protocol takes for a burst; None where a call is longer), first_tflops (median of the probe), samples_ns, …}].
    Each point is a state with windows of its own, so that clock and power stand beside it.
    """
    fmt, clock = format_of(device, None), timing.clock_for(device)
    p = timing.protocol_for(clock, protocol)
    shape = Gemm(m, n, k).validated()
    with backends.settings(device, fmt):
        product, _ = gemm.prepare_best(device, shape, fmt, backend, clock)
        work = pump.make_work(product.call, clock, p, batch_s=max(p.batch_s, probe_s / 50))
        points = [_point(work, clock, p, shape.flop, idle_s, work_s, probe_s) for idle_s in idles_s]
        right = product.check("after")
    used = product.backend
    operands.release(device)
    return {
        "states": {}, "flop": shape.flop, "bytes": None, "bytes_how": "not counted here", "dtype": fmt.name,
        "emulated": is_emulated(device, fmt), "fill": "normal", "backend": used, "points": points, "work_s": work_s,
        "probe_s": probe_s, "correct": right, "reduction_switches": switches(device),
    }  # fmt: skip


def _point(work, clock, p, flop, idle_s, work_s, probe_s):
    before, _ = pump.stream(work, clock, p, least_s=work_s, least_samples=3)
    last = before[-max(1, len(before) // 4) :]
    clock.synchronize()
    clock.sleep(idle_s)
    samples, window = pump.stream(work, clock, p, least_s=probe_s, least_samples=3)
    best_s = fastest_run_s(samples, p.burst_best_s, work.calls)
    return {
        "state": "recovery", "idle_s": idle_s, "windows_ns": [window], "samples_ns": samples, "calls_per_sample": work.calls,
        "before_tflops": work.calls * flop / median_of(last) / 1e3, "first_tflops": work.calls * flop / median_of(samples) / 1e3,
        "tflops": flop / best_s / 1e12 if best_s else None,
    }  # fmt: skip
