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

from contextlib import suppress
from copy import copy
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from urllib3 import util
from urllib3.exceptions import MaxRetryError, ResponseError
from urllib3.util.retry import RequestHistory

from ...addons.budget import RetryBudget
from ...core.call import RECORD
from ...core.checks import check_bool, check_number, shown, tool
from ...core.headers.hints import read_hint
from ...core.outcome import Phase
from ...engine.bodies import read_briefly
from ...engine.calls import begin_call, ended, follow_policy, note_first_attempt, with_story
from ...engine.clock import SYSTEM_CLOCK
from ...engine.current import CURRENT
from ...engine.errors import classify_error, classify_status, known_lines
from ...engine.loop import drive, settle
from ...engine.reading import DRAIN_BYTES, DRAIN_SECONDS
from ...engine.settings import DEFAULT_POLICY, Settings
from .deadlines import close, is_quick
from .errors import classify
from .live import live_of
from .request import Urllib3Request, origin_at

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType as Trace
    from typing import Self, Unpack

    from urllib3.response import BaseHTTPResponse

    from ...addons.options import Options
    from ...core.call import Call, Story
    from ...core.outcome import Failure
    from ...core.policy import RetryPolicy

KEYED = frozenset({"POST", "PATCH"})  # need a key to be safe, and a Retry sees no headers
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # carry no body, as a rule
REDIRECTS = 10  # as many as urllib3's own Retry() follows
OPTIONS = ("budget", "strategy", "on_event", "name", "clock", "random")
# What ``new`` may set of urllib3's parameters; a policy, or the constructor, says the rest.
COUNTED = frozenset(
    {"total", "redirect", "status", "history", "raise_on_redirect", "status_forcelist",
     "respect_retry_after_header"}
)  # fmt: skip
UNSEEN = SimpleNamespace(ready=False)  # a body that a Retry cannot inspect


class Bridge:
    """The settings and their budget, which all copies of a Retry share."""

    def __init__(self, policy: RetryPolicy, options: dict[str, Any]) -> None:
        self.given = policy, options
        listeners: Any = options.get("on_event", ())
        if not callable(listeners):  # else the settings refuse it
            options["on_event"] = every = tuple(listeners)
            # urllib3 does not show the end of each call.
            listeners = [one for one in every if not getattr(one, "needs_ends", False)]
        # No gate: a Retry sees no success, and a call that sleeps in urllib3 cannot be released.
        if "budget" not in options and options.get("strategy") is None:
            options["budget"] = RetryBudget()
        self.settings = Settings("Retry", policy, {**options, "gate": None, "on_event": listeners})
        self.settings.wants_ends = False

    def __deepcopy__(self, memo: object) -> Bridge:
        return self  # kubernetes copies its configuration deeply; the budget stays one

    def __reduce__(self) -> tuple[Any, ...]:
        return Bridge, self.given

    # What the engine asks about an error.

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        return classify(error)

    def is_inside(self, error: Exception, cause: BaseException) -> bool:
        return False  # a Retry sees no body

    def is_cut_by_deadline(self, call: Call, failure: Failure) -> bool:
        return False  # nothing shortens the timeouts of urllib3

    def is_reused(self, call: Call, error: Exception) -> bool:
        return False  # urllib3 has closed the connection already

    def note_error(self, call: Call, error: Exception) -> None:
        """Nothing: urllib3 does not act on errors."""


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
        **options: Unpack[Options[Any]],
    ) -> None:
        given: object = policy
        if isinstance(given, int) and not isinstance(given, bool):
            instead = f"Retry(RetryPolicy(max_attempts={given + 1}))"
            raise TypeError(
                f"policy must be a RetryPolicy, got {given}; {given} retries are {instead}"
            )
        check_bool("bodies_replayable", bodies_replayable)
        check_number("redirect", redirects(redirect), 0)
        if not options.keys() <= set(OPTIONS):
            raise TypeError(tool("migration").unknown("Retry", options, OPTIONS))
        self._port = Bridge(policy, dict(options))
        policy = self._port.settings.policy
        super().__init__(
            total=policy.max_attempts - 1,
            redirect=redirects(redirect),
            status_forcelist=policy.statuses,
            raise_on_redirect=raise_on_redirect and redirect is not False,
            raise_on_status=False,
            respect_retry_after_header=policy.hints == "obey",
            remove_headers_on_redirect=remove_headers_on_redirect,
        )
        allowed = policy.methods - KEYED
        self.allowed_methods = allowed if bodies_replayable else allowed & BODILESS
        self.bodies_replayable = bodies_replayable

    @property
    def policy(self) -> RetryPolicy:
        """The policy, with what urllib3's counters and parameters say by now."""
        own, statuses = self._port.settings.policy, frozenset(self.status_forcelist or ())
        return own.replace(
            max_attempts=int(self.total or 0) + 1,
            statuses=statuses,
            unexecuted_statuses=own.unexecuted_statuses & statuses,
            hints="obey" if self.respect_retry_after_header else "ignore",
        )

    def __repr__(self) -> str:
        shares = f"redirect={self.redirect} {self._port.settings.limits!r}"
        return f"<{type(self).__name__} total={self.total} {shares}>"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "forbear_call"}

    @property
    def _forbear_record(self) -> Story | None:
        """For ``record_of(response)``: a response of a retried call keeps its last Retry."""
        return None if self.forbear_call is None else self.forbear_call.notes.get(RECORD)

    # What urllib3 calls.

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """May a response with this status be retried? ``increment`` decides, by its headers."""
        if status_code >= 400 and self.status != 0:
            return True
        self._accept(status_code)
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
        outcome = method, url, response, error, _pool, _stacktrace
        after, port = copy(self), self._port  # the copy is without the call
        if error is None and (response is None or response.get_redirect_location()):
            if response is not None:
                self._accept(response.status)
                if self.redirect or self.raise_on_redirect:
                    discard(response)  # urllib3 would drain it without a bound
                after.total = (self.total or 0) + 1  # a redirect is no retry
            return super(Retry, after).increment(*outcome)
        call = self._attempt(method, url, _pool)
        failure: Failure | None
        if error is None:
            lines = known_lines(list(response.headers.items()))
            failure = classify_status(port, call, response.status, lines, None)
        else:
            failure = classify_error(port, call, error)
            call.last_error = None  # its traceback would keep the pool alive
        is_unsent = failure is not None and failure.phase is Phase.UNSENT
        is_ready = is_unsent or self.bodies_replayable or call.request.method in BODILESS
        call.request.guard = None if is_ready else UNSEEN
        if settle(call, port.settings, failure) is not None:
            if error is None:
                discard(response, call.deadline_at - port.settings.clock.monotonic())
            after.forbear_call = call
            after.total = max(0, call.policy.max_attempts - 1 - call.attempts)
            status = response.status if error is None else None
            after.history = (*self.history, RequestHistory(method, url, error, status, None))
            return after
        self._end(call)
        after.total = False if self.total is False else 0  # False: the error as it is
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
        call, clock = self.forbear_call, self._port.settings.clock
        if call is None or call.is_under_way:
            return
        last = call.history[-1]
        delay = call.sent_at + last.elapsed + (last.delay or 0.0) - clock.monotonic()
        try:
            if delay > 0:  # part of it may have gone into draining
                clock.sleep(delay)
        except BaseException:
            self._end(call)
            raise
        call.sending(clock.monotonic())

    def sleep_for_retry(self, response: BaseHTTPResponse) -> bool:
        """Wait as long as a redirect asks, where a pool follows one by itself.

        Raises:
            MaxRetryError: It asks for longer than ``max_retry_after``.
        """
        clock, url = self._port.settings.clock, response.url
        asked = read_hint(response.status, response.headers.items(), now=clock.time()).delay
        if not asked or not self.respect_retry_after_header:
            return False
        if asked > self.policy.max_retry_after:
            too_long = ResponseError("the Retry-After is too long")
            raise MaxRetryError(None, url, too_long)  # type: ignore[arg-type]
        clock.sleep(asked)
        return True

    def new(self, **kw: Any) -> Self:
        """Return a copy that shares budget, strategy and listeners.

        Raises:
            TypeError: The parameter is one that a policy, or the constructor, has to say.
        """
        made = copy(self)
        for name, value in kw.items():
            is_count = name in COUNTED and not (name == "total" and value is None)
            if value != getattr(self, name, ...) and (not is_count or (name == "status" and value)):
                raise TypeError(
                    f"Retry.new() cannot set {name} to {shown(value)}: a RetryPolicy says when to"
                    " retry; make a Retry with policy.replace(…)"
                )
            setattr(made, name, value)
        if made.redirect is False or made.total is False:
            made.raise_on_redirect, made.redirect = False, 0
        made.redirect = redirects(made.redirect)
        return made

    # The call.

    def _attempt(self, method: str | None, url: Any, pool: Any) -> Call:
        """Return the call, which a template begins, with the attempt that has just failed."""
        call, settings = self.forbear_call, self._port.settings
        now = settings.clock.monotonic()
        if call is not None and RECORD not in call.notes:
            if not call.is_under_way:  # urllib3 always sleeps in between, other loops may not
                call.sending(now)
            return call
        # urllib3 passes "get" as the user wrote it.
        request = Urllib3Request((method or "").upper(), origin_at(url, pool), {}, target=url)
        call = begin_call(settings, request, now, CURRENT.get())
        policy, most, context = self.policy, inf, call.context
        if context is not None:
            policy, most = context.merged(policy), context.most_attempts
            call.deadline_at = context.deadline_on(settings.clock, now)
        if policy.total_timeout is not None:
            call.deadline_at = min(call.deadline_at, now + policy.total_timeout)
        follow_policy(settings, call, policy.replace(methods=policy.methods - KEYED))
        call.most_attempts = min(call.most_attempts, most)
        return note_first_attempt(call)

    def _accept(self, status: int) -> None:
        """Note that urllib3 keeps a response, for which it does not call ``increment``."""
        call, settings = self.forbear_call, self._port.settings
        if call is None or RECORD in call.notes:
            return
        if not call.is_under_way:
            call.sending(settings.clock.monotonic())
        if status < 400:
            call.status = status
            settle(call, settings, None)
        self._end(call)

    def _end(self, call: Call) -> None:
        """Refund what was not used; keep the story, which says that the call is over."""
        settings = self._port.settings
        now = settings.clock.monotonic()
        call.limits.leave(call, now)
        ended(settings, call)
        if len(call.history) > 1 and call.history[-1].failure is None:
            settings.events.emit("succeeded_after_retry", call, now)
        call.notes[RECORD] = call.story(now)


def redirects(redirect: Any) -> Any:
    """How many; urllib3 would bound None by ``total``, which counts no redirects here."""
    return REDIRECTS if redirect is None or redirect is True else redirect or 0


def discard(raw: Any, seconds: float = DRAIN_SECONDS) -> None:
    """Drain or close a failed response that urllib3 retries, so that its connection is free."""
    live = live_of(raw, SYSTEM_CLOCK.true_monotonic() + min(seconds, DRAIN_SECONDS))
    try:
        if is_quick(raw):
            drive(read_briefly(live, lambda _, received: received <= DRAIN_BYTES))
    finally:
        with suppress(Exception):  # how the body of a failed response ends does not matter
            close(raw)
