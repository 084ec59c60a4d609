"""A device for tests: this CPU, with a small pretended cache so that operands stay small."""

from types import SimpleNamespace


def cpu(**changes):
    """Fields of a Device that kernels read."""
    fields = {
        "kind": "cpu", "stack": "cpu", "index": 0, "torch_device": "cpu", "name": "test CPU", "arch": None,
        "memory_bytes": 2**34, "compute_units": 2, "l2_bytes": 2**18, "llc_bytes": 2**20, "profile": None,
        "native_bf16": True, "peak_dtype": "fp32", "threads": 2, "smi_key": None, "sha": "0" * 16,
    }  # fmt: skip
    return SimpleNamespace(**(fields | changes))
