"""Inspection in aiohttp: the body under the copy of a response that ``retry_if`` is given.

Loaded with the option or the policy that asks for it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.inspection import MOST_BYTES, seconds_to_look, too_late
from ...engine.reading import LATE, WHOLE, aread_pieces
from .bodies import ContentBody, Pulled

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from ...core.call import Prefetched
    from ...engine.reading import Ending
    from .types import AiohttpPort


class Inspection(Pulled):
    """The body under a copy: it reads the caller's, and puts that back, when it is read itself.

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

    def __init__(
        self,
        port: AiohttpPort,
        response: ClientResponse,
        deadline_at: float,
        found: Prefetched | None,
    ) -> None:
        self._port, self.response, self._deadline_at = port, response, deadline_at
        self.prefetch_result: Prefetched | Exception | None = found
        super().__init__(response.content)

    async def decoded(self) -> bytes:
        return await self.shown().read()

    def shown(self) -> ClientResponse:
        """Make a copy of the response that reads from here."""
        copy = object.__new__(type(self.response))
        copy.__dict__ = vars(self.response).copy()
        copy.content = self
        copy._connection = copy._writer = None  # the caller's
        return copy

    async def pull(self) -> bytes:
        content, port, response = self._inner, self._port, self.response
        if content is None or content.at_eof():
            return b""
        seconds = self.patience
        if not content.is_eof():
            kind, length = response.headers.get("Content-Type", ""), response.content_length
            seconds = min(seconds, seconds_to_look(response.method, response.status, kind, length))
        seconds = min(seconds, self._deadline_at - port.clock.monotonic(), 1e6)
        body = ContentBody(content, lambda: response)
        ending: Ending = LATE  # unless the backstop lets the reading end
        try:
            with port.backstop.after(seconds):
                ending = await aread_pieces(body, lambda received: received <= MOST_BYTES)
        except Exception as error:
            self.prefetch_result = error
            raise
        finally:
            found = b"".join(body.pieces)
            # From here on this reads what the caller will: a ``retry_if`` that reads again after an
            # error must not take bytes that nobody puts back.
            self._inner = response.content = Pulled(None if ending is WHOLE else content, found)
        if ending is not WHOLE:
            raise too_late()
        self._inner = None
        return found
