"""Resume, in the httpx family: bodies that go on where they broke. Floor: acts.

A small body that was too slow to be read ahead, and has no validator, is asked for again as a
whole. It goes on if its octets begin with those that the caller has: then all that the caller gets
is the second answer, octet for octet.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core.headers.ranges import Repeat, download_of
from ..core.outcome import FailureKind
from ..core.record import SETTING
from ..sending import resumption
from ..sending.loop import run
from ..sending.resuming import AsyncResumable, Resumable

if TYPE_CHECKING:
    from typing import Self

    from ..core.call import Call
    from ..core.record import Story

__all__ = ["AsyncResuming", "Resuming"]


class HttpxBody(Resumable):
    """The part that both colours share.

    Args:
        port: Of the transport.
        response: Whose body this is; not held, since it holds the body.
        source: The call that got the response; or the request, the context and the instant at which
            the call began, for a response that went through the fast path.
    """

    def __init__(self, port: Any, response: Any, source: Any) -> None:
        self._stream = stream = response.stream
        if type(stream) is port.prefetched and stream.is_late():
            self._kept = bytearray()
        self._answer = response.status_code, response.headers, response.extensions
        self._port = port
        self._source = source
        self._received = 0

    def _begin(self, error: Exception) -> bool:
        if self._port.kind_of(error) is FailureKind.UNKNOWN:  # a mistake in a transport below
            return False
        return super()._begin(error)

    def _download(self, call: Call) -> Any:
        """Say what can be asked for of the body; None: nothing."""
        if call.guard is not None and not call.guard.ready:
            return None
        asked, (status, headers, _) = self._port.sent_request(call), self._answer
        if call.resumption is None:
            download: Any = download_of(asked.method, asked.headers.raw, status, headers.raw)
        else:
            download = call.resumption.download
        if download is None and asked.method == "GET" and status in (200, 206):
            download = Repeat(status, headers.raw)
        return None if type(download) is Repeat and self._kept is None else download

    def _nothing(self) -> Any:
        return self._port.byte_stream(b"")

    def _stream_of(self, response: Any) -> Any:
        if "network_stream" in response.extensions:
            self._answer[2]["network_stream"] = response.extensions["network_stream"]
        return response.stream

    def _tell(self, story: Story) -> None:
        self._answer[2][SETTING] = story


class Resuming(HttpxBody):
    """The body of a synchronous response."""

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
                    chunk = self._take(chunk)
                    if chunk:
                        return chunk
                    continue
                if not self._is_short():
                    raise StopIteration
                if not self._resume(self._error):
                    raise self._what_broke_it()

    def _resume(self, error: Any) -> bool:
        """Go on with the rest; False if it does not come."""
        if not self._begin(error):
            return False
        with suppress(Exception):
            self._stream.close()
        if not self._is_whole():
            self._ask(error)
            self._call.live, response = error, None
            try:
                response = run(self._call, self._port)
                self._go_on_with(response)
            except self._port.deadline_exceeded:
                raise
            except Exception:
                if resumption.fail(self._port, self._call, error):
                    raise
                return False
            except BaseException:
                self._port.let_go(response)
                raise
            if self._closed:
                self._stream.close()
                return False
        self._chunks = iter(self._stream)
        return True

    def close(self) -> None:
        if not self._closed:  # httpx2 closes its iterator, which this is too, and then the stream
            self._closed = True
            self._stream.close()


class AsyncResuming(HttpxBody, AsyncResumable):
    """The body of an asynchronous response."""

    async def _close(self) -> None:
        await self._stream.aclose()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._stream.aclose()
