"""Port for the httpx family: how a call is prepared, classified and handed over, without I/O.

One class for both libraries; transport.py adds what each flavour sends and reads.
"""

from __future__ import annotations

from functools import cached_property, partial
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any

from ...core.call import IN_FLIGHT, RETRY_IF, SETTING
from ...core.headers.fields import begins_events
from ...core.headers.hints import READ_BYTES
from ...core.outcome import Failure, FailureKind, Phase
from ...engine.calls import (
    call_after_first,
    call_of,
    conclude,
    end_attempt,
    note_success,
    too_late,
    with_story,
)
from ...engine.errors import ConsumedBody, classify_status, has_error_event, note_quotas
from ...engine.reading import DRAIN_BYTES, DRAIN_SECONDS, WHOLE, is_endless
from ...engine.settings import OFF
from .bodies import UNKNOWN, length_to_prefetch
from .errors import classify, is_inside, own_error, status_error
from .request import (
    BODY,
    HOP,
    HttpxRequest,
    origin_of_url,
    with_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from weakref import ref

    from httpx import URL, ByteStream, Request, Response

    from ...core.call import Call, Prefetched
    from ...core.policy import RetryPolicy
    from ...engine.context import CallContext
    from ...engine.outgoing import Outgoing
    from ...engine.port import Inspection
    from ...engine.settings import Settings
    from ...errors import CircuitOpenError, DeadlineExceeded
    from .deadlines import Timeouts
    from .guard import Guard
    from .putback import PuttingBack
    from .redirects import Hop

    Lines = Sequence[tuple[str, str]]


class HttpxPort:
    """The part of a port that does no input or output.

    Attributes:
        inner: The transport that sends.
        inner_is_default: No inner transport was given.
        awaits_events: The first event of a stream is waited for.
        prefetches: Bodies are prefetched or watched.
        trusts_heads: What has come with its head is good.
        length_line: Index of the line with the length, in the head of the last response.
        client: A weak reference to the client that was wrapped, whose jar keeps the cookies of
            failed responses; None: no client is known.
    """

    body_name = "stream"
    _has_warned = False  # of httpx-retries

    def __init__(self, settings: Settings, library: Library, inner: Any, streams: Streams) -> None:
        self.settings = settings
        settings.load(__name__.rpartition(".")[0])
        self.reads_quotas = settings.limits.reads_quotas
        self.clock = settings.clock
        self.library = library
        self.streams = streams
        self.inner = inner
        self.inner_is_default = False
        self.byte_stream = library.byte_stream
        self.ready = library.ready
        self.prefetch = settings.prefetch
        self.awaits_events = settings.event_streams is not None
        self.prefetches = settings.prefetch > 0 or settings.resume or self.awaits_events
        self.trusts_heads = self.prefetches and not self.awaits_events
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
        """As of engine/prepare.py. Looked up once: each call under a time limit asks for it."""
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
        outgoing = self.outgoing_for(
            self, request, request, body, started_at, context, setting, hop
        )
        if outgoing.deadline_at <= started_at:
            raise too_late(self, call_of(self, request, outgoing, started_at, context))
        return outgoing

    def guard_of(self, request: Request, body: object, hop: Hop | None) -> Guard:
        from .guard import Guard

        if isinstance(body, Guard):  # of a forbear above us
            return body
        known: Guard | None = request.extensions.get(BODY)
        if known is not None and known.covers(body):
            known.was_sent = True
            return known  # it knows what earlier calls have read
        return self.streams.guard(body, self.settings.body_buffer)

    def bound(self, outgoing: Outgoing) -> None:
        """Bound the timeouts of what is sent by the deadline, in a copy."""
        outgoing.request = outgoing.pristine = self.copied(outgoing.pristine)
        extensions, deadline_at = outgoing.pristine.extensions, outgoing.deadline_at
        timeouts = self.streams.timeouts(extensions.get("timeout") or ())
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

    def with_contact(self, request: Request) -> Request:
        if "from" in request.headers:
            return request
        return self.copied(request, [("From", self.settings.contact or "")])

    def url_at(self, url: URL, scheme: str, host: str, port: int) -> URL:
        return url.copy_with(scheme=scheme, host=host, port=port)

    def host_of(self, url: URL) -> str:
        return url.netloc.decode("ascii")

    # Each attempt.

    def consumed(self, outgoing: Outgoing | None, error: ConsumedBody, *, first: bool) -> Exception:
        """The library's error for a body that would have been read a second time."""
        assert outgoing is not None  # only a guard raises it
        module = self.library.module
        if outgoing.guard.was_sent and first and outgoing.guard.generated:
            # An earlier call has read it: the error that the client raises without us.
            return module.StreamConsumed()  # type: ignore[no-any-return]
        return module.RemoteProtocolError(f"The request cannot be resent: {error}.")  # type: ignore[no-any-return]

    def should_prefetch(self, response: Response, policy: RetryPolicy) -> bool:
        """Is the response likely to be accepted, so that its body is read before it is?"""
        return (
            self.prefetches
            and response.status_code not in policy.statuses
            and (
                type(response.stream) not in self.ready
                # A mock's stream of events is judged too.
                or (self.awaits_events and type(response.stream) is self.byte_stream)
            )
            and policy is not OFF
        )

    def accept_first(
        self,
        request: Request,
        response: Response,
        outgoing: Outgoing | None,
        started_at: float,
        context: CallContext | None,
    ) -> None:
        """End a call whose first response is below 300, with its whole body."""
        if outgoing is not None and outgoing.timeouts is not None:
            if outgoing.reads_until == inf:
                outgoing.timeouts.reopen(inf)
            else:
                begin = partial(call_of, self, request, outgoing, started_at, context)
                self.reopen(outgoing, response, begin)
        settings = self.settings
        if not (settings.is_plain and settings.limits.shared.quiet):
            origin, status = origin_of_url(request.url), response.status_code
            note_success(settings, request.method, origin, status, started_at)

    def stream_first(
        self,
        request: Request,
        response: Response,
        outgoing: Outgoing | None,
        started_at: float,
        context: CallContext | None,
    ) -> None:
        """End a call whose first response is below 300, while its body is still to come."""
        if outgoing is None or outgoing.policy is not OFF:
            begin = partial(call_after_first, self, request, outgoing, started_at, context)
            self._watch_body(request, response, begin)
        self.accept_first(request, response, outgoing, started_at, context)

    def status_of(self, response: Response) -> int:
        return response.status_code

    def inspection_of(
        self,
        request: Request,
        response: Response,
        deadline_at: float,
        prefetched: Prefetched | None,
    ) -> Inspection:
        return self.streams.inspection(self, request, response, deadline_at, prefetched)

    # After each attempt.

    def classify_response(self, call: Call, response: Response) -> Failure | None:
        status = response.status_code
        if self.reads_quotas:
            note_quotas(self, call, response.headers.raw)
        if status < 400 and not call.notes.get(RETRY_IF) and call.body_error is None:
            call.status = status
            return None
        lines = response.headers.raw
        names = frozenset(name.lower() for name, _ in lines)
        if READ_BYTES.isdisjoint(names):
            lines = []
        client = None if self.client is None else self.client()
        if client is not None and b"set-cookie" in names:
            self._keep_cookies(client.cookies, call, response)
        return classify_status(self, call, status, lines, response.extensions.get(SETTING))

    def _keep_cookies(self, cookies: Any, call: Call, response: Response) -> None:
        """Store a failed response's cookies (RFC 6265 section 3), and let a retry carry them."""
        raw = response.headers.raw
        lines = [value for name, value in raw if name.lower() == b"set-cookie"]
        if not all(map(bytes.isascii, lines)):
            return  # with such a cookie in its jar a client can make no further request
        original = call.request.original
        before = self._cookie_for(original, cookies)
        response.request = original
        cookies.extract_cookies(response)
        after = self._cookie_for(original, cookies)
        if before != after:
            from ...engine.prepare import outgoing_of, renewed_cookies

            outgoing = outgoing_of(self, call)
            sent = outgoing.pristine.headers.get("Cookie", "")
            outgoing.cookie = renewed_cookies(sent, before, after, merges=False)

    def _cookie_for(self, request: Request, cookies: Any) -> str:
        """The ``Cookie`` that the client would send; "" for none."""
        fresh = self.library.module.Request(request.method, request.url)
        cookies.set_cookie_header(fresh)
        return fresh.headers.get("Cookie", "")  # type: ignore[no-any-return]

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        guard = call.guard
        if guard is not None and guard.error is not None and is_inside(error, guard.error):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        failure = classify(error, self.library.roots)
        if failure.kind is FailureKind.POOL or failure.kind is FailureKind.TIMEOUT:
            from .pools import free_lost_slots

            free_lost_slots(self.inner)
        return failure

    def kind_of(self, error: Exception) -> FailureKind:
        return classify(error, self.library.roots).kind

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
        return type(stream) is vars(self.streams).get("put_back") and stream.rest is not None

    def is_long(self, response: Response) -> bool:
        """Is a body longer than what is drained, or kept of a held call?"""
        stream: Any = response.stream
        if type(stream) is self.byte_stream:
            return False
        if self.was_begun(stream):
            return sum(map(len, stream.pieces)) > DRAIN_BYTES
        return DRAIN_BYTES < length_to_prefetch(self, response) < UNKNOWN

    def empty(self, call: Call, response: Response, body: list[bytes] | None) -> None:
        """Let a response that is kept hold no connection; no body: not all of it came."""
        stream: Any = response.stream
        if body is None and has_error_event(call, response.status_code):
            stream.rest = None  # the event has been read
            return
        response.stream = self.byte_stream(b"".join(body or ()))
        if body is None:
            for name in ("Content-Length", "Content-Encoding", "Transfer-Encoding"):
                response.headers.pop(name, None)

    def seconds_to_read(self, call: Call) -> float:
        """Seconds to read a failed response: longer would cost more than a new connection."""
        if call.deadline_at == inf:
            return DRAIN_SECONDS
        return min(DRAIN_SECONDS, call.deadline_at - self.clock.monotonic())

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

    def finish(self, call: Call, response: Response) -> None:
        """Do everything about a hand-over that needs no I/O."""
        outgoing = call.outgoing
        conclude(self, call, response.extensions, SETTING)
        if call.stop is not None and self.settings.stop_outer_retries:
            from ...engine.prepare import stop_outer

            stop_outer(call, response.headers)
        if 300 <= response.status_code < 400:
            from .redirects import mark_redirect

            mark_redirect(call, response)
        may_break = call.prefetch_result is not WHOLE and call.stop is None
        if self.prefetches and may_break and call.policy is not OFF:
            self._watch_body(call.request.original, response, lambda: call)
        if outgoing is not None:
            if outgoing.guard is not None and response.status_code >= 300:
                call.request.original.extensions[BODY] = outgoing.guard
            self.reopen(outgoing, response, lambda: call)

    def _watch_body(self, request: Request, response: Response, begin: Callable[[], Call]) -> None:
        """Resume a body that is still to come where it breaks, if that is possible."""
        stream: Any = response.stream
        if type(stream) in self.ready and not self.was_begun(stream):
            return
        is_download = request.method == "GET" and self.settings.resume
        if is_download or begins_events(response.status_code, response.headers.raw):
            from .resume import watch_body

            watch_body(self, response, begin)

    def reopen(self, outgoing: Outgoing, response: Response, begin: Callable[[], Call]) -> None:
        """Let a body that the caller streams run under ``forbear.deadline`` alone."""
        timeouts = outgoing.timeouts
        if timeouts is not None:
            timeouts.reopen(outgoing.reads_until)
            if outgoing.reads_until != inf:
                response.stream = self.streams.bounded(self, response.stream, timeouts, begin)

    def request_rest(self, call: Call, lines: Lines) -> None:
        from ...engine.prepare import pristine_of, request_rest

        request = self.copied(pristine_of(call), lines)
        request.extensions.update(call.request.original.extensions)
        request_rest(self, call, request)

    def free_to_caller(self, call: Call, response: Response) -> Response:
        if call.outgoing is not None and call.outgoing.timeouts is not None:
            call.outgoing.timeouts.reopen(call.deadline_at)
        return response

    def keep_in_flight(self, call: Call, response: Any) -> None:
        """Let the body of a response that is handed over keep the slot, while it is to come."""
        stream, endless = response.stream, None
        if call.rest is not None or not (
            call.prefetch_result is WHOLE
            or type(stream) is self.byte_stream
            or response.is_closed  # made of bytes, so that nobody reads or closes its stream
        ):
            endless = is_endless(response.headers.get("content-type"), response.status_code)
        notes = end_attempt(call, endless=endless)
        if notes is not None:
            response.stream = self.streams.releasing(stream, notes)

    def rest(self, call: Call, response: Response) -> Response:
        """Return the rest of a body, or what came in its place."""
        if IN_FLIGHT in call.notes:
            self.keep_in_flight(call, response)
        return response

    def status_error(self, call: Call, response: Response, body: list[bytes] | None) -> Exception:
        """Make the library's own error for the response that the call ends with."""
        found = None if body is None else b"".join(body)
        error = status_error(self.library.module, call.request.original, response, found)
        return with_story(self, call, error)

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
        # Streams that stay as they are: read already, or watched by a forbear transport below.
        self.ready: set[type] = {self.byte_stream}
        self.sync = Streams(module, "Sync", self.ready)
        self.asynchronous = Streams(module, "Async", self.ready)


# Ours of each library, each with the module and the name of the part that is not the library's. The
# libraries insist on streams and responses of their own classes.
KINDS = {
    "bounded": ("deadlines", "Bounded"),
    "deadline_reads": ("deadlines", "DeadlineReads"),
    "guard": ("guard", "BodyGuard"),
    "inspection": ("inspection", "Inspection"),
    "put_back": ("putback", "PutBack"),
    "resuming": ("resume", "Resuming"),
    "shown": ("inspection", "Shown"),
    "releasing": ("slots", "Releasing"),
    "timeouts": ("deadlines", "Timeouts"),  # which is a class as it is
}


class Streams:
    """Our classes of one flavour of one library; each is made when it is first needed."""

    if TYPE_CHECKING:
        bounded: Any
        deadline_reads: Any  # of the synchronous flavour
        guard: type[Guard]
        inspection: Callable[..., Inspection]
        put_back: type[PuttingBack]
        resuming: Any
        shown: Any  # the response that ``retry_if`` is shown
        releasing: Any
        timeouts: type[Timeouts]

    def __init__(self, module: ModuleType, flavour: str, ready: set[type]) -> None:
        self._module, self._flavour, self._ready = module, flavour, ready

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> type:
            place, part = KINDS[name]
            theirs = "Response" if name == "shown" else f"{self._flavour}ByteStream"
            prefix = self._flavour.removeprefix("Sync")
            found = getattr(import_module(f"{__package__}.{place}"), prefix + part)
            made = found
            if name != "timeouts":
                made = type(f"{part}Stream", (found, getattr(self._module, theirs)), {})
            made = vars(self).setdefault(name, made)  # another thread may have made one meanwhile
            if name in ("put_back", "resuming"):
                self._ready.add(made)
            return made
