"""Whatever a server does to a download, its caller gets the exact content or an error."""

import functools
import zlib

import anyio
import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import Fixed, RetryPolicy
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.testing import FakeClock

CONTENT = bytes(range(251))  # no two places alike
OTHER = CONTENT[::-1]

# How the server answers a request, and after how many bytes of the body it breaks (None: not).
HOW = st.sampled_from([
    "honest", "honest", "honest", "other version", "weak", "whole again", "shifted", "short",
    "long", "untold", "lying length", "encoded", "416", "416 of what came", "503", "404", "refused",
])  # fmt: skip
answers = st.tuples(HOW, st.none() | st.integers(0, 260))


class Server(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Carries out a list of answers, and is honest from then on."""

    def __init__(self, steps, known_length):
        self._steps, self._known_length = list(steps), known_length

    def handle_request(self, request):
        how, cut = self._steps.pop(0) if self._steps else ("honest", None)
        if how == "refused":
            raise httpx.ConnectError("refused")
        asked = request.headers.get("range")
        status, headers, body = self._answer(how, None if asked is None else int(asked[6:-1]))
        return httpx.Response(status, headers=headers, stream=Stream(body, cut))

    async def handle_async_request(self, request):
        return self.handle_request(request)

    def _answer(self, how, first):
        size = len(CONTENT)
        if how in ("503", "404"):
            return int(how), {}, b"sorry"
        if how == "416":
            return 416, {"Content-Range": f"bytes */{size}"}, b""
        if how == "416 of what came":  # of another version, as it says
            return 416, {"Content-Range": f"bytes */{first or 0}", "ETag": '"v0"'}, b""
        if how == "other version":
            headers = {"ETag": '"v2"'}
            if first is None:
                return 200, headers, OTHER
            headers["Content-Range"] = f"bytes {first}-{size - 1}/{size}"
            return 206, headers, OTHER[first:]
        headers = {"ETag": 'W/"v1"' if how == "weak" else '"v1"'}
        if first is None or how == "whole again":
            if self._known_length:
                headers["Content-Length"] = str(size)
            return 200, headers, CONTENT
        last = size - 1
        if how == "shifted":
            first += 1
        elif how == "short":
            last -= 1
        elif how == "long":
            size, last = size + 1, last + 1
        body = CONTENT[first : last + 1]
        if how == "encoded":
            headers["Content-Encoding"], body = "deflate", zlib.compress(body)
        if how == "lying length":
            headers["Content-Length"] = str(len(body) + 1)
        if how != "untold":
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return 206, headers, body


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, body, cut):
        self._body, self._cut = body, cut

    def __iter__(self):
        for place in range(0, len(self._body[: self._cut]), 17):
            yield self._body[: self._cut][place : place + 17]
        if self._cut is not None and self._cut < len(self._body):
            raise httpx.ReadError("reset")

    async def __aiter__(self):
        for chunk in self.__iter__():
            yield chunk


def download(inner, **options):
    with httpx.Client(transport=RetryTransport(inner, **options)) as client:
        with client.stream("GET", "http://a.example.com/") as response:
            return response, b"".join(response.iter_raw())


async def adownload(inner, **options):
    async with httpx.AsyncClient(transport=AsyncRetryTransport(inner, **options)) as client:
        async with client.stream("GET", "http://a.example.com/") as response:
            return response, b"".join([chunk async for chunk in response.aiter_raw()])


@given(st.lists(answers, max_size=8), st.booleans(), st.sampled_from([0, 65_536]), st.booleans())
@settings(max_examples=100)
def test_the_exact_content_or_an_error(steps, known_length, prefetch, is_async):
    """A body that ends without an error is the first answer's, whole."""
    inner, policy = Server(steps, known_length), RetryPolicy(max_attempts=3, backoff=Fixed(0.1))
    options = {"prefetch": prefetch, "policy": policy, "budget": None, "clock": FakeClock()}
    try:
        if is_async:
            response, got = anyio.run(functools.partial(adownload, inner, **options))
        else:
            response, got = download(inner, **options)
    except httpx.TransportError:
        return
    if response.status_code == 200:
        assert got == (OTHER if response.headers["ETag"] == '"v2"' else CONTENT)
    else:
        assert got in (b"sorry", b"")
