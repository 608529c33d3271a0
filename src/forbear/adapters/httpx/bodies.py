"""Bodies of responses, in the httpx family, that are read from a source of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.loop import drive

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ...engine.reading import Source


class Replaced:
    """The body of a response of either flavour that the caller reads from a source.

    No generator: trio complains of unfinished ones.
    """

    _forbear_sends = True

    def __init__(self, source: Source) -> None:
        self.stream = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        piece = drive(self.stream.read())
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        drive(self.stream.close())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.stream.read()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        await self.stream.close()


class Shown:
    """The part of a copy of a response that is not the library's: its body is read when wanted."""

    read: Callable[[], bytes]

    @property
    def content(self) -> bytes:
        return self.read()
