"""Figures of validators in our own terms: one metric, one number, and the convention it is counted by.

Conventions: `bytes` is `read + write` (every byte read and every byte written counts), `read` (reads alone), `once` (bytes
that arrive), `bus` (a collective's traffic per link) or None; `direction` is `one way`, `both ways, sum` or None.
A tool that counts otherwise is converted, and `note` says how.
"""

from statistics import median

from escherlib.hardware.parsers.contract import USABLE

MEMORY = tuple(f"memory_{op}_gb_s" for op in ("copy", "mul", "add", "axpy", "sum"))
COPIES = (
    "h2d_gb_s", "d2h_gb_s", "d2d_gb_s", "d2d_min_gb_s", "d2d_bidirectional_gb_s", "d2d_bidirectional_min_gb_s",
)  # fmt: skip
COLLECTIVES = tuple(f"{name}_busbw_gb_s" for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"))
GEMMS = ("gemm_bf16_tflops", "gemm_fp32_tflops")
METRICS = (*GEMMS, *MEMORY, *COPIES, *COLLECTIVES)


def figure(metric, value, *, bytes=None, direction=None, dtype=None, size_bytes=None, statistic=None, note=None):
    """One figure as a list of one, or [] where the value is not known."""
    assert metric in METRICS, metric
    if not value or value < 0:
        return []
    return [{
        "metric": metric, "size_bytes": size_bytes, "value": value, "unit": "TFLOP/s" if metric in GEMMS else "GB/s",
        "convention": {"bytes": bytes, "direction": direction, "dtype": dtype}, "statistic": statistic, "note": note,
    }]  # fmt: skip


def memory(operation, value, **more):
    """Memory bandwidth of one operation: bytes read and written, or read alone for `sum`."""
    return figure(f"memory_{operation}_gb_s", value, bytes="read" if operation == "sum" else "read + write", **more)


def copy(metric, value, **more):
    """A copy between host and device or between devices; bidirectional metrics are the sum of both directions."""
    return figure(metric, value, bytes="once", direction="both ways, sum" if "bidirectional" in metric else "one way", **more)


def middle(values):
    """Median of those that are numbers, or None."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def usable(parsed):
    """True where a parser's result may be compared: a failed check of the tool's own shows numbers that don't count."""
    return parsed.get("status") in USABLE and parsed.get("validation") != "failed"
