"""The shipped rules under promtool, and each shipped expression against a live Prometheus."""

import json
import re
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from math import isnan
from pathlib import Path

import httpx
import pytest

import forbear.addons.hedge  # which brings the row of its event
from forbear import CircuitBreaker, Fixed, Origins, RetryBudget, RetryGate, RetryPolicy
from forbear.events import Hedged, Resumption
from forbear.httpx import wrap
from forbear.redis import RedisBudget
from forbear.telemetry import assets
from forbear.testing import FaultServer

from .conftest import binary, free_port, package

prometheus_client = package("prometheus_client")
ours = package("forbear.telemetry.prometheus")
package("redis")
pytestmark = [pytest.mark.real, pytest.mark.slow]

EVERY = "500ms"  # a scrape, and an evaluation of the rules
WINDOW = "10s"  # of rates, in place of minutes
# Seconds until a Prometheus on a busy machine has started, scraped twice and evaluated.
ANSWERS_WITHIN = 60.0
VARIABLES = {"$__rate_interval": WINDOW, "$client": ".*", "$host": ".*"}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A directory with what ``forbear dashboards`` writes."""
    into = tmp_path_factory.mktemp("shipped")
    assets.write(into)
    return into


def promtool(*arguments, **options):
    """What it prints, and nothing is wrong."""
    command = [binary("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_rules_say_what_they_should(shipped):
    """forbear.rules.test.yml, beside this file."""
    assert "14 rules found" in promtool("check", "rules", "forbear.rules.yml", cwd=shipped)
    shutil.copy(Path(__file__).with_name("forbear.rules.test.yml"), shipped)
    assert "SUCCESS" in promtool("test", "rules", "forbear.rules.test.yml", cwd=shipped)


def test_the_metrics_are_well_named():
    """promtool's own opinion of what a client exposes."""
    registry = prometheus_client.CollectorRegistry()
    ours.Metrics(registry)
    text = prometheus_client.generate_latest(registry).decode()
    assert promtool("check", "metrics", input=text) == ""


def eventually(look, holds):
    """What is found, once it holds: Prometheus starts, scrapes twice and evaluates meanwhile."""
    found, until = None, time.monotonic() + ANSWERS_WITHIN
    while True:
        with suppress(httpx.TransportError):
            found = look()
            if holds(found):
                return found
        assert time.monotonic() < until, f"only {found}"
        time.sleep(0.2)


@contextmanager
def faulted_run(metrics):
    """Clients that meet all kinds of trouble, so that every metric moves between two scrapes."""
    policy = RetryPolicy(max_attempts=3, backoff=Fixed(0.01), hint_spread=0.0)
    over = threading.Event()
    with FaultServer() as server, FaultServer() as other:
        with FaultServer() as gone:
            nobody = gone.url.replace("http", "redis")
        options = {
            "orders": {},
            "fleet": {"budget": RedisBudget(nobody, name="f", fallback=RetryBudget(burst=1e6))},
            "patient": {"gate": RetryGate(), "policy": policy.replace(patience=0.05)},
            "poor": {"budget": RetryBudget(ratio=0, floor_per_second=1, burst=1)},
            "guarded": {"breaker": CircuitBreaker(2, open_for=0.05)},
            "mirrored": {"origins": Origins([server.url, other.url])},
            "slotted": {"concurrency": forbear.ConcurrencyLimit(), "pacing": forbear.Pacing()},
        }
        usual = {"policy": policy, "gate": None, "on_event": [metrics]}
        clients = []
        for name, own in options.items():
            clients.append(wrap(httpx.Client(trust_env=False), name=name, **{**usual, **own}))

        def calls():
            while not over.wait(0.05):
                for path, steps in (("/well", [200]), ("/once", [503, 200]), ("/down", [503])):
                    server.script(path, *steps)
                    other.script(path, steps[-1])
                    for client in clients:
                        with suppress(forbear.CircuitOpenError):
                            client.get(server.url + path)
                for result in ("resumed", "failed"):
                    metrics(Resumption("orders", "GET", server.url, 1, 2, result))
                for outcome, reason in (("won", None), ("refused", "hedge-budget")):
                    nothing = (None,) * 5
                    metrics(Hedged("orders", "GET", server.url, outcome, reason, 0.1, *nothing))

        thread = threading.Thread(target=calls)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for client in clients:
                client.close()


@pytest.fixture(scope="module")
def live(shipped, tmp_path_factory):
    """A function that asks a Prometheus, which scrapes a faulted run and evaluates the rules."""
    registry = prometheus_client.CollectorRegistry()
    metrics = ours.Metrics(registry)
    serve = prometheus_client.start_http_server
    exposed, thread = serve(0, addr="127.0.0.1", registry=registry)
    work, port = tmp_path_factory.mktemp("prometheus"), free_port()
    # As often as the test scrapes, over a short window.
    rules = (shipped / "forbear.rules.yml").read_text()
    rules = rules.replace("interval: 15s", f"interval: {EVERY}").replace("[5m]", f"[{WINDOW}]")
    (work / "forbear.rules.yml").write_text(rules)
    targets = [{"targets": [f"127.0.0.1:{exposed.server_port}"]}]
    seconds = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), EVERY)
    settings = {
        "global": seconds,
        "rule_files": [str(work / "forbear.rules.yml")],
        "scrape_configs": [{"job_name": "app", "static_configs": targets}],
    }
    (work / "prometheus.yml").write_text(json.dumps(settings))  # which is YAML
    options = [f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/data"]
    command = [binary("prometheus"), *options, f"--web.listen-address=127.0.0.1:{port}"]
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
    with faulted_run(metrics), (work / "log").open("w") as log, client:
        running = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            eventually(lambda: client.get("/-/ready").status_code, lambda found: found == 200)
            yield lambda path, **query: client.get(f"/api/v1/{path}", params=query).json()["data"]
        finally:
            running.terminate()
            running.wait()
            exposed.shutdown()
            exposed.server_close()
            thread.join()


def values(ask, expression, holds=bool):
    """The numbers that an expression gives, once it gives any; nan where nothing has moved yet."""

    def look():
        found = [float(sample["value"][1]) for sample in ask("query", query=expression)["result"]]
        return [value for value in found if not isnan(value)]

    return eventually(look, holds)


def test_every_panel_shows_something(live):
    """No misspelt label, no division that never matches: each has an answer after a faulted run."""
    for panel in json.loads(assets.read(assets.DASHBOARD))["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            assert all(value >= 0 for value in values(live, expression)), panel["title"]


def test_every_recording_rule_records(live):
    names = re.findall(r"record: (\S+)", assets.read(assets.RULES))
    assert len(names) >= 7
    for name in names:
        assert all(value >= 0 for value in values(live, name)), name


def test_alerts_are_raised(live):
    """Of this run: sent too often, a budget that refuses, a lost Redis."""

    def raised():
        return {alert["labels"]["alertname"] for alert in live("alerts")["alerts"]}

    wanted = {"ForbearRetryStorm", "ForbearBudgetExhausted", "ForbearSharedBudgetDown"}
    eventually(raised, wanted.issubset)


def test_amplification_of_a_run_is_what_the_servers_saw(live):
    """Three paths: sent once, twice, three times. Six attempts for three requests are 2."""
    for name, expected in (("amplification", 2.0), ("retry_success_ratio", 0.5)):
        series = f'forbear:{name}:5m{{client="orders"}}'
        values(live, series, [pytest.approx(expected, rel=0.2)].__eq__)
