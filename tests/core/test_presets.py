"""Presets: the numbers that the design gives, and the argument beside them."""

import httpx
import pytest

from forbear import Exponential, RetryPolicy
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock, ScriptedTransport

# attempts, base, cap, factor, jitter: DESIGN section 2; seconds of patience
PRESETS = {
    "latency_sensitive": (3, Exponential(base=0.010, cap=0.1, factor=2.0, jitter="full"), 0.0),
    "high_availability": (6, Exponential(base=0.1, cap=30.0, factor=2.0, jitter="full"), 20.0),
    "batch": (11, Exponential(base=0.1, cap=60.0, factor=2.0, jitter="full"), 3600.0),
    "gateway": (6, Exponential(base=0.05, cap=30.0, factor=1.5, jitter=0.2), 2.0),
}


def test_preset() -> None:
    """A preset sets attempts, schedule and patience; everything else is the default, and its docstring argues
    for it.
    """
    for name in sorted(PRESETS):
        attempts, backoff, patience = PRESETS[name]
        maker = getattr(RetryPolicy, name)
        expected = RetryPolicy(max_attempts=attempts, backoff=backoff, patience=patience)
        assert maker() == expected
        assert len(maker.__doc__.strip().splitlines()) >= 3


def test_disabled_sends_once() -> None:
    assert RetryPolicy.disabled() == RetryPolicy(max_attempts=1)


@pytest.mark.parametrize(("vendors", "statuses", "hinted", "heard"), [
    (("github",), set(), {403}, ()), (("anthropic",), {529}, set(), ("anthropic",)),
    (("azure",), set(), {403}, ()),
    (("cloudflare",), {520, 521, 522, 523, 524}, set(), ()),
    (("google",), set(), set(), ("google",)), (("openai",), set(), set(), ("openai",)),
    (("github", "anthropic"), {529}, {403}, ("anthropic",)), ((), set(), set(), ()),
])  # fmt: skip
def test_vendors_add_their_statuses_and_their_word(vendors, statuses, hinted, heard):
    """Opt-in sets add to what is there; the safety rules stay."""
    plain = RetryPolicy(max_attempts=9)
    policy = plain.for_vendors(*vendors)
    assert policy == plain.replace(
        statuses=plain.statuses | statuses, hinted_statuses=hinted, vendors=heard
    )


def test_githubs_403_is_retried_only_when_it_names_a_time() -> None:
    """A 403 without a time is a missing permission, and stays one."""
    date = {"date": "Thu, 01 Jan 2026 00:00:00 GMT"}
    reset = {**date, "x-ratelimit-reset": "1767225630"}  # 30 s later
    cases = [
        # docs.github.com, "Rate limits for the REST API": wait for retry-after, else for
        # x-ratelimit-reset
        (403, {"retry-after": "60"}, True), (403, {**reset, "x-ratelimit-remaining": "0"}, True),
        (403, {**reset, "x-ratelimit-remaining": "57"}, False), (403, {}, False),
        (403, {"retry-after": "soon"}, False), (404, {"retry-after": "60"}, False),
    ]  # fmt: skip
    for status, headers, retried in cases:
        inner = ScriptedTransport([(status, headers), 200])
        policy = RetryPolicy().for_vendors("github")
        with httpx.Client(
            transport=RetryTransport(inner, policy=policy, clock=FakeClock())
        ) as client:
            client.get("https://api.github.com/")
        assert (len(inner.requests) == 2) is retried
