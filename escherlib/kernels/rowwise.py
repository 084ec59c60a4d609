"""Row-wise work between the matrix products: norms, modulation, gated residuals. One launch each.

On a GPU with Triton they are our own kernels (rowwise_triton.py), elsewhere the same arithmetic in torch. All take
[tokens, width] tensors and compute in float32. Modulation and gates have one row for `tokens / rows` tokens.
"""

from contextlib import contextmanager
from functools import cache

from escherlib.kernels.lazy import torch

EPS = 1e-6
_plain = []  # not empty while the torch reference is asked for


@cache
def has_triton():
    """Whether Triton can be imported here."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def backend(tensor):
    """`triton` or `torch`: what runs for a tensor of this device."""
    return "triton" if tensor.is_cuda and has_triton() and not _plain else "torch"


@contextmanager
def in_torch():
    """Within it everything runs in torch: the arithmetic that our own kernels are held against."""
    _plain.append(True)
    try:
        yield
    finally:
        _plain.pop()


def norm_modulate(x, shift, scale, out):
    """out = LayerNorm(x)·(1 + scale) + shift. x, out [tokens, width]; shift, scale [rows, width]."""
    if backend(x) == "triton":
        return _kernels().norm(x, None, None, shift, scale, 1.0, None, None, out)
    return _norm(x.float(), shift, scale, 1.0, out)


def residual_norm_modulate(x, y, gate, shift, scale, sum_out, out):
    """sum_out = x + y·gate; out = LayerNorm(sum_out)·(1 + scale) + shift."""
    if backend(x) == "triton":
        return _kernels().norm(x, y, gate, shift, scale, 1.0, None, sum_out, out)
    total = x.float() + y.float() * _spread(gate, x)
    sum_out.copy_(total)
    return _norm(total, shift, scale, 1.0, out)


def residual_norm_affine(x, y, gate, weight, bias, later, sum_out, out):
    """out = LayerNorm(x + y·gate)·weight + bias; sum_out = x + y·gate + `later`.

    `later` [width]: the bias of the product that is added to sum_out next, so that it can accumulate in place.
    """
    weight, bias = weight.view(1, -1), bias.view(1, -1)
    if backend(x) == "triton":
        return _kernels().norm(x, y, gate, bias, weight, 0.0, later, sum_out, out)
    total = x.float() + y.float() * _spread(gate, x)
    sum_out.copy_(total + later.float())
    return _norm(total, bias, weight, 0.0, out)


def residual(x, y, gate, out):
    """out = x + y·gate."""
    return torch.addcmul(x, y, gate.repeat_interleave(x.shape[0] // gate.shape[0], 0), out=out)


def rms_norm_(x, weight):
    """RMSNorm in place over each of weight's parts: x [tokens, parts·width] (any row stride), weight [parts, width]."""
    if backend(x) == "triton":
        return _kernels().rms_norm_(x, weight)
    parts = x.unflatten(1, weight.shape).float()
    scale = torch.rsqrt(parts.square().mean(-1, keepdim=True) + EPS)
    x.copy_((parts * scale * weight.float()).flatten(1))
    return x


def _norm(x, shift, scale, one, out):
    """LayerNorm of float32 rows, scaled and shifted, written to `out`."""
    normal = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS)
    out.copy_(normal * (one + _spread(scale, x)) + _spread(shift, x))
    return out


def _spread(rows, x):
    """[rows, width] → one row for each token, float32."""
    return rows.float().repeat_interleave(x.shape[0] // rows.shape[0], 0)


@cache
def _kernels():
    from escherlib.kernels import rowwise_triton

    return rowwise_triton
