"""Settings: the options of every transport and adapter, written once and checked once. Floor: acts.

``Options`` names and explains them for editors, type checkers and ``help()``, ``Settings`` checks
them and holds what a transport makes of them.
"""

from __future__ import annotations

from random import random as system_random
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from ..core.checks import shown
from ..core.policy import RetryPolicy
from ..shared.gate import RetryGate
from ..shared.limits import Limits
from ..shared.strategy_limits import StrategyLimits
from .checking import DEFAULTS, check_options, checked_contact, is_async, names
from .clock import SYSTEM_CLOCK, Sleeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal

    from ..core.events import Event
    from ..core.key_options import IdempotencyKeys
    from ..core.strategy import Budget, RetryStrategy
    from ..shared.breaker import CircuitBreaker
    from ..shared.hedge import Hedge
    from ..shared.origins import Origins
    from .clock import Clock
    from .context import Scope

__all__ = ["DEFAULT_POLICY", "OFF", "FamilyOptions", "Options", "Predicate", "Settings", "names"]

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
        gate: A RetryGate. It lets retries go while their origin is well, and holds failed calls
            while the origin is unwell. Left out: one for this client. None: no call is held.
        budget: A RetryBudget, or a RedisBudget for a fleet: a hard bound over all retries beside
            the gate. None: no bound.
        breaker: A CircuitBreaker. It refuses calls to an origin that keeps failing, by the
            library's CircuitOpenError. None: no call is refused.
        cooldown: Who waits when an origin asked one call to come back later (Retry-After of a 503,
            or of a 429 for calls with the same Authorization or x-api-key). "retries": retries.
            "all": first attempts too; one that would wait longer than ``policy.max_retry_after``
            or its deadline is refused at once. "off": only the call that was asked.
        origins: Origins: servers that can stand in for each other. Retries go to them in turn.
        strategy: A RetryStrategy in place of schedule, gate, budget, breaker, cooldown and origins.
            The policy still gives statuses, methods, hints and time limits.
        idempotency: IdempotencyKeys: which key POST and PATCH get, and which key headers count.
        retry_if: A function of each response; it is not called for exceptions. True: a failure like
            a 503 (a request that is not safe to repeat is still sent once). False: final, whatever
            the status. None: the policy decides. It may read a body of up to 64 KiB, and the caller
            still gets all of it. It may be a coroutine function on asynchronous transports only.
        before_attempt: A function of (request, attempt), called before each retry with a copy of
            the request: to sign it again, or to refresh a token. It may be a coroutine function on
            asynchronous transports only. An exception in it ends the call, and nothing is sent.
        on_event: Listeners: functions of one event, see forbear.core.events. They are not awaited.
        body_buffer: Up to so many bytes of a one-shot request body are kept, to send them again.
        prefetch: A response body of known length up to so many bytes is read before the hand-over,
            so that a broken one is a failure like any other. So is a JSON document of unknown
            length, if the request has a read timeout. After 0.25 s the response is handed over, and
            its body goes on as a stream. Event streams are never read ahead. 0: no body is. Only
            httpx, httpx2 and aiohttp take this option; aiohttp reads only bodies of known length.
        hedge: A Hedge. It sends a second attempt beside a first one that takes long, where that is
            safe, and the first good answer wins. None: nothing is sent beside. Only
            ``AsyncRetryTransport`` takes this option.
        resume: Whether a GET whose response body breaks asks for the rest, by Range and If-Range.
            That needs a strong ETag, or a Last-Modified that counts as one. Otherwise the error
            that broke the body is raised.
        contact: E-mail address for the ``From`` header (RFC 9110 section 10.1.2).
        announce_attempts: Whether the first retry carries ``Retry-Attempt: 2``, and so on. A header
            of that name in the request is left alone.
        stop_outer_retries: Whether a response that forbear gave up on is marked with
            ``x-should-retry: false`` and ``stripe-should-retry: false``, so that an SDK above ends.
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
    idempotency: IdempotencyKeys | None
    retry_if: Predicate | None
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
        special: Something of this transport concerns every first attempt.
        counts_attempts: A strategy of the user's counts attempts itself.
        limits_when_off: For calls that are forwarded untouched: the budget's count and no more.
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
        """Check the options of ``who``, and take them.

        Args:
            who: The class, for messages.
            policy: When to retry.
            options: As given.
            awaits: Whether hooks may be coroutine functions.
            hedges: Whether a second attempt can be sent beside a first one.

        Raises:
            TypeError: An option is not known or of the wrong type, or is a coroutine function that
                nobody would await.
            ValueError: A value is out of its range, or ``strategy`` is given beside what it stands
                in for.
        """
        from .tell import Tell

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
        self.announce_attempts: bool = given["announce_attempts"]
        self.stop_outer_retries: bool = given["stop_outer_retries"]
        self.contact = None if given["contact"] is None else checked_contact(given["contact"])
        self.name: str = given["name"]
        self._take_limits(given)
        self.tell = Tell(self.name, given["on_event"])
        self.tell.show(self.limits, self.sleeper, self.clock)
        if isinstance(self.limits, Limits) and self.limits.guards is not None:
            self.limits.guards.on_transition = self.tell.moved
        self.special = (
            self.policy.total_timeout is not None
            or self.policy.attempt_timeout is not None
            or self.retry_if is not None
            or self.contact is not None
            or (keys is not None and keys.generate)
        )

    def _take_limits(self, given: Mapping[str, Any]) -> None:
        strategy = given["strategy"]
        self.counts_attempts = False
        self.plugin_name = "schedule or budget"
        self.limits: Limits | StrategyLimits
        if strategy is None:
            self.limits = Limits(
                gate=RetryGate() if given["gate"] is ... else given["gate"],
                budget=given["budget"],
                breaker=given["breaker"],
                cooldown=given["cooldown"],
                origins=given["origins"],
                random=given["random"],
            )
        elif isinstance(getattr(strategy, "limits", None), Limits):  # a StandardStrategy
            self.limits = strategy.limits.lent()
            self.policy = strategy.merged(self.policy)
        else:
            self.limits = StrategyLimits(strategy, given["random"] or system_random)
            self.counts_attempts = True
            self.plugin_name = f"strategy {type(strategy).__name__}"
        own = self.limits if isinstance(self.limits, Limits) else Limits()
        self.limits_when_off = Limits(gate=own.gate, budget=own.budget, random=given["random"])

    def resolve(self, context: Scope | None, setting: Any) -> RetryPolicy:
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
