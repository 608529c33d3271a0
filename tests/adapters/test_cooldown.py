"""cooldown=: an origin that asked for quiet gets it from every call, on every adapter."""

import pytest

import forbear
from forbear import Fixed, Reason, RetryPolicy, record_of
from forbear.addons.cooldown import Cooldown
from forbear.engine.clock import SystemClock
from forbear.testing import FakeClock

from ..clocks import Meanwhile
from .test_breaker import outcome

pytestmark = pytest.mark.anyio
one_lane = pytest.mark.adapters("httpx", "sync")

URL = "http://api.example.com/thing"
ORIGIN = "http://api.example.com:80"
ONCE = RetryPolicy(max_attempts=1, hint_spread=0.0)
BUSY = (503, {"Retry-After": "5"})
MINE, THEIRS = {"Authorization": "Bearer mine"}, {"Authorization": "Bearer theirs"}


@pytest.fixture
def still():
    """Fake time, and no random part in any wait."""
    return {"clock": FakeClock(), "random": lambda: 0.0}


@pytest.mark.smoke
async def test_all_calls_leave_a_busy_origin_alone(adapter, still):
    """One is told to come back in 5 s: the next one is sent then; other origins are not held."""
    async with adapter.client([BUSY, 200], policy=ONCE, cooldown="all", **still) as client:
        assert await outcome(adapter, client, headers=MINE) == 503
        assert await outcome(adapter, client, url="http://other.example.com/") == 200
        assert still["clock"].sleeps == []
        assert await outcome(adapter, client, headers=THEIRS) == 200
        assert still["clock"].sleeps == [5.0]
        assert await outcome(adapter, client) == 200
        assert still["clock"].sleeps == [5.0]


@pytest.mark.smoke
async def test_a_first_attempt_that_would_wait_too_long_fails_at_once(adapter, still):
    inner = adapter.watched([(503, {"Retry-After": "50"}), 200])
    policy = ONCE.replace(max_retry_after=10.0)
    async with adapter.client(inner, policy=policy, cooldown="all", **still) as client:
        await outcome(adapter, client)
        still["clock"].advance(20)
        with pytest.raises(adapter.CircuitOpenError) as caught:
            await adapter.call(client, "GET", URL)
        assert isinstance(caught.value, adapter.transport_error)
        assert (caught.value.reason, caught.value.retry_after) == (
            Reason.RETRY_AFTER_TOO_LONG,
            30.0,
        )
        assert len(inner.requests) == 1
        still["clock"].advance(20)
        assert await outcome(adapter, client) == 200
    assert still["clock"].sleeps == [10.0]


async def after_told(adapter, seconds, steps, budget=None, **fields):
    """The outcome of a call that waits a second while another is told to, and its clock."""

    def tell(clock):
        if clock.sleeps == [1.0]:
            shared = (one.shared for one in strategy.limits.listed)
            (cooldown,) = (one for one in shared if isinstance(one, Cooldown))
            cooldown.begin(ORIGIN, b"", seconds, clock.monotonic())

    clock, policy = Meanwhile(tell), RetryPolicy(backoff=Fixed(1.0), **fields)
    strategy = forbear.strategies.StandardStrategy(
        policy, budget=budget, cooldown="all", random=lambda: 0.0
    )
    async with adapter.client(steps, policy=policy, strategy=strategy, clock=clock) as client:
        try:
            return await adapter.call(client, "GET", URL), clock
        except Exception as error:
            return error, clock


@one_lane
async def test_a_call_that_was_held_looks_again(adapter):
    response, clock = await after_told(adapter, 3.0, ["read_error", 200])
    assert clock.sleeps == [4.0]
    assert record_of(response).waits == (4.0,)
    error, _ = await after_told(adapter, 8.0, ["read_error", 200], total_timeout=5.0)
    assert isinstance(error, adapter.DeadlineExceeded)
    assert (error.reason, error.retry_after) == (Reason.DEADLINE, 8.0)
    assert record_of(error).reason is Reason.DEADLINE


@pytest.mark.smoke
async def test_a_retry_that_would_be_held_too_long_is_refused_with_its_story(adapter, budget):
    inner = adapter.watched(["connect_error", 200])
    error, _ = await after_told(adapter, 50.0, inner, budget, max_retry_after=10.0)
    assert isinstance(error, adapter.CircuitOpenError)
    assert isinstance(error.__cause__, adapter.connect_error)
    assert (error.reason, error.retry_after) == (Reason.RETRY_AFTER_TOO_LONG, 50.0)
    assert len(record_of(error).attempts) == len(inner.requests) == 1
    assert budget.tokens(ORIGIN, 0.0) == 20


# let go


@pytest.mark.slow
@one_lane
async def test_pitfall_67_callers_let_go_together_do_not_send_together(adapter, server):
    """One second of cooldown, 60 callers: they come back over 50 ms and more, none too early."""
    server.script("/busy", "503;retry-after=1", 200)
    policy = RetryPolicy(max_attempts=1, hint_spread=0.1)
    sends_at = []

    class Noting(SystemClock):
        def sleep(self, seconds):
            sends_at.append(self.monotonic() + seconds)
            super().sleep(seconds)

        async def asleep(self, seconds):
            sends_at.append(self.monotonic() + seconds)
            await super().asleep(seconds)

    options = {"policy": policy, "cooldown": "all", "budget": None, "clock": Noting()}
    async with adapter.client(**options) as client:
        assert await outcome(adapter, client, url=server.url + "/busy") == 503
        asked_at = server.requests("/busy")[0].started_at
        found = []

        async def ask(n):
            found.append(await outcome(adapter, client, url=server.url + "/busy"))

        await adapter.together(60, ask)
    times = sorted(entry.started_at for entry in server.requests("/busy")[1:])
    assert found == [200] * 60
    assert times[0] - asked_at >= 1.0
    # 60 places a millisecond apart and a tenth of a second of spread.
    assert times[-1] - times[0] >= 0.05
    # Of the intended times: a busy machine sends many at once after each pause of its own.
    assert sends_at
    most = max(sum(at <= other < at + 0.010 for other in sends_at) for at in sends_at)
    assert most <= 40
