"""Contenders: who retries in a simulation: policies by name. Floor: acts.

Each is a ``RetryPolicy`` and the strategy that one client process makes of it. The schedules of
other libraries are written as forbear's objects: their waits and attempts, not their handling of
bodies and hints. All retry 503, which urllib3 does only when told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...core.backoff import Exponential, Fixed
from ...core.policy import RetryPolicy
from ...shared.aws import AwsStandard, TokenBucket
from ...shared.breaker import CircuitBreaker
from ...shared.budget import RetryBudget
from ...shared.standard import StandardStrategy

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, TypeAlias

    from ...core.strategy import RetryStrategy

    Jitter: TypeAlias = Literal["none", "equal", "full", "decorrelated"]
    MakeStrategy: TypeAlias = Callable[[RetryPolicy, Callable[[], float]], RetryStrategy]

__all__ = ["ADDITIONS", "CONTENDERS", "Contender", "contender", "custom", "settings"]


class Contender(NamedTuple):
    """A policy that takes part.

    Attributes:
        strategy: Makes the strategy of one client process from the policy and a function like
            ``random.random``.
        breaker: Makes the breaker of one client process; None: it has none.
    """

    name: str
    about: str
    policy: RetryPolicy
    strategy: MakeStrategy
    breaker: Callable[[], CircuitBreaker] | None = None


def bare(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    return StandardStrategy(policy, random=random)


def budgeted(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    return StandardStrategy(policy, budget=RetryBudget(), random=random)


def under_ten_percent(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    budget = RetryBudget(ratio=0.1, floor_per_second=0.0, burst=10)
    return StandardStrategy(policy, budget=budget, random=random)


def as_aws(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    return AwsStandard(random=random)


def as_older_aws(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
    bucket, waits = TokenBucket(500, cost=5, throttling_cost=5), policy.backoff
    return AwsStandard(bucket=bucket, backoff=waits, throttle_backoff=waits, random=random)


def open_for_a_second() -> CircuitBreaker:
    """A second open is enough in worlds whose troubles last less than five."""
    return CircuitBreaker(open_for=1.0)


def textbook(backoff: Exponential | Fixed) -> RetryPolicy:
    """Base 100 ms, 6 attempts, as in Brooker's and everybody's examples."""
    return RetryPolicy(max_attempts=6, backoff=backoff, hint_spread=0.0)


def peer(attempts: int, backoff: Exponential | Fixed) -> RetryPolicy:
    """Other libraries obey a hint to the second, and a longer one than forbear does."""
    return textbook(backoff).replace(max_attempts=attempts, max_retry_after=120.0)


def doubled(jitter: Jitter) -> RetryPolicy:
    return textbook(Exponential(0.1, jitter=jitter))


GATEWAY = Exponential(0.05, factor=1.5, jitter=0.2)
AWS_TODAY, AWS_BEFORE = Exponential(0.05, 20.0), Exponential(1.0, 20.0)
ALL = (
    Contender("none", "no retry", RetryPolicy.disabled(), bare),
    Contender("immediate", "6 attempts, no wait", textbook(Fixed(0.0)), bare),
    Contender("fixed", "6 attempts, 100 ms", textbook(Fixed(0.1)), bare),
    Contender("exponential", "6 attempts, 100 ms × 2, no jitter", doubled("none"), bare),
    Contender("equal", "the same, equal jitter", doubled("equal"), bare),
    Contender("full", "the same, full jitter", doubled("full"), bare),
    Contender("decorrelated", "the same, decorrelated", doubled("decorrelated"), bare),
    Contender("urllib3", "Retry(10): 11 attempts, no wait", peer(11, Fixed(0.0)), bare),
    Contender("httpx-retries", "Retry(): 11 attempts, no wait", peer(11, Fixed(0.0)), bare),
    Contender("smg", "5 attempts, 50 ms × 1.5, ±20 %", peer(5, GATEWAY), bare),
    Contender("aws", "older SDKs: 3 attempts, 1 s × 2", peer(3, AWS_BEFORE), as_older_aws),
    Contender("aws-standard", "AwsStandard(): 3, 50 ms × 2", peer(3, AWS_TODAY), as_aws),
    Contender("forbear-without-budget", "the default policy, budget=None", RetryPolicy(), bare),
    Contender("forbear", "what a transport does by default", RetryPolicy(), budgeted),
)
CONTENDERS = {one.name: one for one in ALL}

# What may be added to a name, as in "full+budget", with the strategy that replaces its own.
ADDITIONS: dict[str, tuple[str, MakeStrategy]] = {
    "budget": ("a budget of 10 % of the calls, bursts of 10", under_ten_percent),
    "breaker": ("the default budget, and a breaker that opens for a second", budgeted),
}


def contender(name: str) -> Contender:
    """Return the contender with this name, or name + addition.

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
    breaker = open_for_a_second if addition == "breaker" else None
    return Contender(name, f"{found.about}; {about}", found.policy, strategy, breaker)


POLICY = ("max_attempts", "max_retry_after", "hint_spread")
SCHEDULE = ("base", "cap", "factor", "jitter")
BUDGET = ("ratio", "floor_per_second", "burst", "hinted_cost")


def custom(text: str) -> Contender:
    """Return a user's own contender: "max_attempts=3 base=1 ratio=0.1", "NAME: …" for a name.

    A setting that is left out is as by default; ``budget=none`` turns the budget off.

    Raises:
        ValueError: It cannot be read, or a value is out of its range.
        TypeError: A value is of the wrong type.
    """
    name, colon, words = text.rpartition(":")
    given = settings(words, (*POLICY, *SCHEDULE, *BUDGET, "budget"))
    schedule = {key: value for key, value in given.items() if key in SCHEDULE}
    fields = {key: value for key, value in given.items() if key in POLICY}
    numbers = {key: value for key, value in given.items() if key in BUDGET}
    has_budget = "budget" not in given
    if not has_budget and (given["budget"] is not None or numbers):
        raise ValueError(
            "budget=none is the only value of budget, and leaves no other budget field"
        )
    policy = RetryPolicy(backoff=Exponential(**schedule), **fields)

    def strategy(policy: RetryPolicy, random: Callable[[], float]) -> RetryStrategy:
        budget = RetryBudget(**numbers) if has_budget else None
        return StandardStrategy(policy, budget=budget, random=random)

    strategy(policy, float)  # so that a mistake shows now
    return Contender(name.strip() if colon else "custom", words.strip(), policy, strategy)


def settings(text: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Read "base=1 jitter=full"; numbers become numbers, "none" None except for jitter.

    Raises:
        ValueError: A word is no setting, or its name is not among ``names``.
    """
    found: dict[str, Any] = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not equals or name not in names:
            raise ValueError(f"{word!r} is not one of {', '.join(f'{one}=…' for one in names)}")
        is_none = value == "none" and name != "jitter"
        found[name] = None if is_none else number_or_text(value)
    return found


def number_or_text(text: str) -> float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text
