"""``forbear parse``: what the headers of a response ask for, and what a policy makes of it. Floor:
acts.

Reads header lines as they come from ``curl -sI``, has findings.py tell what each of them says, and
a real ``Call`` decide, prints both as a table or as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from ...core.call import Call
from ...core.headers.dates import parse_http_date, parse_timestamp
from ...core.headers.fields import OWS, number
from ...core.headers.hints import read_hint
from ...core.request import Request
from ...core.verdict import GiveUp, Reason, RetryAfter
from ...shared.standard import StandardStrategy
from .findings import findings, visible
from .page import GREEN, RED, Page, complain, spoken, teach
from .settings import add_policy_arguments, chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...core.outcome import Hint
    from ...core.policy import RetryPolicy
    from .findings import Finding, Lines

__all__ = ["add_arguments", "run"]

ASKS, NOTHING, MALFORMED = 0, 1, 2
ASSUMED = 429  # the status that all of these headers are sent with

ABOUT = (
    "Read the headers of a response: which of them asked for what, which one won and why, and what a policy makes of"
    " it. Sends nothing."
)
EXAMPLES = """\
examples:
  forbear parse 'Retry-After: 120'
  forbear parse 'Retry-After: Fri, 31 Dec 2027 23:59:59 GMT' --now 2026-11-20T21:00:00Z
  curl -sI https://api.example.com/ | forbear parse -    with its status; the last response counts
  forbear parse - --method POST --key < headers.txt      of a POST with an Idempotency-Key
  forbear parse 'x-ratelimit-remaining: 0' 'x-ratelimit-reset: 30' --status 403 --vendors github
  forbear parse 'Retry-After: 90' --max-retry-after 120  under another policy
  forbear parse 'Retry-After: 90' --policy batch --json

Read are, in this order: retry-after-ms, x-ms-retry-after-ms, x-amz-retry-after,
grpc-retry-pushback-ms, Retry-After, then reports of a used-up quota: RateLimit, RateLimit-Reset,
X-RateLimit-Reset and its spellings, those of OpenAI and Anthropic. Yes or no: x-should-retry,
stripe-should-retry, a negative pushback; any no wins.

exit status: 0 they ask for something, 1 they ask for nothing, 2 what they say cannot be read, or an
argument is wrong.
"""

WHY = {
    Reason.SERVER_SAID_NO: "the server says that another attempt is no use",
    Reason.REPLAYED_RESPONSE: "this is the stored answer to an earlier attempt; the same key would bring it again",
    Reason.METHOD_NOT_REPLAYABLE: "the server may have executed it, and it carries no key that it would recognise",
    Reason.ATTEMPTS_EXHAUSTED: "the policy sends once",
}

# Characters of a header's name, RFC 9110 section 5.6.2.
NAME_CHARACTERS = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    parser.add_argument(
        "lines",
        nargs="+",
        metavar="LINE",
        help="'Name: value', a status line, or - for standard input",
    )
    parser.add_argument(
        "--status", type=int, metavar="N", help=f"of the response (its status line, else {ASSUMED})"
    )
    parser.add_argument("--method", default="GET", metavar="NAME", help="of the request (GET)")
    parser.add_argument("--key", action="store_true", help="the request carried an idempotency key")
    parser.add_argument(
        "--now", metavar="WHEN", help="when it came: 2026-11-20T21:00:00Z or Unix seconds (now)"
    )
    parser.add_argument(
        "--policy", metavar="POLICY", help="a preset, or module:attribute (the default policy)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    add_policy_arguments(parser)


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Say what the header lines ask for, return the exit status."""
    try:
        policy = chosen(options).policy
        now = instant(options.now)
        given, lines = read(options.lines, sys.stdin)
        known: int | None = given if options.status is None else options.status
        status = ASSUMED if known is None else known
        if not 100 <= status <= 999:
            raise ValueError(f"a status has three digits, got {status}")
        if not options.method.isascii() or not options.method.isalpha():
            raise ValueError(f"--method must be a name such as GET, got {options.method!r}")
    except (ValueError, TypeError, ImportError) as mistake:
        return complain("parse", mistake)
    hint = read_hint(status, lines, now=now)
    found = findings(status, lines, now, hint)
    decision = decide(policy, status, lines, now, options.method.upper(), keyed=options.key)
    if options.json:
        print(json.dumps(as_json(status, found, hint, decision), indent=1), file=out)
    else:
        page = Page(out)
        assumed = " (assumed; --status says another)" if known is None else ""
        page.text(
            f"status {status}{assumed}, {options.method.upper()}{' with a key' * options.key}"
        )
        show(page, found, told(decision, status, policy, hint.source))
    if hint.delay is not None or hint.should_retry is not None:
        return ASKS
    return MALFORMED if any(finding.result == "malformed" for finding in found) else NOTHING


def instant(text: str | None) -> float:
    if text is None:
        return time.time()
    found = number(text)
    if found is None:
        found = parse_timestamp(text)
    if found is None:
        found = parse_http_date(text, now=time.time())
    if found is None:
        raise ValueError(f"--now must be like 2026-11-20T21:00:00Z, or Unix seconds, got {text!r}")
    return found


# What was given.


def read(words: Sequence[str], stdin: TextIO) -> tuple[int | None, Lines]:
    """The status, if one is told, and the header lines of the last response.

    Raises:
        ValueError: Something in it is no header line.
    """
    status: int | None = None
    lines: Lines = []
    for word in words:
        text = everything(stdin) if word == "-" else word
        told, more = last_section(text.split("\n"))
        status = status if told is None else told
        lines += more
    return status, lines


def everything(stdin: TextIO) -> str:
    raw = getattr(stdin, "buffer", None)
    return stdin.read() if raw is None else str(raw.read(), "latin-1")


def last_section(texts: Iterable[str]) -> tuple[int | None, Lines]:
    """Of several header sections one after the other, as curl -L prints them, the last; a body is
    not looked at.
    """
    status: int | None = None
    lines: Lines = []
    is_over = False
    for text in texts:
        line = text.rstrip("\r")
        if line[:5].upper() == "HTTP/":
            status, lines, is_over = status_of(line), [], False
        elif is_over:
            continue
        elif not line.strip(OWS):
            is_over = status is not None or bool(lines)
        elif line[0] in OWS and lines:  # a folded line, RFC 9112 section 5.2
            lines[-1] = (lines[-1][0], f"{lines[-1][1]} {line.strip(OWS)}".strip(OWS))
        else:
            name, colon, value = line.partition(":")
            if not colon or not name or name.strip(NAME_CHARACTERS):
                raise ValueError(
                    f"no header line: {visible(line)}; write 'Retry-After: 120', or - to read them from a pipe"
                )
            lines.append((name, value.strip(OWS)))
    return status, lines


def status_of(line: str) -> int:
    code = line.partition(" ")[2][:3]
    if not (code.isascii() and code.isdigit()):
        raise ValueError(f"no status line: {visible(line)}")
    return int(code)


# What comes of it.


class Decision(NamedTuple):
    """What the policy makes of the response.

    Attributes:
        verdict: "retry", "stop" or "accept".
        reason: Why not; None where it would retry.
        delay: Seconds: the wait before the retry at least, or the one that was refused.
        longest: The same at most.
        source: Who chose the wait: "backoff" or a header's name.
    """

    verdict: str
    reason: str | None = None
    delay: float | None = None
    longest: float | None = None
    source: str | None = None


def decide(
    policy: RetryPolicy, status: int, lines: Lines, now: float, method: str, *, keyed: bool
) -> Decision:
    """Have the first attempt of a call answered so."""
    headers = [("Idempotency-Key", "0f1e2d3c")] if keyed else []
    verdicts = []
    for end in (lambda: 0.0, lambda: 1.0):  # of all that is random
        facts = Request(method, "https://origin.invalid:443", headers)
        limit = inf if policy.total_timeout is None else policy.total_timeout
        call = Call(policy, facts, StandardStrategy(policy, random=end), now=0.0, deadline_at=limit)
        call.open(0.0)
        call.sending(0.0)
        verdicts.append(call.after_response(status, lines, 0.0, utc_now=now))
    least, most = verdicts
    if least is None:
        return Decision("accept", "accepted")
    if isinstance(least, GiveUp):
        return Decision("stop", least.reason.value, least.delay)
    assert isinstance(least, RetryAfter)
    if not isinstance(most, RetryAfter):  # drawn longer, it would not fit the deadline
        return Decision("retry", None, least.delay, None, least.source)
    return Decision("retry", None, least.delay, most.delay, most.source)


def show(page: Page, found: list[Finding], outcome: tuple[str, str, str]) -> None:
    page.line()
    if found:
        rows = [
            (one.name, one.says or visible(one.value), asked(one), result(one)) for one in found
        ]
        page.table(("header", "says", "asks for", "result"), rows)
    else:
        page.text("No header has to do with trying again.")
    page.line()
    what, why, colour = outcome
    page.marked("forbear:", f"{what}: {why}", colour)


def asked(finding: Finding) -> str:
    return "" if finding.delay is None else spoken(finding.delay)


def result(finding: Finding) -> str:
    if finding.result == "gate":
        return finding.why
    return f"{finding.result}: {finding.why}" if finding.why else finding.result


def told(
    decision: Decision, status: int, policy: RetryPolicy, asking: str | None
) -> tuple[str, str, str]:
    """What it does, why, and the colour of it."""
    if decision.verdict == "accept":
        return (
            "returns the response",
            "no failure" if status < 400 else f"{status} is not retried",
            GREEN,
        )
    delay = decision.delay or 0.0
    if decision.verdict == "retry":
        most = decision.longest
        span = (
            spoken(delay) if most is None or most == delay else f"{spoken(delay)} to {spoken(most)}"
        )
        by = f"as {asking} asks"
        if decision.source == "backoff":
            by = "by its own backoff"
            if asking is not None:
                by += (
                    ", hints are ignored"
                    if policy.hints == "ignore"
                    else f", which can be longer than {asking} asks"
                )
        return f"retries after {span}", by, GREEN
    reason = Reason(decision.reason or "")
    why = WHY.get(reason, "")
    if reason is Reason.RETRY_AFTER_TOO_LONG:
        why = f"{spoken(delay)} is over max_retry_after, {spoken(policy.max_retry_after)}"
    elif reason is Reason.DEADLINE:
        why = f"{spoken(delay)} is more than total_timeout leaves"
    return "returns the response", f"{why} ({reason.value})", RED


def as_json(status: int, found: list[Finding], hint: Hint, decision: Decision) -> dict[str, Any]:
    return {
        "status": status,
        "headers": [finding._asdict() for finding in found],
        "hint": hint._asdict(),
        "decision": decision._asdict(),
    }
