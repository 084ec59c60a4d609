"""Is a recorded operation right? Its outputs against the same function on the same operands in higher precision.

The error is relative in the Frobenius norm: ‖out − ref‖ / ‖ref‖. Each rounding to the stored format adds at most u
(half its spacing), independently of the others; a sum of K products in float32 loses about √K·2⁻²⁴ of its size. The
bound adds them: ROUNDINGS·u + 2·√K·2⁻²⁴.
"""

import math

from escherlib.errors import Refused
from escherlib.kernels import attention, rowwise
from escherlib.kernels.lazy import dit, torch

ROUNDINGS = 4  # of the longest chain inside one operation: norm, 1 + scale, product, sum
OUTPUTS = ("out", "sum_out")
IN_PLACE = ("addmm_", "rms_norm_", "write_ring")  # write into their first argument


def check(call, fmt):
    """The record's `correct` entry of a recorded call: it is run on copies, so that nothing it keeps changes."""
    if call.name.endswith(".flash"):
        return attention_check(call)
    exact = torch.float64 if fmt.storage == torch.float32 else torch.float32
    results = run_copied(call, lambda t: t.clone())
    errors = []
    with rowwise.in_torch():
        for form in forms(call):
            wanted = run_copied(call, lambda t: t.to(exact) if t.is_floating_point() else t, form, exact)
            errors.append(max(relative(a, b) for a, b in zip(results, wanted, strict=True)))
    bound = ROUNDINGS * fmt.unit_roundoff + 2 * math.sqrt(depth_of(call)) * 2.0**-24
    error = min(errors, key=lambda e: math.inf if math.isnan(e) else e)
    how = f"relative Frobenius error of every output against {str(exact).removeprefix('torch.')} on the same operands"
    return {"ok": error <= bound, "error": error if math.isfinite(error) else None, "bound": bound, "how": how}


def attention_check(call):
    """`correct` entry of a recorded attention, by the check that its backends pass."""
    q, k, v = (t for t in call.arguments if isinstance(t, torch.Tensor))
    owner = call.function.__self__
    heads = getattr(owner, "heads", None) or owner.w.heads
    q, k, v = (t.unflatten(1, (heads, -1)).unsqueeze(0) for t in (q, k, v))
    out = call().unflatten(1, (heads, -1)).unsqueeze(0)
    return attention.check_output(out, q, k, v)


def require_right(verdict, name, when):
    """Refused where an operation's result is wrong."""
    if not verdict["ok"]:
        error = "not finite" if verdict["error"] is None else f"{verdict['error']:.3g}, bound {verdict['bound']:.3g}"
        raise Refused(f"{name} gave a wrong result {when} timing: relative error {error}")


def run_copied(call, convert, function=None, dtype=None):
    """Outputs of a call on converted copies of its tensors; `function` stands for the recorded one.

    Outputs are what it returns, `out`, `sum_out`, and the first argument where it writes into that.
    """
    arguments = [convert(v) if isinstance(v, torch.Tensor) else v for v in call.arguments]
    keywords = {k: convert(v) if isinstance(v, torch.Tensor) else v for k, v in call.keywords.items()}
    function = function or call.function
    if dtype and isinstance(function, torch.nn.Module):
        weights = {name: p.to(dtype) for name, p in function.named_parameters()}
        returned = torch.func.functional_call(function, weights, tuple(arguments), keywords)
    else:
        returned = function(*arguments, **keywords)
    found = list(returned) if isinstance(returned, tuple) else [returned]
    found += [keywords[name] for name in OUTPUTS if name in keywords]
    if getattr(function, "__name__", "") in IN_PLACE:
        found.append(arguments[0])
    return [t for t in found if isinstance(t, torch.Tensor)]


def forms(call):
    """Functions that are right for a call: the recorded one, or GELU in its tanh and its exact form where it is fused."""
    if call.name != "ffn.linear1_gelu":
        return [None]

    def gelu_of_product(form):
        def run(bias, x, weight, use_gelu):
            return torch.nn.functional.gelu(torch.addmm(bias, x, weight), approximate=form)

        return run

    return [gelu_of_product("tanh"), gelu_of_product("none")]


def depth_of(call):
    """Products one output element sums: the inner length of a product, the width of a norm; 1 where nothing is summed."""
    if call.function is dit.rotate:
        return 1
    shapes = [v.shape for v in call.arguments if isinstance(v, torch.Tensor) and v.dim() == 2]
    return max((shape[-1] for shape in shapes), default=1)


def relative(result, wanted):
    """‖result − wanted‖ / ‖wanted‖; NaN where the result is not finite."""
    difference = (result.to(wanted.dtype) - wanted).norm()
    size = wanted.norm()
    return float(difference / size) if size > 0 else float(difference)
