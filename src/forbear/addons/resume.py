"""Resume: a body that breaks after it was handed over is requested from where it broke.

At the level of raw bytes, below the library's decoder, by a call of its own, whose first attempt is
the one that broke: budget, breaker, deadline, hints and events treat it like any other.
core/headers/ranges.py decides what may be resumed and what fits. If the rest cannot be had, the
caller gets the error that broke the body, with the call's story.

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
from copy import copy
from logging import INFO
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..core.call import BODY_HINT, SENT_BEFORE, STORY, Rest
from ..core.headers.fields import begins_events
from ..core.headers.ranges import Part, Repeat
from ..core.outcome import RETRYABLE_KINDS, GiveUp, Hint, Reason
from ..engine.calls import sent_request, with_story
from ..engine.driver import discard
from ..engine.errors import Instead
from ..engine.loop import run
from ..engine.prepare import request_rest
from ..engine.reading import Nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from ..core.call import Call, Story
    from ..core.event_streams import EventStream, WholeEvents
    from ..core.headers.fields import Line
    from ..core.headers.ranges import Download
    from ..engine.port import Port, Response
    from ..engine.reading import Source
    from ..engine.settings import Settings
    from ..telemetry.rows import Row

    What = Download | Repeat | EventStream

EARNED = 65_536  # bytes of a body that give an attempt back
ANEW = "anew"  # key of a call's notes: the whole was requested again, so bytes are no progress
MOST_NOTES = 1_000  # attempts that are kept of a feed, which may be resumed for months


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
    earned = received // EARNED - (received - new_bytes) // EARNED
    call.attempts = max(1, call.attempts - earned)


def note_resumed(call: Call, at: int) -> None:
    """Note at which byte the rest of the body was requested."""
    story = call.notes.setdefault(STORY, {})
    story["resumed"] = (*story.get("resumed", ()), at)[-MOST_NOTES:]


def deadline_after_hand_over(settings: Settings, call: Call) -> float:
    context, clock = call.context, settings.clock
    return inf if context is None else context.deadline_on(clock, clock.monotonic())


def call_for_rest(
    port: Port[Response],
    old: Call,
    what: What,
    received: int,
    error: Exception,
    *,
    has_progress: bool,
    has_ended: bool,
) -> Call:
    """Begin a call for what is missing of a body, of which the attempt that broke is the first.

    It goes on as the call did that had got the body: with the attempts that this had left, its
    schedule and its key. So the loop, the limits and the events see an ordinary call that is
    retried.

    Args:
        port: Of the transport.
        old: The call that got the body.
        what: Of it can be requested.
        received: Raw bytes of the body so far.
        error: It broke the body.
        has_progress: As of ``Rest``.
        has_ended: As of ``Rest``.
    """

    def fits(status: int, lines: Iterable[Line]) -> bool:
        return what.check_part(received, status, lines) is not Part.OTHER

    call = copy(old)
    call.notes = notes = old.notes.copy()
    # Its last attempt was accepted, unless the fast path left no note of it: now it has failed.
    call.history = history = old.history[:-1][-MOST_NOTES:]
    dropped = len(old.history) - 1 - len(history)
    if dropped > 0:
        notes[SENT_BEFORE] = notes.get(SENT_BEFORE, 0) + dropped
    call.stop = None
    kind = "resume" if what.is_resumed else "retry"
    whole = old.outgoing if old.rest is None else old.rest.whole
    notes[Rest] = Rest(kind, len(history), what.is_resumed, has_progress, has_ended, fits, whole)
    if what.is_resumed and call.request.streams:
        # Its time limits held until the hand-over; ``forbear.deadline`` still does.
        call.deadline_at = deadline_after_hand_over(port.settings, call)
    notes.pop(BODY_HINT, None)
    if what.retry is not None and call.policy.hints == "obey":
        notes[BODY_HINT] = Hint(what.retry, None, "retry")
    call.body_error = call.live = error
    request_rest(port, call, what.fields(received))
    return call


def begin_anew(call: Call) -> None:
    """Let a call request the whole body: its client, which reads it, can forget what came."""
    call.outgoing = call.notes.pop(Rest).whole
    call.request.headers = sent_request(call).headers
    call.notes[ANEW] = True


def finish(
    port: Port[Response], request: object, response: Response, begin: Callable[[], Call]
) -> Response:
    """Let a body that the caller reads go on where it breaks, if that is possible.

    ``request`` is the one that was sent; ``begin`` is as of ``Resumable``.
    """
    is_download = port.settings.options["resume"] and port.is_resumable(request, response)
    if not is_download and not begins_events(*port.head_of(response)):
        return response
    original, events = Original(port, response), None
    if port.settings.options.get("event_streams") is not None:
        from .event_streams import whole_events  # the option has loaded it

        events = whole_events(port.settings, *original.head)
    made = port.surround(
        request, response, lambda source: Resumable(port, source, begin, original, events)
    )
    original.response_of = ref(made)
    return made


class Original:
    """The response that the caller has, as far as resuming needs it: it must not hold its body.

    Attributes:
        head: Its status and header lines.
        begins_events: Its body is a stream of events.
        keeps: What the caller gets is kept too, as long as it is little: without a validator only
            these bytes show whether the response to a second request has the same body.
        response_of: Returns it, if the caller still has it.
    """

    response_of: Callable[[], Any] = staticmethod(lambda: None)

    def __init__(self, port: Port[Response], response: Response) -> None:
        self._port = port
        self.head = port.head_of(response)
        self.begins_events = begins_events(*self.head)
        self.keeps = port.keeps(response)

    def requestable(self, call: Call, received: int) -> What | None:
        """Return what of the body can be requested, after so many raw bytes; None: nothing."""
        if not received and self.begins_events and call.request.method != "HEAD":
            from ..core.event_streams import event_stream  # loaded with the first that breaks

            return event_stream(*self.head)
        return self._port.download_of(call, *self.head)

    def attach(self, story: Story) -> None:
        response = self.response_of()
        if response is not None:
            self._port.attach(response, story)


class Resumable:
    """A body, as far as it came, and how the rest is requested. Counts raw bytes.

    Args:
        port: Of the transport.
        stream: From which the body is read now.
        begin: Returns the call that got the response; the fast path makes one only for a body that
            breaks.
        original: The response that the caller has.
        events: Lets only whole events through, and resumes their stream.
    """

    _forbear_sends = resumes = True

    # Most bodies never break, so these defaults are on the class: they cost a response no memory.
    _call: Any = None  # the last one that got a response, from the first break on
    _what: What | None = None  # can be requested of the body, from then on
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
        events: WholeEvents | None = None,
    ) -> None:
        self._port, self.stream, self._begin_call = port, stream, begin
        self._original = original
        if events is not None:
            self._events = events
        if original.keeps:
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
            if len(self._kept) > self._port.settings.prefetch:  # of unknown length, and not small
                self._kept = None
        return chunk

    def _check_events(self) -> None:
        if self._events is not None and self._events.fault:
            error = self._port.stream_error(self._events.fault)
            if self._call is not None:
                self._fail(error, distrusts=True)
            raise error

    def _distrust(self) -> NoReturn:
        """End the call: the received part does not belong to the same body."""
        self._fail(self._error, distrusts=True)
        raise self._what_broke_it()

    def _fail(self, error: Any, *, distrusts: bool = False) -> None:
        """The rest cannot be had: attach the story to the error that broke the body.

        ``distrusts``: it belongs to another body, and the caller has the beginning of the first.
        """
        call: Call = self._call
        if distrusts and call.stop is None:
            call.stop = GiveUp(Reason.RESPONSE_DELIVERED)
        kind, index = call.notes[Rest][:2]
        was_asked = len(call.history) > index and call.history[index].delay is not None
        if was_asked and kind == "resume":
            self._emit("failed")
        with_story(self._port, call, error)

    def _emit(self, result: str) -> None:
        what = self._what
        assert what is not None
        at = what.first + self._requested_at
        given = {"offset": at, "total": what.complete, "result": result}
        self._port.settings.events.emit("resume", self._call, **given)

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
        what = self._requestable(call)
        if what is None or (type(what) is Repeat and self._kept is None):
            if self._is_quiet:
                from ..engine.refusals import body_broke  # loaded with the first that stays so

                body_broke(port, call, error, kind)
                self._original.attach(call.story(port.clock.monotonic()))
            return False
        self._what, self._error = what, error
        return True

    def _requestable(self, call: Call) -> What | None:
        """Return what can be requested now, if anything."""
        is_replayable = call.guard is None or call.guard.ready
        if call.stop is not None or not is_replayable:
            return None
        if self._events is not None and self._received:
            stream, is_intact = self._events.stream, not self._events.fault
            return stream if is_intact and stream.is_resumed and not stream.is_over else None
        found = self._what or self._original.requestable(call, self._received)
        if found is not None and found.is_stream:
            return None if self._received else found
        return found if self._port.settings.options["resume"] else None

    def _end(self) -> Exception | None:
        """Return the error of a body that has ended too early; None: its end is its end."""
        self._is_quiet = False
        self._check_events()
        if self.is_short():
            return self._error  # type: ignore[no-any-return]
        events = self._events
        is_resumed = events is not None and events.stream.is_resumed and not events.stream.is_over
        is_empty = not self._received and self._original.begins_events
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
        assert self._what is not None
        self.stream = Nothing()
        self._ends_at, self._expected_prefix = None, b""
        return self._what.missing(self._received) == 0

    def _ask(self, error: Exception) -> Call:
        """Begin the call that requests what is missing."""
        what = self._what
        assert what is not None
        new_bytes = 0 if ANEW in self._call.notes else self._received - self._requested_at
        self._requested_at = self._received
        if type(what) is Repeat:
            self._expected_prefix, new_bytes = bytes(self._kept or b""), 0
        if what.is_stream is True:  # its events are the progress, however short they are
            new_bytes, what.has_new_id = int(what.has_new_id), False
        call: Call = call_for_rest(
            self._port, self._call, what, self._received, error,
            has_progress=new_bytes > 0, has_ended=self._is_quiet,
        )  # fmt: skip
        self._call = call
        if what.is_stream is not True:
            note_progress(call, new_bytes, self._received)
        elif new_bytes:
            call.attempts = 1
        return call

    def _expect(self, what: What) -> None:
        """Let the body end where its parts have declared by now."""
        missing = what.missing(self._received)
        self._ends_at = None if missing is None else self._received + missing

    async def _continues(self, response: Any) -> bool:
        """Continue with a response, if it has what is missing of the body."""
        what, call, port = self._what, self._call, self._port
        assert what is not None
        part = what.check_part(self._received, *self._port.head_of(response))
        if not call.request.streams and (part is Part.OTHER or call.rest is None):
            raise Instead(call, response)
        if part is Part.OTHER or call.stop is not None:
            await discard(port, call, response)
            self._fail(self._error, distrusts=True)
            return False
        if what.is_resumed:
            note_resumed(call, what.first + self._received)
            self._emit("resumed")
        else:
            # Its time limits held until the whole was requested anew; ``forbear.deadline`` does.
            call.deadline_at = deadline_after_hand_over(port.settings, call)
            now = port.clock.monotonic()
            port.settings.events.emit("succeeded_after_retry", call, now)
        if self._events is not None:
            self._events.begin_anew()
        self._expect(what)
        if part is Part.COMPLETE:
            await discard(port, call, response)
        else:
            self.stream = port.source_of_rest(port.free_to_caller(call, response))
        return True

    def _is_final(self, raised: Exception, error: Exception) -> bool:
        """Does the caller get what ended the call for the rest, and not what broke the body?

        That error says more, unless the deadline came or a hook of the user's has raised.
        """
        if isinstance(raised, self._port.deadline_exceeded):
            return True
        self._fail(error)
        stop = self._call.stop
        return stop is not None and stop.reason is Reason.HOOK_FAILED

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
                if not await self._continues(await run(call, self._port, handed)):
                    return False
            except Instead:
                raise
            except Exception as raised:
                if not call.request.streams and raised is not error:
                    raise Instead(call, raised) from None
                if self._is_final(raised, error):
                    raise
                return False
            except BaseException:  # interrupted, with the rest in hand
                for response in handed:
                    await self._port.close_unused(response)
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


class Resumption(NamedTuple):
    """A body broke after it was handed over, and the rest of it was requested."""

    client: str
    method: str
    origin: str
    offset: int  # position of the first byte that was missing
    total: int | None  # bytes of the whole body, None if the server has not said
    result: str  # "resumed", or "failed": nothing came, or something other than the rest
    request_id: int = 0
    name: str = "resume"


def rows() -> list[Row]:
    """The row of its event."""
    from ..telemetry.rows import Row

    def sentence(event: Resumption) -> str:
        of = "" if event.total is None else f" of {event.total}"
        return f"download {event.result} from byte {event.offset}{of}"

    return [Row(Resumption, INFO, sentence)]
