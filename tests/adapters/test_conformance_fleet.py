"""P5: retries stay a bounded share of traffic, per process and per shared budget."""

import time

import pytest

from forbear import Fixed, Reason, RetryBudget, RetryPolicy, record_of

pytestmark = pytest.mark.anyio

URL = "http://api.example.com/thing"


@pytest.mark.smoke
async def test_retries_under_a_total_outage_are_a_tenth_of_traffic(adapter, quick):
    """200 calls that all fail: burst 7, and 0.1 from each call but the first, which finds the
    bucket full.

    7 + 0.1 × 199 = 26.9 tokens: 26 retries, and not the 600 that max_attempts=4 would allow.
    """
    sent = 0

    def outage(request):
        nonlocal sent
        sent += 1
        return 503

    async with adapter.client([outage], policy=RetryPolicy(backoff=Fixed(0)), **quick) as client:
        reasons = [record_of(await adapter.call(client, "GET", URL)).reason for _ in range(200)]
    assert sent == 200 + 26
    assert reasons[0] is Reason.ATTEMPTS_EXHAUSTED
    assert reasons[-1] is Reason.BUDGET_EXHAUSTED


async def test_an_outage_over_the_wire_stays_within_the_bound(adapter, server):
    """At most 1.1 × calls + burst + floor × seconds requests, whatever number runs at once."""
    server.script("/thing", 503)
    began = time.monotonic()
    async with adapter.client(policy=RetryPolicy(backoff=Fixed(0.001), max_attempts=10)) as client:

        async def ask(n):
            for _ in range(10):
                assert (await adapter.call(client, "GET", server.url + "/thing")).status_code == 503

        await adapter.together(10, ask)
    seconds = time.monotonic() - began
    sent = len(server.requests("/thing"))
    assert 100 + 7 <= sent <= 1.1 * 100 + 7 + 1.0 * seconds


async def test_a_shared_budget_bounds_all_that_share_it(adapter, quick):
    """Two transports, one budget of 5: five retries between them."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=5)
    options = {"budget": budget, "policy": RetryPolicy(backoff=Fixed(0)), **quick}
    async with adapter.client([503], **options) as one, adapter.client([503], **options) as other:
        retries = [
            record_of(await adapter.call(client, "GET", URL)).retries
            for client in (one, other, one, other)
        ]
    assert retries == [3, 2, 0, 0]
