"""Inspection in the httpx family: the copy of a response, and the source under it.

Loaded with the option or the policy that asks for it.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from ...addons.inspection import (
    MOST_BYTES,
    BodyNotShown,
    check_decoded,
    seconds_to_look,
    too_late,
)
from ...engine.bodies import read_briefly
from ...engine.clock import SYSTEM_CLOCK
from ...engine.reading import WHOLE
from .bodies import read_so_far
from .reading import UNKNOWN, length_to_prefetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from httpx import Request

    from ...engine.reading import PrefetchResult
    from .types import HttpxPort


class Inspection:
    """The source under the copy: it reads the caller's body when it is read itself.

    Attributes:
        prefetch_result: How the reading of the body ended, as of ``prefetch_body``.
        answer: What ``retry_if`` returned.
        error: What it raised.
        is_wanted: It inspected a body that could only have been awaited.
        patience: Seconds for which the body is read at most.
    """

    answer: Any = None
    error: Exception | None = None
    is_wanted = False
    patience = inf

    def __init__(
        self, port: HttpxPort, request: Request, response: Any, deadline_at: float, prefetched: Any
    ) -> None:
        self.port = port
        self.request = request
        self.response = response
        self.deadline_at = deadline_at
        self.prefetch_result: PrefetchResult | Literal["broken"] = prefetched
        self._pieces: deque[bytes] | None = None  # that the copy is still to give

    def shown(self) -> Any:
        """Make a copy that reads from here."""
        port = self.port
        kind = AsyncShown if port.kinds.is_async else Shown
        copy: Any = object.__new__(port.library.made(kind, "Response"))
        copy.__dict__ = vars(self.response).copy()  # in half the time of an update
        copy.stream, copy.request = port.replaced(port, self), self.request
        self._pieces = None
        return copy

    def body(self) -> bytes | None:
        """The body, if all of it is there; raises BodyNotShown."""
        stream = self.response.stream
        if type(stream) is not self.port.byte_stream:
            return None
        body = b"".join(stream)
        coding = self.response.headers.get("content-encoding")
        if coding is not None:
            check_decoded(coding, body)
        return body

    async def read(self) -> bytes:
        if self._pieces is None:
            body = self.body()
            if body is None:
                await self._load()
                body = self.body() or b""
            self._pieces = deque([body])
        return self._pieces.popleft() if self._pieces else b""

    async def _load(self) -> None:
        port, response = self.port, self.response
        if port.was_begun(response.stream):
            raise too_late()  # its quarter of a second is over
        length = length_to_prefetch(port, response)
        known_length = length if 0 <= length < UNKNOWN else None
        kind = str(response.headers.get("content-type", ""))
        seconds = seconds_to_look(self.request.method, response.status_code, kind, known_length)
        seconds = min(seconds, self.patience)
        if self.deadline_at != inf:
            seconds = min(seconds, self.deadline_at - port.clock.monotonic())
        live = port.live(self.request, response)
        if live.can_wait():
            live.ends_at = SYSTEM_CLOCK.true_monotonic() + seconds
        pieces, ending = await read_briefly(live, lambda _, received: received <= MOST_BYTES)
        found = self.prefetch_result = await read_so_far(port, response, live, pieces, ending)
        if isinstance(found, Exception):
            raise found
        if found is not WHOLE:
            raise too_late()

    async def decoded(self) -> bytes:
        await self.read()
        return self.shown().read()  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Leave the body to its caller."""


class Shown:
    """The part of a synchronous copy that is not the library's."""

    read: Callable[[], bytes]

    @property
    def content(self) -> bytes:
        return self.read()


class AsyncShown:
    """The part of an asynchronous copy that is not the library's."""

    stream: Any
    is_stream_consumed: bool

    def read(self) -> bytes:
        if not self.is_stream_consumed:
            inspection = self.stream.stream
            body = inspection.body()
            if body is None:
                inspection.is_wanted = True
                raise BodyNotShown("it has not arrived yet")
            self.stream = inspection.port.byte_stream(body)
        return super().read()  # type: ignore[misc, no-any-return]

    content = property(read)
