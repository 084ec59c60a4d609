"""The measuring half of a run: device, telemetry beside it, and the life of one record from `running` to its end."""

import json
import time
import traceback
from contextlib import nullcontext

from escherlib.errors import Refused
from escherlib.method import describe
from escherlib.run import records
from escherlib.run.records import Record
from escherlib.timing.journal import heard_by

TIMELINE = ("clock_mhz", "power_w", "temperature_c", "memory_temperature_c", "utilisation_pct", "steal_pct", "power_limit_w")
MEMORY_ERRORS = ("OutOfMemoryError", "MemoryError")


class Measurer:
    """Opens the device on first use, keeps one telemetry sampler for this notebook, and runs rows."""

    def __init__(self, path, family, manifest):
        from escherlib.hardware.device import open_device

        self.path, self.family, self.manifest = path, family, manifest
        self.device = open_device(manifest["device"].get("asked", "auto"))
        self.lost_after = None
        self._sampler = None
        self._trace_file = None

    def _start_sampler(self):
        from escherlib.hardware import telemetry

        if self._sampler is None:
            self._trace_file = self.path / "telemetry" / f"{self.family}-{records.process_mark()['pid']}.jsonl"
            self._sampler = telemetry.start(self.device, self._trace_file)
        return self._sampler

    def row(self, run, name, function, arguments, sample_every_s, show=None):
        """Measure one row and write its record. Only an interrupt passes through, after it is written down.

        `show(line)` gets what a long measurement tells on its way.
        """
        key = run.key(name, function, arguments)
        filename = records.file_name(name, key, len(records.history(run.folder, key)) + 1)
        record = Record(
            self.family, name, "running", None, arguments, {}, {}, describe(function),
            {"key": key, "iteration": run.iteration, "device_sha": self.manifest["device"]["sha"],
             "started": records.now_text(), "process": records.process_mark()},
        )  # fmt: skip
        if self.lost_after:
            record = _ended(record, "failed", f"not run: device lost after {self.lost_after}")
        else:
            records.write_record(run.folder, filename, record)
            run.point(name, filename)
            with Journal(records.lines_file(run.folder / filename), show) as journal, heard_by(journal.keep):
                record = self._call(record, function, sample_every_s)
        records.write_record(run.folder, filename, record)
        run.point(name, filename)
        if record.status == "running":  # measured and safe on disk; what is left is its telemetry
            record = self._closed(record)
            records.write_record(run.folder, filename, record)
        records.lines_file(run.folder / filename).unlink(missing_ok=True)
        if record.status == "unfinished":
            raise KeyboardInterrupt(record.reason)
        return record

    def _call(self, record, function, sample_every_s):
        sampler = self._start_sampler()
        begun = time.monotonic_ns()
        try:
            with sampler.fast(sample_every_s) if sample_every_s else nullcontext():
                result = function(self.device, **record.arguments)
            took_s = (time.monotonic_ns() - begun) / 1e9
            return _with(record, result=result, meta={**record.meta, "seconds": round(took_s, 3)})
        except Refused as error:
            return _ended(record, "refused", str(error))
        except KeyboardInterrupt:
            return _ended(record, "unfinished", "interrupted by the user")
        except Exception as error:  # a row may fail in any way; the next row must still run
            return self._failure(record, error)

    def _failure(self, record, error):
        if type(error).__name__ in MEMORY_ERRORS:
            self._free()
            return _ended(record, "refused", f"out of memory: {_first_line(error)}")
        if not self._device_answers():
            self.lost_after = record.name
        reason = f"{type(error).__name__}: {_first_line(error)}"
        trace = traceback.format_exception(error)[-12:]
        return _with(_ended(record, "failed", reason), result={"traceback": "".join(trace)})

    def _device_answers(self):
        try:
            import torch

            return bool(torch.ones(1, device=self.device.torch_device).item())
        except Exception:  # any error here means the context is gone
            return False

    def _free(self):
        import gc

        gc.collect()
        if self.device.kind == "gpu":
            import torch

            torch.cuda.empty_cache()

    def _closed(self, record):
        """The record with its windows cut out of the telemetry, finished."""
        self._sampler.flush()
        return _ended(_with(record, telemetry=cut(self._read_samples(), record.result)), "finished", None)

    def _read_samples(self):
        from escherlib.hardware import telemetry

        return telemetry.read_samples(self._trace_file)

    def stop(self):
        """End the sampler; the next row starts it again."""
        if self._sampler:
            self._sampler.stop()
            self._sampler = None


class Journal:
    """Lines of one measurement on disk as they come; no file where it tells none."""

    def __init__(self, path, show):
        self.path, self.show, self.stream = path, show or (lambda line: None), None

    def __enter__(self):
        return self

    def keep(self, line):
        """Append one line, and show it."""
        self.stream = self.stream or self.path.open("a")
        self.stream.write(json.dumps(line, allow_nan=False) + "\n")
        self.stream.flush()
        self.show(line)

    def __exit__(self, *error):
        if self.stream:
            self.stream.close()


def cut(samples, result):
    """Telemetry of every state of a result over that state's own windows, and the raw trace where one was asked for.

    States stand under `states`; one that stands elsewhere is named by its place (`floor.state`, `brackets.0`).
    """
    from escherlib.hardware import telemetry

    states = {**dict(_states(result.get("states") or {})), **dict(_states({**result, "states": None}))}
    found = {name: telemetry.windows(samples, state["windows_ns"]) for name, state in states.items()}
    if result.get("timeline"):
        found["timeline"] = [condensed(telemetry.window(samples, *part["window_ns"])) for part in result["timeline"]]
    if result.get("trace_ns"):
        found["trace"] = telemetry.trace(samples, *result["trace_ns"])
    return found


def condensed(window):
    """Means of one window of a timeline, None where a sensor said nothing, and the limits seen in it."""
    means = {name: (window.get(name) or {}).get("mean") for name in TIMELINE}
    return {**means, "limits": window["limit_shares"]}


def _states(value, place=()):
    """(place, State) of every State in a result, however deep."""
    if isinstance(value, dict) and value.get("state") and value.get("windows_ns"):
        yield ".".join(place), value
    elif isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in items:
            if isinstance(part, (dict, list)):
                yield from _states(part, (*place, str(name)))


def _with(record, **changes):
    return Record(**{**record.__dict__, **changes})


def _ended(record, status, reason):
    return _with(record, status=status, reason=reason, meta={**record.meta, "ended": records.now_text()})


def _first_line(error):
    return (str(error).strip().splitlines() or ["no message"])[0][:300]
