"""A workload small enough for tests that run the stack: real structure, two heads."""

from escherlib.schemas.workload import Workload


def tiny(**changes):
    """Three blocks of width 64 over a ring of three slots."""
    fields = {
        "name": "tiny", "description": "for tests", "dtype": "fp32", "d_model": 64, "heads": 2, "head_dim": 32, "ffn": 96,
        "blocks": 3, "tokens_per_latent_frame": 8, "frames": 2, "window": 6, "text_tokens": 5, "cross_kv_cached": True,
        "time_widths": [32, 64, 384], "streams": {"norm": 6, "residual": 0, "gelu": 2, "kv_cache_write": 4},
        "printed_megabyte": "MiB",
    }  # fmt: skip
    return Workload(**(fields | changes))
