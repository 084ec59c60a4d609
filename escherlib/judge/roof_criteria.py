"""SC-1 and SC-2: are the compute and the memory roof what this device should give?"""

from functools import partial

from escherlib.judge.criteria import Criterion, miss, warn
from escherlib.judge.roofs import gemm_rows
from escherlib.judge.rows import COMPUTE, UNSETTLED, not_measured, number, percent, rate_of, rate_range

STATES = ("burst", "sustained")
JUDGED_OPS = ("copy", "add")


def compute_roof(results, roofs, scoring):
    """SC-1: the best square is near the measured peak of its state, the burst peak near what is rated."""
    limits = scoring.sc1
    shares = {state: square_share(results, roofs, state, limits.square_share_of_peak) for state in STATES}
    judged = [share for share in shares.values() if share]
    floor, warnings = rated_floor(results, roofs, limits), compute_warnings(results, roofs)
    details = {"squares": judged, "rated": floor, "relation": roofs.relation.text, "warnings": warnings}
    row = partial(Criterion, "SC-1", limits.role, rule=_compute_rule(results, limits, floor), details=details)
    if not judged:
        return row("SKIP", roofs.sustained.reason or roofs.burst.reason or not_measured(results, COMPUTE))
    told = [share["text"] for share in judged]
    told += [f"{state} not judged: {_why_no_share(roofs, state)}" for state in STATES if not shares[state]]
    if results.kind != "cpu":
        told.append(floor["text"] if floor else f"rated part SKIP: {roofs.burst.rated_reason}")
    told += warnings + ([roofs.relation.text] if roofs.relation.kind else [])
    if not all(part["ok"] for part in [*judged, *([floor] if floor else [])]):
        told += _spreads(results, judged) if results.kind == "cpu" else []
        return row(miss(results), "; ".join(told))
    whole = "PASS" if floor or results.kind == "cpu" else "PARTIAL_PASS"
    return row(warn(results) if warnings else whole, "; ".join(told))


def _compute_rule(results, limits, floor):
    rule = (
        f"{limits.title}: best square ≥ {limits.square_share_of_peak:.2f} × measured peak of the same state"
    )
    if results.kind == "cpu":
        return rule
    share = f"{floor['floor']:.2f} × rated ({floor['basis']})" if floor else "a floor on rated"
    return f"{rule}; burst peak ≥ {share}"


def square_share(results, roofs, state, limit):
    """Best square of one state against the measured peak of that state, or None where either is missing."""
    peak = getattr(roofs, state)
    squares = [row for row in gemm_rows(results, roofs.peak_dtype) if row.name.startswith("square/")]
    found = [(rate_of(row, state), row.name) for row in squares if rate_of(row, state)]
    if peak.value is None or not found:
        return None
    value, name = max(found)
    share = value / peak.value
    text = f"{state}: {name} reaches {number(value)} of {number(peak.value)} TFLOP/s, {percent(share)}"
    return {
        "state": state, "row": name, "tflops": value, "peak_tflops": peak.value, "share": share,
        "ok": share >= limit, "text": text,
    }  # fmt: skip


def _why_no_share(roofs, state):
    return getattr(roofs, state).reason or f"no square has a {state} value"


def rated_floor(results, roofs, limits):
    """Burst peak (without one, sustained) against floor × rated; None on a CPU and without a rated value."""
    state = "burst" if roofs.burst.value else "sustained"
    peak = getattr(roofs, state)
    if results.kind == "cpu" or not peak.rated or not peak.value:
        return None
    published = results.profile.achievable_share(roofs.peak_dtype)
    floor, basis = limits.rated_floor_default, "nothing published"
    if published:
        floor = limits.rated_floor_share_of_achievable * published
        basis = f"{limits.rated_floor_share_of_achievable:.2f} × the published share of {published:.2f}"
    share = peak.value / peak.rated
    text = (
        f"{state} peak is {percent(share)} of the rated {number(peak.rated)} TFLOP/s (floor {percent(floor)})"
    )
    return {
        "state": state,
        "share": share,
        "floor": floor,
        "basis": basis,
        "ok": share >= floor,
        "text": text,
    }


def compute_warnings(results, roofs):
    """What makes a passed SC-1 a WARN: a lowered power cap, an unsettled peak, a low sustained share."""
    found = []
    cap, default = power_cap(results.env)
    if cap and default and cap < default:
        found.append(f"power cap {number(cap)} W is below the default {number(default)} W")
    labels = {state: getattr(roofs, state).label or "" for state in STATES}
    found += [
        f"the {state} peak is {label}"
        for state, label in labels.items()
        if any(word in label for word in UNSETTLED)
    ]
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
                low, high = map(number, span)
                found.append(f"{name} {share['state']} p10–p90 {low}–{high} TFLOP/s")
    return found


def memory_roof(results, roofs, scoring):
    """SC-2: copy and add are flat over their last sizes, their plateaus near what is published or rated."""
    limits, last = scoring.sc2, scoring.sc2.last_sizes
    flatness = limits.flatness_cpu if results.kind == "cpu" else limits.flatness_gpu
    floor = bandwidth_floor(results, limits)
    plateaus = {op: roofs.plateaus[op] for op in JUDGED_OPS}
    details = {"floor": floor, "plateaus": {op: _plateau_details(p) for op, p in plateaus.items()}}
    near = f"≥ {number(floor['gb_s'])} GB/s ({floor['basis']})" if floor else "near the rated bandwidth"
    rule = f"{limits.title}: copy and add: last {last} sizes within {percent(flatness)}, plateau {near}"
    row = partial(Criterion, "SC-2", limits.role, rule=rule, details=details)
    short = {op: plateau for op, plateau in plateaus.items() if len(plateau.values_gb_s) < last}
    if short:
        told = [f"{op}: {p.reason or f'{len(p.values_gb_s)} of {last} sizes'}" for op, p in short.items()]
        return row("SKIP", "; ".join(told))
    judged = [judge_plateau(plateau, flatness, floor) for plateau in plateaus.values()]
    told = [text for _, text in judged] + [note for plateau in plateaus.values() for note in plateau.notes]
    if not all(ok for ok, _ in judged):
        told += _stream_spreads(plateaus) if results.kind == "cpu" else []
        return row(miss(results), "; ".join(told))
    if floor is None:
        return row("SKIP", f"flatness only: {'; '.join(told)}; {roofs.memory.rated_reason}")
    return row("PASS", "; ".join(told))


def judge_plateau(plateau, flatness, floor):
    """(ok, what was found) of one plateau of at least two sizes."""
    flat, high = plateau.spread <= flatness, floor is None or plateau.gb_s >= floor["gb_s"]
    text = f"{plateau.op} {number(plateau.gb_s)} GB/s, last {len(plateau.values_gb_s)} sizes within "
    text += percent(plateau.spread) + ("" if flat else " (not flat)")
    return flat and high, text + ("" if high else f" (below {number(floor['gb_s'])} GB/s, {floor['basis']})")


def bandwidth_floor(results, limits):
    """{gb_s, basis}: a share of the published copy figure, else of the rated bandwidth; None without both."""
    profile = results.profile
    if profile is None:
        return None
    published, rated = profile.achievable.get("memory_copy_gb_s"), profile.memory_bandwidth_gb_s
    share, of, what = limits.floor_share_of_rated, rated, "rated"
    if published:
        share, of, what = limits.floor_share_of_published_copy, published, "published copy of"
    return {"gb_s": share * of, "basis": f"{share:.2f} × the {what} {number(of)} GB/s"} if of else None


def _plateau_details(plateau):
    return {
        "gb_s": plateau.gb_s, "spread": plateau.spread,
        "sizes_bytes": list(plateau.sizes_bytes), "values_gb_s": list(plateau.values_gb_s),
    }  # fmt: skip


def _stream_spreads(plateaus):
    """p10–p90 of the largest size of each op, where known."""
    spans = {op: plateau.ranges_gb_s[-1] for op, plateau in plateaus.items() if plateau.ranges_gb_s[-1]}
    return [
        f"{op} p10–p90 {number(low)}–{number(high)} GB/s at the largest size"
        for op, (low, high) in spans.items()
    ]
