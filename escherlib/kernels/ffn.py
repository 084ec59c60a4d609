"""One FFN of the block as a work to hold: x·W1 + b1, GELU, ·W2 + b2, checked against float64 on a few rows."""

from dataclasses import dataclass

from escherlib.errors import Refused
from escherlib.kernels.formats import format_of
from escherlib.kernels.lazy import torch

CHECKED_ROWS = 4
# roundings on the way of a value that the bound allows for: hidden value, GELU's input and output, the result
ROUNDINGS = 4


@dataclass(frozen=True)
class Ffn:
    """Operands on the device. x [tokens, d], W1 [d, ffn], W2 [ffn, d], biases; all normal random values."""

    x: object
    w1: object
    b1: object
    w2: object
    b2: object
    flop: int
    dtype: str
    unit: float
    backend: str = "torch.addmm, torch GELU"

    def call(self, i=0):
        """One forward, [tokens, d]."""
        hidden = torch.addmm(self.b1, self.x, self.w1)
        return torch.addmm(self.b2, torch.nn.functional.gelu(hidden, approximate="tanh"), self.w2)

    def check(self, when):
        """{ok, error, bound, how} against float64 on the same operands. Refused for a wrong result."""
        rows = self.x[:CHECKED_ROWS].double()
        hidden = torch.nn.functional.gelu(rows @ self.w1.double() + self.b1.double(), approximate="tanh")
        wanted, weight = hidden @ self.w2.double() + self.b2.double(), hidden.abs() @ self.w2.double().abs()
        off = (self.call()[:CHECKED_ROWS].double() - wanted).abs()
        error = float((off / (self.unit * (wanted.abs() + ROUNDINGS * weight))).max())
        if not error <= 1.0:
            raise Refused(f"wrong result {when} timing: scaled error {error:.3g}, bound 1")
        how = f"|y - float64| ÷ (u·(|y| + {ROUNDINGS}·Σ|h||w2|)) on {CHECKED_ROWS} rows"
        return {"ok": True, "error": error, "bound": 1.0, "how": how}


def prepare(device, w):
    """The Ffn of a workload as timed, drawn once on the device."""
    fmt = format_of(device, w.dtype)
    draw = torch.Generator(device=device.torch_device).manual_seed(7)

    def normal(*shape, scale=1.0):
        drawn = torch.randn(*shape, generator=draw, device=device.torch_device, dtype=torch.float32)
        return drawn.mul_(scale).to(fmt.storage)

    d, f, tokens = w.d_model, w.ffn, w.query_tokens
    return Ffn(
        normal(tokens, d), normal(d, f, scale=d**-0.5), normal(f), normal(f, d, scale=f**-0.5), normal(d),
        flop=4 * tokens * d * f, dtype=fmt.name, unit=fmt.unit_roundoff,
    )  # fmt: skip
