"""What all tests share: the fixtures of forbear's own plugin, and a way to run tests that are shown.

The plugin is off in this suite (pyproject.toml): pytest loads plugins before coverage is measured,
and what is loaded then, forbear's front door too, would seem to be tested by nobody.
"""

import gc
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import walk_packages

import pytest

import forbear
from forbear.pytest_plugin import forbear_clock, forbear_events, forbear_fast, forbear_server

__all__ = ["forbear_clock", "forbear_events", "forbear_fast", "forbear_server"]

with suppress(ImportError):  # what an SDK's environment has not
    from hypothesis import HealthCheck, given, settings
    from hypothesis.strategies import none

    # On a busy machine an example may take any time.
    settings.register_profile(
        "forbear", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("forbear")

# Installed, pytest finds the plugin; on the path only, it has to be named.
NAMED = () if entry_points(group="pytest11", name="forbear") else ("-p", "forbear.pytest_plugin")


def pytest_itemcollected(item):
    """The core is tested on every Python; and what waits for a release is slow as well."""
    if item.nodeid.startswith("tests/core/"):
        item.add_marker("smoke")
    if item.get_closest_marker("release"):
        item.add_marker("slow")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers():
    """Two workers more than there are cores, because many tests wait."""
    return (os.cpu_count() or 1) + 2


# Many examples of rules of which each has its plain tests, and real servers and the pages' blocks
# behind adapters that have met the faulting server: measured, they would take up to three times as
# long, and cover no line that those do not. Nor does httpx2 on trio, which runs httpx's code.
NOT_MEASURED = (
    "property/", "simulation/", "docs/", "limits/test_interruption.py", "test_injection.py",
    "adapters/test_stress.py", "real/test_chain.py", "real/test_nginx",
)  # fmt: skip
HERE = f"{Path(__file__).parent}/"
# No certificates: each client of httpx would read them anew, in 40 ms.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = HERE


@contextmanager
def unmeasured(config):
    """Let coverage pause, also in threads begun meanwhile."""
    plugin = config.pluginmanager.getplugin("_cov")
    controller = plugin and plugin.cov_controller
    if not controller or not controller.started:
        yield
        return
    controller.pause()
    try:
        yield
    finally:
        controller.resume()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Load ours while it is measured, and then what is not: the tests, and all that they import."""
    if session.config.pluginmanager.hasplugin("_cov"):
        for name in forbear.__all__:
            getattr(forbear, name)
        for module in walk_packages(forbear.__path__, "forbear."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    with unmeasured(session.config):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)  # within pytest-cov's own, which ends the measuring
def pytest_runtestloop(session):
    if session.config.getoption("dist", "no") == "no":
        return (yield)
    with unmeasured(session.config):  # hands the tests to workers, and runs none
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if str(item.path).removeprefix(HERE).startswith(NOT_MEASURED) or "[httpx2-trio" in item.nodeid:
        with unmeasured(item.config):
            return (yield)
    return (yield)


def pytest_generate_tests(metafunc):
    if "adapter" in metafunc.fixturenames:
        from .lanes import parametrize  # loads every client, which other tests may do without

        parametrize(metafunc)


def pytest_collection_finish():
    """Let the garbage collector look no more at what is there now.

    That is some hundred megabytes of tests; each look at all of it takes half a second. Hypothesis
    registers sources of randomness when it is loaded and when its first test runs, and then wants
    the collector to show who holds them, so both happen before. PyPy's collector does not freeze.
    """
    if not hasattr(gc, "freeze"):
        return
    if "hypothesis" in sys.modules:
        settings(database=None)(given(none())(lambda nothing: None))()
    gc.collect()
    gc.freeze()


@pytest.fixture
def server(forbear_server):
    """The faulting server on loopback, a new one for each test."""
    return forbear_server


@pytest.fixture
def clock():
    """A clock whose sleeps are kept and take no time."""
    from forbear.testing import FakeClock

    return FakeClock()


@pytest.fixture
def quick(clock):
    """Options of a transport that waits in fake time, with the middle of every random range."""
    return {"clock": clock, "random": lambda: 0.5}


class Paced:
    """Lets the delay of a first attempt count from when its hedge has arrived, or was refused.

    A busy machine could otherwise answer before it comes to the hedge. Of a path that is requested
    again and again, only the first attempt is delayed so.
    """

    def __init__(self, *servers):
        self.servers = list(servers)  # where the two attempts arrive
        self._begun = threading.Event()
        self.begin = self._begun.set  # let the delay begin now, or when the request arrives

    def wait(self, path, stopping):
        until = time.monotonic() + 30
        while not self._begun.wait(0.002) and time.monotonic() < until:
            if stopping.is_set() or self._arrived(path) > 1:
                return

    def is_first(self, path):
        return self._arrived(path) == 1

    def _arrived(self, path):
        return sum(len(server.requests(path)) for server in self.servers)


@pytest.fixture
def paced(server, monkeypatch):
    """See Paced."""
    from forbear.addons.hedge import HedgedCall
    from forbear.testing.server import Connection

    pace, send_hedge, work = Paced(server), HedgedCall.send_hedge, Connection._work

    async def send(*given):
        reason = await send_hedge(*given)
        if reason is not None:
            pace.begin()
        return reason

    def late(connection, step, arrival):
        if step.delay and pace.is_first(arrival.path):
            pace.wait(arrival.path, connection.stopping)
        work(connection, step, arrival)

    monkeypatch.setattr(HedgedCall, "send_hedge", send)
    monkeypatch.setattr(Connection, "_work", late)
    return pace


@pytest.fixture
def run_readme_tests(tmp_path):
    """Runs files of tests by themselves, as somebody would who has pasted them."""

    def run(sources, passed, config=os.devnull):
        for number, source in enumerate(sources):
            (tmp_path / f"test_pasted_{number}.py").write_text(source, encoding="utf-8")
        environment = {name: os.environ[name] for name in os.environ if name[:7] != "PYTEST_"}
        environment["PYTHONPATH"] = str(Path(forbear.__file__).parent.parent)
        command = [sys.executable, "-m", "pytest", "-q", "-c", config, "--rootdir", tmp_path]
        done = subprocess.run(
            [*command, *NAMED, "-p", "no:cacheprovider", tmp_path], env=environment, cwd=tmp_path,
            check=False, timeout=500, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{passed} passed" in done.stdout
        assert "the call goes on without it" not in done.stdout, done.stdout  # of a listener

    return run
