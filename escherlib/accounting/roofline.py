"""The roofline: what two roofs allow. Rates in TFLOP/s (10¹²) and GB/s (10⁹), intensity in FLOP/byte."""


def ridge(peak_tflops, memory_gb_s):
    """Arithmetic intensity at which both roofs meet, in FLOP/byte."""
    return peak_tflops * 1e12 / (memory_gb_s * 1e9)


def attainable(flop_per_byte, peak_tflops, memory_gb_s):
    """Highest TFLOP/s at an arithmetic intensity."""
    return min(peak_tflops, flop_per_byte * memory_gb_s / 1e3)


def floor_s(flop, nbytes, peak_tflops, memory_gb_s):
    """Shortest time of an operation: the later of its compute and its memory time, in seconds."""
    return max(compute_s(flop, peak_tflops), memory_s(nbytes, memory_gb_s))


def bound(flop, nbytes, peak_tflops, memory_gb_s):
    """`compute` or `memory`: which roof an operation meets first."""
    return "compute" if compute_s(flop, peak_tflops) >= memory_s(nbytes, memory_gb_s) else "memory"


def compute_s(flop, peak_tflops):
    """Seconds of compute at the peak."""
    return flop / (peak_tflops * 1e12)


def memory_s(nbytes, memory_gb_s):
    """Seconds of traffic at the memory roof."""
    return nbytes / (memory_gb_s * 1e9)
