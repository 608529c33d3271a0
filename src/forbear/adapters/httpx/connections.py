"""Connections of the httpx family: waiting for bytes, stale connections, reads under a deadline.

*Arriving* waits for more of a body and leaves it readable. httpcore closes a connection when a read
of its own times out, and the rest of the body is lost to the caller. So the network stream, which
is in each response's extensions, is read here first: httpcore gets what arrived when it asks for
it, and a body that pauses stays intact. Over HTTP/2 other streams read from the connection too, so
there httpcore itself has to read, one receive at a time and only while one is sure to end. Then the
connection and its other streams stay intact.

*Stale connections.* httpcore hands out the connection that has been idle for longest, so where one
was forgotten by its peer (a NAT table, a failover, a restart), the retry would get the next one
that was forgotten.

Private attributes that are read, each checked by tests/adapters/test_private_attributes.py:
``_httpcore_stream`` of the library's response stream, ``_stream`` and ``_connection`` below it,
``_h11_state`` of a connection of HTTP/1.1; of HTTP/2 the body's ``_stream_id`` and ``_request``,
and the connection's ``_events``, ``_read_lock`` and ``_receive_events()``; ``_pool`` of a
transport; ``_requests`` and ``_optional_thread_lock`` of a pool; ``_request_count`` and
``_h2_state`` of a connection. Where one is missing, the time is checked between reads only, the
library's own timeouts bound each, and no idle connection is closed.
"""

from __future__ import annotations

import selectors
from contextlib import contextmanager, nullcontext, suppress
from math import inf
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from ...core.headers.fields import begins_events
from ...engine.clock import SYSTEM_CLOCK
from ...engine.errors import let_signals_through, locals_of
from ...engine.reading import BODILESS, LATE, WHOLE, Ending, is_readable
from .errors import CORES, chain, root
from .request import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from httpx import Request, Response


PIECE = 65_536  # bytes asked for at once, as by httpcore
UNKNOWN = 2**62  # bytes of a body whose length is unknown: more than any
SLICE = 0.01  # seconds between two checks whether another thread has received the awaited part


def arrived(stream: Any) -> int:
    """Bytes of a body that have arrived and were not read yet, with framing; -1: unknown."""
    try:
        return len(stream._httpcore_stream._stream._connection._h11_state.trailing_data[0])
    except AttributeError:
        return -1


def has_ended(response: Any) -> bool:
    """Has all of a body arrived over HTTP/2? False too if that cannot be inspected."""
    try:
        below = response.stream._httpcore_stream._stream
        events = below._connection._events[below._stream_id]
    except (AttributeError, KeyError):
        return False
    return any(type(event).__name__ == "StreamEnded" for event in events)


def is_bodiless(request: Request, response: Response) -> bool:
    """Has the response no body, whatever its head says?"""
    return request.method == "HEAD" or response.status_code in BODILESS


def own_timeout(request: Request) -> float | None:
    """Return the caller's timeout of each read; None: there is none."""
    timeouts = request.extensions.get("timeout")
    return timeouts.get("read") if timeouts else None


class Waiting:
    """The reading of one body, for a limited time.

    Attributes:
        pieces, received: What was read of the body, and how many bytes.
        rest: What is still to be read.

    Args:
        request: As it was sent.
        response: Nothing else reads its body.
        length: Raw bytes of the body; more than any if that is unknown.
        seconds: For how long; infinite: as long as the library waits.
        own: The caller's timeout for a read: a body that exceeds it is a broken one.
    """

    def __init__(
        self, request: Request, response: Response, length: int, seconds: float, own: float | None
    ) -> None:
        self.pieces: list[bytes] = []
        stream: Any = response.stream
        self.rest = self.iterate(stream)
        self._length = length
        self._until = SYSTEM_CLOCK.true_monotonic() + seconds
        self._wire: Any = None
        self._found: bytes | Exception | None = None  # received, and not given to httpcore yet
        self.shares: Shared | None = None  # over HTTP/2, where the end of a body is an event
        if is_bodiless(request, response) or seconds == inf:
            return
        wire: Any = response.extensions.get("network_stream")
        if own is not None and own < seconds:
            return
        if arrived(stream) < 0:
            with suppress(AttributeError):
                self.shares = Shared(stream._httpcore_stream._stream, wire)
        elif hasattr(wire, "__dict__"):
            self._wire = wire
            self._h11 = stream._httpcore_stream._stream._connection._h11_state
            self._own_read: Callable[..., Any] = wire.read
            self._before = vars(wire).get("read")
            self._is_chunked = "transfer-encoding" in response.headers

    received = 0
    iterate: Any  # (stream): begins to read it
    read: Callable[..., object]  # stands in for the ``read`` of the network stream

    def left(self) -> float:
        """Seconds until the wait is over."""
        return self._until - SYSTEM_CLOCK.true_monotonic()

    def _is_there(self) -> bool:
        """Can the body be read on without waiting?"""
        if self._wire is None or self._found is not None:
            return True
        return is_readable(self._h11.trailing_data[0], is_chunked=self._is_chunked)

    def _give(self) -> bytes:
        """Give httpcore what was received, once."""
        found, self._found = self._found, None
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[return-value]

    def _note(self, found: bytes | Exception) -> bool:
        """Note what was received, or broke the connection; False: nothing did in time.

        PyPy's sockets time out up to half a millisecond early.
        """
        if type(found).__name__ == "ReadTimeout" and self.left() <= LEAST:
            return False
        self._found = found
        self._wire.read = self.read
        return True

    def _bounded(self, timeout: float | None) -> float | None:
        """Bound httpcore's own read, for the rest of a chunk's framing of which a part arrived."""
        return timeout if self._until == inf else max(self.left(), LEAST)

    def leave(self) -> None:
        """Let the connection be read as before."""
        if self._wire is None:
            return
        if self._found is not None:  # still to be given to httpcore, when it reads next
            self._until = inf
        elif self._before is None:
            vars(self._wire).pop("read", None)
        else:
            self._wire.read = self._before


class LentLock:
    """httpcore's lock for receiving, made reentrant for the thread that is its ``holder``."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.holder = 0

    def __enter__(self) -> None:
        if self.holder != get_ident():
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        if self.holder != get_ident():
            self._lock.release()


class Shared:
    """A body on a connection of HTTP/2, which may carry others.

    Args:
        below: httpcore's stream of the body.
        wire: The network stream of the connection.
    """

    def __init__(self, below: Any, wire: Any) -> None:
        self._connection = connection = below._connection
        self._request, self._id = below._request, below._stream_id
        self._events, self._lock = connection._events, connection._read_lock
        self._receive, self._wire = connection._receive_events, wire
        # httpcore's method takes the lock itself, that of httpcore2 expects its caller to hold it.
        self._takes_lock = "_read_lock" in self._receive.__code__.co_names

    def has_events(self) -> bool:
        """Has a part of the body arrived, its end, or a reset?"""
        return bool(self._events.get(self._id))

    def wait(self, seconds: float) -> bool:
        """Wait, in a thread, until a receive would end at once; False: check the events again."""
        lock = self._lock._lock
        if lock.locked():  # another thread receives for all streams: wait until it has
            if lock.acquire(timeout=seconds):
                lock.release()
            return False
        if self._wire.get_extra_info("is_readable"):
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._wire.get_extra_info("socket"), selectors.EVENT_READ)
            return bool(selector.select(min(SLICE, seconds)))

    def receive(self) -> None:
        """Let httpcore receive once, for all streams, if that ends at once.

        Checked while the lock is held, because since ``wait`` another thread may have received what
        was there; a receive would then last as long as the stall if the client has no timeout.
        """
        with self._lock._lock:
            if self.has_events() or not self._wire.get_extra_info("is_readable"):
                return
            if not self._takes_lock:
                self._receive(self._request, self._id)
                return
            with self._lent():
                self._receive(self._request, self._id)

    @contextmanager
    def _lent(self) -> Iterator[None]:
        """Let this thread, which holds the lock, take it again inside httpcore."""
        lock = self._connection._read_lock
        if type(lock) is not LentLock:
            lock = self._connection._read_lock = LentLock(lock._lock)
        lock.holder = get_ident()
        try:
            yield
        finally:
            lock.holder = 0

    async def areceive(self) -> None:
        """Let httpcore receive once, for all streams."""
        async with nullcontext() if self._takes_lock else self._lock:
            if not self.has_events():
                await self._receive(self._request, self._id)


class Arriving(Waiting):
    """The reading of a synchronous response's body."""

    iterate = staticmethod(iter)

    def more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact."""
        left, shares = self.left(), self.shares
        if self.received >= self._length and shares is None:
            return True  # the end comes without a wait; over HTTP/2 it is an event of its own
        while shares is not None and left > 0 and not shares.has_events():
            try:
                if shares.wait(left):
                    shares.receive()
            except Exception as error:
                if is_raised_again(error):
                    break
                raise
            left = self.left()
        if left <= 0 or self._is_there():
            return left > 0
        try:
            return self._note(self._own_read(PIECE, max(left, LEAST)))
        except Exception as error:
            return self._note(error)

    def read_piece(self) -> bytes | Ending:
        if not self.more():
            return LATE
        piece: bytes | None = next(self.rest, None)
        return WHOLE if piece is None else piece

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._give()
        return self._own_read(max_bytes, self._bounded(timeout))  # type: ignore[no-any-return]


class AsyncArriving(Waiting):
    """The reading of an asynchronous response's body."""

    iterate = staticmethod(aiter)

    async def more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact."""
        left, shares = self.left(), self.shares
        if self.received >= self._length and shares is None:
            return True  # the end comes without a wait; over HTTP/2 it is an event of its own
        while shares is not None and left > 0 and not shares.has_events():
            import anyio

            with anyio.move_on_after(left):  # a cancelled receive leaves the bytes in the socket
                try:
                    await shares.areceive()
                except Exception as error:
                    if is_raised_again(error):
                        break
                    raise
            left = self.left()
        if left <= 0 or self._is_there():
            return left > 0
        try:
            return self._note(await self._own_read(PIECE, max(left, LEAST)))
        except Exception as error:
            return self._note(error)

    async def read_piece(self) -> bytes | Ending:
        if not await self.more():
            return LATE
        piece: bytes | None = await anext(self.rest, None)
        return WHOLE if piece is None else piece

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._give()
        return await self._own_read(max_bytes, self._bounded(timeout))  # type: ignore[no-any-return]


def is_raised_again(error: Exception) -> bool:
    """Is it raised when the body is read? After an error of h2 httpcore would wait for more."""
    return root(type(error)) != "h2"


def is_reused(error: Exception) -> bool:
    """Did the attempt break on a connection that had carried a request before?

    The connection has left its pool by now, so only the frames of the error still lead to it.
    """
    for each in (error, *chain(error)):
        found = None
        for names in locals_of(each, *CORES):
            one = names.get("self")
            if hasattr(one, "_request_count"):
                found = one  # the last one, which is inside those of a tunnel
        if found is not None:
            return is_used(found)
    return False


def is_used(connection: Any) -> bool:
    streams = getattr(connection, "_h2_state", None)
    if streams is None:
        return bool(connection._request_count > 1)
    # Over HTTP/2 the other requests may be in flight still: has one ended?
    begun = (getattr(streams, "highest_outbound_stream_id", 0) + 1) // 2
    return bool(begun > getattr(streams, "open_outbound_streams", begun))


def idle_of(pool: Any, origin: object) -> Iterator[Any]:
    """Connections to an origin that are assigned to no request."""
    wanted = {id(request.connection) for request in pool._requests}
    for connection in pool.connections:
        is_free = id(connection) not in wanted and connection.is_idle()
        if is_free and connection.can_handle_request(origin):
            yield connection


def close_idle(pool: Any, origin: object) -> None:
    """Close the idle connections to an origin; the pool drops what is closed by itself."""
    # Under the pool's lock: without it another thread's request could be assigned a connection
    # between the check that it is idle and its closing, and would break.
    with suppress(AttributeError), pool._optional_thread_lock:
        for connection in idle_of(pool, origin):
            try:
                connection.close()
            except Exception as error:  # the connection may be broken anyway
                let_signals_through(error)


async def aclose_idle(pool: Any, origin: object) -> None:
    """Do the same in a task. An interruption leaves some of them idle, but none half closed."""
    import anyio

    with suppress(AttributeError), anyio.CancelScope(shield=True):
        for _ in pool.connections:  # one by one: during each await another may be assigned
            connection = next(idle_of(pool, origin), None)
            if connection is None:
                return
            try:
                await connection.aclose()
            except Exception as error:
                let_signals_through(error)


def is_empty_stream(response: Response, length: int) -> bool:
    """Has a stream of events ended with its head? Its reader will request it again."""
    return length == 0 and begins_events(response.status_code, response.headers.raw)
