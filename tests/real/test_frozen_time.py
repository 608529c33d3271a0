"""Tests that freeze time: what forbear waits for is over all the same, or is not waited for.

time-machine stops neither ``time.monotonic`` nor sleeps. freezegun stops the monotonic clock as
well, and with it the timers of asyncio (unless ``real_asyncio=True``) and of trio: everybody's
asynchronous sleeps, until it thaws. What waits for nothing is not concerned.
"""

import time

import anyio
import httpx
import pytest

import forbear.httpx
import forbear.requests
from forbear import Fixed, RetryPolicy, record_of
from forbear.testing import ScriptedTransport, fast

pytestmark = pytest.mark.real
URL = "http://api.example/"
BRIEF = RetryPolicy(max_attempts=3, backoff=Fixed(0.02), total_timeout=30.0)
PATIENT = RetryPolicy(max_attempts=3, backoff=Fixed(100.0), total_timeout=250.0)
NEW_YEAR = "2026-01-01T00:00:00+00:00"


def freezegun(need_package, **options):
    return need_package("freezegun").freeze_time(NEW_YEAR, **options)


def time_machine(need_package, **options):
    return need_package("time_machine").travel(NEW_YEAR, tick=False)


FREEZERS = [pytest.param(freezegun, id="freezegun"), pytest.param(time_machine, id="time-machine")]


def get(policy, *steps):
    transport = forbear.httpx.RetryTransport(ScriptedTransport(steps), policy=policy, gate=None)
    with httpx.Client(transport=transport) as client:
        return client.get(URL)


async def asynchronously(policy, frozen, *steps):
    transport = forbear.httpx.AsyncRetryTransport(
        ScriptedTransport(steps), policy=policy, gate=None
    )
    async with httpx.AsyncClient(transport=transport) as client:
        with frozen:
            return await client.get(URL)


@pytest.mark.parametrize("freezer", FREEZERS)
def test_sync_waits_end_while_time_is_frozen(need_package, freezer):
    """Two real waits of 0.02 s, and a limit that is counted on."""
    with freezer(need_package):
        response = get(BRIEF, 503)
    found = record_of(response)
    assert len(found.attempts) == 3
    assert found.elapsed >= 0.04


@pytest.mark.parametrize("freezer", FREEZERS)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_fast_does_not_stand_still_with_the_loop(need_package, freezer, backend):
    """100 s skipped twice, on loops whose timers never fire."""
    with fast():
        found = record_of(
            anyio.run(asynchronously, PATIENT, freezer(need_package), 503, backend=backend)
        )
    assert (len(found.attempts), found.reason) == (3, "attempts-exhausted")
    assert 200 <= found.elapsed < 260


@pytest.mark.parametrize("freezer", FREEZERS)
def test_a_date_in_an_answer_is_compared_with_the_frozen_time(need_package, freezer):
    """Retry-After says seven seconds after the frozen instant."""
    policy = PATIENT.replace(backoff=Fixed(0.0), hint_spread=0.0)
    with freezer(need_package), fast():
        assert time.time() == 1_767_225_600
        response = get(policy, (503, {"Retry-After": "Thu, 01 Jan 2026 00:00:07 GMT"}), 200)
    assert [attempt.delay for attempt in record_of(response).attempts] == [7.0, None]
