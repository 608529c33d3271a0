"""Calls of the httpx family: how a call begins, and how its request is copied. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.record import SETTING
from ..sending.copying import CopyingPort
from .httpx_errors import classify
from .httpx_request import (
    BODY,
    HOP,
    AsyncBodyGuard,
    BodyGuard,
    Hop,
    HttpxRequest,
    origin_of_url,
    wants_guard,
)

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.outcome import FailureKind
    from ..sending.context import Scope
    from ..sending.copying import Outgoing
    from ..sending.settings import Settings
    from .httpx_library import Library, Streams

__all__ = ["HttpxCalls"]


class HttpxCalls(CopyingPort):
    """The part of a port that makes what is sent."""

    body_name, story_name = "stream", SETTING

    def __init__(self, settings: Settings, library: Library, inner: Any, streams: Streams) -> None:
        super().__init__(settings)
        # CPython finds the attributes of an object slowly once there are more than 30.
        self.streams, self.timeouts = streams, streams.timeouts
        self.library, self.inner = library, inner
        self.byte_stream, self.request_class = library.byte_stream, library.module.Request
        self.origin_of = origin_of_url  # as a static method it would be looked up slowly

    def prepare(self, request: Any, started_at: float, scope: Scope | None) -> Outgoing:
        """Say what is sent in the place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
        """
        if not isinstance(request, self.request_class):
            raise TypeError(
                f"a transport of forbear.{self.library.name} got a request of"
                f" {type(request).__module__.partition('.')[0]}: mount the other family's"
            )
        setting = hop = None
        given, body = request.extensions, request.stream
        if SETTING in given:
            setting, hop = given[SETTING], given.get(HOP)
            if hop is not None and not (isinstance(hop, Hop) and hop.continues_in(request)):
                hop = None
        if type(body) is self.byte_stream or not wants_guard(body):
            body = None
        return self.outgoing_for(request, request, body, started_at, scope, setting, hop)

    def guard_of(self, request: Any, body: Any, hop: Any) -> Any:
        if isinstance(body, (BodyGuard, AsyncBodyGuard)):  # of a forbear above us
            return body
        known = request.extensions.get(BODY)
        if known is not None and known.covers(body):
            known.was_sent = True
            return known  # it knows what the calls before have read
        return self.streams.guard(body, self.settings.body_buffer)

    def bound(self, outgoing: Outgoing) -> None:
        """Let the timeouts of what is sent know the deadline."""
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

    def view_of(self, request: Any) -> HttpxRequest:
        """Return the questions that a decision asks about a request."""
        url, names = request.url, self.settings.key_names
        origin = origin_of_url(url)
        return HttpxRequest(request.method, origin, request.headers, names, url, request)

    def copied(self, request: Any, lines: Any = None, url: Any = None) -> Any:
        copy = object.__new__(type(request))
        fields = copy.__dict__ = vars(request).copy()  # the constructor would encode the body anew
        fields["extensions"] = dict(request.extensions)
        if lines is not None:
            fields["headers"] = made = self.library.module.Headers(request.headers)
            for name, value in lines:
                made[name] = value
        if url is not None:
            fields["url"] = url
        return copy

    def kind_of(self, error: Exception) -> FailureKind:
        return classify(error, self.library.roots).kind

    def moved(self, url: Any, scheme: str, host: str, port: int) -> Any:
        return url.copy_with(scheme=scheme, host=host, port=port)

    def host_of(self, url: Any) -> str:
        return url.netloc.decode("ascii")  # type: ignore[no-any-return]

    def resume(self, call: Call, error: Exception, received: int, *, progressed: bool) -> None:
        outgoing = self.outgoing_of(call)
        outgoing.pristine = self.copied(outgoing.pristine)
        outgoing.pristine.extensions.update(call.request.original.extensions)
        super().resume(call, error, received, progressed=progressed)
