"""Put back: what was read of a body, in front of its rest or of the error that broke it.

Loaded with the first body that breaks while it is prefetched, or that is handed over after a part
of it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .reading import finish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


class PuttingBack:
    """A body of which a part was read.

    Attributes:
        stream: The library's own, which is closed.
        rest: Where reading continues; None if the body is broken, or was cut.
        error: What broke it.
        wire: The network stream, if it is read with other timeouts than the attempt's.
    """

    _forbear_sends = True
    wire: object = None

    def __init__(
        self, pieces: Sequence[bytes], stream: Any, rest: Any = None, error: Exception | None = None
    ) -> None:
        self.pieces, self.stream, self.rest, self.error = pieces, stream, rest, error

    def leave(self) -> None:
        """Let the connection be read as before, by the next request."""
        if self.wire is not None:
            vars(self.wire).pop("read", None)
            self.wire = None


class PutBack(PuttingBack):
    """The body of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error is not None:
            raise self.error
        yield from self.rest or ()

    def close(self) -> None:
        self.leave()
        self.stream.close()


class AsyncPutBack(PuttingBack):
    """The body of an asynchronous response. No generator, since trio warns of unfinished ones."""

    _index = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        index = self._index
        if index < len(self.pieces):
            self._index = index + 1
            return self.pieces[index]
        if self.rest is not None:
            return await self.rest.__anext__()  # type: ignore[no-any-return]
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.leave()
        await self.stream.aclose()
        if self.rest is not None:
            await finish(self.stream, self.rest)
