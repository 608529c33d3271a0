"""Wire: reads HTTP/1.1 requests, heads and bodies, from a raw socket.

Lenient where a client library may differ, strict about framing (RFC 9112 §6): a body
whose end is in doubt would make the ledger's digest worthless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BufferedReader
from typing import NamedTuple

MAX_HEAD_BYTES = 65_536  # twice what the strictest client library will send
MAX_LINE_BYTES = 4_096  # a chunk's size with its extensions, or one trailer
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/1\.([01])")
_FIELD_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK_SIZE = re.compile(r"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?")


class Malformed(Exception):
    """The peer does not speak HTTP/1.1; raised with a status and a message for it."""


def read_line(peer: BufferedReader, most: int = MAX_LINE_BYTES) -> str:
    """Return a line without its end; raise Malformed or EOFError if that is missing."""
    line = peer.readline(max(most, 0) + 2)
    if line.endswith(b"\r\n"):
        return line[:-2].decode("latin-1")
    if len(line) > most:
        raise Malformed(431, f"more than {most} bytes before a line's end")
    if line.endswith(b"\n"):
        raise Malformed(400, "a line that ends without CR")
    raise EOFError("the peer closed its side")


class RequestHead(NamedTuple):
    """A request without its body."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    keeps_alive: bool
    length: int | None  # bytes of the body; None if it comes in chunks
    expects_continue: bool

    def field(self, name: str) -> str | None:
        """Return the first value of a header, by its name in lower case."""
        return next((value for each, value in self.headers if each.lower() == name), None)


def read_head(peer: BufferedReader) -> RequestHead:
    """Read one head; raise Malformed if it is none, EOFError if the peer closes before its end."""
    first = read_line(peer, MAX_HEAD_BYTES) or read_line(peer, MAX_HEAD_BYTES)
    request_line = _REQUEST_LINE.fullmatch(first)
    if request_line is None:
        raise Malformed(400, "not an HTTP/1.1 request line")
    lines: list[str] = []
    left = MAX_HEAD_BYTES - len(first)
    while line := read_line(peer, left):
        lines.append(line)
        left -= len(line) + 2
    method, target, minor = request_line.groups()
    headers: list[tuple[str, str]] = []
    for line in lines:
        field_line = _FIELD_LINE.fullmatch(line)
        if field_line is None:
            raise Malformed(400, "a header line without a name")
        headers.append((field_line[1], field_line[2]))
    if not target.startswith("/"):  # absolute-form, as to a proxy (RFC 9112 §3.2.2)
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    keeps_alive = minor == "1" and "close" not in _listed(headers, "connection")
    expects_continue = minor == "1" and "100-continue" in _listed(headers, "expect")
    length = _body_length(headers)
    return RequestHead(method, path, query, headers, keeps_alive, length, expects_continue)


def _listed(headers: list[tuple[str, str]], name: str) -> list[str]:
    values = [value for field_name, value in headers if field_name.lower() == name]
    return [member.strip().lower() for value in values for member in value.split(",")]


def _body_length(headers: list[tuple[str, str]]) -> int | None:
    lengths = set(_listed(headers, "content-length"))
    codings = _listed(headers, "transfer-encoding")
    if codings:
        if lengths:
            raise Malformed(400, "both Content-Length and Transfer-Encoding")
        if codings != ["chunked"]:
            raise Malformed(501, "a transfer coding other than chunked")
        return None
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise Malformed(400, "a Content-Length that is not one number")
    return int(length)


def body_pieces(peer: BufferedReader, length: int | None) -> Iterator[bytes]:
    """Yield the body as it comes in, to its end; raise Malformed or EOFError if that is missing."""
    if length is not None:
        yield from _exactly(peer, length)
        return
    while True:
        size_line = _CHUNK_SIZE.fullmatch(read_line(peer))
        if size_line is None:
            raise Malformed(400, "a chunk without a size")
        size = int(size_line[1], 16)
        if size == 0:
            break
        yield from _exactly(peer, size)
        if read_line(peer):
            raise Malformed(400, "a chunk longer than its size")
    while read_line(peer):
        pass  # trailers


def _exactly(peer: BufferedReader, size: int) -> Iterator[bytes]:
    while size:
        piece = peer.read1(min(size, 65_536))
        if not piece:
            raise EOFError("the peer closed its side")
        size -= len(piece)
        yield piece
