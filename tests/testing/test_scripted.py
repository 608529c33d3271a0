"""ScriptedTransport: answers by a list, for both libraries and both colours."""

from __future__ import annotations

from typing import Any

import httpx
import httpx2
import pytest

from forbear.testing import ScriptedTransport

FAMILIES = [pytest.param(httpx, id="httpx"), pytest.param(httpx2, id="httpx2")]
URL = "http://api.example/"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(module: Any, *steps: Any) -> Any:
    with module.Client(transport=ScriptedTransport(steps)) as client:
        return client.get(URL)


@pytest.mark.parametrize("module", FAMILIES)
@pytest.mark.parametrize(
    ("step", "status", "headers", "body"),
    [
        pytest.param(204, 204, {}, b"", id="status"),
        pytest.param((503, {"Retry-After": "2"}), 503, {"Retry-After": "2"}, b"", id="headers"),
        pytest.param((200, {"X-A": "b"}, b"body"), 200, {"X-A": "b"}, b"body", id="body"),
        pytest.param((429, [("A", "1"), ("A", "2")]), 429, {"A": "1, 2"}, b"", id="header lines"),
        pytest.param(lambda request: 418, 418, {}, b"", id="function"),
        pytest.param(
            lambda request: (200, {}, request.method.encode()),
            200,
            {},
            b"GET",
            id="function of the request",
        ),
    ],
)
def test_answers(module: Any, step: Any, status: int, headers: dict[str, str], body: bytes) -> None:
    """A status; with headers; with a body; or what a function of the request says."""
    response = ask(module, step)
    assert isinstance(response, module.Response)
    assert (response.status_code, response.content) == (status, body)
    for name, value in headers.items():
        assert response.headers[name] == value


@pytest.mark.parametrize("module", FAMILIES)
@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("connect_error", "ConnectError"),
        ("connect_timeout", "ConnectTimeout"),
        ("read_timeout", "ReadTimeout"),
        ("read_error", "ReadError"),
        ("write_timeout", "WriteTimeout"),
        ("write_error", "WriteError"),
        ("pool_timeout", "PoolTimeout"),
        ("proxy_error", "ProxyError"),
        ("disconnect", "RemoteProtocolError"),
    ],
)
def test_errors_are_the_librarys_own(module: Any, step: str, error: str) -> None:
    """Of whichever library the request belongs to."""
    with pytest.raises(getattr(module, error)) as caught:
        ask(module, step)
    assert type(caught.value) is getattr(module, error)
    with pytest.raises(getattr(module, error)):
        ask(module, lambda request: step)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_exception_is_raised_as_it_is(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        ask(httpx, error)
    assert caught.value is error


@pytest.mark.parametrize("module", FAMILIES)
def test_steps_come_in_order_and_the_last_repeats(module: Any) -> None:
    inner = ScriptedTransport([503, "read_error", 200])
    with module.Client(transport=inner) as client:
        assert client.get(URL).status_code == 503
        with pytest.raises(module.ReadError):
            client.get(URL)
        assert [client.get(URL).status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("module", FAMILIES)
def test_requests_and_bodies_are_kept(module: Any) -> None:
    inner = ScriptedTransport(iter([200]))
    with module.Client(transport=inner) as client:
        client.post(URL, content=iter([b"a", b"b"]), headers={"X-A": "1"})
        client.get(URL)
    assert [request.method for request in inner.requests] == ["POST", "GET"]
    assert inner.requests[0].headers["x-a"] == "1"
    assert inner.bodies == [b"ab", b""]
    assert inner.closed


@pytest.mark.anyio
@pytest.mark.parametrize("module", FAMILIES)
async def test_asynchronous_clients(module: Any) -> None:
    async def body() -> Any:
        yield b"a"
        yield b"b"

    inner = ScriptedTransport([(503, {"Retry-After": "2"}), "connect_timeout", 200])
    async with module.AsyncClient(transport=inner) as client:
        response = await client.post(URL, content=body())
        assert (response.status_code, response.headers["retry-after"]) == (503, "2")
        with pytest.raises(module.ConnectTimeout):
            await client.get(URL)
        assert (await client.get(URL)).status_code == 200
    assert inner.bodies == [b"ab", b"", b""]
    assert inner.closed


def test_each_response_is_a_new_one() -> None:
    with httpx.Client(transport=ScriptedTransport([(200, {}, b"x")])) as client:
        assert client.get(URL) is not client.get(URL)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "a script needs at least one step, such as 200"),
        (
            ["timeout"],
            "unknown step 'timeout'; errors are connect_error, connect_timeout, disconnect,",
        ),
    ],
    ids=["none", "unknown"],
)
def test_a_script_that_makes_no_sense_is_refused_when_it_is_written(
    steps: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ScriptedTransport(steps)


def test_repr_is_one_line_of_state() -> None:
    inner = ScriptedTransport([503, 200])
    assert repr(inner) == "<ScriptedTransport 0 of 2 steps>"
    inner.handle_request(httpx.Request("GET", URL))
    assert repr(inner) == "<ScriptedTransport 1 of 2 steps>"
