"""Resuming in requests and urllib3: a large body that is read inside the loop.

It is kept as far as it came (``PartialBody``), and the next attempt requests the rest.
core/headers/ranges.py says what may be resumed and what fits. Chunked bodies are not resumed.
Loaded with the first body that is large.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from urllib3.exceptions import ProtocolError

from ...addons.resume import Original, Resumable, note_progress, note_resumed
from ...core.headers.ranges import Download, Part
from ...engine.bodies import Broken, PutBack
from ...engine.driver import discard
from ...engine.loop import drive
from ...engine.reading import Nothing
from .bodies import Replaced, broken_before, is_cut_off, source_of
from .request import viewed

if TYPE_CHECKING:
    from urllib3 import HTTPResponse

    from ...core.call import Call
    from .request import Urllib3Request
    from .types import AnyPort, AnyResponse, Urllib3Port


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


async def join(
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
        await discard(port, call, response)
        error = ProtocolError("Connection broken: the rest of the body is another one's")
        return read_large(port, view, partial, error)
    note_resumed(call, at)
    total = partial.rest.complete  # type: ignore[union-attr]
    port.settings.events.emit("resume", call, at, total, "resumed")
    return read_large(port, view, partial)


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
        super().__init__(port, source_of(raw), None, Original(port, response))
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
            self.rest = self._original.requestable(call, self._received)  # type: ignore[assignment]
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
