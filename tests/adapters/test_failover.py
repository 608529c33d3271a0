"""Origins: retries go to the next server that may be asked; what is not listed is never sent to."""

import io

import pytest

import forbear
from forbear import Fixed, IdempotencyKeys, Origins, Reason, RetryPolicy, record_of
from forbear.testing import FaultServer, record

from ..clocks import Meanwhile

STEADY = RetryPolicy(max_attempts=4, backoff=Fixed(2))


@pytest.fixture
def other():
    with FaultServer() as running:
        yield running


third = other  # and one more


@pytest.mark.smoke
async def test_a_refused_connection_fails_over_at_once(adapter, server, quick, budget):
    with FaultServer() as stopped:
        gone = stopped.url
    server.script("/thing", 201)
    origins = Origins([gone, server.url])
    async with adapter.client(origins=origins, budget=budget, policy=STEADY, **quick) as client:
        response = await adapter.call(client, "POST", gone + "/thing?a=b", content=b"one order")
        assert response.status_code == 201
    assert quick["clock"].sleeps == []
    (arrived,) = server.requests("/thing")
    assert (arrived.query, arrived.body_bytes) == ("a=b", 9)
    assert dict(arrived.headers)["Host"] == server.url.removeprefix("http://")
    story = record_of(response)
    assert [attempt.origin for attempt in story.attempts] == [gone, server.url]
    assert story.attempts[0].delay_source == "failover"
    assert budget.tokens(gone, quick["clock"].monotonic()) == 20


@pytest.mark.smoke
async def test_a_post_that_may_have_been_executed_stays_where_it_is(adapter, server, other, quick):
    server.script("/thing", "reset")
    other.script("/thing", 200)
    options = {"origins": Origins([server.url, other.url]), "policy": STEADY, **quick}
    with pytest.raises(adapter.transport_error) as caught:
        await adapter.once(None, "POST", server.url + "/thing", **options)
    assert record_of(caught.value).reason is Reason.METHOD_NOT_REPLAYABLE
    assert (server.executed(), other.executed()) == (1, 0)


@pytest.mark.smoke
@pytest.mark.parametrize("is_left", [True, False], ids=["another is free", "none is"])
async def test_a_circuit_that_opens_during_the_wait(adapter, server, other, is_left):
    server.script("/thing", 503, 200)
    breaker = forbear.CircuitBreaker(3, open_for=100)

    def fail(clock):
        now = clock.monotonic()
        for origin in [other.url] if is_left else [server.url, other.url]:
            for _ in range(3):
                breaker.record(origin, failed=True, sent_at=now, now=now)

    origins, told = Origins([server.url, other.url]), record()
    options = {"clock": Meanwhile(fail), "breaker": breaker, "origins": origins, "on_event": [told]}
    async with adapter.client(policy=STEADY, **options) as client:
        if is_left:
            assert (await adapter.call(client, "GET", server.url + "/thing")).status_code == 200
            hops = [(hop.origin, hop.to_origin, hop.status) for hop in told.named("failover")]
            assert hops == [(server.url, other.url, 503), (other.url, server.url, None)]
        else:
            error = await adapter.outcome(client, "GET", server.url + "/thing")
            assert isinstance(error, adapter.CircuitOpenError)
            assert record_of(error).reason is Reason.CIRCUIT_OPEN
    assert other.requests() == []
    assert len(server.requests()) == (2 if is_left else 1)


@pytest.mark.smoke
async def test_what_is_not_listed_is_never_sent_to_and_never_fails_over(
    adapter, server, other, third, quick
):
    for each in (server, other):
        each.script("/thing", 503)
    third.script("/thing", 503, 200)
    options = {"origins": Origins([server.url, other.url]), "idempotency": IdempotencyKeys()}
    named = {"headers": {"Authorization": "Bearer token"}}
    async with adapter.client(policy=STEADY, **options, **quick) as client:
        response = await adapter.call(client, "POST", server.url + "/thing", **named)
        assert (response.status_code, third.requests()) == (503, [])
        response = await adapter.call(client, "POST", third.url + "/thing", **named)
        assert response.status_code == 200
    arrived = server.requests() + other.requests()
    assert len(arrived) == 4
    (key,) = {request.key for request in arrived}  # one for all attempts of a call
    assert (len(third.requests()), third.requests()[0].key == key) == (2, False)


@pytest.mark.smoke
async def test_a_body_is_whole_at_each_server(adapter, server, other, quick):
    server.script("/thing", 503)
    other.script("/thing", 200)
    upload = b"0123456789" * 1000
    options = {"origins": Origins([server.url, other.url]), "policy": STEADY, **quick}
    async with adapter.client(**options) as client:
        for content in [upload] if adapter.is_async else [upload, io.BytesIO(upload)]:
            response = await adapter.call(client, "PUT", server.url + "/thing", content=content)
            assert response.status_code == 200
    assert {request.body_bytes for request in server.requests() + other.requests()} == {len(upload)}
