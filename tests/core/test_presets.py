"""Presets: the numbers that the design gives, and the argument beside them."""

from __future__ import annotations

import pytest

from forbear import Exponential, RetryPolicy
from forbear.core.headers.hints import read_hint
from forbear.core.request import Request
from forbear.core.safety import is_flagged

# attempts, base, cap, factor, jitter: DESIGN section 2
PRESETS = {
    "latency_sensitive": (3, Exponential(base=0.010, cap=0.1, factor=2.0, jitter="full")),
    "high_availability": (4, Exponential(base=0.1, cap=30.0, factor=2.0, jitter="full")),
    "batch": (11, Exponential(base=0.1, cap=60.0, factor=2.0, jitter="full")),
    "gateway": (6, Exponential(base=0.05, cap=30.0, factor=1.5, jitter=0.2)),
}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_preset(name: str) -> None:
    """A preset sets attempts and schedule; everything else is the default, and its docstring argues
    for it.
    """
    attempts, backoff = PRESETS[name]
    maker = getattr(RetryPolicy, name)
    assert maker() == RetryPolicy(max_attempts=attempts, backoff=backoff)
    assert len(maker.__doc__.strip().splitlines()) >= 3


def test_disabled_sends_once() -> None:
    assert RetryPolicy.disabled() == RetryPolicy(max_attempts=1)


@pytest.mark.parametrize(
    ("vendors", "statuses", "hinted"),
    [
        (("github",), set(), {403}),
        (("anthropic",), {529}, set()),
        (("cloudflare",), {520, 521, 522, 523, 524}, set()),
        (("github", "anthropic"), {529}, {403}),
        ((), set(), set()),
    ],
    ids=["github", "anthropic", "cloudflare", "two", "none"],
)
def test_vendors_add_their_statuses(
    vendors: tuple[str, ...], statuses: set[int], hinted: set[int]
) -> None:
    """Opt-in status sets add to what is there; the safety rules stay."""
    plain = RetryPolicy(max_attempts=9)
    policy = plain.for_vendors(*vendors)
    assert policy == plain.replace(statuses=plain.statuses | statuses, hinted_statuses=hinted)


def test_vendors_add_to_a_users_own_set() -> None:
    assert RetryPolicy(statuses={503}).for_vendors("anthropic").statuses == {503, 529}


def test_an_unknown_vendor_is_told_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="vendor must be one of anthropic, cloudflare, github, got 'acme'"
    ):
        RetryPolicy().for_vendors("acme")


@pytest.mark.parametrize(
    ("status", "headers", "retried"),
    [
        # docs.github.com, "Rate limits for the REST API": wait for retry-after, else for
        # x-ratelimit-reset
        pytest.param(403, [("retry-after", "60")], True, id="secondary limit"),
        pytest.param(
            403,
            [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767225660")],
            True,
            id="primary limit",
        ),
        pytest.param(
            403,
            [("x-ratelimit-remaining", "57"), ("x-ratelimit-reset", "1767225660")],
            False,
            id="quota left",
        ),
        pytest.param(403, [], False, id="forbidden"),
        pytest.param(403, [("retry-after", "soon")], False, id="unreadable hint"),
        pytest.param(404, [("retry-after", "60")], False, id="another status"),
    ],
)
def test_githubs_403_is_retried_only_when_it_names_a_time(
    status: int, headers: list[tuple[str, str]], retried: bool
) -> None:
    """A 403 without a time is a missing permission, and stays one."""
    policy = RetryPolicy().for_vendors("github")
    hint = read_hint(status, headers, now=1_767_225_600.0)
    assert is_flagged(policy, Request("GET", "https://api.github.com:443"), status, hint) is retried


def test_a_batch_waits_at_most_102_seconds() -> None:
    """0.1 × (1 + 2 + … + 512) = 102.3 s, no wait reaching the cap of 60."""
    policy = RetryPolicy.batch()
    waits = [
        policy.backoff.delay(attempt, 0.0, lambda: 1.0) for attempt in range(1, policy.max_attempts)
    ]
    assert sum(waits) == pytest.approx(102.3)


def test_a_latency_sensitive_call_waits_at_most_30_ms() -> None:
    """10 + 20 ms."""
    policy = RetryPolicy.latency_sensitive()
    waits = [
        policy.backoff.delay(attempt, 0.0, lambda: 1.0) for attempt in range(1, policy.max_attempts)
    ]
    assert sum(waits) == pytest.approx(0.030)
