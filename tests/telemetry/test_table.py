"""The table of metrics, and what ships: a dashboard and rules that ask for nothing else."""

import json
import re
from types import SimpleNamespace

import pytest

from forbear.core.outcome import FailureKind, Phase
from forbear.telemetry import assets, metrics
from forbear.telemetry.metrics import METRICS

# Failure: reason of a retry; then the result of the attempt where nothing was sent, and where the
# request was. A reason never names another failure than the line's own ``failure`` does.
NOTHING_SENT = ("connect", "connect", "protocol")
REASONS = {
    **dict.fromkeys(("dns", "refused", "tls", "proxy"), NOTHING_SENT),
    "connect_timeout": ("connect_timeout", "timeout", "timeout"),
    "read_timeout": ("read_timeout", "timeout", "timeout"),
    "write_timeout": ("write_timeout", "timeout", "timeout"),
    "timeout": (None, "timeout", "timeout"),  # of an unnamed phase: the attempt's own says which
    "pool": ("pool_timeout", "timeout", "timeout"),
    "reset": ("reset", "connect", "protocol"),
    "protocol": ("protocol", "connect", "protocol"),
    "unprocessed": ("protocol", "protocol", "protocol"),
}
NEVER_RETRIED = "certificate", "decoding", "permanent", "unknown"
REASONS |= dict.fromkeys(NEVER_RETRIED, REASONS["protocol"])


def test_every_failure_has_a_reason_and_a_result() -> None:
    """After the head of an answer the reason is the body; a result names no phase of a timeout."""
    kinds = [kind for kind in FailureKind if kind is not FailureKind.STATUS]
    assert {kind.name.lower() for kind in kinds} == set(REASONS)
    for kind in kinds:
        reason, unsent, sent = REASONS[kind.name.lower()]
        phases = (Phase.UNSENT, Phase.SENT, Phase.ANSWERED)
        failures = [SimpleNamespace(status=None, failure=kind, phase=phase) for phase in phases]
        found = [metrics.retry_reason(failure) for failure in failures]
        reasons = ("connect_timeout", "read_timeout") if reason is None else (reason, reason)
        assert found == [*reasons, "body"], kind
        results = [metrics.result_of(failure) for failure in failures[:2]]
        assert results == [unsent, sent], kind


def test_every_status_has_a_result_and_a_reason() -> None:
    results = {101: "2xx", 200: "2xx", 304: "3xx", 404: "4xx", 429: "429", 503: "5xx", 999: "5xx"}
    ended = {status: SimpleNamespace(status=status, failure=None) for status in (*results, None)}
    found = {status: metrics.result_of(event) for status, event in ended.items()}
    assert found == {**results, None: "cancelled"}
    # Below 400 only ``retry_if`` takes an answer for a failure.
    for status, reason in ((200, "user"), (408, "408"), (503, "503"), (409, "status_other")):
        event = SimpleNamespace(failure=FailureKind.STATUS, status=status)
        assert metrics.retry_reason(event) == reason


def test_who_chose_a_wait() -> None:
    for delay_source, source in {
        "backoff": "computed", "failover": "computed", "cooldown": "retry_after",
        "retry-after": "retry_after", "grpc-retry-pushback-ms": "retry_after",
        "ratelimit": "rate_limit_reset", "x-rate-limit-reset": "rate_limit_reset",
        "anthropic-ratelimit-tokens-reset": "rate_limit_reset",
    }.items():  # fmt: skip
        assert metrics.source_of(SimpleNamespace(delay_source=delay_source)) == source


def names_in(expression: str) -> set[str]:
    found = re.findall(r"\bforbear_[a-z_]+", expression)
    return {re.sub("_(bucket|sum|count)$", "", name) for name in found}


TABLE = {metric.prometheus_name: metric.labels for metric in METRICS.values()}


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
        values = set().union(*(by_label.get(label) or () for by_label in TABLE.values()))
        if values:  # else it is severity and its like
            for one in pattern.split("|"):
                assert any(re.fullmatch(one, value) for value in values), (label, one)


def test_the_dashboard_is_whole() -> None:
    """Unique ids, no overlap in the grid of 24 columns, each panel explained."""
    dashboard = json.loads(assets.read(assets.DASHBOARD))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = []
    for x, y, width, height in ([panel["gridPos"][key] for key in "xywh"] for panel in panels):
        cells += [(x + right, y + down) for right in range(width) for down in range(height)]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    shown = [panel for panel in panels if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] for panel in shown)
    variables = {found["name"] for found in dashboard["templating"]["list"]}
    assert variables == {"datasource", "client", "host"}


def test_assets_are_read_by_their_names_and_written_where_they_are_wanted(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        assets.read("x")
    into = tmp_path / "new" / "directory"
    (dashboard, rules) = assets.write(into)
    assert (dashboard.name, rules.name) == (assets.DASHBOARD, assets.RULES)
    assert rules.read_text(encoding="utf-8") == assets.read(assets.RULES)
    assert assets.write(into) == [dashboard, rules]  # again: replaced
