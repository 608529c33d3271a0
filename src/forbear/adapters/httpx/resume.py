"""Resuming in the httpx family: a body that is handed over while it is still to come.

Loaded with the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.call import SETTING
from ...core.headers.fields import begins_events
from ...core.headers.ranges import Repeat, download_of
from ...engine.calls import sent_request
from ...engine.resume import AsyncResumable, SyncResumable
from .bodies import UNKNOWN, length_to_prefetch
from .errors import own_error
from .reading import own_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from httpx import AsyncByteStream, Response, SyncByteStream

    from ...core.call import Call, Story
    from ...core.event_streams import EventStream
    from ...core.headers.ranges import Download
    from .types import HttpxPort


def watch_body(port: HttpxPort, response: Response, begin: Callable[[], Call]) -> None:
    """Resume a body where it breaks."""
    stream: Any = response.stream
    original, events = HttpxOriginal(port, response), None
    keeps = is_document(response) and length_to_prefetch(port, response) == UNKNOWN
    if port.awaits_events:
        from ...engine.streams import whole_events

        events = whole_events(port.settings, response.status_code, response.headers.raw)
    resuming = port.streams.resuming
    response.stream = resuming(port, stream, begin, original, keeps=keeps, events=events)


def is_document(response: Response) -> bool:
    """Is a body one JSON document?"""
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.endswith("+json") and kind != "application/stream+json"
    )


class HttpxOriginal:
    """The head of the response whose body may be resumed.

    A small JSON document of unknown length without a validator is requested again as a whole. It
    continues only if its bytes begin with those that the caller has, because then all that the
    caller gets is the second response, byte for byte. Not without a read timeout: such a caller
    expects silences, as in a feed of documents.
    """

    shows_deadline = True

    def __init__(self, port: HttpxPort, response: Response) -> None:
        self._port = port
        self._status, self._headers = response.status_code, response.headers
        self._extensions = response.extensions

    def begins_events(self) -> bool:
        return begins_events(self._status, self._headers.raw)

    def download(self, call: Call, received: int) -> Download | Repeat | EventStream | None:
        asked, status, lines = sent_request(call), self._status, self._headers.raw
        if not received and asked.method != "HEAD" and begins_events(status, lines):
            from ...core.event_streams import event_stream  # loaded with the first that breaks

            return event_stream(status, lines)
        found = download_of(asked.method, asked.headers.raw, status, lines)
        is_repeated = asked.method == "GET" and status in (200, 206)
        if found is None and is_repeated and own_timeout(call.request.original) is not None:
            return Repeat(status, lines)
        return found

    def stream_of(self, response: Response | None) -> SyncByteStream | AsyncByteStream:
        if response is None:
            return self._port.byte_stream(b"")
        if "network_stream" in response.extensions:
            self._extensions["network_stream"] = response.extensions["network_stream"]
        return response.stream

    def attach(self, story: Story) -> None:
        self._extensions[SETTING] = story


class Resuming(SyncResumable):
    """A body that the caller streams; its errors are the library's own."""

    def __next__(self) -> bytes:
        try:
            return super().__next__()
        except Exception as error:
            raise own_error(error, self._port.library.module)  # noqa: B904  # mostly the same one


class AsyncResuming(AsyncResumable):
    """Its asynchronous counterpart."""

    async def __anext__(self) -> bytes:
        try:
            return await super().__anext__()
        except Exception as error:
            raise own_error(error, self._port.library.module)  # noqa: B904
