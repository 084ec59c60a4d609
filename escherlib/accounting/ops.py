"""FLOP and necessary bytes of single operations.

Bytes count each operand once: what must move, not what a kernel moves.
"""

# (reads, writes) per element. Bytes of an operation = (reads + writes) × elements × itemsize.
STREAM_ACCESSES = {
    "copy": (1, 1),  # y = x
    "add": (2, 1),  # c = a + b
    "mul": (1, 1),  # b = s·a
    "axpy": (2, 1),  # y += s·x
    "sum": (1, 0),  # Σ x
    "fill": (0, 1),  # x = s
    "strided": (1, 1),  # y = x[::stride], counted over the elements that are kept
}
STREAM_NOTES = {
    "copy": "1 read and 1 write per element",
    "add": "2 reads and 1 write per element (c = a + b)",
    "mul": "1 read and 1 write per element (b = s·a)",
    "axpy": "2 reads and 1 write per element (y += s·x)",
    "sum": "1 read per element; the result is one number",
    "fill": "1 write per element",
    "strided": "1 read and 1 write per kept element, as requested; every cache line of the source still "
    "moves whole, so the memory itself moves more",
}
STREAM_BUFFERS = {"copy": 2, "add": 3, "mul": 2, "axpy": 2, "sum": 1, "fill": 1, "strided": 2}


def gemm_flop(m, n, k):
    """FLOP of C[m×n] = A[m×k]·B[k×n]; a multiply-add counts two."""
    return 2 * m * n * k


def gemm_bytes(m, n, k, itemsize):
    """Bytes of C = A·B with A and B read once and C written once, all of `itemsize` bytes."""
    return (m * k + k * n + m * n) * itemsize


def attention_flop(query_tokens, kv_tokens, width):
    """FLOP of softmax(Q·Kᵀ)·V over all heads: two products of 2·Sq·Skv·width; the softmax itself counts 0."""
    return 4 * query_tokens * kv_tokens * width


def attention_bytes(query_tokens, kv_tokens, width, itemsize):
    """Bytes of attention with Q, K, V read once and O written once; scores never leave the chip."""
    return 2 * (query_tokens + kv_tokens) * width * itemsize


def stream_bytes(op, elements, itemsize):
    """Necessary bytes of one streaming operation.

    `elements` is the number of elements of the result (sum: of the operand); `strided` counts the kept
    elements only, see STREAM_NOTES. KeyError for an unknown operation.
    """
    return sum(STREAM_ACCESSES[op]) * elements * itemsize
