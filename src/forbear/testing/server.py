"""FaultServer: HTTP/1.1 on loopback that fails by script, with a ledger of arrivals.

The script language is explained in ``help("forbear.testing")``.

The order within a request makes its faults exact: look up the key, take a step, read the body, have
the side effect, wait for the delay, settle the key, bring the ledger up to date; only then is the
first byte (or the reset) sent. So a test that has seen the end of an attempt can read the ledger,
or retry the request, without racing the server.

The store of keys follows draft-ietf-httpapi-idempotency-key-header-07 §2.6: a
retry of a completed request gets the first response again, of one still in flight 409, and a key
that is used again with another body 422.
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
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http.client import responses
from typing import Literal, NamedTuple, NoReturn

from .steps import (
    Malformed,
    RequestHead,
    Scripts,
    Step,
    body_pieces,
    ranged,
    read_head,
    refusal,
    script_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


BACKLOG = 1024  # connections; a retry storm must reach the script, not the kernel's queue
STOP_WITHIN = 1.0  # seconds; threads that take longer end by themselves later


class FaultServer:
    """Serve scripted faults from daemon threads until stopped.

    Thread-safe. After ``stop`` connecting is refused and the ledger stays readable; ``start`` then
    begins again at the same port, with the same scripts.

    Args:
        tls: A server-side context, to serve https.

    Attributes:
        connections: Number of connections accepted so far.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._scripts = Scripts()
        self._ledger = Ledger()
        self._open: dict[Connection, threading.Thread] = {}
        self.connections = 0
        self._port = 0
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._stopping = threading.Event()

    def __repr__(self) -> str:
        where = self.url if self._port else "not started"
        return f"<FaultServer {where} connections={self.connections} open={self.open_connections}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``, without a slash at the end."""
        if not self._port:
            raise RuntimeError("the server has no port; call start() or use it in a with statement")
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    @property
    def open_connections(self) -> int:
        """Number of connections that neither side has closed, as far as the server has noticed."""
        return len(self._open)

    def script(self, path: str, *steps: int | str | Step) -> None:
        """Replace the steps of a path. The ledger keeps its entries.

        A step is a status, a text of the script language (``help("forbear.testing")``), or what
        ``answer`` made of one.

        Raises:
            ValueError: A step, a modifier or the path is invalid; the message says what is valid.
        """
        self._scripts.set(path, steps)

    def requests(self, path: str | None = None) -> list[Arrival]:
        """Return what arrived for one path, or for all, in order; requests in progress included."""
        return self._ledger.arrivals(path)

    def executed(self, path: str | None = None) -> int:
        """Return how often the side effect of one path, or of all, happened."""
        return sum(arrival.executed for arrival in self._ledger.arrivals(path))

    def start(self) -> None:
        """Listen, and return once connections are accepted."""
        if self._listener is not None:
            raise RuntimeError("the server is started already")
        listener = socket.create_server(("127.0.0.1", self._port), backlog=BACKLOG)
        self._port = listener.getsockname()[1]
        self._listener = listener
        self._stopping = threading.Event()
        arguments = (listener, self._stopping)
        self._acceptor = threading.Thread(
            target=self._accept, args=arguments, name="fault-server", daemon=True
        )
        self._acceptor.start()

    def stop(self) -> None:
        """Close every socket and end every thread, within about a second; twice is allowed."""
        if self._listener is None or self._acceptor is None:
            return
        self._stopping.set()
        with contextlib.suppress(OSError):
            # A connection wakes a blocked accept() on every platform; closing its socket does not.
            socket.create_connection(("127.0.0.1", self._port), timeout=STOP_WITHIN).close()
        self._acceptor.join(STOP_WITHIN)
        self._listener.close()
        self._listener = self._acceptor = None
        left = list(self._open.items())
        for connection, _ in left:
            connection.interrupt()
        until = time.monotonic() + STOP_WITHIN
        for _, thread in left:
            thread.join(max(0.0, until - time.monotonic()))
        for connection, _ in left:
            connection.close()

    def _accept(self, listener: socket.socket, stopping: threading.Event) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:  # the peer was gone already, or there are no descriptors left
                if stopping.wait(0.01):
                    return
                continue
            if stopping.is_set():
                sock.close()
                return
            self._admit(sock, stopping)

    def _admit(self, sock: socket.socket, stopping: threading.Event) -> None:
        self.connections += 1
        turned_away = self._scripts.take_reset()
        if self._tls is not None and not turned_away:
            try:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:  # reset by the peer before it began
                sock.close()
                return
        number, ledger = self.connections, self._ledger
        connection = Connection(sock, number, turned_away, self._scripts, ledger, stopping)
        name = f"fault-server-{number}"
        thread = threading.Thread(target=self._serve, args=(connection,), name=name, daemon=True)
        self._open[connection] = thread
        thread.start()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            self._open.pop(connection, None)


GARBAGE = b"\x16\x03 this is not a status line\r\n\r\n"
BODY_PIECES = 16  # of a dripping or chunked body
LINGER = 1.0  # seconds; longest reading after a response that came before the whole request
BEFORE_RESET = 0.01  # seconds; a reset discards what is not delivered; half of it does for 500 kB
_RESET_ON_CLOSE = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


@dataclass(eq=False)
class Connection:
    """A connected socket. ``serve`` has a thread of its own; other methods may be called in any."""

    sock: socket.socket
    number: int
    turned_away: bool
    scripts: Scripts
    ledger: Ledger
    stopping: threading.Event
    requests: int = 0

    def __post_init__(self) -> None:
        self.peer = self.sock.makefile("rb")

    def serve(self) -> None:
        """Serve requests until the peer leaves, a step closes or the server stops."""
        try:
            if self.turned_away:
                # The first byte shows that the peer's connect() is over; a reset at once would fail
                # the connect() on one run, and the first read on the next.
                self.sock.recv(1, socket.MSG_PEEK)
                self.reset()
                return
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(self.sock, ssl.SSLSocket):
                self.sock.do_handshake()
            while self._exchange():
                pass
        except Malformed as error:
            with contextlib.suppress(OSError):
                response = _encode(refusal(*error.args), method="GET", keep=False)
                self.sock.sendall(b"".join(block for _, block in response))
                self._linger()
        except (OSError, EOFError):
            pass  # closed by the peer, or by interrupt()
        finally:
            self.close()

    def interrupt(self) -> None:
        """Wake the thread out of any read or write."""
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown, which removes the TLS state that the reading thread needs.
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket; a FIN if nothing is left unread."""
        self.peer.close()
        self.sock.close()

    def reset(self) -> None:
        """Close the socket with an RST."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.close()

    def _exchange(self) -> bool:
        """Respond to one request; return whether the connection stays open."""
        if not self.peer.peek(1):
            return False
        started_at = time.monotonic()
        head = read_head(self.peer)
        self.requests += 1
        arrival = Arrival(
            method=head.method,
            path=head.path,
            query=head.query,
            headers=head.headers,
            key=head.field("idempotency-key") or None,
            connection=self.number,
            nth=self.requests,
            started_at=started_at,
            body_complete=head.length == 0,
        )
        self.ledger.enter(arrival)
        try:
            return self._reply(head, arrival)
        finally:
            if arrival.ended_at is None:
                arrival.ended_at = time.monotonic()

    def _reply(self, head: RequestHead, arrival: Arrival) -> bool:
        claim = self.ledger.claim(head.path, arrival.key)
        if claim == "claimed":
            step = self.scripts.take(head.path, fresh=arrival.nth == 1)
            try:
                self._work(step, head, arrival)
            finally:
                sha256 = arrival.sha256 if arrival.body_complete else None
                kept = Kept(sha256, step.replayed()) if arrival.executed else None
                self.ledger.settle(head.path, arrival.key, kept)
            return self._perform(step, head, arrival)
        self._read_body(head, arrival)
        if claim == "in flight":
            step = refusal(409, "the first request with this key is still in flight")
        elif claim.sha256 not in (None, arrival.sha256):
            step = refusal(422, "this Idempotency-Key was used with another body before")
        else:
            step = claim.response
        return self._perform(step, head, arrival)

    def _work(self, step: Step, head: RequestHead, arrival: Arrival) -> None:
        """Do what comes before the response: read, execute, take time."""
        if step.name not in ("reset-before", "reset-head"):
            self._read_body(head, arrival, most=step.at if step.name == "early" else None)
        arrival.executed = step.executes
        self._pause(step.delay)

    def _read_body(self, head: RequestHead, arrival: Arrival, *, most: int | None = None) -> None:
        digest = hashlib.sha256()
        if head.expects_continue and head.length != 0 and most != 0:
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            if most == 0:
                return
            for piece in body_pieces(self.peer, head.length):
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
            while self.peer.peek(1):
                self.peer.read1(65_536)
            return False
        if step.name == "drip":
            self._drip(step.interval)
        arrival.ended_at = time.monotonic()
        if step.name in ("reset", "reset-before", "reset-head"):
            self.reset()
        elif step.name == "garbage":
            self.sock.sendall(GARBAGE)
        elif step.name != "close":
            return self._respond(step, head, arrival)
        return False

    def _drip(self, interval: float) -> NoReturn:
        for byte in b"HTTP/1.1 200 OK\r\nX-Drip: ":
            self.sock.sendall(bytes((byte,)))
            self._pause(interval)
        while True:
            self.sock.sendall(b".")
            self._pause(interval)

    def _respond(self, step: Step, head: RequestHead, arrival: Arrival) -> bool:
        if step.etag and head.method in ("GET", "HEAD"):
            step = ranged(step, head)
        keep = head.keeps_alive and not step.close and step.name != "early"
        unsent = b""
        for pause, block in _encode(step, method=head.method, keep=keep):
            if pause:
                self.sock.sendall(unsent)
                self._pause(pause)
                unsent = b""
            unsent += block
        arrival.ended_at = time.monotonic()
        self.sock.sendall(unsent)
        if step.name == "reset-body":
            self._pause(BEFORE_RESET)
            self.reset()
        elif step.name == "early" and step.linger:
            self._linger()
        return keep and step.name not in ("cut", "reset-body")

    def _linger(self) -> None:
        """Close our side and read on: closing on unread bytes would reset and lose the response."""
        socket.socket.shutdown(self.sock, socket.SHUT_WR)
        until = time.monotonic() + LINGER
        while (left := until - time.monotonic()) > 0:
            self.sock.settimeout(left)
            if not self.sock.recv(65_536):
                return

    def _pause(self, seconds: float) -> None:
        if seconds and self.stopping.wait(seconds):
            raise ConnectionAbortedError("the server stops")


def _encode(step: Step, *, method: str, keep: bool) -> list[tuple[float, bytes]]:
    """Return the response as blocks, each with the pause before it."""
    has_body = method != "HEAD" and step.status not in (204, 304)
    given = {name.lower() for name, _ in step.headers}
    headers = list(step.headers)
    if "date" not in given:
        headers.append(("Date", formatdate(usegmt=True)))
    if "content-type" not in given:
        headers.append(("Content-Type", "text/plain"))
    if step.chunked and step.status != 204:
        headers.append(("Transfer-Encoding", "chunked"))
    elif step.status != 204:
        headers.append(("Content-Length", str(len(step.content))))
    if not keep:
        headers.append(("Connection", "close"))
    phrase = responses.get(step.status, "Unassigned")
    lines = [f"HTTP/1.1 {step.status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    half = len(head) // 2
    blocks = [(0.0, head[:half]), (step.head_delay, head[half:])]
    if has_body:
        cut = step.name in ("cut", "reset-body")
        content = step.content[: step.at] if cut else step.content
        size = -(-len(content) // BODY_PIECES) if step.drip or step.chunked else len(content)
        pieces = [content[at : at + size] for at in range(0, len(content), size or 1)]
        if step.chunked:
            pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
            if not cut:
                pieces.append(b"0\r\n\r\n")
        blocks += [(step.drip, piece) for piece in pieces]
    return blocks


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
