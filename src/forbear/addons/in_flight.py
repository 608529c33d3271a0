"""In flight: the end of a body that was handed over gives back the slot of its attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.call import IN_FLIGHT

if TYPE_CHECKING:
    from ..engine.reading import Source


class Releasing:
    """A source that gives back the slot of its attempt when its body ends."""

    def __init__(self, stream: Source, notes: dict[object, Any]) -> None:
        self.stream, self._notes = stream, notes

    async def read(self) -> bytes:
        piece = b""
        try:
            piece = await self.stream.read()
        finally:
            if not piece:
                free(self._notes)
        return piece

    async def close(self) -> None:
        try:
            await self.stream.close()
        finally:
            free(self._notes)

    def __del__(self) -> None:  # dropped without being closed, or interrupted while it was made
        free(getattr(self, "_notes", {}))


def free(notes: dict[object, Any]) -> None:
    """Give back the slot of a body that is read, closed or lost."""
    slot = notes.get(IN_FLIGHT)
    if slot is not None:
        slot.free()
