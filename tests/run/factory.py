"""A small run folder on this CPU host, for tests of the run engine."""

from escherlib.files import write_json
from escherlib.method import method
from escherlib.parameters import load_workload
from escherlib.run import directory

CALLS = []


def make_run(root, families=("01_bf16_compute",), parameters=None, device=None, **more):
    """Create a run whose device is this host's CPU; the identity hash is made up."""
    device = {"kind": "cpu", "stack": "cpu", "name": "test host", "profile": None, "sha": "test", "asked": "cpu"} | (device or {})
    binding = {"device": device, "stack": {"torch": "test"}, "conditions": {}}
    resolved = {family: (parameters or {}) for family in families}
    manifest = directory.manifest_for("test-run", "smoke", load_workload("smoke"), binding, resolved, **more)
    write_json(root / "run.json", manifest)
    (root / "records").mkdir(exist_ok=True)
    return root


@method(version=1)
def count(device, *, n, state="sustained"):
    """A measuring function that notes its calls."""
    CALLS.append(n)
    return {"states": {state: {"median_s": 0.5, "n": n, "windows_ns": []}}, "flop": n}
