"""Redaction: urllib3's own log, without the queries of what forbear sends. Floor: acts.

urllib3 logs every request at DEBUG, and redirects at INFO, with the query, where keys and tokens
are. For requests that go through an adapter of forbear the query is cut off there; the log of other
requests is left as it is.

Whose request it is shows in the call stack, which is looked at only when a record is really
written: a mark that is set and taken back around every request would cost a third of what a request
may cost.
"""

from __future__ import annotations

import logging
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., object])

__all__ = ["redact_queries", "redacted"]

REDACTED: set[CodeType] = set()


def redacted(function: F) -> F:
    """Mark a function: what urllib3 logs while it runs is cut."""
    REDACTED.add(function.__code__)
    return function


def redact_queries() -> None:
    """Put the filter on urllib3's loggers. Idempotent."""
    for name in ("urllib3.connectionpool", "urllib3.poolmanager", "urllib3.util.retry"):
        logging.getLogger(name).addFilter(without_query)


def without_query(record: logging.LogRecord) -> bool:
    if record.args and isinstance(record.args, tuple) and is_redacted(sys._getframe()):
        record.args = tuple(
            argument.partition("?")[0] + "?…"
            if isinstance(argument, str) and "?" in argument
            else argument
            for argument in record.args
        )
    return True


def is_redacted(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in REDACTED:
            return True
        frame = frame.f_back
    return False
