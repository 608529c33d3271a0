"""Laws of bodies: whatever the chunks, each attempt sends the same bytes, or does not complete."""

from __future__ import annotations

import io
from typing import Any

import anyio
import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.testing import FakeClock

CHUNKS = st.lists(st.binary(max_size=12), max_size=8)
# How many chunks an attempt reads before it fails; None: all of them, and the failure is a 503.
READS = st.lists(st.none() | st.integers(0, 8), max_size=3)


class Cutting:
    """An inner transport whose first attempts end before, within or after the body.

    ``received`` holds, for each attempt, what was read and whether the body was complete.
    """

    def __init__(self, reads: list[int | None]) -> None:
        self._reads = reads
        self.received: list[tuple[bytes, bool]] = []

    def handle_request(self, request: Any) -> Any:
        limit, read = self._next(), []
        chunks = iter(request.stream)
        try:
            while limit is None or len(read) < limit:
                read.append(next(chunks))
        except StopIteration:
            return self._ended(read, complete=True)
        except BaseException:
            self.received.append((b"".join(read), False))
            raise
        return self._ended(read, complete=False)

    async def handle_async_request(self, request: Any) -> Any:
        limit, read = self._next(), []
        chunks = aiter(request.stream)
        try:
            while limit is None or len(read) < limit:
                read.append(await anext(chunks))
        except StopAsyncIteration:
            return self._ended(read, complete=True)
        except BaseException:
            self.received.append((b"".join(read), False))
            raise
        return self._ended(read, complete=False)

    def _next(self) -> int | None:
        attempt = len(self.received)
        return self._reads[attempt] if attempt < len(self._reads) else None

    def _ended(self, read: list[bytes], *, complete: bool) -> Any:
        self.received.append((b"".join(read), complete))
        if not complete:
            raise httpx.ReadError("the connection was reset")
        return httpx.Response(503 if len(self.received) <= len(self._reads) else 200)

    def close(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open."""


def put(
    is_async: bool, reads: list[int | None], content: Any, **options: Any
) -> tuple[Any, Cutting]:
    """Send; return the response, None after the library's error, and the transport that was sent
    to.
    """
    inner = Cutting(reads)
    options = {"clock": FakeClock(), "random": lambda: 0.5, "budget": None, **options}
    request = httpx.Request("PUT", "http://server/", content=content)
    try:
        if not is_async:
            return RetryTransport(inner, **options).handle_request(request), inner
        transport = AsyncRetryTransport(inner, **options)
        return anyio.run(transport.handle_async_request, request), inner
    except httpx.TransportError:
        return None, inner


class Anew:
    def __init__(self, chunks):
        self._chunks = chunks

    def __iter__(self):
        yield from self._chunks


class AnewAsync:
    def __init__(self, chunks):
        self._chunks = chunks

    async def __aiter__(self):
        for chunk in self._chunks:
            yield chunk


class Rechunked:
    """The same bytes each time, cut differently."""

    def __init__(self, chunks):
        self._bytes = b"".join(chunks)
        self._passes = 0

    def __iter__(self):
        self._passes += 1
        for at in range(0, len(self._bytes), self._passes):
            yield self._bytes[at : at + self._passes]


class Drains:
    """Looks re-iterable; every pass goes on in one source."""

    def __init__(self, chunks):
        self._source = iter(chunks)

    def __iter__(self):
        yield from self._source


class DrainsAsync:
    def __init__(self, chunks):
        self._source = iter(chunks)

    async def __aiter__(self):
        for chunk in self._source:
            yield chunk


def generator(chunks):
    yield from chunks


async def agenerator(chunks):
    for chunk in chunks:
        yield chunk


# Asynchronous or not, and how the body is made of its chunks.
REPLAYABLE = [
    (False, b"".join),
    (False, list),
    (False, tuple),
    (False, Anew),
    (False, Rechunked),
    (False, lambda chunks: io.BytesIO(b"".join(chunks))),
    (False, lambda chunks: io.BufferedReader(io.BytesIO(b"".join(chunks)))),
    (True, AnewAsync),
]
GENERATED = [(False, generator), (True, agenerator)]
ONE_SHOT = [*GENERATED, (False, iter), (False, Drains), (True, DrainsAsync)]


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(REPLAYABLE), chunks=CHUNKS, reads=READS)
def test_a_replayable_body_gives_the_same_bytes_on_each_attempt(kind, chunks, reads):
    """However it is cut into chunks, and wherever earlier attempts broke off."""
    is_async, make = kind
    response, inner = put(is_async, reads, make(chunks))
    whole = b"".join(chunks)
    assert response.status_code == 200
    assert len(inner.received) == len(reads) + 1
    assert inner.received[-1] == (whole, True)
    for got, complete in inner.received:
        assert got == whole if complete else whole.startswith(got)


# A source whose passes overlap byte for byte cannot be told from one that begins anew: number the
# chunks.
NUMBERED = st.integers(0, 8).map(lambda count: [b"%d," % number for number in range(count)])


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(ONE_SHOT), chunks=NUMBERED, reads=READS)
def test_a_one_shot_body_is_seen_whole_or_not_complete(kind, chunks, reads):
    """Nothing that is not the whole body ever has an end, so no server takes it for one."""
    is_async, make = kind
    _, inner = put(is_async, reads, make(chunks))
    assert all(got == b"".join(chunks) for got, complete in inner.received if complete)


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(GENERATED), chunks=CHUNKS, reads=READS, room=st.integers(1, 100))
def test_a_buffered_body_is_sent_again_whole_as_long_as_it_fits(kind, chunks, reads, room):
    """Within the buffer every attempt is made, and the last one is whole; beyond: no half body."""
    is_async, make = kind
    whole = b"".join(chunks)
    response, inner = put(is_async, reads, make(chunks), body_buffer=room)
    assert all(got == whole for got, complete in inner.received if complete)
    if len(whole) <= room:
        assert response.status_code == 200
        assert inner.received[-1] == (whole, True)
