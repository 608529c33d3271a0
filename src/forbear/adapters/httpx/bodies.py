"""Bodies of responses, in the httpx family: what forbear reads of them, puts back, and resumes.

A small body is read inside the loop, so that a broken one is a failure like any other. That is done
only where the caller gains nothing by having the beginning early, and where the length is known or
the body is one JSON document. What came with its head cannot break, so it is left where it is. The
rest is read through the library's own stream, as it arrives (connections.py): after a quarter of a
second the bytes read are handed over with the live stream behind them. A failed response is
drained, and that of a held call kept, by the same reading. ``retry_if`` is given a copy of the
response. Of the caller's response only the stream is replaced, by one that holds what was read and
the rest.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ...core.call import SENT, SETTING
from ...engine.frames import let_signals_through
from ...engine.reading import ENDLESS, LATE, WHOLE, PrefetchResult, aread_pieces, read_pieces
from .connections import (
    UNKNOWN,
    Arriving,
    AsyncArriving,
    arrived,
    is_bodiless,
    is_empty_stream,
    own_timeout,
)
from .errors import own_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from httpx import Request, Response

    from .types import HttpxPort, Sent

    Reader = TypeVar("Reader", Arriving, AsyncArriving)

# Longest that a body delays the hand-over of its head: a busy server's pause between the two.
SECONDS = 0.25
KEPT_BYTES = 65_536  # of the response of a held call
LENGTH = b"content-length"
FRAMING = (LENGTH, b"transfer-encoding")
EMPTY = -1  # no number of bytes
CLOSING = {b"{": b"}", b"[": b"]"}
NEVER = -inf


def length_to_prefetch(port: HttpxPort, response: Response) -> int:
    """Return the length that the head declares; if it declares none, more than is ever prefetched.

    Where the body really ends, the library decides.
    """
    try:
        _, name, value = response.headers._list[port.length_line]
    except (AttributeError, IndexError):
        name = value = b""
    if name not in FRAMING:
        lines = response.headers.raw
        places = [i for i, line in enumerate(lines) if line[0].lower() in FRAMING]
        if not places:
            return UNKNOWN
        port.length_line = places[0]
        name, value = lines[places[0]]
    try:
        return int(value) if name.lower() == LENGTH and value.isdigit() else UNKNOWN
    except ValueError:  # thousands of digits
        return UNKNOWN


def has_arrived(port: HttpxPort, response: Response) -> bool:
    """Has all of a body come with its head? Then it cannot break, and it stays where it is.

    Every call that succeeds at once asks this. A server declares the length in the same line of
    each head, so only that line is read; where it is another one, ``prefetch_body`` looks closer.
    """
    try:
        _, name, value = response.headers._list[port.length_line]
        if name != LENGTH:
            return False
        state = response.stream._httpcore_stream._stream._connection._h11_state  # type: ignore
        # Its public view is a copy. An empty body may be a stream of events that ended too early.
        return len(state._receive_buffer._data) == (int(value) or EMPTY)
    except (AttributeError, IndexError, ValueError):
        return False


def kind_of(response: Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Is a body of this type one JSON document?"""
    return kind == "application/json" or (
        kind.endswith("+json") and kind != "application/stream+json"
    )


class PrefetchedBody:
    """A body that was read before it was handed over, as far as time allowed.

    Attributes:
        stream: The library's own.
        chunks: The part that was read.
        rest: Where reading continues; None if the body is whole, or broken.
        error: What broke it.
        wire: The network stream, if it is read with other timeouts than the attempt's.
        until: When to stop waiting for the rest; NEVER: the caller wants each part when it comes.
    """

    _forbear_sends = True

    stream: Any
    chunks: Sequence[bytes] = ()
    rest: Any = None
    error: Exception | None = None
    wire: object = None
    until: float = NEVER
    _ends_at: float | None = None  # when to stop, where only the time and the bytes count
    _is_open = False  # the head of the JSON document does not declare its length

    def begin(
        self,
        reader: type[Reader],
        port: HttpxPort,
        request: Request,
        response: Response,
        outgoing: Sent,
        length: int,
        seconds: float | None,
    ) -> Reader:
        """Begin to wait for what has not arrived yet; return the body as it arrives.

        With ``seconds`` only the time and the number of bytes count.
        """
        self._now: Callable[[], float] = port.clock.monotonic
        now = self._now()
        if seconds is not None:
            self._most, self._ends_at = KEPT_BYTES, now + seconds
        else:
            seconds, self._most = SECONDS, min(length, port.prefetch)
            self._is_open = "content-length" not in response.headers
            kind = "application/json" if self._is_open else kind_of(response)
            is_chunked = not is_json(kind) and "transfer-encoding" in response.headers
            if not is_chunked and not kind.startswith(ENDLESS):
                self.until = min(now + SECONDS, inf if outgoing is None else outgoing.deadline_at)
        own = own_timeout(request if outgoing is None else outgoing.request)
        found = reader(request, response, length, seconds, own)
        self.chunks = found.pieces
        return found

    def wants_more(self, received: int) -> bool:
        """Is the rest of the body waited for before its head is handed over?

        Not if the body is longer than the prefetch, or ends elsewhere than its length says (RFC
        9112 section 6.3). Not if what has arrived may be one whole document of a feed of them.
        """
        left = self._most - received
        if left == 0:  # its end is there too, without a wait
            return True
        if self._ends_at is not None:
            return left > 0 and self._now() < self._ends_at
        if left < 0 or (self._is_open and self._is_between_documents()):
            self.until = NEVER
        return self._now() < self.until

    def is_whole(self) -> bool:
        return self.rest is None and self.error is None

    def is_late(self) -> bool:
        """Is the body a small one that took too long?"""
        return self.rest is not None and self.until > NEVER

    def _is_between_documents(self) -> bool:
        first, last = self.chunks[0].lstrip()[:1], self.chunks[-1].rstrip()[-1:]
        return CLOSING.get(first) == last

    def put_back(self, response: Any, rest: Any, outgoing: Sent) -> Literal["late"]:
        """Give the response what was read, in front of the rest that is still to come."""
        self.rest, response.stream = rest, self
        wire = response.extensions.get("network_stream")
        timeouts = None if outgoing is None else outgoing.timeouts
        is_shared = response.extensions.get("http_version") == b"HTTP/2"
        if timeouts is not None and hasattr(wire, "__dict__") and not is_shared:
            # httpcore has asked for the read timeout when the body began, and keeps that of the
            # attempt for all of it. The caller's own is in force after the hand-over.
            read = wire.read
            wire.read = lambda most, timeout=None: read(most, timeouts.get("read"))
            self.wire = wire
        return LATE

    def leave(self) -> None:
        """Let the connection be read as before, by the next request."""
        if self.wire is not None:
            vars(self.wire).pop("read", None)
            self.wire = None

    def break_off(self, port: HttpxPort, response: Any, error: Exception) -> Exception:
        """Give the response what was read, in front of the error that broke the body."""
        let_signals_through(error)
        self.stream = port.byte_stream(b"")  # its own is closed
        self.rest, self.error, response.stream = None, own_error(error, port.library.module), self
        return self.error


class Prefetched(PrefetchedBody):
    """The body of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks) if self.rest is None and self.error is None else self._replay()

    def _replay(self) -> Iterator[bytes]:
        yield from self.chunks
        if self.error is not None:
            raise self.error
        yield from self.rest

    def close(self) -> None:
        self.leave()
        self.stream.close()


class AsyncPrefetched(PrefetchedBody):
    """The body of an asynchronous response. No generator, since trio warns of unfinished ones."""

    _index = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        index = self._index
        if index < len(self.chunks):
            self._index = index + 1
            return self.chunks[index]
        if self.rest is not None:
            return await self.rest.__anext__()  # type: ignore[no-any-return]
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.leave()
        await self.stream.aclose()
        if self.rest is not None and arrived(self.stream) >= 0:
            await self._finish(self.rest)

    async def _finish(self, rest: AsyncIterator[bytes]) -> None:
        """Let the library's generators end by reading on, since trio warns of unfinished ones.

        Only over HTTP/1: a body whose generators have not ended closed its connection there, so
        reading on is an error at once. Over HTTP/2 it would wait for the other streams' parts.
        """
        room = KEPT_BYTES  # what had arrived is still there to be read
        with suppress(Exception):
            async for chunk in rest:
                room -= len(chunk)
                if room < 0:
                    break


def is_prefetched(
    port: HttpxPort, request: Request, response: Response, length: int, seconds: float | None
) -> bool:
    """Is a body prefetched although it is not a small one of known length?

    One of unknown length is if it is one document. A caller without a read timeout expects
    silences, as in a feed of events, so it must get the head at once.
    """
    if seconds is not None:
        return not KEPT_BYTES < length < UNKNOWN or is_bodiless(request, response)
    if length != UNKNOWN or response.is_closed:  # closed: a transport below has read it
        return False
    has_limit = own_timeout(request) is not None
    return has_limit and port.prefetch > 0 and is_json(kind_of(response))


def prefetch_body(
    port: HttpxPort, request: Request, response: Any, outgoing: Sent, seconds: float | None = None
) -> PrefetchResult:
    """Read a small body as far as time allows; return how that ended, None for a larger one.

    Args:
        port: Of the transport.
        request: As the caller made it, or as it was sent.
        response: The response; what was read is put before the rest of its body.
        outgoing: What was sent in the request's place, if anything was.
        seconds: If given, up to KEPT_BYTES of any body are read in that time, and if that is all,
            its connection is released. Else a body that has come with its head stays in the
            library's buffer: it cannot break, and whoever leaves it unread gets what the bare
            client does.
    """
    length = length_to_prefetch(port, response)
    if port.awaits_events and seconds is None:
        from .streams import await_first_event, begin_stream  # loaded with the option

        start = begin_stream(port, request, response, outgoing)
        if start is not None:
            return await_first_event(port, request, response, outgoing, start, length)
    if (seconds is not None or length > port.prefetch or response.is_closed) and not is_prefetched(
        port, request, response, length, seconds
    ):
        return None
    stream = response.stream
    is_here = arrived(stream) == length
    if is_here and seconds is None:
        if is_empty_stream(response, length):
            return None
        if response.status_code < 300:
            response.extensions[SETTING] = SENT
        return WHOLE
    body: PrefetchedBody = port.prefetched()
    body.stream = stream
    try:
        if is_here:
            body.chunks = list(stream)
        else:
            reader = body.begin(Arriving, port, request, response, outgoing, length, seconds)
            try:
                ending = read_pieces(reader, body.wants_more)
            finally:
                reader.leave()
            if ending is LATE:
                return body.put_back(response, reader.rest, outgoing)
        if seconds is not None:
            stream.close()
            body.stream = port.byte_stream(b"")
    except Exception as error:
        with suppress(Exception):
            stream.close()
        return body.break_off(port, response, error)
    response.stream = body
    return WHOLE


async def aprefetch_body(
    port: HttpxPort, request: Request, response: Any, outgoing: Sent, seconds: float | None = None
) -> PrefetchResult:
    """Do as ``prefetch_body``; a change there belongs here too."""
    length = length_to_prefetch(port, response)
    if port.awaits_events and seconds is None:
        from .streams import aawait_first_event, begin_stream

        start = begin_stream(port, request, response, outgoing)
        if start is not None:
            return await aawait_first_event(port, request, response, outgoing, start, length)
    if (seconds is not None or length > port.prefetch or response.is_closed) and not is_prefetched(
        port, request, response, length, seconds
    ):
        return None
    stream = response.stream
    is_here = arrived(stream) == length
    if is_here and seconds is None:
        if is_empty_stream(response, length):
            return None
        if response.status_code < 300:
            response.extensions[SETTING] = SENT
        return WHOLE
    body: PrefetchedBody = port.prefetched()
    body.stream = stream
    try:
        if is_here:
            body.chunks = [chunk async for chunk in stream]
        else:
            reader = body.begin(AsyncArriving, port, request, response, outgoing, length, seconds)
            try:
                ending = await aread_pieces(reader, body.wants_more)
            finally:
                reader.leave()
            if ending is LATE:
                return body.put_back(response, reader.rest, outgoing)
        if seconds is not None:
            await stream.aclose()
            body.stream = port.byte_stream(b"")
    except Exception as error:
        with suppress(Exception):
            await stream.aclose()
        return body.break_off(port, response, error)
    response.stream = body
    return WHOLE
