"""Live bodies of the httpx family: what is still to come of a response, read in time.

``LiveBody`` alone reads a response's body, through the library's own stream. httpcore asks for the
read timeout once, when a body begins, and closes the connection when a read of its own times out.
So where a read has to end by some instant, the network stream, which is in each response's
extensions, is read first, and the parser gets what arrived: a body that pauses stays intact. Not
over HTTP/2, where other streams read from the connection too: there httpcore reads, for as long as
the client allows.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.clock import SYSTEM_CLOCK
from ...engine.driver import BODILESS, is_readable
from ...engine.errors import EARLY, DeadlineCut
from ...engine.loop import drive
from .errors import own_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Self

    from httpx import Request, Response

    from ...engine.port import Port, Source

HOP, BODY = "forbear.call", "forbear.body"  # extensions keys
LEAST = 0.001  # seconds; 0 would make a socket non-blocking instead of timing it out
PIECE = 65_536  # bytes asked for at once, as by httpcore


def parser_of(stream: Any) -> Any:
    """The parser of the connection of HTTP/1 that a body comes from; None: it is unknown."""
    try:
        return stream._httpcore_stream._stream._connection._h11_state
    except AttributeError:  # of HTTP/2, or of another transport
        return None


def never() -> float:
    return inf


class LiveBody:
    """The source of a response: what was put back of it, and then the bytes that are to come.

    Each read ends by ``ends_at``, and by the deadline of the timeouts with which the request was
    sent.

    Attributes:
        ends_at: An instant of the system's clock.
        pieces: What was read before, and what broke the body then, if anything did.
        late: Makes the error of a body that the deadline has cut; None: it is DeadlineCut.
    """

    late: Callable[[str], Exception] | None = None
    _received = 0

    def __init__(
        self,
        port: Port[Request, Response],
        module: ModuleType,
        request: Request,
        response: Response,
        length: int,
    ) -> None:
        self.ends_at = inf
        self.pieces: deque[bytes | Exception] = deque()
        self._port, self._module, self._headers = port, module, response.headers
        self._stream: Any = response.stream
        is_bodiless = request.method == "HEAD" or response.status_code in BODILESS
        self._length = 0 if is_bodiless else length
        self._timeouts: Mapping[str, float | None] = request.extensions.get("timeout") or {}
        self._deadline_in: Callable[[], float] = getattr(self._timeouts, "left", never)
        self._wire: Any = response.extensions.get("network_stream")
        self._parser = None if self._wire is None else parser_of(self._stream)
        self.can_wait = self._parser is not None
        self._chunks: Any = None

    def left(self) -> float:
        """Seconds in which a read has to end."""
        left = inf if self.ends_at == inf else self.ends_at - SYSTEM_CLOCK.true_monotonic()
        return min(left, self._deadline_in())

    async def has_more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact.

        Raises:
            What broke the body, or its error for the deadline.
        """
        is_free = self.ends_at == inf and self._deadline_in is never
        if is_free or self.pieces or self._received >= self._length:
            return True  # the end of a body comes without a wait
        left, own, parser = self.left(), self._timeouts.get("read"), self._parser
        if left > 0:
            is_chunked = "transfer-encoding" in self._headers
            if parser is None or is_readable(parser.trailing_data[0], is_chunked=is_chunked):
                return True
            longest: float = left if own is None else min(own, left)
            try:
                found = self._wire.read(PIECE, None if longest == inf else max(longest, LEAST))
                parser.receive_data(await found if hasattr(found, "__await__") else found)
                return True
            except Exception as error:
                # A body that exceeds the client's own timeout is a broken one.
                name = type(error).__name__
                if name != "ReadTimeout" or self.left() > LEAST:
                    raise own_error(error, self._module)  # noqa: B904  # mostly another one
                if self.ends_at == inf:
                    raise self._cut(name) from own_error(error, self._module)
        if self.ends_at == inf:
            raise self._cut()
        return False

    async def read(self) -> bytes:
        if self.pieces:
            piece = self.pieces.popleft()
            if isinstance(piece, bytes):
                return piece
            try:
                raise piece
            finally:
                del piece  # its traceback holds this frame
        try:
            # httpcore has asked for its timeout when the body began: not the caller's own, if that
            # was before the hand-over. So it is given what was received.
            if self.ends_at == inf and self._deadline_in is not never:
                await self.has_more()
            piece = await self._next()
            self._received += len(piece)
            if not piece:
                self._length = 0  # the connection may be another request's by now
            return piece
        except BaseException as error:
            await self.close()  # httpcore does so by itself only where it reads by itself
            if not isinstance(error, Exception):
                raise
            if "Timeout" in type(error).__name__ and self._deadline_in() <= EARLY and self.late:
                raise self._cut(type(error).__name__) from error
            raise own_error(error, self._module)  # noqa: B904  # mostly the same one

    def _cut(self, error: str = "DeadlineExceeded") -> Exception:
        """Make the error of a body that did not come in time."""
        if self._deadline_in() > EARLY:
            return self._port.stream_timeout("the body did not come in time")
        return DeadlineCut() if self.late is None else self.late(error)

    # What an asynchronous one does in another way.

    async def _next(self) -> bytes:
        if self._chunks is None:
            self._chunks = filter(None, self._stream)
        return next(self._chunks, b"")

    async def close(self) -> None:
        self._stream.close()


class Replaced:
    """The body of a response of either flavour that the caller reads from a source.

    No generator: trio complains of unfinished ones.
    """

    _forbear_sends = True

    def __init__(self, source: Source) -> None:
        self.stream = source

    def __iter__(self) -> Self:
        return self

    __aiter__ = __iter__

    def __next__(self) -> bytes:
        piece = drive(self.stream.read())
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        drive(self.stream.close())

    async def __anext__(self) -> bytes:
        piece = await self.stream.read()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        await self.stream.close()


class Shown:
    """The part of a copy of a response that is not the library's: its body is read when wanted."""

    read: Callable[[], bytes]

    @property
    def content(self) -> bytes:
        return self.read()
