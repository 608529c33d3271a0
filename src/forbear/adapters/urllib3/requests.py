"""Port for requests: how an adapter sends once, reads a body, and raises what broke that."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import requests
from requests import PreparedRequest
from requests.cookies import extract_cookies_to_jar, get_cookie_header
from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError, ReadTimeoutError
from urllib3.util import Timeout

from ...engine.calls import wants_status_error
from .port import Urllib3Port, Urllib3Request, origin_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.cookiejar import CookieJar
    from weakref import ref

    from ...core.call import Call
    from .guard import Body

    Timeouts = float | tuple[float | None, float | None] | Timeout | None
    Cert = bytes | str | tuple[bytes | str, bytes | str] | None
    Proxies = Mapping[str, str] | None
    Source = tuple[PreparedRequest, bool, Timeouts, bool | str, Cert, Proxies]


class RequestsPort(Urllib3Port[requests.PreparedRequest, requests.Response]):
    """The port of one adapter."""

    status_of = staticmethod(attrgetter("status_code"))
    raw_of = staticmethod(attrgetter("raw"))
    is_redirect = staticmethod(attrgetter("is_redirect"))

    send_once: Callable[[Source], requests.Response]  # of the adapter
    session: ref[requests.Session] | None = None  # that it was mounted in, if known

    def view_of(self, source: Source) -> Urllib3Request:
        request, streams, timeout, *arguments = source
        method, names = request.method or "GET", self.settings.key_names
        origin = origin_at(request.url)
        view = Urllib3Request(method, origin, request.headers, names, request.url, request)
        view.streams, view.timeout, view.arguments = streams, timeout, arguments
        return view

    def guard_of(self, request: PreparedRequest, body: object, hop: object) -> Body:
        from .guard import guard_of

        return guard_of(body, request._body_position, self.settings.body_buffer)

    def move(self, request: PreparedRequest, url: str) -> None:
        request.url = url

    def send_as(
        self, view: Urllib3Request, limits: object, request: PreparedRequest, timeout: Timeouts
    ) -> requests.Response:
        verify, cert, proxies = view.arguments
        return self.send_once((request, view.streams, timeout, verify, cert, proxies))

    def keep_cookies(self, call: Call, response: requests.Response) -> None:
        session = None if self.session is None else self.session()
        if session is None:
            return
        jar: CookieJar = session.cookies
        original = call.request.original
        fresh = original.copy()
        fresh.headers.pop("Cookie", None)  # else the jar gives nothing
        before = get_cookie_header(jar, fresh) or ""
        extract_cookies_to_jar(jar, original, response.raw)
        after = get_cookie_header(jar, fresh) or ""
        from ...engine.prepare import renew_cookies

        renew_cookies(self, call, before, after)

    def load(self, request: object, response: requests.Response) -> None:
        try:
            _ = response.content
        except BaseException as error:
            response.close()
            # A session follows a redirect whose body cannot be read.
            if not (response.is_redirect and isinstance(error, requests.RequestException)):
                raise

    def with_raw(self, response: requests.Response, raw: HTTPResponse) -> requests.Response:
        response.raw = raw
        return response

    def copy_of(self, response: requests.Response, raw: HTTPResponse) -> requests.Response:
        copy = object.__new__(type(response))
        vars(copy).update(vars(response))
        return self.with_raw(copy, raw)

    def final_error(self, call: Call, error: Exception) -> Exception:
        is_handed_over = error is call.body_error and not wants_status_error(call)
        is_late = isinstance(error, ReadTimeoutError)
        if (is_late or isinstance(error, ProtocolError)) and not is_handed_over:  # as requests does
            family = requests.exceptions
            made = family.ConnectionError if is_late else family.ChunkedEncodingError
            return made(error)
        return error

    def consumed(self, call: Call, error: Exception) -> Exception:
        message = f"The request cannot be resent: {error}."
        return requests.ConnectionError(message, request=call.request.original)

    def status_error(
        self, call: Call, response: requests.Response, body: list[bytes] | None
    ) -> Exception:
        if isinstance(response.raw, HTTPResponse):  # else it was read by the adapter below
            response = self.with_body(response, body)
        attempts = len(call.history)
        message = f"{response.status_code} after {attempts} attempt{'s' * (attempts > 1)}"
        return requests.HTTPError(message, request=response.request, response=response)

    def closed_error(self) -> Exception:
        return requests.ConnectionError("The adapter was closed while the call waited.")
