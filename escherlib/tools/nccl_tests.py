"""nccl-tests (`all_reduce_perf` and its siblings): collectives on NVIDIA GPUs."""

from escherlib.tools import collectives, nccl_table
from escherlib.tools.collectives import DEADLINE_S, PROGRAMS, metrics

STACKS = ("cuda",)
VARIABLES = ("ESCHER_NCCL_TESTS", "NCCL_TESTS_DIR")


def parse(text):
    """Rows by size with algbw and busbw in GB/s, out of place and in place; see nccl_table."""
    return nccl_table.parse(text, "nccl")


def find(environ=None):
    """{program: path}."""
    return collectives.find(VARIABLES, environ)


def commands(device, programs, folder, gpus=1):
    """One command per collective over all GPUs of this host; none below two GPUs."""
    return collectives.commands(programs, gpus)


__all__ = ["DEADLINE_S", "PROGRAMS", "STACKS", "VARIABLES", "commands", "find", "metrics", "parse"]
