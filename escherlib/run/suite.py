"""The papermill suite: every family notebook in a process of its own, one after the other, each with a deadline.

A family that dies leaves its finished records, a failed status and its reason in run.json; the next families go on.
"""

import hashlib
import json
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from escherlib.files import ROOT, read_json, write_bytes, write_json
from escherlib.run import directory, session
from escherlib.run.locks import hold_run

GRACE_S = 60  # a cell may take the whole deadline; the child ends itself before the parent ends it


def notebook_source(family):
    """Path of a family's notebook in the project."""
    return ROOT / "notebooks" / f"{family}.ipynb"


def notebook_sha(path):
    """Hash of what a person wrote in a notebook: cell sources without papermill's own cells."""
    cells = read_json(path)["cells"]
    skipped = {"injected-parameters", "papermill-error-cell-tag"}
    own = [c for c in cells if not skipped & set(c.get("metadata", {}).get("tags", []))]
    text = "\0".join("".join(c["source"]) for c in own)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def source_for_analysis(run_path, family):
    """The project's notebook, unless the run's own copy was edited by hand: then that one, so that no edit is lost."""
    own = run_path / f"{family}.ipynb"
    told = read_json(run_path / "run.json")["families"].get(family, {}).get("notebook_sha")
    edited = own.exists() and told is not None and notebook_sha(own) != told
    return (own, True) if edited or not notebook_source(family).exists() else (notebook_source(family), False)


def run_families(run_path, families, say, *, mode="measure", iteration=1, force_before="", numactl="", sampling=None):
    """Execute the notebooks of `families` on one run. Returns family → status entry, as written to run.json.

    `say(text, transient=False)` shows progress. KeyboardInterrupt ends the running family and marks the rest.
    """
    entries = {}
    with hold_run(run_path):
        for position, family in enumerate(families):
            say(f"[{position + 1}/{len(families)}] {family}", transient=True)
            try:
                entry = _run_one(run_path, family, say, mode, iteration, force_before, numactl, sampling or {})
            except KeyboardInterrupt:
                _note(run_path, family, {"status": "failed", "reason": "interrupted by the user"}, iteration)
                for later in families[position + 1 :]:
                    if later not in read_json(run_path / "run.json")["families"]:
                        _note(run_path, later, {"status": "not_run", "reason": "the run was interrupted"}, iteration)
                raise
            entries[family] = entry
            say(f"[{position + 1}/{len(families)}] {describe_entry(family, entry)}")
    return entries


def describe_entry(family, entry):
    """One line about a family that ended."""
    measured = f" (measuring {entry['measure_seconds']:.1f} s)" if entry.get("measure_seconds") else ""
    line = f"{family:<24} {entry['status']:<9} {entry.get('seconds', 0):6.1f} s{measured}"
    return line + (f" · {entry['reason']}" if entry.get("reason") else "")


def _run_one(run_path, family, say, mode, iteration, force_before, numactl, sampling):
    source, edited = (notebook_source(family), False) if mode == "measure" else source_for_analysis(run_path, family)
    folder = run_path if iteration == 1 else run_path / "iterations" / str(iteration)
    folder.mkdir(parents=True, exist_ok=True)
    if edited:
        say(f"{family}: the run's own copy was edited by hand; that one is executed")
    manifest = read_json(run_path / "run.json")
    deadline_s = manifest.get("deadlines_s", {}).get(family, 1800)
    token, begun = secrets.token_hex(8), time.time()
    working = folder / f".{family}.working.ipynb"
    job = {
        "source": str(source), "target": str(working), "cell_timeout_s": deadline_s, "cwd": str(run_path),
        "parameters": manifest["parameters"].get(family, {}),
    }  # fmt: skip
    environment = {
        session.RUN: str(run_path), session.MODE: mode, session.PASS: str(iteration), session.FORCE: force_before,
        "ESCHER_TOKEN": token, **sampling,
    }  # fmt: skip
    verdict = _execute(job, environment, folder, family, deadline_s + GRACE_S, numactl, say)
    _publish(working, folder / f"{family}.ipynb")
    summary = run_path / "records" / family / "summary.json"
    if iteration > 1:
        summary = folder / f"{family}.summary.json"
    sealed = summary.exists() and read_json(summary).get("token") == token
    status, reason = _judge(verdict, sealed)
    if status == "finished":
        _set_summary_status(summary)
    entry = {"status": status, "reason": reason, "seconds": round(time.time() - begun, 1)}
    entry["measure_seconds"] = _measured_s(run_path, family, begun)
    if source.exists():
        entry["notebook_sha"] = notebook_sha(source) if not edited else manifest["families"][family]["notebook_sha"]
    if mode != "measure":  # analysing says nothing new about how the measurement ended, unless it broke
        was = manifest["families"].get(family, {})
        kept = {key: was[key] for key in ("status", "reason", "seconds", "measure_seconds") if key in was}
        entry = {**entry, **(kept if status == "finished" else {}), "analyzed": session.records.now_text()}
    return _note(run_path, family, entry, iteration)


def _judge(verdict, sealed):
    if verdict["ok"] and sealed:
        return "finished", None
    if verdict.get("timed_out"):
        return "timed_out", verdict["error"]
    return "failed", verdict["error"] or "the notebook ended without its last cell (no summary written)"


def _set_summary_status(summary):
    write_json(summary, {**read_json(summary), "status": "finished"})


def _note(run_path, family, entry, iteration):
    key = "families" if iteration == 1 else f"pass_{iteration}"
    directory.update_manifest(run_path, lambda manifest: manifest.setdefault(key, {}).update({family: entry}))
    return entry


def _publish(working, target):
    """Move the executed notebook into place if it is whole; half-written JSON is dropped, paths of this machine too."""
    try:
        notebook = json.loads(working.read_text())
        for key in ("input_path", "output_path"):
            notebook["metadata"].get("papermill", {}).pop(key, None)
        write_bytes(target, json.dumps(notebook, indent=1, ensure_ascii=False).encode() + b"\n")
    except (OSError, ValueError, KeyError):
        pass  # the status entry says why there is no notebook
    working.unlink(missing_ok=True)


def _execute(job, environment, folder, family, limit_s, numactl, say):
    """Run the child, show rows as they come, end it at its limit. Returns the verdict."""
    log = folder / "logs" / f"{family}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    run_path = Path(environment[session.RUN])
    progress = run_path / "logs" / "progress.jsonl"
    seen = progress.stat().st_size if progress.exists() else 0
    with tempfile.TemporaryDirectory(prefix="escher-job-") as scratch, log.open("w") as stream:
        job_file = Path(scratch) / "job.json"
        write_json(job_file, job)
        child = subprocess.Popen(
            [*numactl_prefix(numactl), sys.executable, "-m", "escherlib.run.execute", str(job_file)],
            stdout=subprocess.PIPE, stderr=stream, text=True, start_new_session=True, cwd=run_path,
            env={**os.environ, **environment, "PYTHONPATH": _python_path(), "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        )  # fmt: skip
        end = time.monotonic() + limit_s
        try:
            while child.poll() is None and time.monotonic() < end:
                seen = _show_rows(progress, seen, family, say)
                time.sleep(0.2)
            if child.poll() is None:
                kill_tree(child.pid)
                return {"ok": False, "timed_out": True, "error": f"over its deadline of {limit_s - GRACE_S:.0f} s"}
        except BaseException:
            kill_tree(child.pid)
            raise
        output = child.stdout.read().strip().splitlines()
    try:
        verdict = json.loads(output[-1])
    except (IndexError, ValueError):
        return {"ok": False, "error": f"the notebook runner died (exit code {child.returncode}); see {log.name}"}
    verdict["timed_out"] = "ran over" in (verdict["error"] or "")
    return verdict


def numactl_prefix(spec):
    """Command words that wrap a measuring process in numactl; none without a spec."""
    return ["numactl", *shlex.split(spec)] if spec else []


def _python_path():
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def kill_tree(pid):
    """End a process and all it started: kernels live in sessions of their own, so a group kill would miss them."""
    import psutil

    try:
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=5)


def _events(progress, seen):
    if not progress.exists():
        return []
    with progress.open("rb") as stream:
        stream.seek(seen)
        return [line for line in stream.readlines() if line.endswith(b"\n")]


def _show_rows(progress, seen, family, say):
    lines = _events(progress, seen)
    for line in lines:
        event = json.loads(line)
        if event["event"] == "begin":
            say(f"      {family}: {event['row']} …", transient=True)
        elif event["event"] == "told":
            say(f"      {family}: {event['text']}", transient=True)
        elif event["status"] not in ("finished", "running"):
            say(f"      {family}: {event['row']} {event['status']}: {event['reason']}")
    return seen + sum(map(len, lines))


def _measured_s(run_path, family, begun):
    """Seconds of this execution that went into measuring, from the progress lines of its rows."""
    total, started = 0.0, None
    for line in _events(run_path / "logs" / "progress.jsonl", 0):
        event = json.loads(line)
        if event["family"] == family and event["time"] >= begun:
            if event["event"] == "begin":
                started = event["time"]
            elif event["event"] == "row" and started is not None:
                total, started = total + event["time"] - started, None
    return round(total, 1)
