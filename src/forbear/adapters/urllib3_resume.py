"""Splicing: a streamed body that goes on on another connection when its own breaks. Floor: acts.

It happens below http.client, whose response reads from a file, ``fp``. That file becomes a
``Splice``: bytes pass through it as they come, and when they break off it asks for the rest and
goes on with that. Everything above (how much is left, chunked framing, the decoder, what urllib3
and requests keep) sees one body without a seam; where it cannot go on, the end or the error that it
would have seen without us.

Private attributes relied on, each checked by tests/adapters/test_private_attributes.py:

| of | attributes | without them |
| --- | --- | --- |
| urllib3's HTTPResponse | ``_fp``, ``_original_response``, ``_connection``, ``_pool`` | nothing is resumed |
| | ``_error_catcher`` | the error of a body carries no record |
| | ``_sock_shutdown`` (2.3 and later) | nothing is lost: there is no ``shutdown()`` |
| urllib3's pools | ``_put_conn`` | nothing is resumed |
| http.client's HTTPResponse | ``fp``, ``length`` | nothing is resumed |
"""

from __future__ import annotations

import http.client
import io
import ssl
from contextlib import suppress
from typing import Any
from weakref import ref

from urllib3 import exceptions

from .urllib3_framing import Framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["END", "Splice", "is_known", "is_promising", "splice"]

MOST_PIECE = 65_536  # bytes; room for so many is made for one receive, and what it does not bring is given back
# More than that at once is read in blocks, which costs no more than without us. What a block has in
# part is lost with an error, and asked for again; that happens to the first answer only, since all
# others are read in pieces.
MOST_BLOCK = 1_048_576
END = object()  # in place of an answer with the rest: nothing was missing but the end


def is_promising(response: Any) -> bool:
    """May this urllib3 response be one that can be resumed? Few looks, since every streamed answer
    gets them.

    Whether it can is looked into when it breaks (core/resume.py).
    """
    if response.status not in (200, 206):
        return False
    headers = response.headers
    return "etag" in headers or "last-modified" in headers


def is_known(response: Any) -> bool:
    """Is this urllib3 response made as those are that we have seen, and its body still to come?"""
    below = getattr(response, "_original_response", None)
    return (
        isinstance(below, http.client.HTTPResponse)
        and getattr(response, "_fp", None) is below
        and isinstance(getattr(below, "fp", None), io.BufferedReader)
        and hasattr(below, "length")
        and hasattr(response, "_connection")
        and hasattr(getattr(response, "_pool", None), "_put_conn")
    )


def splice(response: Any, exchange: Any) -> None:
    """Let the body of a urllib3 response go on when it breaks, if the response is one that we know.

    Args:
        response: Nobody has read from it.
        exchange: The call's exchange, which is asked for the rest; or its class and arguments, for
            a call that went through the door.
    """
    if is_known(response):
        below: Any = response._original_response
        below.fp = made = Splice(response, below.fp, exchange)
        if hasattr(response, "_error_catcher"):
            response._error_catcher = made.catching
        if getattr(response, "_sock_shutdown", None) is not None:
            response._sock_shutdown = made.shut_down
        response.drain_conn = made.drain


class Splice:
    """What http.client reads a body from. For one thread at a time, as the response is.

    Attributes:
        received: Raw bytes of the body that were given.
        missing: Those still to come, None as long as nobody has told.
    """

    __slots__ = (
        "_connection", "_exchange", "_framing", "_is_first", "_is_open_ended", "_is_over", "_live", "_outer",
        "_pending", "_shut_down", "_started_at", "missing", "received",
    )  # fmt: skip

    def __init__(self, response: Any, live: io.BufferedReader, exchange: Any) -> None:
        self._outer = ref(response)  # which has this: nothing shall wait for the garbage collector
        self._exchange = exchange
        # The file of the first answer; from the first resumption on http.client's response that
        # brings the rest.
        self._live: Any = live
        self._is_first = True
        self._connection: Any = None  # on which the rest comes
        self._framing = Framing() if response.chunked else None
        self._pending: io.BytesIO | None = None  # of framing that is made here
        self._is_over = False  # closed, or given up on: nothing is asked for any more
        self._shut_down: Any = getattr(response, "_sock_shutdown", None)
        self._started_at = 0  # what was received before the live part
        self.received = 0
        self.missing: int | None = response.length_remaining
        # Whoever reads this takes any end for that of the body. A rest tells the length, and then
        # it may be none.
        self._is_open_ended = self.missing is None and self._framing is None

    # For http.client.

    def read(self, size: int | None = -1) -> bytes:
        wanted = -1 if size is None else size
        piece = self._some(wanted, MOST_BLOCK)
        got = len(piece)
        if not got or got == wanted:
            return piece
        pieces = [piece]
        while got != wanted:
            piece = self._some(wanted - got if wanted > 0 else -1, MOST_BLOCK)
            if not piece:
                break
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)

    def read1(self, size: int = -1) -> bytes:
        return self._some(size)

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def readline(self, limit: int = -1) -> bytes:
        line = b""
        if self._is_first:
            line, error = self._first_line(limit)
            if line.endswith(b"\n") or (limit >= 0 and len(line) >= limit):
                return self._noted(line)
            begun = b""
            if self._framing is not None:
                begun, line = line, b""  # it is made anew: half a chunk's size is another size
            self._note(line)
            if not self._is_broken() or not self._goes_on(error):
                if error is not None:
                    raise error
                return line or self._noted(begun)
        while not line.endswith(b"\n") and len(line) != limit:
            byte = self._some(1)
            if not byte:
                break
            line += byte
        return line

    def peek(self, size: int = 0) -> bytes:
        found: bytes = self._live.peek(size) if self._is_first else b""
        return found

    def flush(self) -> None:
        """Nothing is written."""

    def fileno(self) -> int:
        found: int = self._live.fileno()
        return found

    @property
    def raw(self) -> Any:
        """The SocketIO that is read from now, which draining.py and reading.py look for."""
        file = self._live if self._is_first else getattr(self._live, "fp", None)
        return getattr(file, "raw", None)

    @property
    def closed(self) -> bool:
        return self._is_over

    def close(self) -> None:
        self._is_over = True
        if self._connection is not None and self._live.length != 0:
            self._connection.close()  # something is still to come on it: the end of a chunked body, at least
        self._live.close()

    # For urllib3, in place of what it has itself.

    def catching(self) -> Any:
        """In place of ``_error_catcher``: an error that ends a body after a resumption carries the
        story.
        """
        response = self._outer()
        return Catching(type(response)._error_catcher(response), self)  # type: ignore[union-attr]

    def shut_down(self, how: int) -> None:
        """The caller ends the reading, maybe from another thread: that is no break."""
        self._is_over = True
        self._shut_down(how)

    def drain(self) -> None:
        """In place of ``drain_conn``: these bytes are wanted by nobody."""
        self._is_over = True
        response: Any = self._outer()
        type(response).drain_conn(response)

    def tell(self, error: Exception) -> None:
        """Attach the story to an error, if there is one."""
        if type(self._exchange) is not tuple:
            self._exchange.tell_of_rest(error)

    # The parts.

    def _some(self, size: int, most: int = MOST_PIECE) -> bytes:
        """Up to so many bytes: what one receive brings, or a block of the first answer."""
        size = most if size < 0 or size > most else size
        while True:
            try:
                if self._is_first:
                    found: bytes = (
                        self._live.read1(size) if size <= MOST_PIECE else self._live.read(size)
                    )
                else:
                    found = self._rest(min(size, MOST_PIECE))
            except (OSError, http.client.HTTPException) as error:
                if not self._goes_on(error):
                    raise
                continue
            if found and self._framing is None:  # nearly always; the rest of this would do the same
                self.received += len(found)
                if self.missing is not None:
                    self.missing -= len(found)
                return found
            if found or not size or not self._is_broken():
                return self._noted(found)
            missing, was_over = self.missing, self._is_over
            if not self._goes_on(None):
                if self._is_open_ended and not was_over:
                    raise http.client.IncompleteRead(b"", missing)
                return b""

    def _first_line(self, limit: int) -> tuple[bytes, OSError | None]:
        try:
            return self._live.readline(limit), None
        except OSError as error:
            return b"", error

    def _rest(self, size: int) -> bytes:
        """Of the answer that brings the rest, framed as the first one was."""
        framing = self._framing
        if self._pending is None:
            if framing is None or framing.left:
                return self._part(size if framing is None else min(size, framing.left))
            chunk = self._part(MOST_PIECE) if framing.is_at_size else b""
            if framing.is_at_size and not chunk and self._is_broken():
                return b""
            self._pending = io.BytesIO(framing.made(chunk))
        found = self._pending.read(size)
        if self._pending.tell() == len(self._pending.getbuffer()):
            self._pending = None
        return found

    def _part(self, size: int) -> bytes:
        missing = self.missing or 0
        found: bytes = self._live.read1(min(size, missing)) if missing else b""
        return found

    def _note(self, found: bytes) -> None:
        content = len(found) if self._framing is None else self._framing.content_of(found)
        self.received += content
        if self.missing is not None:
            self.missing -= content

    def _noted(self, found: bytes) -> bytes:
        self._note(found)
        return found

    def _is_broken(self) -> bool:
        """Does this end come too early? Of a body whose end is that of its connection nobody can
        say.
        """
        if self._framing is not None and self._is_first:
            return not (self._framing.is_over or self._framing.is_broken)
        return bool(self.missing)

    def _goes_on(self, error: Exception | None) -> bool:
        """Ask for the rest; False: the error, or the early end, stands."""
        response, framing = self._outer(), self._framing
        if (
            self._is_over
            or response is None
            or (framing is not None and (framing.is_over or framing.is_broken))
        ):
            return False
        if type(self._exchange) is tuple:
            made, *arguments = self._exchange
            self._exchange = made(*arguments)
            self._exchange.call.sent(None)
        self._let_go(response)
        broken = as_urllib3_says(error, response._pool, self.received, self.missing)
        answer = None
        try:
            answer = self._exchange.ask_for_rest(
                response,
                broken,
                self.received,
                progressed=self.received > self._started_at,
                least=0 if framing is None else framing.left,
            )
        finally:
            if answer is None:  # or whatever has ended the waiting: all that is left is the end
                self._is_over = True
                self._framing = self.missing = None
        if answer is None:
            return False
        self._started_at = self.received
        if answer is END:
            self.missing = 0
        else:
            self.missing = self._exchange.download.missing(self.received)
            self._take_over(response, answer)
        return True

    def _let_go(self, response: Any) -> None:
        """Close the broken connection, and leave its place in the pool to the next."""
        connection = response._connection
        response._connection = None
        with suppress(OSError, ValueError):
            self._live.close()
        self._live, self._is_first, self._connection = io.BytesIO(), False, None
        if connection is not None:
            # Not connection.close(): that closes the response it has given, which is the one that
            # is being read.
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.close()
            with suppress(exceptions.HTTPError):
                response._pool._put_conn(None)

    def _take_over(self, response: Any, answer: Any) -> None:
        self._live, self._connection = answer._fp, answer._connection
        response._pool, response._connection = answer._pool, answer._connection
        self._shut_down = getattr(answer, "_sock_shutdown", None)
        answer._fp = answer._original_response = answer._connection = (
            None  # else it closes them when it is collected
        )


class Catching:
    """What catches the errors of a body, and one look more."""

    __slots__ = ("_catching", "_splice")

    def __init__(self, catching: Any, splice: Splice) -> None:
        self._catching = catching
        self._splice = splice

    def __enter__(self) -> None:
        self._catching.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        try:
            is_caught = self._catching.__exit__(kind, error, trace)
        except Exception as raised:
            self._splice.tell(raised)
            raise
        if isinstance(error, Exception) and not is_caught:
            self._splice.tell(error)
        return is_caught


def as_urllib3_says(
    error: Exception | None, pool: Any, received: int, missing: int | None
) -> Exception:
    """What urllib3 makes of this in the end; None: of a body that ended too early."""
    if isinstance(error, TimeoutError):
        return exceptions.ReadTimeoutError(pool, "", "Read timed out.")
    if isinstance(error, ssl.SSLError):
        return exceptions.SSLError(error)
    if error is None:
        error = exceptions.IncompleteRead(received, missing or 0)
    return exceptions.ProtocolError("Connection broken", error)
