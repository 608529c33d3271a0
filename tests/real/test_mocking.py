"""Tests of others: mocks put in place after the client was built, and other plugins of pytest.

The inner transport's method is looked up at every call: respx and pytest-httpx replace it.
"""

import httpx
import pytest
import requests

import forbear.httpx
import forbear.requests
from forbear import Fixed, RetryPolicy
from forbear.testing import FakeClock, fast

from ..processes import python
from .conftest import package

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.real
URL = "http://api.example.com/thing"
PATIENT = RetryPolicy(backoff=Fixed(100.0))  # seconds that no test waits for


def test_respx_sees_each_attempt():
    """respx patches httpcore's pools: three calls of its route for one of the user's."""
    respx = package("respx")
    client = forbear.httpx.wrap(httpx.Client(), clock=FakeClock())  # before anything is patched
    answers = [httpx.Response(503), httpx.ConnectError("refused"), httpx.Response(200, text="done")]
    with respx.mock(assert_all_called=True) as router, client:
        route = router.get(URL).mock(side_effect=answers)
        assert client.get(URL).text == "done"
    assert route.call_count == 3


@pytest.mark.slow
def test_pytest_httpx_sees_each_attempt(suite):
    """pytest-httpx patches httpx's transports; in an interpreter of their own, one with our fixtures."""
    package("pytest_httpx")
    tests = """
import anyio, httpx
import forbear.httpx
from forbear import Fixed, RetryPolicy
from forbear.testing import FakeClock

aclient = forbear.httpx.wrap(httpx.AsyncClient(), clock=FakeClock())

def test_async(httpx_mock):
    httpx_mock.add_response(status_code=503)
    httpx_mock.add_exception(httpx.ReadTimeout("slow"))
    httpx_mock.add_response(text="done")
    assert anyio.run(aclient.get, "http://api.example.com/").text == "done"
    assert len(httpx_mock.get_requests()) == 3

patient = httpx.Client(transport=forbear.httpx.RetryTransport(policy=RetryPolicy(backoff=Fixed(100.0))))

def test_orders(httpx_mock, forbear_fast, forbear_events):
    httpx_mock.add_response(status_code=503)
    httpx_mock.add_response(text="done")
    assert patient.get("http://api.example.com/").text == "done"
    forbear_events.assert_retried(1)
"""
    suite(tests, "pytest_httpx").assert_outcomes(passed=2)


def test_responses_sees_each_attempt():
    """It patches HTTPAdapter.send, which is below RetryAdapter's own."""
    responses = package("responses")
    with requests.Session() as session:
        forbear.requests.mount(session, PATIENT, gate=None)
        with responses.RequestsMock() as mock, fast():
            mock.get(URL, status=503)
            mock.get(URL, body=requests.ConnectionError("reset"))
            mock.get(URL, body="done")
            assert session.get(URL).text == "done"
            assert len(mock.calls) == 3


def test_requests_mock_replaces_adapters_and_serves_as_an_inner_one():
    """Its Mocker takes a session's adapters away, so nothing is retried; its Adapter is below ours."""
    requests_mock = package("requests_mock")
    answers = [{"status_code": 503}, {"status_code": 200}]
    with requests.Session() as session, fast():
        forbear.requests.mount(session, PATIENT)
        with requests_mock.Mocker() as mocker:
            mocker.get(URL, answers)
            assert session.get(URL).status_code == 503
        inner = requests_mock.Adapter()
        inner.register_uri("GET", URL, answers)
        session.mount("http://", forbear.requests.RetryAdapter(PATIENT, inner=inner))
        assert session.get(URL).status_code == 200
        assert inner.call_count == 2


@pytest.mark.slow
def test_forbear_httpx_works_where_httpx_is_an_alias_of_httpx2():
    """After httpx2.alias_httpx() ``import httpx`` gives httpx2; forbear.httpx retries httpx2."""
    program = """
import httpx2
httpx2.alias_httpx()
import httpx
assert httpx is httpx2 or httpx.Client is httpx2.Client
import anyio
import forbear, forbear.httpx, forbear.httpx2
from forbear.testing import FakeClock, FaultServer

with FaultServer() as server:
    server.script("/a", 503, "close", 200)
    for ours in (forbear.httpx, forbear.httpx2):
        with httpx.Client(transport=ours.RetryTransport(clock=FakeClock())) as client:
            assert client.get(server.url + "/a").status_code == 200
    assert len(server.requests("/a")) == 4

    server.script("/b", "close", 200)
    with forbear.httpx.wrap(httpx2.Client(), clock=FakeClock()) as client:
        try:
            client.post(server.url + "/b", content=iter([b"x"]))
        except httpx2.RemoteProtocolError as error:
            assert forbear.record_of(error).reason == "method-not-replayable"
        else:
            raise SystemExit("the POST was sent again")

    async def main():
        async with forbear.httpx.wrap(httpx.AsyncClient(), clock=FakeClock()) as client:
            return await client.get(server.url + "/a")
    assert anyio.run(main).status_code == 200
print("held")
"""
    assert python(program) == "held"


ASYNC_TESTS = """
import time
import httpx, pytest
import forbear, forbear.httpx
from forbear import Fixed, RetryPolicy
from forbear.testing import ScriptedTransport, disabled, fast

PATIENT = RetryPolicy(max_attempts=3, backoff=Fixed(100.0))
BRIEF = RetryPolicy(max_attempts=2, backoff=Fixed(0.05))

def an_async_client(policy=PATIENT):
    return httpx.AsyncClient(transport=forbear.httpx.AsyncRetryTransport(ScriptedTransport([503]), policy=policy, gate=None))

@pytest.fixture(scope="module")
async def shared_client():
    async with an_async_client() as client:
        yield client

@pytest.fixture
async def fast_by_hand():
    with fast(max_attempts=2):
        yield

async def test_fast(forbear_fast, shared_client):
    assert (await shared_client.get("http://a.example/")).status_code == 503
    raise ZeroDivisionError  # one that fails leaves nothing to the next either

async def test_clock(forbear_clock, forbear_events, shared_client):
    await shared_client.get("http://a.example/")
    assert forbear_clock.sleeps == [100.0, 100.0]
    forbear_events.assert_retried(2)
    with fast(), disabled():
        pytest.skip("in the middle")

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
OUTCOMES = {"passed": 2, "failed": 1, "skipped": 1}


@pytest.mark.slow
def test_with_pytest_asyncio(suite):
    """One loop for a module's client and its tests, each test a task of its own."""
    package("pytest_asyncio")
    loops = [f"asyncio_default_{what}_loop_scope = module" for what in ("fixture", "test")]
    done = suite(ASYNC_TESTS, "pytest_asyncio.plugin", "asyncio_mode = auto", *loops)
    done.assert_outcomes(**OUTCOMES)


@pytest.mark.slow
def test_with_anyio(suite):
    """anyio runs all tests of a module in one task, that is older than any of them."""
    marked = """
pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"
"""
    suite(ASYNC_TESTS + marked, "anyio").assert_outcomes(**OUTCOMES)
