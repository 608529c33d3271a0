"""Whatever a server does to a feed: each event once, in order, none by halves, the right last id."""

import contextlib
import re
from typing import NamedTuple

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import EventStreams, Fixed, RetryPolicy
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock

SSE = {"Content-Type": "text/event-stream"}
BOM = b"\xef\xbb\xbf"
IDS = ["own", "own", "own", "own", None, "", "n\0l"]
ENDS = st.sampled_from(["\n", "\r", "\r\n"])


def encoded(end: str, name: str | None, *lines: str) -> bytes:
    named = [] if name is None else [f"id: {name}"]
    return "".join(line + end for line in [*lines, *named, ""]).encode()


class Event(NamedTuple):
    """One event of the feed."""

    data: str
    id: str | None
    encoded: bytes
    size: int  # bytes after which it is whole: the line feed of a last CR LF may come later


def event(number: int, name: str | None, end: str, extra: str) -> Event:
    name, data = str(number) if name == "own" else name, f"{number} h\u00e9llo"
    sent = encoded(end, name, *filter(None, [extra]), f"data: {data}")
    return Event(data, name, sent, len(sent) - (end == "\r\n"))


extras = st.sampled_from(["", "", ": id: 99", "retry: 300", "retry: x", "idea: 7", "event: e"])
feeds = st.lists(st.tuples(st.sampled_from(IDS), ENDS, extras), min_size=1, max_size=8).map(
    lambda parts: [event(number, *part) for number, part in enumerate(parts, 1)]
)
streams = st.tuples(st.just("stream"), st.integers(0, 200), st.booleans(), st.booleans())
others = st.sampled_from([("503",), ("refused",), ("204",), ("404",), ("json",)])


class Pieces(httpx.SyncByteStream):
    closed = False

    def __init__(self, body, size, breaks):
        self._body, self._size, self._breaks = body, size, breaks

    def __iter__(self):
        for at in range(0, len(self._body), self._size):
            yield self._body[at : at + self._size]
        if self._breaks:
            raise httpx.ReadError("cut")

    def close(self):
        self.closed = True


class Server(httpx.BaseTransport):
    """Carries out its steps, then sends all that is left; knows what the caller must have got."""

    def __init__(self, events, steps, size):
        self._events, self._steps, self._size = events, list(steps), size
        self.due, self.last, self.ended, self.bodies, self.surprises = [], "", False, [], []

    def handle_request(self, request):
        asked = request.headers.get("last-event-id", "")
        if asked != self.last or self.ended or (self.due and not self.last):
            self.surprises.append((asked, self.last, self.ended))  # an error would be a break
        how, *rest = self._steps.pop(0) if self._steps else ("stream", 10**6, False, False)
        if how == "refused":
            raise httpx.ConnectError("refused")
        known = [one.id for one in self._events]
        left = self._events[known.index(self.last) + 1 if self.last else 0 :]
        if how != "stream" or (self.due and not left):
            status = int(how) if how.isdigit() else 200 if how == "json" else 204
            self.ended = status != 503
            return httpx.Response(status, stream=Pieces(b"{}", 2, breaks=False))
        cut, breaks, has_bom = rest
        body = BOM * has_bom + b"".join(one.encoded for one in left)
        self.bodies.append(Pieces(body[:cut], self._size, breaks))
        cut -= len(BOM) * has_bom
        for one in left:
            if cut < one.size:
                break
            cut -= len(one.encoded)
            self.due.append(one.data)
            if one.id is not None and "\0" not in one.id:
                self.last = one.id
        return httpx.Response(200, headers=SSE, stream=self.bodies[-1])


def receive(server, max_attempts):
    """What the caller gets of a resumed stream, with its type, and the waits in between."""
    clock, got, kind = FakeClock(), bytearray(), None
    transport = RetryTransport(
        server, policy=RetryPolicy(max_attempts=max_attempts, backoff=Fixed(0.0)), clock=clock,
        event_streams=EventStreams(resume=True), random=lambda: 0.5, budget=None, gate=None,
    )  # fmt: skip
    with (
        httpx.Client(transport=transport) as client,
        contextlib.suppress(httpx.TransportError),  # a break that nothing could follow
        client.stream("GET", "http://feed.example.com/") as response,
    ):
        kind = response.headers.get("content-type")
        for chunk in response.iter_raw():
            got += chunk
            assert BOM not in got[1:], "it is one only at the beginning"
            assert len(got) < 100_000, "it goes on without end"
    return bytes(got), kind, clock.sleeps


def parsed(got: bytes) -> list[tuple[str, str]]:
    """Data and ID of the whole events, by section 9.2.6. Without IDs the end may be half an event."""
    found, data, name = [], "", ""
    for line in re.split("\r\n|\r|\n", got.removeprefix(BOM).decode("utf-8", "replace"))[:-1]:
        if line.startswith("data: "):
            data = line[6:]
        elif line.startswith("id: ") and "\0" not in line:
            name = line[4:]
        elif not line:
            found += [(data, name)] if data else []
            data = name = ""
    return found


@settings(max_examples=100)
@given(
    feeds, st.lists(streams | streams | streams | others, max_size=8),
    st.sampled_from([1, 2, 3, 7, 64, 1000]),
)  # fmt: skip
def test_each_event_is_handed_over_once_and_whole(events, steps, size):
    """An event without an id may come twice: the server is asked for what follows the last id."""
    server = Server(events, steps, size)
    got, kind, sleeps = receive(server, 50)  # more attempts than the server has steps
    if kind == SSE["Content-Type"]:
        assert [data for data, _ in parsed(got)] == server.due
    assert not server.surprises
    assert all(body.closed for body in server.bodies)
    assert all(seconds == 0 or seconds >= 0.3 for seconds in sleeps)


class Anything(httpx.BaseTransport):
    """Sends its responses in turn, whatever is asked for; data are the numbers of request and event."""

    def __init__(self, responses, size):
        self._responses, self._size, self.requests = responses, size, 0

    def handle_request(self, request):
        number, self.requests = self.requests, self.requests + 1
        status, events, cut, breaks = self._responses[number % len(self._responses)]
        body = b"".join(
            encoded(end, name, f"data: {number}.{at}" if has_data else ": none")
            for at, (name, has_data, end) in enumerate(events)
        )
        return httpx.Response(status, headers=SSE, stream=Pieces(body[:cut], self._size, breaks))


KNOWN = ["1", "2", "3", "4"]
some = st.tuples(
    st.sampled_from([*KNOWN, *KNOWN, None, "", "n\0l"]),
    st.sampled_from([True, True, True, False]), ENDS,
)  # fmt: skip
anything = st.tuples(
    st.sampled_from([200, 200, 200, 200, 503, 204]), st.lists(some, max_size=5),
    st.integers(0, 120), st.booleans(),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=200)
@given(st.lists(anything, min_size=1, max_size=5), st.sampled_from([1, 3, 64]))
def test_no_server_makes_an_event_come_twice_or_is_asked_without_end(responses, size):
    """One that ignores Last-Event-ID, repeats ids, breaks anywhere; in one response ids are its own."""
    server = Anything(responses, size)
    events = [(*map(int, data.split(".")), name) for data, name in parsed(receive(server, 3)[0])]
    places = [(number, at) for number, at, _ in events]
    assert places == sorted(set(places))
    first = {}
    for number, _, name in events:
        assert not name or first.setdefault(name, number) == number, events
    assert server.requests <= 3 * (len(KNOWN) + 1)
