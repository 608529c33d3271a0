"""Servers on loopback whose every byte is the test's."""

import contextlib
import socket
import struct
import threading
import time


class Listening:
    """Serves each connection in a daemon thread, from its beginning to ``stop()``.

    Attributes:
        connections: How many were accepted; those still ``open`` are the ones that nobody has
            closed.
    """

    def __init__(self):
        self.connections = self.open = 0
        self.lock = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def serve(self, sock, number):
        """Answer what comes over the connection of this number."""
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def wait_for_open(self, wanted):
        """Wait until so many connections are open, as far as this side has noticed."""
        until = time.monotonic() + 30
        while self.open != wanted and time.monotonic() < until:
            time.sleep(0.005)
        return self.open == wanted

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self.lock:
                    number, self.connections = self.connections, self.connections + 1
                    self.open += 1
                    self.sockets.append(sock)
                threading.Thread(target=self._run, args=(sock, number), daemon=True).start()

    def _run(self, sock, number):
        try:
            with contextlib.suppress(OSError, ValueError), sock:
                self.serve(sock, number)
        finally:
            with self.lock:
                self.open -= 1


def head_from(sock):
    """A request's head, with what came of its body; empty: there is none any more."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = sock.recv(65_536)
        if not piece:
            return b""
        head += piece
    return head


def end_by_reset(sock):
    """Closing the socket sends a reset, and discards what is not delivered."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
