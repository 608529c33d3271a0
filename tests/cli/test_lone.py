"""A lone call, attempt by attempt: instants by hand, and laws that hold for any."""

import pytest

from forbear import Exponential, FailureKind, Fixed, RetryPolicy
from forbear.cli import explain
from forbear.cli.explain import Outage, hanging, play, unavailable
from forbear.strategies import Failure, Phase


@pytest.fixture(autouse=True)
def a_few_calls(monkeypatch):
    monkeypatch.setattr("forbear.cli.explain.CALLS", 20)


def test_each_attempt_has_its_instant_and_its_cause():
    """A fast first retry at once, then the schedule's second."""
    backoff = Exponential(1.0, jitter="none", fast_first=0.0)
    policy = RetryPolicy(max_attempts=3, backoff=backoff)
    calls = play(policy, Outage(Failure(FailureKind.REFUSED, Phase.UNSENT)))
    assert len(calls) == explain.CALLS
    for call in calls:
        assert [cause for _, cause in call.sent] == ["first", "fast", "backoff"]
        assert [at for at, _ in call.sent] == [0.0, 0.0, pytest.approx(call.ended_at)]
        assert call.reason == "attempts-exhausted"


def test_total_timeout_ends_the_attempt_that_hangs():
    (call, *_) = play(RetryPolicy(total_timeout=3.0), hanging(5.0))
    assert call == ([(0.0, "first")], 3.0, "deadline")


def test_a_call_without_an_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(explain, "MOST_WAITS", 100)
    calls = play(RetryPolicy(max_attempts=10**6, patience=1e6, backoff=Fixed(1.0)), unavailable())
    assert [call.ended_at for call in calls] == [None]
