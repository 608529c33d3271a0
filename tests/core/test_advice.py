"""What ``RetryPolicy.check`` says: each warning where it is due, with the field to change."""

import pytest

from forbear import Exponential, Fixed, RetryPolicy

SOUND = RetryPolicy(
    max_attempts=3, backoff=Exponential(0.5, 10.0), max_retry_after=2.0, hint_spread=0.1
)


def fields(policy, **objective):
    return [text.partition(": ")[0] for text in policy.check(**objective)]


@pytest.mark.parametrize(("change", "field", "says"), [
    *(({"backoff": schedule}, "backoff", "no jitter")
        for schedule in (Fixed(1.0), Exponential(1.0, jitter="none"), Exponential(1.0, jitter=0.0))),
    ({"throttle_backoff": Fixed(1.0)}, "throttle_backoff", "no jitter"),
    ({"backoff": Fixed(0.0)}, "backoff", "2 retries with no wait at all"),
    ({"backoff": Exponential(0.0, 9.0), "max_attempts": 2}, "backoff",
        "1 retry with no wait at all"),
    ({"methods": {"GET", "POST", "PATCH"}}, "methods", "PATCH and POST may take effect twice"),
    ({"unexecuted_statuses": {429, 502, 504}}, "unexecuted_statuses", "502 and 504 may follow"),
    ({"hints": "ignore"}, "hints", "retried sooner"),
    ({"hint_spread": 0.0}, "hint_spread", "the same second"),
    ({"patience": 0.0, "max_attempts": 10}, "patience",
        "only about the first 3 of its 10 attempts are sent"),
])  # fmt: skip
def test_what_is_likely_to_hurt_is_told_with_its_field(change, field, says):
    (warning,) = SOUND.replace(**change).check()
    assert warning.startswith(f"{field}: ")
    assert says in warning


def test_what_does_not_hurt_is_not_told():
    """A hint that cannot be obeyed needs no spread; without patience three attempts are sent."""
    for change in ({"hint_spread": 0.0, "max_retry_after": 0.0}, {"patience": 0.0}):
        assert SOUND.replace(**change).check() == []
    assert RetryPolicy.latency_sensitive().check() == []


# Its waits are at most 0.5 + 1 s. All retries shall take a third of the objective.
HALF = SOUND.replace(attempt_timeout=0.5)
OBJECTIVES = [
    # With two attempts of 1 s they are 3.5 s, a third of 10.5; without a timeout 1.5 s.
    (SOUND, 10.6, 1.0, []), (SOUND, 10.4, 1.0, ["max_attempts"]), (SOUND, 9.0, None, []),
    # The policy's own timeout counts for four phases: 2 × 4 × 0.5 s and 1.5 s are a third of 16.5.
    (HALF, 18.0, None, []), (HALF, 15.0, None, ["max_attempts"]), (HALF, 15.0, 0.5, []),
    # A server may ask for a third at most, 2 s and their spread are 2.2, unless the call is limited.
    (SOUND, 6.7, None, []), (SOUND, 6.5, None, ["max_retry_after"]),
    (SOUND.replace(total_timeout=6.5), 6.5, None, []),
    (SOUND.replace(hints="ignore"), 6.5, None, ["hints"]),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "slo", "timeout", "warned"), OBJECTIVES)
def test_what_an_objective_is_too_short_for(policy, slo, timeout, warned):
    assert fields(policy, slo=slo, attempt_timeout=timeout) == warned


def test_the_field_to_change_is_told_with_the_number_that_fits():
    """A third of 6 s is 2 s: one retry is 0.5 + 1 s, two are 3.5 s. Else schedule or timeout."""
    (warning,) = SOUND.replace(max_retry_after=1.0).check(slo=6.0, attempt_timeout=1.0)
    fits = "more than a third of the SLO (2 of 6 s); max_attempts=2 would fit"
    assert f"its 2 retries can take 3.5 s, {fits}" in warning
    (warning,) = SOUND.replace(hints="obey", max_retry_after=0.1).check(slo=1.2)
    assert warning.startswith("backoff: its 2 retries can take 1.5 s")
    assert "even the first wait can be 0.5 s" in warning
    policy = SOUND.replace(max_attempts=2, max_retry_after=0.5)
    (warning,) = policy.check(slo=10.0, attempt_timeout=4.0)
    assert warning.startswith("attempt_timeout: its retry can take 4.5 s")


def test_a_call_that_can_outlast_it_is_told_of_total_timeout():
    """4.5 s in all."""
    limited = SOUND.replace(total_timeout=4.4)
    for policy, slo, is_told in ((SOUND, 4.4, True), (SOUND, 4.6, False), (limited, 4.4, False)):
        assert ("total_timeout" in fields(policy, slo=slo, attempt_timeout=1.0)) is is_told
