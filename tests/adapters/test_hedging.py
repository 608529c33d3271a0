"""Hedged requests: a second attempt beside a first one that takes long, over real sockets."""

import asyncio
import gc
import os
import random
import sys
from contextlib import nullcontext, suppress

import anyio
import httpx
import pytest

import forbear.httpx
import forbear.httpx2
import forbear.requests
import forbear.urllib3
from forbear import (
    CircuitBreaker,
    ConcurrencyLimit,
    Hedge,
    IdempotencyKeys,
    RetryBudget,
    RetryGate,
    RetryPolicy,
)
from forbear.addons.incoming import Answering, Incoming
from forbear.engine.clock import SYSTEM_CLOCK
from forbear.httpx import AsyncRetryTransport
from forbear.testing import FaultServer, disabled

from .foreign import collecting_by_hand

pytestmark = pytest.mark.adapters("httpx-family", "async")
AFTER = 0.04  # seconds; the second attempt is sent then
POLICY = RetryPolicy(max_attempts=4, backoff=forbear.Fixed(0))
KEY = {"Idempotency-Key": "k-1"}
WAYS = {"asyncio": ("scope", "deadline", "timeout", "task"), "trio": ("scope", "deadline")}


def hedge(**options):
    return Hedge(**{"delay": AFTER, "at_least": 0, **options})


class Heard(list):
    __call__ = list.append

    @property
    def hedged(self):
        return [event for event in self if event.name == "hedged"]


@pytest.fixture
def heard():
    return Heard()


def told(record):
    """Of each attempt in order of sending: its status, or the name of its error."""
    return [attempt.status or attempt.error for attempt in record.attempts]


# Who is first, and how. Steps are those of the first attempt, the second, and a retry; milliseconds
# count from the arrival of the second one. Expected: what the caller gets, the attempts in order of
# sending (None: cancelled), the outcome of the second attempt, and which attempt did not decide.
TABLE = [
    ("200;delay=300 200;delay=3000", 200, [200, None], "cancelled", "hedge"),
    ("200;delay=3000 200", 200, [None, 200], "won", "first"),
    ("404;delay=300 200;delay=3000", 404, [404, None], "cancelled", "hedge"),
    ("500;delay=300 401", 401, [500, 401], "failed", "first"),
    ("500;delay=300 200;delay=800", 200, [500, 200], "won", "first"),
    ("200;delay=300 500", 200, [200, 500], "failed", "hedge"),
    ("500;delay=300 502;delay=800 200", 200, [500, 502, 200], "failed", "first"),
    ("502;delay=300 500 200", 200, [502, 500, 200], "failed", "first"),
    ("429;delay=300 200;delay=3000 200", 200, [429, None, 200], "cancelled", "hedge"),
    ("500;delay=300;retry-after=0 200;delay=3000 200", 200, [500, None, 200], "cancelled", "hedge"),
    ("500;delay=300 500;retry-after=100", 500, [500, 500], "failed", "first"),
    ("reset;delay=300 200;delay=800", 200, ["reset", 200], "won", "first"),
    ("reset;delay=300 reset;delay=800 200", 200, ["reset", "reset", 200], "failed", "hedge"),
    ("reset;delay=300 500 200", 200, ["reset", 500, 200], "failed", "first"),
    ("hang 200;delay=1500", 200, ["ReadTimeout", 200], "won", "first"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", TABLE, ids=lambda case: case[0])
async def test_the_first_good_answer_is_the_calls(adapter, server, paced, heard, case):
    steps, status, attempts, outcome, kind = case
    server.script("/x", *steps.split())
    after = 1 if "hang" in steps else 0.15  # a busy machine lets the first one arrive before that
    options = {"policy": POLICY, "hedge": hedge(delay=after), "on_event": [heard]}
    options["settings"] = adapter.reading_for(2) if "hang" in steps else {}
    response = await adapter.once(url=server.url + "/x", **options)
    assert response.status_code == status
    record = forbear.record_of(response)
    is_reset = adapter.wire_errors["reset"]
    assert ["reset" if one in is_reset else one for one in told(record)] == attempts
    assert len(server.requests("/x")) == len(attempts)
    first, second, *others = record.attempts
    assert second.hedged_after >= after
    assert all(0 <= one.elapsed < 60 for one in record.attempts)
    assert {one.hedged_after for one in (first, *others)} == {None}
    assert record.retries == len(attempts) - 2
    (event,) = heard.hedged
    assert (event.outcome, event.kind, event.reason) == (outcome, kind, None)
    loser = second if kind == "hedge" else first
    for field in ("status", "error", "failure", "phase"):
        assert getattr(event, field) == getattr(loser, field)


@pytest.mark.slow
async def test_both_attempts_count_against_max_attempts(adapter, server, paced, heard):
    server.script("/x", "500;delay=120", "500;delay=500", 500, 200)
    options = {"policy": POLICY.replace(max_attempts=3), "hedge": hedge(), "on_event": [heard]}
    record = forbear.record_of(await adapter.once(url=server.url + "/x", **options))
    assert told(record) == [500, 500, 500]
    assert record.reason is forbear.Reason.ATTEMPTS_EXHAUSTED
    assert [event.name for event in heard].count("retry_scheduled") == 1


async def upload():
    yield b"abc"


def without_tokens(server, options):
    for _ in range(2):
        assert options["hedge"].times(server.url, "GET").spend()


def without_budget(server, options):
    options["budget"] = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    assert options["budget"].spend(server.url, 1.0, 0.0)


ONE, EXHAUSTED = {"forbear": {"max_attempts": 1}}, "attempts-exhausted"
LISTED = {"hedge": hedge(methods=["PUT"])}
# Method and keywords of a request, options of the client or what is done to them, and the reason;
# None: it is not even wanted.
NONE_SENT = {
    "a method that is not listed": ("POST", {}, {}, None),
    "a key, but not keyed": ("POST", {"headers": KEY}, {}, None),
    "a generated key, but not keyed": ("POST", {}, {"idempotency": IdempotencyKeys()}, None),
    "a method that is listed, with a stream": ("PUT", {"content": upload}, LISTED, None),
    "too few answers known": ("GET", {}, {"hedge": Hedge(at_least=0)}, None),
    "one attempt": ("GET", {}, {"policy": POLICY.replace(max_attempts=1)}, EXHAUSTED),
    "off for this request": ("GET", {"extensions": {"forbear": False}}, {}, EXHAUSTED),
    "one attempt for this request": ("GET", {"extensions": ONE}, {}, EXHAUSTED),
    "one attempt in this block": ("GET", {}, lambda: forbear.override(max_attempts=1), EXHAUSTED),
    "one attempt in a test": ("GET", {}, disabled, EXHAUSTED),
    "no tokens": ("GET", {}, without_tokens, "hedge-budget"),
    "no budget": ("GET", {}, without_budget, "budget-exhausted"),
    "no slot": ("GET", {}, {"concurrency": ConcurrencyLimit(1, adaptive=False)}, "delayed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NONE_SENT)
async def test_there_is_no_second_attempt(adapter, server, paced, heard, name):
    method, request, more, reason = NONE_SENT[name]
    if reason is None:
        paced.begin()
    server.script("/x", "200;delay=140;executes=1")
    options, block = {"policy": POLICY, "hedge": hedge(), "on_event": [heard]}, nullcontext
    if more in (without_tokens, without_budget):
        more(server, options)
    elif callable(more):
        block = more
    else:
        options |= more
    if "content" in request:
        request = {"content": upload()}
    async with adapter.client(**options) as client:
        with block():
            response = await adapter.call(client, method, server.url + "/x", **request)
    assert (response.status_code, len(server.requests("/x"))) == (200, 1)
    assert [(event.outcome, event.reason, event.kind) for event in heard.hedged] == (
        [] if reason is None else [("refused", reason, None)]
    )


@pytest.mark.parametrize(
    "reason",
    ["origin-unhealthy", "circuit-open", "delayed", "origin-strained", "attempts-exhausted"],
)
async def test_an_origin_that_is_not_well_sees_no_hedge(adapter, server, paced, heard, reason):
    server.script("/x", "200;delay=120")
    hedging, gate, block, now = hedge(), RetryGate(), nullcontext(), SYSTEM_CLOCK.monotonic()
    options, request = {}, {}
    if reason == "circuit-open":
        breaker = CircuitBreaker(consecutive_failures=1, open_for=30)

        async def opens(name, _):  # while the first attempt is sent
            if name.endswith("send_request_headers.started"):
                breaker.record(server.url, failed=True, sent_at=now, now=now)

        options, request = {"breaker": breaker}, {"extensions": {"trace": opens}}
    elif reason == "delayed":
        server.script("/told", "429;retry-after=30")
        options = {"cooldown": "retries"}
    elif reason == "origin-unhealthy":
        for _ in range(8):
            gate.bad(server.url, now, sent_at=now, weight=1.0)
        assert not gate.is_healthy(server.url)
    elif reason == "origin-strained":
        times = hedging.times(server.url, "GET")
        for n in range(200):
            times.learn(0.01 if n % 10 else 1.0)
        assert times.is_strained
    else:
        block = Answering(Incoming(1, float("inf"), SYSTEM_CLOCK, False))
    options = {"policy": POLICY, "hedge": hedging, "gate": gate, "on_event": [heard], **options}
    async with adapter.client(**options) as client:
        if reason == "delayed":
            await adapter.call(client, "GET", server.url + "/told", extensions=ONE)
            heard.clear()
        with block:
            response = await adapter.call(client, "GET", server.url + "/x", **request)
    assert (response.status_code, len(server.requests("/x"))) == (200, 1)
    assert [event.reason for event in heard.hedged] == [reason]


@pytest.mark.parametrize("bound", ["total_timeout", "deadline"])
@pytest.mark.smoke
async def test_a_deadline_ends_both_attempts(adapter, server, heard, bound):
    server.script("/x", "hang")
    policy = POLICY.replace(total_timeout=1.0 if bound == "total_timeout" else None)
    async with adapter.client(policy=policy, hedge=hedge(), on_event=[heard]) as client:
        with forbear.deadline(1.0 if bound == "deadline" else 60):
            with anyio.fail_after(30), pytest.raises(adapter.DeadlineExceeded) as caught:
                await adapter.call(client, "GET", server.url + "/x")
        assert adapter.is_idle(client)
    assert len(server.requests("/x")) == 2
    attempts = forbear.record_of(caught.value).attempts
    # Where the event loop was late, the backstop has cut the call, and only the event names both.
    assert len(attempts) == 2 or attempts[0].error == "DeadlineExceeded"
    assert [event.kind is None for event in heard.hedged] == [False]  # both were sent


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "not-keyed"])
async def test_both_attempts_carry_the_same_key(adapter, server, paced, keyed):
    server.script("/x", "500;delay=120", "500;delay=500", 200)
    async with adapter.client(policy=POLICY, hedge=hedge(keyed=keyed)) as client:
        response = await adapter.call(client, "GET", server.url + "/x", headers=KEY)
    # The server tells the second attempt that the key is in use.
    assert told(forbear.record_of(response))[:2] == [500, 409]
    assert {arrival.key for arrival in server.requests("/x")} == {"k-1"}


async def test_a_post_with_a_key_is_hedged_if_asked_for(adapter, server, paced, heard):
    server.script("/x", "200;delay=120")
    options = {"hedge": hedge(keyed=True), "idempotency": IdempotencyKeys(), "on_event": [heard]}
    async with adapter.client(policy=POLICY, **options) as client:
        response = await adapter.call(client, "POST", server.url + "/x", content=b"order")
    assert told(forbear.record_of(response)) == [200, 409]
    first, second = server.requests("/x")
    assert first.key == second.key is not None
    assert first.sha256 == second.sha256
    assert server.executed("/x") == 1
    assert [(event.outcome, event.kind) for event in heard.hedged] == [("failed", "hedge")]


@pytest.mark.smoke
async def test_a_second_attempt_goes_to_another_origin(adapter, server, paced, heard):
    with FaultServer() as other:
        paced.servers.append(other)
        origins = forbear.Origins([server.url, other.url])
        server.script("/x", "500;delay=120", 200)
        other.script("/x", "500;delay=500", 200)
        options = {"hedge": hedge(), "origins": origins, "on_event": [heard]}
        response = await adapter.once(url=server.url + "/x?q=1", policy=POLICY, **options)
        attempts = [(one.origin, one.status) for one in forbear.record_of(response).attempts]
        assert attempts == [(server.url, 500), (other.url, 500), (server.url, 200)]
        (arrived,) = other.requests("/x")
        assert dict(arrived.headers)["Host"] == other.url.removeprefix("http://")
        assert arrived.query == "q=1"
    assert [event.origin for event in heard.hedged] == [other.url]


@pytest.mark.slow
async def test_before_attempt_sees_a_copy_of_the_second_attempt(adapter, server, paced):
    server.script("/x", "500;delay=120", "500;delay=500", 200)

    def sign(request, attempt):
        assert "X-Signed" not in request.headers
        request.headers["X-Signed"] = str(attempt)

    async with adapter.client(policy=POLICY, hedge=hedge(), before_attempt=sign) as client:
        request = client.build_request("GET", server.url + "/x")
        response = await adapter.send_on(client, request)
    assert told(forbear.record_of(response)) == [500, 500, 200]
    assert "X-Signed" not in request.headers
    signed = [dict(arrival.headers).get("X-Signed") for arrival in server.requests("/x")]
    assert signed == [None, "2", "3"]


async def test_before_attempt_of_a_second_attempt_may_use_its_slot(adapter, server, paced):
    server.script("/x", "hang", 200)
    limit = ConcurrencyLimit(2, adaptive=False)

    async def log_in(request, attempt):
        await adapter.call(client, "GET", server.url + "/login")

    options = {"hedge": hedge(), "concurrency": limit, "before_attempt": log_in}
    async with adapter.client(policy=POLICY, **options) as client:
        with anyio.fail_after(30):
            response = await adapter.call(client, "GET", server.url + "/x")
    assert (response.status_code, len(server.requests("/login"))) == (200, 1)
    assert limit.in_flight() == 0


@pytest.mark.parametrize("ends", ["raises", "too-late"])
async def test_a_second_attempt_that_is_not_sent_costs_nothing(adapter, server, paced, heard, ends):
    server.script("/x", "200;delay=120")
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    hedging = hedge(burst=1)

    async def hook(request, attempt):
        paced.begin()
        if ends == "raises":
            raise ZeroDivisionError
        await anyio.sleep_forever()

    options = {"hedge": hedging, "budget": budget, "before_attempt": hook, "on_event": [heard]}
    async with adapter.client(policy=POLICY, **options) as client:
        with anyio.fail_after(30):
            response = await adapter.call(client, "GET", server.url + "/x")
        now = client._transport.port.clock.monotonic()
    assert len(server.requests("/x")) == len(forbear.record_of(response).attempts) == 1
    assert budget.tokens(server.url, now) == 20
    assert hedging.times(server.url, "GET").spend()
    expected = ("refused", "hook-failed") if ends == "raises" else ("cancelled", None)
    assert [(event.outcome, event.reason) for event in heard.hedged] == [expected]


def tasks_of(adapter):
    """Tasks that were begun, but for those of the test and of the library's."""
    if adapter.flavour == "asyncio":
        return len(asyncio.all_tasks())
    import trio

    return trio.lowlevel.current_statistics().tasks_living


async def eventually(condition):
    for _ in range(3_000):
        if condition():
            return True
        await anyio.sleep(0.01)
    return False


@pytest.mark.smoke
async def test_the_loser_leaves_connection_slot_cookies_and_task_behind(adapter, server):
    loser, winner = "200;delay=3000;header=Set-Cookie:a=1", "200;header=Set-Cookie:b=1"
    server.script("/x", *[loser, winner] * 10)
    server.script("/y", *[f"{winner};delay=40", loser] * 10)
    hedging = Hedge(delay=0.02, at_least=0, burst=100)
    async with adapter.client(policy=POLICY, hedge=hedging, **adapter.pool_of(2)) as client:
        await adapter.call(client, "GET", server.url + "/z")
        await anyio.sleep(0.05)  # the alarm that is not needed any more
        before = tasks_of(adapter)  # perhaps with that of the alarm
        for n in range(20):
            with anyio.fail_after(30):
                response = await adapter.call(client, "GET", server.url + ("/x", "/y")[n % 2])
            assert response.status_code == 200
            assert adapter.is_idle(client)
        assert dict(client.cookies) == {"b": "1"}
        assert await eventually(lambda: tasks_of(adapter) <= before)
        (first,) = client._transport.port.settings.layers
        assert not first.of_thread.alarms.pending


def beside(adapter, first=anyio.sleep_forever, others=None):
    """An inner transport: ``first()`` comes before the first response, if ever."""
    sent = []

    async def answer(request):
        sent.append(request)
        if len(sent) == 1:
            await first()
        elif others is not None:
            await others()
        return adapter.library.Response(200, content=b"%d" % len(sent))

    return adapter.library.MockTransport(answer)


@pytest.mark.smoke("httpx-family", "asyncio")
@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_a_deadline_while_a_loser_is_closed_loses_nothing(
    adapter, server, paced, rounds, monkeypatch
):
    limit_of, limits = anyio.move_on_after, []
    monkeypatch.setattr(anyio, "move_on_after", lambda s: limits.append(limit_of(s)) or limits[-1])
    server.script("/x", "500;delay=120;body=9000", "200;delay=600", 200)

    def count_down(left):
        if left:
            asyncio.get_running_loop().call_soon(count_down, left - 1)
        else:
            limits[-1].cancel()

    class Inner(adapter.inner_class):
        async def handle_async_request(self, request):
            response = await super().handle_async_request(request)
            if response.status_code == 500:
                close = response.stream.aclose

                async def aclose():
                    count_down(rounds)
                    await close()

                response.stream.aclose = aclose
            return response

    inner = Inner(verify=False, limits=adapter.library.Limits(max_connections=2))
    async with adapter.client(inner, policy=POLICY, hedge=hedge()) as client:
        with forbear.deadline(60), suppress(adapter.DeadlineExceeded):
            await adapter.call(client, "GET", server.url + "/x")
        assert adapter.is_idle(client)
        for _ in range(2):
            assert (await adapter.call(client, "GET", server.url + "/x")).status_code == 200


async def test_a_call_may_be_cancelled_while_both_attempts_are_under_way(adapter, server, heard):
    server.script("/x", "hang")
    async with adapter.client(policy=POLICY, hedge=hedge(), on_event=[heard]) as client:
        task = asyncio.ensure_future(adapter.call(client, "GET", server.url + "/x"))
        while len(server.requests("/x")) < 2:
            await anyio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert adapter.is_idle(client)
    assert [event.outcome for event in heard.hedged] == ["cancelled"]


@pytest.mark.smoke
async def test_a_question_about_the_second_answer_holds_up_no_first(adapter, server, paced):
    server.script("/x", "200;delay=120;body=1", "200;body=2")

    async def asked(response):
        if response.headers["content-length"] == "2":
            await anyio.sleep_forever()

    async with adapter.client(policy=POLICY, hedge=hedge(), retry_if=asked) as client:
        with anyio.fail_after(30):
            response = await adapter.call(client, "GET", server.url + "/x")
        assert len(response.content) == 1
        assert adapter.is_idle(client)
    assert told(forbear.record_of(response)) == [200, None]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("way", ["loops", "fork"])
def test_a_transport_serves_loops_one_after_the_other(server, way):
    server.script("/x", *["200;delay=20000", 200] * 4)
    limits = httpx.Limits(max_keepalive_connections=0)
    inner = httpx.AsyncHTTPTransport(verify=False, limits=limits)
    transport = AsyncRetryTransport(inner, policy=POLICY, hedge=hedge(burst=9))

    async def call():
        request = httpx.Request("GET", server.url + "/x")
        response = await transport.handle_async_request(request)
        await response.aread()
        return told(forbear.record_of(response))

    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(call, backend=backend) == [None, 200]
    if way == "fork":
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if anyio.run(call) == [None, 200] else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_synchronous_clients_say_why_they_take_no_hedge():
    for kind in (
        *(forbear.httpx.RetryTransport, forbear.httpx2.RetryTransport),
        *(forbear.requests.RetryAdapter, forbear.urllib3.RetryPoolManager),
    ):
        with pytest.raises(TypeError, match="would need a thread"):
            kind(hedge=Hedge())


async def cut_short(way, call, seconds):
    """Make a call that is cancelled after so many seconds; the cancellation must reach it."""
    if way == "scope":
        with anyio.move_on_after(seconds):
            await call()
    elif way == "deadline":
        with forbear.deadline(seconds + 0.001):
            await call()
    elif way == "timeout":
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await call()
        assert asyncio.current_task().cancelling() == 0
    else:
        task = asyncio.create_task(call())
        await asyncio.sleep(seconds)
        is_cancelled = task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled() == is_cancelled


@pytest.mark.release
@pytest.mark.smoke
async def test_calls_cancelled_at_random_instants_leave_nothing_behind(adapter, server):
    """500 calls for each way to be cancelled. httpcore itself loses connections to the last two."""
    chance = random.Random(7)
    steps = ["200", "200;delay=3", "200;delay=6", "500", "503", "reset", "200;body=9000", "404"]
    before = tasks_of(adapter)
    for way in WAYS[adapter.flavour]:
        server.script("/x", *chance.choices(steps, k=3000), "200")
        server.script("/y", "200")
        hedging = Hedge(delay=0.002, at_least=0, ratio=1, burst=9999)
        options = {"hedge": hedging, "policy": POLICY, "gate": RetryGate(), **adapter.pool_of(6)}
        async with adapter.client(**options) as client:

            async def call():
                with suppress(adapter.transport_error):
                    await adapter.call(client, "GET", server.url + "/x")

            async def calls(_, way=way, call=call):
                for _ in range(125):
                    # The longer ones let a busy machine get as far as a second attempt.
                    await cut_short(way, call, chance.random() * chance.choice((0.012, 0.1)))

            with anyio.fail_after(60):
                await adapter.together(4, calls)
            port = client._transport.port
            assert await eventually(lambda: tasks_of(adapter) <= before), way
            (first,) = port.settings.layers
            assert not first.of_thread.alarms.pending
            assert port.settings.limits.gate.held() == 0
            if way in ("scope", "deadline"):
                # The loser of the last call may be closing still.
                assert await eventually(lambda client=client: adapter.is_idle(client)), way
                for _ in range(6):
                    response = await adapter.call(client, "GET", server.url + "/y")
                    assert response.status_code == 200
    assert any(arrival.nth > 1 for arrival in server.requests("/x"))


@pytest.mark.adapters("httpx", "asyncio")
def test_an_interruption_of_the_loser_is_not_taken_for_its_cancellation(adapter):
    async def interrupted():
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    async def call():
        inner = beside(adapter, interrupted)
        transport = adapter.forbear.AsyncRetryTransport(inner, hedge=hedge())
        await transport.handle_async_request(adapter.library.Request("GET", "http://a/"))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(call())


@pytest.mark.adapters("httpx", "asyncio")
@pytest.mark.parametrize(
    ("way", "is_late"), [("scope", False), ("scope", True), ("timeout", False)]
)
async def test_a_cancellation_of_the_first_attempts_own_ends_no_hedge(adapter, is_late, way):
    """As anyio cancels the attempts to connect that are not needed any more."""
    own = None

    async def first():
        nonlocal own
        if way == "scope":
            with anyio.CancelScope() as own:
                await wait_for_it()
        else:
            async with asyncio.timeout(None) as own:
                await wait_for_it()
        await anyio.sleep_forever()

    async def wait_for_it():
        if not is_late:
            cancel()
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        await asyncio.sleep(AFTER * 1.25)

    def cancel():
        own.cancel() if way == "scope" else own.reschedule(0)

    async def others():
        if is_late:
            cancel()

    with anyio.fail_after(20):
        response = await adapter.once(beside(adapter, first, others), hedge=hedge())
    assert response.content == b"2"
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.smoke
async def test_the_breaker_hears_of_an_attempt_that_fails_and_loses(adapter, server, paced, heard):
    server.script("/x", "500;delay=120", "200;delay=500")
    breaker = CircuitBreaker(consecutive_failures=1, open_for=30, mode="observe")
    options = {"hedge": hedge(), "breaker": breaker, "on_event": [heard]}
    assert (await adapter.once(url=server.url + "/x", policy=POLICY, **options)).status_code == 200
    moved = [event.to_state for event in heard if event.name == "circuit_transition"]
    assert moved[:1] == ["open"]


@pytest.mark.smoke
@pytest.mark.skipif(sys.implementation.name != "cpython", reason="it counts no references")
@pytest.mark.parametrize(
    "steps",
    [("200;delay=3000", "200"), ("close;delay=120", "200;delay=160"), ("200;delay=120", "close")],
)
async def test_nothing_of_a_race_waits_for_the_garbage_collector(adapter, server, steps):
    """Errors of the library hold each other; those of an attempt that lost hold nothing more."""

    async def call():
        server.script("/x", *steps)
        with suppress(adapter.transport_error):
            await adapter.call(client, "GET", server.url + "/x")

    async with adapter.client(policy=POLICY, hedge=hedge(burst=9)) as client:
        await call()
        flags = gc.get_debug()
        with collecting_by_hand():
            await call()
            await anyio.sleep(0.01)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            gc.set_debug(flags)
            found = {type(one).__name__ for one in gc.garbage}
            gc.garbage.clear()
    assert found.isdisjoint(("HedgedCall", "Call"))


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="it counts no references")
async def test_nor_does_an_attempt_that_fails_as_it_is_cut_off(adapter):
    second = anyio.Event()

    async def failing():
        second.set()
        try:
            await anyio.sleep_forever()
        except BaseException as cancelled:
            cancelled.error = adapter.library.ReadError("")
            raise cancelled.error from cancelled

    inner = beside(adapter, second.wait, failing)
    transport = adapter.forbear.AsyncRetryTransport(inner, hedge=hedge())
    with collecting_by_hand():
        await transport.handle_async_request(adapter.library.Request("GET", "http://a/"))
        await anyio.sleep(0.01)
        assert [one for one in gc.get_objects() if type(one).__name__ == "HedgedCall"] == []
    assert second.is_set()


def test_a_hedge_does_not_wait_for_another_loops_connection():
    """Two loops that take turns in a thread: what the other has left in the pool cannot be read."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    with FaultServer() as server:
        server.script("/slow", "200;delay=3000", 200)
        client = httpx.AsyncClient(transport=AsyncRetryTransport(hedge=hedge(delay=0.1)))
        call = first.create_task(client.get(server.url + "/slow"))
        first.run_until_complete(asyncio.sleep(0.01))
        second.run_until_complete(client.get(server.url))
        response = first.run_until_complete(call)
        first.run_until_complete(client.aclose())
    for loop in (first, second):
        loop.run_until_complete(asyncio.sleep(0))  # where what the other has closed ends
        loop.close()
    assert forbear.record_of(response).attempts[1].status == 200  # of the hedge
