"""The pytest plugin: what its fixtures do, and that it costs next to nothing."""

import threading
import tomllib
from pathlib import Path

import pytest
import requests

import forbear.httpx
import forbear.requests
from forbear import CircuitBreaker, Exponential, RetryPolicy
from forbear.testing import FakeClock, fast

from ..processes import loaded_by
from .clients import PATIENT, URL, scripted

ROOT = Path(__file__).parent.parent.parent
BUILT_BEFORE = scripted(503, 503, 200)


def in_a_thread(client):
    thread = threading.Thread(target=client.get, args=(URL,))
    thread.start()
    thread.join()


def test_the_clock_is_that_of_transports_that_know_nothing_of_it(forbear_clock):
    """Built long before; also in another thread, where no context reaches."""
    assert BUILT_BEFORE.get(URL).status_code == 200
    assert forbear_clock.sleeps == [100.0] * 2
    in_a_thread(scripted(503))
    assert forbear_clock.sleeps == [100.0] * 5


def test_a_transport_with_a_clock_or_dice_of_its_own_keeps_them(forbear_clock):
    own = FakeClock()
    policy = RetryPolicy(max_attempts=2, backoff=Exponential(base=0.5, cap=30.0, jitter="full"))
    scripted(503, clock=own, policy=policy).get(URL)
    assert len(own.sleeps) == 1
    scripted(503, random=lambda: 0.75, policy=policy).get(URL)
    assert forbear_clock.sleeps == [0.375]


def test_the_events_are_those_of_every_transport_and_thread(forbear_clock, forbear_events):
    breaker = CircuitBreaker(1, open_for=1_000.0)
    scripted(503, 200, name="here").get(URL)
    in_a_thread(scripted(503, breaker=breaker, name="there"))
    assert {event.client for event in forbear_events} == {"here", "there"}
    here = ["attempt_failed", "retry_scheduled", "succeeded_after_retry"]
    assert forbear_events.names == [*here, "circuit_transition", "attempt_failed", "gave_up"]
    forbear_events.assert_retried(1, reasons=["503"])


@pytest.mark.parametrize("first", ["forbear_fast", "forbear_clock"])
def test_the_clock_holds_where_both_are_asked_for(first, request):
    """Whichever comes first: fast for all tests, and the clock for the one that looks at it."""
    request.getfixturevalue(first)
    clock = request.getfixturevalue("forbear_clock")
    request.getfixturevalue("forbear_fast")
    with fast(max_attempts=2):
        scripted(503).get(URL)
    assert clock.sleeps == [100.0]


def test_the_server_fails_by_script(forbear_fast, forbear_server):
    """Three real requests, none of them on time that anybody waited for."""
    forbear_server.script("/orders", "503;retry-after=30", "reset", 200)
    with requests.Session() as session:
        session.trust_env = False
        forbear.requests.mount(session, PATIENT, gate=None)
        assert session.get(f"{forbear_server.url}/orders").status_code == 200
    assert len(forbear_server.requests("/orders")) == 3


INI = {
    "pytest.ini": "[pytest]\nusefixtures = {}\n",
    "setup.cfg": "[tool:pytest]\nusefixtures = {}\n",
    "pyproject.toml": '[tool.pytest.ini_options]\nusefixtures = ["{}"]\n',
}
USES = """
import requests, forbear.requests

def test_a_minute_takes_no_time(forbear_server):
    forbear_server.script("/", "503;retry-after=60", 200)
    session = forbear.requests.mount(requests.Session())
    session.trust_env = False
    assert session.get(forbear_server.url + "/").status_code == 200
"""


@pytest.mark.slow
def test_a_fixture_of_all_tests_is_named_in_the_configuration(tmp_path, run_readme_tests):
    """As the page about tests spells it for each file; the last is tried."""
    page = (ROOT / "docs" / "guides" / "testing.md").read_text(encoding="utf-8")
    for file, text in INI.items():
        section, line = text.format("forbear_fast").splitlines()
        assert f"| `{file}` | `{section}` | `{line}` |" in page
    (tmp_path / file).write_text(text.format("forbear_fast"), encoding="utf-8")
    run_readme_tests([USES], 1, config=tmp_path / file)


def test_the_plugin_loads_itself_and_the_front_door_only():
    """On everybody's start-up path who has forbear installed, whether they test it or not."""
    loaded = loaded_by("import forbear.pytest_plugin", after="import pytest")
    assert loaded <= {"forbear", "forbear.pytest_plugin"}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert declared["entry-points"]["pytest11"] == {"forbear": "forbear.pytest_plugin"}


@pytest.mark.slow
def test_no_fixture_loads_a_client():
    statement = """
from forbear.testing import FakeClock, FaultServer, assert_schedule, disabled, fast, record
from forbear.testing.clock import Everywhere
with fast(), disabled(), Everywhere(clock=FakeClock(), listener=record()), FaultServer(): pass
"""
    loaded = {name.partition(".")[0] for name in loaded_by(statement, after="import pytest")}
    clients = {"httpx", "httpx2", "httpcore", "requests", "urllib3", "anyio", "redis"}
    assert not loaded & clients
