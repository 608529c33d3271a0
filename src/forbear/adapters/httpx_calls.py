"""Calls of the httpx family: how a call begins, and what each attempt sends. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.record import SETTING
from ..sending import context as tests
from ..sending.headers import announced, new_headers, next_lines
from ..sending.port import Port
from ..sending.settings import OFF
from .httpx_request import (
    BODY,
    HOP,
    AsyncBodyGuard,
    BodyGuard,
    Hop,
    HttpxRequest,
    Outgoing,
    copied,
    origin_of_url,
    wants_guard,
)

if TYPE_CHECKING:
    from ..core.call import Call
    from ..sending.context import Scope
    from ..sending.settings import Settings
    from .httpx_library import Library, Streams

__all__ = ["HttpxCalls"]


class HttpxCalls(Port):
    """The part of a port that makes what is sent."""

    def __init__(self, settings: Settings, library: Library, inner: Any, streams: Streams) -> None:
        super().__init__(settings)
        # CPython finds the attributes of an object slowly once there are more than 30.
        self.streams, self.timeouts = streams, streams.timeouts
        self.library, self.inner = library, inner
        self.byte_stream, self.request_class = library.byte_stream, library.module.Request
        self.before_attempt: Any = settings.before_attempt
        self.origin_of = origin_of_url  # as a static method it would be looked up slowly
        keys = settings.idempotency
        self.adds_headers = settings.contact is not None or (keys is not None and keys.generate)

    # A call begins.

    def prepare(self, request: Any, started_at: float, scope: Scope | None) -> Outgoing:
        """Say what is sent in the place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
        """
        context = scope
        if not isinstance(request, self.request_class):
            raise TypeError(
                f"a transport of forbear.{self.library.name} got a request of"
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
            guard = self._guarded(stream, given.get(BODY))
        outgoing = Outgoing(request, policy, deadline_at)
        headers: Any = None
        if self.adds_headers and policy is not OFF:
            headers, key = new_headers(self.settings, self.view_of(request))
            if key and hop is not None and hop.key and hop.key_origin == origin_of_url(request.url):
                key = hop.key
            headers = [*headers, *key] or None
            outgoing.key = key
        is_bounded = deadline_at != inf or policy.attempt_timeout is not None
        if is_bounded or headers or guard is not None:
            outgoing.request = outgoing.pristine = copied(request, self.library, headers)
        if is_bounded:
            if deadline_at <= started_at:
                raise self.too_late(self.call_of(request, outgoing, started_at, scope))
            self.bound(outgoing, guard)
        if guard is not None:
            outgoing.guard = outgoing.pristine.stream = guard
        if context is not None:
            if is_bounded and context.has_deadline():
                outgoing.hurries = True
            if context.incoming is not None and policy is not OFF:
                written = request.headers.__contains__
                lines = announced(self.settings, context, 1, deadline_at, written)
                if lines:
                    outgoing.request = copied(outgoing.pristine, self.library, lines)
        if hop is not None:
            outgoing.hop = hop
        return outgoing

    def _guarded(self, stream: Any, known: Any) -> Any:
        if isinstance(stream, (BodyGuard, AsyncBodyGuard)):  # of a forbear above us
            return stream
        if known is not None and known.covers(stream):
            known.was_sent = True
            return known  # it knows what the calls before have read
        return self.streams.guard(stream, self.settings.body_buffer)

    def bound(self, outgoing: Outgoing, guard: Any) -> None:
        """Let the timeouts of what is sent, and the guard of its body, know the deadline."""
        extensions, deadline_at = outgoing.pristine.extensions, outgoing.deadline_at
        timeouts = outgoing.timeouts = extensions["timeout"] = self.timeouts(
            extensions.get("timeout") or {},
            self.clock,
            deadline_at,
            outgoing.policy.attempt_timeout,
        )
        if deadline_at != inf:
            if "trace" in extensions:
                timeouts.trace = extensions["trace"]
            extensions["trace"] = timeouts
        if guard is not None:
            guard.clock, guard.deadline_at = self.clock, deadline_at

    def view_of(self, request: Any) -> HttpxRequest:
        """Return the questions that a decision asks about a request."""
        url, names = request.url, self.settings.key_names
        origin = origin_of_url(url)
        return HttpxRequest(request.method, origin, request.headers, names, url, request)

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

    def outgoing_of(self, call: Call) -> Outgoing:
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
        original, moves = call.request.original, call.origin != call.sent_to
        if self.sends_alike and not moves and call.context is None and call.resumption is None:
            return original if outgoing is None else outgoing.request
        if moves:
            outgoing = self.outgoing_of(call)
            self._aim(call, outgoing)
        lines = next_lines(self.settings, call, original.headers.__contains__)
        if lines or (self.before_attempt is not None and call.history):  # on a fresh copy
            outgoing = self.outgoing_of(call)
            outgoing.request = copied(outgoing.pristine, self.library, lines)
            call.request.headers = outgoing.request.headers
        elif outgoing is not None:
            outgoing.request = outgoing.pristine
        return original if outgoing is None else outgoing.request

    def _aim(self, call: Call, outgoing: Outgoing) -> None:
        """Let the request go where the call goes now."""
        outgoing.request = outgoing.pristine = self.aimed(outgoing.pristine, call.origin)
        call.request.headers = outgoing.request.headers

    def aimed(self, request: Any, origin: str) -> Any:
        """Copy a request for another origin."""
        scheme, _, host = origin.partition("://")
        host, _, port = host.rpartition(":")
        url = request.url.copy_with(scheme=scheme, host=host.strip("[]"), port=int(port))
        # A Host header that names another host than the URL is the caller's own, for every origin.
        named = request.headers.get("host") == request.url.netloc.decode("ascii")
        host_line = [("Host", url.netloc.decode("ascii"))] if named else ()
        return copied(request, self.library, host_line or None, url)

    def sent_request(self, call: Call) -> Any:
        """The request that was sent last."""
        return call.request.original if call.outgoing is None else call.outgoing.request
