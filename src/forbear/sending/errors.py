"""Errors: signals inside a transport, and what a retried error may hold. Floor: acts."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from ..core.record import HedgeNotes

__all__ = ["CutOff", "Interrupted", "Raced", "bare", "let_signals_through", "warn"]

OURS = ("forbear.", "urllib3.")  # modules whose lines nobody can change
CHAIN = 32  # errors behind one that are looked at; clients make four or five


class CutOff(Exception):
    """The backstop behind the deadline ended an asynchronous attempt; never leaves a transport."""


class Raced(Exception):
    """A first attempt was hedged; never leaves a transport.

    Attributes:
        notes: The attempt that did not decide, for the record.
        outcome: What came of the one that did: an answer or an error.
        second: The second attempt: ``request``, ``origin``, ``sent_at``.
        number: Of the call, if it was told of.
    """

    def __init__(self, notes: HedgeNotes, outcome: Any, second: Any, number: int) -> None:
        super().__init__()
        self.notes, self.outcome, self.second, self.number = notes, outcome, second, number


class Interrupted(Exception):
    """The rest of a body did not come; never leaves a transport."""


def warn(text: str) -> None:
    """Warn at the line, outside forbear and urllib3, that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


def let_signals_through(error: Exception) -> None:
    """Raise what a signal handler raised, if the error is that, or was made of it.

    Such exceptions often derive from ``Exception``: Celery's SoftTimeLimitExceeded, recipes with
    ``signal.alarm``. The handler's frame in their traceback gives them away. A library makes its
    own error of a handler's TimeoutError, with that as the cause.
    """
    handlers = {code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    cause: BaseException | None = error
    for _ in range(CHAIN):
        place = None if cause is None else cause.__traceback__
        while place is not None:
            if place.tb_frame.f_code in handlers:
                raise cause  # type: ignore[misc]
            place = place.tb_next
        if cause is None:
            return
        cause = cause.__cause__ or cause.__context__  # httpcore drops causes, and keeps contexts
        # One that the caller is still handling has nothing to do with the error.
        if cause and cause.__traceback__ and cause.__traceback__.tb_frame in frames_above():
            return


def frames_above() -> set[FrameType]:
    """The frames under way, without that of the function that asks: it would hold itself."""
    found: set[FrameType] = set()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        found.add(frame)
        frame = frame.f_back
    return found


def code_of(handler: Any) -> Any:
    """The code of a function, a method, a partial or an object that can be called."""
    if not callable(handler):
        return None
    handler = getattr(handler, "func", handler)
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def bare(error: Exception) -> Exception:
    """Drop the frames that the error and its causes came through.

    They hold the call, which holds the error, and in urllib3 and httpcore the pool with its
    sockets: none of that shall wait for the garbage collector because a call went well in the end.
    An error that is still being handled further out, by whoever made the call meanwhile, is a
    context too: it is left alone.
    """
    error.__traceback__ = None
    chain = [error.__cause__, error.__context__]
    if chain == [None, None]:
        return error
    handling = frames_above()
    for _ in range(CHAIN):
        if not chain:
            break
        one = chain.pop()
        if (
            one is not None
            and one.__traceback__ is not None
            and one.__traceback__.tb_frame not in handling
        ):
            one.__traceback__ = None
            chain += one.__cause__, one.__context__
    return error
