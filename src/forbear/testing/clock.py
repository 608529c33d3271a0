"""FakeClock: time that passes only when someone sleeps. Floor: acts."""

from __future__ import annotations

__all__ = ["FakeClock"]


class FakeClock:
    """A clock for ``clock=``: its sleeps return at once, advance it, and are kept.

    Attributes:
        sleeps: Seconds of each sleep, sync and async, in order.

    Args:
        now: Unix seconds at the start; the default is 2026-01-01 00:00:00 UTC.
        monotonic: What ``monotonic()`` starts from. Not 0: an instant that happens to be falsy
            hides mistakes.
    """

    def __init__(self, now: float = 1_767_225_600.0, *, monotonic: float = 1_000.0) -> None:
        self._utc_offset = now
        self._began_at = monotonic
        self._elapsed = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self._began_at + self._elapsed

    def time(self) -> float:
        return self._utc_offset + self._elapsed

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        import anyio

        self.sleep(seconds)
        await (
            anyio.lowlevel.checkpoint()
        )  # others run, and a cancellation arrives, as in a real sleep

    def advance(self, seconds: float) -> None:
        """Let time pass without a sleep.

        Raises:
            ValueError: Time does not go back; to step the wall clock use ``step_utc``.
        """
        if seconds < 0:
            raise ValueError(
                f"time does not go back, got {seconds!r}; step_utc steps the wall clock"
            )
        self._elapsed += seconds

    def step_utc(self, seconds: float) -> None:
        """Step the wall clock only, as an operator or NTP does; monotonic time is not changed."""
        self._utc_offset += seconds

    def __repr__(self) -> str:
        return f"<FakeClock +{self._elapsed:.6g} s, {len(self.sleeps)} sleeps>"
