"""ScriptedTransport: an inner transport for httpx and httpx2 that answers by a list. Floor: acts.

It builds responses and exceptions of whichever library the request belongs to, so one script serves
both, sync and async. No socket, no sleep.
"""

from __future__ import annotations

import sys
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

__all__ = ["ScriptedTransport"]

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


class ScriptedTransport:
    """Answers each request with the next step; the last step repeats.

    A step is a status; ``(status, headers)`` or ``(status, headers, body)``; the name of an error
    (connect_error, connect_timeout, read_timeout, read_error, write_timeout, write_error, pool_timeout,
    proxy_error, disconnect); an exception to raise; or a function of the request that returns a step.

    Args:
        steps: The answers, in order.

    Attributes:
        requests: The requests as they arrived, in order.
        bodies: Their bodies, as bytes.

    Raises:
        ValueError: There is no step, or one is not understood.
    """

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

    def handle_request(self, request: Any) -> Any:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: Any) -> Any:
        return self._answer(request, await request.aread())

    def _answer(self, request: Any, body: bytes) -> Any:
        step = self._steps[min(len(self.requests), len(self._steps) - 1)]
        self.requests.append(request)
        self.bodies.append(body)
        if callable(step) and not isinstance(step, type):
            step = step(request)
        library = sys.modules[type(request).__module__.partition(".")[0]]
        if isinstance(step, str):
            raise getattr(library, ERRORS[step])(f"scripted {step}")
        if isinstance(step, BaseException):
            raise step
        status, headers, content = (*step, b"")[:3] if isinstance(step, tuple) else (step, {}, b"")
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

    def __repr__(self) -> str:
        return f"<ScriptedTransport {len(self.requests)} of {len(self._steps)} steps>"
