"""P2 for urllib3: a body goes out whole on every attempt, or the request is not sent again."""

import io

import pytest
from urllib3.exceptions import ProtocolError

from forbear import Fixed, Reason, RetryPolicy, record_of
from forbear.testing import FaultServer
from forbear.urllib3 import RetryPoolManager

NOW = RetryPolicy(backoff=Fixed(0))


class Pipe(io.RawIOBase):
    def __init__(self, content):
        self._source = io.BytesIO(content)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._source.read(size)


class Anew:
    def __iter__(self):
        return iter([b"abc", b"def"])


def skipped():
    file = io.BytesIO(b"skip" + b"abcdef")
    file.seek(4)
    return file


REPLAYABLE = {
    "bytes": lambda: b"abcdef",
    "text": lambda: "abcdef",
    "bytearray": lambda: bytearray(b"abcdef"),
    "file": skipped,
    "list": lambda: [b"abc", b"def"],
    "iterable": Anew,
}
ONE_SHOT = {
    "generator": lambda: (part for part in [b"abc", b"def"]),
    "iterator": lambda: iter([b"abc", b"def"]),
    "pipe": lambda: Pipe(b"abcdef"),
}


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running


@pytest.mark.parametrize("kind", REPLAYABLE)
@pytest.mark.parametrize("fault", ["503", "reset", "close"])
def test_bodies_that_can_be_produced_again_are(server, kind, fault):
    """The same six bytes three times; a file from where it stood."""
    server.script("/thing", fault, fault, 200)
    with RetryPoolManager(NOW) as manager:
        assert manager.request("PUT", server.url + "/thing", body=REPLAYABLE[kind]()).status == 200
    assert [arrival.body_bytes for arrival in server.requests()] == [6] * 3
    assert len({arrival.sha256 for arrival in server.requests()}) == 1


@pytest.mark.parametrize("kind", ONE_SHOT)
@pytest.mark.parametrize("buffer", [0, 5, 6])
def test_bodies_that_can_be_read_once(server, kind, buffer):
    """Sent again from the buffer if they fit, else not at all."""
    server.script("/thing", 503, 200)
    with RetryPoolManager(NOW, body_buffer=buffer) as manager:
        response = manager.request("PUT", server.url + "/thing", body=ONE_SHOT[kind]())
    assert response.status == (200 if buffer == 6 else 503)
    assert [arrival.body_bytes for arrival in server.requests()] == [6] * (2 if buffer == 6 else 1)
    if buffer != 6:
        assert record_of(response).reason is Reason.BODY_CONSUMED


@pytest.mark.parametrize("kind", REPLAYABLE)
@pytest.mark.parametrize("status", [303, 307])
def test_a_redirect_repeats_what_can_be_repeated(server, kind, status):
    """307 with the whole body, 303 with none; each hop is retried."""
    server.script("/thing", 503, f"{status};header=Location:/other")
    server.script("/other", 503, 200)
    with RetryPoolManager(NOW) as manager:
        assert manager.request("PUT", server.url + "/thing", body=REPLAYABLE[kind]()).status == 200
    assert [arrival.body_bytes for arrival in server.requests()] == [6, 6, *([0, 0] if status == 303 else [6, 6])]


@pytest.mark.parametrize("kind", ONE_SHOT)
def test_a_redirect_does_not_send_an_empty_body(server, kind):
    """urllib3's own manager does."""
    server.script("/thing", "307;header=Location:/other")
    server.script("/other", 200)
    with RetryPoolManager(NOW) as manager, pytest.raises(ProtocolError, match="cannot be sent again"):
        manager.request("PUT", server.url + "/thing", body=ONE_SHOT[kind]())
    assert [arrival.path for arrival in server.requests()] == ["/thing"]


def test_a_file_that_is_closed_is_not_sent_again(server):
    """The caller gets the answer there was, or an error of the library; never an empty body."""
    file = io.BytesIO(b"abcdef")
    server.script("/thing", 503, 200)
    with RetryPoolManager(NOW, retry_if=lambda response: file.close()) as manager, pytest.raises(ProtocolError):
        manager.request("PUT", server.url + "/thing", body=file)
    assert [arrival.body_bytes for arrival in server.requests()] == [6]
