"""aiohttp: what forbear and aiohttp-retry add to `session.get`.

Below the session is a stub of its connection; requests, answers and the session's own work are
aiohttp's. A body has come with its head, as small ones do. Tasks are counted over real sockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from _calls import BARE_AGAIN, BATCH, RETRIED, RETRIES, Effort
from _candidates import LOOP
from _measure import Lane, Track, best_bare, figure, interleave
from _stubs import BODY, HEADERS, URL, SleeplessClock, Sleeps, generous_gate

MIDDLEWARE, LEAN, PEER = "forbear", "forbear, prefetch=0, resume=False", "aiohttp-retry"
GOALS = {"success": {MIDDLEWARE: 3_000.0}, "retry": {}}  # ns, us
COUNTED = 20  # calls
STUBS: list[Any] = []  # connectors

Script = tuple[int, ...]
Get = Callable[[Any, int], Any]  # of a connector (None: aiohttp's own) and of sendings: a session


def aiohttp_calls(effort: Effort) -> dict[str, Any]:
    """CPU added to a success (ns) and by each retry (us), and tasks that one call makes (exact).

    A retry is compared with a middleware that sends three times whatever comes.
    """
    if find_spec("aiohttp") is None or find_spec("forbear") is None:
        return {"skipped": "not installed"}
    success = _measured(effort, (200,), 1.0, None)
    with Sleeps() as sleeps:
        retry = _measured(effort, RETRIED, RETRIES * 1e3, sleeps)
    return {"success": success, "retry": retry, "tasks": asyncio.run(_tasks())}


def _measured(effort: Effort, script: Script, share: float, sleeps: Sleeps | None) -> Any:
    with Track() as track:
        made = {"bare": bare, BARE_AGAIN: bare, **_ways(sleeps)}
        lanes = {name: _lane(name, way, script) for name, way in made.items()}
        for lane in lanes.values():
            track.warm_up(lane, effort.chunk_seconds, most=4_000)
        first = lanes.pop("bare")
        samples = interleave(
            lambda: track.run(first, first.count),
            {
                name: lambda lane=lane: (track.run(lane, lane.count),)
                for name, lane in lanes.items()
            },
            effort.rounds,
            effort.patience,
        )
        while STUBS:
            STUBS.pop()._closed = True  # so that no session says that nobody closed it
    best = best_bare(samples)
    rows = {
        name: figure(turns, best, lambda s: (s.parts[0] - s.bare) / share).as_dict()
        for name, turns in samples.items()
    }
    return {"bare": best / share, "rows": rows}


def _lane(name: str, way: Get, script: Script) -> Lane:
    answers: deque[int] = deque()
    session: Any = None

    async def get(url: str) -> Any:
        nonlocal session
        if session is None:  # it belongs to the loop of the track
            session = way(answers, len(script))
        return await session.get(url)

    def prepare(calls: int) -> None:
        answers.clear()
        answers.extend(script * calls)

    return Lane(name, get, URL, prepare, BATCH)


# Ways to send: each makes a session, over a stub that answers by a script, or over sockets.


def bare(answers: Any, sendings: int) -> Any:
    async def in_a_row(request: Any, handler: Any) -> Any:
        for _ in range(sendings):
            response = await handler(request)
        return response

    return session_over(answers, () if sendings == 1 else (in_a_row,))


def by_hand(answers: Any, sendings: int) -> Any:
    async def loop(request: Any, handler: Any) -> Any:
        for _ in range(3):
            try:
                response = await handler(request)
            except OSError:
                continue
            if response.status < 500:
                return response
            response.close()
        return await handler(request)

    return session_over(answers, (loop,))


def with_forbear(sleeps: Sleeps | None, **options: Any) -> Get:
    from forbear.aiohttp import RetryMiddleware

    if sleeps is not None:
        options |= {"clock": SleeplessClock(sleeps), "gate": generous_gate()}
    return lambda answers, _: session_over(answers, (RetryMiddleware(**options),))


def with_peer(answers: Any, _: int) -> Any:
    from aiohttp_retry import ExponentialRetry, RetryClient

    options = ExponentialRetry(attempts=4, start_timeout=0.5)
    client = RetryClient(session_over(answers, ()), retry_options=options)
    client.close = client._client.close  # as a session's: this one belongs to nobody else
    return client


def _ways(sleeps: Sleeps | None) -> dict[str, Get]:
    lean = with_forbear(sleeps, prefetch=0, resume=False)
    ways = {LOOP: by_hand, MIDDLEWARE: with_forbear(sleeps), LEAN: lean}
    return ways | ({PEER: with_peer} if find_spec("aiohttp_retry") is not None else {})


def session_over(answers: Any, middlewares: tuple[Any, ...]) -> Any:
    import aiohttp

    if answers is None:
        return aiohttp.ClientSession(middlewares=middlewares)
    return aiohttp.ClientSession(
        middlewares=middlewares, connector=stub_connector(), request_class=stub_request(answers)
    )


def stub_connector() -> Any:
    import aiohttp

    connection = SimpleNamespace(
        protocol=SimpleNamespace(set_response_params=lambda **_: None), close=lambda: None
    )

    class Connector(aiohttp.BaseConnector):
        async def connect(self, *_: Any, **__: Any) -> Any:
            return connection

    STUBS.append(Connector())
    return STUBS[-1]


def stub_request(answers: deque[int]) -> Any:
    import aiohttp
    from multidict import CIMultiDict, CIMultiDictProxy

    protocol: Any = SimpleNamespace(_reading_paused=False, resume_reading=lambda **_: None)
    headers = CIMultiDictProxy(CIMultiDict((n.decode(), v.decode()) for n, v in HEADERS))

    class Answer(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> Any:
            return self

    class Request(aiohttp.ClientRequest):
        async def send(self, connection: Any) -> Any:
            response = Answer(
                self.method, self.original_url, writer=None, continue100=None, timer=self._timer,
                request_info=self.request_info, traces=[], loop=self.loop, session=self.session,
                stream_writer=SimpleNamespace(output_size=0),
            )  # fmt: skip
            response._headers, response._raw_headers = headers, tuple(HEADERS)
            response.status, response.reason, response._closed = answers.popleft(), "", True
            response.content = aiohttp.StreamReader(protocol, 2**16, loop=self.loop)
            response.content.feed_data(BODY)
            response.content.feed_eof()
            return response

    return Request


async def _tasks() -> dict[str, float]:
    """Tasks for each call over sockets that stay open."""
    from forbear.testing import FaultServer

    loop, made = asyncio.get_running_loop(), 0

    def counting(loop: Any, coroutine: Any, **named: Any) -> Any:
        nonlocal made
        made += 1
        return asyncio.Task(coroutine, loop=loop, **named)

    found = {}
    with FaultServer() as server:
        for name, way in {"bare": bare, **_ways(None)}.items():
            session = way(None, 1)
            await (await session.get(server.url)).read()
            loop.set_task_factory(counting)
            made = 0
            for _ in range(COUNTED):
                await (await session.get(server.url)).read()
            found[name] = made / COUNTED
            loop.set_task_factory(None)
            await session.close()
    return found
