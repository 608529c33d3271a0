"""Guard: a request's body, in requests and urllib3.

requests passes its body to urllib3 as it is, so one set of rules serves both. A buffer can be
replayed while it is unchanged. A file is set back to where it stood, and what iterates anew is
iterated again. Anything else is read once; after that only what ``body_buffer`` kept can be
replayed. Loaded with the first that is more than bytes or text.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref
from zlib import crc32

from ...engine.errors import ConsumedBody
from ...engine.guards import Readings, is_file, is_reiterable, is_seekable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

BLOCK = 16_384  # bytes; urllib3 reads a body in blocks of as many
# The caller follows a redirect or a challenge by another call with the same body, whose guard knows
# what can still be read. Weak: the response holds the guard, and the context must not.
LAST_REDIRECTED: ContextVar[ref[Body] | None] = ContextVar("forbear_last_redirected", default=None)


def guard_of(body: object, start: object, buffer_limit: int) -> Body:
    """Return a guard for a body that is not plain, the one of the hop before if there was one.

    Args:
        body: The caller's.
        start: Where a file stood when the request was made, if that is an int. requests notes it
            of every body that has tell(), also if it cannot be set back there.
        buffer_limit: Bytes of a one-shot body to keep.
    """
    before = LAST_REDIRECTED.get()
    known = None if before is None else before()
    start = start if isinstance(start, int) and is_seekable(body) else None
    if known is None or known.source is not body or known.start != start:
        return Body(body, start, buffer_limit)
    LAST_REDIRECTED.set(None)
    known.deadline_at = inf  # that of the hop before is over
    return known


def keep_for_redirect(response: object, guard: Body) -> None:
    """Let the call that follows a redirect or a challenge find the guard.

    It can do so while its caller has the response.
    """
    setattr(response, "forbear_body", guard)  # noqa: B010  # which has none of its own
    LAST_REDIRECTED.set(ref(guard))


class Body(Readings):
    """One call's body that is not plain. A library iterates it in place of the caller's own.

    Attributes:
        is_sent: An attempt, or an earlier hop of a redirect, has read it.

    Args:
        body: The caller's.
        start: Where a file stood when the request was made; None: where it stands now.
        buffer_limit: Bytes of a one-shot body to keep.
    """

    def __init__(self, body: Any, start: int | None, buffer_limit: int) -> None:
        self.source = body
        self.is_sent = False
        file = is_file(body)
        self.start = (position_of(body) if start is None else start) if file else None
        self._is_buffer = not file and is_buffer(body)
        super().__init__(
            replayable=self.start is not None if file else self._is_buffer or is_reiterable(body),
            buffer_limit=buffer_limit,
        )
        if getattr(body, "gi_frame", body) is None:
            self._readings = 1  # a generator that an earlier hop of a redirect has used up

    @property
    def outgoing(self) -> object:
        """The body that the library gets: a buffer as it is, so that its length is declared."""
        return self.source if self._is_buffer else self

    def begin_attempt(self) -> None:
        """Prepare for an attempt before its head goes out, so that none is sent without its body.

        Raises:
            ConsumedBody: The body cannot be replayed.
        """
        if not self.ready:
            raise ConsumedBody("its body was used up before")
        if self._is_buffer:
            self._readings += 1
            checksum = crc32(self.source)
            self._check(not self.is_sent or checksum == self._sum)
            self._sum = checksum
        elif self.start is not None and (self.is_sent or position_of(self.source) != self.start):
            self._put_back(self.start)
        self.is_sent = True

    def _put_back(self, start: int) -> None:
        with suppress(OSError, ValueError):  # closed, or it lied about being seekable
            self.source.seek(start)
            if self.source.tell() == start:
                return
        self.replayable, self._readings = False, 1  # so that no further attempt tries it again
        raise ConsumedBody("its file cannot be put back")

    def __iter__(self) -> Iterator[bytes | str]:
        yield from self.begin()
        with self.reading():
            chunks = chunks_of(self.source) if self.rest is None else self.rest
            if self.buffer is not None:
                self.rest = chunks
            for chunk in chunks:
                # Inspected before it goes out: a body that differs from the one before is stopped.
                self.note(chunk.encode() if isinstance(chunk, str) else chunk)
                yield chunk


def is_buffer(body: Any) -> bool:
    """Is it sent as the bytes of its memory, as an array is? The library checks that first too."""
    try:
        memoryview(body)
    except TypeError:
        return False
    return True


def chunks_of(source: Any) -> Iterator[bytes | str]:
    """Begin to read a body."""
    return blocks_of(source) if hasattr(source, "read") else iter(source)


def blocks_of(file: IO[bytes] | IO[str]) -> Iterator[bytes | str]:
    while block := file.read(BLOCK):
        yield block


def position_of(body: Any) -> int | None:
    """The position of a file, None if it cannot be set back there."""
    if not is_seekable(body):
        return None
    try:
        start = body.tell()
    except Exception:  # closed: reading it raises the error
        return None
    return start if isinstance(start, int) else None
