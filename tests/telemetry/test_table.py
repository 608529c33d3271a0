"""The table of metrics: names, kinds, labels with their closed sets, buckets; written out a second
time by hand.
"""

from __future__ import annotations

import json
import re

import pytest

from forbear import Reason
from forbear.core.events import CallOutcome
from forbear.core.outcome import FailureKind
from forbear.shared.circuit import CircuitState
from forbear.telemetry import METRICS, OUTCOMES, RETRY_REASONS, STATES, assets, labels

METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER"}
OUTCOME = {
    "success",
    "success_after_retry",
    "failed",
    "failed_after_retry",
    "circuit_open",
    "cancelled",
}
RESULT = {"2xx", "3xx", "4xx", "429", "5xx", "connect", "timeout", "protocol", "cancelled"}
RETRY = {
    "408",
    "425",
    "429",
    "500",
    "502",
    "503",
    "504",
    "status_other",
    "connect",
    "connect_timeout",
    "read_timeout",
    "write_timeout",
    "pool_timeout",
    "protocol",
    "body",
    "user",
}
REFUSED = {
    "server-said-no",
    "replayed-response",
    "permanent-error",
    "local-saturation",
    "unknown-error",
    "method-not-replayable",
    "key-expired",
    "body-consumed",
    "response-delivered",
    "nested-call",
    "attempts-exhausted",
    "retry-after-too-long",
    "deadline",
    "circuit-open",
    "budget-exhausted",
    "strategy-failed",
}
STATE = {"closed", "open", "half_open"}
ANY = None
WHOSE = {"client": ANY, "host": ANY}
TABLE = {
    "forbear_requests_total": ("counter", {**WHOSE, "method": METHODS, "outcome": OUTCOME}),
    "forbear_attempts_total": (
        "counter",
        {**WHOSE, "kind": {"first", "retry", "failover", "resume"}, "result": RESULT},
    ),
    "forbear_retries_total": ("counter", {**WHOSE, "reason": RETRY}),
    "forbear_retries_refused_total": ("counter", {**WHOSE, "reason": REFUSED}),
    "forbear_backoff_duration_seconds": (
        "histogram",
        {"client": ANY, "source": {"computed", "retry_after", "rate_limit_reset"}},
    ),
    "forbear_request_duration_seconds": ("histogram", {**WHOSE, "outcome": OUTCOME}),
    "forbear_waiting_requests": ("gauge", {"client": ANY}),
    "forbear_budget_available_tokens": (
        "gauge",
        {"client": ANY, "budget": ANY, "scope": {"local", "shared"}},
    ),
    "forbear_budget_backend_errors_total": ("counter", {"client": ANY, "backend": {"redis"}}),
    "forbear_circuit_state": ("gauge", {**WHOSE, "state": STATE}),
    "forbear_circuit_transitions_total": (
        "counter",
        {**WHOSE, "from_state": STATE, "to_state": STATE},
    ),
    "forbear_failovers_total": (
        "counter",
        {"client": ANY, "from_endpoint": ANY, "to_endpoint": ANY},
    ),
    "forbear_resumes_total": ("counter", {**WHOSE, "result": {"resumed", "restarted", "failed"}}),
}


def test_the_table_is_what_was_agreed() -> None:
    found = {
        metric.prometheus_name: (
            metric.kind,
            {
                label: None if values is None else set(values)
                for label, values in metric.labels.items()
            },
        )
        for metric in METRICS.values()
    }
    assert found == TABLE


def test_buckets() -> None:
    backoff, request = METRICS["forbear.backoff.duration"], METRICS["forbear.request.duration"]
    assert backoff.buckets == (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)
    assert request.buckets == (
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        1,
        2.5,
        5,
        10,
        30,
        60,
        120,
        300,
    )
    assert (backoff.unit, request.unit) == ("s", "s")


def test_enumerations_and_labels_say_the_same() -> None:
    """A reason, an outcome or a state that is new in the code is new in the table."""
    assert {reason.value for reason in Reason} == REFUSED
    assert {outcome.value for outcome in CallOutcome} == set(OUTCOMES)
    assert {state.value for state in CircuitState} == set(STATES)
    assert set(RETRY_REASONS) == RETRY


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.STATUS])
@pytest.mark.parametrize("phase", ["unsent", "sent", "answered"])
def test_every_failure_has_a_place_in_the_closed_sets(kind: FailureKind, phase: str) -> None:
    from forbear import Phase
    from forbear.core.events import RetryScheduled

    where = Phase(phase)
    event = RetryScheduled(
        "c", "GET", "http://a:80", 1, 3, kind, None, "E", 0.1, "backoff", where, 0, 0, None
    )
    assert labels.retry_reason(event) in RETRY
    assert labels.result_of(None, kind, where) in RESULT - {"cancelled"}


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (101, "2xx"),
        (200, "2xx"),
        (304, "3xx"),
        (404, "4xx"),
        (429, "429"),
        (503, "5xx"),
        (599, "5xx"),
        (999, "5xx"),
    ],
)
def test_every_status_has_a_result(status: int, result: str) -> None:
    assert labels.result_of(status, None, None) == result


@pytest.mark.parametrize(
    ("delay_source", "source"),
    [
        ("backoff", "computed"),
        ("failover", "computed"),
        ("cooldown", "retry_after"),
        ("retry-after", "retry_after"),
        ("retry-after-ms", "retry_after"),
        ("x-amz-retry-after", "retry_after"),
        ("grpc-retry-pushback-ms", "retry_after"),
        ("ratelimit", "rate_limit_reset"),
        ("ratelimit-reset", "rate_limit_reset"),
        ("x-rate-limit-reset", "rate_limit_reset"),
        ("anthropic-ratelimit-tokens-reset", "rate_limit_reset"),
    ],
)
def test_who_chose_a_wait(delay_source: str, source: str) -> None:
    assert labels.source_of(delay_source) == source


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://api.test:443", "api.test"),
        ("http://api.test:80", "api.test"),
        ("http://api.test:443", "api.test:443"),
        ("https://[::1]:8443", "[::1]:8443"),
        ("", ""),
    ],
)
def test_a_host_has_its_port_where_that_is_not_the_schemes(origin: str, host: str) -> None:
    """OpenTelemetry's server.address, with server.port where it says something."""
    assert labels.host_of(origin) == host


# --- what ships -------------------------------------------------------------------------------

SUFFIXES = ("_bucket", "_sum", "_count")


def names_in(expression: str) -> set[str]:
    found = re.findall(r"\bforbear_[a-z_]+", expression)
    return {
        next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)
        for name in found
    }


def expressions() -> list[str]:
    dashboard = json.loads(assets.read(assets.DASHBOARD))
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_the_dashboard_and_the_rules_ask_for_metrics_of_the_table_only() -> None:
    assert names_in(assets.read(assets.RULES)) <= set(TABLE)
    asked = set().union(*map(names_in, expressions()))
    assert asked == set(TABLE), "a metric that nobody looks at, or one that nobody counts"


def test_label_values_in_expressions_are_of_the_closed_sets() -> None:
    """A reason that is misspelt matches nothing, silently, for ever."""
    text = " ".join([*expressions(), assets.read(assets.RULES)])
    matched = set(re.findall(r'\b([a-z_]+)=~?"([^"$]+)"', text))
    assert len(matched) > 5
    for label, pattern in matched:
        sets = [
            values
            for _, by_label in TABLE.values()
            for name, values in by_label.items()
            if name == label
        ]
        values = set().union(*filter(None, sets))
        if not values:
            continue  # severity and its like
        for one in pattern.split("|"):
            assert any(re.fullmatch(one, value) for value in values), (label, one)


def test_the_dashboard_is_whole() -> None:
    """Unique ids, no overlap in the grid of 24 columns, each panel explained."""
    dashboard = json.loads(assets.read(assets.DASHBOARD))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    assert all(
        panel["description"] and panel["targets"] for panel in panels if panel["type"] != "row"
    )
    assert {found["name"] for found in dashboard["templating"]["list"]} == {
        "datasource",
        "client",
        "host",
    }


def test_assets_are_read_by_their_names() -> None:
    with pytest.raises(
        ValueError,
        match=r"the assets are forbear\.dashboard\.json and forbear\.rules\.yml, got 'x'",
    ):
        assets.read("x")


def test_assets_are_written_where_they_are_wanted(tmp_path) -> None:
    into = tmp_path / "new" / "directory"
    (dashboard, rules) = assets.write(into)
    assert (dashboard.name, rules.name) == (assets.DASHBOARD, assets.RULES)
    assert rules.read_text(encoding="utf-8") == assets.read(assets.RULES)
    assert assets.write(into) == [dashboard, rules]  # again: replaced
