"""The ways torch can compute a matrix product: a library and a weight layout, named like `cublaslt:nt`.

`nn`: weights [K, N] as they are. `nt`: weights [N, K] as nn.Linear keeps them, transposed on the fly.
"""

from contextlib import contextmanager
from functools import cache

from escherlib.errors import Refused
from escherlib.kernels.lazy import torch

LAYOUTS = ("nn", "nt")
LIBRARIES = {"cpu": ("torch",), "cuda": ("cublas", "cublaslt"), "rocm": ("hipblas", "hipblaslt")}


def libraries(device, fmt, epilogue=False):
    """Libraries of this device for a format, the one torch prefers by itself first.

    With a bias or GELU in the epilogue torch goes through the -Lt library whatever is preferred; fp8 has one
    entry point of its own.
    """
    if fmt.is_fp8:
        return ("scaled_mm",)
    found = LIBRARIES[device.stack]
    return found[1:] if epilogue and len(found) > 1 else found


def available(device, fmt, epilogue=False):
    """Names of all backends for a format on this device, in a fixed order."""
    layouts = ("nt",) if fmt.is_fp8 else LAYOUTS
    return tuple(f"{library}:{layout}" for library in libraries(device, fmt, epilogue) for layout in layouts)


def require(device, fmt, backend, epilogue=False):
    """(library, layout) of a backend name. Refused where this device and format do not have it."""
    known = available(device, fmt, epilogue)
    if backend not in known:
        raise Refused(
            f"backend {backend!r} is not available for {fmt.name} here; available: {', '.join(known)}"
        )
    return tuple(backend.split(":"))


@cache
def selector(library):
    """Function that makes torch use a BLAS library; cheap enough to stand before every call."""
    if library in ("torch", "scaled_mm"):
        return lambda: None
    prefer = torch.backends.cuda.preferred_blas_library
    try:
        chosen = prefer(library.replace("hip", "cu"))  # torch knows both stacks' libraries by these names
    except RuntimeError as error:
        raise Refused(f"torch has no {library} here ({str(error).splitlines()[0]})") from None
    return lambda: prefer(chosen)


@contextmanager
def settings(device, fmt):
    """Float32 products exactly as the format says, and torch's BLAS choice and precision as before
    afterwards.
    """
    if device.kind != "gpu":
        yield
        return
    matmul = torch.backends.cuda.matmul
    library, precision = torch.backends.cuda.preferred_blas_library(), matmul.fp32_precision
    matmul.fp32_precision = "tf32" if fmt.name == "tf32" else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(library)
        matmul.fp32_precision = precision
