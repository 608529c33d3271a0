"""First: how a call goes on whose first attempt was sent before there was a call.

The fast path of a transport sends once, and returns a response of which nothing has to be noted.
Every other outcome is handled here. That of requests and urllib3 reads bodies as its library does,
and has a way of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..core.call import Call
from .calls import call_after_first, call_of, cancelled, note_success
from .driver import note_prefetch, watched
from .errors import ConsumedBody
from .loop import run
from .settings import OFF

if TYPE_CHECKING:
    from .calls import Facts, Held
    from .port import Prefetching, Req, Resp


async def go_on(port: Prefetching[Req, Resp], held: Held, *facts: *Facts[object]) -> Resp:
    """Go on with a call; ``held`` has its first outcome, then the call and what that returns."""
    source, outgoing, started_at, _ = facts
    settings, prefetch = port.settings, None
    if not isinstance(held[0], Exception):
        response: Resp = held[0]
        view, status = port.view_of(source), port.status_of(response)
        sent, policy = view.original, settings.policy
        if outgoing is not None:
            sent, policy = outgoing.request, outgoing.policy
        prefetch = await port.prefetched(sent, response, policy, outgoing)
        if status < 300 and not isinstance(prefetch, Exception):
            begin = partial(call_after_first, port, *facts)
            if policy is not OFF:
                response = watched(port, sent, response, begin)
            response = port.reopen(outgoing, response, begin)
            note_success(settings, view.method, view.origin, status, started_at)
            return response
        del response  # it would be kept for as long as the call waits
    call = call_after_first(port, *facts)
    if isinstance(held[0], ConsumedBody):
        held[0] = port.consumed(call, held[0])
    note_prefetch(call, prefetch)
    prefetch = None
    call.live, held[0] = held[0], call
    return await run(call, port, held)


async def let_go(port: Prefetching[Req, Resp], held: Held, *facts: *Facts[object]) -> None:
    """Close what the caller of an interrupted call does not get."""
    for one in held:
        await port.close_unused(one.live if isinstance(one, Call) else one)
    if not isinstance(held[0], Call):
        cancelled(port.settings, call_of(port, *facts))
