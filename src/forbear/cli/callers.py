"""Callers: the installed clients, sync and async, behind one way of calling."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from threading import Thread
from typing import Any, NamedTuple

from ..core.policy import RetryPolicy
from ..core.record import record_of
from ..engine.context import deadline
from ..engine.settings import DEFAULT_POLICY

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

    def __init__(self, family: str, label: str = "") -> None:
        self.family = family
        self.label = label or family
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

    def __init__(self, family: str) -> None:
        super().__init__(family, f"{family} {self.kind}")

    @contextmanager
    def client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        inner = self.library.HTTPTransport(verify=False)  # certificates take long to load
        transport = self.forbear.RetryTransport(inner, policy=policy)
        with self.library.Client(transport=transport, timeout=TIMEOUT) as client:
            yield lambda method, url, headers, body: client.request(
                method, url, headers=headers, content=body
            )


class AsyncHttpxCaller(HttpxCaller):
    """httpx or httpx2, with an ``AsyncClient`` on an event loop in a thread of its own."""

    kind = "async"

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
