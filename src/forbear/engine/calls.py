"""Calls: how the state of a call begins, and how a call ends. The same for every library.

What is sent for a call is made in outgoing.py; what happens between beginning and end is loop.py's.
"""

from __future__ import annotations

from contextlib import suppress
from logging import DEBUG, getLogger
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import IN_FLIGHT, PLUGIN, PLUGIN_ERROR, RECORD, SENT_BEFORE, STORY, Call, Story
from ..core.outcome import Failure, FailureKind, GiveUp, Phase, Reason
from ..errors import RetryRefused
from . import current
from .errors import DeadlineCut, story_below
from .settings import OFF

if TYPE_CHECKING:
    from ..core.policy import RetryPolicy
    from ..core.request import Request
    from .context import CallContext
    from .outgoing import Outgoing
    from .port import Classifier, CommonPort, Copying, Port, Response, Sent, Source, Url
    from .settings import Settings

logger = getLogger("forbear")

# A call begins.


def begin_call(
    settings: Settings,
    request: Request,
    started_at: float,
    context: CallContext | None,
    outgoing: Outgoing | None = None,
) -> Call:
    """Begin a call; ``outgoing`` is sent in the request's place, with its policy and deadline."""
    call = Call(settings.policy, request, settings.limits, started_at, settings.most_attempts)
    call.key_until = started_at + settings.key_lifetime
    if outgoing is not None:
        call.outgoing = outgoing
        request.guard = outgoing.guard
        call.deadline_at = outgoing.deadline_at
        request.headers = outgoing.request.headers
        if outgoing.hop is not None:
            call.attempts = call.notes[SENT_BEFORE] = outgoing.hop.retries_used
        if outgoing.policy is not settings.policy:
            follow_policy(settings, call, outgoing.policy)
    if context is not None or current.everywhere is not None:
        context = call.context = current.with_everywhere(context)
        if context is not None:
            call.most_attempts = min(call.most_attempts, context.most_attempts)
            if context.random is not None and not settings.has_random:
                call.random = context.random
    return call


def call_of(
    port: Copying[Source, Sent, Url],
    source: Source,
    outgoing: Outgoing | None,
    started_at: float,
    context: CallContext | None,
) -> Call:
    """Begin a call."""
    return begin_call(port.settings, port.view_of(source), started_at, context, outgoing)


def call_after_first(
    port: Copying[Source, Sent, Url],
    source: Source,
    outgoing: Outgoing | None,
    started_at: float,
    context: CallContext | None,
) -> Call:
    """Begin a call whose first attempt was sent before there was a call."""
    view = port.view_of(source)
    return note_first_attempt(begin_call(port.settings, view, started_at, context, outgoing))


def follow_policy(settings: Settings, call: Call, policy: RetryPolicy) -> None:
    """Let another policy than the transport's hold for the call."""
    most: float = policy.max_attempts
    if policy is OFF:
        call.limits = settings.limits_when_off
    elif settings.limits.counts_attempts and most == settings.policy.max_attempts:
        most = inf  # a strategy of the user's counts, unless this call sets its own limit
    call.policy, call.most_attempts = policy, most


def inspects(settings: Settings, call: Call) -> bool:
    """May ``retry_if`` or a vendor's body hint decide on a response?"""
    return settings.retry_if is not None or bool(call.policy.vendors)


def note_first_attempt(call: Call) -> Call:
    """Note a first attempt that was sent before there was a call."""
    call.attempts += 1
    call.is_under_way = True
    call.limits.begin(call, 0.0, call.started_at)
    return call


def note_success(
    settings: Settings, method: str, origin: str, status: int, started_at: float
) -> None:
    """Note a call that was sent once and accepted, without having been a ``Call``."""
    limits = settings.limits
    if limits.counts_calls:
        limits.count_call()
    gate, now = limits.gate, settings.clock.monotonic()
    if gate is not None and not gate.quiet:
        gate.good(origin, now, retry=False)
    if settings.events.wants_calls:
        settings.events.log().succeeded_at_once(method, origin, status, now - started_at)


def enter(port: CommonPort, call: Call) -> float:
    """Check the limits before the first attempt; return seconds to wait, nearly always 0.

    Raises:
        The library's DeadlineExceeded or CircuitOpenError: nothing is sent.
    """
    now = call.started_at
    try:
        delay = call.limits.begin(call, 0.0, now)
        if delay > 0 and delay > call.deadline_at - now:
            raise RetryRefused(Reason.DEADLINE, send=False, retry_after=delay)
        return delay
    except RetryRefused as refused:
        raise refusal(port, call, refused) from None


def next_request(port: Copying[Source, Sent, Url], call: Call) -> Sent:
    """Return the request to send now: the client's own, unless something in it is changed."""
    if (
        call.outgoing is None
        and call.origin == call.sent_to
        and port.settings.sends_alike
        and call.context is None
    ):
        original: Sent = call.request.original
        return original
    from .prepare import next_request

    return next_request(port, call)


def sent_request(call: Call) -> Any:
    """The request that was sent last."""
    return call.request.original if call.outgoing is None else call.outgoing.request


# It is not sent, or not again.


def too_late(port: CommonPort, call: Call) -> Exception:
    """Make the error of a call whose deadline was over before anything was sent."""
    error = deadline_error(port, call, "the deadline was over before anything was sent")
    ended(port.settings, call)
    return error


def expired(port: CommonPort, call: Call) -> Exception:
    """Make the error of an attempt that was not sent, since the deadline came first."""
    error = refusal(port, call, RetryRefused(Reason.DEADLINE, send=False))
    error.__cause__ = call.last_error
    return error


def refusal(port: CommonPort, call: Call, refused: RetryRefused) -> Exception:
    """Make the exception for an attempt that may not be sent."""
    settings, seconds = port.settings, refused.retry_after
    call.stop = GiveUp(refused.reason, seconds)
    end_incoming(call, refused.reason)
    if call.policy is not OFF:
        settings.events.refused(call, settings.clock.monotonic())
    if refused.reason is Reason.DEADLINE:
        message = "the next attempt would begin after the deadline"
        return deadline_error(port, call, message, seconds)
    if (
        refused.reason is Reason.CONCURRENCY_LIMIT
        and settings.clock.monotonic() >= call.deadline_at
    ):
        message = "the deadline was over before a slot of its concurrency limit was free"
        return deadline_error(port, call, message, None, refused.reason)
    from ..core.record import in_seconds

    again = "" if seconds is None else f", try again in {in_seconds(seconds)}"
    error = port.circuit_open_error(
        f"nothing is sent to {call.request.origin} now: {refused.reason.value}{again}",
        reason=refused.reason,
        retry_after=seconds,
    )
    return with_story(port, call, error)


def deadline_error(
    port: CommonPort,
    call: Call,
    message: str,
    retry_after: float | None = None,
    reason: Reason = Reason.DEADLINE,
) -> Exception:
    """Make the library's DeadlineExceeded, with the story attached."""
    if call.stop is None or call.stop.reason is not reason:
        call.stop = GiveUp(reason)
    error = port.deadline_exceeded(
        f"{call.request.method} {call.request.origin}: {message}",
        reason=reason,
        retry_after=retry_after,
    )
    return with_story(port, call, error)


def not_retried(settings: Settings, call: Call, status: int) -> None:
    """Log at DEBUG that this status of 400 or above is not retried."""
    if logger.isEnabledFor(DEBUG) and call.policy is not OFF:
        settings.events.log().not_retried(call.request.method, call.sent_to, status)


def notify_outer_loops(settings: Settings, call: Call, reason: Reason) -> None:
    """Warn of an outer retry loop, and stop the retries of the incoming request's sender."""
    if call.most_attempts > 1:
        from .outer import outer_loop

        nested = outer_loop(call.request.header_lines())
        if nested is not None:
            settings.events.log().nested(*nested)
    end_incoming(call, reason)


def end_incoming(call: Call, reason: Reason) -> None:
    """Mark the incoming request: a retry by its sender would repeat all these attempts."""
    incoming = None if call.context is None else call.context.incoming
    if incoming is not None:
        incoming.note_end(len(call.history), reason)


# A call ends.


def last_error(port: CommonPort, call: Call, error: Exception) -> Exception:
    """Attach the story to the error that ends the call; DeadlineExceeded, if that ended it."""
    error = port.final_error(call, error)
    if call.barred is Reason.DEADLINE:
        exceeded = deadline_error(port, call, "the deadline ended the attempt")
        exceeded.__cause__ = None if isinstance(error, DeadlineCut) else error
        return exceeded
    return error if call.policy is OFF else with_story(port, call, error)


def with_story(port: Classifier, call: Call, error: Exception) -> Exception:
    """Attach the story, unless an inner forbear has attached its own."""
    port.note_error(call, error)
    before = getattr(error, RECORD, None)
    if story_below(port, call, before) is None:
        from ..core.record import record_from  # a retried call that fails makes its record

        if isinstance(before, Story):
            with suppress(AttributeError, ValueError):
                error.__notes__.remove(f"forbear: {record_from(before)}")
        story = call.story(port.settings.clock.monotonic())
        setattr(error, RECORD, story)
        if story.history:
            error.add_note(f"forbear: {record_from(story)}")
    return error


def body_broke(port: Classifier, call: Call, error: Exception, kind: FailureKind) -> None:
    """Attach the story to an error of a body that was handed over, and that stays broken."""
    settings = port.settings
    now = settings.clock.monotonic()
    if call.stop is None:
        failure = Failure(kind, Phase.ANSWERED, error=type(error).__name__)
        call.broke(failure, GiveUp(Reason.RESPONSE_DELIVERED), now)
        settings.events.refused(call, now)
    with_story(port, call, error)


def body_is_late(port: CommonPort, call: Call, error: str = "DeadlineExceeded") -> Exception:
    """Make the error of a body that was handed over and then cut by the deadline."""
    failure = Failure(FailureKind.TIMEOUT, Phase.ANSWERED, error=error)
    call.broke(failure, GiveUp(Reason.DEADLINE), port.settings.clock.monotonic())
    return deadline_error(port, call, "the deadline ended the body")


def conclude(port: Port[Response], call: Call, response: Response) -> None:
    """Attach the story to the response that ends a call, and emit a success after retries.

    Raises:
        The error that broke the body while it was prefetched, and ends the call.
    """
    attached = port.story_of(response)
    if call.policy is OFF:
        return
    settings, stop, was_retried = port.settings, call.stop, len(call.history) > 1
    below = story_below(port, call, attached)
    if stop is None and not was_retried and not any(call.notes.get(STORY, {}).values()):
        if below is None and ((call.status or 0) >= 300 or isinstance(attached, Story)):
            port.attach(response, call.story(settings.clock.monotonic()))
        return
    now = settings.clock.monotonic()
    # An inner forbear has attached its story; ours adds nothing if it only passed that on.
    if was_retried or below is None or not below.is_final:
        port.attach(response, call.story(now))
    if stop is None:
        if was_retried:
            settings.events.emit("succeeded_after_retry", call, now)
    elif call.body_error is not None:
        # Not resumed: the caller gets the error where the body breaks, as without forbear.
        error = last_error(port, call, call.body_error)
        if wants_status_error(call) or error is not call.body_error:
            raise error


def free_in_flight(notes: dict[object, Any]) -> None:
    """Give back the slot of a body that is read, closed or lost."""
    held = notes.get(IN_FLIGHT)
    if held is not None:
        held.free()


def end_attempt(call: Call, *, endless: bool | None = None) -> dict[object, Any] | None:
    """Give back the slot of an attempt, or let the body that is handed over do that.

    ``endless`` says whether that is a stream of events; None: none of it is to come.

    Returns:
        The notes with the slot that is freed when the body ends; None: it is free.
    """
    held = call.notes[IN_FLIGHT]
    if endless is not None and held.hand_over(endless=endless):
        return call.notes
    held.free()
    del call.notes[IN_FLIGHT]
    return None


def wants_status_error(call: Call) -> bool:
    """Shall the library's own error be raised for the response that ends the call?"""
    return call.stop is not None and call.policy.on_exhausted == "raise"


def closed(port: CommonPort, call: Call) -> Exception:
    """Make the error of a call that may wait no longer, and kept no response.

    That is its last error, or the library's for a closed transport: a response was discarded before
    the wait.
    """
    failure, error = call.last_failure, call.last_error
    call.last_error = None  # its traceback will hold the call: a cycle that would keep the sockets
    if error is None or (failure is not None and failure.status is not None):
        error = port.closed_error()
    return last_error(port, call, error)


def ended(settings: Settings, call: Call) -> None:
    """Emit that the call is over, and log what a plug-in of the user's raised meanwhile."""
    error = call.notes.pop(PLUGIN_ERROR, None)
    if error is not None:
        is_end = call.stop is not None and call.stop.reason is Reason.STRATEGY_FAILED
        log = settings.events.log()
        name = call.notes.get(PLUGIN, "schedule, scope or budget")
        log.hook_failed(name, error, ends_retries=is_end)
    if settings.wants_ends:
        settings.events.log().ended(call, settings.clock.monotonic())


def cancelled(settings: Settings, call: Call) -> None:
    """Emit the end of a call whose first attempt was cancelled before there was a call."""
    call.sending(call.started_at)
    ended(settings, call)
