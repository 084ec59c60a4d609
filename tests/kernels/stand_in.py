"""A device for tests: this CPU, with a small pretended cache so that operands stay small."""

from types import SimpleNamespace

# Milliseconds where the real protocol takes seconds: for tests that want a State, not a number.
QUICK = {
    "burst_idle_s": 0.001, "burst_idle_cap_s": 0.001, "burst_run_s": 0.004, "burst_best_s": 0.002,
    "settle_window_s": 0.004, "settle_min_s": 0.02, "settle_cap_s": 0.05, "condition_s": 0.004,
    "window_s": 0.01, "adaptive_min_s": 0.004, "adaptive_max_s": 0.02,
}  # fmt: skip


def cpu(**changes):
    """Fields of a Device that kernels read."""
    fields = {
        "kind": "cpu", "stack": "cpu", "index": 0, "torch_device": "cpu", "name": "test CPU", "arch": None,
        "memory_bytes": 2**34, "compute_units": 2, "l2_bytes": 2**18, "llc_bytes": 2**20, "profile": None,
        "native_bf16": True, "peak_dtype": "fp32", "threads": 2, "smi_key": None, "sha": "0" * 16,
    }  # fmt: skip
    return SimpleNamespace(**(fields | changes))
