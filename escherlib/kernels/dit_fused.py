"""The optimized path of the same stack: same weights, same arithmetic in bf16, fewer passes over memory.

What differs from dit.py: q, k and v are one product that writes straight into the ring, whose rows hold q|k|v side by
side, so V is never copied and K only normed in place; each attention runs on its own best backend; gated residual,
norm and modulation are one launch; the residual around cross attention is the accumulator of its output product; GELU
is an epilogue; the modulation of all blocks is one addition.
"""

import torch

from escherlib.kernels import attention, rowwise
from escherlib.kernels.dit import Stack, direct


class FusedStack(Stack):
    """Stack with the weights of `Stack` and the launches of the optimized path."""

    path = "optimized"

    def allocate(self, backends=None):
        """Fused weights (the modules keep views of them), wide rings, work space shared by all blocks."""
        w, new = self.w, self._like()
        self.layers = [Layer(block, w) for block in self.blocks]
        self._inputs()
        self.rings = [torch.zeros(w.kv_tokens, 3 * w.d_model, **new) for _ in self.blocks]
        self.modulation = torch.stack([block.modulation for block in self.blocks])
        self.room = {name: torch.empty(w.query_tokens, w.d_model, **new) for name in ("x", "sum", "h", "y", "q")}
        self.use(backends or {})
        return self

    def use(self, backends):
        """Choose the attention backends: {"self_attn.flash": name, "cross_attn.flash": name}."""
        self.backends = {op: backends.get(op) or "sdpa" for op in ("self_attn.flash", "cross_attn.flash")}
        self.attend = {op: attention.attend(name) for op, name in self.backends.items()}

    def _modulated(self):
        """Shift, scale, gate of attention and FFN of every block: views [blocks][6] of [rows, d]."""
        time = self.time_vector()
        table = self.call("glue.modulation", torch.add, self.modulation[:, None], time)
        return [block.unbind(1) for block in table.unbind(0)]

    def forward(self, x, slot):
        """One chunk: x [query_tokens, d] through all blocks, written into ring slot `slot`."""
        parts, room = self._modulated(), self.room
        h = self.call("fused.norm_self_first", rowwise.norm_modulate, x, parts[0][0], parts[0][1], out=room["h"])
        for i, layer in enumerate(self.layers):
            x, y = self._block(i, layer, x, h, parts[i], slot)
            if i < len(self.layers) - 1:
                shift, scale = parts[i + 1][:2]
                layer.call(
                    "fused.ffn_residual_norm_self", rowwise.residual_norm_modulate, x, y, parts[i][5], shift, scale,
                    sum_out=room["sum"], out=room["h"],
                )  # fmt: skip
                x, h = room["sum"], room["h"]
        return self.call("fused.ffn_residual_last", rowwise.residual, x, y, parts[-1][5], out=room["sum"])

    def _block(self, i, layer, x, h, parts, slot):
        """Attention, cross attention and FFN of one block; returns (x, what the FFN adds to it before its gate)."""
        _, _, gate, ffn_shift, ffn_scale, _ = parts
        w, room, call = self.w, self.room, layer.call
        ring = self.rings[i]
        rows = ring[slot * w.query_tokens : (slot + 1) * w.query_tokens]
        call("self_attn.qkv", torch.addmm, layer.qkv_bias, h, layer.qkv, out=rows)
        call("fused.qk_norm", rowwise.rms_norm_, rows[:, : 2 * w.d_model], layer.qk_norm)
        q, k, v = rows[:, : w.d_model], *ring.split(w.d_model, dim=1)[1:]
        a = call("self_attn.flash", self._attend, "self_attn.flash", q, k, v)
        y = call("self_attn.o", torch.addmm, layer.o_bias, a, layer.o, out=room["y"])
        call(
            "fused.self_residual_norm_cross", rowwise.residual_norm_affine, x, y, gate, layer.cross_weight,
            layer.cross_bias, layer.cross_o_bias, sum_out=room["x"], out=room["h"],
        )  # fmt: skip
        x = room["x"]
        q = call("cross_attn.q", torch.addmm, layer.cross_q_bias, room["h"], layer.cross_q, out=room["q"])
        call("norm.cross_q", rowwise.rms_norm_, q, layer.cross_q_norm)
        text = self.text[i] if isinstance(self.text[i], tuple) else layer.block.text_kv(self.text[i])
        a = call("cross_attn.flash", self._attend, "cross_attn.flash", q, *text)
        call("cross_attn.o_residual", torch.Tensor.addmm_, x, a, layer.cross_o)
        call("fused.norm_ffn", rowwise.norm_modulate, x, ffn_shift, ffn_scale, out=room["h"])
        u = call(
            "ffn.linear1_gelu", torch._addmm_activation, layer.bias1, room["h"], layer.linear1, use_gelu=True
        )
        return x, call("ffn.linear2", torch.addmm, layer.bias2, u, layer.linear2, out=room["y"])

    def _attend(self, op, q, k, v):
        """q [tokens, d], k, v [keys, d], rows of any stride → [tokens, d]."""
        heads = (self.w.heads, self.w.head_dim)
        return self.attend[op](*(t.unflatten(1, heads).unsqueeze(0) for t in (q, k, v))).view(q.shape[0], -1)

    def observe(self, make_call):
        """As Stack.observe."""
        super().observe(make_call)
        for i, layer in enumerate(self.layers):
            layer.call = make_call(i) if make_call else direct


class Layer:
    """Weights of one block as the fused launches take them: products transposed, q, k, v side by side."""

    def __init__(self, block, w):
        d = w.d_model
        self.block, self.call = block, direct
        qkv = torch.cat([block.q.weight, block.k.weight, block.v.weight])
        self.qkv_bias = torch.cat([block.q.bias, block.k.bias, block.v.bias])
        for i, linear in enumerate((block.q, block.k, block.v)):  # one copy of the weights: the modules keep views
            linear.weight.data = qkv[i * d : (i + 1) * d]
        self.qkv, self.qk_norm = qkv.t(), torch.stack([block.norm_q.weight, block.norm_k.weight])
        self.o, self.o_bias = block.o.weight.t(), block.o.bias
        self.cross_weight, self.cross_bias = block.norm_cross.weight, block.norm_cross.bias
        self.cross_q, self.cross_q_bias = block.cross_q.weight.t(), block.cross_q.bias
        self.cross_q_norm = block.norm_cross_q.weight[None]
        self.cross_o, self.cross_o_bias = block.cross_o.weight.t(), block.cross_o.bias
        self.linear1, self.bias1 = block.linear1.weight.t(), block.linear1.bias
        self.linear2, self.bias2 = block.linear2.weight.t(), block.linear2.bias
