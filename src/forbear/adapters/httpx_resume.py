"""Resuming: a body that breaks after it was handed over is gone on with by further requests. Floor:
acts.

Sits at the level of raw octets, below the library's decoder, and looks at no header until something
breaks. What may be resumed and what fits is core/resume.py's to say; whether, when and under which
limits is the call's, which goes on being driven as before: budget, breaker, deadline, hints, events
and hooks apply. What does not come surfaces as the error that broke the body.
"""

from __future__ import annotations

from contextlib import suppress

from ..core.headers.ranges import download_of
from ..core.outcome import RETRYABLE_KINDS
from ..core.record import SETTING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from .httpx_exchange import Exchange

__all__ = ["AsyncResuming", "Resuming", "answer_of"]


def answer_of(response: Any) -> tuple[int, Any, dict[str, Any]]:
    return response.status_code, response.headers, response.extensions


class Body:
    """What both colours share.

    Args:
        stream: The live one; no other is held, nor its connection.
        answer: Status, headers and extensions of the response whose body it is; not that itself,
            which holds this.
        source: The exchange that got the response; or what to make one of for a response that went
            through the door: transport, request, scope and the instant at which the call began.
    """

    # Most bodies never break; what they do not need stands here once.
    _chunks: Any = ()
    _exchange: Exchange | None = None
    _error: Exception | None = None  # what broke it last
    _resumed_at = 0
    _ends_at: int | None = None  # raw octets in all, to be held to once a part was asked for
    _closed = False

    def __init__(self, stream: Any, answer: tuple[int, Any, dict[str, Any]], source: Any) -> None:
        self._stream = stream
        self._answer = answer
        self._source = source
        self._received = 0

    def _take(self, chunk: bytes) -> bytes:
        """Count a chunk that is about to be handed out."""
        self._received += len(chunk)
        if self._ends_at is not None and self._received > self._ends_at:
            # More than there is: nothing of this part can be trusted.
            assert self._exchange is not None
            assert self._error is not None
            self._exchange.distrust()
            self._exchange.fail_to_resume(self._error)
            raise self._what_broke_it()
        return chunk

    def _is_short(self) -> bool:
        return self._ends_at is not None and self._received < self._ends_at

    def _exchange_for(self, error: Exception) -> Exchange | None:
        """What to drive to get the rest; None: it cannot be asked for."""
        exchange = self._exchange or self._made()
        transport, body = exchange.transport, exchange.body
        if self._closed or transport._library.classify(error).kind not in RETRYABLE_KINDS:
            return None
        if body is not None and not body.ready:
            return None
        if exchange.download is None:
            asked, (status, headers, _) = exchange.pristine, self._answer
            exchange.download = download_of(asked.method, asked.headers.raw, status, headers.raw)
            if exchange.download is None:
                return None
        self._exchange, self._error = exchange, error
        return exchange

    def _made(self) -> Exchange:
        if type(self._source) is not tuple:
            return self._source  # type: ignore[no-any-return]
        transport, request, scope, started_at = self._source
        exchange: Exchange = transport._exchange(transport, request, started_at)
        exchange.scope = scope  # the call's, not that of whoever reads
        exchange.call.sent(None)
        return exchange

    def _begin(self, exchange: Exchange, error: Exception) -> bool:
        """Let go of what broke; is anything missing at all?"""
        download = exchange.download
        assert download is not None
        self._chunks = ()
        self._stream = exchange.transport._byte_stream(b"")
        if download.missing(self._received) == 0:
            self._ends_at = None
            return False
        exchange.resume(
            download, error, self._received, progressed=self._received > self._resumed_at
        )
        self._resumed_at = self._received
        return True

    def _go_on_with(self, exchange: Exchange, response: Any) -> None:
        """The rest has begun to come; or there is none, and None came."""
        extensions = self._answer[2]
        extensions[SETTING] = exchange.call.close_trail(exchange.transport._now())
        self._ends_at = None
        if response is None:
            return
        assert exchange.download is not None
        missing = exchange.download.missing(self._received)
        assert missing is not None
        self._ends_at = self._received + missing
        self._stream = response.stream
        if "network_stream" in response.extensions:
            extensions["network_stream"] = response.extensions["network_stream"]

    def _what_broke_it(self) -> Exception:
        error, self._error = self._error, None  # its traceback will lead here
        assert error is not None
        return error


class Resuming(Body):
    """Of a synchronous response."""

    def __iter__(self) -> Self:
        self._chunks = iter(self._stream)
        return self

    def __next__(self) -> bytes:
        while True:
            try:
                chunk = next(self._chunks, None)
            except Exception as error:
                if not self._resume(error):
                    raise
            else:
                if chunk is not None:
                    return self._take(chunk)
                if not self._is_short():
                    raise StopIteration
                if not self._resume(self._error):
                    raise self._what_broke_it()

    def _resume(self, error: Any) -> bool:
        """Go on with the rest; False if it does not come."""
        exchange = self._exchange_for(error)
        if exchange is None:
            return False
        with suppress(Exception):
            self._stream.close()
        if self._begin(exchange, error):
            try:
                response = exchange.run()
            except exchange.transport._library.deadline_exceeded:
                raise
            except Exception:
                exchange.fail_to_resume(error)
                return False
            self._go_on_with(exchange, response)
            if self._closed:
                self._stream.close()
                return False
        self._chunks = iter(self._stream)
        return True

    def close(self) -> None:
        self._closed = True
        self._stream.close()


class AsyncResuming(Body):
    """Of an asynchronous response. No generator: trio complains of those that are left in the
    middle.
    """

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
                    return self._take(chunk)
                if not self._is_short():
                    raise StopAsyncIteration
                if not await self._resume(self._error):
                    raise self._what_broke_it()

    async def _resume(self, error: Any) -> bool:
        """Go on with the rest; False if it does not come."""
        exchange = self._exchange_for(error)
        if exchange is None:
            return False
        with suppress(Exception):
            await self._stream.aclose()
        if self._begin(exchange, error):
            try:
                response = await exchange.run()
            except exchange.transport._library.deadline_exceeded:
                raise
            except Exception:
                exchange.fail_to_resume(error)
                return False
            self._go_on_with(exchange, response)
            if self._closed:
                await self._stream.aclose()
                return False
        self._chunks = self._stream.__aiter__()
        return True

    async def aclose(self) -> None:
        self._closed = True
        await self._stream.aclose()
