"""Metrics: a faulting server, real clients, real registries; what is counted is what was done, and
nothing secret.
"""

from __future__ import annotations

import gc
import logging
import re
import threading
import time

import anyio
import httpx
import prometheus_client
import pytest
import urllib3
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

import forbear.httpx
import forbear.requests
import forbear.urllib3
from forbear import (
    AwsStandard,
    CircuitBreaker,
    Fixed,
    IdempotencyKeys,
    Origins,
    RetryBudget,
    RetryPolicy,
)
from forbear.core.events import CallEnded, Resumption
from forbear.httpx import RetryTransport
from forbear.telemetry import METRICS, MOST_HOSTS, otel, prometheus
from forbear.testing import FakeClock, FaultServer, ScriptedTransport, record

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.01), hint_spread=0.0)
SECRET = "S3CRET"


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return prometheus.Metrics(registry)


def host_of(server):
    return server.url.removeprefix("http://")


# --- what is counted, through every adapter ---------------------------------------------------


def test_a_faulted_run_is_counted_as_it_was(caller, server, registry, metrics, series):
    """Worked out from the script: five calls, their attempts, why they were repeated and why
    not.
    """
    server.script("/", 200, 503, "429;retry-after=0", 200, 500, 503, 503, 404, 503)
    calls = [
        ("GET", server.url),  # 200
        ("GET", server.url),  # 503, 429, 200
        ("GET", server.url),  # 500, 503, 503: no attempts left
        ("GET", server.url),  # 404: an answer
        ("POST", server.url),  # 503, which must not be repeated
    ]
    assert caller.calls(*calls, policy=POLICY, on_event=[metrics], name="orders") == [
        200,
        200,
        503,
        404,
        503,
    ]
    assert series(registry, "forbear_requests_total", "client", "host", "method", "outcome") == {
        ("orders", host_of(server), "GET", "success"): 2,
        ("orders", host_of(server), "GET", "success_after_retry"): 1,
        ("orders", host_of(server), "GET", "failed_after_retry"): 1,
        ("orders", host_of(server), "POST", "failed"): 1,
    }
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "2xx"): 1,
        ("first", "4xx"): 1,
        ("first", "5xx"): 3,
        ("retry", "429"): 1,
        ("retry", "2xx"): 1,
        ("retry", "5xx"): 2,
    }
    assert sum(series(registry, "forbear_attempts_total", "kind", "result").values()) == len(
        server.requests()
    )
    assert series(registry, "forbear_retries_total", "reason") == {
        ("503",): 2,
        ("429",): 1,
        ("500",): 1,
    }
    assert series(registry, "forbear_retries_refused_total", "client", "reason") == {
        ("orders", "attempts-exhausted"): 1,
        ("orders", "method-not-replayable"): 1,
    }
    waits = series(registry, "forbear_backoff_duration_seconds_count", "client", "source")
    assert sum(waits.values()) == 4
    assert waits["orders", "computed"] >= 3
    lasted = series(registry, "forbear_request_duration_seconds_count", "outcome")
    assert lasted == {
        ("success",): 2,
        ("success_after_retry",): 1,
        ("failed_after_retry",): 1,
        ("failed",): 1,
    }
    waited = series(registry, "forbear_request_duration_seconds_sum", "outcome")[
        "failed_after_retry",
    ]
    assert waited >= 0.02  # two waits are part of it


def test_errors_of_the_wire(caller, server, registry, metrics, series):
    """What did not answer has a result too, and what was never answered is no status."""
    server.script("/", "reset", 200)
    with FaultServer() as gone:
        nobody = gone.url
    outcomes = caller.calls(("GET", server.url), ("GET", nobody), policy=POLICY, on_event=[metrics])
    assert outcomes[0] == 200
    assert isinstance(outcomes[1], Exception)
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "protocol"): 1,
        ("retry", "2xx"): 1,
        ("first", "connect"): 1,
        ("retry", "connect"): 2,
    }
    assert series(registry, "forbear_retries_total", "reason") == {
        ("protocol",): 1,
        ("connect",): 2,
    }
    assert series(registry, "forbear_requests_total", "outcome") == {
        ("success_after_retry",): 1,
        ("failed_after_retry",): 1,
    }


def test_a_circuit_that_opens(caller, server, registry, metrics, series):
    """The call that opened it failed; those that are refused sent nothing, and are no refused
    retries.
    """
    server.script("/", 503)
    options = {"policy": POLICY, "breaker": CircuitBreaker(2, open_for=60), "on_event": [metrics]}
    outcomes = caller.calls(*[("GET", server.url)] * 3, **options)
    assert outcomes[0] == 503
    assert all(isinstance(outcome, forbear.CircuitOpenError) for outcome in outcomes[1:])
    assert series(registry, "forbear_requests_total", "outcome") == {
        ("failed_after_retry",): 1,
        ("circuit_open",): 2,
    }
    assert series(registry, "forbear_attempts_total", "kind") == {("first",): 1, ("retry",): 1}
    assert series(registry, "forbear_retries_refused_total", "reason") == {("circuit-open",): 1}
    assert series(
        registry, "forbear_circuit_transitions_total", "host", "from_state", "to_state"
    ) == {(host_of(server), "closed", "open"): 1}


def test_a_call_that_is_interrupted(caller, server, registry, metrics, series):
    """Whatever ends it, it is counted: else the requests in flight would seem to grow for ever."""

    class Interrupted(BaseException):
        pass

    def interrupt(response):
        raise Interrupted

    server.script("/", 200)
    with pytest.raises(Interrupted):
        caller.calls(("GET", server.url), policy=POLICY, retry_if=interrupt, on_event=[metrics])
    assert series(registry, "forbear_requests_total", "outcome") == {("cancelled",): 1}
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "cancelled"): 1
    }


def test_failing_over(caller, server, registry, metrics, series):
    """An attempt at another origin is told from a retry at the same; each is counted where it
    went.
    """
    server.script("/", 503)
    with FaultServer() as other:
        other.script("/", 503, 200)
        origins = Origins([server.url, other.url])
        (outcome,) = caller.calls(
            ("GET", server.url), policy=POLICY, origins=origins, on_event=[metrics]
        )
        assert outcome in (200, 503)
        sent = series(registry, "forbear_attempts_total", "host", "kind", "result")
        assert sent[host_of(server), "first", "5xx"] == 1
        assert sent[host_of(other), "failover", "5xx"] == 1
        assert sent[host_of(server), "failover", "5xx"] == 1
        assert series(registry, "forbear_failovers_total", "from_endpoint", "to_endpoint") == {
            (host_of(server), host_of(other)): 1,
            (host_of(other), host_of(server)): 1,
        }


def test_calls_that_are_switched_off_are_counted_too(registry, metrics, series):
    """They are traffic; a failure of theirs is a failure, though nobody thinks of repeating it."""
    inner = ScriptedTransport([503, "read_error", 200])
    client = httpx.Client(transport=RetryTransport(inner, policy=POLICY, on_event=[metrics]))
    for _ in range(3):
        try:
            client.get("http://api.test/", extensions={"forbear": False})
        except httpx.ReadError:
            continue
    assert series(registry, "forbear_requests_total", "outcome") == {
        ("failed",): 2,
        ("success",): 1,
    }
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "5xx"): 1,
        ("first", "protocol"): 1,
        ("first", "2xx"): 1,
    }
    assert series(registry, "forbear_retries_refused_total", "reason") == {}


def test_urllib3s_retry_tells_what_it_sees(server, registry, metrics, series):
    """It is not told of calls that succeed at once: no requests are counted, rather than only the
    bad ones.
    """
    server.script("/", 503, 200)
    with urllib3.PoolManager(
        retries=forbear.urllib3.Retry(POLICY, on_event=[metrics], name="github")
    ) as manager:
        assert manager.request("GET", server.url).status == 200
    assert series(registry, "forbear_retries_total", "client", "reason") == {("github", "503"): 1}
    assert series(registry, "forbear_attempts_total", "kind", "result") == {("first", "5xx"): 1}
    assert series(registry, "forbear_requests_total", "outcome") == {}


def test_each_hop_of_a_redirect_is_a_request(registry, metrics, series):
    """The first attempt of a hop is no retry, though the hop before it was retried."""
    inner = ScriptedTransport([503, (302, {"Location": "http://api.test/there"}), 503, 200])
    transport = RetryTransport(
        inner, policy=RetryPolicy(max_attempts=4, backoff=Fixed(0)), on_event=[metrics]
    )
    assert (
        httpx.Client(transport=transport, follow_redirects=True).get("http://api.test/").status_code
        == 200
    )
    assert series(registry, "forbear_requests_total", "outcome") == {("success_after_retry",): 2}
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "5xx"): 2,
        ("retry", "3xx"): 1,
        ("retry", "2xx"): 1,
    }


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_tasks_are_counted(backend, server, registry, metrics, series):
    """While the server is silent: an attempt that was cancelled. In a wait: none."""
    server.script("/silent", "hang")
    server.script("/failing", 503)

    async def main():
        transport = forbear.httpx.AsyncRetryTransport(
            policy=RetryPolicy(max_attempts=3, backoff=Fixed(30)), on_event=[metrics]
        )
        async with httpx.AsyncClient(transport=transport) as client:
            for path, is_there in (
                ("/silent", lambda: server.requests("/silent")),
                ("/failing", waiting),
            ):
                async with anyio.create_task_group() as group:
                    group.start_soon(client.get, server.url + path)
                    while not is_there():
                        await anyio.sleep(0.01)
                    group.cancel_scope.cancel()

    def waiting():
        return series(registry, "forbear_waiting_requests", "client")["default",]

    anyio.run(main, backend=backend)
    assert series(registry, "forbear_requests_total", "outcome") == {("cancelled",): 2}
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "cancelled"): 1,
        ("first", "5xx"): 1,
    }


def test_a_deadline_that_is_over_is_a_failure(caller, server, registry, metrics, series):
    """Nothing was sent, and no circuit was open."""
    with forbear.deadline(0.0):
        (outcome,) = caller.calls(("GET", server.url), policy=POLICY, on_event=[metrics])
    assert isinstance(outcome, forbear.DeadlineExceeded)
    assert series(registry, "forbear_requests_total", "outcome") == {("failed",): 1}
    assert series(registry, "forbear_attempts_total", "kind") == {}


def test_a_resumed_download_is_one_request(caller, download, registry, metrics, series):
    """Its first attempt was answered and counted once; what asked for the rest is no retry of
    it.
    """
    seen = []
    url = download(503, 206)
    listeners = [metrics, seen.append]
    assert caller.calls(("GET", url), policy=POLICY, on_event=listeners) == [200]
    assert series(registry, "forbear_requests_total", "outcome") == {("success",): 1}
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "2xx"): 1,
        ("resume", "5xx"): 1,
        ("resume", "2xx"): 1,
    }
    assert series(registry, "forbear_resumes_total", "result") == {("resumed",): 1}
    assert series(registry, "forbear_retries_total", "reason") == {("body",): 1, ("503",): 1}
    (told,) = [event for event in seen if event.name == "resume"]
    assert told.request_id == seen[0].request_id


def test_a_download_that_was_retried_and_resumed(caller, download, registry, metrics, series):
    """One request, two attempts of it, and one for the rest."""
    url = download(206, failures=[503])
    assert caller.calls(("GET", url), policy=POLICY, on_event=[metrics]) == [200]
    assert series(registry, "forbear_requests_total", "outcome") == {("success_after_retry",): 1}
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "5xx"): 1,
        ("retry", "2xx"): 1,
        ("resume", "2xx"): 1,
    }


def test_requests_over_the_wire_add_up(caller, server, download, registry, metrics, series):
    """Those of calls and those of retries; asking for the rest of a body is a retry for it, and a
    resume.
    """
    server.script("/", 200, "reset", 503, 200, 404, "429;retry-after=0", 503, 503, 503)
    calls = [("GET", server.url)] * 4 + [
        ("POST", server.url),
        ("GET", download(503, 206)),
        ("GET", download(404)),
    ]
    caller.calls(*calls, policy=POLICY, on_event=[metrics])
    sums = {
        name: sum(series(registry, f"forbear_{name}_total", *labels).values())
        for name, *labels in (
            ("requests", "host", "method", "outcome"),
            ("attempts", "host", "kind", "result"),
            ("retries", "host", "reason"),
            ("resumes", "host", "result"),
        )
    }
    # Retries: reset, 503; 429, 503; a resumption that failed for good, and one after another.
    assert sums == {"requests": 7, "attempts": 14, "retries": 7, "resumes": 2}
    assert len(server.requests()) + 3 + 2 == sums["attempts"]


def test_a_download_that_cannot_be_resumed_is_told_of(caller, download, registry, metrics, series):
    (outcome,) = caller.calls(("GET", download(404)), policy=POLICY, on_event=[metrics])
    assert isinstance(outcome, Exception)
    assert series(registry, "forbear_requests_total", "outcome") == {
        ("success",): 1
    }  # it was answered
    assert series(registry, "forbear_attempts_total", "kind", "result") == {
        ("first", "2xx"): 1,
        ("resume", "4xx"): 1,
    }
    assert series(registry, "forbear_resumes_total", "result") == {("failed",): 1}


# --- gauges -----------------------------------------------------------------------------------


def test_waiting_requests_are_those_asleep_now(caller, server, registry, metrics, series):
    """One while it waits, none before and after."""
    server.script("/", 503, 200)
    policy = RetryPolicy(max_attempts=2, backoff=Fixed(0.25))
    seen = []

    def look(event):
        if event.name == "retry_scheduled":
            watcher.start()

    def watch():
        until = time.monotonic() + 10
        while time.monotonic() < until:
            seen.append(series(registry, "forbear_waiting_requests", "client").get(("orders",), 0))
            if seen[-1]:
                return

    watcher = threading.Thread(target=watch)
    caller.calls(("GET", server.url), policy=policy, on_event=[metrics, look], name="orders")
    watcher.join()
    assert seen[-1] == 1
    assert series(registry, "forbear_waiting_requests", "client").get(("orders",), 0) == 0


def test_tokens_of_the_scope_with_the_fewest(registry, metrics, series):
    """Burst 10: three retries to one origin leave 7, one to another 9; a second later 2 have come
    back: 9.
    """
    clock = FakeClock()
    budget = RetryBudget(ratio=0, floor_per_second=2, burst=10)
    inner = ScriptedTransport([503, 503, 503, 200, 503, 200])
    policy = RetryPolicy(max_attempts=4, backoff=Fixed(0))
    client = httpx.Client(
        transport=RetryTransport(
            inner, policy=policy, budget=budget, on_event=[metrics], name="orders", clock=clock
        )
    )
    client.get("http://a.test/")
    client.get("http://b.test/")
    tokens = {("orders", "default", "local"): 7.0}
    assert (
        series(registry, "forbear_budget_available_tokens", "client", "budget", "scope") == tokens
    )
    clock.advance(1.0)
    tokens["orders", "default", "local"] = 9.0
    assert (
        series(registry, "forbear_budget_available_tokens", "client", "budget", "scope") == tokens
    )


def test_tokens_of_an_aws_quota(registry, metrics, series):
    """500, of which a retry of a 503 takes 14 or what its table says; ours is asked, not
    computed.
    """
    strategy = AwsStandard()
    client = httpx.Client(
        transport=RetryTransport(
            ScriptedTransport([503, 503, 503]),
            strategy=strategy,
            on_event=[metrics],
            clock=FakeClock(),
        )
    )
    client.get("http://a.test/")
    assert strategy.bucket.tokens < 500
    assert series(registry, "forbear_budget_available_tokens", "scope") == {
        ("local",): strategy.bucket.tokens
    }


def test_what_a_users_own_strategy_and_budget_have_is_not_read(registry, metrics, series):
    """They may call anything ``budget``, ``breaker`` or ``lowest``."""

    class Own:
        quiet = True
        hinted_cost = 1.0
        lowest = name = fallback = "mine"

        def deposit(self, scope, now): ...
        def spend(self, scope, cost, now):
            return True

        def refund(self, scope, cost): ...

    client = httpx.Client(
        transport=RetryTransport(
            ScriptedTransport([503, 200]), budget=Own(), on_event=[metrics], clock=FakeClock()
        )
    )
    assert client.get("http://a.test/").status_code == 200
    assert series(registry, "forbear_budget_available_tokens", "scope") == {}


def test_the_state_of_a_circuit_is_the_one_it_is_in_now(registry, metrics, series):
    """Open for 30 s, then half-open though nobody has called yet, closed after a probe: not what
    was told last.
    """
    clock = FakeClock()
    breaker = CircuitBreaker(2, open_for=30)
    inner = ScriptedTransport([503, 503, 200])
    policy = RetryPolicy(max_attempts=1)
    client = httpx.Client(
        transport=RetryTransport(
            inner, policy=policy, breaker=breaker, on_event=[metrics], clock=clock
        )
    )

    def state():
        found = series(registry, "forbear_circuit_state", "host", "state")
        assert sum(found.values()) in (0, 1)
        return [state for (_, state), value in found.items() if value]

    assert state() == []  # nothing has ever opened
    client.get("http://a.test/")
    client.get("http://a.test/")
    assert state() == ["open"]
    clock.advance(30)
    assert state() == ["half_open"]
    assert client.get("http://a.test/").status_code == 200
    assert state() == ["closed"]


def test_what_is_gone_is_not_shown(registry, metrics, series):
    """A client that was collected has no gauges; its counters stay, as counters do."""
    client = httpx.Client(
        transport=RetryTransport(ScriptedTransport([200]), on_event=[metrics], name="gone")
    )
    client.get("http://a.test/")
    assert series(registry, "forbear_waiting_requests", "client") == {("gone",): 0}
    del client
    gc.collect()
    assert series(registry, "forbear_waiting_requests", "client") == {}
    assert series(registry, "forbear_requests_total", "client") == {("gone",): 1}


def test_several_transports_of_one_client_are_one_client(registry, metrics, series):
    """``wrap`` gives each mount its own transport and all of them one budget."""
    client = forbear.httpx.wrap(
        httpx.Client(mounts={"http://a.test": httpx.HTTPTransport()}),
        on_event=[metrics],
        name="orders",
    )
    assert series(registry, "forbear_waiting_requests", "client") == {("orders",): 0}
    assert (
        len(series(registry, "forbear_budget_available_tokens", "client", "budget", "scope")) == 1
    )
    client.close()


def test_an_unreachable_fleet_budget_is_counted(registry, metrics, series):
    """One failed round trip, and from then on the local tokens are those in force."""
    from forbear.redis import RedisBudget

    with FaultServer() as gone:
        nobody = gone.url.rpartition(":")[2]
    budget = RedisBudget(
        f"redis://127.0.0.1:{nobody}",
        name="fleet",
        fallback=RetryBudget(burst=5, floor_per_second=0),
    )
    inner = ScriptedTransport([503, 200])
    policy = RetryPolicy(max_attempts=2, backoff=Fixed(0))
    transport = RetryTransport(inner, policy=policy, budget=budget, on_event=[metrics])
    assert httpx.Client(transport=transport).get("http://a.test/").status_code == 200
    assert series(registry, "forbear_budget_backend_errors_total", "backend") == {("redis",): 1}
    assert series(registry, "forbear_budget_available_tokens", "budget", "scope") == {
        ("fleet", "shared"): 0,
        ("fleet", "local"): 4,
    }


def test_threads_lose_no_count(registry, metrics, series):
    """Eight threads of two hundred calls, each of which is sent twice."""
    inner = ScriptedTransport([503, 200] * 1600)
    policy = RetryPolicy(max_attempts=50, backoff=Fixed(0))
    client = httpx.Client(
        transport=RetryTransport(inner, policy=policy, budget=None, on_event=[metrics])
    )

    def calls():
        for _ in range(200):
            client.get("http://a.test/")

    threads = [threading.Thread(target=calls) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(series(registry, "forbear_requests_total", "outcome").values()) == 1600
    assert sum(series(registry, "forbear_attempts_total", "kind", "result").values()) == len(
        inner.requests
    )
    assert series(registry, "forbear_retries_total", "reason") == {
        ("503",): len(inner.requests) - 1600
    }


# --- labels -----------------------------------------------------------------------------------


def scripted(metrics, **options):
    inner = ScriptedTransport([200])
    return httpx.Client(
        transport=RetryTransport(inner, policy=POLICY, on_event=[metrics], **options)
    )


def test_hosts_are_capped(registry, metrics, series):
    """A crawler must not fill the memory of a Prometheus: a hundred servers by name, then
    _OTHER.
    """
    client = scripted(metrics)
    for number in range(MOST_HOSTS + 20):
        client.get(f"http://host{number}.test/")
    client.get("http://host3.test/")  # known: still by name
    hosts = series(registry, "forbear_requests_total", "host")
    assert len(hosts) == MOST_HOSTS + 1
    assert hosts["_OTHER",] == 20
    assert hosts["host3.test",] == 2


def test_hosts_can_be_left_out(registry, series):
    client = scripted(prometheus.Metrics(registry, metrics_host=False))
    client.get("http://a.test/")
    client.get("http://b.test/")
    (sample,) = [
        s for f in registry.collect() for s in f.samples if s.name == "forbear_requests_total"
    ]
    assert sample.labels == {"client": "default", "method": "GET", "outcome": "success"}
    assert sample.value == 2


def test_methods_are_a_closed_set(registry, metrics, series):
    client = scripted(metrics)
    for method in ("GET", "QUERY", "PROPFIND", "x"):
        client.request(method, "http://a.test/")
    assert series(registry, "forbear_requests_total", "method") == {("GET",): 1, ("_OTHER",): 3}


def test_every_label_value_is_of_its_closed_set(caller, server, registry, metrics):
    """Whatever goes wrong."""
    server.script("/", "close", "garbage", "reset-head", 418, 507, "cut:3", 200, 599)
    calls = [(method, server.url) for method in ("GET", "PUT", "POST", "LOCK", "GET", "GET")]
    caller.calls(*calls, policy=POLICY.replace(statuses={503, 507, 418}), on_event=[metrics])
    by_name = {metric.prometheus_name: metric for metric in METRICS.values()}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            metric = by_name[re.sub("_(bucket|sum|count)$", "", sample.name)]
            assert set(sample.labels) - {"le"} == set(metric.labels)
            for label, values in metric.labels.items():
                assert values is None or sample.labels[label] in values


def test_one_registry_takes_one(registry, metrics):
    with pytest.raises(ValueError, match="make one Metrics and give it to every client"):
        prometheus.Metrics(registry)
    assert b"forbear_requests_total" in prometheus_client.generate_latest(registry)


def test_a_second_try_leaves_nothing_behind():
    """What was registered before the clash is taken back."""
    registry = CollectorRegistry()
    prometheus_client.Counter("forbear_resumes", "somebody else's", registry=registry)
    with pytest.raises(ValueError, match="already"):
        prometheus.Metrics(registry)
    assert [family.name for family in registry.collect()] == ["forbear_resumes"]


@pytest.mark.parametrize("module", [prometheus, otel])
def test_options_are_checked(module):
    with pytest.raises(TypeError, match="metrics_host must be True or False, got 'no'"):
        module.Metrics(metrics_host="no")


# --- both exporters ---------------------------------------------------------------------------


def families(registry):
    """Name, kind and samples, as Prometheus would scrape them."""
    found = {}
    for family in registry.collect():
        if family.name.startswith("forbear"):
            samples = {
                (
                    sample.name,
                    tuple(
                        sorted(
                            (k, v) for k, v in sample.labels.items() if not k.startswith("otel_")
                        )
                    ),
                ): sample.value
                for sample in family.samples
                if not sample.name.endswith("_created")
            }
            found[family.name] = family.type, samples
    return found


def test_opentelemetry_exports_the_same(caller, server, registry, metrics):
    """Through its Prometheus exporter: the same names, kinds, labels, buckets and counts. One
    dashboard serves both.
    """
    theirs = CollectorRegistry()
    provider = MeterProvider(
        metric_readers=[PrometheusMetricReader(registry=theirs, disable_target_info=True)]
    )
    others = otel.Metrics(provider)
    server.script("/", 200, 503, 200, 503, "reset", 503)
    with FaultServer() as gone:
        nobody = gone.url
    origins = Origins([server.url, nobody])
    breaker = CircuitBreaker(3, open_for=60)
    options = {
        "policy": POLICY,
        "on_event": [metrics, others],
        "breaker": breaker,
        "origins": origins,
    }
    kept = caller.client(dict(options))  # so that there are gauges to read
    caller.calls(*[("GET", server.url)] * 3, ("POST", server.url), **options)
    for both in (metrics, others):
        both(Resumption("default", "GET", server.url, 5, 10, "resumed"))
    ours, found = families(registry), families(theirs)
    ours = {
        name: family for name, family in ours.items() if family[1]
    }  # theirs shows none without samples
    found = {name: family for name, family in found.items() if family[1]}
    assert (
        found.keys()
        == ours.keys()
        >= {"forbear_requests", "forbear_attempts", "forbear_waiting_requests"}
    )
    for name, (kind, samples) in ours.items():
        assert found[name][0] == kind, name
        assert found[name][1].keys() == samples.keys(), name
        for key, value in samples.items():
            assert found[name][1][key] == pytest.approx(
                value, abs=0.5 if "tokens" in name else 1e-9
            ), key
    provider.shutdown()
    del kept


# --- nobody listens ---------------------------------------------------------------------------


def test_only_who_asks_hears_of_calls_that_succeed(caller, server, registry, metrics):
    """A plain listener hears of trouble only; beside one that counts, too."""
    server.script("/", 200)
    plain, all_of_them = record(), []

    class Hearing:
        hears_calls = True

        def __call__(self, event):
            all_of_them.append(event)

    caller.calls(("GET", server.url), policy=POLICY, on_event=[plain, Hearing()], name="orders")
    assert len(plain) == 0
    (ended,) = all_of_them
    assert isinstance(ended, CallEnded)
    assert (ended.client, ended.method, ended.origin) == ("orders", "GET", server.url)
    assert (ended.outcome, ended.attempts, ended.status, ended.kind) == ("success", 1, 200, "first")
    assert 0 < ended.elapsed < 5


def test_who_needs_ends_hears_of_calls_that_went_wrong(caller, server):
    """So that a call which succeeds at once pays nothing for it."""
    ended = []

    class Needing:
        needs_ends = True

        def __call__(self, event):
            if event.name == "call_ended":
                ended.append((event.outcome, event.attempts))

    server.script("/", 200, 503, 200, 503)
    calls = [("GET", server.url), ("GET", server.url), ("POST", server.url)]
    caller.calls(*calls, policy=POLICY, on_event=[Needing()])
    assert ended == [("success_after_retry", 2), ("failed", 1)]


def test_a_listener_that_fails_costs_no_response(caller, server, caplog):
    class Broken:
        hears_calls = True

        def __call__(self, event):
            raise KeyError(SECRET)

    server.script("/", 200)
    with caplog.at_level(logging.DEBUG, "forbear"):
        assert caller.calls(
            ("GET", server.url), ("GET", server.url), policy=POLICY, on_event=[Broken()]
        ) == [200, 200]
    (line,) = [found.getMessage() for found in caplog.records if found.name == "forbear"]
    assert line == "on_event Broken raised KeyError; the call goes on without it (logged once)"


# --- secrets ----------------------------------------------------------------------------------


def test_nothing_secret_is_counted_or_logged(caller, server, registry, metrics, caplog):
    """No path, query, header value, body, key, user name or exception text; in no metric and in no
    line of the log.
    """
    caplog.set_level(logging.DEBUG, "forbear")
    reader_registry = CollectorRegistry()
    provider = MeterProvider(metric_readers=[PrometheusMetricReader(registry=reader_registry)])
    path = f"/{SECRET}/x"
    server.script(path, 503, f"503;retry-after={SECRET}", "reset", "garbage", 200, 500)
    url = f"{server.url}{path}?token={SECRET}".replace("http://", f"http://user:{SECRET}@")
    headers = {"Authorization": f"Bearer {SECRET}"}
    keyed = {**headers, "Idempotency-Key": f"{SECRET}-of-one-order"}
    calls = [
        ("GET", url, headers),
        ("POST", url, keyed, SECRET.encode()),
        ("PUT", url, headers, SECRET.encode()),
    ]
    events = record()
    listeners = [metrics, otel.Metrics(provider), events]
    caller.calls(
        *calls,
        policy=POLICY,
        on_event=listeners,
        idempotency=IdempotencyKeys(),
        breaker=CircuitBreaker(4),
        name="orders",
    )
    shown = [
        prometheus_client.generate_latest(found).decode() for found in (registry, reader_registry)
    ]
    shown += [
        repr(list(events)),
        *(repr(vars(line)) for line in caplog.records if line.name.startswith("forbear")),
    ]
    assert len(events) > 5
    assert "orders" in shown[0]
    assert "orders" in shown[1]
    assert SECRET not in "".join(shown)
    assert "/x" not in "".join(shown[2:])
    provider.shutdown()
