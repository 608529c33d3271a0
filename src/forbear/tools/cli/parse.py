"""``forbear parse``: what the headers of a response ask for, and a policy's verdict. Floor: acts.

Reads header lines as they come from ``curl -sI``. findings.py tells what each of them says; the
rules of core/ decide.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from math import inf
from typing import Any, TextIO

from ...core.call import Call
from ...core.decide import answered
from ...core.decide import decide as core_decide
from ...core.headers.dates import parse_http_date, parse_timestamp
from ...core.headers.fields import OWS, number
from ...core.headers.hints import read_hint
from ...core.policy import RetryPolicy
from ...core.request import Request
from ...core.verdict import GiveUp, Reason, Retry
from ...shared.limits import Limits
from . import complain, teach
from .findings import Finding, Lines, findings
from .settings import add_policy_arguments, chosen
from .tables import GREEN, RED, Page, spoken, visible

__all__ = ["add_arguments", "run"]

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
    Reason.SERVER_SAID_NO: "the server says that another attempt is no use",
    Reason.REPLAYED_RESPONSE: "this is the stored answer to an earlier attempt with the same key",
    Reason.METHOD_NOT_REPLAYABLE: "the server may have executed it, and it carries no known key",
    Reason.ATTEMPTS_EXHAUSTED: "the policy sends once",
    Reason.RETRY_AFTER_TOO_LONG: "{} is over max_retry_after, {.max_retry_after:g} s",
    Reason.DEADLINE: "{} is more than total_timeout leaves",
}
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of a header, RFC 9110 section 5.6.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
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
    """Say what the header lines ask for, return the exit status."""
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
        told = sentence(decision, status, policy, hint.source)
        page.text(f"forbear: {told}", RED if decision["verdict"] == "stop" else GREEN)
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
    """The status, if one is told, and the header lines of the last response.

    A pipe may hold several header sections, as curl -L prints them; a body is not looked at.

    Raises:
        ValueError: Something in it is no header line.
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

    The first attempt of a call is answered so, with the least and the largest random draws.
    """
    request = Request(method, "https://origin.invalid:443", [("Idempotency-Key", "k")] * keyed)
    verdicts = []
    for draw in (lambda: 0.0, lambda: 1.0):
        call = Call(policy, request, Limits(random=draw), 0.0, policy.max_attempts)
        call.deadline_at = inf if policy.total_timeout is None else policy.total_timeout
        call.sending(0.0)
        failure = answered(policy, status, lines, lambda: now)
        verdicts.append(core_decide(call, failure, 0.0) if status >= 400 else None)
    least, most = verdicts
    if least is None:
        return {"verdict": "accept"}
    if isinstance(least, GiveUp):
        return {"verdict": "stop", "reason": least.reason.value, "delay": least.delay}
    assert isinstance(least, Retry)
    wait = {"verdict": "retry", "delay": least.delay, "longest": None, "source": least.source}
    if isinstance(most, Retry):  # drawn longer, it may not fit the deadline
        wait |= {"longest": most.delay, "source": most.source}
    return wait


def show(page: Page, found: list[Finding]) -> None:
    if not found:
        page.text("No header has to do with trying again.")
        return
    rows = []
    for one in found:
        delay = "" if one.delay is None else spoken(one.delay)
        why = f"{one.result}: {one.why}" if one.why else one.result
        rows.append((one.name, one.says or visible(one.value), delay, why))
    page.table(("header", "says", "asks for", "result"), rows)


def sentence(decision: dict[str, Any], status: int, policy: RetryPolicy, asking: str | None) -> str:
    """Say in words what the policy does, and why."""
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
