"""Number formats of the matrix rows: what is stored, what comes out, how finely it rounds, what may run
where.
"""

from dataclasses import dataclass, replace

from escherlib.accounting.error_bounds import UNIT_ROUNDOFF
from escherlib.errors import Refused, UserError
from escherlib.kernels.lazy import torch


@dataclass(frozen=True)
class Format:
    """One row of the dtype ladder. `unit_roundoff` is half the spacing of numbers near 1 in the output.

    `right_as` is set where the right operand is stored in another format than the left one.
    """

    name: str
    stored_as: str  # names of torch dtypes
    given_as: str
    input_mantissa_bits: int
    right_as: str | None = None

    @property
    def unit_roundoff(self):
        """u of the output."""
        return UNIT_ROUNDOFF[self.name]

    @property
    def right(self):
        """The same format as the right operand is stored in it."""
        return replace(self, stored_as=self.right_as or self.stored_as)

    @property
    def is_fp8(self):
        """Operands of 8 bits, which torch multiplies through its scaled product alone."""
        return self.name.startswith("fp8")

    @property
    def storage(self):
        """torch dtype of the operands."""
        return getattr(torch, self.stored_as)

    @property
    def output(self):
        """torch dtype of the result."""
        return getattr(torch, self.given_as)


FORMATS = {
    "fp32": Format("fp32", "float32", "float32", 23),
    "tf32": Format("tf32", "float32", "float32", 10),
    "fp16": Format("fp16", "float16", "float16", 10),
    "bf16": Format("bf16", "bfloat16", "bfloat16", 7),
    "fp8": Format("fp8", "float8_e4m3fn", "bfloat16", 3),
    # gradients times weights: no library multiplies e5m2 by e5m2
    "fp8_e5m2": Format("fp8_e5m2", "float8_e5m2", "bfloat16", 2, "float8_e4m3fn"),
}


def format_of(device, dtype):
    """The Format of a dtype name (None: the device's peak dtype). UserError for an unknown name."""
    name = dtype or device.peak_dtype
    if name not in FORMATS:
        raise UserError(f"dtype {name!r}: unknown number format; expected one of {', '.join(FORMATS)}")
    found = FORMATS[name]
    if found.is_fp8 and (device.arch or "").startswith("gfx94"):
        # CDNA3 multiplies the variants without negative zero; feeding it the others gives wrong numbers
        return replace(found, stored_as=_fnuz(found.stored_as), right_as=found.right_as and _fnuz(found.right_as))
    return found


def _fnuz(stored_as):
    return stored_as.removesuffix("fn") + "fnuz"


def require_supported(device, fmt):
    """Refused, with the reason, where the device has no such arithmetic at all (emulation is not refused)."""
    if fmt.name == "tf32":
        _require_tf32(device)
    elif fmt.is_fp8:
        _require_fp8(device)


def _capability(device):
    return torch.cuda.get_device_capability(device.index)


def _require_tf32(device):
    if device.stack == "cpu":
        raise Refused("tf32 is a mode of GPU matrix units; a CPU has none")
    if device.stack == "cuda" and _capability(device) < (8, 0):
        raise Refused(f"tf32 needs compute capability 8.0; this device has {_capability(device)}")
    if device.stack == "rocm":
        import os

        if not (device.arch or "").startswith("gfx94"):
            raise Refused(f"tf32 (xf32) exists on gfx94x only; this device is {device.arch}")
        if os.environ.get("HIPBLASLT_ALLOW_TF32") != "1":
            raise Refused(
                "torch uses xf32 only with HIPBLASLT_ALLOW_TF32=1 in the environment; set it and run again"
            )


def _require_fp8(device):
    if device.stack == "cpu":
        raise Refused("fp8 needs a matrix unit with 8-bit floats; torch only emulates it on a CPU")
    if device.stack == "cuda" and _capability(device) < (8, 9):
        raise Refused(f"fp8 needs compute capability 8.9; this device has {_capability(device)}")
    if device.stack == "rocm" and not (device.arch or "").startswith(("gfx94", "gfx95", "gfx12")):
        raise Refused(f"fp8 needs gfx94x, gfx95x or gfx12xx; this device is {device.arch}")


def is_emulated(device, fmt):
    """True where the arithmetic is done in another format; None where that can't be known."""
    if fmt.name == "bf16":
        return not device.native_bf16
    if fmt.name == "fp16" and device.stack == "cpu":
        try:
            return not torch.ops.mkldnn._is_mkldnn_fp16_supported()
        except (AttributeError, RuntimeError):
            return None
    return False


def on_matrix_unit(device, fmt):
    """True where products are summed by a matrix unit (truncating), False on vector units (rounding)."""
    return device.kind == "gpu" and fmt.name != "fp32"


def switches(device):
    """State of torch's reduced-precision reduction switches, as a record keeps it; {} on a CPU."""
    if device.kind != "gpu":
        return {}
    matmul = torch.backends.cuda.matmul
    names = (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_reduced_precision_reduction_split_k",
        "allow_bf16_reduced_precision_reduction_split_k",
        "allow_fp16_accumulation",
    )
    found = {}
    for name in names:
        try:
            found[name] = bool(getattr(matmul, name))
        except (AttributeError, RuntimeError):  # this torch has no such switch
            continue
    return found
