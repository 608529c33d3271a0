"""Cooldown: for how long an origin asked this process to leave it alone. Floor: remembers.

A 503 with a time concerns the origin; a 429, and what else says "too much" of one client's calls,
only those that carry the same credential, so that one tenant does not hold up another. Credentials
are kept as salted hashes of ``Authorization`` or ``x-api-key``.

Callers that are held are let go one after the other, PACE apart, and each looks again when its time
has come: if one of the first was told to wait once more, the rest waits too.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from .locks import Locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["Cooldown"]

MOST_KEYS = 1024  # least recently begun first out
PACE = 0.001  # seconds between two callers that are let go: a thousand take a second
LONGEST = 3600.0  # seconds; a server that names a year is not avoided until the process ends
UNTIL, HELD = 0, 1  # of an entry: instant, callers that wait for it
Key = tuple[str, bytes]  # origin, credential; b"": everybody


class Cooldown(Locked):
    """The pauses that origins asked of one transport. Thread-safe.

    Args:
        mode: "retries": only retries are held; "all": first attempts too.
        random: Like ``random.random``; drawn once for each held caller, and once for the salt.

    Attributes:
        is_idle: Nobody is to be held.
        quiet: No first attempt is to be held.
    """

    def __init__(self, mode: str, random: Callable[[], float]) -> None:
        self.mode = mode
        self.is_idle = self.quiet = True
        self._random = random
        self._salt = b""
        self._entries: OrderedDict[Key, list[float]] = OrderedDict()
        self._over_at = -inf  # from then on nobody is to be held
        super().__init__()

    def begin(self, origin: str, credential: bytes, seconds: float, now: float) -> None:
        """Note that the origin asked to be left alone, by everybody if ``credential`` is b""."""
        until = now + min(seconds, LONGEST)
        key = (origin, credential)
        with self._lock:  # in this order an interruption leaves at worst an entry too few
            self._over_at = max(self._over_at, until)
            self.is_idle = False
            self.quiet = self.mode != "all"
            entry = self._entries.get(key)
            if entry is None or entry[UNTIL] <= now:
                entry = self._entries[key] = [until, 0]
            entry[UNTIL] = max(entry[UNTIL], until)
            self._entries.move_to_end(key)
            if len(self._entries) > MOST_KEYS:
                self._entries.popitem(last=False)

    def left(self, origin: str, credential: bytes, now: float) -> float:
        """Seconds until calls with this credential may go on, 0 if they may now."""
        if self.is_idle:
            return 0.0
        with self._lock:
            if now >= self._over_at:
                self._entries = OrderedDict()
                self.is_idle = self.quiet = True
            entries = self._holding(origin, credential, now)
            return max((entry[UNTIL] - now for entry in entries), default=0.0)

    def queue(self, origin: str, credential: bytes, now: float) -> float:
        """Seconds that a further caller waits behind those that are held already."""
        with self._lock:
            entries = self._holding(origin, credential, now)
            place = max((entry[HELD] for entry in entries), default=0.0)
            for entry in entries:
                entry[HELD] += 1
        return (place + self._random()) * PACE

    def _holding(self, origin: str, credential: bytes, now: float) -> list[list[float]]:
        """Return the entries that hold such a call. With the lock held."""
        keys = {(origin, b""), (origin, credential)}
        found = [self._entries[key] for key in keys if key in self._entries]
        return [entry for entry in found if entry[UNTIL] > now]

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
