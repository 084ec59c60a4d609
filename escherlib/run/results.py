"""A finished or growing run as plain data: what tables, charts, score and report read."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from escherlib.errors import UserError
from escherlib.files import read_json
from escherlib.run.records import Record, read_current, read_pointers
from escherlib.schemas.hosts import on_host


@dataclass(frozen=True)
class Results:
    """One run folder read once. `records[family][name]` are the rows that count, in the order they were asked for."""

    path: Path
    manifest: dict
    env: dict | None = None
    records: dict = field(default_factory=dict)
    summaries: dict = field(default_factory=dict)
    target: str | None = None  # profile id forced for presentation

    @property
    def device(self):
        """What run.json says of the device the run is bound to."""
        return self.manifest.get("device", {})

    @property
    def kind(self):
        """`gpu` or `cpu`."""
        return self.device.get("kind", "cpu")

    @property
    def statuses(self):
        """Family → {status, reason, seconds, …} as the suite wrote them."""
        return self.manifest.get("families", {})

    @cached_property
    def profile(self):
        """Rated figures of the device without those that do not hold for it, or None where it is not known.

        Those of a CPU are worked out for this host; a profile forced for presentation is not this host's.
        """
        from escherlib.parameters import load_devices

        profile = load_devices().get(self.target or self.device.get("profile"))
        if profile is None:
            return None
        if self.target and self.target != self.device.get("profile"):
            return profile
        withheld = () if self.target else tuple(self.device.get("withheld", ()))
        return on_host(profile.without(withheld), self.device)

    def rows(self, family, prefix=""):
        """Rows of a family whose name starts with `prefix`, in order."""
        return [r for name, r in self.records.get(family, {}).items() if name.startswith(prefix)]

    def row(self, family, name):
        """One row, or None where it was never asked for."""
        return self.records.get(family, {}).get(name)


def load_results(path, target=None):
    """Read a run folder. UserError where it is none."""
    path = Path(path)
    if not (path / "run.json").is_file():
        raise UserError(f"{path}: not a run folder (no run.json); give RUN=<id> or the path of a run")
    folders = sorted(p for p in (path / "records").glob("*") if p.is_dir())
    manifest = read_json(path / "run.json")
    records = {folder.name: read_current(folder) for folder in folders}
    require_one_device(path, manifest, records)
    return Results(
        path=path,
        manifest=manifest,
        env=read_json(path / "env.json") if (path / "env.json").exists() else None,
        records=records,
        summaries={f.name: read_json(f / "summary.json") for f in folders if (f / "summary.json").exists()},
        target=target,
    )


def require_one_device(path, manifest, records):
    """UserError where a record was measured on another device than the run is bound to."""
    bound = manifest.get("device", {}).get("sha")
    for family, rows in records.items():
        for record in rows.values():
            found = record.meta.get("device_sha", bound)
            if found != bound:
                raise UserError(
                    f"{path}: {family} {record.name} was measured on another device ({found}) than the run is bound to "
                    f"({bound}); a run holds one set of devices: remove that record or measure all families again"
                )


def load_pass(path, iteration):
    """Family → rows of a later pass of a run measured with ITERATIONS=N."""
    later = Path(path) / "iterations" / str(iteration)
    return {
        file.name.removesuffix(".current.json"): read_current(
            Path(path) / "records" / file.name.removesuffix(".current.json"), read_json(file)
        )
        for file in sorted(later.glob("*.current.json"))
    }


__all__ = ["Record", "Results", "load_pass", "load_results", "read_pointers"]
