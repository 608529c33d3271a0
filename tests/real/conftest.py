"""What tests against real servers and packages share.

A missing one is a skip that names it; with FORBEAR_REQUIRE_SERVERS=1, which CI sets, a failure.
"""

import importlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager

import pytest

from ..processes import SOURCE

PORT_OPENS_WITHIN = 60.0  # seconds


def missing(what: str) -> None:
    """Skip the test, or fail it where everything has to be there."""
    reason = f"{what} is not installed"
    if os.environ.get("FORBEAR_REQUIRE_SERVERS") == "1":
        pytest.fail(f"{reason}, and FORBEAR_REQUIRE_SERVERS=1", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def binary(name: str) -> str:
    """The path of a server's program."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        missing(f"the server {name}")
    return found


def package(name: str):
    """An importable package."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        missing(f"the package {name}")
    return importlib.import_module(name)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_for_port(port: int) -> None:
    """Return once it accepts connections."""
    until = time.monotonic() + PORT_OPENS_WITHIN
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


@pytest.fixture
def suite(pytester, monkeypatch):
    """A function: run these tests in a project that has forbear's plugin and another one."""
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the same whatever is installed
    monkeypatch.setenv("PYTEST_ADDOPTS", "")  # the options of this run may be those of a plugin
    monkeypatch.delenv("COVERAGE_FILE", raising=False)

    def run(tests, plugin="forbear.pytest_plugin", *settings):
        pytester.makeini("\n".join(["[pytest]", *settings]))
        pytester.makepyfile(test_orders=tests)
        plugins = ["-p", "forbear.pytest_plugin", "-p", plugin, "-p", "no:cacheprovider"]
        return pytester.runpytest_subprocess(*plugins, "-q", "-W", "error")

    return run


NGINX = """
daemon off; master_process off; error_log stderr; pid {home}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home};
    uwsgi_temp_path {home}; scgi_temp_path {home};
    {http}
    server {{ listen 127.0.0.1:{port}; server_name all; {locations} }}
}}
"""


@contextmanager
def nginx(home, http, locations):
    """Run it with these parts of a configuration; yield its URL."""
    port, configuration = free_port(), home / "nginx.conf"
    configuration.write_text(NGINX.format(home=home, port=port, http=http, locations=locations))
    command = [binary("nginx"), "-p", home, "-c", configuration]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


class RedisServer:
    """A redis-server of one's own, without persistence."""

    def __init__(self, program, home, port, *options):
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", home]
        self._command = [program, *where, "--save", "", *options]
        self.port = port
        self.url = f"redis://127.0.0.1:{port}"
        self.process = None

    def ask(self, command):
        """Look at, or change, what the tests need; not what is tested."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options = {"socket_timeout": 5, "decode_responses": True, "retry": Retry(NoBackoff(), 0)}
        with redis.Redis(port=self.port, **options) as client:
            return client.execute_command(*command.split())

    def start(self):
        import redis

        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + PORT_OPENS_WITHIN
        while self.process.poll() is None:  # else somebody has the port, or that of its cluster
            try:
                self.ask("PING")
            except redis.AuthenticationError:
                return
            except redis.RedisError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

    def send(self, sent):
        self.process.send_signal(sent)

    def kill(self):
        self.send(signal.SIGCONT)
        self.process.kill()
        self.process.wait(60)

    def evaluations(self):
        """How often the script was run."""
        return self.ask("INFO commandstats").get("cmdstat_eval", {}).get("calls", 0)


@pytest.fixture
def make_redis(tmp_path_factory):
    """A function that starts a server with further options; all are killed at the end."""
    running = []

    def make(*options, highest=65_535):
        for _ in range(20):
            port = free_port()
            if port > highest:
                continue
            home = tmp_path_factory.mktemp("redis")
            server = RedisServer(binary("redis-server"), home, port, *options)
            running.append(server)
            server.start()
            if server.process.poll() is None:
                return server
        raise OSError("no port was free for long enough")

    yield make
    for server in running:
        server.kill()


@pytest.fixture(scope="module")
def shared_redis(tmp_path_factory):
    server = RedisServer(binary("redis-server"), tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture
def redis_server(shared_redis):
    """A server that nobody has asked for anything."""
    shared_redis.ask("FLUSHALL")
    shared_redis.ask("CONFIG RESETSTAT")
    return shared_redis
