"""Kept: the answer of a held call, read before its caller gets it. Floor: acts.

An answer of up to 64 KiB is read within a quarter of a second, so that its connection is free while
the call is held. What is longer is handed over with the live response behind what was read.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import urllib3

from ..sending.errors import let_signals_through
from .urllib3_resume import PIECE, Replay, read_piece, same_head
from .urllib3_sockets import DRAIN_BYTES, is_over, read_briefly

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Broken", "Kept", "read_kept", "take"]


class Kept(urllib3.HTTPResponse):
    """A response that gives what was read of another one, then the rest that is still to come."""

    def __init__(self, raw: Any, pieces: deque[bytes], rest: Any) -> None:
        self.raw = raw
        super().__init__(**same_head(raw, Replay(pieces, None, rest)))

    @property
    def connection(self) -> Any:
        return self.raw.connection

    def release_conn(self) -> None:
        self.raw.release_conn()

    def close(self) -> None:
        super().close()
        self.raw.close()


class Broken:
    """The rest of a body that broke."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def read(self, *_: Any, **__: Any) -> bytes:
        raise self._error


def take(raw: Any, pieces: deque[bytes], is_late: Callable[[], bool]) -> bool:
    """Read pieces of a body; False: more is to come, and that is too much or too late."""
    received = 0
    while received <= DRAIN_BYTES:
        piece = read_piece(raw, PIECE)
        if not piece:
            return True
        pieces.append(piece)
        received += len(piece)
        if is_late():
            break
    return False


def read_kept(raw: Any, seconds: float) -> tuple[Any, bool]:
    """Read the answer of a call that is held, for so many seconds at most.

    Returns:
        A response that gives the whole answer, None if the body stalls or breaks; and whether
        nothing of it is to come.
    """
    length = getattr(raw, "length_remaining", None) or 0
    if is_over(raw) or length > DRAIN_BYTES:
        return raw, length <= DRAIN_BYTES
    pieces: deque[bytes] = deque()
    try:
        with read_briefly(raw, seconds):
            is_whole = take(raw, pieces, lambda: False)
    except Exception as error:  # it failed before: how its body fails no longer matters
        raw.close()
        raw.release_conn()
        let_signals_through(error)
        return None, True
    if is_whole:
        raw.release_conn()
    return (Kept(raw, pieces, None if is_whole else raw) if pieces else raw), is_whole
