"""Prepare: what is sent in place of a request.

A fast path that succeeds sends the caller's own request, and so do its retries. Whatever forbear
adds to a request, or changes in it, goes into a copy: headers and the readings of a body for every
library, timeouts and guarded bodies for httpx and aiohttp. Loaded with the first request of which
something is changed.
"""

from __future__ import annotations

from copy import copy
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import PREPARED_FOR
from ..core.checks import shown
from ..core.headers.fields import as_text
from ..core.policy import RetryPolicy
from . import current
from .outgoing import Hop, Outgoing
from .settings import OFF

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..core.call import Call
    from .context import CallContext
    from .guards import Readings
    from .port import Copying, Sent, Source, Url
    from .settings import Lines, Settings


def lines_of_call(port: Copying[Source, Sent, Url], source: Source, hop: Hop | None) -> Lines:
    """Return what add-ons give the request of a call; a redirect to its own origin keeps that."""
    view, now = port.view_of(source), port.settings.clock.time()
    lines = [line for give in port.settings.first_lines for line in give(view, now)]
    if hop is not None and hop.origin == view.origin:
        kept = dict(hop.lines)
        lines = [(name, kept.get(name, value)) for name, value in lines]
    return lines


def lines_of_attempt(
    settings: Settings,
    context: CallContext | None,
    attempt: int,
    deadline_at: float,
    headers: Iterable[str | bytes],
) -> Lines:
    """Return headers of the next attempt alone; one that the caller has written stays."""
    sender = None if context is None else context.sender
    lines = [line for give in settings.attempt_lines for line in give(sender, attempt)]
    if sender is not None and deadline_at != inf:
        lines += sender.lines(deadline_at - settings.clock.monotonic())
    written = {as_text(name).lower() for name in headers} if lines else set()
    return [line for line in lines if line[0].lower() not in written]


def next_lines(settings: Settings, call: Call) -> Lines:
    """Return headers that only the next attempt carries."""
    if call.policy is OFF:
        return []
    attempt, written = call.attempts + 1 if call.history else 1, call.request.original.headers
    return lines_of_attempt(settings, call.context, attempt, call.deadline_at, written)


def policy_of(settings: Settings, context: CallContext | None, setting: Any) -> RetryPolicy:
    """The policy of one call: the transport's < ``override`` < the request's own ``setting``.

    Raises:
        TypeError: The request's setting is none.
    """
    if setting is False:
        return OFF
    if isinstance(setting, RetryPolicy):
        return setting
    policy = settings.policy if context is None else context.merged(settings.policy)
    if setting is None:
        return policy
    if hasattr(setting, "keys"):
        return policy.replace(**setting)
    raise TypeError(
        'extensions["forbear"] must be a RetryPolicy, a mapping of its fields, False for off or'
        f" None, got {shown(setting)}"
    )


def policy_and_deadline(
    settings: Settings, context: CallContext | None, setting: object, started_at: float
) -> tuple[RetryPolicy, float]:
    """Return the policy and the deadline of a call."""
    policy = settings.policy
    if setting is not None or context is not None:
        policy = policy_of(settings, context, setting)
    total = policy.total_timeout
    deadline_at = inf if total is None else started_at + total
    if context is not None:
        deadline_at = min(deadline_at, context.deadline_on(settings.clock, started_at))
    return policy, deadline_at


def outgoing_for(
    port: Copying[Source, Sent, Url],
    source: Source,
    request: Sent,
    body: object,
    started_at: float,
    context: CallContext | None,
    setting: object,
    hop: Hop | None,
) -> Outgoing:
    """Make what is sent in place of a request: a copy, if anything in it is changed.

    ``body`` is the request's, None if it can be resent as it is; ``setting`` is its own: a
    RetryPolicy, a mapping of its fields, False or None; ``hop`` is what the hop before has left,
    None if this is not a redirect.
    """
    settings = port.settings
    if context is not None or current.everywhere is not None:
        context = current.with_everywhere(context)
    policy, deadline_at = policy_and_deadline(settings, context, setting, started_at)
    if hop is not None:
        deadline_at = min(hop.deadline_at, deadline_at)
    guard: Readings | None = None
    lines: Lines = []
    if policy is not OFF:
        if body is not None:
            guard = port.guard_of(request, body, hop)
        if settings.first_lines:
            lines = lines_of_call(port, source, hop)
    is_bounded = deadline_at != inf or policy.attempt_timeout is not None
    if lines or guard is not None:
        request = port.copied(request, lines or None)
    outgoing = Outgoing(request, policy, deadline_at, guard, lines, hop)
    if guard is not None:
        setattr(request, port.body_name, guard.outgoing)
        if is_bounded:
            limit(settings, guard, deadline_at)
    if is_bounded:
        port.bound(outgoing)
    if context is not None:
        outgoing.reads_until = context.deadline_on(settings.clock, started_at)
        if context.sender is not None and policy is not OFF:
            lines = lines_of_attempt(settings, context, 1, deadline_at, request.headers)
            if lines:
                outgoing.own_names = [name for name, _ in lines]
                outgoing.request = port.copied(request, lines)
    return outgoing


def limit(settings: Settings, guard: Readings, deadline_at: float) -> None:
    """Let the guard send no part of its body after the deadline."""
    guard.clock, guard.deadline_at = settings.clock, deadline_at


def outgoing_of(port: Copying[Source, Sent, Url], call: Call) -> Outgoing:
    """Make the copy to send for a call that has sent the client's own request so far."""
    outgoing: Outgoing | None = call.outgoing
    if outgoing is None:
        copy = port.copied(call.request.original)
        outgoing = call.outgoing = Outgoing(copy, call.policy, call.deadline_at)
    return outgoing


def next_request(port: Copying[Source, Sent, Url], call: Call) -> Sent:
    """Return the request to send now: to the call's origin, with this attempt's headers."""
    settings = port.settings
    outgoing: Outgoing | None = call.outgoing
    original: Sent = call.request.original
    prepared_for = call.notes.get(PREPARED_FOR)
    if outgoing is not None and prepared_for == call.origin:
        prepared: Sent = outgoing.request
        return prepared
    if outgoing is not None and outgoing.cookie is not None:
        outgoing.request = outgoing.pristine = port.copied(outgoing.pristine, ())
        headers: Any = outgoing.request.headers
        call.request.headers = headers
        headers["Cookie"] = outgoing.cookie
        if not outgoing.cookie:
            del headers["Cookie"]
        outgoing.cookie = None
    if call.origin == (prepared_for or call.sent_to):
        if settings.sends_alike and call.context is None:
            return original if outgoing is None else outgoing.request
    else:
        outgoing = outgoing_of(port, call)
        outgoing.request = outgoing.pristine = aimed(port, outgoing.pristine, call.origin)
        call.request.headers = outgoing.request.headers
    lines = next_lines(settings, call)
    if lines or call.awaits_hook:  # on a fresh copy
        outgoing = outgoing_of(port, call)
        outgoing.own_names = [name for name, _ in lines]
        outgoing.request = port.copied(outgoing.pristine, lines)
        call.request.headers = outgoing.request.headers
    elif outgoing is not None:
        outgoing.request = outgoing.pristine
    return original if outgoing is None else outgoing.request


def renewed_cookies(line: str, before: str, after: str, *, merges: bool) -> str:
    """Return the Cookie header of a retry: what the jar gives now, and what is the caller's own.

    Args:
        line: The header so far; "" for none.
        before: What the jar gave; "" for nothing.
        after: What it gives.
        merges: The client adds the jar's cookies to a header that the caller wrote. Else that goes
            out as it is, and a line in which the jar's cookies are not to be found is one.
    """
    written, old, new = (line.split("; ") if line else [] for line in (line, before, after))
    own = [pair for pair in written if pair not in old]
    if merges:
        names = {pair.partition("=")[0] for pair in own}
        new = [pair for pair in new if pair.partition("=")[0] not in names]
    elif own and not (old and set(old) <= set(written)):
        return line
    return "; ".join(own + new)


def aimed(port: Copying[Source, Sent, Url], request: Sent, origin: str) -> Sent:
    """Copy a request for another origin."""
    scheme, _, host = origin.partition("://")
    host, _, number = host.rpartition(":")
    url = port.url_at(request.url, scheme, host.strip("[]"), int(number))
    # A Host header that differs from the URL was set by the caller, and stays for every origin.
    named = request.headers.get("Host") == port.host_of(request.url)
    return port.copied(request, [("Host", port.host_of(url))] if named else None, url)


def request_rest(
    port: Copying[Source, Sent, Url], call: Call, lines: Sequence[tuple[str, str]]
) -> None:
    """Let a call send its request with these lines, under the limits that hold for it."""
    outgoing = call.outgoing = copy(outgoing_of(port, call))
    request = outgoing.request = outgoing.pristine = port.copied(outgoing.pristine, lines)
    outgoing.deadline_at, outgoing.timeouts = call.deadline_at, None
    call.request.headers = request.headers
    if call.deadline_at != inf or call.policy.attempt_timeout is not None:
        port.bound(outgoing)
        if outgoing.guard is not None:
            limit(port.settings, outgoing.guard, call.deadline_at)
