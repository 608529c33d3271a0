"""What all lanes share."""

from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest

from forbear.testing import FakeClock

URL, ORIGIN = "http://api.example.com/thing", "http://api.example.com:80"


class Lane:
    """One library in one flavour.

    Its words are ``async def`` throughout. The calls of a synchronous client are made in the test's
    own thread and never suspend, so a test is written once.

    Attributes:
        name: Of the library.
        flavour: ``sync``, ``asyncio`` or ``trio``.
        words: ``pytest.mark.adapters`` chooses lanes by them.
        is_full: The lane runs every test, not only those marked ``smoke``.
        library: Its module; ``forbear`` is ours for it.
        wire_errors: The names of the errors that a fault of the server may come out as.
        cut_error: Raised while the caller reads a body that ends early.
    """

    flavour = "sync"
    is_full = True

    def __init__(self):
        self.is_async = self.flavour != "sync"
        self.DeadlineExceeded = self.forbear.DeadlineExceeded
        self.CircuitOpenError = self.forbear.CircuitOpenError

    @property
    def id(self):
        return repr(self)[1:-1].replace(" ", "-")

    @asynccontextmanager
    async def client(self, inner=None, *, settings=None, **options):
        """A client that retries, closed at the end; ``settings`` are the client's own."""
        client = self.build(inner, options, **(settings or {}))
        try:
            yield client
        finally:
            await self.close(client)

    async def call(self, client, method, url, **request):
        """One request, its response read to the end."""
        return await self.ended(client.request(method, url, **request))

    async def outcome(self, client, method="GET", url=URL, **request):
        """The response of a call, or what it raised."""
        try:
            return await self.call(client, method, url, **request)
        except Exception as error:
            return error

    async def once(
        self, inner=None, method="GET", url=URL, *, settings=None, request=(), **options
    ):
        """``call`` by a client of its own; ``request`` are the keywords of the request."""
        async with self.client(inner, settings=settings, **options) as client:
            return await self.call(client, method, url, **dict(request))

    async def open(self, client, method, url, **request):
        """One request whose response is not read yet."""
        return await self.ended(client.request(method, url, is_open=True, **request))

    async def download(self, client, url, method="GET", **request):
        """One request whose body is read to its end after the hand-over."""
        response = await self.open(client, method, url, **request)
        await self.read(response)
        return response

    async def close(self, thing):
        """Close a client, a transport or a response."""
        await self.ended(thing.close())

    async def shut(self, client):
        """Close the part that retries, and leave the client as it is."""
        await self.close(self.retrying(client))

    async def ended(self, outcome):
        return await outcome if self.is_async and outcome is not None else outcome

    async def together(self, count, function):
        """Run ``await function(n)`` for each n at once: in threads, or in tasks."""
        limiter = anyio.CapacityLimiter(count)

        async def in_thread(n):
            await anyio.to_thread.run_sync(run_at_once, function(n), limiter=limiter)

        async with anyio.create_task_group() as group:
            for n in range(count):
                group.start_soon(function if self.is_async else in_thread, n)

    def calls(self, *requests, inner=None, settings=None, **options):
        """Make calls by one client in fake time, in an event loop of its own where it needs one;
        return their responses or exceptions.

        A request is (method, url) or (method, url, keywords); a function among the keywords makes
        its value.
        """
        options = {"clock": FakeClock(), "random": lambda: 0.5, **options}

        async def run():
            outcomes = []
            async with self.client(inner, settings=settings, **options) as client:
                for method, url, *rest in requests:
                    named = dict(*rest)
                    named = {key: as_made(value) for key, value in named.items()}
                    try:
                        outcomes.append(await self.download(client, url, method, **named))
                    except Exception as error:
                        outcomes.append(error)
            return outcomes

        return anyio.run(run, backend=self.flavour) if self.is_async else run_at_once(run())

    def __repr__(self):
        return f"<{self.name}>"


def run_at_once(coroutine):
    """The result of a coroutine in which nothing suspends."""
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


def as_made(value):
    return value() if callable(value) else value


def as_text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else value
