"""Calls interrupted at every line of forbear's: what is shared is usable, and the next call works.

An interruption may come while a call gives back what it had: a permit then expires, a place in the
queue goes with its patience, and time brings the tokens. So each check is made 700 s later.
"""

import pytest

from forbear import CircuitBreaker, Fixed, RetryBudget, RetryGate, RetryPolicy

from ..interruption import interrupted_at_every_line

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.adapters("sync")]

URL = "http://api.example.com/thing"
ORIGIN = "http://api.example.com:80"
SCRIPTS = {
    "success": [200],
    "one retry": [503, 200],
    "exhausted": [503, 503, 503],
    "held and released": [503, 503, 503, 200],
    "half-open": [503, 503, 503, 503, 200],
}


@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_call_can_be_interrupted_at_every_line(adapter, quick, script):
    clock, box = quick["clock"], []
    gate, budget = RetryGate(), RetryBudget(ratio=0, floor_per_second=1, burst=50)
    breaker = CircuitBreaker(4, failure_rate=None, open_for=0.5)
    most = 3 if script == "exhausted" else 6
    options = {
        "policy": RetryPolicy(max_attempts=most, backoff=Fixed(0.1)),
        "gate": gate, "budget": budget, "breaker": breaker, "cooldown": "all", **quick,
    }  # fmt: skip

    async def begun():
        box[:] = [adapter.watched([*SCRIPTS[script], 200])]
        manager = adapter.client(box[0], **options)
        box.append(await manager.__aenter__())

    def operation():
        coroutine = adapter.call(box[1], "GET", URL)
        with pytest.raises(StopIteration):  # nothing in it suspends
            coroutine.send(None)

    def after(where):
        clock.advance(700)  # by then patience is over, and permits have expired
        operation()
        clock.advance(700)
        coroutine = begun()
        with pytest.raises(StopIteration):
            coroutine.send(None)
        operation()
        clock.advance(700)
        assert gate.held() == 0, where
        assert budget.tokens(ORIGIN, clock.monotonic()) == 50, where
        assert breaker.refused_for(ORIGIN, clock.monotonic()) == 0, where
        for shared in (gate, budget, breaker):
            assert not shared._lock.locked(), where
        coroutine = begun()
        with pytest.raises(StopIteration):
            coroutine.send(None)

    await begun()
    assert interrupted_at_every_line(operation, "/src/forbear/", after) > 50
