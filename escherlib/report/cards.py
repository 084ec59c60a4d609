"""Cards of a family notebook: which machine, which ceiling, what came out. All text is generated."""

from escherlib.judge.headlines import SUMMARIES
from escherlib.judge.headlines import takeaway as takeaway_sentences
from escherlib.report.display import Card, not_measured
from escherlib.report.facts import (
    GIB,
    bytes_text,
    family_reason,
    family_title,
    memory_word,
    number,
    quantity,
    sentence,
)

COMPUTE, BANDWIDTH, CAPACITY = "01_bf16_compute", "02_memory_bandwidth", "03_memory_capacity"


def system_card(results):
    """Which machine, which software, under which conditions."""
    pairs = [*_device_pairs(results), *_software_pairs(results), *_condition_pairs(results)]
    return Card(
        "system",
        "This machine",
        pairs=tuple((name, str(value)) for name, value in pairs if value not in (None, "", [])),
    )


def _device_pairs(results):
    device, profile = results.device, results.profile
    reported = device.get("name")
    matched = profile.display_name if profile is not None else "none known: no rated value is used"
    how = f" (matched by {device['how']})" if profile is not None and device.get("how") else ""
    memory = device.get("memory_bytes")
    caches = [
        f"{name} {bytes_text(device[key])}"
        for name, key in (("L2", "l2_bytes"), ("last level", "llc_bytes"))
        if device.get(key)
    ]
    units = device.get("compute_units")
    kind = profile.compute_unit_kind if profile is not None and profile.compute_unit_kind else "compute units"
    return [
        ("device", f"{reported} ({'CPU host' if results.kind == 'cpu' else 'GPU'})"),
        ("profile", f"{matched}{how}"),
        (
            "architecture",
            " · ".join(str(v) for v in (profile and profile.architecture, device.get("arch")) if v),
        ),
        ("compute", f"{units} {kind}" if units else None),
        (
            "memory",
            f"{number(memory / GIB)} GiB"
            + (f" {profile.memory_type}" if profile and profile.memory_type else "")
            if memory
            else None,
        ),
        ("caches", ", ".join(caches)),
        ("peak dtype", device.get("peak_dtype")),
        ("notes", "; ".join(device.get("notes") or [])),
    ]


def _software_pairs(results):
    stack = results.manifest.get("stack", {})
    versions = [
        f"{name} {stack[key]}"
        for name, key in (("torch", "torch"), ("CUDA", "cuda"), ("HIP", "hip"), ("Python", "python"))
        if stack.get(key)
    ]
    env = results.env or {}
    driver = _first(
        env, ("driver",), ("device", "driver"), ("software", "driver"), ("device", "driver_version")
    )
    host = _first(env, ("host", "model_name"), ("host", "model"), ("host", "cpu_model"))
    return [
        ("software", ", ".join(versions)),
        ("driver", driver),
        ("host CPU", host if results.kind == "gpu" else None),
    ]


def _condition_pairs(results):
    conditions = results.manifest.get("conditions", {})
    told = [
        f"{name.replace('_', ' ')} {_short(value)}"
        for name, value in conditions.items()
        if value not in (None, "", [], {})
    ]
    return [
        ("conditions", ", ".join(told)),
        ("run", f"{results.manifest.get('id')} · suite {results.manifest.get('suite')}"),
    ]


def _short(value):
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _first(tree, *paths):
    for path in paths:
        node = tree
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        if node and not isinstance(node, (dict, list)):
            return node
    return None


def ceiling_card(results, family):
    """What physics and the data sheet allow, known before anything is measured."""
    pairs = CEILINGS.get(family, lambda _: ())(results)
    pairs = tuple((name, value) for name, value in pairs if value)
    if not pairs:
        return Card("ceiling", "Known before measuring", ("No ceiling applies to this family.",))
    return Card("ceiling", "Known before measuring", pairs=pairs)


def _rated(profile, value, unit, what):
    if profile is None:
        return "no rated value: the device has no profile"
    return quantity(value, unit) if value else f"no rated value: the profile {profile.id} states no {what}"


def _compute_ceiling(results):
    profile, dtype = results.profile, results.device.get("peak_dtype") or "bf16"
    rated = profile.rated_tflops(dtype) if profile else None
    published = profile.achievable.get(f"{dtype}_tflops") if profile else None
    memory = profile.memory_bandwidth_gb_s if profile else None
    return (
        (f"rated {dtype}, dense", _rated(profile, rated, "TFLOP/s", f"{dtype} rate")),
        (
            "published as achievable",
            published and f"{number(published)} TFLOP/s ({100 * published / rated:.0f} % of rated)"
            if rated
            else None,
        ),
        ("rated ridge", rated and memory and f"{number(1e3 * rated / memory)} FLOP/byte"),
        ("basis", profile.rated_basis if rated else None),
    )


def _bandwidth_ceiling(results):
    profile = results.profile
    rated = profile.memory_bandwidth_gb_s if profile else None
    published = profile.achievable.get("memory_copy_gb_s") if profile else None
    share = f" ({100 * published / rated:.0f} % of rated)" if published and rated else ""
    return (
        (
            f"rated {'HBM' if memory_word(results) == 'HBM' else 'memory'} bandwidth",
            _rated(profile, rated, "GB/s", "memory bandwidth"),
        ),
        ("published for copy", published and f"{number(published)} GB/s{share}"),
        (
            "largest cache",
            bytes_text(results.device["llc_bytes"]) if results.device.get("llc_bytes") else None,
        ),
    )


def _capacity_ceiling(results):
    profile, memory = results.profile, results.device.get("memory_bytes")
    return (
        ("installed", memory and f"{number(memory / GIB)} GiB"),
        ("data sheet", profile and profile.memory_capacity_gb and f"{number(profile.memory_capacity_gb)} GB"),
    )


CEILINGS = {COMPUTE: _compute_ceiling, BANDWIDTH: _bandwidth_ceiling, CAPACITY: _capacity_ceiling}


def takeaway(results, family):
    """What a reader should remember of a family: the sentences its summary keeps as findings."""
    if family not in SUMMARIES or not results.rows(family):
        return not_measured(f"Takeaway: {family_title(results, family)}", family_reason(results, family))
    sentences = tuple(sentence(text) for text in takeaway_sentences(results, family))
    return Card("takeaway", "What to remember", sentences or ("Nothing was found.",))


__all__ = ["ceiling_card", "system_card", "takeaway"]
