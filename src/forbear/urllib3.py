"""forbear for urllib3: ``RetryPoolManager``, ``RetryProxyManager`` and ``Retry``. Floor: acts.

The managers are urllib3's own with pools that retry, so redirects stay urllib3's: each hop is a
call. ``Retry`` is for libraries that take nothing else, and stricter; see its docstring.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

try:
    import urllib3
except ImportError:
    raise ImportError("forbear.urllib3 needs urllib3: pip install 'forbear[urllib3]'") from None

from urllib3 import exceptions
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Retry as Urllib3Retry
from urllib3.util import Timeout, parse_url

from . import errors
from ._retrying import DEFAULT_POLICY, OWN_BUDGET, Dialect, Retrying
from .adapters.urllib3_bodies import ConsumedBody, is_plain, position_of
from .adapters.urllib3_carried import DEFAULT_PORTS, PoolFacts, origin_of
from .adapters.urllib3_errors import classify
from .adapters.urllib3_exchange import Exchange
from .adapters.urllib3_reading import stream_freely, stream_within
from .adapters.urllib3_redaction import redact_queries, redacted
from .adapters.urllib3_resume import is_promising, splice
from .adapters.urllib3_retry import Retry
from .core.record import RECORD
from .drive import drive
from .sending.context import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal

    from urllib3.response import BaseHTTPResponse

    from .adapters.urllib3_timeouts import Timeouts
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

__all__ = [
    "CircuitOpenError",
    "DeadlineExceeded",
    "Retry",
    "RetryPoolManager",
    "RetryProxyManager",
    "classify",
]

current = CURRENT.get


class CircuitOpenError(errors.CircuitOpenError, exceptions.HTTPError):
    """Nothing was sent: a strategy refuses this origin now. Also a
    ``urllib3.exceptions.HTTPError``.
    """

    def __init__(self, message: str, *, reason: Reason, retry_after: float | None = None) -> None:
        errors.ForbearError.__init__(self, message, reason=reason, retry_after=retry_after)


class DeadlineExceeded(errors.DeadlineExceeded, exceptions.TimeoutError):
    """The deadline of the call is over. Also a ``urllib3.exceptions.TimeoutError``."""

    def __init__(self, message: str, *, reason: Reason, retry_after: float | None = None) -> None:
        errors.ForbearError.__init__(self, message, reason=reason, retry_after=retry_after)


class Urllib3Dialect(Dialect):
    name = "urllib3"
    circuit_open_error = CircuitOpenError
    deadline_exceeded = DeadlineExceeded

    def classify(self, error: BaseException) -> Failure:
        return classify(error)


class RedirectsOnly(Urllib3Retry):
    """What is left of a urllib3 Retry where forbear retries: how many redirects are followed."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return False


class Wiring(Retrying):
    """What the pools of one manager share."""

    _library = Urllib3Dialect()
    manager: Any  # where there are several origins: a pool asks it for that of another one

    def __init__(self, policy: RetryPolicy, options: Mapping[str, Any]) -> None:
        self._equip(policy, **options)
        redact_queries()
        self._has_warned = False
        self._latest: tuple[Any, Any] = (
            ...,
            None,
        )  # most calls give no Retry: made for the one of their pool

    def redirects(self, retries: Any, redirect: bool, default: Any) -> Urllib3Retry:
        """The part of a Retry that is not ours to decide.

        Errors are raised as urllib3 raises them when nothing is left: with ``read=0`` and so on.
        """
        given = Urllib3Retry.from_int(retries, redirect=redirect, default=default)
        if type(given) is RedirectsOnly:
            return given
        counts = given.total or given.connect or given.read or given.status or given.other
        if retries is not None and counts and not given.history and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"retries={retries} of this request counts redirects only: the pool manager retries by itself, as"
                " its RetryPolicy says",
                UserWarning,
                stacklevel=6,
            )
        made = RedirectsOnly(
            total=given.total if given.redirect is None or given.redirect is True else None,
            connect=False
            if given.connect is False
            else 0,  # False: the error itself, without MaxRetryError
            read=False if given.read is False else 0,
            status=0,
            other=0,
            redirect=given.redirect,
            remove_headers_on_redirect=given.remove_headers_on_redirect,
            raise_on_redirect=given.raise_on_redirect,
            history=given.history,
        )
        if given is default:
            self._latest = (given, made)
        return made


class RetryingPool:
    """The part of a pool that retries; the rest is urllib3's."""

    wiring: Wiring

    def urlopen(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        retries: Any = None,
        **named: Any,
    ) -> BaseHTTPResponse:
        """As of ``HTTPConnectionPool.urlopen``; ``retries=False`` sends once."""
        wiring = self.wiring
        pool: Any = self
        if body is None and "body_pos" in named:
            named["body_pos"] = None  # after a 303; urllib3 before 2.8 forgets to
        started_at = wiring._now()
        if retries is False:
            exchange = PoolExchange(
                pool, (method, url, body, headers, {**named, "retries": False}), started_at
            )
            exchange.prepare(False)
            return exchange.run()  # type: ignore[no-any-return]
        default, redirects = wiring._latest
        if retries is not None or default is not pool.retries:
            redirects = wiring.redirects(retries, named.get("redirect", True), pool.retries)
        named["retries"] = redirects
        scope = current()
        if (
            wiring._signal.gauge.quiet
            and (scope is None or scope.asks_nothing)
            and (body is None or is_plain(body))
        ):
            try:
                response = self.attempt(method, url, body, headers, named)
            except Exception as error:
                exchange = PoolExchange(pool, (method, url, body, headers, named), started_at)
                exchange.first_error = error
            else:
                if response.status < 300:
                    if (
                        wiring._resume
                        and not named.get("preload_content", True)
                        and is_promising(response)
                    ):
                        splice(
                            response,
                            (PoolExchange, pool, (method, url, body, headers, named), started_at),
                        )
                    return response
                exchange = PoolExchange(pool, (method, url, body, headers, named), started_at)
                exchange.first_response = response
                del response  # the drive lets go of it before it waits
            exchange.call.sent(None)
        else:
            exchange = PoolExchange(pool, (method, url, body, headers, named), started_at)
            exchange.prepare()
        return exchange.run()  # type: ignore[no-any-return]

    @redacted
    def attempt(
        self,
        method: str,
        url: str,
        body: Any,
        headers: Any,
        named: dict[str, Any],
        timeouts: Timeouts | None = None,
    ) -> BaseHTTPResponse:
        """Send once. urllib3 would preload without a bound, so it is done here, unless the answer
        may be refused.
        """
        send: Any = super().urlopen  # type: ignore[misc]  # of the pool it is mixed into
        if not named.get("preload_content", True):
            return send(method, url, body, headers, **named)  # type: ignore[no-any-return]
        response: BaseHTTPResponse = send(
            method, url, body, headers, **{**named, "preload_content": False, "release_conn": False}
        )
        if response.status < 400 or response.status not in self.wiring._policy.statuses:
            self.preload(response, method, url, named, timeouts)
        return response

    def preload(
        self,
        response: Any,
        method: str,
        url: str,
        named: Mapping[str, Any],
        timeouts: Timeouts | None,
    ) -> None:
        """Leave the response as ``preload_content=True`` does: read, its connection back in the
        pool or kept.
        """
        left = None if timeouts is None else timeouts.left()
        if left is not None:
            stream_within(response, left)
        retries, releases = named["retries"], named.get("release_conn")
        kept = None
        if releases is not None and not releases:
            kept, response._connection = (
                response._connection,
                None,
            )  # the end of the body would give it back
        try:
            _ = response.data
        except BaseException as error:
            if kept is not None:
                response._connection, kept = kept, None
            response.close()
            if retries and isinstance(
                error, (exceptions.TimeoutError, exceptions.ProtocolError, exceptions.SSLError)
            ):
                # Raises what urllib3 would have raised: for most methods a MaxRetryError around it.
                retries.increment(
                    method, url, error=error, _pool=self, _stacktrace=error.__traceback__
                )
            raise
        finally:
            if kept is None:
                response.release_conn()
            else:
                response._connection = kept


class RetryingHTTPPool(RetryingPool, HTTPConnectionPool):  # type: ignore[misc]  # urlopen() takes the same by name
    """Of one http host."""


class RetryingHTTPSPool(RetryingPool, HTTPSConnectionPool):  # type: ignore[misc]
    """Of one https host."""


class PoolExchange(Exchange):
    """One call through a pool of ours."""

    def __init__(self, pool: Any, request: tuple[Any, ...], started_at: float) -> None:
        self.pool = pool
        self.method, self.url, self.payload, self.headers, self.named = request
        if self.headers is None:
            self.headers = pool.headers
        self.pristine = self.headers
        wiring = pool.wiring
        body_pos = self.named.get("body_pos")
        super().__init__(
            wiring,
            PoolFacts(
                self.method.upper(),
                origin_of(self.url, pool),
                self.headers,
                wiring._key_names,
                self.url,
            ),
            self.payload,
            body_pos if isinstance(body_pos, int) else None,
            started_at,
        )

    def run(self) -> Any:
        return drive(self)

    def _change_request(self, added: Iterable[tuple[str, str]]) -> None:
        headers = urllib3.HTTPHeaderDict(self.headers)
        for name, value in added:
            headers[name] = value
        self.pristine = self.headers = self.call.facts.headers = headers
        if self.body is not None:
            self.payload = self.body.outgoing

    def _prepare_attempts(self, policy: RetryPolicy) -> None:
        super()._prepare_attempts(policy)
        body, is_hop = self.body, bool(getattr(self.named["retries"], "history", None))
        if is_hop and body is not None and not body.replayable and not self.is_body_used:
            raise exceptions.ProtocolError(
                "The body was sent before the redirect and cannot be sent again."
            )

    def _go_to(self, origin: str) -> None:
        manager, path = self.transport.manager, self.call.facts.path_and_query()
        if not self.url.startswith("/"):
            # What goes to a forward proxy has the Host of its URL; one that names something else is
            # the caller's own.
            headers = urllib3.HTTPHeaderDict(self.pristine)
            if headers.get("Host") == parse_url(self.url).netloc:
                headers.discard("Host")  # from here on http.client writes it
            self.pristine = self.headers = self.call.facts.headers = headers
        self.pool = manager.connection_from_url(origin)
        is_absolute = manager._proxy_requires_url_absolute_form(parse_url(origin))
        self.url = (
            origin.removesuffix(f":{DEFAULT_PORTS[self.pool.scheme]}") + path
            if is_absolute
            else path
        )

    def _refresh(self, said: Iterable[tuple[str, str]]) -> None:
        self.headers = urllib3.HTTPHeaderDict(self.pristine)
        for name, value in said:
            self.headers[name] = value
        self.call.facts.headers = self.headers

    def _call_hook(self, hook: Any, attempt: int) -> None:
        sent = SentRequest(self.method, self.url, self.headers)
        hook(sent, attempt)
        self.headers = self.call.facts.headers = sent.headers

    def send(self) -> Any:
        if self.first_response is not None or self.first_error is not None:
            return self._first()
        try:
            self._begin_attempt()
            named = self.named
            if self.timeouts is not None:
                named = {**named, **self._clamped(named)}
            if self.download is not None:
                named = {
                    **named,
                    "redirect": False,
                }  # a rest from elsewhere is that of something else
            response = self.pool.attempt(
                self.method, self.url, self.payload, self.headers, named, self.timeouts
            )
            if self.download is not None:
                self._whole_head(response)
            return response
        except ConsumedBody as error:
            raise exceptions.ProtocolError(f"The request cannot be sent again: {error}.") from None

    def _configured(self, named: Mapping[str, Any]) -> Timeout:
        configured = named.get("timeout", self.pool.timeout)
        if configured is Timeout.DEFAULT_TIMEOUT:
            configured = self.pool.timeout
        return configured if isinstance(configured, Timeout) else Timeout.from_float(configured)

    def _clamped(self, named: Mapping[str, Any]) -> dict[str, Any]:
        left = self.timeouts.left()
        clamped: dict[str, Any] = {"timeout": self.timeouts.clamped(self._configured(named))}
        if left is not None:
            own = named.get("pool_timeout")
            clamped["pool_timeout"] = left if own is None else min(own, left)
        return clamped

    def judge_response(self, response: Any) -> Verdict:
        status = response.status
        if status < 400 and self.transport._retry_if is None:
            return self.call.after_response(status, (), self.transport._now(), utc_now=0.0)
        return self._judge(
            response, status, list(response.headers.items()), getattr(response, RECORD, None)
        )

    def _own_timeout(self) -> Timeout:
        return self._configured(self.named)

    def discard(self, response: Any) -> None:
        self._let_go(response)

    def hand_over(self, response: Any) -> Any:
        if self.download is not None:
            return self._take_rest(response, response.status)
        self._note_on(response, response.status)
        if self.body is not None and response.get_redirect_location():
            self._keep_body(response)
        if self._wants_status_error():
            self._let_go(response)
            reason = exceptions.ResponseError(
                exceptions.ResponseError.SPECIFIC_ERROR.format(status_code=response.status)
            )
            raise self._told(exceptions.MaxRetryError(self.pool, self.url, reason))
        if self.named.get("preload_content", True):
            try:
                self.pool.preload(response, self.method, self.url, self.named, self.timeouts)
            except Exception as error:
                self._failed_at_last(error)
                raise
        elif self.timeouts is not None:
            stream_freely(response, self._configured(self.named))
            if self._is_bounded():
                stream_within(response, self.timeouts.left())
        if not self.named.get("preload_content", True):
            self.resume_later(response)
        return response

    def _closed_error(self) -> Exception:
        return exceptions.ClosedPoolError(
            self.pool, "The pool manager was cleared before the request was sent."
        )

    def _bare_response(self, status: int, trail: Trail) -> Any:
        response = urllib3.HTTPResponse(
            b"", status=status, request_method=self.method, request_url=self.url
        )
        setattr(response, RECORD, trail)
        return response


class SentRequest:
    """What ``before_attempt`` is shown of a urllib3 request; it may change the headers."""

    def __init__(self, method: str, url: str, headers: urllib3.HTTPHeaderDict) -> None:
        self.method = method
        self.url = url
        self.headers = headers


class RetryPoolManager(urllib3.PoolManager):
    """A PoolManager that sends again what may be sent again. Thread-safe.

    ``RetryPoolManager(policy).request("GET", url)``. Redirects stay urllib3's, with its
    ``redirect=`` and ``retries=`` meanings: a ``retries=`` of a request counts redirects only, and
    ``retries=False`` sends once.

    Args:
        policy: When and how often; per context ``forbear.override`` changes it.
        num_pools: As of PoolManager.
        headers: As of PoolManager.
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
        before_attempt: Called with (request, attempt) before each re-send; ``request.headers`` may
            be changed.
        on_event: Callables that are told what happens, see forbear.core.events.
        body_buffer: Keep up to so many bytes of a one-shot body, so that it can be sent again.
        resume: With ``preload_content=False``, ask for the rest of a body that breaks, where the
            server has promised that it stays the same (a strong ETag, or a Last-Modified of long
            ago), and go on with it.
        contact: E-mail address for the ``From`` header (RFC 9110 section 10.1.2).
        announce_attempts: Send ``Retry-Attempt: 2`` with the first retry and so on, unless the
            request has that header.
        stop_outer_retries: Mark a response that was given up on with ``x-should-retry: false`` and
            ``stripe-should-retry: false``, so that the loop of an SDK above ends too.
        name: Name of this client in events and logs.
        clock: Where time comes from; a test passes forbear.testing.FakeClock().
        random: Like random.random.
        **connection_pool_kw: As of PoolManager: timeout, maxsize, block, cert_reqs …

    Raises:
        TypeError: An option is of the wrong type.
        ValueError: A value is out of its range, or ``strategy`` is given together with ``budget``,
            ``breaker``, ``cooldown`` or ``origins``.
    """

    def __init__(
        self,
        policy: RetryPolicy = DEFAULT_POLICY,
        num_pools: int = 10,
        headers: Mapping[str, str] | None = None,
        *,
        budget: Budget | None = OWN_BUDGET,
        breaker: CircuitBreaker | None = None,
        cooldown: Literal["off", "retries", "all"] = "off",
        origins: Origins | None = None,
        strategy: RetryStrategy | None = None,
        idempotency: IdempotencyKeys | None = None,
        retry_if: Callable[[BaseHTTPResponse], bool | None] | None = None,
        before_attempt: Callable[[Any, int], Any] | None = None,
        on_event: Iterable[Callable[[Event], object]] = (),
        body_buffer: int = 0,
        resume: bool = True,
        contact: str | None = None,
        announce_attempts: bool = False,
        stop_outer_retries: bool = False,
        name: str = "default",
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        **connection_pool_kw: Any,
    ) -> None:
        if "prefetch" in connection_pool_kw:
            raise TypeError(
                f"{type(self).__name__} takes no prefetch: with preload_content=True the body is read inside anyway,"
                " whatever its size"
            )
        self._wiring = Wiring(
            policy,
            {
                "budget": budget,
                "breaker": breaker,
                "cooldown": cooldown,
                "origins": origins,
                "strategy": strategy,
                "idempotency": idempotency,
                "retry_if": retry_if,
                "before_attempt": before_attempt,
                "on_event": on_event,
                "body_buffer": body_buffer,
                "resume": resume,
                "contact": contact,
                "announce_attempts": announce_attempts,
                "stop_outer_retries": stop_outer_retries,
                "name": name,
                "clock": clock,
                "random": random,
            },
        )
        if origins is not None:
            self._wiring.manager = (
                self  # a cycle, since its pools hold the wiring: they may be all that is kept of it
            )
        self._start(num_pools, headers, connection_pool_kw)
        self.pool_classes_by_scheme = {"http": RetryingHTTPPool, "https": RetryingHTTPSPool}

    def _start(
        self, num_pools: int, headers: Mapping[str, str] | None, connection_pool_kw: dict[str, Any]
    ) -> None:
        urllib3.PoolManager.__init__(self, num_pools, headers, **connection_pool_kw)

    @redacted
    def urlopen(self, method: str, url: str, redirect: bool = True, **kw: Any) -> BaseHTTPResponse:  # type: ignore[override]
        """As of ``PoolManager.urlopen``."""
        body = kw.get("body")
        if body is not None and kw.get("body_pos") is None and not is_plain(body):
            kw["body_pos"] = position_of(body)  # the hops of a redirect begin there too
        return super().urlopen(method, url, redirect, **kw)

    def _new_pool(self, *arguments: Any, **named: Any) -> HTTPConnectionPool:
        pool: Any = super()._new_pool(*arguments, **named)
        pool.wiring = self._wiring
        return pool  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Close the pools and wake calls that wait; they end with what they have."""
        self._wiring._sleeper.close()
        super().clear()

    def __repr__(self) -> str:
        return f"<forbear.urllib3.{type(self).__name__} {self._wiring._strategy!r}>"


class RetryProxyManager(RetryPoolManager, urllib3.ProxyManager):
    """The same through a proxy: ``RetryProxyManager(policy, proxy_url="http://proxy:3128")``.

    Options as of RetryPoolManager and ``urllib3.ProxyManager``.
    """

    def _start(
        self, num_pools: int, headers: Mapping[str, str] | None, connection_pool_kw: dict[str, Any]
    ) -> None:
        if "proxy_url" not in connection_pool_kw:
            raise TypeError(
                "RetryProxyManager needs proxy_url='http://…'; without a proxy use RetryPoolManager"
            )
        urllib3.ProxyManager.__init__(
            self, num_pools=num_pools, headers=headers, **connection_pool_kw
        )
