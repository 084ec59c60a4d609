"""Where a validator's programs are: an environment variable first, then PATH, then the usual folders."""

import os
import shutil
from pathlib import Path


def usual_folders(environ):
    """Folders in which vendors and people install these tools."""
    rocm, home = environ.get("ROCM_PATH") or "/opt/rocm", environ.get("HOME") or "/root"
    cuda = environ.get("CUDA_HOME") or "/usr/local/cuda"
    tools = ("nccl-tests", "rccl-tests", "nvbandwidth", "TransferBench", "BabelStream", "rocm_bandwidth_test")
    built = [f"{base}/{tool}{inner}" for base in ("/opt", home, "/workspace") for tool in tools for inner in ("", "/build")]
    return [f"{rocm}/bin", f"{cuda}/bin", f"{rocm}/bin/rccl-tests", f"{cuda}/extras/demo_suite", "/usr/local/bin", *built]


def find_programs(names, variables, environ=None):
    """{name: path} of those of `names` that can be run.

    variables: environment variables that hold a folder, or the path of one program. Where one is set, nothing else is
    searched: who names a tool wants that one.
    """
    environ = os.environ if environ is None else environ
    named = next((environ[variable] for variable in variables if environ.get(variable)), None)
    if named:
        path = Path(named).expanduser()
        if path.is_dir():
            return _in_folders(names, [path, path / "build", path / "bin"])
        return {path.name if path.name in names else names[0]: str(path)} if _runs(path) else {}
    found = {name: shutil.which(name, path=environ.get("PATH", "")) for name in names}
    return _in_folders(names, usual_folders(environ)) | {name: path for name, path in found.items() if path}


def where_searched(names, variables):
    """Words for a tool that isn't there."""
    return f"{' / '.join(names)} not found: not on PATH nor in the usual folders (set {variables[0]} to its folder)"


def _in_folders(names, folders):
    found = {}
    for folder in folders:
        for name in names:
            path = Path(folder) / name
            if name not in found and _runs(path):
                found[name] = str(path)
    return found


def _runs(path):
    return path.is_file() and os.access(path, os.X_OK)
