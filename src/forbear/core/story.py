"""Story: the notes of one call, on the response or the error that it ended with.

record.py makes the record of them for the caller. Holds method, origin, status, class names and
durations: never a path, query, header value, body or exception text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .outcome import Reason

if TYPE_CHECKING:
    from .outcome import Failure, GiveUp

RECORD = "_forbear_record"  # attribute of exceptions, and of responses without extensions
SENDS = "_forbear_sends"  # marks classes to which a response of forbear's leads
SETTING = "forbear"  # key in a response's extensions: of its story, or
SENT = True  # of a response that nothing else of forbear's is on
MOST_NOTES = 1_000  # attempts that are kept of a feed, which may be resumed for months


class Attempt(NamedTuple):
    """The notes of one finished attempt."""

    status: int | None
    failure: Failure | None  # None: the attempt was accepted
    elapsed: float  # seconds from its start to the response's header section or the error
    delay: float | None  # seconds to wait after the attempt; None after the last one
    source: str | None  # what set the delay
    origin: str  # where the attempt was sent


class HedgeNotes(NamedTuple):
    """The hedge of a call: the second attempt that was sent while the first one was slow."""

    after: float  # seconds from the first attempt to the hedge
    decides: bool  # the hedge's outcome is the call's
    loser: Attempt  # the one that does not decide


class Story(NamedTuple):
    """The notes of one call, from which ``record_of`` makes its record.

    Taking notes costs a tenth of making the record, and few callers ask for one.
    """

    method: str
    origin: str
    history: list[Attempt]
    started_at: float  # on the clock of its transport
    ended_at: float
    stop: GiveUp | None
    sent_before: int = 0  # retries that earlier hops of a redirected call used
    resumed: tuple[int, ...] = ()
    held: float = 0.0
    hedge: HedgeNotes | None = None
    waited_for_slot: float = 0.0
    paced: float = 0.0

    @property
    def is_final(self) -> bool:
        """No other loop may add attempts: this call was retried, or must not be."""
        if len(self.history) > 1:
            return True
        return self.stop is not None and self.stop.reason is not Reason.ATTEMPTS_EXHAUSTED

    def is_within(self, since: float, until: float) -> bool:
        """Did the call begin and end between these two instants?"""
        return since <= self.started_at and self.ended_at <= until

    def __repr__(self) -> str:
        return f"<Story {self.method} {self.origin}, {len(self.history)} attempts>"
