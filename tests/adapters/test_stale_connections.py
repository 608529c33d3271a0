"""Stale connections: idle ones that the peer, or a middlebox on the way, has forgotten.

Whatever is sent over one is answered by a reset, or not at all. The client has eight of them.
"""

import threading

import pytest

from forbear import RetryGate, record_of
from forbear.testing import record

from ..sockets import Listening, end_by_reset, head_from

pytestmark = pytest.mark.anyio

EIGHT = 8
HALF = 100_000  # bytes; more than is read ahead


class Middlebox(Listening):
    """A server behind a middlebox that can forget connections; serves while it is a context.

    Attributes:
        arrived: For each request its method, and whether its connection was forgotten.
        together: Answer no request before so many have come.
        goes_on: The second half of /long is sent.
    """

    def __init__(self):
        self.arrived, self.together = [], 1
        self.goes_on = threading.Event()
        self._forgotten, self._waiting = {}, 0
        super().__init__()

    def stop(self):
        self.goes_on.set()
        super().stop()

    def forget(self, how):
        """Answer what comes over the connections so far by "reset" or "close", or not: "drop"."""
        self._forgotten.update(dict.fromkeys(range(self.connections), how))

    def remember(self):
        """Answer on all connections again."""
        self._forgotten.clear()

    @property
    def stale(self):
        """How many requests came over a connection that was forgotten."""
        return sum(was_forgotten for _, was_forgotten in self.arrived)

    def serve(self, sock, number):
        while request := head_from(sock):
            method, path, _ = request.decode().split(" ", 2)
            how = self._forgotten.get(number)
            self.arrived.append((method, how is not None))
            if how == "reset":
                end_by_reset(sock)
            if how in ("reset", "close"):
                return
            if how is None:
                self._answer(sock, path)

    def _answer(self, sock, path):
        self._wait_for_others()
        if path != "/long":
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            return
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * HALF))
        sock.sendall(b"a" * HALF)
        self.goes_on.wait(30)
        sock.sendall(b"b" * HALF)

    def _wait_for_others(self):
        with self.lock:
            self._waiting += 1
            if self._waiting >= self.together:
                self._waiting, self.together = 0, 1
                self.lock.notify_all()
            else:
                self.lock.wait_for(lambda: self.together == 1, timeout=10)


@pytest.fixture
def box():
    with Middlebox() as running:
        yield running


def options_of(adapter, *, settings=None, **options):
    """The options of a client that keeps eight connections to a server."""
    if "urllib3-family" in adapter.words:
        options.update(adapter.pool_of(EIGHT))
    options["settings"] = {**options.get("settings", {}), **(settings or {})}
    return options


async def call_at_once(adapter, client, box, count=EIGHT):
    """Make calls that each take a connection of their own."""
    box.together = count

    async def one(n):
        assert (await adapter.call(client, "GET", box.url)).status_code == 200

    await adapter.together(count, one)


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_retry_goes_over_a_fresh_connection(adapter, box, how):
    async with adapter.client(**options_of(adapter, gate=RetryGate())) as client:
        await call_at_once(adapter, client, box)
        box.forget(how)
        with record() as events:
            response = await adapter.call(client, "GET", box.url)
        events.assert_retried(1)
        assert response.status_code == 200
        first, _ = record_of(getattr(response, "response", response)).attempts
        assert first.delay == 0
        assert (box.stale, box.connections) == (1, EIGHT + 1)
        await call_at_once(adapter, client, box)
        assert box.stale == 1


@pytest.mark.smoke
async def test_a_post_without_a_key_is_sent_once(adapter, box):
    async with adapter.client(**options_of(adapter)) as client:
        await call_at_once(adapter, client, box)
        box.forget("reset")
        with pytest.raises(adapter.transport_error):
            await adapter.call(client, "POST", box.url, content=b"order")
        assert [method for method, _ in box.arrived].count("POST") == 1
        assert (await adapter.call(client, "POST", box.url, content=b"order")).status_code == 200
