"""The two functions that the validation notebook measures with, one record a tool. Folders never stand in a record.

In notebooks/11_validation.ipynb, with `measured` for this module and `suited` from escherlib.tools.running:

    measured.use(run.path / "logs" / "validators")                            # where raw output goes
    for tool in suited(device): run.measure(tool, measured.external, tool=tool, gpus=count)
    for tool in tools.MODULES:  run.measure(f"import/{tool}", measured.saved, tool=tool, digest=measured.digest())
    rows = table(run.results, load_validation(), more=figures_of_families_6_and_8)

The import rows only where measured.digest() is not None: IMPORT= puts its folder into ESCHER_IMPORT, and the digest of
the files' contents makes changed logs be read again. `device` has `.stack`, `.index`, `.memory_bytes`, `.llc_bytes`.
"""

import os
import tempfile
from pathlib import Path

from escherlib.files import sha256_text
from escherlib.method import method
from escherlib.tools.running import LIMIT_BYTES, imported, validate

LOGS, IMPORT = "ESCHER_TOOL_LOGS", "ESCHER_IMPORT"


def use(folder):
    """Keep raw output of tools in `folder`; without it, it goes to a temporary folder that is left for the user."""
    os.environ[LOGS] = str(folder)


@method(version=1)
def external(device, tool, gpus=1, deadline_s=None):
    """{"outcomes": […]} of a validator on this device and `gpus` devices of this host; see escherlib.tools.running."""
    folder = os.environ.get(LOGS) or tempfile.mkdtemp(prefix="escher-tools-")
    return validate(tool, device, folder, gpus=gpus, deadline_s=deadline_s)


@method(version=1)
def saved(device, tool, digest):
    """{"outcomes": […]} of the saved logs of a validator in the folder of IMPORT=; `digest` is that folder's."""
    return {"outcomes": imported(tool, os.environ[IMPORT])}


def digest():
    """Hash of the contents of the folder of IMPORT=, or None where none is given or it is no folder."""
    folder = Path(os.environ.get(IMPORT) or "")
    if not os.environ.get(IMPORT) or not folder.is_dir():
        return None
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size <= LIMIT_BYTES]
    texts = [f"{path.relative_to(folder)}\n{path.read_bytes().decode('utf-8', errors='replace')}" for path in files]
    return sha256_text("\0".join(texts))
