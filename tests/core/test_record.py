"""Record: the story of a call, found on whatever the caller holds, and free of secrets."""

from __future__ import annotations

import pickle
from typing import Any

import httpx
import httpx2
import pytest

import forbear.httpx
import forbear.httpx2
from forbear import (
    AttemptRecord,
    CallRecord,
    FailureKind,
    Fixed,
    Phase,
    Reason,
    RetryPolicy,
    record_of,
)
from forbear.core.events import AttemptFailed, GaveUp, RetryScheduled, SucceededAfterRetry
from forbear.core.outcome import Failure
from forbear.core.trail import Trail
from forbear.testing import FakeClock, ScriptedTransport

FAMILIES = [
    pytest.param(httpx, forbear.httpx, id="httpx"),
    pytest.param(httpx2, forbear.httpx2, id="httpx2"),
]
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0), hint_spread=0.0)
SECRETS = ("hunter2", "s3cret", "/private", "token=", "key-of-mine", "user:", "Bearer", "scripted")
URL = "https://user:hunter2@api.example:8443/private/path?token=s3cret#part"


def a_client(module: Any, adapter: Any, *steps: Any, **options: Any) -> Any:
    transport = adapter.RetryTransport(
        ScriptedTransport(steps), policy=POLICY, clock=FakeClock(), random=lambda: 0.5, **options
    )
    return module.Client(transport=transport)


def an_attempt(number: int, **fields: Any) -> AttemptRecord:
    values: dict[str, Any] = {
        "origin": "http://a:80",
        "status": None,
        "failure": None,
        "phase": None,
        "error": None,
        "elapsed": 0.0,
        "delay": None,
        "delay_source": None,
    }
    return AttemptRecord(number, **{**values, **fields})


# --- where it is found ------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_of_a_response_after_retries(module: Any, adapter: Any) -> None:
    with a_client(module, adapter, (503, {"Retry-After": "2"}), "read_error", 200) as client:
        record = record_of(client.get(URL))
    assert record.origin == "https://api.example:8443"
    assert record.method == "GET"
    assert record.reason is None
    assert record.waits == (2.0, 1.0)
    assert record.reasons == ("503", "ReadError")
    assert record.retries == 2
    assert record.elapsed == 3.0
    assert [attempt.number for attempt in record.attempts] == [1, 2, 3]
    assert record.attempts[2].status == 200
    assert record.attempts[2].failure is None


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_of_a_plain_success(module: Any, adapter: Any) -> None:
    """No notes were taken: one attempt, made up on demand."""
    with a_client(module, adapter, 200) as client:
        record = record_of(client.get(URL))
    assert (record.method, record.retries, record.reason, record.waits) == ("GET", 0, None, ())
    assert [attempt.status for attempt in record.attempts] == [200]
    assert str(record) == "1 attempt, GET: no failure"


def test_of_what_no_transport_has_seen() -> None:
    """Its text names nothing that is not known."""
    assert str(record_of(ValueError("mine"))) == "0 attempts: no failure"


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_of_the_last_response(module: Any, adapter: Any) -> None:
    with a_client(module, adapter, 503) as client:
        record = record_of(client.get(URL))
    assert record.reason is Reason.ATTEMPTS_EXHAUSTED
    assert len(record.attempts) == 3


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_of_the_librarys_own_exception(module: Any, adapter: Any) -> None:
    """The exception is the library's, with the story attached and as a note (PEP 678)."""
    with (
        a_client(module, adapter, "connect_error") as client,
        pytest.raises(module.ConnectError) as caught,
    ):
        client.get(URL)
    record = record_of(caught.value)
    assert record.reasons == ("ConnectError",) * 3
    assert [attempt.phase for attempt in record.attempts] == [Phase.UNSENT] * 3
    assert caught.value.__notes__ == [
        "forbear: 3 attempts in 2 s, GET https://api.example:8443: ConnectError, ConnectError, ConnectError;"
        " gave up: attempts-exhausted"
    ]


class SdkError(Exception):
    """As SDKs wrap what their HTTP client raises."""


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
@pytest.mark.parametrize(
    "way", ["from", "while handling", "from None", "twice", "raise_for_status", "as .response"]
)
def test_of_what_an_sdk_makes_of_it(module: Any, adapter: Any, way: str) -> None:
    """The story is found through the SDK's exception, however it was made."""
    steps = [503] if way in ("raise_for_status", "as .response") else ["connect_error"]
    with (
        a_client(module, adapter, *steps) as client,
        pytest.raises((SdkError, module.HTTPError)) as caught,
    ):
        try:
            response = client.get(URL)
            if way == "as .response":
                failed: Any = SdkError("status 503")
                failed.response = response
                raise failed
            response.raise_for_status()
        except module.HTTPError as error:
            if way == "from":
                raise SdkError("connection") from error
            if way == "twice":
                raise SdkError("outer") from chained(error)
            if way == "while handling":
                raise SdkError("connection")  # noqa: B904
            if way == "from None":
                raise SdkError("connection") from None
            raise
    record = record_of(caught.value)
    assert len(record.attempts) == 3
    assert record.reason is Reason.ATTEMPTS_EXHAUSTED


def chained(error: Exception) -> Exception:
    middle = SdkError("middle")
    middle.__cause__ = error
    return middle


def test_of_an_exception_that_never_went_through_forbear() -> None:
    assert record_of(ValueError("theirs")) == CallRecord("", "", (), None, None, None)


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError(), ValueError()
    one.__cause__, two.__cause__ = two, one
    assert record_of(one).attempts == ()


@pytest.mark.parametrize("thing", [3, "response", object()], ids=["int", "str", "object"])
def test_of_neither_is_a_type_error(thing: Any) -> None:
    with pytest.raises(TypeError, match="record_of takes a response or an exception, got "):
        record_of(thing)


def test_none_is_no_response() -> None:
    with pytest.raises(TypeError, match="got NoneType"):
        record_of(None)


# --- what it is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            CallRecord("GET", "http://a:80", (an_attempt(1, status=200),), 0.25, None, None),
            "1 attempt in 0.25 s, GET http://a:80: no failure",
        ),
        (
            CallRecord(
                "POST",
                "http://a:80",
                (
                    an_attempt(1, error="ReadTimeout", failure=FailureKind.READ_TIMEOUT, delay=1.0),
                    an_attempt(2, status=429, failure=FailureKind.STATUS),
                ),
                12.3456,
                Reason.RETRY_AFTER_TOO_LONG,
                3600.0,
            ),
            "2 attempts in 12.3 s, POST http://a:80: ReadTimeout, 429; gave up: retry-after-too-long (3.6e+03 s)",
        ),
        (
            CallRecord("GET", "http://a:80", (), 0.0, Reason.CIRCUIT_OPEN, None),
            "0 attempts in 0 s, GET http://a:80: no failure; gave up: circuit-open",
        ),
    ],
    ids=["success", "gave up", "nothing sent"],
)
def test_a_record_reads_as_a_sentence(record: CallRecord, text: str) -> None:
    assert str(record) == text


def test_a_call_of_which_nothing_was_sent_has_no_retries() -> None:
    assert CallRecord("GET", "", (), None, None, None).retries == 0


def test_records_are_values() -> None:
    record = CallRecord(
        "GET",
        "http://a:80",
        (an_attempt(1, status=503, failure=FailureKind.STATUS),),
        0.5,
        None,
        None,
    )
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.elapsed = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_an_exception_keeps_its_story_across_processes(module: Any, adapter: Any) -> None:
    with (
        a_client(module, adapter, "connect_error") as client,
        pytest.raises(module.ConnectError) as caught,
    ):
        client.post(URL)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert record_of(twin) == record_of(caught.value)


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
@pytest.mark.parametrize(
    "steps", [(503, 200), (503,), ("connect_error",), ((429, {"Retry-After": "999"}),)]
)
def test_nothing_secret_is_recorded_or_told(
    module: Any, adapter: Any, steps: tuple[Any, ...]
) -> None:
    """Method, origin, status, class names and seconds: no path, query, userinfo, header, body or
    text (P10).
    """
    events: list[Any] = []
    with a_client(module, adapter, *steps, on_event=[events.append]) as client:
        try:
            ended: Any = client.put(
                URL,
                content=b"s3cret body",
                headers={"Authorization": "Bearer hunter2", "Idempotency-Key": "key-of-mine"},
            )
        except module.HTTPError as error:
            ended = error
    record = record_of(ended)
    assert record.attempts
    assert events
    told = [repr(record), str(record), *map(repr, events), *getattr(ended, "__notes__", ())]
    for text in told:
        assert not [secret for secret in SECRETS if secret in text], text


# --- events -----------------------------------------------------------------------------------

MAKERS: list[Any] = [
    (AttemptFailed, "attempt_failed"),
    (RetryScheduled, "retry_scheduled"),
    (GaveUp, "gave_up"),
    (SucceededAfterRetry, "succeeded_after_retry"),
]


@pytest.mark.parametrize(("event", "name"), MAKERS, ids=[name for _, name in MAKERS])
def test_events_are_immutable_and_named(event: Any, name: str) -> None:
    """``event.name`` is the stable word; a listener cannot change what the next one is told."""
    made = event(*range(len(event._fields) - 1))
    assert made.name == name
    with pytest.raises(AttributeError):
        made.client = "other"
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_trail_tells_its_story_in_a_debugger():
    """The status or the class of each attempt's failure, and the status that ended it."""
    failed = Failure(FailureKind.READ_TIMEOUT, Phase.SENT, error="ReadTimeout")
    trail = Trail("GET", "http://a:80")
    trail.entries = [(None, failed, 0.0, 0.25, None), (200, None, 0.3, None, None)]
    assert repr(trail) == "<Trail GET http://a:80 ['ReadTimeout', 200]>"
