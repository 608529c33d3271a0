"""Settings: the defaults of all options, and what a transport makes of its own.

Each option is explained in addons/options.py. One that is an add-on's is checked by the add-on,
whose module is in ``TABLE``, is loaded where the option is given, and is named nowhere else.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from logging import INFO, WARNING, getLogger
from math import inf
from random import random as system_random
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar

from ..core.call import LATER, NEVER_QUIET, UNUSED_HINT
from ..core.outcome import Reason
from ..core.policy import RetryPolicy
from ..limits.gate import RetryGate
from ..limits.limits import Limits, Schedule
from .clock import SYSTEM_CLOCK, Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import ModuleType

    from ..core.call import Call, Limit, Listener, Quiet
    from ..core.request import Request
    from .clock import Clock, Waiter
    from .context import Sender

    Lines = list[tuple[str, str]]

    Req = TypeVar("Req")
    Resp = TypeVar("Resp")
    Inner = Callable[[Call, Req], Awaitable[Resp]]

    class Layer(Protocol):
        """Goes around each attempt of an asynchronous transport."""

        async def send(self, port: Any, inner: Inner[Req, Resp], call: Call, request: Req) -> Resp:
            """Send an attempt by ``inner``."""
            ...


# Options that are an add-on's: the module, which has ``check`` of the value, and ``limits`` if it
# has any; and what the option is unless it is given. They are asked in this order: when and where,
# then whether. What takes something stands last, because a retry that a later limit refuses would
# keep it.
TABLE: dict[str, tuple[str, object]] = {
    "strategy": ("addons.strategy", None),  # in place of the schedule
    "origins": ("addons.origins", None),  # before all that keep something of an origin
    "cooldown": ("addons.cooldown", "off"),
    "pacing": ("addons.pacing", None),
    "addons": ("addons.own", ()),
    "breaker": ("addons.breaker", None),
    "concurrency": ("addons.concurrency", None),  # after what may delay: who waits has no slot
    "gate": ("limits.gate", ...),  # one of the transport's own
    "budget": ("addons.budget", None),
    "hedge": ("addons.hedge", None),
    "event_streams": ("addons.event_streams", None),
    "idempotency": ("idempotency", None),
    "contact": ("addons.contact", None),
    "retry_if": ("addons.inspection", None),
    "before_attempt": ("addons.hooks", None),
    "announce_attempts": ("addons.announce", False),
    "stop_outer_retries": ("addons.stop_outer", False),
    "resume": ("addons.resume", True),
}
BODY_HINTS = "retry_if"  # whose module reads the hints of a policy's vendors too
ADDONS = {option: module for option, (module, _) in TABLE.items()}
DEFAULTS: dict[str, object] = {
    **{option: default for option, (_, default) in TABLE.items()},
    "on_event": (),
    "body_buffer": 0,
    "name": "default",
    "clock": None,
    "random": None,
}


def addon(option: str) -> ModuleType:
    """The module of an option."""
    return import_module(f"forbear.{ADDONS[option]}")


def asked_for(options: Mapping[str, object]) -> list[str]:
    """The options that ask for their add-on; a switch loads it where it is needed."""
    unasked = (None, False)
    return [
        name
        for name, value in DEFAULTS.items()
        if name in ADDONS and options.get(name) not in unasked and options[name] is not value
    ]


def options_of_client(policy: RetryPolicy | None, options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options for each transport of one client: they share a gate."""
    named = dict(options)
    if policy is not None:
        named["policy"] = policy
    # An add-on that excludes others decides without a gate.
    if not any(hasattr(addon(option), "check_beside") for option in asked_for(named)):
        named.setdefault("gate", RetryGate())
    return named


def limits_of(random: Callable[[], float] | None = None, **options: Any) -> Limits:
    """Make the limits that these options ask for; no gate, unless one is among them."""
    random = system_random if random is None else random
    made: list[Limit] = []
    for option in asked_for(options):
        make = getattr(addon(option), "limits", None)
        made += () if make is None else make(options[option], random)
    if not any(one.counts_attempts or isinstance(one, Schedule) for one in made):
        made.insert(0, Schedule(options.get("gate")))
    return Limits(made, random)


def waiter_for(clock: Clock, *, awaits: bool) -> Waiter:
    """Make what lets tasks wait, or threads."""
    if awaits:
        from .tasks import Tasks

        return Tasks(clock)
    return Threads(clock)


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
        self._log: object = None
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


DEFAULT_POLICY = RetryPolicy()
NOTHING: frozenset[Never] = frozenset()
OFF = RetryPolicy(max_attempts=1, statuses=NOTHING, failures=NOTHING, conflict_with_key=False)
PREFETCH = 65_536


class Settings:
    """The options of one transport, checked, and what they make together. Never changed.

    Attributes:
        options: All that were given, checked, by name; for the add-ons.
        judges: Functions of add-ons that read of a response what decides on it, before its body is.
        inspectors: Such functions that are called when the response was received.
        layers: Of add-ons, around each attempt; a call with any is one from its first attempt on.
        finishers: Options whose add-ons go around a body that is handed over.
        watches_bodies: A body of a response may be prefetched, or go on where it breaks.
        special: An option of this transport affects every first attempt.
        most_attempts: Attempts of a call, infinite where only a user's strategy counts them.
        shared: As of ``limits``; never quiet if an add-on is asked about each attempt: what looks
            like a success may be none.
        shared_in_layers: The same for a call with layers.
        sends_alike: Each attempt is sent as it is: no header of its own, no hook before it.
        first_lines: Functions of add-ons that return header lines for all attempts of a call.
        attempt_lines: Functions of add-ons that return header lines for one attempt alone.
        rewrites: Functions of add-ons that are called before a retry is sent, and may change it.
        last_lines: Functions of add-ons that return header lines for the response that is final.
        wants_ends: A listener wants to know when a call is over.
        is_plain: A first attempt that succeeds is only returned; nothing is noted of it.
        limits_when_off: For calls that are forwarded untouched: what counts them, and no more.
        key_lifetime: Seconds for which a server remembers an idempotency key.
    """

    def __init__(
        self,
        who: str,
        policy: RetryPolicy,
        options: Mapping[str, object],
        *,
        awaits: bool = False,
        layered: bool = False,
        prefetch: int = 0,
    ) -> None:
        """Check the options of the class ``who``, and store them.

        Hooks may be coroutine functions if it ``awaits`` them; ``layered`` says whether layers can
        go around its attempts; ``prefetch`` is its default.

        Raises:
            TypeError: An option is not known or of the wrong type, or is a coroutine function that
                would not be awaited.
            ValueError: A value is out of its range, or ``strategy`` is given in addition to an
                option that it replaces.
        """
        defaults = {**DEFAULTS, "prefetch": prefetch}
        given: dict[str, Any] = {**defaults, **options}
        # One transport of many has no option, or the gate that ``wrap`` made.
        if not isinstance(policy, RetryPolicy) or any(
            name != "gate" or type(value) is not RetryGate for name, value in options.items()
        ):
            from .option_checks import check_options

            given = check_options(
                who, policy, options, defaults, ADDONS, awaits=awaits, layered=layered
            )
        self.options: Mapping[str, Any] = given
        clock = given["clock"]
        self.clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self.sleeper = waiter_for(self.clock, awaits=awaits)
        self.has_random = given["random"] is not None
        self.body_buffer: int = given["body_buffer"]
        self.prefetch: int = given["prefetch"]
        self.name: str = given["name"]
        if given["gate"] is ...:
            given["gate"] = RetryGate()
        asked = [(addon(option), given[option]) for option in asked_for(given)]

        def of_addons(name: str) -> list[Any]:
            found = ((getattr(module, name, None), value) for module, value in asked)
            return [partial(function, value) for function, value in found if function]

        of_keys = [keys() for keys in of_addons("keys")]
        self.key_names, self.key_lifetime = of_keys[0] if of_keys else (frozenset(), 86_400.0)
        self.judges = [module.judge for module, _ in asked if hasattr(module, "judge")]
        self.inspectors = [module.inspect for module, _ in asked if hasattr(module, "inspect")]
        self.layers: list[Layer] = [make(self.clock) for make in of_addons("layer")]
        self.first_lines: list[Callable[[Request, float], Lines]] = of_addons("first_lines")
        self.rewrites: list[Callable[..., Awaitable[None]]] = of_addons("rewrite")
        self.attempt_lines: list[Callable[[Sender | None, int], Lines]] = of_addons("attempt_lines")
        self.last_lines: list[Callable[[Call], Mapping[str, str]]] = of_addons("last_lines")
        # Those that are on by default are loaded with the first body that is handed over open.
        self.finishers = [name for name in ADDONS if DEFAULTS[name] is True]
        self.watches_bodies = (
            self.prefetch > 0 or bool(self.judges) or any(given[name] for name in self.finishers)
        )
        self.limits = limits_of(**{name: given[name] for name in (*ADDONS, "random")})
        self.limits_when_off = Limits(one for one in self.limits.listed if one.sees_untouched)
        asks = self.judges or self.inspectors
        self.shared_in_layers: Quiet = NEVER_QUIET if asks else self.limits.shared
        self.shared: Quiet = NEVER_QUIET if self.layers else self.shared_in_layers
        self.policy = self.limits.merged(policy)
        self.events = Events(self.name, given["on_event"])
        if given["on_event"]:
            self.events.log().show(self.limits, self.sleeper, self.clock)
        for limit in self.limits.listed:
            limit.events = self.events
        self.most_attempts: float = inf if self.limits.counts_attempts else self.policy.max_attempts
        self.sends_alike = not (self.rewrites or self.attempt_lines)
        self.wants_ends = self.events.wants_ends
        self.is_plain = not self.events.wants_calls
        self.special = (
            self.policy.total_timeout is not None
            or self.policy.attempt_timeout is not None
            or bool(self.first_lines)
        )

    def inspectors_of(self, policy: RetryPolicy) -> list[Any]:
        """The inspectors under a policy."""
        return [addon(BODY_HINTS).inspect] if policy.vendors else self.inspectors
