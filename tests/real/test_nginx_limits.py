"""nginx's own limits in front of a server: limit_conn, and a limit that finds it."""

import asyncio
import signal
import subprocess

import httpx
import pytest

from forbear import ConcurrencyLimit, Exponential, RetryPolicy
from forbear.httpx import AsyncRetryTransport
from forbear.testing import FaultServer

pytestmark = [pytest.mark.real]
CONFIGURATION = """
daemon off; master_process off; error_log stderr; pid {home}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home};
    uwsgi_temp_path {home}; scgi_temp_path {home};
    limit_conn_zone $server_name zone=conn:1m; limit_conn_status 429;
    server {{
        listen 127.0.0.1:{port}; server_name all;
        location /conn {{ limit_conn conn 10; proxy_pass {upstream}; }}
    }}
}}
"""


@pytest.fixture
def limited(nginx_program, tmp_path, free_port, wait_for_port):
    port = free_port()
    with FaultServer() as server:
        server.script("/conn", "200;delay=30")
        configuration = tmp_path / "nginx.conf"
        text = CONFIGURATION.format(home=tmp_path, port=port, upstream=server.url)
        configuration.write_text(text)
        process = subprocess.Popen(
            [nginx_program, "-p", tmp_path, "-c", configuration], stderr=subprocess.PIPE
        )
        try:
            wait_for_port(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def refused(url, calls, limit):
    """How many 429s so many calls at once got; all of them succeed in the end."""
    policy = RetryPolicy(max_attempts=30, backoff=Exponential(base=0.05, cap=0.5))
    found = []

    async def main():
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        transport = AsyncRetryTransport(
            inner, policy=policy, concurrency=limit, gate=None, on_event=[found.append]
        )
        async with httpx.AsyncClient(transport=transport, timeout=30) as client:
            got = await asyncio.gather(*(client.get(url) for _ in range(calls)))
        assert {response.status_code for response in got} == {200}

    asyncio.run(main())
    return sum(event.name == "attempt_failed" and event.status == 429 for event in found)


@pytest.mark.slow
def test_limit_conn_refuses_little_more(limited):
    """Mostly five of a hundred; a busy machine lets responses come late. Without a limit 90 are."""
    assert refused(f"{limited}/conn", 40, None) >= 15  # only ten may be in flight
    assert refused(f"{limited}/conn", 100, ConcurrencyLimit()) < 50
