"""Port for the httpx family: how an answer is judged and handed over. Floor: acts.

One class for both libraries; httpx_calls.py makes what is sent, httpx_io.py adds the input and
output of each colour. ``_list`` of
Headers is read, since ``raw`` makes a new list of all lines.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from ..core.headers.hints import READ_OCTETS
from ..core.outcome import Failure, FailureKind, Phase
from ..core.record import SETTING
from ..sending import resumption
from ..sending.asking import Asking
from ..sending.headers import stop_outer
from ..sending.looking import WHOLE
from ..sending.settings import OFF
from .httpx_calls import HttpxCalls
from .httpx_errors import classify, free_lost_slots, is_inside, status_error
from .httpx_request import BODY, mark_redirect

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.headers.ranges import Part
    from ..core.policy import RetryPolicy
    from ..core.record import Story
    from ..sending.bodies import ConsumedBody
    from ..sending.context import Scope
    from ..sending.copying import Outgoing
    from ..sending.settings import Settings
    from .httpx_library import Library, Streams

__all__ = ["HttpxPort"]

NAME = itemgetter(1)
PAIR = itemgetter(0, 2)


class HttpxPort(HttpxCalls, Asking):
    """The part that both colours share."""

    status_of = staticmethod(attrgetter("status_code"))

    def __init__(self, settings: Settings, library: Library, inner: Any, streams: Streams) -> None:
        super().__init__(settings, library, inner, streams)
        self.prefetched = streams.prefetched
        self.circuit_open_error = library.circuit_open_error
        self.deadline_exceeded = library.deadline_exceeded
        self.ready = library.ready
        self.prefetch = settings.prefetch
        self.looks_at_bodies = settings.prefetch > 0 or settings.resume
        self.length_line = 0  # of the heads of answers, where the last one told its length

    # Each attempt.

    def consumed(self, outgoing: Any, error: ConsumedBody, *, first: bool) -> Exception:
        """The library's error for a body that would have been read a second time."""
        module = self.library.module
        if outgoing.guard.was_sent and first and outgoing.guard.generated:
            # An earlier call has read it: the error that the client raises without us.
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

    def succeeded(
        self,
        request: Any,
        response: Any,
        outgoing: Outgoing | None,
        started_at: float,
        scope: Scope | None,
        ahead: Any,
    ) -> Any:
        """End a call whose first answer is below 300.

        Returns:
            None: it is ended. Else the call goes on: the error that broke the body while it was
            read ahead, or the question to ``retry_if``: it calls the answer a failure, or is to be
            awaited.
        """
        if self.retry_if is not None and not isinstance(ahead, Exception):
            assert outgoing is not None
            peek = self.ask(outgoing.request, response, outgoing.deadline_at, ahead)
            ahead = peek.ahead
            if (peek.answer or peek.is_wanted) and not isinstance(ahead, Exception):
                return peek
        if ahead is not WHOLE:
            if isinstance(ahead, Exception):
                return ahead
            if self.looks_at_bodies and (outgoing is None or outgoing.policy is not OFF):
                self._look_after(response, (request, outgoing, started_at, scope))
        if outgoing is not None:
            if outgoing.hurries:
                self.reopen(outgoing, response, scope)
            elif outgoing.timeouts is not None:
                outgoing.timeouts.reopen()
        if not (self.is_plain and self.limits.shared.quiet):
            self.note_success(request.method, request.url, response.status_code, started_at)
        return None

    def peek_of(self, request: Any, response: Any, deadline_at: float, ahead: Any) -> Any:
        return self.streams.peek(self, request, response, deadline_at, ahead)

    # After each attempt.

    def judge(self, call: Call, response: Any) -> Failure | None:
        status: int = response.status_code
        if status < 400 and not call.opinion and call.body_error is None:
            call.status = status
            return None
        try:
            headers = response.headers._list
        except AttributeError:
            headers = [(name, name.lower(), value) for name, value in response.headers.raw]
        lines = ()
        if not READ_OCTETS.isdisjoint(map(NAME, headers)):
            lines = tuple(map(PAIR, headers))
        return self.failure_of(call, status, lines, response.extensions.get(SETTING))

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
        return response.extensions.get("http_version") != b"HTTP/2"  # type: ignore[no-any-return]

    # The end.

    def finish(self, call: Call, response: Any) -> None:
        """Everything about a hand-over that needs no I/O."""
        outgoing = call.outgoing
        self.conclude(call, response.extensions)
        if call.stop is not None:
            stop_outer(self.settings, call, response.headers)
        if 300 <= response.status_code < 400:
            mark_redirect(call, response)
        if self.looks_at_bodies and call.ahead is not WHOLE and call.policy is not OFF:
            self._look_after(response, call)
        if outgoing is not None:
            if outgoing.guard is not None and response.status_code >= 300:
                call.request.original.extensions[BODY] = outgoing.guard
            self.reopen(outgoing, response, call.context, call)

    def _look_after(self, response: Any, source: Any) -> None:
        """Let a body that is still to come go on where it breaks, or its error have a story."""
        stream = response.stream
        if type(stream) not in self.ready or (
            type(stream) is self.prefetched and not stream.is_whole()
        ):
            response.stream = self.streams.resuming(self, response, source)

    def reopen(
        self, outgoing: Outgoing, response: Any, context: Scope | None, call: Call | None = None
    ) -> None:
        """Let a body that the caller streams run under ``forbear.deadline`` alone."""
        timeouts = outgoing.timeouts
        if timeouts is None:
            return
        if context is None or not outgoing.hurries:
            timeouts.reopen()
            return
        now = self.clock.monotonic()
        timeouts.reopen(context.deadline_on(self.clock, now))

        def exceeded(error: str = "DeadlineExceeded") -> Exception:
            whose = call or self.call_of(outgoing.request, outgoing, now, context)
            return self.body_is_late(whose, error)

        response.stream = self.streams.bounded(response.stream, timeouts, exceeded)

    def rest_of(self, call: Call, response: Any) -> Part:
        """Say what the answer is to the download that is being resumed."""
        part = resumption.take_up(self, call, response.status_code, response.headers.raw)
        if call.outgoing is not None and call.outgoing.timeouts is not None:
            call.outgoing.timeouts.reopen(call.deadline_at)
        return part

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
