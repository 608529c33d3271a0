"""Driver: what is done with the requests and responses of a call, the same for every library.

A port says how its library sends, and speaks of heads and bytes. To send in time, to read what a
failed response has left, to keep that of a held call, and to put around a body what ends with it,
is written once, here. The functions take the port; those of a synchronous one never suspend.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Literal

from ..core.call import IN_FLIGHT, KEPT
from ..core.outcome import TIMEOUT_KINDS, FailureKind, Phase, Reason
from .calls import sent_request, wants_status_error, with_story
from .clock import SYSTEM_CLOCK
from .errors import (
    ConsumedBody,
    DeadlineCut,
    classify_error,
    classify_response,
    story_below,
)
from .settings import OFF, addon

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.outcome import Failure
    from .port import CommonPort, Ending, Live, Port, PrefetchResult, Req, Resp


# After these on a reused connection, the idle connections of its origin may be stale as well.
BROKEN_KINDS = frozenset({FailureKind.RESET, *TIMEOUT_KINDS})
WHOLE: Literal["whole"] = "whole"
LATE: Literal["late"] = "late"  # more is to come, at an unknown time
# A body of more bytes or seconds than these costs more than the new connection that draining it
# saves.
DRAIN_BYTES = 65_536
DRAIN_SECONDS = 0.25
# The caller wants each part of these when it arrives.
ENDLESS = ("text/event-stream", "multipart/x-mixed-replace")
BODILESS = frozenset({101, 204, 304})


async def sleep(port: Port[Req, Resp], seconds: float, call: Call) -> bool:
    """Wait; False: the transport was closed meanwhile."""
    since, after, queued = call.started_at, call.decided_at, call.notes.get(IN_FLIGHT)
    sleeper = port.settings.sleeper
    return await sleeper.sleep(seconds, since=since, after=after, queued=queued)


async def send(port: Port[Req, Resp], call: Call) -> Resp:
    """Send the next attempt, count it, and read what has to be there before the hand-over.

    Raises:
        The library's errors, and its DeadlineExceeded: nothing was sent.
    """
    if call.history:
        await port.renew(call)
    request = next_request(port, call)
    now = port.clock.monotonic()  # after the hook, which may have taken long
    if now >= call.deadline_at:
        from .refusals import expired

        raise expired(port, call)
    call.sending(now)
    transmit = port.transmit
    for layer in port.settings.layers:
        transmit = partial(layer.send, port, transmit)
    try:
        response = await transmit(call, request)  # which is ``call.live`` by now
    except ConsumedBody as error:
        raise port.consumed(call, error) from None
    if call.rest is None:
        for judge in port.settings.judges:
            response = call.live = await judge(port, call, response)
    if call.prefetch_result is None:
        response = call.live = await port.received(call, response)
    return response


def next_request(port: Port[Req, Resp], call: Call) -> Req:
    """Return the request to send now: the client's own, unless something in it is changed."""
    if (
        call.outgoing is None
        and call.origin == call.sent_to
        and port.settings.sends_alike
        and call.context is None
    ):
        sent: Req = call.request.original
        return sent
    from .prepare import next_request

    return next_request(port, call)


async def run_hook(port: Port[Req, Resp], call: Call) -> None:
    """Let add-ons change the request that ``send`` is to send."""
    await port.renew(call)
    request = next_request(port, call)
    for rewrite in port.settings.rewrites:
        await rewrite(port, call, request)


async def inspected(
    port: Port[Req, Resp], call: Call, outcome: Resp | Exception
) -> Resp | Exception:
    """Let add-ons read of a response what decides on it; return it, or what takes its place."""
    for inspect in port.settings.inspectors_of(call.policy):
        if not isinstance(outcome, Exception):
            outcome = await inspect(port, call, outcome)
    return outcome


async def classify(port: Port[Req, Resp], call: Call, outcome: Resp | Exception) -> Failure | None:
    """Say why an attempt has failed; None: it has not."""
    if not isinstance(outcome, Exception):
        return classify_response(port, call, outcome)
    failure = classify_error(port, call, outcome)
    is_broken = failure.kind in BROKEN_KINDS and failure.phase is Phase.SENT
    if is_broken and call.barred is None and await port.close_idle(call):
        failure = failure._replace(stale_connection=failure.kind is FailureKind.RESET)
    return failure


# A failed response.


async def read_little(
    port: Port[Req, Resp], call: Call, response: Resp
) -> tuple[Resp, list[bytes], Ending | Exception]:
    """Read what is left of a failed response, if that is little and quick.

    Returns:
        The response, in which what was read is put back in front of a rest that is longer; what was
        read; and how that ended. LATE: the body is longer, or takes longer.
    """
    if not port.is_quick(call, response):
        return response, [], LATE
    seconds = min(DRAIN_SECONDS, call.deadline_at - port.clock.monotonic())
    live = port.live(sent_request(call), response, SYSTEM_CLOCK.true_monotonic() + seconds)
    return await read_part(port, response, live, lambda _, received: received <= DRAIN_BYTES)


async def read_briefly(
    live: Live, wants_more: Callable[[bytes, int], bool]
) -> tuple[list[bytes], Ending | Exception]:
    """Read a body until ``live.ends_at``; return its pieces, and how that ended.

    ``wants_more`` is asked after each piece, with it and the bytes so far. After LATE the body is
    intact, and is read on by ``rest_of``; else the connection is free.
    """
    pieces: list[bytes] = []
    received = 0
    try:
        while await live.has_more():
            piece = await live.read()
            if not piece:
                await live.close()
                return pieces, WHOLE
            pieces.append(piece)
            received += len(piece)
            if not wants_more(piece, received):
                break
        live.ends_at = inf
        return pieces, LATE
    except Exception as error:
        with suppress(Exception):
            await live.close()
        from .frames import let_signals_through

        let_signals_through(error)
        return pieces, error


async def read_part(
    port: Port[Req, Resp], response: Resp, live: Live, wants_more: Callable[[bytes, int], bool]
) -> tuple[Resp, list[bytes], Ending | Exception]:
    """Read what is still to come of a response, as ``read_briefly``.

    Returns:
        The response, in which what was read is put back in front of a rest, or of what broke it;
        what was read; and how that ended.
    """
    pieces, ending = await read_briefly(live, wants_more)
    if ending is not WHOLE:
        response = port.put_back(response, live, pieces, ending)
    return response, pieces, ending


async def discard(port: Port[Req, Resp], call: Call, response: Resp) -> list[bytes] | None:
    """Read what is left of a failed response if that is little and quick, then close it.

    Returns:
        The raw body, if all of it came.
    """
    response, pieces, ending = await read_little(port, call, response)
    if ending is WHOLE:
        return pieces
    await close(port, response)
    return None


async def close(port: Port[Req, Resp], response: Resp) -> None:
    """Close a failed response: how its body ends does not matter."""
    try:
        await port.close_unused(response)
    except Exception as error:
        from .frames import let_signals_through

        let_signals_through(error)


async def keep(port: Port[Req, Resp], call: Call, outcome: Resp | Exception) -> bool:
    """Let go of what a failed attempt holds, or read it for a call that is held.

    Returns:
        False: it is too long to keep, so it is handed over.
    """
    if isinstance(outcome, Exception):
        return True
    response: Resp = outcome
    if call.hold is None:
        await discard(port, call, response)
        return True
    call.notes[KEPT] = response
    if port.has_ended(response):
        return True
    found: list[bytes] | None
    if call.status != port.status_of(response):  # the first event of a stream has judged it
        found = port.pieces_of(response)  # nothing else of it is kept
        await close(port, response)
    else:
        response, found, ending = await read_little(port, call, response)
        if ending is not WHOLE:
            if ending is LATE and (port.is_long(response) or sum(map(len, found)) > DRAIN_BYTES):
                call.notes[KEPT] = response
                return False
            await close(port, response)
            found = None
    call.notes[KEPT] = port.with_body(response, found)
    return True


# The hand-over.


def last_error(port: CommonPort, call: Call, error: Exception) -> Exception:
    """Attach the story to the error that ends the call; DeadlineExceeded, if that ended it."""
    error = port.final_error(call, error)
    if call.barred is Reason.DEADLINE:
        from .refusals import deadline_error

        exceeded = deadline_error(port, call, "the deadline ended the attempt")
        exceeded.__cause__ = error.__cause__ if isinstance(error, DeadlineCut) else error
        return exceeded
    return error if call.policy is OFF else with_story(port, call, error)


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


def conclude(port: Port[Req, Resp], call: Call, response: Resp) -> None:
    """Attach the story to the response that ends a call, and emit a success after retries.

    Raises:
        The error that broke the body while it was prefetched, and ends the call.
    """
    if call.policy is OFF:
        return
    settings, stop, was_retried = port.settings, call.stop, len(call.history) > 1
    below, now = story_below(port, call, port.story_of(response)), settings.clock.monotonic()
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


async def hand_over(port: Port[Req, Resp], call: Call, response: Resp) -> Resp:
    """Return what the caller gets.

    Raises:
        The library's error for its status, with ``on_exhausted="raise"``; what broke its body.
    """
    if call.rest is None:
        conclude(port, call, response)
        if call.stop is not None and call.policy is not OFF:
            for give in port.settings.last_lines:
                port.add_headers(response, give(call))
        port.note_hop(call, response)
        if wants_status_error(call):
            body = await discard(port, call, response)
            # No name for the error: its traceback would hold the frame that holds it, and the cycle
            # would keep the response until the garbage collector runs.
            raise with_story(port, call, port.status_error(call, response, body))
        if call.policy is not OFF and call.stop is None and call.prefetch_result is not WHOLE:
            response = watched(port, sent_request(call), response, lambda: call)
        response = port.reopen(call.outgoing, response, lambda: call)
    if IN_FLIGHT in call.notes:
        response = call.notes[IN_FLIGHT].hand_over(port, call, response)
    return response


def watched(port: Port[Req, Resp], request: Req, response: Resp, begin: Callable[[], Call]) -> Resp:
    """Let add-ons go around a body that is still to come.

    ``request`` is the one that was sent; ``begin`` returns the call, which the fast path makes only
    for a body that breaks.
    """
    if port.is_open(response):
        for option in port.settings.finishers:
            response = addon(option).finish(port, request, response, begin)
    return response


# How much of a body is read before its response is handed over: a small one that is prefetched, a
# failed one that is drained, that of a held call. One that may have no end is not read, because a
# read that has begun cannot be undone, and the caller may want each part when it arrives.


def is_endless(content_type: object, status: int) -> bool:
    """Is a response a stream of events, or of another protocol?"""
    return status == 101 or str(content_type or "").lower().lstrip().startswith(ENDLESS)


def is_readable(found: bytes, *, is_chunked: bool) -> bool:
    """Can a parser of HTTP/1.1 continue with these bytes, without more from the network?

    Args:
        found: Bytes that were received and not parsed yet.
        is_chunked: They begin between two chunks. Inside a chunk parsers take any bytes at once.
    """
    if not is_chunked:
        return bool(found)
    size, end, rest = found.removeprefix(b"\r\n").partition(b"\n")
    if not end:
        return False
    if size.partition(b";")[0].strip().strip(b"0"):
        return bool(rest)
    return rest.startswith((b"\r\n", b"\n")) or b"\n\r\n" in rest or b"\n\n" in rest


def note_prefetch(call: Call, outcome: PrefetchResult) -> None:
    """Note the result of prefetching the body."""
    if isinstance(outcome, Exception):
        call.body_error, outcome = outcome, LATE
    call.prefetch_result = outcome
