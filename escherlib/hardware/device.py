"""The device that is measured: opened through torch, identified, and described without anything private."""

import os
from dataclasses import dataclass, field, replace

from escherlib.errors import UserError
from escherlib.files import sha256_text
from escherlib.hardware.identify import DeviceFacts, identify
from escherlib.hardware.probe import probe_cpu, probe_devices
from escherlib.hardware.profiles import profile_for, resolve_device

NATIVE_BF16_GFX = ("gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")
NATIVE_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
PRIVATE = ("profile", "smi_key", "bdf")


@dataclass(frozen=True)
class Device:
    """One opened device. `profile` holds its rated figures (or None); `smi_key` joins telemetry and is never written."""

    kind: str
    stack: str
    index: int
    torch_device: str
    name: str
    arch: str | None
    memory_bytes: int
    compute_units: int
    l2_bytes: int | None
    llc_bytes: int | None
    native_bf16: bool
    peak_dtype: str
    sha: str
    threads: int | None = None
    how: str = ""
    notes: tuple = ()
    withheld: tuple = ()
    profile_id: str | None = None
    bdf: str | None = None
    profile: object = field(default=None, repr=False)
    smi_key: str | None = field(default=None, repr=False)

    def to_json(self):
        """What run.json holds of the device: no UUID, no bus address."""
        kept = {name: value for name, value in self.__dict__.items() if name not in PRIVATE}
        return {**kept, "profile": kept.pop("profile_id"), "notes": list(self.notes), "withheld": list(self.withheld)}


def open_device(spec="auto"):
    """Open the device that DEVICE means. UserError where this host or this torch does not have it."""
    import torch

    from escherlib.parameters import load_devices

    profiles = load_devices()
    facts = probe_devices()
    index, _ = resolve_device(spec, facts, profiles)
    if index is None:
        return _open_cpu(profiles)
    gpus = [f for f in facts if f.kind != "cpu"]
    if not torch.cuda.is_available():
        raise UserError(
            f"DEVICE={spec}: torch {torch.__version__} cannot use {gpus[index].name or 'the GPU'}; "
            "run `make doctor`, or measure the host with DEVICE=cpu"
        )
    return _open_gpu(_ordinal(gpus[index], torch), gpus[index], profiles)


def _ordinal(facts, torch):
    """torch's number of a GPU, joined by bus address; 0 where torch does not tell addresses."""
    for ordinal in range(torch.cuda.device_count()):
        if facts.bdf and bus_address(torch.cuda.get_device_properties(ordinal)) == facts.bdf.lower()[-7:]:
            return ordinal
    return 0


def bus_address(properties):
    """`bb:dd.0` of a torch device, or None."""
    bus, slot = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    return None if bus is None or slot is None else f"{bus:02x}:{slot:02x}.0"


def _open_gpu(ordinal, probed, profiles):
    import torch

    properties = torch.cuda.get_device_properties(ordinal)
    rocm = torch.version.hip is not None
    arch = getattr(properties, "gcnArchName", "").split(":")[0] if rocm else f"sm_{properties.major}{properties.minor}"
    facts = replace(
        probed, name=properties.name or probed.name, arch=arch, memory_gib=properties.total_memory / 2**30,
        compute_units=properties.multi_processor_count, kind="gpu", vendor="AMD" if rocm else "NVIDIA",
    )  # fmt: skip
    found = identify(facts, profiles)
    profile = profile_for(found, profiles)
    l2 = getattr(properties, "L2_cache_size", None)
    llc = max(l2 or 0, *((profile.llc_mib or 0) * 2**20, (profile.l2_mib or 0) * 2**20) if profile else (0,)) or None
    native = profile.bf16_native if profile else _gpu_bf16(rocm, arch, properties)
    uuid = str(getattr(properties, "uuid", "") or facts.bdf or f"{properties.name}-{ordinal}")
    return Device(
        kind="gpu", stack="rocm" if rocm else "cuda", index=ordinal, torch_device=f"cuda:{ordinal}", name=facts.name,
        arch=arch, memory_bytes=properties.total_memory, compute_units=properties.multi_processor_count, l2_bytes=l2,
        llc_bytes=llc, native_bf16=bool(native), peak_dtype="bf16" if native else "fp16", sha=sha256_text(uuid),
        how=found.how, notes=found.notes, withheld=found.withheld, profile_id=found.profile_id, bdf=facts.bdf,
        profile=profile, smi_key=uuid,
    )  # fmt: skip


def _gpu_bf16(rocm, arch, properties):
    return arch.startswith(NATIVE_BF16_GFX) if rocm else properties.major >= 8


def _open_cpu(profiles):
    import torch

    from escherlib.hardware.host import host_facts

    host = host_facts()
    facts = probe_cpu() or DeviceFacts(kind="cpu")
    found = identify(facts, profiles)
    profile = profile_for(found, profiles)
    threads = host["usable_cpus"]
    torch.set_num_threads(threads)
    native = profile.bf16_native if profile else bool(NATIVE_BF16_FLAGS & set(facts.cpu_flags))
    return Device(
        kind="cpu", stack="cpu", index=0, torch_device="cpu", name=facts.name or host["model_name"] or "CPU host",
        arch=os.uname().machine, memory_bytes=host["memory_limit_bytes"], compute_units=threads, l2_bytes=None,
        llc_bytes=host["llc_bytes"], native_bf16=bool(native), peak_dtype="bf16" if native else "fp32",
        sha=sha256_text(f"{facts.name}|{threads}|{host['memory_limit_bytes']}"), threads=threads, how=found.how,
        notes=found.notes, withheld=found.withheld, profile_id=found.profile_id, profile=profile,
    )  # fmt: skip


