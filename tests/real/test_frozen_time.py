"""Tests that freeze time: what forbear waits for is over all the same, or is not waited for.

time-machine stops neither ``time.monotonic`` nor sleeps. freezegun stops both, so the timers of
asyncio (unless ``real_asyncio=True``) and of trio: everybody's asynchronous sleeps.
"""

import time

import anyio
import httpx
import pytest

import forbear.httpx
from forbear import Fixed, RetryPolicy, record_of
from forbear.testing import ScriptedTransport, fast

from .conftest import package

pytestmark = pytest.mark.real
URL = "http://api.example/"
BRIEF = RetryPolicy(max_attempts=3, backoff=Fixed(0.02), total_timeout=30.0)
PATIENT = RetryPolicy(max_attempts=3, backoff=Fixed(100.0), total_timeout=250.0)
NEW_YEAR = "2026-01-01T00:00:00+00:00"


@pytest.fixture(params=["freezegun", "time_machine"])
def frozen(request):
    """A context in which it is New Year."""
    if request.param == "freezegun":
        return package("freezegun").freeze_time(NEW_YEAR)
    return package("time_machine").travel(NEW_YEAR, tick=False)


def get(policy, *steps):
    transport = forbear.httpx.RetryTransport(ScriptedTransport(steps), policy=policy, gate=None)
    with httpx.Client(transport=transport) as client:
        return record_of(client.get(URL))


def test_sync_waits_end_while_time_is_frozen(frozen):
    """Two real waits of 0.02 s, and a limit that is counted on."""
    with frozen:
        found = get(BRIEF, 503)
    assert len(found.attempts) == 3
    assert found.elapsed >= 0.04


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_fast_does_not_stand_still_with_the_loop(frozen, backend):
    """100 s skipped twice, on loops whose timers never fire."""
    inner = ScriptedTransport([503])
    transport = forbear.httpx.AsyncRetryTransport(inner, policy=PATIENT, gate=None)

    async def asynchronously():
        async with httpx.AsyncClient(transport=transport) as client:
            with frozen:
                return record_of(await client.get(URL))

    with fast():
        found = anyio.run(asynchronously, backend=backend)
    assert (len(found.attempts), found.reason) == (3, "attempts-exhausted")
    assert 200 <= found.elapsed < 260


def test_a_date_in_an_answer_is_compared_with_the_frozen_time(frozen):
    """Retry-After says seven seconds after the frozen instant."""
    policy = PATIENT.replace(backoff=Fixed(0.0), hint_spread=0.0)
    with frozen, fast():
        assert time.time() == 1_767_225_600
        found = get(policy, (503, {"Retry-After": "Thu, 01 Jan 2026 00:00:07 GMT"}), 200)
    assert [attempt.delay for attempt in found.attempts] == [7.0, None]
