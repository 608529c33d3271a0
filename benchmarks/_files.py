"""Files: a server of one file, whole or by ranges, that breaks every answer at chosen places.

Runs in a process of its own, so that its work is not counted as a client's; speaks just enough
HTTP/1.1. A body that reaches one of the places ends there, with a FIN or, every other time, with an
RST.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

RESET = struct.pack("ii", 1, 0)
BEFORE_RESET = 0.02  # seconds; a reset discards what is not delivered


@contextmanager
def serving(path: Path, cuts: list[int]) -> Iterator[str]:
    """The URL of a server of that file, in a process that ends with the block."""
    command = [sys.executable, __file__, str(path), json.dumps(cuts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def counted(url: str) -> dict[str, int]:
    """Requests and bytes of bodies since it was asked last."""
    with urllib.request.urlopen(url + "/count") as answer:
        found: dict[str, int] = json.load(answer)
    return found


class Files:
    def __init__(self, path: str, cuts: list[int]) -> None:
        self._path = path
        self._size = os.path.getsize(path)
        self._cuts = sorted(cuts)
        self._left: list[
            int
        ] = []  # of these, those at which the file that is being downloaded has not broken yet
        self._count = {"requests": 0, "bytes": 0}

    def serve(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        print(listener.getsockname()[1], flush=True)
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with open(self._path, "rb") as file:
                while head := read_head(peer):
                    if not self._answer(peer, file, head):
                        return

    def _answer(self, peer: socket.socket, file: Any, head: str) -> bool:
        if head.startswith("GET /count"):
            text = json.dumps(self._count).encode()
            self._count = {"requests": 0, "bytes": 0}
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
            return True
        self._count["requests"] += 1
        asked = re.search(r"\r\nrange: bytes=(\d+)-\r\n", head, re.IGNORECASE)
        first = int(asked[1]) if asked else 0
        if not asked:
            self._left = self._cuts.copy()
        lines = [
            "HTTP/1.1 206 Partial Content" if asked else "HTTP/1.1 200 OK",
            'ETag: "v1"',
            "Accept-Ranges: bytes",
        ]
        if asked:
            lines.append(f"Content-Range: bytes {first}-{self._size - 1}/{self._size}")
        lines.append(f"Content-Length: {self._size - first}")
        peer.sendall("\r\n".join([*lines, "", ""]).encode())
        end = next((cut for cut in self._left if cut > first), self._size)
        place = first
        while place < end:
            sent = os.sendfile(peer.fileno(), file.fileno(), place, end - place)
            self._count["bytes"] += sent
            place += sent
        if end == self._size:
            return True
        self._left.remove(end)
        if self._cuts.index(end) % 2:
            time.sleep(BEFORE_RESET)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return False


def read_head(peer: socket.socket) -> str:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        block = peer.recv(65_536)
        if not block:
            return ""
        head += block
    return head.decode("latin-1")


if __name__ == "__main__":
    Files(sys.argv[1], json.loads(sys.argv[2])).serve()
