"""P1, P2: nothing unsafe is executed twice, and a body is sent whole or not at all. P8: nothing a
server sends can crash the client, stall it, or be injected through it.
"""

import contextlib
import hashlib
import time

import pytest

from forbear import Fixed, IdempotencyKeys, Reason, RetryPolicy, record_of

from ..lanes import URL

KEY = {"Idempotency-Key": "order-17"}
BODY = b"0123456789abcdef" * 1024  # 16 kB
WHOLE = len(BODY), hashlib.sha256(BODY).hexdigest()
TWICE = RetryPolicy(max_attempts=2, backoff=Fixed(0))
ORDER = {"content": BODY, "headers": KEY}

# Each step, and how often the server executes the request when it arrives once. A repetition would
# find 200.
FAULTS = [
    *(("503;executes=1", 1), ("503", 0), ("500;executes=1", 1), ("408", 0), ("409", 0), ("425", 0)),
    *(("429;retry-after=0;executes=1", 1), ("502;close=1;executes=1", 1)),
    *(("504;chunked=1;executes=1", 1), ("reset", 1), ("reset;executes=0", 0), ("close", 1)),
    *(("reset-head", 0), ("garbage", 0), ("garbage;executes=1", 1), ("hang;executes=1", 1)),
    *(("hang", 0), ("drip;interval=300;executes=1", 1), ("200;delay=300", 1)),
    ("early:503:1000", 0),
]


def patience(adapter, fault, seconds=0.25):
    """Keeps the tests with a peer that says nothing short."""
    silent = fault.startswith(("hang", "drip")) or "delay=" in fault
    return adapter.reading_for(seconds) if silent else {}


@pytest.mark.smoke
async def test_post_without_a_key_is_sent_once_whatever_happens(adapter, server, quick):
    for number, (fault, executed) in enumerate(FAULTS):
        path = f"/orders/{number}"
        server.script(path, fault, 200)
        async with adapter.client(settings=patience(adapter, fault, 0.08), **quick) as client:
            outcome = await adapter.outcome(client, "POST", server.url + path, content=BODY)
        expected, until = (1, executed), time.monotonic() + 30
        # A busy server may be late to see what a client has given up.
        while (len(server.requests(path)), server.executed(path)) < expected:
            assert time.monotonic() < until, fault
            time.sleep(0.001)
        assert (len(server.requests(path)), server.executed(path)) == expected, fault
        assert len(record_of(outcome).attempts) == 1, fault
    assert quick["clock"].sleeps == []


@pytest.mark.smoke
async def test_a_post_that_was_only_throttled_is_saved(adapter, server, quick):
    policy = RetryPolicy(unexecuted_statuses={429})
    steps = {"/orders": (200,), "/failed": (503, 200), "/lost": ("reset", 200)}
    outcomes = []
    async with adapter.client(policy=policy, **quick) as client:
        for path, then in steps.items():
            server.script(path, *["429;retry-after=0"] * 2, *then)
            outcomes.append(await adapter.outcome(client, "POST", server.url + path, content=BODY))
    response, failed, lost = outcomes
    assert (response.status_code, failed.status_code) == (200, 503)
    assert isinstance(lost, adapter.transport_error)
    assert [server.executed(path) for path in steps] == [1, 0, 1]
    assert {each.sha256 for each in server.requests("/orders")} == {WHOLE[1]}
    for ended in (failed, lost):
        assert record_of(ended).reason is Reason.METHOD_NOT_REPLAYABLE
        assert len(record_of(ended).attempts) == 3


async def test_only_methods_that_are_known_to_be_idempotent_are_saved(adapter, server, quick):
    """RFC 9110 section 9.2.2: a client may repeat these by itself; QUERY: RFC 10008 section 2."""
    known = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY")
    async with adapter.client(**quick) as client:
        for method in (*known, "PATCH", "CONNECT-ISH", "LOCK"):
            path, sent = f"/{method}", 3 if method in known else 1
            server.script(path, "reset", "503", 200)
            outcome = await adapter.outcome(client, method, server.url + path)
            if method in known:
                assert outcome.status_code == 200
            else:
                assert isinstance(outcome, adapter.transport_error)
                assert record_of(outcome).reason is Reason.METHOD_NOT_REPLAYABLE
            assert [arrival.method for arrival in server.requests(path)] == [method] * sent


@pytest.mark.smoke
async def test_post_with_a_key_is_saved_and_executed_once(adapter, server, quick):
    faults = ["503", "429;retry-after=0", "408", "425", "500", "reset", "close", "reset-head"]
    faults += ["garbage;executes=1", "hang;executes=1", "drip;interval=300;executes=1"]
    for number, fault in enumerate([*faults, "early:503:1000"]):
        path = f"/orders/{number}"
        server.script(path, fault, 200)
        async with adapter.client(settings=patience(adapter, fault), **quick) as client:
            response = await adapter.call(client, "POST", server.url + path, **ORDER)
        assert response.status_code == 200, fault
        assert server.executed(path) == 1, fault
        keys = [arrival.key for arrival in server.requests(path)]
        assert set(keys) == {"order-17"}, fault  # a busy machine may need a third attempt
        assert len(keys) >= 2, fault


@pytest.mark.slow
async def test_conflict_with_the_first_request_in_flight_is_waited_out(adapter, server):
    server.script("/orders", "200;delay=600")
    policy = RetryPolicy(backoff=Fixed(0.1), max_attempts=20)
    async with adapter.client(settings=adapter.reading_for(0.2), policy=policy) as client:
        response = await adapter.call(client, "POST", server.url + "/orders", **ORDER)
    assert (response.status_code, response.headers["Idempotent-Replayed"]) == (200, "true")
    assert server.executed("/orders") == 1
    assert "409" in record_of(response).reasons
    assert {arrival.key for arrival in server.requests("/orders")} == {"order-17"}


async def test_no_new_key_is_invented_after_the_server_refused_one(adapter, server, quick):
    for status, sends in ((400, 1), (409, 4), (422, 1)):
        path = f"/orders/{status}"
        server.script(path, status)
        async with adapter.client(policy=RetryPolicy(max_attempts=4), **quick) as client:
            response = await adapter.call(client, "POST", server.url + path, **ORDER)
        assert response.status_code == status
        assert [arrival.key for arrival in server.requests(path)] == ["order-17"] * sends


async def test_replayed_error_is_final(adapter, server, quick):
    server.script("/orders", "500;executes=1")
    response = await adapter.once(method="POST", url=server.url + "/orders", request=ORDER, **quick)
    assert (response.status_code, server.executed("/orders")) == (500, 1)
    assert len(server.requests("/orders")) == 2  # the 500, and its replay
    assert record_of(response).reason is Reason.REPLAYED_RESPONSE


@pytest.mark.smoke
async def test_a_body_is_sent_whole_on_every_attempt(adapter, server, quick):
    faults = ["reset", "close", "503", "429;retry-after=0", "garbage", "early:503:1000", "hang"]
    for number, fault in enumerate(faults):
        path = f"/upload/{number}"
        server.script(path, fault, fault, 200)
        async with adapter.client(settings=patience(adapter, fault), **quick) as client:
            response = await adapter.call(client, "PUT", server.url + path, content=BODY)
        assert response.status_code == 200
        arrivals = server.requests(path)
        assert len(arrivals) == 3
        complete = [each for each in arrivals if each.body_complete]
        assert complete == (arrivals[2:] if fault.startswith("early") else arrivals)
        assert {(each.body_bytes, each.sha256) for each in complete} == {WHOLE}
        for each in arrivals:
            lines = [value for name, value in each.headers if name.lower() == "content-length"]
            assert lines == [str(len(BODY))]


@pytest.mark.adapters("urllib3-family")
@pytest.mark.parametrize(
    ("method", "headers", "sent"),
    [("GET", {}, 2), ("POST", {}, 1), ("POST", {"Idempotency-Key": "order-17"}, 2)],
)
async def test_a_truncated_answer_is_a_failure(adapter, server, quick, method, headers, sent):
    faults = ["cut:3;body=10", "reset-body:3;body=10", "cut:3;body=10;chunked=1"]
    async with adapter.client(**adapter.pool_of(1), **quick) as client:
        for number, fault in enumerate(faults):
            url = f"{server.url}/{number}"
            server.script(f"/{number}", fault, "200;body=10")
            request = {"content": b"x", "headers": headers}
            outcome = await adapter.outcome(client, method, url, **request)
            if sent == 2:
                assert (outcome.content, record_of(outcome).retries) == (b"0123456789", 1)
            else:
                assert isinstance(outcome, adapter.transport_error)
            assert adapter.is_idle(client)
            assert len(server.requests(f"/{number}")) == sent


async def test_odd_statuses_are_final(adapter, quick):
    statuses = [600, 999, 499, 100, 0]
    async with adapter.client(statuses, **quick) as client:
        assert [(await adapter.call(client, "GET", URL)).status_code for _ in statuses] == statuses
    assert quick["clock"].sleeps == []


MAD = [
    "garbage", "503;header=Retry-After:%FF%FE", "429;header=Retry-After:9999999999999999999999",
    "503;header=Retry-After:-1;header=Retry-After:zero", "503;header=X-Long:" + "x" * 20000,
    "503;header=Transfer-Encoding:chunked", "503;header=Content-Length:5;header=Content-Length:6",
    "cut:0", "reset-body:0",
]  # fmt: skip


@pytest.mark.slow
async def test_a_server_that_is_out_of_its_mind(adapter, server, quick):
    server.script("/sane", 200)
    policy, settings = TWICE, adapter.reading_for(0.5)
    async with adapter.client(policy=policy, settings=settings, **quick) as client:
        for number, step in enumerate(MAD):
            server.script(f"/{number}", step)
            with contextlib.suppress(adapter.transport_error):
                await adapter.call(client, "GET", f"{server.url}/{number}")
            assert (await adapter.call(client, "GET", server.url + "/sane")).status_code == 200
            assert 1 <= len(server.requests(f"/{number}")) <= 2


@pytest.mark.adapters("httpx-family")
async def test_nothing_of_an_answer_is_sent_back(adapter, quick):
    theirs = dict.fromkeys(("Idempotency-Key", "From", "Authorization"), "theirs")
    inner = adapter.watched([(503, theirs), 200])
    options = {"idempotency": IdempotencyKeys(), "policy": TWICE}
    await adapter.once(inner, "POST", **options, **quick)
    first, second = (dict(request.headers) for request in inner.requests)
    assert first == second
    assert "theirs" not in second.values()
