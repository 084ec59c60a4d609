"""The report's standing words: what is true of every run, whatever came out."""


def paragraphs(text):
    """Paragraphs of a text block, each on one line."""
    return tuple(" ".join(part.split()) for part in text.strip().split("\n\n"))


HOW_TO_READ = paragraphs("""
Every figure comes from a record of this run; nothing is typed by hand. A row that failed or was refused stays
in its table with its reason.

Burst is what the device gives in the first moments after idle; sustained is what remains once clock and time
have settled under continuous work. A power cap makes the two differ, so every compute figure says which it
is, and shares compare like with like.

Measured roofs are solid lines and come from this run; rated ones are dashed, come from the device profile and
are dense figures for one device. Where a device has no profile there is no rated value, and none is borrowed
from a neighbour.

Figures are medians; ranges are the 10th to 90th percentile, ± is half the 95 % confidence interval of the
median, n the number of samples.

Rates use decimal units (GB/s, TFLOP/s), sizes in memory binary ones (GiB).
""")

HOW_TO_READ_CPU = paragraphs("""
This is a CPU host: misses of the compute and memory criteria read WARN_CPU, since a few threads on a shared
host can be bimodal.
""")

METHOD = paragraphs("""
Clock: device events on the stream that does the work, or the host's monotonic clock on a CPU. Nothing
synchronises between timed calls; kernels too short for the clock are timed in batches or as a replayed graph,
and their record says so.

A measurement warms up until clock and time stop trending and stops when the confidence interval of its median
is small enough, or at a cap; the record holds the reason, every sample, and marks instead of removals.

Operands are normal random values and rotate over several times the last-level cache, so figures are cold
unless a column says hot.

Each kernel is held against a higher-precision reference on the same rounded inputs before and after it is
timed; a wrong result is no row.

Clock, power and temperature are sampled by a process of its own and cut to each row's own window.
""")
