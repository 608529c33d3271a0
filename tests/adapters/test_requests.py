"""requests: what is its own. The promises that all libraries share are in the conformance suite."""

import contextlib
import copy
import gc
import pickle
import time

import pytest
import requests
import urllib3
from cachecontrol import CacheControlAdapter
from requests.adapters import HTTPAdapter
from requests_ratelimiter import LimiterAdapter, LimiterMixin
from urllib3.util import Retry, Timeout

import forbear
from forbear import Fixed, IdempotencyKeys, RetryBudget, RetryGate, RetryPolicy
from forbear.requests import DeadlineExceeded, RetryAdapter, mount
from forbear.strategies import AwsStandard
from forbear.testing import FakeClock, ScriptedAdapter

from .foreign import collecting_by_hand
from .origin import Answer, Origin

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0))


@pytest.fixture
def session():
    with requests.Session() as made:
        made.trust_env = False
        yield made


def retrying(session, policy=NOW, **options):
    adapter = RetryAdapter(policy, **({} if "strategy" in options else {"gate": None}), **options)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def test_send_takes_its_arguments_by_position(server):
    """send(request, stream, timeout, verify, cert, proxies), as adapters above it call it."""
    server.script("/thing", 503, "200;body=5")
    request = requests.Request("GET", server.url + "/thing").prepare()
    adapter = RetryAdapter(NOW)
    response = adapter.send(request, True, (5, 5), True, None, {})
    assert (response.status_code, response.raw.read()) == (200, b"01234")
    adapter.close()


# Other adapters.


def test_with_cachecontrol(session, server):
    """The cache answers the second call; the first one was retried."""
    server.script("/thing", 503, "200;body=5;header=Cache-Control:max-age=1000")
    session.mount("http://", RetryAdapter(NOW, inner=CacheControlAdapter()))
    for _ in range(2):
        assert session.get(server.url + "/thing").content == b"01234"
    assert len(server.requests()) == 2


class Limited(LimiterMixin, RetryAdapter):
    """A limiter above: it counts calls."""


@pytest.mark.parametrize(
    ("make", "tokens"),
    [
        (lambda: Limited(policy=NOW, per_second=1000, gate=None), 1),
        (lambda: RetryAdapter(NOW, inner=LimiterAdapter(per_second=1000), gate=None), 3),
    ],
    ids=["above", "inner"],
)
def test_with_requests_ratelimiter(session, server, make, tokens, monkeypatch):
    """A limiter below us counts every attempt, one above us every call."""
    taken, own = [], LimiterMixin._bucket_name
    counting = lambda self, request: taken.append(1) or own(self, request)  # noqa: E731
    monkeypatch.setattr(LimiterMixin, "_bucket_name", counting)
    server.script("/thing", 503, 503, 200)
    session.mount("http://", make())
    assert session.get(server.url + "/thing").status_code == 200
    assert (len(taken), len(server.requests())) == (tokens, 3)


@pytest.mark.parametrize(
    ("bases", "body"),
    [
        ((RetryAdapter, CacheControlAdapter), {}),
        ((CacheControlAdapter, RetryAdapter), {}),
        ((RetryAdapter, HTTPAdapter), {}),
        ((RetryAdapter,), {"init_poolmanager": lambda self, *pools, **named: None}),
    ],
    ids=["below", "above", "plain", "own"],
)
def test_a_subclass_whose_own_pools_would_never_be_used_is_told_what_to_write(bases, body):
    """Else a certificate that it pins would silently not be checked."""
    with pytest.raises(TypeError, match=r"Mine\.init_poolmanager would not .* inner=ThatAdapter"):
        type("Mine", bases, body)


@pytest.mark.parametrize(
    "retries",
    [3, Retry(3, status_forcelist=[503]), Retry(None, connect=2), Retry(0, status_forcelist=[503])],
)
def test_the_retries_of_an_inner_adapter_are_switched_off_with_one_warning(
    session, server, retries
):
    """Two loops multiply; four attempts stay four."""
    server.script("/thing", 503)
    inner = HTTPAdapter(max_retries=retries)
    with pytest.warns(UserWarning, match="was set to 0") as caught:
        retrying(session, inner=inner)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (inner.max_retries.total, inner.max_retries.status_forcelist) == (0, set())
    assert session.get(server.url + "/thing").status_code == 503
    assert len(server.requests()) == 4


class Pinned(HTTPAdapter):
    """As people write them: a pool of its own making."""

    flavour = "blue"

    def init_poolmanager(self, *arguments, **named):
        super().init_poolmanager(*arguments, **named, source_address=("127.0.0.1", 0))


def test_the_pools_of_an_inner_adapter_are_those_of_the_wrapper():
    """What callers look at on a mounted adapter is what sends."""
    inner = Pinned(pool_connections=3, pool_maxsize=7, pool_block=True)
    adapter = RetryAdapter(NOW, inner=inner)
    assert adapter.poolmanager is inner.poolmanager
    assert adapter.proxy_manager is inner.proxy_manager
    assert adapter.max_retries is inner.max_retries
    assert (adapter._pool_connections, adapter._pool_maxsize, adapter._pool_block) == (3, 7, True)
    assert adapter.flavour == "blue"
    manager = adapter.proxy_manager_for("http://127.0.0.1:9")
    assert inner.proxy_manager == {"http://127.0.0.1:9": manager}
    if hasattr(HTTPAdapter, "get_connection_with_tls_context"):  # from 2.32 on
        request = requests.Request("GET", "https://api.example.com/").prepare()
        pool = adapter.get_connection_with_tls_context(request, True)
        assert pool is inner.get_connection_with_tls_context(request, True)
        assert pool.conn_kw["source_address"] == ("127.0.0.1", 0)


def test_what_nobody_has_stays_an_error():
    """On an adapter of ours, over whatever it sends through."""
    adapter = RetryAdapter(inner=ScriptedAdapter([200]))
    assert adapter.requests == []
    for one in (adapter, RetryAdapter()):
        with pytest.raises(AttributeError, match="nonsense"):
            _ = one.nonsense


# mount().


def test_mount_wraps_what_is_mounted(session):
    """Each adapter once, also one that serves two prefixes; all share a budget; the order stays."""
    mine = HTTPAdapter()
    session.mount("http://a.example", mine)
    session.mount("http://b.example", mine)
    before = dict(session.adapters)
    assert mount(session, NOW) is session
    assert list(session.adapters) == list(before)
    wrapped = session.adapters
    assert wrapped["http://a.example"] is wrapped["http://b.example"]
    assert all(
        isinstance(each, RetryAdapter) and each.inner is before[key]
        for key, each in wrapped.items()
    )
    assert len({id(each.port.settings.limits.budget) for each in wrapped.values()}) == 1


def test_a_session_shows_whether_all_its_requests_are_retried(session):
    is_mounted = forbear.requests.is_mounted
    found = [is_mounted(session)]
    session.mount("https://", RetryAdapter())
    found.append(is_mounted(session))
    session.mount("http://", RetryAdapter())
    assert [*found, is_mounted(session)] == [False, False, True]
    assert is_mounted(mount(requests.Session()))


def test_mount_takes_a_session_that_is_not_mounted_yet(session):
    mount(session)
    with pytest.raises(ValueError, match="retries already"):
        mount(session)


# Pickling.


def test_a_session_survives_pickling(server, session):
    """Policy and options go along; the copy retries, with a gate, a budget and pools of its own."""
    server.script("/thing", 503, 503, 200)
    shared = {"gate": RetryGate(max_held=3), "budget": RetryBudget(), "idempotency": IdempotencyKeys()}  # fmt: skip
    policy = NOW.replace(max_attempts=3)
    adapter = RetryAdapter(policy, name="mine", pool_block=True, **shared)
    session.mount("http://", adapter)
    twin = pickle.loads(pickle.dumps(session))
    copied, ours = twin.adapters["http://"], adapter.port.settings.limits
    assert type(copied) is RetryAdapter
    assert copied.port.settings.limits.budget is not ours.budget
    assert copied.port.settings.limits.gate is not ours.gate
    assert (copied.port.settings.limits.gate.max_held, copied._pool_block) == (3, True)
    assert twin.post(server.url + "/thing", data=b"x").status_code == 200
    (key,) = {arrival.key for arrival in server.requests()}
    assert key
    twin.close()


def test_what_mount_made_survives_pickling(server, session):
    """The wrapper and the adapter in it, with its settings."""
    server.script("/thing", 503, 200)
    session.mount("http://", Pinned(pool_maxsize=7, pool_block=True))
    twin = pickle.loads(pickle.dumps(mount(session, NOW)))
    adapter = twin.adapters["http://"]
    assert adapter.poolmanager is adapter.inner.poolmanager
    assert adapter.poolmanager.connection_pool_kw["maxsize"] == 7
    assert adapter.poolmanager.connection_pool_kw["source_address"] == ("127.0.0.1", 0)
    assert twin.get(server.url + "/thing").status_code == 200
    twin.close()


def test_a_strategy_survives_pickling():
    """And deep copies: the adapter is made anew with it, and with no budget of its own."""
    adapter = RetryAdapter(NOW, strategy=AwsStandard())
    for twin in (
        pickle.loads(pickle.dumps(adapter)),
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(adapter)))),
    ):
        assert type(twin.port.settings.limits.strategy) is AwsStandard
    assert type(copy.deepcopy(adapter).port.settings.limits.strategy) is AwsStandard


# Answers.


UNREADABLE = {
    "gzip": {"lines": {"Location": "/here", "Content-Encoding": "gzip"}},
    "length": {"cut": 3, "lines": {"Location": "/here"}},
    "chunks": {"cut": 3, "chunked": True, "lines": {"Location": "/here"}},
}


@pytest.mark.parametrize("inside", [False, True], ids=["adapter", "mounted"])
@pytest.mark.parametrize("broken", UNREADABLE.values(), ids=UNREADABLE)
def test_a_redirect_is_followed_whatever_its_body(session, broken, inside):
    """As requests does by itself; it is not sent again for a body that nobody wants."""
    mount(session, NOW) if inside else retrying(session)
    with Origin(b"no gzip", [Answer(status=302, **broken), Answer()] * 4) as origin:
        for bounds in (contextlib.nullcontext(), forbear.deadline(30)):
            for method in ("GET", "POST"):
                with bounds:
                    assert session.request(method, origin.url + "/broken").status_code == 200
        paths = [head.split(b" ")[1] for head in origin.requests]
    assert paths == [b"/broken", b"/here"] * 4


def test_cookies_and_hooks_are_as_without_us(server):
    """The session's jar has what the last answer set; a hook sees one response a call."""
    steps = ["503;header=Set-Cookie:failed=1", "200;header=Set-Cookie:good=1"]
    for adapter, script in ((HTTPAdapter(), steps[1:]), (RetryAdapter(NOW), steps)):
        server.script("/thing", *script)
        told = []
        with requests.Session() as session:
            session.trust_env = False
            session.mount("http://", adapter)
            session.hooks["response"].append(
                lambda each, told=told, **named: told.append(each.status_code)
            )
            response = session.get(server.url + "/thing")
        assert told == [200]
        assert dict(session.cookies) == dict(response.cookies) == {"good": "1"}
        assert response.elapsed is not None


# Time.


class Noting(ScriptedAdapter):
    """Keeps what it was given beside the request."""

    def __init__(self, steps):
        super().__init__(steps)
        self.named = []

    @property
    def timeouts(self):
        return [named["timeout"] for named in self.named]

    def send(self, request, **named):
        self.named.append(named)
        return super().send(request, **named)


@pytest.mark.parametrize(
    ("given", "connect", "read"),
    [
        *((None, 10, 10), (3, 3, 3), ((3, 20), 3, 10), ((None, 4), 10, 4)),
        *((Timeout(connect=2, read=30), 2, 10), (Timeout(total=6), 6, 6)),
    ],
    ids=str,
)
def test_timeouts_are_clamped_to_the_time_left(session, given, connect, read):
    """Every form requests takes; 10 s are left, and 7 for the second attempt.

    Without a deadline every attempt has the very object.
    """
    inner = Noting([503, 200, 503, 200])
    policy = RetryPolicy(backoff=Fixed(3), total_timeout=10)
    for each in (policy, NOW):
        retrying(session, each, inner=inner, clock=FakeClock())
        session.get("http://api.example.com/", timeout=given)
    for timeout, left in zip(inner.timeouts[:2], (10, 7), strict=True):
        timeout.start_connect()
        assert timeout.connect_timeout == min(connect, left)
        assert timeout.read_timeout == pytest.approx(min(read, left), abs=0.5)
    assert [each is given for each in inner.timeouts[2:]] == [True, True]


@pytest.mark.parametrize("policy", [NOW, NOW.replace(total_timeout=5)])
def test_a_timeout_of_three_parts_is_requests_to_refuse(server, session, policy):
    """With a deadline too: its own message, which says what to pass."""
    with pytest.raises(ValueError, match=r"Pass a \(connect, read\) timeout tuple"):
        retrying(session, policy).get(server.url + "/thing", timeout=(3, 4, 5))
    assert server.requests() == []


def test_a_full_pool_of_an_inner_adapter_is_not_waited_for_past_the_deadline(server, session):
    """pool_block=True, its only connection busy: requests by itself would wait for ever."""
    server.script("/thing", "200;body=100000")
    session.mount("http://", HTTPAdapter(pool_maxsize=1, pool_block=True))
    mount(session, NOW)
    holding = session.get(server.url + "/thing", stream=True)
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded), forbear.deadline(0.1):
        session.get(server.url + "/thing")
    assert 0.09 <= time.monotonic() - began <= 30
    holding.close()
    with forbear.deadline(60):
        assert session.get(server.url + "/thing").status_code == 200


# Settings of the session.


def test_verify_cert_and_proxies_reach_every_attempt(session):
    """As they were given."""
    session.mount("https://", inner := Noting([503, 200]))
    mount(session, NOW)
    given = {"verify": "ca.pem", "cert": ("c", "k"), "proxies": {"https": "http://p:1"}}
    session.get("https://api.example.com/", **given)
    assert len(inner.named) == 2
    for named in inner.named:
        assert {name: named[name] for name in (*given, "stream")} == {**given, "stream": False}


# What is left behind.


def test_a_call_leaves_no_cyclic_garbage(session):
    """Neither success nor retry nor error waits for the collector."""
    retrying(session, inner=ScriptedAdapter([503, 200]))
    failing, bare = requests.Session(), requests.Session()
    failing.mount("http://", RetryAdapter(NOW, inner=ScriptedAdapter(["read_timeout"]), gate=None))
    bare.mount("http://", ScriptedAdapter([200]))

    def fail():
        with contextlib.suppress(requests.ReadTimeout):
            failing.get("http://api.example.com/")

    def garbage(call):
        call()
        with collecting_by_hand():
            call()
            return gc.collect()

    theirs = garbage(lambda: bare.get("http://api.example.com/"))
    assert garbage(lambda: session.get("http://api.example.com/")) <= theirs
    assert garbage(fail) <= theirs


def test_closing_a_session_closes_the_pools_of_an_inner_adapter_once(session):
    """What a user put beside them is told once too."""
    told = []

    class Proxies(urllib3.PoolManager):
        def clear(self):
            told.append("closed")

    mount(session)
    session.adapters["http://"].proxy_manager["http://proxy"] = Proxies()
    session.close()
    assert told == ["closed"]
