"""What other retry libraries were seen to get wrong, one test for each sentence.

The numbers are those of the survey of peers; 1 to 14 were seen in transports for httpx, 15 to 19
below it, 20 to 31 in urllib3 and requests, 64 to 75 elsewhere. ``test_every_pitfall_has_its_test``
keeps the list complete.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import logging
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import time
from email.utils import formatdate
from pathlib import Path

import anyio
import httpx
import httpx2
import pytest
import requests
import urllib3

import forbear
import forbear.httpx
import forbear.httpx2
import forbear.requests
import forbear.urllib3
from forbear import Fixed, IdempotencyKeys, RetryBudget, RetryPolicy
from forbear.testing import FakeClock, FaultServer

from .lanes import NO_TLS, Lane

REQUIRED = {str(number) for number in (*range(1, 32), *range(64, 76))} | {"19a"}
NOT_YET = {
    "75": "hedging is not part of this release",
}

pytestmark = pytest.mark.smoke

EXHAUSTED = "attempts-exhausted"


def one_shot(lane, kind="iterator"):
    if lane.backend is not None:
        return agenerator()
    return iter([b"abc"]) if kind == "iterator" else generator()


def generator():
    yield b"abc"


async def agenerator():
    yield b"abc"


# The conformance tests run on every client; here one lane of each colour shows the pitfall.
LANES = [
    Lane(name, backend) for name in ("httpx", "httpx2") for backend in (None, "asyncio", "trio")
]


SYNC, ASYNCIO, TRIO = LANES[:3]
by_id = {"ids": lambda lane: lane.id}


@pytest.fixture(params=[SYNC, ASYNCIO], **by_id)
def lane(request):
    return request.param


@pytest.fixture(params=[SYNC], **by_id)
def sync_lane(request):
    return request.param


@pytest.fixture(params=[ASYNCIO, TRIO], **by_id)
def async_lane(request):
    return request.param


def both_ways(lane):
    """A lane and its twin of the other family, and the same the other way round."""
    (twin,) = (t for t in LANES if t.library is not lane.library and t.backend == lane.backend)
    return [(lane, twin), (twin, lane)]


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running


def bodies(server, path="/"):
    return [arrival.body_bytes for arrival in server.requests(path)]


# Transports for httpx.


@pytest.mark.parametrize("kind", ["iterator", "generator"])
def test_pitfall_01_a_second_request_of_an_iterator_does_not_arrive_empty(lane, kind, server):
    """PUT content=iter([b"abc"]), 503: a second request must not arrive empty, nor at all."""
    server.script("/", 503, 200)
    (response,) = lane.calls(("PUT", server.url, {"content": one_shot(lane, kind)}))
    assert response.status_code == 503
    assert bodies(server) == [3]


@pytest.mark.parametrize("kind", ["generator", "BytesIO"])
def test_pitfall_02_a_body_that_was_read_gives_the_answer_and_no_error_of_the_library(
    sync_lane, kind, server
):
    """A generator: the caller gets the 503, not StreamConsumed. A BytesIO is sent again, whole."""
    server.script("/", 503, 200)
    content = generator() if kind == "generator" else io.BytesIO(b"abc")
    (response,) = sync_lane.calls(("PUT", server.url, {"content": content}))
    assert response.status_code == (503 if kind == "generator" else 200)
    assert bodies(server) == [3] * (1 if kind == "generator" else 2)


def test_pitfall_03_a_retry_after_above_the_maximum_is_not_shortened(lane, server):
    """Retry-After: 5 with a maximum of 1 s: stop and return the answer, do not wait 1 s."""
    clock = FakeClock()
    server.script("/", "503;retry-after=5", 200)
    (response,) = lane.calls(
        ("GET", server.url), clock=clock, policy=RetryPolicy(max_retry_after=1)
    )
    assert response.status_code == 503
    assert (clock.sleeps, len(server.requests())) == ([], 1)
    assert forbear.record_of(response).refused_delay == 5


def test_pitfall_04_a_total_timeout_ends_the_call(lane, server):
    """A limit of 0.6 s over attempts of 0.4 s ends the call near 0.6 s, not at 1.6."""
    policy = RetryPolicy(total_timeout=0.6, backoff=Fixed(0))
    server.script("/", "503;delay=400")
    started_at = time.monotonic()
    (error,) = lane.calls(("GET", server.url), policy=policy, clock=None)
    assert 0.55 < time.monotonic() - started_at < 0.6 + 0.4
    assert isinstance(error, lane.ours.DeadlineExceeded)
    assert len(server.requests()) == 2


@pytest.mark.parametrize("ending", ["return", "raise"])
def test_pitfall_05_a_validator_that_rejects_everything_does_not_end_with_a_good_answer(
    lane, ending, server
):
    """What retry_if rejects to the last is told as given up, or raised; never as accepted."""
    server.script("/", 200)
    policy = RetryPolicy(max_attempts=3, on_exhausted=ending)
    (outcome,) = lane.calls(("GET", server.url), policy=policy, retry_if=lambda response: True)
    assert len(server.requests()) == 3
    assert forbear.record_of(outcome).reason == EXHAUSTED
    assert isinstance(outcome, lane.library.HTTPStatusError) == (ending == "raise")


def test_pitfall_06_a_validator_that_raises_leaves_the_connection_free(lane, server, caplog):
    """With a pool of one connection the next call works, and the log says it once."""
    server.script("/", 200)

    def validator(response):
        raise KeyError("mine")

    inner = lane.inner(limits=lane.library.Limits(max_connections=1))
    transport = lane.transport(inner, retry_if=validator)
    timeout = {"timeout": lane.library.Timeout(5, pool=0.3)}
    outcomes = lane.calls(
        ("GET", server.url), ("GET", server.url), transport=transport, client=timeout
    )
    assert [outcome.status_code for outcome in outcomes] == [200, 200]
    assert len([entry for entry in caplog.records if entry.levelno >= logging.ERROR]) == 1


def test_pitfall_07_the_async_transport_sleeps_under_trio_too(async_lane, server):
    """A wait is a wait on either event loop: not a TypeError, and not skipped."""
    server.script("/", 503, 200)
    started_at = time.monotonic()
    (response,) = async_lane.calls(
        ("GET", server.url), policy=RetryPolicy(backoff=Fixed(0.05)), clock=None
    )
    assert response.status_code == 200
    assert time.monotonic() - started_at >= 0.05


@pytest.mark.parametrize(
    ("setting", "attempts"), [(None, 4), (False, 1), ({}, 4), ({"max_attempts": 1}, 1)]
)
def test_pitfall_08_a_falsy_setting_of_a_request_has_a_meaning(
    sync_lane, setting, attempts, server
):
    """None is "not given", False is "off"; neither is an AttributeError."""
    server.script("/", 503)
    (response,) = sync_lane.calls(("GET", server.url, {"extensions": {"forbear": setting}}))
    assert response.status_code == 503
    assert len(server.requests()) == attempts


def test_pitfall_08_zero_says_what_to_write_instead(sync_lane, server):
    """0 could mean two things: a TypeError names the settings, before anything is sent."""
    (error,) = sync_lane.calls(("GET", server.url, {"extensions": {"forbear": 0}}))
    assert isinstance(error, TypeError)
    assert "False for off" in str(error)
    assert server.requests() == []


@pytest.mark.parametrize(
    ("method", "policy"), [("GET", {"statuses": ()}), ("GET", {"methods": ()})]
)
def test_pitfall_09_an_empty_set_is_empty(sync_lane, method, policy, server):
    """statuses=() and methods=() mean none, not the defaults."""
    server.script("/", 503)
    (response,) = sync_lane.calls((method, server.url), policy=RetryPolicy(**policy))
    assert response.status_code == 503
    assert len(server.requests()) == 1


def test_pitfall_10_two_stacked_transports_do_not_multiply(lane, server):
    """Four attempts over four attempts are four requests, not sixteen."""
    server.script("/", 503)
    (response,) = lane.calls(("GET", server.url), transport=lane.transport(lane.transport()))
    assert response.status_code == 503
    assert len(server.requests()) == 4


def test_pitfall_11_four_attempts_use_one_connection(lane, server):
    """To a server that keeps connections: the failed answers are drained, not cut off."""
    server.script("/", "503;body=2000", "429;body=60000;chunked=1", 503, 200)
    (response,) = lane.calls(("GET", server.url), gate=None)
    assert response.status_code == 200
    assert [arrival.connection for arrival in server.requests()] == [1, 1, 1, 1]


def test_pitfall_12_a_response_cut_in_mid_body_is_retried_where_that_is_safe(lane, server):
    """A small body is part of the attempt; what may have been executed is not repeated for it."""
    server.script("/", "cut:5;body=100", 200)
    server.script("/orders", "cut:5;body=100", 200)
    got, posted = lane.calls(
        ("GET", server.url), ("POST", server.url + "/orders", {"content": b"x"})
    )
    assert got.status_code == 200
    assert type(posted) is lane.library.RemoteProtocolError
    assert len(server.requests("/orders")) == server.executed("/orders") == 1


def test_pitfall_13_cookies_and_hooks_are_those_of_the_last_answer(lane, server):
    """A failed attempt's Set-Cookie is not kept; the client's hooks see one response."""
    server.script("/", "503;header=Set-Cookie:failed=1", 503, "200;header=Set-Cookie:good=1", 200)
    seen = []

    def hook(response):
        seen.append(response.status_code)

    async def ahook(response):
        seen.append(response.status_code)

    hooks = {"event_hooks": {"response": [hook if lane.backend is None else ahook]}}
    lane.calls(("GET", server.url), ("GET", server.url), client=hooks)
    assert seen == [200, 200]
    assert [value for name, value in server.requests()[-1].headers if name.lower() == "cookie"] == [
        "good=1"
    ]


def test_pitfall_14_a_generated_key_stays_at_its_origin_and_the_allowance_with_the_call(
    lane, server
):
    """A redirected POST: a fresh key at another origin, one allowance for both hops."""
    with FaultServer() as other:
        server.script("/", 503, f"307;header=Location:{other.url}/b")
        other.script("/b", 503)
        (response,) = lane.calls(
            ("POST", server.url, {"content": b"order"}),
            client={"follow_redirects": True},
            policy=RetryPolicy(max_attempts=3),
            idempotency=IdempotencyKeys(),
        )
        here = [arrival.key for arrival in server.requests()]
        there = [arrival.key for arrival in other.requests()]
    assert response.status_code == 503
    assert len(here) == 2  # one retry used
    assert len(there) == 2  # the hop's own first sending, and the retry that was left
    assert None not in {*here, *there}
    assert (len(set(here)), len(set(there)), set(here) & set(there)) == (1, 1, set())


# httpcore. 15 and 16 need a server that speaks HTTP/2.


def test_pitfall_17_an_early_no_during_an_upload_is_an_answer(lane, server):
    """A 413 or 429 sent before the body was read is honoured, not taken for a broken connection."""
    clock = FakeClock()
    body = b"x" * 4_000_000
    server.script("/large", "early:413:1000", 200)
    server.script("/busy", "early:429:1000;retry-after=3", 200)
    large, busy = lane.calls(
        ("PUT", server.url + "/large", {"content": body}),
        ("PUT", server.url + "/busy", {"content": body}),
        clock=clock,
    )
    assert (large.status_code, busy.status_code) == (413, 200)
    assert [arrival.body_bytes for arrival in server.requests("/busy")] == [1000, len(body)]
    assert clock.sleeps == [
        pytest.approx(3.375)
    ]  # the hint, and half of the quarter that spreads a fleet


def test_pitfall_18_connect_retries_below_do_not_multiply(lane):
    """HTTPTransport(retries=3) below four attempts connects four times, and says so."""
    with pytest.warns(UserWarning, match="was set to retries=0"):
        transport = lane.transport(lane.inner(retries=3))
    connects = []

    def trace(name, info):
        connects.extend([name] if name == "connection.connect_tcp.started" else [])

    async def atrace(name, info):
        trace(name, info)

    extensions = {"trace": trace if lane.backend is None else atrace}
    with FaultServer() as server:
        url = server.url
    (error,) = lane.calls(("GET", url, {"extensions": extensions}), transport=transport)
    assert isinstance(error, lane.library.ConnectError)
    assert len(connects) == 4


def test_pitfall_19_a_shortened_timeout_does_not_leak_into_the_next_hop(lane, server):
    """Clamped timeouts stay on our copy; the response's request keeps the client's own."""
    server.script("/", "302;header=Location:/b")
    server.script("/b", 200)
    (response,) = lane.calls(
        ("GET", server.url),
        client={"follow_redirects": True, "timeout": 50},
        policy=RetryPolicy(total_timeout=5, attempt_timeout=2),
    )
    own = {"connect": 50, "read": 50, "write": 50, "pool": 50}
    for request in (response.request, response.history[0].request):
        assert type(request.extensions["timeout"]) is dict
        assert request.extensions["timeout"] == own


def test_pitfall_19a_a_transport_of_the_other_family_is_refused_when_it_is_built(lane):
    """Not after all attempts: their classes do not mix, and the message says which to use."""
    for mine, other in both_ways(lane):
        with pytest.raises(TypeError, match=rf"use forbear\.{other.library.__name__}\."):
            mine.transport(other.inner())


def test_pitfall_19a_mounted_in_the_other_familys_client_nothing_is_sent(lane, server):
    """The client does not look at what it is given; it fails before the first attempt."""
    server.script("/", 503)
    for mine, other in both_ways(lane):
        mounts = {"mounts": {"http://": mine.transport()}}
        (error,) = other.calls(("GET", server.url), client=mounts)
        assert isinstance(error, Exception)
        assert server.requests() == []


# urllib3 and requests.


class Session:
    """requests with our adapter, spoken to as a pool manager."""

    def __init__(self, policy, **options):
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", forbear.requests.RetryAdapter(policy, **options))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.session.close()

    def request(self, method, url, body=None, timeout=5):
        response = self.session.request(method, url, data=body, timeout=timeout)
        response.status = response.status_code
        return response


def bridged(policy, **options):
    retry = forbear.urllib3.Retry(policy, **options)
    return urllib3.PoolManager(retries=retry, timeout=5)


ADAPTERS = {"requests": Session, "urllib3": forbear.urllib3.RetryPoolManager}
PATIENT = RetryPolicy(backoff=Fixed(3))
NOW = RetryPolicy(backoff=Fixed(0))
adapter = pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
or_bridge = pytest.mark.parametrize(
    "adapter", [*ADAPTERS.values(), bridged], ids=[*ADAPTERS, "bridge"]
)
quickly = {"random": lambda: 0.5}


@adapter
@pytest.mark.parametrize("kind", ["iterator", "generator"])
def test_pitfall_20_a_second_body_is_not_empty(adapter, kind, server):
    """A generator or iterator and a 503: there is no second request."""
    server.script("/", 503, 200)
    with adapter(NOW) as client:
        response = client.request(
            "PUT", server.url, body=iter([b"abc"]) if kind == "iterator" else generator()
        )
    assert response.status == 503
    assert bodies(server) == [3]


@or_bridge
def test_pitfall_21_a_retry_after_that_is_none_does_not_lose_the_answer(adapter, server):
    """No InvalidHeader: the backoff alone says how long to wait."""
    clock = FakeClock()
    values = ["soon", "", "1.5.2", "%FF"]
    for value in values:
        server.script("/", f"503;retry-after={value}", 200)
        with adapter(PATIENT, clock=clock, **quickly) as client:
            assert client.request("GET", server.url).status == 200
    assert clock.sleeps == [3] * len(values)


@or_bridge
def test_pitfall_22_a_huge_retry_after_is_no_value_error(adapter, server):
    """Too long, or not a date: the answer comes back, or the backoff is waited for."""
    for value in ("9" * 5000, "Fri, 31 Dec 99999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"):
        clock = FakeClock()
        server.script("/", f"503;retry-after={value}", 503)
        with adapter(PATIENT.replace(max_attempts=2), clock=clock, **quickly) as client:
            assert client.request("GET", server.url).status == 503
        assert clock.sleeps in ([], [3])


@or_bridge
@pytest.mark.parametrize(("method", "sent"), [("POST", 1), ("GET", 4)])
def test_pitfall_23_an_error_of_a_proxy_or_of_tls_asks_for_the_method(
    adapter, method, sent, server
):
    """A POST through a proxy that resets arrives once."""
    server.script("/", "reset")
    proxied = {
        Session: lambda: Session(NOW),
        bridged: lambda: urllib3.ProxyManager(server.url, retries=forbear.urllib3.Retry(NOW)),
        forbear.urllib3.RetryPoolManager: lambda: forbear.urllib3.RetryProxyManager(
            NOW, proxy_url=server.url
        ),
    }[adapter]
    with proxied() as client:
        if adapter is Session:
            client.session.proxies = {"http": server.url}
        with pytest.raises((requests.RequestException, urllib3.exceptions.HTTPError)):
            client.request(
                method, "http://api.example.com/", body=b"order" if method == "POST" else None
            )
    assert len(server.requests()) == sent


@adapter
def test_pitfall_24_draining_a_failed_answer_is_bounded(adapter, server):
    """A 503 that drips for seconds does not hold the call."""
    server.script("/", "503;body=64;drip=200", 200)
    started_at = time.monotonic()
    with adapter(NOW) as client:
        assert client.request("GET", server.url).status == 200
    assert time.monotonic() - started_at < 1


@or_bridge
def test_pitfall_25_the_first_retry_waits_too(adapter, server):
    """The schedule begins with its first step."""
    clock = FakeClock()
    server.script("/", 503, 200)
    with adapter(
        RetryPolicy(backoff=forbear.Exponential(base=1, jitter="none")), clock=clock
    ) as client:
        assert client.request("GET", server.url).status == 200
    assert clock.sleeps == [1]


@or_bridge
def test_pitfall_26_a_retry_after_above_the_maximum_is_not_shortened(adapter, server):
    """Stop, and hand over what came."""
    clock = FakeClock()
    server.script("/", "503;retry-after=5", 200)
    with adapter(RetryPolicy(max_retry_after=1), clock=clock) as client:
        assert client.request("GET", server.url).status == 503
    assert (clock.sleeps, len(server.requests())) == ([], 1)


@or_bridge
def test_pitfall_27_the_last_error_tells_the_history(adapter, server):
    """Of each attempt: by record_of, and as a note in the traceback."""
    server.script("/", 503, "reset")
    with (
        adapter(NOW) as client,
        pytest.raises((requests.ConnectionError, urllib3.exceptions.MaxRetryError)) as caught,
    ):
        client.request("GET", server.url)
    assert len(forbear.record_of(caught.value).attempts) == 4
    assert forbear.record_of(caught.value).reasons[0] == "503"
    assert any(note.startswith("forbear: 4 attempts") for note in caught.value.__notes__)


@adapter
@pytest.mark.parametrize("ending", ["return", "raise"])
def test_pitfall_28_raise_or_return_is_one_rule(adapter, ending, server):
    """An answer comes back, or is raised, as on_exhausted says; an error is always raised."""
    server.script("/answer", 503)
    server.script("/error", "reset")
    errors = (requests.RequestException, urllib3.exceptions.HTTPError)
    with adapter(NOW.replace(on_exhausted=ending)) as client:
        if ending == "return":
            assert client.request("GET", server.url + "/answer").status == 503
        else:
            with pytest.raises(errors):
                client.request("GET", server.url + "/answer")
        with pytest.raises(errors):
            client.request("GET", server.url + "/error")


@pytest.mark.parametrize("step", [404, 503])
def test_pitfall_29_a_falsy_response_is_a_response(step, server):
    """bool(requests.Response) is False from 400 on: it is handed over all the same."""
    server.script("/", step)
    judge = lambda response: True if response is None else None  # noqa: E731
    with Session(NOW.replace(max_attempts=2), retry_if=judge) as client:
        response = client.request("GET", server.url)
    assert not response
    assert response.status == step
    assert len(server.requests()) == (2 if step == 503 else 1)


@adapter
def test_pitfall_30_a_truncated_answer_is_retried_by_both(adapter, server):
    """And by both for what is safe to repeat only."""
    server.script("/", "cut:5;body=100", 200)
    server.script("/orders", "cut:5;body=100", 200)
    with adapter(NOW) as client:
        assert client.request("GET", server.url).status == 200
        with pytest.raises((requests.RequestException, urllib3.exceptions.HTTPError)):
            client.request("POST", server.url + "/orders", body=b"x")
    assert len(server.requests("/")) == 2
    assert len(server.requests("/orders")) == server.executed("/orders") == 1


@pytest.mark.parametrize("step", ["503;body=10", "503;body=200000", "503;body=64;drip=300"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_pitfall_31_a_pool_of_one_that_blocks_does_not_deadlock(name, step, server):
    """A failed answer's connection is back, or closed, before the next attempt wants one."""
    server.script("/", step, 200)
    sizes = (
        {"maxsize": 1, "block": True}
        if name == "urllib3"
        else {"pool_maxsize": 1, "pool_block": True}
    )
    statuses = []

    def call():
        with ADAPTERS[name](NOW, **sizes) as client:
            statuses.append(client.request("GET", server.url).status)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    assert statuses == [200]


# Elsewhere. 64 needs a server that speaks HTTP/2.


@pytest.mark.parametrize(("headers", "attempts"), [({}, 1), ({"Idempotency-Key": "order-1"}, 4)])
def test_pitfall_65_a_conflict_is_repeated_for_a_key_only(sync_lane, headers, attempts, server):
    """409 says "in flight, come back" to a request with a key; else it is a final answer."""
    server.script("/", 409)
    _, response = sync_lane.calls(
        ("POST", server.url, {"content": b"x", "headers": headers}),
        ("PUT", server.url, {"content": b"x", "headers": headers}),
    )
    assert response.status_code == 409
    assert len(server.requests()) == 2 * attempts


def test_pitfall_66_a_token_of_a_cancelled_retry_is_given_back_once(async_lane, server):
    """Cancelled in the wait: the budget is as full as before, and not fuller."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    server.script("/", 503)
    policy = RetryPolicy(backoff=Fixed(30))

    async def main():
        transport = async_lane.transport(budget=budget, policy=policy, clock=None)
        async with async_lane.library.AsyncClient(transport=transport, trust_env=False) as client:
            with anyio.move_on_after(0.1):
                await client.get(server.url)
            return budget.tokens(server.url, time.monotonic())

    assert anyio.run(main, backend=async_lane.backend) == 20
    assert len(server.requests()) == 1


def test_pitfall_66_a_wait_that_the_deadline_would_end_takes_no_token(lane, server):
    """Such a wait is not begun, and nothing is spent on it."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    clock = FakeClock()
    server.script("/", 503)
    (response,) = lane.calls(
        ("GET", server.url),
        policy=RetryPolicy(backoff=Fixed(3), total_timeout=2),
        budget=budget,
        clock=clock,
    )
    assert (response.status_code, clock.sleeps) == (503, [])
    assert budget.tokens(server.url, clock.monotonic()) == 20


@pytest.mark.parametrize("step", [-3600, 3600])
def test_pitfall_69_a_step_of_the_wall_clock_during_a_wait_changes_nothing(sync_lane, step, server):
    """Waits and deadlines are monotonic: the same waits, the same end."""
    clock = FakeClock()
    server.script("/", 503, "429;retry-after=2", 200)
    (response,) = sync_lane.calls(
        ("GET", server.url),
        clock=clock,
        policy=RetryPolicy(backoff=Fixed(1), total_timeout=60),
        on_event=[lambda event: clock.step_utc(step)],
    )
    assert response.status_code == 200
    assert clock.sleeps == [1, pytest.approx(2.25)]


@pytest.mark.parametrize("off", [-3600, 0, 3600])
def test_pitfall_69_a_date_is_measured_by_the_servers_own_clock(sync_lane, off, server):
    """Retry-After as a date is measured from Date, however wrong our clock (RFC 9110 10.2.3)."""
    clock = FakeClock()
    utc = clock.time() + off
    dates = (
        f"header=Date:{formatdate(utc, usegmt=True)};retry-after={formatdate(utc + 5, usegmt=True)}"
    )
    server.script("/", f"503;{dates}", 200)
    (response,) = sync_lane.calls(("GET", server.url), clock=clock)
    assert response.status_code == 200
    assert clock.sleeps == [pytest.approx(5.625)]


@pytest.mark.parametrize(
    ("step", "sleeps"),
    [
        ("503;header=Retry-After:2;retry-after=4", [4.5]),
        ("503;retry-after=4;header=Retry-After:2", [4.5]),
        ("503;retry-after=4, 4", [4.5]),
        ("503;retry-after=4, soon", [4.5]),
        ("503;retry-after=120, 120", []),
        ("503;retry-after=1;header=Retry-After:120", []),
    ],
)
def test_pitfall_71_retry_after_twice_neither_raises_nor_shortens(sync_lane, step, sleeps, server):
    """Two lines, or two members of one: the longest of what the server asked holds."""
    clock = FakeClock()
    server.script("/", step, 200)
    (response,) = sync_lane.calls(("GET", server.url), clock=clock)
    assert response.status_code == (200 if sleeps else 503)
    assert clock.sleeps == [pytest.approx(sleep) for sleep in sleeps]


def test_pitfall_72_a_trace_gets_every_event_of_each_attempt(lane, server):
    """A retried call's events are those of two requests of the bare library."""
    server.script("/", "503;close=1", "200;close=1", "503;close=1", "200;close=1")

    def traced(*requests, bare=False):
        events = []

        def trace(name, info):
            events.append(name)

        async def atrace(name, info):
            events.append(name)

        extensions = {"trace": trace if lane.backend is None else atrace}
        lane.calls(*[(*request, {"extensions": extensions}) for request in requests], bare=bare)
        return events

    expected = traced(("GET", server.url), ("GET", server.url), bare=True)
    assert traced(("GET", server.url)) == expected
    assert len(expected) > 20


def test_pitfall_73_the_response_is_that_of_the_last_attempt(sync_lane, server):
    """Its history, version and network stream; the failed ones are closed already."""
    server.script("/", "503;close=1", "503;close=1", "200;body=500000")
    transport = sync_lane.transport()
    with sync_lane.library.Client(transport=transport, trust_env=False) as client:
        with client.stream("GET", server.url) as response:
            assert (response.status_code, response.history, response.http_version) == (
                200,
                [],
                "HTTP/1.1",
            )
            assert server.requests()[-1].connection == 3
            until = time.monotonic() + 1
            while server.open_connections > 1 and time.monotonic() < until:
                time.sleep(0.005)
            assert server.open_connections == 1
            stream = response.extensions["network_stream"]
            assert stream.get_extra_info("server_addr")[1] == int(server.url.rpartition(":")[2])
            assert len(response.read()) == 500_000
        assert client.get(server.url).status_code == 200
    assert server.requests()[-1].connection == 3  # closing the response gave its connection back
    assert forbear.record_of(response).attempts[-1].elapsed <= response.elapsed.total_seconds()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_pitfall_74_a_fork_neither_deadlocks_nor_shares_a_lock(sync_lane, server, tmp_path):
    """Forked while another thread holds the budget's lock: the child retries as if nothing were."""
    server.script("/child", 503, 200)
    program = tmp_path / "forks.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, sys
            import {sync_lane.library.__name__} as library
            import forbear.{sync_lane.library.__name__} as ours
            from forbear import RetryBudget
            from forbear.testing import FakeClock
            budget = RetryBudget()
            client = library.Client(transport=ours.RetryTransport(budget=budget, clock=FakeClock()), trust_env=False)
            budget._lock.acquire()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = 0 if client.get(sys.argv[1]).status_code == 200 else 2
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            assert budget._lock.locked()
            budget._lock.release()
            sys.exit(os.waitstatus_to_exitcode(status))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, program, server.url + "/child"],
        env={**os.environ, "PYTHONPATH": str(Path(forbear.__file__).parent.parent)},
        timeout=20,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(server.requests()) == 2


def test_pitfall_74_a_pickled_budget_is_another_one():
    """What goes to another process takes the numbers along, not the lock or what was spent here."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=7)
    assert budget.spend("http://a:80", 1, 0)
    copy = pickle.loads(pickle.dumps(budget))
    assert (copy.burst, copy.tokens("http://a:80", 0), budget.tokens("http://a:80", 0)) == (7, 7, 6)
    assert copy.spend("http://a:80", 3, 0)
    assert budget.tokens("http://a:80", 0) == 6
    policy = RetryPolicy(max_attempts=7)
    assert pickle.loads(pickle.dumps(policy)) == policy


# The list itself.


def numbers_tested() -> set[str]:
    """Numbers of all tests named test_pitfall_NN_… below tests/."""
    files = Path(__file__).parent.rglob("test_*.py")
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return set(re.findall(r"^(?:async )?def test_pitfall_0?(\d+a?)_", text, re.MULTILINE))


def test_every_pitfall_has_its_test():
    """The numbers tested and those not yet built are exactly the required ones."""
    tested = numbers_tested()
    assert tested | NOT_YET.keys() == REQUIRED
    assert tested & NOT_YET.keys() == set()
    assert {"15", "16", "64"} <= tested


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_what_is_not_yet_built_is_not_offered(library):
    """An option whose part is missing is absent; when it comes, it leaves NOT_YET."""
    ours = importlib.import_module(f"forbear.{library.__name__}")
    for option in ("hedge",):
        with pytest.raises(TypeError, match=option):
            ours.RetryTransport(library.HTTPTransport(verify=NO_TLS), **{option: None})
