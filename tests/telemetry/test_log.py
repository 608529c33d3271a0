"""The log: which events, at which level, with which fields, and the edges once only."""

import logging
import re
from pathlib import Path

import httpx
import pytest

import forbear
import forbear.urllib3
from forbear import CircuitBreaker, Fixed, Origins, RetryBudget, RetryGate, RetryPolicy
from forbear.core.call import Call
from forbear.core.outcome import Failure, FailureKind, GiveUp, Phase, Reason
from forbear.core.request import Request
from forbear.httpx import RetryTransport
from forbear.limits.limits import Limits
from forbear.telemetry.event_log import EventLog
from forbear.testing import FakeClock, ScriptedTransport, record

from ..lanes import lane_of
from ..processes import python

ROOT = Path(__file__).parent.parent.parent
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.01), hint_spread=0.0)
ONCE = POLICY.replace(max_attempts=1)
TWICE = RetryPolicy(max_attempts=2, backoff=Fixed(0))
OF_A_CALL = {"client", "host", "method", "origin", "request_id"}


@pytest.fixture
def lines(caplog):
    """A function: level, event and fields of each line of the log so far."""
    caplog.set_level(logging.DEBUG, "forbear")

    def read(*names):
        found = []
        for entry in (each for each in caplog.records if each.name.startswith("forbear")):
            named = [pair for pair in vars(entry).items() if "." in pair[0]]
            fields = {key.removeprefix("forbear."): value for key, value in named}
            name = fields.pop("event")
            if not names or name in names:
                found.append((entry.levelname, name, fields))
        return found

    return read


def scripted(*steps, **options):
    options = {"policy": POLICY, "clock": FakeClock(), "name": "orders", "gate": None, **options}
    return httpx.Client(transport=RetryTransport(ScriptedTransport(steps), **options))


def chosen(fields, *names):
    return tuple(fields[name] for name in names)


@pytest.mark.smoke
def test_a_call_that_succeeds_in_the_end(adapter, server, lines):
    server.script("/", 503, 200)
    adapter.calls(("GET", server.url), policy=POLICY, name="orders")
    levels, names, (_, scheduled, succeeded) = zip(*lines(), strict=True)
    assert levels == ("DEBUG", "INFO", "INFO")
    assert names == ("attempt_failed", "retry_scheduled", "succeeded_after_retry")
    host = server.url.removeprefix("http://")
    assert chosen(scheduled, "client", "host", "method") == ("orders", host, "GET")
    assert scheduled["origin"] == server.url  # the origin and no more
    assert chosen(scheduled, "attempt", "max_attempts") == (1, 3)
    assert chosen(scheduled, "status", "error_type", "delay_source") == (503, None, "backoff")
    assert chosen(scheduled, "delay", "waited", "deadline_left") == (0.01, 0, None)
    assert set(succeeded) >= OF_A_CALL | {"elapsed"}
    assert chosen(succeeded, "attempts", "waited") == (2, 0.01)
    assert len({fields["request_id"] for _, _, fields in lines()}) == 1


def test_a_refusal_says_why_and_which_wait_was_wanted(lines):
    """A call that may be sent once gives no retries up."""
    scripted((503, {"Retry-After": "3600"})).get("http://api.test/")
    scripted(503, policy=RetryPolicy.disabled()).get("http://api.test/")
    levels, _, found = zip(*lines("gave_up"), strict=True)
    assert levels == ("WARNING", "INFO")
    assert chosen(found[0], "reason", "wanted_delay") == ("retry-after-too-long", 3600)
    assert found[1]["reason"] == "attempts-exhausted"


@pytest.mark.parametrize(("patience", "cause", "held_for", "last"), [
    (10, "probe", 0.99, ("INFO", "succeeded_after_retry")),
    (0.5, "patience-over", 0.5, ("WARNING", "gave_up")),
])  # fmt: skip
def test_a_call_that_is_held(patience, cause, held_for, last, lines, caplog, traces, spans):
    """Sent at 0, 0.01 and 0.02 s, ready at 0.03 s, when patience begins. Failures so close together
    are one finding: the first probe is due a second after the third sending.
    """
    policy = POLICY.replace(patience=patience, max_attempts=4)
    options = {"policy": policy, "random": lambda: 0.5, "on_event": [spans]}
    scripted(503, 503, 503, 200, gate=RetryGate(), **options).get("http://api.test/")
    told = lines("retry_scheduled", "released", "succeeded_after_retry", "gave_up")
    waits = [("INFO", "retry_scheduled")] * 3
    assert [(level, name) for level, name, _ in told] == [*waits, ("INFO", "released"), last]
    first, second, third, released, end = (fields for _, _, fields in told)
    assert [first["held"], second["held"], third["held"]] == [0.0, 0.0, pytest.approx(patience)]
    assert set(released) >= OF_A_CALL | {"elapsed"}
    assert "held" not in released  # of a retry that is the most that is allowed
    held = pytest.approx(held_for)
    assert chosen(released, "cause", "attempt", "held_for") == (cause, 3, held)
    (event,) = [one for one in traces.the("forbear.request").events if "released" in one.name]
    assert chosen(event.attributes, "forbear.cause", "forbear.held_for") == (cause, held)
    assert end.get("reason", "origin-unhealthy") == "origin-unhealthy"
    here = "GET http://api.test:80"
    assert [line.getMessage() for line in caplog.records if line.levelname != "DEBUG"][2:4] == [
        f"{here}: 503 on attempt 3 of 4, again in 0.01 s (backoff), held while the server is unhealthy",
        f"{here}: held for {held_for} s after attempt 3 ({cause})",
    ]


def test_a_circuit_tells_of_its_edges(lines):
    clock, breaker = FakeClock(), CircuitBreaker(2, failure_rate=None, open_for=30)
    options = {"policy": ONCE, "breaker": breaker, "clock": clock, "random": lambda: 0.5}
    client = scripted(503, 503, 200, **options)
    for _ in range(2):
        client.get("http://api.test/")
    for _ in range(3):
        with pytest.raises(forbear.CircuitOpenError):
            client.get("http://api.test/")
    clock.advance(30)
    client.get("http://api.test/")
    levels, _, edges = zip(*lines("circuit_transition"), strict=True)
    assert levels == ("WARNING", "INFO", "INFO")
    states = [chosen(fields, "from_state", "to_state") for fields in edges]
    assert states == [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]
    assert chosen(edges[0], "client", "host", "failures") == ("orders", "api.test", 2)
    assert chosen(edges[0], "failure_rate", "open_for") == (None, 30)
    refused = [level for level, _, fields in lines("gave_up") if fields["reason"] == "circuit-open"]
    assert refused == ["DEBUG"] * 3  # an open circuit was told of when it opened


def test_a_resumed_download(download, lines):
    """INFO, with how far it had come."""
    lane_of("httpx-sync").calls(("GET", download(404)))
    ((level, _, fields),) = lines("resume")
    assert level == "INFO"
    assert chosen(fields, "offset", "total", "result") == (160_000, 320_000, "failed")


NO_LOGGING = """
import httpx
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock, ScriptedTransport

client = httpx.Client(transport=RetryTransport(ScriptedTransport([503]), clock=FakeClock()))
print(client.get("http://a.test/").status_code)
"""


@pytest.mark.slow
def test_without_logging_nothing_is_printed():
    """Python prints warnings of loggers that have no handler to standard error."""
    assert python(NO_LOGGING) == "503"


def test_every_reason_has_a_level(lines):
    """INFO: the call must not be repeated. WARNING: retries are given up. As the page says."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| (DEBUG|INFO|WARNING) \|$", page, flags=re.M)
    call = Call(POLICY, Request("GET", "https://a.test:443", []), Limits(), 0.0, 4)
    call.sending(0.0)
    failure = Failure(FailureKind.STATUS, Phase.ANSWERED, 503)
    call.end(failure, None, 0.0)
    for reason in Reason:
        if reason is not Reason.STATUS_NOT_RETRIED:
            call.stop = GiveUp(reason)
            EventLog("a", ()).emit("gave_up", call, 0.0)
    found = {fields["reason"]: level for level, _, fields in lines("gave_up")}
    assert dict(rows) == {**found, "status-not-retried": "DEBUG"}


def test_an_exhausted_budget_is_told_of_once(lines):
    """One token, which the first call takes; three calls are refused; a minute brings one back."""
    clock, events = FakeClock(), record()
    budget = RetryBudget(ratio=0, floor_per_second=0.1, burst=1)
    client = scripted(503, policy=TWICE, budget=budget, clock=clock, on_event=[events])
    for _ in range(4):
        client.get("http://api.test/")
    clock.advance(60)
    for _ in range(2):
        client.get("http://api.test/")
    (level, _, fields), _ = lines("budget_exhausted")
    assert level == "WARNING"
    whose = {"client": "orders", "host": "api.test", "origin": "http://api.test:80"}
    assert fields.items() >= {**whose, "budget": "default", "scope": "local"}.items()
    assert 0 <= fields["tokens"] < 1
    refused = [fields["reason"] for _, _, fields in lines("gave_up")]
    assert refused.count("budget-exhausted") == 4
    assert len(events.named("budget_exhausted")) == 2


def test_the_tokens_that_are_left_are_those_of_the_scope_that_was_refused(lines):
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1.75)
    client = scripted(503, policy=TWICE, budget=budget)
    budget.spend("http://other.test:80", 1.5, 0.0)  # 0.25 are left
    for _ in range(2):
        client.get("http://api.test/")
    ((_, _, fields),) = lines("budget_exhausted")
    assert fields["tokens"] == 0.75


def test_refusals_are_told_of_once_a_minute_and_origin(lines, caplog):
    """180 lines a second in an outage. Each origin has one token for a retry, and a minute brings
    no other; listeners hear of each call.
    """
    clock, heard = FakeClock(), record()
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    client = scripted(503, policy=TWICE, budget=budget, clock=clock, on_event=[heard])
    for host, times in (("a", 1 + 1 + 1234), ("b", 1 + 1 + 20)):
        for _ in range(times):
            client.get(f"http://{host}/")
    clock.advance(60)
    for _ in range(3):
        client.get("http://a/")
    refused = [found for found in lines("gave_up") if found[2]["reason"] == "budget-exhausted"]
    told = [(f["host"], f.get("left_out")) for level, _, f in refused if level == "WARNING"]
    assert told == [("a", None), ("b", None), ("a", 1234)]
    assert [level for level, _, _ in refused].count("DEBUG") == 1234 + 20 + 2
    assert len(heard.named("gave_up")) == 1236 + 22 + 3
    said = [line.getMessage() for line in caplog.records if "meanwhile" in line.getMessage()]
    assert said == [
        "GET http://a:80: 503 after 1 attempt, gave up: budget-exhausted;"
        " refused meanwhile, logged at DEBUG: 1,234"
    ]


@pytest.mark.parametrize(("header", "hints", "why"), [
    ("soon", "obey", "unparsable"),
    ("Fri, 31 Dec 1999 23:59:59 GMT", "obey", "past"),
    ("3600", "obey", "over_cap"),
    ("0", "obey", None),
    ("2", "obey", None),
    (None, "obey", None),
    ("soon", "ignore", None),  # on purpose
])  # fmt: skip
def test_a_retry_after_that_is_no_use(header, hints, why, lines):
    headers = {} if header is None else {"Retry-After": header}
    scripted((503, headers), 200, policy=POLICY.replace(hints=hints)).get("http://api.test/")
    told = [(level, fields["why"]) for level, _, fields in lines("retry_after_ignored")]
    assert told == ([] if why is None else [("WARNING", why)])
    assert "soon" not in str(lines())  # a header's value is not logged


def test_what_is_remembered_of_origins_is_bounded(monkeypatch, lines):
    """A crawler meets any number of them: beyond a thousand the edges are told anew."""
    monkeypatch.setattr("forbear.telemetry.event_log.MOST_ORIGINS", 3)
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    client = scripted((503, {"Retry-After": "x"}), policy=POLICY, budget=budget)
    for host in "abcde":
        client.get(f"http://{host}/")
    tell = client._transport.port.settings.events.log()
    for name in ("budget_exhausted", "retry_after_ignored"):
        assert {fields["host"] for _, _, fields in lines(name)} == set("abcde")
    assert len(tell._again_at) <= 3


def test_a_failover_is_told_where_retries_are_not(lines, caplog):
    """The logger's own level is WARNING, and the next attempt goes to another server."""
    caplog.set_level(logging.WARNING, "forbear")
    origins = Origins(["http://a", "http://b"])
    assert scripted(503, 200, origins=origins).get("http://a/").status_code == 200
    ((level, name, fields),) = lines()
    assert (level, name) == ("WARNING", "failover")
    assert set(fields) >= OF_A_CALL
    assert chosen(fields, "origin", "to_origin", "status") == ("http://a:80", "http://b:80", 503)
