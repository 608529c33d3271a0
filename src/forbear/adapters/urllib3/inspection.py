"""Inspection of responses of requests and urllib3, by ``retry_if`` and for vendors' hints.

Loaded with the first response that is inspected. What was read is put back in front of the rest.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from urllib3 import HTTPResponse

from ...addons.inspection import (
    check_decoded,
    checked_result,
    is_asked,
    seconds_to_look,
    too_late,
    wants_body_hint,
)
from ...core.call import BODY_HINT, RETRY_IF
from ...core.headers.vendors import vendor_hint
from ...engine.bodies import read_briefly
from ...engine.clock import SYSTEM_CLOCK
from ...engine.loop import drive
from ...engine.reading import DRAIN_BYTES, DRAIN_SECONDS, WHOLE
from .bodies import Replaced, put_back
from .live import live_of
from .request import viewed

if TYPE_CHECKING:
    from ...core.call import Call
    from .types import AnyPort, AnyResponse, Urllib3Port


def inspect(port: Urllib3Port[AnyResponse], call: Call, response: AnyResponse) -> AnyResponse:
    """Let ``retry_if`` inspect a response, and read a vendor's hint in its body."""
    if is_asked(port.settings, call):
        response = ask_about(port, call, response)
    status = port.status_of(response)
    if wants_body_hint(call, status):
        response = read_body_hint(port, call, response, status)
    return response


def read_body_hint(
    port: Urllib3Port[AnyResponse], call: Call, response: AnyResponse, status: int
) -> AnyResponse:
    """Read a vendor's hint in the body of a failed response."""
    raw = port.raw_of(response)
    if isinstance(raw, HTTPResponse) and not raw.closed:
        inspection, body = Inspection(port, call.request.method, raw, call.deadline_at), b""
        inspection.patience = DRAIN_SECONDS
        with suppress(Exception):  # too long, too slow, broken, or not decoded
            body = inspection.shown().read(decode_content=True)
        if inspection.kept is not None:
            response = port.stand_in(response, inspection.kept)
        kind = response.headers.get("content-type")
        call.notes[BODY_HINT] = vendor_hint(call.policy.vendors, status, kind, body)
    return response


def ask_about(port: Urllib3Port[AnyResponse], call: Call, response: AnyResponse) -> AnyResponse:
    """Call ``retry_if`` with a response, or with a copy whose body it may read."""
    view = viewed(call)
    raw = port.raw_of(response)
    inspection = error = None
    shown = response
    if not (
        port.loads(call, response)
        or not isinstance(raw, HTTPResponse)
        or raw.length_remaining == 0  # of HEAD too
        or raw.closed
    ):
        inspection = Inspection(port, view.method, raw, call.deadline_at)
        shown = port.copy_of(response, inspection.shown())
    assert port.settings.retry_if is not None
    try:
        result = port.settings.retry_if(shown)
    except Exception as raised:
        result, error = None, raised
    if inspection is not None and inspection.kept is not None:
        response = port.stand_in(response, inspection.kept)
        call.body_error = inspection.error
    if call.body_error is None:  # else the error that broke the body decides
        if error is not None:
            port.settings.events.log().hook_failed("retry_if", error)
        call.notes[RETRY_IF] = checked_result(port.settings, result)
    return response


class Inspection:
    """The source under the copy: it reads the caller's body when it is read itself.

    Attributes:
        kept: The urllib3 response that gives the caller the whole body; None: nothing was read.
        error: What broke the body.
        patience: Seconds for which the body is read at most.
    """

    kept: HTTPResponse | None = None
    error: Exception | None = None
    patience = inf
    _pieces: deque[bytes] | None = None  # that the copy gives

    def __init__(self, port: AnyPort, method: str, raw: HTTPResponse, deadline_at: float) -> None:
        self._port, self._deadline_at = port, deadline_at
        self._method, self._raw = method, raw

    def shown(self) -> HTTPResponse:
        """Make a urllib3 response that reads from here."""
        return Replaced(self._raw, self, is_copy=True)

    async def read(self) -> bytes:
        if self._pieces is None:
            self._pieces = deque(self._take())
        return self._pieces.popleft() if self._pieces else b""

    async def close(self) -> None:
        """Leave the body to its caller."""

    def _take(self) -> list[bytes]:
        if self.kept is not None:  # what a second reading took nobody would put back
            raise self.error or too_late()
        raw, clock = self._raw, self._port.clock
        kind = raw.headers.get("content-type", "")
        seconds = seconds_to_look(self._method, raw.status, kind, raw.length_remaining)
        now = clock.monotonic()
        until = min(now + min(seconds, self.patience), self._deadline_at)

        def wants_more(_: bytes, received: int) -> bool:
            return received <= DRAIN_BYTES and clock.monotonic() < until

        live = live_of(raw, SYSTEM_CLOCK.true_monotonic() + max(until - now, 0.0))
        pieces, ending = drive(read_briefly(live, wants_more))
        self.kept = put_back(raw, pieces, ending)
        self.error = ending if isinstance(ending, Exception) else None
        if ending is not WHOLE:
            raise self.error or too_late()
        check_decoded(raw.headers.get("content-encoding", ""), b"".join(pieces))
        return pieces
