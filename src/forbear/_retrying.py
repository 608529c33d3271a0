"""Retrying: what every transport and adapter has: its options, and which policy holds for a call.
Floor: acts.

Only what a signature needs is imported at the top. The rest, which a first attempt that succeeds
never uses, is loaded when the first transport is made: not with the import, which is on everybody's
start-up path, and not with the first failure, which may be that no file can be opened any more.
"""

from __future__ import annotations

from .core.checks import a_switch, shown
from .core.policy import RetryPolicy
from .sending.clock import SYSTEM_CLOCK, Sleeper
from .shared.budget import RetryBudget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal, TypedDict

    from .core.events import Event
    from .core.key_options import IdempotencyKeys
    from .core.outcome import Failure
    from .core.strategy import Budget, RetryStrategy
    from .sending.clock import Clock
    from .sending.context import Scope
    from .sending.tell import Notices
    from .shared.breaker import CircuitBreaker
    from .shared.origins import Origins

    class Options(TypedDict, total=False):
        """The options that every transport and adapter takes; described at ``RetryTransport``."""

        budget: Budget | None
        breaker: CircuitBreaker | None
        cooldown: Literal["off", "retries", "all"]
        origins: Origins | None
        strategy: RetryStrategy | None
        idempotency: IdempotencyKeys | None
        retry_if: Callable[[Any], bool | None] | None
        before_attempt: Callable[[Any, int], Any] | None
        on_event: Iterable[Callable[[Event], object]]
        body_buffer: int
        resume: bool
        contact: str | None
        announce_attempts: bool
        stop_outer_retries: bool
        name: str
        clock: Clock | None
        random: Callable[[], float] | None

    class FamilyOptions(Options, total=False):
        """Those of the httpx family."""

        prefetch: int


__all__ = ["DEFAULT_POLICY", "OFF", "OWN_BUDGET", "Dialect", "Retrying"]

OWN_BUDGET = RetryBudget()  # stands for "one of its own" in signatures; never spent from
DEFAULT_POLICY = RetryPolicy()
OFF = RetryPolicy(max_attempts=1, statuses=(), failures=(), conflict_with_key=False)


class Dialect:
    """How one library says what forbear has to say: its name, its own kinds of our exceptions."""

    name: str
    circuit_open_error: type[Any]
    deadline_exceeded: type[Any]

    def classify(self, error: BaseException) -> Failure:
        raise AssertionError("each library has its own")


class Retrying:
    """The part of a transport or adapter that does not depend on the library it plugs into."""

    _library: Any  # a Dialect

    def _equip(
        self,
        policy: RetryPolicy,
        *,
        budget: Budget | None,
        breaker: CircuitBreaker | None,
        cooldown: Literal["off", "retries", "all"],
        origins: Origins | None,
        strategy: RetryStrategy | None,
        idempotency: IdempotencyKeys | None,
        retry_if: Callable[[Any], bool | None] | None,
        before_attempt: Callable[[Any, int], Any] | None,
        on_event: Iterable[Callable[[Event], object]],
        body_buffer: int,
        prefetch: int = 0,
        resume: bool = False,
        contact: str | None,
        announce_attempts: bool,
        stop_outer_retries: bool,
        name: str,
        clock: Clock | None,
        random: Callable[[], float] | None,
    ) -> None:
        """Check the options and take them."""
        from .sending.tell import Notices
        from .shared.breaker import CircuitBreaker
        from .shared.gauges import never_quiet
        from .shared.standard import StandardStrategy
        from .telemetry.gauges import Vitals

        if not isinstance(policy, RetryPolicy):
            raise TypeError(f"policy must be a RetryPolicy, got {shown(policy)}")
        if strategy is not None and budget is not OWN_BUDGET:
            raise ValueError(
                "give strategy= or budget=, not both: a strategy brings its own budget"
            )
        for option, given in (
            ("breaker", breaker is not None),
            ("cooldown", cooldown != "off"),
            ("origins", origins is not None),
        ):
            if strategy is not None and given:
                raise ValueError(
                    f"give strategy= or {option}=, not both: StandardStrategy takes {option}= itself"
                )
        if breaker is not None and not isinstance(breaker, CircuitBreaker):
            raise TypeError(
                f"breaker must be a CircuitBreaker, or None for none, got {shown(breaker)}"
            )
        if origins is not None and not hasattr(origins, "covers"):
            raise TypeError(
                f'origins must be Origins(["https://a", "https://b"]), or None, got {shown(origins)}'
            )
        if budget is OWN_BUDGET:
            budget = RetryBudget()
        elif budget is not None:
            check_budget(budget)
        if strategy is not None:
            check_has(
                "strategy",
                strategy,
                "acquire_initial_token",
                "refresh_token",
                "record_success",
                "release",
            )
            check_quiet(strategy)
        if clock is not None:
            check_has("clock", clock, "monotonic", "time", "sleep", "asleep")
        if idempotency is not None:
            check_has("idempotency", idempotency, "covers")
        for option, hook in (("retry_if", retry_if), ("before_attempt", before_attempt)):
            if hook is not None and not callable(hook):
                raise TypeError(f"{option} must be a function, got {shown(hook)}")
        if callable(on_event):
            raise TypeError(
                f"on_event must be a list of functions, got one: write on_event=[{shown(on_event)}]"
            )
        for option, octets in (("body_buffer", body_buffer), ("prefetch", prefetch)):
            if isinstance(octets, bool) or not isinstance(octets, int) or octets < 0:
                raise ValueError(
                    f"{option} must be a number of bytes, 0 for none, got {shown(octets)}"
                )
        for option, switch in (
            ("resume", resume),
            ("announce_attempts", announce_attempts),
            ("stop_outer_retries", stop_outer_retries),
        ):
            a_switch(option, switch)
        self._policy = policy
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._now = self._clock.monotonic
        self._sleeper = Sleeper(self._clock)
        self._made_strategy = strategy is None
        self._strategy: RetryStrategy = (
            StandardStrategy(
                policy,
                budget=budget,
                breaker=breaker,
                cooldown=cooldown,
                origins=origins,
                random=random,
            )
            if strategy is None
            else strategy
        )
        self._idempotency = idempotency
        self._key_names = frozenset() if idempotency is None else idempotency.recognised
        self._retry_if = retry_if
        self._before_attempt = before_attempt
        self._notices = Notices(name, on_event)
        self._vitals = Vitals(name, self._strategy, self._sleeper, self._now)
        self._notices.show(self._vitals)
        if isinstance(self._strategy, StandardStrategy) and self._strategy.on_transition is None:
            self._strategy.on_transition = self._notices.moved
        self._body_buffer = body_buffer
        self._prefetch = prefetch
        self._resume = resume
        self._looks_at_bodies = prefetch > 0 or resume
        self._announce_attempts = announce_attempts
        self._stop_outer_retries = stop_outer_retries
        self._contact = None if contact is None else _checked_contact(contact)
        # One look instead of many. Special: something of this transport concerns every first
        # attempt.
        self._special = (
            policy.total_timeout is not None
            or policy.attempt_timeout is not None
            or retry_if is not None
            or contact is not None
            or (idempotency is not None and idempotency.generate)
        )
        # Its ``gauge`` says whether a first attempt may go straight through: two plain attributes,
        # no property.
        self._signal: Any = self._strategy
        if self._special or self._notices.hears_calls:
            self._signal = Signal(never_quiet(getattr(self._strategy, "gauge", None)))
        elif not hasattr(
            type(getattr(self._strategy, "gauge", None)), "quiet"
        ):  # its class: reading may count a call
            self._signal = Signal(ForeignGauge(self._strategy, self._notices))

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._strategy!r}>"

    def _resolve(self, scope: Scope | None, setting: Any) -> RetryPolicy:
        """The policy of one call: the transport's < ``override`` < the request's."""
        if setting is False:
            return OFF
        if isinstance(setting, RetryPolicy):
            return setting
        policy = self._policy if scope is None else scope.merged(self._policy)
        if setting is None:
            return policy
        if hasattr(setting, "keys"):
            return policy.replace(**setting)
        raise TypeError(
            'extensions["forbear"] must be a RetryPolicy, a mapping of its fields, False for off or None,'
            f" got {shown(setting)}"
        )


def check_has(option: str, value: object, *methods: str) -> None:
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{option} has no method {' and no '.join(missing)}, got {shown(value)}")


def check_budget(budget: object) -> None:
    methods = all(
        callable(getattr(budget, method, None)) for method in ("deposit", "spend", "refund")
    )
    if not (methods and hasattr(budget, "hinted_cost")):
        raise TypeError(
            f"budget must be a RetryBudget or a RedisBudget, or None for no limit, got {shown(budget)}"
        )


def check_quiet(strategy: Any) -> None:
    try:
        _ = strategy.quiet
    except AttributeError as error:
        raise TypeError(
            f"strategy has no attribute quiet, got {shown(strategy)}; write quiet = True if nothing needs to be"
            " recorded of a call that succeeds at once, else False"
        ) from error
    except Exception:  # of a property: the first call meets it again
        return


class ForeignGauge:
    """The gauge of a strategy of a user's own, whose ``quiet`` may fail: then every call asks its
    methods.
    """

    __slots__ = ("_notices", "_strategy")

    def __init__(self, strategy: RetryStrategy, notices: Notices) -> None:
        self._strategy = strategy
        self._notices = notices

    @property
    def quiet(self) -> bool:
        try:
            return bool(self._strategy.quiet)
        except Exception as error:
            self._notices.hook_failed(f"strategy {type(self._strategy).__name__}", error)
            return False


class Signal:
    """Has the gauge of a strategy that has none itself, or of a transport whose every call is
    special.
    """

    __slots__ = ("gauge",)

    def __init__(self, gauge: Any) -> None:
        self.gauge = gauge


def _checked_contact(contact: str) -> str:
    """The ``From`` value of RFC 9110 section 10.1.2: one machine-usable address."""
    try:
        from email_validator import EmailNotValidError, validate_email
    except ImportError:
        raise ImportError(
            "contact= needs email-validator: pip install 'forbear[contact]'"
        ) from None
    try:
        found = validate_email(
            contact, check_deliverability=False, allow_smtputf8=False, strict=True
        )
    except EmailNotValidError as error:
        raise ValueError(
            f"contact must be one e-mail address such as 'ops@example.com', got {shown(contact)}: {error}"
        ) from None
    address = found.ascii_email
    assert address is not None
    assert address.isascii()
    return address
