"""One connection of the faulting server: read a request, take its step, carry it out, again. Floor:
acts.

The order within a request is what makes its faults exact: the key is looked up before a step is
taken, the side effect happens once the body is read, then the delay, then the key is settled and
the ledger is up to date, and only then does the first byte (or the reset) go out. Whoever has seen
the end of an attempt can therefore read the ledger, or repeat the request, without racing the
server.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import struct
import threading
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import NoReturn

from .ledger import Arrival, Kept, Ledger
from .ranges import ranged
from .steps import Scripts, Step, refusal
from .wire import Inbox, Malformed, PeerLeft, RequestHead, body_pieces, read_head

__all__ = ["Connection"]

GARBAGE = b"\x16\x03 this is not a status line\r\n\r\n"
BODY_PIECES = 16  # of a dripping or chunked body
LINGER = 1.0  # seconds; longest reading after an answer that did not wait for the whole request
BEFORE_RESET = 0.01  # seconds; a reset discards what is not delivered; half of it does for 500 kB
_RESET_ON_CLOSE = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


class Connection:
    """A connected socket and the thread-confined story of the requests on it.

    ``serve`` runs in the connection's own thread; ``interrupt`` and ``close`` may be called from
    any.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        number: int,
        turned_away: bool,
        scripts: Scripts,
        ledger: Ledger,
        stopping: threading.Event,
    ) -> None:
        self._sock = sock
        self._inbox = Inbox(sock)
        self._number = number
        self._requests = 0
        self._turned_away = turned_away
        self._scripts = scripts
        self._ledger = ledger
        self._stopping = stopping

    def serve(self) -> None:
        """Answer requests until the peer leaves, a step closes the connection or the server
        stops.
        """
        try:
            if self._turned_away:
                # Resetting at once would be a race: the same script would fail the peer's connect()
                # on one run and its first read on the next. Its first byte shows that connect() is
                # over.
                self._sock.recv(1, socket.MSG_PEEK)
                self.reset()
                return
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(self._sock, ssl.SSLSocket):
                self._sock.do_handshake()
            while self._exchange():
                pass
        except Malformed as error:
            with contextlib.suppress(OSError):
                blocks = _encode(refusal(error.status, str(error)), method="GET", keep=False)
                self._send(b"".join(block for _, block in blocks))
                self._linger()
        except (OSError, PeerLeft):
            pass  # the peer's doing, or ours in interrupt()
        finally:
            self.close()

    def interrupt(self) -> None:
        """Wake the thread out of any read or write."""
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown, which takes the TLS state from under the thread that reads.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; a FIN if nothing is left unread."""
        self._sock.close()

    def reset(self) -> None:
        """Close the socket with an RST."""
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._sock.close()

    def _exchange(self) -> bool:
        """Answer one request and say whether the connection stays."""
        if not self._inbox.is_ready():
            return False
        started_at = time.monotonic()
        head = read_head(self._inbox)
        self._requests += 1
        arrival = Arrival(
            method=head.method,
            path=head.path,
            query=head.query,
            headers=head.headers,
            key=next(
                (value for name, value in head.headers if name.lower() == "idempotency-key"), ""
            )
            or None,
            connection=self._number,
            nth=self._requests,
            started_at=started_at,
            body_complete=head.length == 0,
        )
        self._ledger.enter(arrival)
        try:
            return self._reply(head, arrival)
        finally:
            if arrival.ended_at is None:
                arrival.ended_at = time.monotonic()

    def _reply(self, head: RequestHead, arrival: Arrival) -> bool:
        if arrival.key is None:
            step = self._scripts.take(head.path, fresh=arrival.nth == 1)
            self._work(step, head, arrival)
        else:
            claim = self._ledger.claim(head.path, arrival.key)
            if claim == "claimed":
                step = self._work_once(head, arrival, arrival.key)
            else:
                self._read_body(head, arrival)
                if claim == "in flight":
                    step = refusal(
                        409, "the first request with this Idempotency-Key is still in flight"
                    )
                elif claim.sha256 not in (None, arrival.sha256):
                    step = refusal(422, "this Idempotency-Key came with another body before")
                else:
                    step = claim.answer
        return self._perform(step, head, arrival)

    def _work_once(self, head: RequestHead, arrival: Arrival, key: str) -> Step:
        step = self._scripts.take(head.path, fresh=arrival.nth == 1)
        try:
            self._work(step, head, arrival)
        finally:
            sha256 = arrival.sha256 if arrival.body_complete else None
            kept = Kept(sha256, step.replayed()) if arrival.executed else None
            self._ledger.settle(head.path, key, kept)
        return step

    def _work(self, step: Step, head: RequestHead, arrival: Arrival) -> None:
        """Do what comes before the answer: read, execute, take time."""
        if step.name not in ("reset-before", "reset-head"):
            self._read_body(head, arrival, most=step.at if step.name == "early" else None)
        arrival.executed = step.executes
        self._pause(step.delay)

    def _read_body(self, head: RequestHead, arrival: Arrival, *, most: int | None = None) -> None:
        digest = hashlib.sha256()
        if head.expects_continue and head.length != 0 and most != 0:
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            if most == 0:
                return
            for piece in body_pieces(self._inbox, head.length):
                taken = piece if most is None else piece[: most - arrival.body_bytes]
                digest.update(taken)
                arrival.body_bytes += len(taken)
                if arrival.body_bytes == most:
                    arrival.body_complete = most == head.length
                    return
            arrival.body_complete = True
        finally:
            arrival.sha256 = digest.hexdigest()

    def _perform(self, step: Step, head: RequestHead, arrival: Arrival) -> bool:
        """Do what the peer can see."""
        if step.name == "hang":
            while self._inbox.is_ready():
                self._inbox.some(65_536)
            return False
        if step.name == "drip":
            self._drip(step.interval)
        arrival.ended_at = time.monotonic()
        match step.name:
            case "reset" | "reset-before" | "reset-head":
                self.reset()
                return False
            case "close":
                return False
            case "garbage":
                self._send(GARBAGE)
                return False
            case _:
                return self._answer(step, head, arrival)

    def _drip(self, interval: float) -> NoReturn:
        for byte in b"HTTP/1.1 200 OK\r\nX-Drip: ":
            self._send(bytes((byte,)))
            self._pause(interval)
        while True:
            self._send(b".")
            self._pause(interval)

    def _answer(self, step: Step, head: RequestHead, arrival: Arrival) -> bool:
        if step.etag and head.method in ("GET", "HEAD"):
            step = ranged(step, head)
        keep = head.keeps_alive and not step.close and step.name != "early"
        *before, (last_pause, last) = _encode(step, method=head.method, keep=keep)
        for pause, block in before:
            self._pause(pause)
            self._send(block)
        self._pause(last_pause)
        arrival.ended_at = time.monotonic()
        self._send(last)
        match step.name:
            case "cut":
                return False
            case "reset-body":
                self._pause(BEFORE_RESET)
                self.reset()
                return False
            case "early":
                if step.linger:
                    self._linger()
                return False
            case _:
                return keep

    def _linger(self) -> None:
        """Close our side and read on for a while: closing on unread bytes resets, and loses the
        answer.
        """
        socket.socket.shutdown(self._sock, socket.SHUT_WR)
        until = time.monotonic() + LINGER
        while (left := until - time.monotonic()) > 0:
            self._sock.settimeout(left)
            if not self._sock.recv(65_536):
                return

    def _pause(self, seconds: float) -> None:
        if seconds and self._stopping.wait(seconds):
            raise ConnectionAbortedError("the server stops")

    def _send(self, block: bytes) -> None:
        self._sock.sendall(block)


def _encode(step: Step, *, method: str, keep: bool) -> list[tuple[float, bytes]]:
    """Return the answer as blocks, each with the pause before it; blocks without a pause are
    joined.
    """
    has_body = method != "HEAD" and step.status not in (204, 304)
    given = {name.lower() for name, _ in step.headers}
    headers = list(step.headers)
    if "date" not in given:
        headers.append(("Date", formatdate(usegmt=True)))
    if "content-type" not in given:
        headers.append(("Content-Type", "text/plain"))
    if step.status != 204:
        framing = (
            ("Transfer-Encoding", "chunked")
            if step.chunked
            else ("Content-Length", str(len(step.content)))
        )
        headers.append(framing)
    if not keep:
        headers.append(("Connection", "close"))
    try:
        phrase = HTTPStatus(step.status).phrase
    except ValueError:
        phrase = "Unassigned"
    lines = [f"HTTP/1.1 {step.status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    half = len(head) // 2
    blocks = [(0.0, head[:half]), (step.head_delay, head[half:])]
    if has_body:
        cut = step.name in ("cut", "reset-body")
        content = step.content[: step.at] if cut else step.content
        size = (
            max(1, -(-len(content) // BODY_PIECES))
            if step.drip or step.chunked
            else len(content) or 1
        )
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        if step.chunked:
            pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
            if not cut:
                pieces.append(b"0\r\n\r\n")
        blocks += [(step.drip, piece) for piece in pieces]
    joined = blocks[:1]
    for pause, block in blocks[1:]:
        if pause:
            joined.append((pause, block))
        else:
            joined[-1] = (joined[-1][0], joined[-1][1] + block)
    return joined
