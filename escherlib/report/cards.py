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

ENVIRONMENT, COMPUTE = "00_environment", "01_bf16_compute"
BANDWIDTH, CAPACITY = "02_memory_bandwidth", "03_memory_capacity"
OPS, E2E = "04_workload_ops", "05_e2e_mfu"
SUSTAINED, STABILITY = "07_sustained", "09_numerical_stability"


def system_card(results):
    """Which machine, which software, under which conditions."""
    pairs = [*_device_pairs(results), *_software_pairs(results), *_condition_pairs(results)]
    return Card(
        "system",
        "This machine",
        pairs=tuple((name, str(value)) for name, value in pairs if value not in (None, "", [])),
    )


def _device_pairs(results):
    device, profile, power = results.device, results.profile, (results.env or {}).get("power") or {}
    cpu = results.kind == "cpu"
    how = f" (matched by {device['how']})" if profile is not None and device.get("how") else ""
    memory, units = device.get("memory_bytes"), device.get("compute_units")
    kind = "usable CPUs" if cpu else (profile and profile.compute_unit_kind) or "compute units"
    caches = [("L2", device.get("l2_bytes")), ("last level", device.get("llc_bytes"))]
    type_ = f" {profile.memory_type}" if profile and profile.memory_type and not cpu else ""
    default = power.get("cap_default_w")
    lowered = f" (default {number(default)} W)" if default and default != power.get("cap_w") else ""
    architecture = (profile.architecture if profile is not None else None, device.get("arch"))
    return [
        ("device", f"{device.get('name')} ({'CPU host' if cpu else 'GPU'})"),
        ("profile", f"{profile.display_name}{how}" if profile else "none known: no rated value is used"),
        ("architecture", " · ".join(filter(None, architecture))),
        ("compute", f"{units} {kind}" if units else None),
        ("memory", f"{number(memory / GIB)} GiB{type_}" if memory else None),
        ("caches", ", ".join(f"{name} {bytes_text(size)}" for name, size in caches if size)),
        ("power cap", f"{number(power['cap_w'])} W{lowered}" if power.get("cap_w") else None),
        ("peak dtype", device.get("peak_dtype")),
        ("notes", "; ".join(device.get("notes") or [])),
    ]


def _software_pairs(results):
    stack, env = results.manifest.get("stack", {}), results.env or {}
    named = (("torch", "torch"), ("CUDA", "cuda"), ("HIP", "hip"), ("Python", "python"))
    versions = [f"{name} {stack[key]}" for name, key in named if stack.get(key)]
    host, system = env.get("host") or {}, env.get("system") or {}
    cpus = f"{host['model_name']}, {host.get('usable_cpus')} usable CPUs" if host.get("model_name") else None
    container = f"in {system['container']}" if system.get("container") else None
    return [
        ("software", ", ".join(versions)),
        ("driver", env.get("driver")),
        ("host CPU", cpus if results.kind == "gpu" else None),
        ("system", ", ".join(filter(None, (system.get("os"), system.get("kernel"), container)))),
    ]


def _condition_pairs(results):
    conditions = results.manifest.get("conditions", {})
    told = [f"{name.replace('_', ' ')} {_short(value)}" for name, value in conditions.items() if value]
    run = f"{results.manifest.get('id')} · suite {results.manifest.get('suite')}"
    model = results.manifest.get("reference_model") or {}
    named = " · ".join(filter(None, (model.get("id"), model.get("hub"), model.get("licence"))))
    return [("conditions", ", ".join(told)), ("reference model", named), ("run", run)]


def _short(value):
    text = ", ".join(map(str, value)) if isinstance(value, (list, dict)) else str(value)
    return text if len(text) <= 40 else text[:37] + "…"


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
    if results.kind == "cpu" and profile is not None and profile.cpu is not None:
        return _core_ceiling(results, profile, dtype)
    rated = profile.rated_tflops(dtype) if profile else None
    published = profile.achievable.get(f"{dtype}_tflops") if profile else None
    memory = profile.memory_bandwidth_gb_s if profile else None
    return (
        (f"rated {dtype}, dense", _rated(profile, rated, "TFLOP/s", f"{dtype} rate")),
        ("published as achievable", _published(published, rated, "TFLOP/s")),
        ("rated ridge", rated and memory and f"{number(1e3 * rated / memory)} FLOP/byte"),
        ("basis", profile.rated_basis if rated else None),
    )


def _core_ceiling(results, profile, dtype):
    """What one core is rated at, and the host at its base clock; the clock it holds is not known before measuring."""
    rate = getattr(profile.cpu, f"{dtype}_flop_per_cycle", None)
    units = results.device.get("compute_units")
    return (
        (
            f"rated {dtype}",
            f"{rate} FLOP per cycle and core" if rate else f"the profile states no {dtype} rate",
        ),
        ("rated for this host", _rated_host(profile, dtype)),
        ("usable CPUs", str(units) if units else None),
    )


def _rated_host(profile, dtype):
    rated = profile.rated_tflops(dtype)
    return f"{quantity(rated, 'TFLOP/s')}: {profile.rated_basis}" if rated else f"no rated value: {profile.why_unrated(dtype)}"


def _published(value, rated, unit):
    share = f" ({100 * value / rated:.0f} % of rated)" if value and rated else ""
    return f"{number(value)} {unit}{share}" if value else None


def _bandwidth_ceiling(results):
    profile, cache = results.profile, results.device.get("llc_bytes")
    rated = profile.memory_bandwidth_gb_s if profile else None
    published = profile.achievable.get("memory_copy_gb_s") if profile else None
    word = "HBM" if memory_word(results) == "HBM" else "memory"
    socket = profile.cpu.memory_bandwidth_per_socket_gb_s if profile and profile.cpu else None
    return (
        (f"rated {word} bandwidth", None if socket else _rated(profile, rated, "GB/s", "memory bandwidth")),
        ("rated per socket", socket and f"{number(socket)} GB/s, shared with whatever else runs on it"),
        ("published for copy", _published(published, rated, "GB/s")),
        ("largest cache", bytes_text(cache) if cache else None),
    )


def _capacity_ceiling(results):
    profile, memory = results.profile, results.device.get("memory_bytes")
    stated = profile.memory_capacity_gb if profile else None
    return (
        ("installed", memory and f"{number(memory / GIB)} GiB"),
        ("data sheet", stated and f"{number(stated)} GB"),
    )


def _environment_ceiling(results):
    """All that is promised of this device: the first lines of each family, and the power it may draw."""
    profile = results.profile
    others = [name for name in ("fp16", "fp8", "tf32", "fp32") if profile and profile.rated_tflops(name)]
    told = ", ".join(f"{name} {number(profile.rated_tflops(name))} TFLOP/s" for name in others)
    return (
        *_compute_ceiling(results),
        ("other formats", told),
        *_bandwidth_ceiling(results)[:2],
        *_capacity_ceiling(results),
        ("rated power", profile and profile.tdp_w and f"{number(profile.tdp_w)} W"),
    )


def _chunk_ceiling(results):
    """What one chunk must cost under the roofs of this run, and under the rated ones."""
    from escherlib.accounting import paths, roofline
    from escherlib.judge.roofs import read_roofs
    from escherlib.parameters import workload_from_dict

    workload, roofs = workload_from_dict(results.manifest["workload"]), read_roofs(results)
    flop, moved = paths.forward_flop(workload, "optimized"), paths.forward_bytes(workload, "optimized")
    shown = [
        ("FLOP of a chunk", f"{number(flop / 1e12)} TFLOP in {workload.blocks} blocks"),
        ("bytes of a chunk", f"{number(moved / 1e9)} GB (optimized path), {number(flop / moved)} FLOP/byte"),
    ]
    pairs = (
        ("at the measured roofs", roofs.sustained.value, roofs.memory.value),
        ("at the rated roofs", roofs.rated_tflops, roofs.rated_memory_gb_s),
    )
    for name, peak, memory in pairs:
        if peak and memory:
            kernels = paths.kernels(workload, "optimized")
            least = sum(k.count * roofline.floor_s(k.flop, k.nbytes, peak, memory) for k in kernels)
            shown.append((f"least time {name}", f"{number(1e3 * least)} ms"))
    wanted = (("sustained peak", roofs.sustained), ("memory roof", roofs.memory))
    lacking = [f"{what}: {roof.reason}" for what, roof in wanted if not roof.value]
    return (*shown, ("not known", "; ".join(lacking)))


def _held_ceiling(results):
    """What bounds a long run: the peaks of this run, and the power the device may draw."""
    from escherlib.judge.roofs import read_roofs

    roofs, profile = read_roofs(results), results.profile
    power = profile and profile.tdp_w
    return (
        ("burst peak", roofs.burst.value and f"{number(roofs.burst.value)} TFLOP/s"),
        ("sustained peak", roofs.sustained.value and f"{number(roofs.sustained.value)} TFLOP/s"),
        ("rated power", power and f"{number(power)} W"),
        ("not known", None if roofs.sustained.value else roofs.sustained.reason),
    )


def _error_ceiling(results):
    """What the bound allows each format, and how much of it at the deepest K on typical normal operands."""
    from escherlib.accounting import error_bounds

    asked = results.manifest.get("parameters", {}).get(STABILITY, {})
    k, shown = max(asked.get("k_values", [4096])), []
    for dtype in asked.get("dtypes", []):
        matrix_unit = results.kind == "gpu" and dtype != "fp32"
        rounding, accumulation = error_bounds.typical(dtype, k, matrix_unit)
        u, gamma = error_bounds.power_text(error_bounds.UNIT_ROUNDOFF[dtype]), error_bounds.formula(dtype, matrix_unit)
        allowed = f"at K = {k} on average {number(rounding)} for rounding, {number(accumulation)} for accumulation"
        shown.append((dtype, f"u = {u}, γ = {gamma}; {allowed}"))
    return tuple(shown)


CEILINGS = {
    ENVIRONMENT: _environment_ceiling,
    COMPUTE: _compute_ceiling,
    BANDWIDTH: _bandwidth_ceiling,
    CAPACITY: _capacity_ceiling,
    OPS: _chunk_ceiling,
    E2E: _chunk_ceiling,
    SUSTAINED: _held_ceiling,
    STABILITY: _error_ceiling,
}


def takeaway(results, family):
    """What a reader should remember of a family: the sentences its summary keeps as findings."""
    if family not in SUMMARIES or not results.rows(family):
        return not_measured(f"Takeaway: {family_title(results, family)}", family_reason(results, family))
    sentences = tuple(sentence(text) for text in takeaway_sentences(results, family))
    return Card("takeaway", "What to remember", sentences or ("Nothing was found.",))


def audit(results):
    """What makes a number of family 5 doubtful, each with its figures; or that nothing does."""
    from escherlib.judge.e2e import audit as findings
    from escherlib.judge.workload import read_ops, timed_workload
    from escherlib.report.tables_e2e import read

    roofs, scopes, scoring = read(results)
    if not any(scope.ok for scope in scopes.values()):
        return not_measured("Audit", family_reason(results, E2E))
    timed = timed_workload(results)
    ops = {path: read_ops(results, timed, roofs, path, scoring) for path in ("default", "optimized")}
    found = findings(scopes, ops, roofs, scoring)
    if not found:
        return Card("system", "Audit: nothing is too good to be true", AUDITED)
    return Card("failed", "Audit: read before quoting", tuple(sentence(text) for text in found))


AUDITED = (
    "No scope is above the rated or the sustained peak.",
    "No chunk is faster than its matrix kernels alone, or than the least times of its kernels.",
    "The brackets agree with each other and with the sustained peak; total time and median chunk agree.",
)

__all__ = ["audit", "ceiling_card", "system_card", "takeaway"]
