"""Every chart by name: functions of a run's Results. Each returns an Altair chart, or a "not measured" box.

from escherlib.report import charts
show(charts.gemm_sweep(run.results))
"""

from escherlib.report.charts_compute import (
    dtype_ladder,
    gemm_sweep,
    search_ranking,
    transient,
    workload_gemms,
)
from escherlib.report.charts_environment import usable
from escherlib.report.charts_memory import bandwidth, cache_curve, capacity
from escherlib.report.charts_roofline import roofline
from escherlib.report.theme import enable

enable()  # a chart that is the last line of a cell draws offline too

__all__ = [
    "bandwidth",
    "cache_curve",
    "capacity",
    "dtype_ladder",
    "gemm_sweep",
    "roofline",
    "search_ranking",
    "transient",
    "usable",
    "workload_gemms",
]
