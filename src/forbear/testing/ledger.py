"""Ledger: what arrived at the faulting server and was executed, and its keys.

Knows nothing of sockets. The store follows draft-ietf-httpapi-idempotency-key-header-07 §2.6: a
retry of a completed request gets the first response again, of one still in flight 409, and a key
that is used again with another body 422.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from .steps import Step, script_name


@dataclass(slots=True, kw_only=True)
class Arrival:
    """One request as the server saw it. Instants are ``time.monotonic()`` of the server.

    Attributes:
        method: As received, like the ``query`` of the target.
        path: As received, without the query.
        headers: As received: order, case and duplicates kept.
        key: Value of the Idempotency-Key header.
        connection: Number of the connection, from 1 in the order of acceptance.
        nth: Number of the request on its connection, from 1; above 1 the connection was reused.
        started_at: When its first byte was there.
        ended_at: When the last byte of the response, or the fault, was about to be sent; else None.
        body_bytes: Bytes of the body as far as it was read, without chunked framing.
        sha256: Hex digest of the same.
        body_complete: The body was read to its end.
        executed: The request had its side effect.
    """

    method: str
    path: str
    query: str = field(repr=False)
    headers: list[tuple[str, str]] = field(repr=False)
    key: str | None = field(repr=False)
    connection: int
    nth: int
    started_at: float
    ended_at: float | None = None
    body_bytes: int = 0
    sha256: str = hashlib.sha256().hexdigest()
    body_complete: bool
    executed: bool = False


class Kept(NamedTuple):
    """The response for a key whose request was executed."""

    sha256: str | None  # of the body; None if its end was not read before (``early:2xx``)
    response: Step


class Ledger:
    """All arrivals and all keys of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: list[Arrival] = []
        self._keys: dict[tuple[str, str | None], Kept | None] = {}  # None: in flight

    def enter(self, arrival: Arrival) -> None:
        with self._lock:
            self._arrivals.append(arrival)

    def arrivals(self, path: str | None) -> list[Arrival]:
        """Return copies, in the order of arrival, of all or of one path."""
        name = None if path is None else script_name(path)
        with self._lock:
            entered = self._arrivals.copy()
        return [replace(each) for each in entered if name is None or script_name(each.path) == name]

    def claim(self, path: str, key: str | None) -> Kept | Literal["claimed", "in flight"]:
        """Claim the key unless it is taken; the caller must ``settle`` it then."""
        where = script_name(path), key
        if key is None:
            return "claimed"
        with self._lock:
            if where not in self._keys:
                self._keys[where] = None
                return "claimed"
            return self._keys[where] or "in flight"

    def settle(self, path: str, key: str | None, kept: Kept | None) -> None:
        """Keep what a claimed key was executed with, or with None free the key again."""
        where = script_name(path), key
        with self._lock:
            self._keys.pop(where, None)
            if kept is not None and key is not None:
                self._keys[where] = kept
