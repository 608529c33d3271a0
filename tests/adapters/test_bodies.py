"""Bodies going out, by the ledger of the server: whole on every attempt, or not sent again (P2)."""

import array
import hashlib
import io
import itertools

import anyio
import pytest
import requests
import urllib3
from requests_toolbelt import MultipartEncoder

import forbear
from forbear import Fixed, RetryPolicy
from forbear.testing import FakeClock, FaultServer

# httpx abandons the iteration of an async body whose upload fails, and trio warns when it is
# collected; with the bare library too.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
sync, of_urllib3 = pytest.mark.adapters("sync"), pytest.mark.adapters("urllib3-family")
PAYLOAD = bytes(range(256)) * 700  # 179,200 bytes: three chunks of httpx's 65,536
FORM = {"Content-Type": "multipart/form-data; boundary=frontier"}
SWAPPED = PAYLOAD.swapcase()
# No filename, no type: a field.
ENCODED = b'--frontier\r\nContent-Disposition: form-data; name="f"\r\n\r\nvalue\r\n--frontier--\r\n'
CHALLENGE = '401;executes=0;header=WWW-Authenticate:Digest realm="r", nonce="n", qop="auth"'
AT_ONCE = {"policy": RetryPolicy(backoff=Fixed(0.0)), "random": lambda: 0.0}
LARGE = bytes(range(256)) * 16_000  # 4,096,000 bytes: more than the sockets of loopback hold


async def put(adapter, server, body=None, *, path="/thing", method="PUT", follow=False, **options):
    """One request by a fresh client; ``body`` is the content, what opens it, or keywords."""
    url, request = server.url + path, body if isinstance(body, dict) else {"content": body}
    options = {"clock": FakeClock(), "random": lambda: 0.5, **options}
    settings = {"timeout": 5, "follow_redirects": follow}
    async with adapter.client(settings=settings, **options) as client:
        if "stream" in request:
            headers = {"Host": url.split("/")[2], "Transfer-Encoding": "chunked"}
            made = adapter.library.Request(method, url, headers=headers, **request)
            return await adapter.send_on(client, made)
        if callable(body):
            request = {"content": await body()}
        return await adapter.call(client, method, url, **request)


async def refuse(adapter, server, body, sent, *, path="/thing", executed=0, **options):
    """One request whose body was sent once and has changed: another is not taken for it."""
    with pytest.raises(adapter.transport_error, match="cannot be resent") as caught:
        await put(adapter, server, body, path=path, **options)
    assert complete(server, path) == [digest(sent)]
    assert server.executed(path) == executed
    return caught.value


def digest(body):
    return hashlib.sha256(body).hexdigest()


def whole(body):
    return len(body), digest(body), True


def seen(server, path="/thing"):
    return [(one.body_bytes, one.sha256, one.body_complete) for one in server.requests(path)]


def complete(server, path="/thing"):
    """Digests of the bodies that the server took for whole ones."""
    return [sha256 for _, sha256, is_whole in seen(server, path) if is_whole]


def pieces(payload=PAYLOAD):
    return [payload[at : at + 50_000] for at in range(0, len(payload), 50_000)]


def of_lane(adapter, *, httpx, requests, urllib3, asyncio, aiohttp):
    if adapter.name == "aiohttp":
        return aiohttp
    if adapter.is_async:
        return asyncio
    return {"requests": requests, "urllib3": urllib3}.get(adapter.name, httpx)


class Passes:
    """Iterable; ``begin`` returns the iterator of each pass."""

    def __init__(self, begin):
        self._begin = begin

    def __iter__(self):
        return self._begin()


class AsyncPasses:
    """httpx takes what iterates in both ways for a synchronous body."""

    def __init__(self, begin):
        self._begin = begin

    def __aiter__(self):
        return self._begin()


def generator(chunks):
    yield from chunks


async def agenerator(chunks):
    for chunk in chunks:
        yield chunk


def one_shot(adapter, chunks):
    return agenerator(chunks) if adapter.is_async else generator(chunks)


def same(kind, iterator):
    """Iterable, but every pass goes on with the one iterator it keeps."""
    return kind(lambda: iterator)


@pytest.fixture
def file_of(tmp_path):
    opened = []

    def make(content=PAYLOAD, *, at=0):
        place = tmp_path / "upload.bin"
        place.write_bytes(content)
        opened.append(place.open("rb"))
        opened[-1].seek(at)
        return opened[-1]

    yield make
    for file in opened:
        file.close()


def multipart(content, *, boundary="frontier", filename="a.bin"):
    """One file part by hand, after RFC 7578 section 4."""
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="f"; filename="{filename}"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode()


def form_of(file):
    return {"files": {"f": file}, "headers": FORM}


def opened(file_of):
    async def part_way():
        return anyio.wrap_file(file_of(at=100_001))

    return part_way


def anew():
    return Passes(lambda: generator(pieces()))


def afresh_async():
    return AsyncPasses(lambda: agenerator(pieces()))


# name -> a body, made with ``file_of``, and the bytes expected on every attempt
PLAIN = {
    "bytes": (lambda _: PAYLOAD, PAYLOAD),
    "str": (lambda _: "plain", b"plain"),  # requests before 2.32 counts characters
    "json": (lambda _: {"json": [17]}, b"[17]"),  # httpx 0.27 puts spaces into longer ones
    "nothing": (lambda _: {}, b""),
}
DATA = {"data": (lambda _: {"data": {"a": "1", "b": "x y"}}, b"a=1&b=x+y")}
READ = multipart(PAYLOAD, filename="upload.bin")  # httpx sends the whole of a file
FORMS = {
    "multipart of bytes": (lambda _: form_of(("a.bin", io.BytesIO(PAYLOAD))), multipart(PAYLOAD)),
    "multipart of a file part-way read": (lambda file_of: form_of(file_of(at=1_000)), READ),
}
FILES = {
    "BytesIO": (lambda _: io.BytesIO(PAYLOAD), PAYLOAD),
    "file": (lambda file_of: file_of(), PAYLOAD),
    "empty file": (lambda file_of: file_of(b""), b""),
}
SYNC = FILES | {
    "class with a generator": (lambda _: anew(), PAYLOAD),
    "class that returns a fresh iterator": (lambda _: Passes(lambda: iter(pieces())), PAYLOAD),
}
LIST = {"list": (lambda _: pieces(), PAYLOAD)}  # requests takes it for form fields
PART_WAY = {"file part-way read": (lambda file_of: file_of(at=100_001), PAYLOAD[100_001:])}
BYTEARRAY = {"bytearray": (lambda _: bytearray(PAYLOAD), PAYLOAD)}
CLASS = {"class": (lambda _: afresh_async(), PAYLOAD)}
ASYNC = CLASS | {"anyio file part-way read": (opened, PAYLOAD[100_001:])}


@pytest.mark.slow
async def test_a_body_that_can_be_produced_again_arrives_whole_on_every_attempt(
    adapter, server, file_of
):
    cases = of_lane(
        adapter,
        httpx=PLAIN | DATA | FORMS | SYNC | LIST,
        asyncio=PLAIN | DATA | FORMS | ASYNC,
        aiohttp=PLAIN | DATA | FILES | PART_WAY | CLASS,
        requests=PLAIN | DATA | SYNC | PART_WAY,
        urllib3=PLAIN | SYNC | LIST | PART_WAY | BYTEARRAY,
    )
    for name, (make, expected) in cases.items():
        path = f"/{name.replace(' ', '-')}"
        server.script(path, 503, "close", "reset-head", 200)
        response = await put(adapter, server, make(file_of), path=path)
        assert response.status_code == 200, name
        arrived = seen(server, path)
        assert arrived[:2] + arrived[3:] == [whole(expected)] * 3, name
        # Of the third the head.
        assert set(complete(server, path)) <= {digest(expected), digest(b"")}, name
        assert server.executed(path) == 2, name


@pytest.mark.adapters("httpx-family", "sync")
@pytest.mark.parametrize("at", [1, 65_536, len(PAYLOAD) - 1])
async def test_a_file_read_part_way_is_sent_from_there(adapter, at, server, file_of):
    """Or it fails as without us: with the library's error, where it lets one of h11 through."""
    # httpx2 learnt it between 2.12 and 2.16; httpx declares the whole and cannot keep it.
    request = adapter.library.Request("PUT", "http://a/", content=file_of(at=7))
    if request.headers["content-length"] == str(len(PAYLOAD) - 7):
        server.script("/thing", 503, "close", 200)
        response = await put(adapter, server, file_of(at=at))
        assert response.status_code == 200
        assert seen(server) == [whole(PAYLOAD[at:])] * 3
        return
    server.script("/thing", 200)
    with adapter.bare_client() as bare, pytest.raises(Exception) as plain:
        bare.put(server.url + "/thing", content=file_of(at=at))
    with pytest.raises(getattr(adapter.library, type(plain.value).__name__)) as ours:
        await put(adapter, server, file_of(at=at))
    assert str(ours.value) == str(plain.value)
    assert len(forbear.record_of(ours.value).attempts) == 1
    assert (complete(server), server.executed()) == ([], 0)


class Unseekable(io.RawIOBase):
    """A pipe, a decompressor, an upload that is passed on: readable once."""

    def __init__(self, content=PAYLOAD):
        self._left = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._left.readinto(buffer)


def own_stream(adapter):
    """A stream class of the user's: nobody can know what a second pass of it would give."""

    class OneShot(adapter.library.SyncByteStream, adapter.library.AsyncByteStream):
        def __init__(self):
            self._left = self._stream = iter(pieces())

        def __iter__(self):
            for chunk in self._left:
                yield chunk.swapcase()

        async def __aiter__(self):
            for chunk in self._left:
                yield chunk.swapcase()

    return OneShot()


class Liar(Unseekable):
    """Some files have tell() and seek() that only raise."""

    def seekable(self):
        return True


class Pipe:
    """aiofiles answers seekable() with a coroutine; a pipe raises only in tell()."""

    def __init__(self):
        self._left = iter(pieces())

    async def seekable(self):
        return False

    async def tell(self):
        raise io.UnsupportedOperation("tell")

    read = seek = tell

    async def __aiter__(self):
        for piece in self._left:
            yield piece


def encoder():
    return MultipartEncoder({"f": "value"}, boundary="frontier")


ONCE = {
    "generator": (lambda _: generator(pieces()), PAYLOAD),
    "iterator": (lambda _: iter(pieces()), PAYLOAD),
    "chain": (lambda _: itertools.chain([b"head"], generator(pieces())), b"head" + PAYLOAD),
    "kept iterator": (lambda _: same(Passes, iter(pieces())), PAYLOAD),
    "unseekable file": (lambda _: Unseekable(), PAYLOAD),
    "file that says it can seek": (lambda _: Liar(), PAYLOAD),
}
ONCE_ASYNC = {
    "async generator": (lambda _: agenerator(pieces()), PAYLOAD),
    "kept async generator": (lambda _: same(AsyncPasses, agenerator(pieces())), PAYLOAD),
    "pipe": (lambda _: Pipe(), PAYLOAD),
}
ONCE_HTTPX = {
    "multipart": (lambda _: form_of(("a.bin", Unseekable())), multipart(PAYLOAD)),
    "own stream": (lambda adapter: {"stream": own_stream(adapter)}, SWAPPED),
}
ONCE_SYNC = {"own stream as content": (own_stream, SWAPPED)}
ONCE_REQUESTS = {"multipart encoder": (lambda _: encoder(), ENCODED)}


async def test_a_consumed_body_is_not_sent_again(adapter, server):
    """The caller gets the server's own 503 or the library's own error; never StreamConsumed."""
    cases = of_lane(
        adapter,
        httpx=ONCE | ONCE_HTTPX | ONCE_SYNC,
        asyncio=ONCE_ASYNC | ONCE_HTTPX,
        aiohttp=ONCE_ASYNC,
        requests=ONCE | ONCE_REQUESTS,
        urllib3=ONCE,
    )
    own = r"disconnected without sending|closed connection without|Server disconnected"
    for name, (make, expected) in cases.items():
        path = f"/{name.replace(' ', '-')}"
        server.script(path, "503;header=X-Which:first;body=11", 200)
        response = await put(adapter, server, make(adapter), path=path)
        assert (response.status_code, response.headers["x-which"]) == (503, "first"), name
        assert response.content == b"0123456789a"
        assert seen(server, path) == [whole(expected)], name
        assert forbear.record_of(response).reason == "body-consumed"
        server.script(path, "close", 200)
        with pytest.raises(adapter.disconnect_error, match=own) as it:
            await put(adapter, server, make(adapter), path=path)
        assert seen(server, path) == [whole(expected)] * 2, name
        assert forbear.record_of(it.value).reason == "body-consumed"


async def test_an_unread_body_is_sent_after_all_once_the_connection_works(adapter):
    """A refused connection leaves a generator unread, so it is sent again: even by POST."""
    for make in [one_shot] if adapter.is_async else [one_shot, lambda *_: Unseekable()]:
        with FaultServer() as server:
            server.script("/thing", 200)
            server.stop()

            def open_again(event, server=server):
                if event.name == "retry_scheduled":
                    server.start()

            body, options = make(adapter, pieces()), {"on_event": [open_again]}
            response = await put(adapter, server, body, method="POST", **options)
            assert response.status_code == 200
            assert seen(server) == [whole(PAYLOAD)]
        assert forbear.record_of(response).retries == 1


def numbered():  # 20 MB: more than the sockets of loopback hold
    return [b"%08d" % number * 6_250 for number in range(400)]


def disguised(chunks, *, is_async=False):
    """Each pass has its own generator, but all drain one source: the second pass is empty."""
    source = iter(chunks)
    kind, one_pass = (AsyncPasses, agenerator) if is_async else (Passes, generator)
    return kind(lambda: one_pass(source))


async def test_a_body_that_only_looks_re_iterable_never_arrives_empty(adapter, server):
    bodies = [(disguised(pieces(), is_async=adapter.is_async), PAYLOAD)]
    if not adapter.is_async:
        source = iter(pieces())
        chain = Passes(lambda: itertools.chain([b"head"], source))
        bodies.append((chain, b"head" + PAYLOAD))
    for number, (body, sent) in enumerate(bodies):
        server.script(f"/{number}", 503, 200)
        await refuse(adapter, server, body, sent, path=f"/{number}")


async def test_a_body_that_only_looks_re_iterable_never_arrives_in_part(adapter, server):
    """The first pass was cut half-way: what the second pass gives must not pass for the whole."""
    chunks = numbered()
    server.script("/thing", "reset-head;delay=50", 200)  # the body is on its way by then
    with pytest.raises(adapter.transport_error):
        await put(adapter, server, disguised(chunks, is_async=adapter.is_async))
    assert set(complete(server)) <= {digest(b"".join(chunks))}
    assert server.executed() == 0


@sync
async def test_a_second_pass_of_other_bytes_is_not_completed(adapter, server):
    """The same length, declared beforehand, other bytes: the last of them is not sent."""
    if adapter.name == "requests":
        return  # it adds Transfer-Encoding to the length it was given
    passes = itertools.count(1)

    def rewritten():
        yield b"%d" % next(passes) * 1_000
        yield b"end"

    server.script("/thing", 503, 200)
    body = {"content": Passes(rewritten), "headers": {"Content-Length": "1003"}}
    await refuse(adapter, server, body, b"1" * 1_000 + b"end")


class Stuck(io.BytesIO):
    """Says that it can seek, and stays where it is."""

    def seek(self, *place):
        return self.tell()


class Deaf(Stuck):
    """And says that it stands where it was told to."""

    def tell(self):
        return 0


@of_urllib3
async def test_a_file_that_moved_before_the_first_attempt_is_not_sent(adapter, server):
    """Something has read its beginning, such as what signs the request, and it does not return."""
    server.script("/thing", 200)
    file, clock = Stuck(PAYLOAD), FakeClock()
    moved = {"auth": lambda request: file.read(10) and request}
    if adapter.name == "urllib3":
        moved = {"body_pos": len(file.read(10)) - 10}
    with pytest.raises(adapter.transport_error, match="cannot be resent") as it:
        await put(adapter, server, {"content": file, **moved}, clock=clock)
    assert forbear.record_of(it.value).reason == "body-consumed"
    assert (clock.sleeps, server.requests()) == ([], [])


def changed(file, *, at, content):
    with open(file.name, "r+b") as same:
        same.seek(at)
        same.write(content) if content else same.truncate()


CHANGES = {
    "file that shrank": (None, lambda file: changed(file, at=100_000, content=b"")),
    "file that became empty": (None, lambda file: changed(file, at=0, content=b"")),
    "file that grew": (None, lambda file: changed(file, at=len(PAYLOAD), content=b"more")),
    "file that was rewritten": (None, lambda file: changed(file, at=0, content=b"other")),
    "file that was closed": (None, lambda file: file.close()),
    "seek that does nothing": (Stuck, lambda _: None),
    "seek that does nothing, and says it did": (Deaf, lambda _: None),
    "bytearray": (bytearray, lambda body: body.__setitem__(0, 17)),
    "memoryview": (lambda body: memoryview(bytearray(body)), lambda body: body.__setitem__(0, 17)),
    "array": (lambda body: array.array("B", body), lambda body: body.__setitem__(0, 17)),
}


@of_urllib3
@pytest.mark.parametrize("first", [503, "close"])
@pytest.mark.parametrize("name", CHANGES)
async def test_a_body_that_changed_meanwhile_is_not_sent(adapter, server, file_of, name, first):
    make, change = CHANGES[name]
    body = (make or file_of)(PAYLOAD)
    server.script("/thing", first, 200)
    changing = {"on_event": [lambda event: change(body)]}
    executed = 1 if first == "close" else 0
    error = await refuse(adapter, server, body, PAYLOAD, executed=executed, **changing)
    assert forbear.record_of(error).reason == "body-consumed"


async def test_a_one_shot_body_is_sent_again_if_it_fits_the_buffer(adapter, server):
    """body_buffer of exactly its size, and of one byte less: then the caller gets the 503."""
    for room, status, arrivals in ((len(PAYLOAD), 200, 3), (len(PAYLOAD) - 1, 503, 1)):
        path = f"/{room}"
        server.script(path, 503, "close", 200)
        body = one_shot(adapter, pieces())
        response = await put(adapter, server, body, path=path, body_buffer=room)
        assert response.status_code == status
        assert seen(server, path) == [whole(PAYLOAD)] * arrivals
    assert forbear.record_of(response).reason == "body-consumed"


async def test_a_buffered_body_whose_upload_was_cut_goes_on_from_its_source(adapter, server):
    chunks = numbered()
    server.script("/thing", "reset-head;delay=50", 200)  # the body is on its way by then
    response = await put(adapter, server, one_shot(adapter, chunks), body_buffer=20_000_000)
    assert response.status_code == 200
    assert seen(server)[1:] == [whole(b"".join(chunks))]


@sync
async def test_a_buffered_file_that_cannot_seek_is_sent_again(adapter, server):
    """It serves them like generators, in httpx's multipart and requests' encoder too."""
    form = (form_of(("a.bin", Unseekable())), multipart(PAYLOAD))
    more = {"requests": [(encoder(), ENCODED)], "urllib3": []}
    for body, expected in [(Unseekable(), PAYLOAD), *more.get(adapter.name, [form])]:
        server.script("/thing", 503, 200)
        assert (await put(adapter, server, body, body_buffer=1_000_000)).status_code == 200
        assert seen(server)[-2:] == [whole(expected)] * 2


def failing(error):
    yield b"begun"
    raise error


@of_urllib3
@pytest.mark.parametrize("body_buffer", [0, 1_000_000])
async def test_an_error_of_the_callers_own_iterator_is_the_bare_librarys(
    adapter, body_buffer, server
):
    """requests and urllib3 translate an OSError; it is not retried all the same."""
    url = server.url + "/thing"
    for kind in (KeyError, OSError, ConnectionResetError):
        error = kind("while the source was read")
        server.script("/thing", 200)
        with pytest.raises(Exception) as bare:
            if adapter.name == "requests":
                requests.put(url, data=failing(error))
            else:
                urllib3.PoolManager(retries=0).request("PUT", url, body=failing(error))
        with pytest.raises(type(bare.value)) as ours:
            await put(adapter, server, failing(error), body_buffer=body_buffer)
        assert type(ours.value) is type(bare.value)
        assert (complete(server), len(forbear.record_of(ours.value).attempts)) == ([], 1)


ROOM = {"body_buffer": len(PAYLOAD)}
HOPS = {  # each body, options, and whether it arrives again
    "file": (lambda: io.BytesIO(PAYLOAD), {}, True),
    "class": (anew, {}, True),
    "unseekable file": (Unseekable, {}, False),
    "kept iterator": (lambda: same(Passes, iter(pieces())), {}, False),
    "buffered": (lambda: generator(pieces()), ROOM, True),
}
HOPS_OF_OTHERS = {
    "generator": (lambda: generator(pieces()), {}, False),
    "disguised": (lambda: disguised(pieces()), {}, False),
}
HOPS_AIOHTTP = {  # which itself follows none that it has consumed
    "class": (afresh_async, {}, True),
    "iterator": (lambda: same(AsyncPasses, agenerator(pieces())), {}, False),
}
HOPS_ASYNC = HOPS_AIOHTTP | {"buffered": (lambda: agenerator(pieces()), ROOM, True)}


async def test_a_body_follows_a_307_whole_or_not_at_all(adapter, server):
    """A redirected call is one call: the bare library would send an empty second pass."""
    cases = of_lane(
        adapter,
        httpx=HOPS,
        asyncio=HOPS_ASYNC,
        aiohttp=HOPS_AIOHTTP | {"file": HOPS["file"]},
        requests=HOPS | HOPS_OF_OTHERS | {"encoder": (encoder, {}, False)},
        urllib3=HOPS | HOPS_OF_OTHERS,
    )
    for number, (name, (make, options, arrives)) in enumerate(cases.items()):
        path = f"/{number}"
        server.script(path, f"307;executes=0;header=Location:{path}-moved")
        server.script(path + "-moved", 503, 200)
        asked = {"path": path, "follow": True, **options}
        if arrives:
            assert (await put(adapter, server, make(), **asked)).status_code == 200, name
        else:
            refused = r"cannot be resent|Unable to rewind|a consumed request body"
            with pytest.raises(adapter.transport_error, match=refused):
                await put(adapter, server, make(), **asked)
        assert complete(server, path + "-moved") == [digest(PAYLOAD)] * 2 * arrives, name
        assert complete(server, path) in ([digest(PAYLOAD)], [digest(ENCODED)]), name


@pytest.mark.adapters("status-errors")
async def test_a_body_answers_a_challenge_whole_or_not_at_all(adapter, server):
    """The bare libraries send the second time what is left of a body that was read: nothing."""
    refused = r"cannot be resent|already been streamed"
    of = requests.auth.HTTPDigestAuth if adapter.name == "requests" else adapter.library.DigestAuth
    bodies = HOPS_ASYNC if adapter.is_async else HOPS | HOPS_OF_OTHERS
    for name, (make, options, arrives) in bodies.items():
        if name == "unseekable file":
            continue  # requests seeks in it for a digest
        path = f"/{name.replace(' ', '-')}"
        server.script(path, CHALLENGE, 503, 200)
        body = {"content": make(), "auth": of("u", "p")}
        if arrives:
            assert (await put(adapter, server, body, path=path, **options)).status_code == 200
        else:
            with pytest.raises(Exception, match=refused) as caught:
                await put(adapter, server, body, path=path, **options)
            names = {"StreamConsumed", "RemoteProtocolError", "ConnectionError"}
            assert type(caught.value).__name__ in names
        assert complete(server, path) == [digest(PAYLOAD)] * (3 if arrives else 1), path


@of_urllib3
async def test_what_is_sent_after_a_redirect_is_a_body_of_its_own(adapter, server, file_of):
    """The same objects again, elsewhere or changed: nothing is left of the redirected call."""
    file, content = file_of(), [b"before"]
    changing = Passes(lambda: iter(content))
    for body, change in (
        (file, lambda: file.seek(100)),
        (changing, lambda: content.__setitem__(0, b"after it")),
    ):
        server.script("/thing", "307;executes=0;header=Location:/moved")
        server.script("/moved", 200)
        for path in ("/thing", "/moved"):
            assert (await put(adapter, server, body, path=path, follow=True)).status_code == 200
            change()
    sent = (PAYLOAD, PAYLOAD[100:], b"before", b"after it")
    assert complete(server, "/moved") == [*map(digest, sent)]


@pytest.mark.adapters("httpx-family")
async def test_a_generator_does_not_follow_a_307(adapter, server):
    """The error is one of the transport's, which ``except httpx.HTTPError`` catches."""
    server.script("/thing", "307;executes=0;header=Location:/moved")
    with pytest.raises(adapter.library.RemoteProtocolError):
        await put(adapter, server, one_shot(adapter, pieces()), follow=True)
    assert complete(server, "/moved") == []


@pytest.mark.adapters("httpx-family", "sync")
@pytest.mark.parametrize("can_seek", [True, False])
async def test_a_body_through_two_stacked_transports(adapter, server, quick, can_seek):
    """The outer guard is no re-iterable body to the inner transport."""
    server.script("/thing", "503;body=3", 200)
    async with adapter.client(adapter.transport(**quick), **quick) as client:
        content = io.BytesIO(PAYLOAD) if can_seek else generator(pieces())
        response = client.put(server.url + "/thing", content=content)
    assert response.status_code == (200 if can_seek else 503)
    assert seen(server) == [whole(PAYLOAD)] * (2 if can_seek else 1)


async def test_an_early_no_is_the_answer(adapter, server):
    """The server has read 1,000 bytes, and says no: one request, its own answer."""
    for body, status in ((LARGE, 413), (one_shot(adapter, pieces(LARGE)), 401)):
        server.script("/thing", f"early:{status}:1000", 200)
        assert (await put(adapter, server, body, **AT_ONCE)).status_code == status
    assert len(server.requests()) == 2


async def test_an_early_hint_is_obeyed_and_the_body_sent_whole(adapter, server):
    both = [1000, len(LARGE)]
    once, kept = (one_shot(adapter, pieces(LARGE)) for _ in range(2))
    for content, room, arrived in ((LARGE, 0, both), (kept, len(LARGE), both), (once, 0, [1000])):
        clock, before = FakeClock(), len(server.requests())
        server.script("/thing", "early:429:1000;retry-after=3", 200)
        options = {**AT_ONCE, "clock": clock, "body_buffer": room}
        response = await put(adapter, server, content, **options)
        arrivals = server.requests()[before:]
        assert [arrival.body_bytes for arrival in arrivals] == arrived
        if len(arrived) == 2:
            assert (response.status_code, clock.sleeps) == (200, [3.0])
            assert arrivals[1].sha256 == digest(LARGE)
        else:
            assert response.status_code == 429
            assert forbear.record_of(response).reason == "body-consumed"
