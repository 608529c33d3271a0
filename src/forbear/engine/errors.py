"""Errors: from a response or an exception to the failure that the decision reads.

The part that is the same for every library, with internal signals, the meaning of socket errors,
and what a retried error may hold. What an exception of a library means is in the adapter's
errors.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..core.call import BODY_HINT, CUT_BY_SENDER, FLAGGED, QUOTAS, RECORD, UNUSED_HINT, Story
from ..core.decide import answered, is_failure
from ..core.headers.hints import joined, why_unused
from ..core.outcome import TIMEOUT_KINDS, Failure, FailureKind, Hint, Judged, Phase, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.call import Call
    from ..core.headers.fields import Line
    from .port import Classifier, Port, Req, Resp

    Lines = Sequence[Line]


# Root modules whose OSErrors come from the socket layer itself: PyPy's classes name the inner ones.
# By name, since ``ssl`` may be missing, and is not imported to judge an error that is not its own.
SOCKET_LAYER = frozenset({"builtins", "socket", "ssl", "_socket", "_ssl", "_cffi_ssl"})
SOCKET_FAILURES = {
    "SSLCertVerificationError": FailureKind.CERTIFICATE,
    "SSLError": FailureKind.TLS,
    "gaierror": FailureKind.DNS,
}


COOKIES = frozenset({"set-cookie", b"set-cookie"})
LONGEST_CHAIN = 32  # causes and contexts of an error that are inspected; clients make four or five
CHAIN = 16  # errors that are looked at, one inside the other
EARLY = 0.05  # seconds; a timeout that fires this long before the deadline was the caller's own


class ConsumedBody(Exception):
    """A body is needed a second time and cannot be replayed; never leaves a transport."""


class DeadlineCut(Exception):
    """The backstop behind the deadline ended an asynchronous attempt; never leaves a transport."""


class Instead(Exception):
    """A body that the client itself reads has broken for good; never leaves a transport.

    Attributes:
        call: That requested the rest.
        outcome: How it has ended: with an error, or with a response that is not the rest.
    """

    def __init__(self, call: Call, outcome: object) -> None:
        super().__init__()
        self.call, self.outcome = call, outcome


def is_socket_error(cls: type) -> bool:
    """Is this a class of the socket layer's own errors?

    aiohttp's connection errors derive from OSError too, and are raised after a request was read.
    """
    return issubclass(cls, OSError) and cls.__module__.partition(".")[0] in SOCKET_LAYER


def socket_failure_kind(cls: type) -> FailureKind | None:
    """Return the more precise kind of a class of ``ssl`` or ``socket``; None: there is none."""
    for base in cls.__mro__:
        if base.__name__ in SOCKET_FAILURES and is_socket_error(base):
            return SOCKET_FAILURES[base.__name__]
    return None


def classify_response(port: Port[Req, Resp], call: Call, response: Resp) -> Failure | None:
    """Make the failure of a response; None: it is good."""
    status = port.status_of(response)
    if port.settings.limits.reads_quotas:
        note_quotas(port, call, port.head_of(response)[1])
    if status < 400 and not call.notes.get(FLAGGED) and call.body_error is None:
        call.status = status
        return None
    lines = port.head_of(response)[1]
    failure = classify_status(port, call, status, lines, port.story_of(response))
    if failure is not None and any(name.lower() in COOKIES for name, _ in lines):
        port.keep_cookies(call, response)
    return failure


def classify_status(
    port: Classifier, call: Call, status: int, lines: Lines, story: object
) -> Failure | None:
    """Make the failure of a response; None: it is good.

    ``lines`` are its header lines; ``story`` is what an inner forbear has attached to it.
    """
    call.status = status
    result, hint = call.notes.get(FLAGGED), call.notes.get(BODY_HINT)
    if result is False:
        call.barred = Reason.CALLER_SAID_NO
    elif (story is not None or call.context is not None) and (
        is_final(port, call, story) or sends_once(call)
    ):
        call.barred = Reason.NESTED_CALL
    if status < 400 and not result:
        return broken_body(port, call)
    failure = answered(call.policy, status, lines, port.settings.clock.time, bool(result), hint)
    call.notes[UNUSED_HINT] = why_unused(lines, failure.hint)
    if call.body_error is not None and not is_failure(call.policy, call.request, failure):
        return broken_body(port, call)
    return failure


def note_quotas(port: Classifier, call: Call, lines: Lines) -> None:
    """Note what the head of a response says of quotas, good or not."""
    from ..core.headers.quota import read_quotas

    quotas = read_quotas(lines, port.settings.clock.time)
    if quotas:
        call.notes[QUOTAS] = quotas


def broken_body(port: Classifier, call: Call) -> Failure | None:
    """Make the failure of a broken body: an accepted response must also have a whole body."""
    error = call.body_error
    if not isinstance(error, Judged):
        return None if error is None else classify_error(port, call, error)
    failure = error.failure
    call.body_error, call.status = None, failure.status  # the body itself is intact
    if call.policy.hints == "obey":
        return failure
    hint = Hint(None, failure.hint.should_retry, None)
    return failure._replace(hint=hint)


def classify_error(port: Classifier, call: Call, error: Exception) -> Failure:
    """Make the failure of an exception."""
    if isinstance(error, DeadlineCut):
        note_cut(port, call)
        return Failure(FailureKind.TIMEOUT, Phase.SENT, error="DeadlineExceeded")
    is_over = port.settings.clock.monotonic() >= call.deadline_at - EARLY
    guard = call.guard
    if guard is not None and guard.error is not None and is_inside(error, guard.error):
        failure = Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
    else:
        failure = port.classify_exception(call, error)
    if error is call.body_error:
        progress = call.rest is not None and call.rest.has_progress
        failure = Failure(failure.kind, Phase.ANSWERED, error=failure.error, progress=progress)
    if call.rest is not None and BODY_HINT in call.notes:
        hint = joined(failure.hint, call.notes[BODY_HINT])
        failure = failure._replace(hint=hint)
    call.last_error = error
    nested = is_final(port, call, getattr(error, RECORD, None)) or sends_once(call)
    if (
        is_over and failure.kind in TIMEOUT_KINDS
    ):  # of the library, which the deadline has shortened
        note_cut(port, call)
        return failure
    call.barred = Reason.NESTED_CALL if nested else None
    return failure


def is_inside(error: BaseException | None, cause: BaseException) -> bool:
    """Has the library made the error from this one?"""
    for _ in range(CHAIN):
        if error is None or error is cause:
            break
        error = error.__cause__ or error.__context__
    return error is cause


def note_cut(port: Classifier, call: Call) -> None:
    """Note that the deadline has ended the attempt."""
    call.barred = Reason.DEADLINE
    sender = None if call.context is None else call.context.sender
    if sender is not None and sender.cuts(call, port.settings.clock):
        call.notes[CUT_BY_SENDER] = True


def sends_once(call: Call) -> bool:
    return call.context is not None and call.context.sends_once()


def story_below(port: Classifier, call: Call, story: object) -> Story | None:
    """Return the story on an outcome, if a forbear below left it there during this attempt.

    Else it is an earlier call's: mocks raise one error, or return one response, each time.
    """
    if not isinstance(story, Story):
        return None
    return story if story.is_within(call.sent_at, port.settings.clock.monotonic()) else None


def is_final(port: Classifier, call: Call, story: object) -> bool:
    """Has a forbear below already retried, or decided that the call must not be retried?"""
    below = story_below(port, call, story)
    return below is not None and below.is_final


def drop_frames(error: Exception) -> None:
    """Drop the frames that the error and its causes came through.

    They hold the call, which holds the error, and in urllib3 and httpcore the pool with its
    sockets. Without this a call that succeeds in the end leaves all of that to the garbage
    collector.
    """
    handled = sys.exception()  # by whoever makes the call: a context too, whose frames are needed
    error.__traceback__ = None
    chain = [error.__cause__, error.__context__]
    for one in chain:
        if one is not None and one is not handled and len(chain) < LONGEST_CHAIN:
            one.__traceback__ = None
            chain += one.__cause__, one.__context__
