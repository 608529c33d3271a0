"""Exchange: one call's I/O with a library of the family, driven by drive.py. Floor: acts.

Made only for calls that do not simply succeed at once, and for those that something special concerns
(a deadline, a body that is no plain bytes, a generated key …).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..context import CURRENT, Scope
from ..core.call import Call
from ..core.outcome import Failure, FailureKind, Phase, RequestFacts
from ..core.policy import RetryPolicy
from ..core.record import RECORD, SETTING, Trail
from ..core.verdict import GiveUp, Reason, RetryAfter
from ..errors import RetryRefused
from ..shared.standard import StandardStrategy
from .added import new_key, wants_key
from .bodies import ConsumedBody, Guard, wants_guard
from .errors import chain
from .redirects import HOP, Hop, redirect_target
from .timeouts import DRAIN_BYTES, CutOff, LoweredTimeout, Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .transports import Retrying

__all__ = ["OFF", "AsyncExchange", "Exchange", "SyncExchange"]

OFF = RetryPolicy(max_attempts=1, statuses=(), failures=(), conflict_with_key=False)  # type: ignore[arg-type]
BACKSTOP = 0.05  # seconds behind the deadline at which an asynchronous attempt is cut from outside


class Facts(RequestFacts):
    """What a decision needs to know of an httpx request."""

    __slots__ = ()

    def header_lines(self) -> Any:
        return self.headers.raw


class Exchange:
    """One call's I/O, the part without colour. Not shared between threads."""

    # What few calls have stands here once, not in every instance: that is a microsecond per ten of them.
    scope: Scope | None = None
    body: Guard | None = None
    timeouts: Timeouts | None = None
    generated_key: tuple[tuple[str, str], ...] = ()
    initial_delay = 0.0
    first_response: Any = None
    first_error: Exception | None = None
    last_error: Exception | None = None

    def __init__(self, transport: Retrying, request: Any, started_at: float) -> None:
        self.transport = transport
        self.sleeper = transport._sleeper
        self.request = self.pristine = self.outgoing = request
        self.call = Call(
            transport._policy,
            Facts(request.method, origin_of(request.url), request.headers, transport._key_names),
            transport._strategy,
            now=started_at,
            key_lifetime=86_400.0 if transport._idempotency is None else transport._idempotency.lifetime,
        )

    # Before the first attempt, for calls that do not fit through the door.

    def prepare(self) -> None:
        """Resolve what holds for this call and make the copy of the request that will be sent.

        Raises:
            The library's DeadlineExceeded or CircuitOpenError: nothing is sent.
        """
        transport, request, call = self.transport, self.request, self.call
        now = call.started_at
        setting = request.extensions.get(SETTING)
        scope = self.scope = CURRENT.get()
        policy = call.policy = transport._resolve(scope, setting)
        strategy = transport._strategy
        if policy is not transport._policy and isinstance(strategy, StandardStrategy):
            call.strategy = strategy.with_policy(policy)
        hop = request.extensions.get(HOP)
        if not (isinstance(hop, Hop) and hop.continues_in(request)):
            hop = None
        if hop is not None:
            call.follow(hop.retries_used)
            call.deadline_at = hop.deadline_at
        elif policy.total_timeout is not None:
            call.deadline_at = now + policy.total_timeout
        if scope is not None:
            call.deadline_at = min(call.deadline_at, scope.deadline_on(transport._clock, now))
        if call.deadline_at <= now:
            raise self._deadline_exceeded("the deadline was over before anything was sent")
        try:
            self.initial_delay = call.open(now)
        except RetryRefused as refused:
            raise self._told(
                transport._library.circuit_open_error(
                    f"{call.facts.origin} is not sent to now: {refused.reason.value}",
                    reason=refused.reason,
                    retry_after=refused.retry_after,
                )
            ) from None
        try:
            self._prepare_copy(policy, setting is False, hop)
        except BaseException:
            self.release()
            raise

    def _prepare_copy(self, policy: RetryPolicy, off: bool, hop: Hop | None) -> None:
        transport, request, call = self.transport, self.request, self.call
        stream = request.stream
        if not off and type(stream) is not transport._byte_stream and wants_guard(stream):
            if isinstance(stream, Guard):  # of a forbear above us
                self.body = stream
            elif hop is not None and hop.body is not None and hop.body.covers(stream):
                self.body = hop.body  # it knows what the hops before have read
            else:
                self.body = self._guard(stream, transport._body_buffer)
            stream = self.body
        added: list[tuple[str, str]] = []
        if not off:
            if transport._contact is not None and "from" not in request.headers:
                added.append(("From", transport._contact))
            keys = transport._idempotency
            if keys is not None and wants_key(keys, request, call.facts.origin):
                if hop is not None and hop.key and hop.key_origin == call.facts.origin:
                    self.generated_key = hop.key
                else:
                    self.generated_key = new_key(keys, transport._clock.time())
                added.extend(self.generated_key)
        if call.deadline_at != inf or policy.attempt_timeout is not None:
            self.timeouts = Timeouts(
                request.extensions.get("timeout") or {},
                transport._now,
                call.deadline_at,
                policy.attempt_timeout,
            )
        if added or self.body is not None or self.timeouts is not None:
            self.pristine = self.outgoing = self._copy(request, stream, added)
            call.facts.headers = self.outgoing.headers

    def _copy(self, request: Any, stream: Any, added: Iterable[tuple[str, str]] = ()) -> Any:
        headers = request.headers
        for name, value in added:
            headers = self.transport._library.module.Headers(headers)
            headers[name] = value
        extensions = request.extensions
        if self.timeouts is not None:
            extensions = {**extensions, "timeout": self.timeouts}
        copied = self.transport._library.module.Request(
            request.method, request.url, headers=headers, stream=stream, extensions=extensions
        )
        if type(stream) is self.transport._byte_stream:
            copied.read()  # so that .content works below us as it does on the original
        return copied

    def _guard(self, stream: Any, buffer_limit: int) -> Any:
        raise AssertionError("each colour has its own")

    # Each attempt.

    def _first(self) -> Any:
        """The outcome of an attempt that went through the door, once."""
        error, self.first_error = self.first_error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # this frame is in its traceback
        response, self.first_response = self.first_response, None
        return response

    def _begin_attempt(self) -> tuple[Any, int] | None:
        """Count the attempt; before a re-send, return what the hook is called with."""
        transport, call = self.transport, self.call
        call.sending(transport._now())
        if not call.trail.entries or transport._before_attempt is None:
            return None
        # The hook may change headers: on a copy, and on a fresh one each time.
        self.outgoing = self._copy(self.pristine, self.pristine.stream)
        call.facts.headers = self.outgoing.headers
        return self.outgoing, call.attempts

    def _refuse_second_reading(self, error: ConsumedBody) -> Exception:
        failed: Exception = self.transport._library.module.RemoteProtocolError(
            f"The request was not answered and cannot be sent again: {error}."
        )
        return failed

    def judge_response(self, response: Any) -> RetryAfter | GiveUp | None:
        transport, call = self.transport, self.call
        status = response.status_code
        retry_if = transport._retry_if
        flagged = retry_if is not None and self._is_flagged(retry_if, response)
        now = transport._now()
        if status < 400 and not flagged:
            return call.after_response(status, (), now, utc_now=0.0)
        verdict = call.after_response(
            status,
            response.headers.raw,
            now,
            utc_now=transport._clock.time(),
            body_ready=self.body is None or self.body.ready,
            flagged=flagged,
            nested=is_nested(response.extensions.get(SETTING)),
        )
        if call.last_failure is not None:
            self._tell_failure(verdict, now)
        return verdict

    def judge_error(self, error: Exception) -> RetryAfter | GiveUp | None:
        transport, call = self.transport, self.call
        now = transport._now()
        verdict: RetryAfter | GiveUp | None
        if isinstance(error, CutOff):
            failure = Failure(FailureKind.TIMEOUT, Phase.SENT, error="DeadlineExceeded")
        else:
            failure = self._failure_of(error)
        if self.timeouts is not None and self.timeouts.cut_short(failure.kind, now):
            verdict = call.cut_off(failure, now)
        else:
            verdict = call.after_error(
                failure,
                now,
                body_ready=self.body is None or self.body.ready,
                nested=is_nested(getattr(error, RECORD, None)),
            )
        self._tell_failure(verdict, now)
        if type(verdict) is RetryAfter:
            self.last_error = bare(error)
        return verdict

    def _failure_of(self, error: Exception) -> Failure:
        library = self.transport._library
        body = self.body
        if body is not None and any(found is body.error for found in (error, *chain(error))):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        return library.classify(error)

    def _is_flagged(self, retry_if: Callable[[Any], bool | None], response: Any) -> bool:
        response.request = self.request
        try:
            return bool(retry_if(response))
        except Exception as error:
            self.transport._notices.hook_failed("retry_if", error)
            return False

    def _tell_failure(self, verdict: RetryAfter | GiveUp | None, now: float) -> None:
        notices = self.transport._notices
        call = self.call
        if call.policy is not OFF:
            notices.failed(call, verdict, now, () if self.scope is None else self.scope.listeners)
        if call.strategy_error is not None:
            notices.hook_failed(f"strategy {type(call.strategy).__name__}", call.strategy_error)
            call.strategy_error = None

    # The end.

    def surrender(self, error: Exception) -> None:
        call = self.call
        if call.was_cut:
            raise self._deadline_exceeded("the deadline ended the attempt") from (
                None if isinstance(error, CutOff) else error
            )
        if call.policy is not OFF:
            self._told(error)

    def _told(self, error: Any) -> Any:
        """Attach the story, unless a forbear below has attached its own."""
        if getattr(error, RECORD, None) is None:
            trail = self.call.close_trail(self.transport._now())
            setattr(error, RECORD, trail)
            if trail.entries:
                error.add_note(f"forbear: {trail.record()}")
        return error

    def _deadline_exceeded(self, message: str) -> Exception:
        self.call.refusal = GiveUp(Reason.DEADLINE)
        error: Exception = self._told(
            self.transport._library.deadline_exceeded(
                f"{self.call.facts.method} {self.call.facts.origin}: {message}", reason=Reason.DEADLINE
            )
        )
        return error

    def _finish(self, response: Any) -> Any:
        """Everything about a hand-over that needs no I/O."""
        transport, call = self.transport, self.call
        now = transport._now()
        status = response.status_code
        refused = call.refusal is not None
        if (refused or len(call.trail.entries) > 1) and call.policy is not OFF:
            # A forbear below has told its story already; ours adds nothing when we only passed it on.
            if not (len(call.trail.entries) == 1 and is_nested(response.extensions.get(SETTING))):
                response.extensions[SETTING] = call.close_trail(now)
            if not refused:
                transport._notices.succeeded(call, status, now, () if self.scope is None else self.scope.listeners)
        if 300 <= status < 400:
            target = redirect_target(response, self.request)
            if target is not None:
                extensions = self.request.extensions
                extensions[HOP] = Hop(self, target)
                extensions.setdefault(SETTING, None)  # the door looks for this one only
        if self.timeouts is not None:
            outer = inf if self.scope is None else self.scope.deadline_on(transport._clock, now)
            self.timeouts.reopen(outer)
        return response

    def _is_bounded(self) -> bool:
        """``forbear.deadline`` goes on bounding the body that the caller streams."""
        return self.timeouts is not None and self.scope is not None and self.scope.deadline_at != inf

    def release(self) -> None:
        call = self.call
        if call.token is not None:
            call.release(self.transport._now())

    def woken(self) -> Any:
        """The transport was closed during a wait: the last error, or what is left of the last answer.

        Its body and headers were let go of before the wait; its status is known.
        """
        call = self.call
        failure = call.last_failure
        if failure is None:
            raise self._told(
                self.transport._library.module.TransportError("The transport was closed before the request was sent.")
            )
        error, self.last_error = self.last_error, None
        if failure.status is None:
            assert error is not None
            try:
                raise self._told(error)
            finally:
                del error
        record = call.close_trail(self.transport._now())
        return self.transport._library.module.Response(
            failure.status, request=self.request, extensions={SETTING: record}
        )

    def _wants_status_error(self) -> bool:
        return self.call.refusal is not None and self.call.policy.on_exhausted == "raise"

    def _status_error(self, response: Any, body: bytes | None) -> Exception:
        """The library's own error for a status, with a response that can still be looked at."""
        module = self.transport._library.module
        if body is not None:
            extensions = {name: value for name, value in response.extensions.items() if name != "network_stream"}
            response = module.Response(
                response.status_code,
                headers=response.headers,
                stream=self.transport._byte_stream(body),
                extensions=extensions,
            )
            response.read()
        response.request = self.request
        try:
            response.raise_for_status()
        except module.HTTPStatusError as error:
            failed: Exception = self._told(error)
            return failed
        # ``retry_if`` flagged a status that the library does not take for an error.
        return self._told(  # type: ignore[no-any-return]
            module.HTTPStatusError(
                f"'{response.status_code}' was refused by retry_if", request=self.request, response=response
            )
        )


class SyncExchange(Exchange):
    """One call through a synchronous transport of the family."""

    def send(self) -> Any:
        if self.first_response is not None or self.first_error is not None:
            self.call.attempts += 1
            return self._first()
        hooked = self._begin_attempt()
        if hooked is not None:
            self._call_hook(hooked)
        try:
            return self.transport._inner.handle_request(self.outgoing)
        except ConsumedBody as error:
            raise self._refuse_second_reading(error) from None

    def _call_hook(self, hooked: tuple[Any, int]) -> None:
        try:
            self.transport._before_attempt(*hooked)  # type: ignore[misc]
        except Exception as error:
            self.transport._notices.hook_failed("before_attempt", error)

    def discard(self, response: Any) -> None:
        """Read what is left of a failed response if that is little and quick, else close it."""
        if type(response.stream) is not self.transport._byte_stream:
            self._drain(response)

    def _drain(self, response: Any, *, wanted: bool = False) -> bytes | None:
        """Return the raw body if all of it came within bounds; close the response in any case."""
        body: list[bytes] | None = None
        try:
            if wanted or is_worth_draining(response):
                body = []
                with LoweredTimeout(self.outgoing.extensions, self.transport._now, self.call.deadline_at) as drain:
                    for chunk in response.stream:
                        body.append(chunk)
                        if not drain.goes_on(len(chunk)):
                            body = None
                            break
        except Exception:  # it failed before: how its body fails no longer matters
            body = None
        try:
            response.close()
        except Exception:
            body = None
        return None if body is None else b"".join(body)

    def hand_over(self, response: Any) -> Any:
        response = self._finish(response)
        if self._wants_status_error():
            body = self._drain(response, wanted=True)
            raise self._status_error(response, body)
        if self._is_bounded():
            response.stream = self.transport._library.bounded(response.stream, self.timeouts, self._deadline_exceeded)
        return response

    def _guard(self, stream: Any, buffer_limit: int) -> Any:
        return self.transport._library.guard(stream, buffer_limit)


class AsyncExchange(Exchange):
    """One call through an asynchronous transport of the family."""

    async def send(self) -> Any:
        if self.first_response is not None or self.first_error is not None:
            self.call.attempts += 1
            return self._first()
        hooked = self._begin_attempt()
        if hooked is not None:
            await self._call_hook(hooked)
        try:
            if self.timeouts is None or self.call.deadline_at == inf:
                return await self.transport._inner.handle_async_request(self.outgoing)
            return await self._send_before(self.call.deadline_at)
        except ConsumedBody as error:
            raise self._refuse_second_reading(error) from None

    async def _send_before(self, deadline_at: float) -> Any:
        import anyio

        left = deadline_at - self.transport._now()
        with anyio.CancelScope(deadline=anyio.current_time() + left + BACKSTOP):
            return await self.transport._inner.handle_async_request(self.outgoing)
        raise CutOff

    async def _call_hook(self, hooked: tuple[Any, int]) -> None:
        try:
            answer = self.transport._before_attempt(*hooked)  # type: ignore[misc]
            if hasattr(answer, "__await__"):
                await answer
        except Exception as error:
            self.transport._notices.hook_failed("before_attempt", error)

    async def discard(self, response: Any) -> None:
        """Read what is left of a failed response if that is little and quick, else close it."""
        if type(response.stream) is not self.transport._byte_stream:
            await self._drain(response)

    async def _drain(self, response: Any, *, wanted: bool = False) -> bytes | None:
        """Return the raw body if all of it came within bounds; close the response in any case."""
        body: list[bytes] | None = None
        try:
            if wanted or is_worth_draining(response):
                body = []
                with LoweredTimeout(self.outgoing.extensions, self.transport._now, self.call.deadline_at) as drain:
                    async for chunk in response.stream:
                        body.append(chunk)
                        if not drain.goes_on(len(chunk)):
                            body = None
                            break
        except Exception:  # it failed before: how its body fails no longer matters
            body = None
        try:
            await response.aclose()
        except Exception:
            body = None
        return None if body is None else b"".join(body)

    async def hand_over(self, response: Any) -> Any:
        response = self._finish(response)
        if self._wants_status_error():
            body = await self._drain(response, wanted=True)
            raise self._status_error(response, body)
        if self._is_bounded():
            response.stream = self.transport._library.async_bounded(
                response.stream, self.timeouts, self._deadline_exceeded
            )
        return response

    def _guard(self, stream: Any, buffer_limit: int) -> Any:
        return self.transport._library.async_guard(stream, buffer_limit)


def origin_of(url: Any) -> str:
    """``scheme://host:port``, never userinfo, path or query."""
    scheme, host, port = url.scheme, url.raw_host.decode("ascii").lower(), url.port
    if port is None:
        port = DEFAULT_PORTS.get(scheme, 0)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def is_nested(trail: Any) -> bool:
    """Has a forbear below this one already retried, or decided that nobody should?"""
    return isinstance(trail, Trail) and (
        len(trail.entries) > 1 or trail.reason not in (None, Reason.ATTEMPTS_EXHAUSTED)
    )


def is_worth_draining(response: Any) -> bool:
    if response.extensions.get("http_version") == b"HTTP/2":
        return False  # closing a stream leaves the connection to the others
    length = response.headers.get("content-length", "")
    return not (length.isascii() and length.isdigit() and (len(length) > 9 or int(length) > DRAIN_BYTES))


def bare(error: Exception) -> Exception:
    """The error without the frames it came through: they would hold the exchange that holds it."""
    return error.with_traceback(None)
