"""P3 and P4: never sooner than the server asked, never past the deadline, no useless wait."""

import time

import pytest

import forbear
from forbear import Fixed, Reason, RetryPolicy, record_of
from forbear.testing import FakeClock

NO_SPREAD = RetryPolicy(hint_spread=0.0)
NOES = {"x-should-retry": "false", "stripe-should-retry": "False", "grpc-retry-pushback-ms": "-1"}


@pytest.mark.smoke
async def test_no_request_comes_before_the_server_asked_for_it(adapter, server):
    server.script("/thing", "503;header=Retry-After-Ms:80", "429;header=retry-after-ms:60.5", 200)
    options = {"policy": RetryPolicy(backoff=Fixed(0)), "random": lambda: 0.0}
    response = await adapter.once(url=server.url + "/thing", **options)
    assert response.status_code == 200
    first, second, third = server.requests("/thing")
    assert second.started_at - first.ended_at >= 0.080
    assert third.started_at - second.ended_at >= 0.0605


async def test_a_wait_that_the_server_asks_for_is_kept(adapter, server, quick):
    server.script("/thing", "503;retry-after=2", 200)
    async with adapter.client(**quick) as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
    assert response.status_code == 200
    assert quick["clock"].sleeps == pytest.approx([2.25])
    assert len(server.requests("/thing")) == 2


# hint + spread: random × hint_spread × max(hint, 1 s), half of a quarter on top of it; the fast
# first retry at 0.5 is after 0.025 s. All of the arithmetic is core/test_decide.py's.
WAITS = [
    (RetryPolicy(), (503, {"Retry-After": "10"}), 11.25),
    (RetryPolicy(), (429, {"retry-after-ms": "3000"}), 3.375),
    (NO_SPREAD, (503, {}), 0.025),
    (NO_SPREAD.replace(backoff=Fixed(3)), (503, {"Retry-After": "2"}), 2.0),
    (NO_SPREAD.replace(throttle_backoff=Fixed(5)), (429, {}), 5.0),
    (NO_SPREAD.replace(hints="ignore"), (503, {"Retry-After": "10"}), 0.025),
    # No Date: against our clock, which stands at 2026-01-01 00:00:00 UTC.
    (NO_SPREAD, (503, {"Retry-After": "Thu, 01 Jan 2026 00:00:30 GMT"}), 30.0),
]


@pytest.mark.smoke
async def test_the_wait_is_the_servers_where_it_names_one_and_else_the_policys(adapter, quick):
    for policy, answer, slept in WAITS:
        quick["clock"] = FakeClock()  # begins at 2026-01-01 00:00:00 UTC
        response = await adapter.once([answer, 200], policy=policy, **quick)
        assert quick["clock"].sleeps == pytest.approx([slept])
        assert record_of(response).waits == pytest.approx((slept,))


@pytest.mark.smoke
async def test_a_retry_after_that_is_too_long_is_returned_at_once(adapter, server, quick):
    server.script("/thing", "503;retry-after=3600;body=5", 200)
    policy = RetryPolicy(max_retry_after=30)
    response = await adapter.once(url=server.url + "/thing", policy=policy, **quick)
    assert (response.status_code, response.content) == (503, b"01234")
    assert response.headers["Retry-After"] == "3600"
    assert (quick["clock"].sleeps, len(server.requests("/thing"))) == ([], 1)
    record = record_of(response)
    assert (record.reason, record.refused_delay) == (Reason.RETRY_AFTER_TOO_LONG, 3600.0)


@pytest.mark.smoke
async def test_the_servers_explicit_no_is_obeyed(adapter, quick):
    for hints in ("obey", "ignore"):
        for no in NOES.items():
            steps, policy = [(503, dict([no])), 200], RetryPolicy(hints=hints)
            response = await adapter.once(steps, policy=policy, **quick)
            assert response.status_code == 503
            assert record_of(response).reason is Reason.SERVER_SAID_NO


@pytest.mark.parametrize("fault", ["hang", "drip;interval=400"])
@pytest.mark.smoke
async def test_a_silent_server_costs_no_more_than_total_timeout(adapter, server, quickest, fault):
    server.script("/thing", fault)
    errors = []
    async with adapter.client(policy=RetryPolicy(total_timeout=0.1)) as client:

        async def run():
            with pytest.raises(adapter.DeadlineExceeded) as caught:
                await adapter.call(client, "GET", server.url + "/thing")
            errors.append(caught.value)

        # 0.13 s after its beginning an asynchronous call is cut, and no timeout is the cause.
        assert 0.095 <= await quickest(run, bound=0.125) <= 0.125
    for kind in (adapter.timeout_error, forbear.DeadlineExceeded):
        assert isinstance(errors[-1], kind)
    if adapter.name != "aiohttp":  # whose attempts are cut from outside
        assert isinstance(errors[-1].__cause__, adapter.read_timeout)
    assert record_of(errors[-1]).reason is Reason.DEADLINE


async def test_total_timeout_covers_all_attempts_and_waits(adapter, quick):
    """Attempts of 2 s, waits of 3 s, 19 s in all: the fourth ends at 17 s, and is the last."""
    clock = quick["clock"]

    def slow(request):
        clock.advance(2)
        return 503

    policy = RetryPolicy(total_timeout=19, backoff=Fixed(3), max_attempts=100)
    record = record_of(await adapter.once([slow], policy=policy, **quick))
    assert (record.reason, record.refused_delay) == (Reason.DEADLINE, 3.0)
    assert (len(record.attempts), record.elapsed) == (4, 17.0)


@pytest.mark.smoke
async def test_a_wait_that_would_end_after_the_deadline_is_not_begun(adapter, quick):
    policy = RetryPolicy(total_timeout=10, backoff=Fixed(20))
    response = await adapter.once([(503, {"Retry-After": "20"})], policy=policy, **quick)
    record = record_of(response)
    assert response.status_code == 503
    assert (record.reason, record.refused_delay) == (Reason.DEADLINE, 22.5)  # 20 + 0.5 × 0.25 × 20
    with pytest.raises(adapter.connect_error) as caught:
        await adapter.once(["connect_error"], policy=policy, **quick)
    assert type(caught.value) is adapter.connect_error
    assert (record_of(caught.value).reason, quick["clock"].sleeps) == (Reason.DEADLINE, [])


@pytest.mark.parametrize("how", ["total_timeout", "deadline"])
@pytest.mark.smoke
async def test_nothing_is_sent_once_the_deadline_is_over(adapter, server, how):
    server.script("/thing", 200)
    policy = RetryPolicy(total_timeout=0.0 if how == "total_timeout" else None)
    with forbear.deadline(0.0 if how == "deadline" else 60.0):
        with pytest.raises(adapter.DeadlineExceeded) as caught:
            await adapter.once(url=server.url + "/thing", policy=policy)
    assert (server.requests(), server.connections) == ([], 0)
    assert caught.value.__cause__ is None
    record = record_of(caught.value)
    assert (record.attempts, record.reason) == ((), Reason.DEADLINE)


async def test_elapsed_on_the_record_is_the_time_it_took(adapter, server):
    server.script("/thing", "503;delay=50", 200)
    async with adapter.client(policy=RetryPolicy(backoff=Fixed(0.03))) as client:
        began = time.monotonic()
        record = record_of(await adapter.call(client, "GET", server.url + "/thing"))
        took = time.monotonic() - began
    assert 0.08 <= record.elapsed <= took
    assert record.attempts[0].elapsed >= 0.05
    assert record.waits == (0.03,)
