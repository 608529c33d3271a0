"""The log: which events, at which level, with which fields, and the edges once only."""

from __future__ import annotations

import logging

import httpx
import pytest
import urllib3

import forbear.urllib3
from forbear import CircuitBreaker, Fixed, Origins, RetryBudget, RetryPolicy, StandardStrategy
from forbear.core.call import Call
from forbear.core.request import Request
from forbear.httpx import RetryTransport
from forbear.sending.tell import Notices
from forbear.testing import FakeClock, FaultServer, ScriptedTransport, record

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.01), hint_spread=0.0)
OF_A_CALL = {"client", "host", "method", "url", "request_id"}


@pytest.fixture
def lines(caplog):
    """A function: level, event and fields of each line of the log so far."""
    caplog.set_level(logging.DEBUG, "forbear")

    def read(*names):
        found = []
        for entry in caplog.records:
            if entry.name.startswith("forbear"):
                fields = {
                    key.removeprefix("forbear."): value
                    for key, value in vars(entry).items()
                    if "." in key
                }
                name = fields.pop("event")
                if not names or name in names:
                    found.append((entry.levelname, name, fields))
        return found

    return read


def a_download():
    return Call(
        POLICY, Request("GET", "https://cdn.test:443", []), StandardStrategy(POLICY), now=0.0
    )


def scripted(*steps, policy=POLICY, clock=None, **options):
    inner = ScriptedTransport(steps)
    clock = FakeClock() if clock is None else clock
    return httpx.Client(
        transport=RetryTransport(inner, policy=policy, clock=clock, name="orders", **options)
    )


def test_a_call_that_succeeds_in_the_end(caller, server, lines):
    server.script("/", 503, 200)
    caller.calls(("GET", server.url), policy=POLICY, name="orders")
    failed, scheduled, succeeded = lines()
    assert [found[:2] for found in (failed, scheduled, succeeded)] == [
        ("DEBUG", "attempt_failed"),
        ("INFO", "retry_scheduled"),
        ("INFO", "succeeded_after_retry"),
    ]
    fields = scheduled[2]
    assert set(fields) >= OF_A_CALL | {
        "attempt", "max_attempts", "reason", "status", "error_type", "delay", "delay_source", "waited", "deadline_left",
    }  # fmt: skip
    assert {
        key: fields[key]
        for key in ("client", "host", "method", "url", "attempt", "max_attempts", "reason")
    } == {
        "client": "orders",
        "host": server.url.removeprefix("http://"),
        "method": "GET",
        "url": server.url,  # the origin and no more
        "attempt": 1,
        "max_attempts": 3,
        "reason": "503",
    }
    assert (fields["status"], fields["error_type"], fields["delay_source"]) == (
        503,
        None,
        "backoff",
    )
    assert (fields["delay"], fields["waited"], fields["deadline_left"]) == (0.01, 0, None)
    assert set(succeeded[2]) >= OF_A_CALL | {"attempts", "waited", "elapsed"}
    assert (succeeded[2]["attempts"], succeeded[2]["waited"]) == (2, 0.01)
    assert len({found[2]["request_id"] for found in lines()}) == 1


def test_a_call_that_is_given_up(caller, server, lines):
    """With the reason and the class of the error; lines of one call have one number, of two calls
    two.
    """
    with FaultServer() as gone:
        nobody = gone.url
    caller.calls(("GET", nobody), ("GET", nobody), policy=POLICY.replace(total_timeout=60))
    ended = lines("gave_up")
    assert [level for level, *_ in ended] == ["WARNING", "WARNING"]
    fields = ended[0][2]
    assert set(fields) >= OF_A_CALL | {
        "attempts",
        "waited",
        "elapsed",
        "status",
        "error_type",
        "reason",
        "wanted_delay",
    }
    assert (fields["reason"], fields["attempts"], fields["status"]) == (
        "attempts-exhausted",
        3,
        None,
    )
    assert fields["error_type"].isidentifier()
    assert fields["waited"] == pytest.approx(0.02)
    assert ended[0][2]["request_id"] != ended[1][2]["request_id"]
    scheduled = lines("retry_scheduled")
    assert 59 < scheduled[1][2]["deadline_left"] < 60
    assert (scheduled[1][2]["reason"], scheduled[1][2]["waited"]) == (
        "connect",
        pytest.approx(0.01),
    )


def test_a_refusal_says_which_wait_was_wanted(lines):
    scripted((503, {"Retry-After": "3600"})).get("http://api.test/")
    ((level, _, fields),) = lines("gave_up")
    assert level == "WARNING"
    assert (fields["reason"], fields["wanted_delay"]) == ("retry-after-too-long", 3600)


def test_failing_over(caller, server, lines):
    server.script("/", 503)
    with FaultServer() as other:
        other.script("/", 200)
        caller.calls(("GET", server.url), policy=POLICY, origins=Origins([server.url, other.url]))
        ((level, _, fields),) = lines("failover")
        assert level == "WARNING"
        assert set(fields) >= OF_A_CALL | {"from_endpoint", "to_endpoint", "reason"}
        assert fields["from_endpoint"] == server.url.removeprefix("http://")
        assert fields["to_endpoint"] == other.url.removeprefix("http://")
        assert fields["reason"] == "503"


def test_a_circuit_tells_of_its_edges(lines):
    clock = FakeClock()
    client = scripted(
        503,
        503,
        200,
        policy=RetryPolicy(max_attempts=1),
        breaker=CircuitBreaker(2, open_for=30),
        clock=clock,
    )
    for _ in range(2):
        client.get("http://api.test/")
    for _ in range(3):
        with pytest.raises(forbear.CircuitOpenError):
            client.get("http://api.test/")
    clock.advance(30)
    client.get("http://api.test/")
    edges = lines("circuit_transition")
    assert [(level, fields["from_state"], fields["to_state"]) for level, _, fields in edges] == [
        ("WARNING", "closed", "open"),
        ("INFO", "open", "half_open"),
        ("INFO", "half_open", "closed"),
    ]
    assert set(edges[0][2]) >= {
        "client",
        "host",
        "url",
        "from_state",
        "to_state",
        "failure_ratio",
        "open_for",
    }
    refused = [level for level, _, fields in lines("gave_up") if fields["reason"] == "circuit-open"]
    assert refused == ["DEBUG"] * 3  # an open circuit was told of when it opened


def test_an_exhausted_budget_is_told_of_once(lines):
    """One token, which the first call takes. The next three are refused; after a minute there is
    one again.
    """
    clock = FakeClock()
    budget = RetryBudget(ratio=0, floor_per_second=0.1, burst=1)
    events = record()
    policy = RetryPolicy(max_attempts=2, backoff=Fixed(0))
    client = scripted(503, policy=policy, budget=budget, clock=clock, on_event=[events])
    for _ in range(4):
        client.get("http://api.test/")
    clock.advance(60)
    client.get("http://api.test/")
    client.get("http://api.test/")
    told = lines("budget_exhausted")
    assert [level for level, *_ in told] == ["WARNING", "WARNING"]
    fields = told[0][2]
    assert (fields["client"], fields["host"], fields["budget"], fields["scope"]) == (
        "orders", "api.test", "default", "local",
    )  # fmt: skip
    assert 0 <= fields["tokens"] < 1
    assert (
        len([1 for _, _, fields in lines("gave_up") if fields["reason"] == "budget-exhausted"]) == 4
    )
    assert len(events.named("budget_exhausted")) == 2


def test_a_budget_on_the_edge_is_told_of_once_a_minute(lines):
    """A token comes back each second, and is gone at once: that is one piece of news, not sixty."""
    clock = FakeClock()
    budget = RetryBudget(ratio=0, floor_per_second=1, burst=1)
    client = scripted(
        503, policy=RetryPolicy(max_attempts=2, backoff=Fixed(0)), budget=budget, clock=clock
    )
    for _ in range(60):
        client.get("http://api.test/")
        client.get("http://api.test/")
        clock.advance(1)
    assert len(lines("budget_exhausted")) == 1
    client.get("http://api.test/")
    client.get("http://api.test/")
    assert len(lines("budget_exhausted")) == 2


def test_budgets_are_told_of_by_scope(lines):
    """One server's is used up, another one's too: two edges."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    client = scripted(503, policy=RetryPolicy(max_attempts=2, backoff=Fixed(0)), budget=budget)
    for host in ("a", "b", "a", "b"):
        client.get(f"http://{host}.test/")
        client.get(f"http://{host}.test/")
    assert [fields["host"] for _, _, fields in lines("budget_exhausted")] == ["a.test", "b.test"]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("soon", "unparsable"),
        ("Fri, 31 Dec 1999 23:59:59 GMT", "past"),
        ("3600", "over_cap"),
        ("0", None),
        ("2", None),
        (None, None),
    ],
)
def test_a_retry_after_that_is_no_use(header, why, lines):
    headers = {} if header is None else {"Retry-After": header}
    scripted((503, headers), 200).get("http://api.test/")
    told = lines("retry_after_ignored")
    assert [(level, fields["why"]) for level, _, fields in told] == (
        [] if why is None else [("WARNING", why)]
    )
    assert "soon" not in str(told)  # a header's value is not logged


def test_it_is_told_of_once_a_minute_and_origin(caller, server, lines):
    server.script("/", "503;retry-after=soon")
    with FaultServer() as other:
        other.script("/", "503;retry-after=soon")
        calls = [("GET", server.url), ("GET", server.url), ("GET", other.url)]
        caller.calls(*calls, policy=POLICY)
        assert [fields["url"] for _, _, fields in lines("retry_after_ignored")] == [
            server.url,
            other.url,
        ]


def test_after_a_minute_it_is_told_of_again(lines):
    clock = FakeClock()
    client = scripted(
        (503, {"Retry-After": "soon"}), policy=RetryPolicy(max_attempts=1), clock=clock
    )
    for seconds in (0, 59, 1):
        clock.advance(seconds)
        client.get("http://api.test/")
    assert len(lines("retry_after_ignored")) == 2


def test_hints_that_are_ignored_on_purpose_are_no_news(lines):
    scripted((503, {"Retry-After": "soon"}), 200, policy=POLICY.replace(hints="ignore")).get(
        "http://api.test/"
    )
    assert lines("retry_after_ignored") == []


def test_urllib3s_retry_tells_the_same(server, lines):
    server.script("/", "503;retry-after=soon", 200)
    with urllib3.PoolManager(retries=forbear.urllib3.Retry(POLICY, name="github")) as manager:
        assert manager.request("GET", server.url).status == 200
    assert [name for _, name, _ in lines()] == [
        "attempt_failed",
        "retry_scheduled",
        "retry_after_ignored",
        "succeeded_after_retry",
    ]


def test_what_is_remembered_of_origins_is_bounded(monkeypatch, lines):
    """A crawler meets any number of them: beyond a thousand the edges are told anew."""
    monkeypatch.setattr("forbear.sending.tell.MOST_ORIGINS", 3)
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    client = scripted(
        (503, {"Retry-After": "x"}),
        policy=RetryPolicy(max_attempts=3, backoff=Fixed(0)),
        budget=budget,
    )
    for host in "abcde":
        client.get(f"http://{host}.test/")
    notices = client._transport._notices
    assert len(lines("budget_exhausted")) == len(lines("retry_after_ignored")) == 5
    assert len(notices._exhausted) <= 3
    assert len(notices._ignored) <= 3


def test_a_nested_loop_is_told_of_once_with_its_switch(lines):
    client = scripted(503)
    for _ in range(2):
        client.get("http://api.test/", headers={"x-stainless-retry-count": "1"})
    ((level, _, fields),) = lines("nested_retry")
    assert level == "WARNING"
    assert fields["client"] == "orders"
    assert fields["header"] == "x-stainless-retry-count"
    assert "max_retries=0" in fields["hint"]


def test_a_resumed_download(lines):
    """INFO, with how far it had come."""
    heard = record()
    Notices("files", [heard]).resumed(a_download(), 65536, None, "resumed")
    Notices("files", []).resumed(a_download(), 65536, 100000, "failed")
    first, second = lines("resume")
    assert (first[0], first[2]["offset"], first[2]["total"], first[2]["result"]) == (
        "INFO",
        65536,
        None,
        "resumed",
    )
    assert second[2]["total"] == 100000
    assert heard.names == ["resume"]


def test_nothing_is_built_for_a_log_that_is_off(lines, caplog):
    """Neither heard nor logged: nothing is told."""
    caplog.set_level(logging.CRITICAL, "forbear")
    client = scripted(503, (503, {"Retry-After": "x"}), 200)
    assert client.get("http://api.test/").status_code == 200
    Notices("files", []).resumed(a_download(), 1, None, "resumed")
    assert lines() == []
