"""What a notebook holds in its hands: `run = open_run(…)`, then `run.measure`, `run.sweep`, `run.results`, `run.finish`.

Three modes. The suite starts a notebook with ESCHER_RUN set: it measures into that run (or, for analyze, only reads
it). A notebook opened inside a run folder reads that run and measures nothing. Anything else is interactive: it
measures into `interactive-<date>`, where a changed parameter measures and a cell run twice loads.
"""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

from escherlib.errors import UserError
from escherlib.files import read_json, write_json
from escherlib.method import describe, full_arguments
from escherlib.run import directory, records
from escherlib.run.locks import hold_device
from escherlib.run.measuring import Measurer
from escherlib.run.progress import Progress
from escherlib.run.records import FINAL, Record
from escherlib.run.results import load_results

RUN, MODE, PASS, FORCE = "ESCHER_RUN", "ESCHER_MODE", "ESCHER_ITERATION", "ESCHER_FORCE_BEFORE"
NOT_MEASURED = "not measured with these parameters"


def open_run(family, device=None, suite=None, workload=None, **parameters):
    """Open the run this notebook belongs to. `parameters` that are None take the value of the run or of its suite.

    UserError where a parameter is unknown or the device cannot be had.
    """
    if os.environ.get(RUN):
        path, mode = Path(os.environ[RUN]), os.environ.get(MODE, "measure")
    else:
        path, mode = _surrounding_run(Path.cwd()), "analyze"
    if path is None:
        return _open_interactive(family, device or "auto", suite or "standard", workload, parameters)
    return Run(family, path, mode, parameters)


def _surrounding_run(folder):
    """The run folder that contains `folder` (its own, or iterations/<k>/ inside it), if any."""
    for candidate in (folder, *folder.parents[:2]):
        if (candidate / "run.json").is_file() and (candidate / "records").is_dir():
            return candidate
    return None


def _open_interactive(family, device, suite, workload, parameters):
    """Today's interactive run that fits this machine and these choices; a new one where none does."""
    from escherlib.parameters import load_suite, load_workload
    from escherlib.run.bind import bind

    chosen = load_suite(suite)
    workload = load_workload(workload or chosen.workload or "escher_14b_480p")
    binding = bind(device)
    root = directory.results_root()
    name = f"interactive-{datetime.now(UTC):%Y%m%d}"
    for path in sorted(root.glob(f"{name}*")):
        manifest = read_json(path / "run.json") if (path / "run.json").exists() else None
        alike = manifest and (manifest["suite"], manifest["workload"].get("sha")) == (suite, workload.sha)
        if alike and not directory.differences(manifest, binding):
            return Run(family, path, "interactive", parameters)
    kind = binding["device"]["kind"]
    resolved = {name: chosen.family_parameters(name, kind) for name in chosen.families}
    manifest = directory.manifest_for(name, suite, workload, binding, resolved)
    return Run(family, directory.create(root, manifest, binding["env"]), "interactive", parameters)


class Run:
    """One family's view of one run. `p` holds the resolved parameters, `results` a fresh read of all records."""

    def __init__(self, family, path, mode, parameters):
        self.family, self.path, self.mode = family, Path(path).absolute(), mode
        self.manifest = read_json(self.path / "run.json")
        self.iteration = int(os.environ.get(PASS, "1")) if mode == "measure" else 1
        self.p = SimpleNamespace(**self._resolve(parameters))
        self.folder = self.path / "records" / family
        self._asked = {}  # row name → record file or None, in the order the cells ask
        self._tally = {"measured": 0, "loaded": 0, "older_code": 0}
        self._in_vain = {}  # row name → record without a result, in analysis mode
        self._results = None
        self._measurer = None

    def _resolve(self, given):
        """Parameters of the run, changed by those given; one that an older run does not know is None."""
        known = self.manifest.get("parameters", {}).get(self.family, {})
        newer = [name for name in given if known and name not in known]
        unknown = [name for name in newer if given[name] is not None]
        if unknown:
            raise UserError(f"{self.family}: unknown parameter {unknown[0]!r}; known are {', '.join(sorted(known))}")
        return {**dict.fromkeys(newer), **known, **{name: value for name, value in given.items() if value is not None}}

    @property
    def kind(self):
        """`gpu` or `cpu`."""
        return self.manifest["device"]["kind"]

    @property
    def device(self):
        """The opened device; None where this notebook only reads."""
        return None if self.mode == "analyze" else self._measuring().device

    @property
    def workload(self):
        """The resolved workload of the run."""
        from escherlib.parameters import workload_from_dict

        return workload_from_dict(self.manifest["workload"])

    @property
    def results(self):
        """All records of the run as they stand now; where nothing is measured, rows asked for in vain say so."""
        if self._results is None:
            self._results = load_results(self.path)
            if self._in_vain:
                rows = {**self._results.records.get(self.family, {}), **self._in_vain}
                self._results = replace(self._results, records={**self._results.records, self.family: rows})
        return self._results

    @property
    def profile(self):
        """Rated figures of the device, or None."""
        return self.results.profile

    def _measuring(self):
        if self._measurer is None:
            self._measurer = Measurer(self.path, self.family, self.manifest)
        return self._measurer

    def measure(self, name, function, again=False, sample_every_s=None, **arguments):
        """One row: load its record, or call `function(device, **arguments)` and write one. Returns the Record.

        `again=True` measures anew and keeps the old record. `sample_every_s` asks for faster telemetry meanwhile.
        """
        return self._rows([(name, arguments)], function, again, sample_every_s)[0]

    def sweep(self, name, function, cases, again=False, sample_every_s=None, **common):
        """One row a case; `name` is a template over the case, such as `"square/{m}"`. Returns the Records in order.

        A case may hold `row`, a word for the template that is no argument of the function. No cases, no rows.
        """
        given = [(name.format(**common, **case), {**common, **case}) for case in cases]
        rows = [(label, {key: value for key, value in case.items() if key != "row"}) for label, case in given]
        return self._rows(rows, function, again, sample_every_s)

    def _rows(self, rows, function, again, sample_every_s):
        with Progress(self.path, self.family, len(rows)) as progress:
            done = []
            for name, arguments in rows:
                if name in self._asked and not again and len(rows) > 1 and name in [r.name for r in done]:
                    raise UserError(f"{self.family}: the row name {name!r} stands twice in one sweep; name it apart")
                done.append(self._row(name, function, again, arguments, sample_every_s, progress))
            return done

    def _row(self, name, function, again, arguments, sample_every_s, progress):
        arguments = _plain(full_arguments(function, arguments))
        found = self._find(name, function, arguments)
        if self.mode == "analyze" or (found and not again and not self._forced(found)):
            record = found or self._not_measured(name, arguments)
            self._tally["loaded"] += found is not None
            progress.step(name, record, loaded=True)
            return record
        progress.begin(name)
        with hold_device(self.manifest["device"]["sha"]):
            record = self._measuring().row(self, name, function, arguments, sample_every_s, progress.tell)
        self._tally["measured"] += 1
        progress.step(name, record)
        return record

    def _not_measured(self, name, arguments):
        """The record that stands where this run has none of this question; it is shown and never written."""
        self._in_vain[name] = Record(self.family, name, "not_measured", NOT_MEASURED, arguments)
        self._results = None
        return self._in_vain[name]

    def _find(self, name, function, arguments):
        """The record of this very question, if one is usable; points current.json at it."""
        if self.mode == "analyze":
            record = self.results.row(self.family, name)
            return record if record and record.arguments == arguments and self._same_code(record, function) else None
        for path in reversed(records.history(self.folder, self.key(name, function, arguments))):
            record = records.read_record(path)
            if record.status in FINAL and self._same_code(record, function):
                self.point(name, path.name)
                return record
        return None

    def _same_code(self, record, function):
        if record.method.get("source_sha") == describe(function)["source_sha"]:
            return True
        self._tally["older_code"] += 1
        return self.mode != "interactive" and not (self.mode == "analyze" and directory.is_example(self.path))

    def _forced(self, record):
        return record.meta.get("ended", "") < os.environ.get(FORCE, "")

    def key(self, name, function, arguments):
        """Identity of a row in this run."""
        from escherlib.timing import ENGINE_VERSION

        sha, version = self.manifest["workload"]["sha"], function.method_version
        return records.make_key(self.family, name, self.iteration, arguments, sha, version, ENGINE_VERSION)

    def pointer_file(self):
        """`current.json` of this pass."""
        if self.iteration == 1:
            return self.folder / "current.json"
        return self.path / "iterations" / str(self.iteration) / f"{self.family}.current.json"

    def point(self, name, filename):
        """Make `filename` the record that counts for row `name`."""
        pointers = read_json(self.pointer_file()) if self.pointer_file().exists() else {}
        if pointers.get(name) != filename:
            write_json(self.pointer_file(), {**pointers, name: filename})
        self._asked[name] = filename
        self._results = None

    def finish(self, headline, findings=()):
        """Last cell: write the family summary, drop rows no longer asked for, and say what was done."""
        if self.mode != "analyze":
            write_json(self.pointer_file(), self._asked)
            self._results = None
        summary = {
            "family": self.family,
            "status": self.results.statuses.get(self.family, {}).get("status", "running"),
            "headline": {k: {"value": v[0], "unit": v[1]} for k, v in headline.items() if v[0] is not None},
            "findings": list(findings),
            "written": records.now_text(),
            "token": os.environ.get("ESCHER_TOKEN"),
        }
        if self.iteration == 1:
            write_json(self.folder / "summary.json", summary)
        else:
            write_json(self.pointer_file().with_name(f"{self.family}.summary.json"), summary)
        if self._measurer:
            self._measurer.stop()
        return self._closing_line()

    def _closing_line(self):
        rows = list(self.results.records.get(self.family, {}).values())
        ended = {status: sum(r.status == status for r in rows) for status in dict.fromkeys(r.status for r in rows)}
        text = ", ".join(f"{count} {status}" for status, count in ended.items()) or "no rows"
        parts = [f"{self.family}: {text}", f"{self._tally['measured']} measured now, {self._tally['loaded']} loaded"]
        if self._tally["older_code"]:
            parts.append(f"{self._tally['older_code']} by older code of the same method version")
        return " · ".join(parts)


def _plain(arguments):
    """Arguments as they will read back from JSON (tuples become lists), so that equal questions compare equal."""
    import json

    return json.loads(json.dumps(arguments, allow_nan=False))


__all__ = ["Run", "open_run"]
