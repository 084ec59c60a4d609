"""Products that are wrong on purpose: a bound that they pass is worth nothing.

Each makes a mistake that real kernels have made: a K tile left out at the edge, a row written to its neighbour's
place, sums kept in 16 bits.
"""

from escherlib.kernels import correct, gemm_check
from escherlib.kernels.lazy import torch
from escherlib.kernels.single_product import along_k, scale_of

TILE = 64  # products of K that a kernel loads at once
ADDED_AT_ONCE = 4  # products that the sloppy accumulator adds before it rounds


def dropped_block(product, tensors, result):
    """The last tile of K is left out (a quarter of K, where K is short)."""
    k = tensors["a"].shape[1]
    kept = torch.arange(k - min(TILE, max(1, k // 4)), device=tensors["a"].device)
    return product.run(along_k(product, tensors, kept))


def swapped_rows(product, tensors, result):
    """The first two rows stand in each other's place."""
    wrong = result.clone()
    wrong[:2] = result[:2].flip(0)
    return wrong


def short_sums(product, tensors, result):
    """Every few products the sum is rounded to 16 bits: those of the output, bf16 where it has more."""
    short = product.fmt.output if product.fmt.output.itemsize == 2 else torch.bfloat16
    a, b = tensors["a"].float(), tensors["b"].float()
    total = torch.zeros(result.shape, dtype=short, device=a.device)
    for start in range(0, a.shape[1], ADDED_AT_ONCE):
        stop = start + ADDED_AT_ONCE
        total = torch.addmm(total.float(), a[:, start:stop], b[start:stop]).to(short)
    return (total.float() * scale_of(tensors)).to(product.fmt.output)


KERNELS = {"dropped_block": dropped_block, "swapped_rows": swapped_rows, "short_sums": short_sums}


def judged(product, tensors, result, truth, gamma_k, emulation_max):
    """{name: {error, bound, max, times_emulation, caught}} under the very bound that the right product is held to."""
    ref, sizes = truth
    found = {}
    for name, kernel in KERNELS.items():
        wrong = kernel(product, tensors, result)
        error, limit = correct.scaled_error(wrong, ref, gamma_k * sizes, product.fmt.unit_roundoff * ref.abs())
        verdict, largest = correct.verdict(error, limit, name), gemm_check.distribution(error)["max"]
        times = largest / emulation_max if emulation_max and largest is not None else None
        beyond = times is not None and times > gemm_check.EMULATION_FACTOR
        found[name] = {
            "error": verdict["error"], "bound": verdict["bound"], "max": largest, "times_emulation": times,
            "caught": not verdict["ok"] or beyond,
        }  # fmt: skip
    return found
