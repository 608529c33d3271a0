"""Contenders: who retries in a simulation: policies by name.

Each is a ``RetryPolicy`` and the strategy that one client process makes of it. The schedules of
other libraries are written as forbear's objects: their waits and attempts, not their handling of
bodies and hints. All retry 503, which urllib3 does only if configured to.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from forbear.addons.aws import AwsStandard
from forbear.addons.breaker import CircuitBreaker
from forbear.addons.budget import RetryBudget
from forbear.addons.concurrency import ConcurrencyLimit
from forbear.addons.pacing import Pacing
from forbear.core.backoff import Exponential, Fixed
from forbear.core.policy import DEFAULT_BACKOFF, RetryPolicy
from forbear.engine.settings import limits_of
from forbear.limits.gate import RetryGate
from forbear.limits.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, TypeAlias

    MakeLimits: TypeAlias = Callable[[Callable[[], float]], Limits]


class Contender(NamedTuple):
    """A policy that takes part.

    Attributes:
        limits: Makes what the calls of one client process share, from a function like
            ``random.random``.
        counts_attempts: The limits count them, and not the policy.
    """

    name: str
    about: str
    policy: RetryPolicy
    limits: MakeLimits
    counts_attempts: bool = False


def made(
    gate: bool = False,
    budget: Callable[[], RetryBudget] | None = None,
    breaker: Callable[[], CircuitBreaker] | None = None,
    slots: Callable[[], ConcurrencyLimit] | None = None,
    pacing: Callable[[], Pacing] | None = None,
) -> MakeLimits:
    """Make limits of these parts, each process with its own."""

    def limits(random: Callable[[], float]) -> Limits:
        return limits_of(
            gate=RetryGate() if gate else None,
            budget=None if budget is None else budget(),
            breaker=None if breaker is None else breaker(),
            concurrency=None if slots is None else slots(),
            pacing=None if pacing is None else pacing(),
            random=random,
        )

    return limits


def as_aws(random: Callable[[], float]) -> Limits:
    return limits_of(strategy=AwsStandard(random=random), random=random)


def textbook(jitter: Literal["none", "full"]) -> RetryPolicy:
    """Base 100 ms, 6 attempts, as in Brooker's and everybody's examples."""
    return peer(6, Exponential(0.1, jitter=jitter))


def peer(attempts: int, backoff: Exponential | Fixed) -> RetryPolicy:
    """Other libraries obey a hint to the second, and a longer one than forbear does."""
    return RetryPolicy(
        max_attempts=attempts, backoff=backoff, hint_spread=0.0, max_retry_after=120.0
    )


def patient(seconds: float) -> Contender:
    policy = RetryPolicy(patience=seconds)
    return Contender(f"forbear-{seconds:g}", f"forbear with patience {seconds:g}", policy, GATED)


BARE, GATED = made(), made(gate=True)
ALL = (
    Contender("none", "no retry", RetryPolicy.disabled(), BARE),
    Contender("exponential", "6 attempts, 100 ms × 2, no jitter", textbook("none"), BARE),
    Contender("full", "the same, full jitter", textbook("full"), BARE),
    Contender("urllib3", "Retry(10): 11 attempts, no wait", peer(11, Fixed(0.0)), BARE),
    Contender("httpx-retries", "4 attempts, full jitter from 0.5 s", peer(4, Exponential()), BARE),
    Contender("aws-standard", "AwsStandard(): 3, 50 ms × 2", RetryPolicy(), as_aws, True),
    Contender("plain", "forbear's schedule without a gate (gate=None)", RetryPolicy(), BARE),
    Contender("budget", "no gate, but RetryBudget()", RetryPolicy(), made(budget=RetryBudget)),
    patient(0.0),
    patient(5.0),
    patient(20.0),
    Contender("forbear", "what a transport does by default", RetryPolicy(), GATED),
)
CONTENDERS = {one.name: one for one in ALL}

# What may be added to a name, as in "full+budget".
ADDITIONS = {
    "budget": "a budget of 10 % of the calls, bursts of 10",
    "breaker": "CircuitBreaker()",
    "slots": "ConcurrencyLimit()",
    "pacing": "Pacing()",
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
    parts: dict[str, Any] = {
        "breaker": CircuitBreaker,
        "budget": a_tenth,
        "slots": partial(ConcurrencyLimit, scope="origin"),
        "pacing": partial(Pacing, scope="origin"),
    }
    limits = made(found.limits is GATED, **{addition: parts[addition]})
    about = f"{found.about}; {ADDITIONS[addition]}"
    return Contender(name, about, found.policy, limits)


def a_tenth() -> RetryBudget:
    return RetryBudget(ratio=0.1, floor_per_second=0.0, burst=10)


POLICY = ("max_attempts", "max_retry_after", "hint_spread", "patience")
SCHEDULE = ("base", "cap", "factor", "jitter")
BUDGET = ("ratio", "floor_per_second", "burst", "hinted_cost")


def custom(text: str) -> Contender:
    """Return a user's own contender: "max_attempts=3 base=1 patience=5", "NAME: …" for a name.

    A setting that is left out is as by default; ``gate=none`` turns the gate off, and any of the
    budget's adds a budget.

    Raises:
        ValueError: It cannot be read, or a value is out of its range.
        TypeError: A value is of the wrong type.
    """
    name, colon, words = text.rpartition(":")
    given = settings(words, (*POLICY, *SCHEDULE, *BUDGET, "gate"))
    schedule = {key: value for key, value in given.items() if key in SCHEDULE}
    fields = {key: value for key, value in given.items() if key in POLICY}
    numbers = {key: value for key, value in given.items() if key in BUDGET}
    if given.get("gate") is not None:
        raise ValueError("gate=none is the only value of gate; it turns the gate off")
    default = {name: getattr(DEFAULT_BACKOFF, name) for name in (*SCHEDULE, "fast_first")}
    policy = RetryPolicy(backoff=Exponential(**default | schedule), **fields)
    budget = partial(RetryBudget, **numbers) if numbers else None
    limits = made("gate" not in given, budget)
    limits(float)  # so that a mistake shows now
    return Contender(name.strip() if colon else "custom", words.strip(), policy, limits)


def settings(text: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Read "base=1 jitter=full": numbers, "true", "false", and "none" as None except for jitter.

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
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text
