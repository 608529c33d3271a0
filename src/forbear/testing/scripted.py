"""ScriptedTransport and ScriptedAdapter: what sends below forbear, answering by a list. Floor:
acts.

It builds responses and exceptions of whichever library the request belongs to, so one script serves
both, sync and async. No socket, no sleep.
"""

from __future__ import annotations

import sys
from io import BytesIO
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

__all__ = ["ScriptedAdapter", "ScriptedTransport"]

# What a step may be called, and the exception it raises.
ERRORS = {
    "connect_error": "ConnectError",
    "connect_timeout": "ConnectTimeout",
    "read_timeout": "ReadTimeout",
    "read_error": "ReadError",
    "write_timeout": "WriteTimeout",
    "write_error": "WriteError",
    "pool_timeout": "PoolTimeout",
    "proxy_error": "ProxyError",
    "disconnect": "RemoteProtocolError",
}


class Script:
    """Steps, one for each request; the last one repeats."""

    def __init__(self, steps: Iterable[Any]) -> None:
        self._steps = list(steps)
        if not self._steps:
            raise ValueError("a script needs at least one step, such as 200")
        for step in self._steps:
            if isinstance(step, str) and step not in self.errors:
                raise ValueError(
                    f"unknown step {step!r}; errors are {', '.join(sorted(self.errors))}"
                )
        self.requests: list[Any] = []
        self.bodies: list[bytes] = []
        self.closed = False

    errors: dict[str, str] = ERRORS

    def _next(self, request: Any, body: bytes) -> Any:
        step = self._steps[min(len(self.requests), len(self._steps) - 1)]
        self.requests.append(request)
        self.bodies.append(body)
        return step(request) if callable(step) and not isinstance(step, type) else step

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self.requests)} of {len(self._steps)} steps>"


def spelled_out(step: Any) -> tuple[int, Any, bytes]:
    """A step that is an answer: status, headers, body."""
    parts: Any = (*step, b"") if isinstance(step, tuple) else (step, {}, b"")
    status, headers, content = parts[:3]
    return status, headers, content


class ScriptedTransport(Script):
    """Answers each request with the next step; the last step repeats.

    A step is a status; ``(status, headers)`` or ``(status, headers, body)``; the name of an error
    (connect_error, connect_timeout, read_timeout, read_error, write_timeout, write_error,
    pool_timeout, proxy_error, disconnect); an exception to raise; or a function of the request that
    returns a step.

    Args:
        steps: The answers, in order.

    Attributes:
        requests: The requests as they arrived, in order.
        bodies: Their bodies, as bytes.

    Raises:
        ValueError: There is no step, or one is not understood.
    """

    def handle_request(self, request: Any) -> Any:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: Any) -> Any:
        return self._answer(request, await request.aread())

    def _answer(self, request: Any, body: bytes) -> Any:
        step = self._next(request, body)
        library = sys.modules[type(request).__module__.partition(".")[0]]
        if isinstance(step, str):
            raise getattr(library, ERRORS[step])(f"scripted {step}")
        if isinstance(step, BaseException):
            raise step
        status, headers, content = spelled_out(step)
        return library.Response(status, headers=headers, content=content)

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()


class ScriptedAdapter(Script):
    """The same for requests: ``RetryAdapter(inner=ScriptedAdapter([503, 200]))``.

    Steps as of ScriptedTransport; the exceptions are those of requests, around those of urllib3.

    Args:
        steps: The answers, in order.

    Attributes:
        requests: The prepared requests as they arrived, in order.
        bodies: Their bodies, as bytes.

    Raises:
        ValueError: There is no step, or one is not understood.
    """

    def send(
        self,
        request: Any,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Any:
        """Answer with the next step; arguments as of HTTPAdapter."""
        from requests.adapters import HTTPAdapter
        from urllib3 import HTTPHeaderDict, HTTPResponse

        step = self._next(request, body_of(request.body))
        if isinstance(step, str):
            raise requests_error(step, request)
        if isinstance(step, BaseException):
            raise step
        status, headers, content = spelled_out(step)
        raw = HTTPResponse(
            BytesIO(content),
            headers=HTTPHeaderDict(as_read(headers)),
            status=status,
            preload_content=False,
            request_method=request.method,
        )
        return HTTPAdapter().build_response(request, raw)

    def close(self) -> None:
        self.closed = True


def as_read(headers: Any) -> list[tuple[str, str]]:
    """As http.client gives them: octets are Latin-1."""
    lines = headers.items() if hasattr(headers, "items") else headers
    return [(as_text(name), as_text(value)) for name, value in lines]


def as_text(part: str | bytes) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else part


def body_of(body: Any) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray)):
        return bytes(body)
    return bytes(body.read()) if hasattr(body, "read") else b"".join(body)


def requests_error(step: str, request: Any) -> Exception:
    """What requests raises for it, with the urllib3 error inside."""
    import requests
    from urllib3 import exceptions

    pool: Any = None
    said = f"scripted {step}"
    if step == "connect_timeout":
        inner: Exception = exceptions.ConnectTimeoutError(pool, said)
        return requests.ConnectTimeout(exceptions.MaxRetryError(pool, "", inner), request=request)
    if step == "connect_error":
        inner = exceptions.NewConnectionError(pool, said)
        return requests.ConnectionError(exceptions.MaxRetryError(pool, "", inner), request=request)
    if step == "read_timeout":
        return requests.ReadTimeout(exceptions.ReadTimeoutError(pool, "", said), request=request)
    if step == "pool_timeout":
        return exceptions.EmptyPoolError(pool, said)
    if step == "proxy_error":
        refused = exceptions.ProxyError(said, exceptions.NewConnectionError(pool, said))
        return requests.exceptions.ProxyError(
            exceptions.MaxRetryError(pool, "", refused), request=request
        )
    cause = TimeoutError(said) if step == "write_timeout" else ConnectionResetError(104, said)
    return requests.ConnectionError(
        exceptions.ProtocolError("Connection aborted.", cause), request=request
    )
