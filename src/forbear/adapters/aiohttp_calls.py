"""Calls of aiohttp: how a call begins, and how its request is copied. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.record import RECORD
from ..sending.copying import CopyingPort
from .aiohttp_errors import classify
from .aiohttp_request import LAST_HOP, PLAIN, AiohttpRequest, Guard, Timeouts, origin_of_url

if TYPE_CHECKING:
    from ..core.outcome import FailureKind
    from ..sending.context import Scope
    from ..sending.copying import Outgoing

__all__ = ["AiohttpCalls"]


class AiohttpCalls(CopyingPort):
    """The part of a port that makes what is sent."""

    body_name, story_name = "_body", RECORD

    def prepare(self, source: Any, started_at: float, scope: Scope | None, setting: Any) -> Any:
        """Say what is sent in the place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
            Whatever ended this very call: the session sends once more by itself.
        """
        request, hop = source[0], LAST_HOP.get()
        if hop is not None:
            LAST_HOP.set(None)
            if hop.timer is not request._timer or hop.port is not self:
                hop = None
            elif hop.error is not None:
                raise hop.error
        body = None if type(request.body) in PLAIN else request.body
        return self.outgoing_for(source, request, body, started_at, scope, setting, hop)

    def guard_of(self, request: Any, body: Any, hop: Any) -> Any:
        if isinstance(body, Guard):  # of a forbear above us
            return body
        guard = None if hop is None else hop.guard
        if guard is not None and guard.payload is body:
            return guard
        return Guard(body, self.settings.body_buffer)

    def bound(self, outgoing: Outgoing) -> None:
        each = outgoing.policy.attempt_timeout
        outgoing.timeouts = Timeouts(self.clock, outgoing.deadline_at, each)

    def view_of(self, source: Any) -> AiohttpRequest:
        (request, handler), names = source, self.settings.key_names
        url = request.url
        origin = origin_of_url(url)
        view = AiohttpRequest(request.method, origin, request.headers, names, url, request)
        view.handler = handler
        return view

    def copied(self, request: Any, lines: Any = None, url: Any = None) -> Any:
        copy = object.__new__(type(request))  # the constructor would make the body anew
        fields = copy.__dict__ = vars(request).copy()
        fields["headers"] = headers = request.headers.copy()
        for name, value in lines or ():
            headers[name] = value
        if url is not None:
            fields["url"] = fields["original_url"] = url
        return copy

    def kind_of(self, error: Exception) -> FailureKind:
        return classify(error).kind

    def moved(self, url: Any, scheme: str, host: str, port: int) -> Any:
        return url.with_scheme(scheme).with_host(host).with_port(port)

    def host_of(self, url: Any) -> str:
        return url.host_port_subcomponent  # type: ignore[no-any-return]
