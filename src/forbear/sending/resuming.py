"""Resuming: a body that breaks after it was handed over goes on where it broke. Floor: acts.

At the level of raw octets, below the library's decoder. core/headers/ranges.py says what may be
resumed and what fits; the loop goes on as before, under budget, breaker, deadline, hints and
events. What does not come surfaces as the error that broke the body, with the story of the call.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core.headers.ranges import Repeat
from ..core.outcome import RETRYABLE_KINDS
from . import resumption
from .loop import arun

if TYPE_CHECKING:
    from typing import NoReturn, Self

__all__ = ["AsyncResumable", "Resumable"]


class Resumable:
    """The part that httpx and aiohttp share, in both colours. Each adds what stands first here."""

    _port: Any
    _source: Any  # the call; or what the port makes one of, for a response of the fast path
    _stream: Any  # the library's own, that brings the body now
    _received: int  # raw octets
    _download: Any  # (call): what can be asked for of the body; None: nothing
    _nothing: Any  # (): a stream that is at its end
    _stream_of: Any  # (response): the stream of an answer that goes on with the body
    _tell: Any  # (story): attaches it to the response that the caller has

    # Most bodies never break; what they do not need stands here once.
    _chunks: Any = ()
    _call: Any = None
    _error: Any = None  # what broke the body last
    _resumed_at = 0
    _ends_at: int | None = None  # raw octets in all, once a part was asked for
    _kept: bytearray | None = None  # all octets that the caller has, of a small body
    _owed = b""  # of these the octets with which the body that comes now has to begin
    _closed = False

    def _take(self, chunk: bytes) -> bytes:
        """Count a chunk; return what of it is handed out."""
        if self._owed:
            seen, self._owed = self._owed[: len(chunk)], self._owed[len(chunk) :]
            if not chunk.startswith(seen):
                self._distrust()
            chunk = chunk[len(seen) :]
        self._received += len(chunk)
        if self._ends_at is not None and self._received > self._ends_at:
            self._distrust()  # more than there is
        if self._kept is not None:
            self._kept += chunk
            if len(self._kept) > self._port.prefetch:  # of unknown length, and not small
                self._kept = None
        return chunk

    def _distrust(self) -> NoReturn:
        """Nothing of the part that comes can be trusted."""
        resumption.distrust(self._call)
        resumption.fail(self._port, self._call, self._error)
        raise self._what_broke_it()

    def _is_short(self) -> bool:
        return bool(self._owed) or (self._ends_at is not None and self._received < self._ends_at)

    def _begin(self, error: Exception) -> bool:
        """Can the rest be asked for? Else attach the story to the error."""
        port, kind = self._port, self._port.kind_of(error)
        call, is_new = self._call or self._source, False
        if type(call) is tuple:
            call, is_new = port.call_of(*call), True
        download = None
        goes_on = port.settings.resume and kind in RETRYABLE_KINDS
        if goes_on and call.stop is None and not self._closed:
            download = self._download(call)
        if download is None:
            port.body_broke(call, error, kind)
            return False
        if is_new:
            port.first_failed(call)
        call.begin_resuming(download)
        self._call, self._error = call, error
        return True

    def _is_whole(self) -> bool:
        """Let go of what broke; is nothing missing but the end?"""
        self._chunks = ()
        self._stream = self._nothing()
        self._ends_at = None
        return bool(self._call.resumption.download.missing(self._received) == 0)

    def _ask(self, error: Exception) -> None:
        again = type(self._call.resumption.download) is Repeat
        self._owed = bytes(self._kept or b"") if again else b""
        progressed = self._received > self._resumed_at and not again
        self._resumed_at = self._received
        self._port.resume(self._call, error, self._received, progressed=progressed)

    def _go_on_with(self, response: Any) -> None:
        """The rest has begun to come; or there is none, and None came."""
        call = self._call
        self._tell(call.story(self._port.clock.monotonic()))
        if response is None:
            return
        missing = call.resumption.download.missing(self._received)
        self._ends_at = None if missing is None else self._received + missing
        self._stream = self._stream_of(response)

    def _what_broke_it(self) -> Exception:
        error, self._error = self._error, None  # its traceback will lead here
        return error  # type: ignore[no-any-return]


class AsyncResumable(Resumable):
    """The body of an asynchronous response. No generator: trio complains of unfinished ones."""

    _close: Any  # (): lets go of the stream

    def __aiter__(self) -> Self:
        self._chunks = self._stream.__aiter__()
        return self

    async def __anext__(self) -> bytes:
        while True:
            try:
                chunk = await anext(self._chunks, None)
            except Exception as error:
                if not await self._resume(error):
                    raise
            else:
                if chunk is not None:
                    chunk = self._take(chunk)
                    if chunk:
                        return chunk
                    continue
                if not self._is_short():
                    raise StopAsyncIteration
                if not await self._resume(self._error):
                    raise self._what_broke_it()

    async def _resume(self, error: Any) -> bool:
        """Go on with the rest; False if it does not come."""
        if not self._begin(error):
            return False
        with suppress(Exception):
            await self._close()
        if not self._is_whole():
            self._ask(error)
            self._call.live, response = error, None
            try:
                response = await arun(self._call, self._port)
                self._go_on_with(response)
            except self._port.deadline_exceeded:
                raise
            except Exception:
                if resumption.fail(self._port, self._call, error):
                    raise
                return False
            except BaseException:
                await self._port.let_go(response)
                raise
            if self._closed:
                await self._close()
                return False
        self._chunks = self._stream.__aiter__()
        return True
