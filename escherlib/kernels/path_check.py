"""Is a path right as a whole? A small instance of its stack against a float32 run of the plain modules."""

from escherlib.errors import Refused
from escherlib.kernels import operands, scopes
from escherlib.kernels.formats import format_of, is_emulated
from escherlib.kernels.lazy import dit, torch
from escherlib.method import method
from escherlib.schemas.workload import Workload

SMALL = {
    "name": "small", "description": "small instance for the check of a path", "batch": 1, "heads": 2, "ffn": 640, "blocks": 2,
    "tokens_per_latent_frame": 64, "frames": 3, "window": 12, "text_tokens": 64, "cross_kv_cached": True,
    "streams": {"norm": 6, "residual": 0, "gelu": 2, "kv_cache_write": 4}, "printed_megabyte": "MiB",
}  # fmt: skip


@method(version=1)
def check_path(device, *, path, backends=None, head_dim=128, seed=20260401):
    """A small stack of a path over two turns of its ring, against the plain modules in float32 with the same weights.

    The error is that of the update: ‖(y − x) − (y₃₂ − x)‖ / ‖y₃₂ − x‖, the largest of all chunks. The bound is twice
    √n·u of the update's roundings and of the stream's, these times ‖y₃₂‖/‖y₃₂ − x‖, since roundings are independent and
    the stream is rounded as a whole. Refused where the result is wrong.
    """
    w = small_workload(head_dim, device.peak_dtype)
    fmt = format_of(device, w.dtype)
    stack = dit.build(w, device.torch_device, fmt.storage, scopes.stack_class(path), seed)
    if path == "optimized":
        stack.use(backends or {})
    with torch.inference_mode():
        chunks = 2 * stack.slots
        got = [stack.chunk(i).clone() for i in range(chunks)]
        wanted = [exact.chunk(i) for exact in [twin(stack, w, device)] for i in range(chunks)]
        starts = [stack.noise[i % len(stack.noise)] for i in range(chunks)]
        error = max(scopes.update_error(y, z, x) for y, z, x in zip(got, wanted, starts, strict=True))
    bound = scopes.bound_of(w.blocks, fmt.unit_roundoff, wanted, starts)
    how = f"largest relative error of the update over {chunks} chunks of a small instance against plain modules in float32"
    operands.release(device)
    if not error <= bound:
        raise Refused(f"the {path} path gave a wrong result: relative error {error:.3g}, bound {bound:.3g}")
    return {
        "states": {}, "flop": None, "bytes": None, "bytes_how": "nothing is timed here", "dtype": fmt.name,
        "emulated": is_emulated(device, fmt), "fill": "normal", "backend": path, "path": path,
        "correct": {"ok": True, "error": error, "bound": bound, "how": how}, "backends": scopes.backends_of(stack),
        "geometry": w.identity(),
    }  # fmt: skip


def small_workload(head_dim, dtype):
    """Two heads of the real width, so that the same kernels run."""
    d = 2 * head_dim
    return Workload(**SMALL, dtype=dtype, head_dim=head_dim, d_model=d, time_widths=[256, d, 6 * d])


def twin(stack, w, device):
    """The plain modules in float32 with the weights, text and noise of `stack`."""
    exact = dit.build(w, device.torch_device, torch.float32)
    exact.load_state_dict({name: value.float() for name, value in stack.state_dict().items()})
    exact.text = [tuple(t.float() for t in text) if isinstance(text, tuple) else text.float() for text in stack.text]
    exact.noise, exact.steps = [x.float() for x in stack.noise], stack.steps.float()
    return exact
