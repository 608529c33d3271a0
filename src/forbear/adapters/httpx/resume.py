"""Resuming in the httpx family: a body that is handed over while it is still to come.

Loaded with the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...addons.resume import Resumable
from ...core.call import SETTING
from ...core.headers.fields import begins_events
from ...core.headers.ranges import Repeat, download_of
from ...engine.calls import sent_request
from .reading import UNKNOWN, length_to_prefetch, own_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from httpx import Request, Response

    from ...core.call import Call, Story
    from ...core.event_streams import EventStream
    from ...core.headers.fields import Line
    from ...core.headers.ranges import Download
    from ...engine.reading import Source
    from .types import HttpxPort


def watch_body(
    port: HttpxPort, request: Request, response: Response, begin: Callable[[], Call]
) -> None:
    """Resume a body where it breaks; ``request`` is the one that was sent."""
    original, events = HttpxOriginal(port, response), None
    keeps = is_document(response) and length_to_prefetch(port, response) == UNKNOWN
    if port.awaits_events:
        from ...addons.event_streams import whole_events

        events = whole_events(port.settings, response.status_code, response.headers.raw)
    port.surround(
        request,
        response,
        lambda source: Resumable(port, source, begin, original, keeps=keeps, events=events),
    )


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

    def head_of(self, response: Response) -> tuple[int, Sequence[Line]]:
        return response.status_code, response.headers.raw

    def stream_of(self, response: Response) -> Source:
        if "network_stream" in response.extensions:
            self._extensions["network_stream"] = response.extensions["network_stream"]
        source: Source = response.stream.stream  # type: ignore[union-attr]  # as the port left it
        return source

    def attach(self, story: Story) -> None:
        self._extensions[SETTING] = story
