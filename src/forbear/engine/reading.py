"""Reading: how much of a response's body is read before the response is handed over.

A small body that is prefetched, a failed one that is drained, that of a held call. A body that may
have no end is not read, because a read that has begun cannot be undone, and the caller may want
each part when it arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from ..core.call import Call

# How the reading of a body ended, if no exception broke it; None: it was not read.
Ending = Literal["whole", "late"]
PrefetchResult = Ending | Exception | None
WHOLE: Literal["whole"] = "whole"
LATE: Literal["late"] = "late"  # more is to come, at an unknown time
# A body of more bytes or seconds than these costs more than the new connection that draining it
# saves.
DRAIN_BYTES = 65_536
DRAIN_SECONDS = 0.25
# The caller wants each part of these when it arrives.
ENDLESS = ("text/event-stream", "multipart/x-mixed-replace")
BODILESS = frozenset({101, 204, 304})


def is_endless(content_type: object, status: int) -> bool:
    """Is a response a stream of events, or of another protocol?"""
    return status == 101 or str(content_type or "").lower().lstrip().startswith(ENDLESS)


class Source(Protocol):
    """The bytes of a body that are still to come; nothing else reads it."""

    async def read(self) -> bytes:
        """Return the next bytes, none at the end."""
        ...

    async def close(self) -> None:
        """Read no more. Idempotent."""


class Live(Source, Protocol):
    """The source of a library: the only reader of what is still to come of a response, raw.

    Attributes:
        ends_at: Each read ends by this instant of the system's clock, or infinity.
        can_wait: A body that pauses stays intact.
    """

    ends_at: float

    @property
    def can_wait(self) -> bool: ...

    async def has_more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact.

        A read that is begun and given up would lose bytes, or the connection.
        """
        ...


def is_readable(found: bytes, *, is_chunked: bool) -> bool:
    """Can a parser of HTTP/1.1 continue with these bytes, without more from the network?

    Args:
        found: Bytes that were received and not parsed yet.
        is_chunked: They begin between two chunks. Inside a chunk parsers take any bytes at once.
    """
    if not is_chunked:
        return bool(found)
    size, end, rest = found.removeprefix(b"\r\n").partition(b"\n")
    if not end:
        return False
    if size.partition(b";")[0].strip().strip(b"0"):
        return bool(rest)
    return rest.startswith((b"\r\n", b"\n")) or b"\n\r\n" in rest or b"\n\n" in rest


def note_prefetch(call: Call, outcome: PrefetchResult) -> None:
    """Note the result of prefetching the body."""
    if isinstance(outcome, Exception):
        call.body_error, outcome = outcome, LATE
    call.prefetch_result = outcome
