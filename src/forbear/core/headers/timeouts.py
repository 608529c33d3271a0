"""Deadline: how much time a request brings with it. Floor: decides.

Envoy tells the server "the time in milliseconds the router expects the request to be completed" in
``x-envoy-expected-rq-timeout-ms`` (its router filter); 0 is its word for no timeout. gRPC has
``grpc-timeout``, "a positive integer as ASCII string of at most 8 digits" and one letter for the
unit (PROTOCOL-HTTP2). Both count from the moment of sending, so the way here has taken its share
already. What cannot be read is as if it were absent.
"""

from __future__ import annotations

from math import inf

from .nesting import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EXPECTED", "TIMEOUTS", "seconds_for", "shrunk"]

EXPECTED = "x-envoy-expected-rq-timeout-ms"
UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def seconds_for(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> float:
    """The seconds that the sender of a request waits for its answer: the least it tells, infinite
    if it does not.
    """
    least = inf
    for name, value in lines:
        read = TIMEOUTS.get(text(name).lower())
        if read is not None:
            least = min(least, read(text(value)))
    return least


def shrunk(seconds: float, margin: float) -> float:
    """What is left of them when ``margin`` seconds are kept for the way back; never less than
    half.
    """
    return seconds - min(margin, seconds / 2)


def _milliseconds(value: str) -> float:
    return _positive(value.strip(" \t"), 15, 1e-3)


def _of_grpc(value: str) -> float:
    stripped = value.strip(" \t")
    unit = UNITS.get(stripped[-1:])
    return inf if unit is None else _positive(stripped[:-1], 8, unit)


def _positive(digits: str, most: int, unit: float) -> float:
    if len(digits) <= most and digits.isascii() and digits.isdigit():
        return int(digits) * unit or inf
    return inf


# header -> the seconds that a value of it tells
TIMEOUTS = {EXPECTED: _milliseconds, "grpc-timeout": _of_grpc}
