"""Reading: bodies of requests and urllib3 inside the attempt, and the rest of them. Floor: acts.

What came of a large body that breaks inside the loop is kept, and only the rest is asked for. How a
streamed body goes on after the hand-over is in urllib3_resume.py.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import ProtocolError

from ..core.headers.ranges import Part
from ..core.outcome import Failure, Phase
from ..core.record import RECORD
from ..sending import resumption
from ..sending.clock import SYSTEM_CLOCK
from ..sending.errors import Interrupted
from ..sending.port import Port
from .urllib3_resume import Begun, is_large
from .urllib3_sockets import ENDS_AT, read_freely, read_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from ..sending.settings import Settings
    from .urllib3_request import Urllib3Request

__all__ = ["LEAST", "BodyPort"]

LEAST = 0.001  # seconds; urllib3 refuses 0


class BodyPort(Port):
    """The part of a port that reads bodies. Each library adds the methods that stand first here."""

    status_of: Any  # of its response
    raw_of: Any  # the urllib3 response in a response
    load: Any  # reads it as the library would
    with_raw: Any  # returns the response with another urllib3 response in it
    timeout_of: Any  # the caller's own timeouts

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.resumes = settings.resume

    def left(self, call: Call) -> float | None:
        """Seconds until the deadline, None if there is none."""
        if call.deadline_at == inf:
            return None
        return max(call.deadline_at - self.clock.monotonic(), LEAST)

    @contextmanager
    def punctually(self, call: Call) -> Iterator[None]:
        """Let the pools below know the deadline while an attempt is sent."""
        left = self.left(call)
        before = ENDS_AT.set(None if left is None else SYSTEM_CLOCK.true_monotonic() + left)
        try:
            yield
        finally:
            ENDS_AT.reset(before)

    def hurry(self, call: Call, raw: Any) -> None:
        """Let the reading of a body end at the deadline."""
        if call.deadline_at != inf:
            read_within(raw, max(call.deadline_at - self.clock.monotonic(), LEAST))

    def loads(self, view: Any, policy: RetryPolicy, response: Any) -> bool:
        """Is the body to be read inside the attempt?"""
        status: int = self.status_of(response)
        return not view.streams and (status < 400 or status not in policy.statuses)

    def read(self, view: Urllib3Request, response: Any) -> Any:
        """Read the body inside the loop; what came of a large one that breaks is kept."""
        raw = self.raw_of(response)
        if self.resumes and is_large(raw):
            return self._read_large(view, Begun(response, raw), raw)
        self.load(view.request, response)
        return response

    def _read_large(self, view: Urllib3Request, begun: Begun, raw: Any) -> Any:
        error = begun.read_on(raw)
        view.begun = None if error is None else begun
        return self._replay(view, begun, error)

    def _replay(self, view: Urllib3Request, begun: Begun, error: Exception | None) -> Any:
        """Let the library read what came, and raise its own error for what broke the body."""
        if error is not None:
            begun.raw.close()
            begun.raw.release_conn()
        response = self.stand_in(begun.response, begun.replayed(error))
        self.load(view.request, response)
        return response

    def join(self, call: Call, view: Urllib3Request, response: Any) -> Any:
        """Put the rest that comes to the beginning; what does not fit fails like a broken body.

        Then the next attempt begins again.
        """
        begun, raw = view.begun, self.raw_of(response)
        assert begun is not None
        at = begun.continues_in(raw)
        if at is None:
            self.discard(call, response)
            view.begun = None
            error = ProtocolError("Connection broken: the rest of the body is another one's")
            return self._replay(view, begun, error)
        call.resumed += (at,)
        tell = self.settings.tell
        tell.resumed(call, at, begun.download.complete, "resumed", call.listeners)  # type: ignore[union-attr]
        self.hurry(call, raw)
        return self._read_large(view, begun, raw)

    def stand_in(self, response: Any, raw: Any) -> Any:
        """Put another urllib3 response in place of the one that came."""
        setattr(raw, RECORD, vars(response).pop(RECORD, None))
        return self.with_raw(response, raw)

    def judge_error(self, call: Call, error: Exception) -> Failure:
        failure = super().judge_error(call, error)
        view: Any = call.request
        begun: Begun | None = view.begun
        if begun is None or not begun.is_broken:
            return failure
        progressed = begun.has_progressed(view)
        if begun.download is None:
            view.begun = None
        if not progressed:
            return failure
        call.patient_until = inf
        call.attempts = 1  # only the rest will be asked for: this counts as a first attempt
        return Failure(failure.kind, Phase.ANSWERED, error=failure.error, progress=True)

    def free(self, call: Call, raw: Any) -> None:
        """Let the caller read with his own timeouts, and ``forbear.deadline`` alone."""
        read_freely(raw, self.timeout_of(call))
        if call.context is not None and call.context.has_deadline():
            now = self.clock.monotonic()
            left = max(call.context.deadline_on(self.clock, now) - now, LEAST)
            read_within(raw, left, lambda: self.late(call))

    def late(self, call: Call) -> Exception:
        """Make the error of a body that the deadline ends while the caller reads it."""
        return self.deadline_error(call, "the deadline ended the body")

    # A body that broke after it was handed over.

    def rest_of(self, call: Call, response: Any) -> Any:
        """Return the urllib3 response that brings the rest; None if nothing was missing.

        Raises:
            Interrupted: It is not the rest.
        """
        raw = self.raw_of(response)
        part = resumption.take_up(self, call, raw.status, list(raw.headers.items()))
        if part is Part.CONTINUES:
            self.free(call, raw)
            return raw
        self.discard(call, response)
        if part is Part.COMPLETE:
            return None
        raise Interrupted
