"""Every fault of ``FaultServer`` really happens on the wire, and its ledger tells the truth.

The peers are raw sockets: an HTTP library would hide the difference between a reset and a close.
"""

import contextlib
import hashlib
import re
import socket
import threading
import time
from http.client import HTTPResponse
from urllib.parse import urlsplit

import pytest

from forbear.testing import FaultServer, answer

FIN = b""


@contextlib.contextmanager
def peer(server):
    with socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def request(path="/x", *, method="POST", body=b"order", **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_to_the_end(sock):
    """All that comes, and how the connection ended."""
    received = b""
    try:
        while piece := sock.recv(65_536):
            received += piece
    except ConnectionResetError:
        return received, "RST"
    return received, "FIN"


def read_answer(sock, method="POST"):
    """Status, headers and body of an answer; the connection stays open unless the server closed it."""
    with contextlib.closing(HTTPResponse(sock, method=method)) as found:
        found.begin()
        return found.status, {key.lower(): value for key, value in found.getheaders()}, found.read()


def exchange(sock, path="/x", **named):
    sock.sendall(request(path, **named))
    return read_answer(sock, named.get("method", "POST"))


def ask(server, path="/x", **named):
    with peer(server) as sock:
        return exchange(sock, path, **named)


def eventually(condition):
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)
    return condition()


def test_steps_are_consumed_in_order_and_the_last_repeats(server):
    server.script("/x", "503;retry-after=1", 429, "206;body=5")
    with peer(server) as sock:
        seen = [exchange(sock) for _ in range(4)]
    assert [status for status, _, _ in seen] == [503, 429, 206, 206]
    assert seen[3][2] == b"01234"
    assert seen[0][1]["retry-after"] == "1"
    assert "retry-after" not in seen[1][1]
    assert server.executed("/x") == 2
    assert server.connections == 1
    places = [(arrival.connection, arrival.nth) for arrival in server.requests("/x")]
    assert places == [(1, 1), (1, 2), (1, 3), (1, 4)]


def test_modifiers_shape_the_answer(server):
    headers = "header=X-A:1%3B2;header=X-B: b ;retry-after=Fri, 31 Dec 1999"
    server.script("/x", f"502;{headers};body=7;close=1")
    with peer(server) as sock:
        sock.sendall(request())
        received, _ = read_to_the_end(sock)
    head, _, content = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    expected = [b"X-A: 1;2", b"X-B: b", b"Retry-After: Fri, 31 Dec 1999", b"Content-Length: 7"]
    assert {*expected, b"Connection: close"} < set(head.split(b"\r\n"))
    assert content == b"0123456"


WHOLE = b"0123456789abcdef" * 6 + b"0123"


@pytest.mark.parametrize(("asked", "status", "place", "content"), [
    # 100 bytes of 0123456789abcdef…: byte 17 is 1, byte 99 is 3.
    ({"Range": "bytes=97-"}, 206, "bytes 97-99/100", b"123"),
    ({"Range": "bytes=17-500"}, 206, "bytes 17-99/100", b"123456789abcdef" + WHOLE[32:]),
    ({"Range": "bytes=-2"}, 206, "bytes 98-99/100", b"23"),
    ({"Range": "bytes=100-"}, 416, "bytes */100", b""), ({"Range": "bytes=0-0,5-5"}, 200, None, WHOLE),
    ({"Range": "bytes=97-", "If_Range": '"v1"'}, 206, "bytes 97-99/100", b"123"),
    ({"Range": "bytes=97-", "If_Range": '"v2"'}, 200, None, WHOLE),
])  # fmt: skip
def test_ranges_of_a_tagged_content_are_served(server, asked, status, place, content):
    """RFC 9110 sections 14.2 and 13.1.5."""
    server.script("/x", "200;body=100;etag=v1")
    found, headers, received = ask(server, method="GET", **asked)
    assert (found, headers.get("content-range"), received) == (status, place, content)
    assert headers["etag"] == '"v1"'


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(("step", "start", "content_bytes", "ending", "executed"), [
    ("reset", b"", 0, "RST", True), ("close", b"", 0, "FIN", True),
    ("garbage", b"\x16\x03", 0, "FIN", False), ("cut:0;body=1000000", OK, 0, "FIN", True),
    ("cut:500000;body=1000000", OK, 500_000, "FIN", True), ("reset-body:20", OK, 20, "RST", True),
])  # fmt: skip
def test_faults_after_the_whole_request(server, step, start, content_bytes, ending, executed):
    server.script("/x", step)
    with peer(server) as sock:
        sock.sendall(request(body=b"o" * 100_000))
        received, found = read_to_the_end(sock)
    head, _, content = received.partition(b"\r\n\r\n")
    assert head.startswith(start)
    assert (len(content), found) == (content_bytes, ending)
    assert (b"Content-Length: 1000000" in head) == ("body=1000000" in step)
    (arrival,) = server.requests("/x")
    assert (arrival.executed, arrival.body_complete) == (executed, True)
    assert arrival.body_bytes == 100_000
    assert arrival.ended_at is not None


def test_stale_closes_only_a_reused_connection(server):
    server.script("/x", "stale", 503)
    assert ask(server)[0] == 200
    with peer(server) as sock:
        assert exchange(sock)[0] == 200
        sock.sendall(request())
        assert sock.recv(1) == FIN
    assert ask(server)[0] == 503
    assert [arrival.executed for arrival in server.requests("/x")] == [True, True, False, False]


def test_early_answers_while_the_upload_is_still_coming(server):
    server.script("/x", "early:413:1000")
    with peer(server) as sock:
        sock.sendall(request(body=b"u" * 5000).removesuffix(b"u" * 3000))
        status, headers, _ = read_answer(sock)
        assert (status, headers["connection"]) == (413, "close")
        sock.sendall(b"u" * 3000)  # the rest finds no reset
        assert sock.recv(1) == FIN
    # It is not lost on a peer that uploads everything first.
    assert ask(server, body=b"u" * 5_000_000)[0] == 413
    arrival = server.requests("/x")[0]
    assert (arrival.body_bytes, arrival.body_complete, arrival.executed) == (1000, False, False)
    assert arrival.sha256 == hashlib.sha256(b"u" * 1000).hexdigest()


def test_what_executes(server):
    executing = ["200", "204", "503;executes=1", "garbage;executes=1", "cut:3", "early:202:0"]
    others = ["302", "503", "200;executes=0", "reset;executes=0", "close;executes=0"]
    server.script("/x", *executing, *others)
    for _ in executing + others:
        with peer(server) as sock, contextlib.suppress(ConnectionResetError):
            sock.sendall(request())
            sock.recv(65_536)
    assert [arrival.executed for arrival in server.requests()] == [True] * 6 + [False] * 5


def test_a_typo_is_refused_and_changes_nothing(server):
    steps = ["resett", "", "status", "status:503", "199", "600", "20O", "503:1"]
    steps += ["reset:1", "cut", "cut:", "cut:-1", "cut:1:2", "cut:32;body=32", "early:503"]
    steps += ["early:99:1", "503;", "503;retryafter=1", "503;retry-after", "503;delay=1.5"]
    steps += ["503;chunked=yes", "503;header=X", "503;interval=5", "reset;body=5"]
    steps += ["reset-head;executes=1"]
    steps += [True, 503.0]
    server.script("/x", 204)
    for step in steps:
        with pytest.raises(ValueError, match="step"):
            server.script("/x", 503, step)
    # Nor what could never be asked for.
    for path, steps in (("x", [200]), ("/x?a=1", [200]), (503, [200]), ("/x", [])):
        with pytest.raises(ValueError):
            server.script(path, *steps)
    with pytest.raises(ValueError, match=r"write script\('/x', 503, 200\)"):
        server.script("/x", [503, 200])
    assert ask(server)[0] == 204
    assert ask(server, "/ordres")[0] == 404


@pytest.mark.parametrize("first", ["reset", "cut:3", "hang;executes=1"])
def test_a_key_whose_first_answer_was_lost_is_executed_once(server, first):
    """And answered from the store."""
    server.script("/x", first, 503)
    with peer(server) as sock, contextlib.suppress(TimeoutError):
        sock.settimeout(0.05)
        sock.sendall(request(Idempotency_Key="k1"))
        read_to_the_end(sock)
    for _ in range(2):
        status, headers, content = ask(server, Idempotency_Key="k1")
        assert (status, headers["idempotent-replayed"]) == (200, "true")
        assert len(content) == int(headers["content-length"])
    assert server.executed("/x") == 1
    assert [arrival.executed for arrival in server.requests("/x")] == [True, False, False]
    assert {arrival.key for arrival in server.requests("/x")} == {"k1"}
    assert ask(server, Idempotency_Key="k2")[0] == 503  # the replays consumed no step


def test_the_store_replays_status_headers_and_body_of_the_first_answer(server):
    server.script("/x", "500;executes=1;header=X-Id:7;body=9;delay=1;chunked=1;close=1", 200)
    status, headers, body = ask(server, Idempotency_Key="k")
    again, replayed, same = ask(server, Idempotency_Key="k")
    assert (status, body) == (again, same) == (500, b"012345678")
    assert headers["x-id"] == replayed["x-id"] == "7"
    assert "idempotent-replayed" not in headers
    assert replayed["idempotent-replayed"] == "true"
    assert "connection" not in replayed


def test_a_repeat_while_the_first_is_in_flight_is_409(server):
    server.script("/x", "201;delay=300", 503)
    with peer(server) as sock:
        sock.sendall(request(Idempotency_Key="k"))
        assert eventually(lambda: server.executed("/x") == 1)
        assert ask(server, Idempotency_Key="k")[0] == 409
        assert read_answer(sock)[0] == 201
    assert ask(server, Idempotency_Key="k")[0] == 201
    assert server.executed("/x") == 1


def test_the_ledger_holds_a_chunked_upload_without_its_framing(server):
    server.script("/x", 200)
    with peer(server) as sock:
        for _ in range(2):  # the second proves that the end was found
            sock.sendall(b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in (b"5;name=v\r\nfirst\r\n", b"A\r\n, sec", b"ond, \r\n4\r\nlast\r\n"):
                sock.sendall(piece)
            sock.sendall(b"0\r\nTrailer: x\r\n\r\n")
            assert read_answer(sock)[0] == 200
    for arrival in server.requests("/x"):
        assert (arrival.body_bytes, arrival.body_complete) == (19, True)
        assert arrival.sha256 == hashlib.sha256(b"first, second, last").hexdigest()


def test_the_ledger_is_handed_out_as_copies_and_prints_no_secret(server):
    server.script("/x", 200)
    ask(server, "/x?token=hunter2", Authorization="hunter2", Idempotency_Key="hunter2")
    server.requests()[0].executed = False
    assert server.executed() == 1
    assert not re.search(r"hunter2|\n", repr(server.requests()))


def test_stop_closes_every_socket_and_ends_every_thread():
    server, others = FaultServer(), set(threading.enumerate())
    with server:
        # The large one is stuck in a write: nobody reads.
        steps = "hang", "200;delay=60000", "drip;interval=60000", "200;body=8000000", 200
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(peer(server)) for _ in range(7)]
            for number, step in enumerate(steps):
                server.script(f"/{number}", step)
                peers[number].sendall(request(f"/{number}"))
            peers[5].sendall(b"POST /half HTTP/1.1\r\nContent-Le")
            assert eventually(lambda: len(server.requests()) == 5 and server.open_connections == 7)
            assert len(set(threading.enumerate()) - others) == 8
            began = time.monotonic()
            server.stop()
            assert time.monotonic() - began < 30
            assert server.open_connections == 0
            assert eventually(lambda: set(threading.enumerate()) <= others)
            for sock in peers:
                read_to_the_end(sock)
    with pytest.raises(ConnectionRefusedError), peer(server):
        pass
    server.stop()
    assert len(server.requests()) == 5


def test_a_stopped_server_comes_back_at_its_port():
    server = FaultServer()
    with pytest.raises(RuntimeError, match="start"):
        _ = server.url
    assert repr(server) == "<FaultServer not started connections=0 open=0>"
    server.script("/x", 503, 200)
    with server:
        url = server.url
        assert ask(server)[0] == 503
        with pytest.raises(RuntimeError, match="started"):
            server.start()
    with server:
        assert server.url == url
        assert ask(server)[0] == 200
        assert url in repr(server)
    assert [arrival.connection for arrival in server.requests()] == [1, 2]


@pytest.mark.parametrize(("step", "status", "kind", "body"), [
    (answer(json={"id": 7}), 200, "application/json", b'{"id": 7}'),
    (answer(json=None), 200, "application/json", b"null"),
    (answer(422, text="né"), 422, "text/plain; charset=utf-8", b"n\xc3\xa9"),
    (answer("200;chunked=1", body=b"\0" * 40), 200, "application/octet-stream", b"\0" * 40),
    (answer(headers={"Content-Type": "text/csv"}, text="a,b"), 200, "text/csv", b"a,b"),
    (answer("200;header=Content-Type:a/b", json=1), 200, "a/b", b"1"),
])  # fmt: skip
def test_an_answer_of_the_tests_own(server, step, status, kind, body):
    server.script("/x", step)
    found, headers, received = ask(server)
    assert (found, headers["content-type"], received) == (status, kind, body)
