"""Deadlines in the httpx family: the timeouts of an attempt, and bodies that end in time.

Loaded with the first call that has a time limit of ours.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from ...core.outcome import FailureKind
from ...engine.calls import body_is_late
from ...engine.clock import BACKSTOP
from ...engine.errors import EARLY, DeadlineCut
from .reading import bounded
from .request import LEAST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from httpx import Response

    from ...core.call import Call
    from ...engine.clock import Clock
    from .types import HttpxPort

NO_PHASES: frozenset[str] = frozenset()
PHASE_OF = {
    FailureKind.POOL: "pool",
    FailureKind.CONNECT_TIMEOUT: "connect",
    FailureKind.READ_TIMEOUT: "read",
    FailureKind.WRITE_TIMEOUT: "write",
}


class Timeouts(dict[str, float | None]):
    """An attempt's own copy of ``extensions["timeout"]``, which knows the time.

    ``get(phase)`` is the least of the client's own timeout, ``attempt_timeout`` and the time left.
    With a deadline it is the request's ``trace`` too, which httpcore calls before each step. No
    timeout bounds name resolution, so without that check a request could be written too late.
    """

    # No constructor of our own, since every call under a deadline makes one of these.
    __slots__ = ("_replaced", "_shortened", "clock", "deadline_at", "trace")

    clock: Clock
    deadline_at: float
    trace: Any  # the client's own
    _shortened: frozenset[str]  # phases that the deadline has shortened
    _replaced: Mapping[str, float | None] | None  # the client's own, if that is longer

    def begin(self, clock: Clock, deadline_at: float, trace: object) -> None:
        self.clock = clock
        self.deadline_at = deadline_at
        self.trace = trace
        self._shortened = NO_PHASES
        self._replaced = None

    def shorten(self, attempt_timeout: float) -> None:
        """Let no phase last longer than that."""
        self._replaced = dict.copy(self)
        for phase in ("pool", "connect", "read", "write"):
            own = dict.get(self, phase)
            self[phase] = attempt_timeout if own is None else min(own, attempt_timeout)

    def get(self, phase: str, default: Any = None) -> float | None:
        configured: float | None = dict.get(self, phase, default)
        if self.deadline_at == inf:
            return configured
        left = max(self.deadline_at - self.clock.monotonic(), LEAST)
        if configured is not None and configured <= left:
            self._shortened -= {phase}
            return configured
        self._shortened |= {phase}
        return left

    def __getitem__(self, phase: str) -> float | None:
        return self.get(phase) if phase in self else super().__getitem__(phase)

    def copy(self) -> dict[str, float | None]:
        """Plain numbers, as they are now, for a library that copies the timeouts."""
        return {phase: self.get(phase) for phase in self}

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did this timeout fire because the deadline had shortened it?"""
        if now < self.deadline_at - EARLY:
            return False
        if kind is FailureKind.TIMEOUT:
            return bool(self._shortened)
        return PHASE_OF.get(kind) in self._shortened

    def __call__(self, event: str, info: object) -> object:
        self.check_deadline(event)
        return None if self.trace is None else self.trace(event, info)

    def check_deadline(self, event: str) -> None:
        """Keep the request from being written after the deadline."""
        if event.endswith("send_request_headers.started") and self.left() <= 0:
            raise DeadlineCut

    def left(self) -> float:
        return self.deadline_at - self.clock.monotonic()

    def left_to_read(self) -> float:
        """Seconds for a read of a body that is prefetched."""
        left, own = self.left(), dict.get(self, "read")
        if own is None or left < own:
            self._shortened |= {"read"}
        return left

    def is_over(self) -> bool:
        return self.left() <= EARLY

    def reopen(self, deadline_at: float = inf) -> None:
        """Give a body that the caller streams the client's own timeouts, bounded by
        ``forbear.deadline`` only.
        """
        self.deadline_at = deadline_at
        if self._replaced is not None:
            self.update(self._replaced)


class AsyncTimeouts(Timeouts):
    """The same for an asynchronous attempt."""

    __slots__ = ()

    async def __call__(self, event: str, info: object) -> None:
        self.check_deadline(event)
        if self.trace is not None:
            await self.trace(event, info)


class Bounding:
    """A response body under ``forbear.deadline``: its timeouts become DeadlineExceeded."""

    _forbear_sends = True

    def __init__(
        self, port: HttpxPort, stream: Any, timeouts: Timeouts, begin: Callable[[], Call]
    ) -> None:
        self._port = port
        self._stream = stream
        self._timeouts = timeouts
        self._begin = begin  # makes the call of the response

    def _exceeded(self, error: str = "DeadlineExceeded") -> Exception:
        return body_is_late(self._port, self._begin(), error)

    def _fail(self, error: Exception) -> NoReturn:
        if "Timeout" in type(error).__name__ and self._timeouts.is_over():
            raise self._exceeded(type(error).__name__) from error
        raise error


class DeadlineReads:
    """The body of a synchronous response each of whose reads ends by the deadline.

    httpcore asks for the read timeout once, when the body begins, so a peer that stalls later could
    exceed the deadline by that much. Therefore the ``read`` of the connection is bounded by the
    time left, until the body is closed. Over HTTP/2 httpcore asks before each read.
    """

    _forbear_sends = True

    def __init__(self, response: Response, timeouts: Timeouts) -> None:
        self._stream: Any = response.stream
        self._httpcore_stream = getattr(response.stream, "_httpcore_stream", None)  # of the library
        self._connection = connection = response.extensions["network_stream"]
        connection.read = bounded(connection.read, timeouts.left)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        vars(self._connection).pop("read", None)
        self._stream.close()


class Bounded(Bounding):
    """The body of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._stream:
                if self._timeouts.left() <= 0:
                    self._stream.close()
                    raise self._exceeded()
                yield chunk
        except Exception as error:
            self._fail(error)

    def close(self) -> None:
        self._stream.close()


class AsyncBounded(Bounding):
    """The body of an asynchronous response."""

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
                    self._fail(error)
            if chunk is None:  # the scope has cancelled, and absorbed the cancellation
                raise self._exceeded()
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
