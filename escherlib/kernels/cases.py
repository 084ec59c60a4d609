"""Which rows families 1, 2, 4 and 5 ask for: lists of cases for `run.sweep`, made of parameters and workload alone.

A case holds the arguments of one measurement; its key `row` is the row's name and no argument. An empty list
leaves the rows out. Imports no torch, so that a notebook can list its rows where nothing can be measured.
"""

from escherlib.accounting import paths
from escherlib.accounting.workload import block_attentions, timed_gemms

GIB, MIB, KIB = 2**30, 2**20, 2**10
# powers of two on m, n, k that add up to none: long K twice, few rows, few columns
SKEWS = ((-1, -1, 2), (-2, -2, 4), (-2, 2, 0), (2, -2, 0))
FAST_SAMPLES_S = 0.005  # telemetry beside the transient: it changes within tens of milliseconds
QUICK = {"condition_s": 0.3, "window_s": 0.3}  # protocol of rows that only choose between variants
QUICK_CALL_S = 2.0
# parameters of family 5 that every scope takes as they are
SCOPE_PARAMETERS = ("chunks", "floor_forwards", "floor_random", "in_situ", "compile_modes", "compile_budget_s", "protocol")
SPEED_SIDE = 1024  # large enough for all threads of a host, done in milliseconds
HEAD_TOKENS = 1024  # tokens of the batched products: enough for whole tiles, small enough to hold the scores


def peak_search(budget_s, workload):
    """The peak search with the workload's products as sure candidates; nothing for a budget of 0."""
    gemms = [_shape(gemm) for gemm in _large(workload)]
    return [{"budget_s": budget_s, "workload_gemms": gemms}] if budget_s else []


def finalists(searched, sizes, workload, call_budget_s):
    """Candidates for `peak.confirm`: the search's, else squares and workload products as torch takes them."""
    found = searched[0].get("finalists") if searched else None
    if found:
        return found
    shapes = [{"m": m, "n": m, "k": m} for m in sizes]
    shapes += [_shape(gemm) for gemm in _large(workload)] if call_budget_s else []
    return [{**shape, "backend": "auto"} for shape in shapes]


def transient(total_s, confirmed):
    """From idle to steady state at the shape of the burst peak; nothing for 0 s or without a peak."""
    best = confirmed.get("best_burst")
    return [{**best, "total_s": total_s}] if total_s and best else []


def squares(sizes, states, sustained_from):
    """m = n = k of each size; smaller ones than `sustained_from` get no sustained row."""
    kept = {m: [s for s in states if s != "sustained" or m >= sustained_from] for m in sizes}
    return [{"m": m, "n": m, "k": m, "states": kept[m]} for m in sizes if kept[m]]


def workload_products(workload, states, call_budget_s):
    """The distinct products of one block with their biases, fused QKV included; nothing for a budget of 0."""
    common = {"op": "addmm", "bias": True, "states": states, "budget_s": call_budget_s}
    return [{"row": _row(g), **_shape(g), **common} for g in _large(workload) if call_budget_s]


def epilogues(workload, states, call_budget_s, fused):
    """Products that GELU follows, with it in their epilogue (`fused`) or in a kernel of its own."""
    with_gelu = [gemm for gemm in _large(workload) if gemm.activation]
    common = {"op": "addmm", "bias": True, "activation": "gelu", "fused": fused, "states": states}
    return [
        {"row": f"{gemm.name}_gelu", **_shape(gemm), **common, "budget_s": call_budget_s}
        for gemm in with_gelu
        if call_budget_s
    ]


def with_bias(size):
    """The reference square with a bias; nothing for size 0."""
    return [{"row": str(size), "m": size, "n": size, "k": size, "op": "addmm", "bias": True}] if size else []


def batched(size, workload):
    """Per-head products of attention on at most HEAD_TOKENS tokens, all heads at once; nothing for size 0."""
    if not size:
        return []
    queries, keys = min(workload.query_tokens, HEAD_TOKENS), min(workload.kv_tokens, HEAD_TOKENS)
    shapes = {"scores": (queries, keys, workload.head_dim), "values": (queries, workload.head_dim, keys)}
    return [
        {"row": name, "m": m, "n": n, "k": k, "op": "bmm", "batch": workload.heads}
        for name, (m, n, k) in shapes.items()
    ]


def skewed(size):
    """Shapes with the FLOP of the reference square in other proportions: each side times a power of two."""
    scaled = [[_scaled(size, power) for power in powers] for powers in SKEWS if size]
    return [{"m": m, "n": n, "k": k} for m, n, k in scaled]


def formats(dtypes, size):
    """The dtype ladder at the reference square; nothing for size 0."""
    return [{"dtype": dtype, "m": size, "n": size, "k": size} for dtype in dtypes if size]


def variant_states(kind):
    """State of rows that only compare variants: a GPU's burst, which rests between tries and so starts each
    row alike; on a CPU host sustained, since its calls may be too long for a burst.
    """
    return ["burst"] if kind == "gpu" else ["sustained"]


def numerics(dtypes, depths):
    """Every format at every depth K."""
    return [{"dtype": dtype, "k": k} for dtype in dtypes for k in depths]


def streams(ops, sizes_mib):
    """Every operation at every size; sizes are of one buffer."""
    return [{"op": op, "bytes_per_buffer": size * MIB} for op in ops for size in sizes_mib]


def working_sets(sizes_kib):
    """Working sets of the cache curve, source and destination together."""
    return [{"bytes": size * KIB} for size in sizes_kib]


def speed(kind, roofs):
    """A quick look at what a host computes, where nothing else says how much of the workload it can carry."""
    shape = {"m": SPEED_SIDE, "n": SPEED_SIDE, "k": SPEED_SIDE, "states": ["burst"]}
    return [] if kind == "gpu" or roofs.sustained.value else [shape]


def heater(roofs, timed):
    """The GEMM of the sustained peak, which brings the device into its state; without a peak the heaviest product."""
    if roofs.sustained.shape:
        return {**roofs.sustained.shape, "backend": roofs.sustained.backend or "auto"}
    return {**_shape(max(_large(timed), key=lambda gemm: gemm.flop)), "backend": "auto"}


def attentions(timed, backends, states, call_budget_s):
    """Every backend forced on self and on cross attention of the timed workload."""
    return [
        {
            "op": op.name, "backend": backend, "query_tokens": op.query_tokens, "kv_tokens": op.kv_tokens,
            "heads": timed.heads, "head_dim": timed.head_dim, "states": states, "budget_s": call_budget_s,
        }
        for op in block_attentions(timed)
        for backend in backends
    ]  # fmt: skip


def kernels(timed, path):
    """The launches of one path; `shared` are those that both paths launch alike, timed in the optimized one."""
    wanted = "default" if path == "default" else "optimized"
    return [{"kernel": kernel.name, "path": wanted} for kernel in paths.kernels(timed, wanted) if kernel.path == path]


def checks(path_names, backends):
    """The check of each path on a small instance."""
    return [{"path": path, "backends": backends if path == "optimized" else {}} for path in path_names]


def scopes(path_names, scope_names, backends):
    """Every scope of every path; the attention backends are a choice of the optimized path alone."""
    return [
        {"path": path, "scope": scope, "backends": backends if path == "optimized" else {}}
        for path in path_names
        for scope in scope_names
    ]


def held(kind, timed, minutes, bracket, backends):
    """What is held at work: the stack as a captured graph on a GPU, the FFN's forward on a CPU host; nothing for 0 minutes."""
    if not minutes:
        return []
    common = {"geometry": timed.geometry(), "seconds": 60.0 * minutes}
    if kind == "cpu":
        return [{"row": "ffn", "work": "ffn", **common}]
    return [{"row": "stack", "work": "stack", "bracket_gemm": bracket, "backends": backends, **common}]


def recovery(kind, bracket, idles_s):
    """The GEMM that probes how rest restores speed: the heater; on a CPU host one of milliseconds. Nothing without rests."""
    small = {"m": SPEED_SIDE, "n": SPEED_SIDE, "k": SPEED_SIDE}
    return [{**(small if kind == "cpu" else bracket), "idles_s": idles_s}] if idles_s else []


def _large(workload):
    """The products worth timing; those of the time embedding have a handful of rows and are not."""
    return [gemm for gemm in timed_gemms(workload) if not gemm.name.startswith("time_")]


def _row(gemm):
    """Name of a product: of several with one shape the output projection, since q, k and v run as one."""
    return "self_attn.o" if "self_attn.o" in gemm.members else gemm.name


def _shape(gemm):
    return {"m": gemm.m, "n": gemm.n, "k": gemm.k}


def _scaled(size, power):
    return size << power if power >= 0 else size >> -power
