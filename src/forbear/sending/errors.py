"""Errors: signals inside a transport, and what a retried error may hold. Floor: acts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["CutOff", "Interrupted", "bare"]

CHAIN = 32  # errors behind one that are looked at; clients make four or five


class CutOff(Exception):
    """The backstop behind the deadline ended an asynchronous attempt; never leaves a transport."""


class Interrupted(Exception):
    """The rest of a body did not come; never leaves a transport."""


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
    handling: set[FrameType] = set()
    frame: FrameType | None = sys._getframe(1)  # this one would hold itself
    while frame is not None:
        handling.add(frame)
        frame = frame.f_back
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
