"""Failures as adapters tell them, for tests that need no adapter."""

from forbear import FailureKind
from forbear.strategies import Failure, Hint, Phase

RESET = Failure(FailureKind.RESET, Phase.SENT, error="ReadError")
REFUSED = Failure(FailureKind.REFUSED, Phase.UNSENT, error="ConnectError")
TIMEOUT = Failure(FailureKind.READ_TIMEOUT, Phase.SENT, error="ReadTimeout")
UNPROCESSED = Failure(FailureKind.UNPROCESSED, Phase.UNSENT, error="RemoteProtocolError")


def answer(status, delay=None, source="retry-after"):
    """An answer with this status; ``delay`` is what the header ``source`` asks for."""
    hint = Hint(delay, None, None if delay is None else source)
    return Failure(FailureKind.STATUS, Phase.ANSWERED, status=status, hint=hint)
