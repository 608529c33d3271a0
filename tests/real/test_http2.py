"""HTTP/2: what GOAWAY and RST_STREAM prove, and httpcore's own re-send, which would empty a body.

Over plain TCP with prior knowledge (RFC 9113 section 3.3), once over TLS with ALPN.
"""

import importlib
import socket
import ssl
import time
from dataclasses import dataclass, field

import anyio
import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest
from hyperframe.frame import HeadersFrame

import forbear
from forbear import RetryPolicy

from ..lanes.lane import run_at_once
from ..sockets import Listening
from .conftest import package

pytestmark = [
    pytest.mark.real,
    # Both libraries and every event loop; what differs between the other pairs is not the server's.
    pytest.mark.lanes("httpx-sync", "httpx-asyncio", "httpx2-trio"),
    # Abandoned async iterations: see tests/adapters/test_bodies.py.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

PLAIN = {"http1": False, "http2": True}
AT_ONCE = RetryPolicy(backoff=forbear.Fixed(0))
CHUNKS = [b"first,", b"second,", b"third"]
WHOLE = b"".join(CHUNKS)
POST = "POST", {"content": WHOLE}
FILE = bytes(n % 251 for n in range(100_000))

WRONG = {"frame": "8", "long-frame": "100000"}  # and the length that the head declares
# An error of the connection: RFC 9113 section 6.9.
WINDOW_UPDATE_OF_0 = b"\0\0\x04\x08\0" + bytes(8)


@dataclass
class Stream:
    """One request as the server saw it."""

    connection: int
    number: int
    method: str
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False
    executed: bool = False


class Http2Server(Listening):
    """Answers the n-th complete request with the n-th step; the last one repeats. Keeps a ledger.

    Steps: a status (2xx executes); the name of a code: RST_STREAM with it;
    "goaway-below": GOAWAY names the stream before this one as the last processed, "goaway-0": none;
    "goaway": the same after the head of a stream of events; "never": no answer; "opens-streams":
    executes, and opens streams of its own, more than the client allows;
    (first, size, end): bytes of the file, with RST_STREAM if that is before its size; bytes: a
    stream of events, which ends if they have data; digits: that status with five of eight bytes, with
    "?" no length. Wrong: "short": the body ends early, as if whole; "frame", "long-frame": invalid.
    """

    def __init__(self, *steps, tls=None):
        self._steps = list(steps)
        self._tls = tls
        self.streams = []
        super().__init__()
        self.url = f"{self.url}/" if tls is None else f"{self.url.replace('http', 'https')}/"

    @property
    def posted(self):
        """Bodies of the POSTs that came to their end, and how many were executed."""
        posts = [stream for stream in self.streams if stream.method == "POST"]
        whole = [bytes(stream.body) for stream in posts if stream.complete]
        return whole, sum(stream.executed for stream in posts)

    @property
    def connections_used(self):
        """The connection of each stream."""
        return [stream.connection for stream in self.streams]

    def serve(self, sock, number):
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_side=True)
        with sock:
            connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
            connection.initiate_connection()
            sock.sendall(connection.data_to_send())
            mine = {}
            while data := sock.recv(65_536):
                for event in connection.receive_data(data):
                    match event:
                        case h2.events.RequestReceived(stream_id=of):
                            method = dict(event.headers)[b":method"].decode()
                            mine[of] = Stream(number + 1, of, method)
                            self.streams.append(mine[of])
                        case h2.events.DataReceived(stream_id=of, data=data):
                            mine[of].body += data
                            connection.acknowledge_received_data(event.flow_controlled_length, of)
                        case h2.events.StreamEnded(stream_id=of):
                            mine[of].complete = True
                            self._answer(connection, mine[of], sock)
                with self.lock:
                    sock.sendall(connection.data_to_send())
                if connection.state_machine.state is h2.connection.ConnectionState.CLOSED:
                    break

    def _answer(self, connection, stream, sock):
        with self.lock:
            step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        number = stream.number

        def respond(status, body=b"", *, end=False, **headers):
            lines = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
            connection.send_headers(number, [(":status", str(status)), *lines])
            if body:
                connection.send_data(number, body, end_stream=end)

        if isinstance(step, int):
            stream.executed = step < 300
            respond(step, b"ok", end=True, content_length=2)
        elif isinstance(step, tuple):
            first, size, end = step
            place = {"content_range": f"bytes {first}-{size - 1}/{size}"} if first else {}
            respond(206 if first else 200, content_length=size - first, etag='"v1"', **place)
            for at in range(first, end, 16_000):
                block = FILE[at : min(at + 16_000, end)]
                connection.send_data(number, block, end_stream=at + len(block) == size)
            if end < size:
                connection.reset_stream(number, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif isinstance(step, bytes):
            respond(200, step, end=b"data:" in step, content_type="text/event-stream")
        elif step.rstrip("?").isdigit():
            respond(step.rstrip("?"), b'{"a":', **({} if "?" in step else {"content_length": 8}))
        elif step == "short":
            respond(200, b'{"a":', end=True, content_length=8)
        elif step in WRONG:
            respond(200, b'{"a":', content_length=WRONG[step])
            sock.sendall(connection.data_to_send())
            time.sleep(0.05)  # mostly the client has read that
            sock.sendall(WINDOW_UPDATE_OF_0)
        elif step == "opens-streams":
            stream.executed = True
            for other in range(2, 204, 2):
                lines = connection.encoder.encode([(":method", "GET"), (":path", "/")])
                sock.sendall(HeadersFrame(other, lines, flags=["END_HEADERS"]).serialize())
        elif step == "goaway":
            respond(200, content_type="text/event-stream")
            connection.close_connection(last_stream_id=number)
        elif step.isupper():
            connection.reset_stream(number, h2.errors.ErrorCodes[step])
        elif step != "never":
            last = {"goaway-below": number - 2, "goaway-0": 0}[step]
            connection.close_connection(last_stream_id=last)


class AnewAsync:
    async def __aiter__(self):
        for chunk in CHUNKS:
            yield chunk


def one_shot(adapter):
    return "POST", {"content": AnewAsync().__aiter__ if adapter.is_async else lambda: iter(CHUNKS)}


def replayable(adapter):
    return "POST", {"content": AnewAsync() if adapter.is_async else list(CHUNKS)}


def run(adapter, steps, *calls, **options):
    """The server, and what each call returns or raises: a method, or one with a request."""
    with Http2Server(*steps) as server:
        made = [(call, {}) if isinstance(call, str) else call for call in calls]
        made = [(method, server.url, request) for method, request in made]
        return server, adapter.calls(*made, **{"inner": PLAIN, **options})


# Response bodies.


def test_a_large_body_whose_stream_is_reset_is_gone_on_with(adapter):
    """On another stream of the same connection."""
    size = len(FILE)
    parts = (0, size, 16_001), (16_001, size, 48_001), (48_001, size, size)
    server, [response] = run(adapter, parts, "GET")
    assert response.content == FILE
    assert forbear.record_of(response).resumed == (16_001, 48_001)
    assert server.connections_used == [1, 1, 1]


def test_a_dead_connection_is_not_used_again(adapter):
    """The retry goes over a fresh one."""

    def lose():
        for sock in server.sockets[1:]:
            sock.shutdown(socket.SHUT_RDWR)
        return {}

    with Http2Server(200) as server:
        get = "GET", server.url
        calls = adapter.calls(get, (*get, {"headers": lose}), get, inner=PLAIN)
    assert [each.status_code for each in calls] == [200, 200, 200]
    assert forbear.record_of(calls[1]).retries == 1
    assert server.connections_used[-2:] == [2, 2]


def test_a_failed_body_that_stalls_is_not_read(adapter):
    """Its connection goes on with the next attempt."""
    server, [response] = run(adapter, ["503", 200], "GET", settings={"timeout": None})
    assert response.status_code == 200
    assert server.connections_used == [1, 1]


def test_a_stream_that_is_silent_before_its_first_event_is_given_up(adapter):
    """Its connection goes on with the next attempt, and with the next call.

    A thread waits for the client's own read timeout, which ends the connection.
    """
    steps = b": ping\n\n", b"data: 1\n\n", 200
    settings = {"timeout": 60 if adapter.is_async else 0.3}
    streams = forbear.EventStreams(first_event_timeout=0.2)
    server, [response, other] = run(
        adapter, steps, "GET", "GET", settings=settings, event_streams=streams
    )
    assert (response.content, other.content) == (b"data: 1\n\n", b"ok")
    (first, second) = forbear.record_of(response).attempts
    assert (first.failure, second.status) == (forbear.FailureKind.READ_TIMEOUT, 200)
    assert server.connections_used == ([1, 1, 1] if adapter.is_async else [1, 2, 2])


def test_a_goaway_before_the_first_event_fails_the_attempt_alone(adapter):
    """Another stream is under way on the connection that GOAWAY has closed."""

    async def calls(server):
        events = {"event_streams": forbear.EventStreams()}
        async with adapter.client(PLAIN, policy=AT_ONCE, **events) as client:
            under_way = await adapter.open(client, "GET", server.url)
            response = await adapter.download(client, server.url)
            await adapter.close(under_way)
            return response

    with Http2Server("200?", "goaway", b"data: 1\n\n") as server:
        if adapter.is_async:
            response = anyio.run(calls, server, backend=adapter.flavour)
        else:
            response = run_at_once(calls(server))
    assert response.content == b"data: 1\n\n"
    assert forbear.record_of(response).retries == 1
    assert server.connections_used == [1, 1, 2]


# What breaks the protocol.


@pytest.mark.parametrize("step", ["short", "frame"])
def test_what_the_server_does_wrong_is_its_fault(adapter, step):
    """httpcore calls it local, or raises the error of h2 itself: a retry helps all the same."""
    server, [response, error] = run(adapter, [step, 200, step], "GET", POST)
    assert response.content == b"ok"
    assert isinstance(error, adapter.library.ProtocolError)
    for outcome, reason in ((response, None), (error, "method-not-replayable")):
        record = forbear.record_of(outcome)
        assert (record.attempts[0].failure, record.reason) == ("protocol", reason)
    assert len(server.posted[0]) == 1


def test_a_body_that_the_caller_reads_breaks_by_the_librarys_own_error(adapter):
    _, [error] = run(adapter, ["long-frame"], "GET")
    assert type(error) is adapter.library.RemoteProtocolError


def test_a_header_that_cannot_be_sent_is_the_callers_fault(adapter):
    """RFC 9113 section 8.2.2 allows no TE but trailers."""
    server, [error] = run(adapter, [200], ("GET", {"headers": {"TE": "gzip"}}))
    assert type(error) is adapter.library.LocalProtocolError
    assert forbear.record_of(error).reason == "permanent-error"
    assert server.streams == []


# httpcore's own re-send: GOAWAY below the stream, and the pool re-sends by itself.


def test_pitfall_15_a_one_shot_body_is_never_sent_empty_by_httpcores_own_resend(adapter):
    """The body is not completed again."""
    server, [_, error] = run(adapter, [200, "goaway-below", 200], "GET", one_shot(adapter))
    assert isinstance(error, adapter.library.RemoteProtocolError)
    assert server.posted == ([WHOLE], 0)


def test_a_replayable_body_arrives_whole_by_httpcores_own_resend(adapter):
    """The guard stands in no way of a body that can be produced again, or is kept in the buffer."""
    for post, size in ((POST, 0), (replayable(adapter), 0), (one_shot(adapter), len(WHOLE))):
        steps = [200, "goaway-below", 200]
        server, [_, response] = run(adapter, steps, "GET", post, body_buffer=size)
        assert response.status_code == 200
        assert server.posted == ([WHOLE, WHOLE], 1)


# What proves that nothing was processed.

unsent = pytest.mark.parametrize("step", ["goaway-0", "REFUSED_STREAM"])


@unsent
def test_pitfall_16_what_was_not_processed_is_sent_again_a_post_too(adapter, step):
    """last_stream_id=0: no stream was processed (RFC 9113 section 6.8). REFUSED_STREAM: "any
    request that was sent on the reset stream can be safely retried" (section 8.7).
    """
    for post in (POST, replayable(adapter)):
        server, [response] = run(adapter, [step, 200], post)
        assert response.status_code == 200
        assert forbear.record_of(response).retries == 1
        assert server.posted == ([WHOLE, WHOLE], 1)


@unsent
def test_a_consumed_body_is_not_sent_again_however_safe_it_would_be(adapter, step):
    """The request may be repeated, the body cannot: the library's own error comes back."""
    server, [error] = run(adapter, [step, 200], one_shot(adapter))
    assert type(error) is adapter.library.RemoteProtocolError
    assert forbear.record_of(error).reason == "body-consumed"
    assert server.posted == ([WHOLE], 0)


@pytest.mark.parametrize("step", ["CANCEL", "ENHANCE_YOUR_CALM"])
def test_other_resets_prove_nothing_so_a_get_is_sent_again_and_a_post_is_not(adapter, step):
    """CANCEL and ENHANCE_YOUR_CALM may follow a request that was carried out."""
    server, [error, response] = run(adapter, [step, step, 200], POST, "GET")
    assert type(error) is adapter.library.RemoteProtocolError
    assert forbear.record_of(error).reason == "method-not-replayable"
    assert server.posted == ([WHOLE], 0)
    assert forbear.record_of(response).retries == 1


def test_pitfall_64_endless_refusals_are_bounded_by_max_attempts(adapter):
    """curl once looped for ever on "not processed, try again": a count is needed too."""
    for step, attempts in (
        ("REFUSED_STREAM", 3),
        ("ENHANCE_YOUR_CALM", 3),
        ("goaway-0", 3),
        ("REFUSED_STREAM", 1),
    ):
        server, [error] = run(adapter, [step], "GET", policy=RetryPolicy(max_attempts=attempts))
        assert type(error) is adapter.library.RemoteProtocolError
        assert forbear.record_of(error).reason == "attempts-exhausted"
        assert len(server.streams) == attempts


def test_over_tls_the_same_holds(adapter):
    """ALPN chooses h2; a 503, a refused stream and a GOAWAY(0) later the POST was executed once."""
    authority = package("trustme").CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    for context in (serving, trusting):
        context.set_alpn_protocols(["h2"])
    asked = {"content": WHOLE, "headers": {"Idempotency-Key": "order-1"}}
    with Http2Server(503, "REFUSED_STREAM", "goaway-0", 200, tls=serving) as server:
        inner = {"http2": True, "verify": trusting}
        (response,) = adapter.calls(("POST", server.url, asked), inner=inner)
    assert (response.status_code, response.http_version) == (200, "HTTP/2")
    assert server.posted == ([WHOLE] * 4, 1)
    assert set(server.connections_used) == {1, 2}  # only GOAWAY ended a connection


@pytest.mark.parametrize("in_use", [False, True], ids=["idle", "in-use"])
@pytest.mark.parametrize(("name", "backend"), [("httpx", "asyncio"), ("httpx2", "trio")])
def test_a_connection_full_of_streams_that_were_given_up_is_replaced(name, backend, in_use):
    """Httpcore never resets them. Nothing was sent, so a POST is sent again too."""
    library = importlib.import_module(name)
    ours = importlib.import_module(f"forbear.{name}")

    async def run(url):
        inner = library.AsyncHTTPTransport(**PLAIN, verify=False)
        client = library.AsyncClient(transport=ours.AsyncRetryTransport(inner))
        async with client, anyio.create_task_group() as others:
            for count in range(1, 101):
                async with anyio.create_task_group() as tasks:
                    (others if in_use and count == 1 else tasks).start_soon(client.post, url)
                    with anyio.fail_after(5):
                        while len(server.posted[0]) < count:
                            await anyio.sleep(0.001)
                    tasks.cancel_scope.cancel()
            response = await client.post(url)
            others.cancel_scope.cancel()
            return response

    with Http2Server(*["never"] * 100, 200) as server:
        response = anyio.run(run, server.url, backend=backend)
        assert (response.status_code, forbear.record_of(response).retries) == (200, 1)
        assert server.connections_used == [1] * 100 + [2]


def test_a_server_that_opens_too_many_streams_has_executed_a_post_once(adapter):
    """h2 has the same error for that and for a request that it does not send."""
    server, [error] = run(adapter, ["opens-streams", 200], ("POST", {"content": WHOLE}))
    assert server.posted == ([WHOLE], 1)
    assert isinstance(error, adapter.library.ProtocolError)
