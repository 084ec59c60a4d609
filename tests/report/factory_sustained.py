"""FAKE family 7: an invented long run on the fake run's peaks, so that charts have something to show."""

import math

from escherlib.accounting import paths
from tests.report.factory import state, window
from tests.report.factory_workload import timed_workload

SUSTAINED = "07_sustained"
S = 10**9


def hold_record(run, *, windows=60, slower=0.004, noise=0.003, warming=6, blind=False):
    """(result, telemetry): windows of one second from rest, settling over `warming` of them, then drifting by `slower`.

    `blind`: no clock is read.
    """
    w, gpu = timed_workload(run.kind), run.kind == "gpu"
    flop = paths.forward_flop(w, "optimized") if gpu else 4 * w.query_tokens * w.d_model * w.ffn
    base_s = flop / (0.93 * run.spec["peak"][1] * 1e12)
    timeline, sensors, samples = [], [], {True: [], False: []}
    (fast, slow), power = run.spec["clock"], run.spec["power"]
    for index in range(warming + windows):
        warm = index < warming
        ease = math.exp(-index / 1.5) if warm else 0.0
        drift = 0 if warm else slower * (index - warming) / windows
        count = max(3, round(1.0 / base_s))
        seconds = [base_s * (1 - 0.15 * ease + drift) * (1 + noise * math.sin(1.7 * i + index)) for i in range(count)]
        samples[warm] += [round(1e9 * s) for s in seconds]
        timeline.append({"window_ns": [index * S, (index + 1) * S], "samples": count, "warming": warm})
        sensors.append({
            "clock_mhz": None if blind else slow + (fast - slow) * ease, "power_w": power and power[1] - 40 * ease,
            "temperature_c": 38 + 25 * (1 - math.exp(-index / 20)) if gpu else None, "power_limit_w": 700.0 if gpu else None,
            "steal_pct": None, "memory_temperature_c": None, "utilisation_pct": 100.0, "limits": {"sw_power_cap": 0.98} if gpu else {},
        })  # fmt: skip
    held = samples[False]
    ordered = sorted(held)
    middle = ordered[len(ordered) // 2] / 1e9
    found = state(middle, flop, n=len(held)) | {"samples_ns": held, "windows_ns": [[warming * S, (warming + windows) * S]]}
    result = {
        "states": {"sustained": found}, "flop": flop, "bytes": None, "bytes_how": "not counted here", "dtype": "bf16",
        "emulated": False, "fill": "normal", "backend": "captured graph" if gpu else "torch.addmm", "how": "captured graph",
        "correct": {"ok": True, "error": 0.2, "bound": 1.0}, "ended": "time asked for", "seconds_asked": float(windows),
        "held_s": float(windows), "idle_s": 1.0, "window_s": 1.0, "warming": {"samples_ns": samples[True], "seconds": float(warming)},
        "timeline": timeline,
    }  # fmt: skip
    energy = {"energy_j": {"value": power[1] * windows, "how": "counter"}} if power else {}
    beside = {"clock_mhz": None, "power_w": None, "n": 0} if blind else window(slow, power and power[1])
    return result, {"sustained": beside | energy, "timeline": sensors}


def fill_sustained(run, **options):
    """Invented family 7; `options` go to hold_record."""
    result, telemetry = hold_record(run, **options)
    row = "hold/stack" if run.kind == "gpu" else "hold/ffn"
    run.add(SUSTAINED, row, result, telemetry=telemetry, work=row.partition("/")[2], seconds=result["seconds_asked"])
    burst, settled = run.spec["peak"]
    points = [
        {"state": "recovery", "idle_s": idle, "windows_ns": [[0, S]], "samples_ns": [], "calls_per_sample": 1,
         "before_tflops": settled, "first_tflops": settled, "tflops": settled + (burst - settled) * (1 - math.exp(-idle / 0.12))}
        for idle in (0.03, 0.1, 0.3, 1.0)
    ]  # fmt: skip
    beside = {f"points.{i}": window(run.spec["clock"][1] + 100 * i, None) for i in range(4)} if run.kind == "gpu" else {}
    common = {"states": {}, "flop": 1, "dtype": "bf16", "work_s": 1.0, "probe_s": 0.15, "correct": {"ok": True}}
    run.add(SUSTAINED, "recovery", common | {"points": points}, telemetry=beside, m=4096, n=4096, k=4096, idles_s=[0.03, 0.1, 0.3, 1.0])
    run.finish(SUSTAINED, {"drift_pct": (0.4, "%")}, ["Invented: nothing throttles."])
