"""Finding runs, what binds them, and the locks."""

import os
import subprocess
import sys
import time

import pytest

from escherlib.errors import UserError
from escherlib.files import ROOT, write_json
from escherlib.run import directory, iterations, locks


def test_differences_name_what_moved():
    was = {"device": {"sha": "a", "name": "H200"}, "stack": {"torch": "2.9"}, "conditions": {"threads": 2}}
    now = {"device": {"sha": "b", "name": "H200"}, "stack": {"torch": "2.11"}, "conditions": {"threads": 2}}
    assert directory.differences(was, was) == []
    assert directory.differences(was, now) == ["device: H200 → H200 (or another card of it)", "stack.torch: 2.9 → 2.11"]


def test_results_root_that_cannot_be_written_is_refused_and_leaves_nothing():
    with pytest.raises(UserError, match="/proc/nope: cannot be written"):
        directory.require_writable(directory.results_root("/proc/nope"))


def test_find_run_takes_id_path_or_the_latest_that_ended(tmp_path):
    for name, created, ended in (("a", "1", "x"), ("b", "2", "x"), ("c", "3", None), ("interactive-1", "4", "x")):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "run.json", {"created": created, **({"ended": ended} if ended else {})})
    assert directory.find_run(None, tmp_path).name == "b"
    assert directory.find_run("c", tmp_path).name == "c"
    assert directory.find_run(str(tmp_path / "a"), "/nowhere").name == "a"
    with pytest.raises(UserError, match="RUN=zzz: no such run"):
        directory.find_run("zzz", tmp_path)


def test_two_runs_begun_in_one_second_get_folders_of_their_own(tmp_path):
    paths = [directory.create(tmp_path, {"id": "x"}, {}) for _ in range(2)]
    assert [p.name for p in paths] == ["x", "x-2"]


def test_a_held_lock_names_the_holder_and_is_inherited_by_children(tmp_path):
    path = tmp_path / "lock"
    holder = "import sys,time; from pathlib import Path; from escherlib.run import locks\n"
    with locks.hold(path, 0, "x {holder}"):
        # our own child counts as us …
        subprocess.run([sys.executable, "-c", f"{holder}\nwith locks.hold(Path({str(path)!r}), 0, 'x'): pass"], check=True, cwd=ROOT)
        # … a stranger does not
        env = {k: v for k, v in os.environ.items() if k != locks.HELD}
        code = (
            f"{holder}\nfrom escherlib.errors import UserError\n"
            f"try:\n  with locks.hold(Path({str(path)!r}), 0.1, 'busy {{holder}}'): pass\nexcept UserError as e: print(e)"
        )
        found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=ROOT)
        assert found.stdout.strip() == f"busy pid {os.getpid()}"
    begun = time.monotonic()
    with locks.hold(path, 5, "x"):
        assert time.monotonic() - begun < 1


def test_spread_of_passes_by_hand():
    assert iterations.spread([1.0, 2.0, 3.0]) == {"mean": 2.0, "median": 2.0, "cv_pct": 50.0, "values": [1.0, 2.0, 3.0]}
    assert iterations.spread([5.0])["cv_pct"] is None
