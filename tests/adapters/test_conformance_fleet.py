"""P5: a dead origin sees a probe now and then; with ``budget=`` retries stay a share of traffic."""

import time

import pytest

from forbear import Fixed, Reason, RetryBudget, RetryGate, RetryPolicy, record_of

from ..lanes import URL


@pytest.mark.smoke
async def test_a_dead_origin_sees_a_probe_now_and_then(adapter, quick):
    """Twelve calls, one after the other, with the default policy and gate.

    The first is sent at 0 s, again at once and after its backoff of 0.75 s, which makes the origin
    unhealthy, and as a probe 2 and 4 s later. The second is sent when it begins and as a probe 8 s
    later. The outage has lasted longer than 10 s then: it ends at once, as each further one.
    """
    clock, sent = quick["clock"], []
    began = clock.monotonic()

    def outage(request):
        sent.append(clock.monotonic() - began)
        return 503

    async with adapter.client([outage], gate=RetryGate(), **quick) as client:
        reasons = [record_of(await adapter.call(client, "GET", URL)).reason for _ in range(12)]
    assert sent == pytest.approx([0, 0.025, 0.775, 2.775, 6.775, 6.775, 14.775, *[14.775] * 10])
    assert reasons == [Reason.ATTEMPTS_EXHAUSTED, *[Reason.ORIGIN_UNHEALTHY] * 11]


@pytest.mark.slow
@pytest.mark.lanes("httpx-sync", "aiohttp-asyncio")
async def test_an_outage_over_the_wire_is_probed_once_a_second(adapter, server):
    """50 calls at once: 50 first attempts, a retry of the first two that failed, then probes.

    They are 1 s apart and more, less a quarter at random; nobody waits beyond patience.
    """
    server.script("/thing", 503)
    policy = RetryPolicy(backoff=Fixed(0.001), max_attempts=10, patience=1.1)
    reasons = []
    began = time.monotonic()
    async with adapter.client(policy=policy, gate=RetryGate()) as client:

        async def ask(n):
            answer = await adapter.call(client, "GET", server.url + "/thing")
            reasons.append(record_of(answer).reason)

        await adapter.together(50, ask)
    seconds = time.monotonic() - began
    assert reasons == [Reason.ORIGIN_UNHEALTHY] * 50
    assert 50 + 1 <= len(server.requests("/thing")) <= 50 + 2 + seconds / 0.75


@pytest.mark.lanes("httpx-sync", "aiohttp-asyncio")
async def test_with_a_budget_retries_are_a_tenth_of_traffic(adapter, quick):
    """200 calls that all fail: burst 7, and 0.1 from each call but the first, at the full bucket.

    7 + 0.1 × 199 = 26.9 tokens: 26 retries, and not the 800 that max_attempts=5 would allow.
    """
    options = {"policy": RetryPolicy(backoff=Fixed(0)), "budget": RetryBudget(), **quick}
    inner = adapter.watched([503])
    async with adapter.client(inner, **options) as client:
        records = [record_of(await adapter.call(client, "GET", URL)) for _ in range(200)]
    assert len(inner.requests) == 200 + 26
    assert records[0].reason is Reason.ATTEMPTS_EXHAUSTED
    assert records[-1].reason is Reason.BUDGET_EXHAUSTED


async def test_a_shared_budget_bounds_all_that_share_it(adapter, quick):
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=5)
    policy = RetryPolicy(max_attempts=4, backoff=Fixed(0))
    options = {"budget": budget, "policy": policy, **quick}
    async with adapter.client([503], **options) as one, adapter.client([503], **options) as other:
        outcomes = [await adapter.call(client, "GET", URL) for client in (one, other, one, other)]
    retries = [record_of(outcome).retries for outcome in outcomes]
    assert retries == [3, 2, 0, 0]
