"""record(): the events of calls, kept to be looked at."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import httpx
import httpx2
import pytest

import forbear.httpx
import forbear.httpx2
from forbear import Fixed, RetryPolicy
from forbear.httpx import AsyncRetryTransport
from forbear.testing import FakeClock, ScriptedTransport, record

URL = "http://api.example/"
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0))
RETRIED = [
    "attempt_failed",
    "retry_scheduled",
    "attempt_failed",
    "retry_scheduled",
    "succeeded_after_retry",
]
GAVE_UP = [
    "attempt_failed",
    "retry_scheduled",
    "attempt_failed",
    "retry_scheduled",
    "attempt_failed",
    "gave_up",
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def a_client(*steps: Any, module: Any = httpx, adapter: Any = forbear.httpx, **options: Any) -> Any:
    transport = adapter.RetryTransport(
        ScriptedTransport(steps), policy=POLICY, clock=FakeClock(), **options
    )
    return module.Client(transport=transport)


# --- where they come from ---------------------------------------------------------------------


def test_a_block_keeps_the_events_of_every_client_in_it() -> None:
    """Whoever made the client: a test can look at what an SDK's does."""
    first = a_client(503, "read_error", 200, name="first")
    second = a_client(503, module=httpx2, adapter=forbear.httpx2, name="second")
    first.get(URL)
    with record() as events:
        a_client(503, "read_error", 200, name="first").get(URL)
        second.get(URL)
    second.get(URL)
    assert events.names == RETRIED + GAVE_UP
    assert {event.client for event in events} == {"first", "second"}
    assert len(events) == 11


def test_on_event_keeps_those_of_one_transport_from_any_thread() -> None:
    events = record()
    client = a_client(503, on_event=[events])
    threads = [threading.Thread(target=client.get, args=(URL,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    a_client(503).get(URL)
    assert len(events.named("gave_up")) == 4
    assert len(events) == 4 * len(GAVE_UP)


def test_a_success_is_no_event() -> None:
    """Listeners are told of trouble, not of health."""
    with record() as events:
        a_client(200).get(URL)
        a_client(404).get(URL)
    assert events.names == []
    events.assert_retried(0)


@pytest.mark.anyio
async def test_in_asynchronous_code() -> None:
    """And only of the tasks that belong to the block."""
    transport = AsyncRetryTransport(ScriptedTransport([503]), policy=POLICY, clock=FakeClock())
    async with httpx.AsyncClient(transport=transport) as client:

        async def outside() -> None:
            await client.get(URL)

        async with anyio.create_task_group() as group:
            group.start_soon(outside)
            with record() as events:
                await client.get(URL)
    assert events.names == GAVE_UP


def test_blocks_within_blocks_both_hear() -> None:
    with record() as outer:
        a_client(503).get(URL)
        with record() as inner:
            a_client(503).get(URL)
    assert len(inner) == len(GAVE_UP)
    assert len(outer) == 2 * len(GAVE_UP)


# --- what they tell ---------------------------------------------------------------------------


def test_what_the_events_of_a_call_tell() -> None:
    with record() as events:
        a_client(
            (429, {"Retry-After": "2"}), "connect_error", 200, name="orders", random=lambda: 0.0
        ).get(URL)
    failed, scheduled, _, again, done = events
    assert (failed.client, failed.method, failed.origin) == (
        "orders",
        "GET",
        "http://api.example:80",
    )
    assert (failed.attempt, failed.status, failed.error, failed.phase) == (1, 429, None, "answered")
    assert (scheduled.attempt, scheduled.max_attempts, scheduled.delay) == (1, 3, 2.0)
    assert scheduled.delay_source == "retry-after"
    assert (again.attempt, again.error, again.failure, again.delay) == (
        2,
        "ConnectError",
        "refused",
        1.0,
    )
    assert again.delay_source == "backoff"
    assert (done.attempts, done.status, done.waited, done.elapsed) == (3, 200, 3.0, 3.0)


def test_why_a_call_gave_up() -> None:
    with record() as events:
        a_client((429, {"Retry-After": "999"})).get(URL)
    (gave_up,) = events.named("gave_up")
    assert (gave_up.reason, gave_up.refused_delay, gave_up.attempts) == (
        "retry-after-too-long",
        999.0,
        1,
    )


def test_a_listener_that_raises_costs_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By its name and the class of the error: the text may hold secrets."""

    def broken(event: object) -> None:
        raise ValueError("s3cret")

    events = record()
    assert a_client(503, 503, 200, on_event=[broken, events]).get(URL).status_code == 200
    assert events.names == RETRIED
    errors = [entry for entry in caplog.records if entry.levelname == "ERROR"]
    assert len(errors) == 1
    assert "broken" in errors[0].getMessage()
    assert "ValueError" in errors[0].getMessage()
    assert "s3cret" not in caplog.text


# --- looking at them --------------------------------------------------------------------------


def test_events_can_be_counted_indexed_and_filtered() -> None:
    with record() as events:
        a_client(503, 200).get(URL)
    assert len(events) == 3
    assert events[0] is next(iter(events))
    assert events[-1].name == "succeeded_after_retry"
    assert events.named("retry_scheduled") == [events[1]]
    assert events.named("gave_up") == []
    assert (
        repr(events)
        == "<RecordedEvents ['attempt_failed', 'retry_scheduled', 'succeeded_after_retry']>"
    )


def test_the_assertions_hold_where_they_should() -> None:
    with record() as events:
        a_client(503, "read_error", 200).get(URL)
    events.assert_retried(2)
    events.assert_retried(2, ["503", "ReadError"])
    events.assert_no_events("gave_up")


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda events: events.assert_retried(1),
            "expected 1 retries, there were 2: ['503', 'ReadError']",
        ),
        (lambda events: events.assert_retried(3), "expected 3 retries, there were 2"),
        (
            lambda events: events.assert_retried(2, ["503", "503"]),
            "expected retries for ['503', '503'], they were for ['503', 'ReadError']",
        ),
        (
            lambda events: events.assert_no_events("retry_scheduled"),
            "expected no retry_scheduled, got [",
        ),
    ],
    ids=["too few", "too many", "others", "some"],
)
def test_the_assertions_fail_where_they_should(check: Any, message: str) -> None:
    """A helper that asserts must be seen failing."""
    with record() as events:
        a_client(503, "read_error", 200).get(URL)
    with pytest.raises(AssertionError) as caught:
        check(events)
    assert message in str(caught.value)


def test_a_word_that_is_no_event_is_not_taken_for_good_news() -> None:
    """A typing error in a test's assertion must not make it pass for ever."""
    with record() as events:
        a_client(503, 200).get(URL)
    with pytest.raises(ValueError, match="there is no event 'retry_sheduled'; they are"):
        events.assert_no_events("retry_sheduled")
    with pytest.raises(ValueError, match="there is no event 'gaveup'"):
        events.named("gaveup")
