"""Calls of aiohttp: how a call begins, and what each attempt sends. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..sending import context as tests
from ..sending import resumption
from ..sending.headers import announced, new_headers, next_lines
from ..sending.port import Port
from ..sending.settings import OFF
from .aiohttp_request import (
    LAST_HOP,
    PLAIN,
    AiohttpRequest,
    Timeouts,
    copied,
    guarded,
    origin_of_url,
)
from .httpx_request import Outgoing

if TYPE_CHECKING:
    from ..core.call import Call
    from ..sending.context import Scope
    from ..sending.settings import Settings

__all__ = ["AiohttpCalls"]


class AiohttpCalls(Port):
    """The part of a port that makes what is sent."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.before_attempt: Any = settings.before_attempt
        keys = settings.idempotency
        self.adds_headers = settings.contact is not None or (keys is not None and keys.generate)

    # A call begins.

    def prepare(
        self, request: Any, handler: Any, started_at: float, scope: Scope | None, setting: Any
    ) -> Any:
        """Say what is sent in the place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
            Whatever ended this very call: the session sends once more by itself.
        """
        context = scope if tests.everywhere is None else tests.with_everywhere(scope)
        hop = LAST_HOP.get()
        if hop is not None:
            LAST_HOP.set(None)
            if hop.timer is not request._timer or hop.port is not self:
                hop = None
            elif hop.error is not None:
                raise hop.error
        policy, deadline_at = self.resolve(context, setting, started_at)
        if hop is not None:
            deadline_at = min(hop.deadline_at, deadline_at)
        outgoing: Any = Outgoing(request, policy, deadline_at)
        outgoing.hop = hop
        if policy is not OFF and type(request.body) not in PLAIN:
            guard = None if hop is None else hop.guard
            if guard is None or guard.payload is not request.body:
                guard = guarded(request.body, self.settings.body_buffer)
            outgoing.guard = guard
        lines: Any = ()
        if self.adds_headers and policy is not OFF:
            lines, key = new_headers(self.settings, self.view_of(request, handler))
            if key and hop is not None and hop.key and hop.key_origin == origin_of_url(request.url):
                key = hop.key
            lines, outgoing.key = [*lines, *key], key
        is_bounded = deadline_at != inf or policy.attempt_timeout is not None
        if is_bounded or lines or outgoing.guard is not None:
            outgoing.request = outgoing.pristine = copied(request, lines)
        if outgoing.guard is not None:
            outgoing.pristine._body = outgoing.guard
            outgoing.guard.clock, outgoing.guard.deadline_at = self.clock, deadline_at
        if is_bounded:
            outgoing.timeouts = Timeouts(self.clock, deadline_at, policy.attempt_timeout)
            if deadline_at <= started_at:
                raise self.too_late(self.call_of(request, handler, outgoing, started_at, scope))
        if context is not None and context.incoming is not None and policy is not OFF:
            written = request.headers.__contains__
            lines = announced(self.settings, context, 1, deadline_at, written)
            if lines:
                outgoing.request = copied(outgoing.pristine, lines)
        return outgoing

    def view_of(self, request: Any, handler: Any) -> AiohttpRequest:
        url = request.url
        names = self.settings.key_names
        view = AiohttpRequest(request.method, origin_of_url(url), request.headers, names, url)
        view.original, view.handler = request, handler
        return view

    def call_of(self, request: Any, handler: Any, outgoing: Any, at: float, scope: Any) -> Call:
        """Begin a call."""
        call = self.new_call(self.view_of(request, handler), at, scope, outgoing)
        if outgoing is not None:
            call.request.headers = outgoing.request.headers
            if outgoing.hop is not None:
                call.attempts = call.sent_before = outgoing.hop.retries
        return call

    # Each attempt.

    def next_request(self, call: Call) -> Any:
        """Return the request to send now: to the call's origin, with this attempt's headers."""
        outgoing: Outgoing | None = call.outgoing
        original = call.request.original
        if call.origin != call.sent_to:
            outgoing = self._outgoing_of(call)
            self._aim(call, outgoing)
        lines = next_lines(self.settings, call, original.headers.__contains__)
        if lines or (self.before_attempt is not None and call.history):  # on a fresh copy
            outgoing = self._outgoing_of(call)
            outgoing.request = copied(outgoing.pristine, lines)
            call.request.headers = outgoing.request.headers
        elif outgoing is not None:
            outgoing.request = outgoing.pristine
        return self.sent_request(call)

    def _outgoing_of(self, call: Call) -> Outgoing:
        if call.outgoing is None:
            copy = copied(call.request.original)
            call.outgoing = Outgoing(copy, call.policy, call.deadline_at)
        return call.outgoing  # type: ignore[no-any-return]

    def _aim(self, call: Call, outgoing: Outgoing) -> None:
        """Let the request go where the call goes now."""
        request = outgoing.pristine
        scheme, _, host = call.origin.partition("://")
        host, _, port = host.rpartition(":")
        url = request.url.with_scheme(scheme).with_host(host.strip("[]")).with_port(int(port))
        # A Host header that names another host than the URL is the caller's own, for every origin.
        named = request.headers.get("Host") == request.url.host_port_subcomponent
        lines = [("Host", url.host_port_subcomponent)] if named else ()
        outgoing.request = outgoing.pristine = copied(request, lines, url)
        call.request.headers = outgoing.request.headers

    def sent_request(self, call: Call) -> Any:
        """The request that was sent last."""
        return call.request.original if call.outgoing is None else call.outgoing.request

    def resume(self, call: Call, error: Exception, received: int, *, progressed: bool) -> None:
        resumption.begin(self, call, error, received, progressed=progressed)
        outgoing: Any = self._outgoing_of(call)
        outgoing.deadline_at, each = call.deadline_at, call.policy.attempt_timeout
        is_bounded = call.deadline_at != inf or each is not None
        outgoing.timeouts = Timeouts(self.clock, call.deadline_at, each) if is_bounded else None
