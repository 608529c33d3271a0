"""ScriptedTransport and ScriptedAdapter: answers by a list, with no socket and no sleep."""

import io

import httpx
import httpx2
import pytest
import requests

from forbear import record_of
from forbear.requests import RetryAdapter, classify
from forbear.testing import FakeClock, ScriptedAdapter, ScriptedTransport, answer

URL = "http://api.example/"
ERRORS = {
    "connect_error": "ConnectError", "connect_timeout": "ConnectTimeout",
    "read_timeout": "ReadTimeout", "read_error": "ReadError", "write_timeout": "WriteTimeout",
    "write_error": "WriteError", "pool_timeout": "PoolTimeout", "proxy_error": "ProxyError",
    "disconnect": "RemoteProtocolError",
}  # fmt: skip


def ask(*steps, module=httpx):
    with module.Client(transport=ScriptedTransport(steps)) as client:
        return client.get(URL)


ANSWERS = {
    "status": (204, 204, {}, b""),
    "headers": ((503, {"Retry-After": "2"}), 503, {"Retry-After": "2"}, b""),
    "body": ((200, {"X-A": "b"}, b"body"), 200, {"X-A": "b"}, b"body"),
    "header lines": ((429, [("A", "1"), ("A", "2")]), 429, {"A": "1, 2"}, b""),
    "function": (lambda request: (200, {}, request.method.encode()), 200, {}, b"GET"),
    "answer": (answer(429, json=[1]), 429, {"Content-Type": "application/json"}, b"[1]"),
}


@pytest.mark.parametrize(("step", "status", "headers", "body"), ANSWERS.values(), ids=ANSWERS)
def test_answers(step, status, headers, body):
    response = ask(step)
    assert (response.status_code, response.content) == (status, body)
    assert {name: response.headers[name] for name in headers} == headers


@pytest.mark.parametrize("module", [httpx, httpx2])
def test_answers_and_errors_are_those_of_the_requests_library(module):
    assert isinstance(ask(200, module=module), module.Response)
    for step, error in ERRORS.items():
        for scripted in (step, lambda request, step=step: step):
            with pytest.raises(getattr(module, error)) as caught:
                ask(scripted, module=module)
            assert type(caught.value) is getattr(module, error)


@pytest.mark.parametrize("step", ["cut:10", "200;delay=50", "200;drip=50"])
def test_what_takes_a_connection_is_refused(step):
    with pytest.raises(ValueError, match="needs a FaultServer"):
        ScriptedTransport([answer(step)])


@pytest.mark.parametrize("cls", [ScriptedTransport, ScriptedAdapter])
@pytest.mark.parametrize("step", ["readtimeout", "reset", "503;retry-after=1", None, OSError])
def test_what_is_no_step_is_told_and_does_not_pass_for_a_fault(cls, step):
    with pytest.raises(ValueError, match=r"unknown step; known are a status .* disconnect"):
        cls([503, step])


def test_what_a_function_returns_is_a_step_too():
    with pytest.raises(ValueError, match="'readtimeout': unknown step"):
        ask(lambda request: "readtimeout")


@pytest.mark.parametrize("steps", [503, "reset"])
def test_the_steps_are_a_list(steps):
    with pytest.raises(TypeError, match=rf"write ScriptedAdapter\(\[{steps!r}\]\)"):
        ScriptedAdapter(steps)


def test_steps_come_in_order_and_the_last_repeats_and_requests_are_kept():
    inner = ScriptedTransport(iter([503, "read_error", 200]))
    assert repr(inner) == "<ScriptedTransport 0 of 3 steps>"
    with httpx.Client(transport=inner) as client:
        first = client.post(URL, content=iter([b"a", b"b"]), headers={"X-A": "1"})
        assert first.status_code == 503
        with pytest.raises(httpx.ReadError):
            client.get(URL)
        again = [client.get(URL) for _ in range(3)]
    assert [response.status_code for response in again] == [200] * 3
    assert again[0] is not again[1]
    assert [request.method for request in inner.requests] == ["POST", *["GET"] * 4]
    assert inner.requests[0].headers["x-a"] == "1"
    assert inner.bodies == [b"ab", b"", b"", b"", b""]
    assert inner.closed


def session(*steps):
    made, scripted = requests.Session(), ScriptedAdapter(steps)
    made.mount("http://", RetryAdapter(inner=scripted, clock=FakeClock()))
    return made, scripted


def test_an_adapter_answers_by_the_list_and_keeps_what_arrived():
    fine = (200, {"X-A": "b"}, b"fine")
    made, scripted = session(503, (429, {"Retry-After": "1"}), lambda request: fine)
    response = made.put(URL, data=b"order")
    assert (response.status_code, response.headers["X-A"]) == (200, "b")
    assert response.content == b"fine"
    assert [request.method for request in scripted.requests] == ["PUT"] * 3
    assert scripted.bodies == [b"order"] * 3
    assert record_of(response).reasons == ("503", "429")
    made.close()
    assert scripted.closed


@pytest.mark.parametrize(("step", "error", "kind", "phase"), [
    ("connect_error", requests.ConnectionError, "refused", "unsent"),
    ("connect_timeout", requests.ConnectTimeout, "connect-timeout", "unsent"),
    ("read_timeout", requests.ReadTimeout, "read-timeout", "sent"),
    ("read_error", requests.ConnectionError, "reset", "sent"),
    ("write_timeout", requests.ConnectionError, "write-timeout", "sent"),
    ("proxy_error", requests.exceptions.ProxyError, "proxy", "unsent"),
])  # fmt: skip
def test_errors_of_an_adapter_are_those_of_requests(step, error, kind, phase):
    """With the error of urllib3 inside, so that they mean what the real ones mean."""
    made, _ = session(step)
    with pytest.raises(error) as caught:
        made.post(URL)
    failure = classify(caught.value)
    assert (failure.kind.value.replace("_", "-"), failure.phase.value) == (kind, phase)


def test_bodies_are_read_as_they_would_be_sent():
    made, scripted = session(200)
    for body in (None, "text", io.BytesIO(b"file"), iter([b"a", b"b"])):
        made.put(URL, data=body)
    assert scripted.bodies == [b"", b"text", b"file", b"ab"]
