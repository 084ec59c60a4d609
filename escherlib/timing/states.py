"""The states a time can be taken in: burst, sustained (after settling), cold and hot. Each returns a State dict."""

import statistics

from escherlib.timing import pump
from escherlib.timing.protocol import describe, protocol_for
from escherlib.timing.statistics import summarize, theil_sen

DRIFT_BLOCKS = 20
CONDITION_CAP = 3  # conditioning ends after this many times its least time
MOST_AHEAD = 4096  # batches a burst may enqueue ahead
_last_work_ns = {}  # clock kind → end of the last timed work: seconds idle before the next


def state_of(name, samples, work, windows, stop, protocol, clock, label=None, **more):
    """The State dict of timed samples: statistics a call, how it was timed, why it stopped, its windows."""
    idle = _last_work_ns.get(id(clock.__class__))
    _last_work_ns[id(clock.__class__)] = windows[-1][1] if windows else clock.now_ns()
    return {
        "state": name, **summarize(samples, work.calls), "timed_as": work.timed_as, "stop": stop,
        "label": label or work.note, "host_share": work.host_share, "windows_ns": windows,
        "idle_before_s": (windows[0][0] - idle) / 1e9 if idle and windows else None, "protocol": describe(protocol), **more,
    }  # fmt: skip


def burst(call, clock, *, tries=None, idle_s=None, protocol=None):
    """Speed right after idling: median over tries of the fastest run of whole calls of ≥ `burst_best_s`.

    Calls longer than that have no burst value (median_s is None and the label says why).
    """
    p = protocol_for(clock, protocol)
    tries, idle_s = tries or p.burst_tries, idle_s or p.burst_idle_s
    call_s, _ = pump.estimate_call_s(call, clock)
    if call_s > p.burst_best_s:
        text = f"no burst value: a call takes {call_s * 1e3:.0f} ms, longer than {p.burst_best_s * 1e3:.0f} ms"
        empty = pump.Work(lambda: None, 1, clock.timed_as, call_s)
        return state_of("burst", [], empty, [], text, p, clock, text, tries=[])
    work = pump.make_work(call, clock, p, graph_below_s=p.short_call_s)
    begun = clock.now_ns()
    count = max(p.burst_run_calls, -int(-p.burst_run_s // (work.call_s * work.calls)))
    while True:
        done = [_one_try(work, clock, p, idle_s, count) for _ in range(tries)]
        if any(t["best_s"] is None for t in done) and count < MOST_AHEAD:
            count *= 2  # the estimate was too high: the calls enqueued ahead ended too soon
            continue
        speeds = [t["best_s"] for t in done]
        apart = abs(speeds[-1] / speeds[0] - 1) if speeds[0] and speeds[-1] else None
        if apart is not None and apart <= p.burst_recovered:
            stop, label = f"first and last of {tries} tries {100 * apart:.2f} % apart", None
            break
        spent_s = (clock.now_ns() - begun) / 1e9
        if idle_s >= p.burst_idle_cap_s or apart is None or spent_s >= p.burst_cap_s:
            stop, label = f"first and last try still apart after {idle_s:g} s of idle", "burst not recovered"
            break
        idle_s = min(2 * idle_s, p.burst_idle_cap_s)
    best = [round((t["best_s"] or 0) * 1e9) for t in done]
    state = state_of("burst", best, pump.Work(work.run, 1, work.timed_as, work.call_s, work.host_share, work.note),
                   [t["window_ns"] for t in done], stop, p, clock, label)  # fmt: skip
    return {**state, "tries": done, "try_calls": work.calls, "idle_s": idle_s}


def _one_try(work, clock, p, idle_s, count):
    clock.synchronize()
    clock.sleep(idle_s)
    start_ns = clock.now_ns()
    marks = [clock.record()]
    for _ in range(count):
        work.run()
        marks.append(clock.record())
    clock.wait(marks[-1])
    end_ns = clock.now_ns()
    samples = [clock.elapsed_ns(a, b) for a, b in zip(marks, marks[1:], strict=False)]
    return {"samples_ns": samples, "best_s": fastest_run_s(samples, p.burst_best_s, work.calls), "idle_s": idle_s,
            "window_ns": [start_ns, end_ns]}  # fmt: skip


def fastest_run_s(samples_ns, least_s, calls):
    """Seconds a call of the fastest run of consecutive samples that lasts at least `least_s`; None where none does."""
    best = None
    for start in range(len(samples_ns)):
        total = 0
        for end in range(start, len(samples_ns)):
            if samples_ns[end] <= 0:
                break
            total += samples_ns[end]
            if total >= least_s * 1e9:
                speed = total / 1e9 / (end - start + 1) / calls
                best = speed if best is None else min(best, speed)
                break
    return best


def settle(call, clock, *, latest=None, protocol=None):
    """Run one kernel until its rate no longer moves. Returns a State with `settled` and the window medians."""
    p = protocol_for(clock, protocol)
    work = pump.make_work(call, clock, p, batch_s=p.settle_window_s / 100)
    medians, samples, begun = [], [], clock.now_ns()
    label, stop = None, None
    while stop is None:
        window, _ = pump.stream(work, clock, p, least_s=p.settle_window_s, least_samples=3)
        samples += window
        medians.append(statistics.median(window) / 1e9 / work.calls)
        elapsed_s = (clock.now_ns() - begun) / 1e9
        if elapsed_s >= p.settle_min_s and is_settled(medians, p.settle_rel):
            stop = f"settled after {elapsed_s:.1f} s"
        elif elapsed_s >= p.settle_cap_s:
            label, stop = unsettled_label(medians, latest), f"not settled after {elapsed_s:.1f} s"
    state = state_of("settle", samples[-p.most_samples :], work, [[begun, clock.now_ns()]], stop, p, clock, label)
    return {**state, "settled": label is None, "window_medians_s": medians}


def is_settled(medians, rel):
    """Whether the last two groups of three window medians agree within max(rel, twice their standard error)."""
    if len(medians) < 6:
        return False
    first, second = medians[-6:-3], medians[-3:]
    error = sum(statistics.variance(g) / 3 for g in (first, second)) ** 0.5
    a, b = statistics.median(first), statistics.median(second)
    return abs(b - a) <= max(rel * a, 2 * error)


def unsettled_label(medians, latest=None):
    """Why a kernel did not settle: thermal (a sensor says so), drifting (one direction), noisy."""
    reasons = ((latest() or {}).get("limit_reasons") or []) if latest else []
    if any("thermal" in reason for reason in reasons):
        return "thermal"
    line = theil_sen(list(range(len(medians))), medians)
    return "drifting" if line and (line["low"] > 0 or line["high"] < 0) else "noisy"


def sustained(call, clock, *, condition_s=None, window_s=None, min_calls=None, protocol=None, latest=None):
    """Rate of a kernel on a hot device: `condition_s` of itself, then without a gap its window."""
    p = protocol_for(clock, protocol)
    window_s, condition_s = window_s or p.window_s, p.condition_s if condition_s is None else condition_s
    work = pump.make_work(call, clock, p, batch_s=max(p.batch_s, window_s / p.most_samples))
    conditioned_s = condition(work, clock, p, condition_s) if condition_s else 0.0
    least = -int(-(min_calls or p.window_calls) // work.calls)
    samples, window = pump.stream(work, clock, p, least_s=window_s, least_samples=least)
    drift = drift_of(samples, p.drift_rel)
    label = "drifting" if drift and drift["drifting"] else None
    stop = f"window of {window_s:g} s and at least {min_calls or p.window_calls} calls"
    return {**state_of("sustained", samples, work, [window], stop, p, clock, label),
            "drift": drift, "condition_s": conditioned_s}  # fmt: skip


def condition(work, clock, p, least_s):
    """Run the kernel itself before its window: at least `least_s`, and on until a chunk's median repeats or a cap.

    A row that follows idle time (a burst, a check) starts faster than it can go on; one fixed second does not
    always end that. Returns the device seconds spent.
    """
    spent_s, before = 0.0, None
    while True:
        chunk, _ = pump.stream(work, clock, p, least_s=least_s / 2, least_samples=3)
        spent_s += sum(chunk) / 1e9
        now = statistics.median(chunk)
        steady = before is not None and abs(now - before) <= p.condition_rel * before
        if spent_s >= least_s and (steady or spent_s >= CONDITION_CAP * least_s):
            return spent_s
        before = now


def drift_of(samples_ns, rel):
    """Theil–Sen line through a window: fitted change as a share of the median, and whether it counts as drift."""
    good = [s for s in samples_ns if s > 0]
    if len(good) < 5:
        return None
    times, total = [], 0
    for sample in good:
        times.append((total + sample / 2) / 1e9)
        total += sample
    # a power cap's control loop swings for tenths of a second: neighbouring samples are no independent witnesses
    line = theil_sen(times, [float(s) for s in good], most=DRIFT_BLOCKS)
    if line is None:
        return None
    median, span = statistics.median(good), total / 1e9
    change, low, high = (line[key] * span / median for key in ("slope", "low", "high"))
    return {"change": change, "low": low, "high": high, "drifting": bool((low > 0 or high < 0) and abs(change) > rel)}


def interleaved(calls, clock, *, window_s=3.0, rounds=2, protocol=None):
    """Windows of several kernels in turn, back to back. Returns name → sustained State over all its windows."""
    p = protocol_for(clock, protocol)
    works = {name: pump.make_work(call, clock, p, batch_s=max(p.batch_s, rounds * window_s / p.most_samples))
             for name, call in calls.items()}  # fmt: skip
    found = {name: ([], [], []) for name in calls}
    for _ in range(rounds):
        for name, work in works.items():
            pump.stream(work, clock, p, least_s=p.condition_s / 2)
            samples, window = pump.stream(work, clock, p, least_s=window_s, least_samples=-int(-p.window_calls // work.calls))
            found[name][0].extend(samples)
            found[name][1].append(window)
            found[name][2].append(statistics.median(samples) / 1e9 / work.calls)
    stop = f"{rounds} windows of {window_s:g} s, in turn"
    return {
        name: {**state_of("sustained", samples, works[name], windows, stop, p, clock,
                        "drifting" if (drift_of(samples, p.drift_rel) or {}).get("drifting") else None),
               "window_medians_s": medians, "drift": drift_of(samples, p.drift_rel)}
        for name, (samples, windows, medians) in found.items()
    }  # fmt: skip


def adaptive(call, clock, *, flush=None, ci_rel=None, min_s=None, max_s=None, protocol=None, latest=None):
    """Time until the median is known well enough: cold (`flush` before every call, outside the timed part), else hot."""
    p = protocol_for(clock, protocol)
    ci_rel, min_s, max_s = ci_rel or p.ci_rel, min_s or p.adaptive_min_s, max_s or p.adaptive_max_s
    if flush:
        return _cold(call, clock, flush, ci_rel, min_s, max_s, p)
    work = pump.make_work(call, clock, p)
    pump.stream(work, clock, p, least_s=min(min_s, p.warm_max_s), least_samples=2)
    begun, samples, stop = clock.now_ns(), [], None
    while stop is None:
        more, _ = pump.stream(work, clock, p, least_s=min_s / 2, least_samples=5)
        samples += more
        stop = stop_reason(samples, work.calls, ci_rel, min_s, max_s, p.most_samples)
    return state_of("hot", samples, work, [[begun, clock.now_ns()]], stop, p, clock)


def stop_reason(samples, calls, ci_rel, min_s, max_s, most):
    """Why timing may stop now, or None: the interval is narrow and time enough passed, or a cap is reached."""
    spent_s = sum(s for s in samples if s > 0) / 1e9
    found = summarize(samples, calls)["ci_rel"]
    if spent_s >= min_s and found is not None and len(samples) >= 6 and found <= ci_rel:
        return f"interval ± {100 * found:.2f} % within {100 * ci_rel:g} %"
    if spent_s >= max_s:
        return f"time cap of {max_s:g} s at ± {100 * (found or 1):.2f} %"
    return f"sample cap of {most}" if len(samples) >= most else None


def _cold(call, clock, flush, ci_rel, min_s, max_s, p):
    call_s, _ = pump.estimate_call_s(call, clock)
    work = pump.Work(lambda: None, 1, clock.timed_as, call_s)
    begun, samples, stop, i = clock.now_ns(), [], None, 0
    while stop is None:
        marks = []
        for _ in range(8):
            flush()
            first = clock.record()
            call(i)
            marks.append((first, clock.record()))
            i += 1
        clock.wait(marks[-1][1])
        samples += [clock.elapsed_ns(a, b) for a, b in marks]
        stop = stop_reason(samples, 1, ci_rel, min_s, max_s, p.most_samples)
        if (clock.now_ns() - begun) / 1e9 > 4 * max_s:
            stop = stop or f"wall-time cap of {4 * max_s:g} s"
    return state_of("cold", samples, work, [[begun, clock.now_ns()]], stop, p, clock)


def transient(call, clock, *, idle_s=1.0, window_s=0.02, total_s=3.0, protocol=None):
    """From idle to steady state: {samples_ns, calls_per_sample, start_ns, end_ns, windows: [{at_s, call_s}]}."""
    p = protocol_for(clock, protocol)
    work = pump.make_work(call, clock, p, batch_s=window_s / 10)
    clock.synchronize()
    clock.sleep(idle_s)
    samples, window = pump.stream(work, clock, p, least_s=total_s)
    windows, at_ns, inside = [], 0, []
    for sample in samples:
        inside.append(sample)
        if sum(inside) >= window_s * 1e9:
            windows.append({"at_s": at_ns / 1e9, "call_s": sum(inside) / 1e9 / len(inside) / work.calls})
            at_ns, inside = at_ns + sum(inside), []
    return {"samples_ns": samples, "calls_per_sample": work.calls, "windows": windows, "trace_ns": window,
            "timed_as": work.timed_as, "idle_s": idle_s, "window_s": window_s}  # fmt: skip
