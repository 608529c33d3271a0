"""Cookies of failed responses, in the httpx family; loaded with the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.prepare import renew_cookies

if TYPE_CHECKING:
    from httpx import Cookies, Request, Response

    from ...core.call import Call
    from ...engine.port import Port


def keep_cookies(
    port: Port[Request, Response], cookies: Cookies, call: Call, response: Response
) -> None:
    """Store a failed response's cookies (RFC 6265 section 3), and let a retry carry them."""
    raw = response.headers.raw
    lines = [value for name, value in raw if name.lower() == b"set-cookie"]
    if not all(map(bytes.isascii, lines)):
        return  # with such a cookie in its jar a client can make no further request
    original = call.request.original
    before = cookie_for(original, cookies)
    response.request = original
    cookies.extract_cookies(response)
    renew_cookies(port, call, before, cookie_for(original, cookies))


def cookie_for(original: Request, cookies: Cookies) -> str:
    """The ``Cookie`` that the client would send; "" for none."""
    fresh = type(original)(original.method, original.url)
    cookies.set_cookie_header(fresh)
    return fresh.headers.get("Cookie", "")  # type: ignore[no-any-return]
