"""Statistics against values worked out by hand, and properties that hold for any samples."""

import statistics as stdlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escherlib.timing import statistics


def test_quantiles_by_hand():
    assert statistics.quantile([10, 20, 30, 40, 50], 0.5) == 30
    assert statistics.quantile([10, 20, 30, 40, 50], 0.1) == pytest.approx(14)
    assert statistics.quantile([7], 0.9) == 7


def test_median_interval_by_hand():
    # n = 25: 12.5 − 1.96·2.5 = 7.6, so the 8th value from either end
    assert statistics.median_interval(list(range(1, 26))) == (8, 18)
    assert statistics.median_interval([1, 2, 3]) == (1, 3)


def test_theil_sen_by_hand():
    # slopes of (0,1) (1,3) (2,5) (3,100): 2, 2, 33, 2, 48.5, 95 → median 17.5
    line = statistics.theil_sen([0, 1, 2, 3], [1, 3, 5, 100])
    assert line["slope"] == 17.5
    assert (line["low"], line["high"]) == (2, 95)
    assert statistics.theil_sen([1, 1], [2, 3]) is None


def test_theil_sen_ignores_a_wild_tenth():
    values = [2.0 * t for t in range(100)]
    for i in range(0, 100, 10):
        values[i] = 1e6
    assert statistics.theil_sen(list(range(100)), values)["slope"] == pytest.approx(2.0, rel=0.02)


def test_faulty_samples_are_marked_counted_out_and_kept():
    found = statistics.summarize([2_000_000, 0, -5, 4_000_000], 2)
    assert found["marks"] == {"1": "zero", "2": "negative"}
    assert found["samples_ns"] == [2_000_000, 0, -5, 4_000_000]
    assert (found["n"], found["median_s"], found["min_s"]) == (2, 1.5e-3, 1e-3)


def test_nothing_usable_gives_null_and_never_nan():
    found = statistics.summarize([0, -1], 1)
    assert found["median_s"] is None and found["ci_rel"] is None and found["n"] == 0


samples = st.lists(st.integers(1, 10**9), min_size=1, max_size=200)


@given(samples)
def test_interval_holds_the_median_and_lies_within_the_range(values):
    found = statistics.summarize(values, 1)
    assert found["min_s"] <= found["ci_low_s"] <= found["median_s"] <= found["ci_high_s"] <= found["max_s"]
    assert found["median_s"] == pytest.approx(stdlib.median(values) / 1e9)


@given(samples, st.integers(2, 50))
def test_calls_per_sample_scales_every_figure(values, calls):
    one, many = statistics.summarize(values, 1), statistics.summarize([v * calls for v in values], calls)
    for name in ("median_s", "p10_s", "p90_s", "ci_low_s", "ci_high_s", "mean_s"):
        assert many[name] == pytest.approx(one[name])


@given(samples)
def test_order_of_samples_does_not_matter(values):
    one, other = statistics.summarize(values, 1), statistics.summarize(values[::-1], 1)
    assert {k: v for k, v in one.items() if k != "samples_ns"} == {k: v for k, v in other.items() if k != "samples_ns"}
