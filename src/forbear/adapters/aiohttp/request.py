"""Request: what is sent by aiohttp, and what a decision sees of it.

A body that is not plain bytes goes out behind a guard, because aiohttp by itself would resend a
generator empty.
"""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import payload as payloads

from ...core.outcome import TIMEOUT_KINDS
from ...core.request import Request, known_origin
from ...engine import outgoing as copying
from ...engine.outgoing import EARLY, ConsumedBody, Readings, is_file, is_reiterable, is_seekable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp.abc import AbstractStreamWriter as Writer
    from aiohttp.client_proto import ResponseHandler

    from ...core.call import Call
    from ...core.outcome import FailureKind
    from ...engine.clock import Clock

# Types of bodies that can be replayed as they are; without a body that is b"".
TEXTS = payloads.StringPayload, payloads.StringIOPayload, payloads.JsonPayload
PLAIN: frozenset[type] = frozenset((bytes, payloads.BytesPayload, *TEXTS))


class AiohttpRequest(Request):
    """The facts that a decision reads of a ClientRequest.

    Attributes:
        handler: What sends it: the session, or the next middleware.
    """

    __slots__ = ("handler",)

    handler: aiohttp.ClientHandlerType

    def header_lines(self) -> Iterable[tuple[str, str]]:
        return self.headers.items()  # type: ignore[no-any-return]

    def header(self, name: str) -> str | None:
        return self.headers.get(name)  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        return self.target.raw_path_qs  # type: ignore[no-any-return]


def origin_of_url(url: Any) -> str:
    """``scheme://host:port``, never userinfo, path or query."""
    return known_origin(url.scheme, url.raw_host or "", url.port)


class Hop(copying.Hop):
    """The last hop of a redirected call, or a call whose error makes the session retry.

    Looked up in the task that made the call, by the timer that all hops of one call share.

    Attributes:
        error: What ended the call; None: a redirect did.
    """

    __slots__ = ("error", "guard", "port", "timer")

    def __init__(self, port: object, call: Call, error: Exception | None = None) -> None:
        super().__init__(call)
        self.port = port
        self.timer = call.request.original._timer
        self.error = error
        self.guard = call.guard


LAST_HOP: ContextVar[Hop | None] = ContextVar("forbear_last_hop", default=None)


class Timeouts:
    """The limits of one attempt, which aiohttp's own read timeout is shortened to.

    Args:
        clock: The call's.
        deadline_at: When the call is over.
        each: The policy's ``attempt_timeout``.
    """

    def __init__(self, clock: Clock, deadline_at: float, each: float | None) -> None:
        self.clock = clock
        self.deadline_at = deadline_at
        self.each = each
        self.own: float | None = None  # the session's timeout for reading
        self.protocol: ResponseHandler | None = None  # whose timeout was changed
        self._is_shortened = False

    def connect(self) -> float | None:
        """Return the seconds for getting a connection."""
        left = max(self.deadline_at - self.clock.monotonic(), 0.001)
        self._is_shortened = self.each is None or left < self.each
        return self.each if left == inf or not self._is_shortened else left

    def begin(self, protocol: ResponseHandler) -> None:
        """Let each read of the connection end in time."""
        own = protocol.read_timeout or None
        seconds = min((one for one in (own, self.each) if one is not None), default=inf)
        left = max(self.deadline_at - self.clock.monotonic(), 0.001)
        self._is_shortened = left < seconds
        if min(left, seconds) != own and min(left, seconds) < inf:
            self.own, self.protocol = own, protocol
            protocol.read_timeout = min(left, seconds)

    def reopen(self, response: aiohttp.ClientResponse) -> None:
        """Give a body that the caller reads the session's own timeout."""
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.read_timeout = self.own
            if response.connection is not None and not response.content.is_eof():
                protocol.start_timeout()

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did the deadline end the attempt, through the timeout for connecting or reading?"""
        return kind in TIMEOUT_KINDS and self._is_shortened and now >= self.deadline_at - EARLY


class Guard(Readings, aiohttp.Payload):
    """A request's body behind a guard, sent in its place."""

    def __init__(self, payload: aiohttp.Payload, buffer_limit: int) -> None:
        self.payload = payload
        value = getattr(payload, "_value", None)
        is_iterated = isinstance(payload, payloads.AsyncIterablePayload)
        self._is_anew = is_iterated and not is_file(value) and is_reiterable(value)
        super().__init__(
            replayable=self._is_anew or is_replayable(payload),
            doubted=self._is_anew,
            buffer_limit=buffer_limit if is_iterated else 0,
        )
        if not self._replayable and (
            payload.consumed
            or getattr(payload, "_iter", payload) is None
            or getattr(value, "ag_frame", payload) is None
        ):
            self._readings, self.buffer = 1, None  # an earlier call has read it

    @property
    def size(self) -> int | None:
        return self.payload.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.payload.decode(encoding, errors)

    async def write(self, writer: Writer) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: Writer, content_length: int | None) -> None:
        begun = self.begin()
        for chunk in begun:
            await writer.write(chunk)
        left = None if content_length is None else content_length - sum(map(len, begun))
        payload, noting = self.payload, Noting(writer, self)
        if self._is_anew:  # a payload once iterated counts as consumed, for a redirect too
            payload = type(payload)(payload._value)
        try:
            await payload.write_with_length(noting, left)  # type: ignore[arg-type]
        except ConsumedBody:
            raise
        except BaseException as error:
            if not noting.failed:  # the source failed, or was cancelled and gives no more
                self.broke(error)
            raise
        self.finish()


class Noting:
    """A writer that passes each chunk to the guard before it goes out."""

    failed = False

    def __init__(self, writer: Writer, guard: Guard) -> None:
        self._writer = writer
        self._guard = guard

    async def write(self, chunk: bytes) -> None:
        self._guard.note(chunk)
        try:
            await self._writer.write(chunk)
        except BaseException:
            self.failed = True
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def is_replayable(payload: Any) -> bool:
    """Can aiohttp write it again from where it began? It seeks a file back to where it stood."""
    if type(payload) in PLAIN:
        return True
    if not type(payload).__module__.startswith("aiohttp.") or payload.consumed:
        return False
    if isinstance(payload, payloads.IOBasePayload):
        return is_seekable(payload._value)
    if isinstance(payload, aiohttp.MultipartWriter):
        return all(is_replayable(part) for part, _, _ in payload)
    return isinstance(payload, payloads.BytesPayload)
