"""Redaction: urllib3's own debug log, without the queries of what forbear sends. Floor: acts.

urllib3 logs every request at DEBUG, and redirects at INFO, with the query, where keys and tokens are. For requests that
go through an adapter of forbear the query is cut off there; the log of other requests is left as it is.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

__all__ = ["SENDING", "redact_queries"]

SENDING: ContextVar[bool] = ContextVar("forbear_sending", default=False)


def redact_queries() -> None:
    """Put the filter on urllib3's loggers. Idempotent."""
    for name in ("urllib3.connectionpool", "urllib3.poolmanager", "urllib3.util.retry"):
        logging.getLogger(name).addFilter(without_query)


def without_query(record: logging.LogRecord) -> bool:
    if record.args and SENDING.get() and isinstance(record.args, tuple):
        record.args = tuple(
            argument.partition("?")[0] + "?…" if isinstance(argument, str) and "?" in argument else argument
            for argument in record.args
        )
    return True
