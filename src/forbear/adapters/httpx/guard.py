"""Guard: a request's body, in the httpx family.

httpcore resends a request by itself after an HTTP/2 GOAWAY (RFC 9113 section 6.8), and would send a
consumed body empty. Loaded with the first body that is more than plain bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...engine.guards import Readings, is_file, is_reiterable, is_seekable
from ...engine.loop import drive
from .reading import BODY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import ModuleType

    from httpx import Request


class Guard(Readings):
    """A request's body of either flavour behind a guard, which the hand-over leaves in extensions.

    The client may resend the body: after a redirect, or with credentials for a challenge.
    """

    def __init__(self, stream: Any, buffer_limit: int) -> None:
        self._stream = stream
        own = is_of_library(stream)
        source = getattr(stream, "_stream", None) if own else None
        self._file = source if is_file(source) else None
        self._start: int | None = None
        if self._file is not None:
            replayable = is_seekable(self._file)
        elif own and hasattr(stream, "fields"):
            replayable = all(is_replayable_field(field) for field in stream.fields)
        else:
            replayable = source is not None and is_reiterable(source)
        super().__init__(replayable=replayable, buffer_limit=buffer_limit)

    async def _chunks(self, begin: Callable[[Any], Any]) -> Any:
        """Begin a reading of the body; what a synchronous one calls never suspends."""
        if self.buffer is not None:
            if self.rest is None:
                self.rest = begin(self._stream)
            return self.rest
        if self._file is not None and self.replayable:
            if self._start is not None:
                await awaited(self._file.seek(self._start))
            else:
                try:
                    self._start = await awaited(self._file.tell())
                except OSError:
                    self.replayable = False
        return begin(self._stream)

    def __iter__(self) -> Iterator[bytes]:
        yield from self.begin()
        with self.reading():
            for chunk in drive(self._chunks(iter)):
                self.note(chunk)
                yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.begin():
            yield chunk
        with self.reading():
            async for chunk in await self._chunks(aiter):
                self.note(chunk)
                yield chunk


async def awaited(value: Any) -> Any:
    """The result of a method that may be a coroutine function, as of anyio's files."""
    return await value if hasattr(value, "__await__") else value


def is_of_library(stream: object) -> bool:
    """Is it httpx's own class? A user's may have the same attributes, and transform their bytes."""
    return type(stream).__module__.partition(".")[0] in ("httpx", "httpx2")


def body_of(request: Request, module: ModuleType) -> object:
    """Return the body of a request, None if it is plain bytes, or multipart made of bytes only."""
    if not isinstance(request, module.Request):
        raise TypeError(
            f"a transport of forbear.{module.__name__} got a request of"
            f" {type(request).__module__.partition('.')[0]}: mount the other family's"
        )
    stream: object = request.stream
    fields = getattr(stream, "fields", None) if is_of_library(stream) else None
    is_plain = fields is not None and all(
        isinstance(getattr(f, "file", b""), (str, bytes)) for f in fields
    )
    return None if is_plain else stream


def is_replayable_field(field: object) -> bool:
    """Httpx seeks a multipart file to 0 by itself before each reading."""
    file = getattr(field, "file", b"")
    return isinstance(file, (str, bytes)) or (hasattr(file, "seek") and is_seekable(file))


def known_guard(request: Request, body: object) -> Guard | None:
    """Return what guards a body already: it knows what earlier calls have read."""
    if isinstance(body, Guard):  # of a forbear above us
        return body
    known: Guard | None = request.extensions.get(BODY)
    return known if known is not None and known._stream is body else None
