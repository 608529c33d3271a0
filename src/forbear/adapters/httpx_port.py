"""Port for the httpx family: how a call is prepared, judged and handed over. Floor: acts.

One class for both libraries; httpx_io.py adds the input and output of each colour. ``_list`` of
Headers is read, since ``raw`` makes a new list of all lines.
"""

from __future__ import annotations

from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..core.headers.hints import READ_OCTETS
from ..core.outcome import Failure, FailureKind, Phase
from ..core.record import SETTING
from ..sending import context as tests
from ..sending import resumption
from ..sending.headers import announced, new_headers, next_lines, stop_outer
from ..sending.port import Port, is_final
from ..sending.settings import OFF
from .httpx_errors import classify, free_lost_slots, is_inside, status_error
from .httpx_request import (
    HOP,
    AsyncBodyGuard,
    BodyGuard,
    Hop,
    HttpxRequest,
    Outgoing,
    Timeouts,
    copied,
    mark_redirect,
    origin_of_url,
    wants_guard,
)
from .httpx_streams import LATE, WHOLE

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.headers.ranges import Part
    from ..core.policy import RetryPolicy
    from ..core.record import Story
    from ..sending.bodies import ConsumedBody
    from ..sending.context import Scope
    from ..sending.settings import Settings
    from .httpx_library import Library, Streams

__all__ = ["HttpxPort"]

NAME = itemgetter(1)
PAIR = itemgetter(0, 2)


class HttpxPort(Port):
    """The part that both colours share."""

    def __init__(self, settings: Settings, library: Library, inner: Any, streams: Streams) -> None:
        super().__init__(settings)
        self.guard, self.bounded = streams.guard, streams.bounded
        self.prefetched, self.resuming = streams.prefetched, streams.resuming
        self.library, self.inner = library, inner
        self.circuit_open_error = library.circuit_open_error
        self.deadline_exceeded = library.deadline_exceeded
        self.byte_stream, self.ready = library.byte_stream, library.ready
        self.before_attempt: Any = settings.before_attempt
        self.prefetch, self.resumes = settings.prefetch, settings.resume
        self.length_line = 0  # of the heads of answers, where the last one told its length
        keys = settings.idempotency
        self.adds_headers = settings.contact is not None or (keys is not None and keys.generate)

    # A call begins.

    def prepare(self, request: Any, started_at: float, scope: Scope | None) -> Outgoing:
        """Say what is sent in the place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
        """
        library, context = self.library, scope
        if not isinstance(request, library.module.Request):
            raise TypeError(
                f"a transport of forbear.{library.name} got a request of"
                f" {type(request).__module__.partition('.')[0]}: mount the other family's"
            )
        if tests.everywhere is not None:
            context = tests.with_everywhere(scope)
        setting, hop = None, None
        given = request.extensions
        if SETTING in given:
            setting, hop = given[SETTING], given.get(HOP)
            if hop is not None and not (isinstance(hop, Hop) and hop.continues_in(request)):
                hop = None
        policy, deadline_at = self.resolve(context, setting, started_at)
        if hop is not None:
            deadline_at = min(hop.deadline_at, deadline_at)
        guard = None
        stream = request.stream
        if type(stream) is not self.byte_stream and policy is not OFF and wants_guard(stream):
            guard = self._guarded(stream, hop)
        headers: Any = ()
        key: Any = ()
        if self.adds_headers and policy is not OFF:
            headers, key = new_headers(self.settings, self.view_of(request))
            if key and hop is not None and hop.key and hop.key_origin == origin_of_url(request.url):
                key = hop.key
            headers.extend(key)
        is_bounded = deadline_at != inf or policy.attempt_timeout is not None
        sent = request
        if is_bounded or headers or guard is not None:
            sent = copied(request, library, headers or None)
        outgoing = Outgoing(sent, policy, deadline_at)
        if is_bounded:
            if deadline_at <= started_at:
                raise self.too_late(self.call_of(request, outgoing, started_at, scope))
            self._bound(outgoing)
        if guard is not None:
            outgoing.guard = sent.stream = guard
        if context is not None and context.incoming is not None and policy is not OFF:
            written = request.headers.__contains__
            lines = announced(self.settings, context, 1, deadline_at, written)
            if lines:
                outgoing.request = copied(outgoing.pristine, self.library, lines)
        if hop is not None:
            outgoing.hop = hop
        if key:
            outgoing.key = key
        return outgoing

    def _guarded(self, stream: Any, hop: Hop | None) -> Any:
        if isinstance(stream, (BodyGuard, AsyncBodyGuard)):  # of a forbear above us
            return stream
        if hop is not None and hop.body is not None and hop.body.covers(stream):
            return hop.body  # it knows what the hops before have read
        return self.guard(stream, self.settings.body_buffer)

    def _bound(self, outgoing: Outgoing) -> None:
        """Let the timeouts of what is sent know the deadline."""
        extensions = outgoing.pristine.extensions
        outgoing.timeouts = extensions["timeout"] = Timeouts(
            extensions.get("timeout") or {},
            self.clock,
            outgoing.deadline_at,
            outgoing.policy.attempt_timeout,
        )

    def view_of(self, request: Any) -> HttpxRequest:
        """Return the questions that a decision asks about a request."""
        url = request.url
        view = HttpxRequest(
            request.method, origin_of_url(url), request.headers, self.settings.key_names, url
        )
        view.original = request
        return view

    def call_of(
        self, request: Any, outgoing: Outgoing | None, started_at: float, scope: Scope | None
    ) -> Call:
        """Begin a call."""
        call = self.new_call(self.view_of(request), started_at, scope, outgoing)
        if outgoing is not None:
            call.request.headers = outgoing.request.headers
            if outgoing.hop is not None:
                call.attempts = call.sent_before = outgoing.hop.retries_used
        return call

    def _outgoing_of(self, call: Call) -> Outgoing:
        """Make the copy to send for a call that has sent the client's own request so far."""
        outgoing: Outgoing | None = call.outgoing
        if outgoing is None:
            original = call.request.original
            copy = copied(original, self.library)
            outgoing = call.outgoing = Outgoing(copy, call.policy, call.deadline_at)
        return outgoing

    # Each attempt.

    def next_request(self, call: Call) -> Any:
        """Return the request to send now: to the call's origin, with this attempt's headers."""
        outgoing: Outgoing | None = call.outgoing
        original = call.request.original
        moves = call.origin != call.sent_to
        if self.sends_alike and not moves and call.context is None and call.resumption is None:
            return original if outgoing is None else outgoing.request
        if moves:
            outgoing = self._outgoing_of(call)
            self._aim(call, outgoing)
        lines = next_lines(self.settings, call, original.headers.__contains__)
        if lines or (self.before_attempt is not None and call.history):  # on a fresh copy
            outgoing = self._outgoing_of(call)
            outgoing.request = copied(outgoing.pristine, self.library, lines)
            call.request.headers = outgoing.request.headers
        elif outgoing is not None:
            outgoing.request = outgoing.pristine
        return original if outgoing is None else outgoing.request

    def _aim(self, call: Call, outgoing: Outgoing) -> None:
        """Let the request go where the call goes now."""
        request = outgoing.pristine
        scheme, _, host = call.origin.partition("://")
        host, _, port = host.rpartition(":")
        url = request.url.copy_with(scheme=scheme, host=host.strip("[]"), port=int(port))
        # A Host header that names another host than the URL is the caller's own, for every origin.
        named = request.headers.get("host") == request.url.netloc.decode("ascii")
        host_line = [("Host", url.netloc.decode("ascii"))] if named else ()
        outgoing.request = outgoing.pristine = copied(request, self.library, host_line or None, url)
        call.request.headers = outgoing.request.headers

    def sent_request(self, call: Call) -> Any:
        """The request that was sent last."""
        return call.request.original if call.outgoing is None else call.outgoing.request

    def consumed(self, outgoing: Outgoing, error: ConsumedBody, *, first: bool) -> Exception:
        """The library's error for a body that would have been read a second time."""
        module = self.library.module
        if outgoing.hop is not None and first and outgoing.guard.generated:
            # An earlier hop of a redirect has read it: the error that the client raises without us.
            return module.StreamConsumed()  # type: ignore[no-any-return]
        return module.RemoteProtocolError(f"The request cannot be sent again: {error}.")  # type: ignore[no-any-return]

    def reads_ahead(self, response: Any, policy: RetryPolicy) -> bool:
        """Is the answer likely to be accepted, and its body to be read before it is?"""
        return (
            self.prefetch > 0
            and response.status_code not in policy.statuses
            and type(response.stream) not in self.ready
            and policy is not OFF
        )

    def begins(self, request: Any, now: float) -> bool:
        """Tell the gate of a new call; False: others than the gate have to be asked too."""
        gate = self.limits.gate
        if gate is None or self.limits.shared is not gate:
            return False
        gate.begin(origin_of_url(request.url), now)
        return True

    def succeeded(
        self,
        request: Any,
        response: Any,
        outgoing: Outgoing | None,
        started_at: float,
        scope: Scope | None,
        ahead: Any,
    ) -> Exception | bool | None:
        """End a call whose first answer is below 300.

        Returns:
            None: it is ended. Else the call goes on: the error that broke the body while it was
            read ahead, or True: ``retry_if`` calls the answer a failure.
        """
        if self.retry_if is not None:
            response.request = request if outgoing is None else outgoing.request
            if self.is_flagged(response):
                return True
        if ahead is not WHOLE:
            if isinstance(ahead, Exception):
                return ahead
            if self.resumes and (outgoing is None or outgoing.policy is not OFF):
                source = request, outgoing, started_at, scope
                self._let_resume(request.method, response, ahead, source)
        if outgoing is not None:
            self.reopen(outgoing, response, scope)
        settings = self.settings
        if settings.limits.counts_calls:
            settings.limits.count_call()
        gate = settings.limits.gate
        if gate is not None and not gate.quiet:
            gate.good(origin_of_url(request.url), self.clock.monotonic(), retry=False)
        if settings.tell.hears_calls:
            settings.tell.succeeded_at_once(
                request.method,
                origin_of_url(request.url),
                response.status_code,
                self.clock.monotonic() - started_at,
            )
        return None

    def note_ahead(self, call: Call, outcome: Any) -> None:
        """Note what came of reading the body ahead."""
        call.ahead = outcome
        if isinstance(outcome, Exception):
            call.body_error = outcome

    # After each attempt.

    def judge(self, call: Call, response: Any) -> Failure | None:
        status: int = response.status_code
        if status < 400 and self.retry_if is None and call.body_error is None:
            call.status = status
            return None
        if self.retry_if is not None and call.flagged is None:
            response.request = self.sent_request(call)
        try:
            headers = response.headers._list
        except AttributeError:
            headers = [(name, name.lower(), value) for name, value in response.headers.raw]
        lines = ()
        if not READ_OCTETS.isdisjoint(map(NAME, headers)):
            lines = tuple(map(PAIR, headers))
        return self.failure_of(call, response, status, lines, response.extensions.get(SETTING))

    def meaning(self, call: Call, error: Exception) -> Failure:
        guard = call.guard
        if guard is not None and guard.error is not None and is_inside(error, guard.error):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        failure = classify(error, self.library.roots)
        if failure.kind is FailureKind.POOL or failure.kind is FailureKind.TIMEOUT:
            free_lost_slots(self.inner)
        return failure

    def is_quick(self, call: Call, response: Any) -> bool:
        """May the rest of a failed answer be worth reading?"""
        if call.ahead is not None and call.ahead is not WHOLE:
            return False
        # Closing a stream of HTTP/2 leaves the connection to the others.
        return bool(response.extensions.get("http_version") != b"HTTP/2")

    # The end.

    def finish(self, call: Call, response: Any) -> None:
        """Everything about a hand-over that needs no I/O."""
        outgoing = call.outgoing
        if self.has_story(call):
            now = self.clock.monotonic()
            # A forbear below has told its story already; ours adds nothing if it only passed on.
            if not (len(call.history) == 1 and is_final(response.extensions.get(SETTING))):
                response.extensions[SETTING] = call.story(now)
            if call.stop is None:
                self.settings.tell.succeeded(call, now, call.listeners)
            elif call.body_error is not None:
                # The body broke while it was read ahead, and is not asked for again: the caller
                # meets the error where the body breaks, as without us.
                error = self.last_error(call, call.body_error)
                if self.wants_status_error(call) or error is not call.body_error:
                    raise error
            stop_outer(self.settings, call, response.headers)
        if 300 <= response.status_code < 400:
            mark_redirect(call, response)
        elif self.resumes and call.policy is not OFF:
            self._let_resume(call.request.method, response, call.ahead, call)
        if outgoing is not None:
            self.reopen(outgoing, response, call.context, call)

    def _let_resume(self, method: str, response: Any, ahead: Any, source: Any) -> None:
        """Let the body of a GET go on where it breaks, if it is still to come."""
        is_live = ahead is LATE or (ahead is None and type(response.stream) not in self.ready)
        if is_live and method == "GET" and response.status_code in (200, 206):
            response.stream = self.resuming(self, response, source)

    def reopen(
        self, outgoing: Outgoing, response: Any, context: Scope | None, call: Call | None = None
    ) -> None:
        """Let a body that the caller streams run under ``forbear.deadline`` alone."""
        timeouts = outgoing.timeouts
        if timeouts is None:
            return
        if context is None or not context.has_deadline():
            timeouts.reopen()
            return
        now = self.clock.monotonic()
        timeouts.reopen(context.deadline_on(self.clock, now))

        def exceeded(message: str) -> Exception:
            whose = call or self.call_of(outgoing.request, outgoing, now, context)
            return self.deadline_error(whose, message)

        response.stream = self.bounded(response.stream, timeouts, exceeded)

    def rest_of(self, call: Call, response: Any) -> Part:
        """Say what the answer is to the download that is being resumed."""
        part = resumption.take_up(self, call, response.status_code, response.headers.raw)
        if call.outgoing is not None and call.outgoing.timeouts is not None:
            call.outgoing.timeouts.reopen(call.deadline_at)
        return part

    def resume(self, call: Call, error: Exception, received: int, *, progressed: bool) -> None:
        resumption.begin(self, call, error, received, progressed=progressed)
        outgoing = self._outgoing_of(call)
        outgoing.deadline_at = call.deadline_at
        outgoing.pristine = copied(outgoing.pristine, self.library)
        outgoing.pristine.extensions.update(call.request.original.extensions)
        outgoing.timeouts = None
        if call.deadline_at != inf or call.policy.attempt_timeout is not None:
            self._bound(outgoing)

    def status_error(self, call: Call, response: Any, body: list[bytes] | None) -> Exception:
        """Make the library's own error for the answer that the call ends with."""
        found = None if body is None else b"".join(body)
        error = status_error(self.library.module, call.request.original, response, found)
        return self.with_story(call, error)

    def closed_error(self) -> Exception:
        error: Exception = self.library.module.TransportError(
            "The transport was closed before the request was sent."
        )
        return error

    def bare_response(self, call: Call, status: int | None, story: Story) -> Any:
        original, extensions = call.request.original, {SETTING: story}
        return self.library.module.Response(status, request=original, extensions=extensions)
