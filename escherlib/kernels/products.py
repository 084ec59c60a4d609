"""One matrix product ready to be timed: operands in place, a call to enqueue, a check of what it wrote."""

from collections.abc import Callable
from dataclasses import dataclass

from escherlib.accounting.ops import gemm_bytes, gemm_flop
from escherlib.errors import Refused, UserError
from escherlib.kernels import backends, correct, operands
from escherlib.kernels.formats import on_matrix_unit
from escherlib.kernels.lazy import torch

OPS = ("mm", "addmm", "bmm")
CHECKED_ROWS = {"gpu": 64, "cpu": 16}
GELU_SLOPE = 1.13  # the steepest slope of GELU: how much an error of its argument can grow


@dataclass(frozen=True)
class Gemm:
    """A product C[M, N] = A[M, K]·B[K, N]; `batch` of them for bmm; bias and GELU as epilogue, fused or
    apart.
    """

    m: int
    n: int
    k: int
    op: str = "mm"
    batch: int = 1
    bias: bool = False
    activation: str | None = None
    fused: bool = True

    @property
    def flop(self):
        """2·M·N·K a batch; epilogues count nothing."""
        return self.batch * gemm_flop(self.m, self.n, self.k)

    @property
    def epilogue(self):
        """True where bias or activation go into the product's own kernel."""
        return self.bias or self.activation is not None

    def shape(self):
        """{m, n, k}."""
        return {"m": self.m, "n": self.n, "k": self.k}

    def validated(self):
        """Itself, or a UserError that says what does not fit."""
        if min(self.m, self.n, self.k, self.batch) < 1:
            raise UserError(
                f"GEMM {self.m}×{self.n}×{self.k}, batch {self.batch}: every size must be at least 1"
            )
        if self.op not in OPS:
            raise UserError(f"op {self.op!r}: unknown; expected one of {', '.join(OPS)}")
        if self.activation not in (None, "gelu"):
            raise UserError(f"activation {self.activation!r}: unknown; expected gelu or none")
        if (self.op == "bmm" and self.epilogue) or (self.op != "bmm" and self.batch != 1):
            raise UserError("a batch needs op=bmm, and bmm takes neither bias nor activation")
        return self


@dataclass(frozen=True)
class Product:
    """A prepared GEMM. `call(i)` enqueues the i-th product on set i mod `len(sets)`; `touched` remembers the
    sets.
    """

    gemm: Gemm
    backend: str
    call: Callable[[int], None]
    sets: list  # dicts of tensors: a, b, c and where needed bias, g (output of a separate GELU)
    touched: set
    rotation: dict
    expected: tuple  # (rows, reference, allowances) as `expect` makes them

    def hot(self, i):
        """The call on the first set again and again."""
        self.call(0)

    def poison(self):
        """Fill the outputs with NaN, so that a later check sees only what was written since."""
        for tensors in self.sets:
            output(tensors).fill_(torch.nan)
        self.touched.clear()

    def check(self, when):
        """The record's `correct` entry over all touched sets. Refused where a result is wrong."""
        found = [verify(self, self.sets[j]) for j in sorted(self.touched)]
        worst = max(
            found, key=lambda v: (not v["ok"], v["error"] / v["bound"] if v["error"] is not None else 0.0)
        )
        if not worst["ok"]:
            error = (
                "not finite" if worst["error"] is None else f"{worst['error']:.3g}, bound {worst['bound']:g}"
            )
            raise Refused(f"{self.backend} gave a wrong result {when} timing: scaled error {error}")
        return worst


def output(tensors):
    """The tensor that holds a set's final result."""
    return tensors.get("g", tensors["c"])


def set_bytes(gemm, fmt):
    """Bytes of one set of operands: A, B, bias, outputs."""
    out = fmt.output.itemsize
    inputs = (gemm.m * gemm.k + gemm.k * gemm.n) * fmt.storage.itemsize
    outputs = gemm.m * gemm.n * out * (2 if gemm.activation and not gemm.fused else 1)
    return gemm.batch * (inputs + outputs) + (gemm.n * out if gemm.epilogue else 0)


def moved_bytes(gemm, fmt):
    """(bytes, how): each operand moved once; a separate GELU reads and writes its output once more."""
    out = gemm.m * gemm.n * fmt.output.itemsize
    wider = gemm.m * gemm.n * (fmt.output.itemsize - fmt.storage.itemsize)  # fp8 goes in, 16 bits come out
    total = gemm.batch * (gemm_bytes(gemm.m, gemm.n, gemm.k, fmt.storage.itemsize) + wider)
    total += gemm.n * fmt.output.itemsize if gemm.epilogue else 0
    if gemm.activation and not gemm.fused:
        return total + 2 * out, "A, B, bias read once, C written; GELU reads C and writes its result"
    return total, "A, B (and bias) read once, C written once"


def make_sets(device, gemm, fmt, layout, fill="normal", most=None):
    """(sets, rotation): random operands and as many copies of them as cache and memory ask for (at most
    `most`).
    """
    size = set_bytes(gemm, fmt)
    count, spans = operands.set_count(size, device, most)
    source = operands.generator(device)
    lead = (gemm.batch,) if gemm.op == "bmm" else ()
    # under GELU the weights shrink by a power of two, so that its argument is near 1 and the mantissas stay
    scale = 2.0 ** -round(torch.tensor(gemm.k).log2().item() / 2) if gemm.activation else 1.0
    a = operands.random_tensor((*lead, gemm.m, gemm.k), fmt, device, fill, source)
    weights = (gemm.k, gemm.n) if layout == "nn" else (gemm.n, gemm.k)
    b = operands.random_tensor((*lead, *weights), fmt.right, device, fill, source, scale)
    first = {"a": a, "w": b}
    if gemm.epilogue:
        values = torch.empty(gemm.n, dtype=fmt.output, device=device.torch_device)
        first["bias"] = values.normal_(generator=source) if fill == "normal" else values.zero_()
    sets = [first] + [{name: tensor.clone() for name, tensor in first.items()} for _ in range(count - 1)]
    for tensors in sets:
        tensors["b"] = tensors["w"] if layout == "nn" else tensors["w"].transpose(-1, -2)
        for name in ("c", "g") if gemm.activation and not gemm.fused else ("c",):
            tensors[name] = torch.empty((*lead, gemm.m, gemm.n), dtype=fmt.output, device=device.torch_device)
    what = "inputs and outputs; every set holds the same values at its own addresses"
    return sets, operands.describe_sets(count, size, spans, device, what)


def kernel(gemm, fmt, device):
    """Function of one set that enqueues the product."""
    if fmt.is_fp8:
        return _scaled(device, fmt)
    if gemm.op == "bmm":
        return lambda t: torch.bmm(t["a"], t["b"], out=t["c"])
    if not gemm.epilogue:
        return lambda t: torch.mm(t["a"], t["b"], out=t["c"])
    if gemm.activation is None:
        return lambda t: torch.addmm(t["bias"], t["a"], t["b"], out=t["c"])
    if gemm.fused:
        return lambda t: torch._addmm_activation(t["bias"], t["a"], t["b"], use_gelu=True, out=t["c"])

    def apart(t):
        torch.addmm(t["bias"], t["a"], t["b"], out=t["c"])
        torch.ops.aten.gelu.out(t["c"], approximate="tanh", out=t["g"])

    return apart


def _scaled(device, fmt):
    one = torch.ones((), device=device.torch_device)

    def run(t):
        torch._scaled_mm(
            t["a"], t["b"], scale_a=t.get("scale_a", one), scale_b=t.get("scale_b", one), bias=t.get("bias"),
            out_dtype=fmt.output, use_fast_accum=False, out=t["c"],
        )  # fmt: skip

    return run


def prepare(device, gemm, fmt, backend, fill="normal", stock=None, most=None):
    """Product of a GEMM through one backend, on at most `most` sets; `stock` shares sets between backends of
    a layout.

    Refused where backend or memory are lacking, or where torch does not take the call.
    """
    library, layout = backends.require(device, fmt, backend, gemm.epilogue)
    stock = {} if stock is None else stock
    if layout not in stock:
        sets, rotation = make_sets(device, gemm, fmt, layout, fill, most)
        stock[layout] = (sets, rotation, expect(device, gemm, fmt, sets[0]))
    sets, rotation, expected = stock[layout]
    select, run, touched = backends.selector(library), kernel(gemm, fmt, device), set()

    def call(i):
        j = i % len(sets)
        touched.add(j)
        select()
        run(sets[j])

    product = Product(gemm, backend, call, sets, touched, rotation, expected)
    _first_call(product)
    return product


def _first_call(product):
    try:
        product.call(0)
    except (NotImplementedError, RuntimeError) as error:
        if isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
            raise  # memory, or a device in trouble: not the backend's refusal
        line = (str(error).strip().splitlines() or ["no message"])[0][:200]
        raise Refused(f"{product.backend}: torch does not take this product ({line})") from None


def expect(device, gemm, fmt, tensors):
    """(batches, rows, reference, allowances, how) for `verify`: sampled rows × all columns in float64."""
    rows = sample(gemm.m, CHECKED_ROWS[device.kind], device)
    batches = sample(gemm.batch, 3, device)
    pick = (lambda t: t[batches][:, rows]) if gemm.op == "bmm" else (lambda t: _rows(t, rows))
    a, b = pick(tensors["a"]), tensors["b"][batches] if gemm.op == "bmm" else tensors["b"]
    if gemm.op == "bmm":
        parts = [correct.reference(x, y) for x, y in zip(a, b, strict=True)]
        ref, sizes = (torch.stack(half) for half in zip(*parts, strict=True))
    else:
        ref, sizes = correct.reference(a, b)
    if gemm.epilogue:
        ref, sizes = ref + tensors["bias"].double(), sizes + tensors["bias"].double().abs()
    accumulation = correct.gamma_for(fmt, gemm.k, on_matrix_unit(device, fmt)) * sizes
    rounding = fmt.unit_roundoff * ref.abs()
    references = [ref]
    if gemm.activation:
        # fused or not, the argument may be rounded to the output format on its way into GELU
        accumulation = GELU_SLOPE * accumulation
        references = [torch.nn.functional.gelu(ref, approximate=form) for form in ("tanh", "none")]
        rounding = rounding + fmt.unit_roundoff * references[0].abs()
    return pick, references, accumulation, rounding


def _rows(tensor, rows):
    """Rows of a matrix; 8-bit floats are picked as bytes, since not every torch can index them."""
    if tensor.dtype.itemsize == 1:
        return tensor.view(torch.uint8)[rows].view(tensor.dtype)
    return tensor[rows]


def verify(product, tensors):
    """`correct` entry of one set's output; with GELU against its tanh and its exact form, the nearer one
    counts.
    """
    pick, references, accumulation, rounding = product.expected
    result = pick(output(tensors))
    found = []
    for ref, form in zip(references, ("tanh", "erf"), strict=False):
        how = f"{result.shape[-2]} sampled rows × all columns against float64 on the same rounded inputs"
        how += f", GELU nearest to its {form} form" if product.gemm.activation else ""
        found.append(correct.verdict(*correct.scaled_error(result, ref, accumulation, rounding), how))
    return min(found, key=lambda v: float("inf") if v["error"] is None else v["error"])


def sample(count, most, device):
    """Indices of at most `most` of `count` rows: first, last and evenly between."""
    return torch.linspace(0, count - 1, min(count, most), device=device.torch_device).round().long()
