"""The table of metrics: names, kinds, labels with their closed sets; written out again by hand."""

import json
import re
from types import SimpleNamespace

import pytest

from forbear import Reason
from forbear.addons.breaker import CircuitState
from forbear.core.events import CallOutcome
from forbear.core.outcome import FailureKind, Phase
from forbear.engine import events
from forbear.limits.health import Cause
from forbear.telemetry import METRICS, RETRY_REASONS, assets

METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "_OTHER"}
OUTCOME = {
    "success", "success_after_retry", "failed", "failed_after_retry", "circuit_open", "cancelled",
}  # fmt: skip
RESULT = {"2xx", "3xx", "4xx", "429", "5xx", "connect", "timeout", "protocol", "cancelled"}
RETRY = {
    "408", "425", "429", "500", "502", "503", "504", "status_other", "connect", "connect_timeout",
    "read_timeout", "write_timeout", "pool_timeout", "reset", "protocol", "body", "user",
}  # fmt: skip
REFUSED = {
    "server-said-no", "caller-said-no", "replayed-response", "permanent-error", "local-saturation",
    "unknown-error", "method-not-replayable", "key-expired", "body-consumed", "response-delivered",
    "nested-call", "attempts-exhausted", "retry-after-too-long", "deadline", "circuit-open",
    "origin-unhealthy", "budget-exhausted", "concurrency-limit", "strategy-failed", "hook-failed",
}  # fmt: skip
STATE = {"closed", "open", "half_open"}
SCOPE = {"local", "shared"}
SOURCE = {"computed", "retry_after", "rate_limit_reset"}
CAUSE = {"healthy", "good-retry", "probe", "patience-over"}
KIND = {"first", "hedge", "retry", "failover", "resume"}
HEDGED = {"won", "failed", "cancelled"}
NOT_HEDGED = {
    *("hedge-budget", "origin-unhealthy", "origin-strained", "circuit-open", "cooldown"),
    *("local-saturation", "budget-exhausted", "concurrency-limit", "attempts-exhausted"),
    *("deadline", "cancelled"),
}
RESUME = {"resumed", "restarted", "failed"}
ANY = None
WHOSE = {"client": ANY, "host": ANY}
ENDPOINTS = {"client": ANY, "from_endpoint": ANY, "to_endpoint": ANY}
BUDGET = {"client": ANY, "budget": ANY, "scope": SCOPE}
TABLE = {
    "forbear_requests_total": ("counter", {**WHOSE, "method": METHODS, "outcome": OUTCOME}),
    "forbear_attempts_total": ("counter", {**WHOSE, "kind": KIND, "result": RESULT}),
    "forbear_retries_total": ("counter", {**WHOSE, "reason": RETRY}),
    "forbear_retries_refused_total": ("counter", {**WHOSE, "reason": REFUSED}),
    "forbear_hedges_total": ("counter", {**WHOSE, "result": HEDGED}),
    "forbear_hedges_refused_total": ("counter", {**WHOSE, "reason": NOT_HEDGED}),
    "forbear_backoff_duration_seconds": ("histogram", {"client": ANY, "source": SOURCE}),
    "forbear_request_duration_seconds": ("histogram", {**WHOSE, "outcome": OUTCOME}),
    "forbear_waiting_requests": ("gauge", {"client": ANY}),
    "forbear_held_calls": ("gauge", {"client": ANY}),
    "forbear_origin_healthy": ("gauge", {"client": ANY}),
    "forbear_concurrency_limit": ("gauge", {"client": ANY}),
    "forbear_concurrency_in_flight": ("gauge", {"client": ANY}),
    "forbear_concurrency_waiting": ("gauge", {"client": ANY}),
    "forbear_paced_calls": ("gauge", {"client": ANY}),
    "forbear_releases_total": ("counter", {"client": ANY, "cause": CAUSE}),
    "forbear_budget_available_tokens": ("gauge", BUDGET),
    "forbear_budget_backend_errors_total": ("counter", {"client": ANY, "backend": {"redis"}}),
    "forbear_circuit_state": ("gauge", {**WHOSE, "state": STATE}),
    "forbear_circuit_transitions_total": (
        "counter",
        {**WHOSE, "from_state": STATE, "to_state": STATE},
    ),
    "forbear_failovers_total": ("counter", ENDPOINTS),
    "forbear_resumes_total": ("counter", {**WHOSE, "result": RESUME}),
}


def test_the_table_is_what_was_agreed() -> None:
    found = {}
    for metric in METRICS.values():
        sets = {label: values and set(values) for label, values in metric.labels.items()}
        found[metric.prometheus_name] = metric.kind, sets
    assert found == TABLE


def test_buckets() -> None:
    backoff, request = METRICS["forbear.backoff.duration"], METRICS["forbear.request.duration"]
    assert backoff.buckets == (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)
    quick, slow = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5), (1, 2.5, 5, 10, 30, 60, 120, 300)
    assert request.buckets == quick + slow
    assert (backoff.unit, request.unit) == ("s", "s")


def test_enumerations_and_labels_say_the_same() -> None:
    """A reason, an outcome or a state that is new in the code is new in the table."""
    assert {reason.value for reason in Reason} - {"status-not-retried"} == REFUSED
    assert {outcome.value for outcome in CallOutcome} == OUTCOME
    assert {state.value for state in CircuitState} == STATE
    assert {cause.value for cause in Cause} == CAUSE == set(events.RELEASED_BY)
    assert set(RETRY_REASONS) == RETRY


# Failure: reason of a retry; then the result of the attempt where nothing was sent, and where the
# request was. A reason never names another failure than the line's own ``failure`` does.
REASONS = {
    "dns": ("connect", "connect", "protocol"),
    "refused": ("connect", "connect", "protocol"),
    "connect_timeout": ("connect_timeout", "timeout", "timeout"),
    "tls": ("connect", "connect", "protocol"),
    "proxy": ("connect", "connect", "protocol"),
    "read_timeout": ("read_timeout", "timeout", "timeout"),
    "write_timeout": ("write_timeout", "timeout", "timeout"),
    "timeout": (None, "timeout", "timeout"),  # of an unnamed phase: the attempt's own says which
    "reset": ("reset", "connect", "protocol"),
    "protocol": ("protocol", "connect", "protocol"),
    "unprocessed": ("protocol", "protocol", "protocol"),
    "pool": ("pool_timeout", "timeout", "timeout"),
    # Never retried:
    "certificate": ("protocol", "connect", "protocol"),
    "decoding": ("protocol", "connect", "protocol"),
    "permanent": ("protocol", "connect", "protocol"),
    "unknown": ("protocol", "connect", "protocol"),
}


def test_every_failure_has_a_reason_and_a_result() -> None:
    """After the head of an answer the reason is the body; a result names no phase of a timeout."""
    kinds = [kind for kind in FailureKind if kind is not FailureKind.STATUS]
    assert {kind.name.lower() for kind in kinds} == set(REASONS)
    for kind in kinds:
        reason, unsent, sent = REASONS[kind.name.lower()]
        found = [
            events.retry_reason(SimpleNamespace(failure=kind, phase=phase))
            for phase in (Phase.UNSENT, Phase.SENT, Phase.ANSWERED)
        ]
        reasons = ("connect_timeout", "read_timeout") if reason is None else (reason, reason)
        assert found == [*reasons, "body"], kind
        results = [events.result_of(None, kind, phase) for phase in (Phase.UNSENT, Phase.SENT)]
        assert results == [unsent, sent], kind


@pytest.mark.parametrize(
    ("status", "reason"),
    [(200, "user"), (302, "user"), (408, "408"), (503, "503"), (409, "status_other")],
)
def test_a_status_has_a_reason(status: int, reason: str) -> None:
    """Below 400 only ``retry_if`` takes an answer for a failure."""
    event = SimpleNamespace(failure=FailureKind.STATUS, status=status)
    assert events.retry_reason(event) == reason


def test_every_status_has_a_result() -> None:
    results = {101: "2xx", 200: "2xx", 304: "3xx", 404: "4xx", 429: "429", 503: "5xx", 999: "5xx"}
    assert {status: events.result_of(status, None, None) for status in results} == results
    assert events.result_of(None, None, None) == "cancelled"


@pytest.mark.parametrize(
    ("delay_source", "source"),
    [
        ("backoff", "computed"),
        ("failover", "computed"),
        ("cooldown", "retry_after"),
        ("retry-after", "retry_after"),
        ("x-amz-retry-after", "retry_after"),
        ("grpc-retry-pushback-ms", "retry_after"),
        ("ratelimit", "rate_limit_reset"),
        ("x-rate-limit-reset", "rate_limit_reset"),
        ("anthropic-ratelimit-tokens-reset", "rate_limit_reset"),
    ],
)
def test_who_chose_a_wait(delay_source: str, source: str) -> None:
    assert events.source_of(delay_source) == source


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
    assert events.host_of(origin) == host


# --- what ships -------------------------------------------------------------------------------


def names_in(expression: str) -> set[str]:
    found = re.findall(r"\bforbear_[a-z_]+", expression)
    return {re.sub("_(bucket|sum|count)$", "", name) for name in found}


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
        sets = [by_label.get(label) or () for _, by_label in TABLE.values()]
        values = set().union(*sets)
        if values:  # else it is severity and its like
            for one in pattern.split("|"):
                assert any(re.fullmatch(one, value) for value in values), (label, one)


def test_the_dashboard_is_whole() -> None:
    """Unique ids, no overlap in the grid of 24 columns, each panel explained."""
    dashboard = json.loads(assets.read(assets.DASHBOARD))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = []
    for place in (panel["gridPos"] for panel in panels):
        columns = range(place["x"], place["x"] + place["w"])
        rows = range(place["y"], place["y"] + place["h"])
        cells += [(x, y) for x in columns for y in rows]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    shown = [panel for panel in panels if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] for panel in shown)
    variables = {found["name"] for found in dashboard["templating"]["list"]}
    assert variables == {"datasource", "client", "host"}


def test_assets_are_read_by_their_names() -> None:
    known = r"the assets are forbear\.dashboard\.json and forbear\.rules\.yml, got 'x'"
    with pytest.raises(ValueError, match=known):
        assets.read("x")


def test_assets_are_written_where_they_are_wanted(tmp_path) -> None:
    into = tmp_path / "new" / "directory"
    (dashboard, rules) = assets.write(into)
    assert (dashboard.name, rules.name) == (assets.DASHBOARD, assets.RULES)
    assert rules.read_text(encoding="utf-8") == assets.read(assets.RULES)
    assert assets.write(into) == [dashboard, rules]  # again: replaced
