"""Resuming in requests and urllib3: a large body, and one that the caller streams.

A large body that is read inside the loop is kept as far as it came (``PartialBody``), and the next
attempt requests the rest. One that the caller streams was partly handed over, so a ``Replaced``
takes the place of the library's response and requests the rest itself.
core/headers/ranges.py says what may be resumed and what fits. Chunked bodies are not resumed.
Loaded with the first body that is large, or handed over open.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

from urllib3.exceptions import ProtocolError

from ...addons.resume import Resumable, note_progress, note_resumed
from ...core.call import RECORD
from ...core.headers.fields import begins_events
from ...core.headers.ranges import Download, Part, download_of
from ...engine.bodies import Broken, PutBack
from ...engine.loop import drive
from ...engine.reading import Nothing
from .bodies import Replaced, around, broken_before, is_cut_off, source_of
from .request import viewed

if TYPE_CHECKING:
    from collections.abc import Callable

    from urllib3 import HTTPResponse

    from ...core.call import Call, Story
    from ...core.event_streams import EventStream, WholeEvents
    from ...engine.reading import Source
    from .request import Urllib3Request
    from .types import AnyPort, AnyResponse, Urllib3Port


def resumed(
    port: AnyPort,
    raw: HTTPResponse,
    begin: Callable[[], Call],
    events: WholeEvents | None = None,
) -> HTTPResponse:
    """Make the response whose body goes on where it breaks."""
    original = RawOriginal(port, raw)
    made = around(raw, lambda source: Resumable(port, source, begin, original, events=events))
    made.forbear_resumes, original.response_of = True, ref(made)
    return made


def read_large(
    port: Urllib3Port[AnyResponse],
    view: Urllib3Request,
    partial: PartialBody,
    error: Exception | None = None,
) -> AnyResponse:
    """Let the library read what came, and so raise its own error for what broke the body."""
    if error is None:
        error = partial.read_all()
        view.partial = None if error is None else partial
    response = port.stand_in(partial.response, partial.replayed(error))
    port.load(view.original, response)
    return response


def join(
    port: Urllib3Port[AnyResponse], call: Call, view: Urllib3Request, response: AnyResponse
) -> AnyResponse:
    """Join the rest to the beginning; a rest that does not fit fails like a broken body.

    Then the next attempt requests the whole body anew.
    """
    partial, response = view.partial, port.in_time(call, response)
    assert isinstance(partial, PartialBody)
    raw = port.raw_of(response)
    at = partial.continue_in(raw)
    if at is None:
        if not is_cut_off(raw):  # else it may have been the rest
            view.partial = None
        port.drain(call, response)
        error = ProtocolError("Connection broken: the rest of the body is another one's")
        return read_large(port, view, partial, error)
    note_resumed(call, at)
    total = partial.rest.complete  # type: ignore[union-attr]
    port.settings.events.emit("resume", call, at, total, "resumed")
    return read_large(port, view, partial)


class RawOriginal:
    """The response whose body may be resumed.

    Attributes:
        response_of: Returns the one that the caller has, if it still has it.
        rest: The response that continues it.
    """

    response_of: Callable[[], HTTPResponse | None] = staticmethod(lambda: None)
    rest: HTTPResponse | None = None

    def __init__(self, port: AnyPort, raw: HTTPResponse) -> None:
        self._port = port
        self._head = raw.status, raw.headers

    def begins_events(self) -> bool:
        status, headers = self._head
        return begins_events(status, list(headers.items()))

    def download(self, call: Call, received: int) -> Download | EventStream | None:
        request, (status, headers) = call.request, self._head
        if not received and begins_events(status, list(headers.items())):
            from ...core.event_streams import event_stream  # loaded with the first that breaks

            return event_stream(status, list(headers.items()))
        return download_of(request.method, request.header_lines(), status, list(headers.items()))

    def head_of(self, response: Any) -> tuple[int, list[tuple[str, str]]]:
        raw = self._port.raw_of(response)
        return raw.status, list(raw.headers.items())

    def stream_of(self, response: Any) -> Source:
        self.rest = self._port.raw_of(response)  # kept, since its finalizer would close the body
        return source_of(self.rest)

    def attach(self, story: Story) -> None:
        response = self.response_of()
        if response is not None:
            setattr(response, RECORD, story)


class PartialBody(Resumable):
    """A large body that is read inside the loop, as far as it came.

    Nothing of it was handed over, so the next attempt requests the rest, and a part that does not
    fit costs no more than the bytes that came: the attempt after that requests all of them anew.

    Attributes:
        response: The library's, whose head counts.
        is_broken: It broke in the last attempt, which is not classified yet.
        rest: What can be requested, once the body has broken; None: nothing.
    """

    is_broken = False
    rest: Download | None = None

    def __init__(self, port: AnyPort, response: Any, raw: HTTPResponse) -> None:
        super().__init__(port, source_of(raw), None, RawOriginal(port, raw))
        self.response, self._raw = response, raw
        self._pieces: deque[bytes] = deque()

    def read_all(self) -> Exception | None:
        """Read the body, or the rest of it, to its end; return what broke it."""
        try:
            while piece := drive(self.stream.read()):
                self._pieces.append(self._take(piece))
            if self.is_short():
                self._distrust()
        except Exception as error:
            self.is_broken = True
            return error
        return None

    def _distrust(self) -> NoReturn:
        """Trust nothing that came: this part does not belong to the same body."""
        self.rest = None
        raise ProtocolError("Connection broken: the rest has another length")

    def note_break(self, call: Call) -> bool:
        """Note that it broke; did anything come that the call had not had before?"""
        view = viewed(call)
        self.is_broken = False
        if not self._requested_at:
            self.rest = self._original.download(call, self._received)  # type: ignore[assignment]
        new_bytes = self._note_request()
        if self.rest is None or new_bytes <= 0 or view.bodies > 1:  # begun anew, at byte 0
            return False
        note_progress(call, new_bytes, self._received)
        return True

    def fields(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The header lines that request the rest."""
        assert self.rest is not None
        return self.rest.fields(self._received)

    def continue_in(self, raw: HTTPResponse) -> int | None:
        """Go on with a response; return where in the representation. None: it is not the rest."""
        assert self.rest is not None
        part = self.rest.check_part(self._received, raw.status, list(raw.headers.items()))
        if part is not Part.CONTINUES:
            return None
        self._expect(self.rest)
        self.stream = source_of(raw)
        return self.rest.first + self._received

    def replayed(self, error: Exception | None) -> HTTPResponse:
        """Make a response that gives what was read, or raises the error that broke it."""
        if error is None:
            return Replaced(self._raw, PutBack(self._pieces, Nothing()))
        drive(self.stream.close())
        return Replaced(self._raw, Broken(error, broken_before()))
