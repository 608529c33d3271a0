"""Retry: a urllib3 ``Retry`` that decides as forbear does.

urllib3 calls ``is_retry`` (may this status be retried?), ``increment`` (return the Retry of the
next attempt, or raise) and ``sleep``. It passes on nothing else, so a call begins here with its
first failure. The object that the user made is a template and never changes; ``increment`` returns
a copy that carries the call. Redirects and the errors at the end are counted and made by urllib3's
own ``increment``: it is given a copy without a retry left, and raises what it always raises. The
error of a status never leaves urllib3, which hands the response over, since ``raise_on_status`` is
False.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from urllib3 import util
from urllib3.util.retry import RequestHistory

from ...addons.budget import RetryBudget
from ...core.call import RECORD
from ...core.checks import check_bool, check_number, tool
from ...core.outcome import Phase
from ...engine.calls import begin_call, ended, note_first_attempt, with_story
from ...engine.current import CURRENT
from ...engine.driver import discard
from ...engine.errors import classify_error, classify_response
from ...engine.loop import drive, settle
from ...engine.outgoing import Outgoing
from ...engine.prepare import policy_and_ends
from ...engine.settings import DEFAULT_POLICY, Settings
from ...errors import CircuitOpenError, DeadlineExceeded
from .pool import PoolPort
from .port import Urllib3Request, origin_at

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType as Trace
    from typing import Self, Unpack

    from urllib3.connectionpool import ConnectionPool
    from urllib3.response import BaseHTTPResponse

    from ...addons.options import Options
    from ...core.call import Call, Story
    from ...core.policy import RetryPolicy

KEYED = frozenset({"POST", "PATCH"})  # need a key to be safe, and a Retry sees no headers
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # carry no body, as a rule
REDIRECTS = 10  # as many as urllib3's own Retry() follows
OPTIONS = ("budget", "strategy", "on_event", "name", "clock", "random")


class Unseen:
    """In place of a guard: a body that a Retry cannot inspect."""

    ready = False


class Bridge:
    """The settings and their budget, which all copies of a Retry share."""

    def __init__(self, policy: RetryPolicy, options: dict[str, object]) -> None:
        self.given = policy, options
        # No gate: a Retry sees no success, and a call that sleeps in urllib3 cannot be released.
        if "budget" not in options and options.get("strategy") is None:
            options["budget"] = RetryBudget()
        listeners: Any = options.get("on_event", ())
        if not callable(listeners):  # else the settings refuse it
            # An interrupted attempt shows no end, and would leave a span open.
            listeners = [one for one in listeners if not getattr(one, "needs_ends", False)]
        given = {**options, "gate": None, "on_event": listeners}
        self.settings = Settings("Retry", policy, given)
        self.settings.wants_ends = False
        self.port = PoolPort(self.settings, CircuitOpenError, DeadlineExceeded)

    def __deepcopy__(self, memo: object) -> Bridge:
        return self  # kubernetes copies its configuration deeply; the budget stays one

    def __reduce__(self) -> tuple[object, ...]:
        return Bridge, self.given


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

    Redirects are urllib3's, and counted apart. After one the call begins anew, with the retries
    that are left; those of a Retry that was given with the request are all left, as with urllib3's.

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

    forbear_call: Call | None = None  # from its first failure on

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        *,
        bodies_replayable: bool = False,
        redirect: bool | int | None = None,
        raise_on_redirect: bool = True,
        remove_headers_on_redirect: Collection[str] = util.Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT,
        **options: Unpack[Options[object]],
    ) -> None:
        if isinstance(policy, int):
            instead = f"Retry(RetryPolicy(max_attempts={policy + 1}))"
            raise TypeError(f"policy must be a RetryPolicy; {policy} retries are {instead}")
        check_bool("bodies_replayable", bodies_replayable)
        if redirect is None or redirect is True:  # None would be bounded by ``total``
            redirect = REDIRECTS
        check_number("redirect", redirect, 0)
        if not options.keys() <= set(OPTIONS):
            raise TypeError(tool("migration").unknown("Retry", options, OPTIONS))
        self.bridge = Bridge(policy, dict(options))
        self.policy = self.bridge.settings.policy
        super().__init__(
            total=self.policy.max_attempts - 1,
            redirect=redirect,
            raise_on_redirect=raise_on_redirect,
            raise_on_status=False,
            remove_headers_on_redirect=remove_headers_on_redirect,
        )
        self.bodies_replayable = bodies_replayable

    def __repr__(self) -> str:
        limits = self.bridge.settings.limits
        return f"<{type(self).__name__} total={self.total} redirect={self.redirect} {limits!r}>"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "forbear_call"}

    @property
    def _forbear_record(self) -> Story | None:
        """For ``record_of(response)``: a response of a retried call keeps its last Retry."""
        return None if self.forbear_call is None else self.forbear_call.notes.get(RECORD)

    def new(self, **kw: object) -> Self:
        """Return a copy with other counts, which shares policy, budget, strategy and listeners."""
        made = copy(self)
        vars(made).update(kw)
        return made

    # What urllib3 calls.

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """May a response with this status be retried? ``increment`` decides, by its headers."""
        call = self._open_call()
        if call is not None and status_code < 400:  # which urllib3 keeps, without an ``increment``
            call.status = status_code
            settle(call, self.bridge.settings, None)
            self._end(call)
        return status_code >= 400

    def increment(
        self, method: str | None = None, url: str | None = None, response: Any = None,
        error: Exception | None = None, _pool: ConnectionPool | None = None,
        _stacktrace: Trace | None = None,
    ) -> Self:  # fmt: skip
        """Return the Retry of the next attempt.

        Raises:
            MaxRetryError: There is none. urllib3 hands over the response, if there is one.
            Exception: ``error`` itself: the request was sent and must not be retried.
        """
        outcome = method, url, response, error, _pool, _stacktrace
        after, port = copy(self), self.bridge.port  # the copy is without the call
        if error is None and response.get_redirect_location():
            self.is_retry(method or "", response.status)
            after.total = (self.total or 0) + 1  # a redirect is no retry
            return super(Retry, after).increment(*outcome)
        call = self._open_call() or self._first_call(method, url, _pool)
        if error is None:
            failure = classify_response(port, call, response)
        else:
            failure = classify_error(port, call, error)
            call.last_error = None  # its traceback would keep the pool alive
        is_unsent = failure is not None and failure.phase is Phase.UNSENT
        is_ready = is_unsent or self.bodies_replayable or call.request.method in BODILESS
        call.request.guard = None if is_ready else Unseen
        if settle(call, port.settings, failure) is not None:
            if error is None:  # urllib3 would drain it without a bound
                drive(discard(port, call, response))
            after.forbear_call = call
            after.total = max(0, call.policy.max_attempts - 1 - call.attempts)
            status = response.status if error is None else None
            after.history = (*self.history, RequestHistory(method, url, error, status, None))
            return after
        self._end(call)
        after.total = 0
        try:
            return super(Retry, after).increment(*outcome)
        except Exception as raised:
            if error is None:
                setattr(response, RECORD, call.notes[RECORD])
            else:
                with_story(port, call, raised)
            raise

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        """Wait for the decided delay."""
        call, clock = self.forbear_call, self.bridge.settings.clock
        if call is None:
            return
        delay = call.decided_at + (call.history[-1].delay or 0.0) - clock.monotonic()
        try:
            if delay > 0:  # part of it may have gone into draining
                clock.sleep(delay)
        except BaseException:
            self._end(call)
            raise
        call.sending(clock.monotonic())

    # The call.

    def _open_call(self) -> Call | None:
        """The call whose next attempt was sent, if it has begun and not ended."""
        call = self.forbear_call
        if call is None or RECORD in call.notes:
            return None
        if not call.is_under_way:  # urllib3 always sleeps in between, other loops may not
            call.sending(self.bridge.settings.clock.monotonic())
        return call

    def _first_call(self, method: str | None, url: str | None, pool: ConnectionPool | None) -> Call:
        """Begin the call with the attempt that has just failed."""
        settings, context = self.bridge.settings, CURRENT.get()
        now, setting = settings.clock.monotonic(), None
        if self.total != settings.policy.max_attempts - 1:
            setting = {"max_attempts": int(self.total or 0) + 1}
        policy, deadline_at, _ = policy_and_ends(settings, context, setting, now)
        policy = policy.replace(methods=policy.methods - KEYED)
        # urllib3 passes "get" as the user wrote it.
        request = Urllib3Request((method or "").upper(), origin_at(url, pool), {}, target=url)
        outgoing = Outgoing(request, request, policy, deadline_at)
        return note_first_attempt(begin_call(settings, request, now, context, outgoing))

    def _end(self, call: Call) -> None:
        """Refund what was not used; keep the story, which says that the call is over."""
        settings = self.bridge.settings
        now = settings.clock.monotonic()
        call.limits.leave(call, now)
        ended(settings, call)
        if len(call.history) > 1 and call.history[-1].failure is None:
            settings.events.emit("succeeded_after_retry", call, now)
        call.notes[RECORD] = call.story(now)
