"""What tests of telemetry share: numbers looked up in a registry, spans, a download that breaks."""

import pytest
from opentelemetry import context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from forbear.telemetry import otel
from forbear.telemetry.prometheus import Metrics
from forbear.testing import FaultServer


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with FaultServer() as gone:
        return gone.url


@pytest.fixture
def download(server):
    """A function: the address of a large file that breaks off; ``answers`` are for the rest."""

    def serve(*answers):
        of_it = ";body=320000;etag=v1"
        rest = [f"200{of_it}" if status == 206 else status for status in answers]
        server.script("/file", f"cut:160000{of_it}", *rest)
        return f"{server.url}/file"

    return serve


class Traces:
    """What a provider has exported."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def the(self, name):
        (span,) = self.named(name)
        return span

    def children(self, parent):
        parents = {id(span): span.parent and span.parent.span_id for span in self.spans}
        found = [span for span in self.spans if parents[id(span)] == parent.context.span_id]
        return sorted(found, key=lambda span: span.start_time)


@pytest.fixture
def traces():
    made = Traces()
    yield made
    made.provider.shutdown()
    assert context.get_current() == {}, "a context was entered and never left"


@pytest.fixture
def spans(traces):
    return otel.Spans(traces.provider)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return Metrics(registry)


@pytest.fixture
def counted(registry):
    """A function: the counts of a metric, by the values of the given labels."""

    def read(name, *labels):
        found = {}
        for sample in (each for family in registry.collect() for each in family.samples):
            if sample.name == f"forbear_{name}":
                key = " ".join(sample.labels[label] for label in labels)
                assert key not in found, "the labels asked for do not tell the samples apart"
                found[key] = sample.value
        return found

    return read
