"""FAKE families 4 and 5: every value is invented from the run's own fake roofs, so that charts have something to show."""

import math

from escherlib.accounting import memory, paths, scale
from escherlib.parameters import load_workload
from tests.report.factory import (
    FakeRun,
    fill_bandwidth,
    fill_capacity,
    fill_compute,
    fill_environment,
    state,
    window,
)
from tests.report.factory_numerics import fill_numerics

OPS, E2E = "04_workload_ops", "05_e2e_mfu"
CAPTURED = "captured from the running stack"
# invented share of the sustained peak, and of the memory roof, that a kind of kernel reaches
MATRIX = {"gemm": 0.97, "self_attn.flash": 0.945, "cross_attn.flash": 0.70}
PLAIN_ATTENTION = {"self_attn.flash": 0.80, "cross_attn.flash": 0.62}  # what torch picks on the default path
STREAMED = {"default": 0.62, "optimized": 0.90, "shared": 0.80}
# seconds of a chunk above the sum of in-situ times: launches of the host
GAPS = {("default", "eager"): 0.004, ("default", "compiled"): 0.002, ("optimized", "eager"): 0.003, ("optimized", "compiled"): 0.001}
SDPA = {
    "self_attn.flash": {"sdpa:cudnn": 0.80, "sdpa:flash": 0.63, "sdpa:efficient": 0.31, "fa4": 0.945},
    "cross_attn.flash": {"sdpa:cudnn": 0.70, "sdpa:flash": 0.55, "sdpa:efficient": 0.33, "fa4": 0.635},
}
ABSENT = {
    "flash_attn": "package flash_attn is not installed: pip install flash-attn",
    "aiter": "aiter needs an AMD device",
    "sdpa:math": "a wrong result: scaled error 3.2, bound 1.0",
}


def timed_workload(kind, name="escher_14b_480p"):
    """The workload as such a device would time it: whole on the fake GPU, a small part of it on the fake CPU."""
    workload = load_workload(name)
    if kind == "gpu":
        return workload
    return scale.fit(workload, "bf16", 23 * 2**30, 0.4 * 0.4e12)


def roofs(run):
    """(sustained peak TFLOP/s, memory roof GB/s, read plateau GB/s) of the fake run."""
    return run.spec["peak"][1], run.spec["copy"] * 1.035, run.spec["copy"] * 0.95


def launch_s(run, kernel, path):
    """Invented seconds of one launch."""
    peak, memory_gb_s, _ = roofs(run)
    share = MATRIX.get(kernel.name) or MATRIX["gemm"]
    if path == "default":
        share = PLAIN_ATTENTION.get(kernel.name, share)
    rows_few = kernel.kind == "gemm" and kernel.name.startswith("time_")
    compute = kernel.flop / (peak * 1e12 * (0.01 if rows_few else share))
    return max(compute, kernel.nbytes / (memory_gb_s * 1e9 * STREAMED[kernel.path]), 3e-6)


def fill_workload(run, fail=(), refuse=()):
    """Invented family 4. Rows in `fail` failed, those in `refuse` were refused."""
    w, clock, power = timed_workload(run.kind), run.spec["clock"][1], (run.spec["power"] or (None, None))[1]
    common = {"dtype": "bf16", "emulated": False, "fill": CAPTURED, "scale": scale.scale_of(w), "settled": {"label": None}}
    telemetry = {"sustained": window(clock, power)}
    _attention_rows(run, w, telemetry)
    for path in paths.PATHS:
        health = {"ok": True, "why": None, "rings": {}, "blocks": {}, "cosines": {"qkv": 0.13, "o": 0.28, "ffn1": 0.21, "ffn2": 0.11}}
        result = common | {"states": {}, "health": health, "depth": 4, "path": path}
        run.add(OPS, f"capture/{path}", result, geometry=w.geometry(), path=path)
    listed = [*paths.kernels(w, "default"), *paths.kernels(w, "optimized"), paths.rope_kernel(w)]
    for kernel in {kernel.row: kernel for kernel in listed}.values():
        path = "default" if kernel.path == "default" else "optimized"
        arguments = {"geometry": w.geometry(), "path": path, "kernel": kernel.name}
        if kernel.row in fail or kernel.row in refuse:
            status = "failed" if kernel.row in fail else "refused"
            run.add(OPS, kernel.row, status=status, reason="an invented reason", **arguments)
            continue
        seconds = launch_s(run, kernel, path)
        result = common | {
            "states": {"sustained": state(seconds, kernel.flop or None, kernel.nbytes)}, "flop": kernel.flop,
            "bytes": kernel.nbytes, "bytes_how": paths.BYTES_HOW, "read_share": kernel.read_share, "shape": kernel.shape,
            "path": kernel.path, "kernel": kernel.name, "kind": kernel.kind, "calls": list(kernel.calls),
            "members": list(kernel.members), "count": kernel.count, "correct": {"ok": True, "error": 0.2, "bound": 1.0},
            "backend": "fa4" if kernel.kind == "attention" and path == "optimized" else "torch",
        }  # fmt: skip
        run.add(OPS, kernel.row, result, telemetry=telemetry, **arguments)
    run.finish(OPS, {"coverage_pct": (100.0, "%")}, ["Invented: attention is furthest from the peak."])


def _attention_rows(run, w, telemetry):
    """Every backend forced on both attentions."""
    peak = roofs(run)[0]
    for name, op in paths._listed(w)[1].items():
        arguments = {"op": name, "query_tokens": op.query_tokens, "kv_tokens": op.kv_tokens, "heads": w.heads, "head_dim": w.head_dim}
        shares = SDPA[name] if run.kind == "gpu" else {"sdpa": 0.6, "sdpa:math": 0.2}
        for backend, share in shares.items():
            seconds = op.flop / (peak * share * 1e12)
            result = {
                "states": {"sustained": state(seconds, op.flop, op.nbytes(2))}, "flop": op.flop, "bytes": op.nbytes(2),
                "dtype": "bf16", "emulated": False, "fill": "normal", "backend": backend, "layout": "bshd",
                "correct": {"ok": True, "error": 0.41, "bound": 1.0}, "correct_before": {"ok": True, "error": 0.41, "bound": 1.0},
                "scale": scale.scale_of(w),
            }  # fmt: skip
            run.add(OPS, f"attention/{name}/{backend}", result, telemetry=telemetry, backend=backend, **arguments)
        for backend, reason in ABSENT.items():
            if backend not in shares:
                run.add(OPS, f"attention/{name}/{backend}", status="refused", reason=reason, backend=backend, **arguments)


def in_situ_kernels(run, w, path, stretch):
    """{call name: {s, n}} of one chunk: a little slower in place than alone."""
    found = {}
    for kernel in paths.kernels(w, path):
        for call in kernel.calls:
            n = kernel.count // len(kernel.calls)
            found[call] = {"s": launch_s(run, kernel, path) * n * stretch, "n": n}
    return found


def chunk_s(run, w, path, scope):
    """Invented seconds of one chunk."""
    stretch = {"eager": 1.0, "compiled": 0.985 if path == "default" else 0.992}[scope]
    alone = sum(launch_s(run, k, path) * k.count for k in paths.kernels(w, path))
    return stretch * alone * (1 + (GAPS[path, scope] if run.kind == "gpu" else 0.05))


def chunk_state(seconds, flop, count, noise=0.002):
    """State whose samples are single chunks around `seconds`, slowly waving."""
    samples = [round(1e9 * seconds * (1 + noise * math.sin(2.1 * i) + noise * (i % 5 == 3))) for i in range(count)]
    found = state(seconds, flop, spread=noise, n=count)
    middle = sorted(samples)[count // 2] / 1e9
    return found | {
        "samples_ns": samples, "median_s": middle, "tflops": flop / middle / 1e12, "mean_s": sum(samples) / count / 1e9,
        "windows_ns": [[0, 10**9], [2 * 10**9, 3 * 10**9], [4 * 10**9, 5 * 10**9]],
    }  # fmt: skip


def fill_e2e(run, refuse=(), changes=None):
    """Invented family 5. Scopes in `refuse` ("optimized/compiled") were refused; `changes` go into every scope's result."""
    w = timed_workload(run.kind)
    for path in paths.PATHS:
        run.add(E2E, f"correct/{path}", {"states": {}, "correct": {"ok": True, "error": 0.011, "bound": 0.04,
                "how": "small instance against float32"}}, path=path)  # fmt: skip
        for scope in ("eager", "compiled"):
            if f"{path}/{scope}" in refuse or (run.kind == "cpu" and (path, scope) == ("optimized", "compiled")):
                reason = "the optimized path is compiled by capturing a graph, which needs a GPU"
                run.add(E2E, f"e2e/{path}/{scope}", status="refused", reason=reason, path=path, scope=scope, geometry=w.geometry())
                continue
            result, telemetry = scope_record(run, w, path, scope)
            given = {"path": path, "scope": scope, "geometry": w.geometry()}
            run.add(E2E, f"e2e/{path}/{scope}", result | (changes or {}), telemetry=telemetry, **given)
    run.finish(E2E, {"compiled_mfu_sustained_pct": (92.1, "%")}, ["Invented: attention costs most."])


def scope_record(run, w, path, scope):
    """(result, telemetry) of one scope."""
    flop, peak = paths.forward_flop(w, path), roofs(run)[0]
    seconds, count = chunk_s(run, w, path, scope), 24 if run.kind == "gpu" else 12
    chunk = chunk_state(seconds, flop, count)
    matrix_s = sum(launch_s(run, k, path) * k.count for k in paths.kernels(w, path) if k.is_matrix)
    floor = chunk_state(matrix_s, flop, 12, 0.001)
    situ = in_situ_kernels(run, w, path, 1.004) if scope == "eager" else None
    total = sum(chunk["samples_ns"]) / 1e9
    result = {
        "states": {"sustained": chunk}, "flop": flop, "bytes": paths.forward_bytes(w, path), "bytes_how": paths.BYTES_HOW,
        "dtype": "bf16", "emulated": False, "fill": "normal noise", "backend": scope, "how": "eager" if scope == "eager"
        else "captured graph" if path == "optimized" else "torch.compile of each block, mode default",
        "compile": _compile(path, seconds) if scope == "compiled" else None,
        "compiled_check": {"error": 0.004, "bound": 0.09} if scope == "compiled" else None, "dropped_ns": [round(1.06e9 * seconds)],
        "backends": {"self_attn.flash": "fa4", "cross_attn.flash": "sdpa:cudnn"} if path == "optimized" else
        dict.fromkeys(("self_attn.flash", "cross_attn.flash"), "sdpa"),
        "throughput": {"chunks": count, "total_s": total, "s_per_chunk": total / count},
        "floor": {"state": floor, "flop": flop, "tflops": floor["tflops"]}, "floor_random": {"state": floor, "flop": flop,
        "tflops": floor["tflops"] * 0.993}, "floor_random_reason": None,
        "brackets": [state(1.0, peak * 1e12 * share) | {"flop": peak * 1e12 * share} for share in (1.004, 0.997)],
        "bracket_gemm": {"m": 4096, "n": 8192, "k": 4096, "backend": "cublaslt:nt"},
        "in_situ": situ and {"kernels": situ, "chunk_s": sum(e["s"] for e in situ.values()) * 1.003, "unmarked_chunk_s": seconds,
                             "chunks": 3},
        "in_situ_reason": None if situ else "marks between operations would change what a compiled stack launches",
        "health": {when: _health() for when in ("before", "after")},
        "memory": {"weights_bytes": memory.weight_bytes(w), "kv_bytes": memory.kv_bytes(w, path),
                   "peak_bytes": 71 * 10**9 if run.kind == "gpu" else None},
        "scale": scale.scale_of(w), "settled": {"label": None}, "correct": {"ok": True, "error": None, "bound": None},
    }  # fmt: skip
    power = run.spec["power"][1] if run.spec["power"] else None
    energy = {"energy_j": {"value": power * total, "how": "counter"}} if power else {}
    telemetry = {"sustained": window(run.spec["clock"][1], power) | energy, "floor.state": window(run.spec["clock"][1], power)}
    telemetry |= {f"brackets.{i}": window(run.spec["clock"][1] - 5 * i, power) for i in (0, 1)}
    return result, telemetry


def _compile(path, seconds):
    if path == "optimized":
        done = {"mode": "graph", "seconds": 2.4, "graphs": 4, "breaks": 0, "recompiles": 0}
        return done | {"tried": [done | {"chunk_s": seconds, "reason": None}]}
    done = {"mode": "default", "seconds": 41.0, "graphs": 1, "breaks": 0, "recompiles": 0}
    stuck = {"mode": "max-autotune", "seconds": 120.0, "chunk_s": None, "reason": "not compiled within 120 s; ended"}
    return done | {"tried": [done | {"chunk_s": seconds, "reason": None}, stuck]}


def _health():
    part = {"mean": 0.001, "std": 0.93, "zero_share": 0.0, "nonfinite_share": 0.0}
    places = dict.fromkeys(("first", "middle", "last"), part)
    return {"rings": places, "blocks": places, "cosines": {"qkv": 0.13, "o": 0.28, "ffn1": 0.21, "ffn2": 0.11}, "ok": True, "why": None}


def fake_workload_run(root, kind="gpu", profile="h200_sxm", **options):
    """A whole invented run of families 0–5, 7 and 9 below `root`; `options` go to fill_e2e. Returns its path."""
    from tests.report.factory_sustained import fill_sustained

    run = FakeRun(root, kind, profile)
    for fill in (fill_environment, fill_compute, fill_bandwidth, fill_capacity, fill_workload):
        fill(run)
    fill_e2e(run, **options)
    fill_sustained(run)
    fill_numerics(run)
    return run.write()
