"""Guards: how often a request's body was read, and whether it can be read again.

Whether a body can be replayed is decided before its first byte is sent. Each reading of one that
only seems replayable is compared with what was sent of it before, so that a server never receives a
different body as the same request. Loaded with the first body that is more than plain bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any
from zlib import crc32

from .clock import SYSTEM_CLOCK, Clock
from .errors import ConsumedBody, DeadlineCut

if TYPE_CHECKING:
    from collections.abc import Iterator


class Readings:
    """The readings of one call's body.

    A body may seem replayable and still drain one source. So each reading is compared with the
    longest one before, in bytes and by checksum.

    Attributes:
        replayable: The whole body can be produced any number of times, as far as is known.
        buffer: The first reading of a one-shot body, as far as it went; None: not kept, or it did
            not fit.
        rest: The iterator that continues that reading.
        error: What the caller's own iterator raised, so that it is not taken for a network error.
        clock: The clock of ``deadline_at``.
        deadline_at: After this nothing more of the body is sent; infinite if there is no deadline.

    Args:
        replayable: It can be replayed, as far as its type shows.
        buffer_limit: Bytes of a one-shot body to keep, 0 for none.
    """

    clock: Clock = SYSTEM_CLOCK
    deadline_at = inf

    def __init__(self, *, replayable: bool, buffer_limit: int) -> None:
        self._readings = 0
        self.error: BaseException | None = None
        self.replayable = replayable
        self.buffer: list[bytes] | None = [] if buffer_limit and not replayable else None
        self._room = buffer_limit
        self.rest: Any = None
        self._length = self._sum = 0
        self._known_length = self._known_sum = 0
        self._whole_length = inf

    @property
    def ready(self) -> bool:
        """The body can be produced, from its first byte."""
        return self.replayable or self._readings == 0 or self.buffer is not None

    def begin(self) -> list[bytes]:
        """Count the reading; return what an earlier one has buffered."""
        if not self.ready:
            raise ConsumedBody("this body was read before and cannot be replayed")
        self._readings += 1
        if self._length > self._known_length:
            self._known_length, self._known_sum = self._length, self._sum
        self._length = self._sum = 0
        return [] if self.buffer is None else self.buffer.copy()

    def note(self, chunk: bytes) -> None:
        """Check a chunk before it is sent.

        Raises:
            ConsumedBody: The body differs from what was sent of it before.
            DeadlineCut: The deadline is over, because the body was produced too slowly.
        """
        self._check_deadline()
        if self.buffer is not None:
            self._room -= len(chunk)
            if self._room < 0:
                self.buffer = None
            else:
                self.buffer.append(bytes(chunk))
        elif self.replayable:
            end = self._length + len(chunk)
            self._check(end <= self._whole_length)
            # Compared before the byte that could complete the body for the server is sent: a server
            # that has a whole body may act on it, and then an error comes too late.
            if self._length < self._known_length <= end:
                known = crc32(chunk[: self._known_length - self._length], self._sum)
                self._check(known == self._known_sum)
            self._length, self._sum = end, crc32(chunk, self._sum)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A reading of the source, which is checked at its end."""
        try:
            yield
        except (ConsumedBody, GeneratorExit):  # GeneratorExit: the library stops reading
            raise
        except BaseException as error:
            self.broke(error)
            raise
        self.finish()

    def finish(self) -> None:
        """Check a whole body, before its end is sent: where this raises, the server sees no end."""
        self._check_deadline()
        if self.replayable:
            self._check(self._length >= self._known_length)
            self._whole_length = self._length

    def _check_deadline(self) -> None:
        if self.deadline_at != inf and self.clock.monotonic() >= self.deadline_at:
            raise DeadlineCut

    def _check(self, same: bool) -> None:
        if not same:
            self.replayable = False
            raise ConsumedBody("its body differs when it is replayed")

    def broke(self, error: BaseException) -> None:
        """The source itself failed, so what it has produced is not a body."""
        self.error = error
        self.buffer = None


def is_file(source: object) -> bool:
    """Is it anything with a position? A second pass would begin where the first one ended."""
    return source is not None and any(
        hasattr(source, name) for name in ("read", "aread", "readline")
    )


def is_seekable(file: object) -> bool:
    if not (hasattr(file, "seek") and hasattr(file, "tell")):
        return False
    seekable = getattr(file, "seekable", None)
    try:
        result: Any = seekable() if seekable is not None else True
    except Exception:  # a closed file raises its own error when it is read
        return False
    if hasattr(result, "close") and hasattr(result, "__await__"):
        result.close()  # a coroutine: an asynchronous file, which can only be asked when it is read
        return True
    return bool(result)


def is_reiterable(source: object) -> bool:
    """Does each pass begin anew? Not if it is an iterator, or always returns the same iterator.

    A subclass of httpx's stream classes is meant to be read once.
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
