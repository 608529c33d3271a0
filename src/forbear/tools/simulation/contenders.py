"""Contenders: who retries in a simulation: policies by name. Floor: acts.

Each is a ``RetryPolicy`` and the strategy that one client process makes of it, so that every one of
them is decided by the same ``Call``. The schedules of other libraries are written as forbear's
objects: their waits and attempts, not their handling of bodies and hints. All retry 503, which
urllib3 does only when told to.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.backoff import Exponential, Fixed
from ...core.policy import RetryPolicy
from ...shared.aws import AwsStandard, TokenBucket
from ...shared.breaker import CircuitBreaker
from ...shared.budget import RetryBudget
from ...shared.standard import StandardStrategy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from ...core.strategy import RetryStrategy

    MakeStrategy: TypeAlias = Callable[[RetryPolicy, Callable[[], float]], RetryStrategy]

__all__ = ["ADDITIONS", "CONTENDERS", "Contender", "contender", "custom"]


class Contender(NamedTuple):
    """A policy that takes part."""

    name: str
    about: str
    policy: RetryPolicy
    strategy: MakeStrategy
    """Makes what one client process has: from the policy and a function like ``random.random``."""


def bare(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    return StandardStrategy(policy, random=random)


def under_ten_percent(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    budget = RetryBudget(ratio=0.1, floor_per_second=0.0, burst=10)
    return StandardStrategy(policy, budget=budget, random=random)


def as_a_transport(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    return StandardStrategy(policy, budget=RetryBudget(), random=random)


def as_aws(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    return AwsStandard(random=random)


def as_older_aws(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    bucket = TokenBucket(500, cost=5, throttling_cost=5)
    return AwsStandard(
        bucket=bucket, backoff=policy.backoff, throttle_backoff=policy.backoff, random=random
    )


def with_breaker(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    # A second open is enough in worlds whose troubles last for less than five.
    return StandardStrategy(
        policy, budget=RetryBudget(), breaker=CircuitBreaker(open_for=1.0), random=random
    )


def with_cooldown(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    return StandardStrategy(policy, budget=RetryBudget(), cooldown="all", random=random)


def textbook(backoff: Exponential | Fixed) -> RetryPolicy:
    """Base 100 ms, 6 attempts, as in Brooker's and everybody's examples."""
    return RetryPolicy(max_attempts=6, backoff=backoff, hint_spread=0.0)


def peer(attempts: int, backoff: Exponential | Fixed) -> RetryPolicy:
    """Others obey a hint to the second, and for longer than we do."""
    return RetryPolicy(
        max_attempts=attempts, backoff=backoff, hint_spread=0.0, max_retry_after=120.0
    )


OURS = RetryPolicy()
ZERO = Fixed(0.0)

CONTENDERS = {
    one.name: one
    for one in (
        Contender("none", "no retry", RetryPolicy.disabled(), bare),
        Contender("immediate", "6 attempts, no wait", textbook(ZERO), bare),
        Contender("fixed", "6 attempts, 100 ms", textbook(Fixed(0.1)), bare),
        Contender(
            "exponential",
            "6 attempts, 100 ms × 2, no jitter",
            textbook(Exponential(0.1, jitter="none")),
            bare,
        ),
        Contender(
            "equal", "the same, equal jitter", textbook(Exponential(0.1, jitter="equal")), bare
        ),
        Contender("full", "the same, full jitter", textbook(Exponential(0.1, jitter="full")), bare),
        Contender(
            "decorrelated",
            "the same, decorrelated",
            textbook(Exponential(0.1, jitter="decorrelated")),
            bare,
        ),
        Contender("urllib3", "Retry(10): 11 attempts, no wait", peer(11, ZERO), bare),
        Contender("httpx-retries", "Retry(): 11 attempts, no wait", peer(11, ZERO), bare),
        Contender(
            "smg",
            "5 attempts, 50 ms × 1.5, ±20 %",
            peer(5, Exponential(0.05, factor=1.5, jitter=0.2)),
            bare,
        ),
        Contender(
            "aws",
            "older SDKs: 3 attempts, 1 s × 2, 5 of 500 tokens",
            peer(3, Exponential(1.0, 20.0)),
            as_older_aws,
        ),
        Contender(
            "aws-standard",
            "AwsStandard(): 50 ms × 2, 14 of 500",
            peer(3, Exponential(0.05, 20.0)),
            as_aws,
        ),
        Contender("forbear-without-budget", "the default policy, budget=None", OURS, bare),
        Contender("forbear", "what a transport does by default", OURS, as_a_transport),
    )
}

# What may be added to a name, as in "full+budget": the strategy that then takes the place of its
# own.
ADDITIONS: dict[str, tuple[str, MakeStrategy]] = {
    "budget": ("a budget of 10 % of the calls, bursts of 10", under_ten_percent),
    "breaker": ("the default budget, and a breaker that opens for a second", with_breaker),
    "cooldown": ("the default budget, and cooldown for first attempts too", with_cooldown),
}


def contender(name: str) -> Contender:
    """Return the contender called so: a name, or a name + an addition.

    Raises:
        ValueError: There is none; the message lists them.
    """
    plain, plus, addition = name.partition("+")
    found = CONTENDERS.get(plain)
    if found is None:
        raise ValueError(f"there is no policy {name!r}; choose among {', '.join(CONTENDERS)}")
    if not plus:
        return found
    if addition not in ADDITIONS:
        known = ", ".join(f"{plain}+{one}" for one in ADDITIONS)
        raise ValueError(f"there is no policy {name!r}; {plain} can be {known}")
    about, strategy = ADDITIONS[addition]
    return Contender(name, f"{found.about}; {about}", found.policy, strategy)


def custom(text: str) -> Contender:
    """Return a contender of one's own: "max_attempts=3 base=1 jitter=decorrelated ratio=0.1",
    "NAME: …" for a name.

    What is left out is as by default; ``budget=none`` turns the budget off.

    Raises:
        ValueError: It cannot be read, or a value is out of its range.
        TypeError: A value is of the wrong type.
    """
    name, colon, settings = text.rpartition(":")
    policy: dict[str, Any] = {}
    schedule: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    places = {
        **dict.fromkeys(("max_attempts", "max_retry_after", "hint_spread"), policy),
        **dict.fromkeys(("base", "cap", "factor", "jitter"), schedule),
        **dict.fromkeys(("ratio", "floor_per_second", "burst", "hinted_cost"), budget),
    }
    has_budget = True
    for word in settings.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if word == "budget=none":
            has_budget = False
        elif not equals or key not in places:
            raise ValueError(
                f"{word!r} is not one of budget=none or {', '.join(f'{one}=…' for one in places)}"
            )
        else:
            places[key][key] = a_value(value)
    if budget and not has_budget:
        raise ValueError(f"budget=none contradicts {', '.join(budget)}")
    rules = RetryPolicy(backoff=Exponential(**schedule), **policy)

    def strategy(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
        return StandardStrategy(
            policy, budget=RetryBudget(**budget) if has_budget else None, random=random
        )

    strategy(rules, float)  # so that a mistake shows now
    return Contender(name.strip() if colon else "custom", settings.strip(), rules, strategy)


def a_value(text: str) -> float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text
