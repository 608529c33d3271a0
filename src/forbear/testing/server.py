"""FaultServer: HTTP/1.1 on loopback that fails by script, with a ledger of arrivals.

The script language is explained in ``help("forbear.testing")``.
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

    from .steps import Step

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
