"""Safety: may this request be sent again? Every case of the corpus, and tables for what it leaves
out.

Cases go through ``Call`` with the default policy, and once more through a real client and transport
of each family. Exceptions are real objects of the installed libraries, linked as the library links
them.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import h2.events
import httpx
import httpx2
import pytest

import forbear.httpx
import forbear.httpx2
from forbear import Failure, FailureKind, Phase, Reason, RetryPolicy, StandardStrategy, record_of
from forbear.core.call import Call
from forbear.core.request import Request
from forbear.core.safety import is_replayed
from forbear.core.verdict import GiveUp, RetryAfter
from forbear.testing import FakeClock

CORPUS = json.loads(
    (Path(__file__).parents[1] / "corpus" / "retry_safety.json").read_text(encoding="utf-8")
)
CASES: list[dict[str, Any]] = CORPUS["cases"]
FAMILIES = {"httpx": (httpx, forbear.httpx), "httpx2": (httpx2, forbear.httpx2)}

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
KEY = [("Idempotency-Key", UUID)]
ORIGIN = "http://origin.example:80"
UTC = 1_767_225_600.0

# DESIGN section 4: the corpus has finer labels than ``Reason``; None: accepted.
REASONS: dict[str, Reason | None] = {
    "decoding-error": Reason.PERMANENT_ERROR,
    "caller-error": Reason.PERMANENT_ERROR,
    "inner-retries-exhausted": Reason.PERMANENT_ERROR,
    "conflict-without-key": None,
    "status-final": None,
    "not-an-error": None,
}


# --- the corpus -------------------------------------------------------------------------------


def group_of(case: dict[str, Any]) -> str:
    outcome = case["outcome"]
    if "status" in outcome:
        return "status"
    library = outcome["exception"].partition(".")[0]
    return {"asyncio": "cancelled", "builtins": "cancelled"}.get(library, library)


def in_group(name: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if group_of(case) == name]


def test_every_case_of_the_corpus_is_run_or_counted() -> None:
    """The cases of requests and urllib3 are classified by adapters of their own, which bring their
    tests.
    """
    counts = Counter(map(group_of, CASES))
    assert counts == {"status": 68, "httpx": 26, "cancelled": 2, "requests": 14, "urllib3": 10}
    assert counts.total() == len(CASES) == 120


def body_ready(case: dict[str, Any]) -> bool:
    return case["body"] != "one-shot" or not case["body_read"]


def a_call(
    method: str, headers: Any = (), policy: RetryPolicy | None = None, **limits: Any
) -> Call:
    policy = RetryPolicy(max_attempts=4) if policy is None else policy
    lines = [(name, value) for name, value in headers]
    call = Call(policy, Request(method, ORIGIN, lines), StandardStrategy(policy), now=0.0, **limits)
    call.sending(0.0)
    return call


def assert_as_expected(
    verdict: RetryAfter | GiveUp | None, call: Call, expect: dict[str, Any]
) -> None:
    label = expect["reason"]
    assert isinstance(verdict, RetryAfter) is expect["may_retry"]
    if isinstance(verdict, RetryAfter):
        failure = call.last_failure
        assert failure is not None
        assert label == why_it_may(call, failure)
    else:
        found = verdict.reason if isinstance(verdict, GiveUp) else None
        assert found == (REASONS[label] if label in REASONS else Reason(label))


def why_it_may(call: Call, failure: Failure) -> str:
    if failure.kind is FailureKind.UNPROCESSED:
        return "unprocessed"
    if failure.phase is Phase.UNSENT:
        return "not-sent"
    return "idempotent-method" if call.facts.method in call.policy.methods else "idempotency-key"


@pytest.mark.parametrize("octets", [False, True], ids=["text", "octets"])
@pytest.mark.parametrize("case", in_group("status"))
def test_corpus_status(case: dict[str, Any], octets: bool) -> None:
    call = a_call(case["method"], case["headers"])
    headers: Any = [(name, value) for name, value in case["outcome"]["headers"]]
    if octets:
        headers = [(name.encode(), value.encode()) for name, value in headers]
    verdict = call.after_response(
        case["outcome"]["status"], headers, 0.0, utc_now=UTC, body_ready=body_ready(case)
    )
    assert_as_expected(verdict, call, case["expect"])


def class_named(name: str, family: str) -> type[BaseException]:
    module, _, cls = name.rpartition(".")
    if family == "httpx2":
        module = {"httpx": "httpx2", "httpcore": "httpcore2"}.get(module, module)
    found = getattr(importlib.import_module(module), cls)
    assert issubclass(found, BaseException)
    return found


def h2_event(spec: dict[str, Any]) -> Any:
    cls = getattr(h2.events, spec["event"])
    event = cls(stream_id=1) if spec["event"] == "StreamReset" else cls()
    for name, value in spec.items():
        if name != "event":
            assert hasattr(event, name)
            setattr(event, name, value)
    return event


def link_cause(outer: BaseException, inner: BaseException) -> None:
    outer.__cause__ = inner


def link_argument(outer: BaseException, inner: BaseException) -> None:
    outer.args = (inner,)


def link_both(outer: BaseException, inner: BaseException) -> None:
    link_cause(outer, inner)
    link_argument(outer, inner)


LINKS = {"cause": link_cause, "argument": link_argument, "both": link_both}


def exception_of(outcome: dict[str, Any], family: str, link: str = "both") -> BaseException:
    """The exception as the library raises it: httpx's from httpcore's, which holds what it came
    from.
    """
    text = outcome.get("message", "")
    error = class_named(outcome["exception"], family)(text)
    outer, inner = error, None
    for depth, name in enumerate(outcome.get("wraps", ())):
        inner = class_named(name, family)(text)
        (link_cause if depth == 0 else LINKS[link])(outer, inner)
        outer = inner
    if "h2" in outcome:
        assert inner is not None
        inner.args = (h2_event(outcome["h2"]),)
    return error


@pytest.mark.parametrize("link", sorted(LINKS))
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("case", in_group("httpx"))
def test_corpus_exception(case: dict[str, Any], family: str, link: str) -> None:
    outcome = case["outcome"]
    failure = FAMILIES[family][1].classify(exception_of(outcome, family, link))
    call = a_call(case["method"], case["headers"])
    verdict = call.after_error(
        failure,
        0.0,
        body_ready=body_ready(case),
        delivered=outcome.get("phase", "headers") == "body",
    )
    assert_as_expected(verdict, call, case["expect"])


# --- the corpus once more, through clients ----------------------------------------------------


def answering(family: str, case: dict[str, Any], sent: list[Any]) -> Any:
    """An inner transport whose first attempt ends as the case says, and any other with 200."""
    module = FAMILIES[family][0]
    outcome = case["outcome"]

    class Inner(module.BaseTransport):  # type: ignore[misc,name-defined]
        def handle_request(self, request: Any) -> Any:
            sent.append(request)
            if case.get("body_read", True):
                for _ in request.stream:
                    pass
            if len(sent) > 1:
                return module.Response(200)
            if "status" in outcome:
                return module.Response(
                    outcome["status"], headers=[tuple(line) for line in outcome["headers"]]
                )
            raise exception_of(outcome, family)

    return Inner()


BODIES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "bytes": lambda: b"abc",
    "rewindable": lambda: io.BytesIO(b"abc"),
    "one-shot": lambda: iter([b"abc"]),
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize(
    "case",
    [
        case
        for case in in_group("status") + in_group("httpx")
        if case.values[0]["outcome"].get("phase") != "body"
    ],
)
def test_corpus_through_a_client(case: dict[str, Any], family: str) -> None:
    """What the core decides is what a client does: two sendings or one."""
    module, adapter = FAMILIES[family]
    sent: list[Any] = []
    transport = adapter.RetryTransport(
        answering(family, case, sent), clock=FakeClock(), random=lambda: 0.5
    )
    outcome, expect = case["outcome"], case["expect"]
    with module.Client(transport=transport) as client:
        request = client.build_request(
            case["method"],
            "http://origin.example/",
            headers=case["headers"],
            content=BODIES[case["body"]](),
        )
        if "status" in outcome or expect["may_retry"]:
            ended: Any = client.send(request)
            assert ended.status_code == (200 if expect["may_retry"] else outcome["status"])
        else:
            with pytest.raises(class_named(outcome["exception"], family)) as caught:
                client.send(request)
            ended = caught.value
    assert len(sent) == (2 if expect["may_retry"] else 1)
    label = expect["reason"]
    if not expect["may_retry"]:
        assert record_of(ended).reason == (REASONS[label] if label in REASONS else Reason(label))


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("case", in_group("cancelled"))
def test_corpus_cancelled(case: dict[str, Any], family: str) -> None:
    """Ctrl-C and cancellation pass through at once and unchanged: nothing judges them."""
    module, adapter = FAMILIES[family]
    sent: list[Any] = []
    clock = FakeClock()
    transport = adapter.RetryTransport(answering(family, case, sent), clock=clock)
    with pytest.raises((asyncio.CancelledError, KeyboardInterrupt)) as caught:
        transport.handle_request(module.Request(case["method"], "http://origin.example/"))
    assert type(caught.value).__name__ == case["outcome"]["exception"].rpartition(".")[2]
    assert (len(sent), clock.sleeps) == (1, [])
    assert adapter.classify(caught.value).kind is FailureKind.UNKNOWN


# --- S1, S2: methods and keys -----------------------------------------------------------------


def after_503(
    call: Call, headers: Any = (), status: int = 503, **facts: Any
) -> RetryAfter | GiveUp | None:
    return call.after_response(status, headers, 0.0, utc_now=UTC, **facts)


@pytest.mark.parametrize(
    ("method", "replayable"),
    [
        *(
            (method, True)
            for method in ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY")
        ),
        *((method, False) for method in ("POST", "PATCH", "CONNECT")),
        # WebDAV (RFC 4918) and others: unknown here
        *(
            (method, False)
            for method in ("PROPFIND", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "PURGE")
        ),
        # RFC 9110 section 9.1: the method token is case-sensitive
        *((method, False) for method in ("get", "Get", "")),
    ],
)
def test_methods(method: str, replayable: bool) -> None:
    """RFC 9110 section 9.2.2: idempotent methods may be repeated, and no other."""
    verdict = after_503(a_call(method))
    assert isinstance(verdict, RetryAfter) is replayable
    if not replayable:
        assert verdict == GiveUp(Reason.METHOD_NOT_REPLAYABLE)


@pytest.mark.parametrize(
    ("headers", "keyed"),
    [
        pytest.param([("IDEMPOTENCY-KEY", "a")], True, id="upper-case name"),
        pytest.param([("Idempotency-Key", " \t a \t ")], True, id="padded"),
        pytest.param([("Idempotency-Key", " \t ")], False, id="only padding"),
        pytest.param([("Idempotency-Key", '""')], False, id="empty structured string"),
        pytest.param([("Idempotency-Key", "a"), ("Idempotency-Key", "a")], False, id="two lines"),
        pytest.param(
            [("Idempotency-Key", "a"), ("idempotency-key", "b")], False, id="two lines in two cases"
        ),
        pytest.param(
            [("X-Idempotency-Key", "a"), ("X-Idempotency-Key", "b")], False, id="two X- lines"
        ),
        pytest.param([("X-Idempotency-Key", "")], False, id="empty X-"),
        pytest.param([("PayPal-Request-Id", "a")], True, id="paypal"),
        pytest.param([("PayPal-Request-Id", " ")], False, id="empty paypal"),
        pytest.param([("Repeatability-Request-ID", UUID)], False, id="oasis without its date"),
        pytest.param(
            [("Repeatability-First-Sent", "Fri, 20 Nov 2026 12:00:00 GMT")],
            False,
            id="oasis date alone",
        ),
        pytest.param(
            [("Repeatability-Request-ID", UUID), ("Repeatability-First-Sent", "")],
            False,
            id="oasis with empty date",
        ),
        pytest.param([("X-Request-Id", UUID)], False, id="request id"),
        pytest.param(
            [("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")], False, id="trace"
        ),
        pytest.param([("amz-sdk-invocation-id", UUID)], False, id="sdk invocation"),
        pytest.param([("If-Match", '"v1"')], False, id="a precondition is no key"),
        pytest.param([("If-None-Match", "*")], False, id="nor is If-None-Match"),
    ],
)
def test_keys_make_a_post_replayable(headers: list[tuple[str, str]], keyed: bool) -> None:
    """S1: one usable key, under a recognised name."""
    assert isinstance(after_503(a_call("POST", headers)), RetryAfter) is keyed


def test_a_recognised_name_of_ones_own_is_a_key() -> None:
    policy = RetryPolicy()
    facts = Request("POST", ORIGIN, [("X-Order", "7")], frozenset({"x-order"}))
    call = Call(policy, facts, StandardStrategy(policy), now=0.0)
    call.sending(0.0)
    assert isinstance(after_503(call), RetryAfter)


# --- S3: bodies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "headers", "failure", "reason"),
    [
        ("PUT", (), Failure(FailureKind.RESET, Phase.SENT), Reason.BODY_CONSUMED),
        ("POST", KEY, Failure(FailureKind.READ_TIMEOUT, Phase.SENT), Reason.BODY_CONSUMED),
        ("POST", (), Failure(FailureKind.REFUSED, Phase.UNSENT), Reason.BODY_CONSUMED),
        ("POST", (), Failure(FailureKind.UNPROCESSED, Phase.UNSENT), Reason.BODY_CONSUMED),
        ("POST", (), Failure(FailureKind.RESET, Phase.SENT), Reason.METHOD_NOT_REPLAYABLE),
    ],
    ids=[
        "put",
        "post with key",
        "post unsent",
        "post unprocessed",
        "post: the method is said first",
    ],
)
def test_a_body_that_was_pulled_is_not_sent_again(
    method: str, headers: Any, failure: Failure, reason: Reason
) -> None:
    """Never an empty or half body, whatever else would allow the retry."""
    assert a_call(method, headers).after_error(failure, 0.0, body_ready=False) == GiveUp(reason)


# --- S4: statuses -----------------------------------------------------------------------------

RETRYABLE = {408, 425, 429, 500, 502, 503, 504}


@pytest.mark.parametrize(
    "status", [*range(100, 600, 7), *range(400, 432), *range(500, 531), 600, 999]
)
def test_statuses(status: int) -> None:
    """Seven statuses are retried by default; every other is final."""
    verdict = after_503(a_call("GET"), status=status)
    assert isinstance(verdict, RetryAfter) is (status in RETRYABLE)
    if status not in RETRYABLE:
        assert verdict is None


@pytest.mark.parametrize(
    "status", [200, 202, 301, 307, 400, 403, 404, 409, 413, 421, 501, 505, 507, 520, 524, 529]
)
def test_a_retry_after_does_not_make_a_status_retryable(status: int) -> None:
    """azure-core repeats a 400 that has Retry-After; that is a wait for a request that will fail
    again.
    """
    assert after_503(a_call("GET"), [("Retry-After", "1")], status) is None


@pytest.mark.parametrize("status", [421, 425, 503])
def test_no_status_by_itself_makes_a_post_safe(status: int) -> None:
    verdict = after_503(a_call("POST"), status=status)
    assert verdict == (None if status == 421 else GiveUp(Reason.METHOD_NOT_REPLAYABLE))


@pytest.mark.parametrize(
    ("method", "headers", "policy", "retried"),
    [
        ("POST", KEY, RetryPolicy(), True),
        ("PUT", KEY, RetryPolicy(), True),
        ("PUT", (), RetryPolicy(), False),
        ("POST", (), RetryPolicy(), False),
        ("POST", KEY, RetryPolicy(conflict_with_key=False), False),
        ("PUT", (), RetryPolicy(statuses={409}), True),
    ],
    ids=[
        "post, key",
        "put, key",
        "put, no key",
        "post, no key",
        "switched off",
        "asked for in statuses",
    ],
)
def test_409_waits_for_the_first_request_only_with_a_key(
    method: str, headers: Any, policy: RetryPolicy, retried: bool
) -> None:
    """Idempotency-Key draft section 2.7: the request with the same key is still being processed."""
    assert isinstance(after_503(a_call(method, headers, policy), status=409), RetryAfter) is retried


# --- S5, S6: advice and replayed answers ------------------------------------------------------

NO, YES, NONE = Reason.SERVER_SAID_NO, "retry", None


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        pytest.param(503, [("x-should-retry", "false")], NO, id="no"),
        pytest.param(503, [("X-Should-Retry", "FALSE")], NO, id="no, upper case"),
        pytest.param(503, [("stripe-should-retry", "false")], NO, id="stripe says no"),
        pytest.param(
            503,
            [("x-should-retry", "true"), ("stripe-should-retry", "false")],
            NO,
            id="any no beats any yes",
        ),
        pytest.param(503, [("x-should-retry", "true, false")], NO, id="both in one line"),
        pytest.param(
            503, [("Retry-After", "1"), ("x-should-retry", "false")], NO, id="no beats a hint"
        ),
        pytest.param(503, [("grpc-retry-pushback-ms", "-1")], NO, id="negative pushback"),
        pytest.param(503, [("grpc-retry-pushback-ms", "soon")], NO, id="unreadable pushback"),
        pytest.param(
            503,
            [("grpc-retry-pushback-ms", "-1"), ("x-should-retry", "true")],
            NO,
            id="pushback beats yes",
        ),
        pytest.param(503, [("grpc-retry-pushback-ms", "10")], YES, id="pushback with a time"),
        pytest.param(503, [("x-should-retry", "maybe")], YES, id="neither yes nor no"),
        pytest.param(404, [("x-should-retry", "true")], YES, id="yes makes any error retryable"),
        pytest.param(529, [("stripe-should-retry", "true")], YES, id="stripe's too"),
        pytest.param(404, [("x-should-retry", "false")], NONE, id="no on what is final anyway"),
        pytest.param(200, [("x-should-retry", "true")], NONE, id="a success is no failure"),
        pytest.param(302, [("x-should-retry", "true")], NONE, id="nor is a redirect"),
        pytest.param(404, [("grpc-retry-pushback-ms", "10")], NONE, id="a time is no yes"),
    ],
)
@pytest.mark.parametrize("hints", ["obey", "ignore"])
def test_advice(status: int, headers: list[tuple[str, str]], expected: Any, hints: Any) -> None:
    """The server's explicit no is always obeyed, also with ``hints="ignore"``; its yes widens
    statuses only.
    """
    verdict = after_503(a_call("GET", (), RetryPolicy(hints=hints)), headers, status)
    if expected == YES:
        assert isinstance(verdict, RetryAfter)
    else:
        assert verdict == (None if expected is NONE else GiveUp(expected))


@pytest.mark.parametrize("headers", [(), KEY], ids=["no key", "key"])
def test_a_yes_does_not_replace_a_key_or_a_body(headers: Any) -> None:
    """S5: S2 and S3 still apply."""
    call = a_call("POST", headers)
    verdict = after_503(call, [("x-should-retry", "true")], body_ready=not headers)
    assert verdict == GiveUp(Reason.BODY_CONSUMED if headers else Reason.METHOD_NOT_REPLAYABLE)


REPLAYED = ("Idempotent-Replayed", "true")


@pytest.mark.parametrize(
    ("method", "key", "status", "headers", "expected"),
    [
        pytest.param("POST", KEY, 500, [REPLAYED], Reason.REPLAYED_RESPONSE, id="stored 500"),
        pytest.param(
            "PUT", KEY, 500, [REPLAYED], Reason.REPLAYED_RESPONSE, id="also of an idempotent method"
        ),
        pytest.param("POST", KEY, 409, [REPLAYED], Reason.REPLAYED_RESPONSE, id="stored conflict"),
        pytest.param(
            "POST",
            KEY,
            500,
            [("idempotent-replayed", " TRUE ")],
            Reason.REPLAYED_RESPONSE,
            id="spelling",
        ),
        pytest.param("POST", KEY, 500, [("Idempotent-Replayed", "false")], YES, id="false"),
        pytest.param("POST", KEY, 500, [("Idempotent-Replayed", "1")], YES, id="1 is not true"),
        pytest.param("POST", KEY, 500, [("Idempotent-Replayed", "")], YES, id="empty"),
        pytest.param("GET", (), 500, [REPLAYED], YES, id="no key, so not ours"),
        pytest.param(
            "POST",
            KEY,
            500,
            [REPLAYED, ("x-should-retry", "true")],
            YES,
            id="explicit yes outranks it",
        ),
        pytest.param(
            "POST",
            KEY,
            500,
            [REPLAYED, ("x-should-retry", "false")],
            NO,
            id="explicit no is the reason",
        ),
        pytest.param("POST", KEY, 422, [REPLAYED], NONE, id="what is final is accepted"),
        pytest.param("POST", KEY, 201, [REPLAYED], NONE, id="a stored success is a success"),
    ],
)
def test_replayed(
    method: str, key: Any, status: int, headers: list[tuple[str, str]], expected: Any
) -> None:
    """The same key would bring the same stored answer again (Stripe API v1)."""
    verdict = after_503(a_call(method, key), headers, status)
    if expected == YES:
        assert isinstance(verdict, RetryAfter)
    else:
        assert verdict == (None if expected is NONE else GiveUp(expected))


@pytest.mark.parametrize("form", [str, str.encode], ids=["text", "octets"])
def test_replayed_is_read_from_text_and_octets(form: Callable[[str], Any]) -> None:
    assert is_replayed([(form("Idempotent-Replayed"), form("True"))])
    assert not is_replayed([(form("Idempotent-Replayes"), form("true"))])
    assert not is_replayed([(form("X-Nineteen-Letters-"), form("true"))])
    assert not is_replayed([])


# --- S7 to S11: exceptions --------------------------------------------------------------------


def chained(family: str, *links: Any) -> BaseException:
    """Exceptions from outermost to innermost; the names of classes of a family are completed."""
    made = [
        link if isinstance(link, BaseException) else class_named(link, family)("") for link in links
    ]
    for outer, inner in pairwise(made):
        outer.__cause__ = inner
    return made[0]


def mapped(name: str, *causes: Any) -> list[Any]:
    """As httpx makes it of httpcore's error of the same name."""
    return [f"httpx.{name}", f"httpcore.{name}", *causes]


class AioHttpError(OSError):
    """As aiohttp's ClientOSError: an OSError, but not of the socket layer."""

    __module__ = "aiohttp.client_exceptions"


def certificate_error() -> BaseException:
    import ssl

    return ssl.SSLCertVerificationError(1, "certificate verify failed")


KINDS: list[Any] = [
    pytest.param(["httpx.ConnectError"], "refused", "unsent", id="connect error"),
    pytest.param(mapped("ConnectError", OSError(113, "No route")), "refused", "unsent", id="no route"),
    pytest.param(["httpx.ConnectError", OSError(111, "refused")], "refused", "unsent", id="from an OSError"),
    pytest.param(mapped("ConnectError", "socket.gaierror"), "dns", "unsent", id="dns"),
    pytest.param(mapped("ConnectError", "ssl.SSLError"), "tls", "unsent", id="handshake"),
    pytest.param(mapped("ConnectError", "ssl.SSLZeroReturnError"), "tls", "unsent", id="handshake cut"),
    pytest.param(mapped("ConnectTimeout", TimeoutError()), "connect-timeout", "unsent", id="connect timeout"),
    # A foreign inner transport proves nothing with its own classes.
    pytest.param(["httpx.ConnectError", AioHttpError("dropped")], "refused", "sent", id="foreign connect error"),
    pytest.param(["httpx.ConnectTimeout", RuntimeError()], "connect-timeout", "sent", id="foreign connect timeout"),
    pytest.param(["httpx.ProxyError", AioHttpError("502 Bad Gateway")], "proxy", "sent", id="foreign proxy error"),
    # Certificates: never, whatever class wraps them.
    pytest.param(mapped("ConnectError", certificate_error()), "certificate", "unsent", id="certificate"),
    pytest.param(mapped("ReadError", certificate_error()), "certificate", "unsent", id="certificate while reading"),
    pytest.param(mapped("ConnectError", OSError(), certificate_error()), "certificate", "unsent", id="deep"),
    pytest.param(mapped("ProxyError", certificate_error()), "certificate", "unsent", id="a proxy's certificate"),
    # Maybe sent.
    pytest.param(mapped("ReadTimeout", TimeoutError()), "read-timeout", "sent", id="read timeout"),
    pytest.param(["httpx.WriteTimeout"], "write-timeout", "sent", id="write timeout"),
    pytest.param(["httpx.ReadError"], "reset", "sent", id="read error"),
    pytest.param(["httpx.WriteError"], "reset", "sent", id="write error"),
    pytest.param(["httpx.CloseError"], "reset", "sent", id="close error"),
    pytest.param(["httpx.TimeoutException"], "timeout", "sent", id="bare timeout"),
    pytest.param(["httpx.NetworkError"], "reset", "sent", id="bare network error"),
    pytest.param(["httpx.ProtocolError"], "protocol", "sent", id="bare protocol error"),
    pytest.param(["httpx.TransportError"], "protocol", "sent", id="bare transport error"),
    pytest.param(["httpx.RequestError"], "protocol", "sent", id="bare request error"),
    # Local.
    pytest.param(["httpx.PoolTimeout", "httpcore.PoolTimeout"], "pool", "unsent", id="pool"),
    pytest.param(["httpx.UnsupportedProtocol"], "permanent", "unsent", id="scheme"),
    pytest.param([httpx.TooManyRedirects("")], "permanent", "answered", id="redirects"),
    pytest.param([UnicodeError("label too long")], "permanent", "unsent", id="idna"),
    pytest.param([UnicodeDecodeError("idna", b"", 0, 1, "x")], "permanent", "unsent", id="a kind of unicode error"),
    pytest.param([ValueError("theirs")], "unknown", "sent", id="a class nobody knows"),
    pytest.param([OSError("theirs")], "unknown", "sent", id="a bare OSError"),
    pytest.param([TimeoutError()], "unknown", "sent", id="a bare TimeoutError"),
    pytest.param([RuntimeError("theirs")], "unknown", "sent", id="a bare RuntimeError"),
    pytest.param([MemoryError()], "unknown", "sent", id="MemoryError"),
]  # fmt: skip


@pytest.mark.parametrize(("links", "kind", "phase"), KINDS)
def test_classify(links: list[Any], kind: str, phase: str) -> None:
    """Class and cause say what it was and how far it got; the text says nothing."""
    failure = forbear.httpx.classify(chained("httpx", *links))
    assert (failure.kind, failure.phase) == (kind, phase)


@pytest.mark.parametrize(
    ("links", "kind", "phase"), [case for case in KINDS if isinstance(case.values[0][0], str)]
)
def test_classify_of_httpx2(links: list[Any], kind: str, phase: str) -> None:
    failure = forbear.httpx2.classify(chained("httpx2", *links))
    assert (failure.kind, failure.phase) == (kind, phase)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_other_familys_exceptions_are_not_ones_own(family: str) -> None:
    """No class is shared, so what another library raised proves nothing about this one's
    request.
    """
    other = "httpx" if family == "httpx2" else "httpx2"
    failure = FAMILIES[family][1].classify(FAMILIES[other][0].ConnectError(""))
    assert failure.kind is FailureKind.UNKNOWN


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("407 Proxy Authentication Required", "permanent"),
        ("403 Forbidden", "permanent"),
        ("400", "permanent"),
        ("502 Bad Gateway", "proxy"),
        ("503", "proxy"),
        ("301 Moved", "proxy"),
        ("4", "proxy"),
        ("", "proxy"),
        ("4xx", "proxy"),
        ("40٣ digits of another script", "proxy"),
        ("4070 is no status", "proxy"),
        ("Connection to 407.example refused", "proxy"),
    ],
)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_proxy_that_refused_will_refuse_again(text: str, kind: str, family: str) -> None:
    """S9: CONNECT answered with 4xx is final; anything else of a proxy comes before the origin saw
    anything.
    """
    module, adapter = FAMILIES[family]
    error = module.ProxyError(text)
    error.__cause__ = class_named("httpcore.ProxyError", family)(text)
    failure = adapter.classify(error)
    assert (failure.kind, failure.phase) == (kind, "unsent")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        # RFC 9113 section 7: REFUSED_STREAM 7, CANCEL 8, ENHANCE_YOUR_CALM 11, INTERNAL_ERROR 2,
        # HTTP_1_1_REQUIRED 13
        (
            {"event": "StreamReset", "stream_id": 1, "error_code": 7, "remote_reset": True},
            "unprocessed",
        ),
        (
            {"event": "StreamReset", "stream_id": 1, "error_code": 7, "remote_reset": False},
            "protocol",
        ),
        (
            {"event": "StreamReset", "stream_id": 1, "error_code": 8, "remote_reset": True},
            "protocol",
        ),
        (
            {"event": "StreamReset", "stream_id": 1, "error_code": 11, "remote_reset": True},
            "protocol",
        ),
        (
            {"event": "StreamReset", "stream_id": 1, "error_code": 2, "remote_reset": True},
            "protocol",
        ),
        (
            {"event": "StreamReset", "stream_id": 1, "error_code": 13, "remote_reset": True},
            "protocol",
        ),
        # section 6.8: streams above the last identifier were not processed; 0: none was
        ({"event": "ConnectionTerminated", "error_code": 0, "last_stream_id": 0}, "unprocessed"),
        ({"event": "ConnectionTerminated", "error_code": 11, "last_stream_id": 0}, "unprocessed"),
        ({"event": "ConnectionTerminated", "error_code": 0, "last_stream_id": 1}, "protocol"),
        ({"event": "ConnectionTerminated", "error_code": 0, "last_stream_id": None}, "protocol"),
    ],
    ids=str,
)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_http2_says_about_a_stream(event: dict[str, Any], kind: str, family: str) -> None:
    """REFUSED_STREAM by the peer and GOAWAY(0) are proof that nothing was processed; nothing else
    is.
    """
    outcome = {"exception": "httpx.RemoteProtocolError", "wraps": ["httpcore.RemoteProtocolError"]}
    failure = FAMILIES[family][1].classify(exception_of({**outcome, "h2": event}, family))
    # Not a reset either: ENHANCE_YOUR_CALM is no momentary cause that asks for an immediate retry.
    assert (failure.kind, failure.phase) == (kind, "unsent" if kind == "unprocessed" else "sent")


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("handled", ["certificate", "goaway", "dns"])
def test_an_error_that_the_caller_is_handling_is_not_the_cause(family: str, handled: str) -> None:
    """A fallback request inside ``except`` is judged by its own failure, not by the one being
    handled.

    Python links the error being handled to every new one as ``__context__``.
    """
    module, adapter = FAMILIES[family]
    earlier: dict[str, list[Any]] = {
        "certificate": ["httpx.ConnectError", "httpcore.ConnectError", certificate_error()],
        "goaway": [
            exception_of(
                {
                    "exception": "httpx.RemoteProtocolError",
                    "wraps": ["httpcore.RemoteProtocolError"],
                    "h2": {"event": "ConnectionTerminated", "error_code": 0, "last_stream_id": 0},
                },
                family,
            )
        ],
        "dns": ["httpx.ConnectError", "httpcore.ConnectError", "socket.gaierror"],
    }
    core_name = "RemoteProtocolError" if handled == "goaway" else "ConnectError"

    def raise_as_the_library_does() -> None:
        try:
            raise class_named(f"httpcore.{core_name}", family)("Server disconnected")
        except Exception as core:
            raise getattr(module, core_name)("Server disconnected") from core

    try:
        raise chained(family, *earlier[handled])
    except module.TransportError:
        with pytest.raises(module.TransportError) as caught:
            raise_as_the_library_does()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__context__ is not None  # so there is something to be misled by
    failure = adapter.classify(caught.value)
    expected = ("reset", "sent") if handled == "goaway" else ("refused", "unsent")
    assert (failure.kind, failure.phase) == expected


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_foreign_transport_that_forgets_from_proves_nothing(family: str) -> None:
    """``except aiohttp…: raise httpx.ConnectTimeout(…)`` without ``from`` may follow a request that
    was read.
    """
    module, adapter = FAMILIES[family]
    with pytest.raises(module.ConnectTimeout) as caught:
        try:
            raise AioHttpError("server dropped the request")
        except OSError:
            raise module.ConnectTimeout("…")  # noqa: B904
    assert adapter.classify(caught.value).phase is Phase.SENT


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_circle_of_causes_ends(family: str) -> None:
    module, adapter = FAMILIES[family]
    one, two = module.ReadError("one"), module.ReadError("two")
    one.__cause__, two.__cause__ = two, one
    assert adapter.classify(one).kind is FailureKind.RESET


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("name", ["CircuitOpenError", "DeadlineExceeded"])
def test_our_own_refusals_are_permanent(family: str, name: str) -> None:
    """An outer loop must not retry what forbear refused."""
    adapter = FAMILIES[family][1]
    assert (
        adapter.classify(getattr(adapter, name)("…", reason=Reason.DEADLINE)).kind
        is FailureKind.PERMANENT
    )


NEVER = {
    "pool": Reason.LOCAL_SATURATION,
    "certificate": Reason.PERMANENT_ERROR,
    "decoding": Reason.PERMANENT_ERROR,
    "permanent": Reason.PERMANENT_ERROR,
    "unknown": Reason.UNKNOWN_ERROR,
}


@pytest.mark.parametrize("phase", sorted(Phase))
@pytest.mark.parametrize("kind", sorted(NEVER))
def test_what_can_never_succeed_is_never_repeated(kind: str, phase: Phase) -> None:
    """S9, whatever the method, the key or the phase."""
    verdict = a_call("GET", KEY).after_error(Failure(FailureKind(kind), phase), 0.0)
    assert verdict == GiveUp(NEVER[kind])


@pytest.mark.parametrize(
    "kind", sorted(set(FailureKind) - {FailureKind.STATUS} - {FailureKind(k) for k in NEVER})
)
@pytest.mark.parametrize(
    ("method", "headers", "phase", "reason"),
    [
        ("POST", (), Phase.UNSENT, None),
        ("PATCH", (), Phase.UNSENT, None),
        ("POST", (), Phase.SENT, Reason.METHOD_NOT_REPLAYABLE),
        ("POST", KEY, Phase.SENT, None),
        ("DELETE", (), Phase.SENT, None),
        ("LOCK", (), Phase.SENT, Reason.METHOD_NOT_REPLAYABLE),
    ],
    ids=["post unsent", "patch unsent", "post sent", "post with key", "delete sent", "lock sent"],
)
def test_sent_and_unsent(
    kind: FailureKind, method: str, headers: Any, phase: Phase, reason: Reason | None
) -> None:
    """S8 and S10: what was not sent may go again for any method; the rest needs a method or a
    key.
    """
    verdict = a_call(method, headers).after_error(Failure(kind, phase), 0.0)
    assert isinstance(verdict, RetryAfter) if reason is None else verdict == GiveUp(reason)


@pytest.mark.parametrize("kind", ["reset", "read-timeout", "protocol", "timeout"])
def test_a_delivered_response_is_never_sent_for_again(kind: str) -> None:
    """S11: the caller may have used half of it."""
    verdict = a_call("GET").after_error(
        Failure(FailureKind(kind), Phase.ANSWERED), 0.0, delivered=True
    )
    assert verdict == GiveUp(Reason.RESPONSE_DELIVERED)


def test_classify_takes_anything() -> None:
    """Total: a classifier that raises would lose the caller's own error."""
    for error in every_builtin_exception():
        assert forbear.httpx.classify(error).kind in (FailureKind.UNKNOWN, FailureKind.PERMANENT)


def every_builtin_exception() -> Iterator[BaseException]:
    for cls in vars(builtins).values():
        if isinstance(cls, type) and issubclass(cls, BaseException):
            yield (
                cls.__new__(cls, "", [ValueError()])
                if issubclass(cls, BaseExceptionGroup)
                else cls.__new__(cls)
            )
