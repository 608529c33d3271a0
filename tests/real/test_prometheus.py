"""The shipped rules and each shipped expression under promtool, on what a real run exposes."""

import json
import re
import shutil
import subprocess
from contextlib import suppress
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

from .conftest import binary, package

prometheus_client = package("prometheus_client")
ours = package("forbear.telemetry.prometheus")
package("redis")
pytestmark = [pytest.mark.real, pytest.mark.slow]

VARIABLES = {"$__rate_interval": "5m", "$client": ".*", "$host": ".*"}


@pytest.fixture
def shipped(tmp_path):
    """A directory with what ``forbear dashboards`` writes."""
    assets.write(tmp_path)
    return tmp_path


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


@pytest.fixture
def scraped():
    """What clients that meet all kinds of trouble expose, so that every metric has moved."""
    registry = prometheus_client.CollectorRegistry()
    metrics = ours.Metrics(registry)
    policy = RetryPolicy(max_attempts=3, backoff=Fixed(0.01), hint_spread=0.0)
    with FaultServer() as server, FaultServer() as other:
        with FaultServer() as gone:
            nobody = gone.url.replace("http", "redis")
        options = {
            "orders": {},
            "fleet": {"budget": RedisBudget(nobody, name="f", fallback=RetryBudget(burst=1e6))},
            "patient": {
                "gate": RetryGate(),
                "policy": policy.replace(max_attempts=9, patience=0.05),
            },
            "poor": {"budget": RetryBudget(ratio=0, floor_per_second=1, burst=1)},
            "guarded": {"breaker": CircuitBreaker(2, open_for=0.05)},
            "mirrored": {"origins": Origins([server.url, other.url])},
            "slotted": {"concurrency": forbear.ConcurrencyLimit(), "pacing": forbear.Pacing()},
        }
        usual = {"policy": policy, "gate": None, "on_event": [metrics]}
        clients = [
            wrap(httpx.Client(trust_env=False), name=name, **{**usual, **own})
            for name, own in options.items()
        ]
        for path, steps in (("/well", [200]), ("/once", [503, 200]), ("/down", [503])):
            other.script(path, steps[-1])
            for client in clients:
                server.script(path, *steps)
                with suppress(forbear.CircuitOpenError):
                    client.get(server.url + path)
        for result in ("resumed", "failed"):
            metrics(Resumption("orders", "GET", server.url, 1, 2, result))
        for outcome, reason in (("won", None), ("refused", "hedge-budget")):
            metrics(Hedged("orders", "GET", server.url, outcome, reason, 0.1, *(None,) * 5))
        yield prometheus_client.generate_latest(registry).decode()
        for client in clients:
            client.close()


def test_every_panel_and_recording_rule_shows_something(shipped, scraped):
    """No misspelt label, no division that never matches: as if that run went on for 10 minutes."""
    assert promtool("check", "metrics", input=scraped) == "", "the metrics are well named"
    lines = [line.rpartition(" ")[::2] for line in scraped.splitlines() if line[0] != "#"]
    series = [{"series": name, "values": f"0+{value}x40"} for name, value in lines]
    asked = re.findall(r"record: (\S+)", assets.read(assets.RULES))
    assert len(asked) >= 7
    for panel in json.loads(assets.read(assets.DASHBOARD))["panels"]:
        asked += [target["expr"] for target in panel.get("targets", ())]
    tests = []
    for expression in asked:
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        shows = {"expr": f"count(({expression}) >= 0) > bool 0", "eval_time": "10m"}
        tests.append({**shows, "exp_samples": [{"labels": "{}", "value": 1}]})
    group = {"interval": "15s", "input_series": series, "promql_expr_test": tests}
    written = {"rule_files": ["forbear.rules.yml"], "evaluation_interval": "15s", "tests": [group]}
    (shipped / "panels.yml").write_text(json.dumps(written))  # which is YAML
    assert "SUCCESS" in promtool("test", "rules", "panels.yml", cwd=shipped)
