"""Log: whether anybody wants to know what happens to the calls of a transport.

The events, their log lines and their listeners are in ``telemetry``, which is loaded with the first
event that the log or a listener wants. Nobody listens by default, and the log shows no more than
warnings, so a call that succeeds after a retry builds none.
"""

from __future__ import annotations

from importlib import import_module
from logging import DEBUG, INFO, WARNING, getLogger
from typing import TYPE_CHECKING, Any

from ..core.call import UNUSED_HINT
from ..core.outcome import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Call
    from ..core.outcome import Failure, GiveUp, SendAgain

    # Of an ``Event``, and of a ``CallEnded`` if it has ``wants_calls`` or ``needs_ends``.
    Listener = Callable[[Any], object]

logger = getLogger("forbear")
# Of the rows of the table in telemetry/rows.py that are emitted from elsewhere, if not WARNING.
LEVELS = {
    "attempt_delayed": DEBUG,
    "released": INFO,
    "resume": INFO,
    "succeeded_after_retry": INFO,
}


class Events:
    """The events of one transport, until the first of them is wanted.

    Attributes:
        wants_calls: A listener wants every call, also those that succeed at once.
        wants_ends: A listener wants to know when a call is over of which it may have had events.
    """

    wants_calls = wants_ends = False

    def __init__(self, client: str, listeners: Iterable[Listener]) -> None:
        self._client, self._listeners = client, tuple(listeners)
        self._log: Any = None
        if self._listeners:
            log = self.log()
            self.wants_calls, self.wants_ends = log.wants_calls, log.wants_ends

    def log(self) -> Any:
        """Return what emits the events. Two threads may each make one, and one of them is lost."""
        if self._log is None:
            module = import_module("forbear.telemetry.event_log")
            self._log = module.EventLog(self._client, self._listeners)
        return self._log

    def emit(self, name: str, call: Call, *facts: object) -> None:
        """Emit an event that a row of the table builds from a call and what is given besides."""
        if self._are_wanted(LEVELS.get(name, WARNING), call):
            self.log().emit_by_name(name, call, *facts)

    def _are_wanted(self, level: int, call: Call) -> bool:
        return bool(self._listeners or call.listeners) or logger.isEnabledFor(level)

    def retried(self, call: Call, failure: Failure, verdict: SendAgain, now: float) -> None:
        """An attempt failed, and another one follows."""
        level = INFO if call.origin == call.sent_to else WARNING
        if self._log is not None or self._are_wanted(level, call):
            self.log().retried(call, failure, verdict, now)
        self._check_hint(call, now)

    def gave_up(self, call: Call, failure: Failure, stop: GiveUp, now: float) -> None:
        """An attempt failed, and was the last one."""
        if self._are_wanted(WARNING, call):
            self.log().gave_up(call, failure, stop, now)
        self._check_hint(call, now)

    def refused(self, call: Call, now: float) -> None:
        """An attempt was not sent: the breaker or a cooldown forbids it."""
        if self._are_wanted(WARNING, call):
            self.log().refused(call, now)

    def _check_hint(self, call: Call, now: float) -> None:
        """Emit if the failed response had a Retry-After that did not set the delay."""
        why = call.notes.pop(UNUSED_HINT, None)
        if call.stop is not None and call.stop.reason is Reason.RETRY_AFTER_TOO_LONG:
            why = "over_cap"
        if why and call.policy.hints == "obey" and self._are_wanted(WARNING, call):
            self.log().hint_ignored(call, why, now)
