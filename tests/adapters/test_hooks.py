"""The user's own functions: retry_if, before_attempt, on_event; contact; strategies; stacks."""

import anyio.lowlevel
import pytest

from forbear import CircuitBreaker, Fixed, Reason, RetryPolicy, record_of
from forbear.strategies import RetryRefused
from forbear.testing import record

from ..lanes import ORIGIN, URL
from .test_strategies import raising, with_methods

NOW = RetryPolicy(backoff=Fixed(0))
TWICE = ["attempt_failed", "retry_scheduled"] * 2


@pytest.mark.smoke
async def test_functions_that_raise_are_logged_once_and_lose_nothing(adapter, quick, logged):
    heard, broken = [], raising(KeyError("secret-text"))
    options = {"retry_if": broken, "on_event": [broken, heard.append]}
    async with adapter.client([503, 503, 200], policy=NOW, **options, **quick) as client:
        for _ in range(2):
            assert (await adapter.call(client, "GET", URL)).status_code == 200
    goes_on = "raised KeyError; the call goes on without it (logged once)"
    assert sorted(line.partition(" ")[0] for line in logged()) == ["on_event", "retry_if"]
    assert all(line.endswith(goes_on) for line in logged())
    assert len(heard) == 5


@pytest.mark.smoke
async def test_before_attempt_runs_before_every_resend(adapter, quick):
    calls = []

    def sign(request, attempt):
        calls.append(attempt)
        request.headers["Authorization"] = f"sig-{attempt}"
        request.headers[f"X-Try-{attempt}"] = "1"

    inner = adapter.watched([503, "read_timeout", 503, 200])
    headers = {"Authorization": "sig-1"}
    async with adapter.client(inner, policy=NOW, before_attempt=sign, **quick) as client:
        response = await adapter.call(client, "GET", URL, headers=headers)
    assert calls == [2, 3, 4]
    signed = [adapter.header(sent, "Authorization") for sent in inner.requests]
    assert signed == [[f"sig-{n}"] for n in (1, 2, 3, 4)]
    names = adapter.header_names(inner.requests[3])
    assert [name for name in names if name.startswith("x-try")] == ["x-try-4"]
    assert headers == {"Authorization": "sig-1"}
    if "httpx-family" in adapter.words:  # requests' response shows what was sent last
        assert response.request.headers["Authorization"] == "sig-1"
        assert "x-try-2" not in response.request.headers


@pytest.mark.smoke("async")
async def test_before_attempt_may_be_a_coroutine_function(adapter, quick):
    async def sign(request, attempt):
        await anyio.lowlevel.checkpoint()
        if attempt == 3:
            raise Unsigned
        request.headers["Authorization"] = f"sig-{attempt}"

    inner = adapter.watched([503])
    with pytest.raises(Unsigned):
        await adapter.once(inner, policy=NOW, before_attempt=sign, **quick)
    assert [request.headers.get("Authorization") for request in inner.requests] == [None, "sig-2"]


class Unsigned(Exception):
    pass


@pytest.mark.smoke
@pytest.mark.parametrize("step", [(503, {}, b"sorry"), "read_timeout"], ids=["answer", "error"])
async def test_a_before_attempt_that_raises_ends_the_call(adapter, quick, budget, step):
    refused, events = Unsigned("no key"), record()
    inner = adapter.watched([step])
    options = {"before_attempt": raising(refused), "on_event": [events], "budget": budget}
    breaker = CircuitBreaker(9, failure_rate=None)
    async with adapter.client(inner, policy=NOW, breaker=breaker, **options, **quick) as client:
        with pytest.raises(Unsigned) as caught:
            await adapter.open(client, "GET", URL)
    assert caught.value is refused
    assert (len(inner.requests), inner.closings) == (1, [1] * isinstance(step, tuple))
    found = record_of(refused)
    assert (len(found.attempts), found.reason) == (1, Reason.HOOK_FAILED)
    assert refused.__notes__ == [f"forbear: {found}"]
    assert budget.tokens(ORIGIN, quick["clock"].monotonic()) == 20
    assert events.names == ["attempt_failed", "retry_scheduled", "gave_up"]
    assert (events[-1].reason, events[-1].attempts) == (Reason.HOOK_FAILED, 1)


@pytest.mark.smoke
async def test_a_401_is_retried_once_and_at_once(adapter, quick):
    """For a refresh of the token: a second 401 is the caller's. RFC 9110 section 15.5.2."""
    for steps, sent, status, sleeps in (
        *(([401, 200], 2, 200, []), ([401, 401, 200], 2, 401, [])),
        # A fast one, and the schedule's second wait, which only the fast one does not advance.
        ([503, 401, 502, 200], 4, 200, [0.025, 1.5]),
        ([401, 503, 401, 200], 3, 401, [0.025]),
        ([(401, {"Retry-After": "2"}), 200], 2, 200, [2.25]),  # a quarter of it is spread
    ):
        inner = adapter.watched(steps)
        policy = RetryPolicy(statuses=RetryPolicy().statuses | {401})
        response = await adapter.once(inner, policy=policy, **quick)
        assert (len(inner.requests), response.status_code) == (sent, status), steps
        assert quick["clock"].sleeps == pytest.approx(sleeps)
        quick["clock"].sleeps.clear()
        exhausted = None if status == 200 else Reason.ATTEMPTS_EXHAUSTED
        assert record_of(response).reason == exhausted


@pytest.mark.smoke
async def test_events_of_calls(adapter, quick):
    events = record()
    steps = [200, 404, 301, (503, {"Retry-After": "2"}), "connect_error", 200, 503]
    policy = RetryPolicy(backoff=Fixed(1), hint_spread=0, max_attempts=3)
    options = {"policy": policy, "on_event": [events], "name": "orders", **quick}
    async with adapter.client(steps, **options) as client:
        for _ in range(3):
            await adapter.call(client, "GET", URL)
        assert list(events) == []
        await adapter.call(client, "GET", URL)
        assert events.names == [*TWICE, "succeeded_after_retry"]
        told = {(event.client, event.origin, event.method) for event in events}
        assert told == {("orders", ORIGIN, "GET")}
        waits = [(one.delay, one.delay_source) for one in events.named("retry_scheduled")]
        assert waits == [(2.0, "retry-after"), (1.0, "backoff")]
        last = events[-1]
        assert (last.attempts, last.status, last.waited, last.elapsed) == (3, 200, 3.0, 3.0)
        await adapter.call(client, "GET", URL)
    assert events.names[5:] == [*TWICE, "attempt_failed", "gave_up"]
    last = events[-1]
    assert (last.reason, last.attempts, last.status) == (Reason.ATTEMPTS_EXHAUSTED, 3, 503)


@pytest.mark.smoke
async def test_contact_is_sent_as_from(adapter, quick):
    """RFC 9110 section 10.1.2: whom an operator can tell; a From of the caller's stays."""
    inner = adapter.watched([503, 200])
    async with adapter.client(inner, policy=NOW, contact="Ops@faß.DE", **quick) as client:
        await adapter.call(client, "GET", URL)
        await adapter.call(client, "GET", URL, headers={"From": "me@example.net"})
    sent = [adapter.header(request, "From") for request in inner.requests]
    assert sent == [["Ops@xn--fa-hia.de"], ["Ops@xn--fa-hia.de"], ["me@example.net"]]


class Later:
    async def __call__(self, *arguments):
        raise AssertionError("nobody awaits this")


@pytest.mark.smoke
async def test_a_coroutine_function_is_refused_where_nobody_would_await_it(adapter):
    for option, value in (("on_event", [Later()]), ("before_attempt", Later())):
        if option == "before_attempt" and adapter.is_async:
            continue
        with pytest.raises(TypeError, match=f"{option}.*coroutine function"):
            async with adapter.client([200], **{option: value}):
                pass
    if adapter.name == "urllib3":
        with pytest.raises(TypeError, match=r"on_event.*coroutine function"):
            adapter.forbear.Retry(on_event=[Later()])


@pytest.mark.smoke("stacks")
@pytest.mark.parametrize("steps", [[503], ["connect_error"]], ids=["answer", "error"])
async def test_stacked_transports_retry_once_not_squared(adapter, quick, steps):
    inner = adapter.watched(steps)
    below = adapter.transport(inner, policy=NOW.replace(max_attempts=3), **quick)
    policy = NOW.replace(max_attempts=5)
    async with adapter.client(below, policy=policy, budget=None, **quick) as client:
        outcome = await adapter.outcome(client)
    assert len(inner.requests) == 3
    told = record_of(outcome)
    assert (len(told.attempts), told.reason) == (3, Reason.ATTEMPTS_EXHAUSTED)


async def test_a_strategy_that_refuses_the_first_attempt(adapter, quick):
    def refuse(scope, now):
        raise RetryRefused(Reason.CIRCUIT_OPEN, send=not inner.requests, retry_after=5.0)

    inner, strategy = adapter.watched([503, 200]), with_methods(acquire_initial_token=refuse)
    async with adapter.client(inner, strategy=strategy, **quick) as client:
        response = await adapter.call(client, "GET", URL)
        error = await adapter.outcome(client)
    assert (response.status_code, record_of(response).reason) == (503, Reason.CIRCUIT_OPEN)
    for kind in (adapter.CircuitOpenError, adapter.transport_error):
        assert isinstance(error, kind)
    assert (error.reason, error.retry_after) == (Reason.CIRCUIT_OPEN, 5.0)
    assert (record_of(error).attempts, len(inner.requests)) == ((), 1)


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit, StopAsyncIteration, SystemExit])
async def test_a_before_attempt_that_raises_what_python_means_otherwise(adapter, quick, kind):
    raised = kind("no key")
    inner = adapter.watched([(503, {}, b"sorry")])
    hook = raising(raised)
    async with adapter.client(inner, policy=NOW, before_attempt=hook, **quick) as client:
        with pytest.raises(BaseException) as caught:
            outcome = client.request("GET", URL)
            await adapter.ended(outcome)
    found = caught.value
    if adapter.is_async and kind is StopIteration:  # no coroutine can raise it (PEP 479)
        found = found.__cause__
    assert found is raised
    assert (len(inner.requests), inner.closings) == (1, [1])
