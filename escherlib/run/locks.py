"""Two locks: one process at a time measures on a device of this host; one benchmark or analyze holds a run."""

import fcntl
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from escherlib.errors import UserError

HELD = "ESCHER_LOCKS_HELD"  # colon-separated names that a parent process holds for its children


def _read_holder(stream):
    stream.seek(0)
    return stream.read().strip() or "another process"


@contextmanager
def hold(path, wait_s, busy):
    """Hold the file lock `path`; after `wait_s` seconds a UserError whose text is `busy` with the holder filled in."""
    inherited = os.environ.get(HELD, "").split(os.pathsep)
    if str(path) in inherited:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        stream = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
    except OSError as error:
        raise UserError(f"{path}: the lock file cannot be opened ({error.strerror}); remove it or fix its owner") from None
    with stream:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > end:
                    raise UserError(busy.format(holder=_read_holder(stream))) from None
                time.sleep(0.1)
        stream.seek(0)
        stream.truncate()
        stream.write(f"pid {os.getpid()}")
        stream.flush()
        os.environ[HELD] = os.pathsep.join([*filter(None, inherited), str(path)])
        try:
            yield
        finally:
            os.environ[HELD] = os.pathsep.join(filter(None, inherited))


def hold_device(device_sha, wait_s=10.0):
    """Keep other measurements on this host off the device while one runs."""
    path = Path(tempfile.gettempdir()) / f"escher-device-{device_sha}.lock"
    busy = f"the device is busy: {{holder}} measures on it; waited {wait_s:.0f} s; try again when it has ended"
    return hold(path, wait_s, busy)


def hold_run(run_path):
    """Keep a second benchmark or analyze off the same run."""
    return hold(
        Path(run_path) / ".lock", 0.0, f"{run_path}: {{holder}} works on this run; wait for it to end, or start a new run"
    )
