"""Escher microbenchmarks: how close does this machine get to its limits on escher_14b_480p?

The rooms and the way data flows through them are described in the README ("How it is built").
"""

import sys

# jsonschema (pulled in by altair, papermill and nbconvert) builds a slow grammar from this optional
# module at import: 1.6 s in every kernel. Without it only the IRI format check is skipped.
sys.modules.setdefault("rfc3987_syntax", None)

__version__ = "0.1.0"
