"""What ``RetryPolicy.check`` says: each warning where it is due, and only there, with the field to
change.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Exponential, Fixed, RetryPolicy

SOUND = RetryPolicy(
    max_attempts=3,
    backoff=Exponential(0.5, 10.0, jitter="full"),
    max_retry_after=2.0,
    hint_spread=0.1,
)


def fields(policy, **objective):
    return [text.partition(": ")[0] for text in policy.check(**objective)]


def test_a_sound_policy_has_nothing_to_change():
    """Its waits are at most 0.5 + 1 s, with two attempts of 1 s after the first: 3.5 of 4 s, and
    4.5 of 12 s.
    """
    assert SOUND.check() == []
    assert SOUND.check(slo=12.0, attempt_timeout=1.0) == []


def test_a_policy_that_never_retries_has_nothing_to_change():
    policy = RetryPolicy.disabled().replace(methods={"POST"}, hints="ignore", backoff=Fixed(0.0))
    assert policy.check(slo=0.001) == []


def test_what_is_likely_to_hurt_is_told_with_its_field():
    cases = [
        ({"backoff": Fixed(1.0)}, "backoff", "no jitter"),
        ({"backoff": Exponential(1.0, jitter="none")}, "backoff", "no jitter"),
        ({"backoff": Exponential(1.0, jitter=0.0)}, "backoff", "no jitter"),
        ({"throttle_backoff": Fixed(1.0)}, "throttle_backoff", "no jitter"),
        ({"backoff": Fixed(0.0)}, "backoff", "2 retries with no wait at all"),
        ({"backoff": Exponential(0.0, 9.0), "max_attempts": 2}, "backoff",
            "1 retry with no wait at all"),
        ({"methods": {"GET", "POST", "PATCH"}}, "methods", "PATCH and POST may take effect twice"),
        ({"hints": "ignore"}, "hints", "asked sooner"),
        ({"hint_spread": 0.0}, "hint_spread", "the same second"),
    ]  # fmt: skip
    for change, field, says in cases:
        (warning,) = SOUND.replace(**change).check()
        assert warning.startswith(f"{field}: ")
        assert says in warning


def test_any_jitter_will_do():
    for jitter in ["full", "equal", "decorrelated", 0.2, 1]:
        assert SOUND.replace(backoff=Exponential(0.5, 10.0, jitter=jitter)).check() == []


def test_a_schedule_of_ones_own_is_not_judged():
    class Own:
        def delay(self, attempt, previous, random):
            return 0.0

    assert SOUND.replace(backoff=Own()).check() == []


def test_a_hint_that_cannot_be_obeyed_needs_no_spread():
    assert SOUND.replace(hint_spread=0.0, max_retry_after=0.0).check() == []


# --- an objective ------------------------------------------------------------------------------


def test_all_retries_shall_take_a_third_of_it():
    """0.5 + 1 s of waits and 2 × 1 s are 3.5 s: more than a third of 10.4 s, less than a third of
    10.6 s.
    """
    assert fields(SOUND, slo=10.6, attempt_timeout=1.0) == []
    assert fields(SOUND, slo=10.4, attempt_timeout=1.0) == ["max_attempts"]


def test_the_number_of_attempts_that_fits_is_told():
    """A third of 6 s is 2 s: one retry is 0.5 + 1 s, two are 3.5 s."""
    (warning,) = SOUND.replace(max_retry_after=1.0).check(slo=6.0, attempt_timeout=1.0)
    assert (
        "its 2 retries can take 3.5 s, more than a third of the SLO (2 s); max_attempts=2 would fit"
        in warning
    )


def test_where_even_the_first_wait_is_too_long_the_schedule_is_named():
    (warning,) = SOUND.replace(hints="obey", max_retry_after=0.1).check(slo=1.2)
    assert warning.startswith("backoff: its 2 retries can take 1.5 s")
    assert "even the first wait can be 0.5 s" in warning


def test_where_an_attempt_is_too_long_its_timeout_is_named():
    policy = SOUND.replace(max_attempts=2, max_retry_after=0.5)
    (warning,) = policy.check(slo=10.0, attempt_timeout=4.0)
    assert warning.startswith("attempt_timeout: its retry can take 4.5 s")


def test_the_policys_own_timeout_counts_for_four_phases():
    """Two attempts of 4 × 0.5 s and 1.5 s of waits: more than a third of 15 s, less than a third of
    18 s.
    """
    policy = SOUND.replace(attempt_timeout=0.5)
    assert fields(policy, slo=18.0) == []
    assert fields(policy, slo=15.0) == ["max_attempts"]
    assert fields(policy, slo=15.0, attempt_timeout=0.5) == []


def test_without_a_timeout_only_the_waits_count():
    assert fields(SOUND, slo=9.0) == []


def test_a_call_that_can_outlast_it_is_told_of_total_timeout():
    """4.5 s in all."""
    assert "total_timeout" in fields(SOUND, slo=4.4, attempt_timeout=1.0)
    assert "total_timeout" not in fields(SOUND, slo=4.6, attempt_timeout=1.0)
    assert "total_timeout" not in fields(
        SOUND.replace(total_timeout=4.4), slo=4.4, attempt_timeout=1.0
    )


def test_a_server_may_ask_for_a_third_at_most_unless_the_call_is_limited():
    """2 s and their spread are 2.2 s."""
    assert fields(SOUND, slo=6.7) == []
    assert fields(SOUND, slo=6.5) == ["max_retry_after"]
    assert fields(SOUND.replace(total_timeout=6.5), slo=6.5) == []
    assert fields(SOUND.replace(hints="ignore"), slo=6.5) == ["hints"]


@pytest.mark.parametrize("slo", [0, -1, float("inf"), float("nan")])
def test_an_objective_that_is_none_is_refused(slo):
    with pytest.raises(ValueError, match="slo must be "):
        SOUND.check(slo=slo)
    with pytest.raises(TypeError, match="slo must be a number of seconds, got '1'"):
        SOUND.check(slo="1")


@given(st.integers(2, 30), st.floats(0.01, 50), st.floats(0, 3))
def test_the_number_that_is_said_to_fit_fits(attempts, slo, attempt):
    policy = RetryPolicy(
        max_attempts=attempts, backoff=Exponential(0.1, 5.0, jitter="full"), hints="ignore"
    )
    for text in policy.check(slo=slo, attempt_timeout=attempt):
        if text.startswith("max_attempts: "):
            fitting = int(text.partition("; max_attempts=")[2].partition(" ")[0])
            better = policy.replace(max_attempts=fitting).check(slo=slo, attempt_timeout=attempt)
            assert not any(one.startswith(("max_attempts: ", "backoff: ")) for one in better)
