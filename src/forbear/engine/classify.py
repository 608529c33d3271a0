"""Classify: from a response or an exception to the failure that the decision reads.

The part that is the same for every library; what an exception of a library means is in the
adapter's errors.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.call import NO_EXTRAS
from ..core.decide import PLAIN, answered, is_failure
from ..core.event_streams import ErrorEvent
from ..core.headers.quota import read_quotas
from ..core.outcome import TIMEOUT_KINDS, Failure, FailureKind, Phase
from ..core.record import RECORD, Story
from .errors import DeadlineCut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.call import Call
    from .port import Classifier

    Lines = Sequence[tuple[str, str]] | Sequence[tuple[bytes, bytes]]

# After these on a reused connection, the idle connections of its origin may be stale as well.
BROKEN_KINDS = frozenset({FailureKind.RESET, *TIMEOUT_KINDS})
# Seconds within which most origins respond, unless the policy's own limits are shorter.
USUAL_RESPONSE_TIME = 1.0


def classify_status(
    port: Classifier, call: Call, status: int, lines: Lines, story: object
) -> Failure | None:
    """Make the failure of a response; None: it is good.

    Args:
        port: Of the transport.
        call: That got the response.
        status: The response's.
        lines: Its header lines; none if no decision reads any of them.
        story: What an inner forbear has attached to it.
    """
    call.status = status
    if lines:
        call.header_lines = lines
    if story is not None or call.context is not None:
        call.own_extras().nested = is_final(story) or sends_once(call)
    if status < 400 and not call.retry_if_result:
        return broken_body(port, call)
    if lines or call.inspects_responses:
        flagged, now = bool(call.retry_if_result), port.settings.clock.time
        failure = answered(call.policy, status, lines, now, flagged, call.extras.body_hint)
    else:
        failure = PLAIN[status]
    if call.body_error is not None and not is_failure(call.policy, call.request, failure):
        return broken_body(port, call)
    return failure


def note_quotas(port: Classifier, call: Call, lines: Lines) -> None:
    """Note what the head of a response says of quotas, good or not."""
    quotas = read_quotas(lines, port.settings.clock.time)
    if quotas:
        call.own_extras().quotas = quotas


def broken_body(port: Classifier, call: Call) -> Failure | None:
    """Make the failure of a broken body: an accepted response must also have a whole body."""
    error = call.body_error
    if type(error) is ErrorEvent:
        call.body_error, call.status = None, error.failure.status  # the body itself is intact
        return error.failure if call.policy.hints == "obey" else error.failure_without_delay()
    return None if error is None else classify_error(port, call, error)


def has_error_event(call: Call, status: int) -> bool:
    """Was a response with this status judged by the first event of its stream instead?"""
    return call.status != status


def classify_error(port: Classifier, call: Call, error: Exception) -> Failure:
    """Make the failure of an exception."""
    if isinstance(error, DeadlineCut):
        note_cut(port, call, nested=False)
        return Failure(FailureKind.TIMEOUT, Phase.SENT, error="DeadlineExceeded")
    failure = port.classify_exception(call, error)
    if error is call.body_error:
        progress = call.resumption is not None and call.resumption.progressed
        failure = Failure(failure.kind, Phase.ANSWERED, error=failure.error, progress=progress)
    call.last_error = error
    nested = is_final(getattr(error, RECORD, None)) or sends_once(call)
    if port.is_cut_by_deadline(call, failure):
        note_cut(port, call, nested=nested)
        return failure
    if call.extras is not NO_EXTRAS or nested:
        extras = call.own_extras()
        extras.is_cut_by_deadline = extras.cut_by_incoming_deadline = extras.is_reused = False
        extras.nested = nested
    if (
        failure.kind in BROKEN_KINDS
        and failure.phase is Phase.SENT
        and not nested
        and port.is_reused(call, error)
    ):
        call.own_extras().is_reused = True
        if failure.kind is FailureKind.RESET:
            kind, phase = failure.kind, failure.phase
            return Failure(kind, phase, error=failure.error, stale_connection=True)
    return failure


def note_cut(port: Classifier, call: Call, *, nested: bool) -> None:
    """Note that the deadline has ended the attempt."""
    extras = call.own_extras()
    extras.is_cut_by_deadline, extras.is_reused, extras.nested = True, False, nested
    extras.cut_by_incoming_deadline = is_cut_by_incoming_deadline(port, call)


def is_cut_by_incoming_deadline(port: Classifier, call: Call) -> bool:
    """Did the incoming request leave the attempt less time than responses take?

    Then the timeout says nothing about the origin, and must not open its breaker: any client can
    send a deadline of 40 ms.
    """
    if call.context is None:
        return False
    clock, policy = port.settings.clock, call.policy
    now = clock.monotonic()
    if call.context.incoming_deadline_on(clock, now) > call.deadline_at:
        return False  # our own was earlier
    usual = USUAL_RESPONSE_TIME
    own = policy.attempt_timeout or usual, policy.total_timeout or usual
    return now - call.sent_at < min(*own, usual)


def sends_once(call: Call) -> bool:
    return call.context is not None and call.context.sends_once()


def is_final(story: object) -> bool:
    """Has an inner forbear already retried, or decided that the call must not be retried?"""
    return isinstance(story, Story) and story.is_final
