"""Port for aiohttp: how a middleware prepares, sends once, classifies, and hands over."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import aiohttp

from ...core.call import IN_FLIGHT, KEPT, RECORD, RETRY_IF, SENDS
from ...core.headers.fields import begins_events
from ...core.outcome import Failure, FailureKind, Phase
from ...engine.alarms import Backstop
from ...engine.calls import (
    call_of,
    conclude,
    end_attempt,
    expired,
    free_in_flight,
    next_request,
    sent_request,
    too_late,
    wants_status_error,
    with_story,
)
from ...engine.clock import SYSTEM_CLOCK
from ...engine.errors import (
    ConsumedBody,
    DeadlineCut,
    classify_status,
    has_error_event,
    note_quotas,
)
from ...engine.frames import let_signals_through
from ...engine.reading import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    ENDLESS,
    LATE,
    WHOLE,
    is_endless,
    note_prefetch,
)
from ...engine.settings import OFF
from ...limits.gate import MOST_TASKS
from .errors import classify, idle_since, is_full, is_lost, repeats
from .request import LAST_HOP, PLAIN, AiohttpRequest, origin_of_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
    from aiohttp.abc import AbstractCookieJar
    from aiohttp.client_proto import ResponseHandler

    from ...core.call import Call, Prefetched
    from ...core.policy import RetryPolicy
    from ...engine.context import CallContext
    from ...engine.outgoing import Hop, Outgoing
    from ...engine.reading import PrefetchResult
    from ...engine.settings import Settings
    from ...errors import CircuitOpenError, DeadlineExceeded
    from .guard import Guard
    from .inspection import Inspection

    Lines = Sequence[tuple[str, str]]
    Source = tuple[ClientRequest, ClientHandlerType]


def cookie_for(url: Any, jar: AbstractCookieJar) -> str:
    """The value that a jar gives for the ``Cookie`` of a request to a URL; "" for none."""
    return "; ".join(f"{one.key}={one.coded_value}" for one in jar.filter_cookies(url).values())


class AiohttpPort:
    """The port of one middleware."""

    body_name = "_body"

    def __init__(
        self, settings: Settings, circuit_open_error: type[CircuitOpenError],
        deadline_exceeded: type[DeadlineExceeded],
    ) -> None:  # fmt: skip
        self.settings = settings
        settings.load(__name__.rpartition(".")[0], streams="bodies")
        self.clock = settings.clock
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded
        self.prefetch = settings.prefetch
        self.awaits_events = settings.event_streams is not None
        self.watches_bodies = settings.prefetch > 0 or settings.resume or self.awaits_events
        self.backstop = Backstop()
        settings.limits.hold_at_most(MOST_TASKS)

    # A call begins.

    def prepare(
        self, source: Source, started_at: float, context: CallContext | None, setting: object
    ) -> Outgoing:
        """Return what is sent in place of a request: a copy, if anything in it is changed.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
            The error that ended this very call, which the session retries once by itself.
        """
        from ...engine.prepare import outgoing_for

        request, hop, last = source[0], None, LAST_HOP.get()
        if last is not None:
            LAST_HOP.set(None)
            port, timer, found, error = last
            if port is self and timer is request._timer:
                if error is not None:
                    raise error
                hop = found
        body = None if type(request.body) in PLAIN else request.body
        outgoing = outgoing_for(self, source, request, body, started_at, context, setting, hop)
        if outgoing.deadline_at <= started_at:
            raise too_late(self, call_of(self, source, outgoing, started_at, context))
        return outgoing

    def guard_of(self, request: ClientRequest, body: aiohttp.Payload, hop: Hop | None) -> Guard:
        from .guard import Guard

        if isinstance(body, Guard):  # of a forbear above us
            return body
        guard: Guard | None = None if hop is None else hop.guard
        if guard is not None and guard.payload is body:
            return guard
        return Guard(body, self.settings.body_buffer)

    def bound(self, outgoing: Outgoing) -> None:
        """Nothing: ``attempt`` reads the limits of what it sends."""

    def view_of(self, source: Source) -> AiohttpRequest:
        (request, handler), names = source, self.settings.key_names
        url = request.url
        origin = origin_of_url(url)
        view = AiohttpRequest(request.method, origin, request.headers, names, url, request)
        view.handler = handler
        return view

    def copied(
        self, request: ClientRequest, lines: Lines | None = None, url: object = None
    ) -> ClientRequest:
        copy = object.__new__(type(request))  # the constructor would make the body anew
        fields = copy.__dict__ = vars(request).copy()
        fields["headers"] = headers = request.headers.copy()
        for name, value in lines or ():
            headers[name] = value
        if url is not None:
            fields["url"] = fields["original_url"] = url
        return copy

    def kind_of(self, error: Exception) -> FailureKind:
        return classify(error).kind

    def url_at(self, url: Any, scheme: str, host: str, port: int) -> Any:
        return url.with_scheme(scheme).with_host(host).with_port(port)

    def host_of(self, url: Any) -> str:
        return url.host_port_subcomponent  # type: ignore[no-any-return]

    # Each attempt.

    async def sleep(self, seconds: float, call: Call) -> bool:
        queued = call.notes.get(IN_FLIGHT)
        slept = await self.settings.sleeper.asleep(
            seconds, since=call.started_at, after=call.decided_at, queued=queued
        )
        return slept and not call.request.original.session.closed

    async def run_hook(self, call: Call) -> None:
        sent = sent_request(call)
        request = next_request(self, call)
        await sent.close()  # as below
        from ...addons.hooks import call_before_attempt  # the option has loaded it

        await call_before_attempt(self, call, request)

    async def send(self, call: Call) -> ClientResponse:
        sent = sent_request(call)
        request = next_request(self, call)
        if call.history:
            # Wait for the task that wrote the last attempt's body, which was cancelled: else two
            # tasks could read one body.
            await sent.close()
            request.update_expect_continue()  # its future serves one response only
            if request.session.closed:  # it has lost its connector
                raise with_story(self, call, call.last_error or self.closed_error())
        now = self.clock.monotonic()  # after the hook, which may have taken long
        if now >= call.deadline_at:
            raise expired(self, call)
        call.sending(now)
        handler, policy = call.request.handler, call.policy  # type: ignore[attr-defined]
        if call.rest is not None:
            policy = OFF  # it is not prefetched
        call.live, prefetch = await self.attempt(request, handler, call.outgoing, policy, now)
        note_prefetch(call, prefetch)
        return call.live  # type: ignore[no-any-return]

    async def attempt(
        self, request: ClientRequest, handler: ClientHandlerType, outgoing: Outgoing | None,
        policy: RetryPolicy, now: float,
    ) -> tuple[ClientResponse, PrefetchResult]:  # fmt: skip
        """Send one attempt; return the response, and how the prefetch of its body ended.

        Raises:
            DeadlineCut: The deadline is over, and the library has not noticed.
        """
        response = None
        each = None if outgoing is None else outgoing.policy.attempt_timeout
        try:
            if outgoing is None or (outgoing.deadline_at == inf and each is None):
                response = await handler(request)
                # Mostly; this costs less than to await the same.
                if response.content.is_eof() and not self.awaits_events:
                    return response, WHOLE
                return response, await self.prefetch_body(response, policy)
            with self.backstop.after(outgoing.deadline_at - now):
                with self.backstop.after(inf if each is None else each):
                    response = await handler(request)
                if response is None:  # nobody knows whether anything was sent
                    raise aiohttp.SocketTimeoutError(f"attempt_timeout, {each:g} s, was over")
                return response, await self.prefetch_body(response, policy)
        except aiohttp.ClientConnectionError as error:
            if isinstance(error.__cause__, ConsumedBody):
                message = f"The request cannot be resent: {error.__cause__}."
                raise aiohttp.ClientConnectionError(message) from None
            if not isinstance(error.__cause__, DeadlineCut):
                raise
        except BaseException:
            await self.close_unused(response)
            raise
        await self.close_unused(response)
        raise DeadlineCut

    async def prefetch_body(self, response: ClientResponse, policy: RetryPolicy) -> PrefetchResult:
        """Wait for the whole of a small body, if the response is likely to be accepted.

        What has arrived stays in aiohttp's own buffer, for the caller.
        """
        content = response.content
        if self.awaits_events:
            from .bodies import await_first_event

            found = await await_first_event(self, response, policy)
            if found is not None:
                return found
        if content.is_eof():
            return WHOLE
        if policy is OFF or self.prefetch == 0 or response.status in policy.statuses:
            return None
        length = response.content_length
        if length is None or length > self.prefetch or "Content-Encoding" in response.headers:
            return None  # it may be more than the buffer holds
        if response.content_type.startswith(ENDLESS):
            return None
        return await self.wait_for(content)

    async def wait_for(
        self, content: aiohttp.StreamReader, seconds: float = DRAIN_SECONDS
    ) -> PrefetchResult:
        """Wait for the end of a body, without taking it."""
        try:
            broken = content.exception()  # else it would be waited for
            if isinstance(broken, Exception):
                return broken
            with self.backstop.after(seconds):
                await content.wait_eof()
                return WHOLE
            return LATE
        except Exception as error:
            let_signals_through(error)
            return error

    # After each attempt.

    def status_of(self, response: ClientResponse) -> int:
        return response.status

    def inspection_of(
        self, request: ClientRequest, response: ClientResponse, deadline_at: float,
        prefetched: Prefetched | None,
    ) -> Inspection:  # fmt: skip
        from .inspection import Inspection

        ends_at = SYSTEM_CLOCK.true_monotonic() + deadline_at - self.clock.monotonic()
        return Inspection(self.backstop, response, ends_at, prefetched)

    async def inspect(self, call: Call, response: ClientResponse) -> ClientResponse | Exception:
        from ...addons.inspection import inspect  # the option has loaded it

        return await inspect(self, call, response)

    def classify_response(self, call: Call, response: ClientResponse) -> Failure | None:
        status: int = response.status
        if self.settings.limits.reads_quotas:
            note_quotas(self, call, response.raw_headers)
        if status < 400 and not call.notes.get(RETRY_IF) and call.body_error is None:
            call.status = status
            return None
        if "Set-Cookie" in response.headers:
            self._keep_cookies(call, response)
        story = getattr(response, RECORD, None)
        return classify_status(self, call, status, response.raw_headers, story)

    def _keep_cookies(self, call: Call, response: ClientResponse) -> None:
        """Store a failed response's cookies (RFC 6265 section 3), and let a retry carry them."""
        original = call.request.original
        jar = original.session.cookie_jar
        before = cookie_for(original.url, jar)
        jar.update_cookies_from_headers(response.headers.getall("Set-Cookie"), response.url)
        after = cookie_for(original.url, jar)
        if before != after:
            from ...engine.prepare import outgoing_of, renewed_cookies

            outgoing = outgoing_of(self, call)
            sent = outgoing.pristine.headers.get("Cookie", "")
            outgoing.cookie = renewed_cookies(sent, before, after, merges=True)

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        broken = None if call.guard is None else call.guard.error
        if broken is not None and (error is broken or error.__cause__ is broken):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        failure = classify(error)
        request = call.request.original
        if failure.kind is FailureKind.CONNECT_TIMEOUT and is_full(request):
            return Failure(FailureKind.POOL, Phase.UNSENT, error=failure.error)
        if type(error) is TimeoutError:
            call.deadline_at = self.clock.monotonic()  # ClientTimeout.total is over
        return failure

    def is_cut_by_deadline(self, call: Call, failure: Failure) -> bool:
        return False  # that is a DeadlineCut

    def is_reused(self, call: Call, error: Exception) -> bool:
        return bool(self._idle_since_sent(call))

    async def close_idle(self, call: Call, error: Exception) -> None:
        for protocol in self._idle_since_sent(call):
            protocol.close()  # the connector drops what is closed by itself

    def _idle_since_sent(self, call: Call) -> list[ResponseHandler]:
        """Connections that were idle before the attempt was sent, and are still.

        aiohttp does not show whether a connection is a new one. But it opens none while another is
        idle, so where there are such, the attempt broke on one like them. The last idle one is not
        recognized, so it costs an attempt as a new one does.
        """
        sent_at = SYSTEM_CLOCK.true_monotonic() - (self.clock.monotonic() - call.sent_at)
        return idle_since(sent_request(call), sent_at)

    async def close_unused(self, response: ClientResponse | Exception | None) -> None:
        if response is not None and not isinstance(response, Exception):
            response.close()

    async def discard(self, call: Call, response: ClientResponse) -> None:
        """Wait for the rest of a failed response if that is little and quick, then close it."""
        await self._comes_soon(call, response)
        if not response.closed or response.connection is not None:
            response.close()  # else its body was whole, and the connection is released already

    async def keep(self, call: Call, response: ClientResponse) -> bool:
        """Wait for the body of a held call; False: it is too long to keep, so it is handed over."""
        call.notes[KEPT] = response
        content = response.content
        if has_error_event(call, response.status):  # nothing else of it is kept
            known = content.read_nowait()
            response.close()
            from .bodies import put_back

            put_back(self.backstop, response, [known], WHOLE)
            return True
        is_whole = await self._comes_soon(call, response)
        if max(response.content_length or 0, content.total_bytes) > DRAIN_BYTES:
            return False
        if not is_whole:  # it stalls or breaks, so only its head is kept
            response.close()
            response.content = aiohttp.streams.EMPTY_PAYLOAD
        return True

    async def _comes_soon(self, call: Call, response: ClientResponse) -> bool:
        """Does all of the body of a failed response come, little and soon? It is not taken."""
        content = response.content
        size = max(response.content_length or 0, content.total_bytes)
        if not content.is_eof() and size <= DRAIN_BYTES and call.prefetch_result is not LATE:
            seconds = min(DRAIN_SECONDS, (call.deadline_at - self.clock.monotonic()) / 2)
            await self.wait_for(content, seconds)
        return bool(content.is_eof())

    # The end.

    async def hand_over(self, call: Call, response: ClientResponse) -> ClientResponse:
        if call.rest is None:
            self.finish(call, response)
            if wants_status_error(call):
                await self.discard(call, response)
                # No name for the error: its traceback would hold the frame that holds it, and the
                # cycle would keep the response until the garbage collector runs.
                raise self.status_error(call, response)
            if call.policy is not OFF and not has_ended(response):
                self.watch_body(response, lambda: call, sent_request(call), call.context)
        if IN_FLIGHT in call.notes:  # the response keeps it for as long as its connection
            connection = response.connection  # None: the body has come
            endless = (
                None if connection is None else is_endless(response.content_type, response.status)
            )
            notes = end_attempt(call, endless=endless)
            if notes is not None and connection is not None:
                connection.add_callback(partial(free_in_flight, notes))
        return response

    def finish(self, call: Call, response: ClientResponse) -> None:
        setattr(response, SENDS, True)
        conclude(self, call, vars(response), RECORD)
        if self.settings.stop_outer_retries and call.stop is not None:
            from ...engine.prepare import stop_outer

            headers = response.headers.copy()
            stop_outer(call, headers)
            response._cache["headers"] = type(response.headers)(headers)
        if 300 <= response.status < 400 and call.policy is not OFF:
            self.leave_hop(call)

    def leave_hop(self, call: Call, error: Exception | None = None) -> None:
        """Leave to the next hop what this one has used, or the error that ended the call."""
        from ...engine.outgoing import Hop

        LAST_HOP.set((self, call.request.original._timer, Hop(call), error))

    def watch_body(
        self, response: ClientResponse, begin: Callable[[], Call], request: ClientRequest,
        context: CallContext | None,
    ) -> None:  # fmt: skip
        """Resume a body that is still to come where it breaks; it ends at ``forbear.deadline``."""
        is_bounded = context is not None and context.has_deadline()
        if response.status != 101 and (self.watches_bodies or is_bounded):
            from .bodies import watch_body

            watch_body(self, response, begin, request, context)

    def stream_error(self, message: str) -> Exception:
        return aiohttp.ClientPayloadError(message)

    def stream_timeout(self, message: str) -> Exception:
        return aiohttp.SocketTimeoutError(message)

    def status_error(self, call: Call, response: ClientResponse) -> Exception:
        error = aiohttp.ClientResponseError(
            response.request_info, response.history, status=response.status,
            message=response.reason or "", headers=response.headers,
        )  # fmt: skip
        return with_story(self, call, error)

    def final_error(self, call: Call, error: Exception) -> Exception:
        if is_lost(error):
            cause, error = error, aiohttp.ClientConnectionResetError("Connection lost")
            error.__cause__ = cause
        return error

    def note_error(self, call: Call, error: Exception) -> None:
        if repeats(error, call.request.method):
            self.leave_hop(call, error)

    def closed_error(self) -> Exception:
        return aiohttp.ClientConnectionError(
            "The session or its middleware was closed while the call waited."
        )

    def request_rest(self, call: Call, lines: Lines) -> None:
        from ...engine.prepare import pristine_of, request_rest

        request_rest(self, call, self.copied(pristine_of(call), lines))

    def free_to_caller(self, call: Call, response: ClientResponse) -> ClientResponse:
        return response


def has_ended(response: ClientResponse) -> bool:
    """Has all of a body come? An empty one may be a stream of events that ended too early."""
    content = response.content
    if not content.is_eof():
        return False
    return content.total_bytes > 0 or not begins_events(response.status, response.raw_headers)
