"""Slots in the httpx family: a body that was handed over gives back the slot of its attempt.

Loaded with the first, so with the option ``concurrency=``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...engine.calls import free_in_flight

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class ReleasingBody:
    """A body that was handed over, and gives back the slot of its attempt at its end."""

    _forbear_sends = True

    def __init__(self, stream: Any, notes: dict[object, Any]) -> None:
        self._stream, self._notes = stream, notes

    def __del__(self) -> None:  # dropped without being closed, or interrupted while it was made
        free_in_flight(getattr(self, "_notes", {}))


class Releasing(ReleasingBody):
    """A synchronous one."""

    def __iter__(self) -> Iterator[bytes]:
        self._chunks = iter(self._stream)
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)  # type: ignore[no-any-return]
        except BaseException:
            free_in_flight(self._notes)
            raise

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            free_in_flight(self._notes)


class AsyncReleasing(ReleasingBody):
    """An asynchronous one. No generator, since trio warns of unfinished ones."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = self._stream.__aiter__()
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._chunks.__anext__()  # type: ignore[no-any-return]
        except BaseException:
            free_in_flight(self._notes)
            raise

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            free_in_flight(self._notes)
