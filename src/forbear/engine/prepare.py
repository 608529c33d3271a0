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
from .calls import call_of
from .outgoing import Hop, Outgoing
from .settings import OFF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.call import Call
    from .context import CallContext
    from .guards import Readings
    from .port import Copying, Given, Port, Req, Resp, Url
    from .settings import Lines, Settings


def outgoing_for(
    port: Port[Req, Resp],
    source: object,
    request: Req,
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

    Raises:
        The library's DeadlineExceeded: nothing is sent.
        TypeError: The request's setting is none.
    """
    settings = port.settings
    if context is not None or current.everywhere is not None:
        context = current.with_everywhere(context)
    policy, deadline_at, reads_until = policy_and_ends(settings, context, setting, started_at)
    if hop is not None:
        deadline_at = min(hop.deadline_at, deadline_at)
    guard: Readings | None = None
    lines: Lines = []
    if policy is not OFF:
        if body is not None:
            guard = port.guard_of(request, body, hop)
        if settings.first_lines:
            lines = lines_of_call(port, source, hop)
    if lines or guard is not None:
        request = port.copied(request, lines or None)
    if guard is not None:
        setattr(request, port.body_name, guard)
    outgoing = Outgoing(request, request, policy, deadline_at, guard, lines, hop, reads_until)
    limit(port, outgoing)
    if context is not None and context.sender is not None:
        add_own_lines(port, outgoing, context, 1)
    if deadline_at <= started_at:
        from .refusals import too_late

        raise too_late(port, call_of(port, source, outgoing, started_at, context))
    return outgoing


def policy_of(
    settings: Settings,
    context: CallContext | None,
    setting: Any,
    name: str = 'extensions["forbear"]',
) -> RetryPolicy:
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
        f"{name} must be a RetryPolicy, a mapping of its fields, False for off or None, got"
        f" {shown(setting)}"
    )


def policy_and_ends(
    settings: Settings, context: CallContext | None, setting: object, started_at: float
) -> tuple[RetryPolicy, float, float]:
    """Return the policy of a call, its deadline, and that of the blocks, both maybe infinite."""
    policy, reads_until = settings.policy, inf
    if setting is not None or context is not None:
        policy = policy_of(settings, context, setting)
    if context is not None:
        reads_until = context.deadline_on(settings.clock, started_at)
    total = policy.total_timeout
    return policy, min(reads_until, inf if total is None else started_at + total), reads_until


def lines_of_call(port: Copying[Given, Req, Url], source: Given, hop: Hop | None) -> Lines:
    """Return what add-ons give the request of a call; a redirect to its own origin keeps that."""
    view, now = port.view_of(source), port.settings.clock.time()
    lines = [line for give in port.settings.first_lines for line in give(view, now)]
    if hop is not None and hop.origin == view.origin:
        kept = dict(hop.lines)
        lines = [(name, kept.get(name, value)) for name, value in lines]
    return lines


def limit(port: Copying[Given, Req, Url], outgoing: Outgoing) -> None:
    """Let what is sent, and its body, know their limits, if there are any."""
    if outgoing.deadline_at == inf and outgoing.policy.attempt_timeout is None:
        return
    if outgoing.guard is not None:
        outgoing.guard.clock = port.settings.clock
        outgoing.guard.deadline_at = outgoing.deadline_at
    port.bound(outgoing)


def add_own_lines(
    port: Copying[Given, Req, Url], outgoing: Outgoing, context: CallContext | None, attempt: int
) -> None:
    """Let an attempt carry headers of its own; one that the caller has written stays."""
    settings, sender = port.settings, None if context is None else context.sender
    lines: Lines = []
    if outgoing.policy is not OFF:
        lines = [line for give in settings.attempt_lines for line in give(sender, attempt)]
        if sender is not None and outgoing.deadline_at != inf:
            lines += sender.lines(outgoing.deadline_at - settings.clock.monotonic())
    written = {as_text(name).lower() for name in outgoing.pristine.headers}
    lines = [line for line in lines if line[0].lower() not in written]
    outgoing.request = port.copied(outgoing.pristine, lines)


def outgoing_of(port: Copying[Given, Req, Url], call: Call) -> Outgoing:
    """Make the copy to send for a call that has sent the client's own request so far."""
    outgoing: Outgoing | None = call.outgoing
    if outgoing is None:
        copy = port.copied(call.request.original)
        outgoing = call.outgoing = Outgoing(copy, copy, call.policy, call.deadline_at)
    return outgoing


def next_request(port: Copying[Given, Req, Url], call: Call) -> Req:
    """Return the request to send now: to the call's origin, with this attempt's headers."""
    outgoing, prepared_for = outgoing_of(port, call), call.notes.get(PREPARED_FOR)
    if prepared_for != call.origin:
        if call.origin != (prepared_for or call.sent_to):
            outgoing.pristine = aimed(port, outgoing.pristine, call.origin)
        attempt = call.attempts + 1 if call.history else 1
        add_own_lines(port, outgoing, call.context, attempt)
        call.request.headers = outgoing.request.headers
    request: Req = outgoing.request
    return request


def aimed(port: Copying[Given, Req, Url], request: Req, origin: str) -> Req:
    """Copy a request for another origin."""
    scheme, _, host = origin.partition("://")
    host, _, number = host.rpartition(":")
    url = port.url_at(request.url, scheme, host.strip("[]"), int(number))
    # A Host header that differs from the URL was set by the caller, and stays for every origin.
    named = request.headers.get("Host") == port.host_of(request.url)
    return port.copied(request, [("Host", port.host_of(url))] if named else None, url)


def renew_cookies(
    port: Copying[Given, Req, Url], call: Call, before: str, after: str, *, merges: bool = False
) -> None:
    """Let a retry carry the cookies that the client's jar gives now, and the caller's own.

    Args:
        port: The port.
        call: A failed response of its may have changed the jar.
        before: What the jar gave; "" for nothing.
        after: What it gives.
        merges: The client adds the jar's cookies to a header that the caller wrote. Else that goes
            out as it is, and a line in which the jar's cookies are not to be found is one.
    """
    if before == after:
        return
    outgoing = outgoing_of(port, call)
    line = as_text(outgoing.pristine.headers.get("Cookie", ""))
    written, old, new = (line.split("; ") if line else [] for line in (line, before, after))
    own = [pair for pair in written if pair not in old]
    if merges:
        names = {pair.partition("=")[0] for pair in own}
        new = [pair for pair in new if pair.partition("=")[0] not in names]
    elif own and not (old and set(old) <= set(written)):
        return
    outgoing.pristine = port.copied(outgoing.pristine, ())
    headers = outgoing.pristine.headers
    headers.pop("Cookie", None)
    if own or new:
        headers["Cookie"] = "; ".join(own + new)


def request_rest(
    port: Copying[Given, Req, Url], call: Call, lines: Sequence[tuple[str, str]]
) -> None:
    """Let a call send its request with these lines, under the limits that hold for it."""
    outgoing = call.outgoing = copy(outgoing_of(port, call))
    outgoing.request = outgoing.pristine = port.copied(outgoing.pristine, lines)
    outgoing.deadline_at, outgoing.timeouts = call.deadline_at, None
    call.request.headers = outgoing.request.headers
    limit(port, outgoing)
