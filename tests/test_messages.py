"""Messages: what is written wrong is told where it is written, with what was given and what to write.

One row for each way to be wrong: the constructor or function, its arguments (by name, or a tuple
by position), the error and a part of its message. What several clients answer is in
adapters/test_messages.py.
"""

import inspect

import httpx
import httpx_retries
import pytest
import requests

import forbear
from forbear import CircuitBreaker, Exponential, Fixed, Hedge, Origins, RetryBudget, RetryPolicy
from forbear.core.headers.structured import parse_item
from forbear.core.policy import FIELDS
from forbear.engine import settings
from forbear.redis import RedisBudget
from forbear.strategies import AwsStandard, StandardStrategy, TokenBucket
from forbear.telemetry import otel, prometheus
from forbear.testing import FakeClock, answer

INF, NAN = float("inf"), float("nan")
AB = ["https://a", "https://b"]


class Hours:
    """A schedule of another library's shape."""

    def delay(self, attempt):
        return 3600.0 * attempt


def each(name, error, message, *values):
    """Rows of one argument; in their message {0} stands for its name, and {1} for the value."""
    return [({name: value}, error, message.format(name, value)) for value in values]


WHOLE, NUMBER = "{0} must be a whole number, got {1!r}", "{0} must be a number, got {1!r}"
SECONDS = "{0} must be a number of seconds, got {1!r}"
FINITE = "{0} must be at least 0 and finite, got {1}"
BOOLEAN = "{0} must be True or False, got {1!r}"
STATUSES = "statuses must hold whole numbers from 400 to 599, got "
SET = "must be a set such as "
POLICY = [
    ({"max_attempts": 0}, ValueError,
        "max_attempts must be at least 1, got 0; use max_attempts=1 to send once and never retry"),
    ({"max_attempts": -3}, ValueError, "max_attempts must be at least 1, got -3"),
    *each("max_attempts", TypeError, WHOLE, 2.0, True, None, "3"),
    ({"backoff": 0.5}, TypeError,
        "backoff must be Exponential(…), Fixed(…) or an object with delay(attempt, previous, random), got 0.5"),
    ({"backoff": None}, TypeError, "backoff must be Exponential(…)"),
    *each("patience", ValueError, FINITE, -1),
    *each("patience", TypeError, SECONDS, "10"),
    ({"patience": INF}, ValueError, "got inf; use None for no gate for these calls"),
    ({"throttle_backoff": 5}, TypeError, "throttle_backoff must be Exponential(…), Fixed(…)"),
    *each("statuses", TypeError, "a set such as {{429, 503}}, got {1!r}", 503, None, "503"),
    *(({"statuses": {one}}, ValueError, f"{STATUSES}{one!r}") for one in ("503", 200, 600, True)),
    ({"hinted_statuses": {302}}, ValueError, f"hinted_{STATUSES}302"),
    ({"unexecuted_statuses": {200}}, ValueError, f"unexecuted_{STATUSES}200"),
    ({"vendors": ["github"]}, ValueError, "one of anthropic, bedrock, google, openai, got"),
    ({"vendors": "google"}, TypeError, "an iterable of str, got a single str; write ['google']"),
    *each("conflict_with_key", TypeError, BOOLEAN, 1, None),
    ({"failures": "reset"}, TypeError, f"failures {SET}{{FailureKind.REFUSED}}, got 'reset'"),
    ({"failures": {forbear.FailureKind.CERTIFICATE}}, ValueError,
        "failures must hold retryable FailureKind members"),
    *(({"failures": {one}}, ValueError, f"got {one!r}")
        for one in (forbear.FailureKind.POOL, forbear.FailureKind.STATUS, ConnectionError)),
    ({"methods": "GET"}, TypeError, f"methods {SET}{{'GET', 'PUT'}}, got 'GET'"),
    *(({"methods": {one}}, ValueError, f"such as 'GET', got {one!r}") for one in ("get", "", b"GET")),
    ({"attempt_timeout": 0}, ValueError, "got 0; use None for the client's own timeouts"),
    *each("attempt_timeout", ValueError, FINITE, -1),
    *each("attempt_timeout", TypeError, SECONDS, "5"),
    ({"total_timeout": INF}, ValueError, "at least 0 and finite, got inf; use None for no limit"),
    *each("total_timeout", ValueError, FINITE, NAN, -0.1),
    *each("total_timeout", TypeError, SECONDS, True),
    *each("max_retry_after", TypeError, SECONDS, None),
    *each("max_retry_after", ValueError, FINITE, -1, INF),
    *each("hints", ValueError, "must be one of 'obey', 'ignore', got {1!r}", "respect", False),
    ({"hint_spread": -0.1}, ValueError, "must be at least 0, got -0.1; 0.1 adds up to 10 %"),
    ({"hint_spread": NAN}, ValueError, "hint_spread must be finite, got nan"),
    *each("hint_spread", TypeError, NUMBER, None),
    ({"on_exhausted": "throw"}, ValueError, "must be one of 'return', 'raise', got 'throw'"),
    *(({name: Hours()}, TypeError, f"{name}.delay must be a function of (attempt, previous, random),"
        " Hours.delay is not: too many positional arguments")
        for name in ("backoff", "throttle_backoff")),
    ({"backoff": Exponential}, TypeError, "the class Exponential: write backoff=Exponential(…)"),
    ({"throttle_backoff": Fixed}, TypeError, "write throttle_backoff=Fixed(…)"),
    ({"wood": 503}, TypeError, "RetryPolicy has no field 'wood'; its fields are max_attempts,"),
]  # fmt: skip

EXPONENTIAL = [
    *each("base", ValueError, FINITE, -1, NAN),
    *each("base", TypeError, SECONDS, "1", True, None),
    *each("cap", ValueError, FINITE, INF),
    ({"base": 2.0, "cap": 1.0}, ValueError, "cap must be at least base (2.0), got 1.0"),
    ({"factor": 0.5}, ValueError, "at least 1, got 0.5; use 1 for waits that do not grow"),
    ({"factor": INF}, ValueError, "factor must be finite, got inf"),
    ({"jitter": "half"}, ValueError, "one of full, equal, decorrelated, none or a float"),
    ({"jitter": 1.5}, ValueError, "jitter as a number must be in [0, 1], got 1.5; 0.2 means ±20 %"),
    ({"jitter": NAN}, ValueError, "jitter must be finite, got nan"),
    *each("jitter", TypeError, NUMBER, True),
    *each("fast_first", TypeError, SECONDS, True),
    *each("fast_first", ValueError, FINITE, -0.1),
]  # fmt: skip

KEYS = [
    *each("header", ValueError, "a header name must consist of",
        "", "Idempotency Key", "Idempotency-Key:", "Key\r\nX: y", "Schlüssel"),
    *each("header", TypeError, "header must hold only str, got one ", b"Idempotency-Key", None),
    *each("style", ValueError, "style must be one of 'raw', 'sf-string', got {1!r}", "quoted", None),
    ({"profile": "adyen2"}, ValueError, "profile must be one of 'generic', 'stripe', "),
    *each("generate", TypeError, BOOLEAN, 1, "no"),
    ({"recognise": "X-Key"}, TypeError, 'got a single str; write ("X-'),
    ({"recognise": b"X-Key"}, TypeError, "got a single bytes"),
    ({"recognise": None}, TypeError, "recognise must be an iterable of str, got a single NoneType"),
    ({"recognise": [b"X-Key"]}, TypeError, "recognise must hold only str, got one bytes"),
    ({"recognise": ["X-Key", "X Key"]}, ValueError, "write the name alone"),
    ({"header": "Authorization: Bearer hunter2"}, ValueError, "write the name alone"),
    ({"lifetime": 0}, ValueError, "must be more than 0 seconds, got 0"),
    *each("lifetime", ValueError, "got {1}", -1.5, NAN, INF),
    ({"lifetime": "60"}, TypeError, "must be a number of seconds, got '60'"),
    *each("lifetime", TypeError, SECONDS, True, None),
    ({"origins": "https://a"}, TypeError, 'got a single str; write {"https:'),
    ({"origins": [b"https://a"]}, TypeError, "origins must hold only str, got one bytes"),
    ({"origins": 17}, TypeError, "origins must be an iterable of str, got a single int"),
    ({"origins": ["*.example"]}, ValueError, "origins must be http or https, a host and"),
    ({"origins": ["https://u:hunter2@h"]}, ValueError, "such as a path"),
    ({"origins": ["https://h/"]}, ValueError, "(a last slash, too)"),
    ({"origins": ["https://*.h"]}, ValueError, "such as a path"),
    ({"origins": ["https://h:0"]}, ValueError, "such as a path"),
    ({"headers": "X-Key"}, TypeError, "headers"),
]  # fmt: skip

BUDGET = [
    ({"ratio": -0.1}, ValueError, "ratio must be at least 0, got -0.1"),
    ({"ratio": 10}, ValueError, "at most 1, got 10; it is a share of calls"),
    *each("ratio", TypeError, NUMBER, "20%", True),
    *each("floor_per_second", TypeError, NUMBER, None),
    ({"burst": 0}, ValueError, "burst must be at least 1, got 0"),
    ({"burst": INF}, ValueError, "burst must be finite, got inf"),
    ({"hinted_cost": 1.5}, ValueError, "must be at most 1, got 1.5; others cost 1"),
    *each("scope", ValueError, "or a function of the request, got {1!r}", "host", None),
    ({"scope": lambda: "x"}, TypeError, "scope must be a function of (request), "),
]  # fmt: skip

BREAKER = [
    ({"consecutive_failures": 0}, ValueError, "consecutive_failures must be at least 1, got 0"),
    ({"failure_rate": None}, ValueError, "give consecutive_failures= or failure_rate="),
    ({"failure_rate": 0}, ValueError, "failure_rate must be above 0 and at most 1, got 0"),
    ({"failure_rate": "half"}, TypeError, "failure_rate must be a number"),
    ({"window": 0}, ValueError, "window must be more than 0"),
    *each("open_for", ValueError, "open_for", 0, NAN),
    *each("minimum_calls", TypeError, WHOLE, True),
    ({"success_threshold": 3}, TypeError, "its arguments are consecutive_failures, failure_rate,"),
    ({"minimum_calls": 0}, ValueError, "minimum_calls must be at least 1, got 0"),
    ({"mode": "shadow"}, ValueError, "mode must be one of 'enforce', 'observe', got 'shadow'"),
]

HEDGE = [
    ({"quantile": 0.4}, ValueError, "quantile must be at least 0.5, got 0.4"),
    ({"quantile": 1.5}, ValueError, "quantile must be at most 1, got 1.5"),
    *((({name: value}, TypeError, f"{name} must be a number"))
        for name, value in (("quantile", True), ("ratio", "all"))),
    ({"delay": 0}, ValueError, "delay must be more than 0 seconds"),
    ({"delay": "1"}, TypeError, "use None for the quantile"),
    ({"at_least": -1}, ValueError, "at_least must be at least 0"),
    ({"ratio": 1.5}, ValueError, "at most 1, got 1.5"),
    ({"burst": 0.5}, ValueError, "burst must be at least 1"),
    ({"learn_from": 0}, ValueError, "learn_from must be at least 1"),
    ({"methods": "GET"}, TypeError, "methods must be an iterable of str"),
    ({"methods": {"post"}}, ValueError, "write keyed=True"),
    ({"keyed": 1}, TypeError, "keyed must be True or False"),
]  # fmt: skip

TENANTS = "scope must be 'credential', 'origin' or a function"
CONCURRENCY = [
    ({"adaptive": 1}, TypeError, "adaptive must be True or False, got 1"),
    ({"adaptive": False}, ValueError, "write ConcurrencyLimit(10, adaptive=False)"),
    *(({name: 0}, ValueError, f"{name} must be at least 1, got 0")
        for name in ("most", "least", "start")),
    ({"most": 3, "least": 4}, ValueError, "least must be at most most (3), got 4"),
    ({"scope": "tenant"}, ValueError, TENANTS),
    ({"max_waiting": -1}, ValueError, "at least 0, got -1; None lets any number wait"),
    ({"releases": "end"}, ValueError, "releases must be one of 'headers', 'body'"),
]  # fmt: skip

PACING = [
    ({"reserve": 2}, ValueError, "reserve must be at most 1, got 2"),
    *each("reserve", TypeError, NUMBER, "all"),
    ({"scope": "tenant"}, ValueError, TENANTS),
]

ORIGINS = [
    ((["https://a"],), ValueError, "at least two, got 1"),
    ((["https://a", "https://A:443"],), ValueError, "must differ, got https://a:443 twice"),
    ((["https://a", "https://b/v1"],), ValueError, "a path"),
    (("https://a",), TypeError, "an iterable of str, got a single str"),
    ((["https://a", 7],), TypeError, "only str, got one int"),
    ({"origins": AB, "choose": "random"}, ValueError, "one of 'first', 'round-robin', got"),
]  # fmt: skip

MIDDLEWARE = [
    ({"deadline": -1}, ValueError, "deadline must be at least 0 and finite, got -1; use None for"),
    *each("deadline", TypeError, SECONDS, "2"),
    *each("margin", ValueError, "margin must be at least 0", -1, NAN),
    *each("margin", TypeError, SECONDS, "1"),
    ({"announce_deadline": 1}, TypeError, "announce_deadline must be True or False"),
    ({"stop_outer_retries": None}, TypeError, "stop_outer_retries must be True or False"),
    ({"app": None}, TypeError, "goes around an application, got None"),
]

OVERRIDE = [
    ({"max_attempts": 0}, ValueError, "use max_attempts=1 to send once"),
    *each("max_attempts", TypeError, WHOLE, True),
    ({"retries": 3}, TypeError, "max_attempts = retries + 1"),
    ({"timeout": 3}, TypeError, "RetryPolicy has no field 'timeout'"),
    ({"policy": RetryPolicy()}, TypeError, "RetryPolicy has no field 'policy'"),
    ({"statuses": 503}, TypeError, "statuses must be a set"),
]

NEVER_NEGATIVE = [  # of seconds that are neither "no limit" nor left out
    *each("seconds", ValueError, "must be at least 0 and finite, got {1}", -1, INF, NAN),
    *each("seconds", TypeError, "must be a number of seconds, got {1!r}", "2", None, True),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
SERIALIZE = [
    *(((key,), TypeError, f"got {type(key).__name__}") for key in (None, 17, b"abc")),
    ((" a",), ValueError, 'style="sf-string"'),
    (("k" * 256,), ValueError, "1 to 255 characters, got 256"),
    ({"key": KEY, "style": "quoted"}, ValueError, "one of 'raw', 'sf-string', got 'quoted'"),
    ({"key": KEY, "style": []}, ValueError, "got []"),
    ({"key": KEY, "profile": "Stripe"}, ValueError, "profile must be one of 'generic', 'stripe', "),
    ({"key": "k" * 65, "profile": "adyen"}, ValueError, "at most 64 characters, got 65 "),
    ({"key": "a.b", "profile": "amazon-pay"}, ValueError, "A-Z a-z 0-9 - and _, got 3 "),
    ({"key": "order-17", "profile": "repeatability"}, ValueError,
        "8-4-4-4-12 form, got 8 characters of another form; use "),
    ({"key": "00000000-0000-0000-0000-000000000000", "profile": "google-request-id"}, ValueError,
        "not all zeros, got 36 "),
]  # fmt: skip

ANSWER = [  # of the test kit
    ({"step": "reset", "json": 1}, ValueError, "no response"),
    ({"step": "hang", "headers": {"A": "b"}}, ValueError, "no response"),
    ({"step": "cut:9", "body": b"012345678"}, ValueError, "a body of 9 bytes ends before byte 9"),
    ({"step": "nonsense"}, ValueError, "unknown step"),
]


class Forgetful:
    """A strategy without ``quiet``."""

    def acquire_initial_token(self, *_, **__): ...

    refresh_token = record_success = release = acquire_initial_token


class Late(Forgetful):
    """A strategy that does not hear how long it may delay."""

    quiet = True

    def refresh_token(self, token, failure, now): ...


OBJECTS = {  # what an option takes, and the code that the message writes for it
    "gate": (forbear.RetryGate, "RetryGate()"),
    "budget": (RetryBudget, "RetryBudget()"),
    "breaker": (CircuitBreaker, "CircuitBreaker()"),
    "origins": (Origins, "Origins(…)"),
    "strategy": (AwsStandard, "AwsStandard()"),
    "idempotency": (forbear.IdempotencyKeys, "IdempotencyKeys()"),
    "clock": (FakeClock, "FakeClock()"),
}
# Without origins it would give keys to servers that ignore them.
SHOWN = {
    "origins": 'Origins(["https://a", "https://b"])',
    "idempotency": 'IdempotencyKeys(origins=["https://api.example.com"])',
}
OPTIONS = [  # of every transport
    *(({name: cls}, TypeError, f"{name} was given the class {cls.__name__}: write {name}=")
        for name, (cls, _) in OBJECTS.items()),
    *(({name: True}, TypeError, f": write {name}={SHOWN.get(name, code)}")
        for name, (_, code) in OBJECTS.items() if name != "clock"),
    *(({name: False}, TypeError, f": write {name}=None") for name in OBJECTS if name != "clock"),
    *each("announce_attempts", TypeError, BOOLEAN, 1, "yes", None),
    *each("stop_outer_retries", TypeError, BOOLEAN, 1, "yes", None),
    *each("resume", TypeError, BOOLEAN, 1, "yes", None),
    *each("contact", ValueError, "contact must be one e-mail address", "jörg@example.org",
        '"a b"@example.org', "ops@[127.0.0.1]", "Ops <ops@acme.dev>", "ops@acme.dev\n",
        "ops@acme.dev\r\nX-Evil: 1", "ops@localhost", "mailto:ops@acme.dev", "",
        "a" * 65 + "@acme.dev"),
    *(({"strategy": AwsStandard(), name: made}, ValueError, f"strategy= or {name}=, not both")
        for name, made in (("budget", RetryBudget()), ("gate", forbear.RetryGate()),
            ("breaker", CircuitBreaker()), ("origins", Origins(AB)))),
    ({"idempotency": "uuid4"}, TypeError, "must be IdempotencyKeys(), or None, got 'uuid4'"),
    ({"budget": 5}, TypeError, "RetryBudget"),
    ({"policy": {"max_attempts": 2}}, TypeError, "RetryPolicy"),
    ({"retry_if": True}, TypeError, "retry_if must be a function"),
    ({"before_attempt": "sign"}, TypeError, "before_attempt must be a function"),
    ({"on_event": print}, TypeError, "on_event=["),
    ({"body_buffer": True}, ValueError, "body_buffer"),
    ({"cooldown": "on"}, ValueError, "cooldown must be one of 'off', 'retries', 'all', got 'on'"),
    ({"origins": AB}, TypeError, "origins must be Origins"),
    ({"retry_if": lambda response, attempt: None}, TypeError, "a function of (response)"),
    ({"before_attempt": lambda request: None}, TypeError, "a function of (request, attempt)"),
    ({"on_event": [lambda: None]}, TypeError, "on_event must be a function of (event)"),
    ({"on_event": ["print"]}, TypeError, "str is not: 'print' is not a callable object"),
    ({"on_event": [prometheus.Metrics]}, TypeError, "write on_event=[Metrics(…)]"),
    ({"random": 0.5}, TypeError, "random must be a function of (), float is not"),
    ({"strategy": Late()}, TypeError, "must be a function of (token, failure, now, latest=),"
        " Late.refresh_token is not: got an unexpected keyword argument 'latest'"),
    ({"strategy": Forgetful()}, TypeError, "strategy has no attribute quiet"),
]  # fmt: skip

NO_BYTES = "prefetch must be a number of bytes, 0 for none, got {1!r}"
PREFETCH = each("prefetch", ValueError, NO_BYTES, -1, 1.5, True, "64k", None)
HTTPX = forbear.httpx.RetryTransport, forbear.httpx.AsyncRetryTransport
HTTPX2 = forbear.httpx2.RetryTransport, forbear.httpx2.AsyncRetryTransport
NO_PREFETCH = forbear.requests.RetryAdapter, forbear.urllib3.RetryPoolManager
MIDDLEWARES = forbear.asgi.RetryContextMiddleware, forbear.wsgi.RetryContextMiddleware


def around(middleware):
    return lambda app=print, **options: middleware(app, **options)


def a_generator():
    yield


async def an_async_generator():
    yield


TABLE = [
    (RetryPolicy, POLICY),
    (RetryPolicy().replace, POLICY),
    (RetryPolicy().for_vendors, [(("google", "acme"), ValueError,
        "vendor must be one of anthropic, azure, bedrock, cloudflare, github, google, openai, got 'acme'")]),
    (Exponential, EXPONENTIAL),
    (Fixed, [((-0.1,), ValueError, "seconds must be"), *NEVER_NEGATIVE]),
    (forbear.IdempotencyKeys, KEYS),
    (forbear.idempotency.serialize, SERIALIZE),
    (forbear.idempotency.generate, [({"profile": "paypal"}, ValueError, "profile must be one of")]),
    *((read, [((value,), TypeError, f"must be a str, got {type(value).__name__}")
        for value in (None, b'"abc"', 17)]) for read in (forbear.idempotency.parse, parse_item)),
    (forbear.idempotency.check_profile, [
        ((None, "generic"), TypeError, "got NoneType"),
        (("abc", "paypal"), ValueError, "profile must be one of")]),
    (RetryBudget, BUDGET),
    (TokenBucket, [
        ({"capacity": -1}, ValueError, "capacity must be at least 0, got -1"),
        ({"capacity": "500"}, TypeError, "capacity must be a number, got '500'"),
        ({"cost": NAN}, ValueError, "cost must be finite, got nan")]),
    (AwsStandard, [
        ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1, got 0"),
        ({"max_attempts": 2.5}, TypeError, "max_attempts must be a whole number, got 2.5"),
        ({"bucket": 500}, TypeError, "bucket must be a TokenBucket, got 500"),
        *(({name: 0.5}, TypeError, f"{name} must be Exponential(…), Fixed(…) or")
            for name in ("backoff", "throttle_backoff"))]),
    (CircuitBreaker, BREAKER),
    (Hedge, HEDGE),
    (Origins, ORIGINS),
    (forbear.ConcurrencyLimit, CONCURRENCY),
    (forbear.Pacing, PACING),
    (forbear.RetryGate, [
        ({"scope": "host"}, ValueError, "scope must be 'origin', 'transport' or a function"),
        ({"max_held": -1}, ValueError, "max_held must be"),
        *(({"max_held": value}, TypeError, "max_held must be") for value in (1.5, True))]),
    (settings.limits_of, [({"cooldown": "on"}, ValueError, "'off', 'retries', 'all', got 'on'")]),
    (forbear.override, OVERRIDE),
    (forbear.deadline, NEVER_NEGATIVE),
    (forbear.deadline(2.0), [((one,), TypeError, "use the with block inside it")
        for one in (a_generator, an_async_generator)]),
    (forbear.record_of, [((thing,), TypeError,
        f"record_of takes a response or an exception, got {type(thing).__name__}")
        for thing in (3, "response", object(), None)]),
    (forbear.httpx.RetryTransport, OPTIONS),
    *((make, PREFETCH) for make in (*HTTPX, *HTTPX2, forbear.aiohttp.RetryMiddleware)),
    *((make, [({"resume": "yes"}, TypeError, "resume must be True or False")])
        for make in (HTTPX[1], *HTTPX2, *NO_PREFETCH)),
    *((make, [({"prefetch": 65_536}, TypeError, "has no option 'prefetch'; its options")]) for make in NO_PREFETCH),
    (forbear.httpx.AsyncRetryTransport, [
        ({"hedge": True}, TypeError, "hedge=Hedge"),
        ({"hedge": Hedge(), "strategy": AwsStandard()}, ValueError, "not both")]),
    (forbear.requests.RetryAdapter, [
        ({"max_retries": 3}, TypeError, "write policy=RetryPolicy(max_attempts=4)"),
        ({"inner": RetryPolicy()}, TypeError, "inner must be an adapter")]),
    (forbear.requests.mount, [((wrong,), TypeError, "takes a requests.Session")
        for wrong in (None, requests, "session", forbear.requests.RetryAdapter())]),
    (forbear.requests.is_mounted, [((None,), TypeError, "takes a requests.Session, got None")]),
    (forbear.urllib3.RetryProxyManager, [((RetryPolicy(),), TypeError, "proxy_url")]),
    (forbear.urllib3.Retry, [
        ({"policy": 3}, TypeError, "max_attempts=4"),
        ({"policy": None}, TypeError, "policy must be a RetryPolicy"),
        ({"bodies_replayable": 1}, TypeError, "bodies_replayable must be True or False"),
        ({"budget": RetryBudget(), "strategy": AwsStandard()}, ValueError, "not both"),
        ({"strategy": object()}, TypeError, "acquire_initial_token"),
        ({"on_event": print}, TypeError, "on_event must be a list"),
        ({"redirect": -1}, ValueError, "redirect"),
        ({"total": 3}, TypeError, "total"),
        ({"hedge": Hedge()}, TypeError, "hedge")]),
    (forbear.urllib3.Retry.from_int, [((3,), TypeError, "max_attempts=4")]),
    (forbear.aiohttp.RetryMiddleware().with_policy, [
        ((3,), TypeError, "setting must be a RetryPolicy, a mapping of its fields, False"),
        (({"max_atempts": 3},), TypeError, "max_atempts")]),
    (forbear.aiohttp.wrap, [((httpx.Client(),), TypeError, "use forbear.httpx.wrap")]),
    *((getattr(getattr(forbear, library), name), [
        ((thing,), TypeError, f"wrap takes an {library}.Client or AsyncClient")
        for thing in (None, "http://example.com", object(), 5)])
        for library in ("httpx", "httpx2") for name in ("wrap", "is_wrapped")),
    *((around(middleware), MIDDLEWARE) for middleware in MIDDLEWARES),
    (prometheus.Metrics, each("metrics_host", TypeError, BOOLEAN, "no")),
    (otel.Metrics, each("metrics_host", TypeError, BOOLEAN, "no")),
    (answer, ANSWER),
    (forbear.testing.record().assert_no_events, [(("retry_sheduled",), ValueError,
        "there is no event 'retry_sheduled'; they are")]),
    (FakeClock().advance, [((-1,), ValueError,
        "time does not go back, got -1; step_utc steps the wall clock")]),
    (forbear.testing.fast, [({"max_attempts": value}, error, "max_attempts")
        for value, error in ((0, ValueError), ("2", TypeError), (1.5, TypeError))]),
    (forbear.testing.fast(), [((a_generator,), TypeError, "use the with block inside it instead")]),
    (forbear.testing.disabled(), [((FakeClock,), TypeError,
        "decorate the functions of FakeClock, or use the fixture")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "rows"),
    TABLE,
    ids=[getattr(one, "__qualname__", type(one).__name__) for one, _ in TABLE],
)
def test_what_is_wrong_is_told_with_what_to_write(make, rows):
    """Not at the first outage; in a few words, and without a secret that was written there."""
    for given, error, message in rows:
        try:
            make(*given) if isinstance(given, tuple) else make(**given)
        except error as caught:
            told = str(caught)
        else:
            pytest.fail(f"{given} was accepted")
        assert message in told, given
        assert len(told) < 400
        assert "hunter2" not in told


def import_from(module, name):
    exec(f"from {module} import {name}")


def mount_late():
    session = requests.Session()
    session.mount("https://api.example.com", forbear.requests.RetryAdapter())
    forbear.requests.mount(session)


GUESSES = [  # what users of other libraries write first
    (lambda: forbear.httpx.wrap(httpx.Client(), retry=False),
        "write policy=RetryPolicy(max_attempts=1) (max_attempts = retry + 1"),
    (lambda: forbear.httpx.wrap(httpx.Client(), hints="ignore"), "RetryPolicy(hints='ignore')"),
    (lambda: forbear.urllib3.Retry(breaker=None), "breaker=None, an option of wrap, mount or RetryPoolManager"),
    (lambda: RetryPolicy().for_vendors(["openai"]), "write for_vendors('google', 'openai')"),
    (mount_late, "mount first, then for one host session.mount(host, RetryAdapter(policy))"),
    (lambda: forbear.httpx.wrap(httpx.Client(), RetryPolicy), "write policy=RetryPolicy("),
    (lambda: Exponential(bse=0.5), "Exponential has no argument 'bse': write base=0.5"),
    (lambda: RetryPolicy(5), "by name: write RetryPolicy(max_attempts=5)"),
    (lambda: RetryPolicy(httpx_retries.Retry(3)), "write RetryPolicy.from_httpx_retries("),
    (lambda: RetryPolicy(retry_if=print), "retry_if=…, an option of wrap, mount or"),
    (lambda: RetryPolicy(budget=RetryBudget()), "budget=…, an option of wrap, mount or"),
    (lambda: RetryPolicy(on_retry=print), "on_event=…, an option of wrap, mount or RetryPoolManager"),
    (lambda: RetryPolicy.batch(max_attempts=3), "write RetryPolicy.batch().replace(max_attempts=3)"),
    (lambda: RetryPolicy.gateway(3), "write RetryPolicy.gateway().replace(…)"),
    (lambda: forbear.IdempotencyKeys("stripe"), "by name: header, style, profile, generate"),
    (lambda: forbear.EventStreams(20.0), "by name: first_event_timeout, resume"),
    (lambda: forbear.requests.RetryAdapter(requests.adapters.HTTPAdapter()),
        "write RetryAdapter(inner=…)"),
    (lambda: forbear.requests.RetryAdapter(inner=requests.Session()),
        "use forbear.requests.mount(session)"),
    (lambda: forbear.requests.RetryAdapter(inner=requests.adapters.HTTPAdapter),
        "must be an adapter of requests, got <class"),
    (lambda: forbear.httpx.RetryTransport(httpx.HTTPTransport),
        "write RetryTransport(HTTPTransport(…))"),
    (lambda: import_from("forbear", "retry"), "write forbear.httpx.wrap or forbear.httpx2.wrap or"),
    (lambda: import_from("forbear.httpx", "AsyncClient"), "write forbear.httpx.wrap"),
    (lambda: import_from("forbear.requests", "Session"), "write forbear.requests.mount"),
    (lambda: import_from("forbear", "RetryError"), "errors stay your client's own"),
    (lambda: import_from("forbear.httpx", "TimeoutException"), "errors stay your client's own"),
    (lambda: import_from("forbear", "RetryPolcy"), "write forbear.RetryPolicy"),
    (lambda: import_from("forbear.httpx", "RetryTransports"), "write forbear.httpx.RetryTransport"),
]  # fmt: skip


@pytest.mark.parametrize(("guess", "message"), GUESSES, ids=[message for _, message in GUESSES])
def test_a_wrong_guess_is_told_the_right_code(guess, message):
    with pytest.raises((TypeError, ValueError, ImportError)) as caught:
        guess()
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("make", [
    Exponential, Fixed, forbear.IdempotencyKeys, RetryBudget, RedisBudget, TokenBucket, AwsStandard,
    StandardStrategy, CircuitBreaker, forbear.ConcurrencyLimit, forbear.EventStreams, Hedge,
    Origins, forbear.Pacing, forbear.RetryGate, *MIDDLEWARES, forbear.deadline,
])  # fmt: skip
def test_an_unknown_argument_is_told_what_there_is(make):
    """``help()`` still shows the arguments."""
    names = inspect.signature(make).parameters
    with pytest.raises(TypeError, match=f"{make.__name__} has no argument 'wood'") as caught:
        make(wood=1)
    assert f"its arguments are {', '.join(names)}" in str(caught.value)


def test_a_long_value_does_not_drown_the_message():
    with pytest.raises(TypeError) as caught:
        RetryPolicy(statuses="5" * 10_000)
    assert len(str(caught.value)) < 200


def test_every_field_of_a_policy_has_a_value_that_is_refused():
    assert set(FIELDS) <= {name for fields, _, _ in POLICY for name in fields}
