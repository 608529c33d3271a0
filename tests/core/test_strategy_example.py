"""A strategy of one's own, complete: what the documentation shows, tested with a real client."""

import inspect
import threading
from pathlib import Path

import httpx
import pytest

from forbear import Reason, record_of
from forbear.httpx import RetryTransport
from forbear.strategies import Failure, RetryRefused, RetryToken
from forbear.testing import FakeClock, ScriptedTransport

from ..clocks import Interrupted


class TwoRetriesPerMinute:
    """Two retries a minute for everyone who shares this object, a second after the failure."""

    quiet = True  # a call that succeeds at once need not be recorded

    def __init__(self) -> None:
        self._lock, self._bought = threading.Lock(), list[float]()

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        return RetryToken()

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        if latest < 1.0:
            raise RetryRefused(Reason.DEADLINE, retry_after=1.0)
        with self._lock:
            if len(self._bought) == 2 and self._bought[0] > now - 60.0:
                raise RetryRefused(Reason.BUDGET_EXHAUSTED)
            self._bought = [*self._bought[-1:], now]
        return RetryToken(1.0, state=token.attempts)  # a longer server hint wins

    def record_success(self, token: RetryToken, now: float) -> None: ...

    def release(self, token: RetryToken, now: float) -> None:
        with self._lock:
            if token.state == token.attempts:  # cancelled while it waited, so refund it
                del self._bought[-1:]
            token.state = None


def get(strategy, clock, *steps, method="GET") -> tuple[httpx.Response, int]:
    """The response, and how many requests were sent."""
    inner = ScriptedTransport(steps)
    with httpx.Client(transport=RetryTransport(inner, strategy=strategy, clock=clock)) as client:
        return client.request(method, "http://api.example/"), len(inner.requests)


def test_two_retries_then_none_until_a_minute_has_passed() -> None:
    strategy, clock = TwoRetriesPerMinute(), FakeClock()
    response, sent = get(strategy, clock, 503)
    assert (response.status_code, sent) == (503, 3)
    assert record_of(response).reason is Reason.BUDGET_EXHAUSTED
    response, sent = get(strategy, clock, 503, 200)
    assert (response.status_code, sent) == (503, 1)
    clock.advance(57.0)  # bought at 0 and 1 s; it is 59 s
    assert get(strategy, clock, 503, 200)[1] == 1
    clock.advance(1.0)
    assert get(strategy, clock, 503)[1] == 3
    assert clock.sleeps == [1.0, 1.0, 1.0, 1.0]


def test_what_was_bought_and_not_sent_comes_back() -> None:
    """Ctrl-C in the wait, any number of times: two retries are there afterwards."""
    strategy = TwoRetriesPerMinute()
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            get(strategy, Interrupted(), 503)
    assert get(strategy, FakeClock(), 503)[1] == 3


def test_the_documentation_shows_this_one_which_is_short() -> None:
    page = Path(__file__).parents[2] / "docs/guides/fleet.md"
    source = inspect.getsource(TwoRetriesPerMinute)
    assert source in page.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 30


def test_the_rules_and_the_server_are_obeyed_although_the_strategy_knows_neither() -> None:
    """A POST without a key is not repeated, and nothing is sent sooner than was asked for."""
    strategy, clock = TwoRetriesPerMinute(), FakeClock()
    response, sent = get(strategy, clock, 503, 200, method="POST")
    assert (response.status_code, sent) == (503, 1)
    response, sent = get(strategy, clock, (503, {"Retry-After": "7"}), 200)
    assert (response.status_code, sent, clock.sleeps) == (200, 2, [7.0])
