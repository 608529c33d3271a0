"""Callers: the installed clients of the httpx family, sync and async, behind one way of calling. Floor: acts."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ..context import deadline
from ..core.policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ..core.record import CallRecord

__all__ = ["Answer", "Caller", "Order", "installed"]

FAMILIES = ("httpx", "httpx2")
DEFAULT = RetryPolicy()
# Nothing here goes over TLS, and loading the certificates for it would take longer than most scenes.
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


class Caller:
    """One client library in one colour."""

    def __init__(self, family: str, *, is_async: bool) -> None:
        self.family = family
        self.is_async = is_async
        self.label = f"{family} {'async' if is_async else 'sync'}"
        self._library = import_module(family)
        self._forbear = import_module(f"forbear.{family}")

    @property
    def version(self) -> str:
        return f"{self.family} {self._library.__version__}"

    def is_own(self, error: Exception | None) -> bool:
        """Is it of the library's own family of exceptions, as code that knows nothing of forbear expects?"""
        return isinstance(error, self._library.TransportError)

    def call(self, url: str, order: Order) -> list[Answer]:
        """Send the order through a new client; its connections are closed when this returns."""
        return asyncio.run(self._asend(url, order)) if self.is_async else self._send(url, order)

    def _send(self, url: str, order: Order) -> list[Answer]:
        transport = self._forbear.RetryTransport(self._library.HTTPTransport(**PLAIN), policy=order.policy)
        answers = []
        with self._library.Client(transport=transport, timeout=TIMEOUT) as client:
            for _ in range(order.times):
                started_at = time.monotonic()
                try:
                    with order.block():
                        outcome: Any = client.request(order.method, url, headers=order.headers, content=order.body())
                except Exception as error:
                    outcome = error
                answers.append(answer(outcome, time.monotonic() - started_at))
        return answers

    async def _asend(self, url: str, order: Order) -> list[Answer]:
        transport = self._forbear.AsyncRetryTransport(self._library.AsyncHTTPTransport(**PLAIN), policy=order.policy)
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
                answers.append(answer(outcome, time.monotonic() - started_at))
        return answers


def installed() -> list[Caller]:
    """A caller for each colour of each client library that can be imported."""
    found = []
    for family in FAMILIES:
        try:
            import_module(family)
        except ImportError:
            continue
        found += [Caller(family, is_async=False), Caller(family, is_async=True)]
    return found


def answer(outcome: Any, elapsed: float) -> Answer:
    from ..core.record import record_of

    if isinstance(outcome, Exception):
        return Answer(None, outcome, elapsed, record_of(outcome))
    return Answer(outcome.status_code, None, elapsed, record_of(outcome))


def pieces(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), 16_384):
        yield content[at : at + 16_384]


async def asynchronous(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
