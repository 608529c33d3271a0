"""Looking, in the httpx family: the copy of an answer for ``retry_if``. Floor: acts.

The caller's response is never touched but for its stream, which holds what was read and the rest.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..sending.looking import WHOLE, BodyNotShown, seconds_to_look, too_late
from .httpx_streams import UNKNOWN, aread_ahead, length_ahead, read_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AsyncPeek", "AsyncShown", "Peek", "Shown"]


class Peeking:
    """The stream under the copy: it reads the caller's when it is read itself.

    Attributes:
        ahead: What came of reading the body, as of ``read_ahead``.
        answer: Of ``retry_if``.
        error: What it raised.
        is_wanted: It looked at a body that could only have been awaited.
        patience: Seconds for which the body is read at most.
    """

    answer: Any = None
    error: Exception | None = None
    is_wanted = False
    patience = inf

    def __init__(
        self, port: Any, request: Any, response: Any, deadline_at: float, ahead: Any
    ) -> None:
        self.port = port
        self.request = request
        self.response = response
        self.deadline_at = deadline_at
        self.ahead = ahead

    def shown(self) -> Any:
        """Make a copy that reads from here."""
        cls = self.port.streams.shown
        copy = object.__new__(cls)
        copy.__dict__ = vars(self.response).copy()  # in half the time of an update
        copy.stream, copy.request = self, self.request
        return copy

    def chunks(self) -> list[bytes] | None:
        """The body, if all of it was read before."""
        stream = self.response.stream
        is_ahead = type(stream) is self.port.prefetched
        return stream.chunks if is_ahead and stream.rest is stream.error is None else None

    def until(self) -> float:
        """Until when it may be read; raises BodyNotShown."""
        response, length = self.response, length_ahead(self.port, self.response)
        told = length if 0 <= length < UNKNOWN else None
        stream = response.stream
        if told is None and type(stream) is self.port.prefetched and stream.is_late():
            raise too_late()  # it has had its time
        kind = str(response.headers.get("content-type", ""))
        seconds = seconds_to_look(self.request.method, response.status_code, kind, told)
        seconds = min(seconds, self.patience)
        until: float = min(self.port.clock.monotonic() + seconds, self.deadline_at)
        return until

    def taken(self) -> list[bytes]:
        """Return the body that was read."""
        read = self.response.stream
        if self.ahead is not WHOLE:
            raise read.error or too_late()
        return read.chunks  # type: ignore[no-any-return]


class Peek(Peeking):
    """The stream of a synchronous copy."""

    def __iter__(self) -> Iterator[bytes]:
        chunks = self.chunks()
        if chunks is None:
            until = self.until()
            self.ahead = read_ahead(self.port, self.request, self.response, None, until)
            chunks = self.taken()
        return iter(chunks)

    def close(self) -> None:
        """Leave the body to its caller."""


class AsyncPeek(Peeking):
    """The stream of an asynchronous copy. No generator: trio complains of unfinished ones."""

    _left: Iterator[bytes] | None = None

    async def read(self) -> list[bytes]:
        chunks = self.chunks()
        if chunks is None:
            until = self.until()
            self.ahead = await aread_ahead(self.port, self.request, self.response, None, until)
            chunks = self.taken()
        return chunks

    async def decoded(self) -> bytes:
        await self.read()
        return self.shown().read()  # type: ignore[no-any-return]

    def __aiter__(self) -> AsyncPeek:
        return self

    async def __anext__(self) -> bytes:
        if self._left is None:
            self._left = iter(await self.read())
        for chunk in self._left:
            return chunk
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Leave the body to its caller."""


class Shown:
    """The part of a synchronous copy that is not the library's."""

    read: Any

    @property
    def content(self) -> bytes:
        return self.read()  # type: ignore[no-any-return]


class AsyncShown:
    """The part of an asynchronous copy that is not the library's."""

    stream: Any
    is_stream_consumed: bool

    def read(self) -> bytes:
        if not self.is_stream_consumed:
            peek = self.stream
            chunks = peek.chunks()
            if chunks is None:
                peek.is_wanted = True
                raise BodyNotShown("it has not come yet")
            self.stream = peek.port.byte_stream(b"".join(chunks))
        return super().read()  # type: ignore[misc, no-any-return]

    content = property(read)
