"""Guard: a request's body, in aiohttp, which by itself would resend a generator empty.

Loaded with the first that is more than plain bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import payload as payloads

from ...engine.errors import ConsumedBody
from ...engine.guards import Readings, is_file, is_reiterable, is_seekable

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter as Writer


class Guard(Readings, aiohttp.Payload):
    """A request's body behind a guard, sent in its place."""

    def __init__(self, payload: aiohttp.Payload, buffer_limit: int) -> None:
        vars(self).update(vars(payload))  # type and name: middlewares below us may look
        self.payload = payload
        source = getattr(payload, "_value", None)
        is_iterated = isinstance(payload, payloads.AsyncIterablePayload)
        self._is_anew = is_iterated and not is_file(source) and is_reiterable(source)
        super().__init__(
            replayable=self._is_anew or is_replayable(payload),
            buffer_limit=buffer_limit if is_iterated else 0,
        )
        is_read = payload.consumed or getattr(source, "ag_frame", payload) is None
        if is_read and not self.replayable:
            self._readings, self.buffer = 1, None  # by an earlier call

    @property
    def size(self) -> int | None:
        return self.payload.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.payload.decode(encoding, errors)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return await self.payload.as_bytes(encoding, errors)

    async def write(self, writer: Writer) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: Writer, content_length: int | None) -> None:
        begun = self.begin()
        for chunk in begun:
            await writer.write(chunk)
        left = None if content_length is None else content_length - sum(map(len, begun))
        payload, noting = self.payload, Noting(writer, self)
        if self._is_anew:  # a payload once iterated counts as consumed, for a redirect too
            payload = type(payload)(payload._value)
        try:
            await payload.write_with_length(noting, left)  # type: ignore[arg-type]
        except BaseException as error:
            if not (noting.is_writing or isinstance(error, ConsumedBody)):
                self.broke(error)  # the source failed, or was cancelled and gives no more
            raise
        self.finish()


class Noting:
    """A writer that passes each chunk to the guard before it goes out."""

    is_writing = False  # stays so where that fails

    def __init__(self, writer: Writer, guard: Guard) -> None:
        self._writer = writer
        self._guard = guard

    async def write(self, chunk: bytes) -> None:
        self._guard.note(chunk)
        self.is_writing = True
        await self._writer.write(chunk)
        self.is_writing = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._writer, name)


def is_replayable(payload: aiohttp.Payload) -> bool:
    """Can aiohttp write it again from where it began? It seeks a file back to where it stood."""
    if not type(payload).__module__.startswith("aiohttp.") or payload.consumed:
        return False
    if isinstance(payload, payloads.IOBasePayload):
        return is_seekable(payload._value)
    if isinstance(payload, aiohttp.MultipartWriter):
        return all(is_replayable(part) for part, _, _ in payload)
    return isinstance(payload, payloads.BytesPayload)
