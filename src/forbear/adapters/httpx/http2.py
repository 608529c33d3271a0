"""HTTP/2 in the httpx family: waiting for one of the bodies on a connection.

Other streams read from the connection too, so httpcore itself has to read, one receive at a time
and only while one is sure to end. Then the connection and its other streams stay intact. Loaded
with the first body over HTTP/2 that is waited for.
"""

from __future__ import annotations

import selectors
from contextlib import contextmanager, nullcontext
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICE = 0.01  # seconds between two checks whether another thread has received the awaited part


def has_ended(response: Any) -> bool:
    """Has all of a body arrived over HTTP/2? False too if that cannot be inspected."""
    try:
        below = response.stream._httpcore_stream._stream
        events = below._connection._events[below._stream_id]
    except (AttributeError, KeyError):
        return False
    return any(type(event).__name__ == "StreamEnded" for event in events)


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
