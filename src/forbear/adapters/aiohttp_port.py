"""Port for aiohttp: how a middleware sends once, judges, and hands over. Floor: acts."""

from __future__ import annotations

from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import aiohttp

from ..core.headers.hints import READ_OCTETS
from ..core.headers.ranges import Part
from ..core.outcome import Failure, FailureKind, Phase
from ..core.record import RECORD
from ..sending import resumption
from ..sending.asking import AsyncAsking
from ..sending.backstop import BACKSTOP, Backstop
from ..sending.bodies import ConsumedBody
from ..sending.errors import CutOff, let_signals_through
from ..sending.headers import stop_outer
from ..sending.looking import DRAIN_BYTES, DRAIN_SECONDS, ENDLESS, LATE, WHOLE
from ..sending.settings import OFF
from ..shared.gate import MOST_TASKS
from .aiohttp_calls import AiohttpCalls
from .aiohttp_content import Bounded, Peek, Resuming, resumable
from .aiohttp_errors import classify, is_full, is_inside, is_lost, repeats
from .aiohttp_request import LAST_HOP, Hop, origin_of_url
from .awaiting import Awaiting

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.record import Story
    from ..sending.context import Scope
    from ..sending.copying import Outgoing
    from ..sending.settings import Settings

__all__ = ["AiohttpPort"]


class AiohttpPort(Awaiting, AsyncAsking, AiohttpCalls):
    """The port of one middleware."""

    status_of = staticmethod(attrgetter("status"))
    origin_of = staticmethod(origin_of_url)

    def __init__(self, settings: Settings, circuit_open: type[Any], exceeded: type[Any]) -> None:
        super().__init__(settings)
        self.circuit_open_error, self.deadline_exceeded = circuit_open, exceeded
        self.prefetch = settings.prefetch
        self.backstop = Backstop()
        self.limits.most_held = MOST_TASKS

    # Each attempt.

    async def send(self, call: Call) -> Any:
        sent = self.sent_request(call)
        request = self.next_request(call)
        if call.history:
            await sent.close()  # what still writes the last attempt's body was cancelled
            request.update_expect_continue()  # a future that tells of one answer
            if self.before_attempt is not None:
                await self.call_hook(call, request)
            if request.session.closed:  # it has no connector any more
                raise self.with_story(call, call.last_error or self.closed_error())
        now = self.clock.monotonic()  # after the hook, right before the sending
        if now >= call.deadline_at:
            raise self.expired(call)
        call.sending(now)
        handler, policy = call.request.handler, call.policy  # type: ignore[attr-defined]
        if call.resumption is not None:
            policy = OFF  # the rest of a download is not read ahead
        call.live, ahead = await self.attempt(request, handler, call.outgoing, policy, now)
        self.note_ahead(call, ahead)
        return call.live

    async def attempt(
        self, request: Any, handler: Any, outgoing: Outgoing | None, policy: Any, now: float
    ) -> tuple[Any, Any]:
        """Send one attempt; return the answer, and what came of reading its body ahead.

        Raises:
            CutOff: The deadline is over, and the library has not noticed.
        """
        response = None
        try:
            if outgoing is None or outgoing.timeouts is None:
                response = await handler(request)
                return response, await self.read_ahead(response, policy)
            if outgoing.deadline_at == inf:
                response = await self._send_in_time(request, handler, outgoing.timeouts)
                return response, await self.read_ahead(response, policy)
            with self.backstop.after(outgoing.deadline_at - now + BACKSTOP):
                response = await self._send_in_time(request, handler, outgoing.timeouts)
                return response, await self.read_ahead(response, policy)
        except aiohttp.ClientConnectionError as error:
            if isinstance(error.__cause__, ConsumedBody):
                message = f"The request cannot be sent again: {error.__cause__}."
                raise aiohttp.ClientConnectionError(message) from None
            if not isinstance(error.__cause__, CutOff):
                raise
        except BaseException:
            await self.let_go(response)
            raise
        await self.let_go(response)
        raise CutOff

    async def _send_in_time(self, request: Any, handler: Any, timeouts: Any) -> Any:
        """Send one attempt with its own limits for connecting and for reading."""
        from asyncio import timeout

        send, connecting = type(request).send, timeout(timeouts.connect())
        try:
            async with connecting:

                async def begin(connection: Any) -> Any:
                    connecting.reschedule(None)
                    timeouts.begin(connection.protocol)
                    return await send(request, connection)

                request.send = begin
                return await handler(request)
        except TimeoutError as error:
            if not connecting.expired():
                raise
            message = f"Connection timeout to host {request.url}"
            raise aiohttp.ConnectionTimeoutError(message) from error
        finally:
            request.__dict__.pop("send", None)

    async def read_ahead(self, response: Any, policy: Any) -> Any:
        """Wait for the whole of a small body, whose answer is likely to be accepted.

        What came stays in aiohttp's own buffer, for the caller.
        """
        content = response.content
        if content.is_eof():
            return WHOLE
        if policy is OFF or self.prefetch == 0 or response.status in policy.statuses:
            return None
        length = response.content_length
        if length is None or length > self.prefetch or "Content-Encoding" in response.headers:
            return None  # it may be more than the buffer takes
        if response.content_type.startswith(ENDLESS):
            return None
        return await self.wait_for(content)

    async def wait_for(self, content: Any) -> Any:
        """Wait for the end of a body, without taking it."""
        try:
            if content.exception() is not None:
                return content.exception()
            with self.backstop.after(DRAIN_SECONDS):
                await content.wait_eof()
                return WHOLE
            return LATE
        except Exception as error:
            let_signals_through(error)
            return error

    # After each attempt.

    def succeeded(
        self, request: Any, response: Any, outgoing: Outgoing | None, started_at: float
    ) -> None:
        """End a call whose first answer is below 300."""
        self.reopen(outgoing, response)
        self.note_success(request.method, request.url, response.status, started_at)

    def peek_of(self, request: Any, response: Any, deadline_at: float, ahead: Any) -> Peek:
        return Peek(self, response, deadline_at, ahead)

    def judge(self, call: Call, response: Any) -> Failure | None:
        status: int = response.status
        if status < 400 and not call.opinion and call.body_error is None:
            call.status = status
            return None
        lines = response.raw_headers
        if READ_OCTETS.isdisjoint(name.lower() for name, _ in lines):
            lines = ()
        return self.failure_of(call, status, lines, getattr(response, RECORD, None))

    def meaning(self, call: Call, error: Exception) -> Failure:
        guard = call.guard
        if guard is not None and guard.error is not None and is_inside(error, guard.error):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        failure = classify(error)
        request = call.request.original
        if failure.kind is FailureKind.CONNECT_TIMEOUT and is_full(request):
            return Failure(FailureKind.POOL, Phase.UNSENT, error=failure.error)
        if type(error) is TimeoutError:
            call.deadline_at = self.clock.monotonic()  # ClientTimeout.total is over
        return failure

    async def let_go(self, response: Any) -> None:
        if response is not None and not isinstance(response, Exception):
            response.close()

    async def discard(self, call: Call, response: Any) -> None:
        """Read what is left of a failed response if that is little and quick, then close it."""
        content, seconds = response.content, DRAIN_SECONDS
        if not content.is_eof() and content.exception() is None:
            room = DRAIN_BYTES
            if call.deadline_at != inf:
                seconds = min(DRAIN_SECONDS, (call.deadline_at - self.clock.monotonic()) / 2)
            if (response.content_length or 0) <= room and call.ahead is not LATE:
                try:
                    with self.backstop.after(seconds):
                        while room >= 0 and not content.at_eof():
                            room -= len(await content.readany())
                except Exception as error:  # it failed before: how its body fails does not matter
                    let_signals_through(error)
        response.close()  # a connection that is free has been given back

    async def keep(self, call: Call, response: Any) -> bool:
        """Read the answer of a held call; False: it is too long to keep, and is handed over."""
        call.kept = response
        content, length = response.content, response.content_length
        if length is not None and length > DRAIN_BYTES:
            return False
        late = not content.is_eof() and await self.wait_for(content) is LATE
        if (late and length is None) or content.total_bytes > DRAIN_BYTES:
            return False
        if not content.is_eof():  # it stalls or breaks: its status is all that is kept
            call.kept = None
            response.close()
        return True

    # The end.

    def rest_of(self, call: Call, response: Any) -> Part:
        part = resumption.take_up(self, call, response.status, response.raw_headers)
        if part is Part.CONTINUES:
            self.reopen(call.outgoing, response)
        return part

    def finish(self, call: Call, response: Any) -> None:
        self.conclude(call, vars(response))
        if self.settings.stop_outer_retries and call.stop is not None:
            headers = response.headers.copy()
            stop_outer(self.settings, call, headers)
            response._cache["headers"] = type(response.headers)(headers)
        if 300 <= response.status < 400 and call.policy is not OFF:
            LAST_HOP.set(Hop(self, call))
        if not self.wants_status_error(call):
            if call.policy is not OFF:
                self.look_after(response, call, call.context)
            self.reopen(call.outgoing, response)

    def reopen(self, outgoing: Outgoing | None, response: Any) -> None:
        if outgoing is not None and outgoing.timeouts is not None:
            outgoing.timeouts.reopen(response)

    def look_after(self, response: Any, source: Any, scope: Scope | None) -> None:
        """Let a body that is still to come go on where it breaks, until ``forbear.deadline``."""
        if response.content.is_eof() or response.status == 101:
            return
        request = source[0][0] if type(source) is tuple else self.sent_request(source)
        download = resumable(self, request, response)
        if download is not None:
            response.content = Resuming(self, response, source, download)
        if scope is not None and scope.has_deadline():
            until = scope.deadline_on(self.clock, self.clock.monotonic())
            response.content = Bounded(self, response, source, until)

    def status_error(self, call: Call, response: Any, body: None) -> Exception:
        error = aiohttp.ClientResponseError(
            response.request_info,
            response.history,
            status=response.status,
            message=response.reason or "",
            headers=response.headers,
        )
        return self.with_story(call, error)

    def last_error(self, call: Call, error: Exception) -> Exception:
        if is_lost(error):
            cause, error = error, aiohttp.ClientConnectionResetError("Connection lost")
            error.__cause__ = cause
        return super().last_error(call, error)

    def with_story(self, call: Call, error: Exception) -> Exception:
        if repeats(error, call.request.method):
            LAST_HOP.set(Hop(self, call, error))
        return super().with_story(call, error)

    def closed_error(self) -> Exception:
        return aiohttp.ClientConnectionError(
            "The session or its middleware was closed before the request was sent."
        )

    def bare_response(self, call: Call, status: int | None, story: Story) -> Any:
        request = self.sent_request(call)
        response: Any = object.__new__(request.response_class)
        response.method, response.status, response.reason = request.method, status, ""
        response._url = response._real_url = request.url
        response._request_info, response._loop = request.request_info, request.loop
        empty = type(request.headers)()
        response._headers, response._raw_headers = type(request.request_info.headers)(empty), ()
        response._cache, response._traces, response._body = {}, [], b""
        response.content = aiohttp.streams.EMPTY_PAYLOAD
        setattr(response, RECORD, story)
        return response
