"""Bodies of the httpx family: which can be produced again, and a guard around those that cannot.
Floor: acts.

Decided before the first byte. Plain bytes need nothing. Everything else goes out behind a guard,
because httpcore sends a request again by itself after an HTTP/2 GOAWAY (RFC 9113 section 6.8) and
would send a consumed body empty.

Private attributes relied on, each checked by tests/adapters/test_private_attributes.py: ``_stream``
of (Async)IteratorByteStream, ``fields`` of MultipartStream, ``file`` of FileField. A body that
cannot be seen into is taken for a one-shot one.
"""

from __future__ import annotations

from inspect import isasyncgen, isgenerator
from typing import TYPE_CHECKING, Any

from ..sending.bodies import ConsumedBody, Readings, is_file, is_reiterable, is_seekable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["AsyncBodyGuard", "BodyGuard", "ConsumedBody", "wants_guard"]


class Guard(Readings):
    """One call's body behind a guard."""

    def __init__(self, stream: Any, buffer_limit: int) -> None:
        self._stream = stream
        own = is_of_library(stream)
        source = getattr(stream, "_stream", None) if own else None
        self._file = source if is_file(source) else None
        self._start: Any = None
        self.generated = isgenerator(source) or isasyncgen(
            source
        )  # the client itself refuses to read one twice
        if self._file is not None:
            replayable = is_seekable(self._file)
        elif own and hasattr(stream, "fields"):
            replayable = all(is_replayable_field(field) for field in stream.fields)
        else:
            replayable = source is not None and is_reiterable(source)
        super().__init__(
            replayable=replayable,
            doubted=self._file is None
            and source is not None
            and not isinstance(source, (list, tuple)),
            buffer_limit=buffer_limit,
        )

    def covers(self, stream: Any) -> bool:
        """Is this the guard of that stream?"""
        return self._stream is stream


class BodyGuard(Guard):
    """Behind it, a body of a synchronous request."""

    def __iter__(self) -> Iterator[bytes]:
        yield from self._begin()
        try:
            for chunk in self._chunks():
                self._note(chunk)
                yield chunk
        except (ConsumedBody, GeneratorExit):  # GeneratorExit: the transport stops reading
            raise
        except BaseException as error:
            self._broke(error)
            raise
        self._finish()

    def _chunks(self) -> Iterator[bytes]:
        if self._buffer is not None:
            if self._rest is None:
                self._rest = iter(self._stream)
            return self._rest  # type: ignore[no-any-return]
        if self._file is not None and self._replayable:
            if self._start is not None:
                self._file.seek(self._start)
            else:
                try:
                    self._start = self._file.tell()
                except OSError:
                    self._replayable = False
        return iter(self._stream)

    def close(self) -> None:
        if hasattr(self._stream, "close"):
            self._stream.close()


class AsyncBodyGuard(Guard):
    """Behind it, a body of an asynchronous request."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._begin():
            yield chunk
        try:
            async for chunk in await self._chunks():
                self._note(chunk)
                yield chunk
        except (ConsumedBody, GeneratorExit):  # GeneratorExit: the transport stops reading
            raise
        except BaseException as error:
            self._broke(error)
            raise
        self._finish()

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self._buffer is not None:
            if self._rest is None:
                self._rest = aiter(self._stream)
            return self._rest  # type: ignore[no-any-return]
        if self._file is not None and self._replayable:
            if self._start is not None:
                await awaited(self._file.seek(self._start))
            else:
                try:
                    self._start = await awaited(self._file.tell())
                except OSError:
                    self._replayable = False
        return aiter(self._stream)

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


async def awaited(value: Any) -> Any:
    """The result of a method that may be a coroutine function, as of anyio's files."""
    return await value if hasattr(value, "__await__") else value


def is_of_library(stream: Any) -> bool:
    """A class of the user's may have attributes of the same names, and transform what is below."""
    return type(stream).__module__.partition(".")[0] in ("httpx", "httpx2")


def wants_guard(stream: Any) -> bool:
    """Everything but plain bytes; multipart made of bytes only is as good as plain."""
    fields = getattr(stream, "fields", None) if is_of_library(stream) else None
    return fields is None or any(
        not isinstance(getattr(f, "file", b""), (str, bytes)) for f in fields
    )


def is_replayable_field(field: Any) -> bool:
    """Httpx seeks a multipart file to 0 by itself before each reading."""
    file = getattr(field, "file", b"")
    return isinstance(file, (str, bytes)) or (hasattr(file, "seek") and is_seekable(file))
