"""breaker=, cooldown= and pacing=: refused or delayed at once, and nothing stays taken."""

import time

import anyio
import pytest

import forbear
from forbear import Fixed, Pacing, Reason, RetryBudget, RetryGate, RetryPolicy, record_of
from forbear.addons.cooldown import Cooldown
from forbear.addons.incoming import Answering, Incoming
from forbear.engine.clock import SYSTEM_CLOCK, SystemClock
from forbear.testing import FakeClock

from ..clocks import Meanwhile
from ..lanes import ORIGIN, URL

one_lane = pytest.mark.adapters("httpx", "sync")

ONCE = RetryPolicy(max_attempts=1)
special = pytest.mark.parametrize(
    "policy", [ONCE, ONCE.replace(total_timeout=1e6)], ids=["fast path", "loop"]
)
UNSPREAD = RetryPolicy(max_attempts=1, hint_spread=0.0)
BUSY = (503, {"Retry-After": "5"})
MINE, THEIRS = {"Authorization": "Bearer mine"}, {"Authorization": "Bearer theirs"}
SPENT = {"RateLimit": '"default";r=0;t=8', "RateLimit-Policy": '"default";q=100;w=10'}
PLENTY = {"RateLimit": '"default";r=90;t=8', "RateLimit-Policy": '"default";q=100;w=10'}


def a_breaker(failures, **fields):
    slow = {"failure_rate": None, "open_for": 30.0}
    return forbear.CircuitBreaker(failures, **{**slow, **fields})


async def outcome(adapter, client, method="GET", url=URL, **request):
    found = await adapter.outcome(client, method, url, **request)
    return getattr(found, "status_code", found)


@pytest.mark.smoke
async def test_after_five_failures_calls_are_refused_at_once(adapter, quick):
    inner, budget = adapter.watched([503]), RetryBudget(ratio=0, floor_per_second=0)
    options = {"policy": ONCE, "breaker": a_breaker(5), "budget": budget, **quick}
    async with adapter.client(inner, **options) as client:
        assert [await outcome(adapter, client) for _ in range(5)] == [503] * 5
        quick["clock"].advance(10)
        error = await outcome(adapter, client)
    for kind in (adapter.CircuitOpenError, adapter.transport_error, forbear.CircuitOpenError):
        assert isinstance(error, kind)
    assert (error.reason, error.retry_after) == (Reason.CIRCUIT_OPEN, 20.0)
    assert str(error) == f"nothing is sent to {ORIGIN} now: circuit-open, try again in 20 s"
    assert (record_of(error).attempts, record_of(error).reason) == ((), Reason.CIRCUIT_OPEN)
    assert (len(inner.requests), quick["clock"].sleeps) == (5, [])
    assert budget.quiet


@pytest.mark.smoke
async def test_a_probe_that_succeeds_closes_it(adapter, quick):
    breaker = a_breaker(1)
    async with adapter.client([503, 200], policy=ONCE, breaker=breaker, **quick) as client:
        await outcome(adapter, client)
        quick["clock"].advance(30)
        assert [await outcome(adapter, client) for _ in range(3)] == [200] * 3
    assert breaker.quiet


@pytest.mark.smoke("httpx-family", "async")
@special
async def test_a_probe_that_is_cancelled_gives_its_permit_back(adapter, quick, policy):
    statuses = iter([503, *[201] * 100, 200])

    async def slow(request):
        response = adapter.library.Response(next(statuses))
        if response.status_code == 201:
            await anyio.sleep_forever()
        return response

    breaker = a_breaker(1)
    options = {"policy": policy, "breaker": breaker, **quick}
    async with adapter.client(adapter.library.MockTransport(slow), **options) as client:
        await outcome(adapter, client)
        quick["clock"].advance(30)
        for _ in range(100):
            with anyio.move_on_after(0.001):
                await adapter.call(client, "GET", URL)
        assert breaker.refused_for(ORIGIN, quick["clock"].monotonic()) == 0
        assert await outcome(adapter, client) == 200
    assert breaker.quiet


@pytest.mark.smoke("sync")
@special
async def test_an_interrupted_probe_gives_its_permit_back(adapter, quick, policy):
    breaker = a_breaker(1)
    options = {"policy": policy, "breaker": breaker, **quick}
    async with adapter.client([503, KeyboardInterrupt(), 200], **options) as client:
        await outcome(adapter, client)
        quick["clock"].advance(30)
        with pytest.raises(KeyboardInterrupt):
            await adapter.call(client, "GET", URL)
        assert await outcome(adapter, client) == 200
    assert breaker.quiet


@one_lane
async def test_pitfall_68_a_probe_whose_answer_is_never_read_blocks_nobody(adapter, quick, server):
    server.script("/probe", 503, 200)
    breaker = a_breaker(1)
    async with adapter.client(policy=ONCE, breaker=breaker, **quick) as client:
        await outcome(adapter, client, url=server.url + "/probe")
        quick["clock"].advance(30)
        response = await adapter.open(client, "GET", server.url + "/probe")
        assert (response.status_code, breaker.quiet) == (200, True)
        await adapter.close(response)


@pytest.mark.adapters("httpx-family")
async def test_an_attempt_that_the_callers_deadline_cuts_says_nothing(adapter):
    """Unless it had its time."""
    for seconds, limits, counts in (
        *((0.04, {}, False), (0.9, {}, False), (1.2, {}, True)),
        (0.04, {"total_timeout": 0.03}, True),  # our own deadline cuts it
        (0.04, {"total_timeout": 30}, False),
        (0.5, {"attempt_timeout": 0.6}, False),
        (0.7, {"attempt_timeout": 0.6}, True),  # our own timeout ends it
        (0.04, None, True),  # a deadline of the service's own: RetryContextMiddleware(deadline=)
    ):
        clock, gate, breaker = FakeClock(), RetryGate(), a_breaker(3)

        def hang(request, clock=clock):
            clock.advance(request.extensions["timeout"].get("read"))
            raise adapter.library.ReadTimeout("too slow")

        policy = ONCE.replace(**limits or {})
        options = {"policy": policy, "breaker": breaker, "gate": gate}
        async with adapter.client([hang], clock=clock, **options) as client:
            for _ in range(3):
                ends_at = clock.monotonic() + seconds
                with Answering(Incoming(0, ends_at, clock, False, limits is None)):
                    await outcome(adapter, client)
        assert (breaker.state(ORIGIN, clock.monotonic()) == "open") is counts, (seconds, limits)
        assert gate.is_healthy(ORIGIN) is not counts


@pytest.fixture
def still(quick):
    return {**quick, "random": lambda: 0.0}


@pytest.mark.smoke
async def test_all_calls_leave_a_busy_origin_alone(adapter, still):
    """One is told to come back in 5 s: the next one is sent then; other origins are not held."""
    async with adapter.client([BUSY, 200], policy=UNSPREAD, cooldown="all", **still) as client:
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
    policy = UNSPREAD.replace(max_retry_after=10.0)
    async with adapter.client(inner, policy=policy, cooldown="all", **still) as client:
        await outcome(adapter, client)
        still["clock"].advance(20)
        error = await outcome(adapter, client)
        for kind in (adapter.CircuitOpenError, adapter.transport_error):
            assert isinstance(error, kind)
        assert (error.reason, error.retry_after) == (Reason.RETRY_AFTER_TOO_LONG, 30.0)
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
    named = {"budget": budget, "cooldown": "all", "random": lambda: 0.0}
    strategy = forbear.strategies.StandardStrategy(policy, **named)
    async with adapter.client(steps, policy=policy, strategy=strategy, clock=clock) as client:
        return await adapter.outcome(client), clock


@one_lane
async def test_a_call_that_was_held_looks_again(adapter):
    response, clock = await after_told(adapter, 3.0, ["read_error", 200])
    assert (clock.sleeps, record_of(response).waits) == ([4.0], (4.0,))
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


@pytest.mark.smoke
async def test_where_nothing_is_left_the_next_call_waits_for_the_window(adapter, quick):
    inner, clock = [(200, SPENT), (200, PLENTY), (200, PLENTY)], quick["clock"]
    async with adapter.client(inner, pacing=Pacing(), **quick) as client:
        began = clock.monotonic()
        await adapter.call(client, "GET", URL)
        assert clock.monotonic() == began
        response = await adapter.call(client, "GET", URL)
        assert 8 <= clock.monotonic() - began <= 10
        assert 8 <= record_of(response).paced <= 10
        paced_until = clock.monotonic()
        await adapter.call(client, "GET", URL)
        assert clock.monotonic() == paced_until
    # A retry too.
    began, inner = clock.monotonic(), [(500, SPENT), (200, PLENTY)]
    record = record_of(await adapter.once(inner, pacing=Pacing(), **quick))
    assert len(record.attempts) == 2
    assert 8 <= clock.monotonic() - began <= 11
    assert record.paced == pytest.approx(clock.monotonic() - began - sum(record.waits))


async def test_a_call_is_not_paced_beyond_its_deadline_or_for_other_tenants(adapter, quick):
    clock = quick["clock"]
    async with adapter.client([(200, SPENT)], pacing=Pacing(), **quick) as client:
        await adapter.call(client, "GET", URL, headers=MINE)
        began = clock.monotonic()
        await adapter.call(client, "GET", URL, headers=THEIRS)
        with forbear.deadline(3.0, clock=clock):
            await adapter.call(client, "GET", URL, headers=MINE)
        with forbear.override(hints="ignore"):
            await adapter.call(client, "GET", URL, headers=MINE)
        assert clock.monotonic() == began


@pytest.mark.adapters("urllib3-family")
@pytest.mark.parametrize("probes", [False, True])
async def test_the_callers_deadline_opens_no_circuit_and_keeps_no_permit(adapter, server, probes):
    server.script("/hang", "hang")
    breaker = a_breaker(2, open_for=0.001)
    async with adapter.client(policy=ONCE, breaker=breaker) as client:
        origin = server.url
        for _ in range(2 * probes):
            breaker.record(origin, failed=True, sent_at=time.monotonic(), now=time.monotonic())
        time.sleep(0.01)
        for _ in range(3):
            with Answering(Incoming(0, time.monotonic() + 0.04, SYSTEM_CLOCK, False)):
                error = await outcome(adapter, client, url=server.url + "/hang")
            assert type(error) is adapter.DeadlineExceeded
    assert breaker.state(origin, time.monotonic()) == ("half_open" if probes else "closed")
