"""A body that the caller streams goes on when it breaks, or ends with the error that the library
itself would give.

Every test meets requests or urllib3 and a real socket; what counts is the bytes the caller got, and
the requests the server saw. An expected offset is the number of raw bytes that were sent before the
cut.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import hashlib
import importlib
import random
import threading
import time
import tracemalloc
import weakref
import zlib

import pytest
import requests
import urllib3
from urllib3 import exceptions

import forbear
from forbear import CircuitBreaker, Fixed, RetryBudget, RetryPolicy, record_of
from forbear.requests import RetryAdapter, mount
from forbear.testing import FakeClock
from forbear.urllib3 import RetryPoolManager, RetryProxyManager

from .origin import Answer, Origin

POLICY = RetryPolicy(max_attempts=4, backoff=Fixed(0.0))
CONTENT = "".join(
    f"{number:07d}\n" for number in range(5_000)
).encode()  # 40,000 bytes in lines of 8
HAS_READ1 = hasattr(
    urllib3.HTTPResponse, "read1"
)  # from 2.1 on; before it is that of io, and reads nothing


class Requests:
    """A session, one call, and the raw response below it."""

    name = "requests"
    broken = requests.exceptions.ChunkedEncodingError

    def __init__(self, policy=POLICY, *, pool=None, **options):
        options = {"budget": None, **options}
        self.adapter = RetryAdapter(
            policy, pool_maxsize=pool or 10, pool_block=bool(pool), **options
        )
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", self.adapter)

    def get(self, url, timeout=5, **named):
        return self.session.get(url, stream=True, timeout=timeout, **named)

    def pool(self, url):
        return self.adapter.poolmanager.connection_from_url(url)

    def close(self):
        self.session.close()

    @staticmethod
    def raw(response):
        return response.raw

    @staticmethod
    def bare(url):
        return requests.get(url, stream=True, timeout=5)

    ways = {
        "iter_content": lambda response: response.iter_content(777),
        "iter_content-large": lambda response: response.iter_content(1 << 20),
        "iter_content-none": lambda response: response.iter_content(None),
        "content": lambda response: iter([response.content]),
        "iter_lines": lambda response: (line + b"\n" for line in response.iter_lines()),
        "raw.stream": lambda response: response.raw.stream(1000, decode_content=True),
        "raw.read(n)": lambda response: iter(
            lambda: response.raw.read(999, decode_content=True), b""
        ),
        "raw.read": lambda response: iter([response.raw.read(decode_content=True)]),
    }


class Urllib3:
    """A pool manager."""

    name = "urllib3"
    broken = exceptions.ProtocolError

    def __init__(self, policy=POLICY, *, pool=None, **options):
        options = {"budget": None, **options}
        self.manager = RetryPoolManager(policy, maxsize=pool or 10, block=bool(pool), **options)

    def get(self, url, timeout=5, **named):
        return self.manager.request("GET", url, preload_content=False, timeout=timeout, **named)

    def pool(self, url):
        return self.manager.connection_from_url(url)

    def close(self):
        self.manager.clear()

    @staticmethod
    def raw(response):
        return response

    @staticmethod
    def bare(url):
        return urllib3.PoolManager(retries=False).request(
            "GET", url, preload_content=False, timeout=5
        )

    @staticmethod
    def _readinto(response):
        room = bytearray(500)
        while count := response.readinto(room):
            yield bytes(room[:count])

    ways = {
        "stream": lambda response: response.stream(1000, decode_content=True),
        "stream-none": lambda response: response.stream(None, decode_content=True),
        "read(n)": lambda response: iter(lambda: response.read(999), b""),
        "read": lambda response: iter([response.read()]),
        "data": lambda response: iter([response.data]),
        "lines": iter,
        "readinto": lambda response: Urllib3._readinto(response),
        "readline": lambda response: iter(response.readline, b""),
    }
    if HAS_READ1:
        ways["read1"] = lambda response: iter(lambda: response.read1(500), b"")


CLIENTS = (Requests, Urllib3)
clients = pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
WAYS = [
    pytest.param(client, way, id=f"{client.name}-{way}")
    for client in CLIENTS
    for way in client.ways
]


def read(client, response, way=None):
    """What the caller gets, and the error that ends it."""
    got, error = [], None
    try:
        for piece in client.ways[way or next(iter(client.ways))](response):
            got.append(piece)
    except Exception as raised:
        error = raised.with_traceback(None)  # which holds this frame, which holds the error
    return b"".join(got), error


def fetch(client, origin, way=None, policy=POLICY, **options):
    """One download with a fresh client: response, content, error."""
    ours = client(policy, **options)
    try:
        response = ours.get(origin.url)
        return response, *read(client, response, way)
    finally:
        ours.close()


# It goes on.


@pytest.mark.parametrize(("client", "way"), WAYS)
def test_a_cut_body_arrives_whole(client, way):
    """Reset in the middle, closed at once, then one byte before its end: no byte comes twice."""
    answers = [Answer(20_000, rst=True), Answer(0), Answer(-1), Answer()]
    with Origin(CONTENT, answers) as origin:
        response, got, error = fetch(client, origin, way)
        assert (got, error) == (CONTENT, None)
        assert len(origin.requests) == 4
    assert client.raw(response).tell() == len(CONTENT)
    assert len(record_of(response).resumed) == 3
    assert len(record_of(response).attempts) == 4


@clients
@pytest.mark.parametrize("cut", [0, 8_000, 39_999])
def test_what_is_asked_for_is_what_is_missing(client, cut):
    """RFC 9110 sections 14.1.2 and 13.1.5: from the first missing byte, if nothing changed."""
    with Origin(CONTENT, [Answer(cut), Answer()]) as origin:
        response, got, error = fetch(client, origin)
        assert (got, error) == (CONTENT, None)
        assert origin.ranges == [(None, None), (f"bytes={cut}-", '"v1"')]
    assert record_of(response).resumed == (cut,)


CODED = {"gzip": gzip.compress(CONTENT, 1), "deflate": zlib.compress(CONTENT, 1)}
for coding, module in (("br", "brotli"), ("zstd", "compression.zstd")):  # where they are installed
    with contextlib.suppress(ImportError):
        CODED[coding] = importlib.import_module(module).compress(CONTENT)


@clients
@pytest.mark.parametrize("coding", CODED)
def test_an_encoded_body_goes_on_through_one_decoder(client, coding):
    """Offsets are those of the encoded bytes, and what was decoded is not decoded again."""
    coded = CODED[coding]
    answers = [Answer(len(coded) // 2), Answer(2, rst=True), Answer()]
    with Origin(coded, answers, coding=coding) as origin:
        response, got, error = fetch(client, origin)
        assert (got, error) == (CONTENT, None)
        asked = [
            int(line.removeprefix("bytes=").removesuffix("-")) for line, _ in origin.ranges[1:]
        ]
    assert asked == sorted(asked)
    assert 0 < asked[0] <= len(coded) // 2
    assert record_of(response).resumed == tuple(asked)


@clients
def test_a_body_that_stalls_goes_on_elsewhere(client):
    """A read timeout breaks a body as a reset does."""
    with Origin(CONTENT, [Answer(8_000, stall=True), Answer()]) as origin:
        ours = client()
        response = ours.get(origin.url, timeout=0.2)
        assert read(client, response) == (CONTENT, None)
        assert origin.wait_for_open(1)  # the stalled one is closed
        ours.close()
    assert [attempt.failure for attempt in record_of(response).attempts] == ["read-timeout", None]
    assert record_of(response).attempts[0].phase == "answered"


@clients
def test_the_callers_own_range_goes_on_to_its_end(client):
    """A 206 to one range is a download too: what is missing of it is asked for, and no more."""
    with Origin(CONTENT, [Answer(1_000), Answer(2_000), Answer()]) as origin:
        ours = client()
        response = ours.get(origin.url, headers={"Range": "bytes=5000-14999"})
        assert read(client, response) == (CONTENT[5_000:15_000], None)
        assert origin.ranges == [
            ("bytes=5000-14999", None),
            ("bytes=6000-14999", '"v1"'),
            ("bytes=8000-14999", '"v1"'),
        ]
        ours.close()
    assert record_of(response).resumed == (6_000, 8_000)


@clients
def test_a_date_that_is_strong_will_do(client):
    """RFC 9110 section 8.8.2.2: modified more than a second before the answer was made."""
    lines = {
        "ETag": None,
        "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT",
        "Date": "Sun, 06 Nov 1994 08:59:37 GMT",
    }
    with Origin(CONTENT, [Answer(8_000, lines=lines), Answer(lines=lines)]) as origin:
        assert fetch(client, origin)[1:] == (CONTENT, None)
        assert origin.ranges[1] == ("bytes=8000-", "Sun, 06 Nov 1994 08:49:37 GMT")


@clients
def test_a_call_that_was_retried_before_its_answer_goes_on_too(client):
    """The story has it all: a 503, the answer that broke, and the rest of it."""
    with Origin(CONTENT, [Answer(status=503), Answer(8_000), Answer()]) as origin:
        response, got, error = fetch(client, origin)
        assert (got, error) == (CONTENT, None)
    record = record_of(response)
    assert [attempt.status for attempt in record.attempts] == [503, None, 206]
    assert record.resumed == (8_000,)
    assert record.reason is None


@clients
def test_attempts_count_only_those_without_progress(client):
    """max_attempts=2, and twenty cuts: each answer brings something, so each is a first attempt."""
    answers = [*(Answer(1_500) for _ in range(20)), Answer()]
    with Origin(CONTENT, answers) as origin:
        response, got, error = fetch(client, origin, policy=POLICY.replace(max_attempts=2))
        assert (got, error) == (CONTENT, None)
        assert len(origin.requests) == 21
    assert record_of(response).resumed == tuple(range(1_500, 30_001, 1_500))


@clients
def test_memory_stays_flat(client):
    """20 MB over eleven connections: what is held is a block or two."""
    content = random.Random(7).randbytes(1_000_000) * 20
    answers = [*(Answer(1_900_000, rst=number % 2 == 0) for number in range(10)), Answer()]
    with Origin(content, answers) as origin:
        ours = client()
        response = ours.get(origin.url)
        digest = hashlib.sha256()
        tracemalloc.start()
        try:
            for piece in client.raw(response).stream(65_536):
                digest.update(piece)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        ours.close()
        assert digest.digest() == hashlib.sha256(content).digest()
    assert (
        peak < 75_000_000
    )  # the server's copies of what it sends are counted too; read at once it is 100 million


# A large body that is read inside the loop.

LARGE = random.Random(8).randbytes(300_000)
INSIDE = {
    "cut twice": ([Answer(90_000), Answer(80_000), Answer()], (90_000, 170_000), 3),
    "a failure between": ([Answer(90_000), Answer(status=503), Answer()], (90_000,), 3),
    "another version": ([Answer(90_000), Answer(lines={"ETag": '"v2"'}, ranges=False)], (), 2),
    "a part of another": ([Answer(90_000), Answer(lines={"ETag": '"v2"'}), Answer()], (), 3),
    "a head cut off": ([Answer(90_000), Answer(lines={"Content-Range": None}), Answer()], (), 3),
    "no validator": ([Answer(90_000, lines={"ETag": None}), Answer()], (), 2),
    "chunked": ([Answer(90_000, chunked=True), Answer()], (), 2),
}


def whole(ours, url):
    """A call whose body the library reads: response and content."""
    if isinstance(ours, Requests):
        response = ours.session.get(url, timeout=5)
        return response, response.content
    response = ours.manager.request("GET", url, timeout=5)
    return response, response.data


@clients
@pytest.mark.parametrize("total_timeout", [None, 30.0], ids=["fast path", "loop"])
@pytest.mark.parametrize(("answers", "resumed", "requests"), INSIDE.values(), ids=INSIDE)
def test_a_large_body_inside_the_loop_goes_on(client, total_timeout, answers, resumed, requests):
    """Only the rest is asked for; what does not fit is begun again, and nothing is mixed."""
    with Origin(LARGE, answers) as origin:
        ours = client(POLICY.replace(total_timeout=total_timeout), pool=1)
        response, content = whole(ours, origin.url)
        assert content == LARGE
        assert len(origin.requests) == requests
        assert ours.pool(origin.url).pool.qsize() == 1
        ours.close()
    status = response.status_code if client is Requests else response.status
    assert (status, record_of(response).resumed) == (200, resumed)


@clients
def test_a_large_body_that_never_ends_well_is_the_librarys_error(client):
    """Attempts without progress run out; with coding, a limit of one and resume=False too."""
    with Origin(LARGE, [Answer(90_000), Answer(0)]) as origin:
        ours = client()
        with pytest.raises((client.broken, exceptions.MaxRetryError)) as caught:
            whole(ours, origin.url)
        ours.close()
        assert len(origin.requests) == 4
    assert record_of(caught.value).reason == "attempts-exhausted"
    coded = gzip.compress(LARGE)
    with Origin(coded, [Answer(90_000), Answer()], coding="gzip") as origin:
        ours = client()
        assert whole(ours, origin.url)[1] == LARGE
        assert origin.ranges[1] == ("bytes=90000-", '"v1"')
        ours.close()
    with Origin(LARGE, [Answer(90_000), Answer()]) as origin:
        ours = client(resume=False)
        assert whole(ours, origin.url)[1] == LARGE
        assert origin.ranges[1] == (None, None)
        ours.close()


# It does not go on: the error is the library's own, and says why.


ADVERSARIES = {
    "another version": [Answer(lines={"ETag": '"v2"'})],
    "another version, whole": [Answer(ranges=False, lines={"ETag": '"v2"'}, content=CONTENT[::-1])],
    "the whole, again": [Answer(ranges=False)],
    "shifted by one": [Answer(lines={"Content-Range": "bytes 8001-39999/40000"}, shift=1)],
    "shifted back": [Answer(lines={"Content-Range": "bytes 7999-39999/40000"}, shift=-1)],
    "weak validator": [Answer(lines={"ETag": 'W/"v1"'})],
    "no validator": [Answer(lines={"ETag": None})],
    "nonsense in Content-Range": [Answer(lines={"Content-Range": "bytes 8000-/40000"})],
    "another unit": [Answer(lines={"Content-Range": "lines 8000-39999/40000"})],
    "shorter total": [Answer(content=CONTENT[:30_000])],
    "longer total": [Answer(content=CONTENT + b"more")],
    "a range of a range": [
        Answer(lines={"Content-Range": "bytes 8000-8999/40000", "Content-Length": "1000"})
    ],
    "another length": [Answer(lines={"Content-Length": "31999"})],
    "encoded now": [Answer(lines={"Content-Encoding": "gzip"})],
    "multipart": [Answer(lines={"Content-Type": "multipart/byteranges; boundary=x"})],
    "416": [Answer(status=416, lines={"Content-Range": "bytes */40000"})],
    "416 without a total": [Answer(status=416, lines={"Content-Range": None})],
    "gone": [Answer(status=404)],
    "redirected": [Answer(status=302, lines={"Location": "/elsewhere", "Content-Range": None})],
}


@clients
@pytest.mark.parametrize("answers", ADVERSARIES.values(), ids=ADVERSARIES)
def test_what_does_not_fit_is_the_original_error(client, answers):
    """Nothing is mixed or repeated: the bytes up to the cut, then what the bare library raises."""
    first = Answer(8_000)
    with Origin(CONTENT, [first]) as origin:
        expected, bare_error = read(client, client.bare(origin.url))
    with Origin(CONTENT, [first, *answers]) as origin:
        response, got, error = fetch(client, origin)
        assert type(error) is type(bare_error)
        assert str(error)[:60] == str(bare_error)[:60]
        assert CONTENT.startswith(got)
        assert len(expected) <= len(got) <= 8_000
        assert len(origin.requests) == 2
        assert record_of(error).reason == record_of(response).reason == "response-delivered"
        assert record_of(error).resumed == ()
        # In these is the pool, which a closed client closes when it is dropped.
        del response, error, bare_error
        gc.collect()  # the library's errors of a body are cycles
        assert origin.wait_for_open(0)


@clients
def test_a_rest_that_ends_early_is_no_end_of_a_body_without_length(client):
    """Any end is that of the first answer, but the rest has told how much was missing."""
    unending = Answer(8_000, rst=True, lines={"Content-Length": None, "Connection": "close"})
    with Origin(CONTENT, [unending, Answer(5_000), Answer(status=404)]) as origin:
        response, got, error = fetch(client, origin)
        assert len(origin.requests) == 3
    assert isinstance(error, (client.broken, exceptions.ProtocolError))  # raw.read() is urllib3's
    assert CONTENT.startswith(got)
    assert len(record_of(response).resumed) == 1


@clients
def test_the_error_carries_the_story(client):
    """As a note, and as the record, of the error that the library raises."""
    with Origin(CONTENT, [Answer(8_000, rst=True), Answer(200), Answer(status=404)]) as origin:
        _, got, error = fetch(client, origin)
        assert got == CONTENT[: len(got)]
    record = record_of(error)
    assert [attempt.status for attempt in record.attempts] == [None, None, 404]
    noted = error if client is Urllib3 else error.__context__  # requests raises its own around it
    assert noted.__notes__ == [f"forbear: {record}"]
    assert "resumed at" in str(record)


@clients
@pytest.mark.parametrize(
    "first",
    [
        Answer(8_000, lines={"ETag": 'W/"v1"'}), Answer(8_000, lines={"ETag": None}),
        Answer(8_000, lines={"Accept-Ranges": "none"}), Answer(8_000, chunked=True),
    ],
    ids=["weak", "no validator", "no ranges", "chunked"],
)  # fmt: skip
def test_what_cannot_be_resumed_is_as_without_us(client, first):
    """One request, the library's error, and no note."""
    with Origin(CONTENT, [first, Answer()]) as origin:
        _, got, error = fetch(client, origin)
        assert type(error) is client.broken
        assert got == CONTENT[: len(got)]
        assert len(origin.requests) == 1
    assert (
        getattr(error, "__notes__", None) is getattr(error.__context__, "__notes__", None) is None
    )


@clients
@pytest.mark.parametrize(
    "options", [{"resume": False}, {"policy": POLICY.replace(max_attempts=1)}, {"policy": RetryPolicy.disabled()}],
    ids=["resume=False", "max_attempts=1", "disabled"],
)  # fmt: skip
def test_it_can_be_turned_off(client, options):
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        _, _, error = fetch(client, origin, **options)
        assert type(error) is client.broken
        assert len(origin.requests) == 1


@clients
def test_a_post_is_not_resumed(client):
    """ "This specification only defines GET" (RFC 9110 section 14.2), with a key too."""
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        ours = client()
        named = {"headers": {"Idempotency-Key": "1", "Content-Length": "0"}}
        if client is Requests:
            response = ours.session.post(origin.url, stream=True, timeout=5, **named)
        else:
            response = ours.manager.request(
                "POST", origin.url, preload_content=False, timeout=5, **named
            )
        assert type(read(client, response)[1]) is client.broken
        assert len(origin.requests) == 1
        ours.close()


@clients
def test_attempts_without_progress_run_out(client):
    """Three attempts: the first, and two that brought nothing; then the original error says so."""
    with Origin(CONTENT, [Answer(8_000), Answer(0, rst=True), Answer(head_cut=20)]) as origin:
        _, got, error = fetch(client, origin, policy=POLICY.replace(max_attempts=3))
        assert CONTENT.startswith(got)
        assert "ConnectionResetError" in str(error)  # of the last body that came
        assert len(origin.requests) == 3
    assert record_of(error).reason == "attempts-exhausted"


@clients
@pytest.mark.parametrize(
    "cut", [Answer(head_cut=0), Answer(head_cut=5), Answer(head_cut=20), Answer(head_cut=90, rst=True),
            Answer(lines={"Content-Range": None})], ids=str,
)  # fmt: skip
def test_a_rest_whose_head_was_cut_off_is_asked_for_again(client, cut):
    """http.client takes what came of a head for all of it; a 206 without its range is none."""
    with Origin(CONTENT, [Answer(8_000), cut, Answer()]) as origin:
        response, got, error = fetch(client, origin)
        assert (got, error) == (CONTENT, None)
        assert len(origin.requests) == 3
    assert record_of(response).resumed == (8_000,)


@clients
def test_a_hint_is_obeyed_and_one_too_long_ends_it(client):
    """503 with Retry-After in answer to a Range: never sooner, and not at all if that is too
    long.
    """
    clock = FakeClock()
    policy = POLICY.replace(max_retry_after=60.0)
    later = Answer(status=503, lines={"Retry-After": "7", "Content-Range": None})
    with Origin(CONTENT, [Answer(8_000), later, Answer()]) as origin:
        assert fetch(client, origin, policy=policy, clock=clock, random=lambda: 0.0)[1:] == (
            CONTENT,
            None,
        )
    assert clock.sleeps == [7.0]
    much_later = Answer(status=503, lines={"Retry-After": "61", "Content-Range": None})
    with Origin(CONTENT, [Answer(8_000), much_later, Answer()]) as origin:
        _, _, error = fetch(client, origin, policy=policy, clock=clock)
        assert len(origin.requests) == 2
    assert record_of(error).reason == "retry-after-too-long"
    assert clock.sleeps == [7.0]


@clients
def test_the_budget_holds(client):
    """One token, no floor: what asks only for the rest costs a fifth of it, so the sixth cut is the
    last.
    """
    budget = RetryBudget(ratio=0.0, floor_per_second=0.0, burst=1, hinted_cost=1)
    with Origin(CONTENT, [Answer(1_000)]) as origin:
        _, got, error = fetch(client, origin, budget=budget)
        assert got == CONTENT[: len(got)]
        assert len(origin.requests) == 6
    assert record_of(error).reason == "budget-exhausted"


@clients
def test_an_open_circuit_ends_it(client):
    """A breaker that opens at the second failure in a row: the rest is not asked for a third
    time.
    """
    breaker = CircuitBreaker(2, open_for=60.0)
    with Origin(CONTENT, [Answer(8_000), Answer(status=503)]) as origin:
        _, _, error = fetch(client, origin, breaker=breaker)
        assert type(error) is client.broken
        assert len(origin.requests) == 2
    assert record_of(error).reason == "circuit-open"


@clients
def test_the_deadline_ends_it(client):
    """The next wait would end after the deadline: the original error, at once."""
    clock = FakeClock()
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        ours = client(POLICY.replace(backoff=Fixed(5.0)), clock=clock)
        with forbear.deadline(3.0):
            response = ours.get(origin.url)
            got, error = read(client, response)
        ours.close()
        assert CONTENT.startswith(got)
        assert len(origin.requests) == 1
    assert record_of(error).reason == "deadline"
    assert clock.sleeps == []


@clients
def test_the_deadline_bounds_the_rest_too(client):
    """The rest drips for ever: under forbear.deadline its reading ends when the time is over."""
    with Origin(CONTENT, [Answer(8_000), Answer(drip=0.02)]) as origin:
        ours = client()
        started_at = time.monotonic()
        with forbear.deadline(0.5):
            got, error = read(client, ours.get(origin.url))
        assert time.monotonic() - started_at < 4  # all of it would take 640 s
        ours.close()
    assert CONTENT.startswith(got)
    assert error is not None


@clients
def test_total_timeout_ends_with_the_hand_over(client):
    """It limits the call until its answer is handed over; a body that breaks later is resumed."""
    clock = FakeClock()
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        ours = client(POLICY.replace(total_timeout=10.0), clock=clock)
        response = ours.get(origin.url)
        clock.sleep(60.0)
        assert read(client, response) == (CONTENT, None)
        ours.close()


# The caller ends it.


@clients
def test_closing_early_asks_for_nothing(client):
    """After the first bytes, and after a resumption: the live connection is closed, and nothing
    more is sent.
    """
    for cuts in ([], [Answer(8_000)]):
        with Origin(CONTENT * 20, [*cuts, Answer()]) as origin:
            ours = client()
            response = ours.get(origin.url)
            client.raw(response).read(12_000)
            response.close()
            assert origin.wait_for_open(0)
            assert len(origin.requests) == 1 + len(cuts)
            ours.close()


@clients
def test_abandoning_closes_the_live_connection_without_the_garbage_collector(client):
    """Nothing of ours is a cycle: the sockets of a response that is dropped are closed at once."""
    with Origin(CONTENT * 20, [Answer(8_000), Answer()]) as origin:
        ours = client()
        gc.collect()
        gc.disable()
        try:
            response = ours.get(origin.url)
            client.raw(response).read(12_000)
            dropped = weakref.ref(client.raw(response))
            del response
            assert dropped() is None
            assert origin.wait_for_open(0)
        finally:
            gc.enable()
        assert len(origin.requests) == 2
        ours.close()


if hasattr(urllib3.HTTPResponse, "shutdown"):  # urllib3 2.3 and later

    @clients
    @pytest.mark.parametrize("resumed", [False, True])
    def test_shutdown_from_another_thread_is_no_break(client, resumed):
        """It ends a read that blocks; that read is not gone on with."""
        answers = [*([Answer(100, rst=True)] if resumed else []), Answer(4_000, stall=True)]
        with Origin(CONTENT, answers) as origin:
            ours = client()
            response = ours.get(origin.url)
            raw = client.raw(response)
            assert raw.read(3_000) == CONTENT[:3_000]
            timer = threading.Timer(0.1, raw.shutdown)
            timer.start()
            got, error = read(client, response)
            timer.join()
            assert got == CONTENT[3_000 : 3_000 + len(got)]
            assert error is not None
            assert len(origin.requests) == len(answers)
            ours.close()


@clients
def test_drain_conn_does_not_go_on(client):
    """Nobody wants these bytes: not worth a request."""
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        ours = client()
        response = ours.get(origin.url)
        client.raw(response).drain_conn()
        assert len(origin.requests) == 1
        ours.close()


@clients
def test_closing_the_client_wakes_a_wait(client):
    """The rest was to be asked for in a minute: the original error comes when the client is
    closed.
    """
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        waiting = threading.Event()
        heard = [lambda event: waiting.set() if event.name == "retry_scheduled" else None]
        ours = client(POLICY.replace(backoff=Fixed(60.0)), on_event=heard)
        response = ours.get(origin.url)
        closer = threading.Thread(
            target=lambda: waiting.wait(5) and (time.sleep(0.05), ours.close())
        )
        closer.start()
        started_at = time.monotonic()
        got, error = read(client, response)
        assert time.monotonic() - started_at < 30
        closer.join()
        assert CONTENT.startswith(got)
        assert type(error) is client.broken
        assert len(origin.requests) == 1


@clients
def test_an_interrupt_during_the_wait_comes_through(client):
    """KeyboardInterrupt is the caller's; what is read after it ends too early, and asks for
    nothing.
    """

    class Interrupting(FakeClock):
        def sleep(self, seconds):
            raise KeyboardInterrupt

    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        ours = client(POLICY.replace(backoff=Fixed(1.0)), clock=Interrupting())
        response = ours.get(origin.url)
        with pytest.raises(KeyboardInterrupt):
            b"".join(client.raw(response).stream(1_000))
        assert len(origin.requests) == 1
        ours.close()


# What is left of it.


@clients
def test_the_connection_goes_back_to_its_pool(client):
    """A pool of one that blocks: the broken one's place is free for the rest, and then for more."""
    with Origin(CONTENT, [Answer(8_000, rst=True), Answer()]) as origin:
        ours = client(pool=1)
        response = ours.get(origin.url)
        assert read(client, response) == (CONTENT, None)
        assert client.raw(response).connection is None
        assert ours.pool(origin.url).pool.qsize() == 1
        assert read(client, ours.get(origin.url)) == (CONTENT, None)
        assert origin.connections == 2
        assert len(origin.requests) == 3
        ours.close()


@clients
def test_the_place_in_the_pool_comes_back_when_it_fails(client):
    with Origin(CONTENT, [Answer(8_000), Answer(status=404), Answer()]) as origin:
        ours = client(pool=1)
        assert read(client, ours.get(origin.url))[1] is not None
        assert read(client, ours.get(origin.url)) == (CONTENT, None)
        ours.close()


def test_release_conn_after_the_rest_gives_back_the_live_connection():
    """urllib3: given back by hand after all is read."""
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        ours = Urllib3(pool=1)
        response = ours.get(origin.url)
        assert response.read() == CONTENT
        response.release_conn()
        response.close()
        assert ours.pool(origin.url).pool.qsize() == 1
        ours.close()


def test_a_session_that_was_mounted_resumes():
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin, requests.Session() as session:
        mount(session, POLICY, budget=None)
        assert session.get(origin.url, stream=True, timeout=5).content == CONTENT


def test_through_a_proxy_manager():
    """A forward proxy gets the whole URL; the rest is asked for through it too."""
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        manager = RetryProxyManager(POLICY, proxy_url=origin.url, budget=None)
        response = manager.request("GET", "http://example.test/x", preload_content=False, timeout=5)
        assert b"".join(response.stream(1_000)) == CONTENT
        assert [head.split(b" ")[1] for head in origin.requests] == [b"http://example.test/x"] * 2
        manager.clear()


def test_a_redirect_in_place_of_the_rest_is_not_followed():
    """urllib3's pools follow redirects by themselves if they are asked directly."""
    moved = Answer(status=302, lines={"Location": "/elsewhere", "Content-Range": None})
    with Origin(CONTENT, [Answer(8_000), moved, Answer()]) as origin:
        ours = Urllib3()
        response = ours.pool(origin.url).request("GET", "/", preload_content=False, redirect=True)
        assert type(read(Urllib3, response)[1]) is exceptions.ProtocolError
        assert len(origin.requests) == 2
        ours.close()


def test_hooks_see_the_request_for_the_rest():
    """before_attempt may sign it: it has the Range already."""
    seen = []
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin:
        for client in CLIENTS:
            fetch(
                client,
                origin,
                before_attempt=lambda request, attempt: seen.append(request.headers.get("Range")),
            )
    assert seen == ["bytes=8000-"]


@clients
def test_it_is_told(client):
    """Listeners hear that a body went on, and where."""
    heard = []
    with Origin(CONTENT, [Answer(8_000), Answer(100), Answer(status=404)]) as origin:
        fetch(client, origin, on_event=[heard.append])
    told = [event for event in heard if event.name == "resume"]
    assert [(event.offset, event.total, event.result) for event in told] == [
        (8_000, 40_000, "resumed"),
        (8_100, 40_000, "failed"),
    ]


@pytest.mark.parametrize("make", [RetryAdapter, RetryPoolManager])
def test_prefetch_is_an_option_of_the_httpx_family(make):
    """It would do nothing here, and says so."""
    with pytest.raises(TypeError, match="takes no prefetch"):
        make(prefetch=65_536)
    with pytest.raises(TypeError, match="resume must be True or False"):
        make(resume="yes")
