"""Runs made by hand for the judge: a few numbers in, Results out."""

from pathlib import Path

from escherlib.parameters import load_devices, load_scoring
from escherlib.run.records import Record
from escherlib.run.results import Results

COMPUTE, BANDWIDTH = "01_bf16_compute", "02_memory_bandwidth"
SCORING = load_scoring()
DEVICES = load_devices()
H200 = DEVICES["h200_sxm"]  # rated 989.4 TFLOP/s and 4800 GB/s; published 790.3 TFLOP/s and 4010 GB/s copy
MIB = 2**20


def state(value, unit="tflops", label=None, spread=0.0):
    """A state of 1 ms calls whose rate is `value`; p10 and p90 lie `spread` around the median."""
    return {
        "median_s": 1e-3,
        "p10_s": 1e-3 * (1 - spread),
        "p90_s": 1e-3 * (1 + spread),
        unit: value,
        "label": label,
    }


def gemm(name, burst=None, sustained=None, dtype="bf16", label=None, spread=0.0, **more):
    """A finished GEMM row; `label` is that of the sustained state."""
    states = {
        "burst": state(burst, spread=spread) if burst else None,
        "sustained": state(sustained, label=label, spread=spread) if sustained else None,
    }
    result = {
        "states": states,
        "dtype": dtype,
        "fill": "normal",
        "backend": "cublaslt",
        "m": 8192,
        "n": 8192,
        "k": 8192,
    }
    return Record(COMPUTE, name, "finished", result=result | more)


def peak(burst=800.0, sustained=670.0, dtype="bf16", label=None, **more):
    """The `peak` row."""
    best = {"m": 12288, "n": 12288, "k": 12288, "backend": "cublas"}
    return gemm(
        "peak", burst, sustained, dtype, label, best_burst=best, best_sustained=best | {"m": 4096}, **more
    )


def stream(op, size_mib, gb_s, where="cold", **more):
    """A finished stream row of `size_mib` MiB a buffer."""
    result = {"states": {where: state(gb_s, "gb_s", spread=0.1)}}
    return Record(BANDWIDTH, f"{op}/{size_mib * MIB}", "finished", result=result | more)


def streams(copy=(4200.0, 4280.0, 4285.0), add=(4350.0, 4410.0, 4416.0)):
    """copy and add rows over growing sizes, in GB/s."""
    return [
        stream(op, 1024 * 2**i, value)
        for op, values in (("copy", copy), ("add", add))
        for i, value in enumerate(values)
    ]


def correct(dtype="bf16", k=4096, error=0.2, bound=1.0, emulation_max=0.19, **more):
    """A finished row of the correctness check."""
    result = {
        "correct": {"ok": True, "error": error, "bound": bound, "how": "by hand"}, "max": error, "ok": True,
        "dtype": dtype, "emulation_max": emulation_max,
        "reduction_switches": {"allow_fp16_accumulation": False},
    }  # fmt: skip
    return Record(COMPUTE, f"correct/{dtype}/{k}", "finished", result=result | more)


def ended(name, status, reason, family=COMPUTE):
    """A row without a result."""
    return Record(family, name, status, reason)


def squares():
    """Three squares, best 0.95 × the burst peak and 0.96 × the sustained peak of `peak()`."""
    return [gemm("square/4096", 700.0), gemm("square/8192", 760.0, 643.2), gemm("square/16384", 750.0, 640.0)]


def good_rows():
    """Rows of a healthy H200."""
    return [peak(), *squares(), *streams(), correct()]


def make(rows=(), kind="gpu", profile=H200, families=None, env=None, path=Path("run"), **device):
    """Results of a run that holds `rows`; families are finished unless told otherwise."""
    records = {COMPUTE: {}, BANDWIDTH: {}}
    for row in rows:
        assert row.name not in records.setdefault(row.family, {})
        records[row.family][row.name] = row
    found = {
        "kind": kind,
        "name": "a device",
        "profile": profile and profile.id,
        "peak_dtype": "bf16",
    } | device
    families = {family: {"status": "finished", "reason": None} for family in records} | (families or {})
    manifest = {"id": "run-1", "device": found, "families": families}
    results = Results(path, manifest, env=env, records=records)
    results.__dict__["profile"] = profile  # as if looked up
    return results


def without(rows, *prefixes):
    """Rows whose name starts with none of the prefixes."""
    return [row for row in rows if not row.name.startswith(prefixes)]
