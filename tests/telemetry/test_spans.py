"""Spans: one around each call that needed a second attempt, with the further attempts in it."""

import time
from contextlib import nullcontext

import anyio
import httpx
import httpx2
import pytest
import requests
from opentelemetry import trace
from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor, HTTPXClientInstrumentor
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.trace import SpanKind, StatusCode

import forbear.httpx
import forbear.httpx2
from forbear import Fixed, RetryPolicy
from forbear.httpx import RetryTransport
from forbear.requests import mount
from forbear.telemetry import otel

from ..lanes import lane_of

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.01), hint_spread=0.0)
RESENT = "http.request.resend_count"


@pytest.fixture
def instrumented(traces):
    """Each attempt through httpx and httpx2, each call through requests has a CLIENT span."""
    hooks = {"request_hook": otel.request_hook, "async_request_hook": otel.async_request_hook}
    made = [HTTPXClientInstrumentor(), HTTPX2ClientInstrumentor(), RequestsInstrumentor()]
    made[0].instrument(tracer_provider=traces.provider, **hooks)
    made[1].instrument(tracer_provider=traces.provider, **hooks)
    made[2].instrument(tracer_provider=traces.provider, response_hook=otel.response_hook)
    yield
    for one in made:
        one.uninstrument()


@pytest.mark.smoke
def test_a_call_that_was_repeated_has_a_span(adapter, server, traces, spans):
    """INTERNAL, below its caller's, from the call's beginning; each wait is an event of it."""
    server.script("/", "503;delay=100", "reset", 200)
    with traces.tracer.start_as_current_span("caller"):
        options = {"policy": POLICY, "on_event": [spans], "name": "orders", "clock": None}
        adapter.calls(("GET", server.url), **options)
    span = traces.the("forbear.request")
    assert span.kind is SpanKind.INTERNAL
    assert span.parent.span_id == traces.the("caller").context.span_id
    host, _, port = server.url.removeprefix("http://").partition(":")
    whose = {"server.address": host, "server.port": int(port), "forbear.client": "orders"}
    how = {"forbear.attempts": 3, "forbear.outcome": "success_after_retry"}
    assert dict(span.attributes) == {"http.request.method": "GET", **whose, **how}
    assert span.status.status_code is StatusCode.UNSET
    assert [event.name for event in span.events] == ["forbear.wait", "forbear.wait"]
    first, second = (dict(event.attributes) for event in span.events)
    delay = {"forbear.delay": 0.01, "forbear.delay_source": "backoff"}
    assert first == {**delay, "forbear.attempt": 1, "error.type": "503"}
    assert second["error.type"].isidentifier()  # the class of an exception
    assert span.end_time - span.start_time >= 0.11 * 1e9
    # It begins when the call did, not when a second attempt was found to be needed.
    assert span.events[0].timestamp - span.start_time >= 0.09 * 1e9


def test_a_call_that_failed_says_with_what(traces, spans):
    steps, get = [503, 503, 502, 503, (503, {"Retry-After": "3600"})], ("GET", "http://api.test/")
    lane_of("httpx-sync").calls(get, get, inner=steps, policy=POLICY, on_event=[spans])
    span, other = traces.named("forbear.request")
    assert span.attributes["error.type"] == "502"
    assert span.attributes["forbear.outcome"] == "failed_after_retry"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert span.events[-1].name == "forbear.refused"
    told = {"forbear.reason": "attempts-exhausted", "forbear.attempts": 3}
    assert dict(span.events[-1].attributes) == told
    told = {"forbear.reason": "retry-after-too-long", "forbear.attempts": 2}
    assert dict(other.events[-1].attributes) == {**told, "forbear.wanted_delay": 3600.0}


def test_a_call_sent_once_has_none(adapter, server, traces, spans):
    """Its refusal is an event of its caller's span."""
    server.script("/", 200, 503, 404)
    calls = [("GET", server.url), ("POST", server.url), ("GET", server.url)]
    with traces.tracer.start_as_current_span("caller"):
        adapter.calls(*calls, policy=POLICY, on_event=[spans])
    assert traces.named("forbear.request") == []
    if not adapter.is_async:  # tasks have the context in which their event loop began
        (event,) = traces.the("caller").events
        assert dict(event.attributes)["forbear.reason"] == "method-not-replayable"


def test_a_cancelled_call_ends_its_span(server, traces, spans):
    server.script("/", 503)
    policy = POLICY.replace(backoff=Fixed(30))

    async def main():
        with anyio.CancelScope() as scope:

            def cancel(event):
                if event.name == "retry_scheduled":
                    scope.cancel()

            transport = forbear.httpx.AsyncRetryTransport(policy=policy, on_event=[spans, cancel])
            async with httpx.AsyncClient(transport=transport) as client:
                await client.get(server.url)
        assert trace.get_current_span() is trace.INVALID_SPAN

    anyio.run(main)
    span = traces.the("forbear.request")
    assert span.attributes["forbear.outcome"] == "cancelled"
    assert "error.type" not in span.attributes
    assert spans._open == {}


def test_attributes_of_a_server():
    for origin, attributes in (
        ("https://api.test:443", {"server.address": "api.test"}),
        ("https://api.test:8443", {"server.address": "api.test", "server.port": 8443}),
        ("http://[::1]:80", {"server.address": "::1"}),
        ("http://[::1]:8080", {"server.address": "::1", "server.port": 8080}),
    ):
        assert otel.server_of(origin) == attributes


@pytest.mark.parametrize("within", [True, False], ids=["in a span", "in none"])
def test_tasks_do_not_mix(within, server, traces, spans, instrumented):
    """Five at once on one transport, each with two calls, one after the other.

    Each call is one trace, with all but the first attempt in its own span. That is below the
    caller's, beside the first attempt; or, without a caller's, below the first attempt.
    """

    async def main():
        transport = forbear.httpx2.AsyncRetryTransport(policy=POLICY, gate=None, on_event=[spans])
        async with httpx2.AsyncClient(transport=transport) as client:
            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(two, client, number)

    async def two(client, number):
        for path in (f"/{number}", f"/{number}/again"):
            server.script(path, 503, "reset", 200)
            with traces.tracer.start_as_current_span("caller") if within else nullcontext():
                assert (await client.get(f"{server.url}{path}")).status_code == 200
                if within:  # the caller's is the current one again
                    assert trace.get_current_span().name == "caller"

    anyio.run(main, backend="trio")
    roots = [span for span in traces.spans if span.parent is None]
    assert len(roots) == len({span.context.trace_id for span in traces.spans}) == 10
    for root in roots:
        first = root
        if within:
            (first,) = [span for span in traces.children(root) if span.kind is SpanKind.CLIENT]
        assert (first.kind, first.attributes.get(RESENT)) == (SpanKind.CLIENT, None)
        (call,) = [span for span in traces.children(root) if span is not first]
        assert call.name == "forbear.request"
        assert [span.attributes[RESENT] for span in traces.children(call)] == [1, 2]


def test_a_body_that_breaks_later(download, server, traces, spans, instrumented):
    """The same thread has made another call before the break, whose trace is another one."""
    server.script("/", 200)
    transport = RetryTransport(policy=POLICY, gate=None, prefetch=0, on_event=[spans])
    with httpx.Client(transport=transport) as client, client.stream("GET", download(206)) as slow:
        time.sleep(0.3)
        assert client.get(server.url).status_code == 200
        slow.read()
    call = traces.the("forbear.request")
    sent = [span for span in traces.spans if span.kind is SpanKind.CLIENT]
    _, other, *_ = sorted(sent, key=lambda span: span.start_time)
    assert other.parent is None
    assert call.context.trace_id != other.context.trace_id


def test_a_session_of_requests_has_one_span(server, traces, spans, instrumented):
    """That of its instrumentation, outside the adapter, says how often; ours is below it."""
    server.script("/", 503, 502, 200, 200)
    with mount(requests.Session(), POLICY, gate=None, on_event=[spans]) as session:
        session.get(server.url)
        session.get(server.url)
    repeated, plain = (span for span in traces.spans if span.kind is SpanKind.CLIENT)
    assert repeated.attributes[RESENT] == 2
    assert RESENT not in plain.attributes
    assert traces.the("forbear.request").parent.span_id == repeated.context.span_id


def test_the_hook_says_nothing_outside_a_call(traces):
    with traces.tracer.start_as_current_span("other") as span:
        otel.request_hook(span, object())
        anyio.run(otel.async_request_hook, span, object())
    assert dict(traces.the("other").attributes) == {}
