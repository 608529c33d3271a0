"""A streamed body of requests and urllib3 goes on when it breaks; offsets count raw bytes.
What they share with httpx is in test_resuming.py.
"""

import contextlib
import gzip
import importlib
import random
import threading
import zlib

import pytest
import urllib3

from forbear import ConcurrencyLimit, Fixed, RetryPolicy, record_of

from ..lanes import lane_of
from .origin import Answer, Origin

POLICY = RetryPolicy(max_attempts=4, backoff=Fixed(0.0))
CONTENT = b"".join(b"%07d\n" % number for number in range(5_000))  # 40,000 bytes in lines of 8


def readinto(response):
    room = bytearray(500)
    while count := response.readinto(room):
        yield bytes(room[:count])


# How a body is read: requests' from its response, urllib3's own from the raw one.
WAYS = {
    "requests": {
        "iter_content": lambda r: r.iter_content(777),
        "iter_content-none": lambda r: r.iter_content(None),
        "content": lambda r: [r.content],
        "raw.stream": lambda r: r.raw.stream(1000, decode_content=True),
        "raw.read(n)": lambda r: iter(lambda: r.raw.read(999, decode_content=True), b""),
    },
    "urllib3": {
        "stream": lambda r: r.raw.stream(1000, decode_content=True),
        "stream-none": lambda r: r.raw.stream(None, decode_content=True),
        "read(n)": lambda r: iter(lambda: r.raw.read(999), b""),
        "read": lambda r: [r.raw.read()],
        "data": lambda r: [r.raw.data],
        "lines": lambda r: r.raw,
        "readinto": lambda r: readinto(r.raw),
        "readline": lambda r: iter(r.raw.readline, b""),
    },
}
if hasattr(urllib3.HTTPResponse, "read1"):  # from 2.1 on
    WAYS["urllib3"]["read1"] = lambda r: iter(lambda: r.raw.read1(500), b"")

REQUESTS, URLLIB3 = lane_of("requests"), lane_of("urllib3")
clients = pytest.mark.parametrize("lane", [REQUESTS, URLLIB3], ids=["requests", "urllib3"])


@contextlib.contextmanager
def made(lane, policy=POLICY, *, settings=None, **options):
    options = {"policy": policy, "budget": None, **options}
    with contextlib.closing(lane.build(None, options, **(settings or {}))) as client:
        yield client


def get(client, url):
    return client.request("GET", url, is_open=True, timeout=30)


def read(lane, response, way=None):
    """What the caller gets, and the error that ends it."""
    got, error, ways = [], None, WAYS[lane.name]
    try:
        for piece in ways[way or next(iter(ways))](response):
            got.append(piece)
    except Exception as raised:
        error = raised.with_traceback(None)  # which holds this frame, which holds the error
    return b"".join(got), error


def fetch(lane, origin, way=None):
    with made(lane) as client:
        response = get(client, origin.url)
        return response, *read(lane, response, way)


@pytest.mark.parametrize(
    ("lane", "way"),
    [(lane, way) for lane in (REQUESTS, URLLIB3) for way in WAYS[lane.name]],
    ids=lambda one: getattr(one, "name", one),
)
def test_a_cut_body_arrives_whole(lane, way):
    answers = [Answer(20_000, rst=True), Answer(0), Answer(-1), Answer()]
    with Origin(CONTENT, answers) as origin:
        response, got, error = fetch(lane, origin, way)
        assert (got, error) == (CONTENT, None)
        assert len(origin.requests) == 4
    assert response.raw.tell() == len(CONTENT)
    assert (len(record_of(response).resumed), len(record_of(response).attempts)) == (3, 4)


CODED = {"gzip": gzip.compress(CONTENT, 1), "deflate": zlib.compress(CONTENT, 1)}
for coding, module in (("br", "brotli"), ("zstd", "compression.zstd")):  # where they are installed
    with contextlib.suppress(ImportError):
        CODED[coding] = importlib.import_module(module).compress(CONTENT)


@clients
@pytest.mark.parametrize("coding", CODED)
def test_an_encoded_body_goes_on_through_one_decoder(lane, coding):
    coded = CODED[coding]
    answers = [Answer(len(coded) // 2), Answer(2, rst=True), Answer()]
    with Origin(coded, answers, coding=coding) as origin:
        response, got, error = fetch(lane, origin)
        assert (got, error) == (CONTENT, None)
        asked = [int(line[len("bytes=") : -1]) for line, _ in origin.ranges[1:]]
    assert asked == sorted(asked)
    assert 0 < asked[0] <= len(coded) // 2
    assert record_of(response).resumed == tuple(asked)


LARGE = random.Random(8).randbytes(300_000)
FIRST, UNTAGGED = Answer(90_000), Answer(90_000, lines={"ETag": None})
V2, UNRANGED = Answer(lines={"ETag": '"v2"'}), Answer(lines={"Content-Range": None})
HALF_A_HEAD, WHOLE = Answer(head_cut=40), Answer()
INSIDE = {  # each answer is to one request; and the places where the body goes on
    "cut twice": ([FIRST, Answer(80_000), WHOLE], (90_000, 170_000)),
    "a failure between": ([FIRST, Answer(status=503), WHOLE], (90_000,)),
    "another version": ([FIRST, Answer(lines={"ETag": '"v2"'}, ranges=False)], ()),
    "a part of another": ([FIRST, V2, WHOLE], ()),
    "a part without its range": ([FIRST, UNRANGED, WHOLE], ()),
    **{f"{status} without a body": ([FIRST, Answer(status=status, content=b""), WHOLE], ())
       for status in (203, 204, 304)},
    "begun anew, half a head": ([FIRST, V2, HALF_A_HEAD, WHOLE], ()),
    "no validator, half a head": ([UNTAGGED, HALF_A_HEAD, WHOLE], ()),
    "no validator": ([UNTAGGED, WHOLE], ()),
    "chunked": ([Answer(90_000, chunked=True), WHOLE], ()),
}  # fmt: skip


def whole(client, url):
    response = client.request("GET", url, timeout=30)
    return response, response.content


@clients
@pytest.mark.parametrize("total_timeout", [None, 30.0], ids=["fast path", "loop"])
@pytest.mark.parametrize(("answers", "resumed"), INSIDE.values(), ids=INSIDE)
def test_a_large_body_inside_the_loop_goes_on(lane, total_timeout, answers, resumed):
    with Origin(LARGE, answers) as origin:
        policy = POLICY.replace(total_timeout=total_timeout)
        with made(lane, policy, **lane.pool_of(1)) as ours:
            response, content = whole(ours, origin.url)
            assert content == LARGE
            assert response.raw.closed  # until then urllib3 would repeat ``read(None)``
            assert len(origin.requests) == len(answers)
            assert lane.manager(ours).connection_from_url(origin.url).pool.qsize() == 1
    assert (response.status_code, record_of(response).resumed) == (200, resumed)


@clients
def test_a_large_body_that_goes_on_needs_one_slot(lane):
    """The slot of the part that broke is free before the rest is requested."""
    with Origin(LARGE, [FIRST, Answer(80_000), WHOLE]) as origin:
        with made(lane, concurrency=ConcurrencyLimit(1)) as ours:
            for _ in range(2):
                assert whole(ours, origin.url)[1] == LARGE
            assert len(origin.requests) == 4


@clients
@pytest.mark.parametrize(("status", "requests"), [(404, 2), (503, 4)])
def test_the_call_for_a_rest_ends_with_its_last_response(lane, status, requests):
    """As any call does whose body the library reads; the caller has nothing of the first body."""
    with (
        Origin(LARGE, [FIRST, Answer(status=status, content=b"no", ranges=False)]) as origin,
        made(lane) as ours,
    ):
        response, content = whole(ours, origin.url)
        assert (response.status_code, content) == (status, b"no")
        assert len(origin.requests) == len(record_of(response).attempts) == requests


@pytest.mark.slow
@clients
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_rest_whose_head_was_cut_off_is_asked_for_again(lane, is_streamed):
    cuts = [Answer(head_cut=at, ranges=at % 2 == 0) for at in range(0, 120, 3)]
    for cut in (*cuts, Answer(head_cut=90, rst=True)):
        with Origin(LARGE, [Answer(90_000), cut, Answer()]) as origin:
            if is_streamed:
                response, got, error = fetch(lane, origin)
                assert error is None, cut
            else:
                with made(lane) as ours:
                    response, got = whole(ours, origin.url)
            assert got == LARGE, cut
            assert len(origin.requests) == 3
        assert set(record_of(response).resumed) == {90_000}


if hasattr(urllib3.HTTPResponse, "shutdown"):  # urllib3 2.3 and later

    @clients
    @pytest.mark.parametrize("resumed", [False, True])
    def test_shutdown_from_another_thread_is_no_break(lane, resumed):
        """It ends a read that blocks; that read is not gone on with."""
        answers = [*([Answer(100, rst=True)] if resumed else []), Answer(4_000, stall=True)]
        with Origin(CONTENT, answers) as origin, made(lane) as ours:
            response = get(ours, origin.url)
            assert response.raw.read(3_000) == CONTENT[:3_000]
            timer = threading.Timer(0.1, response.raw.shutdown)
            timer.start()
            got, error = read(lane, response)
            timer.join()
            assert error is not None
            assert CONTENT[3_000:].startswith(got)
            assert len(origin.requests) == len(answers)


@pytest.mark.parametrize("through", ["a pool", "a manager", "requests"])
def test_a_redirect_in_place_of_the_rest_begins_the_call_anew(through):
    moved = Answer(status=302, lines={"Location": "/elsewhere", "Content-Range": None})
    elsewhere = Answer(content=LARGE.swapcase()[::-1])  # of the same length, with the same ETag
    lane = REQUESTS if through == "requests" else URLLIB3
    answers = [Answer(90_000), moved, elsewhere, Answer()]
    with Origin(LARGE, answers) as origin, made(lane) as ours:
        if through == "a pool":
            content = lane.manager(ours).connection_from_url(origin.url).request("GET", "/").data
        else:
            content = whole(ours, origin.url)[1]
        assert content == elsewhere.content
        assert [asked for asked, _ in origin.ranges] == [None, "bytes=90000-", None]
        assert b" / " in origin.requests[2]


@clients
def test_a_rest_that_is_longer_than_it_said_is_read_no_further(lane):
    longer = Answer(
        content=CONTENT + b"more", chunked=True, lines={"Content-Range": "bytes 8000-39999/40000"}
    )
    with Origin(CONTENT, [Answer(8_000), longer]) as origin, made(lane) as ours:
        response = get(ours, origin.url)
        got, error = read(lane, response)
        assert error is not None
        assert (got + response.raw.read()) == CONTENT[: len(got)]
        response.close()


@clients
def test_drain_conn_does_not_go_on(lane):
    with Origin(CONTENT, [Answer(8_000), Answer()]) as origin, made(lane) as ours:
        get(ours, origin.url).raw.drain_conn()
        assert len(origin.requests) == 1


@clients
@pytest.mark.timeout(20)
def test_the_rest_of_a_large_body_inside_the_loop_ends_at_the_deadline(lane, server):
    """Also one that drips, each of whose receives is in time."""
    of_v1 = "body=200000;etag=v1"
    server.script("/file", f"cut:70001;{of_v1}", f"200;{of_v1};drip=150")
    with made(lane, POLICY.replace(total_timeout=0.5)) as ours:
        with pytest.raises(lane.forbear.DeadlineExceeded):
            whole(ours, server.url + "/file")
    assert len(server.requests("/file")) == 2
