"""The pytest plugin in the suites of others, each in an interpreter of its own."""

import pytest

from .conftest import package

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.real, pytest.mark.slow]

PREAMBLE = """
import time
import httpx, pytest
import forbear, forbear.httpx
from forbear import Fixed, RetryPolicy
from forbear.testing import ScriptedTransport

PATIENT = RetryPolicy(max_attempts=3, backoff=Fixed(100.0))
BRIEF = RetryPolicy(max_attempts=2, backoff=Fixed(0.05))

def a_client(policy=PATIENT):
    return httpx.Client(transport=forbear.httpx.RetryTransport(ScriptedTransport([503]), policy=policy, gate=None))

def an_async_client(policy=PATIENT):
    return httpx.AsyncClient(transport=forbear.httpx.AsyncRetryTransport(ScriptedTransport([503]), policy=policy, gate=None))
"""


LEAVING = """
from forbear.engine import current
from forbear.testing import disabled, fast

client = a_client(BRIEF)

@pytest.mark.usefixtures("forbear_fast", "forbear_events")
def test_one():
    client.get("http://a.example/")
    assert len(current.everywhere.listeners) == 1
    raise ZeroDivisionError

def test_two(forbear_clock):
    client.get("http://a.example/")
    with fast(), disabled():
        pytest.skip("in the middle")

def test_three():
    assert current.everywhere is None
    began = time.monotonic()
    client.get("http://a.example/")
    assert time.monotonic() - began >= 0.05
"""


def test_a_fast_test_leaves_nothing_to_the_next(suite):
    """Also one that fails, is skipped inside or ends by an exit of its block."""
    suite(PREAMBLE + LEAVING).assert_outcomes(passed=1, failed=1, skipped=1)


ASYNC_TESTS = """
@pytest.fixture(scope="module")
async def shared_client():
    async with an_async_client() as client:
        yield client

@pytest.fixture
async def fast_by_hand():
    from forbear.testing import fast

    with fast(max_attempts=2):
        yield

async def test_fast(forbear_fast, shared_client):
    assert (await shared_client.get("http://a.example/")).status_code == 503

async def test_clock(forbear_clock, forbear_events, shared_client):
    await shared_client.get("http://a.example/")
    assert forbear_clock.sleeps == [100.0, 100.0]
    forbear_events.assert_retried(2)

async def test_a_fixture_of_ones_own(fast_by_hand, shared_client):
    found = forbear.record_of(await shared_client.get("http://a.example/"))
    assert len(found.attempts) == 2

async def test_slow_again():
    assert forbear.engine.current.everywhere is None
    began = time.monotonic()
    async with an_async_client(BRIEF) as client:
        await client.get("http://a.example/")
    assert time.monotonic() - began >= 0.05
"""


def test_with_pytest_asyncio(suite):
    """One loop for a module's client and its tests, each test a task of its own."""
    package("pytest_asyncio")
    loops = [f"asyncio_default_{what}_loop_scope = module" for what in ("fixture", "test")]
    done = suite(PREAMBLE + ASYNC_TESTS, "pytest_asyncio.plugin", "asyncio_mode = auto", *loops)
    done.assert_outcomes(passed=4)


def test_with_anyio(suite):
    """anyio runs all tests of a module in one task, that is older than any of them."""
    marked = """
pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"
"""
    suite(PREAMBLE + marked + ASYNC_TESTS, "anyio").assert_outcomes(passed=4)
