"""Timeouts of the httpx family: a call's deadline reaches the library as its own timeouts. Floor:
acts.

httpcore asks ``extensions["timeout"].get(phase)`` at the start of each phase, so pool, connect,
write and read end by themselves, with the right class of exception and the connection handled by
the one who owns it. A cancel scope alone, cutting through from outside, loses httpcore 1.0.9's pool
slot for good when it cancels a queued request.
"""

from __future__ import annotations

from math import inf
from typing import Any

from ..core.outcome import FailureKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

__all__ = ["AsyncBounded", "Bounded", "LoweredTimeout", "Timeouts"]

LEAST = 0.001  # seconds; 0 would make a socket non-blocking instead of timing it out
EARLY = 0.05  # seconds; a timeout that ends this long before the deadline was not shortened by it in effect
BACKSTOP = 0.05  # seconds behind the deadline at which asynchronous code is cut off from outside
# Draining a failed response lets its connection be used again, which saves a round trip or three; a
# body of more bytes or seconds than these costs more than that.
DRAIN_BYTES = 65_536
DRAIN_SECONDS = 0.25
PHASE_OF = {
    FailureKind.POOL: "pool",
    FailureKind.CONNECT_TIMEOUT: "connect",
    FailureKind.READ_TIMEOUT: "read",
    FailureKind.WRITE_TIMEOUT: "write",
}


class Timeouts(dict[str, Any]):
    """An attempt's own copy of ``extensions["timeout"]``, which knows the time.

    ``get(phase)`` is the least of what the client configured, ``attempt_timeout`` and the time
    left.
    """

    __slots__ = ("_deadline_at", "_now", "_own", "_shortened")

    def __init__(
        self,
        configured: Mapping[str, Any],
        now: Callable[[], float],
        deadline_at: float,
        attempt_timeout: float | None,
    ) -> None:
        super().__init__(configured)
        self._own = configured
        if attempt_timeout is not None:
            for phase in ("pool", "connect", "read", "write"):
                own = configured.get(phase)
                self[phase] = attempt_timeout if own is None else min(own, attempt_timeout)
        self._now = now
        self._deadline_at = deadline_at
        self._shortened: set[str] = set()

    def get(self, phase: str, default: Any = None) -> Any:
        configured = dict.get(self, phase, default)
        if self._deadline_at == inf:
            return configured
        left = max(self._deadline_at - self._now(), LEAST)
        if configured is not None and configured <= left:
            self._shortened.discard(phase)
            return configured
        self._shortened.add(phase)
        return left

    def __getitem__(self, phase: str) -> Any:
        return self.get(phase) if phase in self else super().__getitem__(phase)

    def copy(self) -> dict[str, Any]:
        """What a library that copies gets: plain numbers, as of now."""
        return {phase: self.get(phase) for phase in self}

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did this timeout fire because the deadline had shortened it?"""
        if now < self._deadline_at - EARLY:
            return False
        if kind is FailureKind.TIMEOUT:
            return bool(self._shortened)
        return PHASE_OF.get(kind) in self._shortened

    def left(self) -> float:
        return self._deadline_at - self._now()

    def is_over(self) -> bool:
        return self.left() <= EARLY

    def reopen(self, deadline_at: float = inf) -> None:
        """Hand-over: what the caller streams has its own timeouts, bounded by ``forbear.deadline``
        only.
        """
        self._deadline_at = deadline_at
        self.clear()
        self.update(self._own)


class LoweredTimeout:
    """For draining a failed response: the library's own read timeout is lowered, and put back by
    ``end``.

    httpcore asks the request's extensions for the read timeout when the body is begun.
    """

    __slots__ = ("_extensions", "_now", "_room", "_saved", "_until")

    def __init__(
        self, extensions: dict[str, Any], now: Callable[[], float], deadline_at: float
    ) -> None:
        started_at = now()
        # Half for the reads that are begun in time, half for the last of them.
        half = DRAIN_SECONDS / 2
        if deadline_at - started_at < DRAIN_SECONDS:
            half = max((deadline_at - started_at) / 2, LEAST)
        self._now = now
        self._until = started_at + half
        self._room = DRAIN_BYTES
        self._extensions = extensions
        self._saved = extensions.get("timeout")
        extensions["timeout"] = {"read": half}  # nothing else is asked for any more

    def goes_on(self, length: int) -> bool:
        """Is there room and time for more after these bytes?"""
        self._room -= length
        return self._room >= 0 and self._now() < self._until

    def is_hopeless(self) -> bool:
        """Does a closed body go on for longer than anything could have been buffered?"""
        return self._room < -DRAIN_BYTES or self._now() > self._until + DRAIN_SECONDS

    def end(self) -> None:
        if self._saved is None:
            del self._extensions["timeout"]
        else:
            self._extensions["timeout"] = self._saved


class Bounding:
    """A response body under ``forbear.deadline``: its timeouts become DeadlineExceeded."""

    def __init__(
        self, stream: Any, timeouts: Timeouts, exceeded: Callable[[str], Exception]
    ) -> None:
        self._stream = stream
        self._timeouts = timeouts
        self._exceeded = exceeded

    def _translated(self, error: Exception) -> Exception | None:
        if "Timeout" in type(error).__name__ and self._timeouts.is_over():
            return self._exceeded("the deadline ended the body")
        return None


class Bounded(Bounding):
    """Of a synchronous response.

    The library asks for a body's read timeout once, when it begins: a peer that stalls later is
    noticed at the latest when as much time has passed again.
    """

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._stream:
                if self._timeouts.left() <= 0:
                    self._stream.close()
                    raise self._exceeded("the deadline ended the body")
                yield chunk
        except Exception as error:
            exceeded = self._translated(error)
            if exceeded is None:
                raise
            raise exceeded from error

    def close(self) -> None:
        self._stream.close()


class AsyncBounded(Bounding):
    """Of an asynchronous response."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        import anyio

        chunks = self._stream.__aiter__()
        while True:
            chunk: bytes | None = None
            with anyio.CancelScope(
                deadline=anyio.current_time() + self._timeouts.left() + BACKSTOP
            ):
                try:
                    chunk = await chunks.__anext__()
                except StopAsyncIteration:
                    return
                except Exception as error:
                    exceeded = self._translated(error)
                    if exceeded is None:
                        raise
                    raise exceeded from error
            if chunk is None:  # the scope was cancelled, and kept that to itself
                raise self._exceeded("the deadline ended the body")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
