"""What holds for aiohttp alone; what holds for every client runs on its lane of the suite."""

import asyncio
import gzip
import io
import ssl

import aiohttp
import pytest
from aiohttp.http_exceptions import ContentEncodingError

import forbear
from forbear import Fixed, IdempotencyKeys, Reason, RetryPolicy, record_of
from forbear.aiohttp import (
    CircuitOpenError,
    DeadlineExceeded,
    RetryMiddleware,
    classify,
    unwrap,
    wrap,
)
from forbear.testing import FakeClock, answer

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0))


@pytest.fixture
def anyio_backend():
    return "asyncio"


def session_of(*middlewares, **settings):
    return aiohttp.ClientSession(middlewares=middlewares, **settings)


def retrying(policy=NOW, **options):
    return RetryMiddleware(policy, **{"gate": None, "clock": FakeClock(), **options})


async def fetch(session, method, url, **named):
    async with session.request(method, url, **named) as response:
        await response.read()
        return response


async def once(server, middlewares, method="GET", *, timeout=None, **named):
    """One request of a session of its own, after which no connection is taken."""
    settings = {} if timeout is None else {"timeout": timeout}
    async with session_of(*middlewares, **settings) as session:
        try:
            return await fetch(session, method, server.url + "/thing", **named)
        finally:
            assert not session.connector._acquired


@pytest.mark.parametrize(("setting", "arrivals"), [(NOW, 4), (False, 2)], ids=["on", "off"])
async def test_the_session_does_not_repeat_what_was_given_up(server, setting, arrivals):
    server.script("/thing", *["close"] * 10)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await once(server, [retrying().with_policy(setting)])
    assert len(server.requests("/thing")) == arrivals


async def test_a_redirected_call_has_its_attempts_once(server):
    server.script("/thing", 503, answer(307, headers={"Location": "/moved"}))
    server.script("/moved", *[503] * 6)
    async with session_of(retrying()) as session:
        response = await fetch(session, "GET", server.url + "/thing")
        other = await fetch(session, "GET", server.url + "/moved")
    assert response.status == 503
    assert len(server.requests("/moved")) == 3 + 4
    assert other.status == 503


async def test_a_generated_key_goes_with_a_redirect_on_its_origin(server):
    server.script("/thing", 503, answer(307, headers={"Location": "/moved"}))
    server.script("/moved", 503, 200)
    response = await once(server, [retrying(idempotency=IdempotencyKeys())], "POST", json={"a": 1})
    assert response.status == 200
    keys = {dict(arrival.headers)["Idempotency-Key"] for arrival in server.requests()}
    assert (len(server.requests()), len(keys)) == (4, 1)


async def test_wrap_goes_behind_the_sessions_own_and_is_undone(server):
    seen = []

    async def own(request, handler):
        seen.append(request.method)
        return await handler(request)

    server.script("/thing", 503, 200, 503)
    async with session_of(own) as session:
        assert wrap(session, NOW, clock=FakeClock()) is session
        with pytest.raises(ValueError, match="wrapped already"):
            wrap(session)
        response = await fetch(session, "GET", server.url + "/thing")
        assert (response.status, seen) == (200, ["GET"])
        assert forbear.aiohttp.is_wrapped(session)
        assert unwrap(session) is session
        assert not forbear.aiohttp.is_wrapped(session)
        with pytest.raises(ValueError, match="not wrapped"):
            unwrap(session)
        response = await fetch(session, "GET", server.url + "/thing")
    assert response.status == 503


async def test_the_sessions_total_ends_the_call(server):
    server.script("/thing", "hang", 200)
    total = aiohttp.ClientTimeout(total=0.2)
    with pytest.raises(TimeoutError) as caught:
        await once(server, [RetryMiddleware(NOW)], timeout=total)
    assert (len(server.requests()), record_of(caught.value).reason) == (1, Reason.DEADLINE)


async def test_after_attempt_timeout_a_post_is_not_retried(server):
    server.script("/thing", "hang", 200)
    with pytest.raises(aiohttp.SocketTimeoutError) as caught:
        await once(server, [retrying(NOW.replace(attempt_timeout=0.3))], "POST", data=b"order")
    assert len(server.requests()) == 1
    assert record_of(caught.value).reason is Reason.METHOD_NOT_REPLAYABLE


async def test_attempt_timeout_sends_what_a_middleware_below_made_of_the_request(server):
    server.script("/thing", 503, 200)
    outer = retrying(NOW.replace(attempt_timeout=5.0))
    response = await once(
        server, [outer, retrying(idempotency=IdempotencyKeys())], "POST", data=b"order"
    )
    assert response.status == 200
    (key,) = {dict(arrival.headers).get("Idempotency-Key") for arrival in server.requests()}
    assert key is not None


async def test_a_form_with_a_stream_is_sent_once(server):
    async def pieces():
        yield b"x"

    server.script("/thing", 503, 200)
    writer = aiohttp.MultipartWriter("form-data")
    writer.append(pieces()).set_content_disposition("form-data", name="f")
    response = await once(server, [retrying()], "PUT", data=writer)
    assert (response.status, record_of(response).reason) == (503, Reason.BODY_CONSUMED)


async def test_what_the_callers_own_generator_raises_is_not_retried(server):
    class Broken:
        async def __aiter__(self):
            yield b"x"
            raise ValueError("the caller's own")

    server.script("/thing", 200)
    with pytest.raises(aiohttp.ClientConnectionError) as caught:
        await once(server, [retrying()], "PUT", data=Broken())
    assert isinstance(caught.value.__cause__, ValueError)
    record = record_of(caught.value)
    assert (record.reason, record.retries) == (Reason.PERMANENT_ERROR, 0)


@pytest.mark.parametrize("seconds", [0, 0.1], ids=["while-read", "before"])
async def test_a_small_body_that_breaks_is_a_failure_of_its_attempt(server, seconds):
    """The caller of a POST gets its head, and the error where the body breaks."""

    async def slow(request, handler):
        response = await handler(request)
        await asyncio.sleep(seconds)
        return response

    server.script("/thing", "cut:10", 200, "cut:10")
    await once(server, [retrying(), slow])
    assert len(server.requests("/thing")) == 2
    async with session_of(retrying(), slow) as session:
        response = await session.post(server.url + "/thing")
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert len(server.requests("/thing")) == 3


async def test_a_small_body_that_stalls_ends_with_the_deadline(server):
    server.script("/thing", "200;drip=5000")
    with pytest.raises(DeadlineExceeded):
        await once(server, [retrying(NOW.replace(total_timeout=0.2), clock=None)])


async def test_an_encoded_download_is_not_resumed(server):
    packed = gzip.compress(bytes(range(256)) * 4_000, compresslevel=0)
    headers = {"Content-Encoding": "gzip", "ETag": '"v1"'}
    server.script("/thing", answer("cut:500000", body=packed, headers=headers), 200)
    with pytest.raises(aiohttp.ClientPayloadError):
        await once(server, [retrying()])
    assert len(server.requests()) == 1


async def test_a_line_may_be_as_long_as_the_sessions_buffer_allows(server):
    """Also of a body that can be resumed, which is read through a reader of forbear's."""
    server.script("/lines", answer(200, body=b"x" * 300_000 + b"\n", headers={"ETag": '"v1"'}))
    async with session_of(retrying(), read_bufsize=2**18) as session:
        async with session.get(server.url + "/lines") as response:
            assert len(await response.content.readline()) == 300_001


async def test_a_read_that_waits_ends_when_another_task_closes_the_response(server):
    """With aiohttp's own error. A body that can be resumed was waited for until it went on."""
    server.script("/file", "200;body=200000;etag=a;drip=2000")
    async with session_of(retrying()) as session:
        response = await session.get(server.url + "/file")
        await response.content.readany()
        reading = asyncio.create_task(response.content.readany())
        await asyncio.sleep(0.05)
        response.close()
        with pytest.raises(aiohttp.ClientConnectionError, match="Connection closed"):
            await asyncio.wait_for(reading, 1)


def caused(error, cause):
    error.__cause__ = cause
    return error


NO, NO_CERTIFICATE = OSError(111, "no"), ssl.SSLCertVerificationError(1, "no")
MEANINGS = [
    (aiohttp.ClientConnectorError(None, NO), "refused", "unsent"),
    (aiohttp.ClientConnectorDNSError(None, NO), "dns", "unsent"),
    (aiohttp.ClientProxyConnectionError(None, NO), "proxy", "unsent"),
    (aiohttp.ClientConnectorSSLError(None, ssl.SSLError(1, "no")), "tls", "unsent"),
    (aiohttp.ClientConnectorCertificateError(None, NO_CERTIFICATE), "certificate", "unsent"),
    (aiohttp.ServerFingerprintMismatch(b"a", b"b", "h", 1), "certificate", "unsent"),
    (aiohttp.ConnectionTimeoutError("no"), "connect-timeout", "unsent"),
    (aiohttp.SocketTimeoutError("no"), "read-timeout", "sent"),
    (aiohttp.ServerTimeoutError("no"), "timeout", "sent"), (TimeoutError(), "timeout", "sent"),
    (aiohttp.ServerDisconnectedError(), "reset", "sent"),
    (aiohttp.ClientConnectionResetError("no"), "reset", "sent"),
    (aiohttp.ClientOSError(104, "no"), "reset", "sent"),
    (aiohttp.ClientPayloadError("no"), "protocol", "answered"),
    (caused(aiohttp.ClientPayloadError("no"), ContentEncodingError("no")), "decoding", "answered"),
    (aiohttp.InvalidURL("no"), "permanent", "unsent"),
    (aiohttp.NonHttpUrlClientError("no"), "permanent", "unsent"),
    (aiohttp.ClientResponseError(None, (), status=404), "permanent", "answered"),
    (aiohttp.ClientHttpProxyError(None, (), status=407), "permanent", "unsent"),
    (aiohttp.ClientHttpProxyError(None, (), status=502), "proxy", "unsent"),
    (aiohttp.ClientError("no"), "protocol", "sent"),
    (CircuitOpenError("no", reason=Reason.CIRCUIT_OPEN), "permanent", "unsent"),
    (UnicodeError("no"), "permanent", "unsent"), (KeyError("a mistake"), "unknown", "sent"),
]  # fmt: skip


def test_what_each_error_means():
    for error, kind, phase in MEANINGS:
        failure = classify(error)
        assert (str(failure.kind), str(failure.phase)) == (kind, phase), error


async def test_a_connection_lost_under_the_upload_is_an_error_of_aiohttp(server):
    """aiohttp 3.14 says AttributeError, where the body is written at once to a lost connection."""

    async def lose(request, handler):
        protocol = None
        return protocol.read()

    with pytest.raises(aiohttp.ClientConnectionResetError) as caught:
        await once(server, [retrying(), lose], "PUT", data=io.BytesIO(b"x"))
    assert record_of(caught.value).retries == 3


async def test_a_middleware_below_sees_the_body_as_aiohttp_shows_it(server):
    seen = []

    async def sign(request, handler):
        body = request.body
        assert isinstance(body, aiohttp.Payload)
        seen.append((body.size, body.content_type, body.filename, await body.as_bytes()))
        return await handler(request)

    server.script("/thing", 503, 200)
    file = aiohttp.BytesIOPayload(io.BytesIO(b"\xff\x00"), filename="a.png")
    response = await once(server, [retrying(), sign], "PUT", data=file)
    assert response.status == 200
    assert seen == [(2, "image/png", "a.png", b"\xff\x00")] * 2
    assert [arrival.body_bytes for arrival in server.requests()] == [2, 2]


async def test_a_form_with_a_file_arrives_whole_on_each_attempt(server, tmp_path):
    place = tmp_path / "upload.bin"
    place.write_bytes(b"x" * 300_000)
    server.script("/thing", 503, "close", 200)
    form = aiohttp.FormData()
    form.add_field("who", "me")
    with place.open("rb") as file:
        file.seek(1_000)
        form.add_field("f", file, filename="upload.bin")
        response = await once(server, [retrying()], "PUT", data=form)
    assert response.status == 200
    assert len({(arrival.sha256, arrival.body_complete) for arrival in server.requests()}) == 1
    assert server.requests()[0].body_bytes > 299_000


@pytest.mark.parametrize("step", [503, "close"])
async def test_a_session_that_a_hook_closes_ends_the_call(server, step):
    server.script("/thing", step, 200)

    async def close(request, attempt):
        await session.close()

    session = session_of(retrying(before_attempt=close))
    with pytest.raises(aiohttp.ClientConnectionError) as caught:
        await fetch(session, "GET", server.url + "/thing")
    assert len(server.requests()) == 1
    assert record_of(caught.value).attempts
