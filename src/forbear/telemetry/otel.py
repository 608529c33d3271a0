"""OpenTelemetry: the metrics of the table, and a span around each retried call.

Needs the API only; the application chooses the SDK. Source of names and kinds: OpenTelemetry
semantic conventions, HTTP spans. Each attempt has a CLIENT span, made by the instrumentation of the
client. The span around the attempts is INTERNAL, because a second CLIENT span would count every
call twice.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

try:
    from opentelemetry import context, metrics, trace
except ImportError:
    from ..core.checks import to_install

    raise ImportError(
        f"forbear.telemetry.otel needs opentelemetry-api: {to_install('otel')}"
    ) from None

from ..engine.clock import SYSTEM_CLOCK
from ..records import record_of
from .ends import CallEnded
from .event_log import fields_of
from .events import RetryScheduled, cause_of
from .facts import host_of
from .metrics import METRICS, READ_LATE, Counting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from ..events import Event

__all__ = ["Metrics", "Spans", "async_request_hook", "request_hook", "response_hook"]

SCOPE = "forbear"  # of instruments and spans
RESENT = context.create_key("forbear-resend-count")
RESEND_COUNT = "http.request.resend_count"
# The span of the first attempt that was made last in this context, and when it began.
FIRST: ContextVar[tuple[SpanContext, float] | None] = ContextVar("forbear-first", default=None)
AT_ONCE = 0.25  # seconds after a call begins its first attempt has begun, also on a busy machine


class Metrics(Counting):
    """A listener that counts with OpenTelemetry: ``RetryTransport(on_event=[metrics])``.
    Thread-safe.

    Make one and give it to every client of the process; ``name=`` of a client is its attribute
    ``client``. A call that succeeds at once then costs about 25 µs more, nearly all of it
    OpenTelemetry's SDK. Instruments and attributes are in the table of
    ``forbear.telemetry.metrics``; through OpenTelemetry's Prometheus exporter they have the names
    that ``forbear.telemetry.prometheus`` has, so the same dashboard and rules serve both.

    Gauges and the errors of a shared budget are observed when they are exported.
    ``forbear.urllib3.Retry`` does not see calls that succeed at once, so its clients count no
    requests and no durations.

    Args:
        meter_provider: None: the global one, as it is when a metric is first exported.
        metrics_host: False leaves the attribute ``host`` out, for clients that call any number of
            servers; with it the first 100 servers have their own value and all further ones share
            ``_OTHER``.

    Raises:
        TypeError: ``metrics_host`` is no bool.
    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, *, metrics_host: bool = True
    ) -> None:
        super().__init__(metrics_host=metrics_host)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._adds: dict[str, Callable[..., None]] = {}
        for name, metric in METRICS.items():
            about, observe = (metric.unit, metric.text), [partial(self._observe, name)]
            if metric.kind == "histogram":
                buckets = metric.buckets
                self._adds[name] = meter.create_histogram(
                    name, *about, explicit_bucket_boundaries_advisory=buckets
                ).record
            elif metric.kind == "gauge":
                meter.create_observable_gauge(name, observe, *about)
            elif name in READ_LATE:
                meter.create_observable_counter(name, observe, *about)
            else:
                self._adds[name] = meter.create_counter(name, *about).add

    def _observe(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        return [
            metrics.Observation(value, self._attributes(name, values))
            for found, values, value in self.readings()
            if found == name
        ]

    def _attributes(self, name: str, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.labels[name], values, strict=True))

    def series_of(self, name: str, values: tuple[str, ...]) -> Callable[[float], object]:
        return partial(self._adds[name], attributes=self._attributes(name, values))


class Spans:
    """A listener that traces: an INTERNAL span ``forbear.request`` around each call that needs a
    second attempt.

    ``RetryTransport(on_event=[Spans()])``. It begins when the call did, and all attempts after the
    first one are made inside it; the span of the first one, sent before it was known that there
    would be more, is its sibling. Where no span is around the call, the first one is its parent,
    known from ``request_hook``, so all attempts are one trace. Calls that succeed at once cost
    nothing. Each wait, each release after a hold (with the seconds and the cause) and a refusal are
    events of the span; a refusal after the only attempt is one of the caller's span. How a hedged
    request ended is an attribute of the caller's span: ``forbear.hedge``, and
    ``forbear.hedged_after`` (seconds) if it was sent. Other attributes:
    ``http.request.method``, ``server.address``, ``server.port``, ``forbear.client``,
    ``forbear.attempts``, ``forbear.outcome``, and ``error.type`` if the call failed.

    ``request_hook`` and ``async_request_hook`` also put ``http.request.resend_count`` on the spans
    of the attempts, if this listener is in use. ``forbear.urllib3.Retry`` does not know when a call
    ends, so this listener gets no events there. Thread-safe; calls may run on asyncio, trio and in
    threads.

    Args:
        tracer_provider: None: the global one.
    """

    needs_ends = True  # or the span of a cancelled call would stay open

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._open: dict[
            int, tuple[Span, Token[Context]]
        ] = {}  # by request_id: the span, and how to leave it

    def __call__(self, event: Event | CallEnded) -> None:
        """Begin, continue or end the span of a call."""
        if isinstance(event, CallEnded):
            self._end(event)
        elif isinstance(event, RetryScheduled):
            self._continue(event)
        else:
            found = self._open.get(getattr(event, "request_id", 0))
            # The caller's span, while the call has none.
            add_event(trace.get_current_span() if found is None else found[0], event)

    def _continue(self, event: RetryScheduled) -> None:
        if event.request_id in self._open:
            span, token = self._open[event.request_id]
            context.detach(token)
        else:
            whose = {"forbear.client": event.client, "http.request.method": event.method}
            span = self._tracer.start_span(
                "forbear.request",
                context=around(event.elapsed),
                kind=trace.SpanKind.INTERNAL,
                attributes={**whose, **server_of(event.origin)},
                start_time=int((SYSTEM_CLOCK.time() - event.elapsed) * 1e9),
            )
        add_event(span, event)
        # In the context of the call's own task or thread, which emits its end too.
        inside = context.set_value(RESENT, event.attempt, trace.set_span_in_context(span))
        self._open[event.request_id] = span, context.attach(inside)

    def _end(self, event: CallEnded) -> None:
        found = self._open.pop(event.request_id, None)
        if found is None:
            return
        span, token = found
        context.detach(token)
        span.set_attribute("forbear.attempts", event.attempts)
        if event.outcome is not None:
            span.set_attribute("forbear.outcome", event.outcome.value)
            failed = event.outcome.value.startswith("failed")
        else:
            # The rest of a body was not received.
            failed = event.failure is not None or (event.status or 0) >= 400
        if failed:
            span.set_attribute("error.type", str(event.status or event.error or "_OTHER"))
            span.set_status(trace.StatusCode.ERROR)
        span.end()


# Events of a span: the name of each, and the fields of the log record that are its attributes, but
# for those without a value.
ADDED = {
    "retry_scheduled": ("forbear.wait", ("delay", "delay_source", "attempt")),
    "released": ("forbear.released", ("cause", "held_for")),
    "attempt_delayed": ("forbear.delayed", ("limit", "delay")),
    "gave_up": ("forbear.refused", ("reason", "attempts", "wanted_delay")),
}


def add_event(span: Span, event: Any) -> None:
    """Add an event of forbear's to the span of its call, if it says anything there."""
    if event.name in ADDED:
        name, wanted = ADDED[event.name]
        fields = fields_of(event)
        values = {f"forbear.{field}": fields[f"forbear.{field}"] for field in wanted}
        if event.name == "retry_scheduled":
            values["error.type"] = cause_of(event)
        span.add_event(name, {key: value for key, value in values.items() if value is not None})
    elif event.name == "hedged":
        span.set_attribute("forbear.hedge", event.outcome)
        if event.reason is None:
            span.set_attribute("forbear.hedged_after", event.after)


def around(elapsed: float) -> Context | None:
    """The context to begin in the span of a call that is so many seconds old; None: this one."""
    first = FIRST.get()
    if first is None or trace.get_current_span().get_span_context().is_valid:
        return None
    span, sent_at = first
    began_at = SYSTEM_CLOCK.monotonic() - elapsed
    if abs(sent_at - began_at) > AT_ONCE:  # of another call in this context
        return None
    return trace.set_span_in_context(trace.NonRecordingSpan(span))


def server_of(origin: str) -> dict[str, str | int]:
    """Return the attributes of a server, without the port if it is the scheme's default."""
    server = urlsplit(f"//{host_of(origin)}")
    port = {} if server.port is None else {"server.port": server.port}
    return {"server.address": server.hostname or "", **port}


# For instrumentations of clients, which call them with the span and other facts of an attempt.


def request_hook(span: Span, *_: object) -> None:
    """Note on the span of an attempt how often the request was sent before it; of a first one, note
    for ``Spans`` that it is.

    ``HTTPXClientInstrumentor().instrument(request_hook=request_hook,
    async_request_hook=async_request_hook)``, and so with ``HTTPX2ClientInstrumentor`` and
    ``URLLib3Instrumentor(request_hook=…)``. Needs the listener ``Spans``.
    """
    resent = context.get_value(RESENT)
    if isinstance(resent, int):
        span.set_attribute(RESEND_COUNT, resent)
    else:
        FIRST.set((span.get_span_context(), SYSTEM_CLOCK.monotonic()))


async def async_request_hook(span: Span, *_: object) -> None:
    """Do the same for asynchronous clients, whose hooks are awaited."""
    request_hook(span)


def response_hook(span: Span, _: object, response: object) -> None:
    """Note on the one span of a whole call how often it was retried; nothing if it was not.

    ``RequestsInstrumentor().instrument(response_hook=response_hook)``: that one makes its span
    around the session, outside all attempts.
    """
    record = record_of(response)
    if record is not None and record.retries:
        span.set_attribute(RESEND_COUNT, record.retries)
