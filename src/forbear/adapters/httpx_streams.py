"""Streams of the httpx family: response bodies that forbear reads ahead. Floor: acts.

A small body is read inside the loop, so that a broken one is a failure like any other: only where
nothing is gained by having the beginning early, and where the length is known or the body is one
JSON document. It is read through the library's own stream, and the clock is looked at between
reads: after a quarter of a second the bytes read are handed over with the live stream behind them.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ..sending.errors import let_signals_through
from ..sending.looking import ENDLESS, LATE, WHOLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


__all__ = [
    "UNKNOWN",
    "AsyncPrefetched",
    "Prefetched",
    "aread_ahead",
    "length_ahead",
    "read_ahead",
]

# Longest that a body delays the hand-over of its head: a busy server's pause between the two.
SECONDS = 0.25
KEPT_BYTES = 65_536  # of the answer of a call that is held
FRAMING = (b"content-length", b"transfer-encoding")
UNKNOWN = 2**62
CLOSING = {b"{": b"}", b"[": b"]"}
NEVER = -inf


def length_ahead(port: Any, response: Any) -> int:
    """Return the length of the body, as far as its head tells; else more than is ever read ahead.

    Every call that succeeds at once asks. A server tells it in the same line of one head after the
    other, so that line is looked at first. The body ends where the library says, whatever this is.
    """
    try:
        lines = response.headers._list
    except AttributeError:
        lines = [(name, name.lower(), value) for name, value in response.headers.raw]
    try:
        _, name, value = lines[port.length_line]
    except IndexError:
        name = value = b""
    if name != b"content-length":
        if name not in FRAMING:
            for place, line in enumerate(lines):
                if line[1] in FRAMING:
                    _, name, value = line
                    port.length_line = place
                    break
        if name != b"content-length":
            return UNKNOWN
    try:
        return int(value) if value.isdigit() else UNKNOWN
    except ValueError:
        return UNKNOWN


def kind_of(response: Any) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Is a body of this type one JSON document?"""
    return kind == "application/json" or (
        kind.endswith("+json") and kind != "application/stream+json"
    )


def is_document(port: Any, request: Any, response: Any) -> bool:
    """May a body of unknown length be read ahead?

    Whoever sets no read timeout expects silence, as of a feed of events: its head is not held back.
    """
    timeout = request.extensions.get("timeout")
    has_limit = bool(timeout) and timeout.get("read") is not None
    return has_limit and port.prefetch > 0 and is_json(kind_of(response))


class Ahead:
    """A body that was read before it was handed over, as far as time allowed.

    Attributes:
        stream: The library's own.
        chunks: The part that was read.
        rest: Where the reading goes on; None if the body is whole, or broken.
        error: What broke it.
        until: When the rest is waited for no longer; NEVER: each part is wanted when it comes.
        is_open: The head of the JSON document does not tell its length.
    """

    stream: Any
    chunks: list[bytes]
    rest: Any = None
    error: Exception | None = None
    until: float | None = None
    is_open = False

    def waits(
        self, response: Any, outgoing: Any, left: int, now: float, until: float | None
    ) -> bool:
        """Is the rest of the body waited for before its head is handed over?

        Not if the body is longer than what is read ahead, or ends elsewhere than its length says
        (RFC 9112 section 6.3). Not if what came may be a whole document, of a feed of them. With
        an ``until`` only that counts.
        """
        if until is not None:
            return left > 0 and now < until
        if self.until is None:
            self.until = min(now + SECONDS, inf if outgoing is None else outgoing.deadline_at)
            self.is_open = "content-length" not in response.headers
            kind = "application/json" if self.is_open else kind_of(response)
            if kind.startswith(ENDLESS) or (
                not is_json(kind) and "transfer-encoding" in response.headers
            ):
                self.until = NEVER
        if left < 0 or (self.is_open and self._is_between_documents()):
            self.until = NEVER
        return now < self.until

    def is_whole(self) -> bool:
        return self.rest is None and self.error is None

    def is_late(self) -> bool:
        """Is the body a small one that took too long?"""
        return self.rest is not None and self.until is not None and self.until > NEVER

    def _is_between_documents(self) -> bool:
        first, last = self.chunks[0].lstrip()[:1], self.chunks[-1].rstrip()[-1:]
        return CLOSING.get(first) == last


class Prefetched(Ahead):
    """The body of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks) if self.rest is None and self.error is None else self._go_on()

    def _go_on(self) -> Iterator[bytes]:
        yield from self.chunks
        if self.error is not None:
            raise self.error
        yield from self.rest

    def close(self) -> None:
        self.stream.close()


class AsyncPrefetched(Ahead):
    """The body of an asynchronous response. No generator: trio complains of unfinished ones."""

    _place = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        place = self._place
        if place < len(self.chunks):
            self._place = place + 1
            return self.chunks[place]
        if self.rest is not None:
            return await self.rest.__anext__()  # type: ignore[no-any-return]
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self.stream.aclose()


def read_ahead(
    port: Any, request: Any, response: Any, outgoing: Any, until: float | None = None
) -> Any:
    """Read a small body as far as time allows; return what came of it, None for a larger one.

    Args:
        port: Of the transport.
        request: Whose answer this is.
        response: The answer; what was read is put before the rest of its body.
        outgoing: What was sent in the request's place, if anything was.
        until: If given, up to KEPT_BYTES of any body are read by then, and if that is all, its
            connection is for others.
    """
    if until is not None:
        left = KEPT_BYTES
    else:
        left = length_ahead(port, response)
        if left > port.prefetch or response.is_closed:  # a transport below has read it
            if left != UNKNOWN or response.is_closed or not is_document(port, request, response):
                return None
            left = port.prefetch
    ahead = port.prefetched()
    ahead.stream = stream = response.stream
    ahead.chunks = chunks = []
    try:
        rest = iter(stream)
        for chunk in rest:
            chunks.append(chunk)
            left -= len(chunk)
            if left and not ahead.waits(response, outgoing, left, port.clock.monotonic(), until):
                ahead.rest = rest  # more is to come
                response.stream = ahead
                return LATE
        if until is not None:
            stream.close()
            ahead.stream = port.byte_stream(b"")
    except Exception as error:
        with suppress(Exception):
            stream.close()
        let_signals_through(error)
        ahead.stream = port.byte_stream(b"")  # that one is closed
        ahead.error = error
        response.stream = ahead
        return error
    response.stream = ahead
    return WHOLE


async def aread_ahead(
    port: Any, request: Any, response: Any, outgoing: Any, until: float | None = None
) -> Any:
    """Read a small body as far as time allows; return what came of it, None for a larger one.

    ``until``: as of ``read_ahead``.
    """
    if until is not None:
        left = KEPT_BYTES
    else:
        left = length_ahead(port, response)
        if left > port.prefetch or response.is_closed:  # a transport below has read it
            if left != UNKNOWN or response.is_closed or not is_document(port, request, response):
                return None
            left = port.prefetch
    ahead = port.prefetched()
    ahead.stream = stream = response.stream
    ahead.chunks = chunks = []
    try:
        rest = stream.__aiter__()
        async for chunk in rest:
            chunks.append(chunk)
            left -= len(chunk)
            if left and not ahead.waits(response, outgoing, left, port.clock.monotonic(), until):
                ahead.rest = rest  # more is to come
                response.stream = ahead
                return LATE
        if until is not None:
            await stream.aclose()
            ahead.stream = port.byte_stream(b"")
    except Exception as error:
        with suppress(Exception):
            await stream.aclose()
        let_signals_through(error)
        ahead.stream = port.byte_stream(b"")  # that one is closed
        ahead.error = error
        response.stream = ahead
        return error
    response.stream = ahead
    return WHOLE
