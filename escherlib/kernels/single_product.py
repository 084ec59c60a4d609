"""One product on operands of one's own, through the backend torch prefers: what the rows about numerics run."""

from dataclasses import dataclass

from escherlib.kernels import backends, correct, operands, products
from escherlib.kernels.formats import Format, format_of, is_emulated, on_matrix_unit, require_supported, switches
from escherlib.kernels.lazy import torch


@dataclass(frozen=True)
class Single:
    """A product in one format through one backend. Shapes come with the operands."""

    device: object
    fmt: Format
    backend: str

    @property
    def library(self):
        """Library half of the backend's name."""
        return self.backend.split(":")[0]

    @property
    def layout(self):
        """`nn`: weights [K, N]; `nt`: weights [N, K]."""
        return self.backend.split(":")[1]

    @property
    def matrix_unit(self):
        """True where a matrix unit sums (truncating), False on vector units (rounding)."""
        return on_matrix_unit(self.device, self.fmt)

    def gamma(self, k):
        """γ_K of this format on this device."""
        return correct.gamma_for(self.fmt, k, self.matrix_unit)

    def run(self, tensors):
        """C [M, N] of one set of operands, in the format's output."""
        shape = (tensors["a"].shape[0], tensors["b"].shape[1])
        out = torch.empty(shape, dtype=self.fmt.output, device=self.device.torch_device)
        backends.selector(self.library)()
        products.kernel(products.Gemm(*shape, tensors["a"].shape[1]), self.fmt, self.device)({**tensors, "c": out})
        return out

    def described(self, k):
        """What every row about numerics says of its product."""
        device, fmt = self.device, self.fmt
        inputs = fmt.stored_as if fmt.right_as is None else f"{fmt.stored_as} × {fmt.right_as}"
        return {
            "states": {}, "dtype": fmt.name, "inputs": inputs, "output": fmt.given_as, "emulated": is_emulated(device, fmt),
            "backend": self.backend, "unit": "matrix" if self.matrix_unit else "vector",
            "k_block": correct.default_k_block(fmt) if self.matrix_unit else None, "gamma": self.gamma(k),
            "unit_roundoff": fmt.unit_roundoff, "reduction_switches": switches(device),
        }  # fmt: skip


def single(device, dtype, backend=None):
    """The product of a dtype. Refused, with the reason, where the device has no such arithmetic or backend."""
    fmt = format_of(device, dtype)
    require_supported(device, fmt)
    backend = backend or backends.available(device, fmt)[0]
    backends.require(device, fmt, backend)
    return Single(device, fmt, backend)


def given(product, a, b):
    """Set of operands from float values: A [M, K] and B [K, N], cast to the format, B in the backend's layout."""
    place = product.device.torch_device
    a, w = a.to(place).to(product.fmt.storage), b.to(place)
    w = (w if product.layout == "nn" else w.T).contiguous().to(product.fmt.right.storage)
    return {"a": a, "w": w, "b": w if product.layout == "nn" else w.T}


def normal(product, m, n, k):
    """Set of seeded normal operands. 8-bit ones fill their range: a scale per tensor takes the largest to the end."""
    device, fmt = product.device, product.fmt
    if not fmt.is_fp8:
        sets, _ = products.make_sets(device, products.Gemm(m, n, k), fmt, product.layout, most=1)
        return {name: sets[0][name] for name in ("a", "w", "b")}
    source = operands.generator(device)
    values = [torch.empty(s, device=device.torch_device).normal_(generator=source) for s in ((m, k), (k, n))]
    scales = [v.abs().max() / torch.finfo(s).max for v, s in zip(values, (fmt.storage, fmt.right.storage), strict=True)]
    scaled = given(product, values[0] / scales[0], values[1] / scales[1])
    return {**scaled, "scale_a": scales[0], "scale_b": scales[1]}


def along_k(product, tensors, index):
    """The set with K reordered, or cut, to `index`."""
    dimension = 0 if product.layout == "nn" else 1
    w = _take(tensors["w"], index, dimension)
    return {**tensors, "a": _take(tensors["a"], index, 1), "w": w, "b": w if product.layout == "nn" else w.T}


def _take(tensor, index, dimension):
    """index_select; 8-bit floats are picked as bytes, since not every torch can index them."""
    if tensor.dtype.itemsize == 1:
        return tensor.view(torch.uint8).index_select(dimension, index).view(tensor.dtype)
    return tensor.index_select(dimension, index)


def scale_of(tensors):
    """Product of both scales in float64; 1 without scales."""
    if "scale_a" not in tensors:
        return 1.0
    return float(tensors["scale_a"].double() * tensors["scale_b"].double())


def exact(tensors):
    """float64 (A·B, |A|·|B|) on the same rounded inputs, scales included."""
    ref, sizes = correct.reference(tensors["a"], tensors["b"])
    return ref * scale_of(tensors), sizes * scale_of(tensors)
