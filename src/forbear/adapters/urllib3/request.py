"""Requests of requests and urllib3: what a decision sees of them, and which bodies can be replayed.

requests passes its body to urllib3 as it is, so one set of rules serves both. Bytes and text can be
replayed, a buffer while it is unchanged. A file is set back to where it stood, and what iterates
anew is iterated again. Anything else is read once; after that only what ``body_buffer`` kept can be
replayed.

Private attributes that are read, checked by tests/adapters/test_private_attributes.py:
``_container`` of HTTPHeaderDict, without which all header lines are inspected.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import ref
from zlib import crc32

from urllib3.util import Timeout, parse_url

from ...core.headers.hints import READ_TEXT
from ...core.request import Request, known_origin
from ...engine.outgoing import ConsumedBody, Readings, is_file, is_reiterable, is_seekable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from urllib3.util.timeout import _TYPE_DEFAULT

    from .resume import PartialBody

PLAIN = frozenset({type(None), bytes, str})  # can be replayed as they are
BLOCK = 16_384  # bytes; urllib3 reads a body in blocks of as many
# The caller follows a redirect or a challenge by another call with the same body, whose guard knows
# what can still be read. Weak: the response holds the guard, and the context must not.
LAST_REDIRECTED: ContextVar[ref[Body] | None] = ContextVar("forbear_last_redirected", default=None)


def guard_of(body: object, start: object, buffer_limit: int) -> Body:
    """Return a guard for a body that is not plain, the one of the hop before if there was one.

    Args:
        body: The caller's.
        start: Where a file stood when the request was made, if that is an int. requests notes it
            of every body that has tell(), also if it cannot be set back there.
        buffer_limit: Bytes of a one-shot body to keep.
    """
    before = LAST_REDIRECTED.get()
    known = None if before is None else before()
    start = start if isinstance(start, int) and is_seekable(body) else None
    if known is None or known.source is not body or known.start != start:
        return Body(body, start, buffer_limit)
    LAST_REDIRECTED.set(None)
    return known


def keep_for_redirect(response: Any, guard: Body) -> None:
    """Let the call that follows a redirect or a challenge find the guard.

    It can do so while its caller has the response.
    """
    response.forbear_body = guard
    LAST_REDIRECTED.set(ref(guard))


class Body(Readings):
    """One call's body that is not plain. A library iterates it in place of the caller's own.

    Attributes:
        is_sent: An attempt, or an earlier hop of a redirect, has read it.

    Args:
        body: The caller's.
        start: Where a file stood when the request was made; None: where it stands now.
        buffer_limit: Bytes of a one-shot body to keep.
    """

    def __init__(self, body: Any, start: int | None, buffer_limit: int) -> None:
        self.source = body
        self.is_sent = False
        file = is_file(body)
        self.start = (position_of(body) if start is None else start) if file else None
        self._is_buffer = not file and is_buffer(body)
        super().__init__(
            replayable=self.start is not None if file else self._is_buffer or is_reiterable(body),
            doubted=not isinstance(body, (list, tuple)),
            buffer_limit=buffer_limit,
        )
        if getattr(body, "gi_frame", body) is None:
            self._readings = 1  # a generator that an earlier hop of a redirect has used up

    @property
    def outgoing(self) -> object:
        """The body that the library gets: a buffer as it is, so that its length is declared."""
        return self.source if self._is_buffer else self

    def begin_attempt(self) -> None:
        """Prepare for an attempt before its head goes out, so that none is sent without its body.

        Raises:
            ConsumedBody: The body cannot be replayed.
        """
        if not self.ready:
            raise ConsumedBody("its body was used up before")
        if self._is_buffer:
            self._readings += 1
            checksum = crc32(self.source)
            self._check(not self.is_sent or checksum == self._sum)
            self._sum = checksum
        elif self.start is not None and (self.is_sent or position_of(self.source) != self.start):
            self._put_back(self.start)
        self.is_sent = True

    def _put_back(self, start: int) -> None:
        why = "it still stands elsewhere"
        try:
            self.source.seek(start)
            if self.source.tell() == start:
                return
        except (OSError, ValueError) as error:  # closed, or it lied about being seekable
            why = type(error).__name__
        self._replayable, self._readings = False, 1  # so that no further attempt tries it again
        raise ConsumedBody(f"its file cannot be put back ({why})")

    def __iter__(self) -> Iterator[bytes | str]:
        yield from self.begin()
        try:
            chunks = chunks_of(self.source) if self.rest is None else self.rest
            if self.buffer is not None:
                self.rest = chunks
            for chunk in chunks:
                # Inspected before it goes out: a body that differs from the one before is stopped.
                self.note(chunk.encode() if isinstance(chunk, str) else chunk)
                yield chunk
        except (ConsumedBody, GeneratorExit):  # GeneratorExit: the library stops reading
            raise
        except BaseException as error:
            self.broke(error)
            raise
        self.finish()


def is_buffer(body: Any) -> bool:
    """Is it sent as the bytes of its memory, as an array is? The library checks that first too."""
    try:
        memoryview(body)
    except TypeError:
        return False
    return True


def chunks_of(source: Any) -> Iterator[bytes | str]:
    """Begin to read a body."""
    return blocks_of(source) if hasattr(source, "read") else iter(source)


def blocks_of(file: Any) -> Iterator[bytes | str]:
    while block := file.read(BLOCK):
        yield block


def position_of(body: Any) -> int | None:
    """The position of a file, None if it cannot be set back there."""
    if not is_seekable(body):
        return None
    try:
        start = body.tell()
    except Exception:  # closed: reading it raises the error
        return None
    return start if isinstance(start, int) else None


class Urllib3Request(Request):
    """A request of requests or urllib3: what a decision reads of it, and what is sent for it.

    Attributes:
        original: The request as the caller made it.
        streams: The caller reads the body of the response.
        arguments: Of ``RetryAdapter.send``: timeout, verify, cert and proxies.
        pristine: What is sent: the original, or a copy with a header, a body or an origin of ours.
        request: The same with the headers of one attempt alone and what the user's hook changed.
        announced: Names of those headers.
        partial: A large body that broke inside the loop, and whose rest is requested.
        bodies: How many were begun inside the loop.
    """

    __slots__ = ("announced", "arguments", "bodies", "partial", "pristine", "request", "streams")

    def __init__(
        self,
        method: str,
        origin: str,
        headers: Mapping[str, str] | Mapping[str, str | bytes],
        key_names: frozenset[str] = frozenset(),
        target: str | None = "",
        original: Any = None,
        *,
        streams: bool = True,
        arguments: Sequence[Any] = (),
    ) -> None:
        super().__init__(method, origin, headers, key_names, target, original)
        self.pristine = self.request = original
        self.streams = streams
        self.arguments = arguments
        self.announced: Sequence[str] = ()
        self.partial: PartialBody | None = None
        self.bodies = 0

    def header_lines(self) -> list[tuple[str, str]]:
        return [(as_text(name), as_text(value)) for name, value in self.headers.items()]

    def path_and_query(self) -> str:
        url = self.target or ""
        return url.partition("#")[0] if url.startswith("/") else parse_url(url).request_uri


def as_text(part: object) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else str(part)


def origin_at(url: str | None, pool: Any = None) -> str:
    """``scheme://host:port``, never userinfo, path or query; empty if unknown.

    A forward proxy's pool gets absolute URLs, and is not the origin.
    """
    if url and not url.startswith("/"):
        try:
            parts = urlsplit(url)
            if parts.scheme and parts.hostname:
                return known_origin(parts.scheme, parts.hostname, parts.port)
        except ValueError:  # the library raises its own error for it
            pass
    return "" if pool is None else known_origin(pool.scheme, pool.host, pool.port)


def field_lines(headers: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Field lines of a response, those of one name apart; empty if no decision reads any."""
    names = getattr(headers, "_container", None)
    if names is not None and READ_TEXT.isdisjoint(names):
        return ()
    return list(headers.items())


def clamped(configured: Timeout, each: float | None, left: float | None) -> Timeout:
    """Return the timeouts of an attempt.

    Args:
        configured: The caller's own.
        each: The policy's ``attempt_timeout``, for connecting and for each read.
        left: Seconds until the deadline, for both together.
    """
    own = configured.clone()
    own.start_connect()  # before that it has no read timeout
    connect, read = least(own.connect_timeout, each), least(own.read_timeout, each)
    return Timeout(total=least(own.total, left), connect=connect, read=read)


def least(configured: float | _TYPE_DEFAULT | None, other: float | None) -> float | None:
    """The smaller of two timeouts; None means none, urllib3's default is the socket module's."""
    one = Timeout.resolve_default_timeout(configured)
    return min((each for each in (one, other) if each is not None), default=None)


def has_header(headers: Iterable[str | bytes], name: str) -> bool:
    wanted = name.lower()
    return any(as_text(found).lower() == wanted for found in headers)
