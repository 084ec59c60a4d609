"""Search, confirmation and transient: on a made-up device, and once each for real on tiny shapes."""

import json
import math
from types import SimpleNamespace

import pytest

from escherlib.errors import Refused, UserError
from escherlib.kernels import peak, products, ranking, timed
from tests.kernels.stand_in import QUICK, cpu

SHAPES = [[64, 64, 64], [64, 96, 64]]


@pytest.fixture(autouse=True)
def unsettled():
    timed.forget()
    yield
    timed.forget()


class CappedGpu:
    """Burst peaks at 12288³, sustained on long shapes; the second library is 1 % faster."""

    names = ("cublas:nn", "cublaslt:nn")
    device = SimpleNamespace(kind="gpu")

    def __init__(self):
        self.time_s = 0.0

    def rate(self, state, candidate):
        m, n, k, backend = candidate
        self.time_s += 0.36 if state == "sustained" else 0.72
        if state == "burst" and 2 * m * n * k / 800e12 > 0.02:
            raise Refused("no burst value: a call takes longer than 20 ms")
        size = (m * n * k) ** (1 / 3)
        top = 801 if state == "burst" else 660
        rate = top * (1 - 0.03 * abs(math.log2(size / 12288))) if state == "burst" else top
        bonus = 1.02 if state == "sustained" and k >= 2 * max(m, n) else 1.0
        return rate * bonus * (1.01 if backend == "cublaslt:nn" else 1.0)

    def admits(self, state, trail):
        return lambda shape: True


def ranked(budget_s, workload=((4680, 5120, 13824), (4680, 13824, 5120))):
    gpu = CappedGpu()
    trails = ranking.rank(
        gpu, ("sustained", "burst"), ranking.GPU_SHAPES, workload, budget_s, now_s=lambda: gpu.time_s
    )
    return gpu, trails, ranking.finalists(trails, workload)


@pytest.mark.parametrize("budget_s", [25, 60])
def test_both_peaks_are_found_within_the_budget(budget_s):
    gpu, _, chosen = ranked(budget_s)
    assert gpu.time_s <= budget_s
    assert chosen["burst"][0] == {"m": 12288, "n": 12288, "k": 12288, "backend": "cublaslt:nn"}
    best = chosen["sustained"][0]
    assert best["k"] >= 2 * max(best["m"], best["n"]) and best["backend"] == "cublaslt:nn"
    assert len(chosen["burst"]) == 3


def test_the_best_workload_gemm_is_always_confirmed():
    _, _, chosen = ranked(60, [(4680, 13824, 5120)])
    assert len(chosen["sustained"]) == 4
    assert chosen["sustained"][3] == {"m": 4680, "n": 13824, "k": 5120, "backend": "cublaslt:nn"}


def test_the_record_has_one_entry_a_candidate_in_both_states():
    _, trails, _ = ranked(60)
    entries = ranking.merged(trails, {})
    keys = [(e["m"], e["n"], e["k"], e["backend"]) for e in entries]
    assert len(keys) == len(set(keys))
    assert any("sustained_tflops" in e and "burst_tflops" in e for e in entries)
    assert entries[0]["sustained"]["order"] == 0 and entries[0]["sustained"]["phase"] == "must"


def test_search_and_confirm_on_this_cpu(monkeypatch):
    monkeypatch.setattr(ranking, "WINDOW_S", 0.01)
    found = peak.search(cpu(), budget_s=0.5, workload_gemms=SHAPES[:1], grid=SHAPES, protocol=QUICK)
    assert found["best_sustained"] and found["best_burst"] and found["took_s"] < 10
    assert all(e["sustained"]["samples_ns"] for e in found["candidates"] if e.get("sustained_tflops"))
    done = peak.confirm(
        cpu(), candidates=found["finalists"], rounds=2, window_s=0.01, tries=2, protocol=QUICK
    )
    for state in ("burst", "sustained"):
        assert done["states"][state]["tflops"] == max(
            e.get(f"{state}_tflops") or 0 for e in done["candidates"]
        )
        assert {"m", "n", "k", "backend"} == set(done[f"best_{state}"])
    assert len(done["states"]["sustained"]["windows_ns"]) == 2 and done["states"]["burst"]["n"] == 2
    low, high = done["candidates"][0]["sustained_range_tflops"]
    assert low <= done["candidates"][0]["sustained_tflops"] <= high
    assert done["settled"]["what"] == found["finalists"]["sustained"][0]
    json.dumps([found, done], allow_nan=False)


def test_an_unsettled_device_labels_the_sustained_peak(monkeypatch):
    summary = {"what": {}, "settled": False, "stop": "cap", "label": "thermal"}
    monkeypatch.setattr(timed, "settle_once", lambda *a: summary)
    one = [{"m": 64, "n": 64, "k": 64, "backend": "torch:nn"}]
    done = peak.confirm(cpu(), candidates=one, rounds=1, window_s=0.01, tries=1, protocol=QUICK)
    assert done["states"]["sustained"]["label"] == "thermal"


def test_a_candidate_that_cannot_be_had_keeps_its_reason_and_the_others_go_on():
    listed = [{"m": 64, "n": 64, "k": 64, "backend": name} for name in ("cublas:nn", "torch:nt")]
    done = peak.confirm(cpu(), candidates=listed, rounds=1, window_s=0.01, tries=1, protocol=QUICK)
    assert done["best_burst"]["backend"] == "torch:nt" and "cublas:nn" in done["candidates"][0]["refused"]
    with pytest.raises(Refused, match="cublas:nn"):
        peak.confirm(cpu(), candidates=listed[:1], rounds=1, window_s=0.01, tries=1, protocol=QUICK)


def test_a_wrong_candidate_never_wins(monkeypatch):
    kernel = products.kernel

    def sloppy(work, fmt, device):
        right = kernel(work, fmt, device)
        return (lambda t: t["c"].zero_()) if work.n == 96 else right

    monkeypatch.setattr(products, "kernel", sloppy)
    monkeypatch.setattr(ranking, "WINDOW_S", 0.01)
    found = peak.brute_force(cpu(), shapes=SHAPES, state="sustained", protocol=QUICK)
    assert found["best_sustained"]["n"] == 64
    reasons = [e["sustained"]["refused"] for e in found["candidates"] if e["n"] == 96]
    assert len(reasons) == 2 and all("wrong result before timing" in reason for reason in reasons)


def test_transient_gives_windows_from_the_first_call_on():
    found = peak.transient(
        cpu(), m=64, n=64, k=64, backend="torch:nn", idle_s=0.01, total_s=0.1, window_s=0.02, protocol=QUICK
    )
    assert found["windows"][0]["at_s"] == 0 and found["windows"][0]["t_s"] == 0.01
    assert all(w["tflops"] > 0 for w in found["windows"]) and found["correct"]["ok"]
    start, end = found["trace_ns"]
    assert end - start >= 0.1e9


def test_brute_force_tries_every_shape_with_every_backend():
    found = peak.brute_force(cpu(), shapes=SHAPES, protocol=QUICK)
    assert len(found["candidates"]) == 4
    assert found["best_burst"]["tflops"] == max(e["burst_tflops"] for e in found["candidates"])


@pytest.mark.parametrize("bad", [[64, 64], {"m": 64, "n": 64}, 64])
def test_shapes_that_are_none(bad):
    with pytest.raises(UserError, match="expected m, n, k"):
        peak.search(cpu(), budget_s=1, grid=[bad])
