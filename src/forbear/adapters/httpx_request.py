"""Request: what is sent to the httpx family, and what a decision sees of it. Floor: acts.

A fast path that succeeds sends the caller's own request. Everything else is sent as a copy, whose
``extensions["timeout"]`` knows the deadline and whose body is guarded: httpcore sends a request
again by itself after an HTTP/2 GOAWAY (RFC 9113 section 6.8) and would send a consumed body empty.

Private attributes that are read, each checked by tests/adapters/test_private_attributes.py:
``_stream`` of (Async)IteratorByteStream, ``fields`` of MultipartStream, ``file`` of FileField,
``_uri_reference`` of URL. A body that cannot be seen into is taken for a one-shot one.
"""

from __future__ import annotations

from inspect import isasyncgen, isgenerator
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..core.outcome import FailureKind
from ..core.record import SETTING
from ..core.request import Request, known_origin, origin_of
from ..sending import copying
from ..sending.bodies import ConsumedBody, Readings, is_file, is_reiterable, is_seekable
from ..sending.copying import EARLY
from ..sending.errors import CutOff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from ..core.call import Call
    from ..sending.clock import Clock

__all__ = [
    "BODY",
    "HOP",
    "LEAST",
    "AsyncBodyGuard",
    "AsyncTimeouts",
    "BodyGuard",
    "Hop",
    "HttpxRequest",
    "Timeouts",
    "mark_redirect",
    "origin_of_url",
    "wants_guard",
]

HOP, BODY = "forbear.call", "forbear.body"  # extensions keys
LEAST = 0.001  # seconds; 0 would make a socket non-blocking instead of timing it out
PHASE_OF = {
    FailureKind.POOL: "pool",
    FailureKind.CONNECT_TIMEOUT: "connect",
    FailureKind.READ_TIMEOUT: "read",
    FailureKind.WRITE_TIMEOUT: "write",
}


class HttpxRequest(Request):
    """The questions that a decision asks about an httpx request."""

    __slots__ = ()

    def header_lines(self) -> Any:
        return self.headers.raw

    def header(self, name: str) -> str | None:
        return self.headers.get(name)  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        return self.target.raw_path.decode("ascii")  # type: ignore[no-any-return]


def origin_of_url(url: Any) -> str:
    """``scheme://host:port``, never userinfo, path or query."""
    try:
        parts = url._uri_reference
    except AttributeError:
        return origin_of(url.scheme, url.raw_host.decode("ascii"), url.port)
    return known_origin(parts.scheme, parts.host, parts.port)


class Hop(copying.Hop):
    """The part of a redirected call that hops hand on, in the request's extensions.

    The client follows a redirect with a new request, and copies the extensions of the old one.
    """

    __slots__ = ("made_for", "target")

    def __init__(self, call: Call, original: Any, target: Any) -> None:
        super().__init__(call)
        self.made_for = ref(original)
        self.target = target

    def continues_in(self, request: Any) -> bool:
        """Is this request the next hop, not one of its own that only carries our mark?"""
        if self.made_for() is request:
            return False
        # A fragment is never sent.
        return bool(request.url.copy_with(fragment=None) == self.target.copy_with(fragment=None))


def mark_redirect(call: Call, response: Any) -> None:
    """Let the next hop of a redirect know what this one has used."""
    original = call.request.original
    target = redirect_target(response, original)
    if target is not None:
        original.extensions[HOP] = Hop(call, original, target)
        original.extensions.setdefault(SETTING, None)  # the fast path looks for this one only


def redirect_target(response: Any, request: Any) -> Any:
    """Where the client will go next, worked out as the client does; None if this is no redirect."""
    location = response.headers.get("location")
    if location is None:
        return None
    try:
        target = request.url.join(location)
        if target.scheme and not target.host:
            target = target.copy_with(host=request.url.host)
    except Exception:  # the client will say what is wrong with it
        return None
    return target


class Timeouts(dict[str, Any]):
    """An attempt's own copy of ``extensions["timeout"]``, which knows the time.

    ``get(phase)`` is the least of the client's own timeout, ``attempt_timeout`` and the time left.
    With a deadline it is the request's ``trace`` too, which httpcore calls before each step: what
    took the time before, such as name resolution, is seen there before the request is written.
    """

    trace: Any = None  # the client's own
    _replaced: Mapping[str, Any] | None = None  # the client's own, if ``attempt_timeout`` is less

    def __init__(
        self,
        configured: Mapping[str, Any],
        clock: Clock,
        deadline_at: float,
        attempt_timeout: float | None,
    ) -> None:
        dict.__init__(self, configured)
        self._clock = clock
        self._deadline_at = deadline_at
        self._shortened: set[str] = set()
        if attempt_timeout is not None:
            self._replaced = configured
            for phase in ("pool", "connect", "read", "write"):
                own = configured.get(phase)
                self[phase] = attempt_timeout if own is None else min(own, attempt_timeout)

    def get(self, phase: str, default: Any = None) -> Any:
        configured = dict.get(self, phase, default)
        if self._deadline_at == inf:
            return configured
        left = max(self._deadline_at - self._clock.monotonic(), LEAST)
        if configured is not None and configured <= left:
            self._shortened.discard(phase)
            return configured
        self._shortened.add(phase)
        return left

    def __getitem__(self, phase: str) -> Any:
        return self.get(phase) if phase in self else super().__getitem__(phase)

    def copy(self) -> dict[str, Any]:
        """Plain numbers, as they are now, for a library that copies."""
        return {phase: self.get(phase) for phase in self}

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did this timeout fire because the deadline had shortened it?"""
        if now < self._deadline_at - EARLY:
            return False
        if kind is FailureKind.TIMEOUT:
            return bool(self._shortened)
        return PHASE_OF.get(kind) in self._shortened

    def __call__(self, event: str, info: Any) -> Any:
        self.look(event)
        return None if self.trace is None else self.trace(event, info)

    def look(self, event: str) -> None:
        """Let no request go out after the deadline."""
        if event.endswith("send_request_headers.started") and self.left() <= 0:
            raise CutOff

    def left(self) -> float:
        return self._deadline_at - self._clock.monotonic()

    def is_over(self) -> bool:
        return self.left() <= EARLY

    def reopen(self, deadline_at: float = inf) -> None:
        """Hand-over: a body that the caller streams has the client's own timeouts, bounded by
        ``forbear.deadline`` only.
        """
        self._deadline_at = deadline_at
        if self._replaced is not None:
            self.update(self._replaced)


class AsyncTimeouts(Timeouts):
    """The same for an asynchronous attempt."""

    async def __call__(self, event: str, info: Any) -> None:
        self.look(event)
        if self.trace is not None:
            await self.trace(event, info)


class Guard(Readings):
    """A request's body behind a guard, which its answer leaves in the request's extensions.

    The client may send the body again: after a redirect, or with credentials for a challenge.

    Attributes:
        was_sent: An earlier call has had it.
    """

    was_sent = False

    def __init__(self, stream: Any, buffer_limit: int) -> None:
        self._stream = stream
        own = is_of_library(stream)
        source = getattr(stream, "_stream", None) if own else None
        self._file = source if is_file(source) else None
        self._start: Any = None
        # The client itself refuses to read a generator twice.
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

    def covers(self, stream: Any) -> bool:
        """Is this the guard of that stream?"""
        return self._stream is stream


class BodyGuard(Guard):
    """Behind it, a body of a synchronous request."""

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
    """Behind it, a body of an asynchronous request."""

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


def is_of_library(stream: Any) -> bool:
    """A class of the user's may have attributes of the same names, and transform what is below."""
    return type(stream).__module__.partition(".")[0] in ("httpx", "httpx2")


def wants_guard(stream: Any) -> bool:
    """Everything but plain bytes; multipart made of bytes only is as good as plain."""
    fields = getattr(stream, "fields", None) if is_of_library(stream) else None
    return fields is None or any(
        not isinstance(getattr(f, "file", b""), (str, bytes)) for f in fields
    )


def is_replayable_field(field: Any) -> bool:
    """Httpx seeks a multipart file to 0 by itself before each reading."""
    file = getattr(field, "file", b"")
    return isinstance(file, (str, bytes)) or (hasattr(file, "seek") and is_seekable(file))
