"""retry_if: the caller's own word about an answer, with a look into its body."""

import functools
import gzip
import json

import anyio
import anyio.lowlevel
import pytest
import requests

import forbear
from forbear import Fixed, Reason, RetryPolicy, record_of

from ..lanes import URL
from .origin import Answer, Origin

NOW = RetryPolicy(backoff=Fixed(0), max_attempts=3)
JSON = {"Content-Type": "application/json"}
PENDING = json.dumps({"state": "pending", "why": "x" * 3000}).encode()
DONE = json.dumps({"state": "done", "why": "y" * 3000}).encode()
ENDLESS = ("text/event-stream", "multipart/x-mixed-replace", "text/plain")
CHUNKED = {"chunked": True, "cut": 12, "stall": True}


def state_is(word, seen=None, *, is_async):
    """A retry_if of a flavour: True if the body's state is ``word``."""

    def judge(response):
        found = response.json()["state"]
        if seen is not None:
            seen.append(found)
        return True if found == word else None

    async def ajudge(response):
        await response.aread()
        return judge(response)

    return ajudge if is_async else judge


@pytest.mark.smoke
async def test_true_fails_false_ends_and_none_leaves_it(adapter, quick):
    for status, word, sent, reason in (
        *((status, True, 3, Reason.ATTEMPTS_EXHAUSTED) for status in (200, 404)),
        (503, None, 3, Reason.ATTEMPTS_EXHAUSTED),
        *((404, word, 1, Reason.STATUS_NOT_RETRIED) for word in (None, False)),
        *((503, False, 1, Reason.CALLER_SAID_NO), (200, False, 1, None)),
    ):
        inner = adapter.watched([status])
        options = {"policy": NOW, "retry_if": lambda response, word=word: word, **quick}
        response = await adapter.once(inner, **options)
        assert (response.status_code, len(inner.requests)) == (status, sent), word
        assert record_of(response).reason is reason


async def test_any_other_answer_is_none_and_a_mistake(adapter, quick, logged):
    """A truthy one would else send every good request four times; it is logged once."""
    wrong = {"str": "yes"} if adapter.is_async else {"str": "yes", "coroutine": is_pending}
    for name, found in wrong.items():
        inner = adapter.watched([200])

        def judge(response, found=found):
            return found(response) if callable(found) else found

        async with adapter.client(inner, policy=NOW, retry_if=judge, **quick) as client:
            for _ in range(2):
                await adapter.call(client, "GET", URL)
        assert len(inner.requests) == 2
        says = f"retry_if returned {name}; the call goes on without it (logged once)"
        assert [line for line in logged() if name in line] == [says]


async def is_pending(response, status=202):
    await anyio.lowlevel.checkpoint()
    return getattr(response, "status_code", None) == status or None


class Asker:
    async def __call__(self, response):
        return await is_pending(response)


ASYNCHRONOUS = [is_pending, functools.partial(is_pending, status=202), Asker()]


@pytest.mark.smoke("async")
async def test_it_may_be_a_coroutine_function(adapter, quick):
    for retry_if in (*ASYNCHRONOUS, lambda response: is_pending(response)):
        inner = adapter.watched([202, 503, 202, 200])
        options = {"policy": NOW.replace(max_attempts=4), "retry_if": retry_if, **quick}
        response = await adapter.once(inner, url=URL, **options)
        assert (response.status_code, len(inner.requests)) == (200, 4), retry_if


@pytest.mark.smoke("sync")
async def test_a_synchronous_client_refuses_a_coroutine_function(adapter):
    says = "is synchronous and would not await retry_if"
    for retry_if in ASYNCHRONOUS:
        with pytest.raises(TypeError, match=says):
            async with adapter.client([200], retry_if=retry_if):
                pass
    if adapter.name == "requests":
        with pytest.raises(TypeError, match=f"RetryAdapter {says}"):
            forbear.requests.mount(requests.Session(), retry_if=is_pending)


@pytest.mark.smoke("async")
async def test_an_awaited_one_ends_at_the_deadline(adapter, quick):
    async def forever(response):
        await anyio.sleep_forever()

    inner = adapter.watched([200])
    policy = NOW.replace(total_timeout=0.1)
    async with adapter.client(inner, policy=policy, retry_if=forever) as client:
        with anyio.fail_after(30), pytest.raises(adapter.DeadlineExceeded):
            await adapter.call(client, "GET", URL)
    assert all(inner.closings)


def pending_then_done(status=200, then=200, lines=JSON, code=bytes, **named):
    return [
        Answer(status=status, lines=lines, content=code(PENDING), **named),
        Answer(status=then, lines=lines, content=code(DONE), **named),
    ]


ZIPPED = {"lines": {**JSON, "Content-Encoding": "gzip"}, "code": gzip.compress}
SHAPES = {
    "known": pending_then_done(),
    "chunked": pending_then_done(chunked=True),
    "gzip": pending_then_done(**ZIPPED),
    "gzip, chunked": pending_then_done(**ZIPPED, chunked=True),
    "404": pending_then_done(404, 404, lines=(), chunked=True),
    "503": pending_then_done(503),
}


@pytest.mark.smoke
async def test_it_reads_the_body_and_the_caller_gets_it_whole(adapter, quick):
    plain = []  # httpx loads a body that a plain function of an asynchronous client wants
    if adapter.is_async and adapter.name != "aiohttp":
        plain = [(shape, SHAPES[shape], False) for shape in ("known", "chunked")]
    for shape, answers, is_async in [*((*one, adapter.is_async) for one in SHAPES.items()), *plain]:
        seen = []
        judge = state_is("pending", seen, is_async=is_async)
        policy = NOW.replace(total_timeout=60 if "chunked" in shape else None)
        options = {"policy": policy, "retry_if": judge, **quick}
        with Origin(b"", answers) as origin:
            response = await adapter.once(url=origin.url, **options)
            assert response.content == DONE, shape
            assert origin.connections == 1
        assert seen == ["pending", "done"]


# No smoke: the oldest urllib3 has no read1().
@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(lines={"Content-Type": kind}, **CHUNKED) for kind in ENDLESS),
        Answer(lines={**JSON, "Content-Length": "65537"}, cut=7, stall=True),
    ],
)
async def test_a_body_that_may_not_end_is_not_waited_for(adapter, quick, logged, elapsed, answer):
    """Nor lost."""
    options = {"policy": NOW, "retry_if": state_is("pending", is_async=adapter.is_async), **quick}
    with Origin(b"7 bytes", [answer]) as origin:
        async with adapter.client(settings=adapter.reading_for(60), **options) as client:
            elapsed()
            response = await adapter.open(client, "GET", origin.url)
            assert elapsed() < 30
            got = bytearray()
            if adapter.is_async:
                async with anyio.create_task_group() as group:
                    group.start_soon(adapter.collect, response, got)
                    with anyio.fail_after(30):
                        while len(got) < 7:
                            await anyio.sleep(0.005)
                    group.cancel_scope.cancel()
            else:
                got += next(response.iter_raw()) if adapter.name == "httpx" else response.read1(7)
            assert got == b"7 bytes"
            await adapter.close(response)
    says = "retry_if raised BodyNotShown; the call goes on without it (logged once)"
    assert logged() == [says]


@pytest.mark.smoke
async def test_a_body_that_breaks_under_it_is_a_broken_body(adapter, quick, logged):
    options = {"policy": NOW, "retry_if": state_is("pending", is_async=adapter.is_async), **quick}
    whole = Answer(lines=JSON, chunked=True)
    for status in (503, 404, 200):
        broken = Answer(lines=JSON, chunked=True, cut=500, status=status)
        with Origin(DONE, [broken, whole]) as origin:
            async with adapter.client(**options) as client:
                response = await adapter.download(client, origin.url)
        assert response.content == DONE
        assert len(record_of(response).attempts) == 2
    with Origin(DONE, [broken]) as origin, pytest.raises(adapter.cut_error):
        async with adapter.client(**options) as client:
            await adapter.download(client, origin.url)
    assert (len(origin.requests), logged()) == (3, [])


OF_VENDORS = {"Content-Type": "application/json; charset=UTF-8"}
POLICY = RetryPolicy(backoff=Fixed(1.0), max_attempts=3)
INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
WAIT = json.dumps({"error": {"code": 429, "details": [INFO], "why": "x" * 2000}}).encode()
SPENT = json.dumps({"error": {"code": "insufficient_quota", "why": "x" * 2000}}).encode()
ZIPPED = {**OF_VENDORS, "Content-Encoding": "gzip"}
SEVEN = 7.875  # seconds: and half of a quarter of that on top


def busy(status=429, lines=OF_VENDORS, content=WAIT, **named):
    return Answer(status=status, lines=lines, content=content, **named)


HINTS = [
    *((busy(), SEVEN), (busy(503, chunked=True), SEVEN)),
    (busy(lines=ZIPPED, content=gzip.compress(WAIT)), SEVEN),
    (busy(lines={**OF_VENDORS, "Retry-After": "3"}), 3.375),  # a header wins
    *((busy(lines=()), 1.0), (busy(chunked=True, cut=900), 1.0)),  # no JSON; broken
    (busy(content=WAIT + b" " * 65_536), 1.0),  # too long
]


async def test_the_delay_in_the_body_is_the_servers_hint(adapter, quick):
    look = state_is("pending", is_async=adapter.is_async)
    options = {"policy": POLICY.for_vendors("google"), **quick}
    for answer, waited in [*HINTS, HINTS[0]]:
        if quick["clock"].sleeps and answer is HINTS[0][0]:
            options["retry_if"] = look  # reads the body too
        quick["clock"].sleeps.clear()
        with Origin(b"ok", [answer, Answer()]) as origin:
            assert (await adapter.once(url=origin.url, **options)).content == b"ok"
        assert sum(quick["clock"].sleeps) == pytest.approx(waited), answer


@pytest.mark.smoke
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_no_in_the_body_ends_the_call_and_the_body_is_the_callers(adapter, quick, chunked):
    options = {"policy": POLICY.for_vendors("openai"), **quick}
    with Origin(b"", [busy(content=SPENT, chunked=chunked)]) as origin:
        async with adapter.client(**options) as client:
            response = await adapter.call(client, "GET", origin.url)
            streamed = await adapter.download(client, origin.url)
    assert response.content == streamed.content == SPENT
    assert record_of(response).reason is record_of(streamed).reason is Reason.SERVER_SAID_NO
    assert len(origin.requests) == 2


async def test_a_policy_without_vendors_reads_no_word(adapter, quick):
    options = {"policy": POLICY, **quick}
    with Origin(b"", [busy(content=SPENT)]) as origin:
        async with adapter.client(**options) as client:
            await adapter.call(client, "GET", origin.url)
            assert len(origin.requests) == 3
            with forbear.override(vendors=["openai"]):
                await adapter.call(client, "GET", origin.url)
            assert len(origin.requests) == 4


@pytest.mark.slow
async def test_a_slow_body_of_unknown_length_is_put_back(adapter, logged, quickest):
    answer = Answer(lines=JSON, chunked=True, drip=0.02)  # 30 bytes with the framing: 0.6 s
    options = {
        "policy": NOW,
        "retry_if": state_is("pending", is_async=adapter.is_async),
        "random": lambda: 0.5,
    }
    opened = []
    with Origin(b'{"state": "pending"}', [answer]) as origin:
        async with adapter.client(**options) as client:

            async def run():
                opened.append(await adapter.open(client, "GET", origin.url))

            assert await quickest(run, bound=0.55) < 0.55
            for response in opened:
                assert await adapter.read(response) == b'{"state": "pending"}'
    assert "BodyNotShown" in logged()[0]


@pytest.mark.slow
async def test_a_slow_body_is_put_back_once_for_it_and_for_the_reader_of_hints(adapter):
    look = state_is("pending", is_async=adapter.is_async)
    policy = RetryPolicy(max_attempts=1).for_vendors("google")
    short, long = b'{"state": "pending"}', PENDING * 3
    # Of the long one bytes are there when the time is over. No chunks: a read that waits for the
    # rest of the line of one cannot be given up.
    lines = {**JSON, "Content-Length": None}
    drips = ((short, 0.03), (long, 0.00001))
    answers = [busy(content=one, lines=lines, cut=len(one), drip=drip) for one, drip in drips]
    with Origin(b"", answers) as origin:
        async with adapter.client(policy=policy, retry_if=look) as client:
            for whole in (short, long):
                response = await adapter.open(client, "GET", origin.url)
                assert await adapter.read(response) == whole


@pytest.mark.adapters("plain-bodies")
async def test_an_answer_without_a_body_has_an_empty_one(adapter, server, quick):
    seen = []

    def look(response):
        seen.append(response.data if adapter.name == "urllib3" else response.content)

    for method, step in (("HEAD", "200;body=200000"), ("GET", "204")):
        server.script("/thing", step)
        async with adapter.client(policy=NOW, retry_if=look, **quick) as client:
            response = await adapter.download(client, server.url + "/thing", method)
        assert response.content == b""
    assert seen == [b"", b""]
