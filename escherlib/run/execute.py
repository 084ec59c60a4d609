"""Executes one notebook with papermill, in a process of its own: `python -m escherlib.run.execute JOB.json`.

The last line on stdout is the verdict as JSON. papermill's own metadata says "completed" of cells that a killed
kernel never ran, so nobody reads it: exception, exit code and the notebook's summary token decide.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from escherlib.files import canonical_json, read_json


def own_kernel(folder):
    """A kernel named python3 that is this very interpreter, whatever kernels the user has installed."""
    spec = Path(folder) / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))


def execute(job):
    """Run `job` {source, target, parameters, cell_timeout_s, cwd}; return {ok, error, cell}."""
    with tempfile.TemporaryDirectory(prefix="escher-kernel-") as folder:
        own_kernel(folder)
        os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("JUPYTER_PATH")]))
        import papermill
        from nbclient.exceptions import CellTimeoutError, DeadKernelError

        try:
            papermill.execute_notebook(
                job["source"], job["target"], parameters=job["parameters"], kernel_name="python3",
                progress_bar=False, log_output=False, execution_timeout=job["cell_timeout_s"],
                autosave_cell_every=2, shutdown_kernel="immediate", cwd=job["cwd"],
            )  # fmt: skip
        except papermill.PapermillExecutionError as error:
            return {"ok": False, "error": f"{error.ename}: {error.evalue}".strip(), "cell": error.cell_index}
        except DeadKernelError:
            return {"ok": False, "error": "the kernel died (killed, or out of memory)", "cell": None}
        except CellTimeoutError:
            return {"ok": False, "error": f"a cell ran over {job['cell_timeout_s']} s", "cell": None}
    return {"ok": True, "error": None, "cell": None}


if __name__ == "__main__":
    verdict = execute(read_json(sys.argv[1]))
    print(canonical_json(verdict))
    sys.exit(0 if verdict["ok"] else 1)
