"""Stale connections: eight idle ones that the peer, or a middlebox on the way, has forgotten."""

from contextlib import asynccontextmanager

import pytest

from forbear import RetryGate, record_of
from forbear.testing import record

from ..sockets import Listening, end_by_reset, head_from

EIGHT = 8


class Middlebox(Listening):
    """Can forget connections; answers so many requests ``together``."""

    def __init__(self):
        self.arrived, self.together, self._forgotten, self._waiting = [], 1, {}, 0
        super().__init__()

    def forget(self, how):
        """Answer what comes over the connections so far by "reset" or "close"."""
        self._forgotten.update(dict.fromkeys(range(self.connections), how))

    @property
    def stale(self):
        return sum(was_forgotten for _, was_forgotten in self.arrived)

    def serve(self, sock, number):
        while request := head_from(sock):
            how = self._forgotten.get(number)
            self.arrived.append((request.decode().split(" ")[0], how is not None))
            if how == "reset":
                end_by_reset(sock)
            if how is not None:
                return
            self._wait_for_others()
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

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


@asynccontextmanager
async def stale_client(adapter, box, how, **options):
    """A client with eight connections to a server, none of which is there any more."""
    options |= adapter.pool_of(EIGHT) if "urllib3-family" in adapter.words else {}
    async with adapter.client(**options) as client:
        await call_at_once(adapter, client, box)
        box.forget(how)
        yield client


async def call_at_once(adapter, client, box):
    box.together = EIGHT

    async def one(n):
        assert (await adapter.call(client, "GET", box.url)).status_code == 200

    await adapter.together(EIGHT, one)


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_retry_goes_over_a_fresh_connection(adapter, box, how):
    async with stale_client(adapter, box, how, gate=RetryGate()) as client:
        with record() as events:
            response = await adapter.call(client, "GET", box.url)
        events.assert_retried(1)
        assert response.status_code == 200
        first, _ = record_of(response).attempts
        assert first.delay == 0
        assert (box.stale, box.connections) == (1, EIGHT + 1)
        await call_at_once(adapter, client, box)
        assert box.stale == 1


@pytest.mark.smoke
async def test_a_post_without_a_key_is_sent_once(adapter, box):
    async with stale_client(adapter, box, "reset") as client:
        with pytest.raises(adapter.transport_error):
            await adapter.call(client, "POST", box.url, content=b"order")
        assert [method for method, _ in box.arrived].count("POST") == 1
        assert (await adapter.call(client, "POST", box.url, content=b"order")).status_code == 200
