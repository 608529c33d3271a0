"""Callers: the installed clients, in each colour that they have, behind one way of calling. Floor:
acts.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.backoff import Exponential
from ...core.policy import RetryPolicy
from ...core.record import record_of
from ...sending.context import deadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from ...core.record import CallRecord

__all__ = ["Answer", "Caller", "HttpxCaller", "Order", "installed"]

# A tenth of the default waits: nobody wants to watch them.
DEFAULT = RetryPolicy(backoff=Exponential(base=0.1, jitter="decorrelated"))
# Nothing here goes over TLS, and loading the certificates for it would take longer than most
# scenes.
PLAIN = {"verify": False}
TIMEOUT = 5.0  # seconds; the clients' own. Longer than anything in a scene should take


class Order(NamedTuple):
    """What a scene has a client send.

    Attributes:
        method: Of the request.
        headers: Beside those of the client.
        content: Its body; None for none.
        one_shot: The body comes from a generator, which can be read only once.
        seconds: Of ``forbear.deadline`` around the call; None for none.
        times: How often, one after the other, by one client.
        policy: Of the client.
    """

    method: str = "GET"
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed
    content: bytes | None = None
    one_shot: bool = False
    seconds: float | None = None
    times: int = 1
    policy: RetryPolicy = DEFAULT

    def body(self) -> bytes | Iterator[bytes] | None:
        if self.content is None or not self.one_shot:
            return self.content
        return iter(pieces(self.content))

    def async_body(self) -> bytes | AsyncIterator[bytes] | None:
        if self.content is None or not self.one_shot:
            return self.content
        return asynchronous(pieces(self.content))

    def block(self) -> AbstractContextManager[object]:
        return nullcontext() if self.seconds is None else deadline(self.seconds)


class Answer(NamedTuple):
    """What a caller got back from one call."""

    status: int | None
    error: Exception | None
    elapsed: float  # seconds
    record: CallRecord


class Caller(ABC):
    """One client library in one colour."""

    failure: str  # the name of the base of its exceptions, which code that knows nothing of forbear catches
    exceptions = ""  # the submodule that holds it; empty: the package itself
    status = "status_code"  # the attribute of its responses

    def __init__(self, family: str, label: str) -> None:
        self.family = family
        self.label = label
        self._library = import_module(family)
        self._forbear = import_module(f"forbear.{family}")

    @property
    def version(self) -> str:
        return f"{self.family} {self._library.__version__}"

    def is_own(self, error: Exception | None) -> bool:
        """Is it of the library's own family of exceptions?"""
        return isinstance(
            error, getattr(import_module(self.family + self.exceptions), self.failure)
        )

    def call(self, url: str, order: Order) -> list[Answer]:
        """Send the order through a new client; its connections are closed when this returns."""
        answers = []
        with self._client(order.policy) as send:
            for _ in range(order.times):
                started_at = time.monotonic()
                try:
                    with order.block():
                        outcome: Any = send(order.method, url, order.headers, order.body())
                except Exception as error:
                    outcome = error
                answers.append(self._answer(outcome, time.monotonic() - started_at))
        return answers

    @abstractmethod
    def _client(self, policy: RetryPolicy) -> AbstractContextManager[Callable[..., Any]]:
        """What sends a method, a URL, headers and a body, while the client is open."""

    def _answer(self, outcome: Any, elapsed: float) -> Answer:
        if isinstance(outcome, Exception):
            return Answer(None, outcome, elapsed, record_of(outcome))
        return Answer(getattr(outcome, self.status), None, elapsed, record_of(outcome))


class HttpxCaller(Caller):
    """httpx or httpx2, with a ``Client``."""

    failure = "TransportError"

    def __init__(self, family: str, colour: str = "sync") -> None:
        super().__init__(family, f"{family} {colour}")

    @contextmanager
    def _client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        transport = self._forbear.RetryTransport(
            self._library.HTTPTransport(**PLAIN), policy=policy
        )
        with self._library.Client(transport=transport, timeout=TIMEOUT) as client:
            yield lambda method, url, headers, body: client.request(
                method, url, headers=headers, content=body
            )


class AsyncHttpxCaller(HttpxCaller):
    """httpx or httpx2, with an ``AsyncClient`` on asyncio."""

    def __init__(self, family: str) -> None:
        super().__init__(family, "async")

    def call(self, url: str, order: Order) -> list[Answer]:
        return asyncio.run(self._send(url, order))

    async def _send(self, url: str, order: Order) -> list[Answer]:
        transport = self._forbear.AsyncRetryTransport(
            self._library.AsyncHTTPTransport(**PLAIN), policy=order.policy
        )
        answers = []
        async with self._library.AsyncClient(transport=transport, timeout=TIMEOUT) as client:
            for _ in range(order.times):
                started_at = time.monotonic()
                try:
                    with order.block():
                        outcome: Any = await client.request(
                            order.method, url, headers=order.headers, content=order.async_body()
                        )
                except Exception as error:
                    outcome = error
                answers.append(self._answer(outcome, time.monotonic() - started_at))
        return answers


class RequestsCaller(Caller):
    """requests, with a ``Session``."""

    failure = "RequestException"

    def __init__(self) -> None:
        super().__init__("requests", "requests")

    @contextmanager
    def _client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        with self._library.Session() as session:
            session.trust_env = False  # no proxy, no .netrc: this is loopback
            session.mount("http://", self._forbear.RetryAdapter(policy))
            yield lambda method, url, headers, body: session.request(
                method, url, headers=headers, data=body, timeout=TIMEOUT
            )


class Urllib3Caller(Caller):
    """urllib3, with a pool manager."""

    failure = "HTTPError"
    exceptions = ".exceptions"
    status = "status"

    def __init__(self) -> None:
        super().__init__("urllib3", "urllib3")

    @contextmanager
    def _client(self, policy: RetryPolicy) -> Iterator[Callable[..., Any]]:
        with self._forbear.RetryPoolManager(policy, timeout=TIMEOUT) as manager:
            yield lambda method, url, headers, body: manager.request(
                method, url, headers=headers, body=body
            )


CALLERS: dict[str, tuple[Callable[[], Caller], ...]] = {
    "httpx": (lambda: HttpxCaller("httpx"), lambda: AsyncHttpxCaller("httpx")),
    "httpx2": (lambda: HttpxCaller("httpx2"), lambda: AsyncHttpxCaller("httpx2")),
    "requests": (RequestsCaller,),
    "urllib3": (Urllib3Caller,),
}


def installed() -> list[Caller]:
    """A caller for each colour of each client library that can be imported."""
    found = []
    for family, kinds in CALLERS.items():
        try:
            import_module(family)
        except ImportError:
            continue
        found += [kind() for kind in kinds]
    return found


def pieces(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), 16_384):
        yield content[at : at + 16_384]


async def asynchronous(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
