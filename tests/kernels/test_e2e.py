"""The process that holds the stack: what happens when it answers, hangs, dies or refuses."""

import os
import time

import pytest

from escherlib.errors import Refused, UserError
from escherlib.kernels import e2e
from tests.kernels.stand_in import cpu


@pytest.fixture
def opened(monkeypatch):
    monkeypatch.setattr(e2e, "CHILD", "tests.kernels.fake_child")
    yield {"path": "default"}
    e2e.close()


def test_one_child_serves_all_requests_for_the_same_stack(opened):
    first = e2e.child_for(opened).ask({"compile": "a"}, 20)
    second = e2e.child_for(dict(opened)).ask({"compile": "b"}, 20)
    assert first["pid"] == second["pid"] and second["mode"] == "b"
    other = e2e.child_for({"path": "optimized"}).ask({"compile": "a"}, 20)
    assert other["pid"] != first["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(first["pid"], 0)


def test_a_stuck_compile_is_ended_alone_and_the_next_mode_is_tried(opened):
    begun = time.monotonic()
    tried = e2e.try_modes(opened, ["hang", "quick"], budget_s=1.5)
    assert time.monotonic() - begun < 30
    assert tried[0]["chunk_s"] is None and "not compiled within 1.5 s" in tried[0]["reason"]
    assert tried[1]["chunk_s"] == 1.0
    assert e2e.fastest(tried, "default", cpu()) == "quick"


@pytest.mark.parametrize(
    ("what", "words"), [("die", "ended with code 7: last words"), ("killed", "killed by signal 9"), ("half", "ended with code 0")]
)
def test_a_dead_child_tells_how_it_ended_and_a_new_one_follows(opened, what, words):
    with pytest.raises(RuntimeError, match=words):
        e2e.child_for(opened).ask({"compile": what}, 20)
    assert e2e.child_for(opened).ask({"compile": "a"}, 20)["mode"] == "a"


def test_answers_become_the_exceptions_of_their_kind(opened):
    with pytest.raises(Refused, match="out of memory"):
        e2e.child_for(opened).ask({"compile": "refused"}, 20)
    with pytest.raises(RuntimeError, match="ValueError: odd"):
        e2e.child_for(opened).ask({"compile": "broken"}, 20)


def test_no_mode_that_compiles_is_refused_with_every_reason(opened):
    tried = e2e.try_modes(opened, ["broken", "refused"], 20)
    with pytest.raises(Refused, match="broken: ValueError: odd; refused: out of memory"):
        e2e.fastest(tried, "default", cpu())
    with pytest.raises(Refused, match="needs a GPU"):
        e2e.fastest([], "optimized", cpu())


def test_the_child_ends_with_its_parent(opened):
    child = e2e.child_for(opened)
    child.process.stdin.close()
    assert child.process.wait(20) == 0


def test_an_unknown_scope_is_the_users_mistake():
    shape = {"m": 8, "n": 8, "k": 8, "backend": "auto"}
    with pytest.raises(UserError, match="scope 'fast'"):
        e2e.time_scope(cpu(), geometry={}, path="default", scope="fast", bracket_gemm=shape)
