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
from escherlib.report.charts_e2e import chunks, mfu, waterfall, what_if
from escherlib.report.charts_environment import usable
from escherlib.report.charts_memory import bandwidth, cache_curve, capacity
from escherlib.report.charts_numerics import error_over_k, ulp_histogram
from escherlib.report.charts_roofline import roofline
from escherlib.report.charts_sustained import recovery, speed_clock, timeline
from escherlib.report.charts_workload import attention, op_times
from escherlib.report.theme import enable

enable()  # a chart that is the last line of a cell draws offline too

__all__ = [
    "attention",
    "bandwidth",
    "cache_curve",
    "capacity",
    "chunks",
    "dtype_ladder",
    "error_over_k",
    "gemm_sweep",
    "mfu",
    "op_times",
    "recovery",
    "roofline",
    "search_ranking",
    "speed_clock",
    "timeline",
    "transient",
    "ulp_histogram",
    "usable",
    "waterfall",
    "what_if",
    "workload_gemms",
]
