"""Where runs live, what binds a run to its machine, and how a run is found again."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from escherlib.errors import UserError
from escherlib.files import ROOT, read_json, write_json
from escherlib.run.records import SCHEMA, now_text


def results_root(results_dir=None):
    """Folder that holds the runs: argument, else RESULTS_DIR, else executed/ of the project."""
    return Path(results_dir or os.environ.get("RESULTS_DIR") or ROOT / "executed").expanduser().absolute()


def require_writable(root):
    """UserError unless runs can be created below `root`; leaves nothing behind."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"results folder {root}: cannot be written ({error.strerror}); give a writable folder with RESULTS_DIR="
        ) from None


def commit_of(root=ROOT):
    """Commit of the project, with `-dirty` where files differ from it; None outside git."""
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"],
            capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def is_example(path):
    """True for the tracked example runs, which are read and never written by a measurement."""
    return (ROOT / "executed" / "examples") in Path(path).absolute().parents


def manifest_for(run_id, suite, workload, binding, parameters, **more):
    """Content of a new run.json; `binding` is what escherlib.run.bind found: device, stack, conditions."""
    return {
        "schema": SCHEMA,
        "id": run_id,
        "created": now_text(),
        "commit": commit_of(),
        "suite": suite,
        "workload": {**workload.model_dump(mode="json"), "sha": workload.sha},
        "device": binding["device"],
        "stack": binding["stack"],
        "conditions": binding["conditions"],
        "parameters": parameters,
        "families": {},
        **more,
    }


def new_run_id(workload_name, device):
    """`<workload>-<device>-<YYYYMMDD-HHMMSS>`; the device is its profile id, else its stack."""
    label = (device.get("profile") or device["stack"]).replace("_", "-")
    return f"{workload_name}-{label}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def create(root, manifest, env):
    """Make the run folder with run.json and env.json; a name already taken gets a number."""
    require_writable(root)
    base = manifest["id"]
    for serial in range(1, 100):
        run_id = base if serial == 1 else f"{base}-{serial}"
        try:
            (root / run_id).mkdir()
        except FileExistsError:
            continue
        write_json(root / run_id / "env.json", env)
        write_json(root / run_id / "run.json", {**manifest, "id": run_id})
        return root / run_id
    raise UserError(f"{root / base}: a hundred runs of this name exist; remove some")


def update_manifest(run_path, change):
    """Apply `change(manifest)` to run.json atomically. The suite alone calls this once a run is under way."""
    manifest = read_json(run_path / "run.json")
    change(manifest)
    write_json(run_path / "run.json", manifest)
    return manifest


def differences(manifest, binding):
    """What moved between a run and the machine it would be resumed on: list of `name: was → is`."""
    found = []
    if manifest["device"].get("sha") != binding["device"].get("sha"):
        found.append(f"device: {manifest['device'].get('name')} → {binding['device'].get('name')} (or another card of it)")
    for part in ("stack", "conditions"):
        was, now = manifest.get(part, {}), binding.get(part, {})
        for name in sorted(was.keys() | now.keys()):
            if was.get(name) != now.get(name):
                found.append(f"{part}.{name}: {was.get(name)} → {now.get(name)}")
    return found


def find_run(spec=None, results_dir=None):
    """Folder of a run by id or path; without `spec` the latest run that ended, examples and interactive ones left out."""
    root = results_root(results_dir)
    if spec:
        for candidate in (Path(spec).expanduser(), root / spec):
            if (candidate / "run.json").is_file():
                return candidate.absolute()
        raise UserError(f"RUN={spec}: no such run (looked for {spec} and {root / spec}); `make list` shows the runs")
    ended = [path for path in list_runs(root) if read_json(path / "run.json").get("ended")]
    if not ended:
        raise UserError(f"no finished run below {root}; start one with `make benchmark`, or give RUN=<id or path>")
    return ended[-1]


def list_runs(root):
    """Run folders below `root`, oldest first; examples and interactive ones left out."""
    found = [p.parent for p in root.glob("*/run.json") if not p.parent.name.startswith("interactive-")]
    return sorted(found, key=lambda path: read_json(path / "run.json").get("created", ""))
