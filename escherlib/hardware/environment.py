"""What a run is made under: `capture` for env.json, `conditions` for what a run is bound to.

No serial number, UUID, host name, user name or secret is among it (see scrub.py).
"""

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from escherlib.hardware.driver import gpu_state
from escherlib.hardware.host import host_facts
from escherlib.hardware.scrub import safe_variables, scrub
from escherlib.hardware.sysfs import format_cpus, read_text

SCHEMA = 1
PACKAGES = {
    "torch", "triton", "pytorch-triton-rocm", "numpy", "scipy", "pandas", "altair", "vl-convert-python",
    "papermill", "nbconvert", "nbclient", "jupyterlab", "ipykernel", "pydantic", "weasyprint", "psutil",
    "nvidia-ml-py", "amdsmi", "flash-attn", "flash-attn-4", "aiter", "amd-aiter", "iris",
    "flashinfer-python", "quack-kernels", "mkl", "intel-openmp",
}  # fmt: skip
LIBRARIES = re.compile(r"nvidia-(cublas|cudnn|nccl|cuda-runtime|nvshmem)\b.*|rocm-sdk.*")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
KNOBS = {
    "numa_balancing": "proc/sys/kernel/numa_balancing",
    "zone_reclaim_mode": "proc/sys/vm/zone_reclaim_mode",
    "swappiness": "proc/sys/vm/swappiness",
    "huge_pages": "proc/sys/vm/nr_hugepages",
    "smt": "sys/devices/system/cpu/smt/control",
    "governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "frequency_driver": "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    "boost": "sys/devices/system/cpu/cpufreq/boost",
    "no_turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
}
CHOICES = {
    "transparent_huge_pages": "sys/kernel/mm/transparent_hugepage/enabled",
    "huge_page_defrag": "sys/kernel/mm/transparent_hugepage/defrag",
}
CONTAINERS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc"}


def capture(device, root="/"):
    """Everything env.json holds about one opened device and its host. Never raises for what can't be read."""
    state = gpu_state(device.stack, device.smi_key, device.bdf, root)
    gpu = {name: value for name, value in state.items() if name not in ("driver", "power", "modes")}
    return {
        "schema": SCHEMA,
        "captured": datetime.now(UTC).isoformat(timespec="seconds"),
        "driver": state["driver"],
        "power": state["power"],
        "gpu": {"visible_devices": _gpu_count(), **state["modes"], **gpu} if device.kind == "gpu" else {},
        "software": software(),
        "system": system(root),
        "host": host_facts(root),
        "knobs": knobs(root),
        "variables": safe_variables(),
    }


def conditions(device, environ=None, root="/"):
    """What must stay the same while a run goes on, as JSON values; equal conditions compare equal."""
    import torch

    environ = os.environ if environ is None else environ
    return {
        "affinity": format_cpus(_affinity()),
        "memory_policy": memory_policy(root),
        "threads": torch.get_num_threads(),
        "omp_num_threads": environ.get("OMP_NUM_THREADS") or None,
        "mkl_num_threads": environ.get("MKL_NUM_THREADS") or None,
        "visible_devices": visible_devices(environ),
        "power_cap_w": gpu_state(device.stack, device.smi_key, device.bdf, root)["power"]["cap_w"],
    }


def visible_devices(environ):
    """The variables that hide or renumber GPUs, UUIDs hashed; None where none is set."""
    return {name: scrub(environ[name], environ) for name in VISIBLE if name in environ} or None


def software():
    """Versions of what the numbers depend on."""
    import torch

    config = torch.__config__.show()
    cuda = torch.version.cuda or torch.version.hip
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if cuda and torch.backends.cudnn.is_available() else None,
        "nccl": _nccl(torch) if cuda else None,
        "blas": _found(r"BLAS_INFO=(\w+)", config),
        "mkl": _found(r"Math Kernel Library Version (\S+)", config),
        "onednn": _found(r"(?:oneDNN|MKL-DNN\)?) v(\S+)", config),
        "compiler": _found(r"(?:GCC|clang) (\S+)", config),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpu_blas": str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2] if cuda else None,
        "packages": packages(),
    }


def packages():
    """{name: version} of the installed packages that matter."""
    from importlib.metadata import distributions

    found = {(d.metadata["Name"] or "").lower().replace("_", "-"): d.version for d in distributions()}
    return {name: found[name] for name in sorted(found) if name in PACKAGES or LIBRARIES.fullmatch(name)}


def system(root="/"):
    """Operating system, kernel and container."""
    root = Path(root)
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', read_text(root / "etc/os-release") or "", re.MULTILINE))
    return {
        "os": release.get("PRETTY_NAME") or platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "container": container(root),
        "shared_memory_bytes": shared_memory_bytes(root),
    }


def container(root="/"):
    """Which container this seems to be, or None. A hint: containers need not tell."""
    root = Path(root)
    if (root / "run/.containerenv").exists():
        return "podman"
    groups = (read_text(root / "proc/1/cgroup") or "") + (read_text(root / "proc/self/mountinfo") or "")
    named = next((name for word, name in CONTAINERS.items() if word in groups), None)
    return named or ("docker" if (root / ".dockerenv").exists() else None)


def knobs(root="/"):
    """Kernel switches that move bandwidth and clock; None where the kernel does not show one."""
    root = Path(root)
    plain = {name: read_text(root / path) for name, path in KNOBS.items()}
    chosen = {name: read_text(root / path) or "" for name, path in CHOICES.items()}
    return {**plain, **{name: _found(r"\[([\w+]+)\]", text) for name, text in chosen.items()}}


def memory_policy(root="/"):
    """NUMA policy of this process as numactl set it (`bind:0`, `interleave:0-1`), or None for the default."""
    try:
        with open(Path(root) / "proc/self/numa_maps") as stream:
            words = stream.readline().split()
    except OSError:
        return None
    return words[1] if len(words) > 1 and words[1] != "default" else None


def _affinity():
    try:
        return os.sched_getaffinity(0)
    except (AttributeError, OSError):
        return range(os.cpu_count() or 1)


def _gpu_count():
    import torch

    return torch.cuda.device_count()


def _nccl(torch):
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:  # a build without it
        return None


def shared_memory_bytes(root="/"):
    """Size of /dev/shm, or None."""
    try:
        found = os.statvfs(Path(root) / "dev/shm")
    except OSError:
        return None
    return found.f_frsize * found.f_blocks


def _found(pattern, text):
    match = re.search(pattern, text)
    return match[1] if match else None
