"""ScriptedAdapter: what a user's test puts below RetryAdapter, with no socket and no sleep."""

import io

import pytest
import requests

from forbear import record_of
from forbear.requests import RetryAdapter, classify
from forbear.testing import FakeClock, ScriptedAdapter

URL = "http://api.example.com/thing"


def session(steps):
    made = requests.Session()
    scripted = ScriptedAdapter(steps)
    made.mount("http://", RetryAdapter(inner=scripted, clock=FakeClock()))
    return made, scripted


def test_answers_by_the_list_and_keeps_what_arrived():
    """Statuses, headers and bodies; the last step repeats; a function is asked; requests and bodies
    are kept.
    """
    made, scripted = session(
        [503, (429, {"Retry-After": "1"}), lambda request: (200, {"X-A": "b"}, b"fine")]
    )
    response = made.put(URL, data=b"order")
    assert (response.status_code, response.headers["X-A"], response.content) == (200, "b", b"fine")
    assert [request.method for request in scripted.requests] == ["PUT"] * 3
    assert scripted.bodies == [b"order"] * 3
    assert record_of(response).reasons == ("503", "429")
    made.close()
    assert scripted.closed


@pytest.mark.parametrize(
    ("step", "error", "kind", "phase"),
    [
        ("connect_error", requests.ConnectionError, "refused", "unsent"),
        ("connect_timeout", requests.ConnectTimeout, "connect-timeout", "unsent"),
        ("read_timeout", requests.ReadTimeout, "read-timeout", "sent"),
        ("read_error", requests.ConnectionError, "reset", "sent"),
        ("write_error", requests.ConnectionError, "reset", "sent"),
        ("write_timeout", requests.ConnectionError, "write-timeout", "sent"),
        ("proxy_error", requests.exceptions.ProxyError, "proxy", "unsent"),
        ("disconnect", requests.ConnectionError, "reset", "sent"),
    ],
)
def test_errors_are_those_of_requests(step, error, kind, phase):
    """With the error of urllib3 inside, so that they mean what the real ones mean."""
    made, _ = session([step])
    with pytest.raises(error) as caught:
        made.post(URL)
    failure = classify(caught.value)
    assert (failure.kind.value.replace("_", "-"), failure.phase.value) == (kind, phase)


def test_an_exception_is_raised_as_it_is():
    own = RuntimeError("mine")
    made, _ = session([own])
    with pytest.raises(RuntimeError) as caught:
        made.get(URL)
    assert caught.value is own


@pytest.mark.parametrize(
    ("body", "arrived"),
    [(None, b""), ("text", b"text"), (io.BytesIO(b"file"), b"file"), (iter([b"a", b"b"]), b"ab")],
    ids=["none", "text", "file", "iterator"],
)
def test_bodies_are_read_as_they_would_be_sent(body, arrived):
    made, scripted = session([200])
    made.put(URL, data=body)
    assert scripted.bodies == [arrived]


@pytest.mark.parametrize("steps", [[], ["conect_error"]])
def test_a_script_that_is_none_is_refused(steps):
    with pytest.raises(ValueError, match=r"script|errors are"):
        ScriptedAdapter(steps)
