"""Inspection: what ``retry_if``, and the reader of a vendor's hint, are shown of a response.

A body that is short, and whose end is near, is read before. It is put back in front of the rest,
and ``retry_if`` is passed a copy of the response that has it too. Loaded with the option or the
policy that asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import BODY_HINT, FLAGGED
from ..core.feature_checks import check_takes
from ..core.headers.fields import Names, collect, media_type, members
from ..engine.calls import sent_request
from ..engine.clock import BACKSTOP, SYSTEM_CLOCK
from ..engine.driver import BODILESS, DRAIN_SECONDS, ENDLESS, WHOLE, note_prefetch, read_part
from ..engine.errors import DeadlineCut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Call
    from ..core.headers.fields import Line
    from ..engine.port import Port, Req, Resp

MOST_BYTES = 65_536
# These are of use only as a whole, so they have an end even where their length is unknown.
DOCUMENTS = frozenset({"application/json", "application/xml", "text/xml", "text/html"})
SUFFIXES = ("+json", "+xml")
READ = Names(("content-length", "transfer-encoding", "content-encoding"))


def check(function: Callable[..., object]) -> Callable[..., object]:
    """Check the option ``retry_if``."""
    check_takes("retry_if", function, "response")
    return function


class BodyNotShown(Exception):
    """``retry_if`` wants a body that was not read whole; never leaves a transport."""


async def inspect(port: Port[Req, Resp], call: Call, response: Resp) -> Resp | DeadlineCut:
    """Call ``retry_if`` with the response, and read a vendor's hint in its body.

    Returns:
        The response, or DeadlineCut: the deadline ended it.
    """
    call.notes.pop(FLAGGED, None)
    if call.rest is not None:
        return response
    if call.deadline_at == inf or port.backstop is None:
        return await look(port, call, response)
    with port.backstop(call.deadline_at - port.clock.monotonic() + BACKSTOP):
        return await look(port, call, response)
    return DeadlineCut()


async def look(port: Port[Req, Resp], call: Call, response: Resp) -> Resp:
    """Read what may be shown of a response, and show it."""
    asks = port.settings.options["retry_if"] is not None and call.body_error is None
    (status, lines), vendors = port.head_of(response), call.policy.vendors
    wants_hint = bool(vendors) and status in call.policy.statuses
    if not asks and not wants_hint:
        return response
    response, body = await read_body(port, call, response, inf if asks else DRAIN_SECONDS)
    shown = Shown(body, () if port.decodes else lines)
    # Of a broken body the network is at fault, so the user's function is not asked about it.
    if asks and call.body_error is None:
        await ask(port, call, port.shown(response, sent_request(call), shown))
    if wants_hint:
        from ..core.headers.vendors import vendor_hint  # the policy has loaded it

        try:
            call.notes[BODY_HINT] = vendor_hint(vendors, status, media_type(lines), shown.decoded)
        except Exception:  # too long, too slow, broken, or not decoded
            call.notes[BODY_HINT] = None
    return response


async def read_body(
    port: Port[Req, Resp], call: Call, response: Resp, most_seconds: float
) -> tuple[Resp, bytes | Exception]:
    """Read a body and put it back; return the response that has it, and the body, or why not."""
    seconds = min(most_seconds, seconds_to_look(port, call, response))
    if seconds <= 0:
        return response, BodyNotShown("its end is unknown, or not near")
    if port.has_ended(response):
        pieces = port.pieces_of(response)  # none where the library has read it
        return port.with_body(response, pieces) if pieces else response, b"".join(pieces)
    seconds = min(seconds, call.deadline_at - port.clock.monotonic())
    live = port.live(sent_request(call), response, SYSTEM_CLOCK.true_monotonic() + seconds)
    if not live.can_wait:
        live.ends_at = inf
    response, pieces, ending = await read_part(
        port, response, live, lambda _, received: received <= MOST_BYTES
    )
    note_prefetch(call, ending)
    if ending is WHOLE:
        return port.with_body(response, pieces), b"".join(pieces)
    late = BodyNotShown(f"it has more than {MOST_BYTES} bytes, or than came in time")
    return response, ending if isinstance(ending, Exception) else late


def seconds_to_look(port: Port[Req, Resp], call: Call, response: Resp) -> float:
    """Return for how long the body of a response may be read, infinite if its end is known.

    0: it is too long, or may have no end, so that each part is wanted when it arrives.
    """
    status, lines = port.head_of(response)
    if call.request.method == "HEAD" or status in BODILESS:
        return inf
    if port.is_long(response):
        return 0.0
    media, found = media_type(lines), collect(lines, READ)
    has_length = "content-length" in found and "transfer-encoding" not in found
    if port.has_ended(response) or (has_length and not media.startswith(ENDLESS)):
        return inf
    is_document = media in DOCUMENTS or (media.endswith(SUFFIXES) and "stream" not in media)
    is_near = is_document or (status >= 400 and not media.startswith(ENDLESS))
    return DRAIN_SECONDS if is_near else 0.0


class Shown:
    """The source under the copy of a response.

    Args:
        body: As it came, or why it is not shown.
        lines: The header lines, if the body is encoded as they say.
    """

    def __init__(self, body: bytes | Exception, lines: Iterable[Line]) -> None:
        self._body, self._lines = body, lines
        self._left = body if isinstance(body, bytes) else b""

    @cached_property
    def decoded(self) -> bytes:
        """The body without its codings.

        Raises:
            What prevents that it is shown.
        """
        if isinstance(self._body, Exception):
            raise self._body
        return decoded(self._lines, self._body)

    async def read(self) -> bytes:
        assert self.decoded is not None, "else it has raised"
        found, self._left = self._left, b""
        return found

    async def close(self) -> None:
        """Leave the body to its caller."""


async def ask(port: Port[Req, Resp], call: Call, copy: Resp) -> None:
    """Call ``retry_if`` with a copy of the response, await its result, and note that."""
    settings = port.settings
    try:
        answer: object = settings.options["retry_if"](copy)
        if port.backstop is not None and isinstance(answer, Awaitable):
            answer = await answer
    except Exception as error:
        settings.events.log().hook_failed("retry_if", error)
        return
    # By ``is``: a truthy object, such as a coroutine that nobody awaits, must not retry calls.
    if answer is True or answer is False or answer is None:
        call.notes[FLAGGED] = answer
        return
    if isinstance(answer, Coroutine):
        answer.close()
    settings.events.log().hook_failed("retry_if", answer, "returned")


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
        with suppress(zlib.error):
            return members_of(partial(zlib.decompressobj, window), body)
    return body


def undone(coding: str, body: bytes) -> bytes:
    """Undo brotli or zstandard, as ``inflated``, with what the client library has loaded."""
    loaded = sys.modules.get
    try:
        if coding == "br":
            brotli = loaded("brotli") or loaded("brotlicffi")
            # Before 1.2 the parameter is missing: a TypeError.
            return brotli.Decompressor().process(body, MOST_BYTES + 1) if brotli else body
        if zstandard := loaded("zstandard"):
            reader = zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True)
            return reader.read(MOST_BYTES + 1)  # type: ignore[no-any-return]
        if zstd := loaded("compression.zstd") or loaded("backports.zstd"):
            return members_of(zstd.ZstdDecompressor, body)
    except Exception as error:
        raise BodyNotShown(f"{coding} cannot be undone within bounds") from error
    return body  # no decoder is loaded, so the client library cannot decode it either


def members_of(decompressor: Callable[[], Any], body: bytes) -> bytes:
    """Undo a coding of several members, or frames, up to what is no such thing."""
    found = b""
    while body and len(found) <= MOST_BYTES:
        member = decompressor()
        try:
            found += member.decompress(body, MOST_BYTES + 1 - len(found))
        except Exception:
            if not found:
                raise
            break
        body = member.unused_data
    return found
