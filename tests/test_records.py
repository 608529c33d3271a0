"""Record: the story of a call, found on whatever the caller holds, and free of secrets."""

import pickle
from typing import Any

import httpx
import pytest

from forbear import CallRecord, Fixed, Reason, RetryPolicy, record_of
from forbear.events import AttemptFailed, Event
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock, ScriptedTransport

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0), hint_spread=0.0)


def a_client(*steps: Any, **options: Any) -> httpx.Client:
    inner = ScriptedTransport(steps)
    options = {"clock": FakeClock(), "random": lambda: 0.5, **options}
    return httpx.Client(transport=RetryTransport(inner, policy=POLICY, **options))


@pytest.mark.parametrize(("status", "reason"), [
    (200, None), (299, None), (304, None), (400, Reason.STATUS_NOT_RETRIED),
    (404, Reason.STATUS_NOT_RETRIED),
])  # fmt: skip
def test_of_a_response_to_the_first_attempt(status: int, reason: Reason | None) -> None:
    """No notes were taken of a success: its one attempt is made up on demand."""
    record = record_of(a_client(status).get("http://a/"))
    assert (record.method, record.retries, record.reason, record.waits) == ("GET", 0, reason, ())
    assert [attempt.status for attempt in record.attempts] == [status]
    if status < 300:
        assert str(record) == "1 attempt, GET: no failure"


class SdkError(Exception):
    """As SDKs wrap what their HTTP client raises."""


@pytest.mark.parametrize("how", ["from", "twice", "while handling", "from none"])
def test_of_what_an_sdk_makes_of_an_error(how: str) -> None:
    """The story is found through the SDK's exception, however it was made; no error is inspected."""
    with pytest.raises(SdkError) as caught:
        try:
            a_client("connect_error", retry_if=lambda response: True).get("http://a/")
        except httpx.ConnectError as error:
            if how == "while handling":
                raise SdkError("connection")  # noqa: B904 - as some do
            middle = SdkError("middle")
            middle.__cause__ = error
            cause = {"from": error, "twice": middle, "from none": None}[how]
            raise SdkError("connection") from cause
    assert len(record_of(caught.value).attempts) == 3


def test_of_what_never_went_through_forbear() -> None:
    """httpx's response knows no request yet, and says so by RuntimeError. A circle of causes ends."""
    one, two = ValueError(), ValueError()
    one.__cause__, two.__cause__ = two, one
    for theirs in (httpx.Response(404), httpx.Response(200), ValueError("theirs"), one):
        assert record_of(theirs) is None


def test_a_record_reads_as_a_sentence() -> None:
    here, said = ("GET", "http://a:80"), "GET http://a:80: no failure"
    sent = record_of(a_client(200).get("http://a/")).attempts
    failed = record_of(a_client("read_timeout", (429, {"Retry-After": "3600"})).put("http://a/"))
    unwell = CallRecord(*here, (), 1e4, Reason.ORIGIN_UNHEALTHY, 7.19, held=8.0)
    for record, text in (
        (failed, "2 attempts in 1 s, PUT http://a:80: ReadTimeout, 429; gave up:"
            " retry-after-too-long (asked to wait 3,600 s, more than max_retry_after)"),
        (unwell, f"0 attempts in 10,000 s, {said}; held for 8 s;"
            " gave up: origin-unhealthy (the server is unhealthy)"),
        (CallRecord(*here, sent, 0.25, None, None), f"1 attempt in 0.25 s, {said}"),
        (CallRecord(*here, (), 12.3456, Reason.CIRCUIT_OPEN, None),
            f"0 attempts in 12.3 s, {said}; gave up: circuit-open"),
        (CallRecord(*here, (), 0.0, None, None, (7, 9)),
            f"0 attempts in 0 s, {said}; resumed at 7, 9"),
    ):  # fmt: skip
        assert str(record) == text


def test_events_are_immutable_and_named() -> None:
    """``event.name`` is the stable word; a listener cannot change what the next one is told."""
    for kind in Event.__args__:
        made = kind(*range(len(kind._fields) - 1))
        assert made.name == kind._field_defaults["name"]
        assert pickle.loads(pickle.dumps(made)) == made
        with pytest.raises(AttributeError):
            made.client = "other"
    assert AttemptFailed._field_defaults["name"] == "attempt_failed"
