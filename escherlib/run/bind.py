"""What a run is bound to: device, software stack and conditions. Runs as a child, so that the parent holds no device memory."""

import json
import subprocess
import sys

from escherlib.errors import UserError
from escherlib.files import ROOT, canonical_json


def bind(spec):
    """Open the device and describe everything a run depends on. Imports torch."""
    import torch

    from escherlib.hardware.device import open_device
    from escherlib.hardware.environment import capture, conditions

    device = open_device(spec)
    stack = {
        "kind": device.stack,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "python": ".".join(map(str, sys.version_info[:2])),
    }
    return {"device": device.to_json(), "stack": stack, "conditions": conditions(device), "env": capture(device)}


def bind_in_child(spec, prefix=()):
    """The same from a process of its own. UserError with the child's one line where the device cannot be had."""
    command = [*prefix, sys.executable, "-m", "escherlib.run.bind", spec]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: not found; install it (NUMACTL needs numactl) or leave the switch out") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"DEVICE={spec}: opening the device took over 120 s; check the driver with `make doctor`") from None
    if child.returncode != 0:
        lines = [line for line in child.stderr.strip().splitlines() if line.strip()] or ["no message"]
        raise UserError(lines[-1])
    return json.loads(child.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    try:
        print(canonical_json(bind(sys.argv[1])))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
