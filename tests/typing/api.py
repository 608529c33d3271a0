"""The public API as a user writes it. Only type-checked (mypy --strict, pyright), never run."""

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
from forbear import Exponential, FailureKind, Fixed, Reason, RetryBudget, RetryPolicy, events
from forbear import idempotency as keys
from forbear import strategies as plug
from forbear.asgi import RetryContextMiddleware
from forbear.core.request import Request
from forbear.engine.clock import Clock
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.redis import RedisBudget
from forbear.telemetry import assets, otel, prometheus
from forbear.testing import FakeClock, FaultServer, ScriptedTransport


def policies() -> None:
    policy = RetryPolicy(
        max_attempts=5, throttle_backoff=Fixed(5),
        backoff=Exponential(base=0.2, cap=20.0, factor=2.0, jitter="equal", fast_first=0.2),
        statuses={429, 503}, hinted_statuses=frozenset({403}), unexecuted_statuses={429},
        vendors=["google"], conflict_with_key=False, methods={"GET", "PUT"},
        failures={FailureKind.REFUSED, FailureKind.CONNECT_TIMEOUT}, attempt_timeout=2,
        total_timeout=30.0, max_retry_after=120, hints="ignore", hint_spread=0.2,
        on_exhausted="raise",
    )  # fmt: skip
    assert_type(policy, RetryPolicy)
    assert_type(policy.replace(max_attempts=2), RetryPolicy)
    assert_type(policy.for_vendors("github", "anthropic"), RetryPolicy)
    assert_type(RetryPolicy.from_urllib3(3), RetryPolicy)
    assert_type(policy.total_timeout, float | None)
    assert_type(RetryPolicy.batch(), RetryPolicy)
    fields: plug.PolicyFields = {"max_attempts": 2, "statuses": {503}}
    assert_type(RetryPolicy(**fields), RetryPolicy)
    assert_type(policy.replace(**fields), RetryPolicy)
    with forbear.override(**fields), forbear.deadline(1.0):
        pass
    misspelt: plug.PolicyFields = {"max_attemps": 2}  # type: ignore[typeddict-unknown-key]
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

    def acquire_initial_token(self, scope: str, now: float) -> plug.RetryToken:
        return plug.RetryToken()

    def refresh_token(
        self, token: plug.RetryToken, failure: plug.Failure, now: float, *, latest: float
    ) -> plug.RetryToken:
        assert_type(failure.kind, FailureKind)
        assert_type(failure.retry_after, float | None)
        if latest < 1.0:
            raise plug.RetryRefused(Reason.DEADLINE, retry_after=1.0)
        return token

    def record_success(self, token: plug.RetryToken, now: float) -> None: ...

    def release(self, token: plug.RetryToken, now: float) -> None: ...


class NoStrategy:
    quiet = True


class Quota(forbear.addons.Limit):
    def admit(self, call: forbear.addons.Call, now: float) -> float:
        return 1.0 if call.attempts else 0.0

    def plan(
        self, call: forbear.addons.Call, failure: plug.Failure, plan: forbear.addons.Plan,
        now: float, latest: float,
    ) -> forbear.addons.Plan:  # fmt: skip
        return plan._replace(delay=plan.delay + 1.0)


def strategies() -> None:
    RetryTransport(addons=[Quota()])
    RetryTransport(addons=[object()])  # type: ignore[list-item]
    schedule: plug.Backoff = EveryThird()
    policy = RetryPolicy(backoff=schedule)
    own: plug.RetryStrategy = TwoRetriesPerMinute()
    standard: plug.RetryStrategy = plug.StandardStrategy(policy, budget=RetryBudget(ratio=0.1))
    RetryTransport(strategy=own)
    forbear.httpx2.AsyncRetryTransport(strategy=standard, policy=policy)
    bucket = plug.TokenBucket(100, cost=2)
    aws: plug.RetryStrategy = plug.AwsStandard(max_attempts=5, bucket=bucket)
    RetryTransport(strategy=aws)
    plug.AwsStandard(3)  # type: ignore[call-arg]
    wrong: plug.RetryStrategy = NoStrategy()  # type: ignore[assignment]
    RetryTransport(strategy=wrong)


def tenant(facts: Request) -> str:
    assert_type(facts.url, str)
    return facts.header("X-Tenant") or facts.origin


def limits() -> None:
    RetryBudget(ratio=0, floor_per_second=1 / 30, burst=1, scope=lambda facts: facts.url)
    RetryBudget(scope=tenant)
    RetryBudget(scope="origin")
    RetryBudget(scope=len)  # type: ignore[arg-type]
    breaker = forbear.CircuitBreaker(failure_rate=0.5, window=60, mode="observe")
    assert_type(breaker.state("http://a:80", 0.0) == "open", bool)
    forbear.CircuitBreaker(mode="shadow")  # type: ignore[arg-type]
    RetryTransport(breaker=breaker, cooldown="all")
    RetryTransport(breaker=5)  # type: ignore[arg-type]
    several = ["https://a.example", "https://b.example"]
    listed: tuple[str, ...] = forbear.Origins(several, choose="round-robin").listed
    print(listed)
    forbear.Origins(several, choose="random")  # type: ignore[arg-type]
    RetryTransport(origins=several)  # type: ignore[arg-type]
    fleet = RedisBudget("redis://localhost", name="orders", burst=100, scope="transport")
    RedisBudget(redis.Redis(), name="orders", fallback=RetryBudget())
    RetryTransport(budget=fleet)
    assert_type(fleet.is_lost, bool)
    RedisBudget("redis://localhost")  # type: ignore[call-arg]


def transports() -> None:
    transport = RetryTransport(
        httpx.HTTPTransport(http2=True), policy=RetryPolicy(), name="orders", clock=FakeClock(),
        budget=RetryBudget(ratio=0.2, burst=20, scope="transport"), random=lambda: 0.5,
        idempotency=forbear.IdempotencyKeys(style="sf-string", recognise=("X-Order",)),
        retry_if=lambda response: response.status_code == 202, on_event=[print, heard],
        before_attempt=lambda request, attempt: None, body_buffer=65_536, prefetch=65_536,
        resume=True, event_streams=forbear.EventStreams(first_event_timeout=20.0, resume=True),
        contact="ops@example.com", announce_attempts=True, stop_outer_retries=True,
    )  # fmt: skip
    client, off = httpx.Client(transport=transport), {"forbear": False}
    assert_type(client.get("http://a.example/", extensions=off), httpx.Response)
    client.get("http://a.example/", extensions={"forbear": {"max_attempts": 1}})
    httpx.Client(mounts={"https://": RetryTransport(), "http://": None})
    httpx.AsyncClient(transport=AsyncRetryTransport())
    httpx2.Client(transport=forbear.httpx2.RetryTransport(httpx2.HTTPTransport()))
    httpx2.AsyncClient(transport=forbear.httpx2.AsyncRetryTransport())
    httpx.Client(transport=forbear.httpx2.RetryTransport())  # type: ignore[arg-type]
    httpx.Client(transport=AsyncRetryTransport())  # type: ignore[arg-type]
    httpx.Client(transport=ScriptedTransport([200]))
    httpx2.AsyncClient(transport=ScriptedTransport([200]))
    RetryTransport(retries=3)  # type: ignore[call-arg]
    RetryTransport(RetryPolicy())  # type: ignore[arg-type]
    RetryTransport(httpx.AsyncHTTPTransport())  # type: ignore[arg-type]
    forbear.requests.mount(requests.Session(), resume=False)
    forbear.requests.mount(requests.Session(), prefetch=0)  # type: ignore[call-arg]


def predicates() -> None:
    """The parameter of a lambda is the library's own response."""
    RetryTransport(retry_if=lambda r: assert_type(r, httpx.Response).is_error)
    forbear.requests.RetryAdapter(retry_if=lambda r: assert_type(r, requests.Response).ok or None)
    forbear.urllib3.RetryPoolManager(
        retry_if=lambda r: assert_type(r, urllib3.BaseHTTPResponse).status == 202
    )
    AsyncRetryTransport(retry_if=still_pending)
    AsyncRetryTransport(retry_if=lambda r: still_pending(assert_type(r, httpx.Response)))
    RetryTransport(retry_if=still_pending)  # type: ignore[arg-type]
    RetryTransport(retry_if=lambda r: r.status_cod == 202)  # type: ignore[attr-defined]
    RetryTransport(retry_if=lambda r: "yes")  # type: ignore[arg-type, return-value]


async def still_pending(response: httpx.Response) -> bool | None:
    await response.aread()
    return response.json()["state"] == "pending" or None


def middlewares() -> None:
    """Around applications of every kind, as their frameworks type them."""
    api = fastapi.FastAPI()
    api.add_middleware(RetryContextMiddleware, margin=0.1, announce_deadline=True)
    uvicorn.Config(RetryContextMiddleware(api, stop_outer_retries=False))
    starlette = Starlette(middleware=[Middleware(RetryContextMiddleware, margin=0)])
    again: ASGIApp = RetryContextMiddleware(starlette)
    RetryContextMiddleware(again)
    site = flask.Flask(__name__)
    site.wsgi_app = forbear.wsgi.RetryContextMiddleware(site.wsgi_app)  # type: ignore[method-assign]
    make_server("127.0.0.1", 0, forbear.wsgi.RetryContextMiddleware(site, margin=0.1))
    RetryContextMiddleware(api, 0.1)  # type: ignore[call-arg]
    RetryContextMiddleware(site)  # type: ignore[arg-type]
    forbear.wsgi.RetryContextMiddleware(api)  # type: ignore[arg-type]


class Tenants(requests.Session):
    """A session of one's own; so is the client below."""


class Client(httpx.Client): ...


def options(**given: Unpack[forbear.Options[Callable[[requests.Response], bool]]]) -> Tenants:
    return forbear.requests.mount(Tenants(), RetryPolicy(), **given)


def wrapping() -> None:
    assert_type(forbear.requests.mount(Tenants()), Tenants)
    assert_type(forbear.httpx.wrap(Client()), Client)
    assert_type(forbear.httpx.unwrap(Client()), Client)
    assert_type(forbear.httpx2.wrap(httpx2.AsyncClient()), httpx2.AsyncClient)
    options(name="tenants", resume=False)
    options(names="tenants")  # type: ignore[call-arg]
    assert_type(forbear.httpx.wrap(httpx.Client(http2=True)), httpx.Client)
    client = httpx.AsyncClient()
    assert_type(forbear.httpx.wrap(client, RetryPolicy(), budget=None), httpx.AsyncClient)
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
    forbear.aiohttp.RetryMiddleware(retry_if=lambda r: assert_type(r, aiohttp.ClientResponse).ok)
    forbear.aiohttp.RetryMiddleware(retries=3)  # type: ignore[call-arg]


@forbear.override(max_attempts=2)
def fetch(number: int) -> str:
    return str(number)


@forbear.deadline(2.0)
async def afetch(number: int, *, name: str = "") -> bytes:
    return name.encode() * number


async def contexts() -> None:
    """A decorator hands the signature through."""
    assert_type(fetch(3), str)
    assert_type(await afetch(3, name="a"), bytes)
    fetch("3")  # type: ignore[arg-type]
    async with forbear.deadline(2.0), forbear.override(max_attempts=2):
        async with httpx.AsyncClient(transport=AsyncRetryTransport()) as client:
            assert_type(await client.get("http://a.example/"), httpx.Response)


def heard(event: events.Event) -> None:
    if isinstance(event, events.RetryScheduled):
        assert_type(event.delay, float)
    elif isinstance(event, events.GaveUp):
        assert_type(event.reason, Reason)
    elif isinstance(event, events.CircuitTransition):
        assert_type(event.to_state, str)
    assert_type(event.name, str)


def records(response: httpx.Response, error: httpx.HTTPError) -> None:
    story: forbear.CallRecord = forbear.record_of(response)  # without a check, as on the pages
    print(forbear.record_of(error).reason, forbear.record_of(response).attempts[-1].origin)
    if forbear.record_of(error) is None:
        print("not sent by forbear")
    assert_type(story, forbear.CallRecord)
    assert_type(story.reason, Reason | None)
    assert_type(story.attempts, tuple[forbear.AttemptRecord, ...])


def errors() -> None:
    try:
        raise forbear.httpx.DeadlineExceeded("…", reason=Reason.DEADLINE)
    except httpx.TimeoutException as error:
        assert_type(forbear.httpx.classify(error), plug.Failure)
    try:
        raise forbear.httpx2.CircuitOpenError("…", reason=Reason.CIRCUIT_OPEN, retry_after=1.0)
    except forbear.CircuitOpenError as refused:
        assert_type(refused.reason, Reason)
        assert_type(refused.retry_after, float | None)
    base: type[forbear.ForbearError] = forbear.DeadlineExceeded
    transport_error: type[httpx.TransportError] = forbear.httpx.CircuitOpenError
    timeout: type[httpx2.TimeoutException] = forbear.httpx2.DeadlineExceeded
    print(base, transport_error, timeout)


def telemetry() -> None:
    counted = prometheus.Metrics(CollectorRegistry(), metrics_host=False)
    RetryTransport(on_event=[counted, otel.Metrics(), otel.Spans()])
    forbear.requests.mount(requests.Session(), on_event=[counted])

    def tell(event: events.Event | events.CallEnded) -> None:
        if event.name == "call_ended":
            print(event.client)

    forbear.urllib3.RetryPoolManager(on_event=[tell])
    assert_type(assets.read("forbear.rules.yml"), str)
    assert_type(assets.write("/monitoring"), list[Path])


def readers() -> None:
    hint = forbear.read_hint(429, [("Retry-After", "2")], now=0.0)
    assert_type(hint, plug.Hint)
    assert_type(hint.delay, float | None)
    forbear.read_hint(429, [(b"Retry-After", b"2")], now=0.0)
    forbear.read_hint(429, httpx.Headers().multi_items(), now=0.0)
    assert_type(keys.generate(profile="stripe"), str)
    assert_type(keys.serialize("key", style="sf-string", profile="generic"), str)


def testing() -> None:
    clock: Clock = FakeClock(now=0.0)
    scripted = ScriptedTransport([503, (429, {"Retry-After": "2"}), "read_error", 200])
    RetryTransport(scripted, clock=clock)
    forbear.httpx2.AsyncRetryTransport(scripted, clock=clock)
    assert_type(FakeClock().sleeps, list[float])
    with FaultServer() as server:
        assert_type(server, FaultServer)
    forbear.testing.assert_schedule(RetryPolicy(max_attempts=3), [(0, 1), (0.0, 2.5)])
    with forbear.testing.fast(), forbear.testing.fast(max_attempts=2), forbear.testing.disabled():
        pass
    with forbear.testing.record() as recorded:
        pass
    assert_type(recorded.names, list[str])
    recorded.assert_retried(2, ["503", "ReadError"])
    for event in recorded:
        heard(event)
