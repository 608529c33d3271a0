"""Transports of the httpx family: the fast path, and what the port of each flavour sends and reads.

``SyncRetrying`` and ``AsyncRetrying`` are the bodies of ``RetryTransport`` and
``AsyncRetryTransport``. A first attempt that succeeds leaves no trace; everything else becomes a
``Call`` and goes through the loop. A change in one flavour belongs in the other. What needs no I/O
is in port.py.
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.call import IN_FLIGHT, KEPT, SENT, SETTING
from ...engine.calls import (
    call_after_first,
    call_of,
    cancelled,
    ended,
    expired,
    next_request,
    wants_status_error,
)
from ...engine.clock import BACKSTOP
from ...engine.current import CURRENT
from ...engine.errors import ConsumedBody, DeadlineCut, HedgeFinished
from ...engine.frames import let_signals_through
from ...engine.loop import drive, drive_call, run
from ...engine.reading import WHOLE, note_prefetch
from ...engine.settings import DEFAULT_POLICY, OFF, PREFETCH, Settings
from ...limits.gate import MOST_TASKS
from .bodies import adrain, aprefetch_body, aread_whole, drain, has_arrived, prefetch_body
from .port import HttpxPort, Library
from .reading import HTTP_1

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self, Unpack

    from httpx import AsyncBaseTransport, BaseTransport, Request, Response

    from ...core.call import Call, Quiet
    from ...core.policy import RetryPolicy
    from ...engine.context import CallContext
    from ...engine.options import FamilyOptions
    from ...engine.outgoing import Outgoing
    from ...engine.reading import PrefetchResult
    from ...limits.limits import Limits
    from .types import Retrying

LOWER = ("http_proxy", "https_proxy", "all_proxy")
PROXIES = (*LOWER, *map(str.upper, LOWER))
current = CURRENT.get


class SyncHttpxPort(HttpxPort):
    """The port of ``RetryTransport``."""

    def __init__(self, settings: Settings, library: Library, inner: BaseTransport) -> None:
        super().__init__(settings, library, inner, library.sync)

    async def sleep(self, seconds: float, call: Call) -> bool:
        return self.settings.sleeper.sleep(
            seconds, since=call.started_at, after=call.decided_at, queued=call.notes.get(IN_FLIGHT)
        )

    async def inspect(self, call: Call, response: Response) -> Response | Exception:
        from ...addons.inspection import inspect  # the option has loaded it

        return inspect(self, call, response)

    async def close_idle(self, call: Call, error: Exception) -> None:
        from .pools import close_idle

        close_idle(*self.idle_at(call))

    async def run_hook(self, call: Call) -> None:
        from ...addons.hooks import call_before_attempt  # the option has loaded it

        call_before_attempt(self, call, next_request(self, call))

    async def send(self, call: Call) -> Response:
        request = next_request(self, call)
        now = self.clock.monotonic()  # after the hook, which may have taken long
        if now >= call.deadline_at:
            raise expired(self, call)
        call.sending(now)
        response: Response
        try:
            # In one statement: an interruption between two would leak the connection.
            response = call.live = self.inner.handle_request(request)
            if call.outgoing is not None:
                self.bound_reads(response, call.outgoing)
        except ConsumedBody as error:
            raise self.consumed(call.outgoing, error, first=not call.history) from None
        if call.rest is None and self.should_prefetch(response, call.policy):
            prefetch = prefetch_body(self, call.request.original, response, call.outgoing)
            note_prefetch(call, prefetch)
        return response

    def bound_reads(self, response: Response, outgoing: Outgoing) -> None:
        """Let each read of a response's body end by the deadline."""
        if outgoing.reads_until == inf or has_arrived(self, response):
            return
        if hasattr(response.extensions.get("network_stream"), "__dict__"):
            is_ours_alone = response.extensions.get("http_version") in HTTP_1
            if is_ours_alone and response.status_code != 101:
                response.stream = self.streams.deadline_reads(response, outgoing.timeouts)

    async def close_unused(self, response: Response | Exception | None) -> None:
        if response is not None and not isinstance(response, Exception):
            response.stream.close()  # type: ignore[union-attr]

    async def discard(self, call: Call, response: Response) -> list[bytes] | None:
        """Read what is left of a failed response if that is little and quick, then close it.

        Returns:
            The raw body, if all of it came.
        """
        body = await self.drain(call, response)
        try:
            if body is None:  # Response.close() costs as much as a third of a retry
                response.stream.close()  # type: ignore[union-attr]
        except Exception as error:  # the response has failed: how its body ends does not matter
            let_signals_through(error)
        return body

    async def drain(self, call: Call, response: Response) -> list[bytes] | None:
        """Read what is left of a failed response, if that is little and quick."""
        try:
            if self.is_quick(call, response):
                return drain(self, response, self.seconds_to_read(call))
        except Exception as error:  # as above
            with suppress(Exception):
                response.stream.close()  # type: ignore[union-attr]
            let_signals_through(error)
        return None

    async def keep(self, call: Call, response: Response) -> bool:
        """Read the response of a held call; False: it is too long to keep, so it is handed over."""
        call.notes[KEPT] = response
        body = await self.drain(call, response)
        if self.is_long(response):
            return False
        if body is None:
            await self.close_unused(response)
        self.empty(call, response, body)
        return True

    async def hand_over(self, call: Call, response: Response) -> Response:
        if call.rest is not None:
            return self.rest(call, response)
        self.finish(call, response)
        if call.stop is not None and wants_status_error(call):
            body = await self.discard(call, response)
            # No name for the error: its traceback would hold the frame that holds it, and the cycle
            # would keep the response until the garbage collector runs.
            raise self.status_error(call, response, body)
        if IN_FLIGHT in call.notes:
            self.keep_in_flight(call, response)
        return response


class Flavour(NamedTuple):
    """The names that the library has for the things of one flavour."""

    base: str  # the class of transports
    default: str  # the one that is made if none is given
    method: str


SYNC = Flavour("BaseTransport", "HTTPTransport", "handle_request")
ASYNC = Flavour("AsyncBaseTransport", "AsyncHTTPTransport", "handle_async_request")


def set_up(
    transport: Retrying,
    library: Library,
    flavour: Flavour,
    inner: object,
    policy: RetryPolicy,
    options: Mapping[str, object],
) -> tuple[Settings, Any]:
    """Check the arguments of a transport and set what both flavours have.

    Returns:
        The settings, and the inner transport.
    """
    wrapper = type(transport).__name__
    if inner is None:
        lost = next((name for name in PROXIES if os.environ.get(name)), None)
        if lost is not None:
            from .messages import warn_of_lost_proxy

            warn_of_lost_proxy(lost, library.name)
        inner = getattr(library.module, flavour.default)()
    check_inner(inner, library.name, flavour, wrapper)
    is_async = flavour is ASYNC
    settings = Settings(
        wrapper, policy, options, awaits=is_async, hedges=is_async, prefetch=PREFETCH
    )
    transport.inner = inner
    transport.inner_retries = take_over_retries(inner, wrapper)
    awaits_events = settings.event_streams is not None
    transport.prefetches = settings.prefetch > 0 or settings.resume or awaits_events
    transport.special = settings.special
    transport.is_plain = settings.is_plain
    # What looks like a success may be flagged, or be a stream whose first event is an error.
    transport.asks = settings.retry_if is not None or awaits_events
    transport.policy = settings.policy
    transport.limits = settings.limits
    transport.shared = settings.limits.shared
    return settings, inner


def check_inner(inner: object, name: str, flavour: Flavour, wrapper: str) -> None:
    roots = {cls.__module__.partition(".")[0] for cls in type(inner).__mro__}
    is_of_other = ("httpx2" if name == "httpx" else "httpx") in roots and name not in roots
    if is_of_other or not callable(getattr(inner, flavour.method, None)):
        from .messages import wrong_inner

        raise TypeError(wrong_inner(inner, name, "" if is_of_other else flavour.base, wrapper))


def take_over_retries(inner: object, wrapper: str) -> int:
    """Switch off the connect retries of the library's own pool, since two loops would multiply."""
    pool: Any = getattr(inner, "_pool", None)
    retries = getattr(pool, "_retries", 0)
    if not isinstance(retries, int) or retries < 1:
        return 0
    pool._retries = 0
    from .messages import warn_of_retries

    warn_of_retries(inner, retries, wrapper)
    return retries


def described(transport: Retrying) -> str:
    name = f"{type(transport).__module__}.{type(transport).__name__}"
    return f"<{name} {transport.limits!r} over {type(transport.inner).__name__}>"


class SyncRetrying:
    """The body of ``RetryTransport``."""

    if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

        def __getattr__(self, name):
            from .messages import missing_attribute

            raise missing_attribute(self, self._library.name, SYNC.method, name)

    def __repr__(self) -> str:
        return described(self)

    def __init__(
        self,
        inner: Any = None,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        **options: Unpack[FamilyOptions[object]],
    ) -> None:
        self._library: Library  # here, since help() lists the annotations of a class
        self.inner: Any
        self.inner_retries: int
        self.prefetches: bool
        self.special: bool
        self.is_plain: bool
        self.asks: bool
        self.policy: RetryPolicy
        self.limits: Limits
        self.shared: Quiet
        settings, sender = set_up(self, self._library, SYNC, inner, policy, options)
        self.port = SyncHttpxPort(settings, self._library, sender)
        self.port.inner_is_default = inner is None

    def handle_request(self, request: Any) -> Any:
        """Send a request; retry it where that is allowed and useful."""
        port = self.port
        started_at = port.clock.monotonic()
        context = current()
        outgoing = None
        if (
            self.special
            or (context is not None and not context.asks_nothing)
            or "forbear" in request.extensions
            or type(request.stream) is not port.byte_stream
        ):
            outgoing = port.prepare(request, started_at, context)
            if self.asks:
                return drive_call(call_of(port, request, outgoing, started_at, context), port)
        if not self.shared.quiet:
            return drive_call(call_of(port, request, outgoing, started_at, context), port)
        outcome: Any = None
        prefetch: PrefetchResult = None
        try:
            if outgoing is None:
                outcome = self.inner.handle_request(request)
            else:
                outcome = self.inner.handle_request(outgoing.request)
                port.bound_reads(outcome, outgoing)
            if outcome.status_code < 300:
                prefetch = WHOLE
                if self.prefetches:
                    if has_arrived(port, outcome):
                        outcome.extensions[SETTING] = SENT
                        if self.is_plain and self.shared.quiet:
                            return outcome  # no read is left that a deadline could bound
                    elif type(outcome.stream) not in port.ready:
                        prefetch = prefetch_body(port, request, outcome, outgoing)
                if prefetch is WHOLE:
                    if outgoing is None and self.is_plain and self.shared.quiet:
                        return outcome
                    port.accept_first(request, outcome, outgoing, started_at, context)
                    return outcome
                if not isinstance(prefetch, Exception):
                    port.stream_first(request, outcome, outgoing, started_at, context)
                    return outcome
            elif port.should_prefetch(
                outcome, self.policy if outgoing is None else outgoing.policy
            ):
                prefetch = prefetch_body(port, request, outcome, outgoing)
        except ConsumedBody as error:
            outcome = port.consumed(outgoing, error, first=True)
        except Exception as error:
            outcome = error
        except BaseException:
            drive(port.close_unused(outcome))
            cancelled(port.settings, call_of(port, request, outgoing, started_at, context))
            raise
        try:
            call = call_after_first(port, request, outgoing, started_at, context)
            if prefetch is not None:
                note_prefetch(call, prefetch)
            # Only the call holds the outcome now: a second reference would keep a failed response,
            # or the frames of an error, alive for as long as the call waits.
            call.live, outcome = outcome, None
            return drive_call(call, port)
        except BaseException:
            drive(port.close_unused(call.live if outcome is None else outcome))  # pyright: ignore
            raise

    def close(self) -> None:
        """Close the inner transport and wake waiting calls; they end with their last outcome."""
        self.port.settings.sleeper.close()
        self.inner.close()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.port.settings.sleeper.close()
        self.inner.__exit__(*exception)


class AsyncHttpxPort(HttpxPort):
    """The port of ``AsyncRetryTransport``, on asyncio and trio."""

    def __init__(self, settings: Settings, library: Library, inner: AsyncBaseTransport) -> None:
        super().__init__(settings, library, inner, library.asynchronous)
        from ...engine.alarms import Backstop  # of no use to the other flavour

        self.backstop = Backstop()
        self.first: Any = inner  # sends first attempts
        if settings.hedge is not None:
            from .hedging import Hedging

            self.first = Hedging(self, settings.hedge)
        settings.limits.hold_at_most(MOST_TASKS)

    async def sleep(self, seconds: float, call: Call) -> bool:
        return await self.settings.sleeper.asleep(
            seconds, since=call.started_at, after=call.decided_at, queued=call.notes.get(IN_FLIGHT)
        )

    async def inspect(self, call: Call, response: Response) -> Response | Exception:
        if call.prefetch_result is WHOLE and has_arrived(self, response):
            # So that a plain function can read it, and is not called a second time for it.
            await aread_whole(self, response)
        from ...addons.inspection import ainspect

        return await ainspect(self, call, response)

    async def close_idle(self, call: Call, error: Exception) -> None:
        from .pools import aclose_idle

        await aclose_idle(*self.idle_at(call))

    async def run_hook(self, call: Call) -> None:
        from ...addons.hooks import acall_before_attempt  # the option has loaded it

        await acall_before_attempt(self, call, next_request(self, call))

    async def send(self, call: Call) -> Response:
        request = next_request(self, call)
        now = self.clock.monotonic()  # after the hook, which may have taken long
        if now >= call.deadline_at:
            raise expired(self, call)
        call.sending(now)
        sender = self.inner if call.history or call.rest is not None else self.first
        response: Response
        try:
            if call.deadline_at == inf:
                response = call.live = await sender.handle_async_request(request)
                if call.rest is None and self.should_prefetch(response, call.policy):
                    original = call.request.original
                    prefetch = await aprefetch_body(self, original, response, call.outgoing)
                    note_prefetch(call, prefetch)
            else:
                # The rest of a download is not prefetched.
                policy = call.policy if call.rest is None else OFF
                seconds = call.deadline_at - call.sent_at
                call.live, prefetch = await self.send_within(
                    seconds, request, call.outgoing, policy, sender
                )
                response = call.live
                note_prefetch(call, prefetch)
            return response
        except ConsumedBody as error:
            raise self.consumed(call.outgoing, error, first=not call.history) from None
        except HedgeFinished as found:
            finished = found
        outcome: Response | Exception = await self.first.adopt(call, finished)
        if not isinstance(outcome, Exception):
            return outcome
        try:
            raise outcome
        finally:
            del outcome  # its traceback holds this frame: together they would be a cycle

    async def send_within(
        self, seconds: float, request: Request, outgoing: Outgoing, policy: RetryPolicy, sender: Any
    ) -> tuple[Response, PrefetchResult]:
        """Send one attempt before the deadline; return the response, and how its prefetch ended.

        Raises:
            DeadlineCut: The deadline is over, and the library has not noticed.
        """
        with self.backstop.after(seconds + BACKSTOP):
            response = prefetch = None
            try:
                response = await sender.handle_async_request(request)
                if self.trusts_heads and response.status_code < 300 and has_arrived(self, response):
                    response.extensions[SETTING] = SENT
                    return response, WHOLE
                if self.should_prefetch(response, policy):
                    prefetch = await aprefetch_body(self, request, response, outgoing)
                return response, prefetch
            except BaseException:
                await self.close_unused(response)
                raise
        from .pools import close_lost

        await close_lost(self.inner)  # the backstop's cancellation loses slots of the pool
        raise DeadlineCut

    async def continue_hedged(
        self,
        finished: HedgeFinished,
        request: Request,
        outgoing: Outgoing | None,
        started_at: float,
        context: CallContext | None,
    ) -> Response | None:
        """Continue a call whose first attempt was hedged, before there was a call."""
        call = call_after_first(self, request, outgoing, started_at, context)
        try:
            call.live = await self.first.adopt(call, finished)
        except BaseException:
            ended(self.settings, call)
            raise
        try:
            finished.outcome = None  # so that only the call holds it while it waits
            return await run(call, self)
        except BaseException:
            await self.close_unused(call.live)
            raise

    async def close_unused(self, response: Response | Exception | None) -> None:
        if response is not None and not isinstance(response, Exception):
            import anyio

            from .pools import close_lost, free_lost_request

            with anyio.CancelScope(shield=True):
                try:
                    await response.stream.aclose()  # type: ignore[union-attr]
                finally:  # the backstop's cancellation may arrive in the middle of it
                    if free_lost_request(response.stream):
                        await close_lost(self.inner)

    async def discard(self, call: Call, response: Response) -> list[bytes] | None:
        """Read what is left of a failed response if that is little and quick, then close it.

        Returns:
            The raw body, if all of it came.
        """
        body = await self.drain(call, response)
        try:
            if body is None:  # Response.aclose() costs as much as a third of a retry
                await response.stream.aclose()  # type: ignore[union-attr]
        except Exception as error:  # the response has failed: how its body ends does not matter
            let_signals_through(error)
        return body

    async def drain(self, call: Call, response: Response) -> list[bytes] | None:
        """Read what is left of a failed response, if that is little and quick."""
        try:
            if self.is_quick(call, response):
                return await adrain(self, response, self.seconds_to_read(call))
        except Exception as error:  # as above
            with suppress(Exception):
                await response.stream.aclose()  # type: ignore[union-attr]
            let_signals_through(error)
        return None

    async def keep(self, call: Call, response: Response) -> bool:
        """Read the response of a held call; False: it is too long to keep, so it is handed over."""
        call.notes[KEPT] = response
        body = await self.drain(call, response)
        if self.is_long(response):
            return False
        if body is None:
            await self.close_unused(response)
        self.empty(call, response, body)
        return True

    async def hand_over(self, call: Call, response: Response) -> Response:
        if call.rest is not None:
            return self.rest(call, response)
        self.finish(call, response)
        if call.stop is not None and wants_status_error(call):
            body = await self.discard(call, response)
            # No name for the error, as in the other flavour.
            raise self.status_error(call, response, body)
        if IN_FLIGHT in call.notes:
            self.keep_in_flight(call, response)
        return response


class AsyncRetrying:
    """The body of ``AsyncRetryTransport``."""

    if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

        def __getattr__(self, name):
            from .messages import missing_attribute

            raise missing_attribute(self, self._library.name, ASYNC.method, name)

    def __repr__(self) -> str:
        return described(self)

    def __init__(
        self,
        inner: Any = None,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        **options: Unpack[FamilyOptions[object]],
    ) -> None:
        self._library: Library  # here, since help() lists the annotations of a class
        self.inner: Any
        self.inner_retries: int
        self.prefetches: bool
        self.special: bool
        self.is_plain: bool
        self.asks: bool
        self.policy: RetryPolicy
        self.limits: Limits
        self.shared: Quiet
        settings, sender = set_up(self, self._library, ASYNC, inner, policy, options)
        self.port = AsyncHttpxPort(settings, self._library, sender)
        self.port.inner_is_default = inner is None

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request; retry it where that is allowed and useful."""
        port = self.port
        started_at = port.clock.monotonic()
        context = current()
        outgoing = None
        if (
            self.special
            or (context is not None and not context.asks_nothing)
            or "forbear" in request.extensions
            or type(request.stream) is not port.byte_stream
        ):
            outgoing = port.prepare(request, started_at, context)
            if self.asks:
                return await run(call_of(port, request, outgoing, started_at, context), port)
        if not self.shared.quiet:
            return await run(call_of(port, request, outgoing, started_at, context), port)
        outcome: Any = None
        prefetch: PrefetchResult = None
        try:
            if outgoing is not None and outgoing.deadline_at != inf:
                outcome, prefetch = await port.send_within(
                    outgoing.deadline_at - started_at,
                    outgoing.request,
                    outgoing,
                    outgoing.policy,
                    port.first,
                )
                if (
                    prefetch is WHOLE
                    and outcome.status_code < 300
                    and self.is_plain
                    and self.shared.quiet
                ):
                    return outcome  # no read is left that the deadline could bound
                if prefetch is None and (not self.prefetches or type(outcome.stream) in port.ready):
                    prefetch = WHOLE
            else:
                outcome = await port.first.handle_async_request(
                    request if outgoing is None else outgoing.request
                )
                if outcome.status_code < 300:
                    prefetch = WHOLE
                    if self.prefetches:
                        if has_arrived(port, outcome):
                            outcome.extensions[SETTING] = SENT
                            if self.is_plain and self.shared.quiet:
                                return outcome
                        elif type(outcome.stream) not in port.ready:
                            prefetch = await aprefetch_body(port, request, outcome, outgoing)
                    if (
                        prefetch is WHOLE
                        and outgoing is None
                        and self.is_plain
                        and self.shared.quiet
                    ):
                        return outcome
                elif port.should_prefetch(
                    outcome, self.policy if outgoing is None else outgoing.policy
                ):
                    prefetch = await aprefetch_body(port, request, outcome, outgoing)
            if outcome.status_code < 300:
                if prefetch is WHOLE:
                    port.accept_first(request, outcome, outgoing, started_at, context)
                    return outcome
                if not isinstance(prefetch, Exception):
                    port.stream_first(request, outcome, outgoing, started_at, context)
                    return outcome
        except ConsumedBody as error:
            outcome = port.consumed(outgoing, error, first=True)
        except Exception as error:
            outcome = error
        except BaseException:
            await port.close_unused(outcome)
            cancelled(port.settings, call_of(port, request, outgoing, started_at, context))
            raise
        try:
            if type(outcome) is HedgeFinished:
                return await port.continue_hedged(outcome, request, outgoing, started_at, context)
            call = call_after_first(port, request, outgoing, started_at, context)
            if prefetch is not None:
                note_prefetch(call, prefetch)
            call.live, outcome = outcome, None  # as above: nothing else holds it during a wait
            return await run(call, port)
        except BaseException:
            lost = call.live if outcome is None else outcome  # pyright: ignore
            await port.close_unused(lost.outcome if type(lost) is HedgeFinished else lost)
            raise

    async def aclose(self) -> None:
        """Close the inner transport and wake waiting calls; they end with their last outcome."""
        self.port.settings.sleeper.close()
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.port.settings.sleeper.close()
        await self.inner.__aexit__(*exception)
