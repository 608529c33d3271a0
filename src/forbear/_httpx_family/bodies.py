"""Bodies of the httpx family: which can be produced again, and a guard around those that cannot. Floor: acts.

Decided before the first byte. Plain bytes need nothing. Everything else goes out behind a guard, because
httpcore sends a request again by itself after an HTTP/2 GOAWAY (RFC 9113 section 6.8) and would send a
consumed body empty.

Private attributes relied on, each checked by tests/adapters/test_private_attributes.py: ``_stream`` of
(Async)IteratorByteStream, ``fields`` of MultipartStream, ``file`` of FileField. A body that cannot be
seen into is taken for a one-shot one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["AsyncBodyGuard", "BodyGuard", "ConsumedBody", "wants_guard"]

CHUNK_SIZE = 65_536  # bytes; httpx's own


class ConsumedBody(Exception):
    """A body was asked for a second time and cannot be produced again; never leaves a transport."""


class Guard:
    """One call's body: what is below it, whether it can be read again, how much was read.

    Attributes:
        error: What the caller's own iterator raised, so that it is not taken for the network's.
    """

    def __init__(self, stream: Any, buffer_limit: int) -> None:
        self._stream = stream
        self._readings = 0
        self._length: int | None = None  # of the first whole reading, in bytes
        self.error: Exception | None = None
        self._buffer: list[bytes] | None = None
        self._room = 0
        self._buffered_whole = False
        source = getattr(stream, "_stream", None)
        self._file = source if is_file(source) else None
        self._start: Any = None
        if self._file is not None:
            self._replayable = is_seekable(self._file)
        elif hasattr(stream, "fields"):
            self._replayable = all(is_replayable_field(field) for field in stream.fields)
        else:
            self._replayable = source is not None and is_reiterable(source)
        if not self._replayable and buffer_limit:
            self._buffer = []
            self._room = buffer_limit

    @property
    def ready(self) -> bool:
        """The body can be produced, from its first byte."""
        return self._replayable or self._readings == 0 or self._buffered_whole

    def _begin(self) -> None:
        if not self.ready:
            raise ConsumedBody("this body was read before and cannot be produced again")
        self._readings += 1

    def _keep(self, chunk: bytes) -> None:
        """Keep the first reading of a one-shot body as long as it fits."""
        if self._buffer is not None and self._readings == 1:
            self._room -= len(chunk)
            if self._room < 0:
                self._buffer = None
            else:
                self._buffer.append(bytes(chunk))

    def _finish(self, length: int) -> None:
        """A whole body has been produced; it must be as long as the first time."""
        if self._readings == 1:
            self._buffered_whole = self._buffer is not None
        if self._length is None:
            self._length = length
        elif self._length != length:
            # Raised before the last chunk: the server cannot take what came for a whole body.
            self._replayable = False
            raise ConsumedBody(f"this body had {self._length} bytes at first and {length} now")


class BodyGuard(Guard):
    """Behind it, a body of a synchronous request."""

    def __iter__(self) -> Iterator[bytes]:
        self._begin()
        if self._buffered_whole and self._buffer is not None:
            yield from self._buffer
            return
        length = 0
        try:
            for chunk in self._chunks():
                length += len(chunk)
                self._keep(chunk)
                yield chunk
        except Exception as error:
            self.error = error
            raise
        self._finish(length)

    def _chunks(self) -> Iterator[bytes]:
        file = self._file
        if file is None:
            return iter(self._stream)
        if self._replayable:
            if self._start is None:
                self._start = file.tell()
            else:
                file.seek(self._start)
        return iter(lambda: file.read(CHUNK_SIZE), b"")

    def close(self) -> None:
        if hasattr(self._stream, "close"):
            self._stream.close()


class AsyncBodyGuard(Guard):
    """Behind it, a body of an asynchronous request."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._begin()
        if self._buffered_whole and self._buffer is not None:
            for chunk in self._buffer:
                yield chunk
            return
        length = 0
        try:
            await self._rewind()
            async for chunk in self._stream:
                length += len(chunk)
                self._keep(chunk)
                yield chunk
        except Exception as error:
            self.error = error
            raise
        self._finish(length)

    async def _rewind(self) -> None:
        if self._file is None or not self._replayable:
            return
        if self._start is None:
            self._start = await awaited(self._file.tell())
        else:
            await awaited(self._file.seek(self._start))

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


async def awaited(value: Any) -> Any:
    """The result of a method that may be a coroutine function, as of anyio's files."""
    return await value if hasattr(value, "__await__") else value


def wants_guard(stream: Any) -> bool:
    """Everything but plain bytes; multipart made of bytes only is as good as plain."""
    fields = getattr(stream, "fields", None)
    return fields is None or any(not isinstance(getattr(f, "file", b""), (str, bytes)) for f in fields)


def is_file(source: Any) -> bool:
    """Anything with a position: reading it moves that, so a second pass would begin where the first ended."""
    return source is not None and any(hasattr(source, name) for name in ("read", "aread", "readline"))


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
    """Does each pass begin anew? An iterator does not, nor an object that hands out a kept iterator."""
    if hasattr(source, "__next__") or hasattr(source, "__anext__"):
        return False
    begin = getattr(source, "__iter__", None) or getattr(source, "__aiter__", None)
    if begin is None:
        return False
    try:
        first, second = begin(), begin()
    except Exception:
        return False
    return first is not second


def is_replayable_field(field: Any) -> bool:
    """Httpx seeks a multipart file to 0 by itself before each reading."""
    file = getattr(field, "file", b"")
    return isinstance(file, (str, bytes)) or (hasattr(file, "seek") and is_seekable(file))
