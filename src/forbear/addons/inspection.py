"""Inspection: what ``retry_if``, and the reader of a vendor's hint, are shown of a response.

``retry_if`` is passed a copy of the response, whose body is read only when ``retry_if`` reads it;
what was read is put back in front of the rest. Loaded with the option or the policy that asks for
it.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import BODY_HINT, FLAGGED
from ..core.feature_checks import check_takes
from ..core.headers.fields import Names, collect, media_type, members
from ..engine.calls import sent_request
from ..engine.clock import BACKSTOP, SYSTEM_CLOCK
from ..engine.driver import read_part
from ..engine.errors import DeadlineCut
from ..engine.loop import drive
from ..engine.reading import BODILESS, DRAIN_SECONDS, ENDLESS, LATE, WHOLE, note_prefetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.call import Call
    from ..core.headers.fields import Line
    from ..engine.port import Port, Response
    from ..engine.reading import Ending
    from ..engine.settings import Settings

MOST_BYTES = 65_536
SECONDS = 0.25  # for a body of unknown length: the pause of a busy server
# These are of use only as a whole, so they have an end even where their length is unknown.
DOCUMENTS = frozenset({"application/json", "application/xml", "text/xml", "text/html"})
SUFFIXES = ("+json", "+xml")
READ = Names(("content-length", "transfer-encoding", "content-encoding"))


def check(function: object) -> object:
    """Check the option ``retry_if``."""
    check_takes("retry_if", function, "response")
    return function


class BodyNotShown(Exception):
    """``retry_if`` wants a body that cannot be read whole now; never leaves a transport."""


def seconds_to_look(port: Port[Response], call: Call, response: Response) -> float:
    """Return for how long the body of a response may be read, infinite if its end is known.

    Raises:
        BodyNotShown: It is too long, or may have no end.
    """
    status, lines = port.head_of(response)
    if call.request.method == "HEAD" or status in BODILESS:
        return inf
    if port.is_long(response):
        raise BodyNotShown(f"it has more than {MOST_BYTES} bytes")
    if port.has_ended(response):
        return inf
    media, found = media_type(lines), collect(lines, READ)
    if media.startswith(ENDLESS):
        raise BodyNotShown(f"each part of {media} is wanted when it arrives")
    if "content-length" in found and "transfer-encoding" not in found:
        return inf
    is_document = media in DOCUMENTS or (media.endswith(SUFFIXES) and "stream" not in media)
    if status < 400 and not is_document:
        raise BodyNotShown(f"the length of this {media or 'body'} is unknown: it may have no end")
    return SECONDS


def too_late() -> BodyNotShown:
    """Make the error for a body that is too long, or slower than the time for reading it."""
    return BodyNotShown(f"more than {MOST_BYTES} bytes, or than came in {SECONDS} s")


def decoded(lines: Iterable[Line], body: bytes) -> bytes:
    """Undo the content codings of a body, up to a little more than is shown.

    The library decodes it in one go: 258 bytes of brotli make 620 MB.

    Raises:
        BodyNotShown: It grows beyond 64 KiB, or no installed decoder can check that within bounds.
    """
    codings = members(",".join(collect(lines, READ).get("content-encoding", ())))
    for each in map(str.lower, reversed(codings)):
        if each in ("gzip", "x-gzip", "deflate"):
            body = inflated(body)
        elif each in ("br", "zstd"):
            body = undone(each, body)
        if len(body) > MOST_BYTES:
            raise BodyNotShown(f"more than {MOST_BYTES} bytes, once {each} is undone")
    return body


def inflated(body: bytes) -> bytes:
    """Undo gzip or deflate up to a little more than is shown; what is broken stays as it is."""
    import zlib

    for window in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):  # with a head, or without
        found, left = b"", body
        try:
            while left and len(found) <= MOST_BYTES:  # gzip may have several members
                member = zlib.decompressobj(window)
                found += member.decompress(left, MOST_BYTES + 1 - len(found))
                left = member.unused_data
            return found
        except zlib.error:
            if found:
                return found
    return body


def undone(coding: str, body: bytes) -> bytes:
    """Undo brotli or zstandard, as ``inflated``, with what the client library has loaded."""
    most = MOST_BYTES + 1
    try:
        if coding == "br":
            loaded = sys.modules.get("brotli") or sys.modules.get("brotlicffi")
            # Before 1.2 the parameter is missing: a TypeError.
            return body if loaded is None else loaded.Decompressor().process(body, most)
        for name in ("zstandard", "compression.zstd", "backports.zstd"):
            loaded = sys.modules.get(name)
            if name == "zstandard" and loaded is not None:
                reader = loaded.ZstdDecompressor().stream_reader(body, read_across_frames=True)
                return reader.read(most)  # type: ignore[no-any-return]
            if loaded is not None:
                found = b""
                while body and len(found) < most:  # it may have several frames
                    frame = loaded.ZstdDecompressor()
                    found += frame.decompress(body, most - len(found))
                    body = frame.unused_data
                return found
    except Exception as error:
        raise BodyNotShown(f"{coding} cannot be undone within bounds") from error
    return body  # no decoder is loaded, so the client library cannot decode it either


class Inspection:
    """The source under a copy of a response: it reads the caller's body when it is read itself.

    Attributes:
        response: The caller's, with what was read of its body put back.
        ending: How the reading of its body has ended; None: nothing was read.
        seconds: For so long the body is read at most.
        answer: What ``retry_if`` returned.
        error: What it raised.
        is_wanted: It wanted a body that could only have been awaited.
    """

    answer: Any = None
    ending: Ending | Exception | None = None
    error: Exception | None = None
    is_wanted = False
    seconds = inf
    _body: bytes | None = None
    _is_given = False  # to the last copy

    def __init__(self, port: Port[Any], call: Call, response: Any) -> None:
        self._port, self._call, self._request = port, call, sent_request(call)
        self.response = response

    def shown(self) -> Any:
        """Make a copy that reads from here."""
        self._is_given = False
        return self._port.shown(self.response, self._request, self)

    async def read(self) -> bytes:
        found, self._is_given = b"" if self._is_given else await self.load(), True
        return found

    async def close(self) -> None:
        """Leave the body to its caller."""

    def fill(self, copy: Any) -> None:
        """Give a copy its body at once, for a plain function, which cannot await it."""
        port, response = self._port, self.response
        self.is_wanted = (
            port.backstop is not None and self._body is None and not port.has_ended(response)
        )
        if self.is_wanted:
            raise BodyNotShown("it has not arrived yet")
        port.with_body(copy, [drive(self.load())])

    async def load(self) -> bytes:
        """Read the body, once.

        Raises:
            BodyNotShown: It is too long, too slow, or may have no end.
            The library's error that broke it.
        """
        if self._body is None:
            if self.ending is not None:
                raise self.ending if isinstance(self.ending, Exception) else too_late()
            self._body = await self._take()
        return self._body

    async def _take(self) -> bytes:
        port, call, response = self._port, self._call, self.response
        seconds = min(self.seconds, seconds_to_look(port, call, response))
        if port.has_ended(response):
            pieces, self.ending = port.pieces_of(response), WHOLE
        else:
            seconds = min(seconds, call.deadline_at - port.clock.monotonic())
            live = port.live(self._request, response, SYSTEM_CLOCK.true_monotonic() + seconds)
            if not live.can_wait:
                live.ends_at = inf
            found: list[bytes] = []

            def wants_more(piece: bytes, received: int) -> bool:
                found.append(piece)
                return received <= MOST_BYTES

            try:
                self.response, pieces, self.ending = await read_part(
                    port, response, live, wants_more
                )
            except BaseException:  # ``retry_if`` gives up the reading
                live.ends_at = inf
                self.response = port.put_back(response, live, found, LATE)
                raise
        if self.ending is not WHOLE:
            raise self.ending if isinstance(self.ending, Exception) else too_late()
        self.response = port.with_body(response, pieces)
        body = b"".join(pieces)
        if not port.decodes:
            decoded(port.head_of(response)[1], body)
        return body


async def inspect(port: Port[Response], call: Call, response: Response) -> Response | DeadlineCut:
    """Call ``retry_if`` with the response, and read a vendor's hint in its body.

    Returns:
        The response, or DeadlineCut: the deadline ended it.
    """
    call.notes.pop(FLAGGED, None)
    if call.rest is not None:
        return response
    inspection = Inspection(port, call, response)
    if port.settings.options["retry_if"] is not None and call.body_error is None:
        if not await ask_in_time(port, call, inspection):
            return DeadlineCut()
        call.notes[FLAGGED] = inspection.answer
    (status, lines), vendors = port.head_of(response), call.policy.vendors
    if vendors and status in call.policy.statuses:
        from ..core.headers.vendors import vendor_hint  # the policy has loaded it

        inspection.seconds, body = DRAIN_SECONDS, b""
        with suppress(Exception):  # too long, too slow, broken, or not decoded
            body = await inspection.load()
            if not port.decodes:
                body = decoded(lines, body)
        call.notes[BODY_HINT] = vendor_hint(vendors, status, media_type(lines), body)
    if inspection.ending is not None:
        note_prefetch(call, inspection.ending)
    return inspection.response  # type: ignore[no-any-return]


async def ask_in_time(port: Port[Any], call: Call, inspection: Inspection) -> bool:
    """Ask ``retry_if``; False: the deadline came first."""
    if call.prefetch_result is WHOLE and not port.has_ended(inspection.response):
        # So that a plain function can read it, and is not called a second time for it.
        with suppress(Exception):
            await inspection.load()
    if call.deadline_at == inf or port.backstop is None:
        await ask(port, inspection)
        return True
    with port.backstop(call.deadline_at - port.clock.monotonic() + BACKSTOP):
        await ask(port, inspection)
        return True
    return False


async def ask(port: Port[Any], inspection: Inspection) -> None:
    """Call ``retry_if`` with a copy of the response, and await its result."""
    await call_retry_if(port, inspection)
    # A plain function cannot await the body, so its first run ended where it wanted the body. Now
    # the body is read, and the function is called a second time from its start.
    if inspection.is_wanted:
        inspection.is_wanted, inspection.error = False, None
        try:
            await inspection.load()
        except Exception as error:
            inspection.error = error
        else:
            await call_retry_if(port, inspection)
    # A broken body comes first: the error that retry_if raised for it says nothing new, and
    # reporting it as a failed hook would blame the user's function for the network.
    if isinstance(inspection.ending, Exception):
        inspection.answer = None
    elif inspection.error is not None:
        port.settings.events.log().hook_failed("retry_if", inspection.error)
    else:
        inspection.answer = checked_result(port.settings, inspection.answer)
    inspection.error = None  # its traceback holds this frame


async def call_retry_if(port: Port[Any], inspection: Inspection) -> None:
    inspection.answer = None
    try:
        answer: Any = port.settings.options["retry_if"](inspection.shown())
        if port.backstop is not None and hasattr(answer, "__await__"):
            answer = await answer
        inspection.answer = answer
    except Exception as error:
        inspection.error = error


def checked_result(settings: Settings, result: object) -> bool | None:
    """Return what ``retry_if`` returned, if that is True, False or None."""
    # By ``is``: a truthy object, such as a coroutine that nobody awaits, must not retry calls.
    if result is True or result is False or result is None:
        return result
    if isinstance(result, Coroutine):
        result.close()
    settings.events.log().hook_failed("retry_if", result, "returned")
    return None
