"""The things being timed: matrix products, streams, memory. A row is `function(device, **arguments) -> dict`.

gemm, peak, gemm_check, streams and capacity hold the measuring functions; the other modules prepare, check
and rank for them.
"""
