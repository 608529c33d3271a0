"""Retry: a urllib3 ``Retry`` that decides as forbear does.

urllib3 calls three methods of a Retry: ``is_retry`` (may this status be retried?), ``increment``
(return the Retry of the next attempt, or raise) and ``sleep``. It passes on nothing else, so a call
begins here with its first failure. The object that the user made is a template and never changes;
``increment`` returns a copy that carries the call. To hand a response over it raises MaxRetryError,
and urllib3 returns the response because ``raise_on_status`` is False.

A hop is the part of a Retry that belongs to one call. A redirect begins a new hop: retries used and
deadline stay, what belongs to an origin begins anew.
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from urllib3 import util
from urllib3.exceptions import MaxRetryError, ResponseError
from urllib3.util.retry import RequestHistory

from ...core.call import RECORD, SENT_BEFORE, Story
from ...core.checks import check_bool, shown, tool
from ...core.headers.hints import read_hint
from ...core.outcome import Phase, Reason
from ...core.policy import RetryPolicy
from ...engine.calls import (
    begin_call,
    ended,
    follow_policy,
    has_story,
    note_first_attempt,
    with_story,
)
from ...engine.current import CURRENT, scope_of_call
from ...engine.errors import classify_error, classify_status
from ...engine.loop import settle
from ...engine.settings import DEFAULT_POLICY, Settings
from ...limits.budget import RetryBudget
from .deadlines import discard
from .errors import classify
from .request import Urllib3Request, field_lines, origin_at

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType as Trace
    from typing import Self, Unpack

    from urllib3.connectionpool import HTTPConnectionPool as Pool
    from urllib3.response import BaseHTTPResponse
    from urllib3.response import HTTPResponse as Response

    from ...core.call import Call
    from ...core.outcome import Failure
    from ...engine.options import Options
    from .pool import Retries

KEYED = frozenset({"POST", "PATCH"})  # need a key to be safe, and a Retry sees no headers
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # carry no body, as a rule
REDIRECTS = 10  # as many as urllib3's own Retry() follows
# After these urllib3's own Retry raises the error as it is, after others MaxRetryError.
AS_IT_IS = frozenset({Reason.METHOD_NOT_REPLAYABLE, Reason.BODY_CONSUMED})
# Parameters of urllib3's own new() that a policy replaces, in its oldest and newest version.
REPLACED = frozenset(
    {
        "total", "connect", "read", "status", "other", "allowed_methods", "status_forcelist",
        "backoff_factor", "backoff_max", "backoff_jitter", "retry_after_max", "raise_on_status",
        "respect_retry_after_header",
    }
)  # fmt: skip
OPTIONS = ("budget", "strategy", "on_event", "name", "clock", "random")
UNSEEN = SimpleNamespace(ready=False)  # a body that a Retry cannot inspect


class Hop:
    """One hop. Not shared between threads."""

    def __init__(self, sent_at: float, deadline_at: float, retries_used: int = 0) -> None:
        self.sent_at = sent_at  # the first attempt, as far as known
        self.deadline_at = deadline_at
        self.retries_used = retries_used  # by earlier hops
        self.call: Call | None = None  # from the hop's first failure on
        self.is_over = False  # urllib3 has handed over or raised
        self.story: Story | None = None  # then, what happened

    @property
    def delay(self) -> float:
        """Seconds to wait before the next attempt."""
        history = () if self.call is None else self.call.history
        return (history[-1].delay or 0.0) if history else 0.0

    def next(self, now: float) -> Hop:
        """The part of a call that redirects keep; a hop's first attempt is no retry."""
        used = self.retries_used if self.call is None else self.call.attempts - 1
        return Hop(now, self.deadline_at, used)


class Bridge:
    """The state that all copies of a Retry share, and how the calls of their hops go on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = settings.clock
        settings.wants_ends = False  # urllib3 does not show the end of each call

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        return classify(error)

    def is_cut_by_deadline(self, call: Call, failure: Failure) -> bool:
        return False  # nothing shortens the timeouts of urllib3

    def is_reused(self, call: Call, error: Exception) -> bool:
        return False  # urllib3 has closed the connection already

    def note_error(self, call: Call, error: Exception) -> None:
        """Nothing: urllib3 does not act on errors."""

    def first_hop(self, policy: RetryPolicy, now: float) -> Hop:
        """Begin a hop, with the settings of this context."""
        context, deadline_at = scope_of_call(), inf
        if context is not None:
            policy = context.merged(policy)
            deadline_at = context.deadline_on(self.clock, now)
        if policy.total_timeout is not None:
            deadline_at = min(deadline_at, now + policy.total_timeout)
        return Hop(now, deadline_at)

    def note(self, hop: Hop, policy: RetryPolicy, method: str, url: str, pool: Pool) -> Call:
        """Return the hop's call, with the attempt that has just ended noted in it."""
        call = hop.call
        if call is None:
            request = Urllib3Request(method, origin_at(url, pool), {}, target=url)
            call = hop.call = begin_call(self.settings, request, hop.sent_at, CURRENT.get())
            if call.context is not None:
                policy = call.context.merged(policy)
            if policy.methods & KEYED:
                policy = policy.replace(methods=policy.methods - KEYED)
            if policy is not self.settings.policy:
                follow_policy(self.settings, call, policy)
            call.deadline_at = hop.deadline_at
            call.attempts = call.notes[SENT_BEFORE] = hop.retries_used
            note_first_attempt(call)
        elif not call.is_under_way:  # urllib3 always sleeps in between, other loops may not
            call.sending(self.clock.monotonic())
        call.request.method = method
        return call

    def should_retry(self, hop: Hop, failure: Failure, *, body_ready: bool) -> bool:
        """Is another attempt to be made? Then ``delay`` says when."""
        call = hop.call
        assert call is not None
        call.request.guard = None if body_ready else UNSEEN
        seconds = settle(call, self.settings, failure)
        if seconds is None:
            self.end(hop)
        return seconds is not None

    def wait(self, hop: Hop) -> None:
        """Wait until the next attempt is due, and note that it is sent."""
        call = hop.call
        if call is None or call.is_under_way:
            return
        ended_at = call.sent_at + call.history[-1].elapsed
        delay = ended_at + hop.delay - self.clock.monotonic()  # part of it went into draining
        try:
            if delay > 0:
                self.clock.sleep(delay)
        except BaseException:
            self.end(hop)
            raise
        call.sending(self.clock.monotonic())

    def accept(self, hop: Hop, status: int) -> None:
        """Note that urllib3 keeps a response, for which it does not call ``increment``."""
        call = hop.call
        if not hop.is_over and call is not None:
            if not call.is_under_way:
                call.sending(self.clock.monotonic())
            if status < 400:
                call.status = status
                settle(call, self.settings, None)
                now = self.clock.monotonic()
                self.settings.events.emit("succeeded_after_retry", call, now)
            self.end(hop)
        hop.is_over = True

    def end(self, hop: Hop) -> None:
        """Refund what was not used; keep the story."""
        hop.is_over = True
        call, now = hop.call, self.clock.monotonic()
        assert call is not None
        call.limits.leave(call, now)
        ended(self.settings, call)
        hop.story = call.story(now)


class Retry(util.Retry):
    """A ``urllib3.util.Retry`` for libraries that take nothing else, such as PyGithub, kubernetes.

    ``urllib3.PoolManager(retries=Retry(policy))``. One object serves all threads and is never
    changed. Where you can choose, take ``RetryPoolManager`` or ``forbear.requests.RetryAdapter``. A
    Retry sees no headers, no body and no timeout of a request, so it is stricter:

    - After a response, or an error that may have come after the request was sent, only GET, HEAD,
      OPTIONS and TRACE are retried; with ``bodies_replayable=True`` the other methods of the policy
      too (PUT, DELETE, QUERY), and any method after the policy's ``unexecuted_statuses``, but else
      never POST and PATCH. An error that proves that nothing was sent is retried for any method. A
      GET is taken for one without a body.
    - It is first called when an attempt fails, so ``total_timeout`` and the record's times count
      from the end of the first attempt. Deadlines bound delays only, never an attempt, and
      ``attempt_timeout`` has no effect: give the client timeouts.
    - Calls that succeed deposit nothing in the budget, so what was spent returns with time only.
    - It never raises for a status, also with ``on_exhausted="raise"``: the last response is handed
      over. For an error it raises what urllib3's own Retry would raise, with the story as a note.
    - With ``preload_content=True`` urllib3 reads a failed response to its end before it calls the
      Retry. A body that a library reads after the hand-over, as requests does, is not watched.
    - It cannot hold a call and sees no success, so it cannot know when a server is healthy
      again. There is no ``gate``, no ``breaker`` and no ``cooldown``: a RetryBudget of its own
      bounds its retries unless another one is given.

    Redirects are urllib3's, and counted apart. Before urllib3 2.5 a PoolManager forgets its own
    Retry at a redirect; give it with the request there.

    Args:
        policy: When and how often; per context ``forbear.override`` changes it.
        bodies_replayable: Every PUT and DELETE made with this object, and every POST if the policy
            has ``unexecuted_statuses``, has a body that can be replayed: bytes, text, a file that
            can seek, or none.
        redirect: Redirects to follow; None: 10, as urllib3's own; False: return their response.
        raise_on_redirect: After too many raise MaxRetryError; False: return the last response.
        remove_headers_on_redirect: Headers not to be sent to another origin.
        **options: budget, strategy, on_event, name, clock and random, as of RetryPoolManager.

    Raises:
        TypeError: An option is not known or of the wrong type.
        ValueError: A value is out of its range, or ``strategy`` and ``budget`` are both given.
    """

    hop: Hop | None = None
    by_status = True

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        *,
        bodies_replayable: bool = False,
        redirect: bool | int | None = None,
        raise_on_redirect: bool = True,
        remove_headers_on_redirect: Collection[str] = util.Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT,
        **options: Unpack[Options[Any]],
    ) -> None:
        given: object = policy
        if isinstance(given, int) and not isinstance(given, bool):
            instead = f"Retry(RetryPolicy(max_attempts={given + 1}))"
            raise TypeError(
                f"policy must be a RetryPolicy, got {given}; {given} retries are {instead}"
            )
        check_bool("bodies_replayable", bodies_replayable)
        if not options.keys() <= set(OPTIONS):
            raise TypeError(tool("migration").unknown("Retry", options, OPTIONS))
        super().__init__(
            redirect=allowed_redirects(redirect),
            raise_on_redirect=raise_on_redirect and redirect is not False,
            raise_on_status=False,
            remove_headers_on_redirect=remove_headers_on_redirect,
        )
        self.bodies_replayable = bodies_replayable
        self.name: str = options.get("name", "default")
        self._given = policy, dict(options)
        self._connect()
        self.take_policy(self._port.settings.policy)

    @classmethod
    def from_int(
        cls, retries: Retries, redirect: object = True, default: Retries = None
    ) -> util.Retry:
        """Return a Retry that retries so often, for code that makes one of ``retries=3``.

        It keeps the policy and the budget of ``default``, which None means. 0 and False send once;
        False also follows no redirects and puts no MaxRetryError around an error.

        Raises:
            TypeError, ValueError: It is no number of at least 0.
        """
        made = default if isinstance(default, cls) else cls()
        if retries is None:
            retries = made if default is None else default
        if isinstance(retries, util.Retry):
            return retries
        if not isinstance(retries, int):
            raise TypeError(f"retries must be a number of retries, got {shown(retries)}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, got {retries}")
        followed = {} if redirect and retries is not False else {"redirect": False}
        made = made.new(total=int(retries), **followed)
        if retries is False:
            made.total = False
        return made

    def take_policy(self, policy: RetryPolicy) -> None:
        """Set the policy, and what of it urllib3 has a name for."""
        self.policy = policy
        self.total = policy.max_attempts - 1
        allowed = policy.methods - KEYED
        self.allowed_methods = allowed if self.bodies_replayable else allowed & BODILESS
        self.status_forcelist = policy.statuses
        self.respect_retry_after_header = policy.hints == "obey"

    def _connect(self) -> None:
        """Make what all copies share within one process."""
        policy, options = self._given
        listeners: Any = options.get("on_event", ())
        if not callable(listeners):  # else the settings refuse it
            options["on_event"] = every = tuple(listeners)
            listeners = [one for one in every if not getattr(one, "needs_ends", False)]
        # No gate: a Retry sees no success, and a call that sleeps in urllib3 cannot be released.
        if "budget" not in options and options.get("strategy") is None:
            options["budget"] = RetryBudget()
        settings = Settings("Retry", policy, {**options, "gate": None, "on_event": listeners})
        self._port = Bridge(settings)

    def __repr__(self) -> str:
        shares = f"redirect={self.redirect} {self._port.settings.limits!r}"
        return f"<{type(self).__name__} total={self.total} {shares}>"

    # What urllib3 calls.

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """May a response with this status be retried? ``increment`` decides, by its headers."""
        if status_code >= 400 and self.by_status:
            return True
        if self.hop is not None:
            self._port.accept(self.hop, status_code)
        return False

    def increment(
        self, method: str | None = None, url: Any = None, response: Any = None,
        error: Exception | None = None, _pool: Any = None, _stacktrace: Trace | None = None,
    ) -> Self:  # fmt: skip
        """Return the Retry of the next attempt.

        Raises:
            MaxRetryError: There is none. urllib3 hands over the response, if there is one.
            Exception: ``error`` itself: the request was sent and must not be retried.
        """
        if error is not None:
            return self._after_error(method, url, error, _pool, _stacktrace)
        if response is None:
            raise refusal(_pool, url, ResponseError.GENERIC_ERROR)
        latest = self._latest(response)
        if response.get_redirect_location():
            return latest.after_redirect(method, url, response, _pool)
        return latest.after_response(method, url, response, _pool)

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        """Wait for the decided delay."""
        if self.hop is not None:
            self._port.wait(self.hop)

    def sleep_for_retry(self, response: BaseHTTPResponse) -> bool:
        """Wait as long as a redirect asks, where a pool follows one by itself.

        Raises:
            MaxRetryError: It asks for longer than we may wait.
        """
        asked = self.get_retry_after(response)
        if not asked:
            return False
        clock, hop = self._port.clock, self.hop
        now = clock.monotonic()
        if hop is None or hop.is_over:
            hop = self._port.first_hop(self.policy, now)
        if asked > self.policy.max_retry_after or asked > hop.deadline_at - now:
            raise refusal(None, response.url, f"Retry-After of {asked:.0f} s is too long")
        clock.sleep(asked)
        hop.sent_at = clock.monotonic()
        return True

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        """The response's Retry-After in seconds; None if there is none, or not a valid one."""
        lines = field_lines(response.headers) if self.respect_retry_after_header else ()
        return read_hint(response.status, lines, now=self._port.clock.time()).delay

    def get_backoff_time(self) -> float:
        """Seconds that ``sleep`` waits."""
        return 0.0 if self.hop is None else self.hop.delay

    def new(self, **kw: Any) -> Self:
        """Return a copy that shares budget, strategy and listeners.

        It takes urllib3's parameters; those without a meaning here must keep their value.

        Raises:
            TypeError: The parameter cannot be expressed by a policy.
        """
        copy, changes = self.__copy__(), dict[str, Any]()
        for name, value in kw.items():
            if name == "redirect":
                copy.redirect = allowed_redirects(value)
            elif name == "history":
                copy.history = value or ()
            elif name == "raise_on_redirect":
                copy.raise_on_redirect = bool(value)
            elif name == "remove_headers_on_redirect":
                copy.remove_headers_on_redirect = frozenset(header.lower() for header in value)
            elif name not in REPLACED:
                raise TypeError(f"Retry.new() got an unexpected argument {name!r}")
            elif value == getattr(self, name, None):
                continue
            elif name == "total" and isinstance(value, int):
                changes["max_attempts"] = value + 1
            elif name == "status" and value is not None and not value:
                copy.status, copy.by_status = value, False
            elif name == "status_forcelist":
                changes["statuses"] = given = frozenset(value or ())
                changes["unexecuted_statuses"] = self.policy.unexecuted_statuses & given
            elif name == "allowed_methods" and value is not None:
                changes["methods"] = frozenset(value)
            elif name == "respect_retry_after_header":
                changes["hints"] = "obey" if value else "ignore"
            else:
                raise TypeError(
                    f"Retry.new() cannot set {name} to {shown(value)}: a RetryPolicy says when to"
                    " retry; make a Retry with policy.replace(…)"
                )
        if kw.get("redirect") is False:
            copy.raise_on_redirect = False
        if changes:
            copy.hop = None  # another policy, another call
            copy.take_policy(self.policy.replace(**changes))
        return copy

    # After an attempt.

    def _after_error(
        self, method: str | None, url: str, error: Exception, pool: Pool, trace: Trace | None
    ) -> Self:  # fmt: skip
        hop, call = self._attempt(method, url, pool)
        port = self._port
        failure = classify_error(port, call, error)
        call.last_error = None  # its traceback would keep the pool alive
        ready = failure.phase is Phase.UNSENT or self._is_body_ready(call)
        if port.should_retry(hop, failure, body_ready=ready):
            return self._next(hop, call, RequestHistory(method, url, error, None, None))
        is_final = call.stop is None or call.stop.reason in AS_IT_IS
        if self.total is False or (self._is_read_error(error) and is_final):
            if trace is not None and error.__traceback__ is not trace:
                error = error.with_traceback(trace)
            raise with_story(port, call, error)
        raise with_story(port, call, MaxRetryError(pool, url, error)) from error

    def after_response(self, method: str | None, url: str, response: Response, pool: Pool) -> Self:
        """Return what a failed status is retried with; raises the error that ends the call."""
        hop, call = self._attempt(method, url, pool)
        port, status = self._port, response.status
        lines = field_lines(response.headers)
        failure: Any = classify_status(port, call, status, lines, None)
        if port.should_retry(hop, failure, body_ready=self._is_body_ready(call)):
            discard(response, hop.deadline_at - port.clock.monotonic())
            return self._next(hop, call, RequestHistory(method, url, None, status, None))
        failed = refusal(pool, url, ResponseError.SPECIFIC_ERROR.format(status_code=status))
        if has_story(call):
            setattr(response, RECORD, hop.story)
            setattr(failed, RECORD, hop.story)
            if call.stop is None:
                now = port.clock.monotonic()
                port.settings.events.emit("succeeded_after_retry", call, now)
        raise failed from failed.reason

    def after_redirect(self, method: str | None, url: str, response: Response, pool: Pool) -> Self:
        """Begin a new hop: retries used and deadline stay, what belongs to an origin is new."""
        if self.hop is not None:
            self._port.accept(self.hop, response.status)
        left = int(self.redirect or 0) - 1
        if left < 0:
            if self.raise_on_redirect:
                discard(response)
            raise refusal(pool, url, "too many redirects")
        now = self._port.clock.monotonic()
        hop = self.hop or self._port.first_hop(self.policy, now)
        copy = self.__copy__()
        copy.redirect, copy.hop = left, hop.next(now)
        location = response.get_redirect_location() or None
        entry = RequestHistory(method, url, None, response.status, location)
        copy.history = (*self.history, entry)
        discard(response, hop.deadline_at - now)
        return copy

    def _next(self, hop: Hop, call: Call, entry: RequestHistory) -> Self:
        copy = self.__copy__()
        copy.hop = hop
        copy.total = call.policy.max_attempts - 1 - call.attempts
        copy.history = (*self.history, entry)
        return copy

    @property
    def _forbear_record(self) -> Story | None:
        """For ``record_of(response)``: a response of a retried call keeps its last Retry."""
        return None if self.hop is None else self.hop.story

    def _latest(self, response: BaseHTTPResponse) -> Self:
        """The Retry that the request was sent with; a PoolManager calls the one it was given."""
        latest = getattr(response, "retries", None)
        return latest if isinstance(latest, type(self)) and latest.hop is not None else self

    def _attempt(self, method: str | None, url: str, pool: Pool) -> tuple[Hop, Call]:
        """Return the hop, a new one on a template, and its call with the attempt that has ended."""
        hop, port = self.hop, self._port
        if hop is None or hop.is_over:
            hop = port.first_hop(self.policy, port.clock.monotonic())
        method = (method or "").upper()  # urllib3 passes "get" as the user wrote it
        return hop, port.note(hop, self.policy, method, url, pool)

    def _is_body_ready(self, call: Call) -> bool:
        return self.bodies_replayable or call.request.method in BODILESS

    # Copies.

    def __copy__(self) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()  # kubernetes copies its configuration deeply; the budget stays one

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("hop", "_port")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._connect()


def refusal(pool: Any, url: Any, why: str) -> MaxRetryError:
    """Make the error that ends a call without one of its own."""
    error = MaxRetryError(pool, url, ResponseError(why))
    error.__cause__ = error.reason
    return error


def allowed_redirects(redirect: object) -> int:
    if redirect is None or redirect is True:
        return REDIRECTS
    if not isinstance(redirect, int) or redirect < 0:
        raise ValueError(
            f"redirect must be a number of redirects, False for none or None, got {shown(redirect)}"
        )
    return int(redirect)
