"""P7: what comes out is the library's own, with the story of the attempts attached."""

import logging
import pickle
import re

import httpx
import httpx2
import pytest
import requests
import urllib3

import forbear
import forbear.httpx
import forbear.httpx2
import forbear.requests
import forbear.urllib3
from forbear import FailureKind, Fixed, Reason, RetryPolicy, record_of
from forbear.strategies import Phase

NOW = RetryPolicy(backoff=Fixed(0))
UNLISTED = {"501": "GET", "409": "POST", "413": "PUT", "404": "GET"}


@pytest.mark.smoke
async def test_a_refused_connection(adapter, server, quick):
    url = server.url
    server.stop()
    async with adapter.client(policy=RetryPolicy(max_attempts=4), **quick) as client:
        with pytest.raises(adapter.connect_error) as caught:
            await adapter.call(client, "POST", url + "/secret?token=1", content=b"x")
    assert type(caught.value) is adapter.connect_error
    record = record_of(caught.value)
    assert record.reasons == (adapter.connect_error.__name__,) * 4
    unsent = (FailureKind.REFUSED, Phase.UNSENT)
    found = [(each.number, each.failure, each.phase) for each in record.attempts]
    assert found == [(number, *unsent) for number in (1, 2, 3, 4)]
    assert (record.method, record.origin, record.reason) == ("POST", url, Reason.ATTEMPTS_EXHAUSTED)
    (note,) = [note for note in caught.value.__notes__ if note.startswith("forbear:")]
    assert re.fullmatch(r"forbear: 4 attempts in .*gave up: attempts-exhausted", note)


@pytest.mark.smoke
async def test_errors_of_the_wire_are_the_librarys_own(adapter, server, quick):
    policy = RetryPolicy(max_attempts=2)
    for fault, names in adapter.wire_errors.items():
        server.script(f"/{fault}", fault)
        # Of the others a busy machine would make timeouts.
        settings = adapter.reading_for(0.1) if fault == "hang" else {}
        async with adapter.client(policy=policy, settings=settings, **quick) as client:
            with pytest.raises(adapter.transport_error) as caught:
                await adapter.call(client, "GET", f"{server.url}/{fault}")
            assert type(caught.value).__name__ in names
            assert type(caught.value).__module__.partition(".")[0] == adapter.name
            attempts = record_of(caught.value).attempts
            assert len(attempts) == len(server.requests(f"/{fault}")) == 2


@pytest.mark.smoke
async def test_the_last_response_is_returned_as_it_came(adapter, server, quick):
    server.script("/thing", "502", "429;body=10;header=X-Answer:last")
    async with adapter.client(policy=NOW.replace(max_attempts=2), **quick) as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
    assert (response.status_code, response.content) == (429, b"0123456789")
    assert response.headers["X-Answer"] == "last"
    record = record_of(response)
    assert record.reasons == ("502", "429")
    assert [attempt.status for attempt in record.attempts] == [502, 429]
    if "status-errors" in adapter.words:
        with pytest.raises(adapter.status_error) as caught:
            response.raise_for_status()
        assert record_of(caught.value) == record


@pytest.mark.adapters("status-errors")
async def test_on_exhausted_raise(adapter, server, quick):
    policy = NOW.replace(max_attempts=2, on_exhausted="raise")
    bodies = ("100", "100;chunked=1", "100000", "9;header=Content-Encoding:gzip")
    for number, body in enumerate(bodies):
        server.script(f"/{number}", f"503;body={body};header=X-Answer:last")
        with pytest.raises(adapter.status_error) as caught:
            await adapter.once(url=f"{server.url}/{number}", policy=policy, **quick)
        error = caught.value
        assert type(error) is adapter.status_error
        assert (error.response.status_code, error.response.headers["X-Answer"]) == (503, "last")
        assert str(error.request.url) == f"{server.url}/{number}"
        assert record_of(error).reasons == ("503", "503")
        assert any("2 attempts" in note for note in error.__notes__)
        if number < 2:
            assert len(error.response.content) == 100
            assert error.response.text.startswith("0123456789abcdef")


FAMILY = "TransportError", "TimeoutException"
LIBRARIES = {
    forbear.httpx: (httpx, *FAMILY),
    forbear.httpx2: (httpx2, *FAMILY),
    forbear.requests: (requests, "RequestException", "Timeout"),
    forbear.urllib3: (urllib3.exceptions, "HTTPError", "TimeoutError"),
}


@pytest.mark.parametrize("ours", LIBRARIES)
def test_our_exceptions_are_of_both_families_and_survive_pickling(ours):
    library, *names = LIBRARIES[ours]
    error, timeout = (getattr(library, name) for name in names)
    assert not issubclass(ours.CircuitOpenError, timeout)
    for cls, kinds in (
        (ours.DeadlineExceeded, (forbear.DeadlineExceeded, timeout)),
        (ours.CircuitOpenError, (forbear.CircuitOpenError, error)),
    ):
        assert all(issubclass(cls, kind) for kind in kinds)
        assert not issubclass(cls, TimeoutError)
        assert issubclass(cls, OSError) is (library is requests)  # all of requests' are
        made = cls("too late", reason=Reason.DEADLINE, retry_after=3.5)
        made.add_note("a note")
        twin = pickle.loads(pickle.dumps(made))
        assert (type(twin), twin.args, twin.__notes__) == (cls, ("too late",), ["a note"])
        assert (twin.reason, twin.retry_after) == (Reason.DEADLINE, 3.5)
        assert ours.classify(made).kind is FailureKind.PERMANENT


@pytest.mark.parametrize("status", UNLISTED)
async def test_a_status_that_is_not_retried_says_so(adapter, server, caplog, status):
    server.script("/thing", status)
    caplog.set_level(logging.DEBUG, "forbear")
    events = []
    async with adapter.client(on_event=[events.append]) as client:
        response = await adapter.call(client, UNLISTED[status], server.url + "/thing")
    record = record_of(response)
    assert [attempt.status for attempt in record.attempts] == [int(status)]
    assert (record.reason, record.method) == ("status-not-retried", UNLISTED[status])
    assert str(record).endswith("no failure; not retried: status-not-retried")
    (line,) = caplog.records
    assert (line.levelname, line.__dict__["forbear.event"]) == ("DEBUG", "status_not_retried")
    assert line.getMessage() == f"{record.method} {server.url}: {status} is not retried"
    assert events == []
