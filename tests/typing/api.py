"""The public API as a user writes it. Only type-checked (mypy --strict, pyright), never run.

``assert_type`` stands where a user would otherwise lose a type: at what is returned and handed
through.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack, assert_type
from wsgiref.simple_server import make_server

import aiohttp
import fastapi
import flask
import httpx
import httpx2
import redis
import requests
import urllib3
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp

import forbear
import forbear.aiohttp
import forbear.asgi
import forbear.httpx
import forbear.httpx2
import forbear.requests
import forbear.urllib3
import forbear.wsgi
from forbear import (
    AttemptRecord,
    CallRecord,
    CircuitBreaker,
    CircuitOpenError,
    DeadlineExceeded,
    EventStreams,
    Exponential,
    FailureKind,
    Fixed,
    ForbearError,
    IdempotencyKeys,
    Origins,
    Reason,
    RetryBudget,
    RetryPolicy,
    read_hint,
    record_of,
)
from forbear import idempotency as keys
from forbear.core.events import CallEnded, CircuitTransition, Event, GaveUp, RetryScheduled
from forbear.core.request import Request
from forbear.engine.clock import Clock
from forbear.redis import RedisBudget
from forbear.strategies import (
    AwsStandard,
    Backoff,
    Failure,
    Hint,
    RetryRefused,
    RetryStrategy,
    RetryToken,
    StandardStrategy,
    TokenBucket,
)
from forbear.telemetry import assets, otel, prometheus
from forbear.testing import (
    FakeClock,
    FaultServer,
    ScriptedTransport,
    assert_schedule,
    disabled,
    fast,
    record,
)


def policies() -> None:
    policy = RetryPolicy(
        max_attempts=5,
        backoff=Exponential(base=0.2, cap=20.0, factor=2.0, jitter="equal", fast_first=0.2),
        throttle_backoff=Fixed(5),
        statuses={429, 503},
        hinted_statuses=frozenset({403}),
        unexecuted_statuses=[429],
        vendors=["google"],
        conflict_with_key=False,
        failures={FailureKind.REFUSED, FailureKind.CONNECT_TIMEOUT},
        methods={"GET", "PUT"},
        attempt_timeout=2,
        total_timeout=30.0,
        max_retry_after=120,
        hints="ignore",
        hint_spread=0.2,
        on_exhausted="raise",
    )
    assert_type(policy, RetryPolicy)
    assert_type(policy.replace(max_attempts=2), RetryPolicy)
    assert_type(policy.for_vendors("github", "anthropic"), RetryPolicy)
    assert_type(policy.worst_case(attempt_timeout=2.0), float)
    assert_type(RetryPolicy.from_urllib3(3), RetryPolicy)
    assert_type(policy.total_timeout, float | None)
    assert_type(RetryPolicy.batch(), RetryPolicy)

    fields: forbear.strategies.PolicyFields = {"max_attempts": 2, "statuses": {503}}
    assert_type(RetryPolicy(**fields), RetryPolicy)
    assert_type(policy.replace(**fields), RetryPolicy)
    with forbear.override(**fields):
        pass
    misspelt: forbear.strategies.PolicyFields = {"max_attemps": 2}  # type: ignore[typeddict-unknown-key]
    print(misspelt)
    policy.replace(max_attemps=2)  # type: ignore[call-arg]
    forbear.override(max_attemps=2)  # type: ignore[call-arg]
    RetryPolicy(backoff=Exponential)  # type: ignore[arg-type]
    RetryPolicy(3)  # type: ignore[call-arg]
    RetryPolicy(hints="respect")  # type: ignore[arg-type]
    Exponential(jitter="some")  # type: ignore[arg-type]
    policy.max_attempts = 3  # type: ignore[misc]


class EveryThird:
    """A schedule of one's own."""

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        return 1.0 if attempt % 3 == 0 else 0.1


class TwoRetriesPerMinute:
    """A strategy of one's own."""

    quiet = True

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        return RetryToken()

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        assert_type(failure.kind, FailureKind)
        assert_type(failure.retry_after, float | None)
        if latest < 1.0:
            raise RetryRefused(Reason.DEADLINE, retry_after=1.0)
        token.delay = 1.0
        return token

    def record_success(self, token: RetryToken, now: float) -> None: ...

    def release(self, token: RetryToken, now: float) -> None: ...


class NoStrategy:
    quiet = True


class Quota(forbear.addons.Limit):
    def admit(self, call: forbear.addons.Call, now: float) -> float:
        return 1.0 if call.attempts else 0.0

    def plan(
        self,
        call: forbear.addons.Call,
        failure: forbear.strategies.Failure,
        plan: forbear.addons.Plan,
        now: float,
        latest: float,
    ) -> forbear.addons.Plan:
        return plan._replace(delay=plan.delay + 1.0)


def addons() -> None:
    forbear.httpx.RetryTransport(addons=[Quota()])
    forbear.httpx.RetryTransport(addons=[object()])  # type: ignore[list-item]


def strategies() -> None:
    schedule: Backoff = EveryThird()
    policy = RetryPolicy(backoff=schedule)
    own: RetryStrategy = TwoRetriesPerMinute()
    standard: RetryStrategy = StandardStrategy(policy, budget=RetryBudget(ratio=0.1))
    forbear.httpx.RetryTransport(strategy=own)
    forbear.httpx2.AsyncRetryTransport(strategy=standard, policy=policy)
    aws: RetryStrategy = AwsStandard(max_attempts=5, bucket=TokenBucket(100, cost=2))
    forbear.httpx.RetryTransport(strategy=aws)
    AwsStandard(3)  # type: ignore[call-arg]
    wrong: RetryStrategy = NoStrategy()  # type: ignore[assignment]
    forbear.httpx.RetryTransport(strategy=wrong)


def tenant(facts: Request) -> str:
    assert_type(facts.url, str)
    return facts.header("X-Tenant") or facts.origin


def scopes() -> None:
    RetryBudget(ratio=0, floor_per_second=1 / 30, burst=1, scope=lambda facts: facts.url)
    RetryBudget(scope=tenant)
    RetryBudget(scope="origin")
    RetryBudget(scope=len)  # type: ignore[arg-type]


def breakers() -> None:
    breaker = CircuitBreaker(failure_rate=0.5, window=60, mode="observe")
    assert_type(breaker.state("http://a:80", 0.0) == "open", bool)
    CircuitBreaker(mode="shadow")  # type: ignore[arg-type]
    forbear.httpx.RetryTransport(breaker=breaker, cooldown="all")
    forbear.httpx.RetryTransport(breaker=5)  # type: ignore[arg-type]


def several_servers() -> None:
    origins = Origins(["https://a.example", "https://b.example"], choose="round-robin")
    assert_type(origins.listed, tuple[str, ...])
    Origins(["https://a.example", "https://b.example"], choose="random")  # type: ignore[arg-type]
    forbear.httpx.RetryTransport(origins=["https://a.example"])  # type: ignore[arg-type]


def transports() -> None:
    transport = forbear.httpx.RetryTransport(
        httpx.HTTPTransport(http2=True),
        policy=RetryPolicy(),
        budget=RetryBudget(ratio=0.2, burst=20, scope="transport"),
        idempotency=IdempotencyKeys(style="sf-string", recognise=("X-Order",)),
        retry_if=lambda response: response.status_code == 202,
        before_attempt=lambda request, attempt: None,
        on_event=[print, heard],
        body_buffer=65_536,
        prefetch=65_536,
        resume=True,
        event_streams=EventStreams(first_event_timeout=20.0, resume=True),
        contact="ops@example.com",
        announce_attempts=True,
        stop_outer_retries=True,
        name="orders",
        clock=FakeClock(),
        random=lambda: 0.5,
    )
    client = httpx.Client(transport=transport)
    assert_type(
        client.get("http://a.example/", extensions={"forbear": {"max_attempts": 1}}), httpx.Response
    )
    client.get("http://a.example/", extensions={"forbear": False})
    httpx.Client(mounts={"https://": forbear.httpx.RetryTransport(), "http://": None})
    httpx.AsyncClient(transport=forbear.httpx.AsyncRetryTransport())
    httpx2.Client(transport=forbear.httpx2.RetryTransport(httpx2.HTTPTransport()))
    httpx2.AsyncClient(transport=forbear.httpx2.AsyncRetryTransport())
    httpx.Client(transport=forbear.httpx2.RetryTransport())  # type: ignore[arg-type]
    httpx.Client(transport=forbear.httpx.AsyncRetryTransport())  # type: ignore[arg-type]
    httpx.Client(transport=ScriptedTransport([200]))
    httpx2.AsyncClient(transport=ScriptedTransport([200]))
    forbear.httpx.RetryTransport(retries=3)  # type: ignore[call-arg]
    forbear.httpx.RetryTransport(RetryPolicy())  # type: ignore[arg-type]
    forbear.httpx.RetryTransport(httpx.AsyncHTTPTransport())  # type: ignore[arg-type]
    forbear.requests.mount(requests.Session(), resume=False)
    forbear.requests.mount(requests.Session(), prefetch=0)  # type: ignore[call-arg]


def predicates() -> None:
    """The parameter of a lambda is the library's own response."""
    forbear.httpx.RetryTransport(retry_if=lambda r: assert_type(r, httpx.Response).is_error)
    forbear.requests.RetryAdapter(retry_if=lambda r: assert_type(r, requests.Response).ok or None)
    forbear.urllib3.RetryPoolManager(
        retry_if=lambda r: assert_type(r, urllib3.BaseHTTPResponse).status == 202
    )
    forbear.httpx.AsyncRetryTransport(retry_if=still_pending)
    forbear.httpx.AsyncRetryTransport(
        retry_if=lambda r: still_pending(assert_type(r, httpx.Response))
    )
    forbear.httpx.RetryTransport(retry_if=still_pending)  # type: ignore[arg-type]
    forbear.httpx.RetryTransport(retry_if=lambda r: r.status_cod == 202)  # type: ignore[attr-defined]
    forbear.httpx.RetryTransport(retry_if=lambda r: "yes")  # type: ignore[arg-type, return-value]


async def still_pending(response: httpx.Response) -> bool | None:
    await response.aread()
    return response.json()["state"] == "pending" or None


def middlewares() -> None:
    """Around applications of every kind, as their frameworks type them."""
    api = fastapi.FastAPI()
    api.add_middleware(forbear.asgi.RetryContextMiddleware, margin=0.1, announce_deadline=True)
    uvicorn.Config(forbear.asgi.RetryContextMiddleware(api, stop_outer_retries=False))
    starlette = Starlette(middleware=[Middleware(forbear.asgi.RetryContextMiddleware, margin=0)])
    again: ASGIApp = forbear.asgi.RetryContextMiddleware(starlette)
    forbear.asgi.RetryContextMiddleware(again)
    site = flask.Flask(__name__)
    site.wsgi_app = forbear.wsgi.RetryContextMiddleware(site.wsgi_app)  # type: ignore[method-assign]
    make_server("127.0.0.1", 0, forbear.wsgi.RetryContextMiddleware(site, margin=0.1))
    forbear.asgi.RetryContextMiddleware(api, 0.1)  # type: ignore[call-arg]
    forbear.asgi.RetryContextMiddleware(site)  # type: ignore[arg-type]
    forbear.wsgi.RetryContextMiddleware(api)  # type: ignore[arg-type]


def fleets() -> None:
    fleet = RedisBudget("redis://localhost", name="orders", burst=100, scope="transport")
    RedisBudget(redis.Redis(), name="orders", fallback=RetryBudget())
    forbear.httpx.RetryTransport(budget=fleet)
    assert_type(fleet.is_lost, bool)
    RedisBudget("redis://localhost")  # type: ignore[call-arg]


class Tenants(requests.Session):
    """A session of one's own; so are the clients below."""


class Client(httpx.Client): ...


class AsyncClient(httpx2.AsyncClient): ...


def options(**given: Unpack[forbear.Options[Callable[[requests.Response], bool]]]) -> Tenants:
    return forbear.requests.mount(Tenants(), RetryPolicy(), **given)


def wrapping() -> None:
    assert_type(forbear.requests.mount(Tenants()), Tenants)
    assert_type(forbear.httpx.wrap(Client()), Client)
    assert_type(forbear.httpx.unwrap(Client()), Client)
    assert_type(forbear.httpx2.wrap(AsyncClient()), AsyncClient)
    options(name="tenants", resume=False)
    options(names="tenants")  # type: ignore[call-arg]
    assert_type(forbear.httpx.wrap(httpx.Client(http2=True)), httpx.Client)
    assert_type(
        forbear.httpx.wrap(httpx.AsyncClient(), RetryPolicy(), budget=None, name="a"),
        httpx.AsyncClient,
    )
    assert_type(forbear.httpx.is_wrapped(httpx.AsyncClient()), bool)
    assert_type(forbear.requests.is_mounted(Tenants()), bool)
    assert_type(forbear.httpx2.wrap(httpx2.Client()), httpx2.Client)
    forbear.httpx.wrap(httpx2.Client())  # type: ignore[type-var]
    forbear.aiohttp.wrap(httpx2.Client())  # type: ignore[arg-type]
    forbear.httpx.wrap(httpx.Client(), retries=3)  # type: ignore[call-arg]


async def with_aiohttp() -> None:
    retrying = forbear.aiohttp.RetryMiddleware(RetryPolicy(), budget=None, prefetch=0)
    async with aiohttp.ClientSession(middlewares=(retrying,)) as session:
        assert_type(forbear.aiohttp.wrap(session, RetryPolicy(), name="a"), aiohttp.ClientSession)
        assert_type(forbear.aiohttp.unwrap(session), aiohttp.ClientSession)
        once = retrying.with_policy({"max_attempts": 2})
        assert_type(once, forbear.aiohttp.RetryMiddleware)
        await session.get("http://a.example/", middlewares=(once, retrying.with_policy(False)))
    forbear.aiohttp.RetryMiddleware(
        retry_if=lambda r: assert_type(r, aiohttp.ClientResponse).status == 202
    )
    forbear.aiohttp.RetryMiddleware(retries=3)  # type: ignore[call-arg]


async def asynchronously() -> None:
    async with httpx.AsyncClient(transport=forbear.httpx.AsyncRetryTransport()) as client:
        async with forbear.deadline(2.0), forbear.override(max_attempts=2):
            assert_type(await client.get("http://a.example/"), httpx.Response)


@forbear.override(max_attempts=2)
def fetch(number: int) -> str:
    return str(number)


@forbear.deadline(2.0)
async def afetch(number: int, *, name: str = "") -> bytes:
    return name.encode() * number


async def decorated() -> None:
    """A decorator hands the signature through."""
    assert_type(fetch(3), str)
    assert_type(await afetch(3, name="a"), bytes)
    fetch("3")  # type: ignore[arg-type]


def contexts() -> None:
    with record() as events:
        pass
    assert_type(events.names, list[str])
    events.assert_retried(2, ["503", "ReadError"])
    for event in events:
        heard(event)


def heard(event: Event) -> None:
    if isinstance(event, RetryScheduled):
        assert_type(event.delay, float)
    elif isinstance(event, GaveUp):
        assert_type(event.reason, Reason)
    elif isinstance(event, CircuitTransition):
        assert_type(event.to_state, str)
    assert_type(event.name, str)


def records(response: httpx.Response, error: httpx.HTTPError) -> None:
    story: CallRecord = record_of(response)  # without a check, as on the pages
    print(record_of(error).reason, forbear.record_of(response).attempts[-1].origin)
    if record_of(error) is None:
        print("not sent by forbear")
    assert_type(story, CallRecord)
    assert_type(story.reason, Reason | None)
    assert_type(story.attempts, tuple[AttemptRecord, ...])


def errors() -> None:
    try:
        raise forbear.httpx.DeadlineExceeded("…", reason=Reason.DEADLINE)
    except httpx.TimeoutException as error:
        assert_type(forbear.httpx.classify(error), Failure)
    try:
        raise forbear.httpx2.CircuitOpenError("…", reason=Reason.CIRCUIT_OPEN, retry_after=1.0)
    except CircuitOpenError as refused:
        assert_type(refused.reason, Reason)
        assert_type(refused.retry_after, float | None)
    base: type[ForbearError] = DeadlineExceeded
    transport_error: type[httpx.TransportError] = forbear.httpx.CircuitOpenError
    timeout: type[httpx2.TimeoutException] = forbear.httpx2.DeadlineExceeded
    print(base, transport_error, timeout)


def telemetry() -> None:
    counted = prometheus.Metrics(CollectorRegistry(), metrics_host=False)
    forbear.httpx.RetryTransport(on_event=[counted, otel.Metrics(), otel.Spans()])
    forbear.requests.mount(requests.Session(), on_event=[counted])

    def tell(event: Event | CallEnded) -> None:
        if event.name == "call_ended":
            print(event.client)

    forbear.urllib3.RetryPoolManager(on_event=[tell])
    assert_type(assets.read("forbear.rules.yml"), str)
    assert_type(assets.write("/monitoring"), list[Path])


def hints() -> None:
    hint = read_hint(429, [("Retry-After", "2")], now=0.0)
    assert_type(hint, Hint)
    assert_type(hint.delay, float | None)
    read_hint(429, [(b"Retry-After", b"2")], now=0.0)
    read_hint(429, httpx.Headers().multi_items(), now=0.0)


def idempotency() -> None:
    key = keys.generate(profile="stripe")
    assert_type(key, str)
    assert_type(keys.serialize(key, style="sf-string", profile="generic"), str)


def testing() -> None:
    clock: Clock = FakeClock(now=0.0)
    scripted = ScriptedTransport([503, (429, {"Retry-After": "2"}), "read_error", 200])
    forbear.httpx.RetryTransport(scripted, clock=clock)
    forbear.httpx2.AsyncRetryTransport(scripted, clock=clock)
    assert_type(FakeClock().sleeps, list[float])
    with FaultServer() as server:
        assert_type(server, FaultServer)
    assert_schedule(RetryPolicy(max_attempts=3), [(0, 1), (0.0, 2.5)])
    with fast(), fast(max_attempts=2), disabled():
        pass
