"""Bridge: a urllib3 ``Retry`` that decides as forbear does, for libraries that take nothing else.
Floor: acts.

urllib3 asks a Retry three things: ``is_retry`` (is this status worth a look?), ``increment`` (what
now? return the Retry of the next attempt, or raise) and ``sleep``. It tells it of nothing else, so
a call begins here with its first failure. The object the user made is a template and never changes;
``increment`` returns a copy that carries the call.

Whatever ``is_retry`` lets pass comes back through ``increment``, which alone sees the headers. To
hand a response over it raises MaxRetryError, and urllib3 returns the response because
``raise_on_status`` is False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from urllib3 import util
from urllib3.exceptions import MaxRetryError, ResponseError
from urllib3.util.retry import RequestHistory

from .._rehearsal import clock_here
from .._retrying import DEFAULT_POLICY, OWN_BUDGET, check_budget, check_has
from ..core.call import Call
from ..core.checks import shown
from ..core.headers.hints import read_hint
from ..core.outcome import Phase
from ..core.policy import RetryPolicy
from ..core.record import RECORD, record_from
from ..core.trail import Trail
from ..core.verdict import GiveUp, Reason, Renew, RetryAfter
from ..sending.clock import SYSTEM_CLOCK, Clock
from ..sending.tell import Notices
from ..shared.budget import RetryBudget
from ..shared.standard import StandardStrategy
from ..telemetry.gauges import Vitals
from .urllib3_carried import KEYED, Carried, begin, origin_of
from .urllib3_errors import classify
from .urllib3_sockets import DRAIN_SECONDS, discard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from types import TracebackType
    from typing import Self

    from urllib3.connectionpool import ConnectionPool
    from urllib3.response import BaseHTTPResponse

    from ..core.events import Event
    from ..core.strategy import Budget, RetryStrategy
    from ..core.verdict import Verdict

__all__ = ["Retry"]

# Their requests carry no body, as a rule.
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
REDIRECTS = 10  # as many as urllib3's own Retry() follows


class Retry(util.Retry):
    """A ``urllib3.util.Retry`` for libraries that take nothing else: PyGithub, kubernetes,
    HTTPAdapter.

    ``urllib3.PoolManager(retries=Retry(policy))``. One object serves all threads and is never
    changed. Where you can choose, take ``RetryPoolManager`` or ``forbear.requests.RetryAdapter``:
    they see the whole request.

    A Retry sees no headers, no body and no timeout of a request, so it is stricter:

    - After an answer, or an error that may have come after the request was sent, only GET, HEAD,
      OPTIONS and TRACE are sent again; with ``bodies_replayable=True`` the other methods of the
      policy too (PUT, DELETE, QUERY), but never POST and PATCH, since a key would be in the
      headers. An error that proves that nothing was sent is retried for any method. A GET whose
      body can be read only once is taken for one without.
    - It is told of a call when something fails: ``total_timeout`` counts from the end of the first
      attempt, and so do the times in its record. Deadlines bound waits only, never an attempt:
      ``attempt_timeout`` has no effect, and with ``forbear.deadline`` over nothing is sent *again*.
      Give the client timeouts.
    - Calls that succeed make no deposits in the budget: what was spent comes back with time.
    - It never raises for a status, also with ``on_exhausted="raise"``: the last response is handed
      over. For an error it raises what urllib3's own Retry would raise there, with the story as a
      note.
    - With ``preload_content=True`` urllib3 reads a failed answer to its end before it asks. A body
      that a library reads after the hand-over, as requests does, is not looked after.
    - A strategy is first asked after a failure: it cannot hold back a first attempt, so there is no
      ``breaker`` and no ``cooldown``. One in a ``strategy`` hears of failures and stops retries, no
      more.

    Redirects are urllib3's, and are counted apart from retries. Before urllib3 2.5 a PoolManager
    forgets its own Retry at a redirect and goes on with urllib3's default; give it with the request
    there.

    Args:
        policy: When and how often; per context ``forbear.override`` changes it.
        bodies_replayable: Every PUT and DELETE made with this object has a body that can be sent
            again: bytes, text, a file that can seek, or none.
        budget: Allowance that keeps retries a small share of traffic; one of its own if not given,
            a RetryBudget to share one, a RedisBudget for a fleet, None for no limit.
        strategy: A RetryStrategy in place of schedule and budget; the policy still gives statuses,
            methods, hints and time limits.
        on_event: Callables that are told what happens, see forbear.core.events.
        name: Name of this client in events and logs.
        clock: Where time comes from; a test passes forbear.testing.FakeClock().
        random: Like random.random.
        redirect: Redirects to follow; None: 10, as urllib3's own; False: none, their answer is
            handed over.
        raise_on_redirect: After too many raise MaxRetryError; False: hand over the last answer.
        remove_headers_on_redirect: Headers not to be sent to another origin.

    Raises:
        TypeError: An option is of the wrong type.
        ValueError: A value is out of its range, or ``strategy`` and ``budget`` are both given.
    """

    _carried: Carried | None = None
    _by_status = True

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        *,
        bodies_replayable: bool = False,
        budget: Budget | None = OWN_BUDGET,
        strategy: RetryStrategy | None = None,
        on_event: Iterable[Callable[[Event], object]] = (),
        name: str = "default",
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        redirect: bool | int | None = None,
        raise_on_redirect: bool = True,
        remove_headers_on_redirect: Collection[str] = util.Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT,
    ) -> None:
        if not isinstance(policy, RetryPolicy):
            raise TypeError(
                f"policy must be a RetryPolicy, got {shown(policy)}{in_attempts(policy)}"
            )
        if not isinstance(bodies_replayable, bool):
            raise TypeError(
                f"bodies_replayable must be True or False, got {shown(bodies_replayable)}"
            )
        if strategy is not None and budget is not OWN_BUDGET:
            raise ValueError(
                "give strategy= or budget=, not both: a strategy brings its own budget"
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
        if clock is not None:
            check_has("clock", clock, "monotonic", "time", "sleep")
        if callable(on_event):
            raise TypeError(
                f"on_event must be a list of functions, got one: write on_event=[{shown(on_event)}]"
            )
        super().__init__(
            redirect=allowed_redirects(redirect),
            raise_on_redirect=raise_on_redirect and redirect is not False,
            raise_on_status=False,
            remove_headers_on_redirect=remove_headers_on_redirect,
        )
        self.bodies_replayable = bodies_replayable
        self.name = name
        self._budget = budget
        self._given_strategy = strategy
        self._given_clock = clock
        self._given_random = random
        self._on_event = tuple(on_event)
        self._take(policy)
        self._connect()

    @classmethod
    def from_int(
        cls,
        retries: util.Retry | bool | int | None,
        redirect: bool | int | None = True,
        default: util.Retry | bool | int | None = None,
    ) -> Any:
        """Return a Retry that retries so often, for code that makes one of a caller's
        ``retries=3``.

        Args:
            retries: A number, in place of the attempts of the policy; 0 sends once; False as well,
                and neither follows redirects nor puts MaxRetryError around an error. None for the
                default; a Retry is returned as it is.
            redirect: False: follow no redirects.
            default: A Retry of ours, whose policy and budget are kept.

        Raises:
            TypeError: It is no number.
            ValueError: It is less than 0.
        """
        if retries is None:
            retries = default
        if isinstance(retries, util.Retry):
            return retries
        made = default if isinstance(default, cls) else cls()
        if retries is None:
            return made
        if not isinstance(retries, int):
            raise TypeError(f"retries must be a number of retries, got {shown(retries)}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, got {retries}")
        followed = {} if redirect and retries is not False else {"redirect": False}
        made = made.new(total=int(retries), **followed)
        if retries is False:
            made.total = False
        return made

    def _take(self, policy: RetryPolicy) -> None:
        """Set the policy, and what of it urllib3 has a name for."""
        self.policy = policy
        self.total = policy.max_attempts - 1
        allowed = policy.methods - KEYED
        self.allowed_methods = allowed if self.bodies_replayable else allowed & BODILESS
        self.status_forcelist = policy.statuses
        self.respect_retry_after_header = policy.hints == "obey"

    def _connect(self) -> None:
        """Make what is shared by all copies, but not with another process."""
        self._strategy: RetryStrategy = (
            StandardStrategy(self.policy, budget=self._budget, random=self._given_random)
            if self._given_strategy is None
            else self._given_strategy
        )
        self._notices = Notices(self.name, self._on_event, knows_ends=False)
        clock = SYSTEM_CLOCK if self._given_clock is None else self._given_clock
        self._vitals = Vitals(self.name, self._strategy, None, clock.monotonic)
        self._notices.show(self._vitals)

    @property
    def _clock(self) -> Clock:
        """Of the call that is carried; on a template, of one that would begin now."""
        carried = self._carried
        if carried is not None and not carried.ended:
            return carried.clock
        return clock_here(SYSTEM_CLOCK if self._given_clock is None else self._given_clock)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} total={self.total} redirect={self.redirect} {self._strategy!r}>"

    # What urllib3 asks.

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """Is this status worth a look at its headers? ``increment`` decides."""
        if status_code >= 400 and self._by_status:
            return True
        if self._carried is not None:
            self._accepted(self._carried, status_code)
        return False

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        """Return the Retry of the next attempt.

        Raises:
            MaxRetryError: There is none. urllib3 hands over the response, if there is one.
            Exception: ``error`` itself, where urllib3's own Retry raises it: the request was sent
                and must not be repeated.
        """
        if error is not None:
            return self._after_error(method, url, error, _pool, _stacktrace)
        if response is None:
            reason = ResponseError(ResponseError.GENERIC_ERROR)
            raise MaxRetryError(_pool, url, reason) from reason  # type: ignore[arg-type]
        latest = self._latest(response)
        if response.get_redirect_location():
            return latest._after_redirect(method, url, response, _pool)
        return latest._after_response(method, url, response, _pool)

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        """Wait as long as was decided."""
        carried = self._carried
        if carried is None or carried.call is None or carried.sent:
            return
        clock, call = carried.clock, carried.call
        delay = carried.delay - (clock.monotonic() - carried.judged_at)  # draining took its share
        try:
            if delay > 0:
                clock.sleep(delay)
        except BaseException:
            carried.ended = True
            call.release(clock.monotonic())
            raise
        carried.sent = True
        call.sending(clock.monotonic())

    def sleep_for_retry(self, response: BaseHTTPResponse) -> bool:
        """Wait as long as a redirect asks; urllib3 calls this where a pool follows one by itself.

        Raises:
            MaxRetryError: It asks for longer than we may wait.
        """
        asked = self.get_retry_after(response)
        if not asked:
            return False
        now = self._clock.monotonic()
        carried = self._carry(now)
        if asked > carried.policy.max_retry_after or asked > carried.deadline_at - now:
            reason = ResponseError(f"Retry-After of {asked:.0f} s is too long")
            raise MaxRetryError(None, response.url, reason) from reason  # type: ignore[arg-type]
        self._clock.sleep(asked)
        carried.sent_at = self._clock.monotonic()
        return True

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        """Seconds the response asks to stay away for; None if it does not say, or not in a way one
        can read.
        """
        if not self.respect_retry_after_header:
            return None
        return read_hint(response.status, field_lines(response), now=self._clock.time()).delay

    def get_backoff_time(self) -> float:
        """Seconds that ``sleep`` waits."""
        return 0.0 if self._carried is None else self._carried.delay

    def new(self, **kw: Any) -> Self:
        """Return a copy that shares budget, strategy and listeners.

        Args:
            **kw: Of urllib3's parameters those that have a meaning here: ``redirect``,
                ``raise_on_redirect``, ``remove_headers_on_redirect``, ``history``; ``total``
                (retries that are left), ``status=0`` (do not retry by status),
                ``status_forcelist``, ``allowed_methods``, ``respect_retry_after_header``. Any other
                is taken only with the value it has.

        Raises:
            TypeError: It would ask for what a policy does not say so.
        """
        copy = self._like()
        changes: dict[str, Any] = {}
        for name, value in kw.items():
            if name == "redirect":
                copy.redirect = allowed_redirects(value)
                copy.raise_on_redirect = copy.raise_on_redirect and value is not False
            elif name == "history":
                copy.history = value or ()
            elif name == "raise_on_redirect":
                copy.raise_on_redirect = bool(value) and kw.get("redirect") is not False
            elif name == "remove_headers_on_redirect":
                copy.remove_headers_on_redirect = frozenset(header.lower() for header in value)
            elif name not in PARAMETERS:
                raise TypeError(f"Retry.new() got an unexpected argument {name!r}")
            elif value == getattr(self, name, None):
                continue
            elif name == "total" and isinstance(value, int):
                changes["max_attempts"] = value + 1
            elif name == "status" and value is not None and not value:
                copy.status, copy._by_status = value, False
            elif name == "status_forcelist":
                changes["statuses"] = frozenset(value or ())
            elif name == "allowed_methods" and value is not None:
                changes["methods"] = frozenset(value)
            elif name == "respect_retry_after_header":
                changes["hints"] = "obey" if value else "ignore"
            else:
                raise TypeError(
                    f"Retry.new() cannot set {name} to {shown(value)}: a RetryPolicy says when to retry;"
                    " make a Retry with policy.replace(…)"
                )
        if changes:
            copy._carried = None  # another policy, another call
            copy._take(self.policy.replace(**changes))
            if isinstance(copy._strategy, StandardStrategy):
                copy._strategy = copy._strategy.with_policy(copy.policy)
        return copy

    # After an attempt.

    def _after_error(
        self,
        method: str | None,
        url: str | None,
        error: Exception,
        pool: ConnectionPool | None,
        stacktrace: TracebackType | None,
    ) -> Self:
        now = self._clock.monotonic()
        carried, call = self._call(method, url, pool, now)
        failure = classify(error)
        unsent = failure.phase is Phase.UNSENT
        verdict = call.after_error(
            failure,
            now,
            body_ready=unsent or self._is_body_ready(call.facts.method),
            nested=carried.sends_once,
        )
        if isinstance(verdict, Renew):
            verdict = self._renewed(call)
        self._tell(carried, call, verdict, now)
        if isinstance(verdict, RetryAfter):
            return self._next(carried, verdict, now, RequestHistory(method, url, error, None, None))
        carried.ended = True
        trail = call.close_trail(now)
        if self.total is False or (self._is_read_error(error) and is_final(verdict)):
            if stacktrace is not None and error.__traceback__ is not stacktrace:
                error = error.with_traceback(stacktrace)
            raise told(error, trail)
        raise told(MaxRetryError(pool, url, error), trail) from error  # type: ignore[arg-type]

    def _after_response(
        self,
        method: str | None,
        url: str | None,
        response: BaseHTTPResponse,
        pool: ConnectionPool | None,
    ) -> Self:
        now = self._clock.monotonic()
        status = response.status
        carried, call = self._call(method, url, pool, now)
        verdict = call.after_response(
            status,
            field_lines(response),
            now,
            utc_now=self._clock.time(),
            body_ready=self._is_body_ready(call.facts.method),
            nested=carried.sends_once,
        )
        if isinstance(verdict, Renew):
            verdict = self._renewed(call)
        if verdict is not None:
            self._tell(carried, call, verdict, now)
            self._notices.ignored(call, field_lines(response), verdict, now, carried.listeners)
        if isinstance(verdict, RetryAfter):
            discard(response, min(DRAIN_SECONDS, call.deadline_at - now))
            return self._next(
                carried, verdict, now, RequestHistory(method, url, None, status, None)
            )
        carried.ended = True
        trail = call.close_trail(now)
        reason = ResponseError(ResponseError.SPECIFIC_ERROR.format(status_code=status))
        failed = MaxRetryError(pool, url, reason)  # type: ignore[arg-type]
        if verdict is None and len(trail.entries) > 1:
            self._notices.succeeded(call, status, now, carried.listeners)
        if verdict is not None or len(trail.entries) > 1:
            setattr(response, RECORD, trail)
            setattr(failed, RECORD, trail)
        raise failed from reason

    def _renewed(self, call: Call) -> RetryAfter | GiveUp:
        """Let the strategy borrow, then judge on."""
        strategy: Any = call.strategy
        try:
            strategy.renew(call.scope())
        except Exception as error:
            self._notices.hook_failed(f"strategy {type(strategy).__name__}", error)
        return call.after_renewal(self._clock.monotonic())

    def _after_redirect(
        self,
        method: str | None,
        url: str | None,
        response: BaseHTTPResponse,
        pool: ConnectionPool | None,
    ) -> Self:
        """A new hop: retries and deadline go on, the origin's part begins anew."""
        carried = self._carried
        if carried is not None:
            self._accepted(carried, response.status)
        left = int(self.redirect or 0) - 1
        if left < 0:
            if self.raise_on_redirect:
                discard(response)
            reason = ResponseError("too many redirects")
            raise MaxRetryError(pool, url, reason) from reason  # type: ignore[arg-type]
        now = self._clock.monotonic()
        if carried is None:
            carried = self._carry(now)
        copy = self._like()
        copy.redirect = left
        copy.history = (
            *self.history,
            RequestHistory(
                method, url, None, response.status, response.get_redirect_location() or None
            ),
        )
        copy._carried = carried.next_hop(now)
        discard(response, min(DRAIN_SECONDS, max(0.0, carried.deadline_at - now)))
        return copy

    def _next(
        self, carried: Carried, verdict: RetryAfter, now: float, entry: RequestHistory
    ) -> Self:
        call = carried.call
        assert call is not None
        carried.delay, carried.judged_at, carried.sent = verdict.delay, now, False
        copy = self._like()
        copy._carried = carried
        copy.total = carried.policy.max_attempts - 1 - call.attempts
        copy.history = (*self.history, entry)
        return copy

    def _accepted(self, carried: Carried, status: int) -> None:
        """urllib3 keeps this answer without asking ``increment``."""
        call = carried.call
        if carried.ended:
            return
        carried.ended = True
        if call is None:
            return
        now = carried.clock.monotonic()
        if not carried.sent:
            call.sending(now)
        if status < 400:
            call.after_response(status, (), now, utc_now=0.0)
            self._notices.succeeded(call, status, now, carried.listeners)
        call.release(now)
        call.close_trail(now)
        self._notices.strategy_failed(call)

    @property
    def _forbear_record(self) -> Trail | None:
        """For ``record_of(response)``: the response of a call that was retried keeps its last
        Retry.
        """
        carried = self._carried
        return (
            carried.call.trail
            if carried is not None and carried.ended and carried.call is not None
            else None
        )

    # The call.

    def _latest(self, response: BaseHTTPResponse) -> Self:
        """The Retry that the request was sent with.

        PoolManager follows redirects with the one that its caller gave it, which does not know of
        the retries before the redirect.
        """
        latest = getattr(response, "retries", None)
        if isinstance(latest, type(self)) and latest._carried is not None:
            return latest
        return self

    def _carry(self, now: float) -> Carried:
        """This object's call; on a template, and where its call is over, a new one."""
        carried = self._carried
        return begin(self.policy, self._clock, now) if carried is None or carried.ended else carried

    def _call(
        self, method: str | None, url: str | None, pool: ConnectionPool | None, now: float
    ) -> tuple[Carried, Call]:
        """The call, with the attempt that has just ended noted in it."""
        carried = self._carry(now)
        method = "" if method is None else method.upper()  # urllib3 asks about "get" as about "GET"
        return carried, carried.note_attempt(method, origin_of(url, pool), url, self._strategy, now)

    def _is_body_ready(self, method: str) -> bool:
        return self.bodies_replayable or method in BODILESS

    def _tell(self, carried: Carried, call: Call, verdict: Verdict, now: float) -> None:
        self._notices.failed(call, verdict, now, carried.listeners)
        if isinstance(verdict, GiveUp):
            carried.tell_incoming(verdict)
        self._notices.strategy_failed(call)

    # Copies.

    def _like(self) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def __copy__(self) -> Self:
        return self._like()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._like()  # kubernetes copies its configuration deeply; the budget stays one

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in OF_THIS_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()


# Of a Retry's attributes those that another process makes for itself.
OF_THIS_PROCESS = frozenset({"_carried", "_notices", "_strategy", "_vitals"})
# What urllib3's own new() takes, in its oldest and newest version.
PARAMETERS = frozenset(
    {
        "total",
        "connect",
        "read",
        "status",
        "other",
        "allowed_methods",
        "status_forcelist",
        "backoff_factor",
        "backoff_max",
        "backoff_jitter",
        "retry_after_max",
        "raise_on_status",
        "respect_retry_after_header",
    }
)
# After these urllib3's own Retry raises the error as it is, after others MaxRetryError.
AS_IT_IS = frozenset({Reason.METHOD_NOT_REPLAYABLE, Reason.BODY_CONSUMED})


def is_final(verdict: GiveUp | None) -> bool:
    return verdict is None or verdict.reason in AS_IT_IS


def told(error: Exception, trail: Trail) -> Exception:
    """Attach the story."""
    setattr(error, RECORD, trail)
    error.add_note(f"forbear: {record_from(trail)}")
    return error


def field_lines(response: BaseHTTPResponse) -> list[tuple[str, str]]:
    return list(response.headers.iteritems())


def in_attempts(value: object) -> str:
    """What to write instead of a number of retries."""
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    return f"; {value} retries are Retry(RetryPolicy(max_attempts={value + 1}))"


def allowed_redirects(redirect: object) -> int:
    if redirect is None or redirect is True:
        return REDIRECTS
    if not isinstance(redirect, int) or redirect < 0:
        raise ValueError(
            f"redirect must be a number of redirects, False for none or None, got {shown(redirect)}"
        )
    return int(redirect)
