"""Outgoing requests: what is sent in place of a request, and how often its body was read.

A fast path that succeeds sends the caller's own request. Whatever forbear adds to a request, or
changes in it, goes into a copy: headers and the readings of a body for every library, timeouts and
guarded bodies for httpx and aiohttp.

Whether a body can be replayed is decided before its first byte is sent. Each reading of one that
only seems replayable is compared with what was sent of it before, so that a server never receives a
different body as the same request.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ..core.request import GENERATED_FOR, names_a_key
from . import current
from .calls import begin_call, note_first_attempt, policy_and_deadline
from .errors import DeadlineCut
from .settings import OFF

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from ..core.request import Request
    from ..idempotency import IdempotencyKeys
    from .context import CallContext
    from .port import Copying, Sent, Source, Url
    from .settings import Settings

    Lines = list[tuple[str, str]]

ATTEMPT = "Retry-Attempt"
# Headers by which SDKs let the server stop their retries: those made by Stainless, and stripe.
STOPPING = ("x-should-retry", "stripe-should-retry")


def key_lines(settings: Settings, request: Request) -> Lines:
    """Return the header lines of a generated key, if the request gets one. (K7)"""
    keys = settings.idempotency
    if (
        keys is None
        or not keys.generate
        or request.method not in GENERATED_FOR
        or not keys.covers(request.origin)
        or names_a_key(request.header_lines(), keys.recognised)
    ):
        return []
    return new_key(keys, settings.clock.time())


def new_key(keys: IdempotencyKeys, utc_now: float) -> Lines:
    """The header lines of a fresh key, the same for all attempts of a call."""
    from ..idempotency import generate, serialize  # loaded with the first key

    key = serialize(generate(profile=keys.profile), style=keys.style, profile=keys.profile)
    if keys.header.lower() != "repeatability-request-id":
        return [(keys.header, key)]
    # OASIS Repeatable Requests 1.0 section 4: both are mandatory, and retries keep the date of the
    # first attempt.
    from email.utils import formatdate

    return [(keys.header, key), ("Repeatability-First-Sent", formatdate(utc_now, usegmt=True))]


def announced(
    settings: Settings,
    context: CallContext | None,
    attempt: int,
    deadline_at: float,
    written: Callable[[str], bool],
) -> Lines:
    """Return headers of the next attempt alone: its number, and the time that is left for it.

    ``written`` says whether the caller wrote a header of a name, which then stays.
    """
    incoming = None if context is None else context.incoming
    lines: Lines = []
    if settings.announce_attempts and not written(ATTEMPT):
        if attempt > 1:
            lines.append((ATTEMPT, str(attempt)))
        elif incoming is not None and incoming.retries:  # the same work was requested before
            lines.append((ATTEMPT, str(incoming.retries + 1)))
    announces = incoming is not None and incoming.announces_deadline
    if announces and deadline_at != inf:
        from .incoming import EXPECTED

        if written(EXPECTED):
            return lines
        left = deadline_at - settings.clock.monotonic()
        lines.append((EXPECTED, str(max(1, int(left * 1000)))))  # 0 would mean no limit
    return lines


def next_lines(settings: Settings, call: Call, written: Callable[[str], bool]) -> Lines:
    """Return headers that only the next attempt carries, such as the range of a download."""
    lines: Lines = []
    if call.policy is not OFF:
        attempt = call.attempts + 1 if call.history else 1
        lines = announced(settings, call.context, attempt, call.deadline_at, written)
    if call.resumption is not None:
        lines.extend(call.resumption.download.fields(call.resumption.received))
    return lines


def stop_outer(settings: Settings, call: Call, headers: MutableMapping[str, str]) -> None:
    """Mark the headers for an outer SDK, so that it does not retry a call that gave up."""
    if settings.stop_outer_retries and call.stop is not None and call.policy is not OFF:
        for name in STOPPING:
            headers[name] = "false"


EARLY = 0.05  # seconds; a timeout that fires this long before the deadline was the caller's own


class Outgoing:
    """The request that is sent, and the rules that hold for it.

    Attributes:
        request: Sent next: a copy of the client's own, or that itself if nothing in it is changed.
        pristine: The same before headers of one attempt alone and the user's hook.
        policy: In force for the call.
        deadline_at: The call ends at this instant; infinite if there is no deadline.
        timeouts: The attempt's limits, if a deadline or ``attempt_timeout`` is set.
        reads_until: The end of a ``forbear.deadline``, which limits reading the response body too;
            infinite if there is none.
        guard: Around a body that is not plain bytes.
        key: Header lines of a generated idempotency key.
        hop: What an earlier hop of a redirected call has left.
        cookie: The ``Cookie`` of the next attempt, "" for none: a failed response has changed the
            client's jar. None: as it is.
    """

    # Without defaults of the class, each of which would be read in four times the time.
    __slots__ = (
        "cookie", "deadline_at", "guard", "hop", "key", "policy", "pristine", "reads_until",
        "request", "timeouts",
    )  # fmt: skip

    def __init__(
        self,
        request: Any,
        policy: RetryPolicy,
        deadline_at: float,
        guard: Any = None,
        key: Lines | tuple[()] = (),
        hop: Hop | None = None,
    ) -> None:
        self.request = self.pristine = request
        self.policy = policy
        self.deadline_at = deadline_at
        self.guard = guard
        self.key = key
        self.hop = hop
        self.reads_until = inf
        self.timeouts: Any = None
        self.cookie: str | None = None


class Hop:
    """The part of a redirected call that its hops hand on."""

    __slots__ = ("deadline_at", "key", "key_origin", "retries_used")

    def __init__(self, call: Call) -> None:
        outgoing: Outgoing | None = call.outgoing
        self.retries_used = max(0, call.attempts - 1)
        self.deadline_at = call.deadline_at
        self.key = () if outgoing is None else outgoing.key
        self.key_origin = call.request.origin


# A call begins.


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
    key: Lines | tuple[()] = ()
    if policy is not OFF:
        if body is not None:
            guard = port.guard_of(request, body, hop)
        if settings.makes_keys:
            key = key_of(port, source, hop)
        if settings.contact is not None:
            request = port.with_contact(request)
    is_bounded = deadline_at != inf or policy.attempt_timeout is not None
    if is_bounded or key or guard is not None:
        request = port.copied(request, key or None)
    outgoing = Outgoing(request, policy, deadline_at, guard, key, hop)
    if guard is not None:
        setattr(request, port.body_name, guard)
        if is_bounded:
            limit(settings, guard, deadline_at)
    if is_bounded:
        port.bound(outgoing)
    if context is not None:
        if outgoing.timeouts is not None:
            outgoing.reads_until = context.deadline_on(settings.clock, started_at)
        if context.incoming is not None and policy is not OFF:
            written = request.headers.__contains__
            lines = announced(settings, context, 1, deadline_at, written)
            if lines:
                outgoing.request = port.copied(request, lines)
    return outgoing


def limit(settings: Settings, guard: Readings, deadline_at: float) -> None:
    """Let the guard send no part of its body after the deadline."""
    guard.clock, guard.deadline_at = settings.clock, deadline_at


def key_of(port: Copying[Source, Sent, Url], source: Source, hop: Hop | None) -> Lines | tuple[()]:
    """Return the lines of the request's key; a redirect to its own origin keeps its key."""
    view = port.view_of(source)
    key = key_lines(port.settings, view)
    if key and hop is not None and hop.key and hop.key_origin == view.origin:
        return hop.key
    return key


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


def outgoing_of(port: Copying[Source, Sent, Url], call: Call) -> Outgoing:
    """Make the copy to send for a call that has sent the client's own request so far."""
    outgoing: Outgoing | None = call.outgoing
    if outgoing is None:
        copy = port.copied(call.request.original)
        outgoing = call.outgoing = Outgoing(copy, call.policy, call.deadline_at)
    return outgoing


# Each attempt.


def next_request(port: Copying[Source, Sent, Url], call: Call) -> Sent:
    """Return the request to send now: to the call's origin, with this attempt's headers."""
    settings = port.settings
    outgoing: Outgoing | None = call.outgoing
    original: Sent = call.request.original
    prepared_for = call.extras.prepared_for
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
        if settings.sends_alike and call.context is None and call.resumption is None:
            return original if outgoing is None else outgoing.request
    else:
        outgoing = outgoing_of(port, call)
        outgoing.request = outgoing.pristine = aimed(port, outgoing.pristine, call.origin)
        call.request.headers = outgoing.request.headers
    lines = next_lines(settings, call, original.headers.__contains__)
    if lines or call.awaits_hook:  # on a fresh copy
        outgoing = outgoing_of(port, call)
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


def sent_request(call: Call) -> Any:
    """The request that was sent last."""
    return call.request.original if call.outgoing is None else call.outgoing.request


def resume(port: Copying[Source, Sent, Url], call: Call) -> None:
    """Prepare to request the rest of a body, under the limits that hold after a hand-over."""
    outgoing = outgoing_of(port, call)
    outgoing.deadline_at, outgoing.timeouts = call.deadline_at, None
    if call.deadline_at != inf or call.policy.attempt_timeout is not None:
        port.bound(outgoing)
        if outgoing.guard is not None:
            limit(port.settings, outgoing.guard, call.deadline_at)


# How often a body was read, and whether it can be read again.


class ConsumedBody(Exception):
    """A body is needed a second time and cannot be replayed; never leaves a transport."""


class Readings:
    """The readings of one call's body.

    Attributes:
        error: What the caller's own iterator raised, so that it is not taken for a network error.
        clock: The clock of ``deadline_at``.
        deadline_at: After this nothing more of the body is sent; infinite if there is no deadline.

    Args:
        replayable: It can be replayed, as far as its type shows.
        doubted: It comes from the user's code, so readings are compared by checksum too.
        buffer_limit: Bytes of a one-shot body to keep, 0 for none.
    """

    clock: Any = None
    deadline_at = inf

    def __init__(self, *, replayable: bool, doubted: bool, buffer_limit: int) -> None:
        self._readings = 0
        self.error: BaseException | None = None
        self._replayable = replayable
        # The first reading of a one-shot body, as far as it went; None: not kept, or it did not
        # fit.
        self.buffer: list[bytes] | None = [] if buffer_limit and not replayable else None
        self._room = buffer_limit
        self.rest: Any = None  # the iterator that continues that reading
        # A body may seem replayable and still drain one source. So each reading is compared with
        # the longest one before, in bytes and, where it comes from the user's code, by checksum.
        self._doubted = doubted
        self._length = self._sum = 0
        self._known_length = self._known_sum = 0
        self._whole_length: int | None = None

    @property
    def replayable(self) -> bool:
        """The whole body can be produced any number of times, as far as is known."""
        return self._replayable

    @property
    def ready(self) -> bool:
        """The body can be produced, from its first byte."""
        return self._replayable or self._readings == 0 or self.buffer is not None

    def begin(self) -> list[bytes]:
        """Count the reading; return what an earlier one has buffered."""
        if not self.ready:
            raise ConsumedBody("this body was read before and cannot be replayed")
        self._readings += 1
        if self._length > self._known_length:
            self._known_length, self._known_sum = self._length, self._sum
        self._length = self._sum = 0
        return [] if self.buffer is None else self.buffer.copy()

    def note(self, chunk: bytes) -> None:
        """Check a chunk before it is sent.

        Raises:
            ConsumedBody: The body differs from what was sent of it before.
            DeadlineCut: The deadline is over, because the body was produced too slowly.
        """
        self._check_deadline()
        if self.buffer is not None:
            self._room -= len(chunk)
            if self._room < 0:
                self.buffer = None
            else:
                self.buffer.append(bytes(chunk))
        elif self._replayable:
            end = self._length + len(chunk)
            if self._whole_length is not None:
                self._check(end <= self._whole_length)
            if self._doubted:
                # Compared before the byte that could complete the body for the server is sent: a
                # server that has a whole body may act on it, and then an error comes too late.
                if self._length < self._known_length <= end:
                    self._check(
                        crc32(chunk[: self._known_length - self._length], self._sum)
                        == self._known_sum
                    )
                self._sum = crc32(chunk, self._sum)
            self._length = end

    def finish(self) -> None:
        """Check a whole body, before its end is sent: where this raises, the server sees no end."""
        self._check_deadline()
        if self._replayable:
            self._check(
                self._length >= self._known_length and self._whole_length in (None, self._length)
            )
            self._whole_length = self._length

    def _check_deadline(self) -> None:
        if self.deadline_at != inf and self.clock.monotonic() >= self.deadline_at:
            raise DeadlineCut

    def _check(self, same: bool) -> None:
        if not same:
            self._replayable = False
            raise ConsumedBody("its body differs when it is replayed")

    def broke(self, error: BaseException) -> None:
        """The source itself failed, so what it has produced is not a body."""
        self.error = error
        self.buffer = None


def is_file(source: object) -> bool:
    """Is it anything with a position? A second pass would begin where the first one ended."""
    return source is not None and any(
        hasattr(source, name) for name in ("read", "aread", "readline")
    )


def is_seekable(file: object) -> bool:
    if not (hasattr(file, "seek") and hasattr(file, "tell")):
        return False
    seekable = getattr(file, "seekable", None)
    try:
        result: Any = seekable() if seekable is not None else True
    except Exception:  # a closed file raises its own error when it is read
        return False
    if hasattr(result, "close") and hasattr(result, "__await__"):
        result.close()  # a coroutine: an asynchronous file, which can only be asked when it is read
        return True
    return bool(result)


def is_reiterable(source: object) -> bool:
    """Does each pass begin anew? Not if it is an iterator, or always returns the same iterator.

    A subclass of httpx's stream classes is meant to be read once.
    """
    if hasattr(source, "__next__") or hasattr(source, "__anext__"):
        return False
    if any(cls.__name__ in ("SyncByteStream", "AsyncByteStream") for cls in type(source).__mro__):
        return False
    begin = getattr(source, "__iter__", None) or getattr(source, "__aiter__", None)
    if begin is None:
        return False
    try:
        first, second = begin(), begin()
    except Exception:
        return False
    return first is not second
