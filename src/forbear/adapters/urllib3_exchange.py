"""Exchange: one call's I/O with requests or urllib3. Floor: acts.

Both are synchronous and give up their answer before its body was read; the two adapters add how
they send and how an answer is read, judged and closed.
"""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import Any
from weakref import ref

from urllib3.exceptions import ProtocolError

from .._exchange import CallExchange, Interrupted
from .._retrying import OFF
from ..core.headers.ranges import Part, download_of
from ..core.outcome import Failure, FailureKind, Phase
from ..core.record import RECORD
from ..core.request import Request
from ..core.verdict import GiveUp, Reason
from ..drive import drive
from .urllib3_bodies import Body, ConsumedBody, is_plain
from .urllib3_reading import stream_freely, stream_within
from .urllib3_resume import END, is_known, is_promising, splice
from .urllib3_sockets import DRAIN_SECONDS, close_refused, discard
from .urllib3_timeouts import Timeouts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from urllib3.util import Timeout

    from .._retrying import Retrying
    from ..core.policy import RetryPolicy

__all__ = ["Exchange", "Facts"]


# Hops are sent one by one, with the same body: what of it can still be read its guard knows.
LAST_REDIRECTED: ContextVar[ref[Body] | None] = ContextVar("forbear_last_redirected", default=None)


class Facts(Request):
    """What a decision needs to know of a request whose headers are a mapping of text or octets."""

    __slots__ = ()

    def header_lines(self) -> list[tuple[str, str]]:
        return [(text(name), text(value)) for name, value in self.headers.items()]


def text(part: Any) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else str(part)


class Exchange(CallExchange):
    """One call, the part that both adapters share."""

    attempt: int = 0
    is_body_used: bool = False  # by an earlier hop of a redirect
    least = 0  # bytes that must be missing of a body that is being resumed: its framing has promised them

    def __init__(
        self,
        transport: Retrying,
        facts: Facts,
        body: Any,
        body_start: int | None,
        started_at: float,
    ) -> None:
        super().__init__(transport, facts, started_at)
        self.original_body = body
        self.body_start = body_start

    def _prepare_attempts(self, policy: RetryPolicy) -> None:
        transport, call = self.transport, self.call
        off = policy is OFF
        if not off and not is_plain(self.original_body):
            self.body = self._guarded_body()
        added = self._added_headers()
        if call.deadline_at != inf or policy.attempt_timeout is not None:
            self.timeouts = Timeouts(transport._now, call.deadline_at, policy.attempt_timeout)
        if added or self.body is not None:
            self._change_request(added)

    def _guarded_body(self) -> Body:
        before = LAST_REDIRECTED.get()
        known = None if before is None else before()
        if known is None or known.source is not self.original_body or known.is_seekable:
            return Body(self.original_body, self.body_start, self.transport._body_buffer)
        LAST_REDIRECTED.set(None)
        self.is_body_used = True
        return known

    def _keep_body(self, response: Any) -> None:
        """The caller will follow this redirect, and keeps its response meanwhile."""
        response._forbear_body = self.body
        LAST_REDIRECTED.set(ref(self.body))

    def _change_request(self, added: Iterable[tuple[str, str]]) -> None:
        """Put headers and the guarded body on a copy of what will be sent."""
        raise AssertionError("each library has its own")

    def _begin_attempt(self) -> None:
        """Count the attempt, and make the body and the user's hook ready for it."""
        call, transport = self.call, self.transport
        self._aim()
        call.sending(transport._now())
        if self.body is not None and not self.body.ready:
            raise ConsumedBody(
                "its body was used up before"
            )  # now, and not after the head has gone out
        is_retry = bool(call.trail.entries)
        if self.body is not None and (is_retry or self.is_body_used):
            self.body.rewind()
        said = self._said(call.attempts)
        hook = transport._before_attempt if is_retry else None
        if said or hook is not None:
            self._refresh(said)
        if hook is not None:
            try:
                self._call_hook(hook, call.attempts)
            except Exception as error:
                transport._notices.hook_failed("before_attempt", error)

    def _refresh(self, said: Iterable[tuple[str, str]]) -> None:
        """Make a fresh copy of what is sent, with what is told of this attempt."""
        raise AssertionError("each library has its own")

    def _call_hook(self, hook: Any, attempt: int) -> None:
        """Let the user's hook change the fresh copy."""
        raise AssertionError("each library has its own")

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

    def _failure_of(self, error: Exception) -> Failure:
        body = self.body
        if body is not None and body.error is not None and is_inside(error, body.error):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        return super()._failure_of(error)

    def _look_after(self, failure: Failure, error: Exception) -> None:
        close_refused(error)

    def _failed_at_last(self, error: Exception) -> None:
        """The body of the answer to hand over could not be read.

        Raises:
            The library's DeadlineExceeded: for lack of time.
        """
        timeouts = self.timeouts
        if timeouts is not None and timeouts.cut_short(
            self._failure_of(error).kind, self.transport._now()
        ):
            raise self._deadline_exceeded("the deadline ended the attempt") from error

    def _drain_seconds(self) -> float:
        left = None if self.timeouts is None else self.timeouts.left()
        return DRAIN_SECONDS if left is None else min(left, DRAIN_SECONDS)

    def _let_go(self, raw: Any) -> None:
        discard(raw, self._drain_seconds())

    def _note_on(self, response: Any, status: int) -> None:
        """Attach the story to a response that is handed over, and stop who would repeat it."""
        self._stop_outer(response.headers)
        if self._is_worth_noting():
            now = self.transport._now()
            if not (
                len(self.call.trail.entries) == 1 and getattr(response, RECORD, None) is not None
            ):
                setattr(response, RECORD, self.call.close_trail(now))
            if self.call.refusal is None:
                self._tell_success(status, now)

    # A body that broke off after it was handed over.

    def resume_later(self, raw: Any) -> None:
        """The caller streams this: let it go on when it breaks off."""
        if self.transport._resume and self.call.policy is not OFF and is_promising(raw):
            splice(raw, self)

    def ask_for_rest(
        self, raw: Any, error: Exception, received: int, *, progressed: bool, least: int
    ) -> Any:
        """Return the urllib3 response that brings the rest, ``END`` if nothing was missing; None:
        the error stands.

        Args:
            raw: The response whose body broke off.
            error: By what.
            received: Raw bytes that the caller was given of it.
            progressed: Some of them came with the last answer.
            least: So many at least must be missing.
        """
        call, transport = self.call, self.transport
        download = self.download
        if download is None:
            lines = list(raw.headers.items())
            download = download_of(call.facts.method, call.facts.header_lines(), raw.status, lines)
            if download is None:
                return None
            setattr(raw, RECORD, call.trail)
        self.resume(download, error, received, progressed=progressed)
        self.least = least
        attempt_timeout = call.policy.attempt_timeout
        self.timeouts = None
        if call.deadline_at != inf or attempt_timeout is not None:
            self.timeouts = Timeouts(transport._now, call.deadline_at, attempt_timeout)
        drive_on: Any = self  # which both adapters make a whole exchange
        try:
            rest = drive(drive_on)
        except Exception:  # the error that broke the body says more
            self.fail_to_resume(error)
            return None
        finally:
            self.first_error = self.body_error = self.last_error = None
            error.__traceback__ = None  # in which is this frame
            call.close_trail(transport._now())
        return rest

    def _take_rest(self, raw: Any, status: int) -> Any:
        """The end of ``ask_for_rest``: is this what was asked for?

        Raises:
            Interrupted: It is not.
        """
        download = self.download
        assert download is not None
        part = Part.OTHER
        if self.call.refusal is None and (
            is_known(raw) or status == 416
        ):  # not given up on: a 503 is no answer
            part = self.take_up(status, list(raw.headers.items()))
        if part is Part.CONTINUES and (download.missing(self.received) or 0) >= self.least:
            if self.timeouts is not None:
                stream_freely(raw, self._own_timeout())
                left = self.timeouts.left()
                if left is not None:
                    stream_within(raw, left)
            return raw
        self._let_go(raw)
        if part is Part.COMPLETE and not self.least:
            return END
        self.call.refusal = self.call.refusal or GiveUp(Reason.RESPONSE_DELIVERED)
        raise Interrupted

    def _whole_head(self, raw: Any) -> None:
        """http.client takes a head that was cut off for a shorter one; a 206 has to say what it is
        a part of.

        Raises:
            ProtocolError: That is missing: the attempt has failed.
        """
        if raw.status == 206 and not (
            "content-range" in raw.headers and (raw.chunked or "content-length" in raw.headers)
        ):
            self._let_go(raw)
            raise ProtocolError("Connection broken: the head of the answer was cut off")

    def _own_timeout(self) -> Timeout:
        """Of the caller, for this request."""
        raise AssertionError("each library has its own")

    def tell_of_rest(self, error: Exception) -> None:
        """Attach the story to an error that a body ends with."""
        if self.download is not None:
            self._told(error)


def is_inside(error: BaseException, wanted: BaseException) -> bool:
    """Is this the error, or what another one was raised from or around?"""
    seen: list[Any] = [error]
    for _ in range(16):
        if not seen:
            return False
        one = seen.pop()
        if one is wanted:
            return True
        seen.extend(
            found
            for found in (one.__cause__, *one.args, getattr(one, "reason", None))
            if is_error(found)
        )
    return False


def is_error(found: Any) -> bool:
    return isinstance(found, BaseException)
