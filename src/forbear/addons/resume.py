"""Resume: a body that breaks after it was handed over is requested from where it broke.

At the level of raw bytes, below the library's decoder, by a call of its own, whose first attempt is
the one that broke: budget, breaker, deadline, hints and events treat it like any other.
core/headers/ranges.py decides what may be resumed and what fits. If the rest cannot be had, the
caller gets the error that broke the body, with the call's story.

``Resumable`` is a source of bytes around the live one, for all libraries.

A stream of events (core/event_streams.py) that breaks, or ends, before its first byte is requested
anew as a whole: the caller has nothing of it yet, so this is a retry like any other. Its first read
is the caller's own, because a stream may be silent for as long as it likes. With ``resume=True`` of
``EventStreams`` what follows the last whole event is requested after a break, and after a clean end
too, as browsers do.
"""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from functools import partial
from logging import INFO
from math import inf
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from weakref import ref

from ..core.call import BODY_HINT, STORY, Rest
from ..core.headers.fields import begins_events
from ..core.headers.ranges import Download, Repeat, download_of, is_document
from ..core.outcome import RETRYABLE_KINDS, GiveUp, Hint, Reason
from ..engine.bodies import Nothing
from ..engine.calls import sent_request, with_story
from ..engine.driver import discard, hand_over
from ..engine.errors import Instead
from ..engine.loop import run
from ..engine.prepare import request_rest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from ..core.call import Call
    from ..core.event_streams import EventStream, WholeEvents
    from ..core.headers.fields import Line
    from ..engine.port import Port, Sendable, Source

    Head = tuple[int, Sequence[Line]]
    What = Download | Repeat | EventStream

Req = TypeVar("Req", bound="Sendable")
Resp = TypeVar("Resp")

EARNED = 65_536  # bytes of a body that give an attempt back
ANEW = "anew"  # key of a call's notes: the whole was requested again, so bytes are no progress
MOST_NOTES = 1_000  # attempts that are kept of a feed, which may be resumed for months


def finish(port: Port[Req, Resp], request: Req, response: Resp, begin: Callable[[], Call]) -> Resp:
    """Let a body that the caller reads go on where it breaks, if that is possible.

    ``request`` is the one that was sent; ``begin`` returns the call that got the response, which
    the fast path makes only for a body that breaks.
    """
    head = port.head_of(response)
    is_download = port.settings.options["resume"] and port.is_resumable(request, response)
    if not is_download and not begins_events(*head):
        return response
    is_kept = is_download and port.repeats and is_document(*head)
    kept = bytearray() if is_kept else None
    body = Resumable(port, begin, head, kept, is_download=is_download)
    made = port.surround(request, response, body.around)
    body.response_of = ref(made)
    return made


def begin_anew(call: Call) -> None:
    """Let a call request the whole body: its client, which reads it, can forget what came."""
    call.outgoing = call.notes.pop(Rest).whole
    call.request.headers = sent_request(call).headers
    call.notes[ANEW] = True


class Resumable(Generic[Req, Resp]):
    """A body, as far as it came, and how the rest is requested. Counts raw bytes.

    It must not hold the caller's response, which holds it.

    Args:
        port: Of the transport.
        begin: As of ``finish``.
        head: Status and header lines of the response that the caller gets.
        kept: Takes all bytes that the caller has, of a small body; None: they are not kept.
        is_download: Whether it may be possible to request a part of it.
    """

    _forbear_sends = continues = True

    # Most bodies never break, so these defaults are on the class: they cost a response no memory.
    stream: Source  # from which the body is read now
    response_of: Callable[[], Resp | None]  # returns the response, if the caller still has it
    _call: Call | None = None  # the last one that requested a rest
    _what: What | None = None  # can be requested of the body, from the first break on
    _error: Exception | None = None  # what broke the body last
    _received = _requested_at = 0  # raw bytes; as many as when the rest was requested last
    _ends_at: int | None = None  # raw bytes in all, once a part was requested
    _events: WholeEvents | None = None  # lets only whole events through, and resumes their stream
    _is_quiet = False  # the body ended, and is to be requested again; else that end stands
    _expected_prefix = b""  # of these the bytes with which the body received now must begin
    _is_refused = False  # what comes belongs to another body, so nothing more of it is read
    is_closed = False  # by the caller, who does not want the rest: no more is requested

    def __init__(
        self, port: Port[Req, Resp], begin: Callable[[], Call], head: Head,
        kept: bytearray | None, *, is_download: bool,
    ) -> None:  # fmt: skip
        self._port, self._begin_call, self._head = port, begin, head
        self._kept, self._is_download = kept, is_download
        if port.settings.options.get("event_streams") is not None:
            from .event_streams import whole_events  # the option has loaded it

            self._events = whole_events(port.settings, *head)

    def around(self, stream: Source) -> Source:
        self.stream = stream
        return self

    async def read(self) -> bytes:
        """Return the next bytes for the caller, none at the end."""
        while not self._is_refused:
            try:
                chunk = await self.stream.read()
                if not chunk:
                    self._check_end()
                    # What came after the last whole event of a stream that is not resumed.
                    return b"" if self._events is None else self._events.left()
            except Exception as error:
                if not await self._resume(error):
                    self._error = None  # as in ``_refuse``
                    if self._is_quiet:
                        return b""
                    raise
                continue
            chunk = self._take(chunk)
            if chunk:
                return chunk
        await self.stream.close()
        return b""

    async def close(self) -> None:
        """Want no more of it."""
        if not self.is_closed:  # httpx2 closes its iterator, which this is too, and then the stream
            self.is_closed = True
            await self.stream.close()

    def _take(self, chunk: bytes) -> bytes:
        """Count a chunk; return what of it is handed out."""
        if self._events is not None:
            self._received += len(chunk)
            chunk = self._events.take(chunk)
            if not chunk and self._events.fault:
                self._refuse(self._port.stream_error(self._events.fault))
            return chunk
        seen, self._expected_prefix = (
            self._expected_prefix[: len(chunk)],
            self._expected_prefix[len(chunk) :],
        )
        chunk_is_new = chunk[len(seen) :]
        self._received += len(chunk_is_new)
        is_more = self._ends_at is not None and self._received > self._ends_at
        if is_more or not chunk.startswith(seen):
            self._refuse(self._error)
        if self._kept is not None:
            self._kept += chunk_is_new
            if len(self._kept) > self._port.settings.prefetch:  # of unknown length, and not small
                self._kept = None
        return chunk_is_new

    def _check_end(self) -> None:
        """Raise if a body that has ended lacks something.

        A connection that is closed too early ends a body without an error where the library does
        not count. The caller would take what came for the whole. Of a stream of events, which its
        server has ended, the caller only sees that end.
        """
        self._is_quiet = False
        events = self._events
        if events is not None and events.fault:
            self._refuse(self._port.stream_error(events.fault))
        is_short = self._ends_at is not None and self._received < self._ends_at
        is_empty = not self._received and begins_events(*self._head)
        is_resumed = events is not None and events.stream.is_resumed
        if (is_short or self._expected_prefix) and not self.is_closed:
            assert self._error is not None
            raise self._error
        if (is_empty or is_resumed) and not self.is_closed:
            self._is_quiet = True
            raise self._port.stream_error("the stream of events has ended")

    def _refuse(self, error: Exception | None) -> NoReturn:
        """End the call: what comes does not belong to what the caller has.

        The error is forgotten, because its traceback will hold this object, which must not hold it
        too. The cycle would keep the connection until the garbage collector runs.
        """
        assert error is not None
        self._error, self._is_refused = None, True
        if self._call is not None:
            self._fail(self._call, error)
        try:
            raise error
        finally:
            del error

    def _fail(self, call: Call, error: Exception) -> None:
        """The rest cannot be had: attach the story to the error that broke the body."""
        if call.stop is None:  # it belongs to another body, and the caller has a part of the first
            call.stop = GiveUp(Reason.RESPONSE_DELIVERED)
        kind, index = call.notes[Rest][:2]
        if kind == "resume" and len(call.history) > index + 1:  # it was requested
            self._emit(call, "failed")
        with_story(self._port, call, error)

    def _emit(self, call: Call, result: str) -> None:
        assert self._what is not None
        at = self._what.first + self._requested_at
        total = self._what.complete
        self._port.settings.events.emit(Resumption, call, offset=at, total=total, result=result)

    def _requestable(self, call: Call, error: Exception) -> What | None:
        """Return what of the body can be requested; None: the error, or the end, stands as it is.

        Nothing for an error that no retry prevents, such as a bug below, nor after the caller has
        closed the body: neither is a failure of the call.
        """
        kind = self._port.classify_exception(call, error).kind
        if self.is_closed or call.stop is not None or kind not in RETRYABLE_KINDS:
            return None
        request = call.request
        is_safe = request.method in call.policy.methods or request.keyed
        if self._is_quiet and (request.method == "HEAD" or (self._received and not is_safe)):
            return None  # its end says nothing
        if self._events is not None and self._received:
            stream = self._events.stream
            return stream if stream.is_resumed and not self._events.fault else None
        if not self._received and begins_events(*self._head):
            from ..core.event_streams import event_stream  # loaded with the first that breaks

            self._is_download = False  # the head of the response that follows is not known
            return event_stream(*self._head)
        if not self._is_download:
            return None
        if isinstance(self._what, Download):  # which knows more than the head
            return self._what
        found = download_of(request.method, *self._head)
        return Repeat(*self._head) if found is None and self._kept is not None else found

    def _call_for_rest(self, old: Call, what: What, error: Exception) -> Call:
        """Begin a call for what is missing of a body, of which the attempt that broke is the first.

        It goes on as the call did that had got the body: with the attempts that this had left, its
        schedule and its key. So the loop, the limits and the events see an ordinary call that is
        retried.
        """
        received, new_bytes = self._received, self._received - self._requested_at
        self._requested_at = received
        is_resumed, retry = True, None
        if isinstance(what, (Download, Repeat)):
            if isinstance(what, Repeat) or ANEW in old.notes:
                new_bytes = 0
            # An attempt comes back for each 64 KiB of a body, and never for less, whatever share of
            # it that is: so requests ≤ ``max_attempts`` + bytes received / 64 KiB, on any server.
            # One that sends little per connection, or fails between two parts, could else keep the
            # call going for hours.
            earned = received // EARNED - (received - new_bytes) // EARNED
        else:  # events are the progress, however short they are
            is_resumed, retry = what.is_resumed, what.retry
            new_bytes, what.has_new_id = int(what.has_new_id), False
            earned = old.attempts if new_bytes else 0

        call = copy(old)
        call.attempts = max(1, old.attempts - earned)
        call.notes = notes = old.notes.copy()
        # Its last attempt was accepted, unless the fast path left no note of it: now it has failed.
        call.history = history = old.history[:-1][-MOST_NOTES:]
        call.stop = None
        notes[Rest] = Rest(
            "resume" if is_resumed else "retry", len(history), is_resumed, new_bytes > 0,
            self._is_quiet, partial(what.fits, received), begin_anew,
            old.outgoing if old.rest is None else old.rest.whole,
        )  # fmt: skip
        if is_resumed and call.request.streams:
            self._leave_deadline(call)
        notes.pop(BODY_HINT, None)
        if retry is not None and call.policy.hints == "obey":
            notes[BODY_HINT] = Hint(retry, None, "retry")
        call.body_error = call.live = error
        request_rest(self._port, call, what.fields(received))
        return call

    def _leave_deadline(self, call: Call) -> None:
        """Let the call's own time limits end: they held until the hand-over.

        ``forbear.deadline`` still does.
        """
        context, clock = call.context, self._port.clock
        now = clock.monotonic()
        call.deadline_at = inf if context is None else context.deadline_on(clock, now)

    async def _resume(self, error: Exception) -> bool:
        """Request the rest and continue with it; False if it cannot be had."""
        port, old = self._port, self._call or self._begin_call()
        what = self._what = self._requestable(old, error)
        if what is None:
            return False
        with suppress(Exception):
            await self.stream.close()
        self.stream, self._error = Nothing(), error
        self._ends_at, self._expected_prefix = None, b""
        if what.missing(self._received) == 0:  # but for its end the body is whole
            return True
        call = self._call = self._call_for_rest(old, what, error)
        handed: list[Resp] = []
        try:
            if not await self._continues(call, what, await run(call, port, handed)):
                self._fail(call, error)
                return False
        except Instead:
            raise
        except Exception as raised:
            if not call.request.streams and raised is not error:
                raise Instead(call, raised) from None
            # What broke the body says more, unless the deadline came or a hook has raised.
            if isinstance(raised, port.deadline_exceeded):
                raise
            self._fail(call, error)
            if call.stop is not None and call.stop.reason is Reason.HOOK_FAILED:
                raise
            return False
        except BaseException:  # interrupted, with the rest in hand
            for response in handed:
                await port.close_unused(response)
            raise
        finally:
            made = self.response_of()
            if made is not None:
                port.attach(made, call.story(port.clock.monotonic()))
        self._is_quiet = False
        if self.is_closed:  # meanwhile, from elsewhere
            await self.stream.close()
        return not self.is_closed

    async def _continues(self, call: Call, what: What, response: Resp) -> bool:
        """Continue with a response, if it has what is missing of the body."""
        port, rest = self._port, call.rest
        fits = what.fits(self._received, *port.head_of(response))
        if not call.request.streams and (not fits or rest is None):
            if call.notes.pop(Rest, None):  # until now it was no response for the caller
                response = await hand_over(port, call, response)
            raise Instead(call, response)
        if not fits or rest is None or call.stop is not None:
            await discard(port, call, response)
            return False
        if rest.kind == "resume":
            at = what.first + self._received
            story = call.notes.setdefault(STORY, {})
            story["resumed"] = (*story.get("resumed", ()), at)[-MOST_NOTES:]
            self._emit(call, "resumed")
        else:
            self._leave_deadline(call)
            port.settings.events.emit("succeeded_after_retry", call, port.clock.monotonic())
        if self._events is not None:
            self._events.begin_anew()
        if isinstance(what, Repeat):
            self._expected_prefix = bytes(self._kept or b"")
        missing = what.missing(self._received)  # which its parts have declared by now
        self._ends_at = None if missing is None else self._received + missing
        response = port.reopen(call.outgoing, response, lambda: call)
        self.stream = port.source_of_rest(call, response)
        return True


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

    def level(self) -> int:
        return INFO

    def sentence(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        return f"download {self.result} from byte {self.offset}{of}"
