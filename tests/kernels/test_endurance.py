"""Family 7's measuring functions on a tiny workload of the CPU: real, but short."""

import pytest

from escherlib.errors import Refused, UserError
from escherlib.hardware.device import open_device
from escherlib.kernels import endurance, ffn
from escherlib.kernels.lazy import torch
from escherlib.timing import hold, journal
from tests.kernels.tiny import tiny


@pytest.fixture(scope="module")
def cpu():
    return open_device("cpu")


BRIEF = {"settle_min_s": 0.05, "settle_cap_s": 0.1, "batch_s": 1e-3}


def held(device, **changes):
    how = {"work": "ffn", "geometry": tiny().geometry(), "seconds": 0.2, "window_s": 0.02, "idle_s": 0.01, "protocol": BRIEF}
    return endurance.hold_work(device, **how | changes)


def test_a_hold_of_the_ffn(cpu):
    lines = []
    with journal.heard_by(lines.append):
        found = held(cpu)
    w = tiny()
    assert found["flop"] == 2 * w.query_tokens * w.d_model * w.ffn * 2
    assert found["states"]["sustained"]["tflops"] > 0 and found["ended"] == hold.ENOUGH
    assert found["correct"]["ok"] and found["correct"]["error"] <= 1
    assert "about" in lines[0] and "work" in lines[1] and all("window_ns" in line for line in lines[2:])
    assert hold.assemble(lines)["states"]["sustained"]["samples_ns"] == found["states"]["sustained"]["samples_ns"]


def test_an_interrupt_keeps_what_there_is(cpu):
    seen = []

    def listen(line):
        seen.append(line)
        if sum("window_ns" in entry and not entry["warming"] for entry in seen) == 2:
            raise KeyboardInterrupt

    with journal.heard_by(listen):
        found = held(cpu, seconds=60.0)
    assert found["ended"] == hold.ENDED_BY_USER and len([t for t in found["timeline"] if not t["warming"]]) == 2


def test_a_wrong_ffn_is_refused(cpu):
    work = ffn.prepare(cpu, tiny())
    assert work.check("before")["error"] <= 1
    wrong = ffn.Ffn(**{**work.__dict__, "unit": work.unit / 1e4})
    with pytest.raises(Refused, match="wrong result before timing"):
        wrong.check("before")
    hidden = torch.nn.functional.gelu(work.x.double() @ work.w1.double() + work.b1.double(), approximate="tanh")
    wanted = hidden @ work.w2.double() + work.b2.double()
    assert torch.allclose(work.call().double(), wanted, rtol=0.05, atol=0.05)


def test_unknown_work_is_one_line(cpu):
    with pytest.raises(UserError, match="work 'nosuch': unknown; expected one of stack, ffn"):
        held(cpu, work="nosuch")


def test_recovery_points_hold_what_was_asked(cpu):
    found = endurance.recovery(cpu, m=64, n=64, k=64, idles_s=[0.01, 0.02], work_s=0.05, probe_s=0.03)
    assert [p["idle_s"] for p in found["points"]] == [0.01, 0.02]
    for point in found["points"]:
        assert point["before_tflops"] > 0 and point["first_tflops"] > 0 and point["state"] == "recovery"
        assert point["windows_ns"][0][0] < point["windows_ns"][0][1]
