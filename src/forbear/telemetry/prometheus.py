"""Prometheus: the metrics of the table in a registry of prometheus_client."""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import prometheus_client
except ImportError:
    from ..core.checks import to_install

    raise ImportError(
        f"forbear.telemetry.prometheus needs prometheus_client: {to_install('prometheus')}"
    ) from None

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from .metrics import METRICS, READ_LATE, Counting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["Metrics"]


class Metrics(Counting):
    """A listener that counts for Prometheus: ``RetryTransport(on_event=[metrics])``. Thread-safe.

    Make one and give it to every client of the process; ``name=`` of a client is its label
    ``client``. With one, a call that succeeds at once costs 2 to 2.5 µs more. Metric names, labels
    and buckets are in the table of ``forbear.telemetry.metrics``; rules, alerts and a dashboard for
    them are written by ``forbear dashboards``.

    The gauges (waiting calls, held calls, whether all origins are healthy, circuit state, tokens of
    a budget if there is one) and the errors of a shared budget are read when the registry is
    collected; prometheus_client's multiprocess mode collects counters and histograms only.
    ``forbear.urllib3.Retry`` does not see calls that succeed at once, so its clients have no
    ``forbear_requests_total`` and no durations, and of attempts only those that failed. It does not
    pickle: an adapter that has one cannot be sent to another process.
    ``prometheus_client.disable_created_metrics()`` saves a series for each counter and histogram.

    Args:
        registry: Where to register; None: ``prometheus_client.REGISTRY``.
        metrics_host: False leaves the label ``host`` out, for clients that call any number of
            servers; with it the first 100 servers have their own value and all further ones share
            ``_OTHER``.

    Raises:
        ValueError: The registry has these metrics already.
        TypeError: ``metrics_host`` is no bool.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, metrics_host: bool = True
    ) -> None:
        super().__init__(metrics_host=metrics_host)
        registry = registry or prometheus_client.REGISTRY
        self._families: dict[str, Counter | Histogram] = {}
        for name, metric in METRICS.items():
            named = metric.prometheus_name, metric.text, self.labels[name]
            if metric.kind == "histogram":
                buckets = metric.buckets
                self._families[name] = Histogram(*named, registry=registry, buckets=buckets)
            elif name not in READ_LATE:
                self._families[name] = Counter(*named, registry=registry)
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics with their values; for the registry."""
        families = {name: self._empty(name) for name in READ_LATE}
        for name, values, value in self.readings():
            families[name].add_metric(values, value)
        yield from families.values()

    def _empty(self, name: str) -> CounterMetricFamily | GaugeMetricFamily:
        metric = METRICS[name]
        made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        return made(metric.prometheus_name, metric.text, labels=self.labels[name])

    def series_of(self, name: str, values: tuple[str, ...]) -> Callable[[float], object]:
        child = self._families[name].labels(*values)
        return child.observe if isinstance(child, Histogram) else child.inc
