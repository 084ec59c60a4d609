"""The rated compute of a CPU host: what its profile states per core and cycle × its usable cores × their base clock."""

FMA = {"avx2", "avx512f", "fma", "asimd", "sve"}
# kind of arithmetic → instruction sets that give its rate; a profile names those that its own cores have
NEEDED = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"}, "int8": {"avx512_vnni", "avx_vnni", "amx_int8", "i8mm"},
    "fp32": FMA, "fp64": FMA,
}  # fmt: skip


def on_host(profile, device):
    """The profile with `rated` filled in for one CPU host, or with `unrated`: why it has none. GPUs stay as they are.

    `device` is what run.json says: base_clock_mhz and base_clock_how, rated_cores, isa_flags, virtual_machine. A rate
    holds only where this host shows the instructions it needs. TFLOP/s (int8: TOP/s).
    """
    if profile.cpu is None:
        return profile
    stated, why = per_cycle(profile.cpu), _missing(device)
    if why:
        return profile.model_copy(update={"unrated": dict.fromkeys(stated, why)})
    cores, mhz = device["rated_cores"], device["base_clock_mhz"]
    hidden = {kind: lacks(profile.cpu, kind, device.get("isa_flags") or ()) for kind in stated}
    rated = {
        f"{kind}_{'tops' if kind == 'int8' else 'tflops'}": rate * cores * mhz / 1e6
        for kind, rate in stated.items() if not hidden[kind]
    }  # fmt: skip
    shown = " as the virtual machine shows them" if device.get("virtual_machine") else ""
    basis = f"FLOP per cycle and core × {cores} usable cores{shown} × {mhz:g} MHz ({device['base_clock_how']})"
    unrated = {kind: f"this host does not show {', '.join(flags)}" for kind, flags in hidden.items() if flags}
    return profile.model_copy(update={"rated": rated, "rated_basis": basis, "unrated": unrated})


def per_cycle(core):
    """{kind of arithmetic: operations per cycle and core} that a profile states."""
    stated = {
        "bf16": core.bf16_flop_per_cycle, "fp32": core.fp32_flop_per_cycle, "fp64": core.fp64_flop_per_cycle,
        "int8": core.int8_op_per_cycle,
    }  # fmt: skip
    return {kind: rate for kind, rate in stated.items() if rate}


def lacks(core, kind, isa_flags):
    """Instruction sets that a rate of this profile needs and a host does not show."""
    return [flag for flag in core.isa_flags if flag in NEEDED[kind] and flag not in isa_flags]


def _missing(device):
    """What of a host is not known, as a phrase, or None."""
    if "base_clock_how" not in device:
        return "this run does not record the clock of its CPU"
    if not device.get("base_clock_mhz"):
        return device["base_clock_how"]
    if not device.get("rated_cores"):
        return "the number of cores that may be used is not known"
    return None
