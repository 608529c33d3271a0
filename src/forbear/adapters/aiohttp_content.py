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
from ..core.outcome import RETRYABLE_KINDS
from ..core.record import RECORD
from ..sending import resumption
from ..sending.looking import MOST_BYTES, seconds_to_look, too_late
from ..sending.loop import arun
from .aiohttp_errors import classify

if TYPE_CHECKING:
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
        error: What broke the body.
    """

    error: Exception | None = None

    def __init__(self, port: Any, response: Any, deadline_at: float, patience: float = inf) -> None:
        self._port, self._response = port, response
        self._deadline_at, self._patience = deadline_at, patience
        super().__init__(response.content)

    def shown(self) -> Any:
        """Make a copy of the answer that reads from here."""
        copy = object.__new__(type(self._response))
        copy.__dict__ = vars(self._response).copy()
        copy.content = self
        copy._connection = copy._writer = None  # the caller's
        return copy

    async def pull(self) -> bytes:
        content, port, response = self._inner, self._port, self._response
        if content is None or content.at_eof():
            return b""
        seconds = self._patience
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
            self.error = error
            raise
        finally:
            response.content = Pulled(rest, bytes(found))
        if rest is not None:
            raise too_late()
        self._inner = None
        return bytes(found)


class Resuming(Pulled):
    """A body that was handed over, and asks for its rest where it breaks.

    Args:
        port: Of the middleware.
        response: Whose body this is; not held, since it holds the body.
        source: The call that got the response; or what the port makes one of, for a response that
            went through the fast path.
        download: What can be asked for.
    """

    _error: Any = None  # what broke the body last
    _rest: Any = None  # the answer that goes on with it
    _received = _resumed_at = 0
    _ends_at: int | None = None  # octets in all, once a part was asked for
    _is_closed: Any = False

    def __init__(self, port: Any, response: Any, source: Any, download: Any) -> None:
        super().__init__(response.content)
        self._port, self._source, self._download = port, source, download
        self._response = ref(response)

    async def pull(self) -> bytes:
        while True:
            try:
                chunk: bytes = await self._inner.readany()
            except Exception as error:
                if not await self._resume(error):
                    raise
                continue
            self._received += len(chunk)
            if self._ends_at is not None and self._received > self._ends_at:  # more than there is
                resumption.distrust(self._source)
                resumption.fail(self._port, self._source, self._error)
                raise self._error
            if chunk or self._ends_at is None or self._received == self._ends_at:
                self._error = None if not chunk else self._error
                return chunk
            if not await self._resume(self._error):
                raise self._error

    async def _resume(self, error: Exception) -> bool:
        """Go on with the rest; False if it does not come."""
        port, response = self._port, self._response()
        call: Any = self._source
        kind = classify(error).kind
        is_new = type(call) is tuple
        if is_new:
            call = port.call_of(*call)
        if self._is_closed or kind not in RETRYABLE_KINDS or call.stop is not None:
            port.body_broke(call, error, kind)
            return False
        if is_new:
            port.first_failed(call)
        download = self._download if call.resumption is None else call.resumption.download
        call.begin_resuming(download)
        self._source, self._error = call, error
        broken = response if self._rest is None else self._rest
        if broken is not None and broken.connection is not None:
            broken.connection.close()
        if download.missing(self._received) == 0:
            self._inner, self._ends_at = Pulled(None), None
            return True
        progressed, self._resumed_at = self._received > self._resumed_at, self._received
        port.resume(call, error, self._received, progressed=progressed)
        call.live = error
        try:
            rest = await arun(call, port)
        except port.deadline_exceeded:
            raise
        except Exception:
            if resumption.fail(port, call, error):
                raise
            return False
        if response is not None:
            setattr(response, RECORD, call.story(port.clock.monotonic()))
        if rest is None:
            self._inner, self._ends_at = Pulled(None), None
            return True
        missing = download.missing(self._received)
        self._ends_at = None if missing is None else self._received + missing
        self._rest, self._inner = rest, rest.content
        if self._is_closed:
            rest.close()
        return True

    def set_exception(self, exc: BaseException, exc_cause: Any = None) -> None:
        """The response is closed."""
        super().set_exception(exc)
        self._is_closed = True
        if self._rest is not None:
            self._rest.close()


def resumable(port: Any, request: Any, response: Any) -> Any:
    """Say what can be asked for of a body that is still to come; None: nothing.

    aiohttp decodes while it reads, and an encoded body is counted in other octets than it shows.
    """
    if not port.settings.resume or "Content-Encoding" in response.headers:
        return None
    asked = request.headers.items()
    return download_of(request.method, asked, response.status, response.raw_headers)
