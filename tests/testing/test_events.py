"""record(): the events of calls, kept to be looked at."""

import re

import anyio
import pytest

from forbear import Fixed, RetryPolicy
from forbear.testing import FakeClock, record

from ..lanes import lane_of
from .clients import URL

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0))
TWICE = ["attempt_failed", "retry_scheduled", "attempt_failed", "retry_scheduled"]
RETRIED = [*TWICE, "succeeded_after_retry"]
GAVE_UP = [*TWICE, "attempt_failed", "gave_up"]


def a_client(*steps, lane="httpx-sync", **options):
    return lane_of(lane).build([*steps], {"policy": POLICY, "clock": FakeClock(), **options})


def test_a_block_keeps_the_events_of_every_client_in_it():
    """Whoever made the client: a test can look at what an SDK's does."""
    first = a_client(503, "read_error", 200, name="first")
    second = a_client(503, lane="httpx2-sync", name="second")
    second.get(URL)
    with record() as events:
        first.get(URL)
        with record() as inner:
            second.get(URL)
        a_client(404).get(URL)  # no event: listeners hear of trouble, not of health
    second.get(URL)
    assert (events.names, inner.names) == (RETRIED + GAVE_UP, GAVE_UP)
    assert {event.client for event in events} == {"first", "second"}


def test_a_block_hears_of_the_tasks_that_belong_to_it_only():
    async def run():
        async with a_client(503, lane="httpx-asyncio") as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.get, URL)
                with events:
                    await client.get(URL)

    events = record()
    anyio.run(run)
    assert events.names == GAVE_UP


def test_events_can_be_counted_indexed_filtered_and_asserted():
    with record() as events:
        a_client(503, "read_error", 200).get(URL)
    assert len(events) == 5
    assert events[0] is next(iter(events))
    assert events.named("retry_scheduled") == [events[1], events[3]]
    assert events.named("gave_up") == []
    assert repr(events) == f"<RecordedEvents {RETRIED}>"
    events.assert_retried(2)
    events.assert_retried(2, ["503", "ReadError"])
    events.assert_no_events("gave_up")
    for given, message in (
        ((1,), "expected 1 retries, there were 2: ['503', 'ReadError']"),
        ((3,), "expected 3 retries, there were 2"),
        ((2, ["503", "503"]), "expected retries for ['503', '503'], they were for ['503', 'Read"),
    ):
        with pytest.raises(AssertionError, match=re.escape(message)):
            events.assert_retried(*given)
    with pytest.raises(AssertionError, match="expected no retry_scheduled, got"):
        events.assert_no_events("retry_scheduled")
