"""Making an environment: venv, torch alone from one place, the rest, a first import, a stamp."""

import fcntl
import json
import os
import platform
import shutil
import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime

from escherlib.bootstrap import environments as envs
from escherlib.bootstrap import packages, torch_source
from escherlib.bootstrap.console import SetupError, last_error, run_logged, run_step, say, warn
from escherlib.bootstrap.extras import add_extras
from escherlib.bootstrap.fit import kept_torch, verify
from escherlib.bootstrap.paths import ROOT
from escherlib.bootstrap.pip import INSTALL, pip, pip_environment
from escherlib.bootstrap.requirements import meets, package_of, read_requirements

LOG = "setup.log"
NEWS_OFF = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


def prepare(request):
    """An environment that serves the request, made or updated where needed. Returns (path, stamp)."""
    choice = envs.choose(request)
    if choice.action == "use":
        return choice.path, choice.stamp
    shown = os.path.relpath(choice.path, ROOT) if choice.path.is_relative_to(ROOT) else choice.path
    why = f" ({choice.why})" if choice.why else ""
    say(f"set-up: {choice.action} {shown} for {request.kind}, Python {platform.python_version()}{why}")
    # what TORCH asks for is settled before the first file is made
    torch = find_torch(request) if choice.action == "build" else None
    _make_folder(choice.path)
    with _locked(choice.path):
        choice = envs.choose(request)  # another set-up may just have done it
        if choice.action == "use":
            return choice.path, choice.stamp
        stamp = _update(choice, request) if choice.action == "update" else None
        stamp = stamp or _build(choice.path, request, torch or find_torch(request))
        # an environment made anew gets what the one before had
        wanted = dict.fromkeys([*choice.stamp.get("extras", ()), *request.extras])
        stamp = add_extras(choice.path, stamp, wanted, choice.path / LOG)
    say(f"set-up: ready, torch {stamp['torch']}")
    return choice.path, stamp


def find_torch(request):
    """torch as far as it can be found without pip: (facts of one to keep or None, Source or None)."""
    requirement = read_requirements()[0]
    kept = kept_torch(request, requirement)
    return kept, None if kept else torch_source.plan(request.torch, request.kind, request.index, requirement)


def _make_folder(path):
    if os.pathsep in str(path):
        reason = f"Python makes no environment below a path with {os.pathsep!r}"
        raise SetupError(f"{path}: {reason}; give VENV=<another folder>")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise SetupError(
            f"{path}: cannot be written ({error.strerror}); give VENV=<a folder that can>"
        ) from None


@contextmanager
def _locked(path):
    """One set-up at a time in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"set-up: waiting for another one in {path.name}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(path, request, torch):
    """Everything from nothing. Returns the stamp."""
    # the unfinished stamp first: whatever happens from here on, the folder is known as ours
    envs.write_stamp(path, {"state": "unfinished", "asked": request.torch})
    for entry in path.iterdir():
        if entry.name != envs.STAMP:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    _make_venv(path)
    label, index = _install_torch(path, request, *torch)
    _install_rest(path, request.tests)
    return _finish(path, {"asked": request.torch, "label": label, "index": index, "tests": request.tests})


def _update(choice, request):
    """The lists have changed: install what is new. Returns the stamp, or None where torch must change."""
    stamp = choice.stamp
    if not meets(stamp["torch"], package_of(read_requirements()[0])[1]):
        return None
    envs.write_stamp(choice.path, {**stamp, "state": "unfinished"})
    tests = request.tests or stamp["tests"]
    _install_rest(choice.path, tests)
    return _finish(choice.path, {**stamp, "tests": tests})


def _make_venv(path):
    log = path / LOG
    _require_ensurepip(log)
    command = [sys.executable, "-m", "venv", path]
    code, output = run_step("virtual environment", command, log, pip_environment(path))
    if code != 0:
        raise SetupError(f"the virtual environment could not be made: {last_error(output)}; log: {log}")
    settings = path / "share/jupyter/lab/settings"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "overrides.json").write_text(json.dumps(NEWS_OFF, indent=1))


def _require_ensurepip(log):
    """Debian splits venv's pip off into a package of its own."""
    try:
        import ensurepip

        ensurepip.version()
        return
    except Exception:  # absent, or a stub that ends with advice
        needed = [f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"]
    if packages.can_install() and not packages.install(needed, log):
        return
    raise SetupError(f"this Python can't make virtual environments; install: {packages.apt_line(needed)}")


def _install_torch(path, request, kept, source):
    """torch first and alone. Returns (label of the stack, index it came from)."""
    python, log = envs.python_in(path), path / LOG
    if kept:
        say(f"  torch {kept['torch']} of {sys.executable} is kept")
        # an old setuptools that venv brings along would hide the one that this torch was installed with
        run_logged(pip(python, "uninstall", "--quiet", "--yes", "setuptools"), log, pip_environment(path))
        _kept_places(path).write_text("\n".join(kept["places"]) + "\n")
        return "keep", None
    if source is None:
        requirement = read_requirements()[0]
        source = torch_source.search(request.torch, request.kind, request.index, requirement, python, path)
    title, environment = source.said, dict(source.environment)
    if "PIP_EXTRA_INDEX_URL" in environment:
        nowhere = path / "no-wheels"  # folders of wheels in pip's configuration must not offer a second torch
        nowhere.mkdir(exist_ok=True)
        title, environment["PIP_FIND_LINKS"] = f"torch from {title}", nowhere.resolve().as_uri()
    code, output = run_step(
        title, pip(python, *INSTALL, *source.arguments), log, pip_environment(path, **environment)
    )
    shutil.rmtree(path / "wheel", ignore_errors=True)
    if code != 0:
        raise SetupError(f"torch could not be installed: {last_error(output)}; log: {log}")
    return source.label, source.index


def _kept_places(path):
    """The file that lets an environment see a torch installed elsewhere."""
    return next((path / "lib").glob("python*/site-packages")) / "escher_kept_torch.pth"


@contextmanager
def _without_kept_places(path):
    """What lies beside a kept torch counts for nothing: programs find their data only in their own environment."""
    places = _kept_places(path)
    text = places.read_text() if places.exists() else None
    places.unlink(missing_ok=True)
    try:
        yield
    finally:
        if text is not None:
            places.write_text(text)


def _install_rest(path, tests):
    log = path / LOG
    wanted = [entry for entry in read_requirements(tests)[1:] if entry != "-e ."]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="escher-") as listing:
        listing.write("\n".join(wanted) + "\n")
        listing.flush()
        command = pip(envs.python_in(path), *INSTALL, "--requirement", listing.name, "--editable", ROOT)
        with _without_kept_places(path):
            title = f"{len(wanted)} packages and what they need"
            code, output = run_step(title, command, log, pip_environment(path))
    if code != 0:
        hint = "offline: VENV=none with a Python that has them"
        raise SetupError(f"packages could not be installed: {last_error(output)}; log: {log}; {hint}")


def _finish(path, known):
    """Import everything once; then the stamp, which makes the environment a finished one."""
    facts = verify(envs.python_in(path), path / LOG)
    facts.pop("places")
    shutil.rmtree(path / "tmp", ignore_errors=True)
    made = {
        "state": envs.READY,
        "lists": envs.lists_hash(),
        "interpreter": os.path.realpath(envs.python_in(path)),
        "made": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    stamp = {**known, **facts, **made}
    envs.write_stamp(path, stamp)
    return stamp


def system_packages(path, tests):
    """Install what reports and tests need from the system, or say the exact line; never an end."""
    missing = packages.missing(packages.REPORT + (packages.TESTS if tests else ()))
    if not missing:
        return
    stamp = envs.read_stamp(path)
    if packages.can_install() and missing != stamp.get("apt_failed"):
        missing = packages.install(missing, path / LOG)
        envs.write_stamp(path, {**stamp, "apt_failed": missing})
    if missing:
        use = "PDF and browser tests need" if tests else "the PDF is best with"
        warn(f"{use} {', '.join(missing)}: {packages.apt_line(missing)}")
