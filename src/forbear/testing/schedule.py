"""assert_schedule(): the waits of a policy are as expected."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from ..core.policy import RetryPolicy
from ..core.policy_check import extremes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.strategy import Backoff

SLACK = 1e-9  # relative; of sums of binary fractions


def assert_schedule(policy: RetryPolicy, waits: Sequence[tuple[float, float]]) -> None:
    """Fail unless each wait of the policy's ``backoff``, with any jitter, is within its bounds.

    ``assert_schedule(policy, [(0, 0.5), (0, 1)])``: two retries, at most half a second and a second
    after the attempt before. A decorrelated wait depends on the one before, so every length of that
    is tried. For the schedule after throttling pass
    ``policy.replace(backoff=policy.throttle_backoff)``; server hints and deadlines are not part of
    it.

    Args:
        policy: Whose schedule it is.
        waits: For each retry the least and the longest wait in seconds; wider than need be is fine.

    Raises:
        AssertionError: A wait can be shorter or longer, or there are more or fewer retries; the
            message shows all.
        TypeError: ``policy`` is not a RetryPolicy, or ``waits`` are not pairs of numbers.
        ValueError: Of a pair the first is more than the second.
    """
    if not isinstance(policy, RetryPolicy):
        raise TypeError(f"policy must be a RetryPolicy, got {type(policy).__name__}")
    bounds = [checked(number, pair) for number, pair in enumerate(waits, start=1)]
    found = spans(policy.backoff, policy.max_attempts - 1)
    if len(found) == len(bounds) and all(map(is_within, found, bounds)):
        return
    message = f"the schedule of {policy.backoff!r} with max_attempts={policy.max_attempts}"
    message += " is another one:"
    for number, (span, bound) in enumerate(zip_longest(found, bounds), start=1):
        made = "is not made" if span is None else f"waits {shown(span)}"
        message += f"\n  retry {number}: {made}"
        if bound is None:
            message += ", not expected"
        elif span is None or not is_within(span, bound):
            message += f", expected {shown(bound)}"
    raise AssertionError(message)


def checked(number: int, pair: tuple[float, float]) -> tuple[float, float]:
    try:
        least, longest = pair
        if least <= longest:
            return least, longest
    except (TypeError, ValueError):
        raise TypeError(
            f"wait {number} must be a pair of seconds such as (0, 0.5), got {pair!r}"
        ) from None
    raise ValueError(f"wait {number} must be (least, longest), got {pair!r}")


def spans(backoff: Backoff, retries: int) -> list[tuple[float, float]]:
    """The shortest and the longest wait before each retry."""
    found = [(0.0, 0.0)]
    for attempt in range(1, retries + 1):
        found.append(extremes(backoff, attempt, *found[-1]))
    return found[1:]


def is_within(span: tuple[float, float], bounds: tuple[float, float]) -> bool:
    slack = SLACK * max(1.0, span[1])
    return bounds[0] - slack <= span[0] and span[1] <= bounds[1] + slack


def shown(span: tuple[float, float]) -> str:
    least, longest = (f"{seconds:.6g}" for seconds in span)
    return f"{least} s" if least == longest else f"{least} to {longest} s"
