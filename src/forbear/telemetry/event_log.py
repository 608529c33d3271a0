"""Event log: emits to listeners and to the log what happens to calls.

Loaded with the first event that is wanted (engine/log.py). Nothing secret is emitted: method,
origin, status, class names, durations. A listener that raises is logged once, and costs no
response. What is emitted, and at which level, is in the table of rows.py. ``Gauges`` exposes the
shared state of a transport, to be read at any moment.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from logging import DEBUG, INFO, NullHandler, getLogger
from math import inf
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..core.call import LATER
from ..core.outcome import Reason
from ..engine.frames import let_signals_through, warn
from ..limits import Locked
from ..limits.limits import Limits
from . import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.call import Call
    from ..core.outcome import Failure, GiveUp, SendAgain
    from ..engine.clock import Clock, Waiter
    from ..engine.log import Listener
    from .events import AnyEvent, GaveUp
    from .rows import E, Line, P, Row

logger = getLogger("forbear")
logger.addHandler(NullHandler())  # else warnings go to stderr where no logging is set up
# Seconds until a refusal, an exhausted budget or an unusable header of an origin is logged again.
AGAIN_AFTER = 60.0
MOST_ORIGINS = 1024  # for which that is remembered; beyond it the memory is cleared


class Gauges:
    """The shared state of one transport, for listeners with ``watch`` to read at any moment."""

    __slots__ = ("__weakref__", "client", "clock", "limits", "sleeper")

    def __init__(self, client: str, limits: Limits, sleeper: Waiter | None, clock: Clock) -> None:
        self.client = client
        self.limits = limits
        self.sleeper = sleeper
        self.clock = clock

    def waiting(self) -> int:
        """Calls that are waiting before an attempt."""
        return 0 if self.sleeper is None else self.sleeper.waiting()


@runtime_checkable
class Counter(Protocol):
    """A listener that has its own method for calls that succeed at once."""

    def call_succeeded(
        self, client: str, method: str, origin: str, status: int, elapsed: float
    ) -> object: ...


class EventLog(Locked):
    """The events of one transport. Thread-safe as far as its listeners are.

    Attributes:
        wants_calls: A listener wants every call, also those that succeed at once.
        wants_ends: A listener wants to know when a call is over of which it may have had events.
    """

    def __init__(self, client: str, listeners: Iterable[Listener]) -> None:
        self.client = client
        self._listeners = tuple(listeners)
        # Read by getattr, and once: listeners are any callables, so most lack these attributes.
        wanting = [one for one in self._listeners if getattr(one, "wants_calls", False)]
        self._end_listeners = tuple(
            one for one in self._listeners if one in wanting or getattr(one, "needs_ends", False)
        )
        objects: list[object] = [*wanting]
        self._counters = tuple(one for one in objects if isinstance(one, Counter))
        self._call_listeners = tuple(one for one in wanting if not isinstance(one, Counter))
        self.wants_calls = bool(wanting)
        self.wants_ends = bool(self._end_listeners)
        super().__init__()
        self.after_fork()

    def after_fork(self) -> None:
        """Begin anew: a thread of the parent may have been changing these during the fork."""
        super().after_fork()
        self._logged: set[str] = set()  # hooks that raised, headers of outer retry loops
        self._again_at: dict[tuple[str, str], float] = {}  # what is not logged before then
        self._left_out: dict[str, count[int]] = {}  # refusals of an origin since its last line

    def show(self, limits: Limits, sleeper: Waiter | None, clock: Clock) -> None:
        """Pass the gauges to listeners with ``watch``, which keep a weak reference."""
        self._gauges = Gauges(self.client, limits, sleeper, clock)
        for listener in self._listeners:
            watch = getattr(listener, "watch", None)
            if callable(watch):
                watch(self._gauges)

    def emit(
        self, row: Row[P, E], more: tuple[Listener, ...], *facts: P.args, **named: P.kwargs
    ) -> None:
        """Emit an event, built from ``facts``, unless neither the log nor a listener wants it.

        Args:
            row: Of the table in events.py.
            more: Listeners to the event's call, in addition to the transport's own.
            facts: What ``row.build`` takes after the client.
            named: The same by name.
        """
        if not (self._listeners or more or logger.isEnabledFor(row.level)):
            return
        event = row.build(self.client, *facts, **named)
        level = row.level if row.level_of is None else row.level_of(event)
        if logger.isEnabledFor(level):
            text, fields = row.sentence(event), row.fields(event)
            if row.counts_refusals and level > DEBUG:
                counter = self._left_out.pop(event.origin, None)
                if counter is not None:
                    left = fields["forbear.left_out"] = next(counter)
                    text += f"; refused meanwhile, logged at DEBUG: {left:,}"
            logger.log(level, text, extra=fields)
        self._send(event, self._listeners + more)

    def emit_by_name(self, name: str, call: Call, *facts: object) -> None:
        """Emit an event of a call, by the name of its row."""
        self.emit(rows.TABLE[name], call.listeners, call, *facts)

    def _send(self, event: AnyEvent, listeners: tuple[Listener, ...]) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:
                self._listener_failed(listener, error)

    # A failed attempt, and what follows it.

    def retried(self, call: Call, failure: Failure, verdict: SendAgain, now: float) -> None:
        """An attempt failed, and another one follows."""
        more = call.listeners
        self.emit(rows.ATTEMPT_FAILED, more, call, failure)
        self.emit(rows.RETRY_SCHEDULED, more, call, failure, verdict, now)
        if call.origin != call.sent_to:
            self.emit(rows.FAILOVER, more, call, call.sent_to, failure)

    def gave_up(self, call: Call, failure: Failure, stop: GiveUp, now: float) -> None:
        """An attempt failed, and was the last one."""
        row = self._end(call, now)
        self.emit(rows.ATTEMPT_FAILED, call.listeners, call, failure)
        name, scope, facts = call.notes.pop(LATER, (None, "", ()))
        if name is not None and self._is_due(name, scope, now):
            self.emit_by_name(name, call, *facts)
        self.emit(row, call.listeners, call, now)

    def refused(self, call: Call, now: float) -> None:
        """An attempt was not sent: the breaker or a cooldown forbids it."""
        self.emit(self._end(call, now), call.listeners, call, now)

    def _end(self, call: Call, now: float) -> Row[[Call, float], GaveUp]:
        """The row of the end of a call without a further attempt, with the level of its reason."""
        stop, origin = call.stop, call.request.origin
        assert stop is not None
        if call.last_failure is None:  # refused at once: the open circuit was logged before
            return rows.GAVE_UP_AT[DEBUG]
        if stop.reason not in rows.REFUSALS:  # with max_attempts=1 no retries are given up
            is_limit = stop.reason in rows.LIMITS and call.most_attempts > 1
            return rows.GAVE_UP if is_limit else rows.GAVE_UP_AT[INFO]
        if self._is_due(stop.reason, origin, now):
            return rows.GAVE_UP
        # A count, not an int: ``+= 1`` from two threads at once would lose refusals without a lock.
        next(self._left_out.setdefault(origin, count()))
        return rows.GAVE_UP_AT[DEBUG]

    def hint_ignored(self, call: Call, why: str, now: float) -> None:
        """The failed response had a Retry-After that did not set the delay."""
        if self._is_due(rows.RETRY_AFTER_IGNORED.name, call.sent_to, now):
            self.emit(rows.RETRY_AFTER_IGNORED, call.listeners, call.sent_to, why)

    def _is_due(self, name: str, origin: str, now: float) -> bool:
        """Was this not logged in the last minute? Then note that it is logged now."""
        if now < self._again_at.get((name, origin), -inf):
            return False
        if len(self._again_at) >= MOST_ORIGINS:
            self._again_at, self._left_out = {}, {}
        self._again_at[name, origin] = now + AGAIN_AFTER
        return True

    # The end of a call.

    def succeeded_at_once(self, method: str, origin: str, status: int, elapsed: float) -> None:
        """The first attempt of a call was accepted. Called only if ``wants_calls``."""
        for listener in self._counters:
            try:
                listener.call_succeeded(self.client, method, origin, status, elapsed)
            except Exception as error:
                self._listener_failed(listener, error)
        if self._call_listeners:
            ended = rows.success(self.client, method, origin, status, elapsed)
            self._send(ended._replace(request_id=next(rows.NUMBERS)), self._call_listeners)

    def ended(self, call: Call, now: float) -> None:
        """A call is over, or the resuming of its body is. Called only if ``wants_ends``."""
        self._send(rows.CALL_ENDED.build(self.client, call, now), self._end_listeners)

    # What belongs to no single call, or is only logged.

    def not_retried(self, method: str, origin: str, status: int) -> None:
        """Log that a status of 400 or above was accepted. No event: nothing was given up."""
        fields = {
            "method": method, "origin": origin, "host": rows.host_of(origin), "status": status,
            "reason": Reason.STATUS_NOT_RETRIED.value,
        }  # fmt: skip
        self._log(rows.STATUS_NOT_RETRIED, (method, origin, status), fields)

    def nested(self, header: str, switch: str) -> None:
        """An SDK that wraps this client retries too. Logged once per client."""
        fields = {"header": header, "hint": switch}
        self._log(rows.NESTED_RETRY, (header, switch), fields, once=header)

    def hook_failed(
        self, hook: str, error: object, did: str = "raised", *, ends_retries: bool = False
    ) -> None:
        """Log once per hook that a function of the user's failed, and warn.

        Only the warning has the error's text, which may hold secrets: many set up no logging, and a
        schedule that always fails would end their calls without a word.
        """
        kind, place, text = type(error).__name__, "", ""
        if isinstance(error, Exception):
            name, text = raised_in(error), f": {error}"
            place = f" in {name}" if name and not hook.endswith(name) else ""
        then = "the call is not retried" if ends_retries else "the call goes on without it"
        if hook + place not in self._logged:
            # Where a filter makes it an error, it must not cost the caller a response.
            with suppress(Exception):
                warn(f"{hook} {did} {kind}{place}{text}; {then}")
        values = hook, did, kind + place if ends_retries else kind, then
        self._log(rows.HOOK_FAILED, values, {"hook": hook}, once=hook + place)

    def _log(
        self, line: Line, values: tuple[object, ...], fields: Mapping[str, object], once: str = ""
    ) -> None:
        if once not in self._logged:
            self._logged |= {once} - {""}
            named = {"event": line.name, "client": self.client, **fields}
            extra = {f"forbear.{name}": value for name, value in named.items()}
            logger.log(line.level, line.text, *values, extra=extra)

    def _listener_failed(self, listener: object, error: Exception) -> None:
        let_signals_through(error)
        name = getattr(listener, "__qualname__", type(listener).__name__)
        self.hook_failed(f"on_event {name}", error)


def raised_in(error: Exception) -> str:
    """Return the name of the function outside forbear that an error came through first, if any."""
    place = error.__traceback__
    while place is not None:
        frame, place = place.tb_frame, place.tb_next
        if not frame.f_globals.get("__name__", "").startswith("forbear."):
            return frame.f_code.co_qualname
    return ""
