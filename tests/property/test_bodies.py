"""Laws of bodies: whatever the chunks, each attempt sends the same bytes, or does not complete."""

from __future__ import annotations

import io
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forbear.httpx
import forbear.httpx2
from forbear.testing import FakeClock

# An abandoned async iteration, which is what is tested, is warned about by trio; in the bare
# library too.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
LIBRARIES = {"httpx": (httpx, forbear.httpx), "httpx2": (httpx2, forbear.httpx2)}
CHUNKS = st.lists(st.binary(max_size=12), max_size=8)
# How many chunks an attempt reads before it fails; None: all of them, and the failure is a 503.
READS = st.lists(st.none() | st.integers(0, 8), max_size=3)


class Cutting:
    """An inner transport whose first attempts end before, within or after the body, as the wire
    does.

    ``received`` holds, for each attempt, what was read and whether the body was complete.
    """

    def __init__(self, library: Any, reads: list[int | None]) -> None:
        self._library = library
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
            raise self._library.ReadError("the connection was reset")
        return self._library.Response(503 if len(self.received) <= len(self._reads) else 200)

    def close(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open."""


def put(
    name: str, backend: str | None, reads: list[int | None], content: Any, **options: Any
) -> tuple[Any, Cutting]:
    """Send; return the response, or None where the library's error came, and what the server
    saw.
    """
    library, ours = LIBRARIES[name]
    inner = Cutting(library, reads)
    options = {"clock": FakeClock(), "random": lambda: 0.5, "budget": None, **options}
    request = library.Request("PUT", "http://server/", content=content)
    try:
        if backend is None:
            return ours.RetryTransport(inner, **options).handle_request(request), inner
        transport = ours.AsyncRetryTransport(inner, **options)
        return anyio.run(transport.handle_async_request, request, backend=backend), inner
    except library.TransportError:
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


REPLAYABLE = {
    "bytes": (None, b"".join),
    "list": (None, list),
    "tuple": (None, tuple),
    "class": (None, Anew),
    "rechunked": (None, Rechunked),
    "BytesIO": (None, lambda chunks: io.BytesIO(b"".join(chunks))),
    "buffered reader": (None, lambda chunks: io.BufferedReader(io.BytesIO(b"".join(chunks)))),
    "async class": ("asyncio", AnewAsync),
    "async class on trio": ("trio", AnewAsync),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", REPLAYABLE)
@settings(max_examples=40, deadline=None)
@given(chunks=CHUNKS, reads=READS)
def test_a_replayable_body_gives_the_same_bytes_on_each_attempt(library, kind, chunks, reads):
    """However it is cut into chunks, and wherever earlier attempts broke off."""
    backend, make = REPLAYABLE[kind]
    response, inner = put(library, backend, reads, make(chunks))
    whole = b"".join(chunks)
    assert response.status_code == 200
    assert len(inner.received) == len(reads) + 1
    assert inner.received[-1] == (whole, True)
    for got, complete in inner.received:
        assert got == whole if complete else whole.startswith(got)


ONE_SHOT = {
    "generator": (None, generator),
    "iterator": (None, iter),
    "drained class": (None, Drains),
    "async generator": ("asyncio", agenerator),
    "async generator on trio": ("trio", agenerator),
    "drained async class": ("asyncio", DrainsAsync),
}
# A source whose passes overlap byte for byte cannot be told from one that begins anew: number the
# chunks.
NUMBERED = st.integers(0, 8).map(lambda count: [b"%d," % number for number in range(count)])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ONE_SHOT)
@settings(max_examples=60, deadline=None)
@given(chunks=NUMBERED, reads=READS)
def test_a_one_shot_body_is_seen_whole_or_not_complete(library, kind, chunks, reads):
    """Nothing that is not the whole body ever has an end, so no server takes it for one."""
    backend, make = ONE_SHOT[kind]
    _, inner = put(library, backend, reads, make(chunks))
    assert all(got == b"".join(chunks) for got, complete in inner.received if complete)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("backend", "make"), [(None, generator), ("asyncio", agenerator), ("trio", agenerator)]
)
@settings(max_examples=60, deadline=None)
@given(chunks=CHUNKS, reads=READS, room=st.integers(1, 100))
def test_a_buffered_body_is_sent_again_whole_as_long_as_it_fits(
    library, backend, make, chunks, reads, room
):
    """Bytes read so far within the buffer: every attempt is made, and the last one is whole;
    beyond: no half body.
    """
    whole = b"".join(chunks)
    response, inner = put(library, backend, reads, make(chunks), body_buffer=room)
    assert all(got == whole for got, complete in inner.received if complete)
    if len(whole) <= room:
        assert response.status_code == 200
        assert inner.received[-1] == (whole, True)
