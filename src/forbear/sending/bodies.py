"""Bodies: how often a request body was read, and whether it can be read again. Floor: acts.

Decided before the first byte goes out. Each reading of a body that only looks replayable is
compared with what was sent of it before, so that a server never takes another body for the same
one.
"""

from __future__ import annotations

from math import inf
from typing import Any
from zlib import crc32

from .errors import CutOff

__all__ = ["ConsumedBody", "Readings", "is_file", "is_reiterable", "is_seekable"]


class ConsumedBody(Exception):
    """A body was asked for a second time and cannot be produced again; never leaves a transport."""


class Readings:
    """The readings of one call's body.

    Attributes:
        error: What the caller's own iterator raised, so that it is not taken for the network's.
        clock: On which there is a deadline.
        deadline_at: When nothing more of the body goes out; infinite if there is none.

    Args:
        replayable: It can be produced again, as far as it looks.
        doubted: It comes from code of the user's: readings are compared by checksum too.
        buffer_limit: Bytes of a one-shot body to keep, 0 for none.
    """

    clock: Any = None
    deadline_at = inf

    def __init__(self, *, replayable: bool, doubted: bool, buffer_limit: int) -> None:
        self._readings = 0
        self.error: BaseException | None = None
        self._replayable = replayable
        # The first reading of a one-shot body, as far as it went; None: not kept, or it did not
        # fit.
        self.buffer: list[bytes] | None = [] if buffer_limit and not replayable else None
        self._room = buffer_limit
        self.rest: Any = None  # where that reading goes on
        # A body may look replayable and still drain one source. So each reading is compared with
        # the longest one before, in bytes and, where it comes from code of the user's, by checksum.
        self._doubted = doubted
        self._length = self._sum = 0
        self._known_length = self._known_sum = 0
        self._whole_length: int | None = None

    @property
    def replayable(self) -> bool:
        """The whole body can be produced as often as wanted, as far as is known."""
        return self._replayable

    @property
    def ready(self) -> bool:
        """The body can be produced, from its first byte."""
        return self._replayable or self._readings == 0 or self.buffer is not None

    def begin(self) -> list[bytes]:
        """Count the reading; return what an earlier one has left in the buffer."""
        if not self.ready:
            raise ConsumedBody("this body was read before and cannot be produced again")
        self._readings += 1
        if self._length > self._known_length:
            self._known_length, self._known_sum = self._length, self._sum
        self._length = self._sum = 0
        return [] if self.buffer is None else self.buffer.copy()

    def note(self, chunk: bytes) -> None:
        """Look at a chunk before it goes out.

        Raises:
            ConsumedBody: The body differs from what was sent of it before.
            CutOff: It was produced too slowly: the deadline is over.
        """
        self._look()
        if self.buffer is not None:
            self._room -= len(chunk)
            if self._room < 0:
                self.buffer = None
            else:
                self.buffer.append(bytes(chunk))
        elif self._replayable:
            end = self._length + len(chunk)
            if self._whole_length is not None:
                self._check(end <= self._whole_length)
            if self._doubted:
                # Compared before the byte that could complete it for the server goes out.
                if self._length < self._known_length <= end:
                    self._check(
                        crc32(chunk[: self._known_length - self._length], self._sum)
                        == self._known_sum
                    )
                self._sum = crc32(chunk, self._sum)
            self._length = end

    def finish(self) -> None:
        """A whole body has been produced; raised here, the server does not see its end."""
        self._look()
        if self._replayable:
            self._check(
                self._length >= self._known_length and self._whole_length in (None, self._length)
            )
            self._whole_length = self._length

    def _look(self) -> None:
        if self.deadline_at != inf and self.clock.monotonic() >= self.deadline_at:
            raise CutOff

    def _check(self, same: bool) -> None:
        if not same:
            self._replayable = False
            raise ConsumedBody("its body is another one when it is produced again")

    def broke(self, error: BaseException) -> None:
        """The source itself failed: what it gave so far is no body."""
        self.error = error
        self.buffer = None


def is_file(source: Any) -> bool:
    """Anything with a position: reading it moves that, so a second pass would begin where the first
    ended.
    """
    return source is not None and any(
        hasattr(source, name) for name in ("read", "aread", "readline")
    )


def is_seekable(file: Any) -> bool:
    if not (hasattr(file, "seek") and hasattr(file, "tell")):
        return False
    seekable = getattr(file, "seekable", None)
    try:
        answer: Any = seekable() if seekable is not None else True
    except Exception:  # a closed file says so when it is read
        return False
    if hasattr(answer, "close") and hasattr(answer, "__await__"):
        answer.close()  # a coroutine: an asynchronous file, which is asked when it is read
        return True
    return bool(answer)


def is_reiterable(source: Any) -> bool:
    """Does each pass begin anew? An iterator does not, nor an object that hands out a kept
    iterator.

    A stream class of the user's is meant to be read once.
    """
    if hasattr(source, "__next__") or hasattr(source, "__anext__"):
        return False
    if any(cls.__name__ in ("SyncByteStream", "AsyncByteStream") for cls in type(source).__mro__):
        return False
    begin = getattr(source, "__iter__", None) or getattr(source, "__aiter__", None)
    if begin is None:
        return False
    try:
        first, second = begin(), begin()
    except Exception:
        return False
    return first is not second
