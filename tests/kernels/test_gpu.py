"""The same functions on a real GPU, short; and, when asked for with `-m slow`, search against brute force."""

import itertools

import pytest
import torch

from escherlib.errors import Refused
from escherlib.kernels import capacity, gemm, gemm_check, numerics, peak, special_values, streams, summation, timed
from tests.kernels.stand_in import QUICK

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
SHAPE = {"m": 1024, "n": 2048, "k": 1024}
WORKLOAD = [[4680, 15360, 5120], [4680, 5120, 5120], [4680, 13824, 5120], [4680, 5120, 13824]]


@pytest.fixture(scope="module")
def gpu():
    from escherlib.hardware.device import open_device

    return open_device("auto")


@pytest.fixture(autouse=True)
def settled_anew():
    timed.forget()


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16", "fp8"])
def test_every_format_is_right_or_refused_with_a_reason(gpu, dtype):
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.cuda.preferred_blas_library()
    try:
        found = gemm.time_dtype(gpu, dtype=dtype, **SHAPE, protocol=QUICK)
        assert found["correct"]["ok"] and found["states"]["burst"]["tflops"] > 1
    except Refused as error:
        assert str(error).startswith(dtype)
    assert before == (torch.backends.cuda.matmul.fp32_precision, torch.backends.cuda.preferred_blas_library())


@pytest.mark.parametrize("backend", ["cublas:nn", "cublas:nt", "cublaslt:nn", "cublaslt:nt"])
def test_every_backend_runs(gpu, backend):
    backend = backend.replace("cu", "hip") if gpu.stack == "rocm" else backend
    found = gemm.time_gemm(gpu, **SHAPE, backend=backend, states=["cold", "hot"], protocol=QUICK)
    assert found["backend"] == backend and found["correct"]["ok"]


@pytest.mark.parametrize(
    "more",
    [
        {"op": "addmm", "bias": True},
        {"op": "addmm", "bias": True, "activation": "gelu"},
        {"op": "addmm", "bias": True, "activation": "gelu", "fused": False},
        {"op": "bmm", "batch": 4},
    ],
)
def test_every_form_runs(gpu, more):
    assert gemm.time_gemm(gpu, **SHAPE, **more, states=["burst", "hot"], protocol=QUICK)["correct"]["ok"]


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16", "fp8"])
@pytest.mark.parametrize("k", [256, 4096, 16384])
def test_errors_stay_in_their_bounds(gpu, dtype, k):
    try:
        found = gemm_check.check(gpu, dtype=dtype, k=k)
    except Refused:
        pytest.skip("format not here")
    assert found["ok"], found["correct"]


@pytest.mark.parametrize("op", streams.OPS)
def test_every_stream_runs_beyond_the_cache(gpu, op):
    found = streams.time_stream(gpu, op=op, bytes_per_buffer=2**28, protocol=QUICK)
    assert found["states"]["cold"]["gb_s"] > 10 and found["correct"]["ok"]


def test_tiny_copies_and_transient(gpu):
    assert streams.time_copy_in_cache(gpu, bytes=2**15, protocol=QUICK)["states"]["hot"]["gb_s"] > 0
    found = peak.transient(gpu, m=4096, n=4096, k=4096, idle_s=0.1, total_s=0.2)
    assert len(found["windows"]) >= 5


def test_capacity_comes_within_a_percent_of_what_the_driver_calls_free(gpu):
    found = capacity.largest(gpu)
    assert found["share_of_free_pct"] > 99
    assert torch.cuda.mem_get_info()[0] > 0.95 * found["free_bytes"]  # all of it is back


def test_memory_is_given_back(gpu):
    gemm.time_gemm(gpu, **SHAPE, states=["hot"], protocol=QUICK)
    assert torch.cuda.memory_allocated() < 2**28


@pytest.mark.slow
def test_the_search_finds_what_a_brute_force_finds(gpu):
    sizes = (4096, 8192, 12288, 16384)
    found = peak.search(gpu, budget_s=60, workload_gemms=WORKLOAD)
    done = peak.confirm(gpu, candidates=found["finalists"])
    shapes = [s for s in itertools.product(sizes, sizes, sizes) if s[0] <= s[1]]
    whole = peak.brute_force(gpu, shapes=shapes, backends_used=[done["best_burst"]["backend"]])
    print(found["took_s"], done["best_burst"], done["states"]["burst"]["tflops"], whole["best_burst"])
    print(done["best_sustained"], done["states"]["sustained"]["tflops"], whole["took_s"])
    assert found["took_s"] <= 62
    assert done["states"]["burst"]["tflops"] >= 0.99 * whole["best_burst"]["tflops"]


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16", "fp8", "fp8_e5m2"])
def test_numerics_hold_or_are_refused_with_a_reason(gpu, dtype):
    try:
        found = numerics.error_distribution(gpu, dtype=dtype, k=1024, repeats=2)
        special = special_values.special_values(gpu, dtype=dtype)
        sums = summation.accumulation(gpu, dtype=dtype, k=1024)
    except Refused as error:
        assert str(error).startswith(dtype.partition("_")[0])
        return
    assert found["ok"] and all(entry["caught"] for entry in found["wrong_kernels"].values()), found["wrong_kernels"]
    assert special["ok"], special["cases"]
    assert sums["variants"][0]["within"] and len(sums["switches_tried"]) <= 2
