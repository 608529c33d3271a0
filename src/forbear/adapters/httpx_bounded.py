"""Bounded: bodies of the httpx family under a deadline, after the hand-over. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from ..sending.backstop import BACKSTOP
from .httpx_request import LEAST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from .httpx_request import Timeouts

__all__ = ["AsyncBounded", "Bounded", "Hurried"]


class Bounding:
    """A response body under ``forbear.deadline``: its timeouts become DeadlineExceeded."""

    def __init__(self, stream: Any, timeouts: Timeouts, exceeded: Callable[..., Exception]) -> None:
        self._stream = stream
        self._timeouts = timeouts
        self._exceeded = exceeded

    def _fail(self, error: Exception) -> NoReturn:
        if "Timeout" in type(error).__name__ and self._timeouts.is_over():
            raise self._exceeded(type(error).__name__) from error
        raise error


class Hurried:
    """The body of a synchronous response each of whose reads ends by the deadline.

    httpcore asks for the read timeout once, when the body begins: a peer that stalls later would be
    waited for as long again. So the ``read`` of the connection looks at the time left, until the
    body is closed. Over HTTP/2 httpcore asks before each read.
    """

    def __init__(self, response: Any, timeouts: Timeouts) -> None:
        self._stream = response.stream
        self._connection = connection = response.extensions["network_stream"]
        read = connection.read

        def read_in_time(max_bytes: int, timeout: float | None = None) -> Any:
            left = timeouts.left()
            if timeout is None or left < timeout:
                timeout = max(left, LEAST) if left < inf else None
            return read(max_bytes, timeout)

        connection.read = read_in_time

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        vars(self._connection).pop("read", None)
        self._stream.close()


class Bounded(Bounding):
    """The body of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._stream:
                if self._timeouts.left() <= 0:
                    self._stream.close()
                    raise self._exceeded()
                yield chunk
        except Exception as error:
            self._fail(error)

    def close(self) -> None:
        self._stream.close()


class AsyncBounded(Bounding):
    """The body of an asynchronous response."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        import anyio

        chunks = self._stream.__aiter__()
        while True:
            chunk: bytes | None = None
            with anyio.CancelScope(
                deadline=anyio.current_time() + self._timeouts.left() + BACKSTOP
            ):
                try:
                    chunk = await chunks.__anext__()
                except StopAsyncIteration:
                    return
                except Exception as error:
                    self._fail(error)
            if chunk is None:  # the scope was cancelled, and kept that to itself
                raise self._exceeded()
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
