"""Own: the user's own limits. Whatever they return or raise costs no call more than its retries.

One that raises while a call begins, is admitted or is observed is left out there, and the call goes
on. One that raises where a retry is planned or taken ends the retries, as a strategy would.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction, signature
from math import inf
from typing import TYPE_CHECKING, TypeVar

from ..core.call import PLUGIN, PLUGIN_ERROR, Limit, Plan
from ..core.checks import shown
from ..core.feature_checks import check_made, check_methods
from ..core.outcome import GiveUp, Reason
from ..errors import RetryRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeGuard

    from ..core.call import Call
    from ..core.outcome import Failure, Refusal

    T = TypeVar("T")

NAMES = "begin", "admit", "observe", "plan", "take", "leave", "closed"
METHODS = {name: tuple(signature(getattr(Limit, name)).parameters)[1:] for name in NAMES}


def check(value: object) -> tuple[Limit, ...]:
    """Check the option ``addons``."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(
            f"addons must be a list of objects, got {shown(value)}: write addons=[Quota()]"
        )
    listed = tuple(value)
    for one in listed:
        check_made("addons", one, "[Quota()]")
        if Limit not in type(one).__mro__:
            raise TypeError(
                f"addons must be objects of classes of forbear.addons.Limit, got {shown(one)};"
                " write class Quota(forbear.addons.Limit): ..."
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
        """The limit's own; False if reading it fails, so that each call asks it."""
        try:
            return bool(self.own.shared.quiet)
        except Exception:
            return False

    def begin(self, call: Call, wait: float, now: float) -> float:
        try:
            return max(wait, self._ask(call, seconds, 0.0, self.own.begin, call, wait, now))
        except RetryRefused as refused:
            if not (refused.send or call.is_under_way):
                raise
            call.stop = GiveUp(refused.reason, refused.retry_after)  # it is sent, but not again
            return wait

    def admit(self, call: Call, now: float) -> float:
        return self._ask(call, seconds, 0.0, self.own.admit, call, now)

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        self._ask(call, anything, None, self.own.observe, call, failure, now)

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        """Let it lengthen the delay; what the server asked for is not shortened."""
        planned = self._ask(call, a_plan, None, self.own.plan, call, failure, plan, now, latest)
        if planned is None:
            raise RetryRefused(Reason.STRATEGY_FAILED)
        return planned if planned.delay >= plan.delay else plan

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:
        failed: Refusal = GiveUp(Reason.STRATEGY_FAILED)
        return self._ask(call, a_refusal, failed, self.own.take, call, failure, delay, now, until)

    def leave(self, call: Call, now: float) -> None:
        self._ask(call, anything, None, self.own.leave, call, now)

    def closed(self, call: Call, origin: str, now: float) -> float:
        return self._ask(call, seconds, 0.0, self.own.closed, call, origin, now)

    def _ask(
        self, call: Call, check: Callable[[object], T], otherwise: T,
        method: Callable[..., object], *given: object,
    ) -> T:  # fmt: skip
        """Call a method of the user's; return ``otherwise`` if it raises, or returns nonsense.

        Raises:
            RetryRefused: As it has, with a reason and a time that are right.
        """
        error: Exception
        try:
            return check(method(*given))
        except RetryRefused as refused:
            time = refused.retry_after
            if isinstance(refused.reason, Reason) and (time is None or is_time(time)):
                raise
            error = TypeError(f"an add-on gave {shown(refused.reason)} and {shown(time)} s")
        except Exception as raised:
            error = raised
        call.notes[PLUGIN_ERROR], call.notes[PLUGIN] = error, f"add-on {type(self.own).__name__}"
        return otherwise

    def __repr__(self) -> str:
        return repr(self.own)


# What the user's methods may return.


def anything(returned: object) -> None: ...


def is_time(value: object) -> TypeGuard[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < inf  # type: ignore[operator]  # NaN is none


def seconds(returned: object) -> float:
    if is_time(returned):
        return float(returned)
    raise TypeError(f"an add-on returned {shown(returned)}, not seconds")


def a_plan(returned: Any) -> Plan:
    seconds(returned.delay)
    planned: Plan = returned
    return planned


def a_refusal(returned: object) -> Refusal:
    if returned is not None and not isinstance(returned, GiveUp):
        raise TypeError(f"an add-on returned {shown(returned)}, not None")
    return returned
