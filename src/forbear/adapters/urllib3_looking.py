"""Looking, in requests and urllib3: an answer read before its caller gets it. Floor: acts.

An answer of up to 64 KiB is read within a quarter of a second, so that its connection is free while
the call is held; ``retry_if`` and vendors are shown a copy, which reads when it is read. What is
longer is handed over with the live response behind what was read.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

import urllib3

from ..sending.errors import let_signals_through
from ..sending.looking import DRAIN_BYTES, seconds_to_look, too_late
from .urllib3_resume import PIECE, Replay, read_piece, same_head
from .urllib3_sockets import is_over, read_briefly

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Peek", "read_kept"]


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


class Peek:
    """The file under the copy: it reads the caller's body when it is read itself.

    Attributes:
        kept: The urllib3 response that gives the caller the whole body; None: nothing was read.
        error: What broke the body.
    """

    kept: Kept | None = None
    error: Exception | None = None
    closed = False
    patience = inf  # seconds for which the body is read at most
    _replay: Replay | None = None

    def __init__(self, port: Any, method: str, raw: Any, deadline_at: float) -> None:
        self._port = port
        self._method = method
        self._raw = raw
        self._deadline_at = deadline_at

    def shown(self) -> Shown:
        """Make a urllib3 response that reads from here."""
        copy = Shown.__new__(Shown)
        copy.original = self._raw, self
        copy.status, copy.headers = self._raw.status, self._raw.headers
        return copy

    def read(self, amt: int | None = None) -> bytes:
        if self._replay is None:
            self._replay = Replay(self._take(), None)
        return self._replay.read(amt)

    read1 = read

    def _take(self) -> deque[bytes]:
        raw, clock = self._raw, self._port.clock
        kind = raw.headers.get("content-type", "")
        seconds = seconds_to_look(self._method, raw.status, kind, raw.length_remaining)
        seconds = min(seconds, self.patience)
        until = min(clock.monotonic() + seconds, self._deadline_at)
        pieces: deque[bytes] = deque()
        rest = raw
        try:
            if take(raw, pieces, lambda: clock.monotonic() >= until):
                raw.release_conn()
                rest = None
        except Exception as error:
            raw.close()
            raw.release_conn()
            self.error, rest = error, Broken(error)
        self.kept = Kept(raw, pieces.copy(), rest)
        if rest is not None:
            raise self.error or too_late()
        return pieces

    def close(self) -> None:
        self.closed = True  # and the caller's body is as it was


class Shown(urllib3.HTTPResponse):
    """The copy. Most predicates look at the status alone: it is made whole when more is asked."""

    original: Any

    def __getattr__(self, name: str) -> Any:
        original = vars(self).pop("original", None)
        if original is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        head = {**same_head(*original), "original_response": None}  # the caller's, to close
        super().__init__(**head)
        return getattr(self, name)

    @property
    def closed(self) -> bool:
        return False

    def close(self) -> None:
        """Leave the body to its caller."""
