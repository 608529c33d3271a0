"""``forbear demo``: real clients against a server that misbehaves on purpose.

Plays the scenes one after the other, and each with all callers at the same time, on a path of its
own for each. ``judge`` compares what the caller got with the server's ledger, and returns what the
server saw, in words, and which claims did not hold. The library's log is kept meanwhile, to show
that it contains no secrets.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from http.client import HTTPConnection
from importlib import import_module
from logging.handlers import BufferingHandler
from typing import Any, NamedTuple

from ..core.checks import to_install
from ..core.outcome import Reason
from ..core.policy import RetryPolicy
from ..engine.blocks import deadline
from ..engine.settings import DEFAULT_POLICY
from ..records import record_of
from ..testing.server import Arrival, FaultServer
from . import complain

Send = Callable[..., Awaitable[Any]]  # of a method, a URL, headers and a body
TIMEOUT = 5.0  # seconds; of the clients themselves. Nothing in a scene takes so long


class Scene(NamedTuple):
    """One fault, and the call that meets it.

    Attributes:
        title: What is sent, and how the server responds.
        promise: Number and words of the promise that it shows.
        steps: The responses as a script of FaultServer.
        ends: Requests that the server must see, the status that the caller must get (None: an
            error of the client's own), how the story of the attempts must end.
        by_hand: It is also sent by a loop of four attempts, without forbear.
    """

    title: str
    promise: str
    steps: tuple[int | str, ...]
    ends: tuple[int, int | None, Reason | None] = (2, 200, None)
    by_hand: bool = False
    method: str = "GET"
    key: str = ""
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


# A client of each library, as its users make it. Those of threads are called in threads.


def in_threads(request: Callable[..., Any], body_name: str, **named: object) -> Send:
    def send(method: str, url: str, headers: dict[str, str], body: Any) -> Awaitable[Any]:
        given = {"headers": headers, body_name: body, **named}
        return asyncio.to_thread(request, method, url, **given)

    return send


@asynccontextmanager
async def pool_manager(urllib3: Any, ours: Any, policy: RetryPolicy) -> AsyncIterator[Send]:
    with ours.RetryPoolManager(policy, timeout=TIMEOUT) as manager:
        yield in_threads(manager.request, "body")


@asynccontextmanager
async def session(requests: Any, ours: Any, policy: RetryPolicy) -> AsyncIterator[Send]:
    with ours.mount(requests.Session(), policy) as client:
        client.trust_env = False
        yield in_threads(client.request, "data", timeout=TIMEOUT)


# No proxy, no .netrc: this is loopback; and certificates take long to load.
PLAIN: dict[str, Any] = {"timeout": TIMEOUT, "trust_env": False, "verify": False}


@asynccontextmanager
async def sync_client(httpx: Any, ours: Any, policy: RetryPolicy) -> AsyncIterator[Send]:
    with ours.wrap(httpx.Client(**PLAIN), policy) as client:
        yield in_threads(client.request, "content")


@asynccontextmanager
async def async_client(httpx: Any, ours: Any, policy: RetryPolicy) -> AsyncIterator[Send]:
    async with ours.wrap(httpx.AsyncClient(**PLAIN), policy) as client:
        yield lambda method, url, headers, body: client.request(
            method, url, headers=headers, content=awaited(body)
        )


@asynccontextmanager
async def aiohttp_session(aiohttp: Any, ours: Any, policy: RetryPolicy) -> AsyncIterator[Send]:
    timeout = aiohttp.ClientTimeout(sock_connect=TIMEOUT, sock_read=TIMEOUT)

    async def send(method: str, url: str, headers: dict[str, str], body: Any) -> Any:
        sent = client.request(method, url, headers=headers, data=awaited(body))
        async with sent as response:
            await response.read()
            return response

    async with ours.wrap(aiohttp.ClientSession(timeout=timeout), policy) as client:
        yield send


def awaited(body: Any) -> Any:
    return later(body) if isinstance(body, Iterator) else body


async def later(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class Caller(NamedTuple):
    label: str  # the library, and which of its clients
    opened: Callable[[Any, Any, RetryPolicy], AbstractAsyncContextManager[Send]]

    @property
    def family(self) -> str:
        return self.label.partition(" ")[0]

    def is_own(self, error: Exception | None) -> bool:
        """Is it of the library's own family of exceptions?"""
        return any(base.__module__.partition(".")[0] == self.family for base in type(error).__mro__)

    async def call(self, url: str, scene: Scene) -> list[Result]:
        """Send what the scene says by a new client, whose connections are closed in the end."""
        ours = import_module(f"forbear.{self.family}")
        async with self.opened(import_module(self.family), ours, scene.policy) as send:
            calls = [result_of(scene, url, send) for _ in range(scene.times)]
            return await asyncio.gather(*calls) if scene.at_once else [await one for one in calls]


CALLERS = (
    Caller("httpx sync", sync_client),
    Caller("httpx async", async_client),
    Caller("httpx2 sync", sync_client),
    Caller("httpx2 async", async_client),
    Caller("aiohttp", aiohttp_session),
    Caller("requests", session),
    Caller("urllib3", pool_manager),
)


def installed() -> list[Caller]:
    """A caller for each client that can be imported."""
    found: list[Caller] = []
    for caller in CALLERS:
        with suppress(ImportError):
            import_module(caller.family)
            found.append(caller)
    return found


async def result_of(scene: Scene, url: str, send: Send) -> Result:
    headers = {"Authorization": f"Bearer {SECRET}"}
    if scene.key:
        headers["Idempotency-Key"] = scene.key
    body = iter([scene.content]) if scene.one_shot else scene.content
    started_at = time.monotonic()
    try:
        with nullcontext() if scene.seconds is None else deadline(scene.seconds):
            outcome = await send(scene.method, url, headers, body)
    except Exception as error:
        outcome = error
    return Result(outcome, time.monotonic() - started_at)


ABOUT = (
    "Start a server on 127.0.0.1 that fails on purpose, send it real requests through the installed"
    " clients (httpx, httpx2, aiohttp, requests, urllib3), and print what it saw, what the clients"
    " waited and which promise that shows. Needs no network; takes some seconds, since the"
    " delays are those of the default policy."
)
EXAMPLES = (
    "exit status: 0 all promises held, 1 one did not, 2 no client is installed or no server starts."
)
INTRO = """\
A server on this machine ({}) misbehaves on purpose.
It is sent real requests, through forbear, by each client that is installed.
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


ORDER = b"one order"
SCENES = (
    Scene(
        "A POST without an idempotency key: executed, then the connection is reset, three times",
        "P1: what is not safe to retry is executed at most once;"
        " the caller gets the client's own error",
        ("reset", "reset", "reset", 200),
        method="POST",
        content=ORDER,
        ends=(1, None, Reason.METHOD_NOT_REPLAYABLE),
        by_hand=True,
    ),
    Scene(
        "The same POST with an Idempotency-Key: executed, then the connection is reset, then 200",
        "P1: a key makes it safe to retry: the server executes it once and responds twice",
        ("reset", 200),
        method="POST",
        content=ORDER,
        key="order-4711",
    ),
    Scene(
        "An upload from memory: 503, then 200",
        "P2: a body is sent whole every time (SHA-256 of what arrived)",
        (503, 200),
        method="PUT",
        content=UPLOAD,
    ),
    Scene(
        "An upload from a generator, which can be read only once: 503, and next would come 200",
        "P2: whole or not at all: never an empty body later;"
        " the caller gets the server's real response",
        (503, 200),
        method="PUT",
        content=UPLOAD,
        one_shot=True,
        ends=(1, 503, Reason.BODY_CONSUMED),
    ),
    Scene(
        "A GET: 429 with Retry-After: 1, then 200",
        "P3: never sooner than the server asked",
        ("429;retry-after=1", 200),
    ),
    Scene(
        "A GET: 503 with Retry-After: 3600, which is longer than max_retry_after",
        "P3: if the server asks for more than max_retry_after, its response is returned at once",
        ("503;retry-after=3600",),
        ends=(1, 503, Reason.RETRY_AFTER_TOO_LONG),
    ),
    Scene(
        f"A GET under a deadline of {DEADLINE:g} s: the server never responds",
        "P4: the call ends with its deadline, as a timeout of the client's own kind",
        ("hang",),
        seconds=DEADLINE,
        ends=(1, None, Reason.DEADLINE),
    ),
    Scene(
        "A GET under a deadline of 3 s: 503 with Retry-After: 9, and next would come 200",
        "P4: no delay begins that leaves no time for another attempt",
        ("503;retry-after=9", 200),
        seconds=3.0,
        ends=(1, 503, Reason.DEADLINE),
    ),
    Scene(
        f"{CALLS_IN_OUTAGE} GETs in a row, by RetryPolicy.latency_sensitive(): always 503",
        f"P5: successes release retries: two are sent, and then none; without that it would see"
        f" {CALLS_IN_OUTAGE * OUTAGE_POLICY.max_attempts}",
        (503,),
        times=CALLS_IN_OUTAGE,
        policy=OUTAGE_POLICY,
        ends=(CALLS_IN_OUTAGE + 2, 503, None),
    ),
    Scene(
        f"{CALLS_AT_ONCE} GETs at once: 503 to {CALLS_AT_ONCE} requests, then 200",
        "P5: calls are held, and not lost; two are retried at once, and successes release others",
        (503,) * CALLS_AT_ONCE + (200,),
        times=CALLS_AT_ONCE,
        at_once=True,
        ends=(2 * CALLS_AT_ONCE, 200, None),
    ),
    Scene(
        "A GET: the connection is reset, then 200",
        "P7: the caller gets an ordinary response, with the story of the attempts attached",
        ("reset", 200),
    ),
    Scene(
        'A GET: 503 with "Retry-After: soon", then bytes that are not HTTP, then 200',
        "P8: nothing a server sends can crash or stall a call",
        ("503;retry-after=soon", "garbage", 200),
        ends=(3, 200, None),
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(
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
    server, began_at, checks = FaultServer(), time.monotonic(), []
    try:
        server.start()
    except OSError as error:
        return complain("demo", f"no server can be started on 127.0.0.1: {error.strerror or error}")
    try:
        print(INTRO.format(server.url))
        with log_records() as logged:
            for number, scene in enumerate(scenes, start=1):
                print(f"\n{number}. {scene.title}\n   {scene.promise}\n   {columns(HEADS)}")
                checks += asyncio.run(play(server, f"/{SECRET}/{number}", scene, callers))
        print("\nAfterwards")
        checks.append(check_connections(server))
        leaks = sum(SECRET in f"{one.getMessage()} {one.__dict__}" for one in logged)
        said = f"P10: nothing secret is logged: {len(logged)} log records, {leaks} with a secret"
        checks.append(check(said, not leaks))
    finally:
        server.stop()
    count, failed = len(checks), checks.count(False)
    said = f"{failed} of {count} checks failed" if failed else f"All {count} checks held"
    print(f"\n{said}, in {time.monotonic() - began_at:.1f} s.")
    return 1 if failed else 0


async def play(
    server: FaultServer, path: str, scene: Scene, callers: Sequence[Caller]
) -> list[bool]:
    """Play one scene with all callers at once; print and return what held."""
    threads = ThreadPoolExecutor(len(callers) * CALLS_AT_ONCE)
    asyncio.get_running_loop().set_default_executor(threads)
    paths = [f"{path}/{number}" for number, _ in enumerate(callers)]
    for one in (path, *paths):
        server.script(one, *scene.steps)
    if scene.by_hand:
        started_at = time.monotonic()
        got = send_in_a_loop(server.url, path)
        took = f"{time.monotonic() - started_at:.2f} s"
        saw = f"{len(server.requests(path))} sent, executed {server.executed(path)} times"
        print(f"   {columns(('a plain loop', saw, '-', took, got))}", flush=True)
    found = await asyncio.gather(
        *(
            caller.call(f"{server.url}{path}?token={SECRET}", scene)
            for caller, path in zip(callers, paths, strict=True)
        )
    )
    checks = []
    for caller, path_of_caller, results in zip(callers, paths, found, strict=True):
        saw, broken = judge(scene, caller, results, server.requests(path_of_caller))
        total = max if scene.at_once else sum
        waits = [sum(result.record.waits) for result in results]
        waited = f"{total(waits):.2f} s" if any(one.record.waits for one in results) else "-"
        took = f"{total(result.elapsed for result in results):.2f} s"
        row = columns((caller.label, saw, waited, took, outcome(results)))
        checks.append(check(row, not broken))
        for claim in broken:
            print(f"     {claim}")
    return checks


def send_in_a_loop(server: str, path: str) -> str:
    """Send a POST as most programs do that have no library for it: until there is a response."""
    for _ in range(4):
        connection = HTTPConnection(server.removeprefix("http://"), timeout=TIMEOUT)
        with closing(connection), suppress(OSError):
            connection.request("POST", path, ORDER)
            return str(connection.getresponse().status)
    return "nothing"


def judge(
    scene: Scene, caller: Caller, results: list[Result], arrivals: list[Arrival]
) -> tuple[str, list[str]]:
    """Return what the server saw, in words, and which claims did not hold."""
    count, result = len(arrivals), results[0]
    requests, status, reason = scene.ends
    saw = f"{count} request{'s' * (count != 1)}"
    claims = {f"{requests} requests were to come, {count} came": count == requests}
    if scene.times > 1:
        saw += f" for {scene.times} calls"
    else:
        record = result.record
        claims[f"its record has {record.retries} retries"] = record.retries == count - 1
        claims[f"the story was to end with {reason}, not {record.reason}"] = record.reason is reason
    if status is None:
        own = f"the caller was to get {caller.family}'s own error, got {shown(result)}"
        claims[own] = caller.is_own(result.error)
        claims["the error has no story"] = bool(getattr(result.error, "__notes__", ()))
    for other in results:
        is_right = status is None or other.status == status
        claims[f"the caller was to get {status}, got {shown(other)}"] = is_right
    if scene.seconds and status is None:
        # Without a deadline it would take TIMEOUT; a busy machine may need some time on top.
        in_time = scene.seconds - 0.05 <= result.elapsed <= TIMEOUT / 2
        claims[f"the call took {result.elapsed:.2f} s, not {scene.seconds:g} s"] = in_time
    elif requests == 1:
        waited = sum(result.record.waits)
        claims[f"the caller was to get it at once, it waited {waited:.2f} s"] = not waited
    if scene.method == "POST":
        times = sum(arrival.executed for arrival in arrivals)
        saw += f", executed {'once' if times == 1 else f'{times} times'}"
        claims[f"it was executed {times} times"] = times == 1
        keys = {arrival.key for arrival in arrivals}
        claims["the attempts did not carry the same key"] = len(keys) == 1
    if scene.content == UPLOAD:
        digest = hashlib.sha256(UPLOAD).hexdigest()
        is_whole = all(one.sha256 == digest and one.body_complete for one in arrivals)
        saw += f", {'bodies' if count > 1 else 'body'} {'not ' * (not is_whole)}whole"
        claims["a body did not arrive whole"] = is_whole
    if f"429;retry-after={ASKED:g}" in scene.steps and count > 1:
        # From its start: a busy server notes late that it has sent a response.
        gap = arrivals[1].started_at - arrivals[0].started_at
        saw += f", {gap:.2f} s apart"
        claims[f"the second came after {gap:.3f} s, {ASKED:g} s were asked for"] = gap >= ASKED
    return saw, [claim for claim, holds in claims.items() if not holds]


def shown(result: Result) -> str:
    return str(result.status) if result.error is None else type(result.error).__name__


def outcome(results: list[Result]) -> str:
    text, reason = shown(results[0]), results[0].record.reason
    if len(results) > 1:
        return f"{len(results)} times {text}"
    return text if reason is None else f"{text} ({reason.value})"


def check_connections(server: FaultServer) -> bool:
    """Check the promise that can be checked once all clients are closed."""
    until = time.monotonic() + GONE_WITHIN
    while server.open_connections and time.monotonic() < until:
        time.sleep(0.01)
    left, opened = server.open_connections, server.connections
    said = f"P6: nothing leaks: {opened} connections were opened, {left} are still open"
    return check(said, not left)


@contextmanager
def log_records() -> Iterator[list[logging.LogRecord]]:
    """Keep what the library logs, instead of letting it be printed."""
    logger, handler = logging.getLogger("forbear"), BufferingHandler(1_000_000)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def check(text: str, holds: bool) -> bool:
    print(f"{' ✓' if holds else 'NO'} {text}", flush=True)
    return holds


def columns(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
