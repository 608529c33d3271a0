"""forbear for requests: ``RetryAdapter`` and ``mount``. Floor: acts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

try:
    import requests
except ImportError:
    raise ImportError("forbear.requests needs requests: pip install 'forbear[requests]'") from None

from requests.adapters import DEFAULT_POOLBLOCK, DEFAULT_POOLSIZE, BaseAdapter, HTTPAdapter
from urllib3.util import Retry, Timeout

from . import errors
from ._retrying import DEFAULT_POLICY, OWN_BUDGET, Dialect, Retrying
from .adapters.urllib3_bodies import ConsumedBody, is_plain
from .adapters.urllib3_errors import classify
from .adapters.urllib3_exchange import Exchange, Facts
from .adapters.urllib3_queueing import SECONDS_LEFT, bound_queues
from .adapters.urllib3_reading import stream_freely, stream_within
from .adapters.urllib3_redaction import redact_queries, redacted
from .adapters.urllib3_resume import is_promising, splice
from .core.checks import shown
from .core.record import RECORD
from .drive import drive
from .sending.context import CURRENT
from .shared.budget import RetryBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal, Unpack

    from ._retrying import Options
    from .core.events import Event
    from .core.key_options import IdempotencyKeys
    from .core.outcome import Failure
    from .core.policy import RetryPolicy
    from .core.strategy import Budget, RetryStrategy
    from .core.trail import Trail
    from .core.verdict import Reason, Verdict
    from .sending.clock import Clock
    from .shared.breaker import CircuitBreaker
    from .shared.origins import Origins

__all__ = ["CircuitOpenError", "DeadlineExceeded", "RetryAdapter", "classify", "mount"]

current = CURRENT.get
DEFAULT_PORTS = {"http": 80, "https": 443}
# What callers look at, and change, on the adapter of a session.
POOLS = (
    "max_retries",
    "config",
    "poolmanager",
    "proxy_manager",
    "_pool_connections",
    "_pool_maxsize",
    "_pool_block",
)
UNREADABLE = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)


class CircuitOpenError(errors.CircuitOpenError, requests.RequestException):
    """Nothing was sent: a strategy refuses this origin now. Also a
    ``requests.RequestException``.
    """

    def __init__(self, message: str, *, reason: Reason, retry_after: float | None = None) -> None:
        requests.RequestException.__init__(self, message)
        self.reason = reason
        self.retry_after = retry_after


class DeadlineExceeded(errors.DeadlineExceeded, requests.Timeout):
    """The deadline of the call is over. Also a ``requests.Timeout``."""

    def __init__(self, message: str, *, reason: Reason, retry_after: float | None = None) -> None:
        requests.Timeout.__init__(self, message)
        self.reason = reason
        self.retry_after = retry_after


class RequestsDialect(Dialect):
    name = "requests"
    circuit_open_error = CircuitOpenError
    deadline_exceeded = DeadlineExceeded

    def classify(self, error: BaseException) -> Failure:
        return classify(error)


class RetryAdapter(Retrying, HTTPAdapter):
    """An HTTPAdapter that sends again what may be sent again. Thread-safe; pickles.

    ``session.mount("https://", RetryAdapter(policy))``, or ``mount(session)`` around what is
    mounted already. Cooperates with other adapters by inheritance (each attempt goes through
    ``super().send``, and options that are not listed go to ``super().__init__``) and, by ``inner``,
    around them. With ``stream=False`` the body is read inside: a truncated answer is a failure like
    any other, for requests that are safe to repeat.

    Args:
        policy: When and how often; per context ``forbear.override`` changes it.
        inner: An adapter that sends in place of this one. Its own retries are set to 0 with a
            warning; its ``poolmanager``, ``proxy_manager``, ``max_retries`` and whatever else it
            has are those of this one.
        pool_connections: As of HTTPAdapter.
        pool_maxsize: As of HTTPAdapter.
        pool_block: As of HTTPAdapter.
        budget: Allowance that keeps retries a small share of traffic; one of its own if not given,
            a RetryBudget to share one, a RedisBudget for a fleet, None for no limit.
        breaker: CircuitBreaker that refuses calls to an origin that keeps failing, by the library's
            CircuitOpenError; one object may serve several clients. None: none.
        cooldown: Leave an origin alone for as long as it asked one call to (Retry-After of a 503;
            of a 429 for calls with the same Authorization or x-api-key). "retries": retries wait;
            "all": first attempts too, or are refused at once if they would wait longer than
            ``policy.max_retry_after`` or their deadline; "off".
        origins: Origins: servers that can stand in for each other, to which retries go in turn.
        strategy: A RetryStrategy in place of schedule, budget, breaker, cooldown and origins.
        idempotency: IdempotencyKeys: generate keys for POST and PATCH, recognise further key
            headers.
        retry_if: Called with each response; True makes it a failure like 503. It may only widen.
        before_attempt: Called with (prepared request, attempt) before each re-send, on a copy.
        on_event: Callables that are told what happens, see forbear.core.events.
        body_buffer: Keep up to so many bytes of a one-shot body, so that it can be sent again.
        resume: With ``stream=True``, ask for the rest of a body that breaks, where the server has
            promised that it stays the same (a strong ETag, or a Last-Modified of long ago), and go
            on with it.
        contact: E-mail address for the ``From`` header (RFC 9110 section 10.1.2).
        announce_attempts: Send ``Retry-Attempt: 2`` with the first retry and so on, unless the
            request has that header.
        stop_outer_retries: Mark a response that was given up on with ``x-should-retry: false`` and
            ``stripe-should-retry: false``, so that the loop of an SDK above ends too.
        name: Name of this client in events and logs.
        clock: Where time comes from; a test passes forbear.testing.FakeClock().
        random: Like random.random.
        **cooperative: Options of the adapters this one is combined with by inheritance.

    Raises:
        TypeError: An option is of the wrong type, or is ``max_retries``, which the policy replaces,
            or ``prefetch``.
        ValueError: A value is out of its range, or ``strategy`` is given together with ``budget``,
            ``breaker``, ``cooldown`` or ``origins``.
    """

    _library = RequestsDialect()
    _inner: BaseAdapter | None = None
    __attrs__ = [*HTTPAdapter.__attrs__, "_given", "_inner"]  # noqa: RUF012  # what requests pickles

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        *,
        inner: BaseAdapter | None = None,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        pool_block: bool = DEFAULT_POOLBLOCK,
        budget: Budget | None = OWN_BUDGET,
        breaker: CircuitBreaker | None = None,
        cooldown: Literal["off", "retries", "all"] = "off",
        origins: Origins | None = None,
        strategy: RetryStrategy | None = None,
        idempotency: IdempotencyKeys | None = None,
        retry_if: Callable[[requests.Response], bool | None] | None = None,
        before_attempt: Callable[[requests.PreparedRequest, int], Any] | None = None,
        on_event: Iterable[Callable[[Event], object]] = (),
        body_buffer: int = 0,
        resume: bool = True,
        contact: str | None = None,
        announce_attempts: bool = False,
        stop_outer_retries: bool = False,
        name: str = "default",
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        **cooperative: Any,
    ) -> None:
        if "max_retries" in cooperative:
            raise TypeError(
                "RetryAdapter takes no max_retries: give RetryPolicy(max_attempts=max_retries + 1)"
            )
        if "prefetch" in cooperative:
            raise TypeError(
                "RetryAdapter takes no prefetch: what is not streamed is read inside anyway, whatever its size"
            )
        if inner is not None and not callable(getattr(inner, "send", None)):
            raise TypeError(f"inner must be an adapter of requests, got {shown(inner)}")
        if budget is OWN_BUDGET and strategy is None:
            budget = RetryBudget()
        self._given: dict[str, Any] = {
            "policy": policy,
            "budget": budget,
            "breaker": breaker,
            "cooldown": cooldown,
            "origins": origins,
            "strategy": strategy,
            "idempotency": idempotency,
            "retry_if": retry_if,
            "before_attempt": before_attempt,
            "on_event": tuple(on_event) if not callable(on_event) else on_event,
            "body_buffer": body_buffer,
            "resume": resume,
            "contact": contact,
            "announce_attempts": announce_attempts,
            "stop_outer_retries": stop_outer_retries,
            "name": name,
            "clock": clock,
            "random": random,
        }
        self._equip(**self._given)
        redact_queries()
        if inner is not None:
            take_over_retries(inner)
        super().__init__(
            pool_connections=pool_connections,
            pool_maxsize=pool_maxsize,
            pool_block=pool_block,
            **cooperative,
        )
        if inner is not None:
            self._stand_for(inner)

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = state["_given"]
        if given["strategy"] is not None:
            given = {**given, "budget": OWN_BUDGET}  # which is known by its identity
        self._equip(**given)
        redact_queries()
        own = {name: value for name, value in state.items() if name != "_inner"}
        super().__setstate__(own)
        if state["_inner"] is not None:
            self._stand_for(state["_inner"])

    def _stand_for(self, inner: BaseAdapter) -> None:
        """Be the inner adapter to whoever looks at the pools of this one, or at anything else that
        it has.
        """
        self._inner = inner
        for name in POOLS:
            if hasattr(inner, name):
                vars(self).pop(name, None)  # and __getattr__ finds it
        for manager in (
            getattr(inner, "poolmanager", None),
            *getattr(inner, "proxy_manager", {}).values(),
        ):
            bound_queues(manager)

    if not TYPE_CHECKING:  # a checker shall go on finding mistakes in names

        def __getattr__(self, name: str) -> Any:
            if self._inner is None or name.startswith("__"):
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            return getattr(self._inner, name)

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """As of HTTPAdapter; of the inner adapter, if there is one."""
        if self._inner is None:
            super().init_poolmanager(*arguments, **named)
        else:
            self._inner.init_poolmanager(*arguments, **named)  # type: ignore[attr-defined]
        bound_queues(self.poolmanager)

    def proxy_manager_for(self, *arguments: Any, **named: Any) -> Any:
        """As of HTTPAdapter; of the inner adapter, if there is one."""
        if self._inner is None:
            manager = super().proxy_manager_for(*arguments, **named)
        else:
            manager = self._inner.proxy_manager_for(*arguments, **named)  # type: ignore[attr-defined]
        bound_queues(manager)
        return manager

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a prepared request, again where that is allowed and useful; arguments as of
        HTTPAdapter.
        """
        started_at = self._now()
        scope = current()
        if (
            self._signal.gauge.quiet
            and (scope is None or scope.asks_nothing)
            and is_plain(request.body)
        ):
            try:
                response = self._attempt(request, stream, timeout, verify, cert, proxies)
            except Exception as error:
                exchange = AdapterExchange(
                    self, request, (stream, timeout, verify, cert, proxies), started_at
                )
                exchange.first_error = error
            else:
                if response.status_code < 300:
                    if stream and self._resume and is_promising(response.raw):
                        arguments = (stream, timeout, verify, cert, proxies)
                        splice(
                            response.raw, (AdapterExchange, self, request, arguments, started_at)
                        )
                    return response
                exchange = AdapterExchange(
                    self, request, (stream, timeout, verify, cert, proxies), started_at
                )
                exchange.first_response = response
                del response  # the drive lets go of it before it waits
            exchange.call.sent(None)
        else:
            exchange = AdapterExchange(
                self, request, (stream, timeout, verify, cert, proxies), started_at
            )
            exchange.prepare()
        found: requests.Response = exchange.run()
        return found

    @redacted
    def _attempt(
        self,
        request: requests.PreparedRequest,
        stream: bool,
        timeout: Any,
        verify: Any,
        cert: Any,
        proxies: Any,
    ) -> requests.Response:
        """Send once. A body that the session would read anyway is read here, unless the answer may
        be refused.
        """
        # By name, as a session does: adapters may take nothing else.
        if self._inner is None:
            response = super().send(
                request, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies
            )
        else:
            response = self._inner.send(
                request, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies
            )
            response.connection = self  # digest authentication sends on it again
        if not stream and is_read_here(response, self._policy):
            _ = response.content
        return response

    def close(self) -> None:
        """Close the pools and wake calls that wait; they end with what they have."""
        self._sleeper.close()
        if self._inner is None:
            super().close()
        else:
            self._inner.close()  # whose pools are the only ones


class AdapterFacts(Facts):
    """What a decision may ask of a prepared request."""

    __slots__ = ()

    def path_and_query(self) -> str:
        return self.target.path_url  # type: ignore[no-any-return]


class AdapterExchange(Exchange):
    """One call through a RetryAdapter."""

    said_here: Sequence[str] = ()  # headers that tell of the attempt sent last alone

    def __init__(
        self,
        adapter: RetryAdapter,
        request: requests.PreparedRequest,
        arguments: tuple[Any, ...],
        started_at: float,
    ) -> None:
        self.request = self.outgoing = self.pristine = request
        self.stream, self.timeout, *self.rest = arguments
        position = request._body_position
        super().__init__(
            adapter,
            AdapterFacts(
                request.method or "GET",
                origin_of(request.url or ""),
                request.headers,
                adapter._key_names,
                request,
            ),
            request.body,
            position if isinstance(position, int) else None,
            started_at,
        )

    def run(self) -> Any:
        return drive(self)

    def _change_request(self, added: Iterable[tuple[str, str]]) -> None:
        copied = self.request.copy()
        for name, value in added:
            copied.headers[name] = value
        if self.body is not None:
            copied.body = self.body.outgoing
        self.pristine = self.outgoing = copied
        self.call.facts.headers = copied.headers

    def _go_to(self, origin: str) -> None:
        copied = self.pristine.copy()
        parts = urlsplit(copied.url or "")
        scheme, _, netloc = origin.partition("://")
        user, at, _ = parts.netloc.rpartition("@")
        port = f":{DEFAULT_PORTS[scheme]}"
        copied.url = parts._replace(
            scheme=scheme, netloc=user + at + netloc.removesuffix(port)
        ).geturl()
        self.pristine = self.outgoing = copied
        self.call.facts.headers = copied.headers

    def _refresh(self, said: Iterable[tuple[str, str]]) -> None:
        self.said_here = [name for name, _ in said]
        self.outgoing = self.pristine.copy()
        for name, value in said:
            self.outgoing.headers[name] = value
        self.call.facts.headers = self.outgoing.headers

    def _call_hook(self, hook: Any, attempt: int) -> None:
        hook(self.outgoing, attempt)
        self.call.facts.headers = self.outgoing.headers

    def send(self) -> Any:
        if self.first_response is not None or self.first_error is not None:
            return self._first()
        try:
            self._begin_attempt()
            if self.timeouts is None:
                response = self.transport._attempt(
                    self.outgoing, self.stream, self.timeout, *self.rest
                )
            else:
                response = self._attempt_before()
            if self.download is not None:
                self._whole_head(response.raw)
            return response
        except ConsumedBody as error:
            raise requests.ConnectionError(
                f"The request cannot be sent again: {error}.", request=self.request
            ) from None

    def _attempt_before(self) -> Any:
        timeout = self.timeouts.clamped(as_timeout(self.timeout))
        queueing = SECONDS_LEFT.set(self.timeouts.left())
        try:
            # stream=True: what is read here is read under the deadline.
            response = self.transport._attempt(self.outgoing, True, timeout, *self.rest)
        finally:
            SECONDS_LEFT.reset(queueing)
        if not self.stream and is_read_here(response, self.call.policy):
            self._read(response)
        return response

    def _read(self, response: Any) -> None:
        left = None if self.timeouts is None else self.timeouts.left()
        if left is not None:
            stream_within(response.raw, left)
        _ = response.content

    def judge_response(self, response: Any) -> Verdict:
        status = response.status_code
        if status < 400 and self.transport._retry_if is None:
            return self.call.after_response(status, (), self.transport._now(), utc_now=0.0)
        return self._judge(response, status, lines_of(response), getattr(response, RECORD, None))

    def _own_timeout(self) -> Timeout:
        return as_timeout(self.timeout)

    def discard(self, response: Any) -> None:
        if not getattr(response, "_content_consumed", False):
            self._let_go(response.raw)

    def hand_over(self, response: Any) -> Any:
        if self.download is not None:
            return self._take_rest(response.raw, response.status_code)
        for name in self.said_here:  # digest authentication sends a copy of the request again
            self.outgoing.headers.pop(name, None)
        self._note_on(response, response.status_code)
        if self.body is not None and response.is_redirect:
            self._keep_body(response)
        if self._wants_status_error():
            raise self._status_error(response)
        if self.timeouts is not None and not self.stream:
            try:
                self._read(response)
            except Exception as error:
                self._failed_at_last(error)
                if not (
                    response.is_redirect and isinstance(error, UNREADABLE)
                ):  # the session does without it
                    raise
        elif self.timeouts is not None:
            stream_freely(response.raw, as_timeout(self.timeout))
            if self._is_bounded():
                stream_within(response.raw, self.timeouts.left())
        if self.stream:
            self.resume_later(response.raw)
        return response

    def _status_error(self, response: Any) -> Exception:
        try:
            self._read(response)
        except requests.RequestException:  # the status says enough
            response.close()
        error = requests.HTTPError(
            f"{response.status_code} after {len(self.call.trail.entries)} attempts",
            request=response.request,
            response=response,
        )
        failed: Exception = self._told(error)
        return failed

    def _closed_error(self) -> Exception:
        return requests.ConnectionError(
            "The adapter was closed before the request was sent.", request=self.request
        )

    def _bare_response(self, status: int, trail: Trail) -> Any:
        response = requests.Response()
        response.status_code = status
        response.url = self.request.url or ""
        response.request = self.request
        response._content = b""
        setattr(response, RECORD, trail)
        return response


def mount(
    session: requests.Session, policy: RetryPolicy | None = None, **options: Unpack[Options]
) -> requests.Session:
    """Make a session retry, around whatever adapters are mounted; return it.

    All its adapters share one budget and breaker. Options as of RetryAdapter.

    Raises:
        ValueError: It was done already.
        TypeError: It is not a session of requests.
    """
    if not isinstance(session, requests.Session):
        raise TypeError(f"mount takes a requests.Session, got {shown(session)}")
    if any(isinstance(adapter, RetryAdapter) for adapter in session.adapters.values()):
        raise ValueError(
            "an adapter of this session retries already; mount other adapters first to change its policy"
        )
    named: dict[str, Any] = dict(options)
    if policy is not None:
        named["policy"] = policy
    if "budget" not in named and named.get("strategy") is None:
        named["budget"] = RetryBudget()  # one for all adapters of this session
    wrappers: dict[int, RetryAdapter] = {}
    for prefix, adapter in list(session.adapters.items()):
        if id(adapter) not in wrappers:
            wrappers[id(adapter)] = RetryAdapter(inner=adapter, **named)
        session.adapters[prefix] = wrappers[id(adapter)]  # not mount(), which would sort them anew
    return session


def take_over_retries(inner: BaseAdapter) -> None:
    """Switch off the retries of an adapter below: two loops multiply."""
    retries = getattr(inner, "max_retries", None)
    if isinstance(retries, Retry) and (retries.total not in (0, False) or retries.status_forcelist):
        inner.max_retries = Retry(0, read=False)  # type: ignore[attr-defined]
        warnings.warn(
            f"{type(inner).__name__}(max_retries={retries.total!r}) under RetryAdapter was set to 0: attempts would"
            " multiply. forbear retries by itself, with a wait and under its limits.",
            UserWarning,
            stacklevel=3,
        )


def is_read_here(response: requests.Response, policy: RetryPolicy) -> bool:
    """May the body be part of the attempt? A session follows a redirect whose body cannot be
    read.
    """
    status = response.status_code
    return (status < 400 or status not in policy.statuses) and not response.is_redirect


def as_timeout(timeout: Any) -> Timeout:
    """What requests makes of its timeout argument."""
    if isinstance(timeout, Timeout):
        return timeout
    if isinstance(timeout, tuple):
        connect, read = timeout
        return Timeout(connect=connect, read=read)
    return Timeout(connect=timeout, read=timeout)


def lines_of(response: requests.Response) -> list[tuple[str, str]]:
    """Field lines in wire order, several of one name apart, as far as they are known."""
    headers = getattr(response.raw, "headers", None)
    return list((response.headers if headers is None else headers).items())


def origin_of(url: str) -> str:
    """``scheme://host:port``, never userinfo, path or query."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:  # requests says what is wrong with it
        return ""
    return f"{parts.scheme}://[{host}]:{port}" if ":" in host else f"{parts.scheme}://{host}:{port}"
