"""Findings: what each header of a response says alone, and beside the others. Floor: acts.

Tells why. How a header is read and which one wins is decided by core/headers, which is asked about
each header alone and about all of them. Rules H0 to H11 of tests/corpus/server_hints.json.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.headers.dates import Clock, parse_http_date, parse_timestamp
from ...core.headers.fields import members, number
from ...core.headers.hints import read_hint
from ...core.headers.quota import QUOTA_FIELDS, is_rate_limit, remaining_of
from ...core.outcome import Hint
from .tables import visible

__all__ = ["Finding", "Lines", "findings"]

Lines = list[tuple[str, str]]

MILLISECONDS = (
    "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms",
)  # fmt: skip
WAITS = (*MILLISECONDS, "retry-after")
ADVICE = ("x-should-retry", "stripe-should-retry")
RELATED = ("retry-after", "pushback", "ratelimit", "rate-limit", "should-retry", "replayed")


class Finding(NamedTuple):
    """One header, how it is read and what became of it."""

    name: str  # in lower case
    value: str  # as it came, lines joined
    says: str  # how it is read
    delay: float | None  # seconds it asks for by itself
    result: str  # "won", "lost", "gate" (it decides about another), "ignored" or "malformed"
    why: str


def findings(status: int, lines: Lines, now: float, hint: Hint) -> list[Finding]:
    """Every header that has to do with trying again, in the order in which they are asked."""
    reader = Reader(status, lines, now, hint)
    found = [one for one in reader.fields if one in QUOTA_FIELDS or any(w in one for w in RELATED)]
    order = [*WAITS, *ADVICE]
    found.sort(key=lambda name: order.index(name) if name in order else len(order))
    return [reader.finding(name) for name in found]


class Reader:
    """Says what one header means beside all the others."""

    def __init__(self, status: int, lines: Lines, now: float, hint: Hint) -> None:
        self.status = status
        self.hint = hint
        self.clock = Clock(lines, now)
        self.fields: dict[str, list[str]] = {}
        for name, value in lines:
            self.fields.setdefault(name.lower(), []).append(value)

    def finding(self, name: str) -> Finding:
        value = ", ".join(self.fields[name])
        alone = self.alone(name, 503 if name in WAITS or name in ADVICE else 429)
        says, delay, (result, why) = "", alone.delay, ("malformed", "not in a form that is known")
        if delay is not None:
            says, (result, why) = self.kind_of(name, value, delay), self.weighed(name, delay)
        elif alone.should_retry is not None:
            says = "yes" if alone.should_retry else "no"
            result, why = self.advised(alone.should_retry)
        elif name == "idempotent-replayed":
            result, why = "gate", "a true one counts if the request carried a key"
        elif name == "ratelimit" and is_rate_limit(value):
            says, result, why = "something remains", "ignored", "another limit was hit"
        elif name in QUOTA_FIELDS and name != "ratelimit" and not remaining_of(name):
            says, result, why = self.remaining(name, value)
        elif name not in (*WAITS, *ADVICE, *QUOTA_FIELDS):
            result, why = "ignored", "asks for nothing that is known"
        return Finding(name, value, says, delay, result, why)

    def alone(self, name: str, status: int) -> Hint:
        """The hint of this header alone, in an answer that is not from a cache."""
        lines = [(name, value) for value in self.fields[name]]
        return read_hint(status, lines, now=self.clock.utc())

    def weighed(self, name: str, delay: float) -> tuple[str, str]:
        """It asks for a wait: does it get it, and why?"""
        winner, is_quota = self.hint.source, name in QUOTA_FIELDS
        if winner == name and self.hint.should_retry is False:
            return "lost", "the server says no"
        if winner == name:
            return "won", "the quota is used up" if is_quota else ""
        if self.status < 300:
            return "ignored", f"a {self.status} is no failure"
        if self.status < 400:
            return "ignored", "of a redirect only Retry-After is read"
        if is_quota and winner is None:
            return "ignored", "counts on 403, 429, 503 if nothing is left, and not from a cache"
        if is_quota and winner in WAITS:
            return "lost", f"{winner} asks outright, a quota only reports"
        if is_quota and self.hint.delay is not None and delay < self.hint.delay:
            return "lost", f"{winner} has the longer wait"
        return "lost", f"{winner} {'is more exact' if name == 'retry-after' else 'comes first'}"

    def remaining(self, name: str, value: str) -> tuple[str, str, str]:
        left = number(value)
        if left is None:
            return "", "malformed", "not a number"
        says = "used up" if left == 0 else f"{visible(value)} left"
        resets = [one for one in self.fields if name in remaining_of(one)]
        if not resets:
            return says, "ignored", "no reset beside it says until when"
        return says, "gate", f"decides whether {' and '.join(resets)} counts"

    def advised(self, again: bool) -> tuple[str, str]:
        if self.status < 400:
            return "ignored", f"a {self.status} is no failure"
        if again and self.hint.should_retry is False:
            return "lost", "any no wins"
        return "won", "the server wants it again" if again else "an explicit no is always obeyed"

    def kind_of(self, name: str, value: str, delay: float) -> str:
        """Name the kind of value."""
        now = self.clock.utc()
        if name in MILLISECONDS:
            return "milliseconds"
        if name == "ratelimit":
            return "structured field"
        if (single := number(value)) is not None:
            is_instant = single > 1e6 and name != "retry-after"
            return "Unix time" if is_instant else "seconds"
        if parse_timestamp(value) is not None or parse_http_date(value, now=now) is not None:
            return "date" if delay else "date, already past"
        return "several values, the longest" if len(members(value)) > 1 else "duration"
