"""Reading HTTP/1.1 requests from a raw socket: heads, and bodies with a length or in chunks. Floor:
acts.

Only reads. Lenient where a client library may differ, strict about framing (RFC 9112 §6): a body
whose end is in doubt would make the ledger's digest worthless.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Inbox", "Malformed", "PeerLeft", "RequestHead", "body_pieces", "read_head"]

MAX_HEAD_BYTES = 65_536  # twice what the strictest client library will send
MAX_LINE_BYTES = 4_096  # a chunk's size with its extensions, or one trailer
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/1\.([01])")
_FIELD_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?")


class Malformed(Exception):
    """The peer does not speak HTTP/1.1; ``status`` is what it is told."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class PeerLeft(Exception):
    """The peer closed its side in the middle of a request."""


class Inbox:
    """Bytes from one peer, buffered."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._held = bytearray()

    def is_ready(self) -> bool:
        """Block until there is a byte (True) or the peer has closed (False)."""
        return bool(self._held) or self._fill()

    def until(self, end: bytes, *, most: int) -> bytes:
        """Return everything up to ``end``, which is dropped."""
        while (at := self._held.find(end)) < 0 and len(self._held) <= most:
            if not self._fill():
                raise PeerLeft
        if not 0 <= at <= most:
            raise Malformed(f"more than {most} bytes before a line's end", status=431)
        taken = bytes(self._held[:at])
        del self._held[: at + len(end)]
        return taken

    def some(self, most: int) -> bytes:
        """Return between 1 and ``most`` bytes."""
        if not self.is_ready():
            raise PeerLeft
        taken = bytes(self._held[:most])
        del self._held[:most]
        return taken

    def _fill(self) -> bool:
        piece = self._sock.recv(65_536)
        self._held += piece
        return bool(piece)


class RequestHead(NamedTuple):
    """A request without its body."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    keeps_alive: bool
    length: int | None
    """Bytes of the body; None if it comes in chunks."""
    expects_continue: bool


def read_head(inbox: Inbox) -> RequestHead:
    """Read one head.

    Raises:
        Malformed: Not a request.
        PeerLeft: Closed before its end.
    """
    text = inbox.until(b"\r\n\r\n", most=MAX_HEAD_BYTES).decode("latin-1").removeprefix("\r\n")
    first, *lines = text.split("\r\n")
    request_line = _REQUEST_LINE.fullmatch(first)
    if request_line is None:
        raise Malformed("not an HTTP/1.1 request line")
    method, target, minor = request_line.groups()
    headers: list[tuple[str, str]] = []
    for line in lines:
        field_line = _FIELD_LINE.fullmatch(line)
        if field_line is None:
            raise Malformed("a header line without a name")
        headers.append((field_line[1], field_line[2]))
    if not target.startswith("/"):  # absolute-form, as to a proxy (RFC 9112 §3.2.2)
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    return RequestHead(
        method=method,
        path=path,
        query=query,
        headers=headers,
        keeps_alive=minor == "1" and "close" not in _listed(headers, "connection"),
        length=_body_length(headers),
        expects_continue=minor == "1" and "100-continue" in _listed(headers, "expect"),
    )


def _listed(headers: list[tuple[str, str]], name: str) -> list[str]:
    return [
        member.strip().lower()
        for field_name, value in headers
        if field_name.lower() == name
        for member in value.split(",")
    ]


def _body_length(headers: list[tuple[str, str]]) -> int | None:
    lengths = set(_listed(headers, "content-length"))
    codings = _listed(headers, "transfer-encoding")
    if codings:
        if lengths:
            raise Malformed("both Content-Length and Transfer-Encoding")
        if codings != ["chunked"]:
            raise Malformed("a transfer coding other than chunked", status=501)
        return None
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise Malformed("a Content-Length that is not one number")
    return int(length)


def body_pieces(inbox: Inbox, length: int | None) -> Iterator[bytes]:
    """Yield the body as it comes in; returning means that its end was read.

    Raises:
        Malformed: Not chunked framing.
        PeerLeft: Closed before its end.
    """
    if length is not None:
        yield from _exactly(inbox, length)
        return
    while True:
        size_line = _CHUNK_SIZE.fullmatch(inbox.until(b"\r\n", most=MAX_LINE_BYTES))
        if size_line is None:
            raise Malformed("a chunk without a size")
        size = int(size_line[1], 16)
        if size == 0:
            break
        yield from _exactly(inbox, size)
        if inbox.until(b"\r\n", most=MAX_LINE_BYTES):
            raise Malformed("a chunk longer than its size")
    while inbox.until(b"\r\n", most=MAX_LINE_BYTES):
        pass  # trailers


def _exactly(inbox: Inbox, size: int) -> Iterator[bytes]:
    while size:
        piece = inbox.some(size)
        size -= len(piece)
        yield piece
