"""Request: what is sent to the httpx family, and what a decision sees of it.

A fast path that succeeds sends the caller's own request. Everything else is sent as a copy, whose
``extensions["timeout"]`` knows the deadline and whose body is guarded, because httpcore resends a
request by itself after an HTTP/2 GOAWAY (RFC 9113 section 6.8) and would send a consumed body
empty.

Private attributes that are read, each checked by tests/adapters/test_private_attributes.py:
``_stream`` of (Async)IteratorByteStream, ``fields`` of MultipartStream, ``file`` of FileField,
``_uri_reference`` of URL. A body that cannot be inspected is taken for a one-shot one.
"""

from __future__ import annotations

from inspect import isasyncgen, isgenerator
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import ref

from ...core.outcome import FailureKind
from ...core.record import SETTING
from ...core.request import Request, known_origin, origin_of
from ...engine import outgoing as copying
from ...engine.errors import DeadlineCut
from ...engine.outgoing import EARLY, ConsumedBody, Readings, is_file, is_reiterable, is_seekable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    import httpx

    from ...core.call import Call
    from ...engine.clock import Clock

HOP, BODY = "forbear.call", "forbear.body"  # extensions keys
NAME = itemgetter(1)  # of a header line, in lower case
LEAST = 0.001  # seconds; 0 would make a socket non-blocking instead of timing it out
NO_PHASES: frozenset[str] = frozenset()
PHASE_OF = {
    FailureKind.POOL: "pool",
    FailureKind.CONNECT_TIMEOUT: "connect",
    FailureKind.READ_TIMEOUT: "read",
    FailureKind.WRITE_TIMEOUT: "write",
}


class HttpxRequest(Request):
    """The view that a decision has of an httpx request."""

    __slots__ = ()

    def header_lines(self) -> Iterable[tuple[bytes, bytes]]:
        return self.headers.raw  # type: ignore[no-any-return]

    def header(self, name: str) -> str | None:
        return self.headers.get(name)  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        return self.target.raw_path.decode("ascii")  # type: ignore[no-any-return]


def triples(headers: httpx.Headers) -> list[tuple[bytes, bytes, bytes]]:
    """Header lines: the name as written, in lower case, and the value."""
    try:
        return headers._list
    except AttributeError:
        return [(name, name.lower(), value) for name, value in headers.raw]


def with_lines(headers: httpx.Headers, lines: Iterable[tuple[str, str]]) -> httpx.Headers:
    """Copy headers, with these lines in place of those of the same names."""
    made = type(headers)(headers)
    own = getattr(made, "_list", None)
    written = () if own is None else set(map(NAME, own))
    for name, value in lines:
        key = name.lower().encode("ascii")
        if own is None or key in written:
            made[name] = value
        else:  # in a fifth of the time
            own.append((name.encode("ascii"), key, value.encode("ascii")))
    return made


def origin_of_url(url: httpx.URL) -> str:
    """``scheme://host:port``, never userinfo, path or query."""
    try:
        parts = url._uri_reference
    except AttributeError:
        return origin_of(url.scheme, url.raw_host.decode("ascii"), url.port)
    return known_origin(parts.scheme, parts.host, parts.port)


class Hop(copying.Hop):
    """The part of a redirected call that hops pass on, in the request's extensions.

    The client follows a redirect with a new request, and copies the extensions of the old one.
    """

    __slots__ = ("made_for", "target")

    def __init__(self, call: Call, original: httpx.Request, target: httpx.URL) -> None:
        super().__init__(call)
        self.made_for = ref(original)
        self.target = target

    def continues_in(self, request: httpx.Request) -> bool:
        """Is this request the next hop? The caller may have made another with our mark in it."""
        if self.made_for() is request:
            return False
        # A fragment is never sent.
        return bool(request.url.copy_with(fragment=None) == self.target.copy_with(fragment=None))


def mark_redirect(call: Call, response: httpx.Response) -> None:
    """Let the next hop of a redirect know what this one has used."""
    original = call.request.original
    target = redirect_target(response, original)
    if target is not None:
        original.extensions[HOP] = Hop(call, original, target)
        original.extensions.setdefault(SETTING, None)  # the fast path checks for this one only


def redirect_target(response: httpx.Response, request: httpx.Request) -> httpx.URL | None:
    """The URL that the client will request next, found as it does; None if this is no redirect."""
    location = response.headers.get("location")
    if location is None:
        return None
    try:
        target = request.url.join(location)
        if target.scheme and not target.host:
            target = target.copy_with(host=request.url.host)
    except Exception:  # the client raises its own error for it
        return None
    return target


class Timeouts(dict[str, float | None]):
    """An attempt's own copy of ``extensions["timeout"]``, which knows the time.

    ``get(phase)`` is the least of the client's own timeout, ``attempt_timeout`` and the time left.
    With a deadline it is the request's ``trace`` too, which httpcore calls before each step. No
    timeout bounds name resolution, so without that check a request could be written too late.
    """

    # No constructor of our own, since every call under a deadline makes one of these.
    __slots__ = ("_replaced", "_shortened", "clock", "deadline_at", "trace")

    clock: Clock
    deadline_at: float
    trace: Any  # the client's own
    _shortened: frozenset[str]  # phases that the deadline has shortened
    _replaced: Mapping[str, float | None] | None  # the client's own, if that is longer

    def begin(self, clock: Clock, deadline_at: float, trace: object) -> None:
        self.clock = clock
        self.deadline_at = deadline_at
        self.trace = trace
        self._shortened = NO_PHASES
        self._replaced = None

    def shorten(self, attempt_timeout: float) -> None:
        """Let no phase last longer than that."""
        self._replaced = dict.copy(self)
        for phase in ("pool", "connect", "read", "write"):
            own = dict.get(self, phase)
            self[phase] = attempt_timeout if own is None else min(own, attempt_timeout)

    def get(self, phase: str, default: Any = None) -> float | None:
        configured: float | None = dict.get(self, phase, default)
        if self.deadline_at == inf:
            return configured
        left = max(self.deadline_at - self.clock.monotonic(), LEAST)
        if configured is not None and configured <= left:
            self._shortened -= {phase}
            return configured
        self._shortened |= {phase}
        return left

    def __getitem__(self, phase: str) -> float | None:
        return self.get(phase) if phase in self else super().__getitem__(phase)

    def copy(self) -> dict[str, float | None]:
        """Plain numbers, as they are now, for a library that copies the timeouts."""
        return {phase: self.get(phase) for phase in self}

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did this timeout fire because the deadline had shortened it?"""
        if now < self.deadline_at - EARLY:
            return False
        if kind is FailureKind.TIMEOUT:
            return bool(self._shortened)
        return PHASE_OF.get(kind) in self._shortened

    def __call__(self, event: str, info: object) -> object:
        self.check_deadline(event)
        return None if self.trace is None else self.trace(event, info)

    def check_deadline(self, event: str) -> None:
        """Keep the request from being written after the deadline."""
        if event.endswith("send_request_headers.started") and self.left() <= 0:
            raise DeadlineCut

    def left(self) -> float:
        return self.deadline_at - self.clock.monotonic()

    def is_over(self) -> bool:
        return self.left() <= EARLY

    def reopen(self, deadline_at: float = inf) -> None:
        """Give a body that the caller streams the client's own timeouts, bounded by
        ``forbear.deadline`` only.
        """
        self.deadline_at = deadline_at
        if self._replaced is not None:
            self.update(self._replaced)


class AsyncTimeouts(Timeouts):
    """The same for an asynchronous attempt."""

    __slots__ = ()

    async def __call__(self, event: str, info: object) -> None:
        self.check_deadline(event)
        if self.trace is not None:
            await self.trace(event, info)


class Guard(Readings):
    """A request's body behind a guard, which the hand-over leaves in the request's extensions.

    The client may resend the body: after a redirect, or with credentials for a challenge.

    Attributes:
        was_sent: An earlier call has sent it.
    """

    was_sent = False

    def __init__(self, stream: Any, buffer_limit: int) -> None:
        self._stream = stream
        own = is_of_library(stream)
        source = getattr(stream, "_stream", None) if own else None
        self._file = source if is_file(source) else None
        self._start: int | None = None
        # The client itself refuses to read a generator twice, with an error of its own.
        self.generated = isgenerator(source) or isasyncgen(source)
        if self._file is not None:
            replayable = is_seekable(self._file)
        elif own and hasattr(stream, "fields"):
            replayable = all(is_replayable_field(field) for field in stream.fields)
        else:
            replayable = source is not None and is_reiterable(source)
        super().__init__(
            replayable=replayable,
            doubted=self._file is None
            and source is not None
            and not isinstance(source, (list, tuple)),
            buffer_limit=buffer_limit,
        )

    def covers(self, stream: object) -> bool:
        """Is this the guard of that stream?"""
        return self._stream is stream


class BodyGuard(Guard):
    """The guard of a synchronous request's body."""

    def __iter__(self) -> Iterator[bytes]:
        yield from self.begin()
        try:
            for chunk in self._chunks():
                self.note(chunk)
                yield chunk
        except (ConsumedBody, GeneratorExit):  # GeneratorExit: the transport stops reading
            raise
        except BaseException as error:
            self.broke(error)
            raise
        self.finish()

    def _chunks(self) -> Iterator[bytes]:
        if self.buffer is not None:
            if self.rest is None:
                self.rest = iter(self._stream)
            return self.rest  # type: ignore[no-any-return]
        if self._file is not None and self._replayable:
            if self._start is not None:
                self._file.seek(self._start)
            else:
                try:
                    self._start = self._file.tell()
                except OSError:
                    self._replayable = False
        return iter(self._stream)

    def close(self) -> None:
        if hasattr(self._stream, "close"):
            self._stream.close()


class AsyncBodyGuard(Guard):
    """The guard of an asynchronous request's body."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.begin():
            yield chunk
        try:
            async for chunk in await self._chunks():
                self.note(chunk)
                yield chunk
        except (ConsumedBody, GeneratorExit):  # GeneratorExit: the transport stops reading
            raise
        except BaseException as error:
            self.broke(error)
            raise
        self.finish()

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self.buffer is not None:
            if self.rest is None:
                self.rest = aiter(self._stream)
            return self.rest  # type: ignore[no-any-return]
        if self._file is not None and self._replayable:
            if self._start is not None:
                await awaited(self._file.seek(self._start))
            else:
                try:
                    self._start = await awaited(self._file.tell())
                except OSError:
                    self._replayable = False
        return aiter(self._stream)

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


async def awaited(value: Any) -> Any:
    """The result of a method that may be a coroutine function, as of anyio's files."""
    return await value if hasattr(value, "__await__") else value


def is_of_library(stream: object) -> bool:
    """Is it httpx's own class? A user's may have the same attributes, and transform their bytes."""
    return type(stream).__module__.partition(".")[0] in ("httpx", "httpx2")


def wants_guard(stream: object) -> bool:
    """Is it more than plain bytes? Multipart made of bytes only counts as plain."""
    fields = getattr(stream, "fields", None) if is_of_library(stream) else None
    return fields is None or any(
        not isinstance(getattr(f, "file", b""), (str, bytes)) for f in fields
    )


def is_replayable_field(field: object) -> bool:
    """Httpx seeks a multipart file to 0 by itself before each reading."""
    file = getattr(field, "file", b"")
    return isinstance(file, (str, bytes)) or (hasattr(file, "seek") and is_seekable(file))
