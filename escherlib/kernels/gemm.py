"""Times one matrix product: rows `square/…`, `workload/…`, `skew/…`, `addmm/…`, `bmm/…`, `fused/…`,
`dtype/…`.
"""

from escherlib import timing
from escherlib.errors import Refused
from escherlib.kernels import backends, operands, products, timed
from escherlib.kernels.formats import format_of, is_emulated, require_supported, switches
from escherlib.kernels.products import Gemm
from escherlib.method import method

PROBE_SIZES = (256, 512)  # a product this small tells what a large one would take
PROBED_FLOP = 1e9  # below this no host is slow enough to be asked first


@method(version=1)
def time_gemm(
    device, *, m, n, k, dtype=None, backend="auto", bias=False, op="mm", batch=1, activation=None, fused=True,
    states=("burst", "sustained"), settle=None, fill="normal", protocol=None, budget_s=10.0,
):  # fmt: skip
    """Time C[M, N] = A[M, K]·B[K, N] in the asked states, checked before and after.

    `dtype` None: the device's peak dtype. `backend` "auto": the fastest of all in a quick pass, reported from
    another. `op` mm, addmm (with `bias`, or `activation="gelu"`, in the product's kernel if `fused`) or bmm
    (`batch` products). `settle`: {m, n, k, backend} of the GEMM that brings the device into its sustained
    state, once in a process (None: this one). `protocol`: changes to timing.Protocol. `budget_s`: seconds one
    call may take.

    Result: `states`, m, n, k, `flop`, `bytes`, `bytes_how`, `dtype`, `emulated`, `fill`, `backend`, `choice`
    (seconds a call by backend, where there was one), `rotation`, `correct`, `correct_before`, `settled`,
    `reduction_switches`. Refused: unavailable, too heavy, does not fit, or a wrong result before or after.
    """
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    gemm = Gemm(m, n, k, op, batch, bias, activation, fused).validated()
    states = timed.check_states(states)
    with backends.settings(device, fmt):
        result = _time(device, gemm, fmt, backend, states, settle, fill, protocol, budget_s)
    operands.release(device)
    return result


@method(version=1)
def time_dtype(
    device, *, dtype, m, n, k, backend="auto", states=("burst", "sustained"), settle=None, fill="normal",
    protocol=None, budget_s=10.0,
):  # fmt: skip
    """A row of the dtype ladder: `time_gemm` in one number format; operands are cast before the timed region.

    Formats the device computes in another one are `emulated`; formats it does not have are Refused.
    """
    return time_gemm(
        device, m=m, n=n, k=k, dtype=dtype, backend=backend, states=states, settle=settle, fill=fill,
        protocol=protocol, budget_s=budget_s,
    )  # fmt: skip


def _time(device, gemm, fmt, backend, states, settle, fill, protocol, budget_s):
    """The result dict; everything it allocated is gone when it returns."""
    clock = timing.clock_for(device)
    require_light(device, gemm, fmt, clock, budget_s)
    product, choice = prepare_best(device, gemm, fmt, backend, clock, fill)
    before = product.check("before")
    settled = None
    if "sustained" in states:
        settled = settle_with(device, settle, product, fmt, clock, fill, protocol)
    product.poison()
    measured = timed.time_states(product, clock, states, protocol)
    after = product.check("after")
    moved, how = products.moved_bytes(gemm, fmt)
    return {
        "states": timed.rated_all(measured, gemm.flop),
        **gemm.shape(),
        "flop": gemm.flop,
        "bytes": moved,
        "bytes_how": how,
        "dtype": fmt.name,
        "emulated": is_emulated(device, fmt),
        "fill": fill,
        "backend": product.backend,
        "choice": choice,
        "rotation": product.rotation,
        "correct": after,
        "correct_before": before,
        "settled": settled,
        "reduction_switches": switches(device),
    }


def prepare_best(device, gemm, fmt, backend, clock, fill="normal"):
    """(product, choice): the named backend, or for "auto" the fastest in a quick pass over all there are.

    `choice` is {backend: seconds a call, or the reason it was refused}, None where nothing was chosen.
    """
    if backend != "auto":
        return products.prepare(device, gemm, fmt, backend, fill), None
    found, choice, stock = {}, {}, {}
    for name in backends.available(device, fmt, gemm.epilogue):
        try:
            found[name] = products.prepare(device, gemm, fmt, name, fill, stock)
            found[name].check("before")
        except Refused as error:
            choice[name] = str(error)
            found.pop(name, None)
    if not found:
        raise Refused("; ".join(f"{name}: {reason}" for name, reason in choice.items()))
    times = timed.quick_pass({name: product.call for name, product in found.items()}, clock)
    best = min(times, key=times.get)
    return found[best], {**choice, **times}


def settle_with(device, shape, product, fmt, clock, fill="normal", protocol=None):
    """Settle the device, once in a process, with the GEMM of `shape` ({m, n, k, backend}) or with the product
    itself.

    Returns the summary of timed.settle_once.
    """
    if timed.is_settled(device) or shape is None:
        what = {**product.gemm.shape(), "backend": product.backend}
        return timed.settle_once(device, clock, product.call, what, protocol)
    gemm = Gemm(shape["m"], shape["n"], shape["k"]).validated()
    heater, _ = prepare_best(device, gemm, fmt, shape.get("backend") or "auto", clock, fill)
    return timed.settle_once(
        device, clock, heater.call, {**gemm.shape(), "backend": heater.backend}, protocol
    )


def require_light(device, gemm, fmt, clock, budget_s):
    """Refused where one call would take more than `budget_s`. Only hosts are asked, and only about large
    products.

    A format that a CPU emulates can be hundreds of times slower, so a small product of the same proportions
    is timed first, then a larger one if the first says no.
    """
    if device.kind == "gpu" or gemm.flop < PROBED_FLOP:
        return
    for size in PROBE_SIZES:
        small = Gemm(*(min(dimension, size) for dimension in (gemm.m, gemm.n, gemm.k)))
        probe = products.prepare(device, small, fmt, backends.available(device, fmt)[0], most=1)
        call_s = min(timed.quick_pass({"probe": probe.call}, clock, least_s=0.0).values())
        expected_s = call_s * gemm.flop / small.flop
        if expected_s <= budget_s:
            return
        if call_s * (PROBE_SIZES[-1] / size) ** 3 > budget_s:
            break
    raise Refused(
        f"one call would take about {expected_s:.3g} s in {fmt.name} here, the time box is {budget_s:g} s"
    )
