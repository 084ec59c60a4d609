"""The device that is measured: which one, what torch and the driver know of it, and which profile it has."""

import contextlib
import os
import platform
import warnings
from dataclasses import dataclass, field, replace

from escherlib.errors import UserError
from escherlib.files import sha256_text
from escherlib.hardware.cpu_clock import base_clock
from escherlib.hardware.environment import VISIBLE
from escherlib.hardware.host import host_facts, usable_threads
from escherlib.hardware.identify import DeviceFacts, Identification, identify, normal_arch
from escherlib.hardware.probe import probe_cpu, probe_devices
from escherlib.hardware.profiles import profile_for, resolve_device
from escherlib.hardware.sysfs import parse_cpus

GIB, MIB = 2**30, 2**20
NATIVE_BF16_GFX = ("gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")  # AMD matrix units with bf16
NATIVE_BF16_CUDA = (8, 0)  # compute capability of the first bf16 tensor cores
NATIVE_BF16_CPU = {"avx512_bf16", "amx_bf16", "bf16"}  # x86 flags, and the flag of Arm
WRITTEN = (
    "kind", "stack", "asked", "name", "arch", "index", "memory_bytes", "compute_units", "l2_bytes",
    "llc_bytes", "native_bf16", "peak_dtype", "pci_id", "threads", "sha",
)  # fmt: skip
OF_A_CPU = ("rated_cores", "base_clock_mhz", "base_clock_how", "isa_flags", "virtual_machine")  # what its rating rests on
CPU_STACK, CUDA_STACK, ROCM_STACK = "cpu", "cuda", "rocm"


@dataclass(frozen=True)
class Device:
    """One opened device.

    memory_bytes: what the driver (CPU: host or control group) lets a process have. l2_bytes, llc_bytes: of
    the whole device (CPU: of the usable cores together). `host`: of a CPU, what its rating rests on.
    uuid_sha, sha: hashes; the private join keys
    `smi_key` (UUID) and `bdf` are for telemetry and never written out. `threads`: CPU threads torch uses.
    """

    kind: str
    stack: str
    asked: str
    index: int | None
    torch_device: str
    name: str
    arch: str
    memory_bytes: int
    compute_units: int
    l2_bytes: int | None
    llc_bytes: int | None
    native_bf16: bool
    peak_dtype: str
    identification: Identification
    sha: str
    profile: object = field(default=None, repr=False)
    pci_id: str | None = None
    threads: int | None = None
    host: dict = field(default_factory=dict)
    uuid_sha: str | None = None
    bdf: str | None = field(default=None, repr=False)
    smi_key: str | None = field(default=None, repr=False)

    def to_json(self):
        """What run.json keeps of the device; nothing that identifies the very card apart from a hash."""
        found = self.identification
        return {
            **{name: getattr(self, name) for name in WRITTEN},
            **self.host,
            "profile": found.profile_id,
            "how": found.how,
            "notes": list(found.notes),
            "withheld": list(found.withheld),
        }


def open_device(spec="auto"):
    """Open the device that DEVICE=`spec` means and prove that torch can use it. Imports torch.

    UserError where the word fits nothing here, or where torch and the driver do not get on with the device.
    """
    import torch

    from escherlib.parameters import load_devices

    profiles = load_devices()
    spec = "auto" if spec is None else str(spec)
    gpus, trouble = torch_gpus(torch)
    cpu = probe_cpu()
    notes = () if gpus else _left_out(spec, cpu, profiles, torch, trouble)
    index, _ = resolve_device(spec, [*(facts for facts, _ in gpus), cpu], profiles)
    if index is None:
        return _open_cpu(torch, spec, cpu, profiles, notes)
    return _open_gpu(torch, spec, index, *gpus[index], profiles)


def torch_gpus(torch):
    """([(DeviceFacts, torch's properties)] in torch's order, reason if torch can use none)."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            found = [torch.cuda.get_device_properties(index) for index in range(count)]
        except (RuntimeError, AssertionError) as error:
            return [], _first_line(error)
    if not found:
        return [], _why_none(torch, [str(w.message) for w in heard])
    known = {facts.bdf: facts for facts in probe_devices(smi=lambda fields: None) if facts.bdf}
    return [(facts_of(props, _stack(torch), known), props) for props in found], None


def facts_of(props, stack, known):
    """DeviceFacts from torch's properties, completed by what sysfs (`known`: PCI address → facts) has."""
    bdf = bdf_of(props)
    base = known.get(bdf) or DeviceFacts(bdf=bdf)
    arch = props.gcnArchName if stack == ROCM_STACK else f"sm_{props.major}{props.minor}"
    return replace(
        base,
        kind="gpu",
        name=props.name or base.name,
        vendor="AMD" if stack == ROCM_STACK else "NVIDIA",
        arch=normal_arch(arch),
        memory_gib=props.total_memory / GIB,
        compute_units=props.multi_processor_count,
    )


def bdf_of(props):
    """PCI address as sysfs writes it, or None where this torch does not tell."""
    parts = [getattr(props, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    return None if None in parts else f"{parts[0]:04x}:{parts[1]:02x}:{parts[2]:02x}.0"


def uuid_of(props):
    """The device's UUID as torch gives it, or None where it says nothing (all zeros on some stacks)."""
    text = str(getattr(props, "uuid", None) or "")
    return text if text.strip("0-") else None


def native_bf16(profile, facts):
    """Whether bf16 products run on hardware made for them: the profile's word, else the capability."""
    if profile is not None:
        return profile.bf16_native
    if facts.kind == "cpu":
        return bool(NATIVE_BF16_CPU & facts.cpu_flags)
    arch = normal_arch(facts.arch) or ""
    if arch.startswith("sm_"):
        return divmod(int(arch.removeprefix("sm_")), 10) >= NATIVE_BF16_CUDA
    return arch.startswith(NATIVE_BF16_GFX)


def cpu_sha(model, cores, memory_bytes):
    """Identity of a CPU host: model, usable cores, memory limit to the GiB (kernels differ by some MB)."""
    return sha256_text(f"{model}|{cores}|{round((memory_bytes or 0) / GIB)}")


def _open_gpu(torch, spec, index, facts, props, profiles):
    from escherlib.hardware.driver import gpu_state

    stack, uuid = _stack(torch), uuid_of(props)
    state = gpu_state(stack, uuid, facts.bdf)
    facts = replace(
        facts,
        power_cap_w=state["power"]["cap_w"] or facts.power_cap_w,
        clock_mhz=state["clocks"]["max_mhz"] or facts.clock_mhz,
    )
    _prove(torch, spec, index, facts.name)
    found = identify(facts, profiles)
    profile = profile_for(found, profiles)
    native = native_bf16(profile, facts)
    l2_bytes = getattr(props, "L2_cache_size", 0) or _mib(profile, "l2_mib")
    uuid_sha = sha256_text(uuid or f"{facts.name}|{facts.bdf}|{index}")
    return Device(
        kind="gpu",
        stack=stack,
        asked=spec,
        index=index,
        torch_device=f"cuda:{index}",
        name=facts.name,
        arch=facts.arch,
        memory_bytes=props.total_memory,
        compute_units=props.multi_processor_count,
        l2_bytes=l2_bytes,
        llc_bytes=_mib(profile, "llc_mib") or l2_bytes,
        native_bf16=native,
        peak_dtype="bf16" if native else "fp16",
        identification=replace(found, notes=(*found.notes, *_overrides(stack))),
        sha=sha256_text(uuid_sha),
        profile=profile,
        pci_id=facts.pci_id,
        uuid_sha=uuid_sha,
        bdf=facts.bdf,
        smi_key=uuid,
    )


def _open_cpu(torch, spec, facts, profiles, notes):
    host = host_facts()
    threads = min(usable_threads(host), _wanted_threads())
    torch.set_num_threads(threads)
    facts = replace(facts, compute_units=host["usable_cores"] or host["usable_cpus"])
    found = identify(facts, profiles)
    profile = profile_for(found, profiles)
    native = native_bf16(profile, facts)
    clock_mhz, how = base_clock(parse_cpus(host["allowed_cpus"]))
    return Device(
        kind="cpu",
        stack=CPU_STACK,
        asked=spec,
        index=None,
        torch_device="cpu",
        name=" ".join(facts.name.split()) or "unnamed CPU",
        arch=platform.machine(),
        memory_bytes=host["memory_limit_bytes"],
        compute_units=facts.compute_units,
        l2_bytes=host["l2_bytes"],
        llc_bytes=host["llc_bytes"] or _mib(profile, "llc_mib") or host["l2_bytes"],
        native_bf16=native,
        peak_dtype="bf16" if native else "fp32",
        identification=replace(found, notes=(*found.notes, *notes)),
        sha=cpu_sha(facts.name, facts.compute_units, host["memory_limit_bytes"]),
        profile=profile,
        threads=threads,
        host=dict(zip(OF_A_CPU, (host["usable_cores"], clock_mhz, how, host["isa_flags"], host["virtual_machine"]), strict=True)),
    )


def _stack(torch):
    return ROCM_STACK if torch.version.hip else CUDA_STACK


def _prove(torch, spec, index, name):
    """Make the context and one tensor: a lost, reset or exclusively held device shows here."""
    try:
        torch.cuda.set_device(index)
        torch.zeros(1, device=f"cuda:{index}").add_(1).item()
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"DEVICE={spec}: {name} does not answer ({_first_line(error)}); expected a free, healthy device: "
            f"see what nvidia-smi or amd-smi says, free or reset it, or use DEVICE=cpu"
        ) from None


def _left_out(spec, cpu, profiles, torch, trouble):
    """Remarks on GPUs that torch can't use. UserError where `spec` means one of them, not the CPU."""
    present = probe_devices()
    gpus = [facts for facts in present if facts.kind != "cpu"]
    index, profile_id = resolve_device(spec, [*gpus, cpu], profiles)
    if index is None:
        return ()
    name = gpus[index].name or (profiles[profile_id].display_name if profile_id else "a GPU")
    if profile_id is None and spec.strip().casefold() == "auto":  # a display adapter, say
        return (f"left out: {name}, since {trouble}",)
    raise UserError(
        f"DEVICE={spec}: this host has {name}, but {trouble}; install a torch build that fits it "
        f"(`make setup TORCH=auto`, then `make doctor`), or use DEVICE=cpu"
    )


def _why_none(torch, heard):
    """Why torch sees no GPU."""
    if not (torch.version.cuda or torch.version.hip):
        return f"torch {torch.__version__} is built for CPUs only"
    hidden = [name for name in VISIBLE if name in os.environ]
    if heard:
        return f"torch {torch.__version__} cannot use it ({_first_line(heard[0])})"
    if hidden:
        return f"{' and '.join(hidden)} hides every GPU from torch"
    return f"torch {torch.__version__} finds no usable driver for it"


def _overrides(stack):
    """Remarks on variables that change what the device claims to be."""
    value = os.environ.get("HSA_OVERRIDE_GFX_VERSION") if stack == ROCM_STACK else None
    return (f"HSA_OVERRIDE_GFX_VERSION={value}: the architecture is a claim",) if value else ()


def _wanted_threads():
    """OMP_NUM_THREADS where the user set it: fewer threads than cores are a choice."""
    with contextlib.suppress(ValueError):
        return max(1, int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0]))
    return 2**20


def _mib(profile, name):
    size = getattr(profile, name, None) if profile is not None else None
    return int(size * MIB) if size else None


def _first_line(error):
    return (str(error).strip().splitlines() or ["no message"])[0][:160].rstrip(".")
