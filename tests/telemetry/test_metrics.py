"""Metrics: real clients, faults and registries; the numbers are those of what was done."""

import gc
import threading
from contextlib import suppress

import httpx
import prometheus_client
import pytest
import urllib3
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

import forbear.httpx
import forbear.urllib3
from forbear import CircuitBreaker, Fixed, Origins, RetryBudget, RetryGate, RetryPolicy
from forbear.events import CallEnded, Released, Resumption
from forbear.httpx import RetryTransport
from forbear.redis import RedisBudget
from forbear.strategies import AwsStandard
from forbear.telemetry import otel, prometheus
from forbear.telemetry.metrics import MOST_HOSTS
from forbear.testing import FakeClock, FaultServer, ScriptedTransport, record

from ..processes import python

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.01), hint_spread=0.0)
AT_ONCE = POLICY.replace(backoff=Fixed(0))
SECRET = "S3CRET"


@pytest.fixture
def scripted(request):
    """A function: a client over an inner transport that answers by a script."""

    def client(*steps, policy=AT_ONCE, on_event=None, **options):
        listeners = on_event or [request.getfixturevalue("metrics")]
        options = {"gate": None, "policy": policy, "on_event": listeners, **options}
        return httpx.Client(transport=RetryTransport(ScriptedTransport(steps), **options))

    return client


def host_of(server):
    return server.url.removeprefix("http://")


@pytest.mark.smoke
def test_a_faulted_run_is_counted_as_it_was(adapter, server, metrics, counted):
    """Worked out from the script: five calls, their attempts, why they were repeated or not."""
    server.script("/", 200, 503, "429;retry-after=0", 200, 500, 503, 503, 404, 503)
    # 200; 503, 429, 200; 500, 503, 503: no attempts left; 404: an answer; 503, which must not be
    # repeated.
    calls = [(method, server.url) for method in ("GET", "GET", "GET", "GET", "POST")]
    outcomes = adapter.calls(*calls, policy=POLICY, on_event=[metrics], name="orders", clock=None)
    assert [each.status_code for each in outcomes] == [200, 200, 503, 404, 503]
    here = f"orders {host_of(server)}"
    gets = {"success": 2, "success_after_retry": 1, "failed_after_retry": 1}
    requests = {f"{here} GET {outcome}": count for outcome, count in gets.items()}
    found = counted("requests_total", "client", "host", "method", "outcome")
    assert found == {**requests, f"{here} POST failed": 1}
    attempts = {"first 2xx": 1, "first 4xx": 1, "first 5xx": 3}
    attempts |= {"retry 429": 1, "retry 2xx": 1, "retry 5xx": 2}
    assert counted("attempts_total", "kind", "result") == attempts
    assert len(server.requests()) == 9
    assert counted("retries_total", "reason") == {"503": 2, "429": 1, "500": 1}
    refused = {"orders attempts-exhausted": 1, "orders method-not-replayable": 1}
    assert counted("retries_refused_total", "client", "reason") == refused
    waits = counted("backoff_duration_seconds_count", "client", "source")
    assert sum(waits.values()) == 4
    assert waits["orders computed"] >= 3
    assert counted("request_duration_seconds_count", "outcome") == {**gets, "failed": 1}
    lasted = counted("request_duration_seconds_sum", "outcome")
    assert lasted["failed_after_retry"] >= 0.02  # two waits are part of it


def test_a_call_that_is_interrupted(adapter, server, metrics, counted):
    """Whatever ends it, it is counted: else the requests in flight would seem to grow for ever."""

    class Interrupted(BaseException):
        pass

    def interrupt(response):
        raise Interrupted

    server.script("/", 200)
    with pytest.raises(Interrupted):
        adapter.calls(("GET", server.url), policy=POLICY, retry_if=interrupt, on_event=[metrics])
    assert counted("requests_total", "outcome") == {"cancelled": 1}
    assert counted("attempts_total", "kind", "result") == {"first cancelled": 1}


def test_failing_over(server, metrics, counted):
    """An attempt at another origin is told from a retry; each is counted where it went."""
    server.script("/", 503)
    with FaultServer() as other:
        other.script("/", 503, 200)
        origins = Origins([server.url, other.url])
        transport = RetryTransport(policy=POLICY, origins=origins, gate=None, on_event=[metrics])
        with httpx.Client(transport=transport) as client:
            client.get(server.url)
        here, there = host_of(server), host_of(other)
        attempts = [f"{here} first 5xx", f"{there} failover 5xx", f"{here} failover 5xx"]
        found = counted("attempts_total", "host", "kind", "result")
        assert found == dict.fromkeys(attempts, 1)
        hosts = counted("failovers_total", "from_endpoint", "to_endpoint")
        assert hosts == {f"{here} {there}": 1, f"{there} {here}": 1}


def test_urllib3s_retry_tells_what_it_sees(server, metrics, counted, traces, spans):
    """Successes are not told, so no requests are counted, no call is held (an origin that failed
    twice would be unhealthy for ever), and no span is opened, below which all else would come.
    """
    server.script("/", 503, 503, 200)
    policy = POLICY.replace(patience=0)
    retries = forbear.urllib3.Retry(policy, on_event=[metrics, spans], name="github")
    with urllib3.PoolManager(retries=retries) as manager:
        assert manager.request("GET", server.url).status == 200
        assert counted("held_calls", "client") == {}
    assert counted("retries_total", "client", "reason") == {"github 503": 2}
    assert counted("attempts_total", "kind", "result") == {"first 5xx": 1, "retry 5xx": 1}
    assert counted("requests_total", "outcome") == {}
    assert traces.spans == ()


OFF = {"extensions": {"forbear": False}}
THERE = (302, {"Location": "http://a.test/there"})
COUNTED = {  # steps, options of the transport, calls, what they end with; then what is counted
    "a circuit that opens: who is refused sends nothing and retries nothing": (
        [503], {"breaker": CircuitBreaker(2, failure_rate=None, open_for=60)}, [{}, {}, {}], [503, forbear.CircuitOpenError, forbear.CircuitOpenError],
        {"failed_after_retry": 1, "circuit_open": 2},
        {"first 5xx": 1, "retry 5xx": 1}, {"circuit-open": 1},
    ),
    "calls that are switched off: traffic too, and nobody thinks of repeating them": (
        [503, "read_error", 200], {}, [OFF, OFF, OFF], [503, httpx.ReadError, 200],
        {"failed": 2, "success": 1},
        {"first 5xx": 1, "first protocol": 1, "first 2xx": 1}, {},
    ),
    "an attempt that the policy takes for no failure: nobody tells of it": (
        [503, "read_error"], {"policy": AT_ONCE.replace(failures=())}, [{}], [httpx.ReadError],
        {"failed_after_retry": 1}, {"first 5xx": 1, "retry protocol": 1}, {},
    ),
    "each hop of a redirect is a request, and its first attempt no retry": (
        [503, THERE, 503, 200], {"policy": AT_ONCE.replace(max_attempts=4)},
        [{"follow_redirects": True}], [200], {"success_after_retry": 2},
        {"first 5xx": 2, "retry 3xx": 1, "retry 2xx": 1}, {},
    ),
    "a deadline that is over: nothing was sent, and no circuit was open": (
        [200], {}, [{"extensions": {"forbear": {"total_timeout": 0}}}], [forbear.DeadlineExceeded],
        {"failed": 1}, {}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_how_calls_that_end_otherwise_are_counted(scripted, counted, name):
    steps, options, calls, ends, outcomes, results, refused = COUNTED[name]
    client = scripted(*steps, **options)
    for named, end in zip(calls, ends, strict=True):
        if isinstance(end, int):
            assert client.get("http://a.test/", **named).status_code == end
        else:
            with pytest.raises(end):
                client.get("http://a.test/", **named)
    assert counted("requests_total", "outcome") == outcomes
    assert counted("attempts_total", "kind", "result") == results
    assert counted("retries_refused_total", "reason") == refused


@pytest.mark.parametrize(("answers", "results", "end", "reasons"), [
    ((503, 206), ["first 2xx", "resume 5xx", "resume 2xx"], "resumed", ["body", "503"]),
    ((404,), ["first 2xx", "resume 4xx"], "failed", ["body"]),
])  # fmt: skip
def test_a_download_that_is_resumed_is_one_request_with_a_span(
    adapter, download, metrics, counted, traces, spans, answers, results, end, reasons
):
    """Its first attempt was answered and counted once; asking for the rest is no retry of it. The
    span is below whoever reads it, and left when the rest has begun to come, or will not.
    """
    heard = []
    options = {"policy": POLICY, "on_event": [metrics, spans, heard.append], "clock": None}
    adapter.calls(("GET", download(*answers)), **options)
    assert counted("requests_total", "outcome") == {"success": 1}
    assert counted("attempts_total", "kind", "result") == dict.fromkeys(results, 1)
    assert counted("resumes_total", "result") == {end: 1}
    assert counted("retries_total", "reason") == dict.fromkeys(reasons, 1)
    (told,) = [event for event in heard if event.name == "resume"]
    assert told.request_id == heard[0].request_id
    span = traces.the("forbear.request")
    assert span.events[0].name == "forbear.wait"
    assert span.attributes["forbear.attempts"] == len(results)
    assert (span.status.status_code is StatusCode.ERROR) == (end == "failed")
    assert spans._open == {}


def test_waiting_requests_are_those_asleep_now(scripted, counted):
    """One while it waits, none before and after."""
    policy, seen = POLICY.replace(backoff=Fixed(0.5)), [0]
    client = scripted(503, 200, policy=policy, name="orders")
    calling = threading.Thread(target=client.get, args=("http://a.test/",))
    calling.start()
    while calling.is_alive():
        seen.append(counted("waiting_requests", "client")["orders"])
    assert (seen[0], max(seen)) == (0, 1)
    assert counted("waiting_requests", "client") == {"orders": 0}


def unwell_gate():
    """A gate that holds one call for an origin that is down."""
    gate, origin = RetryGate(), "http://a.test:80"
    gate.bad(origin, 0.0, 0.0, 3.0)
    assert gate.hold(origin, 0.0, ready_at=0.0, until=10.0) is not None
    return gate


@pytest.mark.smoke
def test_a_call_that_is_held_is_seen(adapter, server, metrics, counted):
    """The third failure in a row holds it, until its patience is over."""
    server.script("/", 503)
    seen = []

    def look(event):
        if event.name == "retry_scheduled":
            held, well = (counted(name)[""] for name in ("held_calls", "origin_healthy"))
            seen.append((bool(event.held), held, well))

    policy = POLICY.replace(max_attempts=4, patience=0.2)
    options = {"gate": RetryGate(), "on_event": [metrics, look], "name": "orders"}
    (response,) = adapter.calls(("GET", server.url), policy=policy, **options)
    assert response.status_code == 503
    assert seen == [(False, 0, 1), (False, 0, 1), (True, 1, 0)]
    assert counted("held_calls").get("", 0) == 0
    assert counted("releases_total", "client", "cause") == {"orders patience-over": 1}
    assert counted("retries_refused_total", "reason") == {"origin-unhealthy": 1}
    assert counted("attempts_total", "kind") == {"first": 1, "retry": 2}


def test_what_transports_of_one_client_share_is_counted_once(scripted, metrics, counted):
    """``wrap`` gives each mount its own transport, and all of them the same gate and budget. Gates
    of other transports of its name are added up; it is well if all are.
    """
    client = httpx.Client(mounts={"http://a.test": httpx.HTTPTransport()})
    shared = {"gate": unwell_gate(), "budget": RetryBudget()}
    with forbear.httpx.wrap(client, **shared, on_event=[metrics], name="orders"):
        assert counted("held_calls", "client") == {"orders": 1}
        assert counted("origin_healthy", "client") == {"orders": 0}
        assert counted("waiting_requests", "client") == {"orders": 0}
        assert len(counted("budget_available_tokens", "client", "budget", "scope")) == 1
        others = [scripted(200, gate=gate, name="orders") for gate in (unwell_gate(), RetryGate())]
        assert counted("held_calls", "client") == {"orders": 2}
        assert counted("origin_healthy", "client") == {"orders": 0}
    del client, shared, others[0]
    gc.collect()
    assert counted("held_calls", "client") == {"orders": 0}
    assert counted("origin_healthy", "client") == {"orders": 1}


def test_tokens_of_the_scope_with_the_fewest(scripted, counted):
    """Burst 10: three retries to one origin leave 7, one to another 9; a second brings 2 back."""
    clock, budget = FakeClock(), RetryBudget(ratio=0, floor_per_second=2, burst=10)
    steps, policy = [503, 503, 503, 200, 503, 200], AT_ONCE.replace(max_attempts=4)
    client = scripted(*steps, policy=policy, budget=budget, name="orders", clock=clock)
    client.get("http://a.test/")
    client.get("http://b.test/")
    tokens = "budget_available_tokens", "client", "budget", "scope"
    assert counted(*tokens) == {"orders default local": 7.0}
    clock.advance(1.0)
    assert counted(*tokens) == {"orders default local": 9.0}
    aws = scripted(503, strategy=AwsStandard(), clock=FakeClock(), name="aws")
    aws.get("http://a.test/")  # two retries of a 503 take 14 each
    assert counted("budget_available_tokens", "client") == {"orders": 9.0, "aws": 500 - 28}


def test_the_state_of_a_circuit_is_the_one_it_is_in_now(scripted, counted):
    """Open, then half-open though nobody has called yet, closed after a probe."""
    clock, breaker = FakeClock(), CircuitBreaker(2, failure_rate=None, open_for=30)
    options = {"policy": RetryPolicy(max_attempts=1), "breaker": breaker, "clock": clock}
    client, states = scripted(503, 503, 200, random=lambda: 0.5, **options), []
    for calls, seconds in ((0, 0), (2, 0), (0, 30), (1, 0)):
        for _ in range(calls):
            client.get("http://a.test/")
        clock.advance(seconds)
        states += [[label for label, on in counted("circuit_state", "state").items() if on]]
    assert states == [[], ["open"], ["half_open"], ["closed"]]
    edges = ["a.test closed open", "a.test open half_open", "a.test half_open closed"]
    found = counted("circuit_transitions_total", "host", "from_state", "to_state")
    assert found == dict.fromkeys(edges, 1)


def unreachable(nobody):
    """A fleet's budget that looks for Redis at once, in place of the background, and in vain."""
    local = RetryBudget(burst=5, floor_per_second=0)
    budget = RedisBudget(nobody.replace("http", "redis"), name="fleet", fallback=local)
    budget.renew_soon = budget.renew
    return budget


def test_an_unreachable_fleet_budget_is_counted(scripted, nobody, counted):
    """One failed round trip, and from then on the local tokens are those in force."""
    client = scripted(503, 200, budget=unreachable(nobody))
    assert client.get("http://a.test/").status_code == 200
    assert counted("budget_backend_errors_total", "backend") == {"redis": 1}
    found = counted("budget_available_tokens", "budget", "scope")
    assert found == {"fleet shared": 0, "fleet local": 4}


def test_hosts_are_capped(monkeypatch, scripted, metrics, counted):
    """A crawler must not fill a Prometheus: a hundred servers by name, then _OTHER; nor memory."""
    monkeypatch.setattr("forbear.telemetry.metrics.MOST_SUCCESSES", 3)
    client = scripted(200)
    for number in range(MOST_HOSTS + 20):
        client.get(f"http://host{number}.test/")
    client.get("http://host3.test/")  # known: still by name
    hosts = counted("requests_total", "host")
    assert len(hosts) == MOST_HOSTS + 1
    assert hosts["_OTHER"] == 20
    assert hosts["host3.test"] == 2
    assert len(metrics._successes) <= 3


def test_hosts_can_be_left_out_and_methods_are_a_closed_set(scripted, registry, counted):
    client = scripted(200, on_event=[prometheus.Metrics(registry, metrics_host=False)])
    for method, host in (("GET", "a"), ("GET", "b"), ("QUERY", "a"), ("PROPFIND", "a"), ("x", "a")):
        client.request(method, f"http://{host}.test/")
    found = counted("requests_total", "client", "method", "outcome")
    assert found == {"default GET success": 2, "default _OTHER success": 3}


def test_one_registry_takes_one(registry, metrics):
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        prometheus.Metrics(registry)
    assert b"forbear_requests_total" in prometheus_client.generate_latest(registry)


WORKERS = """
import os, httpx
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from forbear.httpx import RetryTransport
from forbear.telemetry.prometheus import Metrics
from forbear.testing import ScriptedTransport

client = httpx.Client(transport=RetryTransport(ScriptedTransport([200]), on_event=[Metrics()]))
client.get("http://a.test/")
for _ in range(2):
    if os.fork() == 0:
        client.get("http://a.test/")
        os._exit(0)
for _ in range(2):
    os.wait()
registry = CollectorRegistry()
MultiProcessCollector(registry)
labels = {"client": "default", "host": "a.test", "outcome": "success"}
print(registry.get_sample_value("forbear_requests_total", {**labels, "method": "GET"}))
print(registry.get_sample_value("forbear_request_duration_seconds_count", labels))
"""


def test_workers_of_one_application_are_added_up(tmp_path):
    """prometheus_client's multiprocess mode, with workers that are forked after a first call."""
    done = python(WORKERS, "-W", "ignore", PROMETHEUS_MULTIPROC_DIR=str(tmp_path))
    assert done.split() == ["3.0", "3.0"]


def scraped(registry):
    """Kind, name and labels of each sample, as Prometheus would scrape them, and its value."""
    found = {}
    for family in registry.collect():
        for sample in family.samples:
            if family.name.startswith("forbear") and not sample.name.endswith("_created"):
                labels = [pair for pair in sample.labels.items() if not pair[0].startswith("otel_")]
                found[family.type, sample.name, *sorted(labels)] = sample.value
    return found


@pytest.fixture
def exported():
    """A registry of what OpenTelemetry exports to Prometheus, and our metrics for it."""
    theirs = CollectorRegistry()
    reader = PrometheusMetricReader(registry=theirs, disable_target_info=True)
    provider = MeterProvider(metric_readers=[reader])
    yield theirs, otel.Metrics(provider)
    provider.shutdown()


def test_opentelemetry_exports_the_same(server, nobody, registry, metrics, exported):
    """Through its Prometheus exporter, with the same buckets: one dashboard serves both."""
    theirs, others = exported
    both = [metrics, others]
    server.script("/", 200, 503, 200, 503, "reset", 503)
    options = {"policy": POLICY, "gate": None, "budget": unreachable(nobody)}
    options["breaker"] = CircuitBreaker(3, failure_rate=None, open_for=60)
    options["origins"] = Origins([server.url, nobody])
    transport = RetryTransport(on_event=both, **options)
    idle = RetryTransport(gate=unwell_gate(), on_event=both)
    with httpx.Client(transport=transport) as client, httpx.Client(transport=idle):
        for method in ("GET", "GET", "GET", "POST"):
            with suppress(httpx.HTTPError):
                client.request(method, server.url)
        for listener in both:
            listener(Resumption("default", "GET", server.url, 5, 10, "resumed"))
            listener(Released("default", "GET", server.url, 2, "probe", 0.5, 1.5))
        ours, found = scraped(registry), scraped(theirs)
    named = "requests_total attempts_total waiting_requests budget_backend_errors_total held_calls"
    named += " budget_available_tokens origin_healthy releases_total"
    assert {name for _, name, *_ in ours} >= {f"forbear_{name}" for name in named.split()}
    assert found.keys() == ours.keys()
    for key, value in ours.items():
        margin = 0.5 if "tokens" in key[1] else 1e-9  # time brings some between the two looks
        assert found[key] == pytest.approx(value, abs=margin), key


class Hearing:
    """Keeps the calls that ended."""

    wants_calls = True

    def __init__(self):
        self.ended = []

    def __call__(self, event):
        if event.name == "call_ended":
            self.ended.append(event)


@pytest.mark.smoke
def test_only_who_asks_hears_of_calls_that_succeed(adapter, server, metrics):
    """A plain listener hears of trouble only; beside one that counts, too."""
    server.script("/", 200)
    plain, hearing = record(), Hearing()
    options = {"on_event": [metrics, plain, hearing], "name": "orders", "clock": None}
    adapter.calls(("GET", server.url), policy=POLICY, **options)
    assert len(plain) == 0
    (ended,) = hearing.ended
    assert isinstance(ended, CallEnded)
    assert (ended.client, ended.method, ended.origin) == ("orders", "GET", server.url)
    assert (ended.outcome, ended.attempts, ended.status, ended.kind) == ("success", 1, 200, "first")
    assert 0 < ended.elapsed < 60


@pytest.mark.parametrize("method", ["__call__", "call_succeeded"])
def test_a_listener_that_fails_costs_no_response(method, scripted, caplog):
    """``call_succeeded`` may be told of a success without an event."""

    def fail(self, *facts):
        raise KeyError(SECRET)

    broken, hearing = type("Broken", (Hearing,), {method: fail})(), Hearing()
    client = scripted(200, on_event=[broken, hearing])
    for _ in range(2):
        assert client.get("http://a.test/").status_code == 200
    (line,) = [found.getMessage() for found in caplog.records if found.name == "forbear"]
    assert line == "on_event Broken raised KeyError; the call goes on without it (logged once)"
    assert len(hearing.ended) == 2


@pytest.mark.smoke
def test_nothing_secret_is_counted_or_traced(
    adapter, server, registry, metrics, exported, traces, spans
):
    """No path, query, header value, body, key, user name or exception text."""
    path = f"/{SECRET}/x"
    server.script(path, 503, f"503;retry-after={SECRET}", "reset", "garbage", "garbage", 200, 500)
    url = f"{server.url}{path}?token={SECRET}".replace("http://", f"http://user:{SECRET}@")
    headers = {"Authorization": f"Bearer {SECRET}"}
    keyed = {**headers, "Idempotency-Key": f"{SECRET}-of-one-order"}
    calls = [
        ("GET", url, {"headers": headers}),
        ("POST", url, {"headers": keyed, "content": SECRET.encode()}),
        ("PUT", url, {"headers": headers, "content": SECRET.encode()}),
        ("GET", url),  # its last attempt opens the circuit
    ]
    events, (theirs, others) = record(), exported
    options = {"policy": POLICY, "name": "orders", "idempotency": forbear.IdempotencyKeys()}
    options["breaker"] = CircuitBreaker(6, failure_rate=None)
    adapter.calls(*calls, on_event=[metrics, others, events, spans], **options)
    shown = [prometheus_client.generate_latest(one).decode() for one in (registry, theirs)]
    assert events.named("circuit_transition")
    assert all("orders" in text for text in shown)
    assert len(traces.named("forbear.request")) == 4
    told = repr(list(events)) + "".join(span.to_json() for span in traces.spans)
    assert SECRET not in "".join(shown) + told
    assert "/x" not in told
