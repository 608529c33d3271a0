"""Own: the user's own limits. Whatever they return or raise costs no call more than its retries.

One that raises while a call begins, is admitted or is observed is left out there, and the call goes
on. One that raises where a retry is planned or taken ends the retries, as a strategy would.
"""

from __future__ import annotations

from inspect import iscoroutinefunction
from math import inf
from typing import TYPE_CHECKING, TypeVar

from ..core.call import PLUGIN, PLUGIN_ERROR, Limit, Plan
from ..core.checks import shown
from ..core.feature_checks import check_made, check_methods
from ..core.outcome import GiveUp, Reason
from ..errors import RetryRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..core.call import Call
    from ..core.outcome import Failure, Refusal

    T = TypeVar("T")

METHODS: dict[str, tuple[str, ...]] = {  # and the arguments of each
    "begin": ("call", "wait", "now"),
    "admit": ("call", "now"),
    "observe": ("call", "failure", "now"),
    "plan": ("call", "failure", "plan", "now", "latest"),
    "take": ("call", "failure", "delay", "now", "until"),
    "leave": ("call", "now"),
    "closed": ("call", "origin", "now"),
}
EXAMPLE = "class Quota(forbear.addons.Limit): ..."


def check(value: Any) -> tuple[Limit, ...]:
    """Check the option ``addons``."""
    if not hasattr(value, "__iter__") or isinstance(value, (str, bytes)):
        raise TypeError(
            f"addons must be a list of objects, got {shown(value)}: write addons=[Quota()]"
        )
    listed = tuple(value)
    for one in listed:
        check_made("addons", one, "[Quota()]")
        if Limit not in type(one).__mro__:
            raise TypeError(
                f"addons must be objects of classes of forbear.addons.Limit, got {shown(one)};"
                f" write {EXAMPLE}"
            )
        check_methods("addons", one, METHODS)
        for method in METHODS:
            if iscoroutinefunction(getattr(one, method)):
                raise TypeError(
                    f"addons must have plain methods, got the coroutine function {method} of"
                    f" {shown(one)}, which nobody would await"
                )
    return listed


def limits(listed: tuple[Limit, ...], random: Callable[[], float]) -> list[Limit]:
    return [OwnLimit(one) for one in listed]


class OwnLimit(Limit):
    """Asks a limit of the user's, and distrusts it."""

    def __init__(self, own: Limit) -> None:
        self.own = own
        self.shared = self

    @property
    def quiet(self) -> bool:
        """The limit's own; False if reading it fails."""
        try:
            return bool(self.own.shared.quiet)
        except Exception:
            return False

    def begin(self, call: Call, wait: float, now: float) -> float:
        try:
            return max(wait, seconds(ask(self.own.begin, call, wait, now)))
        except RetryRefused as refused:
            if not (refused.send or call.is_under_way):
                raise
            call.stop = GiveUp(refused.reason, refused.retry_after)  # it is sent, but not again
        except Exception as error:
            self._failed(call, error)
        return wait

    def admit(self, call: Call, now: float) -> float:
        try:
            return seconds(ask(self.own.admit, call, now))
        except RetryRefused:
            raise
        except Exception as error:
            self._failed(call, error)
            return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        self._guarded(call, self.own.observe, call, failure, now)

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        """Let it lengthen the delay; what the server asked for is not shortened."""

        def plan_of() -> Plan:
            planned = ask(self.own.plan, call, failure, plan, now, latest)
            return planned if seconds(planned.delay) >= plan.delay else plan

        return self._decided(call, plan_of)

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:

        def refusal_of() -> Refusal:
            refusal = ask(self.own.take, call, failure, delay, now, until)
            if refusal is not None and not isinstance(refusal, GiveUp):
                raise TypeError(f"an add-on returned {shown(refusal)}, not None")
            return refusal

        return self._decided(call, refusal_of)

    def leave(self, call: Call, now: float) -> None:
        self._guarded(call, self.own.leave, call, now)

    def closed(self, call: Call, origin: str, now: float) -> float:
        try:
            return seconds(self.own.closed(call, origin, now))
        except Exception as error:
            self._failed(call, error)
            return 0.0

    def _guarded(self, call: Call, method: Callable[..., object], *given: object) -> None:
        try:
            method(*given)
        except Exception as error:
            self._failed(call, error)

    def _decided(self, call: Call, method: Callable[[], T]) -> T:
        try:
            return method()
        except RetryRefused:
            raise
        except Exception as error:
            self._failed(call, error)
            raise RetryRefused(Reason.STRATEGY_FAILED) from None

    def _failed(self, call: Call, error: Exception) -> None:
        call.notes[PLUGIN_ERROR], call.notes[PLUGIN] = error, f"add-on {type(self.own).__name__}"

    def __repr__(self) -> str:
        return repr(self.own)


def ask(method: Callable[..., T], *given: object) -> T:
    """Call a method of the user's.

    Raises:
        RetryRefused: As it has, with a reason and a time that are right.
    """
    try:
        return method(*given)
    except RetryRefused as refused:
        if not isinstance(refused.reason, Reason):
            raise TypeError(f"an add-on gave {shown(refused.reason)}, not a Reason") from None
        if refused.retry_after is not None:
            seconds(refused.retry_after)
        raise


def seconds(returned: object) -> float:
    """Return the seconds that a method of the user's has returned.

    Raises:
        TypeError, ValueError: They are none.
    """
    if isinstance(returned, bool) or not isinstance(returned, (int, float)):
        raise TypeError(f"an add-on returned {shown(returned)}, not seconds")
    if not 0 <= returned < inf:  # NaN too
        raise ValueError(f"an add-on returned {returned!r} s")
    return float(returned)
