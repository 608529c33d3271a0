"""Calls: how the state of a call begins, and how a call ends. The same for every library.

What is sent for a call is made in prepare.py; what happens between beginning and end is loop.py's.
"""

from __future__ import annotations

from contextlib import suppress
from logging import DEBUG, getLogger
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import IN_FLIGHT, PLUGIN, PLUGIN_ERROR, RECORD, SENT_BEFORE, STORY, Call, Story
from ..core.outcome import Reason
from . import current
from .errors import story_below
from .settings import OFF

if TYPE_CHECKING:
    from ..core.policy import RetryPolicy
    from ..core.request import Request
    from .context import CallContext
    from .outgoing import Outgoing
    from .port import Classifier, Copying, Given, Port, Req, Resp, Url
    from .settings import Settings

    # What the fast path has of a call: the source of the request, what is sent in its place if
    # anything in it is changed, when it began, and the blocks around it.
    Facts = tuple[Given, Outgoing | None, float, CallContext | None]
    # Its first outcome, then the call and what that returns: what an interruption closes.
    Held = list[Any]

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


def call_of(port: Copying[Given, Req, Url], *facts: *Facts[Given]) -> Call:
    """Begin a call."""
    source, outgoing, started_at, context = facts
    return begin_call(port.settings, port.view_of(source), started_at, context, outgoing)


def call_after_first(port: Copying[Given, Req, Url], *facts: *Facts[Given]) -> Call:
    """Begin a call whose first attempt was sent before there was a call."""
    return note_first_attempt(call_of(port, *facts))


def follow_policy(settings: Settings, call: Call, policy: RetryPolicy) -> None:
    """Let another policy than the transport's hold for the call."""
    most: float = policy.max_attempts
    if policy is OFF:
        call.limits = settings.limits_when_off
    elif settings.limits.counts_attempts and most == settings.policy.max_attempts:
        most = inf  # a strategy of the user's counts, unless this call sets its own limit
    call.policy, call.most_attempts = policy, most


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
    gate, now = settings.limits.gate, settings.clock.monotonic()
    if gate is not None and not gate.quiet:
        gate.good(origin, now, retry=False)
    if settings.events.wants_calls:
        settings.events.log().succeeded_at_once(method, origin, status, now - started_at)


def sent_request(call: Call) -> Any:
    """The request that was sent last."""
    return call.request.original if call.outgoing is None else call.outgoing.request


# It is not sent again.


def not_retried(settings: Settings, call: Call, status: int) -> None:
    """Log at DEBUG that this status of 400 or above is not retried."""
    if logger.isEnabledFor(DEBUG) and call.policy is not OFF:
        method, origin, reason = call.request.method, call.sent_to, Reason.STATUS_NOT_RETRIED.value
        facts = {"method": method, "origin": origin, "status": status, "reason": reason}
        settings.events.log().line("status_not_retried", **facts)


def notify_outer_loops(settings: Settings, call: Call, reason: Reason) -> None:
    """Warn of an outer retry loop, and stop the retries of whoever waits for our response."""
    if call.most_attempts > 1:
        from .outer import outer_loop

        nested = outer_loop(call.request.header_lines())
        if nested is not None:
            header, hint = nested
            settings.events.log().line("nested_retry", once=header, header=header, hint=hint)
    note_at_sender(call, reason)


def note_at_sender(call: Call, reason: Reason) -> None:
    """Note at the request that is being answered: its retry would repeat all these attempts."""
    sender = None if call.context is None else call.context.sender
    if sender is not None:
        sender.note_end(len(call.history), reason)


# A call ends.


def is_done(port: Port[Req, Resp], call: Call, response: Resp) -> bool:
    """Would the fast path return this response to a first attempt?"""
    settings = port.settings
    return (
        port.status_of(response) < 300
        and (call.prefetch_result == "whole" or not (call.outgoing or settings.watches_bodies))
        and STORY not in call.notes  # of a hedge
        and settings.shared_in_layers.quiet
    )


def with_story(port: Classifier, call: Call, error: Exception) -> Exception:
    """Attach the story, unless an inner forbear has attached its own."""
    before = getattr(error, RECORD, None)
    if story_below(port, call, before) is None:
        from ..records import record_from  # a retried call that fails makes its record

        if isinstance(before, Story):
            with suppress(AttributeError, ValueError):
                error.__notes__.remove(f"forbear: {record_from(before)}")
        story = call.story(port.settings.clock.monotonic())
        setattr(error, RECORD, story)
        if story.history:
            error.add_note(f"forbear: {record_from(story)}")
    return error


def end_attempt(call: Call) -> None:
    """Give back what a limit lets an attempt have until its body ends."""
    call.notes[IN_FLIGHT].free()
    del call.notes[IN_FLIGHT]


def wants_status_error(call: Call) -> bool:
    """Shall the library's own error be raised for the response that ends the call?"""
    return call.stop is not None and call.policy.on_exhausted == "raise"


def ended(settings: Settings, call: Call) -> None:
    """Emit that the call is over, and log what a plug-in of the user's raised meanwhile."""
    error = call.notes.pop(PLUGIN_ERROR, None)
    if error is not None:
        is_end = call.stop is not None and call.stop.reason is Reason.STRATEGY_FAILED
        log = settings.events.log()
        name = call.notes.get(PLUGIN, "schedule, scope or limit")
        log.hook_failed(name, error, ends_retries=is_end)
    if settings.wants_ends:
        settings.events.log().ended(call, settings.clock.monotonic())


def cancelled(settings: Settings, call: Call) -> None:
    """Emit the end of a call whose first attempt was cancelled before there was a call."""
    call.sending(call.started_at)
    ended(settings, call)
