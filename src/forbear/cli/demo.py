"""``forbear demo``: real clients against a server that misbehaves on purpose.

Plays the scenes one after the other, in the order of the promises, and each with all callers at the
same time, on a path of its own for each. ``judge`` compares what the caller got with the server's
ledger, and returns what the server saw, in words, and which claims did not hold. The library's log
is kept meanwhile, to show that it contains no secrets.

``Caller`` is an installed client, sync or async, behind one way of calling.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from http.client import HTTPConnection
from importlib import import_module
from threading import Thread
from typing import Any, NamedTuple, TextIO

from ..core.checks import to_install
from ..core.outcome import Reason
from ..core.policy import RetryPolicy
from ..core.record import record_of
from ..engine.blocks import deadline
from ..engine.settings import DEFAULT_POLICY
from ..testing.server import Arrival, FaultServer
from . import GREEN, RED, Page, complain, teach

TIMEOUT = 5.0  # seconds; of the clients themselves. Nothing in a scene takes so long


class Order(NamedTuple):
    """A request that a scene has a client send."""

    method: str = "GET"
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed
    content: bytes | None = None
    one_shot: bool = False  # the body comes from a generator, which can be read only once
    seconds: float | None = None  # of ``forbear.deadline`` around the call
    times: int = 1  # by one client
    at_once: bool = False  # not one after the other
    policy: RetryPolicy = DEFAULT_POLICY


class Result:
    """The outcome of one call, as its caller got it."""

    def __init__(self, outcome: Any, elapsed: float) -> None:
        self.error = outcome if isinstance(outcome, Exception) else None
        self.status = getattr(outcome, "status_code", getattr(outcome, "status", None))
        self.elapsed = elapsed  # seconds
        self.record: Any = record_of(outcome)  # None only for what was sent without forbear


class Caller:
    """One client library; this one is urllib3, with a pool manager."""

    failure = "HTTPError"  # the base of its exceptions, which its users catch
    kind = ""  # sync or async, of a library that has both

    def __init__(self, family: str) -> None:
        self.family = family
        self.label = f"{family} {self.kind}".rstrip()
        self.library = import_module(family)
        self.forbear = import_module(f"forbear.{family}")

    def is_own(self, error: Exception | None) -> bool:
        """Is it of the library's own family of exceptions?"""
        bases = [base for base in type(error).__mro__ if base.__name__ == self.failure]
        return any(base.__module__.partition(".")[0] == self.family for base in bases)

    def call(self, url: str, order: Order) -> list[Result]:
        """Send the order through a new client; its connections are closed when this returns."""
        with self.client(order.policy) as send:
            if not order.at_once:
                return [result_of(order, url, send) for _ in range(order.times)]
            with ThreadPoolExecutor(order.times) as pool:
                futures = [pool.submit(result_of, order, url, send) for _ in range(order.times)]
                return [future.result() for future in futures]

    @contextmanager
    def client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        """Open a client; yield a function of a method, a URL, headers and a body."""
        with self.forbear.RetryPoolManager(policy, timeout=TIMEOUT) as manager:
            yield lambda method, url, headers, body: manager.request(
                method, url, headers=headers, body=body
            )


class RequestsCaller(Caller):
    failure = "RequestException"

    @contextmanager
    def client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        with self.library.Session() as session:
            session.trust_env = False  # no proxy, no .netrc: this is loopback
            session.mount("http://", self.forbear.RetryAdapter(policy))
            yield lambda method, url, headers, body: session.request(
                method, url, headers=headers, data=body, timeout=TIMEOUT
            )


class HttpxCaller(Caller):
    """httpx or httpx2, with a ``Client``."""

    failure, kind = "TransportError", "sync"

    @contextmanager
    def client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        inner = self.library.HTTPTransport(verify=False)  # certificates take long to load
        transport = self.forbear.RetryTransport(inner, policy=policy)
        with self.library.Client(transport=transport, timeout=TIMEOUT) as client:
            yield lambda method, url, headers, body: client.request(
                method, url, headers=headers, content=body
            )


class AsyncHttpxCaller(Caller):
    """httpx or httpx2, with an ``AsyncClient`` on an event loop in a thread of its own."""

    failure, kind = "TransportError", "async"

    @contextmanager
    def client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        inner = self.library.AsyncHTTPTransport(verify=False)
        transport = self.forbear.AsyncRetryTransport(inner, policy=policy)
        with event_loop() as wait_for:
            client = self.library.AsyncClient(transport=transport, timeout=TIMEOUT)
            try:
                yield lambda method, url, headers, body: wait_for(
                    client.request(method, url, headers=headers, content=awaited(body))
                )
            finally:
                wait_for(client.aclose())


class AiohttpCaller(Caller):
    failure = "ClientError"

    @contextmanager
    def client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        async def opened() -> Any:
            return self.library.ClientSession(
                timeout=self.library.ClientTimeout(sock_connect=TIMEOUT, sock_read=TIMEOUT),
                middlewares=(self.forbear.RetryMiddleware(policy),),
            )

        async def fetch(method: str, url: str, headers: dict[str, str], body: Any) -> Any:
            named = {"headers": headers, "data": awaited(body)}
            async with session.request(method, url, **named) as response:
                await response.read()
                return response

        with event_loop() as wait_for:
            session = wait_for(opened())
            try:
                yield lambda *order: wait_for(fetch(*order))
            finally:
                wait_for(session.close())


CALLERS = (
    (HttpxCaller, "httpx"), (AsyncHttpxCaller, "httpx"), (HttpxCaller, "httpx2"),
    (AsyncHttpxCaller, "httpx2"), (AiohttpCaller, "aiohttp"), (RequestsCaller, "requests"),
    (Caller, "urllib3"),
)  # fmt: skip


def installed() -> list[Caller]:
    """A caller for each client that can be imported."""
    found: list[Caller] = []
    for kind, family in CALLERS:
        with suppress(ImportError):
            found.append(kind(family))
    return found


def result_of(order: Order, url: str, send: Callable[..., Any]) -> Result:
    """Send the order once."""
    body: Any = order.content
    if order.content is not None and order.one_shot:
        body = iter([order.content])
    started_at = time.monotonic()
    try:
        with nullcontext() if order.seconds is None else deadline(order.seconds):
            outcome: Any = send(order.method, url, order.headers, body)
    except Exception as error:
        outcome = error
    return Result(outcome, time.monotonic() - started_at)


@contextmanager
def event_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Run an event loop in a thread of its own; yield what runs a coroutine there."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait_for(coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it as a task, in the context of the caller: with its deadline."""
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        yield wait_for
    finally:
        wait_for(loop.shutdown_asyncgens())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def awaited(body: Any) -> Any:
    return body if body is None or isinstance(body, bytes) else later(body)


async def later(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


ABOUT = (
    "Start a server on 127.0.0.1 that fails on purpose, send it real requests through the installed"
    " clients (httpx, httpx2, aiohttp, requests, urllib3), and print what it saw, what the clients"
    " waited and which promise that shows. Needs no network; takes some seconds, since the"
    " delays are those of the default policy."
)
EXIT = (
    "exit status: 0 all promises held, 1 one did not, 2 no client is installed or no server starts."
)
INTRO = """\
A server on this machine ({}) misbehaves on purpose.
It is sent real requests, through forbear, by
{}.
Policy and waits are the defaults, where a scene names no other policy.
waited: between attempts; took: the whole call, until the caller got something."""
HEADS = ("client", "server saw", "waited", "took", "caller got")
WIDTHS = (12, 26, 6, 6, 39)  # with the mark and its spaces 100 in all
GONE_WITHIN = 10.0  # seconds for the server to notice that a client has closed
SECRET = "s3cr3t-of-the-demo"  # noqa: S105  # in every path, query and header; must never be logged
UPLOAD = bytes(range(256)) * 400  # 102,400 bytes: more than one chunk
CALLS_IN_OUTAGE = 100
CALLS_AT_ONCE = 8  # of each client; more would come one after the other on a busy machine
OUTAGE_POLICY = RetryPolicy.latency_sensitive()
ASKED = 1.0  # seconds of the Retry-After
DEADLINE = 0.5  # seconds


class Scene(NamedTuple):
    """One fault.

    Attributes:
        title: What is sent, or the fault.
        promise: Number and words of the promise that it shows.
        fault: What the server does, in words.
        steps: The same as a script of FaultServer.
        order: What each caller sends.
        ends: Requests that the server must see, the status that the caller must get (None: an
            error of the client's own), how the story of the attempts must end.
        by_hand: The order is also sent by a loop of four attempts, without forbear.
    """

    title: str
    promise: str
    fault: str
    steps: tuple[int | str, ...]
    order: Order = Order()
    ends: tuple[int, int | None, Reason | None] = (2, 200, None)
    by_hand: bool = False


POST = Order("POST", content=b"one order")
SCENES = (
    Scene(
        "A POST without an idempotency key",
        "P1: what is not safe to retry is executed at most once;"
        " the caller gets the client's own error",
        "executes it, then resets the connection without a response, three times",
        ("reset", "reset", "reset", 200),
        POST,
        ends=(1, None, Reason.METHOD_NOT_REPLAYABLE),
        by_hand=True,
    ),
    Scene(
        "The same POST with an Idempotency-Key",
        "P1: a key makes it safe to retry: the server executes it once and responds twice",
        "executes it, then resets the connection without a response",
        ("reset", 200),
        POST._replace(headers={"Idempotency-Key": "order-4711"}),
    ),
    Scene(
        "An upload from memory",
        "P2: a body is sent whole every time (SHA-256 of what arrived)",
        "responds with 503, then 200",
        (503, 200),
        Order("PUT", content=UPLOAD),
    ),
    Scene(
        "An upload from a generator, which can be read only once",
        "P2: whole or not at all: never an empty body later;"
        " the caller gets the server's real response",
        "responds with 503, and would respond with 200 next",
        (503, 200),
        Order("PUT", content=UPLOAD, one_shot=True),
        ends=(1, 503, Reason.BODY_CONSUMED),
    ),
    Scene(
        "A throttled GET",
        "P3: never sooner than the server asked",
        "responds with 429 and Retry-After: 1, then 200",
        ("429;retry-after=1", 200),
    ),
    Scene(
        "A Retry-After longer than max_retry_after",
        "P3: if the server asks for more than max_retry_after, its response is returned at once",
        "responds with 503 and Retry-After: 3600",
        ("503;retry-after=3600",),
        ends=(1, 503, Reason.RETRY_AFTER_TOO_LONG),
    ),
    Scene(
        f"A deadline of {DEADLINE:g} s on a server that hangs",
        "P4: the call ends with its deadline, as a timeout of the client's own kind",
        "reads the request and never responds",
        ("hang",),
        Order(seconds=DEADLINE),
        ends=(1, None, Reason.DEADLINE),
    ),
    Scene(
        "A deadline of 3 s and a Retry-After of 9 s",
        "P4: no delay begins that leaves no time for another attempt",
        "responds with 503 and Retry-After: 9, and would respond with 200 next",
        ("503;retry-after=9", 200),
        Order(seconds=3.0),
        ends=(1, 503, Reason.DEADLINE),
    ),
    Scene(
        f"A dead server: {CALLS_IN_OUTAGE} GETs, one after the other",
        f"P5: successes release retries: two are sent, and then none; without that it would see"
        f" {CALLS_IN_OUTAGE * OUTAGE_POLICY.max_attempts}",
        "responds with 503 to everything; the policy is RetryPolicy.latency_sensitive()",
        (503,),
        Order(times=CALLS_IN_OUTAGE, policy=OUTAGE_POLICY),
        ends=(CALLS_IN_OUTAGE + 2, 503, None),
    ),
    Scene(
        f"A short outage under {CALLS_AT_ONCE} GETs at once",
        "P5: calls are held, and not lost; two are retried at once, and successes release others",
        f"responds with 503 to {CALLS_AT_ONCE} requests, then 200",
        (503,) * CALLS_AT_ONCE + (200,),
        Order(times=CALLS_AT_ONCE, at_once=True),
        ends=(2 * CALLS_AT_ONCE, 200, None),
    ),
    Scene(
        "A GET whose connection is dropped",
        "P7: the caller gets an ordinary response, with the story of the attempts attached",
        "reads the request and resets the connection, then responds with 200",
        ("reset", 200),
    ),
    Scene(
        "A server that talks nonsense",
        "P8: nothing a server sends can crash or stall a call",
        'responds with 503 and "Retry-After: soon", then bytes that are not HTTP, then 200',
        ("503;retry-after=soon", "garbage", 200),
        ends=(3, 200, None),
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the help of the command, which takes no arguments."""
    teach(parser, ABOUT, EXIT)


def run(
    out: TextIO,
    options: argparse.Namespace | None = None,
    *,
    callers: Sequence[Caller] | None = None,
    scenes: Sequence[Scene] = SCENES,
) -> int:
    """Play the scenes with these callers, or with every installed client; return the status."""
    callers = installed() if callers is None else callers
    if not callers:
        extras = to_install("httpx,httpx2,aiohttp,requests,urllib3")
        which = "httpx, httpx2, aiohttp, requests or urllib3"
        return complain("demo", f"no {which} is installed: {extras}")
    server, log, report = FaultServer(), Log(), Report(out)
    try:
        server.start()
    except OSError as error:
        return complain("demo", f"no server can be started on 127.0.0.1: {error.strerror or error}")
    began_at = time.monotonic()
    try:
        versions = {caller.family: caller.library.__version__ for caller in callers}
        names = ", ".join(f"{family} {version}" for family, version in versions.items())
        report.line(INTRO.format(server.url, names))
        counted = False
        with log:
            for number, scene in enumerate(scenes, start=1):
                if scene.promise >= "P7" and not counted:
                    counted = count_connections(report, server, "So far")
                report.line(f"\n{number}. {scene.title}\n   {scene.promise}")
                report.line(f"   The server {scene.fault}.\n   {columns(HEADS)}")
                play(report, server, f"/{SECRET}/{number}", scene, callers)
        if not counted:
            count_connections(report, server, "Afterwards")
        leaks = sum(SECRET in line for line in log.lines)
        report.line("\nAfterwards" * counted)
        said = f"P10: nothing secret is logged: {len(log.lines)} log records, {leaks} with a secret"
        report.check(said, not leaks)
    finally:
        server.stop()
    return report.summary(time.monotonic() - began_at)


def play(
    report: Report, server: FaultServer, path: str, scene: Scene, callers: Sequence[Caller]
) -> None:
    """Play one scene with all callers at once."""
    headers = {**scene.order.headers, "Authorization": f"Bearer {SECRET}"}
    order = scene.order._replace(headers=headers)
    paths = [f"{path}/{number}" for number, _ in enumerate(callers)]

    def send(caller: Caller, path: str) -> list[Result]:
        server.script(path, *scene.steps)
        return caller.call(f"{server.url}{path}?token={SECRET}", order)

    if scene.by_hand:
        server.script(path, *scene.steps)
        started_at = time.monotonic()
        got = send_in_a_loop(server.url, path)
        took = f"{time.monotonic() - started_at:.2f} s"
        saw = f"{len(server.requests(path))} sent, executed {server.executed(path)} times"
        report.line(f"   {columns(('a plain loop', saw, '-', took, got))}")
    with ThreadPoolExecutor(len(callers)) as pool:
        found = pool.map(send, callers, paths)
        for caller, path_of_caller, results in zip(callers, paths, found, strict=True):
            saw, broken = judge(scene, caller, results, server.requests(path_of_caller))
            total = max if order.at_once else sum
            waits = [sum(result.record.waits) for result in results]
            waited = f"{total(waits):.2f} s" if any(one.record.waits for one in results) else "-"
            took = f"{total(result.elapsed for result in results):.2f} s"
            report.row((caller.label, saw, waited, took, outcome(results)), broken)


def send_in_a_loop(server: str, path: str) -> str:
    """Send a POST as most programs do that have no library for it: until there is a response."""
    for _ in range(4):
        connection = HTTPConnection(server.removeprefix("http://"), timeout=TIMEOUT)
        with closing(connection), suppress(OSError):
            connection.request("POST", path, POST.content)
            return str(connection.getresponse().status)
    return "nothing"


def judge(
    scene: Scene, caller: Caller, results: list[Result], arrivals: list[Arrival]
) -> tuple[str, list[str]]:
    """Return what the server saw, in words, and which claims did not hold."""
    count, order, result = len(arrivals), scene.order, results[0]
    requests, status, reason = scene.ends
    saw = f"{count} request{'s' * (count != 1)}"
    broken: list[str] = []

    def claim(holds: bool, otherwise: str) -> None:
        if not holds:
            broken.append(otherwise)

    claim(count == requests, f"{requests} requests were to come, {count} came")
    if order.times > 1:
        saw += f" for {order.times} calls"
    else:
        claim(result.record.retries == count - 1, f"its record has {result.record.retries} retries")
        ended = result.record.reason
        claim(ended is reason, f"the story was to end with {reason}, not {ended}")
    if status is None:
        own = f"the caller was to get {caller.family}'s own error, got {shown(result)}"
        claim(caller.is_own(result.error), own)
        claim(bool(getattr(result.error, "__notes__", ())), "the error has no story")
    for other in [one for one in results if status not in (None, one.status)][:1]:
        claim(False, f"the caller was to get {status}, got {shown(other)}")
    if order.seconds and status is None:
        # Without a deadline it would take TIMEOUT; a busy machine may need some time on top.
        in_time = order.seconds - 0.05 <= result.elapsed <= TIMEOUT / 2
        claim(in_time, f"the call took {result.elapsed:.2f} s, not {order.seconds:g} s")
    elif requests == 1:
        waited = sum(result.record.waits)
        claim(not waited, f"the caller was to get it at once, it waited {waited:.2f} s")
    if order.method == "POST":
        times = sum(arrival.executed for arrival in arrivals)
        saw += f", executed {'once' if times == 1 else f'{times} times'}"
        claim(times == 1, f"it was executed {times} times")
        keys = {arrival.key for arrival in arrivals}
        claim(len(keys) == 1, "the attempts did not carry the same key")
    if order.content == UPLOAD:
        digest = hashlib.sha256(UPLOAD).hexdigest()
        parts = [one for one in arrivals if one.sha256 != digest or not one.body_complete]
        saw += f", {'bodies' if count > 1 else 'body'} {'not ' * bool(parts)}whole"
        for part in parts:
            claim(False, f"a body of {part.body_bytes} bytes arrived instead of {len(UPLOAD)}")
    if f"429;retry-after={ASKED:g}" in scene.steps:
        gap = 0.0
        if count > 1:  # from its start: a busy server notes late that it has sent a response
            gap = arrivals[1].started_at - arrivals[0].started_at
        saw += f", {gap:.2f} s apart"
        claim(gap >= ASKED, f"the second came after {gap:.3f} s, {ASKED:g} s were asked for")
    return saw, broken


def shown(result: Result) -> str:
    return str(result.status) if result.error is None else type(result.error).__name__


def outcome(results: list[Result]) -> str:
    text, reason = shown(results[0]), results[0].record.reason
    if len(results) > 1:
        return f"{len(results)} times {text}"
    return text if reason is None else f"{text} ({reason.value})"


def count_connections(report: Report, server: FaultServer, when: str) -> bool:
    """Check the promise that can be checked once all clients are closed."""
    until = time.monotonic() + GONE_WITHIN
    while server.open_connections and time.monotonic() < until:
        time.sleep(0.01)
    left, opened = server.open_connections, server.connections
    report.line(f"\n{when}")
    said = f"P6: nothing leaks: {opened} connections were opened, {left} are still open"
    report.check(said, not left)
    return True


class Log(logging.Handler):
    """Keeps what the library logs inside a ``with`` block, instead of letting it be printed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._logger = logging.getLogger("forbear")

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.__dict__}")

    def __enter__(self) -> None:
        self._before = self._logger.level, self._logger.propagate
        self._logger.setLevel(logging.DEBUG)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            return  # so calls that are cut off now do not print over the last line
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)


class Report(Page):
    """Rows of fixed columns, printed one by one, and a count of the checks."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._checks: list[bool] = []
        is_unicode = (out.encoding or "utf-8").lower().startswith("utf")
        self._marks = " ✓ ✗" if is_unicode else "okNO"

    def row(self, cells: Sequence[str], broken: Sequence[str]) -> None:
        self.check(columns(cells), not broken)
        for claim in broken:
            self.line(f"     {self.painted(claim, RED)}")

    def check(self, text: str, holds: bool) -> None:
        self._checks.append(holds)
        mark = self._marks[:2] if holds else self._marks[2:]
        self.line(f"{self.painted(mark, GREEN if holds else RED)} {text}")

    def summary(self, seconds: float) -> int:
        """Print how many checks held; return the exit status."""
        count, failed = len(self._checks), self._checks.count(False)
        said = f"{failed} of {count} checks failed" if failed else f"All {count} checks held"
        self.line(f"\n{self.painted(f'{said}, in {seconds:.1f} s.', RED if failed else GREEN)}")
        return 1 if failed else 0


def columns(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
