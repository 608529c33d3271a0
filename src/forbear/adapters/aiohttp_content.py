"""Content: bodies of aiohttp's answers that ask for more when they are read. Floor: acts.

One is under the copy of an answer that ``retry_if`` is shown. Another goes on with the rest of a
download that broke after it was handed over; core/headers/ranges.py says what may be resumed.
"""

from __future__ import annotations

from asyncio import get_running_loop
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref

import aiohttp

from ..core.headers.ranges import download_of
from ..core.record import RECORD
from ..sending.looking import MOST_BYTES, seconds_to_look, too_late
from ..sending.resuming import AsyncResumable

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.record import Story
    from ..sending.backstop import Backstop

__all__ = ["Bounded", "Peek", "Pulled", "Resuming", "resumable"]


class Nobody:
    """The protocol of a reader that no connection feeds."""

    connected = True
    _reading_paused = False

    def pause_reading(self, **_: Any) -> None:
        """Go on."""

    resume_reading = pause_reading


class Pulled(aiohttp.StreamReader):
    """A body that asks for its next bytes when it is read.

    Args:
        inner: Where they come from; None: there are no more.
        known: The bytes that come first.
    """

    def __init__(self, inner: Any, known: bytes = b"") -> None:
        super().__init__(Nobody(), 2**16, loop=get_running_loop())  # type: ignore[arg-type]
        self._inner: Any = inner
        self.feed_data(known)
        if inner is None:
            self.feed_eof()

    async def pull(self) -> bytes:
        """Return the next bytes, none at the end."""
        return await self._inner.readany()  # type: ignore[no-any-return]

    async def _wait(self, func_name: str) -> None:
        chunk = await self.pull()
        if chunk:
            self.feed_data(chunk)
        else:
            self.feed_eof()


class Bounded(Pulled):
    """A body under ``forbear.deadline``, after the hand-over."""

    def __init__(self, port: Any, response: Any, source: Any, until: float) -> None:
        super().__init__(response.content)
        self._port, self._source, self._until = port, source, until

    async def pull(self) -> bytes:
        port = self._port
        backstop: Backstop = port.backstop
        with backstop.after(self._until - port.clock.monotonic()):
            return await self._inner.readany()  # type: ignore[no-any-return]
        call = port.call_of(*self._source) if type(self._source) is tuple else self._source
        raise port.body_is_late(call)

    def set_exception(self, exc: BaseException, exc_cause: Any = None) -> None:
        """The response is closed."""
        super().set_exception(exc)
        self._inner.set_exception(exc)


class Peek(Pulled):
    """The body under a copy: it reads the caller's, and puts that back, when it is read itself.

    Attributes:
        ahead: What came of reading the body: the error that broke it.
        answer: Of ``retry_if``.
        error: What it raised.
        patience: Seconds for which the body is read at most.
    """

    answer: Any = None
    error: Exception | None = None
    is_wanted = False
    patience = inf

    def __init__(self, port: Any, response: Any, deadline_at: float, ahead: Any) -> None:
        self._port, self.response = port, response
        self._deadline_at, self.ahead = deadline_at, ahead
        super().__init__(response.content)

    async def decoded(self) -> bytes:
        return await self.shown().read()  # type: ignore[no-any-return]

    def shown(self) -> Any:
        """Make a copy of the answer that reads from here."""
        copy = object.__new__(type(self.response))
        copy.__dict__ = vars(self.response).copy()
        copy.content = self
        copy._connection = copy._writer = None  # the caller's
        return copy

    async def pull(self) -> bytes:
        content, port, response = self._inner, self._port, self.response
        if content is None or content.at_eof():
            return b""
        seconds = self.patience
        if not content.is_eof():
            kind, length = response.headers.get("Content-Type", ""), response.content_length
            seconds = min(seconds, seconds_to_look(response.method, response.status, kind, length))
        seconds = min(seconds, self._deadline_at - port.clock.monotonic(), 1e6)
        found, rest = bytearray(), content
        try:
            backstop: Backstop = port.backstop
            with backstop.after(seconds):
                while len(found) <= MOST_BYTES:
                    chunk = await content.readany()
                    if not chunk:
                        rest = None
                        break
                    found += chunk
        except Exception as error:
            self.ahead = error
            raise
        finally:
            response.content = Pulled(rest, bytes(found))
        if rest is not None:
            raise too_late()
        self._inner = None
        return bytes(found)


class Resuming(Pulled):
    """A body that was handed over, and asks for its rest where it breaks."""

    def __init__(self, port: Any, response: Any, source: Any, download: Any) -> None:
        super().__init__(response.content)
        self._chunks = aiter(Octets(port, response, source, download))

    async def pull(self) -> bytes:
        return await anext(self._chunks, b"")

    def set_exception(self, exc: BaseException, exc_cause: Any = None) -> None:
        """The response is closed."""
        super().set_exception(exc)
        self._chunks.end()


class Octets(AsyncResumable):
    """The octets of a body that asks for its rest.

    Args:
        port: Of the middleware.
        response: Whose body this is; not held, since it holds the body.
        source: The call that got the response; or what the port makes one of, for a response that
            went through the fast path.
        download: What can be asked for.
    """

    _rest: Any = None  # the answer that goes on with it

    def __init__(self, port: Any, response: Any, source: Any, download: Any) -> None:
        self._port, self._source, self._known = port, source, download
        self._stream, self._response = response.content.iter_any(), ref(response)
        self._received = 0

    def end(self) -> None:
        """Ask for no more."""
        self._closed = True
        if self._rest is not None:
            self._rest.close()

    def _download(self, call: Call) -> Any:
        return self._known if call.resumption is None else call.resumption.download

    def _nothing(self) -> Any:
        return Pulled(None).iter_any()

    def _stream_of(self, response: Any) -> Any:
        self._rest = response
        return response.content.iter_any()

    def _tell(self, story: Story) -> None:
        response = self._response()
        if response is not None:
            setattr(response, RECORD, story)

    async def _close(self) -> None:
        broken = self._response() if self._rest is None else self._rest
        if broken is not None and broken.connection is not None:
            broken.connection.close()


def resumable(port: Any, request: Any, response: Any) -> Any:
    """Say what can be asked for of a body that is still to come; None: nothing.

    aiohttp decodes while it reads, and an encoded body is counted in other octets than it shows.
    """
    if not port.settings.resume or "Content-Encoding" in response.headers:
        return None
    asked = request.headers.items()
    return download_of(request.method, asked, response.status, response.raw_headers)
