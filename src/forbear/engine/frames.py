"""Frames: where a warning points to, and what a signal handler raised. Loaded when first needed."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

OURS = ("forbear.", "urllib3.")  # modules whose lines nobody can change
CHAIN = 32  # causes and contexts of an error that are inspected; clients make four or five


def warn(text: str) -> None:
    """Warn at the line, outside forbear and urllib3, that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


def let_signals_through(error: Exception) -> None:
    """Raise what a signal handler raised, if the error is that or was made from it.

    Such exceptions often derive from ``Exception``: Celery's SoftTimeLimitExceeded, recipes with
    ``signal.alarm``. The handler's frame in their traceback identifies them. A library turns a
    handler's TimeoutError into its own error, with the handler's as the cause.
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
        cause = cause.__cause__ or cause.__context__  # httpcore drops causes but keeps contexts
        # One that the caller is still handling has nothing to do with the error.
        if cause and cause.__traceback__ and cause.__traceback__.tb_frame in frames_above():
            return


def frames_above() -> set[FrameType]:
    """The running frames, without the caller's: its locals would hold a reference to itself."""
    found: set[FrameType] = set()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        found.add(frame)
        frame = frame.f_back
    return found


def code_of(handler: object) -> object:
    """The code of a function, a method, a partial or an object that can be called."""
    if not callable(handler):
        return None
    handler = getattr(handler, "func", handler)
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
