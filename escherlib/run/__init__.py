"""The run: records, the run folder, what notebooks hold in their hands, and the suite that executes them."""

from escherlib.run.records import Record
from escherlib.run.results import Results, load_results
from escherlib.run.session import Run, open_run

__all__ = ["Record", "Results", "Run", "load_results", "open_run"]
