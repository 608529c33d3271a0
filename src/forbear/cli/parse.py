"""``forbear parse``: what the headers of a response ask for, and a policy's verdict.

Reads header lines as ``curl -sI`` prints them, and says what each of them asks for by itself and
together with the others. core/headers decides how a header is read and which one wins; it is called
with each header alone and with all of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from math import inf
from typing import Any, NamedTuple, TextIO

from ..core.call import Call
from ..core.decide import answered
from ..core.decide import decide as core_decide
from ..core.headers.dates import parse_http_date, parse_timestamp
from ..core.headers.fields import OWS, Clock, members, number
from ..core.headers.hints import QUOTA_FIELDS, read_hint
from ..core.headers.quota import is_rate_limit, least, remaining_of
from ..core.outcome import GiveUp, Hint, Reason, SendAgain
from ..core.policy import RetryPolicy
from ..core.request import Request
from ..engine.settings import limits_of
from . import GREEN, RED, Page, add_policy_arguments, chosen, complain, spoken, teach, visible

ASKS, NOTHING, MALFORMED = 0, 1, 2
ASSUMED = 429  # the status that all of these headers are sent with

ABOUT = (
    "Read the headers of a response: which of them asked for what, which one won and why, and what"
    " a policy makes of it. Sends nothing."
)
EXAMPLES = """\
examples:
  forbear parse 'Retry-After: 120'
  forbear parse 'Retry-After: Fri, 31 Dec 2027 23:59:59 GMT' --now 2026-11-20T21:00:00Z
  curl -sI https://api.example.com/ | forbear parse -    with its status; the last response counts
  forbear parse - --method POST --key < headers.txt      of a POST with an Idempotency-Key
  forbear parse 'x-ratelimit-remaining: 0' 'x-ratelimit-reset: 30' --status 403 --vendors github
  forbear parse 'Retry-After: 90' --policy batch --json  under another policy

Requests to wait come before reports of a used-up quota; any no (x-should-retry, pushback) wins.

exit status: 0 they ask for something, 1 for nothing, 2 unreadable, or an argument is wrong.
"""

WHY = {
    Reason.SERVER_SAID_NO: "the server says that another attempt is useless",
    Reason.REPLAYED_RESPONSE: "this is the stored response to an earlier attempt with the same key",
    Reason.METHOD_NOT_REPLAYABLE: "the server may have executed it, and it carries no known key",
    Reason.ATTEMPTS_EXHAUSTED: "the policy allows one attempt",
    Reason.RETRY_AFTER_TOO_LONG: "{} is over max_retry_after, {.max_retry_after:g} s",
    Reason.DEADLINE: "{} is more than total_timeout leaves",
}
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of a header, RFC 9110 section 5.6.2
Lines = list[tuple[str, str]]

MILLISECONDS = (
    "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "grpc-retry-pushback-ms",
)  # fmt: skip
WAITS = (*MILLISECONDS, "retry-after")
ADVICE = ("x-should-retry", "stripe-should-retry")
RELATED = ("retry-after", "pushback", "ratelimit", "rate-limit", "should-retry", "replayed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    teach(parser, ABOUT, EXAMPLES)
    add = parser.add_argument
    add("lines", nargs="+", metavar="LINE", help="'Name: value', a status line, or - for a pipe")
    add("--status", type=int, metavar="N", help=f"of the response (its status line, or {ASSUMED})")
    add("--method", type=str.upper, default="GET", metavar="NAME", help="of the request (GET)")
    add("--key", action="store_true", help="the request carried an idempotency key")
    add("--now", metavar="WHEN", help="2026-11-20T21:00:00Z or Unix seconds (now)")
    add("--json", action="store_true", help="print JSON instead")
    add_policy_arguments(parser)


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Print what the header lines ask for, return the exit status."""
    try:
        policy = chosen(options)
        now = instant(options.now)
        given, lines = read(options.lines)
        status = options.status or given or ASSUMED
        if not 100 <= status <= 999:
            raise ValueError(f"a status has three digits, got {status}")
        if not (options.method.isascii() and options.method.isalpha()):
            raise ValueError(f"--method must be a name such as GET, got {options.method!r}")
    except (ValueError, TypeError) as mistake:
        return complain("parse", mistake)
    hint = read_hint(status, lines, now=now)
    found = findings(status, lines, now, hint)
    decision = decide(policy, status, lines, now, options.method, keyed=options.key)
    if options.json:
        headers = [finding._asdict() for finding in found]
        parts = {"headers": headers, "hint": hint._asdict(), "decision": decision}
        print(json.dumps({"status": status, **parts}, indent=1), file=out)
    else:
        page = Page(out)
        assumed = "" if options.status or given else " (assumed; --status says another)"
        page.text(f"status {status}{assumed}, {options.method}{' with a key' * options.key}")
        page.line()
        show(page, found)
        page.line()
        verdict = sentence(decision, status, policy, hint.source)
        page.text(f"forbear: {verdict}", RED if decision["verdict"] == "stop" else GREEN)
    if hint.delay is not None or hint.should_retry is not None:
        return ASKS
    return MALFORMED if any(finding.result == "malformed" for finding in found) else NOTHING


def instant(text: str | None) -> float:
    """Unix seconds."""
    if text is None:
        return time.time()
    for found in (number(text), parse_timestamp(text), parse_http_date(text, now=time.time())):
        if found is not None:
            return found
    raise ValueError(f"--now must be like 2026-11-20T21:00:00Z, or Unix seconds, got {text!r}")


def read(words: list[str]) -> tuple[int | None, Lines]:
    """Return the status, if there is a status line, and the header lines of the last response.

    A pipe may hold several header sections, as curl -L prints them; a body is not read.

    Raises:
        ValueError: A line is not a header line.
    """
    status: int | None = None
    lines: Lines = []
    is_over = False
    for line in [line for word in words for line in (piped() if word == "-" else [word])]:
        if line[:5].upper() == "HTTP/":
            code = line.partition(" ")[2][:3]
            if not (code.isascii() and code.isdigit()):
                raise ValueError(f"no status line: {visible(line)}")
            status, lines, is_over = int(code), [], False
        elif is_over:
            continue
        elif not line.strip(OWS):
            is_over = status is not None or bool(lines)
        elif line[0] in OWS and lines:  # a folded line, RFC 9112 section 5.2
            lines[-1] = (lines[-1][0], f"{lines[-1][1]} {line.strip(OWS)}".strip(OWS))
        else:
            name, colon, value = line.partition(":")
            if not colon or not NAME.fullmatch(name):
                raise ValueError(
                    f"no header line: {visible(line)}; write 'Retry-After: 120', or - for a pipe"
                )
            lines.append((name, value.strip(OWS)))
    return status, lines


def piped() -> list[str]:
    raw = getattr(sys.stdin, "buffer", None)
    text = sys.stdin.read() if raw is None else str(raw.read(), "latin-1")
    return [line.rstrip("\r") for line in text.split("\n")]


def decide(
    policy: RetryPolicy, status: int, lines: Lines, now: float, method: str, *, keyed: bool
) -> dict[str, Any]:
    """Return the "verdict", the "reason" why not, "delay" at least, "longest" and its "source".

    For the response to the first attempt of a call, with the least and the greatest jitter.
    """
    request = Request(method, "https://origin.invalid:443", [("Idempotency-Key", "k")] * keyed)
    verdicts = []
    for random in (lambda: 0.0, lambda: 1.0):
        call = Call(policy, request, limits_of(random), 0.0, policy.max_attempts)
        call.deadline_at = inf if policy.total_timeout is None else policy.total_timeout
        call.sending(0.0)
        failure = answered(policy, status, lines, lambda: now)
        verdicts.append(core_decide(call, failure, 0.0) if status >= 400 else None)
    least, most = verdicts
    if least is None:
        return {"verdict": "accept"}
    if isinstance(least, GiveUp):
        return {"verdict": "stop", "reason": least.reason.value, "delay": least.delay}
    assert isinstance(least, SendAgain)
    wait = {"verdict": "retry", "delay": least.delay, "longest": None, "source": least.source}
    if isinstance(most, SendAgain):  # else the longest delay does not fit the deadline
        wait |= {"longest": most.delay, "source": most.source}
    return wait


def show(page: Page, found: list[Finding]) -> None:
    if not found:
        page.text("No header concerns retries.")
        return
    rows = []
    for one in found:
        delay = "" if one.delay is None else spoken(one.delay)
        why = f"{one.result}: {one.why}" if one.why else one.result
        rows.append((one.name, one.says or visible(one.value), delay, why))
    page.table(("header", "says", "asks for", "result"), rows)


def sentence(decision: dict[str, Any], status: int, policy: RetryPolicy, asking: str | None) -> str:
    """Return what the policy does, and why, in words."""
    if decision["verdict"] == "accept":
        why = "no failure" if status < 400 else f"{status} is not retried"
        return f"returns the response: {why}"
    delay = decision["delay"] or 0.0
    if decision["verdict"] == "stop":
        why = WHY.get(Reason(decision["reason"]), "").format(spoken(delay), policy)
        return f"returns the response: {why} ({decision['reason']})"
    most = decision["longest"]
    span = spoken(delay) if most in (None, delay) else f"{spoken(delay)} to {spoken(most)}"
    ignored = ", hints are ignored" if policy.hints == "ignore" else ""
    why = f"by its own backoff{ignored}" if decision["source"] == "backoff" else f"as {asking} asks"
    return f"retries after {span}: {why}"


# What each header says alone, and together with the others.


class Finding(NamedTuple):
    """One header, how it is read and what became of it."""

    name: str  # in lower case
    value: str  # as received, lines joined
    says: str  # how it is read
    delay: float | None  # seconds it asks for by itself
    result: str  # "won", "lost", "gate" (it decides about another), "ignored", "malformed"
    why: str


def findings(status: int, lines: Lines, now: float, hint: Hint) -> list[Finding]:
    """Return every header that concerns retries, in the order of their precedence."""
    reader = Reader(status, lines, now, hint)
    found = [one for one in reader.fields if one in QUOTA_FIELDS or any(w in one for w in RELATED)]
    order = [*WAITS, *ADVICE]
    found.sort(key=lambda name: order.index(name) if name in order else len(order))
    return [reader.finding(name) for name in found]


class Reader:
    """Reads one header, in the context of all the others."""

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
        """The hint of this header alone, in a response that is not from a cache."""
        lines = [(name, value) for value in self.fields[name]]
        return read_hint(status, lines, now=self.clock.utc())

    def weighed(self, name: str, delay: float) -> tuple[str, str]:
        """Return whether a wait that it asks for is used, and why."""
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
            return "lost", f"{winner} is a request, a quota only reports"
        if is_quota and self.hint.delay is not None and delay < self.hint.delay:
            return "lost", f"{winner} has the longer wait"
        return "lost", f"{winner} {'is more exact' if name == 'retry-after' else 'comes first'}"

    def remaining(self, name: str, value: str) -> tuple[str, str, str]:
        left = least([value])
        if left is None:
            return "", "malformed", "not a number"
        says = "used up" if left == 0 else f"{visible(value)} left"
        resets = [one for one in self.fields if name in remaining_of(one)]
        if not resets:
            return says, "ignored", "no reset header says until when"
        return says, "gate", f"decides whether {' and '.join(resets)} counts"

    def advised(self, again: bool) -> tuple[str, str]:
        if self.status < 400:
            return "ignored", f"a {self.status} is no failure"
        if again and self.hint.should_retry is False:
            return "lost", "any no wins"
        return "won", "the server asks for a retry" if again else "an explicit no is always obeyed"

    def kind_of(self, name: str, value: str, delay: float) -> str:
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
