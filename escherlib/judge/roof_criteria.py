"""SC-1 and SC-2: are the compute and the memory roof what this device should give?"""

from escherlib.judge.criteria import Criterion, miss, warn
from escherlib.judge.roofs import gemm_rows
from escherlib.judge.rows import (
    COMPUTE,
    UNSETTLED,
    not_measured,
    number,
    percent,
    rate_of,
    rate_range,
)

STATES = ("burst", "sustained")
JUDGED_OPS = ("copy", "add")


def compute_roof(results, roofs, scoring):
    """SC-1: the best square GEMM near the measured peak of the same state, and the burst peak near what is rated."""
    limits = scoring.sc1
    floor = rated_floor(results, roofs, limits)
    shares = [share for state in STATES if (share := square_share(results, roofs, state, limits.square_share_of_peak))]
    rule = f"{limits.title}: best square ≥ {limits.square_share_of_peak:.2f} × measured peak, burst with burst and sustained with sustained"
    if results.kind != "cpu":
        rule += "; burst peak ≥ " + (f"{floor['floor']:.2f} × rated ({floor['basis']})" if floor else "the rated floor")
    details = {"squares": shares, "rated": floor, "relation": roofs.relation.text}
    if not shares:
        missing = roofs.sustained.reason or roofs.burst.reason or not_measured(results, COMPUTE)
        return Criterion("SC-1", limits.role, "SKIP", missing, rule, details)
    warnings = compute_warnings(results, roofs)
    told = [share["text"] for share in shares] + [
        f"{state} not judged: {_why_no_share(roofs, state)}"
        for state in STATES if state not in [share["state"] for share in shares]
    ]  # fmt: skip
    passed = all(share["ok"] for share in shares)
    if results.kind != "cpu":
        told.append(floor["text"] if floor else f"rated part SKIP: {roofs.burst.rated_reason}")
        passed = passed and (floor is None or floor["ok"])
    status = "PASS" if results.kind == "cpu" or floor else "PARTIAL_PASS"
    status = warn(results) if warnings else status
    status = status if passed else miss(results)
    told += warnings + [roofs.relation.text]
    told += _spreads(results, shares) if results.kind == "cpu" and not passed else []
    return Criterion("SC-1", limits.role, status, "; ".join(told), rule, details | {"warnings": warnings})


def square_share(results, roofs, state, limit):
    """Best square of one state against the measured peak of that state, or None where either is missing."""
    peak = getattr(roofs, state)
    rows = [(rate_of(row, state), row) for row in gemm_rows(results, roofs.peak_dtype) if row.name.startswith("square/")]
    rows = [entry for entry in rows if entry[0]]
    if peak.value is None or not rows:
        return None
    value, row = max(rows, key=lambda entry: entry[0])
    share = value / peak.value
    text = f"{state}: {row.name} reaches {number(value)} of {number(peak.value)} TFLOP/s, {percent(share)}"
    return {"state": state, "row": row.name, "tflops": value, "peak_tflops": peak.value, "share": share, "ok": share >= limit, "text": text}


def _why_no_share(roofs, state):
    return getattr(roofs, state).reason or f"no square has a {state} value"


def rated_floor(results, roofs, limits):
    """Burst peak (sustained where no burst was had) against floor × rated; None on a CPU and without a rated value."""
    peak = roofs.burst if roofs.burst.value else roofs.sustained
    if results.kind == "cpu" or not peak.rated or not peak.value:
        return None
    published = results.profile.achievable_share(roofs.peak_dtype)
    floor, basis = limits.rated_floor_default, "nothing published"
    if published:
        floor = limits.rated_floor_share_of_achievable * published
        basis = f"{limits.rated_floor_share_of_achievable:.2f} × the published share of {published:.2f}"
    share = peak.value / peak.rated
    state = "burst" if roofs.burst.value else "sustained"
    text = f"{state} peak is {percent(share)} of the rated {number(peak.rated)} TFLOP/s (floor {percent(floor)})"
    return {"share": share, "floor": floor, "basis": basis, "state": state, "ok": share >= floor, "text": text}


def compute_warnings(results, roofs):
    """What makes a passed SC-1 a WARN: a lowered power cap, an unsettled peak, a sustained share below the profile's."""
    found = []
    cap, default = power_cap(results.env)
    if cap and default and cap < default:
        found.append(f"power cap {number(cap)} W is below the default {number(default)} W")
    for state in STATES:
        label = getattr(roofs, state).label or ""
        if any(word in label for word in UNSETTLED):
            found.append(f"the {state} peak is {label}")
    floor = results.profile.sc1_sustained_floor if results.profile is not None else None
    share = roofs.relation.share
    if floor and share is not None and share < floor:
        found.append(f"sustained is {percent(share)} of burst, below this profile's {percent(floor)}")
    return found


def power_cap(env):
    """(enforced, default) power cap in W as env.json has them; None for what the driver does not say."""
    power = (env or {}).get("power") or {}
    return power.get("cap_w"), power.get("cap_default_w")


def _spreads(results, shares):
    """p10–p90 of the rows behind a miss on a CPU, whose threads may run at two speeds."""
    found = []
    for share in shares:
        for name in (share["row"], "peak"):
            span = rate_range(results.row(COMPUTE, name), share["state"])
            if span:
                found.append(f"{name} {share['state']} p10–p90 {number(span[0])}–{number(span[1])} TFLOP/s")
    return found


def memory_roof(results, roofs, scoring):
    """SC-2: copy and add are flat over their last sizes, and their plateaus near what is published or rated."""
    limits = scoring.sc2
    flatness = limits.flatness_cpu if results.kind == "cpu" else limits.flatness_gpu
    floor = bandwidth_floor(results, limits)
    rule = f"{limits.title}: copy and add: last {limits.last_sizes} sizes within {percent(flatness)}"
    rule += f", plateau ≥ {number(floor['gb_s'])} GB/s ({floor['basis']})" if floor else ", plateau near the rated bandwidth"
    plateaus = {op: roofs.plateaus[op] for op in JUDGED_OPS}
    details = {"floor": floor, "plateaus": {op: _plateau_details(p) for op, p in plateaus.items()}}
    short = [f"{op}: {p.reason or f'{len(p.values_gb_s)} of {limits.last_sizes} sizes'}"
             for op, p in plateaus.items() if len(p.values_gb_s) < limits.last_sizes]  # fmt: skip
    if short:
        return Criterion("SC-2", limits.role, "SKIP", "; ".join(dict.fromkeys(short)), rule, details)
    told, passed = [], True
    for op, plateau in plateaus.items():
        flat, high = plateau.spread <= flatness, floor is None or plateau.gb_s >= floor["gb_s"]
        passed = passed and flat and high
        told.append(f"{op} {number(plateau.gb_s)} GB/s, last {limits.last_sizes} sizes within {percent(plateau.spread)}")
        told[-1] += "" if flat else " (not flat)"
        told[-1] += "" if high else f" (below {number(floor['gb_s'])} GB/s, {floor['basis']})"
        told += plateau.notes
    if not passed:
        told += _stream_spreads(plateaus) if results.kind == "cpu" else []
        return Criterion("SC-2", limits.role, miss(results), "; ".join(told), rule, details)
    if floor is None:
        return Criterion("SC-2", limits.role, "SKIP", f"flatness only: {'; '.join(told)}; {roofs.memory.rated_reason}", rule, details)
    return Criterion("SC-2", limits.role, "PASS", "; ".join(told), rule, details)


def bandwidth_floor(results, limits):
    """{gb_s, basis}: a share of the published copy figure, else of the rated bandwidth; None where neither is known."""
    profile = results.profile
    if profile is None:
        return None
    published, rated = profile.achievable.get("memory_copy_gb_s"), profile.memory_bandwidth_gb_s
    if published:
        share = limits.floor_share_of_published_copy
        return {"gb_s": share * published, "basis": f"{share:.2f} × the published copy of {number(published)} GB/s"}
    if rated:
        share = limits.floor_share_of_rated
        return {"gb_s": share * rated, "basis": f"{share:.2f} × the rated {number(rated)} GB/s"}
    return None


def _plateau_details(plateau):
    return {
        "gb_s": plateau.gb_s, "sizes_bytes": list(plateau.sizes_bytes), "values_gb_s": list(plateau.values_gb_s),
        "spread": plateau.spread,
    }  # fmt: skip


def _stream_spreads(plateaus):
    """p10–p90 of the largest size of each op, where known."""
    spans = {op: plateau.ranges_gb_s[-1] for op, plateau in plateaus.items()}
    return [f"{op} p10–p90 {number(span[0])}–{number(span[1])} GB/s at the largest size" for op, span in spans.items() if span]
