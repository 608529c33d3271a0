"""Peers: what retry libraries do when it matters, each one against the same misbehaving server.

    python benchmarks/peers.py [--json]

Prints the tables of docs/compared.md. Every cell is what was seen, not what is promised: requests
that arrived, those that were executed, what the caller got. Each library is set up as its
documentation has it for HTTP, with four attempts and waits of milliseconds; all else is by default.
A library that is not installed is left out. Sleeps of more than a few seconds are noted instead of
slept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(HERE.parent / "src"))

from forbear import (  # noqa: E402 - which had to be found first
    Exponential,
    RetryPolicy,
    record_of,
)
from forbear.testing import FaultServer  # noqa: E402

if __package__:
    from .house import code_lines, rounded
else:
    from house import code_lines, rounded

ATTEMPTS, BASE, CAP = 4, 0.002, 0.01  # seconds
STATUSES = [429, 500, 502, 503, 504]
TOO_LONG = 5.0  # seconds; what would be slept for longer is only noted
LIMIT = 0.5  # seconds for a whole call, where a library has such a limit
OUTAGE = 100  # calls
IDLE = 8  # connections that the server has closed meanwhile
UPLOAD = b"0123456789abcdef" * 64
TIMEOUT = 10.0


class Order(NamedTuple):
    """One request.

    Attributes:
        url: Where to.
        method: How.
        headers: Beside the client's own.
        body: Bytes, a generator function, or None.
        limit: Seconds for the whole call, if the library can do that.
        streams: The body is read as it comes, where that is another call than reading all of it.
        warm: A path that is requested ``IDLE`` times at once before, to have that many idle
            connections.
    """

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: Any = None
    limit: float | None = None
    streams: bool = False
    warm: str | None = None

    @property
    def content(self) -> Any:
        return self.body() if callable(self.body) else self.body


class Answer(NamedTuple):
    """What the caller got: a status, the body's length and the response, or the class of an
    exception.
    """

    status: int | None = None
    length: int = 0
    error: str | None = None
    response: Any = None

    def __str__(self) -> str:
        return str(self.status) if self.error is None else self.error


# The peers: what makes a function that sends an order through one client.

Send = Callable[[Order], Answer]


def forbear_httpx(limit: float | None, opened: ExitStack, **given: Any) -> Send:
    import httpx

    from forbear.httpx import RetryTransport

    transport = RetryTransport(policy=given.get("policy", ours(limit)))
    return through_httpx(opened.enter_context(httpx.Client(transport=transport, timeout=TIMEOUT)))


def ours(limit: float | None) -> RetryPolicy:
    return RetryPolicy(max_attempts=ATTEMPTS, backoff=Exponential(BASE, CAP), total_timeout=limit)


def urllib3_under_requests(limit: float | None, opened: ExitStack) -> Send:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    session = opened.enter_context(requests.Session())
    retry = Retry(
        ATTEMPTS - 1,
        status_forcelist=STATUSES,
        backoff_factor=BASE,
        backoff_max=CAP,
        raise_on_status=False,
    )
    session.mount("http://", HTTPAdapter(max_retries=retry))
    return through_requests(session)


def httpx_retries(limit: float | None, opened: ExitStack) -> Send:
    import httpx
    from httpx_retries import Retry, RetryTransport

    retry = Retry(ATTEMPTS - 1, status_forcelist=STATUSES, backoff_factor=BASE, total_timeout=limit)
    return through_httpx(
        opened.enter_context(httpx.Client(transport=RetryTransport(retry=retry), timeout=TIMEOUT))
    )


def tenacity_httpx(limit: float | None, opened: ExitStack) -> Send:
    import httpx
    from tenacity import (
        retry,
        retry_if_exception_type,
        stop_after_attempt,
        stop_after_delay,
        stop_never,
        wait_random_exponential,
    )

    return decorated(
        retry(
            retry=retry_if_exception_type(httpx.HTTPError),
            wait=wait_random_exponential(multiplier=BASE, max=CAP),
            stop=stop_after_attempt(ATTEMPTS)
            | (stop_never if limit is None else stop_after_delay(limit)),
            reraise=True,
        ),
        opened,
    )


def stamina_httpx(limit: float | None, opened: ExitStack) -> Send:
    import httpx
    import stamina

    stamina.instrumentation.set_on_retry_hooks([])  # with structlog installed it prints

    return decorated(
        stamina.retry(
            on=httpx.HTTPError, attempts=ATTEMPTS, timeout=45.0 if limit is None else limit,
            wait_initial=BASE, wait_max=CAP, wait_jitter=BASE,
        ),
        opened,
    )  # fmt: skip


def retryhttp_httpx(limit: float | None, opened: ExitStack) -> Send:
    import retryhttp
    from tenacity import stop_after_attempt, stop_after_delay, stop_never, wait_random_exponential

    quick = wait_random_exponential(multiplier=BASE, max=CAP)
    return decorated(
        retryhttp.retry(
            max_attempt_number=ATTEMPTS,
            stop=stop_after_attempt(ATTEMPTS)
            | (stop_never if limit is None else stop_after_delay(limit)),
            wait_server_errors=quick,
            wait_network_errors=quick,
            wait_timeouts=quick,
            reraise=True,
        ),
        opened,
    )


def httpware_httpx2(limit: float | None, opened: ExitStack) -> Send:
    import httpware
    import httpx2

    # One for all clients, as a program has one client: its budget remembers the outage. Its
    # ``max_delay``, 5 s, is also the longest Retry-After that it waits for, so it stays.
    retry = httpware.AsyncRetry(max_attempts=ATTEMPTS, base_delay=BASE)
    middleware = [retry] if limit is None else [httpware.AsyncTimeout(timeout=limit), retry]

    async def send(order: Order) -> Answer:
        body = order.content
        if body is not None and not isinstance(body, bytes):
            body = asynchronous(body)
        async with httpware.AsyncClient(middleware=middleware, timeout=TIMEOUT) as client:
            if order.warm:
                await asyncio.gather(*(client.request("GET", order.warm) for _ in range(IDLE)))
            try:
                if order.streams:
                    async with client.stream(order.method, order.url) as response:
                        length = sum([len(piece) async for piece in response.aiter_raw()])
                    return Answer(response.status_code, length)
                response = await client.request(
                    order.method, order.url, headers=order.headers, content=body
                )
            except httpware.StatusError as error:
                return Answer(error.response.status_code)
            except (httpware.ClientError, httpx2.HTTPError) as error:
                return Answer(error=type(error).__name__)
            return Answer(response.status_code, len(response.content), response=response)

    return lambda order: asyncio.run(send(order))


def aiohttp_retry(limit: float | None, opened: ExitStack) -> Send:
    from aiohttp_retry import ExponentialRetry, RetryClient

    async def send(order: Order) -> Answer:
        options = ExponentialRetry(
            attempts=ATTEMPTS, start_timeout=BASE, max_timeout=CAP, statuses=set(STATUSES)
        )
        async with RetryClient(retry_options=options) as client:
            return await fetch(client, order)

    return lambda order: asyncio.run(send(order))


def forbear_aiohttp(limit: float | None, opened: ExitStack) -> Send:
    import aiohttp

    from forbear.aiohttp import RetryMiddleware

    # One for all sessions, as a program has one session: its gate remembers the outage.
    retrying = RetryMiddleware(ours(limit))

    async def send(order: Order) -> Answer:
        async with aiohttp.ClientSession(middlewares=(retrying,)) as session:
            return await fetch(session, order)

    return lambda order: asyncio.run(send(order))


async def fetch(client: Any, order: Order) -> Answer:
    import aiohttp

    body = order.content
    if body is not None and not isinstance(body, bytes):
        body = asynchronous(body)

    async def warmed(url: str) -> None:
        async with client.get(url) as response:
            await response.read()

    if order.warm:
        await asyncio.gather(*(warmed(order.warm) for _ in range(IDLE)))
    try:
        async with client.request(
            order.method, order.url, headers=order.headers, data=body
        ) as response:
            return Answer(response.status, len(await response.read()), response=response)
    except (aiohttp.ClientError, TimeoutError) as error:
        return Answer(error=type(error).__name__)


async def asynchronous(pieces: Iterator[bytes]) -> Any:
    for piece in pieces:
        yield piece


# With each library's own defaults, but for what it cannot do without.


def default_forbear(opened: ExitStack) -> Send:
    return forbear_httpx(None, opened, policy=RetryPolicy())


def default_urllib3(opened: ExitStack) -> Send:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    session = opened.enter_context(requests.Session())
    retry = Retry(3, status_forcelist=STATUSES, backoff_factor=1)  # by default no status, no wait
    session.mount("http://", HTTPAdapter(max_retries=retry))
    return through_requests(session)


def default_httpx_retries(opened: ExitStack) -> Send:
    import httpx
    from httpx_retries import RetryTransport

    return through_httpx(opened.enter_context(httpx.Client(transport=RetryTransport())))


def default_httpware(opened: ExitStack) -> Send:
    import httpware

    async def send(order: Order) -> Answer:
        async with httpware.AsyncClient(middleware=[httpware.AsyncRetry()]) as client:
            try:
                return Answer((await client.request(order.method, order.url)).status_code)
            except httpware.StatusError as error:
                return Answer(error.response.status_code)

    return lambda order: asyncio.run(send(order))


def default_aiohttp_retry(opened: ExitStack) -> Send:
    from aiohttp_retry import RetryClient

    async def send(order: Order) -> Answer:
        async with RetryClient() as client:
            return await fetch(client, order)

    return lambda order: asyncio.run(send(order))


def default_stamina(opened: ExitStack) -> Send:
    import httpx
    import stamina

    stamina.instrumentation.set_on_retry_hooks([])
    return decorated(stamina.retry(on=httpx.HTTPError), opened)


def default_retryhttp(opened: ExitStack) -> Send:
    import retryhttp

    return decorated(retryhttp.retry(reraise=True), opened)


def through_httpx(client: Any) -> Send:
    import httpx

    def send(order: Order) -> Answer:
        warm(client.get, order)
        try:
            if order.streams:
                with client.stream(order.method, order.url) as response:
                    length = sum(map(len, response.iter_raw()))
                return Answer(response.status_code, length)
            response = client.request(
                order.method, order.url, headers=order.headers, content=order.content
            )
        except (httpx.HTTPError, httpx.StreamError) as error:
            return Answer(error=type(error).__name__)
        return Answer(response.status_code, len(response.content), response=response)

    return send


def warm(get: Callable[[str], object], order: Order) -> None:
    if order.warm:
        with ThreadPoolExecutor(IDLE) as threads:
            list(threads.map(get, [order.warm] * IDLE))


def through_requests(session: Any) -> Send:
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    def send(order: Order) -> Answer:
        warm(session.get, order)
        try:
            response = session.request(
                order.method, order.url, headers=order.headers, data=order.content, timeout=TIMEOUT,
                stream=order.streams,
            )  # fmt: skip
            if order.streams:
                return Answer(response.status_code, sum(map(len, response.iter_content(8_192))))
        except (RequestException, HTTPError, ValueError) as error:
            return Answer(error=type(error).__name__)
        return Answer(response.status_code, len(response.content), response=response)

    return send


def decorated(decorator: Callable[[Any], Any], opened: ExitStack) -> Send:
    """Around a function that raises for a failing status, which is what decorators ask for."""
    import httpx

    client = opened.enter_context(httpx.Client(timeout=TIMEOUT))

    def send(order: Order) -> Answer:
        warm(client.get, order)
        content = order.content  # made once by the caller, outside of what is repeated

        @decorator
        def fetch() -> Answer:
            request = client.build_request(
                order.method, order.url, headers=order.headers, content=content
            )
            response = client.send(request, stream=order.streams)
            response.raise_for_status()
            if order.streams:
                return Answer(response.status_code, response=response)
            return Answer(response.status_code, len(response.content))

        try:
            answer: Answer = fetch()
            if order.streams:  # by the caller, outside of what is repeated
                return answer._replace(length=sum(map(len, answer.response.iter_raw())))
            return answer
        except (httpx.HTTPError, httpx.StreamError) as error:
            return Answer(error=type(error).__name__)

    return send


class Peer(NamedTuple):
    """A library as it is used.

    Attributes:
        name: Its head in the table; {} is its version.
        package: Whose version.
        make: From a limit for the whole call, and where to register what is to be closed, makes
            what sends.
        tells: Where a caller learns of the attempts, as read in its source; ours is asked.
        has_limit: It takes a limit for the whole call.
        by_default: Makes what sends with the library's own defaults; None: those never end.
        private: Private names of its client that it uses, counted in its source; ours are counted.
        released: Its versions on the index on 2026-11-27.
        is_decorator: It decorates a function, and stands in the second table.
    """

    name: str
    package: str
    make: Callable[[float | None, ExitStack], Send]
    tells: str = ""
    has_limit: bool = True
    is_decorator: bool = False
    by_default: Callable[[ExitStack], Send] | None = None
    private: int = 0
    released: int = 0


PEERS = (
    Peer("forbear", "forbear", forbear_httpx, by_default=default_forbear),
    Peer(
        "urllib3 {}, under requests",
        "urllib3",
        urllib3_under_requests,
        "a history",
        has_limit=False,
        by_default=default_urllib3,
        released=97,
    ),
    Peer(
        "httpx-retries {}",
        "httpx-retries",
        httpx_retries,
        "their number",
        by_default=default_httpx_retries,
        private=2,
        released=17,
    ),
    Peer(
        "httpware {}",
        "httpware",
        httpware_httpx2,
        "its log, a note on errors",
        by_default=default_httpware,
        released=38,
    ),
    Peer(
        "aiohttp-retry {}",
        "aiohttp-retry",
        aiohttp_retry,
        "aiohttp's traces, numbered",
        has_limit=False,
        by_default=default_aiohttp_retry,
        released=30,
    ),
    Peer(
        "tenacity {}",
        "tenacity",
        tenacity_httpx,
        "hooks, statistics",
        is_decorator=True,
        released=60,
    ),
    Peer(
        "stamina {}",
        "stamina",
        stamina_httpx,
        "hooks",
        is_decorator=True,
        by_default=default_stamina,
        released=11,
    ),
    Peer(
        "retryhttp {}",
        "retryhttp",
        retryhttp_httpx,
        "hooks, statistics",
        is_decorator=True,
        by_default=default_retryhttp,
        released=12,
    ),
    Peer("forbear, aiohttp", "forbear", forbear_aiohttp, by_default=default_forbear),
)


# The probes: what is done to the server, and what is told of what it saw.


class Bench:
    """One server, one peer, one probe."""

    def __init__(self, server: FaultServer, peer: Peer, probe: str) -> None:
        self.server, self.peer = server, peer
        self.path = f"/{peer.make.__name__}/{probe}"
        self.took = 0.0  # seconds, without the making of the client
        self.each: list[float] = []  # seconds of each call

    def send(
        self, *steps: int | str, calls: int = 1, **order: Any
    ) -> tuple[Answer, list[Any], int]:
        """Play a script to a new client; return its last answer, what arrived and how often it was
        executed.
        """
        self.server.script(self.path, *steps)
        with ExitStack() as opened:
            send = self.peer.make(order.get("limit"), opened)
            self.each = []
            for _ in range(calls):
                started_at = time.monotonic()
                answer = send(Order(self.server.url + self.path, **order))
                self.each.append(time.monotonic() - started_at)
            self.took = sum(self.each)
        return answer, self.server.requests(self.path), self.server.executed(self.path)


def lost_post(bench: Bench) -> str:
    answer, _, executed = bench.send("reset", "reset", "reset", 200, method="POST", body=UPLOAD)
    return f"executed {times(executed)}, {answer}"


def lost_keyed_post(bench: Bench) -> str:
    answer, arrived, _ = bench.send(
        "reset", 200, method="POST", body=UPLOAD, headers={"Idempotency-Key": "order-4711"}
    )
    return f"sent {times(len(arrived))}, {answer}"


def refused_post(bench: Bench) -> str:
    _, arrived, _ = bench.send(503, method="POST", body=UPLOAD)
    return f"sent {times(len(arrived))}"


def broken_download(bench: Bench) -> str:
    answer, arrived, _ = bench.send(
        "reset-body:500000;body=1000000;etag=a", "200;body=1000000;etag=a", streams=True
    )
    if answer.error is not None:
        return answer.error
    return f"{'resumed' if len(arrived) > 1 else 'once'}, {answer.length:,} bytes"


def stillborn_stream(bench: Bench) -> str:
    events = "header=Content-Type:text/event-stream"
    answer, arrived, _ = bench.send(
        f"cut:0;chunked=1;{events}", f"200;body=100;{events}", streams=True
    )
    return answer.error or f"requested again, {answer}" * (len(arrived) > 1) or "no event, no error"


def stale_connections(bench: Bench) -> str:
    bench.server.script(f"{bench.path}/warm", "200;delay=200")
    answer, arrived, _ = bench.send("stale", warm=f"{bench.server.url}{bench.path}/warm")
    return f"{answer} after {len(arrived)} request{'s' * (len(arrived) > 1)}"


def by_default(bench: Bench) -> str:
    if bench.peer.by_default is None:
        return "never ends"
    bench.server.script(bench.path, 503)
    with ExitStack() as opened:
        send = bench.peer.by_default(opened)
        started_at = time.monotonic()
        send(Order(bench.server.url + bench.path))
        took = time.monotonic() - started_at
    return f"{len(bench.server.requests(bench.path))} requests, {seconds(took)}"


def size(bench: Bench) -> str:
    """Count as house.py does; the client below is not counted."""
    root = Path((find_spec(bench.peer.package.replace("-", "_")) or sys.exit()).origin or "").parent
    if bench.peer.package == "urllib3":
        files = [root / "util" / "retry.py"]
    else:
        files = list(root.rglob("*.py"))
    return rounded(sum(code_lines(path.read_text(encoding="utf-8")) for path in files))


def private(bench: Bench) -> str:
    if bench.peer.package != "forbear":
        return f"{bench.peer.private}"
    from forbear import adapters

    listed = re.findall(r"^    (_\w+)  +", adapters.__doc__ or "", re.MULTILINE)
    return f"{len(listed)}"


def released(bench: Bench) -> str:
    return f"{bench.peer.released}"


def from_generator(bench: Bench) -> str:
    def pieces() -> Iterator[bytes]:
        yield UPLOAD[:512]
        yield UPLOAD[512:]

    return one_shot_body(bench, pieces)


def one_shot_body(bench: Bench, body: Callable[[], Iterator[bytes]]) -> str:
    answer, arrived, _ = bench.send(503, 200, method="PUT", body=body)
    if answer.error is not None:  # a head without a body may have arrived, or not
        return f"{answer}, the 503 is lost"
    if len(arrived) == 1:
        return f"not resent, {answer}"
    whole = all(one.body_bytes == len(UPLOAD) for one in arrived)
    return f"resent {'whole' if whole else f'with {arrived[-1].body_bytes} bytes'}, {answer}"


def short_hint(bench: Bench) -> str:
    answer, arrived, _ = bench.send("429;retry-after=1", 200)
    if len(arrived) < 2:
        return f"not resent, {answer}"
    gap = arrived[1].started_at - arrived[0].started_at
    return "waits" if gap >= 0.99 else "retries immediately"


def long_hint(bench: Bench) -> str:
    with noted() as slept:
        answer, arrived, _ = bench.send("429;retry-after=3600", 200)
    if len(arrived) < 2:
        return f"returns the {answer} immediately"
    waited = max(0.0, *slept, arrived[1].started_at - arrived[0].started_at)
    if waited >= 3600:
        return "sleeps for the hour"
    return "retries immediately" if waited < 0.5 else f"retries after {waited:.0f} s"


def malformed_hint(bench: Bench) -> str:
    answer, arrived, _ = bench.send("429;retry-after=soon", 200)
    return f"{answer}" if len(arrived) > 1 else f"{answer}, the 429 is lost"


def cut_body(bench: Bench) -> str:
    answer, arrived, _ = bench.send("cut:100;body=1000", "200;body=1000")
    if answer.error is not None:
        return answer.error
    return f"retried, {answer.length:,} bytes" if len(arrived) > 1 else f"{answer.length:,} bytes"


def whole_call(bench: Bench) -> str:
    if not bench.peer.has_limit:
        return "has none"
    least = inf
    for _ in range(3):  # the machine may be busy
        bench.send("503;delay=1000", limit=LIMIT)
        least = min(least, bench.took)
        if least <= LIMIT + 0.3:
            return "kept"
    return f"took {least:.0f} s"


def outage(bench: Bench) -> str:
    """One call after the other; those of forbear that are held take some seconds here."""
    _, arrived, _ = bench.send(503, calls=OUTAGE)
    return f"{len(arrived)}, the longest call {seconds(max(bench.each))}"


def connections(bench: Bench) -> str:
    _, arrived, _ = bench.send(503, 503, 503, 200)
    return (
        f"{len({one.connection for one in arrived})}"
        if len(arrived) == ATTEMPTS
        else "not sent four times"
    )


def story(bench: Bench) -> str:
    if bench.peer.package != "forbear":
        return bench.peer.tells
    bench.server.script(bench.path, 503, 200)
    with ExitStack() as opened:
        answer = bench.peer.make(None, opened)(Order(bench.server.url + bench.path))
    seen = [one.status for one in record_of(answer.response).attempts]
    return "each attempt and wait" if seen == [503, 200] else "something else"


PROBES: dict[str, Callable[[Bench], str]] = {
    "a POST whose response is lost, three times": lost_post,
    "the same once, with an Idempotency-Key": lost_keyed_post,
    "a POST that gets a 503": refused_post,
    "a PUT from a generator, then 503": from_generator,
    "`Retry-After: 1`": short_hint,
    "`Retry-After: 3600`": long_hint,
    "`Retry-After: soon`": malformed_hint,
    "a body cut in the middle": cut_body,
    "a download of 1 MB that breaks in the middle": broken_download,
    "a stream of events that ends before its first byte": stillborn_stream,
    f"a GET with {IDLE} stale connections in the pool": stale_connections,
    "a limit of 0.5 s for the whole call": whole_call,
    f"requests for {OUTAGE} calls in an outage": outage,
    "one call in an outage, with the library's own defaults": by_default,
    "connections for four responses": connections,
    "the caller learns of the attempts from": story,
    "code lines": size,
    "private names of other libraries": private,
    "released versions": released,
}


@contextmanager
def noted() -> Iterator[list[float]]:
    """Long sleeps are not slept, but kept."""
    slept: list[float] = []
    sleep, asleep = time.sleep, asyncio.sleep

    def instead(seconds: float) -> None:
        if seconds > TOO_LONG:
            slept.append(seconds)
        else:
            sleep(seconds)

    async def ainstead(seconds: float, result: object = None) -> object:
        if seconds > TOO_LONG:
            slept.append(seconds)
            return result
        return await asleep(seconds, result)

    time.sleep, asyncio.sleep = instead, ainstead  # type: ignore[assignment]
    try:
        yield slept
    finally:
        time.sleep, asyncio.sleep = sleep, asleep


def seconds(length: float) -> str:
    return f"{length:.0f} s" if length >= 1.0 else f"{length:.2f} s"


def times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def installed() -> list[Peer]:
    """Those that can be asked, with their versions in their names."""
    found = []
    for peer in PEERS:
        if find_spec(peer.package.replace("-", "_")) is not None:
            number = "" if peer.package == "forbear" else version(peer.package)
            found.append(peer._replace(name=peer.name.format(number)))
    return found


def measure() -> tuple[list[str], dict[str, list[str]]]:
    """Heads and, by probe, the cells of all peers."""
    peers = installed()
    with FaultServer() as server:
        rows = {
            name: [probe(Bench(server, peer, probe.__name__)) for peer in peers]
            for name, probe in PROBES.items()
        }
    return [peer.name for peer in peers], rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    for name in (
        "forbear",
        "urllib3",
        "httpx",
        "httpx_retries",
        "httpware",
        "stamina",
        "aiohttp_retry",
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    heads, rows = measure()
    if options.json:
        print(json.dumps({"peers": heads, "rows": rows}, indent=1))
        return 0
    # forbear, aiohttp is in no table, because it does what forbear does; a test compares the two.
    decorators = [at for at, peer in enumerate(installed()) if peer.is_decorator]
    clients = [at for at in range(1, len(heads) - 1) if at not in decorators]
    for columns in ([0, *clients], [0, *decorators]):
        print(f"| | {' | '.join(heads[at] for at in columns)} |")
        print(f"| --- |{' --- |' * len(columns)}")
        for name, cells in rows.items():
            if len({cells[at] for at in columns}) == 1:
                continue  # no difference between these
            print(f"| {name} | {' | '.join(cells[at] for at in columns)} |")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
