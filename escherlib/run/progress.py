"""What a person sees while rows are measured: one updating line in a notebook, one line a row for the suite."""

import json
import time

TELL_EVERY_S = 1.0


class Progress:
    """Context of one measure or sweep. Writes a progress line for the suite and updates one line in the notebook."""

    def __init__(self, run_path, family, total):
        self.file = run_path / "logs" / "progress.jsonl"
        self.family, self.total, self.done, self.measured = family, total, 0, 0
        self.lacking = 0  # rows that analysis asked for and the run does not have
        self.begun, self.handle, self.last = time.monotonic(), None, None
        self.told_s = -TELL_EVERY_S

    def __enter__(self):
        return self

    def begin(self, name):
        """A measurement of `name` starts now."""
        self._show(f"measuring {name} ({self.done + 1} of {self.total}) …")
        self._log({"event": "begin", "row": name})

    def tell(self, line):
        """What a long measurement says on its way: shown, for the suite's line too."""
        text = line.get("told")
        if text and time.monotonic() - self.told_s >= TELL_EVERY_S:
            self.told_s = time.monotonic()
            self._show(f"{text} …")
            self._log({"event": "told", "text": text})

    def step(self, name, record, loaded=False):
        """One row is done: measured now, or loaded."""
        self.done += 1
        self.measured += not loaded
        self.lacking += record.status == "not_measured"
        self.last = record
        if not loaded:
            self._log({"event": "row", "row": name, "status": record.status, "reason": record.reason})

    def __exit__(self, kind, error, trace):
        took_s = time.monotonic() - self.begun
        if self.total == 0 and error is None:
            self._show("nothing to measure here")
            return
        rows = self.last.name if self.total == 1 and self.last else f"{self.done} of {self.total} rows"
        if error is not None:
            self._show(f"{rows}: stopped after {took_s:.1f} s")
        elif self.measured:
            self._show(f"{rows}: {self.measured} measured in {took_s:.1f} s" + self._reason())
        elif self.total == 1 and self.lacking:
            self._show(f"{rows}: {self.last.reason}")
        else:
            lacking = f", {self.lacking} not measured with these parameters" if self.lacking else ""
            self._show(f"{rows}: loaded from records{lacking}" + self._reason())

    def _reason(self):
        if self.total == 1 and self.last is not None and self.last.reason:
            return f" · {self.last.status}: {self.last.reason}"
        return ""

    def _log(self, event):
        try:
            self.file.parent.mkdir(exist_ok=True)
            with self.file.open("a") as stream:
                stream.write(json.dumps({"family": self.family, "time": time.time(), **event}) + "\n")
        except OSError:
            pass  # progress is a courtesy; the record itself is what must not be lost

    def _show(self, text):
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            return
        if get_ipython() is None:
            return
        bundle = {"text/plain": text}
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)
