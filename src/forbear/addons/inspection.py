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
from typing import TYPE_CHECKING

from ..core.call import BODY_HINT, RETRY_IF
from ..core.checks import check_takes
from ..engine.calls import sent_request
from ..engine.clock import BACKSTOP
from ..engine.errors import DeadlineCut
from ..engine.reading import BODILESS, DRAIN_SECONDS, ENDLESS, note_prefetch

if TYPE_CHECKING:
    from ..core.call import Call
    from ..engine.port import Inspecting, Inspection, Response
    from ..engine.settings import Settings

MOST_BYTES = 65_536
SECONDS = 0.25  # for a body of unknown length: the pause of a busy server
# These are of use only as a whole, so they have an end even where their length is unknown.
DOCUMENTS = frozenset({"application/json", "application/xml", "text/xml", "text/html"})
SUFFIXES = ("+json", "+xml")

INSPECTION = "inspection"  # key of a call's notes: that of a hedged response


def check(function: object) -> object:
    """Check the option ``retry_if``."""
    check_takes("retry_if", function, "response")
    return function


class BodyNotShown(Exception):
    """``retry_if`` wants a body that cannot be read whole now; never leaves a transport."""


def seconds_to_look(method: str, status: int, kind: str, length: int | None) -> float:
    """Return for how long the body of a response may be read, infinite if its end is known.

    ``kind`` is its Content-Type, ``length`` the raw bytes that are to come by the head of the
    response, None if that is unknown.

    Raises:
        BodyNotShown: It is too long, or may have no end.
    """
    if method == "HEAD" or status in BODILESS:
        return inf
    media = kind.partition(";")[0].strip().lower()
    if media.startswith(ENDLESS):
        raise BodyNotShown(f"each part of {media} is wanted when it arrives")
    if length is not None:
        if length > MOST_BYTES:
            raise BodyNotShown(f"{length} bytes are more than {MOST_BYTES}")
        return inf
    is_document = media in DOCUMENTS or (media.endswith(SUFFIXES) and "stream" not in media)
    if status < 400 and not is_document:
        raise BodyNotShown(f"the length of this {media or 'body'} is unknown: it may have no end")
    return SECONDS


def too_late() -> BodyNotShown:
    """Make the error for a body that is too long, or slower than the time for reading it."""
    return BodyNotShown(f"more than {MOST_BYTES} bytes, or than came in {SECONDS} s")


def check_decoded(coding: str, body: bytes) -> None:
    """Refuse to show a body that grows beyond 64 KiB when its content codings are undone.

    The library decodes it in one go: 258 bytes of brotli make 620 MB.

    Raises:
        BodyNotShown: It does, or no installed decoder can check that within bounds.
    """
    for each in reversed([part.strip().lower() for part in coding.split(",")]):
        if each in ("gzip", "x-gzip", "deflate"):
            body = inflated(body)
        elif each in ("br", "zstd"):
            body = undone(each, body)
        if len(body) > MOST_BYTES:
            raise BodyNotShown(f"more than {MOST_BYTES} bytes, once {each} is undone")


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


def is_asked(settings: Settings, call: Call) -> bool:
    """Is ``retry_if`` to be called? Not for the rest of a body, nor for a broken one."""
    call.notes.pop(RETRY_IF, None)
    return settings.retry_if is not None and call.rest is None and call.body_error is None


def wants_body_hint(call: Call, status: int) -> bool:
    """May the body of a response contain a vendor's hint?"""
    policy = call.policy
    if not policy.vendors or call.rest is not None:
        return False
    call.notes.pop(BODY_HINT, None)
    return status in policy.statuses


def checked_result(settings: Settings, result: object) -> bool | None:
    """Return what ``retry_if`` returned, if that is True, False or None."""
    # By ``is``: a truthy object, such as a coroutine that nobody awaits, must not retry calls.
    if result is True or result is False or result is None:
        return result
    if isinstance(result, Coroutine):
        result.close()
    settings.events.log().hook_failed("retry_if", result, "returned")
    return None


# By httpx and aiohttp, which show a copy of the response. An *inspection* is the body under the
# copy: it is read when ``retry_if`` reads it, and not before.


def begin_inspection(port: Inspecting[Response], call: Call, response: Response) -> Inspection:
    """Call ``retry_if`` with a copy of the response; return the inspection under the copy."""
    sent = sent_request(call)
    inspection = port.inspection_of(sent, response, call.deadline_at, call.prefetch_result)
    call_retry_if(port.settings, inspection)
    return inspection


def call_retry_if(settings: Settings, inspection: Inspection) -> None:
    assert settings.retry_if is not None
    try:
        inspection.answer = settings.retry_if(inspection.shown())
    except Exception as error:
        inspection.error = error


def check_inspection(settings: Settings, inspection: Inspection) -> None:
    """Check what ``retry_if`` returned; None in its place if it is not to be used."""
    # A broken body comes first: the error that retry_if raised for it says nothing new, and
    # reporting it as a failed hook would blame the user's function for the network.
    if isinstance(inspection.prefetch_result, Exception):
        inspection.answer = None
    elif inspection.error is not None:
        settings.events.log().hook_failed("retry_if", inspection.error)
        inspection.answer = None
    else:
        inspection.answer = checked_result(settings, inspection.answer)


def inspection_for_hint(port: Inspecting[Response], call: Call, response: Response) -> Inspection:
    """Make what reads the body of a failed response, for no longer than draining would take."""
    sent = sent_request(call)
    inspection = port.inspection_of(sent, response, call.deadline_at, call.prefetch_result)
    inspection.patience = DRAIN_SECONDS
    return inspection


def read_body_hint(
    port: Inspecting[Response], call: Call, inspection: Inspection, body: bytes
) -> None:
    """Note a vendor's hint in a body; the body is empty if it could not be read."""
    from ..core.headers.vendors import vendor_hint  # the policy has loaded it

    note_prefetch(call, inspection.prefetch_result)
    response, vendors = inspection.response, call.policy.vendors
    kind = response.headers.get("Content-Type")
    call.notes[BODY_HINT] = vendor_hint(vendors, port.head_of(response)[0], kind, body)


async def inspect(
    port: Inspecting[Response], call: Call, response: Response
) -> Response | DeadlineCut:
    """Call ``retry_if`` with the response, and read a vendor's hint in its body.

    Returns:
        The response, or DeadlineCut: the deadline ended it.
    """
    inspection = call.notes.get(INSPECTION) if not call.history else None  # of a hedged response
    if is_asked(port.settings, call):
        if inspection is None:
            inspection = begin_inspection(port, call, response)
        else:
            inspection.prefetch_result = call.prefetch_result
        backstop = port.backstop
        if call.deadline_at == inf or backstop is None:
            await await_result(port, inspection)
        else:
            seconds, is_over = call.deadline_at - port.settings.clock.monotonic(), True
            with backstop.after(seconds + BACKSTOP):
                await await_result(port, inspection)
                is_over = False
            if is_over:
                return DeadlineCut()
        note_prefetch(call, inspection.prefetch_result)
        call.notes[RETRY_IF] = inspection.answer
    if wants_body_hint(call, port.head_of(response)[0]):
        inspection, body = inspection_for_hint(port, call, response), b""
        with suppress(Exception):  # too long, too slow, broken, or not decoded
            body = await inspection.decoded()
        read_body_hint(port, call, inspection, body)
    return response


async def await_result(port: Inspecting[Response], inspection: Inspection) -> None:
    """Await the result of ``retry_if``, or the body that it wants to read."""
    try:
        await await_coroutine(port, inspection)
        # A plain function cannot await the body, so its first run ended where it wanted the body.
        # Now the body is read, and the function is called a second time from its start.
        if inspection.is_wanted:
            inspection.is_wanted, inspection.error = False, None
            try:
                await inspection.read()
            except Exception as error:
                inspection.error = error
            else:
                call_retry_if(port.settings, inspection)
            await await_coroutine(port, inspection)
        check_inspection(port.settings, inspection)
    except BaseException:
        await port.close_unused(inspection.response)
        raise


async def await_coroutine(port: Inspecting[Response], inspection: Inspection) -> None:
    try:
        if port.backstop is not None and hasattr(inspection.answer, "__await__"):
            inspection.answer = await inspection.answer
    except Exception as error:
        inspection.answer, inspection.error = None, error
