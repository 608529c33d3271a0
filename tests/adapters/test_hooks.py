"""What users plug in: retry_if, before_attempt, on_event, contact, strategy, name; and transports
that are stacked.
"""

import anyio.lowlevel
import pytest

from forbear import (
    CircuitBreaker,
    Fixed,
    IdempotencyKeys,
    Reason,
    RetryBudget,
    RetryPolicy,
    RetryRefused,
    RetryStrategy,
    RetryToken,
    record_of,
)
from forbear.testing import record

pytestmark = pytest.mark.anyio

URL = "http://api.example.com/thing"
NOW = RetryPolicy(backoff=Fixed(0))


def logged(caplog, level="ERROR"):
    return [
        entry.getMessage()
        for entry in caplog.records
        if entry.name == "forbear" and entry.levelname == level
    ]


# retry_if


async def test_retry_if_makes_an_answer_a_failure(adapter, quick):
    """It sees status and headers, and True is as good as a 503."""
    seen = []

    def still_pending(response):
        seen.append(adapter.status(response))
        return response.headers.get("X-State") == "pending"

    steps = [
        (200, {"X-State": "pending"}),
        (302, {"X-State": "pending"}),
        (200, {"X-State": "done"}),
    ]
    async with adapter.client(steps, policy=NOW, retry_if=still_pending, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert response.headers["X-State"] == "done"
    assert seen == [200, 302, 200]
    assert record_of(response).reasons == ("200", "302")


@pytest.mark.adapters("status-errors")
async def test_retry_if_sees_the_request(adapter, quick):
    """Where the library's responses know it."""
    seen = []
    async with adapter.client(
        [200], retry_if=lambda response: seen.append(response.request), **quick
    ) as client:
        await adapter.call(client, "PUT", URL, content=b"x")
    assert [(request.method, str(request.url)) for request in seen] == [("PUT", URL)]


@pytest.mark.parametrize("answer", [False, None, 0])
async def test_retry_if_only_widens(adapter, quick, answer):
    """A false answer takes nothing away: 503 is retried all the same."""
    async with adapter.client(
        [503, 200], policy=NOW, retry_if=lambda response: answer, **quick
    ) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200


@pytest.mark.parametrize(
    ("method", "headers", "reason"),
    [
        ("POST", {}, Reason.METHOD_NOT_REPLAYABLE),
        ("GET", {"x-should-retry": "false"}, Reason.SERVER_SAID_NO),
        ("GET", {"Retry-After": "3600"}, Reason.RETRY_AFTER_TOO_LONG),
    ],
    ids=["unsafe", "explicit-no", "too-long"],
)
async def test_retry_if_does_not_make_a_repetition_safe(adapter, quick, method, headers, reason):
    """The rules after the first one hold for what it flags."""
    steps = [(418, headers), 200]
    async with adapter.client(steps, policy=NOW, retry_if=lambda response: True, **quick) as client:
        response = await adapter.call(client, method, URL)
    assert response.status_code == 418
    assert record_of(response).reason is reason


async def test_retry_if_is_not_asked_about_exceptions(adapter, quick):
    """It is for answers."""
    asked = []
    steps = ["connect_error", "read_timeout", 200]
    async with adapter.client(steps, policy=NOW, retry_if=asked.append, **quick) as client:
        await adapter.call(client, "GET", URL)
    assert [adapter.status(response) for response in asked] == [200]


async def test_retry_if_that_raises_is_logged_once_and_loses_nothing(adapter, quick, caplog):
    """A mistake in the user's function costs no response."""

    def broken(response):
        raise KeyError("secret-text")

    async with adapter.client([200, 503, 200], policy=NOW, retry_if=broken, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert logged(caplog) == ["retry_if raised KeyError; the call goes on without it (logged once)"]


# before_attempt


async def test_before_attempt_runs_before_every_resend(adapter, quick):
    """Not before the first sending; each time on a fresh copy of what the caller wrote, so nothing
    piles up.
    """
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
    assert [adapter.header(sent, "Authorization") for sent in inner.requests] == [
        [f"sig-{n}"] for n in (1, 2, 3, 4)
    ]
    assert [
        name for name in adapter.header_names(inner.requests[3]) if name.startswith("x-try")
    ] == ["x-try-4"]
    assert headers == {"Authorization": "sig-1"}
    if "httpx-family" in adapter.words:  # requests' response shows what was sent last
        assert response.request.headers["Authorization"] == "sig-1"
        assert "x-try-2" not in response.request.headers


@pytest.mark.adapters("async")
async def test_before_attempt_may_be_a_coroutine_function(adapter, quick):
    """It is awaited before the request goes out."""

    async def sign(request, attempt):
        await anyio.lowlevel.checkpoint()
        request.headers["Authorization"] = f"sig-{attempt}"

    inner = adapter.watched([503, 200])
    async with adapter.client(inner, policy=NOW, before_attempt=sign, **quick) as client:
        await adapter.call(client, "GET", URL)
    assert inner.requests[1].headers["Authorization"] == "sig-2"


async def test_before_attempt_keeps_the_generated_key(adapter, quick):
    """What forbear added is on the copy that the hook gets."""
    keys = []
    inner = adapter.watched([503, 200])
    async with adapter.client(
        inner,
        policy=NOW,
        idempotency=IdempotencyKeys(),
        before_attempt=lambda request, attempt: keys.append(request.headers["Idempotency-Key"]),
        **quick,
    ) as client:
        await adapter.call(client, "POST", URL, content=b"x")
    assert (
        keys
        == [inner.requests[0].headers["Idempotency-Key"]]
        == [inner.requests[1].headers["Idempotency-Key"]]
    )
    assert inner.bodies == [b"x", b"x"]


async def test_before_attempt_that_raises_is_logged_once_and_the_call_goes_on(
    adapter, quick, caplog
):
    """The request goes out as it was."""

    def broken(request, attempt):
        raise KeyError("secret-text")

    async with adapter.client(
        [503, 503, 200], policy=NOW, before_attempt=broken, **quick
    ) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert logged(caplog) == [
        "before_attempt raised KeyError; the call goes on without it (logged once)"
    ]


# on_event


async def test_events_of_a_call_that_succeeds_after_retries(adapter, quick):
    """Failed, scheduled, for each; then succeeded. With the numbers of the call."""
    events = record()
    steps = [(503, {"Retry-After": "2"}), "connect_error", 200]
    policy = RetryPolicy(backoff=Fixed(1), hint_spread=0)
    async with adapter.client(
        steps, policy=policy, on_event=[events], name="orders", **quick
    ) as client:
        await adapter.call(client, "GET", URL)
    assert events.names == [
        "attempt_failed",
        "retry_scheduled",
        "attempt_failed",
        "retry_scheduled",
        "succeeded_after_retry",
    ]
    assert {event.client for event in events} == {"orders"}
    assert {event.origin for event in events} == {"http://api.example.com:80"}
    assert {event.method for event in events} == {"GET"}
    assert [
        (each.attempt, each.delay, each.delay_source) for each in events.named("retry_scheduled")
    ] == [
        (1, 2.0, "retry-after"),
        (2, 1.0, "backoff"),
    ]
    last = events[-1]
    assert (last.attempts, last.status, last.waited, last.elapsed) == (3, 200, 3.0, 3.0)


async def test_events_of_a_call_that_gave_up(adapter, quick):
    """The last failure is followed by gave_up with the reason."""
    events = record()
    policy = NOW.replace(max_attempts=2)
    async with adapter.client([503], policy=policy, on_event=[events], **quick) as client:
        await adapter.call(client, "GET", URL)
    assert events.names == ["attempt_failed", "retry_scheduled", "attempt_failed", "gave_up"]
    assert (events[-1].reason, events[-1].attempts, events[-1].status) == (
        Reason.ATTEMPTS_EXHAUSTED,
        2,
        503,
    )


async def test_no_event_for_a_call_that_simply_succeeds(adapter, quick):
    """Nothing is told when nothing happened."""
    events = record()
    async with adapter.client([200, 404, 301], on_event=[events], **quick) as client:
        for _ in range(3):
            await adapter.call(client, "GET", URL)
    assert list(events) == []


async def test_events_cannot_be_changed(adapter, quick):
    """One listener cannot spoil what the next one is told."""
    events = record()
    async with adapter.client([503, 200], policy=NOW, on_event=[events], **quick) as client:
        await adapter.call(client, "GET", URL)
    for event in events:
        with pytest.raises(AttributeError):
            event.origin = "http://elsewhere"
        with pytest.raises(AttributeError):
            event.further = 1


async def test_a_listener_that_raises_costs_nothing(adapter, quick, caplog):
    """It is logged once; the others are told, and the response arrives."""
    told = []

    def broken(event):
        raise KeyError("secret-text")

    listeners = [broken, told.append]
    async with adapter.client([503, 503, 200], policy=NOW, on_event=listeners, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert len(told) == 5
    (line,) = logged(caplog)
    assert "KeyError" in line
    assert "secret-text" not in caplog.text


async def test_record_listens_to_a_block(adapter, quick):
    """forbear.testing.record hears the calls made inside it, and only those."""
    async with adapter.client([503, 200, 503, 200], policy=NOW, **quick) as client:
        with record() as events:
            await adapter.call(client, "GET", URL)
        await adapter.call(client, "GET", URL)
    events.assert_retried(1, ["503"])


async def test_levels_of_the_log(adapter, quick, caplog):
    """A retry is INFO, giving up WARNING, and both carry fields."""
    with caplog.at_level("INFO", "forbear"):
        async with adapter.client(
            [503], policy=NOW.replace(max_attempts=2), name="orders", **quick
        ) as client:
            await adapter.call(client, "GET", URL)
    entries = [entry for entry in caplog.records if entry.name == "forbear"]
    assert [(entry.levelname, getattr(entry, "forbear.event")) for entry in entries] == [
        ("INFO", "retry_scheduled"),
        ("WARNING", "gave_up"),
    ]
    assert getattr(entries[1], "forbear.reason") == "attempts-exhausted"
    assert getattr(entries[1], "forbear.client") == "orders"


# contact


@pytest.mark.parametrize(
    ("contact", "sent"),
    [
        ("spider-admin@example.org", "spider-admin@example.org"),
        ("Ops@Example.COM", "Ops@example.com"),
        ("ops@faß.de", "ops@xn--fa-hia.de"),
    ],
)
async def test_contact_is_sent_as_from(adapter, quick, contact, sent):
    """RFC 9110 section 10.1.2: whom an operator can tell that a client misbehaves; a From of the
    caller's stays.
    """
    inner = adapter.watched([503, 200])
    async with adapter.client(inner, policy=NOW, contact=contact, **quick) as client:
        await adapter.call(client, "GET", URL)
        await adapter.call(client, "GET", URL, headers={"From": "me@example.net"})
    assert [adapter.header(request, "From") for request in inner.requests] == [
        [sent],
        [sent],
        ["me@example.net"],
    ]


@pytest.mark.adapters("sync")
@pytest.mark.parametrize(
    "contact",
    [
        "jörg@example.org",
        '"a b"@example.org',
        "ops@[127.0.0.1]",
        "Ops <ops@acme.dev>",
        "ops@acme.dev\n",
        "ops@acme.dev\r\nX-Evil: 1",
        "ops@localhost",
        "ops@acme",
        "mailto:ops@acme.dev",
        "a" * 65 + "@acme.dev",
        "",
    ],
)
async def test_a_contact_nobody_could_write_to_is_refused(adapter, contact):
    """At construction, before anything could be sent."""
    with pytest.raises(ValueError, match="contact must be one e-mail address"):
        async with adapter.client([200], contact=contact):
            pass


# strategy and budget


class Twice:
    """A strategy of a user's own: one retry, a second later, whatever happened. Complete."""

    quiet = True

    def __init__(self):
        self.ended = []

    def acquire_initial_token(self, scope, now):
        return RetryToken()

    def refresh_token(self, token, failure, now, *, latest):
        if token.attempts >= 2:
            raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
        if latest < 1:
            raise RetryRefused(Reason.DEADLINE, retry_after=1.0)
        token.delay = 1.0
        return token

    def record_success(self, token, now):
        self.ended.append("success")

    def release(self, token, now):
        self.ended.append("release")


async def test_a_strategy_of_the_users_own(adapter, quick):
    """It decides about waits and attempts; each token is ended once, in one of the two ways."""
    strategy: RetryStrategy = Twice()
    async with adapter.client([503, 200, 503], strategy=strategy, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
        response = await adapter.call(client, "GET", URL)
    assert response.status_code == 503
    assert record_of(response).reason is Reason.ATTEMPTS_EXHAUSTED
    assert quick["clock"].sleeps == [1.0, 1.0]
    assert strategy.ended == ["success", "release"]


async def test_a_strategy_does_not_make_a_post_safe(adapter, quick):
    """Steps 1 to 5 of a decision are not a strategy's, and the server's word holds."""
    strategy = Twice()
    async with adapter.client([503, 200], strategy=strategy, **quick) as client:
        assert (await adapter.call(client, "POST", URL)).status_code == 503
    async with adapter.client(
        [(503, {"Retry-After": "9"}), 200], strategy=strategy, **quick
    ) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert quick["clock"].sleeps == [9.0]


async def test_a_strategy_that_fails_costs_no_response(adapter, quick, caplog):
    """What it raises is logged, the call ends with what it has."""

    class Broken(Twice):
        def refresh_token(self, token, failure, now, *, latest):
            raise ZeroDivisionError

    async with adapter.client([503, 200], strategy=Broken(), **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert response.status_code == 503
    assert record_of(response).reason is Reason.STRATEGY_FAILED
    assert any("ZeroDivisionError" in line for line in logged(caplog))


@pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
async def test_a_strategy_that_answers_nonsense_costs_no_response(adapter, quick, delay):
    """A wait that is no wait ends the call."""

    class Odd(Twice):
        def refresh_token(self, token, failure, now, *, latest):
            token.delay = delay
            return token

    async with adapter.client([503, 200], strategy=Odd(), **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert response.status_code == 503
    assert record_of(response).reason is Reason.STRATEGY_FAILED


@pytest.mark.parametrize("send", [True, False])
async def test_a_strategy_that_refuses_at_the_door(adapter, quick, send):
    """send=True: once, without retries; send=False: the family's CircuitOpenError, and nothing goes
    out.
    """

    class Refusing(Twice):
        quiet = False

        def acquire_initial_token(self, scope, now):
            raise RetryRefused(Reason.CIRCUIT_OPEN, send=send, retry_after=5.0)

    inner = adapter.watched([503, 200])
    async with adapter.client(inner, strategy=Refusing(), **quick) as client:
        if send:
            response = await adapter.call(client, "GET", URL)
            assert (response.status_code, record_of(response).reason) == (503, Reason.CIRCUIT_OPEN)
        else:
            with pytest.raises(adapter.CircuitOpenError) as caught:
                await adapter.call(client, "GET", URL)
            assert isinstance(caught.value, adapter.transport_error)
            assert (caught.value.reason, caught.value.retry_after) == (Reason.CIRCUIT_OPEN, 5.0)
            assert record_of(caught.value).attempts == ()
    assert len(inner.requests) == send


async def test_a_delay_before_the_first_attempt(adapter, quick):
    """A token may ask for one: waited for before anything is sent."""

    class Slow(Twice):
        quiet = False

        def acquire_initial_token(self, scope, now):
            return RetryToken(delay=3.0)

    async with adapter.client([200], strategy=Slow(), **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert quick["clock"].sleeps == [3.0]


@pytest.mark.adapters("sync")
@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"strategy": Twice(), "budget": RetryBudget()}, ValueError, "strategy= or budget="),
        ({"strategy": Twice(), "budget": None}, ValueError, "strategy= or budget="),
        ({"budget": 5}, TypeError, "RetryBudget"),
        ({"policy": {"max_attempts": 2}}, TypeError, "RetryPolicy"),
        ({"retry_if": True}, TypeError, "retry_if must be a function"),
        ({"before_attempt": "sign"}, TypeError, "before_attempt must be a function"),
        ({"on_event": print}, TypeError, "on_event=\\["),
        ({"body_buffer": -1}, ValueError, "body_buffer"),
        ({"body_buffer": True}, ValueError, "body_buffer"),
        ({"strategy": Twice(), "breaker": CircuitBreaker()}, ValueError, "strategy= or breaker="),
        ({"strategy": Twice(), "cooldown": "all"}, ValueError, "strategy= or cooldown="),
        ({"breaker": True}, TypeError, "breaker must be a CircuitBreaker"),
        ({"breaker": CircuitBreaker}, TypeError, "breaker must be a CircuitBreaker"),
        ({"cooldown": "on"}, ValueError, "cooldown must be one of"),
        ({"cooldown": None}, ValueError, "cooldown must be one of"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
async def test_options_that_make_no_sense_are_told_at_construction(adapter, options, error, says):
    """With what was given and what to write instead."""
    with pytest.raises(error, match=says):
        async with adapter.client([200], **options):
            pass


@pytest.mark.adapters("sync")
@pytest.mark.parametrize("option", ["breaker", "max_attempts"])
async def test_an_option_that_is_not_there_is_not_ignored(adapter, option):
    """A mistyped one neither; urllib3 looks at what it does not know at the first request."""
    with pytest.raises(TypeError, match=option):
        async with adapter.client([200], **{option: 3}) as client:
            await adapter.call(client, "GET", URL)


# Stacked transports


@pytest.mark.adapters("stacks")
@pytest.mark.parametrize("steps", [[503], ["connect_error"]], ids=["answer", "error"])
@pytest.mark.parametrize("outer_budget", ["shared", "own", "none"])
async def test_stacked_transports_retry_once_not_squared(adapter, quick, steps, outer_budget):
    """A forbear over a forbear: the inner one does the retrying, the outer one knows."""
    inner = adapter.watched(steps)
    budget = RetryBudget()
    below = adapter.transport(inner, policy=NOW.replace(max_attempts=3), budget=budget, **quick)
    over = {"shared": budget, "own": RetryBudget(), "none": None}[outer_budget]
    async with adapter.client(
        below, policy=NOW.replace(max_attempts=5), budget=over, **quick
    ) as client:
        try:
            outcome = await adapter.call(client, "GET", URL)
        except adapter.connect_error as error:
            outcome = error
    assert len(inner.requests) == 3
    told = record_of(outcome)
    assert (len(told.attempts), told.reason) == (3, Reason.ATTEMPTS_EXHAUSTED)


@pytest.mark.adapters("stacks")
async def test_an_inner_budget_that_said_no_is_not_overruled(adapter, quick):
    """The inner one refused for its budget after one sending: the outer one, with tokens of its
    own, sends nothing.
    """
    inner = adapter.watched([503])
    empty = RetryBudget(ratio=0, floor_per_second=0, burst=1, hinted_cost=1)
    below = adapter.transport(inner, policy=NOW, budget=empty, **quick)
    async with adapter.client(below, policy=NOW, **quick) as client:
        await adapter.call(client, "GET", URL)
        assert len(inner.requests) == 2
        response = await adapter.call(client, "GET", URL)
    assert len(inner.requests) == 3
    assert record_of(response).reason is Reason.BUDGET_EXHAUSTED


@pytest.mark.adapters("stacks")
async def test_an_inner_transport_that_does_not_retry_leaves_it_to_the_outer(adapter, quick):
    """A forbear with max_attempts=1 below (for its deadline, say) is no loop."""
    inner = adapter.watched([503])
    below = adapter.transport(inner, policy=RetryPolicy.disabled(), **quick)
    async with adapter.client(below, policy=NOW.replace(max_attempts=3), **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert len(inner.requests) == 3
    assert len(record_of(response).attempts) == 3
