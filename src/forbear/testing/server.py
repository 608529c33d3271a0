"""FaultServer: HTTP/1.1 on loopback that fails by script, with a ledger of arrivals. Floor: acts.

    with FaultServer() as server:
        server.script("/orders", "503;retry-after=1", "reset", 200)
        httpx.post(server.url + "/orders", json=order)
        assert server.executed("/orders") == 1

Every request consumes one step of its path; the last step repeats for ever. The same without a
call, for other programs: ``/s/ID/STEP,STEP,…``, for example ``/s/a1/503,reset,200``, where ID (any
text without a slash) keeps the position and is what the ledger goes by:
``server.requests("/s/a1")``. An ID keeps the steps it came with first. Other paths are answered
404.

A step is a status or ``name[:arg][;modifier=value]…``. Values are percent-decoded: write a literal
``;`` as %3B, ``%`` as %25 and, in a URL, ``,`` as %2C. An unknown word is a ValueError (in a URL a
400 that says what is wrong), so that a typo does not pass for a fault.

Steps
    ``NNN``              answer with that status, 200 to 599
    ``reset``            read the whole request, execute it, then RST: not one byte of an answer
    ``close``            the same with a FIN
    ``reset-before``     RST the next connection at its first byte, unread and not in the ledger,
                         for whatever path; on an open connection, and in a URL, as ``reset-head``
    ``reset-head``       RST once the head is read; the body stays unread
    ``hang``             read the request and never answer
    ``garbage``          answer with a status line that is not HTTP, then FIN
    ``cut:N``            answer 200 and FIN after N bytes of its body
    ``reset-body:N``     answer 200 and RST after N bytes of its body (fewer reach a peer
                         that leaves more than its kernel's buffer unread)
    ``stale``            FIN without an answer if the connection was used before, as a server whose
                         keep-alive ran out; on a fresh connection answer 200 and stay at this step
    ``early:NNN:BYTES``  answer with that status once BYTES of the upload are read, then close
    ``drip``             read the request, then send the bytes of a head one by one, for ever

Modifiers of whatever answers (``NNN``, ``cut``, ``reset-body``, ``stale``, ``early``)
    ``retry-after=V`` Retry-After: V          ``header=Name:Value`` add a header; repeatable
    ``body=N`` bytes of content               ``chunked=1`` chunked instead of a Content-Length
    ``head-delay=MS`` pause inside the head   ``drip=MS`` pause between 16 pieces of the body
    ``close=1`` Connection: close             ``delay=MS`` wait before answering
    ``etag=V`` ETag: "V", and Range with If-Range is honoured: 206, or 416 beyond the content;
               ``cut`` and ``reset-body`` then count the bytes of the part
    ``from=N`` content as from its Nth byte, for parts that a script makes itself
    ``executes=0``, ``executes=1`` override whether the request is executed
    ``linger=0`` only ``early``: close at once, which resets what is still being uploaded
The steps that do not answer take ``delay=`` and ``executes=`` (``reset-head`` only ``delay=``,
``reset-before`` neither), ``drip`` also ``interval=MS`` between bytes (50).

Execution is the side effect, and it happens as soon as the body is read, before any delay. A status
of 2xx executes (so do ``cut``, ``reset-body`` and ``stale`` when it answers), ``reset`` and
``close`` execute; nothing else does.

A request with an Idempotency-Key is executed once per path and key. Once it was executed, a repeat
gets the whole answer with ``Idempotent-Replayed: true`` (200 where the step had none, as in
``reset``), 409 while the first is still in its delay, 422 with another body; these three consume no
step. A request that was not executed leaves its key unused.

With ``tls=`` the same faults happen under TLS; FIN then comes without a close_notify, and
``reset-before`` during the handshake.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from .connection import Connection
from .ledger import Arrival, Ledger
from .steps import Scripts

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from typing import Self

__all__ = ["Arrival", "FaultServer"]

BACKLOG = 1024  # connections; a storm must reach the script, not the kernel's queue
STOP_WITHIN = 1.0  # seconds; threads that take longer are left to end by themselves


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

    def script(self, path: str, *steps: int | str) -> None:
        """Set the steps of a path, in place of those it had. The ledger keeps what it has.

        Raises:
            ValueError: A step, a modifier or the path is not one; the message says which are.
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
            # Everywhere a connection wakes a blocked accept(); closing its socket does not.
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
