"""Draining: a failed answer is read to its end if that is little and quick, else closed. Floor:
acts.

urllib3's own ``drain_conn`` reads for as long as the peer goes on sending: its read timeout bounds
each byte, not their sum. Here one instant bounds every receive, also those that http.client makes
while it looks for the end of a chunk's size line.

Relies on ``_fp`` of urllib3's HTTPResponse, ``fp`` of http.client's and ``_sock`` of
socket.SocketIO; where they are not found the response is closed unread. An answer that urllib3
refuses while it makes a response of it is known to the frames of that error alone.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import InvalidHeader
from urllib3.response import BaseHTTPResponse as Answer

from ..sending.clock import SYSTEM_CLOCK
from .urllib3_errors import tree

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

__all__ = ["close_refused", "discard"]

# Draining lets the connection be used again, which saves a round trip or three; a body of more
# bytes or seconds than these costs more than that.
DRAIN_BYTES = 65_536
DRAIN_SECONDS = 0.25


def discard(response: BaseHTTPResponse, seconds: float = DRAIN_SECONDS) -> None:
    """Let go of a failed answer: its connection is back in its pool, ready or closed. Never raises.

    Args:
        response: One that nobody has read from, or that was read to its end.
        seconds: Longest time for it, if less than a quarter of a second.
    """
    if is_over(response):
        with suppress(Exception):
            response.release_conn()  # read, but kept: release_conn=False
        return
    raw = raw_below(response)
    sock = None if raw is None else raw._sock
    if (
        raw is not None
        and is_worth_draining(response)
        and drain(response, raw, min(seconds, DRAIN_SECONDS))
    ):
        return
    with suppress(Exception):  # it failed before: how its body ends no longer matters
        if sock is not None and response.connection is None:
            # With release_conn=True the pool has the connection back already: with the rest of this
            # answer still to come, it must not serve another request.
            sock.shutdown(socket.SHUT_RDWR)
        response.close()
        response.release_conn()  # a closed one too: a pool with block=True counts them


def close_refused(error: BaseException) -> None:
    """Close an answer whose headers urllib3 refused: with two lengths, for instance. Never raises.

    With ``Connection: close`` http.client has given the socket to that answer, and nobody else
    closes it.
    """
    for each in tree(error):
        if isinstance(each, InvalidHeader):
            trace = each.__traceback__
            while trace is not None:
                refused = trace.tb_frame.f_locals.get("self")
                if isinstance(refused, Answer):
                    with suppress(Exception):
                        refused.close()
                trace = trace.tb_next


def is_over(response: Any) -> bool:
    return getattr(response, "_fp", None) is None or bool(getattr(response, "closed", True))


def raw_below(response: Any) -> Any:
    """The SocketIO that the answer is read from, None where it is not what we know."""
    raw = getattr(getattr(response._fp, "fp", None), "raw", None)
    return (
        raw
        if isinstance(raw, socket.SocketIO) and getattr(raw, "_sock", None) is not None
        else None
    )


def is_worth_draining(response: Any) -> bool:
    if getattr(response._fp, "will_close", True):
        return False  # nothing comes after it on this connection
    length = response.length_remaining
    return length is None or length <= DRAIN_BYTES


def drain(response: BaseHTTPResponse, raw: Any, seconds: float) -> bool:
    """Read to the end, and say whether it was reached."""
    sock = raw._sock
    configured = sock.gettimeout()
    hurried = raw._sock = Hurried(sock, SYSTEM_CLOCK.monotonic() + seconds)
    try:
        response.read(DRAIN_BYTES + 1, decode_content=False)
        return is_over(response)
    except Exception:
        return False
    finally:
        if raw._sock is hurried:  # else it was closed at the end of the body
            raw._sock = sock
        with suppress(OSError):  # closed
            sock.settimeout(configured)


class Hurried:
    """A socket whose receives all end by one instant, and each within the socket's own timeout."""

    def __init__(self, sock: Any, until: float) -> None:
        self._sock = sock
        self._until = until
        self._configured = sock.gettimeout()

    def recv_into(self, buffer: Any) -> int:
        left = self._until - SYSTEM_CLOCK.monotonic()
        if left <= 0:
            raise TimeoutError("the time for draining is over")
        self._sock.settimeout(left if self._configured is None else min(left, self._configured))
        return int(self._sock.recv_into(buffer))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
