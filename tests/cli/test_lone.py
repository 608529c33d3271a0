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


@pytest.mark.parametrize("patience", [0.0, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("outage", [hanging(1.0), unavailable(5.0)])
def test_a_call_that_is_held_goes_on_as_a_probe_and_ends(patience, outage):
    for call in play(RetryPolicy(max_attempts=20, patience=patience), outage):
        instants = [at for at, _ in call.sent]
        assert call.sent[0] == (0.0, "first")
        assert instants == sorted(instants)
        assert {cause for _, cause in call.sent[1:]} <= {"fast", "backoff", "probe", "healthy"}
        if call.ended_at is None:  # so patient that it was cut off
            assert patience > 10
            continue
        assert call.ended_at >= instants[-1]
        assert call.reason in (None, "attempts-exhausted", "origin-unhealthy")
        assert call.reason or outage.lasts == 5.0


def test_total_timeout_ends_the_attempt_that_hangs():
    (call, *_) = play(RetryPolicy(total_timeout=3.0), hanging(5.0))
    assert call == ([(0.0, "first")], 3.0, "deadline")


def test_a_call_without_an_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(explain, "MOST_WAITS", 100)
    calls = play(RetryPolicy(max_attempts=10**6, patience=1e6, backoff=Fixed(1.0)), unavailable())
    assert [call.ended_at for call in calls] == [None]
