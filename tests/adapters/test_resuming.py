"""A body that breaks after it was handed over is gone on with, or the error that broke it stands.

The server's content has a period of 16 bytes; no offset here is a multiple of 16, so that a part of
another place shows. What is missing of 200,000 bytes after 70,001 are those 70,001 to 199,999.
"""

import random
from contextlib import nullcontext, suppress

import pytest

import forbear
from forbear import CircuitBreaker, FailureKind, Fixed, Reason, RetryBudget, RetryPolicy
from forbear.events import AttemptFailed, GaveUp, Resumption, RetryScheduled
from forbear.strategies import Phase
from forbear.testing import answer
from forbear.testing.steps import parse_step

from .origin import Answer, Origin

family = pytest.mark.adapters("httpx-family")

SIZE = 200_000
WHOLE = parse_step(f"200;body={SIZE}").content
OF_V1 = f";body={SIZE};etag=v1"
CUT = f"cut:70001{OF_V1}"
LONG = ";body=700000;etag=v1"  # more than 10 times 64 KiB
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0))


def at(place, more="", *, tag="v1", sent=None):
    """A part that a script makes itself: the rest from there, unless told otherwise."""
    where = f"header=Content-Range:bytes {place}-{SIZE - 1}/{SIZE}"
    body = (WHOLE * 2)[place:][: SIZE - place if sent is None else sent]
    return answer(f'206;header=ETag:"{tag}";{where}{more}', body=body)


def ranges(server, path="/file"):
    found = [{name.lower(): value for name, value in one.headers} for one in server.requests(path)]
    return [(fields.get("range"), fields.get("if-range")) for fields in found]


@pytest.fixture
def options(quick, budget):
    return {**quick, "policy": POLICY, "budget": budget}


async def test_a_broken_download_goes_on_where_it_broke(adapter, server, options):
    """RFC 9110 sections 14.1.2 and 13.1.5: one request for what is missing, if nothing changed."""
    places = [("cut", 0), ("cut", 70_001), ("cut", SIZE - 1)]
    for fault, place in [*places, ("reset-body", 1), ("reset-body", 70_001)]:
        path = f"/{fault}-{place}"
        server.script(path, f"{fault}:{place}{OF_V1}", f"200{OF_V1}")
        async with adapter.client(**options) as client:
            response = await adapter.download(client, server.url + path)
            assert adapter.is_idle(client)
        assert (response.content, response.status_code) == (WHOLE, 200)
        record = forbear.record_of(response)
        [resumed] = record.resumed
        assert ranges(server, path) == [(None, None), (f"bytes={resumed}-", '"v1"')]
        # A reset may take what was sent before.
        assert resumed == place if fault == "cut" else resumed <= place
        assert [attempt.status for attempt in record.attempts] == [None, 206]
        assert record.attempts[0].phase is Phase.ANSWERED
        assert record.reason is None
        assert f"resumed at {resumed}" in str(record)


FAR = random.Random(9).randbytes(700_000)
NOTHING, V2 = Answer(status=304, content=b""), {"ETag": '"v2"'}
SERVERS = {
    "64 KiB each": [Answer(65_536)],
    "a tenth each": [Answer(70_000)],
    "little each": [Answer(20_001)],
    "a failure between": [Answer(70_001), Answer(0)] * 9,
    "ignores ranges": [Answer(100_000, ranges=False)],
    "ignores ranges, further each time": [Answer(70_000 * n, ranges=False) for n in range(1, 10)],
    "416": [Answer(100_000, rest=Answer(status=416, content=b""))],
    "304": [Answer(100_000, rest=NOTHING)],
    "another version": [Answer(100_000, rest=Answer(100_000, lines=V2))],
    "half a head": [Answer(100_000, rest=Answer(head_cut=30))],
    "gone": [Answer(100_000, rest=Answer(status=404, content=b""))],
}


def any_server(seed):
    """Twelve answers of a server that does anything; the last one repeats."""
    chance, found = random.Random(seed), []
    for cut in chance.choices((0, 1, 20_001, 65_536, 70_001, 200_001, None), k=12):
        kinds = [{}, {}, {"ranges": False}, {"lines": V2}, {"status": 503}, {"rest": NOTHING}]
        found.append(Answer(cut, **chance.choice([*kinds, {"rest": Answer(head_cut=60)}])))
    return found


@pytest.mark.smoke
@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_no_server_has_a_download_requested_without_end(adapter, quick, is_streamed):
    """Requests ≤ max_attempts + bytes that came / 64 KiB, however the body is read."""
    async with adapter.client(**quick, policy=POLICY, budget=None) as client:
        for name, answers in [*SERVERS.items(), *((n, any_server(n)) for n in range(20))]:
            with Origin(FAR, answers) as origin:
                with suppress(adapter.transport_error):
                    fetch = adapter.download if is_streamed else adapter.call
                    response = await fetch(client, method="GET", url=origin.url)
                    assert response.content == FAR or response.status_code == 404, name
                assert len(origin.requests) <= 3 + origin.furthest // 65_536, name


async def test_a_resumption_is_under_the_budget(adapter, server, options):
    events = []
    options["budget"] = RetryBudget(ratio=0, floor_per_second=0, burst=1, hinted_cost=1)
    server.script("/file", f"cut:70001{LONG}")
    async with adapter.client(**options, on_event=[events.append]) as client:
        with pytest.raises(adapter.cut_error) as caught:
            await adapter.download(client, server.url + "/file")
    record = forbear.record_of(caught.value)
    assert record.resumed == tuple(70_001 * n for n in range(1, 6))
    assert record.reason is Reason.BUDGET_EXHAUSTED
    assert isinstance(events[-1], GaveUp)
    assert [event.result for event in events if isinstance(event, Resumption)] == ["resumed"] * 5


async def test_a_hint_of_an_answer_to_a_resumption_is_kept(adapter, server, options):
    server.script("/file", CUT, "503;retry-after=7", f"200{OF_V1}")
    server.script("/later", CUT, "503;retry-after=61", f"200{OF_V1}")
    async with adapter.client(**options) as client:
        response = await adapter.download(client, server.url + "/file")
        assert response.content == WHOLE
        # 7 s and half of a quarter of that on top
        assert options["clock"].sleeps == [1.0, pytest.approx(7.875)]
        with pytest.raises(adapter.cut_error) as caught:
            await adapter.download(client, server.url + "/later")
    assert ranges(server)[1:] == [("bytes=70001-", '"v1"')] * 2
    assert forbear.record_of(caught.value).reason is Reason.RETRY_AFTER_TOO_LONG
    assert len(server.requests("/later")) == 2


DIFFERENT = [
    f"200;body={SIZE};etag=v2",
    f'200;body={SIZE};header=ETag:"v1"',  # the range ignored
    *(at(70_001, tag="v2"), at(70_002), at(70_001, ";header=Content-Encoding:gzip")),
    f"416;header=Content-Range:bytes */{SIZE}",  # but something is missing
    *("304", "204", "404", "302;header=Location:/other"),
    "503",  # to the last
]


@pytest.mark.parametrize("step", DIFFERENT)
async def test_what_does_not_fit_is_the_original_error(adapter, server, options, step):
    events, got = [], bytearray()
    server.script("/file", CUT, step)
    async with adapter.client(**options, on_event=[events.append]) as client:
        response = await adapter.open(client, "GET", server.url + "/file")
        with pytest.raises(adapter.cut_error) as caught:
            await adapter.collect(response, got)
        await adapter.close(response)
        assert adapter.is_idle(client)
    assert WHOLE[:70_001].startswith(bytes(got))
    if "httpx-family" in adapter.words:
        assert len(got) == 70_001
        assert "received 70001 bytes" in str(caught.value)
    is_exhausted = step == "503"
    assert len(server.requests("/file")) == 2 + is_exhausted
    assert server.requests("/other") == []
    record = forbear.record_of(caught.value)
    reason = Reason.ATTEMPTS_EXHAUSTED if is_exhausted else Reason.RESPONSE_DELIVERED
    assert (record.reason, record.resumed) == (reason, ())
    told = [event[3:6] for event in events if isinstance(event, Resumption)]
    assert told == [(70_001, SIZE, "failed")]


async def test_the_callers_own_range_resumes_as_that_range(adapter, server, options):
    for asked, expected, again in (
        ("bytes=1001-", slice(1001, None), "bytes=71002-"),
        ("bytes=1001-150000", slice(1001, 150_001), "bytes=71002-150000"),
        ("bytes=-190001", slice(SIZE - 190_001, None), f"bytes={SIZE - 120_000}-"),
    ):
        server.script(f"/{asked}", CUT, f"200{OF_V1}")
        async with adapter.client(**options) as client:
            url = f"{server.url}/{asked}"
            response = await adapter.download(client, url, headers={"range": asked})
        assert (response.status_code, response.content) == (206, WHOLE[expected])
        assert ranges(server, f"/{asked}") == [(asked, None), (again, '"v1"')]


@pytest.mark.parametrize(("first", "more", "method"), [
    (f"cut:70001;body={SIZE}", {}, "GET"),  # no validator
    (f'cut:70001;body={SIZE};header=ETag:W/"v1"', {}, "GET"),
    (f"{CUT};header=Accept-Ranges:none", {}, "GET"),
    (CUT, {"resume": False}, "GET"),
    (CUT, {"policy": RetryPolicy.disabled()}, "GET"),
    (CUT, {}, "POST"),  # "This specification only defines GET" (RFC 9110 section 14.2)
])  # fmt: skip
async def test_what_is_not_resumed(adapter, server, options, first, more, method):
    server.script("/file", first, f"200{OF_V1}")
    async with adapter.client(**{**options, **more}) as client:
        key = {"Idempotency-Key": "1"}
        response = await adapter.open(client, method, server.url + "/file", headers=key)
        with pytest.raises(adapter.cut_error) as caught:
            await adapter.read(response)
        await adapter.close(response)
    assert len(server.requests("/file")) == 1
    if "policy" in more:  # it could have been
        record = forbear.record_of(caught.value)
        broken = caught.value if hasattr(caught.value, "__notes__") else caught.value.args[0]
        assert broken.__notes__ == [f"forbear: {record}"]  # requests raises its own around it
        assert record.reason is Reason.ATTEMPTS_EXHAUSTED
        assert [attempt.phase for attempt in record.attempts] == [Phase.ANSWERED]


async def test_listeners_and_hooks_see_each_request(adapter, server, options):
    events, hooked = [], []

    def sign(request, attempt):
        hooked.append((attempt, request.headers["range"]))
        request.headers["x-signature"] = request.headers["range"]

    server.script("/file", CUT, f"200{OF_V1}")
    more = {"on_event": [events.append], "before_attempt": sign, "announce_attempts": True}
    async with adapter.client(**options, **more) as client:
        response = await adapter.download(client, server.url + "/file")
    assert response.content == WHOLE
    assert hooked == [(2, "bytes=70001-")]
    fields = dict(server.requests("/file")[1].headers)
    assert (fields["x-signature"], fields["Retry-Attempt"]) == ("bytes=70001-", "2")
    assert [type(event) for event in events] == [AttemptFailed, RetryScheduled, Resumption]
    assert (events[0].phase, events[0].failure) == (Phase.ANSWERED, FailureKind.PROTOCOL)
    assert events[2][3:6] == (70_001, SIZE, "resumed")


@pytest.mark.parametrize("reason", [Reason.DEADLINE, Reason.CIRCUIT_OPEN])
async def test_a_deadline_or_an_open_breaker_ends_a_download(adapter, server, options, reason):
    server.script("/file", f"cut:15001{OF_V1}")
    if reason is Reason.CIRCUIT_OPEN:
        options["breaker"] = CircuitBreaker(1, failure_rate=None, open_for=30.0)
    seconds = 0.5 if reason is Reason.DEADLINE else None
    with forbear.deadline(seconds, clock=options["clock"]) if seconds else nullcontext():
        async with adapter.client(**options) as client:
            with pytest.raises(adapter.cut_error) as caught:
                await adapter.download(client, server.url + "/file")
    assert forbear.record_of(caught.value).reason is reason
    assert len(server.requests("/file")) == 1


@family
@pytest.mark.parametrize(
    ("size", "more", "resumed"),
    [(130_000, [], None), (90_001, [f"200{OF_V1}"], (70_001, 160_002)), (0, [], None)],
    ids=["longer", "shorter, then right", "always shorter"],
)
async def test_a_part_that_is_not_as_long_as_it_said(adapter, server, options, size, more, resumed):
    part = at(70_001, ";chunked=1", sent=size)
    server.script("/file", CUT, part, *more)
    got = bytearray()
    async with adapter.client(**options) as client:
        response = await adapter.open(client, "GET", server.url + "/file")
        if resumed:
            await adapter.collect(response, got)
            assert (bytes(got), forbear.record_of(response).resumed) == (WHOLE, resumed)
        else:
            with pytest.raises(adapter.library.RemoteProtocolError, match="received 70001 bytes"):
                await adapter.collect(response, got)
        await adapter.close(response)
    assert WHOLE.startswith(bytes(got))
    if size == 0:
        assert len(server.requests("/file")) == 3


@pytest.mark.slow
@family
@pytest.mark.parametrize("rest", [f"200{OF_V1};drip=300", "hang"], ids=["drips", "hangs"])
async def test_a_part_that_never_ends_ends_at_the_deadline(adapter, server, rest):
    server.script("/file", f"cut:15001{OF_V1}", rest)
    async with adapter.client(policy=POLICY.replace(backoff=Fixed(0.0))) as client:
        with forbear.deadline(1.0), pytest.raises(adapter.DeadlineExceeded) as caught:
            await adapter.call(client, "GET", server.url + "/file")
        assert adapter.is_idle(client)
    assert isinstance(caught.value, adapter.timeout_error)
    assert len(server.requests("/file")) == 2


async def test_a_download_under_a_deadline_goes_on_too(adapter, server, options):
    """Each part is read by the deadline, and nothing closes it before it is read."""
    server.script("/file", CUT, f"cut:70001{OF_V1}", f"200{OF_V1}")
    got = bytearray()
    async with adapter.client(**options) as client:
        with forbear.deadline(60.0, clock=options["clock"]):
            response = await adapter.open(client, "GET", server.url + "/file")
            await adapter.collect(response, got)
        await adapter.close(response)
        assert adapter.is_idle(client)
    assert (bytes(got), len(server.requests("/file"))) == (WHOLE, 3)
