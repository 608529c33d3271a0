"""Log: whether anybody wants to know what happens to the calls of a transport.

The events, their log lines and their listeners are in ``telemetry``, which is loaded with the first
event that the log or a listener wants. Nobody listens by default, and the log shows no more than
warnings, so a call that succeeds after a retry builds none.
"""

from __future__ import annotations

from importlib import import_module
from logging import INFO, WARNING, getLogger
from typing import TYPE_CHECKING, Any

from ..core.call import LATER, UNUSED_HINT
from ..core.outcome import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Call

    # Of an ``Event``, and of a ``CallEnded`` if it has ``wants_calls`` or ``needs_ends``.
    Listener = Callable[[Any], object]

logger = getLogger("forbear")
# Events that are not logged at WARNING, but at INFO or below.
BELOW_WARNING = frozenset({"attempt_failed", "attempt_delayed", "released", "retry_scheduled"})
BELOW_WARNING |= {"succeeded_after_retry"}


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

    def emit(self, kind: object, call: Call, now: float = 0.0, /, **given: object) -> None:
        """Emit an event of a call, by its name or an add-on's class, if it is wanted.

        ``given`` are its fields that the call does not know.
        """
        level = INFO if kind in BELOW_WARNING else WARNING
        if self._listeners or call.listeners or logger.isEnabledFor(level):
            self.log().emit(kind, call, now, **given)

    def failed(self, call: Call, now: float) -> None:
        """An attempt failed; another one follows, unless ``call.stop`` says why not."""
        self.emit("attempt_failed", call, now)
        for kind, given in call.notes.pop(LATER, {}).items():
            self.emit(kind, call, now, **given)
        self.emit("retry_scheduled" if call.stop is None else "gave_up", call, now)
        if call.stop is None and call.origin != call.sent_to:
            self.emit("failover", call, origin=call.sent_to)
        why = call.notes.pop(UNUSED_HINT, None)
        if call.stop is not None and call.stop.reason is Reason.RETRY_AFTER_TOO_LONG:
            why = "over_cap"
        if why and call.policy.hints == "obey":
            self.emit("retry_after_ignored", call, now, origin=call.sent_to, why=why)
