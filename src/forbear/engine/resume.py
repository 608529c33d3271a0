"""Resume: a body that breaks after it was handed over is requested from where it broke.

At the level of raw bytes, below the library's decoder. core/headers/ranges.py decides what may be
resumed and what fits; the loop runs as before, under budget, breaker, deadline, hints and events.
If the rest cannot be had, the caller gets the error that broke the body, with the call's story.

``Resumable`` is a source of bytes around the live one, for all libraries. What differs between them
is how the bytes of a response are read (its ``Source``) and what is known of the response that the
caller has (its ``Original``).

A stream of events (core/event_streams.py) that breaks, or ends, before its first byte is requested
anew as a whole: the caller has nothing of it yet, so this is a retry like any other. Its first read
is the caller's own, because a stream may be silent for as long as it likes. With ``resume=True`` of
``EventStreams`` what follows the last whole event is requested after a break, and after a clean end
too, as browsers do.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from ..core.call import MOST_NOTES, SLOT, STORY
from ..core.headers.ranges import Part, Repeat
from ..core.outcome import RETRYABLE_KINDS, GiveUp, Reason
from .calls import body_broke, with_story
from .errors import Interrupted
from .loop import run
from .reading import Nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from ..core.call import Call, Story
    from ..core.event_streams import EventStream, WholeEvents
    from ..core.headers.fields import Line
    from ..core.headers.ranges import Download
    from .port import Classifier, Response, ResumingPort
    from .reading import Source
    from .settings import Settings

PROGRESS = 65_536  # bytes of a body that give an attempt back


def note_progress(call: Call, new_bytes: int, received: int) -> None:
    """Give an attempt back for each 64 KiB of a body: only the rest will be requested.

    Never more than that, whatever share of the body it is: so requests ≤ ``max_attempts`` + bytes
    received / 64 KiB, on any server. One that sends little per connection, or fails between two
    parts, could else keep the call going for hours.

    Args:
        call: Whose body broke.
        new_bytes: Raw bytes received since the body was requested last.
        received: All raw bytes of the body so far.
    """
    earned = received // PROGRESS - (received - new_bytes) // PROGRESS
    call.attempts = max(1, call.attempts - earned)


def accept_part(settings: Settings, call: Call, status: int, lines: Iterable[Line]) -> Part:
    """Return how an accepted response fits the download, and emit it if it does."""
    resumption = call.resumption
    assert resumption is not None
    part = resumption.download.check_part(resumption.received, status, lines)
    if part is Part.OTHER:
        distrust(call)
    elif not resumption.is_resumed:
        # Its time limits held until the whole was requested anew; ``forbear.deadline`` still does.
        call.deadline_at = deadline_after_hand_over(settings, call)
        now = settings.clock.monotonic()
        settings.events.emit("succeeded_after_retry", call, now)
    else:
        note_resumed(call, resumption.download.first + resumption.received)
        emit(settings, call, "resumed")
    return part


def note_resumed(call: Call, at: int) -> None:
    """Note at which byte the rest of the body was requested."""
    story = call.notes.setdefault(STORY, {})
    story["resumed"] = (*story.get("resumed", ()), at)[-MOST_NOTES:]


async def hand_over_rest(
    port: ResumingPort[Response], call: Call, response: Response
) -> Response | None:
    """Return the response that brings the rest of a body; None: nothing was missing.

    Raises:
        Interrupted: It is not the rest.
    """
    part = port.rest_of(call, response)
    if part is Part.CONTINUES:
        if SLOT in call.notes:
            port.keep_slot(call, response)
        return response
    await port.discard(call, response)
    if part is Part.COMPLETE:
        return None
    raise Interrupted


def deadline_after_hand_over(settings: Settings, call: Call) -> float:
    context, clock = call.context, settings.clock
    return inf if context is None else context.deadline_on(clock, clock.monotonic())


def distrust(call: Call) -> None:
    """The rest belongs to another body, and the caller has the beginning of the first."""
    if call.stop is None:
        call.stop = GiveUp(Reason.RESPONSE_DELIVERED)


def fail(port: Classifier, call: Call, error: Exception) -> bool:
    """The rest cannot be had: attach the story to the error that broke the body.

    Returns:
        True: ``before_attempt`` has ended the call, and the caller gets its error.
    """
    assert call.resumption is not None
    index = call.resumption.broke_at
    was_asked = len(call.history) > index and call.history[index].delay is not None
    if was_asked and call.resumption.is_resumed:
        emit(port.settings, call, "failed")
    with_story(port, call, error)
    return call.stop is not None and call.stop.reason is Reason.HOOK_FAILED


def emit(settings: Settings, call: Call, result: str) -> None:
    assert call.resumption is not None
    download, received = call.resumption.download, call.resumption.received
    offset = download.first + received
    settings.events.emit("resume", call, offset, download.complete, result)


class Original(Protocol):
    """The response that the caller has, as far as resuming needs it. It must not hold its body.

    Attributes:
        shows_deadline: Is a DeadlineExceeded that ends a resumption raised as it is? Not where the
            library in between would make another error of it: there the first error is raised.
    """

    shows_deadline: bool

    def download(self, call: Call, received: int) -> Download | Repeat | EventStream | None:
        """Return what of its body can be requested, after so many raw bytes; None: nothing."""

    def begins_events(self) -> bool:
        """Is its body a stream of events?"""
        ...

    def stream_of(self, response: Any) -> Source:
        """Return the raw bytes of a response that continues the body."""
        ...

    def attach(self, story: Story) -> None:
        """Attach the story to the response."""


class Resumable:
    """A body, as far as it came, and how the rest is requested. Counts raw bytes.

    Args:
        port: Of the transport.
        stream: From which the body is read now.
        begin: Returns the call that got the response; the fast path makes one only for a body that
            breaks.
        original: The response that the caller has.
        keeps: What the caller gets is kept too, as long as it is little. Without a validator only
            these bytes show whether the response to a second request has the same body.
        events: Lets only whole events through, and resumes their stream.
    """

    _forbear_sends = True

    # Most bodies never break, so these defaults are on the class: they cost a response no memory.
    _call: Any = None  # from the first break on
    _error: Any = None  # what broke the body last
    _received = _requested_at = 0  # raw bytes; as many as when the rest was requested last
    _ends_at: int | None = None  # raw bytes in all, once a part was requested
    _kept: bytearray | None = None  # all bytes that the caller has, of a small body
    _events: WholeEvents | None = None
    _is_quiet = False  # the body ended, and was requested again; else that end stands
    _expected_prefix = b""  # of these the bytes with which the body received now must begin
    is_closed = False  # by the caller, who does not want the rest: no more is requested

    def __init__(
        self,
        port: Any,
        stream: Source,
        begin: Callable[[], Call] | None,
        original: Original,
        *,
        keeps: bool = False,
        events: WholeEvents | None = None,
    ) -> None:
        self._port, self.stream, self._begin_call = port, stream, begin
        self._original = original
        if events is not None:
            self._events = events
        if keeps:
            self._kept = bytearray()

    def _take(self, chunk: bytes) -> bytes:
        """Count a chunk; return what of it is handed out."""
        if self._events is not None:
            self._received += len(chunk)
            events = self._events.take(chunk)
            if not events:
                self._check_events()
            return events
        if self._expected_prefix:
            seen, self._expected_prefix = (
                self._expected_prefix[: len(chunk)],
                self._expected_prefix[len(chunk) :],
            )
            if not chunk.startswith(seen):
                self._distrust()
            chunk = chunk[len(seen) :]
        self._received += len(chunk)
        if self._ends_at is not None and self._received > self._ends_at:
            self._distrust()  # more than there is
        if self._kept is not None:
            self._kept += chunk
            if len(self._kept) > self._port.prefetch:  # of unknown length, and not small
                self._kept = None
        return chunk

    def _check_events(self) -> None:
        if self._events is not None and self._events.fault:
            error = self._port.stream_error(self._events.fault)
            if self._call is not None:
                distrust(self._call)
                fail(self._port, self._call, error)
            raise error

    def _distrust(self) -> NoReturn:
        """End the call: the received part does not belong to the same body."""
        distrust(self._call)
        fail(self._port, self._call, self._error)
        raise self._what_broke_it()

    def is_short(self) -> bool:
        """Does a body that has ended lack bytes that its parts have declared?

        A connection that is closed too early ends a body without an error where the library does
        not count. The caller would take what came for the whole.
        """
        is_short = self._ends_at is not None and self._received < self._ends_at
        return (is_short or bool(self._expected_prefix)) and not self.is_closed

    def _begin(self, error: Exception) -> bool:
        """Can the rest be asked for? Else the error stands as it is.

        Not for an error that no retry prevents, such as a bug below, nor after the caller has
        closed the body: neither is a failure of the call.
        """
        port, kind = self._port, self._port.kind_of(error)
        if self.is_closed or kind not in RETRYABLE_KINDS:
            return False
        if self._call is None:
            assert self._begin_call is not None
            self._call = self._begin_call()
        call = self._call
        request = call.request
        is_once = request.method not in call.policy.methods and not request.keyed
        if self._is_quiet and (request.method == "HEAD" or (self._received and is_once)):
            return False  # its end says nothing
        download = self._requestable(call)
        if download is None or (type(download) is Repeat and self._kept is None):
            if self._is_quiet:
                body_broke(port, call, error, kind)
                self._original.attach(call.story(port.clock.monotonic()))
            return False
        call.begin_resuming(download)
        self._error = error
        return True

    def _requestable(self, call: Call) -> Download | Repeat | EventStream | None:
        """What can be requested now, if anything."""
        is_replayable = call.guard is None or call.guard.ready
        if call.stop is not None or not is_replayable:
            return None
        if self._events is not None and self._received:
            stream, is_intact = self._events.stream, not self._events.fault
            return stream if is_intact and stream.is_resumed and not stream.is_over else None
        known = call.resumption
        found = self._original.download(call, self._received) if known is None else known.download
        if found is not None and found.is_stream:
            return None if self._received else found
        return found if self._port.settings.resume else None

    def _end(self) -> Exception | None:
        """Return the error of a body that has ended too early; None: its end is its end."""
        self._is_quiet = False
        self._check_events()
        if self.is_short():
            return self._error  # type: ignore[no-any-return]
        events = self._events
        is_resumed = events is not None and events.stream.is_resumed and not events.stream.is_over
        is_empty = not self._received and self._original.begins_events()
        if self.is_closed or not (is_resumed or is_empty):
            return None
        return self._quiet_error()

    def _quiet_error(self) -> Exception:
        """Make the error of a stream that was ended; the caller only sees that end."""
        self._is_quiet = True
        return self._port.stream_error("the stream of events has ended")  # type: ignore[no-any-return]

    def _left(self) -> bytes:
        """Return what came after the last whole event of a stream that is not resumed."""
        events = self._events
        return b"" if events is None or events.stream.is_resumed else events.left()

    def _is_whole(self) -> bool:
        """Drop the broken stream; is nothing missing but the end of the body?"""
        self.stream = Nothing()
        self._ends_at, self._expected_prefix = None, b""
        return bool(self._call.resumption.download.missing(self._received) == 0)

    def _ask(self, error: Exception) -> Call:
        """Prepare to request the rest; return the call, for which the loop runs again."""
        call: Call = self._call
        resumption = call.resumption
        assert resumption is not None
        new_bytes, download = self._note_request(), resumption.download
        if type(download) is Repeat:
            self._expected_prefix, new_bytes = bytes(self._kept or b""), 0
        if download.is_stream is True:  # its events are the progress, however short they are
            new_bytes, download.has_new_id = int(download.has_new_id), False
            if new_bytes:
                call.attempts = 1
        else:
            note_progress(call, new_bytes, self._received)
        resumption.received, resumption.progressed = self._received, new_bytes > 0
        resumption.has_ended = self._is_quiet
        # Its time limits held until the response was handed over; ``forbear.deadline`` still does.
        if resumption.is_resumed:
            call.deadline_at = deadline_after_hand_over(self._port.settings, call)
        call.body_error = call.live = error
        self._port.resume(call)
        return call

    def _note_request(self) -> int:
        """Count the raw bytes that came since the rest was requested last; it is now."""
        new_bytes, self._requested_at = self._received - self._requested_at, self._received
        return new_bytes

    def _expect(self, download: Download | Repeat | EventStream) -> None:
        """Let the body end where its parts have declared by now."""
        missing = download.missing(self._received)
        self._ends_at = None if missing is None else self._received + missing

    def _go_on_with(self, response: object) -> None:
        """Continue with the stream of the rest; None: no rest is to come."""
        if self._events is not None:
            self._events.begin_anew()
        self._expect(self._call.resumption.download)
        if response is not None:
            self.stream = self._original.stream_of(response)

    def _is_final(self, raised: Exception, error: Exception) -> bool:
        """Does the caller get what ended the resumption, and not the error that broke the body?

        That error says more, unless the deadline came or a hook of the user's has raised.
        """
        if self._original.shows_deadline and isinstance(raised, self._port.deadline_exceeded):
            return True
        return fail(self._port, self._call, error)

    def _what_broke_it(self) -> Exception:
        """Return the error, and forget it: its traceback will hold this object, which must not hold
        it too. The cycle would keep the connection until the garbage collector runs.
        """
        error: Exception = self._error
        self._error = None
        return error

    async def read(self) -> bytes:
        """Return the next bytes for the caller, none at the end."""
        while True:
            try:
                chunk = await self.stream.read()
            except Exception as error:
                if not await self._resume(error):
                    self._error = None  # as in ``_what_broke_it``
                    raise
                continue
            if chunk:
                chunk = self._take(chunk)
                if chunk:
                    return chunk
                continue
            early = self._end()
            if early is None or not await self._resume(early):
                chunk = self._left()
                if chunk or early is None or self._is_quiet:
                    return chunk
                raise self._what_broke_it()

    async def _resume(self, error: Exception) -> bool:
        """Request the rest and continue with it; False if it cannot be had."""
        if not self._begin(error):
            return False
        with suppress(Exception):
            await self.stream.close()
        if not self._is_whole():
            call = self._ask(error)
            handed: list[Any] = []
            try:
                self._go_on_with(await run(call, self._port, handed))
            except Exception as raised:
                if self._is_final(raised, error):
                    raise
                return False
            except BaseException:  # interrupted, with the rest in hand
                for response in handed:
                    if response is not None:
                        await self._original.stream_of(response).close()
                raise
            finally:
                self._original.attach(call.story(self._port.clock.monotonic()))
            if self.is_closed:  # meanwhile, from elsewhere
                await self.stream.close()
                return False
        return True

    async def close(self) -> None:
        """Want no more of it."""
        if not self.is_closed:  # httpx2 closes its iterator, which this is too, and then the stream
            self.is_closed = True
            await self.stream.close()
