"""Senders: GETs through each client, bare, with forbear and with its best peer, in an open loop.

The loops know when a call was to begin, not only when it did: latency counts from there.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from random import Random
from typing import Any, NamedTuple

THREADS = 8
FINISHED_WITHIN = 30.0  # seconds after the end of the schedule
OURS: dict[str, dict[str, Any]] = {"forbear": {}, "gate=None": {"gate": None}}  # options
RETRIES, FACTOR, STATUSES = 3, 0.5, [408, 425, 429, 500, 502, 503, 504]

# Scheduled at, seconds from then, seconds from its beginning in a thread, succeeded.
Call = tuple[float, float, float, bool]


# The callers: what opens a client as a contender has it, and returns what sends one GET with it.


def httpx_sender(library: str, who: str, url: str, timeout: float, client: str) -> Any:
    module: Any = import_module(library)
    transport = None
    if who == "httpx-retries":
        from httpx_retries import Retry, RetryTransport

        transport = RetryTransport(
            retry=Retry(total=RETRIES, backoff_factor=FACTOR, status_forcelist=STATUSES)
        )
    opened = getattr(module, client)(timeout=timeout, trust_env=False, transport=transport)
    if who in OURS:
        import_module(f"forbear.{library}").wrap(opened, **OURS[who])
    if client == "Client":
        return lambda: opened.get(url).status_code == 200

    async def send() -> bool:
        return (await opened.get(url)).status_code == 200

    return send


def requests_sender(who: str, url: str, timeout: float) -> Callable[[], bool]:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    session = requests.Session()
    session.trust_env = False
    if who == "urllib3 Retry":
        retry = Retry(
            RETRIES, backoff_factor=FACTOR, status_forcelist=STATUSES, raise_on_status=False
        )
        session.mount("http://", HTTPAdapter(max_retries=retry))
    elif who in OURS:
        import_module("forbear.requests").mount(session, **OURS[who])
    return lambda: session.get(url, timeout=timeout).status_code == 200


def aiohttp_sender(who: str, url: str, timeout: float) -> Callable[[], Awaitable[bool]]:
    import aiohttp

    # Not ``total``, which would bound all attempts of a call together.
    each = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)
    client: Any = aiohttp.ClientSession(timeout=each)
    if who == "aiohttp-retry":
        from aiohttp_retry import ExponentialRetry, RetryClient

        options = ExponentialRetry(
            attempts=RETRIES + 1,
            start_timeout=FACTOR / 2,  # which is doubled before it is used
            statuses=set(STATUSES),
            exceptions={aiohttp.ClientError, TimeoutError},  # 2.9 retries none by default
        )
        client = RetryClient(client_session=client, retry_options=options)
    elif who in OURS:
        import_module("forbear.aiohttp").wrap(client, **OURS[who])

    async def send() -> bool:
        async with client.get(url) as response:
            await response.read()
            return bool(response.status == 200)

    return send


class Caller(NamedTuple):
    """A client, sync or async.

    Attributes:
        package: Its library.
        peer: Who else retries with it, if anyone.
        peer_package: Whose library is that.
        sender: From a contender, a URL and the seconds of an attempt, makes what sends.
        is_async: It sends in tasks; else in threads.
    """

    package: str
    peer: str
    peer_package: str
    sender: Callable[[str, str, float], Any]
    is_async: bool


CALLERS = {
    "httpx async": Caller(
        "httpx", "httpx-retries", "httpx_retries",
        lambda *given: httpx_sender("httpx", *given, "AsyncClient"), True,
    ),
    "aiohttp": Caller("aiohttp", "aiohttp-retry", "aiohttp_retry", aiohttp_sender, True),
    "requests": Caller("requests", "urllib3 Retry", "urllib3", requests_sender, False),
    "httpx": Caller(
        "httpx", "httpx-retries", "httpx_retries",
        lambda *given: httpx_sender("httpx", *given, "Client"), False,
    ),
    "httpx2 async": Caller(
        "httpx2", "", "", lambda *given: httpx_sender("httpx2", *given, "AsyncClient"), True
    ),
}  # fmt: skip


def contenders_of(caller: Caller) -> Iterator[str]:
    if find_spec(caller.package) is not None:
        yield from ("bare", *OURS)
        if caller.peer and find_spec(caller.peer_package) is not None:
            yield caller.peer


# The loops.


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Instants at random, as of independent callers: in step with the schedule of retries none
    would find all threads held.
    """
    random = Random(seed)
    return sorted(seconds * random.random() for _ in range(int(rate * seconds)))


async def in_tasks(
    send: Callable[[], Awaitable[bool]], began: float, times: list[float]
) -> list[Call]:
    calls: dict[int, Call] = {}

    async def call(number: int) -> None:
        good = await aattempted(send)
        at = times[number]
        seconds = time.monotonic() - began - at
        calls[number] = at, seconds, seconds, good

    tasks = []
    for number, at in enumerate(times):
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        tasks.append(asyncio.create_task(call(number)))
    await asyncio.wait(tasks, timeout=FINISHED_WITHIN)
    now = time.monotonic() - began
    return [calls.get(n, (at, now - at, now - at, False)) for n, at in enumerate(times)]


def in_threads(send: Callable[[], bool], began: float, times: list[float]) -> list[Call]:
    numbers, lock = itertools.count(), threading.Lock()
    calls: list[Call] = []

    def work() -> None:
        while True:
            with lock:
                number = next(numbers)
            if number >= len(times):
                return
            at = times[number]
            time.sleep(max(0.0, began + at - time.monotonic()))
            begun = time.monotonic()
            good = begun < began + times[-1] and attempted(send)
            now = time.monotonic()
            calls.append((at, now - began - at, now - begun, good))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return calls


def attempted(send: Callable[[], bool]) -> bool:
    try:
        return send()
    except Exception:
        return False


async def aattempted(send: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await send()
    except Exception:
        return False
