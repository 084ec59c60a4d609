"""nccl-tests (`all_reduce_perf` and its siblings): collectives on NVIDIA GPUs."""

from escherlib.tools import nccl_table


def parse(text):
    """Rows by size with algbw and busbw in GB/s, out of place and in place; see nccl_table."""
    return nccl_table.parse(text, "nccl")
