"""Findings: what each header of a response says by itself, and what becomes of it beside the
others. Floor: acts.

Tells why; how a header is read, and which one wins, is core/hints.py's and core/quota.py's, which
are asked about each of them alone and about all. Rules H0 to H11 of tests/corpus/server_hints.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...core.headers.dates import Clock, parse_http_date, parse_timestamp
from ...core.headers.fields import OWS, members, number
from ...core.headers.hints import read_hint
from ...core.headers.quota import QUOTA_FIELDS, is_rate_limit, remaining_of

if TYPE_CHECKING:
    from ...core.outcome import Hint

__all__ = ["Finding", "Lines", "findings", "visible"]

Lines = list[tuple[str, str]]

LONGEST_SHOWN = 60  # characters of a value
WAITS = (
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-amz-retry-after",
    "grpc-retry-pushback-ms",
    "retry-after",
)
ADVICE = ("x-should-retry", "stripe-should-retry")
RELATED = ("retry-after", "ratelimit", "rate-limit", "should-retry", "idempotent-replayed")
REPLAYED = "idempotent-replayed"
WITHOUT_MEANING = {
    "x-ms-retry-after": "not read: nobody says whether these are seconds, milliseconds or a date",
    "ratelimit-policy": "tells what the quota is, asks for nothing",
}


class Finding(NamedTuple):
    """What one header says.

    Attributes:
        name: In lower case.
        value: As it came, lines joined.
        says: How it is read.
        delay: Seconds it asks for by itself; None for none.
        result: "won", "gate", "lost", "ignored" or "malformed".
        why: In words.
    """

    name: str
    value: str
    says: str
    delay: float | None
    result: str
    why: str


def findings(status: int, lines: Lines, now: float, hint: Hint) -> list[Finding]:
    """Every header that has to do with trying again, in the order in which they are asked."""
    fields: dict[str, list[str]] = {}
    for name, value in lines:
        fields.setdefault(name.lower(), []).append(value)
    known = [*WAITS, *ADVICE, REPLAYED]
    quotas = [name for name in fields if name in QUOTA_FIELDS]
    others = [
        name for name in fields if name not in known and name not in quotas and is_related(name)
    ]
    reader = Reader(status, lines, now, hint, fields)
    return [reader.finding(name) for name in [*known, *quotas, *others] if name in fields]


def is_related(name: str) -> bool:
    return any(word in name for word in RELATED)


class Reader:
    """Says what one header means beside all the others."""

    def __init__(
        self, status: int, lines: Lines, now: float, hint: Hint, fields: dict[str, list[str]]
    ) -> None:
        self.status = status
        self.fields = fields
        self.hint = hint
        self.clock = Clock(lines, now)

    def finding(self, name: str) -> Finding:
        value = ", ".join(self.fields[name])
        if name in ADVICE:
            return self.advice(name, value)
        if name == REPLAYED:
            says = (
                "a stored answer" if value.strip(OWS).lower() == "true" else "not a stored answer"
            )
            return Finding(name, value, says, None, "gate", "counts if the request carried a key")
        if name in WAITS:
            return self.wait(name, value)
        if name in QUOTA_FIELDS:
            return self.quota(name, value) if self.is_reset(name) else self.remaining(name, value)
        why = WITHOUT_MEANING.get(name, "asks for nothing that is known")
        return Finding(name, value, "", None, "ignored", why)

    def is_reset(self, name: str) -> bool:
        return name == "ratelimit" or bool(remaining_of(name))

    def alone(self, name: str, status: int, *more: tuple[str, str]) -> Hint:
        """What it would ask for if it were the only one, and the answer not from a cache."""
        lines = [*((name, value) for value in self.fields[name]), *more]
        return read_hint(status, lines, now=self.clock.utc())

    def wait(self, name: str, value: str) -> Finding:
        alone = self.alone(name, 503)
        if alone.should_retry is False:
            return self.no(
                name,
                value,
                "no" if value.startswith("-") else "unreadable, which means no (gRPC A6)",
            )
        if alone.delay is None:
            return Finding(name, value, "", None, "malformed", UNREADABLE[name])
        return self.weighed(name, value, self.told(name, value, alone.delay), alone.delay)

    def weighed(self, name: str, value: str, says: str, delay: float) -> Finding:
        """It asks for a wait: does it get it?"""
        if self.hint.source == name and self.hint.should_retry is False:
            return Finding(name, value, says, delay, "lost", "the server says no")
        if self.hint.source == name:
            return Finding(
                name, value, says, delay, "won", "" if name in WAITS else "the quota is used up"
            )
        if self.status < 300:
            return Finding(name, value, says, delay, "ignored", f"a {self.status} is no failure")
        if self.status < 400:
            return Finding(
                name, value, says, delay, "ignored", "of a redirect only Retry-After is read"
            )
        winner = self.hint.source or "another"
        why = f"{winner} is more exact" if name == "retry-after" else f"{winner} comes first"
        if name in QUOTA_FIELDS and winner in WAITS:
            why = f"{winner} asks outright, a quota only reports"
        elif name in QUOTA_FIELDS and self.hint.delay is not None and delay < self.hint.delay:
            why = f"{winner} has the longer wait"
        return Finding(name, value, says, delay, "lost", why)

    def quota(self, name: str, value: str) -> Finding:
        exhausted = self.alone(
            name, 429
        )  # without a remaining value a 429 says by itself that it is used up
        if exhausted.delay is None:
            if name == "ratelimit" and is_rate_limit(value):
                return Finding(
                    name, value, "something remains", None, "ignored", "another limit was hit"
                )
            return Finding(
                name,
                value,
                "",
                None,
                "malformed",
                UNREADABLE.get(name, "neither seconds nor a date or duration that is known"),
            )
        delay, says = exhausted.delay, self.told(name, value, exhausted.delay)
        if self.hint.source == name or self.status < 400:
            return self.weighed(name, value, says, delay)
        if self.status not in (403, 429, 503):
            why = f"quotas are read on 403, 429 and 503, not on {self.status}"
            return Finding(name, value, says, delay, "ignored", why)
        if self.clock.age() > 0:
            return Finding(
                name, value, says, delay, "ignored", "the answer comes from a cache (Age)"
            )
        gates = [gate for gate in remaining_of(name) if gate in self.fields]
        gating = [(gate, one) for gate in gates[:1] for one in self.fields[gate]]
        if self.alone(name, self.status, *gating).delay is None:
            why = (
                f"{gates[0]} is not 0: another limit was hit"
                if gates
                else "a reset alone counts on a 429 only"
            )
            return Finding(name, value, says, delay, "ignored", why)
        return self.weighed(name, value, says, delay)

    def remaining(self, name: str, value: str) -> Finding:
        left = number(value)
        resets = [one for one in self.fields if name in remaining_of(one)]
        if left is None:
            return Finding(name, value, "", None, "malformed", "not a number")
        says = "used up" if left == 0 else f"{visible(value)} left"
        if not resets:
            return Finding(name, value, says, None, "ignored", "no reset beside it says until when")
        return Finding(
            name, value, says, None, "gate", f"decides whether {' and '.join(resets)} counts"
        )

    def advice(self, name: str, value: str) -> Finding:
        said = self.alone(name, 503).should_retry
        if said is None:
            return Finding(name, value, "", None, "malformed", "neither true nor false")
        if said is False:
            return self.no(name, value, "no")
        if self.status < 400:
            return Finding(name, value, "yes", None, "ignored", f"a {self.status} is no failure")
        if self.hint.should_retry is False:
            return Finding(name, value, "yes", None, "lost", "any no wins")
        return Finding(name, value, "yes", None, "won", "the server wants it again")

    def no(self, name: str, value: str, says: str) -> Finding:
        if self.status < 400:
            return Finding(name, value, says, None, "ignored", f"a {self.status} is no failure")
        return Finding(name, value, says, None, "won", "an explicit no is always obeyed")

    def told(self, name: str, value: str, delay: float) -> str:
        """What kind of value it is."""
        if name.endswith("-ms") or name == "x-amz-retry-after":
            kind = "milliseconds"
        elif name == "ratelimit":
            kind = "structured field"
        elif (single := number(value)) is not None:
            since = self.clock.utc()
            near = {
                "seconds": single,
                "Unix seconds": single - since,
                "Unix milliseconds": single / 1000 - since,
            }
            kind = (
                "seconds"
                if name in WAITS
                else min(near, key=lambda one: abs(max(0.0, near[one]) - delay))
            )
        elif parse_timestamp(value) is not None:
            kind = "RFC 3339 date"
        elif parse_http_date(value, now=self.clock.utc()) is not None:
            kind = f"HTTP-date ({layout(value)})"
        elif len(members(value)) > 1:
            kind = "several values, the longest"
        else:
            kind = "duration"
        if ("date" in kind or "Unix" in kind) and delay == 0:
            return f"{kind}, already past"
        return kind


UNREADABLE = {
    "retry-after-ms": "no number of milliseconds",
    "x-ms-retry-after-ms": "no number of milliseconds",
    "x-amz-retry-after": "no whole number of milliseconds",
    "retry-after": "neither seconds nor an HTTP-date (RFC 9110 section 10.2.3)",
    "ratelimit": "neither form of the drafts (RFC 9651)",
}


def layout(date: str) -> str:
    if date[3:4] == ",":
        return "IMF-fixdate"
    return "rfc850-date" if "," in date else "asctime-date"


def visible(text: str) -> str:
    """What a server sent, without what a terminal would obey, and not for ever."""
    plain = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return plain if len(plain) <= LONGEST_SHOWN else f"{plain[: LONGEST_SHOWN - 1]}…"
