"""nginx in front of nothing: it throttles and closes connections."""

import json
import signal
import subprocess
import time

import pytest

import forbear
from forbear import Fixed, RetryPolicy

pytestmark = [
    pytest.mark.real,
    # Both libraries and every event loop; what differs between the other pairs is not the server's.
    pytest.mark.lanes("httpx-sync", "httpx-asyncio", "httpx2-trio"),
]

# ``return`` would be carried out before limit_req is asked: the locations go on to a named one by
# try_files.
CONFIGURATION = """
daemon off; master_process off; error_log stderr; pid {home}/nginx.pid;
events {{ worker_connections 64; }}
http {{
    log_format seen escape=json
        '{{"at":"$msec","uri":"$uri","method":"$request_method","status":$status,'
        '"connection":"$connection","nth":"$connection_requests"}}';
    access_log {home}/seen.log seen;
    client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home};
    uwsgi_temp_path {home}; scgi_temp_path {home};
    limit_req_zone $uri zone=each:1m rate=1r/s;
    limit_req_status 429;
    server {{
        listen 127.0.0.1:{port};
        location @ok {{ default_type text/plain; return 200 "served\\n"; }}
        location @throttled {{ add_header Retry-After 1 always; default_type text/plain; return 429 "slower\\n"; }}
        location /limited/ {{ limit_req zone=each; error_page 429 = @throttled; try_files /none @ok; }}
        location /twice/ {{ keepalive_requests 2; try_files /none @ok; }}
        location /brief/ {{ keepalive_timeout 50ms; try_files /none @ok; }}
        location /gone/ {{ return 444; }}
    }}
}}
"""


class Nginx:
    def __init__(self, home, url):
        self._home = home
        self.url = url

    def seen(self, uri, at_least):
        """The log's lines for one URI, in order; nginx writes a line after the answer."""
        until = time.monotonic() + 30
        while True:
            lines = (self._home / "seen.log").read_text().splitlines()
            entries = [entry for entry in map(json.loads, lines) if entry["uri"] == uri]
            if len(entries) >= at_least or time.monotonic() > until:
                return entries
            time.sleep(0.005)


@pytest.fixture(scope="module")
def nginx(nginx_program, tmp_path_factory, free_port, wait_for_port):
    home, port = tmp_path_factory.mktemp("nginx"), free_port()
    configuration = home / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(home=home, port=port))
    process = subprocess.Popen(
        [nginx_program, "-p", home, "-c", configuration], stderr=subprocess.PIPE
    )
    try:
        wait_for_port(port)
        yield Nginx(home, f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.mark.slow
def test_a_throttled_get_comes_back_after_the_second_it_was_asked_to_wait(adapter, nginx):
    """limit_req, 1 request per second: 200, 429 with Retry-After: 1, and 200 a second later."""
    url = f"{nginx.url}/limited/{adapter.id}"
    first, second = adapter.calls(
        ("GET", url), ("GET", url), clock=None, policy=RetryPolicy(backoff=Fixed(0))
    )
    assert (first.status_code, second.status_code, second.text) == (200, 200, "served\n")
    seen = nginx.seen(f"/limited/{adapter.id}", 3)
    assert [entry["status"] for entry in seen] == [200, 429, 200]
    assert float(seen[2]["at"]) - float(seen[1]["at"]) >= 1.0
    (throttled, answered) = forbear.record_of(second).attempts
    assert (throttled.status, throttled.delay_source, answered.status) == (429, "retry-after", 200)
    # The hint, and half of the quarter that spreads a fleet.
    assert throttled.delay == pytest.approx(1.125)
    assert len({entry["connection"] for entry in seen}) == 1  # the 429 was read to its end


def test_a_connection_that_nginx_closed_meanwhile_loses_no_request(adapter, nginx):
    """keepalive_timeout 50 ms: it is gone when the second request comes, a POST."""
    uri = f"/brief/{adapter.id}"

    def later():
        time.sleep(0.12)
        return b"x"

    first, second = adapter.calls(
        ("GET", nginx.url + uri), ("POST", nginx.url + uri, {"content": later})
    )
    assert (first.status_code, second.status_code) == (200, 200)
    assert [entry["method"] for entry in nginx.seen(uri, 2)] == ["GET", "POST"]
