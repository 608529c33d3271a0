"""Bodies of responses, in the httpx family: what forbear reads of them before the hand-over.

A small body of known length is read whole inside the loop, so that a broken one is a failure like
any other. What came with its head cannot break, so it is left where it is. A failed response is
drained, if that takes little time. All is read through reading.py. ``Replaced`` is the stream that
then takes the place of the library's own, and gives what a source reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.call import SENT, SETTING
from ...core.headers.fields import begins_events
from ...engine.driver import close, read_part
from ...engine.errors import DeadlineCut
from ...engine.loop import drive
from ...engine.reading import LATE, WHOLE, PrefetchResult, is_endless
from .reading import LENGTH, arrived, length_to_prefetch, unread

if TYPE_CHECKING:
    from typing import Self

    from httpx import Request, Response

    from ...engine.outgoing import Outgoing
    from ...engine.reading import Source
    from .types import HttpxPort

EMPTY = -1  # no number of bytes


class Replaced:
    """The body of a response of either flavour that the caller reads from a source.

    No generator: trio complains of unfinished ones.
    """

    _forbear_sends = True

    def __init__(self, source: Source) -> None:
        self.stream = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        piece = drive(self.stream.read())
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        drive(self.stream.close())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.stream.read()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        await self.stream.close()


class Shown:
    """The part of a copy of a response that is not the library's: its body is read when wanted."""

    stream: Any
    is_stream_consumed: bool

    def read(self) -> bytes:
        if not self.is_stream_consumed:
            self.stream.stream.fill(self)
        return super().read()  # type: ignore[misc, no-any-return]

    content = property(read)


def has_arrived(port: HttpxPort, response: Response) -> bool:
    """Has all of a body come with its head? Then it cannot break, and it stays where it is.

    Every call that succeeds at once asks this. A server declares the length in the same line of
    each head, so only that line is read; where it is another one, ``prefetch_body`` looks closer.
    """
    try:
        _, name, value = response.headers._list[port.length_line]
        if name != LENGTH:
            return False
        # An empty body may be a stream of events that ended too early.
        return len(unread(response.stream)) == (int(value) or EMPTY)
    except (AttributeError, IndexError, ValueError):
        return False


def is_prefetched(response: Response) -> bool:
    """Does a body end where its length says (RFC 9112 section 6.3), and is it wanted whole?"""
    headers = response.headers
    is_chunked = "transfer-encoding" in headers
    return not (is_chunked or is_endless(headers.get("content-type"), response.status_code))


def left_unread(response: Response, length: int) -> PrefetchResult:
    """Return WHOLE for a body that has come with its head.

    None: a stream of events has ended with its head. Its reader will request it again.
    """
    if length == 0 and begins_events(response.status_code, response.headers.raw):
        return None
    if response.status_code < 300:
        response.extensions[SETTING] = SENT
    return WHOLE


async def prefetch_body(
    port: HttpxPort, request: Request, response: Response, outgoing: Outgoing | None
) -> PrefetchResult:
    """Read a small body; return how that ended, None for a larger one.

    Args:
        port: Of the transport.
        request: As the caller made it.
        response: The response; what was read takes the place of its body.
        outgoing: What was sent in the request's place, if anything was.
    """
    length = length_to_prefetch(port, response)
    sent = request if outgoing is None else outgoing.request
    if length > port.prefetch or response.is_closed:  # closed: a transport below has read it
        return None
    if arrived(response.stream) == length:
        return left_unread(response, length)
    if not is_prefetched(response):
        return None
    return await read_whole(port, sent, response)


async def read_whole(port: HttpxPort, request: Request, response: Response) -> PrefetchResult:
    """Read a body to its end, by the deadline; return WHOLE, or what broke it."""
    live = port.live(request, response)
    _, pieces, ending = await read_part(port, response, live, lambda *_: True)
    if ending is WHOLE:
        port.with_body(response, pieces)
    elif ending is LATE:
        await close(port, response)
        return DeadlineCut()
    return ending
