"""``Retry`` for libraries that take nothing else; numbers are those of ../test_pitfalls.py."""

import copy
import hashlib
import io
import pickle
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import pytest
import requests
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, ReadTimeoutError
from urllib3.response import HTTPResponse

import forbear
from forbear import Fixed, Reason, RetryBudget, RetryPolicy, record_of, testing
from forbear.testing import FaultServer
from forbear.urllib3 import Retry

from ..clocks import Interrupted, Meanwhile

POOL = urllib3.HTTPConnectionPool("api.example.com")
AT_ONCE = RetryPolicy(max_attempts=4, backoff=Fixed(0))
FAILED = HTTPError, requests.RequestException
BODILESS = ("GET", "HEAD", "OPTIONS", "TRACE")


@contextmanager
def of_requests(retry):
    """``call(method, url, body=None)``, which returns status, body and response."""
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))

        def call(method, url, body=None):
            response = session.request(method, url, data=body)
            return response.status_code, response.content, response

        yield call


@contextmanager
def of_urllib3(retry, preload=True):
    with urllib3.PoolManager(retries=retry) as manager:

        def call(method, url, body=None):
            response = manager.request(method, url, body=body, preload_content=preload)
            content = response.data if preload else response.read()
            response.release_conn()
            return response.status, content, response

        yield call


LANES = [of_requests, of_urllib3, partial(of_urllib3, preload=False)]
every_lane = pytest.mark.parametrize("lane", LANES, ids=["requests", "preloaded", "streamed"])


@pytest.fixture
def lane():
    """As requests uses a Retry; ``every_lane`` where the way makes a difference."""
    return of_requests


@pytest.fixture
def retry(quick):
    return lambda policy=AT_ONCE, **options: Retry(policy, **{**quick, **options})


@pytest.fixture
def manager():
    made = []

    def make(retry, **settings):
        made.append(urllib3.PoolManager(retries=retry, **settings))
        return made[-1]

    yield make
    for each in made:
        each.clear()


def answer(status, headers=None):
    return HTTPResponse(io.BytesIO(), status=status, headers=headers or {}, preload_content=False)


@pytest.mark.parametrize("fault", ["503", "reset"])
def test_only_what_is_safe_without_its_headers_and_body_is_sent_again(lane, server, retry, fault):
    policy = AT_ONCE.replace(methods={*RetryPolicy().methods, "POST", "PATCH"})
    for replayable, repeated in ((False, BODILESS), (True, (*BODILESS, "PUT", "DELETE"))):
        template = retry(policy, budget=None, bodies_replayable=replayable)
        with lane(template) as call, forbear.override(methods=policy.methods):
            for method in (*BODILESS, "PUT", "DELETE", "POST", "PATCH", "LOCK"):
                path = f"/{method}/{replayable}"
                server.script(path, fault, 200)
                with nullcontext() if method in repeated else suppress(*FAILED):
                    status, _, _ = call(method, server.url + path)
                    assert status == (200 if method in repeated else 503)
                assert len(server.requests(path)) == 1 + (method in repeated)


@pytest.mark.parametrize(("replayable", "sent"), [(False, 1), (True, 2)])
def test_a_throttled_post_needs_a_body_that_replays(lane, server, retry, replayable, sent):
    template = retry(AT_ONCE.replace(unexecuted_statuses={429}), bodies_replayable=replayable)
    server.script("/orders", 429, 200)
    server.script("/lost", "reset", 200)
    with lane(template) as call:
        status, _, _ = call("POST", server.url + "/orders", b"order")
        with suppress(*FAILED):
            call("POST", server.url + "/lost", b"order")
    assert status == (200 if replayable else 429)
    assert [each.body_bytes for each in server.requests("/orders")] == [5] * sent
    assert len(server.requests("/lost")) == 1


@every_lane
def test_what_was_never_sent_is_sent_whatever_its_method_and_body(lane, server):
    bodies = (b"order" * 99, iter([b"order"] * 99), io.BytesIO(b"order" * 99))
    for number, body in enumerate(bodies):
        server.script(f"/{number}", 200)
        server.stop()
        clock = Meanwhile(lambda clock: server.start())
        with lane(Retry(clock=clock, random=lambda: 0.5)) as call:
            status, _, response = call("POST", f"{server.url}/{number}", body)
        assert status == 200
        # The fast first retry: in the middle of 0 to 0.05.
        assert clock.sleeps == pytest.approx([0.025])
        (arrival,) = server.requests(f"/{number}")
        assert arrival.sha256 == hashlib.sha256(b"order" * 99).hexdigest()
        assert record_of(response).reasons == ("NewConnectionError",)


@pytest.mark.parametrize("fault", ["503", "reset"])
def test_a_file_is_sent_again_from_where_it_stood(lane, server, retry, fault):
    server.script("/thing", fault, 200)
    file = io.BytesIO(b"skipped" + b"sent" * 5000)
    file.seek(7)
    with lane(retry(bodies_replayable=True)) as call:
        status, _, _ = call("PUT", server.url + "/thing", file)
    assert status == 200
    sent = [each.sha256 for each in server.requests("/thing")]
    assert sent == [hashlib.sha256(b"sent" * 5000).hexdigest()] * 2


@pytest.mark.parametrize(("value", "slept"), [
    ("4", 4.5),  # hint + 0.5 × 0.25 × 4
    ("soon", 0.025),  # the fast first retry: in the middle of 0 to 0.05
    ("Thu, 01 Jan 2026 00:00:30 GMT", 33.75),  # the clock stands at 2026-01-01 00:00:00
    ("60", 67.5), ("61", None), ("9" * 5000, None),
], ids=["seconds", "soon", "date", "60", "61", "9s"])  # fmt: skip
def test_21_22_26_whatever_retry_after_says(retry, clock, value, slept):
    """Pitfalls 21, 22, 26: garbage costs no response; above the maximum is never shortened."""
    template = retry(RetryPolicy(), clock=clock)
    response = answer(503, {"Retry-After": value})
    assert template.is_retry("GET", 503, True)
    if slept is None:
        with pytest.raises(MaxRetryError):
            template.increment("GET", "/thing", response=response, _pool=POOL)
        assert record_of(response).reason is Reason.RETRY_AFTER_TOO_LONG
        return
    template.increment("GET", "/thing", response=response, _pool=POOL).sleep(response)
    assert clock.sleeps == pytest.approx([slept])


def test_a_deadline_refuses_a_wait_that_leads_nowhere(lane, server, retry, clock):
    server.script("/thing", "503;retry-after=10")
    for total, block in ((5, 60), (None, 5)):
        template = retry(AT_ONCE.replace(total_timeout=total))
        with lane(template) as call, forbear.deadline(block, clock=clock):
            status, _, response = call("GET", server.url + "/thing")
        assert (status, clock.sleeps) == (503, [])
        assert record_of(response).reason is Reason.DEADLINE


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_wait_gives_its_token_back(server, manager, budget, interruption):
    server.script("/thing", 503)
    client = manager(Retry(budget=budget, clock=Interrupted(interruption)))
    with pytest.raises(interruption):
        client.request("GET", server.url + "/thing")
    assert budget.tokens(server.url, 0.0) == 20


@pytest.mark.parametrize("fault", ["503;body=100000", "503;body=1600;drip=100"])
def test_a_connection_the_pool_has_back_serves_no_rest_of_an_answer(server, retry, fault):
    server.script("/thing", fault, "200;body=10")
    with pool_of(server, maxsize=1, retries=retry()) as pool:
        response = pool.urlopen("GET", "/thing", preload_content=False, release_conn=True)
        assert (response.status, response.read()) == (200, b"0123456789")
    assert (record_of(response).reasons, server.connections) == (("503",), 2)


@every_lane
def test_28_a_status_never_raises(lane, server, retry):
    """Pitfall 28: one rule: the last response is handed over, unread, whatever ended the call."""
    policies = AT_ONCE, AT_ONCE.replace(on_exhausted="raise"), RetryPolicy.disabled()
    for step, method, policy, reason in (
        *(("503", "GET", policy, Reason.ATTEMPTS_EXHAUSTED) for policy in policies),
        ("503", "POST", AT_ONCE, Reason.METHOD_NOT_REPLAYABLE),
        ("503", "PUT", AT_ONCE, Reason.BODY_CONSUMED),
        ("503;retry-after=99", "GET", AT_ONCE, Reason.RETRY_AFTER_TOO_LONG),
        ("503;header=x-should-retry:false", "GET", AT_ONCE, Reason.SERVER_SAID_NO),
        ("404", "GET", AT_ONCE, Reason.STATUS_NOT_RETRIED),
        ("403;retry-after=1", "POST", AT_ONCE, Reason.STATUS_NOT_RETRIED),
    ):
        server.script("/thing", f"{step};body=12")
        with lane(retry(policy)) as call:
            status, content, response = call(method, server.url + "/thing")
        assert (status, content) == (int(step[:3]), b"0123456789ab")
        assert record_of(response).reason is reason, step


def test_p10_nothing_secret_is_told(server, manager, retry, caplog):
    told = []
    template = retry(on_event=[told.append])
    server.script("/s3cret", "503;header=X-Token:s3cret", "reset")
    with caplog.at_level("DEBUG", logger="forbear"), pytest.raises(MaxRetryError) as caught:
        url = server.url.replace("//", "//user:s3cret@") + "/s3cret?token=s3cret"
        manager(template).request("GET", url, headers={"X-Key": "s3cret"})
    texts = [*caught.value.__notes__, repr(template), *map(str, told)]
    texts += [record.getMessage() for record in caplog.records if record.name == "forbear"]
    assert len(texts) > 10
    assert not [text for text in texts if "s3cret" in text]


def test_an_outage_gets_no_more_retries_than_the_default_budget_has(lane, server, retry):
    server.script("/thing", 503)
    with lane(retry()) as call:
        for _ in range(10):
            call("GET", server.url + "/thing")
    assert len(server.requests("/thing")) == 10 + 7
    with testing.fast(max_attempts=2), forbear.override(max_attempts=9), lane(retry()) as call:
        call("GET", server.url + "/thing")
    assert len(server.requests("/thing")) == 10 + 7 + 2  # a block of tests bounds the attempts


def test_copies_share_the_budget(server, manager, retry, budget):
    """kubernetes copies its configuration deeply: the allowance stays one."""
    template = retry(budget=budget)
    server.script("/thing", 503)
    copies = copy.copy(template), copy.deepcopy(template), template.new()
    for n, copied in enumerate(copies, start=1):
        assert type(copied) is Retry
        manager(copied).request("GET", server.url + "/thing")
        assert budget.tokens(server.url, 1_000.0) == 20 - 3 * n


def test_a_retry_pickles(server, manager):
    policy = RetryPolicy(max_attempts=3, backoff=Fixed(0))
    settings = {"bodies_replayable": True, "redirect": 2}
    template = Retry(policy, budget=RetryBudget(burst=7), name="x", **settings)
    after = template.increment("GET", "/thing", response=answer(503), _pool=POOL)
    server.script("/thing", 503)
    for original, sent in ((template, 3), (after, 3 + 2)):
        loaded = pickle.loads(pickle.dumps(original))
        assert {name: getattr(loaded, name) for name in settings} == settings
        assert loaded.history == original.history
        assert "<RetryBudget 7/7>" in repr(loaded)
        manager(loaded).request("PUT", server.url + "/thing", body=b"x")
        assert len(server.requests("/thing")) == sent


def test_an_unknown_method_is_not_safe(retry):
    assert retry().increment(error=ConnectTimeoutError()).total == 2
    with pytest.raises(ReadTimeoutError):
        retry().increment(error=ReadTimeoutError(POOL, "/thing", "read timed out"))
    with pytest.raises(MaxRetryError):
        retry().increment(response=answer(503))


def test_a_copy_with_other_counts_changes_no_template(lane, server, retry):
    server.script("/thing", 503)
    template = retry()
    with lane(template.new(total=1)) as call:
        assert call("GET", server.url + "/thing")[0] == 503
    assert len(server.requests("/thing")) == 2
    assert template.total == 3


def pool_of(server, **named):
    host, port = server.url.removeprefix("http://").split(":")
    return urllib3.HTTPConnectionPool(host, int(port), **named)


def test_credentials_do_not_follow_to_another_origin(server, manager, retry):
    headers = {"Authorization": "Bearer x", "X-Secret": "y", "X-Plain": "z"}
    with FaultServer() as other:
        there = other.url.replace("127.0.0.1", "localhost")
        server.script("/from", f"302;header=Location:{there}/to")
        for removed in ({}, {"remove_headers_on_redirect": ["X-Secret"]}):
            retries = retry(**removed)
            manager(None).request("GET", server.url + "/from", headers=headers, retries=retries)
        seen = [{name.title() for name, _ in each.headers} for each in other.requests("/to")]
    followed = [names & headers.keys() for names in seen]
    assert followed == [{"X-Secret", "X-Plain"}, {"Authorization", "X-Plain"}]
