"""Port for the httpx family: how a call is prepared, sent, classified and handed over.

One class for both libraries and both flavours. What may do I/O is a coroutine, which suspends in
the asynchronous flavour alone; transport.py adds the few methods in which the flavours differ.
"""

from __future__ import annotations

from functools import cached_property, partial
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.call import SETTING, Call
from ...core.headers.fields import media_type
from ...core.outcome import Failure, FailureKind
from ...engine.bodies import Broken, PutBack, rest_of
from ...engine.calls import (
    call_after_first,
    call_of,
    cancelled,
    note_success,
    sent_request,
)
from ...engine.driver import watched
from ...engine.errors import ConsumedBody
from ...engine.loop import run
from ...engine.reading import DRAIN_BYTES, WHOLE, note_prefetch
from ...engine.settings import OFF
from .bodies import Replaced, Shown, prefetch_body
from .errors import classify, is_inside, own_error
from .reading import (
    UNKNOWN,
    LiveBody,
    length_to_prefetch,
    own_timeout,
)
from .request import BODY, HOP, HttpxRequest, origin_of_url, with_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from weakref import ref

    from httpx import URL, ByteStream, Request, Response

    from ...core.call import Story
    from ...core.headers.fields import Line
    from ...core.policy import RetryPolicy
    from ...engine.alarms import Backstop
    from ...engine.context import CallContext
    from ...engine.outgoing import Outgoing
    from ...engine.reading import Ending, Live, PrefetchResult, Source
    from ...engine.settings import Settings
    from ...errors import CircuitOpenError, DeadlineExceeded
    from .deadlines import Timeouts
    from .guard import Guard
    from .redirects import Hop

    Lines = Sequence[tuple[str, str]]
    Facts = tuple[Request, Outgoing | None, float, CallContext | None]


class Kinds(NamedTuple):
    """The names and classes of one flavour."""

    is_async: bool
    base: str  # the library's class of transports
    default: str  # the one that is made if none is given
    method: str
    stream: str  # the library's class of streams


SYNC = Kinds(False, "BaseTransport", "HTTPTransport", "handle_request", "SyncByteStream")
ASYNC = Kinds(
    True, "AsyncBaseTransport", "AsyncHTTPTransport", "handle_async_request", "AsyncByteStream"
)
NAMES_OF_BODY = ("Content-Length", "Content-Encoding", "Transfer-Encoding")


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
    decodes = False
    _has_warned = False  # of httpx-retries

    kinds: Kinds
    live_kind: type[LiveBody]

    def __init__(self, settings: Settings, library: Library, inner: Any) -> None:
        self.settings = settings
        self.reads_quotas = settings.limits.reads_quotas
        self.special, self.is_plain = settings.special, settings.is_plain
        self.shared = settings.limits.shared
        self.asks = settings.asks
        self.clock = settings.clock
        self.library = library
        self.inner = inner
        self.inner_is_default = False
        self.byte_stream = library.byte_stream
        self.replaced = self.stream_of(Replaced)
        # Streams that stay as they are: read already, or watched by a forbear transport below.
        self.ready = {self.byte_stream, self.replaced}
        self.prefetch = settings.prefetch
        self.prefetches = settings.watches_bodies
        self.length_line = 0
        self.client: ref[Any] | None = None

    @property
    def circuit_open_error(self) -> type[CircuitOpenError]:
        return self.library.circuit_open_error

    @property
    def deadline_exceeded(self) -> type[DeadlineExceeded]:
        return self.library.deadline_exceeded

    # A call begins.

    @cached_property
    def outgoing_for(self) -> Callable[..., Outgoing]:
        """The function of engine/prepare.py, looked up once: each call under a time limit asks."""
        from ...engine.prepare import outgoing_for

        return outgoing_for

    def prepare(self, request: Request, started_at: float, context: CallContext | None) -> Outgoing:
        """Return what is sent in place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
        """
        given, body = request.extensions, request.stream
        setting = hop = None
        if SETTING in given:
            setting, hop = given[SETTING], given.get(HOP)
            if hop is not None:
                from .redirects import Hop

                if not isinstance(hop, Hop) or not hop.continues_in(request):
                    hop = None
        if type(body) is self.byte_stream:
            body = None  # type: ignore[assignment]
        elif not isinstance(request, self.library.module.Request):
            raise TypeError(
                f"a transport of forbear.{self.library.name} got a request of"
                f" {type(request).__module__.partition('.')[0]}: mount the other family's"
            )
        else:
            from .guard import wants_guard

            if not wants_guard(body):
                body = None  # type: ignore[assignment]
        return self.outgoing_for(self, request, request, body, started_at, context, setting, hop)

    def guard_of(self, request: Request, body: object, hop: Hop | None) -> Guard:
        from .guard import guard_of

        return guard_of(self, request, body)

    def stream_of(self, kind: type) -> Any:
        return self.library.made(kind, self.kinds.stream)

    @cached_property
    def timeouts(self) -> type[Timeouts]:
        from . import deadlines

        return deadlines.AsyncTimeouts if self.kinds.is_async else deadlines.Timeouts

    def bound(self, outgoing: Outgoing) -> None:
        """Bound the timeouts of what is sent by the deadline, in a copy."""
        outgoing.request = outgoing.pristine = self.copied(outgoing.pristine)
        extensions, deadline_at = outgoing.pristine.extensions, outgoing.deadline_at
        timeouts = self.timeouts(extensions.get("timeout") or ())
        outgoing.timeouts = extensions["timeout"] = timeouts
        timeouts.begin(self.clock, deadline_at, extensions.get("trace"))
        if outgoing.policy.attempt_timeout is not None:
            timeouts.shorten(outgoing.policy.attempt_timeout)
        if deadline_at != inf:
            extensions["trace"] = timeouts

    def view_of(self, source: Request) -> HttpxRequest:
        """Return the view of a request from which a decision reads."""
        if "retry" in source.extensions and not self._has_warned:
            from ..names import warn_of_retry

            self._has_warned = True
            warn_of_retry(source.extensions["retry"])
        url, names = source.url, self.settings.key_names
        return HttpxRequest(source.method, origin_of_url(url), source.headers, names, url, source)

    def copied(
        self, request: Request, lines: Lines | None = None, url: URL | None = None
    ) -> Request:
        copy = object.__new__(type(request))
        fields = copy.__dict__ = vars(request).copy()  # the constructor would encode the body anew
        fields["extensions"] = dict(request.extensions)
        if lines is not None:
            fields["headers"] = with_lines(request.headers, lines)
        if url is not None:
            fields["url"] = url
        return copy

    def url_at(self, url: URL, scheme: str, host: str, port: int) -> URL:
        return url.copy_with(scheme=scheme, host=host, port=port)

    def host_of(self, url: URL) -> str:
        return url.netloc.decode("ascii")

    # Each attempt.

    if TYPE_CHECKING:  # of each flavour

        @property
        def backstop(self) -> Backstop | None: ...
        async def close_idle(self, call: Call) -> None: ...
        async def transmit(self, call: Call, request: Request) -> Response: ...
        async def close_unused(self, response: Response | Exception | None) -> None: ...

    def is_closed(self, call: Call) -> bool:
        return False

    async def renew(self, call: Call) -> None:
        """Nothing: a body was written before its response came."""

    def consumed(self, call: Call, error: Exception) -> Exception:
        return self.cannot_resend(call.outgoing, error, first=not call.history)

    def cannot_resend(
        self, outgoing: Outgoing | None, error: Exception, *, first: bool
    ) -> Exception:
        from .guard import consumed  # a guard has raised it

        return consumed(self.library.module, outgoing, error, first=first)

    async def received(self, call: Call, response: Response) -> Response:
        if call.rest is not None:
            return self.surround(sent_request(call), response, lambda source: source)
        if self.should_prefetch(response, call.policy):
            original = call.request.original
            note_prefetch(call, await prefetch_body(self, original, response, call.outgoing))
        return response

    def should_prefetch(self, response: Response, policy: RetryPolicy) -> bool:
        """Is the response likely to be accepted, so that its body is read before it is?"""
        return (
            self.prefetches
            and response.status_code not in policy.statuses
            and type(response.stream) not in self.ready
            and policy is not OFF
        )

    async def go_on(self, held: list[Any], facts: Facts) -> Any:
        """Go on with a call whose first attempt was sent before there was a call.

        ``held`` has its outcome. Then it has the call, and what that returns.
        """
        request, outgoing = facts[:2]
        prefetch: PrefetchResult = None
        try:
            if isinstance(held[0], ConsumedBody):
                held[0] = self.cannot_resend(outgoing, held[0], first=True)
            elif not isinstance(held[0], Exception):
                prefetch = await self.receive_first(held[0], request, outgoing)
                if held[0].status_code < 300 and not isinstance(prefetch, Exception):
                    self.accept_first(held[0], facts, is_whole=prefetch is WHOLE)
                    return held[0]
        except Exception as error:
            held[0] = error
        except BaseException:
            cancelled(self.settings, call_of(self, *facts))
            raise
        call = call_after_first(self, *facts)
        if prefetch is not None:
            note_prefetch(call, prefetch)
            prefetch = None
        call.live, held[0] = held[0], call
        return await run(call, self, held)

    async def receive_first(
        self, response: Response, request: Request, outgoing: Outgoing | None
    ) -> PrefetchResult:
        if response.status_code < 300:
            if not self.prefetches or type(response.stream) in self.ready:
                return WHOLE
        elif not self.should_prefetch(
            response, self.settings.policy if outgoing is None else outgoing.policy
        ):
            return None
        return await prefetch_body(self, request, response, outgoing)

    async def let_go(self, outcome: Any, held: list[Any]) -> None:
        """Close what the caller does not get."""
        for one in (outcome, *held):
            await self.close_unused(one.live if isinstance(one, Call) else one)

    def accept_first(self, response: Response, facts: Facts, *, is_whole: bool) -> None:
        """End a call whose first response is below 300."""
        request, outgoing, started_at, _ = facts
        begin = partial(call_after_first, self, *facts)
        if not is_whole and (outgoing is None or outgoing.policy is not OFF):
            watched(self, request if outgoing is None else outgoing.request, response, begin)
        if outgoing is not None:
            self.reopen(outgoing, response, begin)
        settings = self.settings
        if not (settings.is_plain and settings.limits.shared.quiet):
            origin, status = origin_of_url(request.url), response.status_code
            note_success(settings, request.method, origin, status, started_at)

    # After each attempt.

    def head_of(self, response: Response) -> tuple[int, Sequence[Line]]:
        return response.status_code, response.headers.raw

    def story_of(self, response: Response) -> object:
        return response.extensions.get(SETTING)

    def attach(self, response: Response, story: Story) -> None:
        response.extensions[SETTING] = story

    def add_headers(self, response: Response, lines: Mapping[str, str]) -> None:
        response.headers.update(lines)

    def keep_cookies(self, call: Call, response: Response) -> None:
        client = None if self.client is None else self.client()
        if client is not None:
            from .cookies import keep_cookies

            keep_cookies(self, client.cookies, call, response)

    def is_inside(self, error: Exception, cause: BaseException) -> bool:
        return is_inside(error, cause)

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        failure = classify(error, self.library.roots)
        if failure.kind is FailureKind.POOL or failure.kind is FailureKind.TIMEOUT:
            from .pools import free_lost_slots

            free_lost_slots(self.inner)
        return failure

    def is_cut_by_deadline(self, call: Call, failure: Failure) -> bool:
        timeouts = None if call.outgoing is None else call.outgoing.timeouts
        return timeouts is not None and timeouts.cut_short(failure.kind, self.clock.monotonic())

    def is_reused(self, call: Call, error: Exception) -> bool:
        if not isinstance(self.inner, self.library.own):
            return False
        from .pools import is_reused  # loaded with the first connection that breaks

        return is_reused(*self.idle_at(call))

    def idle_at(self, call: Call) -> tuple[Any, object]:
        """The pool of the library's own transport, and the origin as it knows it."""
        core = import_module(self.library.roots[1])
        return getattr(self.inner, "_pool", None), core.URL(call.sent_to).origin

    # Bodies.

    def live(self, request: Request, response: Response, ends_at: float = inf) -> LiveBody:
        """The source of a response to a request, as that was sent."""
        return self.live_kind(self, request, response, ends_at)

    def shown(self, response: Response, request: Request, source: Source) -> Response:
        copy: Any = object.__new__(self.library.made(Shown, "Response"))
        copy.__dict__ = vars(response).copy()  # in half the time of an update
        copy.stream, copy.request = self.replaced(source), request
        return copy  # type: ignore[no-any-return]

    def surround(
        self, request: Request, response: Response, make: Callable[[Source], Source]
    ) -> Response:
        source = self.source_of(request, response)
        response.stream = self.replaced(make(source))
        return response

    def put_back(
        self, response: Any, live: Live, pieces: list[bytes], ending: Ending | Exception
    ) -> Response:
        if isinstance(ending, Exception):
            from .pools import reset_lost

            reset_lost(self.inner)
        again = self.stream_error("the body has broken before")
        response.stream = self.replaced(rest_of(pieces, ending, live, again))
        return response  # type: ignore[no-any-return]

    def pieces_of(self, response: Any) -> list[bytes]:
        stream = response.stream
        return list(stream.stream.pieces if type(stream) is self.replaced else stream)

    def with_body(self, response: Response, pieces: list[bytes] | None) -> Response:
        response.stream = self.byte_stream(b"".join(pieces or ()))
        for name in NAMES_OF_BODY if pieces is None else ():
            response.headers.pop(name, None)
        return response

    def source_of(self, request: Request, response: Response) -> Source:
        stream: Any = response.stream
        if type(stream) is self.replaced:
            source: Source = stream.stream
            return source
        return self.live(request, response)

    def is_quick(self, call: Call, response: Response) -> bool:
        """May the rest of a failed response be worth reading?"""
        if call.prefetch_result is not None and call.prefetch_result is not WHOLE:
            return False
        if self.is_long(response):
            return False
        # Closing a stream of HTTP/2 leaves the connection open for the others.
        is_shared = response.extensions.get("http_version") == b"HTTP/2"
        return not is_shared or type(response.stream) is self.byte_stream

    def was_begun(self, stream: Any) -> bool:
        """Was a part of a body read, and is the rest still to come?"""
        if type(stream) is not self.replaced:
            return False
        return isinstance(stream.stream, PutBack) and not isinstance(stream.stream.stream, Broken)

    def is_long(self, response: Response) -> bool:
        """Is a body longer than what is drained, or kept of a held call?"""
        stream: Any = response.stream
        if type(stream) is self.byte_stream:
            return False
        if self.was_begun(stream):
            return sum(map(len, stream.stream.pieces)) > DRAIN_BYTES
        return DRAIN_BYTES < length_to_prefetch(self, response) < UNKNOWN

    def has_ended(self, response: Response) -> bool:
        # One that is closed was made of bytes, so that nobody reads or closes its stream.
        return type(response.stream) is self.byte_stream or response.is_closed

    def is_open(self, response: Response) -> bool:
        stream = response.stream
        return self.prefetches and (type(stream) not in self.ready or self.was_begun(stream))

    def is_resumable(self, request: Request, response: Response) -> bool:
        return request.method == "GET"

    def keeps(self, request: Request, response: Response) -> bool:
        """Is it a small JSON document of unknown length? It is requested again as a whole.

        It continues only if its bytes begin with those that the caller has, because then all that
        the caller gets is the second response, byte for byte. Not without a read timeout: such a
        caller expects silences, as in a feed of documents.
        """
        kind = media_type(response.headers.raw)
        is_document = kind == "application/json" or (
            kind.endswith("+json") and kind != "application/stream+json"
        )
        is_small = is_document and length_to_prefetch(self, response) == UNKNOWN
        return is_small and response.status_code in (200, 206) and own_timeout(request) is not None

    def source_of_rest(self, response: Any) -> Source:
        source: Source = response.stream.stream  # as ``received`` has left it
        return source

    # The end.

    def final_error(self, call: Call, error: Exception) -> Exception:
        failure, name = call.last_failure, self.library.name
        error = own_error(error, self.library.module)
        is_refused = failure is not None and failure.kind is FailureKind.CERTIFICATE
        if is_refused and self.inner_is_default:
            # The first sign to a user that the settings of the client are ignored.
            error.add_note(
                f"forbear: {name} ignores verify= and cert= of a client that is given transport=;"
                f" build the client without transport= and use forbear.{name}.wrap(client)"
            )
        return error

    def note_error(self, call: Call, error: Exception) -> None:
        """Nothing: the client does not act on errors."""

    def note_hop(self, call: Call, response: Response) -> None:
        if 300 <= response.status_code < 400:
            from .redirects import mark_redirect

            mark_redirect(call, response)
        if call.guard is not None and response.status_code >= 300:
            call.request.original.extensions[BODY] = call.guard

    def free_to_caller(self, call: Call, response: Response) -> Response:
        if call.outgoing is not None:
            self.reopen(call.outgoing, response, lambda: call)
        return response

    def reopen(self, outgoing: Outgoing, response: Response, begin: Callable[[], Call]) -> None:
        """Let a body that the caller streams run under ``forbear.deadline`` alone."""
        timeouts = outgoing.timeouts
        if timeouts is not None:
            timeouts.reopen(outgoing.reads_until)
            if outgoing.reads_until != inf and type(response.stream) is not self.byte_stream:
                from .deadlines import Bounded

                self.surround(
                    outgoing.request,
                    response,
                    lambda source: Bounded(self, source, timeouts, begin),
                )

    def status_error(self, call: Call, response: Response, body: list[bytes] | None) -> Exception:
        from .status import status_error

        found = None if body is None else b"".join(body)
        return status_error(self.library.module, call.request.original, response, found)

    def stream_error(self, message: str) -> Exception:
        return self.library.module.RemoteProtocolError(message)  # type: ignore[no-any-return]

    def stream_timeout(self, message: str) -> Exception:
        return self.library.module.ReadTimeout(message)  # type: ignore[no-any-return]

    def closed_error(self) -> Exception:
        error: Exception = self.library.module.TransportError(
            "The transport was closed while the call waited."
        )
        return error


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
        self.own = module.HTTPTransport, module.AsyncHTTPTransport
        self.byte_stream: type[ByteStream] = module.ByteStream
        self._made: dict[tuple[type, str], type] = {}

    def made(self, kind: type, base: str) -> type:
        """Ours, made of a class of the library's, which insists on its own."""
        found = self._made.get((kind, base))
        if found is None:  # another thread may make one meanwhile
            made = type(kind.__name__, (kind, getattr(self.module, base)), {})
            found = self._made.setdefault((kind, base), made)
        return found
