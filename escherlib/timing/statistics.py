"""Honest statistics of few or many samples: quantiles, a distribution-free interval of the median, a robust slope."""

import math
import statistics


def quantile(ordered, share):
    """Quantile of sorted values by linear interpolation (Hyndman-Fan type 7)."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def median_interval(ordered, confidence=0.95):
    """(low, high) order statistics that hold the median with at least `confidence`; (min, max) below six samples."""
    n = len(ordered)
    if n < 6:
        return ordered[0], ordered[-1]
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    rank = max(0, math.floor(n / 2 - z * math.sqrt(n) / 2))
    return ordered[rank], ordered[n - 1 - rank]


def theil_sen(times, values, confidence=0.95, most=300):
    """Robust line through points: {slope, low, high} per unit of time, by medians of all pairwise slopes.

    More than `most` points are first joined to medians of blocks. The interval is Kendall's (Sen 1968).
    """
    if len(times) > most:
        times, values = blocks(times, most), blocks(values, most)
    n = len(times)
    slopes = sorted(
        (values[j] - values[i]) / (times[j] - times[i])
        for i in range(n) for j in range(i + 1, n) if times[j] != times[i]
    )  # fmt: skip
    if not slopes:
        return None
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, math.floor((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))
    return {"slope": statistics.median(slopes), "low": slopes[low], "high": slopes[high]}


def blocks(values, count):
    """Medians of `count` nearly equal blocks of consecutive values."""
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return [statistics.median(values[a:b]) for a, b in zip(edges, edges[1:], strict=False) if b > a]


def median_of(samples_ns):
    """Median of the samples that are times."""
    return statistics.median([s for s in samples_ns if s > 0] or [0])


def mark_faulty(samples_ns):
    """{index: reason} of samples that no work can have taken."""
    return {str(i): "zero" if s == 0 else "negative" for i, s in enumerate(samples_ns) if s <= 0}


def summarize(samples_ns, calls_per_sample):
    """Fields of a State from its samples: seconds a call. Marked samples are counted out, never dropped."""
    marks = mark_faulty(samples_ns)
    good = sorted(s / 1e9 / calls_per_sample for s in samples_ns if s > 0)
    empty = dict.fromkeys(
        ("median_s", "mean_s", "p10_s", "p90_s", "min_s", "max_s", "stdev_s", "ci_low_s", "ci_high_s", "ci_rel")
    )
    base = {"n": len(good), "calls_per_sample": calls_per_sample, "samples_ns": list(samples_ns), "marks": marks}
    if not good:
        return {**empty, **base}
    median = statistics.median(good)
    low, high = median_interval(good)
    return {
        "median_s": median, "mean_s": statistics.fmean(good), "p10_s": quantile(good, 0.1), "p90_s": quantile(good, 0.9),
        "min_s": good[0], "max_s": good[-1], "stdev_s": statistics.stdev(good) if len(good) > 1 else None,
        "ci_low_s": low, "ci_high_s": high, "ci_rel": (high - low) / 2 / median, **base,
    }  # fmt: skip
