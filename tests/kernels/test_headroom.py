"""Headroom on a CPU host is arithmetic: weights, rings and text of a workload against what is free."""

import pytest

from escherlib.accounting import memory
from escherlib.kernels import operands
from escherlib.kernels.headroom import headroom
from tests.kernels.stand_in import cpu
from tests.kernels.tiny import tiny


def test_what_is_held_and_what_is_left(monkeypatch):
    w = tiny()
    held = memory.weight_bytes(w) + memory.kv_bytes(w, "optimized") + memory.text_kv_bytes(w)
    monkeypatch.setattr(operands, "free_bytes", lambda device: 2 * held)
    found = headroom(cpu(), geometry=w.geometry())
    assert found["bytes"] == held == sum(found["resident"].values()) and found["fits"] and found["rest_bytes"] == held
    assert found["live_set_bytes"] == memory.live_set_bytes(w, "optimized") and found["measured"] is None


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_what_does_not_fit_is_not_tried(monkeypatch, kind):
    monkeypatch.setattr(operands, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(operands, "release", lambda device: None)
    found = headroom(cpu(kind=kind), geometry=tiny().geometry())
    assert not found["fits"] and found["rest_bytes"] is None
    assert ("not tried" in found["how"]) == (kind == "gpu")
