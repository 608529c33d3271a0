"""Port for the httpx family: how a call is prepared, sent, classified and handed over.

One class for both libraries. What may do I/O is a coroutine, which suspends in the asynchronous
flavour alone; tasks.py has what that one does in a way of its own.
"""

from __future__ import annotations

from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...core.call import SENT, SETTING
from ...core.outcome import Failure, FailureKind
from ...core.request import Request as RequestView
from ...core.request import known_origin
from ...engine.calls import sent_request
from ...engine.driver import DRAIN_BYTES, LATE, WHOLE, is_endless, note_prefetch, read_part
from ...engine.settings import OFF
from .errors import classify, own_error
from .reading import BODY, HOP, LiveBody, Replaced, Shown, parser_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType
    from weakref import ref

    from httpx import URL, AsyncClient, ByteStream, Client, Request, Response

    from ...core.call import Call, Story
    from ...core.headers.fields import Line
    from ...core.policy import RetryPolicy
    from ...engine.context import CallContext
    from ...engine.outgoing import Outgoing
    from ...engine.port import Backstop, Ending, PrefetchResult, Source
    from ...engine.settings import Settings
    from ...errors import CircuitOpenError, DeadlineExceeded
    from .guard import Guard

    Lines = Sequence[tuple[str, str]]


STREAMS = "SyncByteStream", "AsyncByteStream"
LENGTH = b"content-length"
EMPTY = -1  # no number of bytes
UNKNOWN = 2**62  # bytes of a body whose length is unknown: more than any


class HttpxRequest(RequestView):
    """The view that a decision has of an httpx request."""

    __slots__ = ()

    def header_lines(self) -> Iterable[tuple[bytes, bytes]]:
        return self.headers.raw  # type: ignore[no-any-return]

    def header(self, name: str) -> str | None:
        return self.headers.get(name)  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        return self.target.raw_path.decode("ascii")  # type: ignore[no-any-return]


class HttpxPort:
    """The part of a port that both flavours share.

    Attributes:
        inner: The transport that sends.
        inner_is_default: No inner transport was given.
        prefetches: Bodies are prefetched or watched.
        length_line: Index of the line with the length, in the head of the last response.
        client: A weak reference to the client that was wrapped, whose jar keeps the cookies of
            failed responses; None: no client is known.
    """

    body_name = "stream"
    decodes, repeats = False, True
    _has_warned = False  # of httpx-retries

    is_async, live_kind = False, LiveBody
    backstop: Backstop | None = None

    def __init__(self, settings: Settings, library: Library, inner: Any) -> None:
        self.settings = settings
        self.special, self.is_plain = settings.special, settings.is_plain
        self.shared = settings.shared
        self.clock = settings.clock
        self.library = library
        self.inner = inner
        self.inner_is_default = False
        self.byte_stream: type[ByteStream] = library.module.ByteStream
        self.replaced = library.replaced
        self.stream_error: Callable[[str], Exception] = library.module.RemoteProtocolError
        self.stream_timeout: Callable[[str], Exception] = library.module.ReadTimeout
        self.circuit_open_error = library.circuit_open_error
        self.deadline_exceeded = library.deadline_exceeded
        # Streams that stay as they are: read already, or watched by a forbear transport below.
        self.ready = {self.byte_stream, self.replaced}
        self.prefetches = settings.watches_bodies
        self.length_line = 0
        self.client: ref[Client | AsyncClient] | None = None

    # A call begins.

    def prepare(self, request: Request, started_at: float, context: CallContext | None) -> Outgoing:
        """Return what is sent in place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
        """
        from ...engine.prepare import outgoing_for

        given = request.extensions
        setting, body, hop = given.get(SETTING), None, None
        if HOP in given:
            from .redirects import hop_before

            hop = hop_before(request)
        if type(request.stream) is not self.byte_stream:
            from .guard import body_of

            body = body_of(request, self.library.module)
        return outgoing_for(self, request, request, body, started_at, context, setting, hop)

    def guard_of(self, request: Request, body: object, hop: object) -> Guard:
        from .guard import Guard, known_guard

        known = known_guard(request, body)
        return known or self.library.made(Guard)(body, self.settings.body_buffer)

    def bound(self, outgoing: Outgoing) -> None:
        """Bound the timeouts of what is sent by the deadline, in a copy."""
        from .deadlines import AsyncTimeouts, Timeouts

        outgoing.request = outgoing.pristine = self.copied(outgoing.pristine)
        extensions = outgoing.pristine.extensions
        kind = AsyncTimeouts if self.is_async else Timeouts
        outgoing.timeouts = kind(extensions.get("timeout") or ())
        outgoing.timeouts.begin(self.clock, outgoing, extensions)

    def view_of(self, source: Request) -> HttpxRequest:
        """Return the view of a request from which a decision reads."""
        if "retry" in source.extensions and not self._has_warned:
            from ..names import warn_of_retry

            self._has_warned = True
            warn_of_retry(source.extensions["retry"])
        url, names = source.url, self.settings.key_names
        origin = known_origin(url.scheme, url.raw_host.decode("ascii"), url.port)
        return HttpxRequest(source.method, origin, source.headers, names, url, source)

    def copied(
        self, request: Request, lines: Lines | None = None, url: URL | None = None
    ) -> Request:
        copy = object.__new__(type(request))
        fields = copy.__dict__ = vars(request).copy()  # the constructor would encode the body anew
        fields["extensions"] = dict(request.extensions)
        if lines is not None:
            fields["headers"] = headers = type(request.headers)(request.headers)
            headers.update(lines)
        if url is not None:
            fields["url"] = url
        return copy

    def url_at(self, url: URL, scheme: str, host: str, port: int) -> URL:
        return url.copy_with(scheme=scheme, host=host, port=port)

    def host_of(self, url: URL) -> str:
        return url.netloc.decode("ascii")

    # Each attempt.

    async def transmit(self, call: Call, request: Request) -> Response:
        # At once where an interruption is looked for: between two statements it would be leaked.
        call.live = self.inner.handle_request(request)
        return call.live  # type: ignore[no-any-return]

    async def close_unused(self, response: Response | Exception | None) -> None:
        if response is not None and not isinstance(response, Exception):
            response.stream.close()  # type: ignore[union-attr]

    async def renew(self, call: Call) -> None:
        """Nothing: a body was written before its response came."""

    def consumed(self, call: Call, error: Exception) -> Exception:
        return self.stream_error(f"The request cannot be resent: {error}.")

    async def received(self, call: Call, response: Response) -> Response:
        if call.rest is None:
            sent = sent_request(call)
            note_prefetch(call, await self.prefetched(sent, response, call.policy, call.outgoing))
        return response

    async def prefetched(
        self, request: Request, response: Response, policy: RetryPolicy, outgoing: Outgoing | None
    ) -> PrefetchResult:
        """Read a small body of known length, if its response is likely to be accepted.

        So a broken one is a failure like any other. Returns how that ended; None: it was not read.
        """
        if not self.prefetches or policy is OFF or response.status_code in policy.statuses:
            return None
        if self.has_arrived(response):
            return WHOLE
        if (
            type(response.stream) in self.ready
            or response.is_closed  # a transport below has read it
            or self.length_of(response) > self.settings.prefetch
            or is_endless(response.headers.get("content-type"), response.status_code)
        ):
            return None
        live = self.live(request, response)
        _, pieces, ending = await read_part(self, response, live, lambda *_: True)
        if ending is WHOLE:
            self.with_body(response, pieces)
        return ending

    def has_arrived(self, response: Response) -> bool:
        """Has all of a good body come with its head? Then it cannot break, and stays where it is.

        Every call that succeeds at once asks this. A server declares the length in the same line of
        each head, so only that is read.
        """
        try:
            _, name, value = response.headers._list[self.length_line]
            unread = parser_of(response.stream)._receive_buffer._data  # its public view is a copy
            # An empty body may be a stream of events that ended too early.
            if name == LENGTH and len(unread) == (int(value) or EMPTY):
                response.extensions[SETTING] = SENT
                return True
        except (AttributeError, IndexError, ValueError):
            pass
        return False

    def length_of(self, response: Response) -> int:
        """The length that the head declares; if it declares none, more than is ever prefetched.

        Where the body really ends, the library decides.
        """
        length = UNKNOWN
        for number, (name, value) in enumerate(response.headers.raw):
            if name.lower() == b"transfer-encoding":
                return UNKNOWN
            if name.lower() == LENGTH:
                self.length_line = number
                length = int(value) if value.isdigit() and len(value) < 19 else UNKNOWN
        return length

    # After each attempt.

    status_of = staticmethod(attrgetter("status_code"))

    def head_of(self, response: Response) -> tuple[int, Sequence[Line]]:
        return response.status_code, response.headers.raw

    def story_of(self, response: Response) -> object:
        return response.extensions.get(SETTING)

    def attach(self, response: Response, story: Story) -> None:
        response.extensions[SETTING] = story

    def add_headers(self, response: Response, lines: Mapping[str, str]) -> None:
        response.headers.update(lines)

    def keep_cookies(self, call: Call, response: Response) -> None:
        if self.client is not None and (client := self.client()) is not None:
            from .cookies import keep_cookies

            keep_cookies(self, client.cookies, call, response)

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        failure = classify(error, self.library.roots)
        if failure.kind is FailureKind.POOL or failure.kind is FailureKind.TIMEOUT:
            from .pools import free_lost_slots

            free_lost_slots(self.inner)
        elif failure.kind is FailureKind.UNPROCESSED and failure.error == "LocalProtocolError":
            from .pools import close_idle

            close_idle(self.inner, self.library.roots[1], call.sent_to, is_full=True)
        return failure

    async def close_idle(self, call: Call) -> bool:
        from .pools import close_idle  # loaded with the first connection that breaks

        return close_idle(self.inner, self.library.roots[1], call.sent_to)

    # Bodies.

    def live(self, request: Request, response: Response, ends_at: float = inf) -> LiveBody:
        """The source of a response to a request, as that was sent."""
        found = self.source_of(response)
        if not isinstance(found, LiveBody):
            length, module = self.length_of(response), self.library.module
            found = self.live_kind(self, module, request, response, length)
        found.ends_at = ends_at
        return found

    def source_of(self, response: Response) -> Source | None:
        """What was put in place of a body; None: nothing was."""
        stream: Any = response.stream
        return stream.stream if type(stream) is self.replaced else None

    def shown(self, response: Response, request: Request, source: Source) -> Response:
        copy: Response = object.__new__(self.library.made(Shown, "Response"))
        copy.__dict__ = vars(response).copy()  # in half the time of an update
        copy.stream, copy.request = self.replaced(source), request
        return copy

    def surround(
        self, request: Request, response: Response, make: Callable[[Source], Source]
    ) -> Response:
        source = self.source_of(response) or self.live(request, response)
        response.stream = self.replaced(make(source))
        return response

    def put_back(
        self, response: Response, live: Any, pieces: list[bytes], ending: Ending | Exception
    ) -> Response:
        live.pieces.extendleft(reversed(pieces))
        if isinstance(ending, Exception):
            live.pieces.append(ending)
        response.stream = self.replaced(live)
        return response

    def pieces_of(self, response: Any) -> list[bytes]:
        if type(response.stream) is self.byte_stream:
            return list(response.stream)
        return list(getattr(self.source_of(response), "pieces", ()))  # none of one that was read

    def with_body(self, response: Response, pieces: list[bytes] | None) -> Response:
        response.stream = self.byte_stream(b"".join(pieces or ()))
        return response

    def is_quick(self, call: Call, response: Response) -> bool:
        """May the rest of a failed response be worth reading?"""
        # If a transport below has read it, its connection may be another request's by now.
        if call.prefetch_result is LATE or response.is_closed or self.is_long(response):
            return False
        # Closing a stream of HTTP/2 leaves the connection open for the others.
        return response.extensions.get("http_version") != b"HTTP/2" or self.has_ended(response)

    def is_long(self, response: Response) -> bool:
        """Is a body longer than what is drained, or kept of a held call?"""
        has_ended = self.has_ended(response)
        return not has_ended and DRAIN_BYTES < self.length_of(response) < UNKNOWN

    def has_ended(self, response: Response) -> bool:
        # One that is closed was made of bytes, so that nobody reads or closes its stream.
        return type(response.stream) is self.byte_stream or response.is_closed

    def is_open(self, response: Response) -> bool:
        is_begun = isinstance(self.source_of(response), LiveBody)
        return self.prefetches and (is_begun or type(response.stream) not in self.ready)

    def is_resumable(self, request: Request, response: Response) -> bool:
        return request.method == "GET"

    def source_of_rest(self, call: Call, response: Response) -> Source:
        return self.source_of(response) or self.live(sent_request(call), response)

    # The end.

    def final_error(self, call: Call, error: Exception) -> Exception:
        failure, error = call.last_failure, own_error(error, self.library.module)
        is_refused = failure is not None and failure.kind is FailureKind.CERTIFICATE
        if is_refused and self.inner_is_default:
            # The first sign to a user that the settings of the client are ignored.
            from .messages import ignored_tls

            error.add_note(ignored_tls(self.library.name))
        return error

    def note_hop(self, call: Call, response: Response) -> None:
        if 300 <= response.status_code < 400:
            from .redirects import mark_redirect

            mark_redirect(call, response)
        if call.guard is not None and response.status_code >= 300:
            call.request.original.extensions[BODY] = call.guard

    def reopen(
        self, outgoing: Outgoing | None, response: Response, begin: Callable[[], Call]
    ) -> Response:
        if outgoing is None or outgoing.timeouts is None:
            return response
        outgoing.timeouts.reopen(outgoing.reads_until)
        if outgoing.reads_until != inf and type(response.stream) is not self.byte_stream:
            from ...engine.bodies import innermost
            from ...engine.refusals import body_is_late

            source = self.source_of(response) or self.live(outgoing.request, response)
            innermost(source).late = lambda error: body_is_late(self, begin(), error)
            response.stream = self.replaced(source)
        return response

    def status_error(self, call: Call, response: Response, body: list[bytes] | None) -> Exception:
        from .status import status_error

        if body is not None:
            self.with_body(response, body)
        return status_error(self.library.module, call.request.original, response)

    def closed_error(self) -> Exception:
        message = "The transport was closed while the call waited."
        return self.library.module.TransportError(message)  # type: ignore[no-any-return]


class Library:
    """One library of the family: its classes, and ours made of them."""

    def __init__(
        self,
        module: ModuleType,
        circuit_open_error: type[CircuitOpenError],
        deadline_exceeded: type[DeadlineExceeded],
    ) -> None:
        # Sees through an alias of one library for the other.
        self.name: str = module.HTTPError.__module__.partition(".")[0]
        self.module = module
        self.roots = (self.name, self.name.replace("httpx", "httpcore"))
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded
        self._made: dict[type, object] = {}
        self.replaced = self.made(Replaced)

    def made(self, kind: type, *bases: str) -> Any:
        """Ours, made of classes of the library (by default its streams), which insists on them."""
        if kind not in self._made:
            theirs = [getattr(self.module, base) for base in bases or STREAMS]
            self._made[kind] = type(kind.__name__, (kind, *theirs), {})
        return self._made[kind]
