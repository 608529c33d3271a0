"""Inspection in the httpx family: the copy of a response, and the stream under it.

Loaded with the option or the policy that asks for it.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from ...addons.inspection import (
    MOST_BYTES,
    BodyNotShown,
    check_decoded,
    seconds_to_look,
    too_late,
)
from ...engine.reading import LATE, WHOLE, aread_pieces, read_pieces
from .bodies import UNKNOWN, aread_whole, length_to_prefetch, read_whole
from .connections import Arriving, AsyncArriving
from .reading import AsyncReading, Reading, break_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from httpx import Request

    from ...engine.reading import PrefetchResult
    from .types import HttpxPort


class InspectedBody:
    """The stream under the copy: it reads the caller's stream when it is read itself.

    Attributes:
        prefetch_result: How the prefetch ended, as of ``read_whole``.
        answer: What ``retry_if`` returned.
        error: What it raised.
        is_wanted: It inspected a body that could only have been awaited.
        patience: Seconds for which the body is read at most.
    """

    answer: Any = None
    error: Exception | None = None
    is_wanted = False
    patience = inf

    def __init__(
        self, port: HttpxPort, request: Request, response: Any, deadline_at: float, prefetched: Any
    ) -> None:
        self.port = port
        self.request = request
        self.response = response
        self.deadline_at = deadline_at
        self.prefetch_result: PrefetchResult | Literal["broken"] = prefetched

    def shown(self) -> Any:
        """Make a copy that reads from here."""
        cls = self.port.streams.shown
        copy = object.__new__(cls)
        copy.__dict__ = vars(self.response).copy()  # in half the time of an update
        copy.stream, copy.request = self, self.request
        return copy

    def chunks(self) -> Sequence[bytes] | None:
        """The body, if all of it is there; raises BodyNotShown."""
        stream = self.response.stream
        if type(stream) is not self.port.byte_stream:
            return None
        chunks = list(stream)
        coding = self.response.headers.get("content-encoding")
        if coding is not None:
            check_decoded(coding, b"".join(chunks))
        return chunks

    def length_and_seconds(self) -> tuple[int, float]:
        """Raw bytes of the body, and for how long it may be read; raises BodyNotShown."""
        response, length = self.response, length_to_prefetch(self.port, self.response)
        known_length = length if 0 <= length < UNKNOWN else None
        if self.port.was_begun(response.stream):
            raise too_late()  # its quarter of a second is over
        kind = str(response.headers.get("content-type", ""))
        seconds = seconds_to_look(self.request.method, response.status_code, kind, known_length)
        seconds = min(seconds, self.patience)
        if self.deadline_at != inf:
            seconds = min(seconds, self.deadline_at - self.port.clock.monotonic())
        return length, seconds

    def put_back(self, reading: Reading | AsyncReading) -> Literal["late"]:
        """Put what was read in front of what is still to come."""
        response = self.response
        response.stream = self.port.streams.put_back(reading.pieces, response.stream, reading.rest)
        return LATE

    def taken(self, prefetch_result: PrefetchResult) -> Sequence[bytes]:
        """Return the body that was read."""
        self.prefetch_result = prefetch_result
        if isinstance(prefetch_result, Exception):
            raise prefetch_result
        if prefetch_result is not WHOLE:
            raise too_late()
        return self.chunks() or []


def is_short(received: int) -> bool:
    return received <= MOST_BYTES


class Inspection(InspectedBody):
    """The stream of a synchronous copy."""

    def __iter__(self) -> Iterator[bytes]:
        chunks = self.chunks()
        return iter(self.taken(self._read()) if chunks is None else chunks)

    def _read(self) -> PrefetchResult:
        length, seconds = self.length_and_seconds()
        if seconds == inf:
            return read_whole(self.port, self.response)
        reading = Arriving(self.request, self.response, length, seconds)
        try:
            ending = read_pieces(reading, is_short)
        except Exception as error:
            with suppress(Exception):
                self.response.stream.close()
            return break_off(self.port, self.response, reading.pieces, error)
        finally:
            reading.leave()
        if ending is LATE:
            return self.put_back(reading)
        self.response.stream.close()
        self.response.stream = self.port.byte_stream(b"".join(reading.pieces))
        return WHOLE

    def close(self) -> None:
        """Leave the body to its caller."""


class AsyncInspection(InspectedBody):
    """The stream of an asynchronous copy. No generator, since trio warns of unfinished ones."""

    _left: Iterator[bytes] | None = None

    async def read(self) -> Sequence[bytes]:
        chunks = self.chunks()
        return self.taken(await self._read()) if chunks is None else chunks

    async def _read(self) -> PrefetchResult:
        length, seconds = self.length_and_seconds()
        if seconds == inf:
            return await aread_whole(self.port, self.response)
        reading = AsyncArriving(self.request, self.response, length, seconds)
        try:
            ending = await aread_pieces(reading, is_short)
        except Exception as error:
            with suppress(Exception):
                await self.response.stream.aclose()
            return break_off(self.port, self.response, reading.pieces, error)
        finally:
            reading.leave()
        if ending is LATE:
            return self.put_back(reading)
        await self.response.stream.aclose()
        self.response.stream = self.port.byte_stream(b"".join(reading.pieces))
        return WHOLE

    async def decoded(self) -> bytes:
        await self.read()
        return self.shown().read()  # type: ignore[no-any-return]

    def __aiter__(self) -> AsyncInspection:
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

    read: Callable[[], bytes]

    @property
    def content(self) -> bytes:
        return self.read()


class AsyncShown:
    """The part of an asynchronous copy that is not the library's."""

    stream: Any
    is_stream_consumed: bool

    def read(self) -> bytes:
        if not self.is_stream_consumed:
            inspection = self.stream
            chunks = inspection.chunks()
            if chunks is None:
                inspection.is_wanted = True
                raise BodyNotShown("it has not arrived yet")
            self.stream = inspection.port.byte_stream(b"".join(chunks))
        return super().read()  # type: ignore[misc, no-any-return]

    content = property(read)
