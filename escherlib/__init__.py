"""Escher microbenchmarks: how close does this machine get to its limits on escher_14b_480p?

The rooms and the way data flows through them are described in the README ("How it is built").
"""

import os
import sys

# jsonschema (pulled in by altair, papermill and nbconvert) builds a slow grammar from this optional
# module at import: 1.6 s in every kernel. Without it only the IRI format check is skipped.
sys.modules.setdefault("rfc3987_syntax", None)

# choosing a BLAS library makes torch print a remark on stderr, once, into somebody's notebook
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

__version__ = "0.1.0"
