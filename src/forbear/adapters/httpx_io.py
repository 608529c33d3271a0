"""Input and output of the httpx family: send, discard, hand over, in both colours. Floor: acts.

A change in one colour belongs in the other. What needs no I/O is in httpx_port.py.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.headers.ranges import Part
from ..sending.asking import AsyncAsking, SyncAsking
from ..sending.backstop import BACKSTOP, Backstop
from ..sending.bodies import ConsumedBody
from ..sending.errors import CutOff, Interrupted, Raced, let_signals_through
from ..sending.looking import DRAIN_BYTES, DRAIN_SECONDS, LATE
from ..sending.loop import arun
from ..sending.settings import OFF
from ..shared.gate import MOST_TASKS
from .awaiting import Awaiting
from .httpx_errors import close_lost
from .httpx_port import HttpxPort
from .httpx_request import LEAST
from .httpx_streams import (
    KEPT_BYTES,
    UNKNOWN,
    aread_ahead,
    length_ahead,
    read_ahead,
)

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from ..sending.copying import Outgoing
    from ..sending.settings import Settings
    from .httpx_library import Library

__all__ = ["AsyncHttpxPort", "SyncHttpxPort"]

HTTP_1 = (b"HTTP/1.0", b"HTTP/1.1")  # over HTTP/2 others read from the connection too
HALF = DRAIN_SECONDS / 2  # for the reads begun in time; the last of them takes the other half


class SyncHttpxPort(SyncAsking, HttpxPort):
    """The port of ``RetryTransport``."""

    def __init__(self, settings: Settings, library: Library, inner: Any) -> None:
        super().__init__(settings, library, inner, library.sync)
        self.sleep = self.sleeper.sleep

    def send(self, call: Call) -> Any:
        request = self.next_request(call)
        if self.before_attempt is not None and call.history:
            self._call_hook(call, request)
        now = self.clock.monotonic()  # after the hook, right before the sending
        if now >= call.deadline_at:
            raise self.expired(call)
        call.sending(now)
        try:
            response = call.live = self.inner.handle_request(request)
            if call.outgoing is not None:
                self.bound_reads(response, call.outgoing)
        except ConsumedBody as error:
            raise self.consumed(call.outgoing, error, first=not call.history) from None
        if call.resumption is None and self.reads_ahead(response, call.policy):
            ahead = read_ahead(self, call.request.original, response, call.outgoing)
            self.note_ahead(call, ahead)
        return response

    def bound_reads(self, response: Any, outgoing: Outgoing) -> None:
        """Let each read of an answer's body end by the deadline."""
        if outgoing.hurries and hasattr(response.extensions.get("network_stream"), "__dict__"):
            is_ours_alone = response.extensions.get("http_version") in HTTP_1
            if is_ours_alone and response.status_code != 101:
                response.stream = self.library.hurried(response, outgoing.timeouts)

    def _call_hook(self, call: Call, request: Any) -> None:
        try:
            self.before_attempt(request, call.attempts + 1)
        except Exception as error:
            self.hook_raised(call, error)
            raise

    def let_go(self, response: Any) -> None:
        if response is not None and not isinstance(response, Exception):
            response.stream.close()

    def discard(self, call: Call, response: Any) -> list[bytes] | None:
        """Read what is left of a failed response if that is little and quick, then close it.

        Returns:
            The raw body, if all of it came.
        """
        stream, body, room = response.stream, [], DRAIN_BYTES
        extensions = self.sent_request(call).extensions
        own = extensions.get("timeout")
        try:
            if not self.is_quick(call, response):
                room = -1
            else:
                now = self.clock.monotonic()
                seconds = HALF
                if call.deadline_at != inf:
                    seconds = max(min(HALF, (call.deadline_at - now) / 2), LEAST)
                # httpcore asks the request's extensions for the read timeout when the body begins.
                extensions["timeout"] = {"read": seconds}
                for chunk in stream:
                    room -= len(chunk)
                    body.append(chunk)
                    if room < 0 or self.clock.monotonic() >= now + seconds:
                        room = min(room, -1)
                        break
            stream.close()  # Response.close() costs as much as a third of a retry
        except Exception as error:  # it failed before: how its body fails no longer matters
            room = -1
            with suppress(Exception):
                stream.close()
            let_signals_through(error)
        finally:
            if own is not None:
                extensions["timeout"] = own
            else:
                extensions.pop("timeout", None)
        return body if room >= 0 else None

    def keep(self, call: Call, response: Any) -> bool:
        """Read the answer of a held call; False: it is too long to keep, and is handed over."""
        call.kept = response
        if type(response.stream) in self.ready:
            return True
        length = length_ahead(self, response)
        if KEPT_BYTES < length < UNKNOWN:
            return False
        if length < UNKNOWN and self.is_quick(call, response):
            body = self.discard(call, response)
            if body is None:  # it stalls or breaks: its status is all that is kept
                call.kept = None
            else:
                response.stream = self.byte_stream(b"".join(body))
            return True
        until = self.clock.monotonic() + DRAIN_SECONDS
        return read_ahead(self, None, response, None, until) is not LATE

    def hand_over(self, call: Call, response: Any) -> Any:
        if call.resumption is not None:
            part = self.rest_of(call, response)
            if part is Part.CONTINUES:
                return response
            self.discard(call, response)
            if part is Part.COMPLETE:
                return None
            raise Interrupted
        self.finish(call, response)
        if call.stop is not None and self.wants_status_error(call):
            body = self.discard(call, response)
            # No name for the error here: its traceback would hold the frame that holds it.
            raise self.status_error(call, response, body)
        return response


class AsyncHttpxPort(Awaiting, AsyncAsking, HttpxPort):
    """The port of ``AsyncRetryTransport``, on asyncio and trio."""

    def __init__(self, settings: Settings, library: Library, inner: Any) -> None:
        super().__init__(settings, library, inner, library.asynchronous)
        self.backstop = Backstop()
        self.first: Any = inner  # sends first attempts
        if settings.hedge is not None:
            from .httpx_hedging import Hedging

            self.first = Hedging(self, settings.hedge)
        self.limits.most_held = MOST_TASKS

    async def send(self, call: Call) -> Any:
        request = self.next_request(call)
        if self.before_attempt is not None and call.history:
            await self.call_hook(call, request)
        now = self.clock.monotonic()  # after the hook, right before the sending
        if now >= call.deadline_at:
            raise self.expired(call)
        call.sending(now)
        sender = self.inner if call.history or call.resumption is not None else self.first
        try:
            if call.deadline_at == inf:
                response = call.live = await sender.handle_async_request(request)
                if call.resumption is None and self.reads_ahead(response, call.policy):
                    asked = call.request.original
                    ahead = await aread_ahead(self, asked, response, call.outgoing)
                    self.note_ahead(call, ahead)
            else:
                # The rest of a download is not read ahead.
                policy = call.policy if call.resumption is None else OFF
                seconds = call.deadline_at - call.sent_at
                call.live, ahead = await self.send_within(
                    seconds, request, call.outgoing, policy, sender
                )
                self.note_ahead(call, ahead)
            return call.live
        except ConsumedBody as error:
            raise self.consumed(call.outgoing, error, first=not call.history) from None
        except Raced as found:
            raced = found
        outcome = await self._take_up(call, raced)
        if not isinstance(outcome, Exception):
            return outcome
        try:
            raise outcome
        finally:
            del outcome  # an error's traceback leads here

    async def send_within(
        self, seconds: float, request: Any, outgoing: Outgoing, policy: RetryPolicy, sender: Any
    ) -> tuple[Any, Any]:
        """Send one attempt before the deadline; return the answer, and what came of its body.

        Raises:
            CutOff: The deadline is over, and the library has not noticed.
        """
        with self.backstop.after(seconds + BACKSTOP):
            response = ahead = None
            try:
                response = await sender.handle_async_request(request)
                if self.reads_ahead(response, policy):
                    ahead = await aread_ahead(self, request, response, outgoing)
                return response, ahead
            except BaseException:
                await self.let_go(response)
                raise
        await close_lost(self.inner)
        raise CutOff

    async def go_on(
        self, raced: Raced, request: Any, outgoing: Any, started_at: float, scope: Any
    ) -> Any:
        """Go on with a call whose first attempt was hedged, before there was a call."""
        call = self.first_failed(self.call_of(request, outgoing, started_at, scope))
        try:
            call.live = await self._take_up(call, raced)
        except BaseException:
            self.ended(call)
            raise
        return await arun(call, self)

    async def _take_up(self, call: Call, raced: Raced) -> Any:
        """Note the attempt that did not decide; return what came of the other, read ahead."""
        notes = call.hedge = raced.notes
        call.number = raced.number
        call.attempts += 1
        second, outcome = raced.second, raced.outcome
        raced.outcome = raced.__traceback__ = raced.__context__ = None  # they lead to an error
        sent = (call.sent_at, call.sent_to), (call.sent_at + notes.after, second.origin)
        call.sent_at, call.sent_to = sent[not notes.decides]
        if notes.loser.failure is not None:
            call.limits.observe(call, notes.loser.failure, self.clock.monotonic())
        call.sent_at, call.sent_to = sent[notes.decides]
        if notes.decides:
            outgoing = self.outgoing_of(call)
            outgoing.request = second.request
            if second.origin != call.origin:
                outgoing.pristine = self.aimed(outgoing.pristine, second.origin)
                call.tried = (*call.tried, call.origin)
                call.origin = second.origin
        if isinstance(outcome, Exception):
            return outcome
        call.live = outcome
        try:
            if self.reads_ahead(outcome, call.policy):
                asked = call.request.original
                self.note_ahead(call, await aread_ahead(self, asked, outcome, call.outgoing))
        except BaseException:
            await self.let_go(outcome)
            raise
        return outcome

    async def let_go(self, response: Any) -> None:
        if response is not None and not isinstance(response, Exception):
            import anyio

            with anyio.CancelScope(shield=True):
                await response.stream.aclose()

    async def discard(self, call: Call, response: Any) -> list[bytes] | None:
        """Read what is left of a failed response if that is little and quick, then close it.

        Returns:
            The raw body, if all of it came.
        """
        stream, body, room = response.stream, [], DRAIN_BYTES
        extensions = self.sent_request(call).extensions
        own = extensions.get("timeout")
        try:
            if not self.is_quick(call, response):
                room = -1
            else:
                now = self.clock.monotonic()
                seconds = HALF
                if call.deadline_at != inf:
                    seconds = max(min(HALF, (call.deadline_at - now) / 2), LEAST)
                # httpcore asks the request's extensions for the read timeout when the body begins.
                extensions["timeout"] = {"read": seconds}
                async for chunk in stream:
                    room -= len(chunk)
                    body.append(chunk)
                    if room < 0 or self.clock.monotonic() >= now + seconds:
                        room = min(room, -1)
                        # Ends the loop by an error: generators left in the middle are never closed.
                        await stream.aclose()
                        if room < -DRAIN_BYTES:
                            break
            await stream.aclose()  # Response.aclose() costs as much as a third of a retry
        except Exception as error:  # it failed before: how its body fails no longer matters
            room = -1
            with suppress(Exception):
                await stream.aclose()
            let_signals_through(error)
        finally:
            if own is not None:
                extensions["timeout"] = own
            else:
                extensions.pop("timeout", None)
        return body if room >= 0 else None

    async def keep(self, call: Call, response: Any) -> bool:
        """Read the answer of a held call; False: it is too long to keep, and is handed over."""
        call.kept = response
        if type(response.stream) in self.ready:
            return True
        length = length_ahead(self, response)
        if KEPT_BYTES < length < UNKNOWN:
            return False
        if length < UNKNOWN and self.is_quick(call, response):
            body = await self.discard(call, response)
            if body is None:  # it stalls or breaks: its status is all that is kept
                call.kept = None
            else:
                response.stream = self.byte_stream(b"".join(body))
            return True
        until = self.clock.monotonic() + DRAIN_SECONDS
        return await aread_ahead(self, None, response, None, until) is not LATE
