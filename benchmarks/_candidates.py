"""Candidates: every way of retrying that is compared, each set up as its own documentation has it.

A candidate makes, from a family's inner transport, the function that sends one request. Transports
and middleware look at the status themselves; the decorators (tenacity, stamina, backoff) wrap a
function that raises on a retryable status. All make at most 4 attempts, and no quota or budget is
small enough to refuse one. A candidate whose package is absent, or which is not made for the
family, says so instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from _stubs import OTHER_URL, Family, SleeplessClock, Sleeps, generous_gate

LOOP = "minimal loop"
PEER = "httpx-retries"
FORBEAR = "forbear"
BODIES_ALONE = "forbear, prefetch=0, resume=False"
WITH_BREAKER = "forbear, budget and breaker on"
TIMED = "forbear, total_timeout=30"
COUNTED = "forbear, metrics for Prometheus"
HEDGED = "forbear, hedge, none sent"
CONTACT = "forbear, contact"
IN_DEADLINE = "forbear, in deadline()"
ONE_OPTION = (  # that a success once paid dearly for
    "forbear, attempt_timeout=10",
    "forbear, retry_if",
    CONTACT,
    "forbear, IdempotencyKeys and a GET",
    "forbear, in override()",
    IN_DEADLINE,
)
ATTEMPTS = 4
STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
PLENTY = 1e9  # tokens or tokens per second: a quota that no run uses up


@dataclass(frozen=True)
class Setting:
    """What a candidate is made for."""

    family: Family
    flavour: str
    inner: Any
    wait: Callable[[], float] | None = None  # None: the candidate's own schedule
    sleeps: Sleeps | None = None  # stand-ins for the sleep functions; None: the real ones
    plenty: bool = False  # calls will be retried, so budgets must not run out

    @property
    def is_sync(self) -> bool:
        return self.flavour == "sync"


@dataclass(frozen=True)
class Candidate:
    name: str
    make: Callable[[Setting], Callable[[Any], Any]]
    package: str | None = None
    families: tuple[str, ...] = ("httpx", "httpx2")
    success_only: bool = False
    flavours: tuple[str, ...] = ("sync", "async")

    def absence(self, family: str, flavour: str) -> str | None:
        """Why this candidate cannot run, or None."""
        if family not in self.families:
            return f"not made for {family}"
        if flavour not in self.flavours:
            return f"not made for {flavour} clients"
        if self.package is None:
            return None
        module = f"{self.package}.{family}" if self.package == FORBEAR else self.package
        try:
            found = find_spec(module) is not None
        except ModuleNotFoundError:
            found = False
        return None if found else "not installed"


class Unavailable(Exception):
    """What the decorated functions raise on a retryable status."""


# the floor


def delegate(setting: Setting) -> Callable[[Any], Any]:
    lib = setting.family.lib

    class Delegate(lib.BaseTransport):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def handle_request(self, request: Any) -> Any:
            return self._inner.handle_request(request)

    class AsyncDelegate(lib.AsyncBaseTransport):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def handle_async_request(self, request: Any) -> Any:
            return await self._inner.handle_async_request(request)

    made = Delegate if setting.is_sync else AsyncDelegate
    return setting.family.send_of(setting.flavour, made(setting.inner))


def minimal_loop(setting: Setting) -> Callable[[Any], Any]:
    lib = setting.family.lib
    statuses, transport_error = STATUSES, lib.TransportError
    wait = setting.wait or (lambda: 0.25)

    class Loop(lib.BaseTransport):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def handle_request(self, request: Any) -> Any:
            attempt = 1
            while True:
                try:
                    response = self._inner.handle_request(request)
                except transport_error:
                    if attempt >= ATTEMPTS:
                        raise
                else:
                    if response.status_code not in statuses or attempt >= ATTEMPTS:
                        return response
                    response.close()
                    response = None
                attempt += 1
                delay = wait()
                if delay > 0:
                    time.sleep(delay)

    class AsyncLoop(lib.AsyncBaseTransport):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def handle_async_request(self, request: Any) -> Any:
            attempt = 1
            while True:
                try:
                    response = await self._inner.handle_async_request(request)
                except transport_error:
                    if attempt >= ATTEMPTS:
                        raise
                else:
                    if response.status_code not in statuses or attempt >= ATTEMPTS:
                        return response
                    await response.aclose()
                    response = None
                attempt += 1
                delay = wait()
                if delay > 0:
                    await asyncio.sleep(delay)

    made = Loop if setting.is_sync else AsyncLoop
    return setting.family.send_of(setting.flavour, made(setting.inner))


# transports and middleware


def httpx_retries(setting: Setting) -> Callable[[Any], Any]:
    from httpx_retries import Retry, RetryTransport

    wait = setting.wait
    if wait is None:
        retry = Retry(total=ATTEMPTS - 1, backoff_factor=0.5)
    else:

        class Planned(Retry):
            def backoff_strategy(self) -> float:
                return wait()

        retry = Planned(total=ATTEMPTS - 1)
    return setting.family.send_of(setting.flavour, RetryTransport(setting.inner, retry))


def httpware(setting: Setting) -> Callable[[Any], Any]:
    from httpware import STATUS_TO_EXCEPTION, AsyncRetry, NetworkError, Retry, RetryBudget
    from httpware.middleware.chain import compose, compose_async

    lib, inner, wait = setting.family.lib, setting.inner, setting.wait
    budget = RetryBudget(min_retries_per_sec=PLENTY) if setting.plenty else RetryBudget()
    options: dict[str, Any] = {"max_attempts": ATTEMPTS, "budget": budget, "base_delay": 0.5}
    if wait is not None:
        # Its schedule cannot be replaced, but the function that sleeps can.
        options["base_delay"] = 0.0

    # The two terminals do what its client does below the middleware: send, translate, raise on a
    # status.
    def terminal(request: Any) -> Any:
        try:
            response = inner.handle_request(request)
        except lib.TransportError as error:
            raise NetworkError(str(error)) from error
        if response.status_code >= 400:
            response.close()
            raise STATUS_TO_EXCEPTION[response.status_code](response)
        return response

    async def async_terminal(request: Any) -> Any:
        try:
            response = await inner.handle_async_request(request)
        except lib.TransportError as error:
            raise NetworkError(str(error)) from error
        if response.status_code >= 400:
            await response.aclose()
            raise STATUS_TO_EXCEPTION[response.status_code](response)
        return response

    # The sleep functions are default arguments, bound at import: name them again, they may be
    # stand-ins.
    if setting.is_sync:
        sleep = time.sleep if wait is None else lambda _: time.sleep(wait())
        return compose([Retry(**options, _sleep=sleep)], terminal)
    asleep = asyncio.sleep if wait is None else lambda _: asyncio.sleep(wait())
    return compose_async([AsyncRetry(**options, _sleep=asleep)], async_terminal)


# decorators


def _plain_sender(setting: Setting) -> Callable[[Any], Any]:
    inner = setting.inner

    def send(request: Any) -> Any:
        response = inner.handle_request(request)
        if response.status_code in STATUSES:
            response.close()
            raise Unavailable(response.status_code)
        return response

    async def asend(request: Any) -> Any:
        response = await inner.handle_async_request(request)
        if response.status_code in STATUSES:
            await response.aclose()
            raise Unavailable(response.status_code)
        return response

    return send if setting.is_sync else asend


def tenacity(setting: Setting) -> Callable[[Any], Any]:
    from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

    wait = setting.wait
    decorate = retry(
        retry=retry_if_exception_type((setting.family.lib.TransportError, Unavailable)),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.5, max=30) if wait is None else lambda _: wait(),
        reraise=True,
    )
    return decorate(_plain_sender(setting))


def stamina(setting: Setting) -> Callable[[Any], Any]:
    from stamina import instrumentation, retry

    # Its default hook logs every retry as a warning, which the interpreter would print, and with
    # structlog installed would print by itself.
    instrumentation.set_on_retry_hooks([instrumentation.LoggingOnRetryHook])
    logging.getLogger("stamina").addHandler(logging.NullHandler())
    failures = (setting.family.lib.TransportError, Unavailable)
    wait = setting.wait
    on = (
        failures if wait is None else lambda error: wait() if isinstance(error, failures) else False
    )
    return retry(on=on, attempts=ATTEMPTS, timeout=None if wait else 45.0)(_plain_sender(setting))


def backoff(setting: Setting) -> Callable[[Any], Any]:
    from backoff import full_jitter, on_exception

    wait = setting.wait

    def planned() -> Any:
        yield
        while True:
            yield wait()

    decorate = on_exception(
        importlib.import_module("backoff").expo if wait is None else planned,
        (setting.family.lib.TransportError, Unavailable),
        max_tries=ATTEMPTS,
        jitter=full_jitter if wait is None else None,
    )
    return decorate(_plain_sender(setting))


# forbear


class Planned:
    """A forbear `Backoff` whose delay is computed by the benchmark."""

    def __init__(self, wait: Callable[[], float]) -> None:
        self._wait = wait

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        return max(0.0, self._wait())


def _ignore(event: object) -> None:
    """A listener that does nothing."""


def forbear(
    setting: Setting,
    *,
    policy: dict[str, Any] | None = None,
    unhealthy: bool = False,
    **options: Any,
) -> Callable[[Any], Any]:
    import forbear as library

    adapter = importlib.import_module(f"forbear.{setting.family.name}")
    fields = dict(policy or {})
    if options.pop("bodies_alone", True):
        options |= {"prefetch": 0, "resume": False}
    if setting.wait is not None:
        fields["backoff"] = Planned(setting.wait)
    if setting.sleeps is not None:
        options["clock"] = SleeplessClock(setting.sleeps)
        options["random"] = lambda: 0.5
    if setting.plenty:
        options.setdefault("gate", generous_gate())
    made = adapter.RetryTransport if setting.is_sync else adapter.AsyncRetryTransport
    if unhealthy:  # another origin: what this one's answers earn would make it well
        gate = options["gate"] = library.RetryGate()
        gate.bad(OTHER_URL, 0.0, sent_at=0.0, weight=1.0)
    transport = made(setting.inner, policy=library.RetryPolicy(**fields), **options)
    return setting.family.send_of(setting.flavour, transport)


def _breaker_on(setting: Setting) -> Callable[[Any], Any]:
    import forbear as library

    # Two of three attempts fail in a run: only failures in a row may open the circuit.
    breaker = library.CircuitBreaker(5, failure_rate=None)
    return forbear(setting, breaker=breaker)


def _counted(setting: Setting) -> Callable[[Any], Any]:
    from prometheus_client import CollectorRegistry

    from forbear.telemetry.prometheus import Metrics

    return forbear(setting, on_event=[Metrics(CollectorRegistry())])


def _forbear_with(**options: Any) -> Callable[[Setting], Callable[[Any], Any]]:
    return lambda setting: forbear(setting, **options)


def _with_bodies(setting: Setting) -> Callable[[Any], Any]:
    return forbear(setting, bodies_alone=False)


def _keyed(setting: Setting) -> Callable[[Any], Any]:
    import forbear as library

    return forbear(setting, idempotency=library.IdempotencyKeys())


def _in_override(setting: Setting) -> Callable[[Any], Any]:
    import forbear as library

    return _within(library.override(max_attempts=ATTEMPTS), setting)


def _in_deadline(setting: Setting) -> Callable[[Any], Any]:
    import forbear as library

    return _within(library.deadline(86_400.0), setting)


def _hedged(setting: Setting) -> Callable[[Any], Any]:
    """Successes that could be hedged: the answers before them are known, and none is late."""
    import forbear as library

    return forbear(setting, hedge=library.Hedge(learn_from=1))


def _within(block: AbstractContextManager[Any], setting: Setting) -> Callable[[Any], Any]:
    """Send from inside a block that was entered once, in a context that no other candidate sees.

    Going into the context and back costs about 0.1 us, and is in the figure.
    """
    send, context = forbear(setting), contextvars.copy_context()
    context.run(block.__enter__)
    if setting.is_sync:
        return lambda request: context.run(send, request)

    def finish(request: Any) -> Any:
        try:
            send(request).send(None)  # nothing suspends here
        except StopIteration as done:
            return done.value
        raise RuntimeError("a success on a stub suspended")

    async def asend(request: Any) -> Any:
        return context.run(finish, request)

    return asend


def _undecided(response: object) -> None:
    """A `retry_if` that leaves every answer to the policy."""


def _ours(
    name: str, make: Callable[[Setting], Callable[[Any], Any]], package: str = FORBEAR
) -> Candidate:
    return Candidate(name, make, package, success_only=name in ONE_OPTION)


# RetryTransport() is the first of forbear's own; the others leave bodies alone, so that what each
# option adds shows.
CANDIDATES = (
    Candidate("delegation", delegate, success_only=True),
    Candidate(LOOP, minimal_loop),
    _ours(FORBEAR, _with_bodies),
    _ours(BODIES_ALONE, forbear),
    _ours("forbear, budget=None", _forbear_with(budget=None)),
    _ours(WITH_BREAKER, _breaker_on),
    _ours(TIMED, _forbear_with(policy={"total_timeout": 30.0})),
    _ours(ONE_OPTION[0], _forbear_with(policy={"attempt_timeout": 10.0})),
    _ours(ONE_OPTION[1], _forbear_with(retry_if=_undecided)),
    _ours(CONTACT, _forbear_with(contact="ops@example.com"), "email_validator"),
    _ours(ONE_OPTION[3], _keyed),
    _ours(ONE_OPTION[4], _in_override),
    _ours(IN_DEADLINE, _in_deadline),
    Candidate(HEDGED, _hedged, FORBEAR, success_only=True, flavours=("async",)),
    _ours("forbear, one listener", _forbear_with(on_event=(_ignore,))),
    _ours(COUNTED, _counted, "prometheus_client"),
    Candidate(
        "forbear, an origin unhealthy", _forbear_with(unhealthy=True), FORBEAR, success_only=True
    ),
    Candidate(PEER, httpx_retries, "httpx_retries", families=("httpx",)),
    Candidate("httpware Retry", httpware, "httpware"),
    Candidate("backoff", backoff, "backoff"),
    Candidate("stamina", stamina, "stamina"),
    Candidate("tenacity", tenacity, "tenacity"),
)
# In the header of a report; the first three are what the figures are about.
PACKAGES = (
    "forbear",
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "aiohttp",
    "anyio",
    "httpx-retries",
    "aiohttp-retry",
    "httpware",
    "tenacity",
    "stamina",
    "backoff",
)
