"""Inspection in aiohttp: the body under the copy of a response that ``retry_if`` is given.

Loaded with the option or the policy that asks for it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ...addons.inspection import MOST_BYTES, seconds_to_look, too_late
from ...engine.bodies import read_briefly
from ...engine.clock import SYSTEM_CLOCK
from ...engine.reading import LATE
from .bodies import Replaced

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from ...core.call import Prefetched
    from ...engine.port import Port
    from ...engine.reading import Ending


class Inspection:
    """The body of a copy of a response: it reads the caller's, and puts that back, when it is read.

    Attributes:
        prefetch_result: How reading the body ended: the error that broke it.
        answer: What ``retry_if`` returned.
        error: What it raised.
        patience: Seconds for which the body is read at most.
    """

    answer: Any = None
    error: Exception | None = None
    is_wanted = False
    patience = inf
    _is_read = False

    def __init__(
        self, port: Port[ClientResponse], response: ClientResponse, ends_at: float,
        found: Prefetched | None,
    ) -> None:  # fmt: skip
        self._port, self.response, self._ends_at = port, response, ends_at
        self.prefetch_result: Prefetched | Exception | None = found

    async def decoded(self) -> bytes:
        return await self.shown().read()

    def shown(self) -> ClientResponse:
        """Make a copy of the response that reads from here."""
        copy: Any = object.__new__(type(self.response))
        copy.__dict__ = vars(self.response).copy()
        copy.content = Replaced(copy.content, self)
        copy._connection = copy._writer = None  # the caller's
        return copy  # type: ignore[no-any-return]

    async def read(self) -> bytes:
        response, content, seconds = self.response, self.response.content, self.patience
        if self._is_read or content.at_eof():
            return b""
        if not content.is_eof():
            kind, length = response.headers.get("Content-Type", ""), response.content_length
            seconds = min(seconds, seconds_to_look(response.method, response.status, kind, length))
        ends_at = min(SYSTEM_CLOCK.true_monotonic() + seconds, self._ends_at)
        found: list[bytes] = []
        port = self._port
        live = port.live(None, response, ends_at)

        def wants_more(piece: bytes, received: int) -> bool:
            found.append(piece)
            return received <= MOST_BYTES

        ending: Ending | Exception = LATE  # also if ``retry_if`` gives up the reading
        try:
            _, ending = await read_briefly(live, wants_more)
        finally:
            port.put_back(response, live, found, ending)
        if isinstance(ending, Exception):
            self.prefetch_result = ending
            raise ending
        if ending is LATE:
            raise too_late()
        self._is_read = True
        return b"".join(found)

    async def close(self) -> None:
        """Leave the body to its caller."""
