"""Bodies: sources of bytes that go around what is still to come of a response.

Each library has one source that reads from its connection (``Live``). What was put back, or an
error, stands around it. Loaded with the first body of which a part was read before the hand-over,
or that is handed over open.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .driver import WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .port import Ending, Source


class Nothing:
    """A source at its end."""

    is_closed = False

    async def read(self) -> bytes:
        return b""

    async def close(self) -> None:
        self.is_closed = True


class PutBack:
    """A source of what was read before, which is kept no longer, and then of what is to come."""

    def __init__(self, pieces: Iterable[bytes], stream: Source) -> None:
        self.pieces, self.stream = deque(pieces), stream

    async def read(self) -> bytes:
        return self.pieces.popleft() if self.pieces else await self.stream.read()

    async def close(self) -> None:
        self.pieces.clear()
        await self.stream.close()


class Broken:
    """A body that breaks when it is read.

    Args:
        error: What broke it.
        again: What a second reading raises.
    """

    def __init__(self, error: Exception, again: Exception) -> None:
        self._error, self._again = error, again

    async def read(self) -> bytes:
        error, self._error = self._error, self._again
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, which would hold it: a cycle

    async def close(self) -> None:
        """Nothing is left to close."""


def rest_of(
    pieces: Iterable[bytes], ending: Ending | Exception, source: Source, again: Exception
) -> PutBack:
    """The source that gives what was read of a body, and goes on as ``read_briefly`` has ended.

    ``source`` gives the rest; ``again`` is as of ``Broken``.
    """
    rest: Source = Nothing()
    if ending is not WHOLE:
        rest = Broken(ending, again) if isinstance(ending, Exception) else source
    return PutBack(pieces, rest)


def layers(source: object) -> Iterator[object]:
    """A source and all that it goes around."""
    while source is not None:
        yield source
        source = getattr(source, "stream", None)


def innermost(source: object) -> Any:
    """The source below all that go around it."""
    *_, found = layers(source)
    return found
