"""One call over redirects: hops share retries and deadline, and each is sent at least once."""

import pytest

from forbear import Fixed, IdempotencyKeys, Reason, RetryPolicy, record_of

pytestmark = pytest.mark.adapters("httpx-family")

HOST = "http://api.example.com"
NOW = RetryPolicy(backoff=Fixed(0))
FOLLOW = {"settings": {"follow_redirects": True}}


class Site:
    """Steps for each URL, the last one repeats; keeps what arrived."""

    def __init__(self, **pages):
        self.pages = {path: list(steps) for path, steps in pages.items()}
        self.seen = []

    def __call__(self, request):
        page = request.url.host.partition(".")[0] + request.url.path
        self.seen.append(request)
        steps = self.pages[page]
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        return step(request) if callable(step) else step

    @property
    def visits(self):
        return [request.url.host.partition(".")[0] + request.url.path for request in self.seen]


def to(location, status=307):
    return status, {"Location": location}


@pytest.mark.smoke
async def test_retries_are_shared_over_hops(adapter, quick):
    policy = NOW.replace(max_attempts=3)
    for status, location in (
        *((301, "/b"), (302, "/b"), (303, "/b"), (308, "/b"), (307, "b")),
        *((307, "//api.example.com/b"), (307, "http://api.example.com:80/b#part")),
        (307, "http://cdn.example.com/b"),
    ):
        place = "cdn/b" if "cdn" in location else "api/b"
        site = Site(**{"api/a": [503, to(location, status)], place: [503, 503, 200]})
        response = await adapter.once([site], url=HOST + "/a", policy=policy, **FOLLOW, **quick)
        assert response.status_code == 503, location
        assert site.visits == ["api/a", "api/a", place, place]
        assert record_of(response).reason is Reason.ATTEMPTS_EXHAUSTED
        assert [each.status_code for each in response.history] == [status]


@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_the_first_sending_of_a_hop_is_never_refused(adapter, quick, max_attempts):
    used = [503] * (max_attempts - 1)
    site = Site(**{"api/a": [*used, to("/b")], "api/b": [to("/c")], "api/c": [200]})
    policy = NOW.replace(max_attempts=max_attempts)
    response = await adapter.once([site], url=HOST + "/a", policy=policy, **FOLLOW, **quick)
    assert response.status_code == 200
    assert site.visits == ["api/a"] * max_attempts + ["api/b", "api/c"]


@pytest.mark.parametrize("seconds", [6, 10])
async def test_the_deadline_is_shared_over_hops(adapter, quick, seconds):
    clock, reads = quick["clock"], []

    def slow(request):
        clock.advance(seconds)
        return to("/b")

    def second(request):
        reads.append(request.extensions["timeout"].get("read"))
        return 503, {"Retry-After": "5"}

    site = Site(**{"api/a": [slow], "api/b": [second]})
    policy = RetryPolicy(total_timeout=10, hint_spread=0)
    settings = {"follow_redirects": True, "timeout": 30}
    async with adapter.client([site], policy=policy, settings=settings, **quick) as client:
        outcome = await adapter.outcome(client, "GET", HOST + "/a")
    record = record_of(outcome)
    assert record.reason is Reason.DEADLINE
    if seconds == 10:
        assert isinstance(outcome, adapter.DeadlineExceeded)
        assert site.visits == ["api/a"]
    else:
        assert (reads, record.refused_delay) == ([4.0], 5.0)


async def test_each_hop_is_judged_by_its_own_method(adapter, server, quick):
    for status, method in ((302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")):
        before = len(server.requests())
        server.script("/a", f"{status};header=Location:/b;executes=1")
        server.script("/b", "reset", 200)
        async with adapter.client(**FOLLOW, **quick) as client:
            outcome = await adapter.outcome(client, "POST", server.url + "/a", content=b"x")
        assert isinstance(outcome, adapter.transport_error) is (method == "POST")
        seen = [(arrival.path, arrival.method) for arrival in server.requests()[before:]]
        assert seen == [("/a", "POST")] + [("/b", method)] * (2 if method == "GET" else 1)


async def test_a_generated_key_stays_with_its_origin(adapter, quick):
    for status in (307, 308):
        cdn = to("http://cdn.example.com/c", status)
        pages = {"api/a": [503, to("/b", status)], "api/b": [503, cdn], "cdn/c": [503, 200]}
        site, options = Site(**pages), {"idempotency": IdempotencyKeys(), **FOLLOW, **quick}
        async with adapter.client([site], policy=NOW, **options) as client:
            response = await adapter.call(client, "POST", HOST + "/a", content=b"x")
        assert response.status_code == 200
        a1, a2, b1, b2, c1, c2 = (request.headers["Idempotency-Key"] for request in site.seen)
        assert a1 == a2 == b1 == b2
        assert c1 == c2 != a1
    site, options = Site(**{"api/a": [to("/b", 303)], "api/b": [200]}), {**FOLLOW, **quick}
    await adapter.once([site], "POST", HOST + "/a", idempotency=IdempotencyKeys(), **options)
    assert ["idempotency-key" in request.headers for request in site.seen] == [True, False]


@pytest.mark.adapters("sync")
async def test_an_odd_location_is_the_clients_to_judge(adapter, quick):
    request = adapter.library.Request("GET", HOST + "/a")
    odd = ("http://[bad", "//", "ftp://example.com/", "", "http:///nohost", "mailto:somebody")
    for location in (*odd, "/\x00", "/" + "x" * 70_000):
        transport = adapter.transport([to(location)], **quick)
        assert (await adapter.send(transport, request)).status_code == 307, location
