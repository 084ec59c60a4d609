"""The video diffusion transformer of families 4 and 5: Wan-shaped blocks, run chunk by chunk over a rolling KV window.

This is the default path: plain modules and torch's own choice of attention. One chunk is one forward of `query_tokens`
tokens; its keys and values overwrite the oldest slot of a ring that holds `kv_tokens`. Batch 1; activations are
[tokens, width]. Every operation goes through `call(name, function, *arguments)`, so that the same code can be timed
whole, recorded, or taken apart; the names are those of accounting/paths.py.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from escherlib.accounting.workload import time_names
from escherlib.errors import UserError
from escherlib.kernels.rowwise import EPS

WEIGHT_STD = 0.02
LOGIT_STD = 3.0  # spread of attention logits: a few hundred keys matter to a query, as in a trained model
ROPE_BASE = 10000.0
DRAWN = 4_194_301  # a prime: weights that a host draws before it repeats them


def direct(name, function, *arguments, **keywords):
    """Run an operation, unobserved."""
    return function(*arguments, **keywords)


class Block(nn.Module):
    """One transformer block: modulated self attention over the window, cross attention on text, GELU FFN."""

    def __init__(self, w):
        super().__init__()
        d, self.heads, self.head_dim = w.d_model, w.heads, w.head_dim
        self.modulation = nn.Parameter(torch.empty(6, d))
        self.norm_self = nn.LayerNorm(d, EPS, elementwise_affine=False)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.norm_q, self.norm_k = nn.RMSNorm(d, EPS), nn.RMSNorm(d, EPS)
        self.norm_cross = nn.LayerNorm(d, EPS)
        self.cross_q, self.cross_o = nn.Linear(d, d), nn.Linear(d, d)
        context = w.context_dim or d
        self.cross_k, self.cross_v = nn.Linear(context, d), nn.Linear(context, d)
        self.norm_cross_q, self.norm_cross_k = nn.RMSNorm(d, EPS), nn.RMSNorm(d, EPS)
        self.norm_ffn = nn.LayerNorm(d, EPS, elementwise_affine=False)
        self.linear1, self.linear2 = nn.Linear(d, w.ffn), nn.Linear(w.ffn, d)
        self.call = direct

    def forward(self, x, time, ring, start, text, angles=None):
        """x [tokens, d], time [rows, 6, d], ring [2, kv_tokens, d], text: (K, V) cached or the encoded text."""
        call = self.call
        parts = call("glue.modulation", torch.add, self.modulation, time).unbind(1)
        shift, scale, gate, ffn_shift, ffn_scale, ffn_gate = parts

        h = call("norm.self", self.norm_self, x)
        h = call("glue.self_modulate", modulate, h, shift, scale)
        q, k = call("self_attn.q", self.q, h), call("self_attn.k", self.k, h)
        v = call("self_attn.v", self.v, h)
        q, k = call("norm.q", self.norm_q, q), call("norm.k", self.norm_k, k)
        if angles is not None:
            q, k = call("rope", rotate, q, k, angles, self.heads)
        call("kv_cache_write", write_ring, ring, start, k, v)
        h = call("self_attn.flash", self.attend, q, ring[0], ring[1])
        h = call("self_attn.o", self.o, h)
        x = call("glue.self_residual", gated, x, h, gate)

        h = call("norm.cross", self.norm_cross, x)
        q = call("cross_attn.q", self.cross_q, h)
        q = call("norm.cross_q", self.norm_cross_q, q)
        k, v = text if isinstance(text, tuple) else self.text_kv(text)
        h = call("cross_attn.flash", self.attend, q, k, v)
        h = call("cross_attn.o", self.cross_o, h)
        x = call("glue.cross_residual", torch.add, x, h)

        h = call("norm.ffn", self.norm_ffn, x)
        h = call("glue.ffn_modulate", modulate, h, ffn_shift, ffn_scale)
        h = call("ffn.linear1", self.linear1, h)
        h = call("ffn.gelu", F.gelu, h, approximate="tanh")
        h = call("ffn.linear2", self.linear2, h)
        return call("glue.ffn_residual", gated, x, h, ffn_gate)

    def attend(self, q, k, v):
        """Attention as torch picks it by itself. q [tokens, d], k, v [keys, d] → [tokens, d]."""
        q, k, v = (t.view(1, t.shape[0], self.heads, self.head_dim).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(q.shape[2], -1)

    def text_kv(self, text):
        """Cross K and V of the encoded text [text_tokens, context]."""
        k = self.call("cross_attn.k", self.cross_k, text)
        v = self.call("cross_attn.v", self.cross_v, text)
        return self.call("norm.cross_k", self.norm_cross_k, k), v


class Stack(nn.Module):
    """All blocks with their rings, the time MLP, and the text. `forward` is one chunk."""

    path = "default"

    def __init__(self, w):
        super().__init__()
        if w.batch != 1:
            raise UserError(f"batch {w.batch}: the stack that is timed runs one video; expected batch 1")
        self.w = w
        self.time = nn.ModuleList(nn.Linear(k, n) for k, n in w.time_gemms)
        self.blocks = nn.ModuleList(Block(w) for _ in range(w.blocks))
        self.call, self.angles = direct, None
        self.slots = w.kv_tokens // w.query_tokens

    def allocate(self):
        """Rings and inputs, beside the weights on their device; the text's K and V where they are cached."""
        w, new = self.w, self._like()
        self.rings = [torch.zeros(2, w.kv_tokens, w.d_model, **new) for _ in self.blocks]
        self._inputs()
        return self

    def _like(self):
        weight = self.time[0].weight
        return {"dtype": weight.dtype, "device": weight.device}

    def _inputs(self):
        """Text, time steps and noise; seeded like the weights."""
        w, new = self.w, self._like()
        text = torch.randn(w.text_tokens, w.context_dim or w.d_model, **new)
        self.text = [block.text_kv(text) if w.cross_kv_cached else text for block in self.blocks]
        self.steps = sinusoid(torch.linspace(0.2, 0.8, w.rows_time), w.time_widths[0]).to(**new)
        self.noise = [torch.randn(w.query_tokens, w.d_model, **new) for _ in range(2)]

    def time_vector(self):
        """[rows, 6, d] from the time MLP."""
        h, last = self.steps, len(self.time) - 1
        for i, (name, layer) in enumerate(zip(time_names(last + 1), self.time, strict=True)):
            h = self.call(name, layer, F.silu(h) if i else h)
        return h.view(h.shape[0], -1, self.w.d_model) if h.shape[1] == 6 * self.w.d_model else (
            h.view(h.shape[0], 1, -1).expand(-1, 6, -1)
        )  # fmt: skip

    def forward(self, x, slot):
        """One chunk: x [query_tokens, d] through all blocks, written into ring slot `slot`."""
        time, start = self.time_vector(), slot * self.w.query_tokens
        for block, ring, text in zip(self.blocks, self.rings, self.text, strict=True):
            x = block(x, time, ring, start, text, self.angles)
        return x

    def chunk(self, i):
        """The i-th chunk of a video: fresh noise, the oldest slot."""
        return self(self.noise[i % len(self.noise)], i % self.slots)

    def observe(self, make_call):
        """Let `make_call(block number or None)` stand between the model and its operations; None: direct."""
        for i, block in enumerate(self.blocks):
            block.call = make_call(i) if make_call else direct
        self.call = make_call(None) if make_call else direct


def build(w, device, dtype, stack=Stack, seed=20260401):
    """A stack with random weights on a device, ready to run.

    Linears are normal with WEIGHT_STD, norms 1, but the norms of q and k such that attention logits spread by
    LOGIT_STD: even attention over thousands of keys would make all its rows alike.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            model = stack(w)
    finally:
        torch.set_default_dtype(default)
    model = model.to_empty(device=device).requires_grad_(False).eval()
    torch.manual_seed(seed)
    for name, value in model.named_parameters():
        if "norm" in name:
            spread = math.sqrt(LOGIT_STD) if name.split(".")[-2] in QK_NORMS else 1.0
            value.fill_(spread if name.endswith("weight") else 0.0)
        else:
            fill_normal(value)
    return model.allocate()


def fill_normal(value):
    """Normal values with WEIGHT_STD. A host draws some and lays them end to end: billions would take it a minute.

    The length of what is drawn has no factor in common with any width, so no two rows are alike.
    """
    if value.is_cuda or value.numel() <= DRAWN:
        value.normal_(std=WEIGHT_STD)
        return
    drawn = torch.empty(DRAWN, dtype=value.dtype).normal_(std=WEIGHT_STD)
    for part in value.view(-1).split(DRAWN):
        part.copy_(drawn[: part.numel()])


QK_NORMS = ("norm_q", "norm_k", "norm_cross_q", "norm_cross_k")


def modulate(x, shift, scale):
    """x·(1 + scale) + shift with one row of each for tokens/rows tokens."""
    grouped = x.view(scale.shape[0], -1, x.shape[-1])
    return torch.addcmul(shift.unsqueeze(1), grouped, 1 + scale.unsqueeze(1)).view_as(x)


def gated(x, y, gate):
    """x + y·gate with one row of gate for tokens/rows tokens."""
    grouped = (gate.shape[0], -1, x.shape[-1])
    return torch.addcmul(x.view(grouped), y.view(grouped), gate.unsqueeze(1)).view_as(x)


def write_ring(ring, start, k, v):
    """Write this chunk's K and V over the oldest slot."""
    ring[0, start : start + k.shape[0]] = k
    ring[1, start : start + v.shape[0]] = v


def sinusoid(at, width):
    """Sinusoidal embedding [len(at), width] of positions in 0…1, scaled to 1000 steps."""
    frequencies = torch.exp(-math.log(ROPE_BASE) * torch.arange(width // 2) / (width // 2))
    angles = 1000 * at[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def rope_angles(tokens, head_dim, device):
    """Rotary angles [tokens, 1, head_dim/2] of consecutive positions."""
    frequencies = ROPE_BASE ** (-torch.arange(0, head_dim, 2, device=device) / head_dim)
    return (torch.arange(tokens, device=device)[:, None] * frequencies)[:, None]


def rotate(q, k, angles, heads):
    """Rotary embedding of q and k [tokens, d]; halves of each head are the coordinates."""
    cos, sin = angles.cos(), angles.sin()

    def one(x):
        a, b = x.view(x.shape[0], heads, -1).float().chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype).view_as(x)

    return one(q), one(k)
