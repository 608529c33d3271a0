"""ScriptedTransport, ScriptedAdapter: they respond from a list, in place of a library.

They build responses and exceptions of the library that the request belongs to, so that one script
serves httpx and httpx2, sync and async. No socket, no sleep.
"""

from __future__ import annotations

import sys
import threading
from io import BytesIO
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    AnyTransport = Any  # whatever a client or a retrying transport takes
else:
    AnyTransport = object

# Names of steps that raise, and the exception of each.
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
    """Steps, one for each request; the last one repeats. Thread-safe."""

    def __init__(self, steps: Iterable[Any]) -> None:
        self._steps = list(steps)
        if not self._steps:
            raise ValueError("a script needs at least one step, such as 200")
        for step in self._steps:
            if isinstance(step, str) and step not in ERRORS:
                raise ValueError(f"unknown step {step!r}; errors are {', '.join(sorted(ERRORS))}")
        self.requests: list[Any] = []
        self.bodies: list[bytes] = []
        self.closed = False
        self._lock = threading.Lock()

    def _next(self, request: Any, body: bytes) -> tuple[int, Any, bytes] | str:
        """Return status, headers and content of the next response, or the name of an error."""
        with self._lock:
            step = self._steps[min(len(self.requests), len(self._steps) - 1)]
            self.requests.append(request)
            self.bodies.append(body)
        if callable(step) and not isinstance(step, type):
            step = step(request)
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, str):
            return step
        parts: Any = (*step, b"") if isinstance(step, tuple) else (step, {}, b"")
        status, headers, content = parts[:3]
        return status, headers, content

    def close(self) -> None:
        self.closed = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self.requests)} of {len(self._steps)} steps>"


class ScriptedTransport(Script, AnyTransport):  # type: ignore[misc]
    """Responds to each request with the next step; the last step repeats.

    A step is a status; ``(status, headers)`` or ``(status, headers, body)``; the name of an error
    (connect_error, connect_timeout, read_timeout, read_error, write_timeout, write_error,
    pool_timeout, proxy_error, disconnect); an exception to raise; or a function of the request that
    returns a step.

    Args:
        steps: The responses, in order.

    Attributes:
        requests: The requests as they arrived, in order.
        bodies: Their bodies, as bytes.

    Raises:
        ValueError: There is no step, or one is not understood.
    """

    def handle_request(self, request: Any) -> Any:
        return self._respond(request, request.read())

    async def handle_async_request(self, request: Any) -> Any:
        return self._respond(request, await request.aread())

    def _respond(self, request: Any, body: bytes) -> Any:
        step = self._next(request, body)
        library = sys.modules[type(request).__module__.partition(".")[0]]
        if isinstance(step, str):
            raise getattr(library, ERRORS[step])(f"scripted {step}")
        status, headers, content = step
        return library.Response(status, headers=headers, content=content)

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

    Steps and attributes are those of ScriptedTransport. The errors are those that requests raises,
    with urllib3's inside.

    Args:
        steps: The responses, in order.
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
        """Respond with the next step; arguments as of HTTPAdapter."""
        from requests.adapters import HTTPAdapter
        from urllib3 import HTTPHeaderDict, HTTPResponse

        step = self._next(request, body_of(request.body))
        if isinstance(step, str):
            raise requests_error(step, request)
        status, headers, content = step
        lines = HTTPHeaderDict()
        for name, value in headers.items() if hasattr(headers, "items") else headers:
            lines.add(as_read(name), as_read(value))
        body, method = BytesIO(content), request.method
        raw = HTTPResponse(body, lines, status, preload_content=False, request_method=method)
        return HTTPAdapter().build_response(request, raw)


def as_read(part: str | bytes) -> str:
    """Return a part of a header as http.client reads it: bytes are Latin-1."""
    return part.decode("latin-1") if isinstance(part, bytes) else part


def body_of(body: Any) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray)):
        return bytes(body)
    return b"".join(body)  # a file is a series of lines


def requests_error(step: str, request: Any) -> Exception:
    """Return what requests raises for a scripted error, with the error of urllib3 inside."""
    import requests
    from urllib3 import exceptions

    pool: Any = None
    message = f"scripted {step}"

    def unsent(error: type[Any], inner: Exception) -> Exception:
        made: Exception = error(exceptions.MaxRetryError(pool, "", inner), request=request)
        return made

    if step == "connect_timeout":
        return unsent(requests.ConnectTimeout, exceptions.ConnectTimeoutError(pool, message))
    if step == "connect_error":
        return unsent(requests.ConnectionError, exceptions.NewConnectionError(pool, message))
    if step == "proxy_error":
        inner = exceptions.ProxyError(message, exceptions.NewConnectionError(pool, message))
        return unsent(requests.exceptions.ProxyError, inner)
    if step == "pool_timeout":
        return exceptions.EmptyPoolError(pool, message)
    if step == "read_timeout":
        return requests.ReadTimeout(exceptions.ReadTimeoutError(pool, "", message), request=request)
    cause = TimeoutError(message) if step == "write_timeout" else ConnectionResetError(104, message)
    broken = exceptions.ProtocolError("Connection aborted.", cause)
    return requests.ConnectionError(broken, request=request)
