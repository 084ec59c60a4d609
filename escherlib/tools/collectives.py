"""Running nccl-tests and rccl-tests, and their figures: busbw by size.

PyTorch's all-reduce works in place, its other collectives out of place; the same half of the table is taken. Sizes are
those of the whole collective, so an all-gather of ours is looked up by its output, a reduce-scatter by its input.
"""

from escherlib.tools.figures import figure, usable
from escherlib.tools.finding import find_programs

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
PROGRAMS = tuple(f"{name}_perf" for name in OPERATIONS)
DEADLINE_S = 180


def find(variables, environ=None):
    """{program: path}."""
    return find_programs(PROGRAMS, variables, environ)


def commands(programs, gpus, smallest="1M", largest="1G"):
    """One command per collective over all GPUs of this host, in bf16; none below two GPUs."""
    if gpus < 2:
        return []
    options = ["-b", smallest, "-e", largest, "-f", "2", "-g", str(gpus), "-d", "bfloat16", "-n", "20", "-w", "5"]
    return [[programs[name], *options] for name in PROGRAMS if name in programs]


def metrics(parsed):
    """busbw of every size of every test in the output, in GB/s."""
    if not usable(parsed):
        return []
    return [entry for run in (parsed, *parsed.get("further_runs", ())) for entry in _of_run(run)]


def _of_run(run):
    name = run.get("collective")
    if name not in OPERATIONS or not run["meaningful"] or run.get("validation") == "failed":
        return []
    half = "in_place" if name == "all_reduce" else "out_of_place"
    return [
        entry
        for row in run["rows"]
        if row["consistent"] and row[half] and row["size_bytes"]
        for entry in figure(
            f"{name}_busbw_gb_s", row[half]["busbw_gb_s"], bytes="bus", dtype=row["dtype"], size_bytes=row["size_bytes"],
            statistic=f"mean of iterations, {half.replace('_', ' ')}",
            note="not checked by the tool" if row[half]["wrong"] is None else None,
        )
    ]  # fmt: skip
