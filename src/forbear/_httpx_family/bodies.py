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
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["AsyncBodyGuard", "BodyGuard", "ConsumedBody", "wants_guard"]


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
        self.error: BaseException | None = None
        own = is_of_library(stream)
        source = getattr(stream, "_stream", None) if own else None
        self._file = source if is_file(source) else None
        self._start: Any = None
        if self._file is not None:
            self._replayable = is_seekable(self._file)
        elif own and hasattr(stream, "fields"):
            self._replayable = all(is_replayable_field(field) for field in stream.fields)
        else:
            self._replayable = source is not None and is_reiterable(source)
        # The first reading of a one-shot body, as far as it went; None: not kept, or it did not fit.
        self._buffer: list[bytes] | None = [] if buffer_limit and not self._replayable else None
        self._room = buffer_limit
        self._rest: Any = None  # where that reading goes on
        # A body may look replayable and still drain one source. So each reading is compared with the
        # longest one before, in bytes and, where it comes from code of the user's, by checksum.
        self._doubted = self._file is None and source is not None and not isinstance(source, (list, tuple))
        self._length = self._sum = 0
        self._known_length = self._known_sum = 0
        self._whole_length: int | None = None

    @property
    def ready(self) -> bool:
        """The body can be produced, from its first byte."""
        return self._replayable or self._readings == 0 or self._buffer is not None

    def covers(self, stream: Any) -> bool:
        """Is this the guard of that stream?"""
        return self._stream is stream

    def _begin(self) -> list[bytes]:
        """Count the reading; return what an earlier one has left in the buffer."""
        if not self.ready:
            raise ConsumedBody("this body was read before and cannot be produced again")
        self._readings += 1
        if self._length > self._known_length:
            self._known_length, self._known_sum = self._length, self._sum
        self._length = self._sum = 0
        return [] if self._buffer is None else self._buffer.copy()

    def _note(self, chunk: bytes) -> None:
        """Look at a chunk before it goes out.

        Raises:
            ConsumedBody: The body differs from what was sent of it before.
        """
        if self._buffer is not None:
            self._room -= len(chunk)
            if self._room < 0:
                self._buffer = None
            else:
                self._buffer.append(bytes(chunk))
        elif self._replayable:
            end = self._length + len(chunk)
            if self._doubted:
                # Compared before the byte that could complete it for the server goes out.
                if self._length < self._known_length <= end:
                    self._check(crc32(chunk[: self._known_length - self._length], self._sum) == self._known_sum)
                self._sum = crc32(chunk, self._sum)
            self._length = end

    def _finish(self) -> None:
        """A whole body has been produced; raised here, the server does not see its end."""
        if self._replayable:
            self._check(self._length >= self._known_length and self._whole_length in (None, self._length))
            self._whole_length = self._length

    def _check(self, same: bool) -> None:
        if not same:
            self._replayable = False
            raise ConsumedBody("its body is another one when it is produced again")

    def _broke(self, error: BaseException) -> None:
        """The source itself failed: what it gave so far is no body."""
        self.error = error
        self._buffer = None


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
    """Does each pass begin anew? An iterator does not, nor an object that hands out a kept iterator.

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


def is_replayable_field(field: Any) -> bool:
    """Httpx seeks a multipart file to 0 by itself before each reading."""
    file = getattr(field, "file", b"")
    return isinstance(file, (str, bytes)) or (hasattr(file, "seek") and is_seekable(file))
