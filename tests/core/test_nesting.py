"""What the headers of a request tell of loops above us, and how much time it brings."""

from math import inf

import pytest

from forbear import Reason
from forbear.addons.incoming import Incoming, seconds_for
from forbear.asgi import RetryContextMiddleware
from forbear.engine.outer import retries_above
from forbear.testing import FakeClock


@pytest.mark.parametrize(("name", "value", "retries"), [
    # Envoy: "1" on the first sending, one more on each retry.
    ("x-envoy-attempt-count", "1", 0), ("x-envoy-attempt-count", "2", 1),
    ("X-Envoy-Attempt-Count", " 3\t", 2), ("x-envoy-attempt-count", "0", 0),
    # botocore: ttl, attempt and max, as far as they are known.
    ("amz-sdk-request", "attempt=1", 0), ("amz-sdk-request", "attempt=1; max=3", 0),
    ("amz-sdk-request", "ttl=20260101T000000Z; attempt=3; max=3", 2),
    ("amz-sdk-request", "max=3", 0), ("amz-sdk-request", "attempt", 0),
    ("amz-sdk-request", "attempt=two; attempt=2", 0),
    # Stainless: retries taken, so 0 on the first sending.
    ("x-stainless-retry-count", "0", 0), ("x-stainless-retry-count", "1", 1),
    # gRPC A6: attempts before this one, absent on the first sending.
    ("grpc-previous-rpc-attempts", "1", 1), ("grpc-previous-rpc-attempts", "3", 3),
    # Ours: the number of the attempt, on retries only.
    ("Retry-Attempt", "2", 1), ("Retry-Attempt", "4", 3), ("Retry-Attempt", "1", 1),
    ("Retry-Attempt", "0", 0),
    # Malformed is as if it were absent.
    *[(name, value, 0) for name in ("x-envoy-attempt-count", "x-stainless-retry-count",
        "grpc-previous-rpc-attempts") for value in ("", " ", "-2", "+2", "2.0", "0x2", "1_0",
        "two", "²", "٣", "2, 2", "2" * 10, "9" * 5000) ],
    ("Retry-Attempt", "often", 0), ("amz-sdk-request", "attempt=" + "9" * 5000, 0),
    ("amz-sdk-request", ";;=;attempt=;", 0), ("x-other", "7", 0),
])  # fmt: skip
def test_retries_above(name, value, retries):
    assert retries_above([("accept", "*/*"), (name, value)]) == retries
    if value.isascii():
        assert retries_above([(name.encode(), value.encode())]) == retries


@pytest.mark.parametrize(("name", "value", "seconds"), [
    ("x-envoy-expected-rq-timeout-ms", "15000", 15.0),  # Envoy's default for a route
    ("X-Envoy-Expected-Rq-Timeout-Ms", " 250 ", 0.25),
    ("x-envoy-expected-rq-timeout-ms", "0", inf),  # Envoy's word for no timeout
    # gRPC over HTTP2: up to 8 digits and a unit.
    ("grpc-timeout", "1H", 3600.0), ("grpc-timeout", "2M", 120.0), ("grpc-timeout", "3S", 3.0),
    ("grpc-timeout", "250m", 0.25), ("grpc-timeout", "500000u", 0.5),
    ("grpc-timeout", "99999999n", 0.099999999),
    ("grpc-timeout", "99999999H", inf), ("x-envoy-expected-rq-timeout-ms", "9" * 15, inf),
    *[("grpc-timeout", value, inf) for value in ("", "1", "S", "0S", "-1S", "+1S", "1.5S", "1s",
        "1h", "1 S", "123456789m", "１S", "1SS") ],
    *[("x-envoy-expected-rq-timeout-ms", value, inf) for value in ("", "-1", "1.5", "1e3",
        "soon", "٣", "1_000", "9" * 16, "9" * 5000) ],
    ("x-other", "5", inf),
])  # fmt: skip
def test_seconds_for(name, value, seconds):
    assert seconds_for([(name, value)]) == pytest.approx(seconds)
    if value.isascii():
        assert seconds_for([(name.encode(), value.encode())]) == pytest.approx(seconds)


@pytest.mark.parametrize(("milliseconds", "margin", "left"), [
    ("1000", 0.05, 0.95), ("1000", 0.0, 1.0), ("100", 0.05, 0.05), ("60", 0.05, 0.03),
    ("1", 1.0, 0.0005), ("0", 0.05, inf),
])  # fmt: skip
def test_a_margin_is_kept_but_never_more_than_half(milliseconds, margin, left):
    middleware = RetryContextMiddleware(print, margin=margin, clock=FakeClock(monotonic=0.0))
    incoming = middleware.incoming([("x-envoy-expected-rq-timeout-ms", milliseconds)])
    assert incoming.deadline_at == pytest.approx(left)


@pytest.mark.parametrize(("attempts", "reason", "ends"), [
    (4, Reason.ATTEMPTS_EXHAUSTED, True), (2, Reason.DEADLINE, True),
    (1, Reason.SERVER_SAID_NO, True), (1, Reason.RETRY_AFTER_TOO_LONG, True),
    (1, Reason.BUDGET_EXHAUSTED, True), (0, Reason.CIRCUIT_OPEN, True),
    # Nobody has multiplied anything, and others may be able to do more.
    (1, Reason.ATTEMPTS_EXHAUSTED, False), (1, Reason.NESTED_CALL, False),
    (1, Reason.METHOD_NOT_REPLAYABLE, False), (1, Reason.LOCAL_SATURATION, False),
    (1, Reason.DEADLINE, False),
])  # fmt: skip
def test_which_ends_concern_those_above(attempts, reason, ends):
    incoming = Incoming(0, inf, FakeClock(), False)
    incoming.note_end(attempts, reason)
    assert incoming.gave_up is ends
