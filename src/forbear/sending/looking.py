"""Looking: how much of an answer's body is read before that is handed over. Floor: acts.

``retry_if`` is shown a copy of the answer, whose body is read when it looks at it and not before;
what was read is put back in front of the rest. A body that may have no end is not read: nobody can
take back a read that has begun, and the caller may want each part when it comes.
"""

from __future__ import annotations

from collections.abc import Coroutine
from math import inf
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..core.call import Call

__all__ = [
    "DRAIN_BYTES", "DRAIN_SECONDS", "ENDLESS", "LATE", "WHOLE",
    "BodyNotShown", "Looking", "seconds_to_look", "too_late",
]  # fmt: skip

# What comes of reading ahead, if it is not the exception that broke the body.
WHOLE: Literal["whole"] = "whole"
LATE: Literal["late"] = "late"  # more is to come, some time
# A body of more bytes or seconds than these costs more than the new connection that draining it
# saves.
DRAIN_BYTES = 65_536
DRAIN_SECONDS = 0.25
MOST_BYTES = 65_536
SECONDS = 0.25  # for a body whose length is not told: a busy server's pause
# Of these each part is wanted when it comes.
ENDLESS = ("text/event-stream", "multipart/x-mixed-replace")
# These are of use only as a whole, so that they end even where no length is told.
DOCUMENTS = frozenset({"application/json", "application/xml", "text/xml", "text/html"})
SUFFIXES = ("+json", "+xml")
BODILESS = frozenset({101, 204, 304})


class BodyNotShown(Exception):
    """``retry_if`` looked at a body that cannot be read whole now; never leaves a transport."""


def seconds_to_look(method: str, status: int, kind: str, length: int | None) -> float:
    """Seconds for which the body of an answer is read, infinite if its end is known.

    Args:
        method: Of the request.
        status: The answer's.
        kind: Its Content-Type.
        length: Octets that are to come, as far as its head tells.

    Raises:
        BodyNotShown: It is too long, or may have no end.
    """
    if method == "HEAD" or status in BODILESS:
        return inf
    media = kind.partition(";")[0].strip().lower()
    if media.startswith(ENDLESS):
        raise BodyNotShown(f"each part of {media} is wanted when it comes")
    if length is not None:
        if length > MOST_BYTES:
            raise BodyNotShown(f"{length} bytes are more than {MOST_BYTES}")
        return inf
    is_document = media in DOCUMENTS or (media.endswith(SUFFIXES) and "stream" not in media)
    if status < 400 and not is_document:
        raise BodyNotShown(f"the length of this {media or 'body'} is not told: it may have no end")
    return SECONDS


def too_late() -> BodyNotShown:
    """Make the error for a body of which more is to come than was waited for."""
    return BodyNotShown(f"more than {MOST_BYTES} bytes, or than came in {SECONDS} s")


class Looking:
    """The part of a port that asks about an answer before it is judged."""

    retry_if: Any
    tell: Any

    def is_asked(self, call: Call) -> bool:
        """Is ``retry_if`` to be asked? Not about the rest of a body, nor about a broken one."""
        before, call.opinion = call.opinion, None
        if self.retry_if is None or call.resumption is not None or call.body_error is not None:
            return False
        if call.history or before is None:
            return True
        call.opinion = before  # the fast path has begun to ask
        return False

    def is_spoken(self, call: Call, status: int) -> bool:
        """May the body of an answer hold the word of a vendor?"""
        call.word, policy = None, call.policy
        return bool(policy.vendors) and status in policy.statuses and call.resumption is None

    def word(self, answer: Any) -> bool | None:
        """Return what ``retry_if`` answered, if that is True, False or None."""
        if answer is True or answer is False or answer is None:
            return answer
        if isinstance(answer, Coroutine):
            answer.close()
        self.tell.hook_failed("retry_if", answer, "answered")
        return None
