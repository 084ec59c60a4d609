"""One kernel at work for minutes: windows back to back from idle on, each kept as it ends.

`windows` yields lines, `assemble` makes a result of them and of one line {"about": …} that says what ran. The lines of
a run that was ended early, or of a process that died, make a result like any other, as far as they go.
"""

from dataclasses import asdict

from escherlib.timing import pump
from escherlib.timing.protocol import Protocol, describe, protocol_for
from escherlib.timing.states import drift_of, is_settled, state_of
from escherlib.timing.statistics import median_of

ENOUGH = "time asked for"
ENDED_BY_USER = "ended by the user"


def windows(call, clock, *, seconds, window_s, idle_s=1.0, protocol=None):
    """Lines of a hold: a header, then one line a window, {"samples_ns", "window_ns", "warming"}.

    After `idle_s` of rest the kernel runs without a gap. Windows count as warming until their medians settle (or the
    protocol's cap of settling is reached); then `seconds` of held windows follow.
    """
    p = protocol_for(clock, protocol)
    work = pump.make_work(call, clock, p, batch_s=max(p.batch_s, seconds / p.most_samples))
    header = {name: value for name, value in asdict(work).items() if name != "run"}
    yield {"work": header, "protocol": describe(p), "clock": clock.kind, "seconds": seconds, "window_s": window_s, "idle_s": idle_s}
    clock.synchronize()
    clock.sleep(idle_s)
    medians, warmed_s, held_s, settled = [], 0.0, 0.0, False
    while held_s < seconds:
        warming = not settled
        samples, window = pump.stream(work, clock, p, least_s=window_s, least_samples=1)
        length_s = (window[1] - window[0]) / 1e9
        held_s, warmed_s = held_s + length_s * (not warming), warmed_s + length_s * warming
        medians.append(median_of(samples))
        done = f"warming for {warmed_s:.0f} s" if warming else f"held for {held_s:.0f} of {seconds:g} s"
        told = f"{done}, {medians[-1] / 1e6 / work.calls:.4g} ms a call"
        yield {"samples_ns": samples, "window_ns": window, "warming": warming, "told": told}
        settled = settled or (warmed_s >= p.settle_min_s and is_settled(medians, p.settle_rel)) or warmed_s >= p.settle_cap_s


def assemble(lines, ended=ENOUGH):
    """Result of a hold from its lines: `states.sustained` over all held windows, `warming`, `timeline`, `ended`.

    `timeline`: [{"window_ns", "samples", "warming"}], samples counted in the order of `warming.samples_ns` and then of
    the state's. `about` stands beside; its `flop` of a call gives `tflops`. None where no window was held.
    """
    about = next((line["about"] for line in lines if "about" in line), {})
    header = next((line for line in lines if "work" in line), None)
    found = [line for line in lines if "window_ns" in line]
    held, warming = ([w for w in found if w["warming"] is kind] for kind in (False, True))
    if not held:
        return None
    p, work = Protocol(**header["protocol"]), pump.Work(run=None, **header["work"])
    samples = [sample for window in held for sample in window["samples_ns"]]
    span = [held[0]["window_ns"][0], held[-1]["window_ns"][1]]
    drift = drift_of(samples, p.drift_rel)
    settled_s = sum(b - a for a, b in (w["window_ns"] for w in warming)) / 1e9
    label = None if settled_s < p.settle_cap_s else "not settled when the clock started"
    stop = f"{ended} after {(span[1] - span[0]) / 1e9:.1f} of {header['seconds']:g} s"
    state = {**state_of("sustained", samples, work, [span], stop, p, None, label), "drift": drift}
    if about.get("flop") and state["median_s"]:
        state |= {"flop": about["flop"], "tflops": about["flop"] / state["median_s"] / 1e12}
    return {
        **about, "states": {"sustained": state}, "ended": ended, "seconds_asked": header["seconds"],
        "held_s": (span[1] - span[0]) / 1e9, "idle_s": header["idle_s"], "window_s": header["window_s"],
        "warming": {"samples_ns": [s for w in warming for s in w["samples_ns"]], "seconds": settled_s},
        "timeline": [{"window_ns": w["window_ns"], "samples": len(w["samples_ns"]), "warming": w["warming"]} for w in found],
    }  # fmt: skip
