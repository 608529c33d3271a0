"""Bodies going out: whole on every attempt, or not sent again at all (P2).

Every test meets the real library and the faulting server. Its ledger counts (length, sha256 and
completeness of each body), not what the client believes. httpx2 and trio are in
test_conformance_safety.py.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import ssl
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import httpx
import httpx2
import pytest
import requests
import urllib3
from requests_toolbelt import MultipartEncoder

import forbear
import forbear.httpx
import forbear.httpx2
import forbear.requests
import forbear.urllib3
from forbear.testing import FakeClock, FaultServer

# Loopback is plain HTTP: an empty context saves loading the certificates of the world for each
# client.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# httpx abandons the iteration of an async body whose upload fails, and trio warns when it is
# collected; with the bare library too.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
PAYLOAD = bytes(range(256)) * 700  # 179,200 bytes: three chunks of httpx's 65,536


@dataclass(frozen=True)
class Lane:
    """One library in one colour."""

    library: ModuleType
    ours: ModuleType
    backend: str | None

    @property
    def transport_error(self) -> type[Exception]:
        error: type[Exception] = self.library.TransportError
        return error

    @property
    def disconnected(self) -> tuple[type[Exception], str]:
        """The error of a connection that is closed without an answer: its class and text."""
        return self.library.RemoteProtocolError, "Server disconnected without sending a response"

    def put(self, url: str, **asked: Any) -> Any:
        return self.send("PUT", url, **asked)

    def send(
        self, method: str, url: str, *, options: dict[str, Any] | None = None, **asked: Any
    ) -> Any:
        """One request by a fresh client, read to its end; ``options`` go to the transport."""
        options = {"clock": FakeClock(), "random": lambda: 0.5, **(options or {})}
        if self.backend is not None:
            return anyio.run(self._asend, method, url, options, asked, backend=self.backend)
        transport = self.ours.RetryTransport(self.library.HTTPTransport(verify=NO_TLS), **options)
        with self.library.Client(transport=transport, trust_env=False, timeout=5) as client:
            return client.send(self._request(client, method, url, asked))

    async def _asend(
        self, method: str, url: str, options: dict[str, Any], asked: dict[str, Any]
    ) -> Any:
        transport = self.ours.AsyncRetryTransport(
            self.library.AsyncHTTPTransport(verify=NO_TLS), **options
        )
        async with self.library.AsyncClient(
            transport=transport, trust_env=False, timeout=5
        ) as client:
            asked = {
                name: await value() if name == "aopen" else value for name, value in asked.items()
            }
            file = asked.pop("aopen", None)
            if file is None:
                return await client.send(self._request(client, method, url, asked))
            async with file:
                return await client.send(
                    self._request(client, method, url, {**asked, "content": file})
                )

    def _request(self, client: Any, method: str, url: str, asked: dict[str, Any]) -> Any:
        if "stream" in asked:
            headers = {
                "Host": self.library.URL(url).netloc.decode(),
                "Transfer-Encoding": "chunked",
            }
            return self.library.Request(method, url, headers=headers, **asked)
        return client.build_request(method, url, **asked)


class RequestsLane(Lane):
    transport_error = requests.RequestException
    disconnected = (requests.ConnectionError, "Remote end closed connection without response")

    def send(
        self, method: str, url: str, *, options: dict[str, Any] | None = None, **asked: Any
    ) -> Any:
        options = {"clock": FakeClock(), "random": lambda: 0.5, **(options or {})}
        if "content" in asked:
            asked["data"] = asked.pop("content")
        with requests.Session() as session:
            session.trust_env = False
            session.mount("http://", forbear.requests.RetryAdapter(**options))
            return session.request(method, url, timeout=5, **asked)


class Urllib3Lane(Lane):
    transport_error = urllib3.exceptions.HTTPError
    disconnected = (
        urllib3.exceptions.MaxRetryError,
        "Remote end closed connection without response",
    )

    def send(
        self, method: str, url: str, *, options: dict[str, Any] | None = None, **asked: Any
    ) -> Any:
        options = {"clock": FakeClock(), "random": lambda: 0.5, **(options or {})}
        if "content" in asked:
            asked["body"] = asked.pop("content")
        with forbear.urllib3.RetryPoolManager(timeout=5, **options) as manager:
            response: Any = manager.request(method, url, **asked)
        response.status_code, response.text = response.status, response.data.decode()
        return response


LANES = [
    pytest.param(Lane(httpx, forbear.httpx, None), id="httpx-sync"),
    pytest.param(Lane(httpx, forbear.httpx, "asyncio"), id="httpx-asyncio"),
]
REQUESTS = pytest.param(RequestsLane(requests, forbear.requests, None), id="requests")
URLLIB3 = pytest.param(Urllib3Lane(urllib3, forbear.urllib3, None), id="urllib3")
BOTH = [REQUESTS, URLLIB3]
SYNC = [lane for lane in LANES if lane.values[0].backend is None]
ASYNC = [lane for lane in LANES if lane.values[0].backend is not None]


@pytest.fixture(scope="module")
def server():
    with FaultServer() as server:
        yield server


@pytest.fixture
def path(request):
    """A path of the server's that no other test uses."""
    return "/" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def seen(server: FaultServer, path: str) -> list[tuple[int, str, bool]]:
    return [
        (arrival.body_bytes, arrival.sha256, arrival.body_complete)
        for arrival in server.requests(path)
    ]


def complete(server: FaultServer, path: str) -> list[str]:
    """Digests of the bodies that the server took for whole ones."""
    return [sha256 for _, sha256, whole in seen(server, path) if whole]


def pieces(payload: bytes = PAYLOAD) -> list[bytes]:
    return [payload[at : at + 50_000] for at in range(0, len(payload), 50_000)]


# Bodies that can be produced again.


class Anew:
    """Begins anew on each pass."""

    def __iter__(self):
        yield from pieces()


class AnewAsync:
    async def __aiter__(self):
        for piece in pieces():
            yield piece


class AnewByReturn:
    """Hands out a fresh iterator, without being a generator function."""

    def __iter__(self):
        return iter(pieces())


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def _files_closed():
    yield
    while OPENED:
        OPENED.pop().close()


def file_of(tmp_path: Path, content: bytes = PAYLOAD, *, at: int = 0) -> Any:
    place = tmp_path / "upload.bin"
    place.write_bytes(content)
    file = place.open("rb")
    file.seek(at)
    OPENED.append(file)
    return file


def multipart(content: bytes, *, boundary: str = "frontier", filename: str = "a.bin") -> bytes:
    """One file part by hand, after RFC 7578 section 4."""
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="f"; filename="{filename}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode()


FORM = {"Content-Type": "multipart/form-data; boundary=frontier"}
DATA_PART = b'--frontier\r\nContent-Disposition: form-data; name="who"\r\n\r\nme\r\n'
# name -> (keywords of a request, made from tmp_path), bytes expected on every attempt
EITHER_COLOUR = {
    "bytes": (lambda _: {"content": PAYLOAD}, PAYLOAD),
    "str": (lambda _: {"content": "žluťoučký"}, "žluťoučký".encode()),
    "json": (lambda _: {"json": [17]}, b"[17]"),  # httpx 0.27 puts spaces into anything longer
    "data": (lambda _: {"data": {"a": "1", "b": "x y"}}, b"a=1&b=x+y"),
    "nothing": (lambda _: {}, b""),
    "multipart of bytes": (
        lambda _: {"files": {"f": ("a.bin", PAYLOAD)}, "headers": FORM},
        multipart(PAYLOAD),
    ),
    "multipart of a BytesIO": (
        lambda _: {"files": {"f": ("a.bin", io.BytesIO(PAYLOAD))}, "headers": FORM},
        multipart(PAYLOAD),
    ),
    "multipart of a file": (
        lambda tmp: {"files": {"f": file_of(tmp)}, "headers": FORM},
        multipart(PAYLOAD, filename="upload.bin"),
    ),
    "multipart of a file part-way read": (  # httpx sends the whole of it
        lambda tmp: {"files": {"f": file_of(tmp, at=1_000)}, "headers": FORM},
        multipart(PAYLOAD, filename="upload.bin"),
    ),
    "multipart of several": (
        lambda tmp: {
            "data": {"who": "me"},
            "files": [("f", ("a.bin", b"first")), ("f", file_of(tmp))],
            "headers": FORM,
        },
        DATA_PART
        + multipart(b"first").removesuffix(b"--frontier--\r\n")
        + multipart(PAYLOAD, filename="upload.bin"),
    ),
}
SYNC_ONLY = {
    "BytesIO": (lambda _: {"content": io.BytesIO(PAYLOAD)}, PAYLOAD),
    "file": (lambda tmp: {"content": file_of(tmp)}, PAYLOAD),
    "empty file": (lambda tmp: {"content": file_of(tmp, b"")}, b""),
    "list": (lambda _: {"content": pieces()}, PAYLOAD),
    "tuple": (lambda _: {"content": tuple(pieces())}, PAYLOAD),
    "class with a generator": (lambda _: {"content": Anew()}, PAYLOAD),
    "class that returns a fresh iterator": (lambda _: {"content": AnewByReturn()}, PAYLOAD),
}


def afile(tmp: Path, at: int = 0) -> dict[str, Any]:
    file_of(tmp)

    async def opened():
        file = await anyio.open_file(tmp / "upload.bin", "rb")
        await file.seek(at)
        return file

    return {"aopen": opened}


ASYNC_ONLY = {
    "anyio file": (afile, PAYLOAD),
    "anyio file part-way read": (lambda tmp: afile(tmp, at=100_001), PAYLOAD[100_001:]),
    "class with an async generator": (lambda _: {"content": AnewAsync()}, PAYLOAD),
}
# A list means form fields to requests, which reads the files of a form itself; to urllib3 a form is
# bytes.
BY_OTHERS = {
    **{name: EITHER_COLOUR[name] for name in ("bytes", "str", "json", "nothing")},
    **SYNC_ONLY,
    "bytearray": (lambda _: {"content": bytearray(PAYLOAD)}, PAYLOAD),
    "file part-way read": (lambda tmp: {"content": file_of(tmp, at=100_001)}, PAYLOAD[100_001:]),
}
BY_REQUESTS = {
    name: case for name, case in BY_OTHERS.items() if name not in ("list", "tuple", "bytearray")
}
BY_REQUESTS["data"] = EITHER_COLOUR["data"]
BY_REQUESTS["str"] = (
    lambda _: {"content": "plain"},
    b"plain",
)  # before 2.32 it counted characters for a length


def replayable_of(lane):
    if lane in BOTH:
        return BY_REQUESTS if lane is REQUESTS else BY_OTHERS
    return {**EITHER_COLOUR, **(SYNC_ONLY if lane.values[0].backend is None else ASYNC_ONLY)}


REPLAYABLE = [
    pytest.param(lane.values[0], *case, id=f"{lane.id}-{name}")
    for lane in LANES + BOTH
    for name, case in replayable_of(lane).items()
]


@pytest.mark.parametrize(("lane", "make", "expected"), REPLAYABLE)
def test_a_body_that_can_be_produced_again_arrives_whole_on_every_attempt(
    lane, make, expected, server, path, tmp_path
):
    """Throttled, dropped after reading, reset while it is uploaded, then answered."""
    server.script(path, 503, "close", "reset-head", 200)
    assert lane.put(server.url + path, **make(tmp_path)).status_code == 200
    whole = (len(expected), digest(expected), True)
    arrived = seen(server, path)
    assert arrived[:2] + arrived[3:] == [whole] * 3
    assert set(complete(server, path)) <= {digest(expected), digest(b"")}  # of the third the head
    assert server.executed(path) == 2


@pytest.mark.parametrize("lane", LANES + BOTH)
def test_a_body_that_the_server_stopped_reading_is_sent_from_its_first_byte(lane, server, path):
    """It answers 503 after one byte; a file is put back to where it stood."""
    make = (lambda: io.BytesIO(PAYLOAD)) if lane.backend is None else AnewAsync
    server.script(path, "early:503:1", 200)
    assert lane.put(server.url + path, content=make()).status_code == 200
    assert seen(server, path)[-1] == (len(PAYLOAD), digest(PAYLOAD), True)


def declares_the_rest(library, tmp_path) -> bool:
    """httpx2 learnt it between 2.12 and 2.16; httpx declares the whole and cannot keep it."""
    request = library.Request("PUT", "http://a/", content=file_of(tmp_path, at=7))
    return request.headers["content-length"] == str(len(PAYLOAD) - 7)


@pytest.mark.parametrize(
    "library", [(httpx, forbear.httpx), (httpx2, forbear.httpx2)], ids=["httpx", "httpx2"]
)
@pytest.mark.parametrize("at", [1, 65_536, len(PAYLOAD) - 1])
def test_a_file_read_part_way_is_sent_from_where_it_stood_or_fails_as_without_us(
    library, at, server, path, tmp_path
):
    """On the retry too, not from its beginning; a library that fails on it fails unchanged."""
    lane = Lane(*library, None)
    if declares_the_rest(lane.library, tmp_path):
        server.script(path, 503, "close", 200)
        assert lane.put(server.url + path, content=file_of(tmp_path, at=at)).status_code == 200
        assert seen(server, path) == [(len(PAYLOAD) - at, digest(PAYLOAD[at:]), True)] * 3
        return
    server.script(path, 200)
    with (
        lane.library.Client(trust_env=False, verify=NO_TLS) as bare,
        pytest.raises(Exception) as plain,
    ):
        bare.put(server.url + path, content=file_of(tmp_path, at=at))
    with pytest.raises(type(plain.value)) as ours:
        lane.put(server.url + path, content=file_of(tmp_path, at=at))
    assert type(ours.value) is type(plain.value)
    assert str(ours.value) == str(plain.value)
    assert len(forbear.record_of(ours.value).attempts) == 1
    assert complete(server, path) == []
    assert server.executed(path) == 0


def test_the_newest_httpx2_declares_the_rest(tmp_path):
    """So that the first half of the test above is run at all."""
    version = tuple(map(int, httpx2.__version__.split(".")[:2]))
    assert declares_the_rest(httpx2, tmp_path) or version < (2, 16)


# Bodies that cannot.


class HandsOutTheSame:
    """Iterable, but every pass goes on with the one iterator it keeps."""

    def __init__(self, chunks):
        self._kept = iter(chunks)

    def __iter__(self):
        return self._kept


class ReadsLines:
    """Iterates like a file, and like a file may stand anywhere; it has no read()."""

    def readline(self):
        raise AssertionError("httpx iterates what has no read()")

    def __iter__(self):
        return iter(pieces())


class HandsOutTheSameAsync:
    def __init__(self, chunks):
        self._kept = agenerator(chunks)

    def __aiter__(self):
        return self._kept


def generator(chunks):
    yield from chunks


async def agenerator(chunks):
    for chunk in chunks:
        yield chunk


class AsyncIterator:
    def __init__(self, chunks):
        self._left = iter(chunks)

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return next(self._left)
        except StopIteration:
            raise StopAsyncIteration from None


class Unseekable(io.RawIOBase):
    """A pipe, a decompressor, an upload that is passed on: readable once."""

    def __init__(self, content=PAYLOAD):
        self._left = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._left.readinto(buffer)


def own_stream(library: ModuleType, chunks: list[bytes], **attributes: Any) -> Any:
    """A stream class of the user's: nobody can know what a second pass of it would give."""

    class OneShot(library.SyncByteStream):
        def __init__(self):
            self._left = iter(chunks)
            vars(self).update(attributes)

        def __iter__(self):
            for chunk in self._left:
                yield chunk.swapcase()

    return OneShot()


def own_async_stream(library: ModuleType, chunks: list[bytes], **attributes: Any) -> Any:
    class OneShot(library.AsyncByteStream):
        def __init__(self):
            self._left = iter(chunks)
            vars(self).update(attributes)

        async def __aiter__(self):
            for chunk in self._left:
                yield chunk.swapcase()

    return OneShot()


SWAPPED = PAYLOAD.swapcase()
ONE_SHOT_SYNC = {
    "generator": (lambda _: {"content": generator(pieces())}, PAYLOAD),
    "iterator": (lambda _: {"content": iter(pieces())}, PAYLOAD),
    "map": (lambda _: {"content": map(bytes, pieces())}, PAYLOAD),
    "itertools.chain": (
        lambda _: {"content": itertools.chain([b"head"], generator(pieces()))},
        b"head" + PAYLOAD,
    ),
    "kept iterator": (lambda _: {"content": HandsOutTheSame(pieces())}, PAYLOAD),
    "unseekable file": (lambda _: {"content": Unseekable()}, PAYLOAD),
    "iterable with readline only": (lambda _: {"content": ReadsLines()}, PAYLOAD),
    "multipart of an unseekable file": (
        lambda _: {"files": {"f": ("a.bin", Unseekable())}, "headers": FORM},
        multipart(PAYLOAD),
    ),
    "own stream as content": (lambda lib: {"content": own_stream(lib, pieces())}, SWAPPED),
    "own stream": (lambda lib: {"stream": own_stream(lib, pieces())}, SWAPPED),
    "own stream over a file": (
        lambda lib: {
            "stream": own_stream(lib, pieces(), _stream=io.BytesIO(b"raw, not what is sent"))
        },
        SWAPPED,
    ),
    "own stream over a list": (
        lambda lib: {"stream": own_stream(lib, pieces(), _stream=[b"raw"])},
        SWAPPED,
    ),
    "own stream with fields": (
        lambda lib: {"stream": own_stream(lib, pieces(), fields={"a": "1"})},
        SWAPPED,
    ),
}
ONE_SHOT_ASYNC = {
    "async generator": (lambda _: {"content": agenerator(pieces())}, PAYLOAD),
    "async iterator": (lambda _: {"content": AsyncIterator(pieces())}, PAYLOAD),
    "kept async generator": (lambda _: {"content": HandsOutTheSameAsync(pieces())}, PAYLOAD),
    "multipart of an unseekable file": ONE_SHOT_SYNC["multipart of an unseekable file"],
    "own stream as content": (lambda lib: {"content": own_async_stream(lib, pieces())}, SWAPPED),
    "own stream": (lambda lib: {"stream": own_async_stream(lib, pieces())}, SWAPPED),
    "own stream over a list": (
        lambda lib: {"stream": own_async_stream(lib, pieces(), _stream=[b"raw"])},
        SWAPPED,
    ),
    "own stream with fields": (
        lambda lib: {"stream": own_async_stream(lib, pieces(), fields={"a": "1"})},
        SWAPPED,
    ),
}
NOT_OF_HTTPX = {
    name: case
    for name, case in ONE_SHOT_SYNC.items()
    if not name.startswith(("own stream", "multipart"))
}
ENCODED = multipart(b"value").replace(
    b'; filename="a.bin"\r\nContent-Type: application/octet-stream', b""
)
ONE_SHOT_REQUESTS = {
    **NOT_OF_HTTPX,
    "multipart encoder": (
        lambda _: {"content": MultipartEncoder({"f": "value"}, boundary="frontier")},
        ENCODED,
    ),
}


def one_shot_of(lane):
    if lane in BOTH:
        return ONE_SHOT_REQUESTS if lane is REQUESTS else NOT_OF_HTTPX
    return ONE_SHOT_SYNC if lane.values[0].backend is None else ONE_SHOT_ASYNC


ONE_SHOT = [
    pytest.param(lane.values[0], *case, id=f"{lane.id}-{name}")
    for lane in LANES + BOTH
    for name, case in one_shot_of(lane).items()
]


@pytest.mark.parametrize(("lane", "make", "expected"), ONE_SHOT)
def test_a_consumed_body_is_not_sent_again(lane, make, expected, server, path):
    """The caller gets the server's own 503 or the library's own error; never StreamConsumed."""
    once = [(len(expected), digest(expected), True)]
    server.script(path, "503;header=X-Which:first;body=11", 200)
    response = lane.put(server.url + path, **make(lane.library))
    assert (response.status_code, response.headers["x-which"]) == (503, "first")
    assert response.text == "0123456789a"
    assert seen(server, path) == once
    assert forbear.record_of(response).reason == "body-consumed"
    server.script(path, "close", 200)
    error, text = lane.disconnected
    with pytest.raises(error, match=text) as it:
        lane.put(server.url + path, **make(lane.library))
    assert seen(server, path) == once * 2
    assert forbear.record_of(it.value).reason == "body-consumed"


@pytest.mark.parametrize(
    ("lane", "make", "expected"),
    [case for case in ONE_SHOT if case.id.endswith(("-generator", "-async generator", "file"))],
)
def test_an_unread_body_is_sent_after_all_once_the_connection_works(lane, make, expected, path):
    """A refused connection leaves a generator unread, so it is sent again: even by POST."""
    with FaultServer() as server:
        server.script(path, 200)
        server.stop()

        def open_again(event):
            if event.name == "retry_scheduled":
                server.start()

        response = lane.send(
            "POST", server.url + path, options={"on_event": [open_again]}, **make(lane.library)
        )
        assert response.status_code == 200
        assert seen(server, path) == [(len(expected), digest(expected), True)]
    assert forbear.record_of(response).retries == 1


class LooksReiterable:
    """Each pass has its own generator, but all drain one source: the second pass is empty."""

    def __init__(self, chunks):
        self._source = iter(chunks)

    def __iter__(self):
        yield from self._source


class LooksReiterableChain:
    def __init__(self, chunks):
        self._source = generator(chunks)

    def __iter__(self):
        return itertools.chain([b"head"], self._source)


class LooksReiterableAsync:
    def __init__(self, chunks):
        self._source = iter(chunks)

    async def __aiter__(self):
        for chunk in self._source:
            yield chunk


def numbered(size: int, count: int = 400) -> list[bytes]:
    return [b"%08d" % number * (size // 8) for number in range(count)]


DISGUISED = [
    pytest.param(lane.values[0], cls, prefix, id=f"{lane.id}-{cls.__name__}")
    for lane in LANES + BOTH
    for cls, prefix in (
        ((LooksReiterable, b""), (LooksReiterableChain, b"head"))
        if lane.values[0].backend is None
        else ((LooksReiterableAsync, b""),)
    )
]


@pytest.mark.parametrize(("lane", "cls", "prefix"), DISGUISED)
def test_a_body_that_only_looks_re_iterable_never_arrives_empty(lane, cls, prefix, server, path):
    """No other body than the first is ever complete, so the server cannot take it for one."""
    server.script(path, 503, 200)
    with pytest.raises(lane.transport_error, match="cannot be sent again"):
        lane.put(server.url + path, content=cls(pieces()))
    assert complete(server, path) == [digest(prefix + PAYLOAD)]
    assert server.executed(path) == 0


@pytest.mark.parametrize(
    ("lane", "cls", "prefix"), [case for case in DISGUISED if not case.id.endswith("Chain")]
)
def test_a_body_that_only_looks_re_iterable_never_arrives_without_its_beginning(
    lane, cls, prefix, server, path
):
    """The first pass was cut half-way: what the second pass gives must not pass for the whole."""
    chunks = numbered(50_000)  # 20 MB: more than the sockets of loopback hold
    server.script(path, "reset-head;delay=50", 200)  # the body is on its way by then
    with pytest.raises(lane.transport_error):
        lane.put(server.url + path, content=cls(chunks))
    assert set(complete(server, path)) <= {digest(prefix + b"".join(chunks))}
    assert server.executed(path) == 0


@pytest.mark.parametrize(
    "lane", [*SYNC, URLLIB3]
)  # requests adds Transfer-Encoding to the length it was given
def test_a_second_pass_of_other_bytes_is_not_completed(lane, server, path):
    """The same length, declared beforehand, other bytes: the last of them is not sent."""

    class Rewritten:
        passes = 0

        def __iter__(self):
            self.passes += 1
            yield b"%d" % self.passes * 1_000
            yield b"end"

    server.script(path, 503, 200)
    with pytest.raises(lane.transport_error, match="cannot be sent again"):
        lane.put(server.url + path, content=Rewritten(), headers={"Content-Length": "1003"})
    assert complete(server, path) == [digest(b"1" * 1_000 + b"end")]
    assert server.executed(path) == 0


@pytest.mark.parametrize("lane", SYNC + BOTH)
def test_a_file_that_says_it_can_seek_and_cannot_is_sent_once(lane, server, path):
    """Some files have tell() and seek() that only raise: they are sent once."""

    class Liar(Unseekable):
        def seekable(self):
            return True

    server.script(path, 503, 200)
    assert lane.put(server.url + path, content=Liar()).status_code == 503
    assert seen(server, path) == [(len(PAYLOAD), digest(PAYLOAD), True)]


@pytest.mark.parametrize("lane", ASYNC)
def test_an_async_file_that_cannot_seek_is_sent_once(lane, server, path):
    """aiofiles answers seekable() with a coroutine; a pipe raises only in tell()."""

    class Pipe:
        def __init__(self):
            self._left = iter(pieces())

        async def seekable(self):
            return False

        async def tell(self):
            raise io.UnsupportedOperation("tell")

        async def seek(self, offset):
            raise io.UnsupportedOperation("seek")

        async def read(self, size=-1):
            raise AssertionError("httpx iterates it")

        async def __aiter__(self):
            for piece in self._left:
                yield piece

    server.script(path, 503, 200)
    assert lane.put(server.url + path, content=Pipe()).status_code == 503
    assert seen(server, path) == [(len(PAYLOAD), digest(PAYLOAD), True)]


# The buffer.

BUFFERED = [
    pytest.param(
        lane.values[0], generator if lane.values[0].backend is None else agenerator, id=lane.id
    )
    for lane in LANES
]
BUFFERED_BY_ALL = BUFFERED + [
    pytest.param(lane.values[0], one_shot, id=f"{lane.id}-{one_shot.__name__}")
    for lane in BOTH
    for one_shot in (generator, iter)
]


@pytest.mark.parametrize(("lane", "one_shot"), BUFFERED_BY_ALL)
def test_a_one_shot_body_is_sent_again_if_it_fits_the_buffer(lane, one_shot, server, path):
    """body_buffer of exactly its size, and of one byte less: then the caller gets the 503."""
    whole = (len(PAYLOAD), digest(PAYLOAD), True)
    for room, status, arrivals in ((len(PAYLOAD), 200, 3), (len(PAYLOAD) - 1, 503, 1)):
        before = len(seen(server, path))
        server.script(path, 503, "close", 200)
        response = lane.put(
            server.url + path, content=one_shot(pieces()), options={"body_buffer": room}
        )
        assert response.status_code == status
        assert seen(server, path)[before:] == [whole] * arrivals
    assert forbear.record_of(response).reason == "body-consumed"


@pytest.mark.parametrize(
    ("lane", "one_shot"), [case for case in BUFFERED_BY_ALL if not case.id.endswith("-iter")]
)
def test_a_buffered_body_whose_upload_was_cut_goes_on_from_its_source(lane, one_shot, server, path):
    """Cut half-way: the next attempt sends the part that was kept, then the generator's rest."""
    chunks = numbered(50_000)  # 20 MB: more than the sockets of loopback hold
    server.script(path, "reset-head;delay=50", 200)  # the body is on its way by then
    response = lane.put(
        server.url + path, content=one_shot(chunks), options={"body_buffer": 20_000_000}
    )
    assert response.status_code == 200
    assert seen(server, path)[1:] == [(20_000_000, digest(b"".join(chunks)), True)]


@pytest.mark.parametrize("lane", SYNC + BOTH)
def test_a_buffered_file_that_cannot_seek_is_sent_again(lane, server, path):
    """It serves them like generators, in httpx's multipart and requests' encoder too."""
    cases = [({"content": Unseekable()}, PAYLOAD)]
    if lane is REQUESTS.values[0]:
        cases.append(({"content": MultipartEncoder({"f": "value"}, boundary="frontier")}, ENCODED))
    elif lane is not URLLIB3.values[0]:
        cases.append(
            ({"files": {"f": ("a.bin", Unseekable())}, "headers": FORM}, multipart(PAYLOAD))
        )
    for asked, expected in cases:
        server.script(path, 503, 200)
        assert (
            lane.put(server.url + path, **asked, options={"body_buffer": 1_000_000}).status_code
            == 200
        )
        assert seen(server, path)[-2:] == [(len(expected), digest(expected), True)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("lane", SYNC + BOTH)
def test_the_buffer_never_holds_more_than_its_size(lane, server, path):
    """60 MB pass through a buffer of 1 MB: memory stays near the buffer, not near the body."""
    server.script(path, 200)
    tracemalloc.start()
    try:
        lane.put(
            server.url + path,
            content=(os.urandom(8) * 12_500 for _ in range(600)),
            options={"body_buffer": 1_000_000},
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert server.requests(path)[0].body_bytes == 60_000_000
    assert peak < 6_000_000


# What the caller's own iterator does.


@pytest.mark.parametrize(("lane", "one_shot"), BUFFERED)
@pytest.mark.parametrize("body_buffer", [0, 1_000_000])
def test_an_error_of_the_callers_own_iterator_comes_back_as_it_is(
    lane, one_shot, body_buffer, server, path
):
    """Not retried and not translated, even if its class is one of the library's."""
    for kind in (KeyError, OSError, lane.library.ReadError, lane.library.ConnectError):
        error = kind("while the source was read")
        server.script(path, 200)
        with pytest.raises(kind) as raised:
            lane.put(
                server.url + path,
                content=one_shot(failing(error)),
                options={"body_buffer": body_buffer},
            )
        assert raised.value is error
        assert complete(server, path) == []
        assert len(forbear.record_of(error).attempts) == 1


def failing(error):
    yield b"begun"
    raise error


@pytest.mark.parametrize("lane", BOTH)
@pytest.mark.parametrize("body_buffer", [0, 1_000_000])
def test_an_error_of_the_callers_own_iterator_comes_back_as_the_bare_library_gives_it(
    lane, body_buffer, server, path
):
    """requests and urllib3 translate an OSError; it is not retried all the same."""
    for kind in (KeyError, OSError, ConnectionResetError):
        error = kind("while the source was read")
        server.script(path, 200)
        with pytest.raises(Exception) as bare:
            if lane is REQUESTS.values[0]:
                requests.put(server.url + path, data=failing(error))
            else:
                urllib3.PoolManager(retries=0).request(
                    "PUT", server.url + path, body=failing(error)
                )
        with pytest.raises(type(bare.value)) as ours:
            lane.put(
                server.url + path, content=failing(error), options={"body_buffer": body_buffer}
            )
        assert type(ours.value) is type(bare.value)
        assert complete(server, path) == []
        assert len(forbear.record_of(ours.value).attempts) == 1


@pytest.mark.parametrize("lane", SYNC)
def test_a_request_sent_twice_by_the_caller_fails_as_in_the_bare_library(lane, server, path):
    """Sending a request again with a spent generator is a mistake, and httpx says so."""
    server.script(path, 200)
    with lane.library.Client(
        transport=lane.ours.RetryTransport(lane.library.HTTPTransport(verify=NO_TLS))
    ) as client:
        request = client.build_request("PUT", server.url + path, content=generator(pieces()))
        assert client.send(request).status_code == 200
        with pytest.raises(lane.library.StreamConsumed):
            client.send(request)
    assert complete(server, path) == [digest(PAYLOAD)]


# Several layers, several hops.

OF_OTHERS = {
    "file": (lambda: {"content": io.BytesIO(PAYLOAD)}, {}, True),
    "class": (lambda: {"content": Anew()}, {}, True),
    "generator": (lambda: {"content": generator(pieces())}, {}, False),
    "unseekable file": (lambda: {"content": Unseekable()}, {}, False),
    "buffered": (lambda: {"content": generator(pieces())}, {"body_buffer": len(PAYLOAD)}, True),
    "disguised": (lambda: {"content": LooksReiterable(pieces())}, {}, False),
}
OF_REQUESTS = OF_OTHERS | {
    "encoder": (
        lambda: {"content": MultipartEncoder({"f": "value"}, boundary="frontier")},
        {},
        False,
    ),
}
HOPS = [
    pytest.param(lane.values[0], *case, id=f"{lane.id}-{name}")
    for lane in LANES + BOTH
    for name, case in (
        OF_OTHERS
        if lane is URLLIB3
        else OF_REQUESTS
        if lane is REQUESTS
        else {
            "file": (lambda: {"content": io.BytesIO(PAYLOAD)}, {}, True),
            "list": (lambda: {"content": pieces()}, {}, True),
            "iterator": (lambda: {"content": iter(pieces())}, {}, False),
            "kept iterator": (lambda: {"content": HandsOutTheSame(pieces())}, {}, False),
            "buffered": (
                lambda: {"content": generator(pieces())},
                {"body_buffer": len(PAYLOAD)},
                True,
            ),
        }
        if lane.values[0].backend is None
        else {
            "class": (lambda: {"content": AnewAsync()}, {}, True),
            "iterator": (lambda: {"content": AsyncIterator(pieces())}, {}, False),
            "buffered": (
                lambda: {"content": agenerator(pieces())},
                {"body_buffer": len(PAYLOAD)},
                True,
            ),
        }
    ).items()
]


@pytest.mark.parametrize(("lane", "make", "options", "arrives"), HOPS)
def test_a_body_follows_a_307_whole_or_not_at_all(lane, make, options, arrives, server, path):
    """A redirected call is one call: the bare library would send an empty second pass."""
    server.script(path, "307;executes=0;header=Location:" + path + "-moved")
    server.script(path + "-moved", 503, 200)
    asked = {"options": options, **make()}
    if arrives:
        assert self_following(lane, server.url + path, **asked).status_code == 200
        assert complete(server, path + "-moved") == [digest(PAYLOAD)] * 2
    else:
        with pytest.raises(lane.transport_error, match=r"cannot be sent again|Unable to rewind"):
            self_following(lane, server.url + path, **asked)
        assert complete(server, path + "-moved") == []
    assert complete(server, path) in ([digest(PAYLOAD)], [digest(ENCODED)])


@pytest.mark.parametrize("lane", BOTH)
def test_what_is_sent_after_a_redirect_is_a_body_of_its_own(lane, server, path, tmp_path):
    """The same objects again, elsewhere or changed: nothing is left of the redirected call."""
    file, changing = file_of(tmp_path), Changing()
    for body, change in ((file, lambda: file.seek(100)), (changing, changing.change)):
        server.script(path, "307;executes=0;header=Location:" + path + "-moved")
        server.script(path + "-moved", 200)
        first = lane.put(server.url + path, content=body)
        change()
        assert (
            lane.put(server.url + path + "-moved", content=body).status_code
            == first.status_code
            == 200
        )
    assert complete(server, path + "-moved") == [
        *(digest(PAYLOAD), digest(PAYLOAD[100:])),
        *(digest(b"before"), digest(b"after it")),
    ]


class Changing:
    content = b"before"

    def __iter__(self):
        yield self.content

    def change(self):
        self.content = b"after it"


@pytest.mark.parametrize("lane", LANES)
def test_a_generator_does_not_follow_a_307_with_the_librarys_own_error(lane, server, path):
    """httpx refuses a second pass over a generator: what users catch stays as it was."""
    server.script(path, "307;executes=0;header=Location:" + path + "-moved")
    made = generator(pieces()) if lane.backend is None else agenerator(pieces())
    with pytest.raises(lane.library.StreamConsumed):
        self_following(lane, server.url + path, options={}, content=made)
    assert complete(server, path + "-moved") == []


def self_following(lane: Lane, url: str, *, options: dict[str, Any], **asked: Any) -> Any:
    if isinstance(lane, (RequestsLane, Urllib3Lane)):
        return lane.put(url, options=options, **asked)  # they follow by default
    options = {"clock": FakeClock(), "random": lambda: 0.5, **options}
    if lane.backend is None:
        transport = lane.ours.RetryTransport(lane.library.HTTPTransport(verify=NO_TLS), **options)
        with lane.library.Client(
            transport=transport, trust_env=False, follow_redirects=True
        ) as client:
            return client.put(url, **asked)

    async def follow():
        transport = lane.ours.AsyncRetryTransport(
            lane.library.AsyncHTTPTransport(verify=NO_TLS), **options
        )
        async with lane.library.AsyncClient(
            transport=transport, trust_env=False, follow_redirects=True
        ) as client:
            return await client.put(url, **asked)

    return anyio.run(follow, backend=lane.backend)


@pytest.mark.parametrize("lane", SYNC)
def test_a_one_shot_body_through_two_stacked_transports_gives_the_answer(lane, server, path):
    """The outer guard is no re-iterable body to the inner transport: the 503 comes back."""
    server.script(path, "503;body=3", 200)
    inner = lane.ours.RetryTransport(lane.library.HTTPTransport(verify=NO_TLS), clock=FakeClock())
    with lane.library.Client(
        transport=lane.ours.RetryTransport(inner, clock=FakeClock())
    ) as client:
        response = client.put(server.url + path, content=generator(pieces()))
    assert (response.status_code, response.text) == (503, "012")
    assert seen(server, path) == [(len(PAYLOAD), digest(PAYLOAD), True)]


@pytest.mark.parametrize("lane", SYNC)
def test_a_file_through_two_stacked_transports_is_sent_again_once(lane, server, path):
    """A replayable body stays replayable below a second transport."""
    server.script(path, 503, 200)
    inner = lane.ours.RetryTransport(lane.library.HTTPTransport(verify=NO_TLS), clock=FakeClock())
    with lane.library.Client(
        transport=lane.ours.RetryTransport(inner, clock=FakeClock())
    ) as client:
        assert client.put(server.url + path, content=io.BytesIO(PAYLOAD)).status_code == 200
    assert seen(server, path) == [(len(PAYLOAD), digest(PAYLOAD), True)] * 2


@pytest.mark.parametrize("lane", LANES)
def test_the_callers_request_keeps_its_own_body(lane, server, path):
    """The guard stands on our copy; the response's request is the caller's own."""
    server.script(path, 200)
    make = ONE_SHOT_SYNC["generator"] if lane.backend is None else ONE_SHOT_ASYNC["async generator"]
    response = lane.put(server.url + path, **make[0](lane.library))
    assert type(response.request.stream).__module__.startswith(lane.library.__name__ + ".")
