"""Schema of parameters/scoring.yaml: every threshold of the scorecard.

Shares are fractions of 1, *_pp percentage points.
"""

from typing import Literal

from pydantic import Field

from escherlib.schemas.base import Count, Positive, Share, Strict, Text


class Criterion(Strict):
    """What all criteria have."""

    role: Literal["gating", "opt-in"]
    title: Text


class ComputeRoof(Criterion):
    """SC-1."""

    square_share_of_peak: Share
    rated_floor_share_of_achievable: Share
    rated_floor_default: Share


class MemoryRoof(Criterion):
    """SC-2."""

    last_sizes: Count
    flatness_gpu: Share
    flatness_cpu: Share
    floor_share_of_published_copy: Share
    floor_share_of_rated: Share


class OpTimes(Criterion):
    """SC-3."""

    slowest: Positive
    fastest: Positive
    lower_bound_only_below_s: Positive
    read_share_for_read_roof: Share


class EndToEnd(Criterion):
    """SC-4."""

    compiled_below_eager_pp: Positive
    eager_from_sum_of_ops_pp: Positive
    unexplained_pp: Positive
    coverage: Share


class Numerics(Criterion):
    """SC-6."""

    error: Positive
    error_output_rounding: Positive
    times_emulation: Positive


class Sustained(Criterion):
    """SC-7."""

    head_share: Share
    tail_share: Share
    drift: Share
    sigma_growth: Positive
    clock_drop: Share
    full_length_minutes: Positive


class Variability(Criterion):
    """SC-8."""

    cv_gpu: Share
    cv_cpu: Share
    runs: Count


class Headroom(Criterion):
    """SC-11."""

    live_set_factor: Positive


class Fused(Criterion):
    """SC-12."""

    geometric_mean_above: Positive
    judged_where_bound_above: Positive
    worst: Positive


class Classes(Strict):
    """Measured time over theory."""

    at_limit: Positive
    tunable: Positive


class Mfu(Strict):
    """Rules of the denominator D and its brackets."""

    tolerance_pp: Positive
    confirm_above_peak: Share
    brackets_apart: Share
    throughput_apart: Share


class Account(Strict):
    """Closure of the end-to-end account."""

    closes_within: Share
    profiled_within: Share
    cosine_limit: Share


class Regression(Strict):
    """Compare with a baseline."""

    peak_drop: Share
    memory_drop: Share
    chunk_time_rise: Share
    pooled_deviations: Positive
    single_run_allowance: Share


class Scoring(Strict):
    """The whole file."""

    sc1: ComputeRoof
    sc2: MemoryRoof
    sc3: OpTimes
    sc4: EndToEnd
    sc5: Criterion
    sc6: Numerics
    sc7: Sustained
    sc8: Variability
    sc9: Criterion
    sc10: Criterion
    sc11: Headroom
    sc12: Fused
    classes: Classes
    above_roof_finding: Positive
    calibration_drift_pct: Positive
    mfu: Mfu
    peaks_alike: Share
    account: Account
    regression: Regression
    dashboard: dict[Text, Positive] = Field(default_factory=dict)

    def criteria(self):
        """Criterion id (`SC-1` …) → its thresholds, in order."""
        return {f"SC-{number}": getattr(self, f"sc{number}") for number in range(1, 13)}
