"""Hedges: second attempts in metrics, spans and the log."""

import logging
import re

import anyio
import httpx
import pytest

from forbear import Hedge, RetryPolicy
from forbear.httpx import AsyncRetryTransport

SLOW, LATE = "200;delay=3000", "200;delay=200"
NO_RETRY = RetryPolicy(statuses=(500,), max_attempts=2)


def hedged(server, listeners, *script, policy=NO_RETRY):
    """Make a call whose second attempt is wanted after 50 ms."""
    hedge = Hedge(delay=0.05)
    transport = AsyncRetryTransport(policy=policy, hedge=hedge, on_event=listeners)

    async def main():
        async with httpx.AsyncClient(transport=transport) as client:
            return (await client.get(server.url + "/thing")).status_code

    server.script("/thing", *script)
    return anyio.run(main)


@pytest.mark.slow
@pytest.mark.parametrize(("script", "result", "attempts"), [
    ((SLOW, 200), "won", ["first cancelled", "hedge 2xx"]),
    ((LATE, SLOW), "cancelled", ["first 2xx", "hedge cancelled"]),
    ((LATE, 500), "failed", ["first 2xx", "hedge 5xx"]),
])  # fmt: skip
def test_each_attempt_is_counted_once_with_its_own_result(
    server, paced, metrics, counted, script, result, attempts
):
    assert hedged(server, [metrics], *script) == 200
    assert counted("hedges_total", "result") == {result: 1}
    assert counted("attempts_total", "kind", "result") == dict.fromkeys(attempts, 1)
    assert counted("requests_total", "outcome") == {"success": 1}


def test_a_refusal_is_counted_by_its_reason(server, paced, metrics, counted):
    once = RetryPolicy(max_attempts=1)
    assert hedged(server, [metrics], "200;delay=120", policy=once) == 200
    assert counted("hedges_refused_total", "reason") == {"attempts-exhausted": 1}
    assert counted("hedges_total", "result") == {}


def test_the_callers_span_and_the_log_say_how_the_second_attempt_ended(
    server, traces, spans, caplog
):
    caplog.set_level(logging.DEBUG, "forbear")
    with traces.tracer.start_as_current_span("caller"):
        hedged(server, [spans], SLOW, 200)
    (span,) = traces.spans
    assert span.attributes["forbear.hedge"] == "won"
    assert span.attributes["forbear.hedged_after"] >= 0.05
    (record,) = [one for one in caplog.records if one.name == "forbear"]
    assert record.levelname == "DEBUG"
    said = re.escape(f"GET {server.url}: a second attempt after ") + r"\d+\.\d+ s, won"
    assert re.fullmatch(said, record.message)
    assert getattr(record, "forbear.outcome") == "won"
