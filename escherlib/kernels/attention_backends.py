"""The ways to compute attention: which can be had on a device, and each as one function of q, k, v.

Tensors are (batch, tokens, heads, head_dim) and may be views with strides of their own, such as the q, k and
v parts of rows that hold them side by side; the result is contiguous.
"""

import importlib
import importlib.util
import inspect
from functools import cache

from escherlib.errors import Refused, UserError
from escherlib.kernels.formats import format_of
from escherlib.kernels.lazy import torch

FA4_TILES = {"192x128": {"tile_mn": (192, 128), "num_threads": 512, "mma_pv_is_rs": False}}
BACKENDS = (
    "fa4", "fa4:192x128", "flash_attn", "aiter", "sdpa:cudnn", "sdpa:flash", "sdpa:efficient", "sdpa:math",
    "flex", "sdpa",
)  # fmt: skip
# how torch's switches call them
SDPA = {"cudnn": "cudnn", "flash": "flash", "efficient": "mem_efficient", "math": "math"}
GPUS, ALL = ("cuda", "rocm"), ("cuda", "rocm", "cpu")
SHORT = ("bf16", "fp16")
TRANSPOSED = "strides taken as they are, tokens and heads exchanged as a view"
# name → stacks, least and most CUDA capability, formats on a GPU, what it does with layouts
NEEDS = {
    "fa4": (("cuda",), (9, 0), None, SHORT, "strides taken as they are"),
    "fa4:192x128": (("cuda",), (9, 0), (9, 9), SHORT, "strides taken as they are"),
    "flash_attn": (GPUS, (8, 0), None, SHORT, "strides taken as they are"),
    "aiter": (("rocm",), None, None, SHORT, "strides taken as they are"),
    "sdpa:cudnn": (("cuda",), (8, 0), None, SHORT, TRANSPOSED),
    "sdpa:flash": (ALL, (8, 0), None, SHORT, TRANSPOSED),
    "sdpa:efficient": (GPUS, (5, 0), None, None, TRANSPOSED),
    "sdpa:math": (ALL, None, None, None, f"{TRANSPOSED}; scores in memory, the result copied into place"),
    "flex": (GPUS, (8, 0), None, None, TRANSPOSED),
    "sdpa": (ALL, None, None, None, f"{TRANSPOSED}; the result copied where it comes transposed"),
}  # fmt: skip
FA4_ADVICE = "`make setup EXTRAS=fa4` installs it: the fastest attention known on Hopper and Blackwell GPUs"


def attend(name):
    """fn(q, k, v) of a backend, without a mask and with scores scaled by 1/√head_dim.

    It enqueues and does not wait, so it can be captured in a graph once it has run. Refused where the
    backend's package can't be had; what a backend does not take it says itself when it is called.
    """
    require_known(name)
    kind, _, detail = name.partition(":")
    return MAKERS[kind](detail)


def layout(name):
    """What a backend does with the layout of its operands and its result, as text."""
    require_known(name)
    return NEEDS[name][-1]


def require_known(name):
    """UserError for a name that is no backend."""
    if name not in BACKENDS:
        raise UserError(
            f"attention backend {name!r}: unknown; expected one of {', '.join(BACKENDS)} (lists: or auto)"
        )


def chosen(names):
    """Backends in their fixed order; "auto" stands for all. UserError for an unknown name or for none."""
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name != "auto":
            require_known(name)
    if not names:
        raise UserError(f"attention backends: none named; expected auto or some of {', '.join(BACKENDS)}")
    return tuple(name for name in BACKENDS if "auto" in names or name in names)


def survey(device, dtype=None, names=("auto",)):
    """{backend: None where it can be had here, else the reason}; nothing is compiled for that."""
    fmt = format_of(device, dtype)
    return {name: missing(device, fmt, name) for name in chosen(names)}


def missing(device, fmt, name):
    """Why a backend can't be had on a device and in a format; None where it can."""
    stacks, least, most, formats, _ = NEEDS[name]
    if fmt.name == "fp8":
        return "attention is measured in 16 and 32 bits"
    if device.stack not in stacks:
        return f"made for {' and '.join(stacks)} GPUs; this device runs on {device.stack}"
    found = capability(device)
    if found and least and found < least:
        return f"needs compute capability {_dotted(least)}; this device has {_dotted(found)}"
    if found and most and found > most:
        return f"its tiles are those of compute capability {most[0]}.x; this device has {_dotted(found)}"
    if device.kind == "gpu" and formats and fmt.name not in formats:
        return f"takes {' and '.join(formats)} only, not {fmt.name}"
    try:
        PROBES[name.partition(":")[0]](name.partition(":")[2], device)
    except Refused as reason:
        return str(reason)
    return None


def capability(device):
    """Compute capability of a CUDA device as (major, minor), else None."""
    digits = "".join(c for c in (device.arch or "").removeprefix("sm_") if c.isdigit())
    return divmod(int(digits), 10) if device.stack == "cuda" and digits else None


def _dotted(pair):
    return f"{pair[0]}.{pair[1]}"


def package(module, title, advice):
    """An optional package's module. Refused, with the reason, where it is absent or broken."""
    try:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            raise ModuleNotFoundError(module)
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or str(error)).startswith(module.partition(".")[0]):
            raise Refused(f"{title} is not installed; {advice}") from None
        raise Refused(f"{title} lacks the package {error.name}; {advice}") from None
    except Exception as error:  # a package built for another torch may fail in any way
        line = (str(error).strip().splitlines() or ["no message"])[0][:160]
        raise Refused(f"{title} can't be imported ({type(error).__name__}: {line})") from None


def first(result):
    """The output of a function that may also return statistics of its rows."""
    return result[0] if isinstance(result, tuple) else result


def _fa4(tiles):
    """flash-attn-4: with its own choice of tiles its public function, with others its private one."""
    interface = package("flash_attn.cute.interface", "flash-attn-4", FA4_ADVICE)
    if not tiles:
        run = _taken(interface, "flash_attn_func", "flash-attn-4")
        return lambda q, k, v: first(run(q, k, v))
    run = _taken(interface, "_flash_attn_fwd", "flash-attn-4")
    settings = _accepted(run, FA4_TILES[tiles])
    return lambda q, k, v: first(run(q, k, v, **settings))


def _accepted(run, settings):
    """The settings that this version knows; Refused where tiles can't be chosen.

    Newer versions count the threads from the tiles.
    """
    known = inspect.signature(run).parameters
    lacking = [name for name in settings if name not in known and name != "num_threads"]
    if lacking:
        raise Refused(f"this flash-attn-4 does not take {', '.join(lacking)}, so its tiles can't be chosen")
    return {name: value for name, value in settings.items() if name in known}


def _taken(module, name, title):
    if not hasattr(module, name):
        raise Refused(f"{title} has no {name} in this version")
    return getattr(module, name)


def _flash_attn(_):
    """flash-attention 3 where it is installed and made for the device, else 2."""
    run = _flash_function(torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9)
    return lambda q, k, v: first(run(q, k, v))


def _flash_function(hopper):
    if hopper and importlib.util.find_spec("flash_attn_interface"):
        advice = "build it anew for this torch"
        return _taken(package("flash_attn_interface", "flash-attention 3", advice), "flash_attn_func", "it")
    module = package("flash_attn", "flash_attn", "install the build that fits this torch")
    if not hasattr(module, "flash_attn_func"):  # flash-attn-4 alone leaves a folder of the same name
        raise Refused("flash_attn is not installed; install the build that fits this torch")
    return module.flash_attn_func


def _aiter(_):
    """AMD's kernels; an unrelated package on the package index has the same name, and lacks the function."""
    run = _taken(package("aiter", "aiter", "AMD's ROCm images hold it"), "flash_attn_func", "aiter")
    return lambda q, k, v: first(run(q, k, v))


def _sdpa(kind):
    """torch's scaled_dot_product_attention, made to use one backend or left its own choice."""
    function = torch.nn.functional.scaled_dot_product_attention

    def run(q, k, v):
        return function(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).contiguous()

    if not kind:
        return run
    switches = _switches(SDPA[kind])

    def run_forced(q, k, v):
        before = [enabled() for enabled, _, _ in switches]
        for _, enable, wanted in switches:
            enable(wanted)
        try:
            with torch.no_grad():
                return run(q, k, v)
        finally:
            for (_, enable, _), value in zip(switches, before, strict=True):
                enable(value)

    return run_forced


def _switches(one):
    """(read, set, wanted) of each of torch's switches, so that one backend is left to choose.

    torch.nn.attention.sdpa_kernel does the same, at many times the host's time.
    """
    names, flags = SDPA.values(), torch.backends.cuda
    return [(getattr(flags, f"{n}_sdp_enabled"), getattr(flags, f"enable_{n}_sdp"), n == one) for n in names]


def _flex(_):
    function = _compiled_flex()

    def run(q, k, v):
        return function(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).contiguous()

    return run


@cache
def _compiled_flex():
    """flex_attention through torch.compile; never its eager form, which keeps all scores in memory."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _probe_sdpa(kind, device):
    if kind == "cudnn" and not torch.backends.cudnn.is_available():
        raise Refused("this torch has no cuDNN")
    if kind == "flash" and device.kind == "gpu" and not torch.backends.cuda.is_flash_attention_available():
        raise Refused("this torch was built without flash attention")


def _probe_flex(_, device):
    if importlib.util.find_spec("triton") is None:
        raise Refused("triton is not installed; torch compiles flex attention with it")


MAKERS = {"fa4": _fa4, "flash_attn": _flash_attn, "aiter": _aiter, "sdpa": _sdpa, "flex": _flex}
PROBES = {
    "fa4": lambda tiles, device: _fa4(tiles),
    "flash_attn": lambda _, device: _flash_attn(_),
    "aiter": lambda _, device: _aiter(_),
    "sdpa": _probe_sdpa,
    "flex": _probe_flex,
}
