"""Settings: the options of every transport and adapter, written once and checked once.

``Options`` names and explains them for editors, type checkers and ``help()``. The checks come
first: each message says what was given, and the code to write instead. ``Settings`` holds what a
transport makes of the options.
"""

from __future__ import annotations

from functools import partial
from inspect import iscoroutinefunction
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from ..core.checks import check_bool, shown, to_install
from ..core.event_streams import EventStreams
from ..core.policy import RetryPolicy
from ..limits.gate import RetryGate
from ..limits.hedge import Hedge
from ..limits.limits import Limits
from .clock import SYSTEM_CLOCK, Sleeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType
    from typing import Literal

    from ..core.events import Event
    from ..core.strategy import Budget, RetryStrategy
    from ..idempotency import IdempotencyKeys
    from ..limits.breaker import CircuitBreaker
    from ..limits.concurrency import ConcurrencyLimit
    from ..limits.origins import Origins
    from ..limits.pacing import Pacing
    from .clock import Clock
    from .context import CallContext

DEFAULTS: dict[str, object] = {
    "gate": ...,  # one of the transport's own
    "budget": None,
    "breaker": None,
    "cooldown": "off",
    "origins": None,
    "strategy": None,
    "concurrency": None,
    "pacing": None,
    "idempotency": None,
    "retry_if": None,
    "before_attempt": None,
    "on_event": (),
    "body_buffer": 0,
    "resume": True,
    "event_streams": None,
    "contact": None,
    "announce_attempts": False,
    "stop_outer_retries": False,
    "name": "default",
    "clock": None,
    "random": None,
}


def names() -> ModuleType:
    """Return the module that suggests code; loaded only when an option is refused."""
    from ..core import migration

    return migration


def options_of_client(policy: RetryPolicy | None, options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options for each transport of one client: they share a gate."""
    named = dict(options)
    if policy is not None:
        named["policy"] = policy
    if "gate" not in named and named.get("strategy") is None:
        named["gate"] = RetryGate()
    return named


# The code that a message suggests in place of True.
OBJECTS = {
    "gate": "RetryGate()",
    "budget": "RetryBudget()",
    "breaker": "CircuitBreaker()",
    "origins": 'Origins(["https://a", "https://b"])',
    "strategy": "AwsStandard()",
    "hedge": "Hedge()",
    "concurrency": "ConcurrencyLimit()",
    "pacing": "Pacing()",
    "event_streams": "EventStreams()",
    "idempotency": 'IdempotencyKeys(origins=["https://api.example.com"])',
}
# What an option must be, as a message says it: of this class, or with these attributes.
MUST_BE: dict[str, tuple[str, type | tuple[str, ...]]] = {
    "gate": ("a RetryGate, or None for none", RetryGate),
    "budget": (
        "a RetryBudget or a RedisBudget, or None for no limit",
        ("deposit", "spend", "refund", "hinted_cost"),
    ),
    "breaker": (
        "a CircuitBreaker, or None for none",
        ("admit", "record", "release", "refused_for"),
    ),
    "origins": ('Origins(["https://a", "https://b"]), or None', ("covers",)),
    "hedge": ("a Hedge, or None for none", Hedge),
    "concurrency": ("a ConcurrencyLimit, or None for none", ("enter",)),
    "pacing": ("a Pacing, or None for none", ("turn",)),
    "event_streams": ("EventStreams(), or None for the default", EventStreams),
    "idempotency": ("IdempotencyKeys(), or None", ("covers",)),
    "retry_if": ("a function", ("__call__",)),
    "before_attempt": ("a function", ("__call__",)),
}


def check_options(given: dict[str, Any]) -> None:
    """Say what is wrong with the options, and what to write instead."""
    for option in (*OBJECTS, "clock"):
        value = given[option]
        if isinstance(value, type):
            code = names().code_of_class(value)
            raise TypeError(f"{option} was given the class {value.__name__}: write {option}={code}")
        if isinstance(value, bool) and option in OBJECTS:
            code = OBJECTS[option] if value else None
            raise TypeError(f"{option} is an object or None, not {value}: write {option}={code}")
    strategy, gate = given["strategy"], given["gate"]
    if strategy is not None:
        if gate is not ... and gate is not None:
            raise ValueError("give strategy= or gate=, not both: a strategy decides by itself")
        for option in ("budget", "breaker", "cooldown", "origins"):
            if given[option] != DEFAULTS[option]:
                raise ValueError(
                    f"give strategy= or {option}=, not both: StandardStrategy takes {option}="
                    " itself"
                )
        if given["hedge"] is not None:
            raise ValueError("give strategy= or hedge=, not both: a strategy decides by itself")
        check_has("strategy", strategy, STRATEGY)
        check_quiet(strategy)
    for option, (wanted, fits) in MUST_BE.items():
        value = given[option]
        if value is None or value is DEFAULTS.get(option):
            continue
        if isinstance(fits, type):
            is_right = isinstance(value, fits)
        else:
            is_right = all(hasattr(value, name) for name in fits)
        if not is_right:
            raise TypeError(f"{option} must be {wanted}, got {shown(value)}")
    if given["clock"] is not None:
        check_has("clock", given["clock"], ("monotonic", "time", "sleep", "asleep"))
    listeners = given["on_event"]
    if callable(listeners):
        raise TypeError(
            f"on_event must be a list of functions, got one: write on_event=[{shown(listeners)}]"
        )
    given["on_event"] = listeners = tuple(listeners)
    for listener in filter(is_async, listeners):
        raise TypeError(
            f"on_event must be plain functions, got the coroutine function {shown(listener)}, which"
            " nobody would await; start a task in a plain function"
        )
    for option in ("body_buffer", "prefetch"):
        size = given[option]
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"{option} must be a number of bytes, 0 for none, got {shown(size)}")
    for option in ("resume", "announce_attempts", "stop_outer_retries"):
        check_bool(option, given[option])


def is_async(function: object) -> bool:
    """Is it a coroutine function, a ``functools.partial`` of one, or an object called as one?"""
    while isinstance(function, partial):
        function = function.func
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # inspected, not tested for
    )


STRATEGY = ("acquire_initial_token", "refresh_token", "record_success", "release")


def check_has(option: str, value: object, methods: Iterable[str]) -> None:
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{option} has no method {' and no '.join(missing)}, got {shown(value)}")


def check_quiet(strategy: RetryStrategy) -> None:
    try:
        _ = strategy.quiet
    except AttributeError as error:
        raise TypeError(
            f"strategy has no attribute quiet, got {shown(strategy)}; write quiet = True if nothing"
            " needs to be recorded of a call that succeeds at once, else False"
        ) from error
    except Exception:  # raised by a property: the first call will raise it again
        return


def checked_contact(contact: str) -> str:
    """The ``From`` value of RFC 9110 section 10.1.2: one machine-usable address."""
    try:
        from email_validator import EmailNotValidError, validate_email
    except ImportError:
        raise ImportError(f"contact= needs email-validator: {to_install('contact')}") from None
    try:
        found = validate_email(
            contact, check_deliverability=False, allow_smtputf8=False, strict=True
        )
    except EmailNotValidError as error:
        raise ValueError(
            f"contact must be one e-mail address such as 'ops@example.com', got {shown(contact)}:"
            f" {error}"
        ) from None
    address: str | None = found.ascii_email
    assert address is not None
    return address


DEFAULT_POLICY = RetryPolicy()
OFF = RetryPolicy(max_attempts=1, statuses=(), failures=(), conflict_with_key=False)
Predicate = TypeVar("Predicate")  # the type of ``retry_if``: of the library's own response


class Options(TypedDict, Generic[Predicate], total=False):
    """Options of every transport, adapter and manager, and of ``wrap`` and ``mount``.

    Objects given as options may serve several clients and threads. Durations are seconds, sizes
    are bytes. The page "All options" of the documentation has the defaults.

    Examples:
        >>> options: forbear.Options = {"name": "orders", "breaker": CircuitBreaker()}
        >>> client = forbear.httpx.wrap(httpx.Client(), **options)

    Attributes:
        gate: A RetryGate. It lets retries go while their server is healthy, and holds failed calls
            while the server is unhealthy. Left out: one for this client. None: no call is held.
        budget: A RetryBudget, or a RedisBudget for a fleet: a hard bound over all retries in
            addition to the gate. None: no bound.
        breaker: A CircuitBreaker. It refuses calls to an origin that keeps failing, by the
            library's CircuitOpenError. None: no call is refused.
        cooldown: Which calls wait after an origin sent one call a Retry-After (with a 503, or with
            a 429 for calls with the same Authorization or x-api-key). "retries": retries.
            "all": first attempts too; one that would wait longer than ``policy.max_retry_after``
            or its deadline is refused at once. "off": only the call that received it.
        origins: Origins: servers that can replace each other. Retries go to them in turn.
        strategy: A RetryStrategy in place of schedule, gate, budget, breaker, cooldown and origins.
            The policy still gives statuses, methods, hints and time limits.
        concurrency: A ConcurrencyLimit. It bounds how many attempts are in flight, by what the
            server accepts or by a number; others wait for their turn. None: no bound.
        pacing: A Pacing. It spreads calls over what is left of a quota that the server's responses
            show. None: no call is paced.
        idempotency: IdempotencyKeys: which key POST and PATCH get, and which key headers count.
        retry_if: A function of each response; it is not called for exceptions. True: a failure like
            a 503 (a request that is not safe to retry is still sent once). False: final, whatever
            the status. None: the policy decides. It may read a body of up to 64 KiB, and the caller
            still gets all of it. It may be a coroutine function on asynchronous transports only.
        before_attempt: A function of (request, attempt), called before each retry with a copy of
            the request: to sign it again, or to refresh a token. It may be a coroutine function on
            asynchronous transports only. An exception in it ends the call, and nothing is sent.
        on_event: Listeners: functions of one event, see forbear.core.events. They are not awaited.
        body_buffer: Up to so many bytes of a one-shot request body are buffered for a replay.
        prefetch: A response body of known length up to so many bytes is read before the hand-over,
            so that a broken one is a failure like any other. So is a JSON document of unknown
            length, if the request has a read timeout. After 0.25 s the response is handed over, and
            its body continues as a stream. Event streams are never prefetched. 0: no body is. Only
            httpx, httpx2 and aiohttp take this option; aiohttp reads only bodies of known length.
        hedge: A Hedge. It sends a hedged request after a first attempt that takes long, where that
            is safe, and the first good response wins. None: no call is hedged. Only
            ``AsyncRetryTransport`` takes this option.
        resume: Whether a GET whose response body breaks requests the rest, by Range and If-Range.
            That needs a strong ETag, or a Last-Modified that counts as one. Otherwise the error
            that broke the body is raised.
        event_streams: EventStreams: a stream of events is handed over with its first event, and an
            error event, a break or silence before it is a failure; see its arguments. None: a
            stream that breaks or ends before its first byte is requested again, where a repetition
            is safe, when the caller reads it.
        contact: E-mail address for the ``From`` header (RFC 9110 section 10.1.2).
        announce_attempts: Whether the first retry carries ``Retry-Attempt: 2``, and so on. A header
            of that name in the request is left alone.
        stop_outer_retries: Whether a response that forbear gave up on is marked with
            ``x-should-retry: false`` and ``stripe-should-retry: false``, which stop an outer SDK.
        name: Name of this client in events, logs and metrics.
        clock: Where time comes from. A test passes forbear.testing.FakeClock().
        random: A function like random.random.
    """

    gate: RetryGate | None
    budget: Budget | None
    breaker: CircuitBreaker | None
    cooldown: Literal["off", "retries", "all"]
    origins: Origins | None
    strategy: RetryStrategy | None
    concurrency: ConcurrencyLimit | None
    pacing: Pacing | None
    idempotency: IdempotencyKeys | None
    retry_if: Predicate | None
    before_attempt: Callable[[Any, int], object] | None
    on_event: Iterable[Callable[[Event], object]]
    body_buffer: int
    resume: bool
    event_streams: EventStreams | None
    contact: str | None
    announce_attempts: bool
    stop_outer_retries: bool
    name: str
    clock: Clock | None
    random: Callable[[], float] | None


class FamilyOptions(Options[Predicate], Generic[Predicate], total=False):
    """``Options``, and those that only transports of the httpx family take."""

    prefetch: int
    hedge: Hedge | None


PREFETCH = 65_536
# Options that some transports take and others refuse by their own message.
OF_SOME = {"prefetch": 0, "hedge": None}


class Settings:
    """The options of one transport, checked, and what they make together. Never changed.

    Attributes:
        special: An option of this transport affects every first attempt.
        counts_attempts: A strategy of the user's counts attempts itself.
        most_attempts: Attempts of a call, infinite where only a user's strategy counts them.
        inspects_responses: ``retry_if`` or a vendor's body hint may decide.
        sends_alike: Each attempt is sent as it is: no header of its own, no hook before it.
        makes_keys: A request may get an idempotency key of ours.
        total_timeout: The policy's, in seconds; infinite if there is none.
        wants_ends: A listener wants to know when a call is over.
        is_plain: A first attempt that succeeds is only returned; nothing is noted of it.
        limits_when_off: For calls that are forwarded untouched: the budget's count and no more.
        reads_quotas: The quotas in good responses are read too.
        key_lifetime: Seconds for which a server remembers an idempotency key.
    """

    def __init__(
        self,
        who: str,
        policy: RetryPolicy,
        options: Mapping[str, Any],
        *,
        awaits: bool = False,
        hedges: bool = False,
    ) -> None:
        """Check the options of the class ``who``, and store them.

        Hooks may be coroutine functions if it ``awaits`` them.

        Raises:
            TypeError: An option is not known or of the wrong type, or is a coroutine function that
                would not be awaited.
            ValueError: A value is out of its range, or ``strategy`` is given in addition to an
                option that it replaces.
        """
        from .event_log import EventLog

        known = {**DEFAULTS, **OF_SOME}
        if not options.keys() <= known.keys():
            raise TypeError(names().unknown(who, options, known))
        given = {**known, **options}
        if not isinstance(policy, RetryPolicy):
            raise TypeError(
                f"policy must be a RetryPolicy, got {shown(policy)}: write"
                f" policy={names().policy_of(policy)}"
            )
        check_options(given)
        for option in () if awaits else ("retry_if", "before_attempt"):
            if is_async(given[option]):
                raise TypeError(
                    f"{who} is synchronous and would not await {option}, got the coroutine"
                    f" function {shown(given[option])}; give it a plain function"
                )
        self.hedge: Hedge | None = given["hedge"]
        if self.hedge is not None and not hedges:
            raise TypeError(
                f"{who} takes no hedge: only AsyncRetryTransport does, of forbear.httpx and"
                " forbear.httpx2. On a synchronous client every call that could be hedged would"
                " need a thread"
            )
        clock = given["clock"]
        self.policy = policy
        self.clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self.sleeper = Sleeper(self.clock)
        self.has_random = given["random"] is not None
        self.idempotency: IdempotencyKeys | None = given["idempotency"]
        keys = self.idempotency
        self.key_names = frozenset() if keys is None else keys.recognised
        self.key_lifetime = 86_400.0 if keys is None else keys.lifetime
        self.retry_if: Callable[[Any], object] | None = given["retry_if"]
        self.before_attempt: Callable[[Any, int], Any] | None = given["before_attempt"]
        self.body_buffer: int = given["body_buffer"]
        self.prefetch: int = given["prefetch"]
        self.resume: bool = given["resume"]
        self.event_streams: EventStreams | None = given["event_streams"]
        self.announce_attempts: bool = given["announce_attempts"]
        self.stop_outer_retries: bool = given["stop_outer_retries"]
        self.contact = None if given["contact"] is None else checked_contact(given["contact"])
        self.name: str = given["name"]
        self._take_limits(given)
        self.reads_quotas = given["pacing"] is not None
        self.events = EventLog(self.name, given["on_event"])
        self.events.show(self.limits, self.sleeper, self.clock)
        if self.limits.breaker is not None:
            self.limits.breaker.on_transition = self.events.circuit_changed
        self.inspects_responses = self.retry_if is not None or bool(self.policy.vendors)
        self.most_attempts: float = inf if self.counts_attempts else self.policy.max_attempts
        self.sends_alike = not (self.before_attempt or self.announce_attempts or self.hedge)
        self.makes_keys = keys is not None and keys.generate
        total = self.policy.total_timeout
        self.total_timeout = inf if total is None else total
        self.wants_ends = self.events.wants_ends
        self.is_plain = not (self.limits.counts_calls or self.events.wants_calls)
        self.special = (
            total is not None
            or self.policy.attempt_timeout is not None
            or self.retry_if is not None
            or self.event_streams is not None
            or self.contact is not None
            or self.makes_keys
        )

    def _take_limits(self, given: Mapping[str, Any]) -> None:
        strategy = given["strategy"]
        self.counts_attempts = False
        self.plugin_name = "schedule, scope or budget"
        if strategy is None:
            names = "budget", "breaker", "cooldown", "origins", "concurrency", "pacing", "random"
            own = {name: given[name] for name in names}
            gate = RetryGate() if given["gate"] is ... else given["gate"]
            self.limits = Limits(gate=gate, **own)
        elif isinstance(getattr(strategy, "limits", None), Limits):  # a StandardStrategy
            self.limits = strategy.limits.lent(given["concurrency"], given["pacing"])
            self.policy = strategy.merged(self.policy)
        else:
            others = "strategy", "concurrency", "pacing", "random"
            self.limits = Limits(**{name: given[name] for name in others})
            self.counts_attempts = True
            self.plugin_name = f"strategy {type(strategy).__name__}"
        gate, budget = self.limits.gate, self.limits.budget
        self.limits_when_off = Limits(gate=gate, budget=budget, random=given["random"])

    def resolve(self, context: CallContext | None, setting: Any) -> RetryPolicy:
        """The policy of one call: the transport's < ``override`` < the request's.

        Raises:
            TypeError: The request's own setting is none.
        """
        if setting is False:
            return OFF
        if isinstance(setting, RetryPolicy):
            return setting
        policy = self.policy if context is None else context.merged(self.policy)
        if setting is None:
            return policy
        if hasattr(setting, "keys"):
            return policy.replace(**setting)
        raise TypeError(
            'extensions["forbear"] must be a RetryPolicy, a mapping of its fields, False for off or'
            f" None, got {shown(setting)}"
        )
