"""Looking, in requests and urllib3: the copy of an answer for ``retry_if``. Floor: acts."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Any

import urllib3

from ..sending.looking import seconds_to_look, too_late
from .urllib3_kept import Broken, Kept, take
from .urllib3_resume import Replay, same_head

__all__ = ["Peek"]


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
