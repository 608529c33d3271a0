"""Bodies of the urllib3 family: which can be sent again, and a guard around those that cannot.
Floor: acts.

requests hands its body to urllib3 as it is, so one set of rules serves both: bytes and text repeat,
a file is put back to where it stood, what iterates anew is iterated again, and anything else is
read once; from then on only what ``body_buffer`` kept is sent again.
"""

from __future__ import annotations

from typing import Any

from ..sending.bodies import ConsumedBody, Readings, is_file, is_reiterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Body", "ConsumedBody", "is_plain"]


def is_plain(body: Any) -> bool:
    """Nothing needs to be done to send it again."""
    return body is None or isinstance(body, (bytes, str, bytearray, memoryview))


class Body(Readings):
    """One call's body that is no plain bytes.

    Attributes:
        outgoing: What is given to the library in its place.

    Args:
        body: The caller's.
        start: Where a file stood when the request was made; None: where it stands now.
        buffer_limit: Bytes of a one-shot body to keep.
    """

    def __init__(self, body: Any, start: int | None, buffer_limit: int) -> None:
        self.source = body
        file = is_file(body)
        self._start = (position_of(body) if start is None else start) if file else None
        super().__init__(
            replayable=self._start is not None if file else is_reiterable(body),
            doubted=not file and not isinstance(body, (list, tuple)),
            buffer_limit=buffer_limit,
        )
        if self._start is not None:
            self.outgoing: Any = (
                body  # http.client looks at files itself: at text ones, for instance
            )
        else:
            self.outgoing = Reader(self) if hasattr(body, "read") else Chunks(self)
        if getattr(body, "gi_frame", body) is None:
            self._readings = 1  # a generator that an earlier hop of a redirect has used up

    @property
    def is_seekable(self) -> bool:
        """A file that says by itself where it stands."""
        return self._start is not None

    def rewind(self) -> None:
        """Make ready for the next attempt.

        Raises:
            ConsumedBody: It cannot be sent again.
        """
        if self._start is not None:
            try:
                self.source.seek(self._start)
            except (OSError, ValueError) as error:  # closed, or it lied about being seekable
                raise ConsumedBody(
                    f"its file cannot be put back ({type(error).__name__})"
                ) from None
        elif isinstance(self.outgoing, Reader):
            self.outgoing.restart()


class Reader:
    """Stands for a one-shot body that is read, such as a pipe or a multipart encoder."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._kept: list[bytes] | None = None  # of this reading; None: it has not begun
        self._is_over = False

    def restart(self) -> None:
        self._kept = None
        self._is_over = False

    def read(self, size: int = -1) -> Any:
        body = self._body
        if self._is_over:
            raise ConsumedBody(
                "it was read to its end"
            )  # another pass, by an authentication handler for instance
        if self._kept is None:
            self._kept = body._begin()[::-1]
        if self._kept:
            return self._kept.pop()
        try:
            chunk = body.source.read(size)
        except BaseException as error:
            body._broke(error)
            raise
        if chunk:
            body._note(chunk.encode() if isinstance(chunk, str) else chunk)
        else:
            self._is_over = True
        return chunk


class Chunks:
    """Stands for a body that is iterated."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def __iter__(self) -> Iterator[Any]:
        body = self._body
        yield from body._begin()
        try:
            if body._buffer is not None:
                if body._rest is None:
                    body._rest = iter(body.source)
                chunks = body._rest
            else:
                chunks = iter(body.source)
            for chunk in chunks:
                body._note(chunk.encode() if isinstance(chunk, str) else chunk)
                yield chunk
        except (ConsumedBody, GeneratorExit):  # GeneratorExit: the library stops reading
            raise
        except BaseException as error:
            body._broke(error)
            raise
        body._finish()


def position_of(body: Any) -> int | None:
    """Where a file stands, None if it cannot be put back there."""
    if not (hasattr(body, "seek") and hasattr(body, "tell")):
        return None
    try:
        if hasattr(body, "seekable") and not body.seekable():
            return None
        start = body.tell()
    except Exception:  # closed: whoever reads it says so
        return None
    return start if isinstance(start, int) else None
