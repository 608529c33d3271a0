"""Port for requests: how an adapter sends once, and reads what comes. Floor: acts."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from urllib3.util import Timeout

from ..core.record import RECORD, Story
from ..core.request import DEFAULT_PORTS
from .requests_late import Late, bounded
from .urllib3_port import Urllib3Port
from .urllib3_request import Urllib3Request, origin_at

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from ..sending.bodies import ConsumedBody
    from ..sending.settings import Settings

__all__ = ["RequestsPort"]

UNREADABLE = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)


class RequestsRequest(Urllib3Request):
    """The questions that a decision asks about a prepared request."""

    __slots__ = ()

    def path_and_query(self) -> str:
        return self.original.path_url  # type: ignore[no-any-return]


class RequestsPort(Urllib3Port):
    """The port of one adapter."""

    status_of = staticmethod(attrgetter("status_code"))
    raw_of = staticmethod(attrgetter("raw"))
    start_of = staticmethod(attrgetter("_body_position"))
    is_redirect = staticmethod(attrgetter("is_redirect"))

    def __init__(self, settings: Settings, adapter: Any) -> None:
        super().__init__(settings)
        self.adapter = adapter

    def request_of(self, source: Any) -> RequestsRequest:
        request, streams, *arguments = source
        return RequestsRequest(
            request.method or "GET",
            origin_at(request.url),
            request.headers,
            self.settings.key_names,
            original=request,
            streams=streams,
            arguments=arguments,
        )

    def aim(self, call: Call, view: Urllib3Request) -> None:
        copy = view.pristine = view.pristine.copy()
        parts = urlsplit(copy.url)
        scheme, _, netloc = call.origin.partition("://")
        user, at, _ = parts.netloc.rpartition("@")
        netloc = user + at + netloc.removesuffix(f":{DEFAULT_PORTS[scheme]}")
        copy.url = parts._replace(scheme=scheme, netloc=netloc).geturl()

    def transmit(self, call: Call, request: Any) -> Any:
        view: Any = call.request
        timeout = view.arguments[0]
        # requests says what is wrong with a timeout of other than two parts.
        if not self.is_bounded(call) or (isinstance(timeout, tuple) and len(timeout) != 2):
            return self.adapter.send_once(request, view.streams, *view.arguments)
        with self.punctually(call):
            return self.adapter.send_once(request, True, self.bounded(call), *view.arguments[1:])

    def loads(self, view: Any, policy: RetryPolicy, response: Any) -> bool:
        # A session follows a redirect whose body cannot be read.
        return super().loads(view, policy, response) and not response.is_redirect

    def load(self, request: Any, response: Any) -> None:
        _ = response.content

    def load_last(self, call: Call, response: Any) -> None:
        if not self.is_bounded(call):
            return  # the session reads it
        try:
            _ = response.content
        except UNREADABLE:
            if not response.is_redirect:  # else the session does without it
                raise

    def timeout_of(self, call: Call) -> Timeout:
        """Return the timeout that requests makes of its timeout argument."""
        timeout = call.request.arguments[0]  # type: ignore[attr-defined]
        if isinstance(timeout, Timeout):
            return timeout
        connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        return Timeout(connect=connect, read=read)

    def late(self, call: Call) -> Exception:
        return Late(super().late(call))

    def hand_over(self, call: Call, response: Any) -> Any:
        return bounded(call, super().hand_over(call, response))

    def with_raw(self, response: Any, raw: Any) -> Any:
        response.raw = raw
        return response

    def copy_of(self, response: Any, raw: Any) -> Any:
        copy = object.__new__(type(response))
        vars(copy).update(vars(response))
        return self.with_raw(copy, raw)

    def failed_to_send(self, call: Call, error: ConsumedBody) -> Exception:
        message = f"The request cannot be sent again: {error}."
        return requests.ConnectionError(message, request=call.request.original)

    def status_error(self, call: Call, response: Any) -> Exception:
        try:
            _ = response.content
        except requests.RequestException:  # the status says enough
            response.close()
        message = f"{response.status_code} after {len(call.history)} attempts"
        return requests.HTTPError(message, request=response.request, response=response)

    def closed_error(self) -> Exception:
        return requests.ConnectionError("The adapter was closed before the request was sent.")

    def bare_response(self, call: Call, status: int | None, story: Story) -> Any:
        request = call.request.original
        response: Any = requests.Response()
        response.status_code, response._content = status, b""
        response.url, response.request = request.url or "", request
        setattr(response, RECORD, story)
        return response
