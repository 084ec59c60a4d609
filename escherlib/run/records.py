"""Records: one measurement, one file, written the moment it ends. The only source of truth of a run.

A record file is replaced atomically and passes through these states, never back:
`running` (with the process that measures) → `finished`, `refused` (final until forced), `failed` or `unfinished`
(both measured again). `current.json` beside the records points each row name at the record that counts.
"""

import json
import os
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from escherlib.files import canonical_json, read_json, sha256_text, write_json

SCHEMA = 1
FINAL = ("finished", "refused")


@dataclass(frozen=True, repr=False)
class Record:
    """One row of a family: what was asked (`arguments`), what came out (`result`), and how it ended (`status`, `reason`)."""

    family: str
    name: str
    status: str
    reason: str | None = None
    arguments: dict = field(default_factory=dict)
    result: dict = field(default_factory=dict)
    telemetry: dict = field(default_factory=dict)
    method: dict = field(default_factory=dict)
    meta: dict = field(default_factory=dict)

    def __repr__(self):
        return f"<{self.family} {self.name}: {self.status}{f', {self.reason}' if self.reason else ''}>"

    @property
    def ok(self):
        """True where the measurement finished and its result may be used."""
        return self.status == "finished"

    def get(self, *path, default=None):
        """Value inside `result`, for example `record.get("states", "sustained", "tflops")`; `default` where it is missing."""
        node = self.result
        for step in path:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return default
        return default if node is None else node


def now_text():
    """Time of day as ISO text with zone, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def make_key(family, name, iteration, arguments, workload_sha, method_version, engine_version):
    """Identity of a measurement: the same key means the same number was asked for."""
    asked = [family, name, iteration, arguments, workload_sha, method_version, engine_version]
    return sha256_text(canonical_json(asked))


def process_mark():
    """This process, in a form that a later process can check for life: pid and its start time in clock ticks."""
    return {"pid": os.getpid(), "start": _start_ticks(os.getpid())}


def _start_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return int(stream.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def is_alive(mark):
    """True while the very process of `mark` runs (a reused pid does not count)."""
    start = _start_ticks(mark.get("pid", -1)) if mark else None
    return start is not None and start == mark.get("start")


def file_name(name, key, serial):
    """Readable, safe and unique: row name, key, and a serial number for repeated measurements of the key."""
    slug = re.sub(r"[^A-Za-z0-9._+-]+", "_", name)[:60]
    return f"{slug}--{key}--{serial:02d}.json"


def write_record(folder, filename, record):
    """Replace one record file atomically."""
    write_json(folder / filename, {"schema": SCHEMA, **record.__dict__})


def read_record(path):
    """Read one record; a `running` one whose process is gone reads as `unfinished`."""
    data = read_json(path)
    data.pop("schema", None)
    record = Record(**data)
    if record.status == "running" and not is_alive(record.meta.get("process")):
        data |= {"status": "unfinished", "reason": "the process that measured it ended before it could finish"}
        data["result"] = read_lines(lines_file(path)) or data["result"]
        record = Record(**data)
    return record


def lines_file(path):
    """Where a long measurement keeps its lines until its record is final."""
    return path.with_suffix(".lines.jsonl")


def read_lines(path):
    """What a measurement that died had told so far, as a result; {} where nothing of use was kept."""
    from escherlib.timing import hold

    if not path.exists():
        return {}
    whole = [line for line in path.read_text().split("\n")[:-1] if line]
    return hold.assemble([json.loads(line) for line in whole], "the process ended") or {}


def read_pointers(folder):
    """`current.json`: row name → record file, in the order asked for."""
    path = folder / "current.json"
    return read_json(path) if path.exists() else {}


def read_current(folder, pointers=None):
    """All records that count in one family's folder, by row name, in order."""
    pointers = read_pointers(folder) if pointers is None else pointers
    return {name: read_record(folder / file) for name, file in pointers.items() if (folder / file).exists()}


def history(folder, key):
    """Files of one key, oldest first."""
    return sorted(folder.glob(f"*--{key}--*.json"), key=lambda path: path.stem.rpartition("--")[2])
