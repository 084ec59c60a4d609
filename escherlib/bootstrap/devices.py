"""DEVICE, before anything is installed: is the word known, and has this host such a device at all?

The exact check (which card, which profile) follows in the CLI, where the YAML rules can be read.
"""

import os
import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace

from escherlib.bootstrap.console import SetupError
from escherlib.bootstrap.paths import ROOT

KIND_OF_VENDOR = {"NVIDIA": "cuda", "AMD": "rocm"}
VENDOR_OF_KIND = {kind: vendor for vendor, kind in KIND_OF_VENDOR.items()}
SMI_DEADLINE_S = 10


def detect_kind(root="/"):
    """Stack that this host's devices ask for: "cuda", "rocm" or "cpu"; from device files, at once."""
    if (Path(root) / "dev/nvidia0").exists() or (root == "/" and _smi_lists_gpus()):
        return "cuda"
    return "rocm" if (Path(root) / "dev/kfd").exists() else "cpu"


def _smi_lists_gpus():
    """For hosts without /dev/nvidia0, such as a guest whose driver lives outside."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return False
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=SMI_DEADLINE_S)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and "GPU" in done.stdout


def read_profiles(params=None):
    """Profile id → display_name, vendor, device_class of devices.yaml.

    Read by its layout, since a bare Python has no YAML parser. Empty where the file can't be read that
    way; then the CLI says what is wrong with it.
    """
    folder = params or os.environ.get("ESCHER_PARAMS")
    places = [Path(folder) / "devices.yaml"] if folder else []
    path = next((place for place in places if place.is_file()), ROOT / "parameters" / "devices.yaml")
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return {}
    block = re.search(r"^profiles:[^\n]*\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    found = {}
    for line in block[1].splitlines() if block else ():
        if entry := re.fullmatch(r"  ([\w.-]+):\s*(?:#.*)?", line):
            last = found[entry[1]] = SimpleNamespace(display_name=entry[1], vendor=None, device_class=None)
        elif found and (field := re.fullmatch(r"    (display_name|vendor|device_class): *(.+?) *", line)):
            setattr(last, field[1], field[2].strip("\"'"))
    return found


def check_device(spec, params=None, facts=None):
    """Kind of stack that DEVICE needs: "cpu", "cuda" or "rocm".

    `facts`: the host's devices (DeviceFacts), probed where not given. SetupError for an unknown word,
    or for a device that this host lacks.
    """
    from escherlib.hardware.probe import probe_devices
    from escherlib.hardware.profiles import candidates

    word = str(spec or "").strip().casefold()
    if not word:
        raise SetupError(
            "DEVICE=: empty; expected auto, cpu, cuda, rocm, a profile id, a family or part of a name"
        )
    if word == "auto":
        return detect_kind()
    if word in ("cpu", "cpu_generic"):
        return "cpu"
    profiles = read_profiles(params)
    wanted = candidates(word, profiles) if word not in VENDOR_OF_KIND else []
    facts = probe_devices() if facts is None else facts
    gpus = [device for device in facts if device.kind != "cpu"]
    named = [gpu for gpu in gpus if not wanted and fnmatchcase(gpu.name.casefold(), f"*{word}*")]
    if profiles and not wanted and not named and word not in VENDOR_OF_KIND:
        raise SetupError(
            f"DEVICE={str(spec)[:80]}: unknown device; expected auto, cpu, cuda, rocm, a family "
            f"such as h100, part of a name, or one of {', '.join(profiles)}"
        )
    if any(profiles[name].device_class == "cpu" for name in wanted):
        return "cpu"
    vendors = (
        {VENDOR_OF_KIND.get(word)}
        | {profiles[name].vendor for name in wanted}
        | {gpu.vendor for gpu in named}
    )
    present = next((gpu.vendor for gpu in gpus if gpu.vendor in vendors), None)
    if present is None:
        what = f"{VENDOR_OF_KIND[word]} GPU" if word in VENDOR_OF_KIND else "such device"
        raise SetupError(f"DEVICE={spec}: this host has no {what} ({_present(facts)}); use DEVICE=auto")
    return KIND_OF_VENDOR[present]


def _present(facts):
    gpus = [device.name or f"{device.vendor} GPU" for device in facts if device.kind != "cpu"]
    cpus = [f"CPU {' '.join(device.name.split())}" for device in facts if device.kind == "cpu"]
    return f"found: {'; '.join(gpus or ['no GPU'])}; {'; '.join(cpus or ['unknown CPU'])}"
