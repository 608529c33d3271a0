"""Event log: emits to listeners and to the log what happens to calls.

Loaded with the first event that is wanted (engine/settings.py). Nothing secret is emitted: method,
origin, status, class names, durations. A listener that raises is logged once, and costs no
response. An event is a class in events.py, or in its add-on; its level is below.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from logging import DEBUG, ERROR, INFO, WARNING, NullHandler, getLogger
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.outcome import Reason
from ..engine.settings import BELOW_WARNING
from .facts import EVENTS, NUMBERS, event_of, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Call, Listener
    from ..engine.clock import Clock, Waiter
    from ..events import Event
    from ..limits.limits import Limits

logger = getLogger("forbear")
logger.addHandler(NullHandler())  # else warnings go to stderr where no logging is set up
ONLY_DEBUG = ("attempt_failed", "attempt_delayed")
# WARNING: the call could be retried, but a limit is reached. For all other reasons it must not be
# retried, so INFO.
LIMITS = frozenset(
    {Reason.KEY_EXPIRED, Reason.ATTEMPTS_EXHAUSTED, Reason.RETRY_AFTER_TOO_LONG, Reason.DEADLINE}
    | {Reason.STRATEGY_FAILED, Reason.HOOK_FAILED}
)
# During an outage every call to the origin ends with one of these.
REFUSALS = frozenset(
    {Reason.CIRCUIT_OPEN, Reason.ORIGIN_UNHEALTHY, Reason.BUDGET_EXHAUSTED}
    | {Reason.CONCURRENCY_LIMIT}
)
# What is logged at WARNING once a minute for each origin, and at DEBUG in between.
REPEATED = {*REFUSALS, "budget_exhausted", "retry_after_ignored"}
AGAIN_AFTER = 60.0  # seconds
MOST_ORIGINS = 1024  # for which that is remembered; beyond it the memory is cleared
RENAMED = {"name": "event", "error": "error_type", "refused_delay": "wanted_delay"}
# What is only logged: its level, and the text that its fields fill.
LINES = {
    "status_not_retried": (DEBUG, "{method} {origin}: {status} is not retried"),
    "nested_retry": (
        WARNING,
        "an SDK above retries too ({header}): attempts multiply; turn its retries off with {hint}",
    ),
    "hook_failed": (ERROR, "{hook} {did} {error_type}; {then} (logged once)"),
}


class EventLog:
    """The events of one transport, and its gauges. Thread-safe as far as its listeners are.

    Attributes:
        wants_calls: A listener wants every call, also those that succeed at once.
        wants_ends: A listener wants to know when a call is over of which it may have had events.
        limits: What the calls share, for listeners with ``watch`` to read at any moment; like
            ``clock``, and ``waiting``.
    """

    def __init__(self, client: str, listeners: Iterable[Listener]) -> None:
        self.client = client
        self._listeners = tuple(listeners)
        # Read by getattr, and once: listeners are any callables, so most lack these attributes.
        wanting = [one for one in self._listeners if getattr(one, "wants_calls", False)]
        self._counters: list[Any] = [one for one in wanting if hasattr(one, "call_succeeded")]
        self._call_listeners = [one for one in wanting if one not in self._counters]
        self._end_listeners = [
            one for one in self._listeners if one in wanting or getattr(one, "needs_ends", False)
        ]
        self.wants_calls, self.wants_ends = bool(wanting), bool(self._end_listeners)
        self._logged: set[str] = set()  # hooks that raised, headers of outer retry loops
        self._again_at: dict[tuple[str, str], float] = {}  # what is not logged before then
        self._left_out: dict[str, count[int]] = {}  # refusals of an origin since its last line

    def show(self, limits: Limits, sleeper: Waiter | None, clock: Clock) -> None:
        """Pass the gauges to listeners with ``watch``, which keep a weak reference."""
        self.limits, self.clock, self._sleeper = limits, clock, sleeper
        for listener in self._listeners:
            watch = getattr(listener, "watch", None)
            if callable(watch):
                watch(self)

    def waiting(self) -> int:
        """Calls that are waiting before an attempt."""
        return 0 if self._sleeper is None else self._sleeper.waiting()

    def emit(self, kind: str | type[Event], call: Call, now: float, /, **given: object) -> None:
        """Emit an event of a call, by its class or name; ``given`` are fields of it."""
        found = EVENTS[kind] if isinstance(kind, str) else kind
        event: Event = event_of(found, self.client, call, now, given)
        level, what = level_of(event, call), getattr(event, "reason", event.name)
        if what in REPEATED and level > DEBUG and not self._is_due(what, event.origin, now):
            level = DEBUG
            if what in REFUSALS:
                # No int: ``+= 1`` from two threads at once would lose refusals without a lock.
                next(self._left_out.setdefault(event.origin, count()))
        if logger.isEnabledFor(level):
            method, fields = getattr(event, "method", ""), fields_of(event)
            text = f"{method} {event.origin}: {event.sentence()}".lstrip()
            left_out = self._left_out.pop(event.origin, None) if level > DEBUG else None
            if left_out is not None:
                left = fields["forbear.left_out"] = next(left_out)
                text += f"; refused meanwhile, logged at DEBUG: {left:,}"
            logger.log(level, text, extra=fields)
        self._send(event, self._listeners + call.listeners)

    def _is_due(self, what: str, origin: str, now: float) -> bool:
        """Was this not logged in the last minute? Then note that it is logged now."""
        if now < self._again_at.get((what, origin), -inf):
            return False
        if len(self._again_at) >= MOST_ORIGINS:
            self._again_at, self._left_out = {}, {}
        self._again_at[what, origin] = now + AGAIN_AFTER
        return True

    def _send(self, event: object, listeners: Iterable[Listener]) -> None:
        for listener in listeners:
            self._call(listener, listener, event)

    def _call(self, listener: object, function: Callable[..., object], *facts: object) -> None:
        try:
            function(*facts)
        except Exception as error:
            from ..engine.frames import let_signals_through

            let_signals_through(error)
            name = getattr(listener, "__qualname__", type(listener).__name__)
            self.hook_failed(f"on_event {name}", error)

    # The end of a call.

    def succeeded_at_once(self, method: str, origin: str, status: int, elapsed: float) -> None:
        """The first attempt of a call was accepted. Called only if ``wants_calls``."""
        facts = self.client, method, origin, status, elapsed
        for listener in self._counters:
            self._call(listener, listener.call_succeeded, *facts)
        if self._call_listeners:
            from .ends import success

            self._send(success(*facts, next(NUMBERS)), self._call_listeners)

    def ended(self, call: Call, now: float) -> None:
        """A call is over, or the resuming of its body is. Called only if ``wants_ends``."""
        from .ends import ending

        self._send(ending(self.client, call, now), self._end_listeners)

    # What belongs to no single call, or is only logged.

    def line(self, name: str, once: str = "", **fields: object) -> None:
        """Log a line without an event; ``once``: what is logged only once."""
        if once in self._logged:
            return
        self._logged |= {once} - {""}
        level, text = LINES[name]
        named = {"event": name, "client": self.client, **fields}
        if "origin" in fields:
            named["host"] = host_of(str(fields["origin"]))
        extra = {f"forbear.{field}": value for field, value in named.items()}
        logger.log(level, text.format(**fields), extra=extra)

    def hook_failed(
        self, hook: str, error: object, did: str = "raised", *, ends_retries: bool = False
    ) -> None:
        """Log once per hook that a function of the user's failed, and warn.

        Only the warning has the error's text, which may hold secrets: many set up no logging, and a
        schedule that always fails would end their calls without a word.
        """
        kind, text = type(error).__name__, f": {error}" if isinstance(error, Exception) else ""
        then = "the call is not retried" if ends_retries else "the call goes on without it"
        if hook not in self._logged:
            from ..engine.frames import warn

            # Where a filter makes it an error, it must not cost the caller a response.
            with suppress(Exception):
                warn(f"{hook} {did} {kind}{text}; {then}")
        self.line("hook_failed", once=hook, hook=hook, did=did, error_type=kind, then=then)


def level_of(event: Any, call: Call) -> int:
    """Return the level at which an event is logged; one of an add-on may have its own."""
    if hasattr(event, "level"):
        return int(event.level())
    if event.name == "gave_up":
        if call.last_failure is None:  # refused at once: the open circuit was logged before
            return DEBUG
        # With max_attempts=1 no retries are given up.
        is_limit = event.reason in LIMITS and call.most_attempts > 1
        return WARNING if is_limit or event.reason in REFUSALS else INFO
    if event.name in BELOW_WARNING:
        return DEBUG if event.name in ONLY_DEBUG else INFO
    return WARNING


def fields_of(event: Event) -> dict[str, Any]:
    """Return what the log record of an event carries, by name: ``forbear.<field>``."""
    found = {RENAMED.get(name, name): value for name, value in event._asdict().items()}
    found["host"] = host_of(event.origin)
    if event.name == "released":  # of a retry ``held`` is the most that is allowed
        found["held_for"] = found.pop("held")
    return {f"forbear.{name}": getattr(value, "value", value) for name, value in found.items()}
