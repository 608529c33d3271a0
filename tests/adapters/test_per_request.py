"""extensions={"forbear": …} for one request, override() for a context, and which of them wins."""

import pytest

import forbear
from forbear import Fixed, IdempotencyKeys, RetryPolicy, record_of

pytestmark = [pytest.mark.anyio, pytest.mark.adapters("httpx-family")]

URL = "http://api.example.com/thing"
NOW = RetryPolicy(backoff=Fixed(0))


async def attempts(adapter, client, setting=None, **request):
    extensions = {} if setting is None else {"forbear": setting}
    response = await adapter.call(client, "GET", URL, extensions=extensions, **request)
    record = record_of(response)
    return None if record is None else len(record.attempts)


@pytest.mark.smoke
async def test_order_of_precedence(adapter, quick):
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
            assert await attempts(adapter, client, False) is None  # off: no story is kept
            assert await attempts(adapter, client) == 3
        assert await attempts(adapter, client) == 2


@pytest.mark.smoke
async def test_off_forwards_the_request_as_it_is(adapter, quick):
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
