"""Cooldown: until when this process leaves an origin alone because the origin asked. Floor:
remembers.

A 503 with a time concerns the origin; a 429, and what else says "too much" of one client's calls,
only those that carry the same credential, so that one tenant does not hold up another. Credentials
are kept as salted hashes of ``Authorization`` or ``x-api-key``.

Callers that are held are let go one after the other, PACE apart, and each looks again when its time
has come: if one of the first was told to wait once more, the rest waits too.
"""

from __future__ import annotations

from math import inf

from .watched import Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["Cooldown"]

MOST_KEYS = 1024  # least recently begun first out
PACE = 0.001  # seconds between two callers that are let go: a thousand take a second
LONGEST = (
    3600.0  # seconds; a server that names a year must not be left alone until the process ends
)
UNTIL, HELD = 0, 1  # of an entry: instant, callers that wait for it
Key = tuple[str, bytes]  # origin, credential; b"": everybody


class Cooldown(Watched):
    """What origins asked for, of one strategy. Thread-safe.

    Args:
        mode: "retries": only retries are held; "all": first attempts too.
        random: Like ``random.random``; drawn once for each caller that is held, and once for the
            salt.

    Attributes:
        quiet: No first attempt is to be held.
    """

    __slots__ = ("_entries", "_over_at", "_random", "_salt", "mode")

    def __init__(self, mode: str, random: Callable[[], float]) -> None:
        super().__init__(quiet=True)
        self.mode = mode
        self._random = random
        self._salt = b""
        self._entries: dict[Key, list[float]] = {}
        self._over_at = -inf  # from then on nobody is to be held

    def begin(self, origin: str, credential: bytes, seconds: float, now: float) -> None:
        """Note that the origin asked to be left alone; ``credential`` is b"" if it meant
        everybody.
        """
        until = now + min(seconds, LONGEST)
        key = (origin, credential)
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None or entry[UNTIL] <= now:
                entry = [until, 0]
            elif entry[UNTIL] < until:
                entry[UNTIL] = until
            self._entries[key] = entry
            if len(self._entries) > MOST_KEYS:
                del self._entries[next(iter(self._entries))]
            self._over_at = max(self._over_at, until)
            is_changed = self.quiet and self.mode == "all"
            self.quiet = self.mode != "all"
        if is_changed:
            self._adjust()

    def left(self, origin: str, credential: bytes, now: float) -> float:
        """Seconds until calls with this credential may go on, 0 if they may now. Changes nothing
        else.
        """
        if not self._entries:
            return 0.0
        with self._lock:
            is_over = now >= self._over_at
            if is_over:
                self._entries = {}
            is_changed = is_over and not self.quiet
            self.quiet = self.quiet or is_over
            latest = now
            for key in {(origin, b""), (origin, credential)}:
                entry = self._entries.get(key)
                if entry is not None and entry[UNTIL] > latest:
                    latest = entry[UNTIL]
        if is_changed:
            self._adjust()
        return latest - now

    def queue(self, origin: str, credential: bytes, now: float) -> float:
        """Seconds that a further caller waits behind those that are held already."""
        with self._lock:
            place = 0.0
            for key in {(origin, b""), (origin, credential)}:
                entry = self._entries.get(key)
                if entry is not None and entry[UNTIL] > now:
                    place = max(place, entry[HELD])
                    entry[HELD] += 1
        return (place + self._random()) * PACE

    def credential_of(self, lines: Iterable[tuple[Any, Any]]) -> bytes:
        """A salted hash of what a request identifies itself by; never b""."""
        from hashlib import blake2b

        if not self._salt:
            self._salt = repr(self._random()).encode()
        digest = blake2b(key=self._salt, digest_size=16)
        for name, value in lines:
            if octets(name).lower() in CREDENTIALS:
                digest.update(octets(name).lower() + b":" + octets(value) + b"\n")
        return digest.digest()

    def __repr__(self) -> str:
        return f"<Cooldown {self.mode}, {len(self._entries)} held>"


CREDENTIALS = (b"authorization", b"x-api-key")


def octets(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")
