"""Everything in parameters/, loaded through strict schemas: devices, workloads, suites, scoring, validation, report.

A PARAMS folder (argument `params_dir`, else the environment variable ESCHER_PARAMS) overrides file by file:
a file there wins over the one of the same relative path. Whatever is wrong in a file is one UserError line
that names file and key.
"""

import os
import re
from pathlib import Path

from escherlib.accounting.workload import drift_against
from escherlib.errors import UserError
from escherlib.files import ROOT, canonical_json, sha256_text
from escherlib.schemas.devices import Devices
from escherlib.schemas.models import Models
from escherlib.schemas.reading import read_validated, read_yaml, validated
from escherlib.schemas.report import ReportConfig
from escherlib.schemas.scoring import Scoring
from escherlib.schemas.suite import Suite
from escherlib.schemas.validation import Validation
from escherlib.schemas.workload import Workload

FOLDER = ROOT / "parameters"
DEFAULT_WORKLOAD = "escher_14b_480p"
LISTED = ("workloads", "suites")  # folders in which a new file is a new name
OVERRIDES = {"depth": "blocks", "frames": "frames", "window": "window", "text_tokens": "text_tokens"}


def override_folder(params_dir=None):
    """The PARAMS folder in force, or None.

    UserError where it is no folder or holds a file that overrides nothing.
    """
    chosen = params_dir or os.environ.get("ESCHER_PARAMS")
    if not chosen:
        return None
    folder = Path(chosen)
    if not folder.is_dir():
        raise UserError(f"PARAMS={chosen}: no such folder; it holds files that override those of parameters/")
    for path in sorted(folder.glob("*.y*ml")) + [
        p for name in LISTED for p in sorted((folder / name).glob("*.y*ml"))
    ]:
        relative = path.relative_to(folder)
        if path.suffix != ".yaml" or not ((FOLDER / relative).exists() or relative.parent.name in LISTED):
            known = ", ".join(sorted(p.name for p in FOLDER.glob("*.yaml")))
            raise UserError(
                f"{path}: overrides nothing; expected {known}, or a .yaml file in workloads/ or suites/"
            )
    return folder


def locate(relative, params_dir=None):
    """Path of a parameter file: the PARAMS folder's, where it has it, else that of parameters/."""
    folder = override_folder(params_dir)
    if folder is not None and (folder / relative).exists():
        return folder / relative
    return FOLDER / relative


def load_devices(params_dir=None):
    """Profile id → Profile (rated and published figures), in the order of the file."""
    return _devices(params_dir).profiles


def load_identification(params_dir=None):
    """The rules that tell devices apart."""
    return _devices(params_dir).identification


def load_sources(params_dir=None):
    """Source key → title, address and note of everything the device figures rest on."""
    return _devices(params_dir).source_index


def _devices(params_dir):
    return read_validated(Devices, locate("devices.yaml", params_dir))


def load_scoring(params_dir=None):
    """Thresholds of the scorecard."""
    return read_validated(Scoring, locate("scoring.yaml", params_dir))


def load_validation(params_dir=None):
    """Tolerances against external validators."""
    return read_validated(Validation, locate("validation.yaml", params_dir))


def load_report_config(path=None, params_dir=None):
    """Cover, marking, pills and glossary; `path` replaces parameters/report.yaml."""
    return read_validated(ReportConfig, Path(path) if path else locate("report.yaml", params_dir))


def load_models(path=None, params_dir=None):
    """{id: ReferenceModel} of models.yaml, or of `path` (MODELS=). UserError for a broken file or an unknown workload."""
    path = Path(path) if path else locate("models.yaml", params_dir)
    models = read_validated(Models, path).models
    known = list_workloads(params_dir)
    for name, model in models.items():
        if model.workload is not None and model.workload not in known:
            raise UserError(
                f"{path}: models: {name}: workload: found the text {model.workload!r}; expected null or one of {', '.join(known)}"
            )
    return models


def reference_model(name, path=None, params_dir=None):
    """A model by its id that can be measured. UserError for an unknown id, or one without a workload here."""
    models = load_models(path, params_dir)
    if name not in models:
        raise UserError(f"REFERENCE_MODEL={name}: unknown model; choose from {', '.join(models)}")
    if models[name].workload is None:
        fit = ", ".join(known for known, model in models.items() if model.workload)
        raise UserError(f"REFERENCE_MODEL={name}: no workload here has its geometry ({models[name].note}); those that have one: {fit}")
    return models[name]


def list_workloads(params_dir=None):
    """Names WORKLOAD takes."""
    return _names("workloads", params_dir)


def list_suites(params_dir=None):
    """Names SUITE takes."""
    return _names("suites", params_dir)


def load_suite(name, params_dir=None):
    """A suite by name. UserError for an unknown name or a broken file."""
    path = _named("suites", "SUITE", name, params_dir)
    suite = read_validated(Suite, path)
    _same_name(suite, path)
    if suite.workload is not None and suite.workload not in list_workloads(params_dir):
        known = ", ".join(list_workloads(params_dir))
        raise UserError(f"{path}: workload: found the text {suite.workload!r}; expected one of {known}")
    return suite


def load_workload(name, params_dir=None, **overrides):
    """A workload by name with its drift against the pilot's published totals filled in.

    Overrides: depth (blocks), frames and window (latent frames), text_tokens; None leaves the file's value.
    UserError for an unknown name, a broken file, an override that does not fit, and for a reproduction
    basis (a workload that is its own reference) that has drifted away from its published totals.
    """
    path = _named("workloads", "WORKLOAD", name, params_dir)
    plain = read_validated(Workload, path)
    _same_name(plain, path)
    plain = _completed(plain, plain, params_dir)
    if plain.reference == plain.name and not plain.drift.within:
        raise UserError(
            f"{path}: its geometry is {plain.drift.flop_pct:+.2f} % FLOP, {plain.drift.traffic_pct:+.2f} % "
            f"traffic off its pilot_reference; expected within {plain.drift.limit_pct:g} %; "
            "restore it or use another name"
        )
    given = {key: value for key, value in overrides.items() if value is not None}
    if not given:
        return plain
    changed = validated(Workload, read_yaml(path) | _override(plain, given), path)
    return _completed(changed, plain, params_dir)


def workload_from_dict(stored):
    """The workload that a run's manifest holds, with the hash it was measured under."""
    return validated(Workload, stored, "run.json: workload")


def _override(plain, given):
    """The keys of the file that overrides replace, checked one by one so that a message names its switch."""
    for name, value in given.items():
        if name not in OVERRIDES:
            raise UserError(f"{name}: no such override of a workload; expected one of {', '.join(OVERRIDES)}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{name.upper()}={value}: expected a whole number of at least 1")
        if name in ("frames", "window") and plain.frames is None:
            raise UserError(
                f"{name.upper()}={value}: {plain.name} is given in tokens, not latent frames; leave it out"
            )
    new = {OVERRIDES[name]: value for name, value in given.items()}
    frames, window = new.get("frames", plain.frames), new.get("window", plain.window)
    if frames is not None and window < frames:
        switch = f"WINDOW={window}" if "window" in given else f"FRAMES={frames}"
        raise UserError(
            f"{switch}: the window ({window} latent frames) holds the chunk's own {frames} too; "
            "expected WINDOW ≥ FRAMES"
        )
    different = {key: value for key, value in new.items() if value != getattr(plain, key)}
    return different | {
        "changed": [f"{key} {getattr(plain, key)} → {value}" for key, value in different.items()]
    }


def _completed(workload, plain, params_dir):
    """The workload with its hash, and with its drift against the totals it refers to."""
    workload = workload.model_copy(update={"sha": sha256_text(canonical_json(workload.identity()))})
    if workload.reference is None:
        return workload
    pilot = plain.pilot_reference
    if pilot is None:
        path = _named("workloads", f"{workload.name}: reference", workload.reference, params_dir)
        pilot = read_validated(Workload, path).pilot_reference
    if pilot is None:
        raise UserError(
            f"{workload.name}: reference: {workload.reference} has no pilot_reference; name one that has"
        )
    limit = load_scoring(params_dir).calibration_drift_pct
    return workload.model_copy(update={"drift": drift_against(workload, pilot, limit)})


def _names(folder, params_dir):
    override = override_folder(params_dir)
    places = [FOLDER / folder] + ([override / folder] if override else [])
    return sorted({path.stem for place in places for path in place.glob("*.yaml")})


def _named(folder, switch, name, params_dir):
    """Path of a file by its name; never a path out of the folder."""
    known = _names(folder, params_dir)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name not in known:
        raise UserError(f"{switch}={name}: unknown {folder[:-1]}; choose from {', '.join(known)}")
    return locate(f"{folder}/{name}.yaml", params_dir)


def _same_name(loaded, path):
    if loaded.name != Path(path).stem:
        raise UserError(
            f"{path}: name: found the text {loaded.name!r}; expected {Path(path).stem!r}, the file's own name"
        )
