"""extensions={"forbear": …} for one request, override() for a context, and which of them wins."""

import asyncio

import anyio
import pytest

import forbear
from forbear import Fixed, IdempotencyKeys, Reason, RetryPolicy, record_of

pytestmark = [pytest.mark.anyio, pytest.mark.adapters("httpx-family")]

URL = "http://api.example.com/thing"
NOW = RetryPolicy(backoff=Fixed(0))


async def attempts(adapter, client, setting=None, **request):
    extensions = {} if setting is None else {"forbear": setting}
    response = await adapter.call(client, "GET", URL, extensions=extensions, **request)
    return len(record_of(response).attempts)


@pytest.mark.parametrize(
    ("setting", "sends"),
    [
        ({"max_attempts": 2}, 2),
        ({"statuses": {500}}, 1),
        ({}, 4),
        (None, 4),
        (RetryPolicy(max_attempts=3, backoff=Fixed(0)), 3),
        (False, 1),
    ],
    ids=["mapping", "other-statuses", "empty-mapping", "none", "policy", "off"],
)
async def test_a_request_brings_its_own_rules(adapter, quick, setting, sends):
    """A policy, a mapping of its fields, False for off, None for "not given"."""
    async with adapter.client([503], policy=NOW, **quick) as client:
        assert await attempts(adapter, client, setting) == sends
        assert await attempts(adapter, client) == 4  # and only its own


@pytest.mark.adapters("sync")
@pytest.mark.parametrize(
    ("setting", "error", "says"),
    [
        (5, TypeError, "RetryPolicy"),
        ("off", TypeError, "RetryPolicy"),
        (True, TypeError, "False for off"),
        ([("max_attempts", 2)], TypeError, "mapping"),
        ({"retries": 3}, TypeError, "max_attempts = retries [+] 1"),
        ({"max_atempts": 3}, TypeError, "max_atempts"),
        ({"max_attempts": 0}, ValueError, "at least 1"),
    ],
    ids=["number", "text", "true", "list", "retries", "typo", "range"],
)
async def test_a_setting_that_makes_no_sense_is_refused_before_anything_is_sent(
    adapter, quick, setting, error, says
):
    """The message says what would be right."""
    inner = adapter.watched([200])
    async with adapter.client(inner, **quick) as client:
        with pytest.raises(error, match=says):
            await adapter.call(client, "GET", URL, extensions={"forbear": setting})
    assert inner.requests == []


async def test_a_policy_of_the_request_replaces_all_of_the_transports(adapter, quick):
    """Not a merge: fields that are not named have their defaults."""
    async with adapter.client([503], policy=NOW.replace(max_attempts=2), **quick) as client:
        await attempts(adapter, client, RetryPolicy())
    assert len(quick["clock"].sleeps) == 3  # default attempts, and default waits


@pytest.mark.smoke
async def test_order_of_precedence(adapter, quick):
    """The transport's policy < override < the request's value, field by field."""
    policy = NOW.replace(max_attempts=2)
    async with adapter.client([503], policy=policy, budget=None, **quick) as client:
        assert await attempts(adapter, client) == 2
        with forbear.override(max_attempts=3):
            assert await attempts(adapter, client) == 3
            assert await attempts(adapter, client, {"max_attempts": 5}) == 5
            assert await attempts(adapter, client, {"hint_spread": 0.0}) == 3
            with forbear.override(statuses=set()):
                assert await attempts(adapter, client) == 1
            with forbear.override(max_attempts=6):
                assert await attempts(adapter, client) == 6
            assert await attempts(adapter, client, False) == 1
            assert await attempts(adapter, client) == 3
        assert await attempts(adapter, client) == 2


async def test_override_as_a_decorator(adapter, quick):
    """Each call of the function has a block of its own."""
    async with adapter.client([503], policy=NOW, **quick) as client:

        @forbear.override(max_attempts=2)
        async def ask():
            return await attempts(adapter, client)

        assert [await ask(), await ask()] == [2, 2]
        assert await attempts(adapter, client) == 4


async def test_override_is_of_its_context_only(adapter, quick):
    """Calls in other tasks or threads are not concerned."""
    found = {}

    async with adapter.client([503], policy=NOW, budget=None, **quick) as client:

        async def ask(n):
            if n % 2:
                with forbear.override(max_attempts=2):
                    found[n] = await attempts(adapter, client)
            else:
                found[n] = await attempts(adapter, client)

        await adapter.together(8, ask)
    assert found == {n: 2 if n % 2 else 4 for n in range(8)}


@pytest.mark.adapters("sync")
async def test_override_follows_to_thread(adapter, quick):
    """asyncio.to_thread and anyio's threads run in a copy of the context."""
    with adapter.library.Client(transport=adapter.transport([503], policy=NOW, **quick)) as client:
        with forbear.override(max_attempts=2):
            for run in (asyncio.to_thread, anyio.to_thread.run_sync):
                response = await run(client.get, URL)
                assert len(record_of(response).attempts) == 2


@pytest.mark.smoke
async def test_off_forwards_the_request_as_it_is(adapter, quick):
    """The very Request object goes down: no key, no From, no guard; no story on what comes back."""
    inner = adapter.watched([503, "connect_error"])
    options = {"idempotency": IdempotencyKeys(), "contact": "ops@example.com"}
    transport = adapter.transport(inner, **options, **quick)
    request = adapter.library.Request("POST", URL, content=b"x", extensions={"forbear": False})
    response = await adapter.send(transport, request)
    assert inner.requests[0] is request
    assert response.extensions.get("forbear") is None
    with pytest.raises(adapter.connect_error) as caught:
        await adapter.send(transport, request)
    assert getattr(caught.value, "__notes__", []) == []


async def test_off_is_still_clamped_by_the_deadline(adapter, server, quickest):
    """False turns retries off, not the deadline of the block around it."""
    server.script("/thing", "hang")
    async with adapter.client() as client:

        async def run():
            with forbear.deadline(0.1), pytest.raises(adapter.DeadlineExceeded):
                await adapter.call(
                    client, "GET", server.url + "/thing", extensions={"forbear": False}
                )

        assert await quickest(run, bound=0.15) <= 0.15


@pytest.mark.parametrize("setting", [False, {"max_attempts": 2}, RetryPolicy(backoff=Fixed(0))])
async def test_the_callers_extensions_are_not_written_to(adapter, quick, setting):
    """The dict that was given for the request is the same afterwards."""
    extensions = {"forbear": setting, "mine": [1]}
    async with adapter.client([503, (307, {"Location": "/b"})], policy=NOW, **quick) as client:
        await adapter.call(client, "GET", URL, extensions=extensions)
    assert extensions == {"forbear": setting, "mine": [1]}


async def test_a_longer_schedule_for_one_request(adapter, quick):
    """A request's own backoff and attempts are used, under the same shared budget."""
    budget = forbear.RetryBudget(ratio=0, floor_per_second=0, burst=5)
    patient = {"max_attempts": 10, "backoff": Fixed(7)}
    async with adapter.client([503], policy=NOW, budget=budget, **quick) as client:
        response = await adapter.call(client, "GET", URL, extensions={"forbear": patient})
    assert quick["clock"].sleeps == [7] * 5
    assert record_of(response).reason is Reason.BUDGET_EXHAUSTED
