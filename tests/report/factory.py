"""A small FAKE run folder: every value in it is invented, so that charts, tables and reports have something
to show.
"""

import json
import math

from escherlib.parameters import load_workload
from escherlib.run.records import file_name

CREATED = "2026-03-04T05:06:07+00:00"
MIB, GIB = 2**20, 2**30
GPU = {
    "peak": (800.0, 670.0),
    "clock": (1975.0, 1450.0),
    "power": (690.0, 698.0),
    "copy": 4280.0,
    "bytes": 141 * 10**9,
}
CPU = {"peak": (0.41, 0.40), "clock": (2600.0, 2590.0), "power": None, "copy": 31.0, "bytes": 23 * GIB}


def write_json(path, obj):
    """Plain JSON: the engine's own writer waits for the disk, which a test need not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(obj, allow_nan=False))


def state(median_s, flop=None, moved=None, *, spread=0.006, n=31, label=None, name="sustained"):
    """One timed state of an invented measurement."""
    found = {
        "state": name,
        "median_s": median_s,
        "p10_s": median_s * (1 - spread),
        "p90_s": median_s * (1 + 1.4 * spread),
        "min_s": median_s * (1 - 2 * spread),
        "max_s": median_s * (1 + 3 * spread),
        "mean_s": median_s * 1.001,
        "n": n,
        "ci_low_s": median_s * (1 - spread / 3),
        "ci_high_s": median_s * (1 + spread / 3),
        "ci_rel": spread / 3,
        "calls_per_sample": 1,
        "samples_ns": [],
        "marks": {},
        "timed_as": "events",
        "stop": "interval small enough",
        "label": label,
        "windows_ns": [[0, 10**9]],
    }
    if flop:
        found["tflops"] = flop / median_s / 1e12
    if moved:
        found["gb_s"] = moved / median_s / 1e9
    return found


def window(clock_mhz, power_w):
    """Telemetry of one invented window."""
    return {
        "clock_mhz": {"mean": clock_mhz, "min": clock_mhz - 5, "max": clock_mhz + 5, "n": 10},
        "power_w": None
        if power_w is None
        else {"mean": power_w, "min": power_w - 3, "max": power_w + 3, "n": 10},
        "n": 10,
    }


class FakeRun:
    """Collects invented records family by family and writes them the way the run engine does."""

    def __init__(self, root, kind="gpu", profile="h200_sxm"):
        self.root, self.kind = root, kind
        self.spec = GPU if kind == "gpu" else CPU
        self.records, self.families, self.summaries = {}, {}, {}
        name = "FAKE accelerator (invented values)" if kind == "gpu" else "FAKE host CPU (invented values)"
        self.manifest = {
            "schema": 1,
            "id": "fake-run",
            "created": CREATED,
            "ended": "2026-03-04T05:16:07+00:00",
            "commit": "0123456789ab",
            "suite": "standard",
            "device": {
                "kind": kind,
                "stack": "cuda" if kind == "gpu" else "cpu",
                "name": name,
                "asked": "auto",
                "profile": profile if kind == "gpu" else None,
                "how": "name",
                "notes": [],
                "arch": "sm_90" if kind == "gpu" else "x86_64",
                "memory_bytes": self.spec["bytes"],
                "compute_units": 132 if kind == "gpu" else None,
                "peak_dtype": "bf16",
                "sha": "fake",
                "l2_bytes": 50 * MIB if kind == "gpu" else MIB,
                "llc_bytes": 50 * MIB if kind == "gpu" else 32 * MIB,
            },
            "stack": {"kind": "cuda" if kind == "gpu" else "cpu", "torch": "2.13.0+fake", "python": "3.11"},
            "conditions": {"threads": 2},
            "parameters": {},
            "families": self.families,
        }

    def add(self, family, name, result=None, status="finished", reason=None, telemetry=None, **arguments):
        """One record."""
        self.records.setdefault(family, {})[name] = {
            "schema": 1,
            "family": family,
            "name": name,
            "status": status,
            "reason": reason,
            "arguments": arguments,
            "result": result or {},
            "telemetry": telemetry or {},
            "method": {"function": "fake", "version": 1},
            "meta": {
                "key": "fake",
                "ended": "2026-03-04T05:10:00+00:00",
                "seconds": 1.0,
                "device_sha": "fake",
            },
        }

    def gemm(self, family, name, m, n, k, burst=None, sustained=None, dtype="bf16", **more):
        """One GEMM record from its invented TFLOP/s in each state."""
        flop = 2 * m * n * k
        states = {
            key: state(flop / (value * 1e12), flop, name=key, label=more.get("labels", {}).get(key))
            if value
            else None
            for key, value in (("burst", burst), ("sustained", sustained))
        }
        clock, power = self.spec["clock"], self.spec["power"] or (None, None)
        telemetry = {
            key: window(clock[i], power[i]) for i, key in enumerate(("burst", "sustained")) if states[key]
        }
        result = {
            "states": states,
            "flop": flop,
            "bytes": 2 * (m * k + k * n + m * n),
            "bytes_how": "A, B read, C written",
            "dtype": dtype,
            "fill": "normal",
            "backend": "cublaslt:nt",
            "correct": {"ok": True, "error": 0.3, "bound": 1.0},
        }
        extra = {key: value for key, value in more.items() if key != "labels"}
        self.add(family, name, result | extra, telemetry=telemetry, m=m, n=n, k=k, dtype=dtype)

    def finish(self, family, headline=None, findings=(), status="finished", reason=None):
        """Close a family: its suite status and, where it finished, its summary."""
        self.families[family] = {"status": status, "reason": reason, "seconds": 42.0, "measure_seconds": 40.0}
        self.manifest["parameters"].setdefault(family, {})
        if status == "finished":
            told = {key: {"value": v[0], "unit": v[1]} for key, v in (headline or {}).items()}
            self.summaries[family] = {
                "family": family,
                "status": "finished",
                "headline": told,
                "findings": list(findings),
                "written": "2026-03-04T05:11:00+00:00",
            }

    def write(self):
        """Write the folder; returns its path."""
        workload = load_workload("escher_14b_480p")
        self.manifest["workload"] = {**workload.model_dump(mode="json"), "sha": workload.sha}
        write_json(self.root / "run.json", self.manifest)
        write_json(
            self.root / "env.json",
            {
                "schema": 1,
                "software": {"torch": "2.13.0+fake"},
                "power": {"cap_w": 700.0, "cap_default_w": 700.0},
                "host": {"usable_cpus": 2, "online_cpus": 4},
            },
        )
        for family, rows in self.records.items():
            folder = self.root / "records" / family
            pointers = {}
            for name, record in rows.items():
                pointers[name] = file_name(name, "fake", 1)
                write_json(folder / pointers[name], record)
            write_json(folder / "current.json", pointers)
        for family, summary in self.summaries.items():
            write_json(self.root / "records" / family / "summary.json", summary)
        return self.root


def fill_compute(run):
    """Invented family 1."""
    family, (burst, sustained) = "01_bf16_compute", run.spec["peak"]
    sizes = (1024, 2048, 4096, 8192, 12288, 16384) if run.kind == "gpu" else (512, 1024, 2048, 4096)
    for m in sizes:
        share = 1 - 0.35 * (sizes[0] / m) ** 0.9
        late = sustained * min(0.99, share) if m >= sizes[2] else None
        run.gemm(
            family,
            f"square/{m}",
            m,
            m,
            m,
            burst * min(0.995, share),
            late,
            labels={"sustained": "drifting"} if m == sizes[2] else {},
        )
    shapes = {
        "qkv": (4680, 15360, 5120),
        "o": (4680, 5120, 5120),
        "ffn1": (4680, 13824, 5120),
        "ffn2": (4680, 5120, 13824),
    }
    for (op, (m, n, k)), share in zip(shapes.items(), (0.99, 0.96, 0.97, 1.0), strict=True):
        run.gemm(family, f"workload/{op}", m, n, k, burst * share * 0.99, sustained * share * 0.995)
    for m, n, k in ((2048, 2048, 65536), (4096, 4096, 16384), (16384, 16384, 1024)):
        run.gemm(family, f"skew/{m}x{n}x{k}", m, n, k, burst * 0.9, None)
    entries = [
        {
            "m": m,
            "n": n,
            "k": k,
            "backend": b,
            "sustained_tflops": sustained * (0.8 + 0.02 * i),
            "burst_tflops": burst * (0.8 + 0.02 * i),
            "phase": "coarse",
            "took_s": 0.3,
        }
        for i, (m, n, k, b) in enumerate(
            (2048 * (1 + i % 3), 4096, 1024 * (1 + i), ("cublas:nn", "cublaslt:nt")[i % 2]) for i in range(10)
        )
    ]
    run.add(family, "search", {"candidates": entries, "dtype": "bf16", "states": {}})
    best = {"m": 4096, "n": 8192, "k": 4096, "backend": "cublaslt:nt"}
    confirmed = [
        best
        | {"sustained_tflops": sustained, "sustained_range_tflops": [sustained * 0.99, sustained * 1.004]}
    ]
    confirmed.append(
        {key: entries[-1][key] for key in ("m", "n", "k", "backend")} | {"sustained_tflops": sustained * 0.97}
    )
    run.gemm(
        family,
        "peak",
        4096,
        8192,
        4096,
        burst,
        sustained,
        candidates=confirmed,
        best_sustained=best,
        best_burst=best | {"m": 12288, "n": 12288, "k": 12288},
    )
    for dtype, factor in (("fp32", 0.06), ("tf32", 0.5), ("fp16", 1.01), ("bf16", 1.0), ("fp8", 1.7)):
        run.gemm(
            family,
            f"dtype/{dtype}",
            8192,
            8192,
            8192,
            burst * factor,
            None,
            dtype=dtype,
            emulated=dtype == "fp16" and run.kind == "cpu",
        )
    if run.kind == "cpu":
        run.add(
            family,
            "dtype/fp8",
            status="refused",
            reason="float8 products are not available on this CPU",
            dtype="fp8",
        )
    for k in (256, 1024, 4096):
        result = {
            "correct": {"ok": True, "error": 0.1 + k / 20000, "bound": 1.0},
            "dtype": "bf16",
            "unit": "matrix",
            "backend": "cublaslt:nt",
        }
        run.add(family, f"correct/bf16/{k}", result, dtype="bf16", k=k)
    transient(run, family)
    headline = {
        "bf16_peak_burst_tflops": (burst, "TFLOP/s"),
        "bf16_peak_sustained_tflops": (sustained, "TFLOP/s"),
        "peak_dtype": ("bf16", ""),
    }
    run.finish(family, headline, ["Invented: sustained throughput is 84 % of the burst peak."])


def transient(run, family):
    """Invented throughput, clock and power since idle."""
    burst, sustained = run.spec["peak"]
    settled = [
        sustained + (burst - sustained) * math.exp(-max(0, t - 0.02) / 0.04)
        for t in (0.01 + 0.02 * i for i in range(150))
    ]
    flop = 2 * 8192**3
    state_ = state(flop / (sustained * 1e12), flop, name="transient") | {
        "samples_ns": [round(20e6) for _ in settled],
        "calls_per_sample": 1,
    }
    trace = [
        {
            "t_ns": round(1e9 * (0.02 * i + 0.01)),
            "clock_mhz": 1450 + 530 * (v - sustained) / (burst - sustained),
            "power_w": 700 - 400 * math.exp(-i / 2),
        }
        for i, v in enumerate(settled)
    ]
    windows = [{"t_s": 0.02 * i + 0.01, "tflops": v} for i, v in enumerate(settled)]
    result = {
        "states": {"transient": state_},
        "windows": windows,
        "m": 8192,
        "n": 8192,
        "k": 8192,
        "dtype": "bf16",
        "flop": flop,
        "trace_ns": [0, 3 * 10**9],
    }
    run.add(
        family,
        "transient",
        result,
        telemetry={"trace": trace} if run.kind == "gpu" else {},
        m=8192,
        n=8192,
        k=8192,
    )


def fill_bandwidth(run):
    """Invented family 2."""
    family, copy = "02_memory_bandwidth", run.spec["copy"]
    sizes = (
        [64 * MIB, 256 * MIB, GIB, 2 * GIB, 4 * GIB, 8 * GIB]
        if run.kind == "gpu"
        else [16 * MIB, 64 * MIB, 256 * MIB, GIB]
    )
    streams = {"copy": 2, "add": 3, "mul": 2, "axpy": 3, "sum": 1, "fill": 1, "strided": 2}
    factors = {
        "copy": 1.0,
        "add": 1.03,
        "mul": 1.0,
        "axpy": 1.035,
        "sum": 0.95,
        "fill": 1.08,
        "strided": 0.52,
    }
    for op, count in streams.items():
        for size in sizes:
            moved = count * size
            value = copy * factors[op] * (1 - 0.25 * (sizes[0] / size))
            result = {
                "states": {"cold": state(moved / (value * 1e9), moved=moved, name="cold")},
                "flop": None,
                "elements": size // 4,
                "bytes": moved,
                "bytes_how": f"{count} streams",
                "dtype": "fp32",
            }
            run.add(family, f"{op}/{size}", result, bytes_per_buffer=size)
    caches = [32 * 2**10 * 2**i for i in range(18 if run.kind == "gpu" else 16)]
    for size in caches:
        fast = 2.6 if size < run.manifest["device"]["llc_bytes"] else 1.0
        value = copy * fast * (size / (size + 8 * MIB) if run.kind == "gpu" else 1.0)
        run.add(
            family,
            f"cache/{size}",
            {
                "states": {"hot": state(size / (value * 1e9), moved=size, name="hot")},
                "bytes": size,
                "working_set_bytes": size,
            },
        )
    run.finish(family, {"copy_gb_s": (copy, "GB/s"), "memory_roof_gb_s": (copy * 1.03, "GB/s")})


def fill_capacity(run):
    """Invented family 3."""
    family, total = "03_memory_capacity", run.spec["bytes"]
    free = round(total * 0.985)
    for name, share in (("contiguous/bf16", 0.993), ("contiguous/fp16", 0.993), ("chunked", 0.9975)):
        size = round(free * share)
        run.add(
            family,
            name,
            {
                "states": {},
                "bytes": size,
                "free_bytes": free,
                "total_bytes": total,
                "share_of_free_pct": 100 * size / free,
                "share_of_total_pct": 100 * size / total,
                "bounded_by": "driver free",
                "fragmentation": 0.9955 if name == "chunked" else None,
            },
        )
    held = 49 * GIB
    rest = free - held if run.kind == "gpu" else None
    room = {
        "states": {}, "bytes": held, "live_set_bytes": GIB // 2, "free_bytes": free, "fits": free >= held, "rest_bytes": rest,
        "measured": {"forward_bytes": GIB // 8} if run.kind == "gpu" else None, "how": "held by a process of its own" if rest else
        "accounted, not allocated",
    }  # fmt: skip
    run.add(family, "headroom", room)
    run.finish(family, {"allocatable_gib": (free * 0.993 / GIB, "GiB"), "capacity_pct": (97.8, "%")})


def fill_environment(run):
    """Invented family 0."""
    checks = [
        {"check": "power cap", "status": "ok", "found": "at its default", "why": ""},
        {
            "check": "other processes",
            "status": "warning",
            "found": "1 other process on the device",
            "why": "it may take time and memory",
        },
    ]
    run.add("00_environment", "precheck", {"states": {}, "checks": checks})
    run.finish("00_environment", {"ready": ("ready", ""), "warnings": (1, "")})


def fake_run(root, kind="gpu", failed=(), profile="h200_sxm"):
    """A whole invented run of families 0–3 below `root`; those in `failed` fail with a reason. Returns its
    path.
    """
    run = FakeRun(root, kind, profile)
    for fill, family in (
        (fill_environment, "00_environment"),
        (fill_compute, "01_bf16_compute"),
        (fill_bandwidth, "02_memory_bandwidth"),
        (fill_capacity, "03_memory_capacity"),
    ):
        fill(run)
        if family in failed:
            run.summaries.pop(family, None)
            run.finish(family, status="failed", reason="the kernel died (killed, or out of memory)")
    return run.write()
