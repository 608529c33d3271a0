"""nginx: it throttles, closes connections, and limits how many are open."""

import asyncio
import json
import time

import httpx
import pytest

import forbear
from forbear import ConcurrencyLimit, Exponential, Fixed, RetryPolicy
from forbear.httpx import AsyncRetryTransport
from forbear.testing import FaultServer

from .conftest import nginx

pytestmark = [
    pytest.mark.real,
    # Both libraries and every event loop; what differs between the other pairs is not the server's.
    pytest.mark.lanes("httpx-sync", "httpx-asyncio", "httpx2-trio"),
]

HTTP = """
    log_format seen escape=json
        '{{"at":"$msec","uri":"$uri","method":"$request_method","status":$status,'
        '"connection":"$connection","nth":"$connection_requests"}}';
    access_log {home}/seen.log seen;
    limit_req_zone $uri zone=each:1m rate=1r/s;
    limit_req_status 429;
"""
# ``return`` would be carried out before limit_req is asked: hence named locations, by try_files.
LOCATIONS = """
    location @ok { default_type text/plain; return 200 "served\\n"; }
    location @throttled { add_header Retry-After 1 always; default_type text/plain; return 429 "slower\\n"; }
    location /limited/ { limit_req zone=each; error_page 429 = @throttled; try_files /none @ok; }
    location /brief/ { keepalive_timeout 50ms; try_files /none @ok; }
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A function: nginx's URL for a path and, later, what its log has of it, in order."""
    home = tmp_path_factory.mktemp("nginx")

    def read(path, at_least):
        until = time.monotonic() + 30
        while True:  # nginx writes a line after the answer
            lines = (home / "seen.log").read_text().splitlines()
            entries = [entry for entry in map(json.loads, lines) if entry["uri"] == path]
            if len(entries) >= at_least or time.monotonic() > until:
                return entries
            time.sleep(0.005)

    with nginx(home, HTTP.format(home=home), LOCATIONS) as read.url:
        yield read


@pytest.mark.slow
def test_a_throttled_get_comes_back_after_the_second_it_was_asked_to_wait(adapter, seen):
    """limit_req, 1 request per second: 200, 429 with Retry-After: 1, and 200 a second later."""
    path, policy = f"/limited/{adapter.id}", RetryPolicy(backoff=Fixed(0))
    get = ("GET", seen.url + path)
    first, second = adapter.calls(get, get, clock=None, policy=policy)
    assert (first.status_code, second.status_code, second.text) == (200, 200, "served\n")
    entries = seen(path, 3)
    assert [entry["status"] for entry in entries] == [200, 429, 200]
    assert float(entries[2]["at"]) - float(entries[1]["at"]) >= 1.0
    (throttled, answered) = forbear.record_of(second).attempts
    assert (throttled.status, throttled.delay_source, answered.status) == (429, "retry-after", 200)
    # The hint, and half of the quarter that spreads a fleet.
    assert throttled.delay == pytest.approx(1.125)
    assert len({entry["connection"] for entry in entries}) == 1  # the 429 was read to its end


def test_a_connection_that_nginx_closed_meanwhile_loses_no_request(adapter, seen):
    """keepalive_timeout 50 ms: it is gone when the second request comes, a POST."""
    path = f"/brief/{adapter.id}"

    def later():
        time.sleep(0.12)
        return b"x"

    url = seen.url + path
    first, second = adapter.calls(("GET", url), ("POST", url, {"content": later}))
    assert (first.status_code, second.status_code) == (200, 200)
    assert [entry["method"] for entry in seen(path, 2)] == ["GET", "POST"]


def refused(url, calls, limit):
    """How many 429s so many calls at once got; all of them succeed in the end."""
    policy = RetryPolicy(max_attempts=30, backoff=Exponential(base=0.05, cap=0.5))
    found = []

    async def main():
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        options = {"policy": policy, "concurrency": limit, "gate": None}
        transport = AsyncRetryTransport(inner, on_event=[found.append], **options)
        async with httpx.AsyncClient(transport=transport, timeout=30) as client:
            got = await asyncio.gather(*(client.get(url) for _ in range(calls)))
        assert {response.status_code for response in got} == {200}

    asyncio.run(main())
    return sum(event.name == "attempt_failed" and event.status == 429 for event in found)


@pytest.mark.slow
def test_limit_conn_refuses_little_more(tmp_path):
    """Mostly five of a hundred; a busy machine lets responses come late. Without a limit 90 are."""
    zone = "access_log off; limit_conn_zone $server_name zone=conn:1m; limit_conn_status 429;"
    with FaultServer() as server:
        server.script("/conn", "200;delay=30")
        location = f"location /conn {{ limit_conn conn 10; proxy_pass {server.url}; }}"
        with nginx(tmp_path, zone, location) as url:
            assert refused(f"{url}/conn", 40, None) >= 15  # only ten may be in flight
            assert refused(f"{url}/conn", 100, ConcurrencyLimit()) < 50
