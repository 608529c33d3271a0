"""What tests against real servers and packages share.

A missing server or package is a skip whose reason names it. With FORBEAR_REQUIRE_SERVERS=1, which
CI sets, it is a failure: nothing may be left out there without anyone noticing.
"""

import importlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

PORT_OPENS_WITHIN = 60.0  # seconds


def missing(what: str) -> None:
    """Skip the test, or fail it where everything has to be there."""
    reason = f"{what} is not installed"
    if os.environ.get("FORBEAR_REQUIRE_SERVERS") == "1":
        pytest.fail(f"{reason}, and FORBEAR_REQUIRE_SERVERS=1", pytrace=False)
    pytest.skip(reason)


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


@pytest.fixture
def need_binary():
    return binary


@pytest.fixture
def need_package():
    return package


@pytest.fixture(scope="session")
def free_port():
    """A function that returns a port nobody listens on."""

    def find() -> int:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            return taken.getsockname()[1]

    return find


@pytest.fixture(scope="session")
def wait_for_port():
    """A function that returns once a port accepts connections."""

    def wait(port: int) -> None:
        until = time.monotonic() + PORT_OPENS_WITHIN
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

    return wait


@pytest.fixture(scope="session")
def nginx_program():
    return binary("nginx")


@pytest.fixture(scope="session")
def prometheus_program():
    return binary("prometheus")


@pytest.fixture(scope="session")
def promtool_program():
    return binary("promtool")


class RedisServer:
    """A redis-server of one's own, without persistence.

    Attributes:
        url: For clients.
        ask: A client, to look and to change what the tests need; not what is tested.
    """

    def __init__(self, program, home, port, *options):
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", home]
        self._command = [program, *where, "--save", "", *options]
        self.port = port
        self.url = f"redis://127.0.0.1:{port}"
        self.process = None

    @property
    def ask(self):
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(
            port=self.port, socket_timeout=5, decode_responses=True, retry=Retry(NoBackoff(), 0)
        )

    def start(self):
        import redis

        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + PORT_OPENS_WITHIN
        with self.ask as client:
            while True:
                try:
                    client.ping()
                except redis.AuthenticationError:
                    return
                except redis.RedisError:
                    if self.process.poll() is not None:
                        return  # somebody else has the port, or that of its cluster
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
        with self.ask as client:
            return client.info("commandstats").get("cmdstat_eval", {}).get("calls", 0)


@pytest.fixture(scope="session")
def redis_program():
    package("redis")
    return binary("redis-server")


@pytest.fixture
def make_redis(redis_program, tmp_path_factory, free_port):
    """A function that starts a server with further options; all are killed at the end."""
    running = []

    def make(*options, highest=65_535):
        for _ in range(20):
            port = free_port()
            if port > highest:
                continue
            server = RedisServer(redis_program, tmp_path_factory.mktemp("redis"), port, *options)
            running.append(server)
            server.start()
            if server.process.poll() is None:
                return server
        raise OSError("no port was free for long enough")

    yield make
    for server in running:
        server.kill()


@pytest.fixture(scope="module")
def shared_redis(redis_program, tmp_path_factory, free_port):
    server = RedisServer(redis_program, tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture
def redis_server(shared_redis):
    """A server that nobody has asked for anything."""
    with shared_redis.ask as client:
        client.flushall()
        client.config_resetstat()
    return shared_redis
