"""Backoff: how long the client itself would wait before attempt n + 1.

Pure arithmetic, which knows nothing of hints, deadlines or budgets (see decide.py). Full, equal and
decorrelated jitter follow Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
All durations are seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .checks import check_duration, check_number, frozen, shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

# A delay is random in [a·d, (a + b)·d]: a and b by jitter.
SHARES = {"full": (0.0, 1.0), "equal": (0.5, 0.5), "decorrelated": (0, 0), "none": (1.0, 0.0)}


class Backoff(Protocol):
    """A schedule: one method, pure, called with no lock held and from any thread."""

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        """Return the seconds to wait after attempt number ``attempt`` failed.

        Args:
            attempt: The attempt that failed; 1 is the first one.
            previous: Seconds that this call's schedule returned last; 0.0 before the first.
            random: Like ``random.random``; the only randomness a schedule may use.
        """
        ...


@frozen()
class Exponential:
    """``base × factor**(n - 1)`` seconds after attempt n, at most ``cap``, made random by jitter.

    Immutable, so safe to share between threads.

    Args:
        base: Seconds before the first retry, before jitter; at least 0.
        cap: No wait is longer; seconds, at least ``base``.
        factor: Growth from one wait to the next; at least 1.
        jitter: Where the delay is random: "full" in [0, d], "equal" in [d/2, d], "decorrelated" in
            [base, 3 × previous], a float f in [0, 1] in [d - f·d, d + f·d]; "none": it is d.
        fast_first: Longest delay, in seconds, of one fast first retry that a call may have before
            the schedule begins: after any failure but a timeout (408 and 504 too) and a response
            that names a time, while the server is healthy. 0: at once; None: no such retry.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    base: float = 0.5
    cap: float = 30.0
    factor: float = 2.0
    jitter: Literal["full", "equal", "decorrelated", "none"] | float = "full"
    fast_first: float | None = None

    def __post_init__(self) -> None:
        base, cap, jitter = self.base, self.cap, self.jitter
        check_duration("base", base)
        check_duration("cap", cap)
        if cap < base:
            raise ValueError(f"cap must be at least base ({shown(base)}), got {shown(cap)}")
        check_number("factor", self.factor, 1, "; use 1 for waits that do not grow")
        if not isinstance(jitter, str):
            check_number("jitter", jitter)
            if not 0 <= jitter <= 1:
                raise ValueError(
                    f"jitter as a number must be in [0, 1], got {shown(jitter)}; 0.2 means ±20 %"
                )
        elif jitter not in SHARES:
            names = ", ".join(SHARES)
            raise ValueError(f"jitter must be one of {names} or a float, got {jitter!r}")
        check_duration("fast_first", self.fast_first, none="no fast first retry")

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        base, cap, jitter = self.base, self.cap, self.jitter
        if jitter == "decorrelated":
            return min(base + random() * (max(previous, base) * 3 - base), cap)
        try:
            full = min(base * self.factor ** (attempt - 1), cap)
        except OverflowError:  # saturates: attempt 10,000 waits cap
            full = cap if base else 0.0
        if jitter == "none":
            return full
        least, span = SHARES[jitter] if isinstance(jitter, str) else (1 - jitter, 2 * jitter)
        return min(full * (least + span * random()), cap)


@frozen()
class Fixed:
    """The same wait every time. Immutable, so safe to share between threads.

    Args:
        seconds: At least 0. Without jitter many clients retry in step, so prefer ``Exponential``
            for anything that more than one process calls.

    Raises:
        ValueError: ``seconds`` is out of its range.
        TypeError: It is not a number.
    """

    seconds: float

    def __post_init__(self) -> None:
        check_duration("seconds", self.seconds)

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        return self.seconds


def with_spread(asked: float, share: float, latest: float) -> float:
    """The delay that a server asked for, with a random share on top, cut to what is left."""
    delay = asked + share * max(asked, 1.0)
    return delay if delay <= latest or asked > latest else latest
