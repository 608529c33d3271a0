"""urllib3: what is its own. The promises that all libraries share are in the conformance suite."""

import time
import warnings
from contextlib import nullcontext
from inspect import signature

import pytest
import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError
from urllib3.poolmanager import PoolKey
from urllib3.util import Retry

import forbear
from forbear import Fixed, RetryPolicy, record_of
from forbear.adapters.urllib3.options import ManagerOptions
from forbear.engine.clock import SYSTEM_CLOCK
from forbear.engine.driver import LATE, read_part
from forbear.engine.loop import drive
from forbear.testing import FakeClock
from forbear.urllib3 import DeadlineExceeded, RetryPoolManager

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0))


@pytest.fixture
def manager():
    with RetryPoolManager(NOW, timeout=30, gate=None) as made:
        yield made


READINGS = [
    *({}, {"preload_content": False}, {"preload_content": False, "release_conn": True}),
    *({"release_conn": False}, {"release_conn": True}, {"decode_content": False}),
    *({"retries": False}, {"retries": False, "preload_content": False}),
]


@pytest.mark.parametrize("step", ["200", "404", "200;chunked=1", "204", "503"])
def test_a_response_is_as_without_us(server, step):
    server.script("/thing", step if step == "204" else f"{step};body=10")

    def look(manager, named):
        response = manager.request("GET", server.url + "/thing", **named)
        pool = manager.connection_from_url(server.url).pool
        seen = [response.status, response.geturl(), response.connection is None, response.tell()]
        seen += [pool.qsize(), sum(each is not None for each in pool.queue), response.isclosed()]
        seen += [response.retries and response.retries.history, response.data]
        seen += [response.connection is None, response.headers.get("Content-Length")]
        response.release_conn()
        return seen

    policy = NOW.replace(max_attempts=1)
    with urllib3.PoolManager(timeout=30) as bare, RetryPoolManager(policy, timeout=30) as ours:
        for named in READINGS:
            assert look(ours, named) == look(bare, named), named


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("step", ["cut:3", "reset-body:3", "cut:3;chunked=1", "reset", "hang"])
def test_errors_are_of_the_classes_urllib3_raises(server, method, step):
    server.script("/thing", f"{step};body=10" if ":3" in step else step)
    seen = []
    timeout = 0.1 if step == "hang" else 30
    bare = urllib3.PoolManager(retries=Retry(0), timeout=timeout)
    for manager in (bare, RetryPoolManager(NOW, timeout=timeout, gate=None)):
        with manager, pytest.raises(HTTPError) as caught:
            manager.request(method, server.url + "/thing")
        seen.append((type(caught.value), type(getattr(caught.value, "reason", None))))
    assert seen[0] == seen[1]


def test_on_exhausted_raise(server):
    server.script("/thing", 503)
    raising = RetryPoolManager(NOW.replace(on_exhausted="raise"), clock=FakeClock())
    with raising as manager, pytest.raises(MaxRetryError) as caught:
        manager.request("GET", server.url + "/thing")
    assert "503" in str(caught.value.reason)
    assert record_of(caught.value).reasons == ("503",) * 4


def redirected(manager, url, named):
    """What came of it, in words that can be compared."""
    try:
        response = manager.request(**{"method": "GET", "url": url, **named})
    except MaxRetryError as error:
        return type(error), str(error.reason)
    history = response.retries.history if response.retries else None
    return response.status, response.geturl(), history, response.data


RETRIES = [
    *(1, False, Retry(5, redirect=1), Retry(redirect=False), Retry(total=False)),
    Retry(redirect=1, raise_on_redirect=False),
]
SECRET = Retry(3, remove_headers_on_redirect=["X-Secret"])
REDIRECTED = [
    *({}, {"redirect": False}, {"method": "POST", "body": b"abc"}, {"preload_content": False}),
    *({"retries": retries} for retries in RETRIES),
    {"retries": SECRET, "headers": {"X-Secret": "s"}},
]


@pytest.mark.parametrize("named", REDIRECTED, ids=str)
@pytest.mark.parametrize("status", [303, 307])
@pytest.mark.parametrize("hops", [1, 4])
def test_redirects_are_as_without_us(server, named, status, hops):
    for hop in range(hops):
        server.script(f"/{hop}", f"{status};header=Location:/{hop + 1};body=3")
    server.script(f"/{hops}", "200;body=5")
    seen = []
    for manager in (urllib3.PoolManager(timeout=30), RetryPoolManager(NOW, timeout=30)):
        before = len(server.requests())
        with manager, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            outcome = redirected(manager, server.url + "/0", named)
        arrivals = server.requests()[before:]
        sent = [(each.method, each.path, each.body_bytes) for each in arrivals]
        seen.append((outcome, sent, [dict(each.headers).get("X-Secret") for each in arrivals]))
    assert seen[0] == seen[1]


def test_a_retries_argument_is_told_once_what_it_counts(server):
    server.script("/a", "302;header=Location:/b")
    server.script("/b", 200)
    says = r"counts redirects only.*RetryPolicy\.from_urllib3\("
    for retries in (0, 3, Retry(3), Retry(total=None, read=2)):
        with RetryPoolManager(NOW, gate=None) as manager:
            assert manager.request("GET", server.url + "/a").status == 200
            with pytest.warns(UserWarning, match=says):
                manager.request("GET", server.url + "/b", retries=retries)
            manager.request("GET", server.url + "/b", retries=retries)  # would be an error here
        with pytest.warns(UserWarning, match=says) as caught:
            manager = RetryPoolManager(NOW, gate=None, retries=retries)
        assert caught[0].filename == __file__
        with manager:
            assert manager.request("GET", server.url + "/b").status == 200  # and no second time


@pytest.mark.parametrize("step", ["503", "reset", "cut:3;body=10", "302;header=Location:/u"])
@pytest.mark.parametrize("never", [False, Retry(total=False), Retry(False, status_forcelist=[503])])
@pytest.mark.parametrize("of_manager", [False, True], ids=["of-request", "of-manager"])
def test_retries_that_are_off_are_off(server, step, never, of_manager):
    server.script("/thing", step)
    ends = []
    for kind in (urllib3.PoolManager, RetryPoolManager):
        before = len(server.requests())
        off, on = {"retries": never}, {}
        with kind(**(off if of_manager else on)) as manager:
            try:
                named = on if of_manager else off
                end = manager.request("GET", server.url + "/thing", **named).status
            except HTTPError as error:
                end = type(error)
        ends.append((end, len(server.requests()) - before))
    assert ends[0] == ends[1]
    assert ends[0][1] == 1 or "Location" in step  # urllib3 before 2.5 forgets it at a redirect


@pytest.mark.lanes("urllib3")
async def test_a_deadline_holds_where_retries_are_off(server, manager, quickest):
    server.script("/thing", "hang")

    async def run():
        with pytest.raises(DeadlineExceeded), forbear.deadline(0.1):
            manager.request("GET", server.url + "/thing", retries=False)

    assert await quickest(run, bound=0.2) <= 0.2


def test_a_body_that_is_being_read_outlives_a_stale_connection(server):
    """With ``release_conn=True`` its connection is among the idle ones that a retry closes."""
    server.script("/large", "200;body=300000")
    server.script("/gone", "close", "200")
    with RetryPoolManager(NOW, maxsize=2) as manager:
        small = manager.request("GET", server.url + "/", preload_content=False)
        released = {"preload_content": False, "release_conn": True}
        large = manager.request("GET", server.url + "/large", **released)
        got = large.read(10)
        assert small.read() is not None  # its connection is the next to be used
        assert manager.request("GET", server.url + "/gone").status == 200
        assert len(server.requests("/gone")) == 2
        assert len(got + large.read()) == 300_000


def test_a_body_that_breaks_while_retry_if_looks_at_it_is_a_failure(server):
    fault = "reset-body:9;body=90;chunked=1;header=Content-Type:application/json"
    server.script("/thing", fault, 200)
    options = {"policy": NOW, "timeout": 0.05, "retry_if": lambda response: response.data and None}
    with RetryPoolManager(**options) as manager:
        response = manager.request("GET", server.url + "/thing", preload_content=False)
        assert (response.status, len(server.requests("/thing"))) == (200, 2)
        response.drain_conn()


@pytest.mark.parametrize("how", ["bare", "retry_if", "deadline"])
def test_each_chunk_of_a_streamed_body_comes_when_it_arrives(server, how):
    """Also where the body breaks: nothing that came before the break is lost."""
    server.script("/thing", "cut:30;body=64;chunked=1;header=Content-Type:application/json")
    options = {"retry_if": lambda response: None} if how == "retry_if" else {}
    made = urllib3.PoolManager() if how == "bare" else RetryPoolManager(NOW, **options)
    came = b""
    with made as manager, forbear.deadline(60) if how == "deadline" else nullcontext():
        response = manager.request("POST", server.url + "/thing", preload_content=False)
        with pytest.raises(ProtocolError):
            for piece in response.stream(1000):
                came += piece
    assert len(came) == 30


def test_a_body_that_is_read_after_the_deadline_ends_at_once(server):
    server.script("/thing", "200;body=9000000")
    with RetryPoolManager(NOW) as manager, forbear.deadline(0.3):
        response = manager.request("GET", server.url + "/thing", preload_content=False)
        time.sleep(0.35)
        with pytest.raises(DeadlineExceeded):
            response.read()


def test_a_long_body_that_was_looked_at_twice_is_read_on_without_a_bound(server, manager):
    """As ``retry_if`` and a hold look at one: neither look's quarter of a second binds the caller."""
    server.script("/thing", "200;body=1000000")
    response = manager.request("GET", server.url + "/thing", preload_content=False)
    for _ in range(2):
        ends_at = SYSTEM_CLOCK.true_monotonic() + 0.1
        live = manager.port.live(None, response, ends_at)
        looked = read_part(manager.port, response, live, lambda piece, received: False)
        response, _, ending = drive(looked)
        assert ending is LATE
    time.sleep(0.11)
    assert len(response.read()) == 1_000_000


def test_a_type_checker_knows_every_option_of_a_pool_manager():
    theirs = {field.removeprefix("key_").lstrip("_") for field in PoolKey._fields}
    theirs |= set(signature(urllib3.ProxyManager).parameters)
    named = {"scheme", "host", "port", "headers", "num_pools"}  # not in **options
    made = {"proxy", "proxy_config", "socks_options", "connection_pool_kw"}  # by urllib3 itself
    assert theirs - named - made <= set(ManagerOptions.__annotations__)
