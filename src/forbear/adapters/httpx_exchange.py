"""Exchange: one call's I/O with a library of the family. Floor: acts."""

from __future__ import annotations

from contextlib import suppress
from math import inf

from .._exchange import CallExchange, CutOff, Interrupted, bare, is_nested
from .._retrying import OFF
from ..core.headers.ranges import Part
from ..core.outcome import Failure, FailureKind, Phase
from ..core.record import SETTING
from ..core.request import Request
from ..drive import adrive, drive
from .httpx_bodies import ConsumedBody, Guard, wants_guard
from .httpx_elsewhere import answered_by
from .httpx_errors import chain
from .httpx_pools import free_lost_slots
from .httpx_prefetch import LATE, WHOLE, aprefetch, prefetch, unread
from .httpx_redirects import HOP, Hop, redirect_target
from .httpx_resume import answer_of
from .httpx_timeouts import DRAIN_BYTES, LoweredTimeout, Timeouts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..core.headers.ranges import Download
    from ..core.policy import RetryPolicy
    from ..core.trail import Trail
    from ..core.verdict import Verdict
    from .httpx_prefetch import Outcome
    from .httpx_transport import FamilyRetrying, Library

__all__ = ["AsyncExchange", "Exchange", "SyncExchange", "origin_of"]

BACKSTOP = 0.05  # seconds behind the deadline at which an asynchronous attempt is cut from outside


class Facts(Request):
    """What a decision needs to know of an httpx request."""

    __slots__ = ()

    def header_lines(self) -> Any:
        return self.headers.raw

    def path_and_query(self) -> str:
        return self.target.raw_path.decode("ascii")  # type: ignore[no-any-return]


class Exchange(CallExchange):
    """One call through a transport of the family, the part without colour."""

    run: Callable[[], Any]  # drives it
    hop: Hop | None = None
    ahead: Outcome | None = None  # what came of reading the answer's body before judging it
    lines: Any = ()  # the field lines of the answer that was judged last, as octets

    def __init__(self, transport: FamilyRetrying, request: Any, started_at: float) -> None:
        self.request = self.pristine = self.outgoing = request
        super().__init__(
            transport,
            Facts(
                request.method,
                origin_of(request.url),
                request.headers,
                transport._key_names,
                request.url,
            ),
            started_at,
        )

    # Before the first attempt, for calls that do not fit through the door.

    def prepare(self, setting: Any = None) -> None:
        extensions = self.request.extensions
        hop = extensions.get(HOP)
        if isinstance(hop, Hop) and hop.continues_in(self.request):
            self.hop = hop
        super().prepare(extensions.get(SETTING) if setting is None else setting)

    def _set_deadline(self, policy: RetryPolicy, now: float) -> None:
        if self.hop is None:
            super()._set_deadline(policy, now)
        else:
            self.call.follow(self.hop.retries_used)
            self.call.deadline_at = self.hop.deadline_at

    def _prepare_attempts(self, policy: RetryPolicy) -> None:
        transport, request, call, hop = self.transport, self.request, self.call, self.hop
        off = policy is OFF
        stream = request.stream
        if not off and type(stream) is not transport._byte_stream and wants_guard(stream):
            if isinstance(stream, Guard):  # of a forbear above us
                self.body = stream
            elif hop is not None and hop.body is not None and hop.body.covers(stream):
                self.body = hop.body  # it knows what the hops before have read
            else:
                self.body = self._guard(stream, transport._body_buffer)
            stream = self.body
        added = self._added_headers(
            hop.key if hop is not None and hop.key_origin == call.facts.origin else ()
        )
        self._limit_attempts()
        if added or self.body is not None or self.timeouts is not None:
            self.pristine = self.outgoing = self._copy(request, stream, added)
            call.facts.headers = self.outgoing.headers

    def _limit_attempts(self) -> None:
        call, attempt_timeout = self.call, self.call.policy.attempt_timeout
        self.timeouts = None
        if call.deadline_at != inf or attempt_timeout is not None:
            self.timeouts = Timeouts(
                self.request.extensions.get("timeout") or {},
                self.transport._now,
                call.deadline_at,
                attempt_timeout,
            )

    def _go_to(self, origin: str) -> None:
        request = self.pristine
        scheme, _, host = origin.partition("://")
        host, _, port = host.rpartition(":")
        url = request.url.copy_with(scheme=scheme, host=host.strip("[]"), port=int(port))
        # A Host header that names something else than the URL is the caller's own, for every
        # origin.
        named = request.headers.get("host") == request.url.netloc.decode("ascii")
        host_line = [("Host", url.netloc.decode("ascii"))] if named else []
        self.pristine = self.outgoing = self._copy(request, request.stream, host_line, url)
        self.call.facts.headers = self.outgoing.headers

    def _copy(
        self, request: Any, stream: Any, added: Iterable[tuple[str, str]] = (), url: Any = None
    ) -> Any:
        headers = request.headers
        for name, value in added:
            headers = self.transport._library.module.Headers(headers)
            headers[name] = value
        extensions = request.extensions
        if self.timeouts is not None:
            extensions = {**extensions, "timeout": self.timeouts}
        copied = self.transport._library.module.Request(
            request.method,
            url or request.url,
            headers=headers,
            stream=stream,
            extensions=extensions,
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
        """Count the attempt, unless the hook comes first: then return what that is called with."""
        transport, call = self.transport, self.call
        self.body_error = self.ahead = None
        self._aim()
        said = self._said(call.attempts + 1)
        hooked = transport._before_attempt is not None and bool(call.trail.entries)
        if not hooked:
            call.sending(transport._now())
            if not said:
                return None
        # The hook may change headers: on a copy, and on a fresh one each time.
        self.outgoing = self._copy(self.pristine, self.pristine.stream, said)
        call.facts.headers = self.outgoing.headers
        return (self.outgoing, call.attempts + 1) if hooked else None

    def _refuse_second_reading(self, error: ConsumedBody) -> Exception:
        if self.hop is not None and not self.call.trail.entries and self.body.generated:
            consumed: Exception = (
                self.transport._library.module.StreamConsumed()
            )  # an earlier hop of a redirect sent it
            return consumed
        failed: Exception = self.transport._library.module.RemoteProtocolError(
            f"The request cannot be sent again: {error}."
        )
        return failed

    def judge_response(self, response: Any) -> Verdict:
        status = response.status_code
        verdict: Verdict
        if status < 400 and self.transport._retry_if is None:
            verdict = self.call.after_response(status, (), self.transport._now(), utc_now=0.0)
        else:
            if self.transport._retry_if is not None:
                response.request = self.outgoing
            self.lines = lines = response.headers.raw  # made anew each time it is asked for
            verdict = self._judge(response, status, lines, response.extensions.get(SETTING))
        return self._judge_body(verdict)

    def _missing(self, response: Any) -> int:
        """How much of the body to wait for before the answer is judged; 0 or less: for nothing."""
        transport = self.transport
        if (
            not transport._prefetch
            or self.download is not None  # the caller has its beginning
            or self.call.policy is OFF
            or self.ahead is not None  # at the door
            or type(response.stream) in transport._ready
        ):
            return -1
        missing = unread(transport, self.outgoing, response)
        if missing == 0:
            self.ahead = WHOLE
        return missing

    def note_ahead(self, outcome: Outcome) -> None:
        """The answer's body was read ahead."""
        self.ahead = outcome
        self.body_error = outcome if isinstance(outcome, Exception) else None

    def resume(
        self, download: Download, error: Exception, received: int, *, progressed: bool
    ) -> None:
        super().resume(download, error, received, progressed=progressed)
        self._limit_attempts()

    def _failure_of(self, error: Exception) -> Failure:
        library: Library = self.transport._library
        body = self.body
        if body is not None and any(found is body.error for found in (error, *chain(error))):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        return library.classify(error)

    def _look_after(self, failure: Failure, error: Exception) -> None:
        if failure.kind in (FailureKind.POOL, FailureKind.TIMEOUT):
            free_lost_slots(self.transport._inner)

    # The end.

    def _finish(self, response: Any) -> Any:
        """Everything about a hand-over that needs no I/O."""
        transport, call = self.transport, self.call
        now = transport._now()
        status = response.status_code
        if self._is_worth_noting():
            # A forbear below has told its story already; ours adds nothing when we only passed it
            # on.
            if not (len(call.trail.entries) == 1 and is_nested(response.extensions.get(SETTING))):
                response.extensions[SETTING] = call.close_trail(now)
            if call.refusal is None:
                self._tell_success(status, now)
        self._stop_outer(response.headers)
        if 300 <= status < 400:
            target = redirect_target(response, self.request)
            if target is not None:
                extensions = self.request.extensions
                extensions[HOP] = Hop(self, target)
                extensions.setdefault(SETTING, None)  # the door looks for this one only
        if self.aimed_at != call.facts.origin:
            answered_by(response, self.outgoing)
        if self.timeouts is not None:
            outer = inf if self.scope is None else self.scope.deadline_on(transport._clock, now)
            self.timeouts.reopen(outer)
        return response

    def _surrender_body(self) -> None:
        """Tell the story, if the body of what is handed over broke while it was read: it is not
        asked for again.

        Who gets the response meets the error where the body breaks, as without us.
        """
        error, failure = self.body_error, self.call.last_failure
        if error is not None and failure is not None and failure.status is None:
            self.surrender(error)
            if self._wants_status_error():
                raise error

    def _is_resumable(self, response: Any) -> bool:
        """May its body be gone on with if it breaks, as far as that is known without looking
        closer?
        """
        stream = response.stream
        return (
            self.transport._resume
            and self.request.method == "GET"
            and response.status_code in (200, 206)
            and self.call.policy is not OFF
            and (
                self.ahead is LATE
                or (self.ahead is None and type(stream) not in self.transport._ready)
            )
        )

    def _take_up(self, response: Any) -> Part:
        """What the answer is to the download that is being resumed."""
        self.lines = response.headers.raw
        part = self.take_up(response.status_code, self.lines)
        if self.timeouts is not None:
            self.timeouts.reopen(self.call.deadline_at)
        return part

    def _closed_error(self) -> Exception:
        error: Exception = self.transport._library.module.TransportError(
            "The transport was closed before the request was sent."
        )
        return error

    def _bare_response(self, status: int, trail: Trail) -> Any:
        return self.transport._library.module.Response(
            status, request=self.request, extensions={SETTING: trail}
        )

    def _status_error(self, response: Any, body: bytes | None) -> Exception:
        """The library's own error for a status, with a response that can still be looked at."""
        module = self.transport._library.module
        if body is not None:
            extensions = {
                name: value
                for name, value in response.extensions.items()
                if name != "network_stream"
            }
            response = module.Response(
                response.status_code,
                headers=response.headers,
                stream=self.transport._byte_stream(body),
                extensions=extensions,
            )
            with suppress(module.DecodingError):  # the status is the failure
                response.read()
        response.request = self.request
        try:
            response.raise_for_status()
        except module.HTTPStatusError as error:
            return self._told(bare(error))  # type: ignore[no-any-return]
        # ``retry_if`` flagged a status that the library does not take for an error.
        return self._told(  # type: ignore[no-any-return]
            module.HTTPStatusError(
                f"'{response.status_code}' was refused by retry_if",
                request=self.request,
                response=response,
            )
        )


class SyncExchange(Exchange):
    """One call through a synchronous transport of the family."""

    def run(self) -> Any:
        return drive(self)

    def send(self) -> Any:
        if self.first_response is not None or self.first_error is not None:
            response = self._first()
        else:
            hooked = self._begin_attempt()
            if hooked is not None:
                self._call_hook(hooked)
                self.call.sending(self.transport._now())
            try:
                response = self.transport._inner.handle_request(self.outgoing)
            except ConsumedBody as error:
                raise self._refuse_second_reading(error) from None
        missing = self._missing(response)
        if missing > 0:
            outcome = prefetch(
                self.transport, self.outgoing, response, missing, self.call.deadline_at
            )
            self.note_ahead(outcome)
        return response

    def _call_hook(self, hooked: tuple[Any, int]) -> None:
        try:
            self.transport._before_attempt(*hooked)
        except Exception as error:
            self.transport._notices.hook_failed("before_attempt", error)

    def discard(self, response: Any) -> None:
        """Read what is left of a failed response if that is little and quick, else close it."""
        if self.ahead is None or self.ahead is WHOLE:
            if type(response.stream) is not self.transport._byte_stream:
                self._drain(response)
            return
        with suppress(Exception):  # it is not quick
            response.stream.close()

    def _drain(self, response: Any, *, wanted: bool = False) -> bytes | None:
        """Return the raw body if all of it came within bounds; close the response in any case."""
        body: list[bytes] | None = None
        try:
            if wanted or is_worth_draining(response, self.lines):
                body = []
                drain = LoweredTimeout(
                    self.outgoing.extensions, self.transport._now, self.call.deadline_at
                )
                try:
                    for chunk in response.stream:
                        body.append(chunk)
                        if not drain.goes_on(len(chunk)):
                            body = None
                            break
                finally:
                    drain.end()
        except Exception:  # it failed before: how its body fails no longer matters
            body = None
        try:
            response.stream.close()  # Response.close() costs as much as a third of a retry
        except Exception:
            body = None
        return None if body is None else b"".join(body)

    def hand_over(self, response: Any) -> Any:
        if self.download is not None:
            return self._hand_over_rest(response)
        self._surrender_body()
        response = self._finish(response)
        library: Library = self.transport._library
        if self._wants_status_error():
            body = self._drain(response, wanted=True)
            raise self._status_error(response, body)
        if self._is_resumable(response):
            response.stream = library.resuming(response.stream, answer_of(response), self)
        if self._is_bounded():
            response.stream = library.bounded(
                response.stream, self.timeouts, self._deadline_exceeded
            )
        return response

    def _hand_over_rest(self, response: Any) -> Any:
        """Return the response whose body is the rest of the download, None if there is no rest."""
        part = self._take_up(response)
        if part is Part.CONTINUES:
            return response
        self.discard(response)
        if part is Part.COMPLETE:
            return None
        raise Interrupted

    def _guard(self, stream: Any, buffer_limit: int) -> Any:
        return self.transport._library.guard(stream, buffer_limit)


class AsyncExchange(Exchange):
    """One call through an asynchronous transport of the family."""

    def run(self) -> Any:
        return adrive(self)

    async def send(self) -> Any:
        if self.first_response is not None or self.first_error is not None:
            response = self._first()
            await self._read_ahead(response)
            return response
        hooked = self._begin_attempt()
        if hooked is not None:
            await self._call_hook(hooked)  # may be cancelled; then nothing was sent
            self.call.sending(self.transport._now())
        try:
            if self.timeouts is None or self.call.deadline_at == inf:
                return await self._send()
            return await self._send_before(self.call.deadline_at)
        except ConsumedBody as error:
            raise self._refuse_second_reading(error) from None

    async def _send_before(self, deadline_at: float) -> Any:
        import anyio

        left = deadline_at - self.transport._now()
        with anyio.CancelScope(deadline=anyio.current_time() + left + BACKSTOP):
            return await self._send()
        raise CutOff

    async def _send(self) -> Any:
        response = await self.transport._inner.handle_async_request(self.outgoing)
        await self._read_ahead(response)
        return response

    async def _read_ahead(self, response: Any) -> None:
        missing = self._missing(response)
        if missing > 0:
            outcome = await aprefetch(
                self.transport, self.outgoing, response, missing, self.call.deadline_at
            )
            self.note_ahead(outcome)

    async def _call_hook(self, hooked: tuple[Any, int]) -> None:
        try:
            answer = self.transport._before_attempt(*hooked)
            if hasattr(answer, "__await__"):
                await answer
        except Exception as error:
            self.transport._notices.hook_failed("before_attempt", error)

    async def discard(self, response: Any) -> None:
        """Read what is left of a failed response if that is little and quick, else close it."""
        if self.ahead is None or self.ahead is WHOLE:
            if type(response.stream) is not self.transport._byte_stream:
                await self._drain(response)
            return
        with suppress(Exception):  # it is not quick
            await response.stream.aclose()

    async def _drain(self, response: Any, *, wanted: bool = False) -> bytes | None:
        """Return the raw body if all of it came within bounds; close the response in any case."""
        body: list[bytes] | None = None
        try:
            if wanted or is_worth_draining(response, self.lines):
                body = []
                drain = LoweredTimeout(
                    self.outgoing.extensions, self.transport._now, self.call.deadline_at
                )
                try:
                    async for chunk in response.stream:
                        body.append(chunk)
                        if not drain.goes_on(len(chunk)):
                            # Ends the loop by an error: generators left in the middle are never
                            # closed.
                            await response.aclose()
                            if drain.is_hopeless():
                                body = None
                                break
                finally:
                    drain.end()
        except Exception:  # it failed before: how its body fails no longer matters
            body = None
        try:
            await response.stream.aclose()  # Response.aclose() costs as much as a third of a retry
        except Exception:
            body = None
        return None if body is None else b"".join(body)

    async def hand_over(self, response: Any) -> Any:
        if self.download is not None:
            return await self._hand_over_rest(response)
        self._surrender_body()
        response = self._finish(response)
        library: Library = self.transport._library
        if self._wants_status_error():
            body = await self._drain(response, wanted=True)
            raise self._status_error(response, body)
        if self._is_resumable(response):
            response.stream = library.async_resuming(response.stream, answer_of(response), self)
        if self._is_bounded():
            response.stream = library.async_bounded(
                response.stream, self.timeouts, self._deadline_exceeded
            )
        return response

    async def _hand_over_rest(self, response: Any) -> Any:
        """Return the response whose body is the rest of the download, None if there is no rest."""
        part = self._take_up(response)
        if part is Part.CONTINUES:
            return response
        await self.discard(response)
        if part is Part.COMPLETE:
            return None
        raise Interrupted

    def _guard(self, stream: Any, buffer_limit: int) -> Any:
        return self.transport._library.async_guard(stream, buffer_limit)


def origin_of(url: Any) -> str:
    """``scheme://host:port``, never userinfo, path or query."""
    scheme, host, port = url.scheme, url.raw_host.decode("ascii").lower(), url.port
    if port is None:
        port = DEFAULT_PORTS.get(scheme, 0)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def is_worth_draining(response: Any, lines: Any) -> bool:
    if response.extensions.get("http_version") == b"HTTP/2":
        return False  # closing a stream leaves the connection to the others
    for name, value in lines:
        if len(name) == 14 and name.lower() == b"content-length":
            return not (value.isdigit() and (len(value) > 9 or int(value) > DRAIN_BYTES))
    return True
